"""Search over the runs of a store: bring its index up to date, and ask it."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batonflow.durable.index_entries import extended, first_entry
from batonflow.durable.search_protocol import FoundRuns, IndexEntry, RunQuery, SearchStore
from batonflow.durable.store_protocol import RunInfo, RunStore
from batonflow.instrumentation.logs import logger_named
from batonflow.threads import in_thread
from batonflow.workflow_core.errors import StoreCorruptedError, StoreError

__all__ = ["COUNTED", "FoundRuns", "RunQuery", "cannot_search", "find_runs", "listed_runs", "update_index"]

logger = logger_named("batonflow.store")

COUNTED = 1_000
"""Runs that are not in the index yet are counted up to this number."""

SECONDS_TO_REPORT = 2.0

_RUNS_AT_ONCE = 50
_COMMITS_AT_ONCE = 200


async def find_runs(
    store: RunStore,
    query: RunQuery,
    *,
    after: str | None = None,
    limit: int = 100,
    newest_first: bool = True,
    seconds: float | None = None,
) -> FoundRuns:
    """Return the runs of a store for which a query holds.

    Args:
        store: The store.
        query: The query.
        after: The run after which to begin.
        limit: The largest number of runs.
        newest_first: Whether to return the runs that were created last first.
        seconds: Seconds in which to bring the index up to date; None for as long as it takes. The runs that are left
            are found by a later call.

    Raises:
        StoreError: The store cannot search, or there is no run ``after``.

    Example:
        >>> found = await find_runs(store, RunQuery(text="order 1234"))
        >>> [info.run_id for info in found.runs]
    """
    _searchable(store)
    unread = await update_index(store, seconds=seconds) if query.needs_index else 0
    return FoundRuns(await listed_runs(store, query, after=after, limit=limit, newest_first=newest_first), unread)


async def listed_runs(
    store: RunStore, query: RunQuery, *, after: str | None = None, limit: int = 100, newest_first: bool = True
) -> list[RunInfo]:
    """Return the runs of a store that match a query, from its current index or its listing.

    A query without contents does not need the index.

    Args:
        store: The store.
        query: The query.
        after: The run after which to begin.
        limit: The largest number of runs.
        newest_first: Whether to return the runs that were created last first.

    Raises:
        StoreError: The store cannot search, or there is no run ``after``.
    """
    if query.needs_index:
        return await _searchable(store).search(query, after=after, limit=limit, newest_first=newest_first)
    more: Any = {"metadata": query.metadata} if query.metadata else {}  # other stores may lack the parameter
    return await store.list_runs(
        status=query.status, workflow=query.workflow, after=after, limit=limit, newest_first=newest_first, **more
    )


async def update_index(
    store: RunStore, *, seconds: float | None = None, report: Callable[[int], None] | None = None
) -> int:
    """Bring the index of a store up to date. Return the number of remaining runs, at most ``COUNTED``.

    A run that goes on meanwhile is read once.

    Args:
        store: The store.
        seconds: Seconds after which to stop; None for as long as it takes.
        report: Called every few seconds with the number of runs that are left, at most ``COUNTED``.

    Raises:
        StoreError: The store cannot search, or it failed.
    """
    kept = _searchable(store)
    until = math.inf if seconds is None else time.monotonic() + seconds
    next_report = time.monotonic() + SECONDS_TO_REPORT
    unfinished: set[str] = set()
    while True:
        outdated = await kept.outdated(_RUNS_AT_ONCE + len(unfinished))
        outdated = [one for one in outdated if one[0].run_id not in unfinished]
        if not outdated:
            return 0
        entries: list[IndexEntry] = []
        for info, known in outdated[:_RUNS_AT_ONCE]:
            entry = await _read_on(store, info, known, until)
            entries.append(entry)
            if not entry.is_over:
                unfinished.add(info.run_id)
            if time.monotonic() > until:
                break
        await kept.index(entries)
        if time.monotonic() > until:
            return await kept.count_outdated(COUNTED)
        if report is not None and time.monotonic() > next_report:
            report(await kept.count_outdated(COUNTED))
            next_report = time.monotonic() + SECONDS_TO_REPORT
        await asyncio.sleep(0)  # a store in memory does not wait


async def _read_on(store: RunStore, info: RunInfo, entry: IndexEntry | None, until: float) -> IndexEntry:
    """Return the entry of a run up to its last commit, or up to a monotonic time.

    Records from the first unreadable one on are left out.
    """
    if entry is None or entry.created_at != info.created_at:
        entry = first_entry(info)
    while entry.commit < info.seq:
        try:
            commits = await store.read(info.run_id, entry.commit, _COMMITS_AT_ONCE)
        except StoreCorruptedError as error:
            return _without_the_rest(info, entry, error)
        if not commits:
            break
        try:
            entry = await in_thread(extended, entry, commits)
        except Exception as error:  # noqa: BLE001 - one unreadable run must not hide the others
            return _without_the_rest(info, entry, error)
        if time.monotonic() > until and entry.commit < info.seq:
            return entry
    return replace(entry, commit=max(entry.commit, info.seq), is_over=info.is_over)


def _without_the_rest(info: RunInfo, entry: IndexEntry, error: Exception) -> IndexEntry:
    logger.warning("run %s can be found by a part of its contents only: %s", info.run_id, error)
    return replace(entry, commit=info.seq, is_over=info.is_over)


def cannot_search(store: RunStore) -> StoreError:
    """Return the error for a store without an index."""
    return StoreError(
        f"{type(store).__name__} cannot search: it does not have the methods of SearchStore. Use a SQLiteStore or a "
        "PostgresStore, or list its runs"
    )


def _searchable(store: RunStore) -> SearchStore:
    if not isinstance(store, SearchStore):
        raise cannot_search(store)
    return store
