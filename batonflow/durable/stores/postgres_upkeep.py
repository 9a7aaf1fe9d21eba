"""Fork, delete and compact runs of a PostgresStore; each operation is one statement."""

from collections.abc import Sequence
from typing import Literal

from batonflow.durable.stores.bounds import check_fork, check_run_id, driven, in_session
from batonflow.durable.stores.packing import packed
from batonflow.durable.stores.postgres_rows import Query, Steps, Writing, checksum

__all__ = ["compact", "delete", "fork", "retire"]

_FORK = """
SELECT batonflow.fork(
    %(run_id)s, %(at)s::bigint, %(new_id)s, %(bodies)b::bytea[], %(crcs)b::bigint[], %(nonce)s::bigint)
"""


def fork(
    writing: Writing, run_id: str, at: int, new_id: str, commits: Sequence[bytes], nonce: int
) -> Steps[Literal["forked", "exists", "unknown", "compacted"]]:
    """See ``RunStore.fork``."""
    check_fork(new_id, at, commits)
    bodies = [packed(body) for body in commits]
    values = {
        "run_id": check_run_id(run_id),
        "at": at,
        "new_id": new_id,
        "bodies": bodies,
        "crcs": [checksum(number, body) for number, body in enumerate(bodies, at + 1)],
        "nonce": nonce,
    }
    ((outcome,),) = yield Query(_FORK, values)
    writing.ready |= outcome == "forked"
    return outcome


def delete(writing: Writing, run_id: str, force: bool, conversation: bool, found: list[int]) -> Steps[bool]:
    """See ``RunStore.delete``.

    ``found`` keeps the number of the run for a repetition, which does not delete another run of this id.
    """
    if not found:
        rows = yield Query("SELECT id FROM batonflow.runs WHERE run_id = %(run_id)s", {"run_id": check_run_id(run_id)})
        if not rows:
            return False
        found.append(rows[0][0])
    rows = yield Query(
        "SELECT * FROM batonflow.delete(%(number)s::bigint, %(force)s, %(conversation)s)",
        {"number": found[0], "force": force, "conversation": conversation},
    )
    for outcome, deleted, owner in rows:
        if outcome == "in session":
            raise in_session(deleted)
        if outcome == "driven":
            raise driven(deleted, owner)
        writing.touched.append(deleted)
    return bool(rows) or writing.retries


def compact(_writing: Writing, run_id: str) -> Steps[int]:
    """See ``RunStore.compact``."""
    ((dropped,),) = yield Query("SELECT batonflow.compact(%(run_id)s)", {"run_id": check_run_id(run_id)})
    return dropped


def retire(writing: Writing, seconds: float, limit: int) -> Steps[list[str]]:
    """Delete runs that ended more than ``seconds`` ago, the oldest first, and return their ids."""
    values = {"age": seconds, "limit": limit}
    rows = yield Query("SELECT * FROM batonflow.retire(%(age)s::float8, %(limit)s::bigint)", values)
    deleted = [run_id for (run_id,) in rows]
    writing.touched += deleted
    return deleted
