"""Count the words of all documents of a folder: each document once, also when the process is killed in between."""

import asyncio
import sqlite3
import sys
from pathlib import Path

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core import MapError, StepProgress


class Folder(StartEvent):
    path: str


class Documents(Event):
    paths: list[str]


class Counted(Event):
    words: dict[str, int]
    failed: list[str]


class Loaded(StopEvent):
    documents: int
    words: int
    failed: list[str]


def count_words(path: str) -> int:
    """Transform a document; a synchronous function, so it runs in a thread."""
    return len(Path(path).read_text().split())


class Etl(Workflow[Loaded]):
    """Extract the names of the documents, count their words, and load the counts into a table."""

    @step
    def extract(self, ev: Folder) -> Documents:
        return Documents(paths=sorted(str(path) for path in Path(ev.path).glob("*.txt")))

    @step
    async def transform(self, ctx: Context, ev: Documents) -> Counted:
        counts = await ctx.map(count_words, ev.paths, workers=16, timeout=60, on_error="collect")
        found = dict(zip(ev.paths, counts, strict=True))
        words = {path: count for path, count in found.items() if not isinstance(count, MapError)}
        return Counted(words=words, failed=[path for path in ev.paths if path not in words])

    @step
    def load(self, ev: Counted) -> Loaded:
        with sqlite3.connect("words.db") as table:
            table.execute("CREATE TABLE IF NOT EXISTS words (document TEXT PRIMARY KEY, count INTEGER)")
            table.executemany("INSERT OR REPLACE INTO words VALUES (?, ?)", ev.words.items())
        table.close()
        return Loaded(documents=len(ev.words), words=sum(ev.words.values()), failed=ev.failed)


async def main(folder: str) -> None:
    flow = Etl(timeout=None, store="runs.db")
    handler = flow.run(start_event=Folder(path=folder), run_id=f"etl-{Path(folder).name}")
    async for event in handler.stream_events():
        if isinstance(event, StepProgress):
            print(f"{event.step}: {event.done} of {event.total}", flush=True)
    loaded = await handler
    print(f"{loaded.documents} documents, {loaded.words} words, {len(loaded.failed)} failed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
