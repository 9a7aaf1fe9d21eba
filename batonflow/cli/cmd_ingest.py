"""``ingest``: read files into a file of passages. Killed or interrupted, the same command continues."""

import asyncio
import logging
import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from batonflow.cli.errors import DONE, FAILED, USAGE, CommandError
from batonflow.cli.output import check_folder, complain, say, say_json
from batonflow.cli.passages import opened_index, opened_passages
from batonflow.lazy import how_to_install
from batonflow.retrieval import IngestProgress, IngestResult, SimpleDirectoryReader
from batonflow.retrieval import ingest as ingested

__all__ = ["ingest"]


def ingest(given: Namespace) -> int:
    """Read files into a file of passages."""
    path = Path(given.source)
    if not path.exists():
        raise CommandError(f"there is no folder or file {given.source}", USAGE)
    check_folder(given.file)
    is_file = path.is_file()
    try:
        reader = SimpleDirectoryReader(
            path, [path] if is_file else None, given.exclude, recursive=True, encoding=given.encoding
        )
        "".encode(given.encoding)
        generated = [] if is_file or given.generated else _generated_among(reader.input_files)
        reader.input_files = sorted({*reader.input_files} - {*generated})
    except (ValueError, LookupError) as error:
        raise CommandError(str(error), USAGE) from error
    try:
        code = asyncio.run(_ingest(reader, given))
    except KeyboardInterrupt:
        complain("interrupted; the same command continues")
        raise
    if generated and not given.json:
        left = _counted(len(generated), "generated file")
        say(f"{left} left out, such as {generated[0].name}: --generated reads them")
    return code


def _generated_among(files: Sequence[Path]) -> list[Path]:
    """Return the indexes and copies of sources in folders of pages that Sphinx has made."""
    folders = {path.parent for path in files if path.name in _MADE_BY_SPHINX}

    def is_generated(path: Path) -> bool:
        inside = [path.relative_to(one).parts for one in folders.intersection(path.parents)]
        return any(one[0] in _FOLDERS or _INDEXES.fullmatch("/".join(one)) for one in inside)

    return list(filter(is_generated, files))


_MADE_BY_SPHINX = {"genindex.html", "searchindex.js"}
_INDEXES = re.compile(r"(genindex(-.+)?|py-modindex|search)\.html|searchindex\.js|objects\.inv")
_FOLDERS = {"_sources", "_static"}

_LIBRARIES = ("pypdf", "bs4")
"""Libraries whose remarks on single files are not shown; a file that cannot be read is reported anyway."""


async def _ingest(reader: SimpleDirectoryReader, given: Namespace) -> int:
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    index = opened_index(opened_passages(given.file), given)
    handler = ingested(reader, index, batch=given.batch, prune=given.prune)
    try:
        async for event in handler.stream_events():
            if isinstance(event, IngestProgress) and event.counts.done < event.counts.total:
                complain(f"{event.counts.done} of {event.counts.total} files")
        result = await handler
    except asyncio.CancelledError:
        logging.getLogger("batonflow").setLevel(logging.CRITICAL)  # its threads may go on for a moment
        await handler.cancel_run()
        raise
    return _told(result, given)


def _told(result: IngestResult, given: Namespace) -> int:
    lacking = sum(one.needs_library for one in result.failures)
    if given.json:
        say_json(result)
    else:
        for one in result.failures:
            complain(f"left out: {one.error if one.source in one.error else f'{one.source}: {one.error}'}")
        if result.failed > len(result.failures):
            complain(f"left out: {result.failed - len(result.failures)} further files")
        if lacking:
            complain(f"{_counted(lacking, 'file')} left out, as a library is missing: {how_to_install('readers')}")
        counts = [f"{result.added} new", f"{result.changed} changed", f"{result.unchanged} unchanged"]
        if result.failed:
            counts.append(f"{result.failed} left out")
        if result.gone:
            counts.append(f"{result.gone} {'deleted' if given.prune else 'gone (--prune deletes their passages)'}")
        say(f"{_counted(result.done, 'file')}: {', '.join(counts)}; {_counted(result.nodes, 'passage')} written")
    return FAILED if lacking or result.failed == result.done else DONE


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
