"""Writing of commits into the database of a PostgresStore, one statement for each run."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from batonflow.durable.store_protocol import CommitVerdict, RunCommit
from batonflow.durable.stores.bounds import check_commit
from batonflow.durable.stores.packing import PACKED_TEXT_FROM, packed, unpacked
from batonflow.durable.stores.postgres_rows import Query, Steps, Writing, checksum

__all__ = ["write_commits"]

_FENCED = CommitVerdict("fenced")

# The UPDATE decides: its row is there only for the owner's next commit. All that is inserted comes out of that row, so
# nothing is written for another owner, and no transaction stays open between the decision and the writing.
_GO_ON = """
WITH run AS (
    UPDATE batonflow.runs
    SET seq = seq + %(count)s::bigint, stream_seq = greatest(stream_seq, %(stream_seq)s::bigint),
        updated_at = batonflow.wall(), lease_ttl = %(ttl)s::float8,
        attempts = CASE WHEN %(count)s::bigint = 0 THEN attempts ELSE 0 END,
        {changes}
    WHERE run_id = %(run_id)s AND owner = %(owner)s AND epoch = %(epoch)s::bigint AND seq = %(seq)s::bigint
        AND status = 'running'
    RETURNING id, updated_at, unread, session, turn, coalesce(part_log, id) AS log
){inserts}
SELECT unread > 0 FROM run{turns}
"""
_STAYS = "wake_at = %(wake_at)s::float8, lease_until = batonflow.steady() + %(ttl)s::float8"
_ENDS = """status = %(status)s, ended_at = batonflow.wall(), owner = NULL, wake_at = NULL, lease_until = NULL"""
_USES = """,
        unread = unread - (
            SELECT count(*) FROM batonflow.inbox
            WHERE run = runs.id AND position = ANY (%(consumed)b::bigint[]) AND used IS NULL)"""
_COMMITS = """, commits AS (
    INSERT INTO batonflow.commits
    SELECT id, %(seq)s::bigint + number, updated_at, body, crc
    FROM run, unnest(%(bodies)b::bytea[], %(crcs)b::bigint[]) WITH ORDINALITY AS new (body, crc, number)
)"""
_PARTS = """, parts AS (
    INSERT INTO batonflow.parts
    SELECT run.log, %(first_part)s::bigint + number - 1, body, crc
    FROM run, unnest(%(parts)b::bytea[], %(part_crcs)b::bigint[]) WITH ORDINALITY AS new (body, crc, number)
)"""
_SNAPSHOT = """, snapshots AS (
    INSERT INTO batonflow.snapshots
    SELECT id, %(seq)s::bigint + %(count)s::bigint, %(snapshot)b::bytea, %(snapshot_crc)s::bigint FROM run
    ON CONFLICT (run, seq) DO UPDATE SET body = excluded.body, crc = excluded.crc
)"""
_RESULT = """, results AS (
    INSERT INTO batonflow.results SELECT id, %(result)b::bytea, %(result_crc)s::bigint FROM run
)"""
# If a caller has used the new key of an item that was passed over, the old key stays in use.
_INBOX = """, inbox AS (
    UPDATE batonflow.inbox AS item
    SET used = CASE WHEN position = ANY (%(consumed)b::bigint[]) THEN coalesce(used, %(seq)s::bigint + 1)
            ELSE used END,
        key = CASE WHEN position = ANY (%(passed_over)b::bigint[]) AND NOT EXISTS (
                SELECT FROM batonflow.inbox AS other
                WHERE other.run = item.run AND other.key = item.key || ' passed over ' || item.position)
            THEN key || ' passed over ' || position ELSE key END
    FROM run WHERE item.run = run.id AND position = ANY (%(consumed)b::bigint[] || %(passed_over)b::bigint[])
)"""
_TURN = """ LEFT JOIN LATERAL batonflow.end_turn(
    run.session, run.turn, %(status)s, %(turn)b::bytea, %(turn_crc)s::bigint, run.log) ON run.session IS NOT NULL"""

_LOOK = """
SELECT runs.epoch, runs.seq, runs.compacted, runs.status, runs.unread > 0,
    ARRAY(SELECT body FROM batonflow.commits
          WHERE run = runs.id AND commits.seq > %(seq)s::bigint AND commits.seq <= %(last)s::bigint
          ORDER BY commits.seq)
FROM batonflow.runs WHERE run_id = %(run_id)s
"""


@lru_cache
def _statement(ends: bool, uses: bool, commits: bool, parts: bool, snapshot: bool, result: bool) -> str:
    inserts = ((_COMMITS, commits), (_PARTS, parts), (_SNAPSHOT, snapshot), (_RESULT, result), (_INBOX, uses))
    return _GO_ON.format(
        changes=(_ENDS if ends else _STAYS) + (_USES if uses else ""),
        inserts="".join(text for text, is_wanted in inserts if is_wanted),
        turns=_TURN if ends else "",
    )


def write_commits(writing: Writing, batch: Sequence[RunCommit]) -> Steps[list[CommitVerdict]]:
    """Write the entries of a batch, and return their verdicts.

    Raises:
        StoreError: An entry is too large; nothing was written.
    """
    for entry in batch:
        check_commit(entry)
    answers = yield [_query(writing, entry) for entry in batch]
    verdicts: list[CommitVerdict] = []
    for entry, rows in zip(batch, answers, strict=True):
        verdict = CommitVerdict("committed", rows[0][0]) if rows else (yield from _look(entry))
        if verdict.outcome != "fenced":
            writing.touched.append(entry.run_id)
        verdicts.append(verdict)
    return verdicts


def _query(writing: Writing, entry: RunCommit) -> Query:
    statement = _statement(
        entry.status is not None,
        bool(entry.consumed or entry.passed_over),
        bool(entry.commits),
        bool(entry.parts),
        entry.snapshot is not None,
        entry.status is not None and entry.result is not None,
    )
    return Query(statement, dict(_values(writing, entry)), entry.run_id)


def _values(writing: Writing, entry: RunCommit) -> Iterator[tuple[str, Any]]:
    """Yield the values of a statement by name."""
    count = len(entry.commits)
    last = entry.expected_seq + count
    yield from (("run_id", entry.run_id), ("owner", entry.owner), ("epoch", entry.epoch), ("seq", entry.expected_seq))
    yield from (("count", count), ("stream_seq", entry.stream_seq), ("ttl", writing.lease(entry.ttl)))
    yield "wake_at", entry.wake_at
    bodies = [packed(body) for body in entry.commits]
    yield "bodies", bodies
    yield "crcs", [checksum(number, body) for number, body in enumerate(bodies, entry.expected_seq + 1)]
    if entry.consumed or entry.passed_over:
        yield "consumed", entry.consumed
        yield "passed_over", entry.passed_over
    if entry.parts:
        parts = [packed(body, PACKED_TEXT_FROM) for body in entry.parts]
        yield "first_part", entry.first_part
        yield "parts", parts
        yield "part_crcs", [checksum(number, body) for number, body in enumerate(parts, entry.first_part)]
    if entry.snapshot is not None:
        snapshot = packed(entry.snapshot)
        yield "snapshot", snapshot
        yield "snapshot_crc", checksum(last, snapshot)
    if entry.status is not None:
        turn = packed(entry.turn or b"")
        yield from (("status", entry.status), ("turn", turn), ("turn_crc", checksum(0, turn)))
        if entry.result is not None:
            result = packed(entry.result)
            yield "result", result
            yield "result_crc", checksum(last, result)


def _look(entry: RunCommit) -> Steps[CommitVerdict]:
    """Tell whether the same commits were written before, and the answer was lost.

    A run has one writer per epoch, so commits with these numbers are from the same owner; the bodies are compared.
    """
    last = entry.expected_seq + len(entry.commits)
    rows = yield Query(_LOOK, {"run_id": entry.run_id, "seq": entry.expected_seq, "last": last})
    if not rows:
        return _FENCED
    ((epoch, seq, compacted, status, unread, stored),) = rows
    if epoch != entry.epoch or seq < last or (entry.status is not None and status != entry.status):
        return _FENCED
    if not entry.commits and entry.status is None:
        return _FENCED
    kept = entry.commits[max(0, compacted - entry.expected_seq) :]
    return CommitVerdict("already", unread) if [unpacked(body) for body in stored] == kept else _FENCED
