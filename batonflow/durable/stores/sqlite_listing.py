"""Listings of the runs in the file of a SQLiteStore."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from batonflow.durable.store_protocol import RunInfo, RunStatus
from batonflow.durable.stores.bounds import no_run_after
from batonflow.durable.stores.sqlite_parts import info_of
from batonflow.durable.stores.sqlite_rows import DatabaseSession, RunRow, find_run

__all__ = ["list_runs", "listed", "values_of"]

_LAST_ID = 2**63 - 1

_CONDITIONS = {
    "status": "status = :status",
    # Without + SQLite would sort all runs of these statuses.
    "statuses": "+status IN (SELECT value FROM json_each(:statuses))",
    "workflow": "workflow = :workflow",
    "metadata": """(metadata IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM json_each(:metadata) AS wanted WHERE NOT EXISTS (
            SELECT 1 FROM json_each(metadata) AS given
            WHERE given.key = wanted.key AND given.value = wanted.value)))""",
}


def values_of(
    statuses: Sequence[RunStatus] | None, workflow: str | None, metadata: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the values of the conditions of a listing, by name."""
    one_status = statuses is not None and len(statuses) == 1  # SQLite has an index for it
    return {
        "status": statuses[0] if statuses and one_status else None,
        "statuses": None if statuses is None or one_status else json.dumps(list(statuses)),
        "workflow": workflow,
        "metadata": json.dumps(dict(metadata), ensure_ascii=False) if metadata else None,
    }


def list_runs(
    session: DatabaseSession,
    statuses: Sequence[RunStatus] | None,
    workflow: str | None,
    after: str | None,
    limit: int,
    newest_first: bool,
    metadata: Mapping[str, str] | None = None,
) -> list[RunInfo]:
    """See ``RunStore.list_runs``."""
    return listed(session, values_of(statuses, workflow, metadata), after, limit, newest_first)


def listed(
    session: DatabaseSession,
    values: Mapping[str, Any],
    after: str | None,
    limit: int,
    newest_first: bool,
    *,
    conditions: Mapping[str, str] | None = None,
    joined: str = "",
) -> list[RunInfo]:
    """Return the listings of runs in the order of their creation.

    Args:
        session: The connection.
        values: The values of conditions by name; conditions without a value do not count.
        after: The run after which to begin.
        limit: The largest number of runs.
        newest_first: Whether to reverse the order.
        conditions: Further conditions in SQL, by name.
        joined: A join of another table.

    Raises:
        StoreError: There is no run ``after``.
    """
    begin = _LAST_ID if newest_first else 0
    if after is not None:
        last = find_run(session, after)
        if last is None:
            raise no_run_after(after)
        begin = last.id
    behind, order = ("id < :begin", "id DESC") if newest_first else ("id > :begin", "id")
    given = {name: value for name, value in values.items() if value is not None}
    known = {**_CONDITIONS, **(conditions or {})}
    wanted = " AND ".join([behind, *(known[name] for name in given)])
    found = session.connection.execute(
        f"SELECT run_infos.* FROM run_infos {joined} WHERE {wanted} ORDER BY {order} LIMIT :limit",  # noqa: S608 - constants
        {**given, "begin": begin, "limit": limit},
    )
    return [info_of(session, RunRow(*row)) for row in found.fetchall()]
