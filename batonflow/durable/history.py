"""The methods of all stores for inspection: records, replays and differences."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from batonflow.durable.replay import ReplayedRun, RunDiff, compare, records_of, replayed
from batonflow.durable.store_protocol import RunInfo, RunStore, StoredCommit
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.stream import Entry

__all__ = ["StoredHistory", "commits_of", "no_such_run", "stored_stream", "stream_in_store"]

PAGE = 1000


def no_such_run(run_id: str) -> StoreError:
    """Return the error for an unknown run."""
    return StoreError(f"The store has no run {run_id!r}: its list_runs() gives those that there are")


class StoredHistory:
    """The base class of stores with methods for inspection."""

    async def history(self: RunStore, run_id: str) -> list[dict[str, Any]]:
        """Return the records of a run in order; ``commit`` is the number of their commit.

        Raises:
            StoreError: The run does not exist.
        """
        _, commits = await _all(self, run_id)
        return records_of(commits)

    async def replay(self: RunStore, run_id: str, workflow: AnyWorkflow | None = None) -> ReplayedRun:
        """Return a run from its records, without execution of steps, models or tools.

        Args:
            run_id: The run.
            workflow: The workflow, if its events are declared inside functions or it has its own serializer.

        Raises:
            StoreError: The run does not exist, or its classes are not loaded.
            TypeError: ``workflow`` is not a workflow.

        Example:
            >>> run = await store.replay("tides-1")
            >>> [type(entry.event).__name__ for entry in run.events]
        """
        info, commits = await _all(self, run_id)
        return replayed(run_id, info.status, commits, workflow)

    async def diff(self: RunStore, left: str, right: str) -> RunDiff:
        """Compare two runs record by record.

        Raises:
            StoreError: The run does not exist.
        """
        _, one = await _all(self, left)
        _, other = await _all(self, right)
        return compare(records_of(one), records_of(other))


async def commits_of(store: RunStore, run_id: str) -> AsyncGenerator[StoredCommit]:
    """Yield the commits of a run, which are read from the store in pages."""
    last = 0
    while found := await store.read(run_id, last, PAGE):
        for commit in found:
            yield commit
        last = found[-1].seq


async def _all(store: RunStore, run_id: str) -> tuple[RunInfo, list[StoredCommit]]:
    info = await store.info(run_id)
    if info is None:
        raise no_such_run(run_id)
    return info, [commit async for commit in commits_of(store, run_id)]


async def stored_stream(run: Run, after: int) -> list[Entry]:
    """Return the stream of a run from before this process claimed it, after a position.

    Raises:
        StoreError: The store fails, or something was streamed of a class that is not loaded.
    """
    if run.opening is not None and asyncio.get_running_loop() is run.loop:
        await asyncio.wait({run.opening})
    store: RunStore | None = run.workflow.__batonflow__.store
    begins = run.stream.begins
    if store is None or begins <= after + 1:
        return []
    return [entry for entry in await stream_in_store(store, run, after) if entry[0] < begins]


async def stream_in_store(store: RunStore, run: Run, after: int) -> list[Entry]:
    """Return the events of a run in its store after a position, without the event that ended it.

    Raises:
        StoreError: The store fails, or something was streamed of a class that is not loaded.
    """
    run_id = run.state.run_id
    commits = [commit async for commit in commits_of(store, run_id)]
    found = replayed(run_id, "running", commits, run.workflow, after)
    events = [one for one in found.events if one.seq > after and one.event is not found.stop_event]
    return [(one.seq, one.ts, one.step, one.path, one.cause, one.event) for one in events]
