"""Any sequence of operations by two owners, one of which may die at any time, against a plain model of a store."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from batonflow.clock import Source
from batonflow.durable.store_protocol import (
    MOST_ATTEMPTS,
    Appended,
    Busy,
    Claimed,
    Created,
    Ended,
    Existing,
    NewRun,
    NotDue,
    RunCommit,
    RunStore,
)
from batonflow.durable.stores.attempts import SUSPECT_ATTEMPTS
from tests.durable.conftest import KINDS, Stores

T = TypeVar("T")

TTL = 100.0
RUNS = ["a", "b", "c"]
OWNERS = [0, 1]
ENDS = {"completed", "failed", "cancelled"}


@dataclass
class Model:
    """What a run should be."""

    order: int
    epoch: int
    status: str = "running"
    owner: str | None = None
    expires: float = 0.0
    commits: list[bytes] = field(default_factory=list)
    inbox: dict[str, int] = field(default_factory=dict)
    arrived: int = 0
    stream_seq: int = 0
    unread: set[int] = field(default_factory=set)
    result: bytes | None = None
    snapshot: int = 0
    compacted: int = 0
    due: float = 0.0
    attempts: int = 0
    held: bool = False


class StoreMachine(RuleBasedStateMachine):
    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.stores = Stores(self.kind, self.folder)
        self.ahead = 0.0
        self.wall = 1e9
        self.clocks = [
            patch.object(Source, "monotonic", lambda _self: time.monotonic() + self.ahead),
            patch.object(Source, "now", lambda _self: self.wall),
        ]
        for clock in self.clocks:
            clock.start()
        self.stores.put_clock(at=self.wall)
        self.runs: dict[str, Model] = {}
        self.floor = 0
        self.count = 0

    @initialize()
    def open(self) -> None:
        self.keeper = self.stores.open()  # the shared memory is that of the first
        self.owners = [self.stores.open(), self.stores.open()]

    def teardown(self) -> None:
        self.do(self.stores.aclose())
        self.runner.close()
        for clock in self.clocks:
            clock.stop()
        shutil.rmtree(self.folder)

    def do(self, operation: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(operation)

    def names(self) -> set[str]:
        return {store.owner for store in self.owners}

    def driven(self, run: Model) -> bool:
        return run.status == "running" and run.owner in self.names() and run.expires > self.ahead

    def own(self, run: Model, store: RunStore) -> None:
        if run.status == "running" and run.owner is not None and run.owner != store.owner:
            run.attempts += 1
        run.held = False
        run.status, run.owner, run.expires = "running", store.owner, self.ahead + TTL

    def disown(self, run: Model, status: str) -> None:
        run.status, run.owner, run.due = status, None, self.wall

    def ready_since(self, moment: float) -> set[str]:
        found = {id_: run for id_, run in self.runs.items() if run.status == "ready" and not run.held}
        return {id_ for id_, run in found.items() if run.due <= moment}

    def pause(self, run: Model) -> bool:
        """Its owner has ended or lost its lease; returns whether it can be taken up at once."""
        self.disown(run, "ready")
        run.attempts += 1
        run.due = self.wall + {1: 0, 2: 1, 3: 2, 4: 4}.get(run.attempts, 1000)
        run.held = run.attempts >= MOST_ATTEMPTS
        return run.attempts == 1

    @rule(who=st.sampled_from(OWNERS), run_id=st.sampled_from(RUNS), later=st.sampled_from([None, 100.0]))
    def enqueue(self, who: int, run_id: str, later: float | None) -> None:
        at = None if later is None else self.wall + later
        created = self.do(self.owners[who].create(NewRun(run_id, "Flow", "d", not_before=at), None, TTL))
        assert isinstance(created, Existing) == (run_id in self.runs)
        if run_id not in self.runs:
            assert created == Created(self.floor)
            self.count += 1
            self.runs[run_id] = Model(self.count, self.floor, "ready", due=at or self.wall)

    @rule(who=st.sampled_from(OWNERS), run_id=st.sampled_from(RUNS))
    def release_held(self, who: int, run_id: str) -> None:
        run = self.runs.get(run_id)
        assert self.do(self.owners[who].release_held(run_id)) == (run is not None and run.held)
        if run is not None and run.held:
            run.held, run.attempts, run.due = False, 0, self.wall

    @rule(who=st.sampled_from(OWNERS), run_id=st.sampled_from(RUNS), stream_seq=st.sampled_from([0, 1000]))
    def create(self, who: int, run_id: str, stream_seq: int) -> None:
        store = self.owners[who]
        created = self.do(store.create(NewRun(run_id, "Flow", "d", stream_seq=stream_seq), store.owner, TTL))
        if run_id in self.runs:
            assert isinstance(created, Existing)
            return
        assert created == Created(self.floor + 1)
        self.count += 1
        self.runs[run_id] = Model(self.count, self.floor + 1, stream_seq=stream_seq)
        self.own(self.runs[run_id], store)

    @rule(who=st.sampled_from(OWNERS), run_id=st.sampled_from(RUNS), only_due=st.booleans())
    def claim(self, who: int, run_id: str, only_due: bool) -> None:
        store, run = self.owners[who], self.runs.get(run_id)
        claimed = self.do(store.claim(run_id, store.owner, TTL, only_due=only_due))
        if run is None:
            assert claimed is None
        elif run.status in ENDS:
            assert isinstance(claimed, Ended)
        elif self.driven(run) and run.owner != store.owner:
            assert isinstance(claimed, Busy)
            assert claimed.owner == run.owner
        elif only_due and run.status == "waiting":
            assert isinstance(claimed, NotDue)
        else:
            run.epoch += 1
            assert claimed == Claimed(run_id, run.epoch, len(run.commits), run.stream_seq, "Flow")
            self.own(run, store)

    @rule(who=st.sampled_from(OWNERS), limit=st.integers(0, 3))
    def claim_due(self, who: int, limit: int) -> None:
        store = self.owners[who]
        left = {id_ for id_, run in self.runs.items() if run.status == "running" and not self.driven(run)}
        again = {id_ for id_ in left if not self.runs[id_].attempts}
        ready = {
            id_ for id_, run in self.runs.items() if run.status == "ready" and run.due <= self.wall and not run.held
        }
        suspects = {id_ for id_ in ready if self.runs[id_].attempts >= SUSPECT_ATTEMPTS}
        driven = [run for run in self.runs.values() if self.driven(run) and run.owner == store.owner]
        most = int(all(run.attempts < SUSPECT_ATTEMPTS for run in driven))
        claimed = self.do(store.claim_due(store.owner, TTL, limit))
        assert len(claimed) == min(limit, len(again | ready - suspects) + min(most, len(suspects)))
        assert sum(each.run_id in suspects for each in claimed) <= most
        assert {each.run_id for each in claimed} <= again | ready
        for run_id in left - again:
            # Runs that were left behind are looked at as long as more of them are wanted.
            if self.do(self.keeper.info(run_id)).status == "ready":  # pyright: ignore[reportOptionalMemberAccess]
                self.pause(self.runs[run_id])
            else:
                assert limit <= len(again)
        for each in claimed:
            run = self.runs[each.run_id]
            run.epoch += 1
            assert each.epoch == run.epoch
            self.own(run, store)

    @rule(
        who=st.sampled_from(OWNERS),
        run_id=st.sampled_from(RUNS),
        count=st.integers(0, 3),
        back=st.sampled_from([0, 0, 0, 1, 2]),
        stale=st.sampled_from([0, 0, 0, 1]),
        body=st.sampled_from([b"x", b"y"]),
        consume=st.booleans(),
        passes_over=st.booleans(),
        stream_seq=st.sampled_from([0, 500, 2000]),
        snapshot=st.booleans(),
        status=st.sampled_from([None, None, None, "completed", "failed"]),
    )
    def commit(
        self, who: int, run_id: str, count: int, back: int, stale: int, body: bytes, consume: bool, passes_over: bool,
        stream_seq: int, snapshot: bool, status: Any,
    ) -> None:  # fmt: skip
        store, run = self.owners[who], self.runs.get(run_id, Model(0, 1))
        entry = RunCommit(run_id, store.owner, run.epoch - stale, max(0, len(run.commits) - back), [body] * count)
        entry.status, entry.result = status, b"result" if status else None
        entry.consumed = sorted(run.unread)[:1] if consume else []
        entry.passed_over = entry.consumed if passes_over else []
        entry.stream_seq = stream_seq
        entry.snapshot = b"snapshot" if snapshot else None
        entry.ttl = TTL
        (verdict,) = self.do(store.commit([entry]))
        if run_id not in self.runs:
            assert verdict.outcome == "fenced"
            return
        seq, last = entry.expected_seq, entry.expected_seq + count
        mine = run.status == "running" and run.owner == store.owner and stale == 0
        if mine and seq == len(run.commits):
            assert verdict.outcome == "committed"
            run.commits += entry.commits
            run.attempts = 0 if count else run.attempts
            run.unread -= set(entry.consumed)
            run.inbox = {key: place for key, place in run.inbox.items() if place not in entry.passed_over}
            run.stream_seq = max(run.stream_seq, stream_seq)
            run.snapshot = last if snapshot else run.snapshot
            run.expires = self.ahead + TTL
            if status:
                self.disown(run, status)
                run.result = b"result"
            assert verdict.unread == bool(run.unread)
        elif verdict.outcome == "already":
            # Only what was really written so, within the epoch that is named.
            assert stale == 0
            assert last <= len(run.commits)
            kept = range(max(seq, run.compacted), last)
            assert [run.commits[number] for number in kept] == [body] * len(kept)
        else:
            assert verdict.outcome == "fenced"
            same = count and stale == 0 and last <= len(run.commits) and run.commits[seq:last] == entry.commits
            assert not (same and status is None)

    @rule(who=st.sampled_from(OWNERS), run_id=st.sampled_from(RUNS))
    def park(self, who: int, run_id: str) -> None:
        store, run = self.owners[who], self.runs.get(run_id)
        epoch, seq = (run.epoch, len(run.commits)) if run else (1, 0)
        parked = self.do(store.park(run_id, store.owner, epoch, seq, None))
        mine = run is not None and run.status == "running" and run.owner == store.owner and not run.unread
        assert parked == mine
        if run is not None and parked:
            self.disown(run, "waiting")

    @rule(who=st.sampled_from(OWNERS), run_id=st.sampled_from(RUNS))
    def release(self, who: int, run_id: str) -> None:
        store, run = self.owners[who], self.runs.get(run_id)
        released = self.do(store.release(run_id, store.owner, run.epoch if run else 1))
        assert released == (run is not None and run.status == "running" and run.owner == store.owner)
        if run is not None and released:
            self.disown(run, "ready")

    @rule(who=st.sampled_from(OWNERS), run_id=st.sampled_from(RUNS), key=st.sampled_from(["k", "l", "m"]))
    def append(self, who: int, run_id: str, key: str) -> None:
        run = self.runs.get(run_id)
        appended = self.do(self.owners[who].append(run_id, key, key.encode()))
        if run is None:
            assert appended is None
        elif key in run.inbox:
            assert appended == Appended(run.inbox[key], new=False)
        elif run.status in ENDS:
            assert isinstance(appended, Ended)
        else:
            run.arrived += 1
            run.inbox[key] = run.arrived
            assert appended == Appended(run.inbox[key], new=True)
            run.unread.add(run.inbox[key])
            if run.status == "waiting":
                self.disown(run, "ready")

    @rule(who=st.sampled_from(OWNERS))
    def kill(self, who: int) -> None:
        self.do(self.owners[who].aclose())
        self.owners[who] = self.stores.open()

    @rule(seconds=st.sampled_from([60.0, 110.0]))
    def pass_time(self, seconds: float) -> None:
        self.ahead += seconds
        self.wall += seconds
        self.stores.put_clock(steady=self.ahead, at=self.wall)

    @rule(who=st.sampled_from(OWNERS))
    def renew(self, who: int) -> None:
        store = self.owners[who]
        held = [(run_id, run.epoch) for run_id, run in self.runs.items()]
        lost = self.do(store.renew(store.owner, held, TTL))
        mine = {id_ for id_, run in self.runs.items() if run.status == "running" and run.owner == store.owner}
        assert set(lost) == set(self.runs) - mine
        for run_id in mine:
            self.runs[run_id].expires = self.ahead + TTL

    @rule(who=st.sampled_from(OWNERS))
    def sweep(self, who: int) -> None:
        left = {id_ for id_, run in self.runs.items() if run.status == "running" and not self.driven(run)}
        late = {
            id_
            for id_, run in self.runs.items()
            if run.status == "ready" and run.due <= self.wall - 150 and not run.held
        }
        rung = set(self.do(self.owners[who].sweep(10, grace=150)))
        assert rung == late | {run_id for run_id in left if self.pause(self.runs[run_id])}
        for run_id in late:
            self.disown(self.runs[run_id], "ready")

    @rule(
        who=st.sampled_from(OWNERS),
        run_id=st.sampled_from(RUNS),
        new_id=st.sampled_from(RUNS),
        at=st.integers(0, 6),
        own=st.lists(st.sampled_from([b"own", b"x", b"edit " * 2000]), max_size=2),
    )
    def fork(self, who: int, run_id: str, new_id: str, at: int, own: list[bytes]) -> None:
        forked = self.do(self.owners[who].fork(run_id, at, new_id, own))
        run = self.runs.get(run_id)
        if run is None or at > len(run.commits):
            assert forked == "unknown"
        elif new_id in self.runs:
            assert forked == "exists"
        elif 0 < at < run.compacted:
            assert forked == "compacted"
        else:
            assert forked == "forked"
            self.count += 1
            new = Model(self.count, self.floor, "ready", stream_seq=run.stream_seq, due=self.wall)
            new.commits, new.compacted = [*run.commits[:at], *own], min(run.compacted, at)
            self.runs[new_id] = replace(new, snapshot=-1)  # whether it has one depends on the source's history

    @rule(who=st.sampled_from(OWNERS), run_id=st.sampled_from(RUNS))
    @precondition(lambda self: self.runs)
    def compact(self, who: int, run_id: str) -> None:
        run = self.runs.get(run_id)
        dropped = self.do(self.owners[who].compact(run_id))
        if run is None:
            assert dropped == 0
        elif run.snapshot >= 0:
            assert dropped == max(0, run.snapshot - run.compacted)
            run.compacted = max(run.compacted, run.snapshot)
        else:
            run.compacted += dropped

    @rule(who=st.sampled_from(OWNERS), run_id=st.sampled_from(RUNS))
    def delete(self, who: int, run_id: str) -> None:
        run = self.runs.pop(run_id, None)
        assert self.do(self.owners[who].delete(run_id, force=True)) == (run is not None)
        if run is not None:
            self.floor = max(self.floor, run.epoch)

    @invariant()
    def the_store_is_as_the_model(self) -> None:
        listed = self.do(self.keeper.list_runs())
        assert [info.run_id for info in listed] == sorted(self.runs, key=lambda run_id: self.runs[run_id].order)
        for info in listed:
            run = self.runs[info.run_id]
            assert (info.status, info.owner, info.epoch) == (run.status, run.owner, run.epoch)
            assert (info.seq, info.unread, info.result) == (len(run.commits), len(run.unread), run.result)
            assert info.stream_seq == run.stream_seq
            assert (info.attempts, bool(info.held)) == (run.attempts, run.held)
            loaded = self.do(self.keeper.load(info.run_id))
            assert loaded is not None
            first = loaded.snapshot[0] if loaded.snapshot else 0
            assert [commit.body for commit in loaded.commits] == run.commits[first:]
            assert {item.position for item in loaded.inbox} == run.unread
            read = self.do(self.keeper.read(info.run_id))
            assert [(commit.seq, commit.body) for commit in read] == list(enumerate(run.commits, 1))[run.compacted :]


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_is_as_its_model(kind: str):
    machine = type("Machine", (StoreMachine,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60 if kind == "memory" else 25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
