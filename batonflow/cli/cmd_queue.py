"""``queue``: count the runs of a store that are not over, by queue, workflow and version."""

import asyncio
import time
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from batonflow.cli.errors import DONE
from batonflow.cli.output import say, say_json, table
from batonflow.cli.stores import KeptStore, opened
from batonflow.durable.store_protocol import RunInfo

__all__ = ["queue"]

_PAGE = 1000


@dataclass
class _Line:
    """The runs of one queue, workflow and version."""

    counts: Counter[str] = field(default_factory=Counter[str])
    oldest: float | None = None  # the creation of the oldest ready run


def queue(given: Namespace) -> int:
    """Count the runs that are not over."""
    return asyncio.run(_queue(given))


async def _queue(given: Namespace) -> int:
    lines: dict[tuple[str, str, str], _Line] = {}
    async with opened(given) as store:
        async for info in _unfinished(store):
            line = lines.setdefault((info.queue, info.workflow, info.version or ""), _Line())
            status = "held" if info.held else info.status
            line.counts[status] += 1
            if status == "ready" and (line.oldest is None or info.created_at < line.oldest):
                line.oldest = info.created_at
    told = [_as_data(place, line) for place, line in sorted(lines.items())]
    if given.json:
        say_json(told)
    elif told:
        table([name.upper() for name in _NAMES], [[str(one[name]) for name in _NAMES] for one in told])
    else:
        say("every run is over")
    return DONE


_NAMES = ("queue", "workflow", "version", "ready", "oldest", "running", "waiting", "held")


async def _unfinished(store: KeptStore) -> AsyncIterator[RunInfo]:
    after: str | None = None
    while True:
        page: list[RunInfo] = await store.list_runs(status=["ready", "running", "waiting"], after=after, limit=_PAGE)
        for info in page:
            yield info
        if len(page) < _PAGE:
            return
        after = page[-1].run_id


def _as_data(place: tuple[str, str, str], line: _Line) -> dict[str, Any]:
    queue_name, workflow, version = place
    oldest = "" if line.oldest is None else f"{max(0.0, time.time() - line.oldest):.0f} s"
    counts = {name: line.counts[name] for name in ("ready", "running", "waiting", "held")}
    return {"queue": queue_name, "workflow": workflow, "version": version, "oldest": oldest, **counts}
