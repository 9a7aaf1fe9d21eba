"""Cancellation of stored runs, also of runs whose code does not fit."""

from typing import Any

from batonflow.clock import current_source
from batonflow.durable.attempt_record import as_json
from batonflow.durable.codec import Codec
from batonflow.durable.history import no_such_run
from batonflow.durable.store_protocol import Appended, Claimed, Ended, Loaded, RunCommit, RunStore
from batonflow.values.serializers import JsonSerializer, read_json
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import WorkflowCancelledEvent

__all__ = ["cancel_run", "cancel_without_code", "check_appended", "end_cancelled"]


async def cancel_run(store: RunStore, run_id: str, reason: str) -> None:
    """Request the cancellation of a run by its present or next owner.

    Raises:
        StoreError: The run does not exist, or it is over.
    """
    key = f"cancel {current_source().token(20)}"
    check_appended(run_id, await store.append(run_id, key, reason.encode(errors="backslashreplace"), "cancel"))


def check_appended(run_id: str, outcome: Appended | Ended | None) -> bool:
    """Tell whether an item is new in the inbox of a run.

    Raises:
        StoreError: The run does not exist, or it is over.
    """
    if outcome is None:
        raise no_such_run(run_id)
    if isinstance(outcome, Ended):
        raise StoreError(f"Run {run_id!r} is over ({outcome.info.status}) and takes no more events")
    return outcome.new


async def cancel_without_code(store: RunStore, run_id: str, reason: str = "") -> None:
    """Cancel a run without its code, unless another process drives it.

    Raises:
        StoreError: The run does not exist or is over, or the store fails.
    """
    await cancel_run(store, run_id, reason)
    claimed = await store.claim(run_id, store.owner, store.lease_seconds)
    if isinstance(claimed, Claimed):
        loaded = await store.load(run_id)
        if loaded is None or not await end_cancelled(store, claimed, loaded, Codec(JsonSerializer())):
            await store.release(run_id, store.owner, claimed.epoch)


async def end_cancelled(store: RunStore, claimed: Claimed, loaded: Loaded, codec: Codec) -> bool:
    """End a claimed run with a request to cancel by one last record. Return False if the run is not over.

    Args:
        store: The store of the run.
        claimed: The claim.
        loaded: The records of the run.
        codec: The codec of its workflow.

    Raises:
        StoreError: The store fails.
    """
    cancels = [item for item in loaded.inbox if item.kind == "cancel"]
    if not cancels:
        return False
    reason = cancels[0].payload.decode(errors="replace")
    event = WorkflowCancelledEvent(**{"reason": reason} if reason else {})
    number, elapsed = _after_the_last(loaded)
    seq = claimed.stream_seq
    record: dict[str, Any] = {"kind": "ended", "id": number, "path": "", "event": codec.event(event), "seq": seq}
    end = RunCommit(
        run_id=claimed.run_id,
        owner=store.owner,
        epoch=claimed.epoch,
        expected_seq=claimed.seq,
        commits=[as_json({"t": current_source().now(), "e": elapsed, "r": [record]})],
        consumed=[item.position for item in cancels],
        status="cancelled",
        result=as_json(record),
        stream_seq=seq + 1,
        ttl=store.lease_seconds,
    )
    [verdict] = await store.commit([end])
    return verdict.outcome != "fenced"


def _after_the_last(loaded: Loaded) -> tuple[int, float]:
    """Return the number for a new last record, and the used part of the run's timeout."""
    known, elapsed = 0, 0.0
    if loaded.snapshot is not None:
        known = int(read_json(loaded.snapshot[1]).get("last_record") or 0)
    for commit in loaded.commits:
        body = read_json(commit.body)
        known, elapsed = max([known, *(record["id"] for record in body["r"])]), body["e"]
    return known + 1, elapsed
