"""Methods of every store for looking back: records, replays and differences."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from batonflow.durable.replay import ReplayedRun, RunDiff, compare, records_of, replayed
from batonflow.durable.store_protocol import RunInfo, RunStore, StoredCommit
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.stream import Entry

__all__ = ["StoredHistory", "commits_of", "no_such_run", "stored_stream"]

PAGE = 1000


def no_such_run(run_id: str) -> StoreError:
    """Return the error for a run that a store does not have."""
    return StoreError(f"The store has no run {run_id!r}: its list_runs() gives those that there are")


class StoredHistory:
    """Reads runs back; a base of stores."""

    async def history(self: RunStore, run_id: str) -> list[dict[str, Any]]:
        """The records of a run in the order of their commits; ``commit`` says which belong together.

        Raises:
            StoreError: There is no such run.
        """
        _, commits = await _all(self, run_id)
        return records_of(commits)

    async def replay(self: RunStore, run_id: str, workflow: AnyWorkflow | None = None) -> ReplayedRun:
        """A run as its records tell it, without running anything: no key, no network, no tool.

        Args:
            run_id: The run.
            workflow: Its code, when its events are declared inside functions or it has a serializer of its own.

        Raises:
            StoreError: There is no such run, or its classes are not loaded.
            TypeError: ``workflow`` is not a workflow.

        Example:
            >>> run = await store.replay("tides-1")
            >>> [type(entry.event).__name__ for entry in run.events]
        """
        info, commits = await _all(self, run_id)
        return replayed(run_id, info.status, commits, workflow)

    async def diff(self: RunStore, left: str, right: str) -> RunDiff:
        """Compare two runs: find where they part, then the differences record by record.

        Raises:
            StoreError: There is no such run.
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
    """Return the stream of a run from before this process took it up, behind a position.

    Raises:
        StoreError: The store fails, or something was streamed of a class that is not loaded.
    """
    if run.opening is not None and asyncio.get_running_loop() is run.loop:
        await asyncio.wait({run.opening})
    store: RunStore | None = run.workflow.__batonflow__.store
    run_id, begins = run.state.run_id, run.stream.begins
    if store is None or begins <= after + 1:
        return []
    commits = [commit async for commit in commits_of(store, run_id)]
    events = replayed(run_id, "running", commits, run.workflow).events
    return [(one.seq, one.ts, one.step, one.path, one.cause, one.event) for one in events if after < one.seq < begins]
