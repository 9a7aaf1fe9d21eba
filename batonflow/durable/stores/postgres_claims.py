"""Claims and inboxes of a PostgresStore; each operation is one statement."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from batonflow.durable.store_protocol import Appended, Busy, Claimed, Created, Ended, Existing, NewRun, NotDue, Serves
from batonflow.durable.stores.bounds import check_new_run, check_owner, check_payload, check_run_id
from batonflow.durable.stores.packing import PACKED_TEXT_FROM, packed
from batonflow.durable.stores.postgres_reads import info
from batonflow.durable.stores.postgres_rows import Query, Steps, Writing, checksum, plain, stored_text

__all__ = [
    "CREATE", "append", "claim", "claim_due", "create", "park", "release", "release_held", "renew", "renew_held",
    "sweep", "values_of_run",
]  # fmt: skip

CREATE = """
batonflow.create_run(
    %(run_id)s, %(workflow)s, %(version)s, %(digest)s, %(shape)s, %(owner)s, %(ttl)s::float8, %(first)b::bytea,
    %(first_crc)s::bigint, %(stream_seq)s::bigint, %(metadata)s::jsonb, {session}::bigint, %(turn)s::bigint,
    %(parts)b::bytea[], %(part_crcs)b::bigint[], %(continues)s::bigint, %(continues_at)s::bigint, %(queue)s,
    %(priority)s::integer, %(not_before)s::float8, %(nonce)s::bigint)
"""
_CREATE = f"SELECT made.* FROM {CREATE.format(session='NULL')} AS made"


def values_of_run(writing: Writing, run: NewRun, owner: str | None, ttl: float, nonce: int) -> dict[str, Any]:
    """Return the values of ``CREATE``, and take the lock of the owner.

    The nonce is that of the call, which may be made again when its answer was lost.
    """
    check_new_run(run)
    if owner is not None:
        writing.vouch(check_owner(owner))
    first = None if run.first is None else packed(run.first)
    parts = [packed(body, PACKED_TEXT_FROM) for body in run.parts]
    log, length = (None, None) if run.continues is None else run.continues
    metadata = {stored_text(name): stored_text(value) for name, value in (run.metadata or {}).items()}
    return {
        "run_id": run.run_id,
        "workflow": stored_text(run.workflow),
        "version": None if run.version is None else stored_text(run.version),
        "digest": stored_text(run.digest),
        "shape": stored_text(run.shape),
        "owner": owner,
        "ttl": writing.lease(ttl),
        "first": first,
        "first_crc": 0 if first is None else checksum(1, first),
        "stream_seq": run.stream_seq,
        "metadata": json.dumps(metadata) if metadata else None,
        "turn": None,
        "parts": parts,
        "part_crcs": [checksum(number, body) for number, body in enumerate(parts, length or 0)],
        "continues": log,
        "continues_at": length,
        "queue": run.queue,
        "priority": run.priority,
        "not_before": run.not_before,
        "nonce": nonce,
    }


def create(writing: Writing, run: NewRun, owner: str | None, ttl: float, nonce: int) -> Steps[Created | Existing]:
    """See ``RunStore.create``."""
    values = values_of_run(writing, run, owner, ttl, nonce)
    while True:
        ((outcome, epoch, log),) = yield Query(_CREATE, values, run.run_id)
        if outcome == "created":
            writing.ready |= owner is None
            return Created(epoch, log)
        found = yield from info(run.run_id)
        if found is not None:  # otherwise it was deleted meanwhile
            return Existing(found)


_CLAIM = """
SELECT outcome, other, since, seconds, (taken).run_id, (taken).epoch, (taken).seq, (taken).stream_seq, (taken).workflow,
    (taken).abandoned, (taken).delay
FROM batonflow.claim(%(run_id)s, %(owner)s, %(ttl)s::float8, %(only_due)s)
"""


def claim(
    writing: Writing, run_id: str, owner: str, ttl: float, only_due: bool
) -> Steps[Claimed | Busy | Ended | NotDue | None]:
    """See ``RunStore.claim``."""
    check_run_id(run_id)
    writing.vouch(check_owner(owner))
    values = {"run_id": run_id, "owner": owner, "ttl": writing.lease(ttl), "only_due": only_due}
    ((outcome, other, since, seconds, *taken),) = yield Query(_CLAIM, values, run_id)
    match outcome:
        case "claimed":
            return _claimed(taken)
        case "busy":
            return Busy(other, since, seconds)
        case "not due":
            return NotDue(since)
        case "ended":
            found = yield from info(run_id)
            return None if found is None else Ended(found)
        case _:
            return None


def _claimed(values: Sequence[Any]) -> Claimed:
    run_id, epoch, seq, stream_seq, workflow, abandoned, delay = values
    return Claimed(run_id, epoch, seq, stream_seq, plain(workflow), abandoned, delay)


_CLAIM_DUE = """
SELECT * FROM batonflow.claim_due(
    %(owner)s, %(ttl)s::float8, %(limit)s::integer, %(serves)s::jsonb, %(queues)s::text[], %(skip)s::text[],
    %(nonce)s::bigint)
"""
_CLAIMED = """
SELECT run_id, epoch, seq, stream_seq, workflow, FALSE, 0 FROM batonflow.runs
WHERE status = 'running' AND owner = %(owner)s AND claim = %(nonce)s::bigint ORDER BY claimed_at
"""


def claim_due(
    writing: Writing,
    owner: str,
    ttl: float,
    limit: int,
    serves: Sequence[Serves] | None,
    queues: Sequence[str] | None,
    skip: Collection[str],
    nonce: int,
) -> Steps[list[Claimed]]:
    """See ``RunStore.claim_due``."""
    writing.vouch(check_owner(owner))
    if writing.retries and (rows := (yield Query(_CLAIMED, {"owner": owner, "nonce": nonce}))):
        return [_claimed(row) for row in rows]
    rows = yield Query(
        _CLAIM_DUE,
        {
            "owner": owner,
            "ttl": writing.lease(ttl),
            "limit": limit,
            "serves": None if serves is None else json.dumps([_as_row(one) for one in serves]),
            "queues": None if queues is None else list(queues),
            "skip": list(skip),
            "nonce": nonce,
        },
    )
    return [_claimed(row) for row in rows]


def _as_row(one: Serves) -> tuple[str, list[str | None] | None, int | None]:
    if one.versions is None:
        return stored_text(one.workflow), None, one.most
    versions = [None if each is None else stored_text(each) for each in one.versions]
    return stored_text(one.workflow), versions, one.most


# All sessions lock rows in the order of the ids, so that two of them do not wait for each other.
_RENEW = """
WITH held AS (
    SELECT * FROM unnest(%(ids)s::text[], %(epochs)b::bigint[]) AS held (run_id, epoch)
), mine AS (
    SELECT runs.id FROM batonflow.runs JOIN held ON runs.run_id = held.run_id AND runs.epoch = held.epoch
    WHERE runs.status = 'running' AND {condition} ORDER BY runs.run_id FOR NO KEY UPDATE OF runs {waiting}
), renewed AS (
    UPDATE batonflow.runs SET lease_until = batonflow.steady() + {ttl}, lease_ttl = {ttl}
    FROM mine WHERE runs.id = mine.id RETURNING runs.run_id
)
SELECT held.run_id, held.epoch FROM held LEFT JOIN batonflow.runs ON runs.run_id = held.run_id
WHERE {lost}
"""
_RENEW_OF_OWNER = _RENEW.format(
    condition="owner = %(owner)s",
    waiting="",
    ttl="%(ttl)s::float8",
    lost="held.run_id NOT IN (SELECT run_id FROM renewed)",
)
# A row that is locked is renewed the next time, so that it does not keep the others waiting.
_RENEW_HELD = _RENEW.format(
    condition="TRUE", waiting="SKIP LOCKED", ttl="runs.lease_ttl", lost="runs.epoch IS DISTINCT FROM held.epoch"
)


def renew(writing: Writing, owner: str, runs: Sequence[tuple[str, int]], ttl: float) -> Steps[list[str]]:
    """See ``RunStore.renew``."""
    ids = [check_run_id(run_id) for run_id, _ in runs]
    epochs = [epoch for _, epoch in runs]
    rows = yield Query(_RENEW_OF_OWNER, {"ttl": writing.lease(ttl), "ids": ids, "epochs": epochs, "owner": owner})
    return [run_id for run_id, _ in rows]


def renew_held(_writing: Writing, held: Mapping[str, int]) -> Steps[list[tuple[str, int]]]:
    """Extend the leases of runs, by id and epoch, each by its own ttl.

    Returns:
        The runs that were claimed by another owner, or deleted.
    """
    return (yield Query(_RENEW_HELD, {"ids": list(held), "epochs": list(held.values())}))


_PARK = """
UPDATE batonflow.runs
SET status = 'waiting', owner = NULL, lease_until = NULL, wake_at = %(wake_at)s::float8, due_at = %(wake_at)s::float8,
    updated_at = batonflow.wall()
WHERE run_id = %(run_id)s AND owner = %(owner)s AND epoch = %(epoch)s::bigint AND seq = %(seq)s::bigint
    AND status = 'running' AND unread = 0
RETURNING id
"""
# Others may have taken it up since.
_WAS_LEFT = """
SELECT 1 FROM batonflow.runs
WHERE run_id = %(run_id)s AND (owner, epoch) IS DISTINCT FROM (%(owner)s, %(epoch)s::bigint)
"""


def park(writing: Writing, run_id: str, owner: str, epoch: int, seq: int, wake_at: float | None) -> Steps[bool]:
    """See ``RunStore.park``."""
    values = {"run_id": check_run_id(run_id), "owner": owner, "epoch": epoch, "seq": seq, "wake_at": wake_at}
    rows = yield Query(_PARK, values, run_id)
    if not rows and writing.retries:
        rows = yield Query(_WAS_LEFT, {"run_id": run_id, "owner": owner, "epoch": epoch})
    return bool(rows)


_RELEASE = """
UPDATE batonflow.runs
SET status = 'ready', owner = NULL, lease_until = NULL, wake_no = wake_no + 1, due_at = batonflow.wall(),
    updated_at = batonflow.wall(), not_before = NULL
WHERE run_id = %(run_id)s AND owner = %(owner)s AND epoch = %(epoch)s::bigint AND status = 'running'
RETURNING id
"""


def release(writing: Writing, run_id: str, owner: str, epoch: int) -> Steps[bool]:
    """See ``RunStore.release``."""
    rows = yield Query(_RELEASE, {"run_id": check_run_id(run_id), "owner": owner, "epoch": epoch}, run_id)
    if not rows and writing.retries:
        rows = yield Query(_WAS_LEFT, {"run_id": run_id, "owner": owner, "epoch": epoch})
    writing.ready |= bool(rows)
    return bool(rows)


_RELEASE_HELD = """
UPDATE batonflow.runs
SET held = NULL, attempts = 0, wake_no = wake_no + 1, due_at = batonflow.wall(), updated_at = batonflow.wall(),
    not_before = NULL
WHERE run_id = %(run_id)s AND held IS NOT NULL
RETURNING id
"""
_IS_NOT_HELD = "SELECT 1 FROM batonflow.runs WHERE run_id = %(run_id)s AND held IS NULL AND attempts = 0"


def release_held(writing: Writing, run_id: str) -> Steps[bool]:
    """See ``RunStore.release_held``."""
    rows = yield Query(_RELEASE_HELD, {"run_id": check_run_id(run_id)}, run_id)
    if not rows and writing.retries:
        rows = yield Query(_IS_NOT_HELD, {"run_id": run_id})
    writing.ready |= bool(rows)
    return bool(rows)


_APPEND = "SELECT * FROM batonflow.append(%(run_id)s, %(key)s, %(kind)s, %(payload)b::bytea, %(crc)s::bigint)"


def append(
    writing: Writing, run_id: str, key: str, payload: bytes, kind: Literal["event", "cancel"]
) -> Steps[Appended | Ended | None]:
    """See ``RunStore.append``."""
    check_payload(run_id, key, payload)
    values = {"run_id": run_id, "key": stored_text(key), "kind": kind, "payload": payload, "crc": checksum(0, payload)}
    ((outcome, place, became_ready),) = yield Query(_APPEND, values, run_id)
    match outcome:
        case "new":
            writing.appended.append(run_id)
            writing.ready |= became_ready
            return Appended(place, new=True)
        case "known":
            if writing.retries:  # its hint may be lost
                writing.appended.append(run_id)
                writing.ready = True
            return Appended(place, new=False)
        case "ended":
            found = yield from info(run_id)
            return None if found is None else Ended(found)
        case _:
            return None


def sweep(writing: Writing, limit: int, grace: float) -> Steps[list[str]]:
    """See ``RunStore.sweep``."""
    values = {"limit": limit, "grace": grace}
    rows = yield Query("SELECT * FROM batonflow.sweep(%(limit)s::integer, %(grace)s::float8)", values)
    writing.ready |= bool(rows)
    return [run_id for (run_id,) in rows]
