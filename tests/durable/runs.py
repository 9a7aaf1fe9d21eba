"""Short ways to say what tests of stores do with a run."""

from collections.abc import Sequence
from typing import Any

from batonflow.durable.store_protocol import Claimed, Created, NewRun, RunCommit, RunInfo, RunStore

TTL = 15.0


def new_run(run_id: str = "a", workflow: str = "Flow", **fields: Any) -> NewRun:
    return NewRun(run_id, workflow, digest="input", **fields)


async def begin(store: RunStore, run_id: str = "a", workflow: str = "Flow", ttl: float = TTL, **fields: Any) -> int:
    """Create a run; returns its epoch."""
    created = await store.create(new_run(run_id, workflow, **fields), store.owner, ttl)
    assert isinstance(created, Created), created
    return created.epoch


async def take(store: RunStore, run_id: str = "a", ttl: float = TTL) -> Claimed:
    claimed = await store.claim(run_id, store.owner, ttl)
    assert isinstance(claimed, Claimed), claimed
    return claimed


def entry(
    store: RunStore, epoch: int, seq: int, bodies: Sequence[bytes], run_id: str = "a", **fields: Any
) -> RunCommit:
    return RunCommit(run_id, store.owner, epoch, seq, list(bodies), **fields)


async def write(
    store: RunStore, epoch: int, seq: int, new: Sequence[bytes] = (b"x",), run_id: str = "a", **fields: Any
) -> str:
    """Commit one entry; returns what became of it."""
    (verdict,) = await store.commit([entry(store, epoch, seq, new, run_id, **fields)])
    return verdict.outcome


async def bodies(store: RunStore, run_id: str = "a", after: int = 0) -> list[bytes]:
    return [commit.body for commit in await store.read(run_id, after)]


async def known(store: RunStore, run_id: str = "a") -> RunInfo:
    info = await store.info(run_id)
    assert info is not None
    return info
