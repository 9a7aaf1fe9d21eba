"""Reading from the database of a PostgresStore, each operation from one state of it, with checksums."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batonflow.durable.parts.references import without_references
from batonflow.durable.store_protocol import ENDS, InboxItem, Loaded, RunInfo, RunStatus, StoredCommit
from batonflow.durable.stores.bounds import check_run_id, no_run_after
from batonflow.durable.stores.packing import unpacked
from batonflow.durable.stores.postgres_rows import (
    RUN_COLUMNS,
    Query,
    RunRow,
    Snapshot,
    Steps,
    bounded,
    checksum,
    damaged,
    info_of,
    infos_of,
    parts_of,
    parts_query,
    plain,
    stored_text,
    with_parts,
)
from batonflow.workflow_core.errors import StoreError

__all__ = ["follow", "info", "list_runs", "listed", "load", "read", "read_parts", "unread", "values_of"]

_INFO = f"SELECT {RUN_COLUMNS} WHERE runs.run_id = %(run_id)s"


def info(run_id: str) -> Steps[RunInfo | None]:
    """See ``RunStore.info``."""
    rows = yield Query(_INFO, {"run_id": check_run_id(run_id)})
    return (yield from info_of(rows[0])) if rows else None


_LOAD = (
    _INFO,
    """
    SELECT snapshots.seq, body, crc FROM batonflow.snapshots JOIN batonflow.runs ON runs.id = run
    WHERE run_id = %(run_id)s AND snapshots.seq <= coalesce(%(at)s::bigint, runs.seq)
    ORDER BY snapshots.seq DESC LIMIT 1
    """,
    """
    SELECT commits.seq, at, body, crc FROM batonflow.commits JOIN batonflow.runs ON runs.id = run
    WHERE run_id = %(run_id)s AND commits.seq <= coalesce(%(at)s::bigint, runs.seq) AND commits.seq > coalesce((
        SELECT max(s.seq) FROM batonflow.snapshots AS s
        WHERE s.run = runs.id AND s.seq <= coalesce(%(at)s::bigint, runs.seq)), 0)
    ORDER BY commits.seq
    """,
    """
    SELECT position, key, kind, payload, at, crc FROM batonflow.inbox JOIN batonflow.runs ON runs.id = run
    WHERE run_id = %(run_id)s AND CASE WHEN %(at)s::bigint IS NULL THEN used IS NULL
        ELSE came <= %(at)s::bigint AND (used IS NULL OR used > %(at)s::bigint) END
    ORDER BY position
    """,
    """
    SELECT coalesce(part_log, id), parts.log, number, body, crc
    FROM batonflow.runs CROSS JOIN LATERAL batonflow.line_of(coalesce(part_log, id)) AS line
    JOIN batonflow.parts ON parts.log = line.log AND (line.until IS NULL OR number < line.until)
    WHERE run_id = %(run_id)s ORDER BY number
    """,
)


def load(run_id: str, at: int | None) -> Steps[Loaded | None]:
    """See ``RunStore.load``."""
    values = {"run_id": check_run_id(run_id), "at": None if at is None else bounded(at)}
    found, snapshots, commits, items, parts = yield Snapshot([Query(sql, values) for sql in _LOAD])
    if not found:
        return None
    row = RunRow(*found[0])
    last = row.seq if at is None else at
    if not 0 <= last <= row.seq:
        raise StoreError(f"Run {run_id!r} has no commit {at}: its commits are numbered from 1 to {row.seq}")
    snapshot: tuple[int, bytes] | None = None
    for seq, body, crc in snapshots:
        if crc != checksum(seq, body):
            raise damaged(f"The snapshot after commit {seq} of run {run_id!r}")
        snapshot = seq, unpacked(body)
    first = snapshot[0] if snapshot else 0
    if first < row.compacted and first < last:
        raise StoreError(
            f"Commit {at} of run {run_id!r} is not kept any more: commits up to {row.compacted} were dropped"
        )
    return Loaded(
        (yield from info_of(row)),
        snapshot,
        _commits(commits, run_id, max(first, row.compacted), last),
        _items(items, run_id),
        parts_of(parts, row.log, lambda: f"the run {run_id!r}"),
        row.log,
    )


def _commits(rows: Iterable[Any], run_id: str, after: int, last: int) -> list[StoredCommit]:
    """Return the commits after a number up to ``last``; all must exist."""
    commits: list[StoredCommit] = []
    for expected, (seq, at, body, crc) in enumerate(rows, after + 1):
        if seq != expected:
            break
        if crc != checksum(seq, body):
            raise damaged(f"Commit {seq} of run {run_id!r}")
        commits.append(StoredCommit(seq, at, unpacked(body)))
    if len(commits) < last - after:
        raise damaged(f"Commit {after + len(commits) + 1} of run {run_id!r} is missing, so the run")
    return commits


def _items(rows: Iterable[Any], run_id: str) -> list[InboxItem]:
    items: list[InboxItem] = []
    for position, key, kind, payload, at, crc in rows:
        if crc != checksum(0, payload):
            raise damaged(f"Inbox item {position} of run {run_id!r}")
        items.append(InboxItem(position, plain(key), kind, payload, at))
    return items


_FOLLOW = """
SELECT runs.id, runs.seq, runs.compacted, runs.status, coalesce(runs.part_log, runs.id), commits.seq, at, body, crc
FROM batonflow.runs LEFT JOIN LATERAL (
    SELECT * FROM batonflow.commits
    WHERE run = runs.id AND commits.seq > greatest(%(after)s::bigint, runs.compacted) AND commits.seq <= runs.seq
    ORDER BY commits.seq LIMIT %(limit)s::bigint
) AS commits ON TRUE
WHERE run_id = %(run_id)s ORDER BY commits.seq
"""


def read(run_id: str, after: int, limit: int) -> Steps[list[StoredCommit]]:
    """See ``RunStore.read``."""
    _, commits = yield from follow(run_id, after, limit, None)
    return commits


def follow(run_id: str, after: int, limit: int, number: int | None) -> Steps[tuple[int | None, list[StoredCommit]]]:
    """Return commits for a continuous reader, with the number of the run; None at the end.

    Args:
        run_id: The run.
        after: The last commit that is known.
        limit: The largest number of commits.
        number: The number that the run had before; another run of that name is not meant.
    """
    after = bounded(after)
    rows = yield Query(_FOLLOW, {"run_id": check_run_id(run_id), "after": after, "limit": limit})
    if not rows or number not in (None, rows[0][0]):
        return None, []
    found, last, compacted, status, log, first, *_ = rows[0]
    begin = max(after, compacted)
    stored = [row[5:] for row in rows] if first is not None else []
    commits = _commits(stored, run_id, begin, min(last, begin + limit))
    whole = yield from with_parts(lambda parts: without_references(commits, parts), log)
    over = status in ENDS and (commits[-1].seq if commits else after) >= last
    return None if over else found, whole


def read_parts(part_log: int) -> Steps[list[bytes]]:
    """See ``PartStore.read_parts``."""
    rows = yield parts_query([part_log])
    return parts_of(rows, part_log, lambda: f"log {part_log}")


_UNREAD = """
SELECT runs.run_id, position, key, kind, payload, at, crc
FROM unnest(%(ids)s::text[], %(after)b::bigint[]) AS asked (run_id, after)
JOIN batonflow.runs ON runs.run_id = asked.run_id AND runs.unread > 0
JOIN batonflow.inbox ON inbox.run = runs.id AND position > asked.after AND used IS NULL
ORDER BY runs.id, position
"""


def unread(after: Mapping[str, int]) -> Steps[dict[str, list[InboxItem]]]:
    """See ``RunStore.unread``."""
    rows = yield Query(_UNREAD, {"ids": list(after), "after": list(after.values())})
    items: dict[str, list[InboxItem]] = {}
    for run_id, *row in rows:
        items.setdefault(run_id, []).extend(_items([row], run_id))
    return items


_CONDITIONS = {
    "statuses": "status = ANY (%(statuses)s::text[])",
    "workflow": "workflow = %(workflow)s",
    "metadata": "metadata @> %(metadata)s::jsonb",
    "newer": "runs.id > (SELECT id FROM batonflow.runs WHERE run_id = %(newer)s)",
    "older": "runs.id < (SELECT id FROM batonflow.runs WHERE run_id = %(older)s)",
}


def values_of(
    statuses: Sequence[RunStatus] | None, workflow: str | None, metadata: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the values of the conditions of a listing, by name."""
    wanted = {stored_text(name): stored_text(value) for name, value in (metadata or {}).items()}
    return {
        "statuses": None if statuses is None else list(statuses),
        "workflow": None if workflow is None else stored_text(workflow),
        "metadata": json.dumps(wanted) if wanted else None,
    }


def list_runs(
    statuses: Sequence[RunStatus] | None,
    workflow: str | None,
    after: str | None,
    limit: int,
    newest_first: bool,
    metadata: Mapping[str, str] | None = None,
) -> Steps[list[RunInfo]]:
    """See ``RunStore.list_runs``."""
    return (yield from listed(values_of(statuses, workflow, metadata), after, limit, newest_first))


def listed(
    values: Mapping[str, Any],
    after: str | None,
    limit: int,
    newest_first: bool,
    *,
    conditions: Mapping[str, str] | None = None,
    joined: str = "",
) -> Steps[list[RunInfo]]:
    """Return the listings of runs in the order of their creation.

    Args:
        values: The values of conditions by name; conditions without a value do not count.
        after: The run after which to begin.
        limit: The largest number of runs.
        newest_first: Whether to reverse the order.
        conditions: Further conditions in SQL, by name.
        joined: A join of another table.

    Raises:
        StoreError: There is no run ``after``.
    """
    given = {**values, "older" if newest_first else "newer": after}
    given = {name: value for name, value in given.items() if value is not None}
    known = {**_CONDITIONS, **(conditions or {})}
    wanted = " AND ".join(known[name] for name in given) or "TRUE"
    order = "DESC" if newest_first else "ASC"
    rows = yield Query(
        f"SELECT {RUN_COLUMNS} {joined} WHERE {wanted} ORDER BY runs.id {order} LIMIT %(limit)s::bigint",
        {**given, "limit": limit},
    )
    if not rows and after is not None and not (yield Query(_EXISTS, {"run_id": after})):
        raise no_run_after(after)
    return (yield from infos_of(rows))


_EXISTS = "SELECT 1 FROM batonflow.runs WHERE run_id = %(run_id)s"
