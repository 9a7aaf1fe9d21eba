"""Runs that a store keeps: taken up again, sent to, cancelled, branched off from, and put aside while they wait."""

import asyncio
import pickle
import threading
import warnings
from datetime import date
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel

from batonflow.durable import opening
from batonflow.durable.store_protocol import RunStore, StoredCommit
from batonflow.durable.stores.memory import MemoryStore
from batonflow.values.types import UnreconstructedException
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from batonflow.workflow_core.errors import (
    ReplayIncompatible,
    RunInputMismatchError,
    RunInterruptedError,
    RunInUseError,
    StateOutsideContextWarning,
    StoreError,
    UnknownOutcomeError,
    WorkflowCancelledByUser,
    WorkflowRuntimeError,
    WorkflowValidationError,
)
from batonflow.workflow_core.events import StepFailedEvent, StreamResetEvent, WorkflowCancelledEvent
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.durable.conftest import Stores
from tests.workflow_core.flows import until


class Ask(InputRequiredEvent):
    what: str = ""


class EventForReader(HumanResponseEvent):
    text: str = ""


class Middle(Event):
    n: int = 0


class Busy(Exception):
    """Makes its text of a response."""

    def __init__(self, response: SimpleNamespace) -> None:
        super().__init__(f"status {response.status}")
        self.response = response  # which cannot be written


class Asks(Workflow):
    """Adds, then asks a person, then says what it knows."""

    began = 0

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Middle:
        type(self).began += 1
        await ctx.store.set("topic", ev.get("topic", "tides"))
        return Middle(n=1)

    @step
    async def ask(self, ctx: Context, ev: Middle) -> StopEvent:
        told = await ctx.wait_for_event(EventForReader, waiter_event=Ask(what="well?"))
        return StopEvent(result=f"{await ctx.store.get('topic')}: {told.text}")


@pytest.fixture(autouse=True)
def from_the_start() -> None:
    Asks.began = 0


async def left_waiting(store: MemoryStore, run_id: str = "r", **start: Any) -> None:
    """A run that waits, whose process is no more."""
    flow = Asks(store=MemoryStore(beside=store))
    handler = flow.run(run_id=run_id, **start)
    await until(lambda: handler.open_inputs())
    await handler.interrupt()
    assert flow.run_store is not None
    await flow.run_store.aclose()


class TestGoingOn:
    async def test_what_was_done_is_not_done_again(self) -> None:
        store = MemoryStore()
        await left_waiting(store)
        handler = Asks(store=store).resume("r")
        await until(lambda: handler.open_inputs())
        handler.open_inputs()[0].respond(text="high")
        assert await handler == "tides: high"
        assert Asks.began == 1

    async def test_the_same_id_and_input_go_on_too(self) -> None:
        store = MemoryStore()
        await left_waiting(store, topic="moons")
        handler = Asks(store=store).run(run_id="r", topic="moons")
        handler.ctx.send_event(EventForReader(text="two"))
        assert await handler == "moons: two"
        assert Asks.began == 1

    async def test_an_error_that_cannot_be_built_again_stands_in_no_ones_way(self) -> None:
        class Calls(Workflow):
            @step(retry_policy=retry_policy(wait=wait_fixed(0.05), stop=stop_after_attempt(2)))
            async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
                raise Busy(SimpleNamespace(status=503))

            @catch_error(for_steps=["call"])
            async def caught(self, ctx: Context, ev: StepFailedEvent) -> StopEvent:
                told = await ctx.wait_for_event(EventForReader, waiter_event=Ask(what=str(ev.exception)))
                if told.text == "raise":
                    raise ev.exception
                return StopEvent(result=(type(ev.exception), told.text))

        store = MemoryStore()
        flow = Calls(store=MemoryStore(beside=store))
        handler = flow.run(run_id="r")
        await until(lambda: handler.execution_counts.executions)
        await handler.interrupt()
        handler = Calls(store=store).resume("r")
        await until(lambda: handler.open_inputs())
        await handler.interrupt()
        handler = Calls(store=store).resume("r")
        await until(lambda: handler.open_inputs())
        assert handler.open_inputs()[0].event.what == "status 503"
        handler.open_inputs()[0].respond(text="raise")
        with pytest.raises(UnreconstructedException, match="status 503"):
            await handler
        with pytest.raises(UnreconstructedException, match="status 503"):
            await Calls(store=store).resume("r")

    async def test_readers_learn_that_something_may_be_lost(self) -> None:
        store = MemoryStore()
        await left_waiting(store)
        handler = Asks(store=store).resume("r")
        handler.ctx.send_event(EventForReader())
        await handler
        told = [item.event async for item in handler.subscribe()]
        assert [type(event) for event in told] == [Ask, StreamResetEvent, Ask, StopEvent]

    async def test_a_run_that_is_not_there(self) -> None:
        with pytest.raises(StoreError, match="no run 'nobody': start it"):
            await Asks(store="memory:").resume("nobody")

    async def test_a_run_of_another_live_process(self) -> None:
        store = MemoryStore()
        first = Asks(store=store).run(run_id="r")
        await until(lambda: first.open_inputs())
        with pytest.raises(RunInUseError, match="driven by another process") as caught:
            await Asks(store=MemoryStore(beside=store)).run(run_id="r")
        assert caught.value.owner == store.owner
        await first.cancel_run()

    async def test_an_interrupted_run_says_how_to_go_on(self) -> None:
        handler = Asks(store="memory:").run(run_id="r")
        await until(lambda: handler.open_inputs())
        await handler.interrupt()
        with pytest.raises(RunInterruptedError, match=r"resume\('r'\)"):
            await handler

    async def test_without_a_store_there_is_nothing_to_go_on_with(self) -> None:
        with pytest.raises(WorkflowRuntimeError, match=r'Asks\(store="runs.db"\)'):
            Asks().resume("r")

    async def test_interrupting_a_run_that_nothing_keeps_cancels_it(self) -> None:
        handler = Asks().run()
        await until(lambda: handler.open_inputs())
        await handler.interrupt()
        with pytest.raises(WorkflowCancelledByUser):
            await handler


class TestRecovering:
    async def test_every_run_of_a_dead_process_goes_on(self) -> None:
        store = MemoryStore()
        for number in range(3):
            await left_waiting(store, f"r{number}")
        flow = Asks(store=store)
        handlers = await flow.recover()
        assert sorted(handler.run_id for handler in handlers) == ["r0", "r1", "r2"]
        for handler in handlers:
            handler.ctx.send_event(EventForReader(text="yes"))
        assert [await handler for handler in handlers] == ["tides: yes"] * 3
        assert await flow.recover() == []

    async def test_runs_of_other_workflows_are_left_alone(self) -> None:
        class Other(Workflow):
            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                return StopEvent()

        store = MemoryStore()
        await left_waiting(store)
        assert await Other(store=store).recover() == []


class TestFromOutside:
    async def test_an_event_reaches_whoever_drives_the_run(self) -> None:
        store = MemoryStore()
        handler = Asks(store=store).run(run_id="r")
        await until(lambda: handler.open_inputs())
        elsewhere = Asks(store=MemoryStore(beside=store))
        await elsewhere.send_to_run("r", EventForReader(text="low"), key="once")
        await elsewhere.send_to_run("r", EventForReader(text="low"), key="once")
        assert await handler == "tides: low"

    async def test_an_event_waits_for_the_next_process(self) -> None:
        store = MemoryStore()
        await left_waiting(store)
        flow = Asks(store=store)
        await flow.send_to_run("r", EventForReader(text="later"))
        [handler] = await flow.recover()
        assert await handler == "tides: later"

    async def test_a_cancel(self) -> None:
        store = MemoryStore()
        handler = Asks(store=store).run(run_id="r")
        await until(lambda: handler.open_inputs())
        await Asks(store=MemoryStore(beside=store)).cancel_run("r", "not needed any more")
        with pytest.raises(WorkflowCancelledByUser, match="The run was cancelled: not needed any more"):
            await handler
        with pytest.raises(WorkflowCancelledByUser, match="not needed any more"):
            await Asks(store=store).run(run_id="r")
        assert (await store.replay("r")).stop_event.reason == "not needed any more"
        info = await store.info("r")
        assert info is not None
        assert info.status == "cancelled"

    async def test_a_run_that_is_over_takes_nothing(self) -> None:
        store = MemoryStore()
        flow = Asks(store=store)
        handler = flow.run(run_id="r")
        handler.ctx.send_event(EventForReader())
        await handler
        with pytest.raises(StoreError, match="is over"):
            await flow.send_to_run("r", EventForReader())
        with pytest.raises(StoreError, match="no run 'nobody'"):
            await flow.cancel_run("nobody")


class TestBranchingOff:
    async def test_with_another_state_and_an_event(self) -> None:
        store = MemoryStore()
        flow = Asks(store=store)
        handler = flow.run(run_id="r")
        handler.ctx.send_event(EventForReader(text="high"))
        assert await handler == "tides: high"
        [begun] = [one["commit"] for one in await store.history("r") if one.get("step") == "begin"]
        fork = flow.fork("r", begun, state={"topic": "moons"}, event=EventForReader(text="two"), new_id="f")
        assert await fork == "moons: two"
        assert Asks.began == 1
        before, after = await store.info("r"), await store.info("f")
        assert before is not None
        assert after is not None
        assert (before.status, after.forked_from) == ("completed", ("r", begun))

    async def test_a_branch_that_a_crash_cuts_off_is_there_with_its_edits(self) -> None:
        class Cut(MemoryStore):
            async def claim(self, run_id: str, owner: str, ttl: float) -> Any:
                if run_id == "f":
                    raise StoreError("the process ends here")
                return await super().claim(run_id, owner, ttl)

        store = Cut()
        flow = Asks(store=store)
        handler = flow.run(run_id="r")
        handler.ctx.send_event(EventForReader(text="high"))
        await handler
        [begun] = [one["commit"] for one in await store.history("r") if one.get("step") == "begin"]
        with pytest.raises(StoreError, match="ends here"):
            await flow.fork("r", begun, state={"topic": "moons"}, new_id="f")
        edited = [one for one in await store.history("f") if one["kind"] == "edited"]
        assert [one["commit"] for one in edited] == [begun + 1]
        assert await flow.fork("f", begun + 1, new_id="g") == "moons: high"

    async def test_where_there_is_nothing_to_branch_off_from(self) -> None:
        store = MemoryStore()
        flow = Asks(store=store)
        handler = flow.run(run_id="r")
        handler.ctx.send_event(EventForReader())
        await handler
        last = (await store.read("r"))[-1].seq
        with pytest.raises(StoreError, match=f"no run 'r' with a commit {last + 1}"):
            await flow.fork("r", last + 1)
        with pytest.raises(StoreError, match=f"Run 'r' is over at commit {last}: fork at an earlier one"):
            await flow.fork("r", last)
        with pytest.raises(StoreError, match=f"Run 'r' is over at commit {last}: fork at an earlier one"):
            await flow.fork("r", last, state={"topic": "moons"})
        with pytest.raises(StoreError, match="a run 'r' already"):
            await flow.fork("r", 1, new_id="r")


class Person(BaseModel):
    name: str = ""
    born: date | None = None


class Account(BaseModel):
    count: int = 0
    owner: Person | None = None
    marks: dict[str, Any] = {}
    _secret: int = 1


class Keeps(Workflow):
    """Says what is in its state."""

    @step
    async def begin(self, ctx: Context[Account], ev: StartEvent) -> EventForReader:
        await ctx.store.set("marks", {"a": [1, 2]})
        return EventForReader()

    @step
    async def tell(self, ctx: Context[Account], ev: EventForReader) -> StopEvent:
        return StopEvent(result=await ctx.store.get_state())


class TestEditingABranch:
    @pytest.mark.parametrize(
        ("state", "count", "owner", "marks"),
        [
            ({"count": 7}, 7, None, {"a": [1, 2]}),
            ({"count": "7"}, 7, None, {"a": [1, 2]}),
            ({"owner": {"name": "Ann", "born": "1990-01-02"}}, 0, Person(name="Ann", born=date(1990, 1, 2)), ...),
            ({"owner.name": "Ann", "owner.born": "1990-01-02"}, 0, Person(name="Ann", born=date(1990, 1, 2)), ...),
            ({"marks.a.1": 9, "marks.b.c": 1}, 0, None, {"a": [1, 9], "b": {"c": 1}}),
        ],
    )
    async def test_values_become_what_the_class_of_the_state_makes_of_them(
        self, kept: Any, state: dict, count: int, owner: Person | None, marks: Any
    ) -> None:
        await Keeps(store=kept).run(run_id="r")
        wanted = Account(count=count, owner=owner, marks={"a": [1, 2]} if marks is ... else marks)
        handler = Keeps(store=kept).fork("r", 2, state=state, new_id="f")
        assert await handler == wanted
        # So the records say, too.
        last = (await kept.read("f"))[-1].seq
        assert await Keeps(store=kept).fork("f", last - 1, new_id="g") == wanted
        await kept.aclose()

    @pytest.mark.parametrize(
        "state",
        [
            {"": 1}, {".": 1}, {"count.": 1}, {"marks..b": 1}, {"nope": 1}, {"count": "x"}, {"count.x": 1},
            {"owner.born": "soon"}, {"owner": {}, "owner.nope": 1}, {"marks": [1]}, {"marks.a.5": 1}, {"marks.a.x": 1},
            {"__class__": 1}, {"__dict__": {"count": 7}}, {"__pydantic_fields_set__": 1}, {"_secret": 2},
            {"model_config": {}}, {"owner": {}, "owner.__dict__": {}}, {"count": 1, "nope": 1},
            {".".join("a" * 1001): 1},
        ],
    )  # fmt: skip
    async def test_a_branch_that_is_refused_is_not_there(self, kept: Any, state: dict) -> None:
        flow = Keeps(store=kept)
        await flow.run(run_id="r")
        with pytest.raises(WorkflowRuntimeError, match="state cannot be changed at"):
            await flow.fork("r", 2, state=state, new_id="f")
        assert await kept.info("f") is None
        assert await flow.recover() == []
        await kept.aclose()

    async def test_names_of_the_class_cannot_be_reached_in_a_state_without_fields(self) -> None:
        flow = Asks(store="memory:")
        handler = flow.run(run_id="r")
        handler.ctx.send_event(EventForReader())
        await handler
        for name in ("__class__", "_data", ""):
            with pytest.raises(WorkflowRuntimeError, match="state cannot be changed at"):
                await flow.fork("r", 2, state={name: {}}, new_id="f")

    async def test_a_branch_that_cannot_begin_is_not_there(self, kept: Any) -> None:
        flow = Keeps(store=kept)
        await flow.run(run_id="r")
        with pytest.raises(StoreError, match="cannot be recorded"):
            await flow.fork("r", 2, state={"marks": {"a": object()}}, new_id="f")
        with pytest.raises(StoreError, match="is over at commit"):
            await flow.fork("r", (await kept.read("r"))[-1].seq, new_id="f")
        assert await kept.info("f") is None
        await kept.aclose()


class TestTakingUp:
    async def test_what_cannot_be_taken_up_is_let_go_whatever_the_reason(
        self, kept: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flow = Asks(store=kept)
        handler = flow.run(run_id="r")
        await handler.started()
        await handler.interrupt()
        with monkeypatch.context() as patched:
            patched.setattr(opening, "restore", _fails)
            with pytest.raises(RuntimeError, match="no way"):
                await flow.resume("r")
        assert (await kept.info("r")).owner is None
        handler = flow.resume("r")
        handler.ctx.send_event(EventForReader(text="high"))
        assert await handler == "tides: high"
        await kept.aclose()


def _fails(*_: Any) -> None:
    raise RuntimeError("no way")


@pytest.fixture
def kept(stores: Stores) -> Any:
    return stores.open()


async def status(store: Any, wanted: str) -> None:
    """Wait until the run stands there."""
    for _ in range(2000):
        info = await store.info("r")
        if info is not None and info.status == wanted:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"the run never was {wanted}")


class TestLeavingMemory:
    async def test_a_person_answers_a_run_that_sleeps(self, kept: Any) -> None:
        handler = Asks(store=kept, idle_release=0).run(run_id="r")
        requests = handler.inputs()
        request = await anext(requests)
        await status(kept, "waiting")
        assert request.is_open
        request.respond(text="awake")
        assert await handler == "tides: awake"
        assert [one async for one in requests] == [], "nobody is asked twice"
        await kept.aclose()

    async def test_an_event_wakes_it(self, kept: Any) -> None:
        handler = Asks(store=kept, idle_release=0).run(run_id="r")
        await status(kept, "waiting")
        handler.ctx.send_event(EventForReader(text="sent"))
        assert await handler == "tides: sent"
        await kept.aclose()

    async def test_another_process_wakes_it(self) -> None:
        store = MemoryStore()
        handler = Asks(store=store, idle_release=0).run(run_id="r")
        await status(store, "waiting")
        await Asks(store=MemoryStore(beside=store)).send_to_run("r", EventForReader(text="from afar"))
        assert await handler == "tides: from afar"

    async def test_the_end_of_a_wait_wakes_it(self) -> None:
        class Impatient(Workflow):
            @step
            async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
                try:
                    await ctx.wait_for_event(EventForReader, timeout=0.2)
                except TimeoutError:
                    return StopEvent(result="nobody came")
                return StopEvent(result="somebody came")

        store = MemoryStore()
        handler = Impatient(store=store, idle_release=0).run(run_id="r")
        await status(store, "waiting")
        assert await handler == "nobody came"

    async def test_it_does_not_sleep_while_a_step_works(self) -> None:
        class Busy(Workflow):
            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                await asyncio.sleep(0.05)
                return StopEvent(result="done")

        store = MemoryStore()
        assert await Busy(store=store, idle_release=0).run(run_id="r") == "done"
        info = await store.info("r")
        assert info is not None
        assert info.epoch == 1

    @pytest.mark.parametrize("seconds", [-1, "1", True], ids=str)
    def test_seconds_that_mean_nothing(self, seconds: Any) -> None:
        with pytest.raises(WorkflowValidationError, match="idle_release must be a number of seconds"):
            Asks(idle_release=seconds)


class TestOtherCode:
    async def test_a_step_that_is_gone(self) -> None:
        store = MemoryStore()
        await left_waiting(store)

        class Changed(Workflow):
            @step
            async def begin(self, ev: StartEvent) -> StopEvent:
                return StopEvent()

        with pytest.raises(RunInputMismatchError, match=r"'r' belongs to workflow .*Asks, not to .*Changed: .*name="):
            await Changed(store=store).resume("r")
        with pytest.raises(RunInputMismatchError, match=r"'r' belongs to workflow .*Asks, not to .*Changed: .*name="):
            await Changed(store=store).fork("r", 1)
        assert [info.run_id for info in await store.list_runs()] == ["r"], "no branch is left behind"
        named = Changed(store=store, workflow_name=Asks().workflow_name)
        with pytest.raises(ReplayIncompatible, match="Step ask of Changed is in the records"):
            await named.resume("r")
        handler = Asks(store=store).resume("r")
        handler.ctx.send_event(EventForReader(text="back"))
        assert await handler == "tides: back", "whoever has the code can go on with it"

    async def test_a_state_whose_new_field_has_no_default(self) -> None:
        class Tally(BaseModel):
            n: int

        class Changed(Workflow):
            @step
            async def begin(self, ctx: Context[Tally], ev: StartEvent) -> Middle:
                return Middle()

            @step
            async def ask(self, ctx: Context[Tally], ev: Middle) -> StopEvent:
                return StopEvent()

        store = MemoryStore()
        await left_waiting(store)
        with pytest.raises(ReplayIncompatible) as caught:
            await Changed(store=store, workflow_name=Asks().workflow_name).resume("r")
        said = str(caught.value)
        assert said.startswith(
            "Run 'r' cannot go on with Changed: State must have defaults for all fields, Tally has not"
        )
        assert said.endswith("Give new fields of a state a default")
        assert "invalid format" not in said
        assert "upcasters" not in said

    async def test_a_question_that_the_code_does_not_ask_any_more(self, caplog: pytest.LogCaptureFixture) -> None:
        class Over(Event):
            pass

        class Changed(Workflow):
            @step
            async def begin(self, ev: StartEvent) -> Middle:
                return Middle()

            @step
            async def ask(self, ev: Middle) -> Over:
                return Over()

            @step
            async def end(self, ev: Over) -> StopEvent:
                return StopEvent(result="nobody")

        store = MemoryStore()
        await left_waiting(store)
        assert await Changed(store=store, workflow_name=Asks().workflow_name).resume("r") == "nobody"
        [said] = caplog.messages
        assert "step ask waited for EventForReader before the run was taken up, and ended without" in said
        assert "is withdrawn" in said

    async def test_a_cancel_needs_no_code(self) -> None:
        class Changed(Workflow):
            @step
            async def begin(self, ev: StartEvent) -> StopEvent:
                return StopEvent()

        store = MemoryStore()
        await left_waiting(store)
        flow = Changed(store=store, workflow_name=Asks().workflow_name)
        await flow.cancel_run("r", "not wanted any more")
        for _ in range(2):
            with pytest.raises(WorkflowCancelledByUser, match="not wanted any more"):
                await flow.resume("r")
        with pytest.raises(WorkflowCancelledByUser, match="not wanted any more"):
            await Asks(store=store).resume("r")
        info = await store.info("r")
        assert info is not None
        assert (info.status, info.unread, info.owner) == ("cancelled", 0, None)
        replayed = await store.replay("r", Asks())
        assert (replayed.status, type(replayed.events[-1].event)) == ("cancelled", WorkflowCancelledEvent)
        numbers = [record["id"] for record in await store.history("r")]
        assert len(set(numbers)) == len(numbers)

    async def test_another_workflow_neither_wakes_nor_ends_nor_reads_it(self) -> None:
        class Other(Asks):
            pass

        store = MemoryStore()
        await left_waiting(store)
        before = await store.info("r")
        for use in (lambda: Other(store=store).resume("r"), lambda: Other(store=store).fork("r", 1)):
            with pytest.raises(RunInputMismatchError, match=r"belongs to workflow .*Asks, not to .*Other"):
                await use()
        assert await store.info("r") == before
        handler = Asks(store=store).resume("r")
        await handler.started()
        with pytest.raises(RunInputMismatchError, match=r"belongs to workflow .*Asks, not to .*Other"):
            Other(store=store).resume("r")
        handler.ctx.send_event(EventForReader(text="back"))
        await handler
        with pytest.raises(RunInputMismatchError, match=r"belongs to workflow .*Asks, not to .*Other"):
            await Other(store=store).resume("r")

    async def test_old_records_are_translated(self) -> None:
        class Renamed(Workflow):
            @step
            async def begin(self, ctx: Context, ev: StartEvent) -> Middle:
                return Middle()

            @step
            async def question(self, ctx: Context, ev: Middle) -> StopEvent:
                told = await ctx.wait_for_event(EventForReader)
                return StopEvent(result=f"{await ctx.store.get('topic')}, {told.text}")

        def renamed(record: dict[str, Any]) -> dict[str, Any]:
            return {**record, "step": "question"} if record.get("step") == "ask" else record

        store = MemoryStore()
        first = Asks(store=MemoryStore(beside=store), version="1")
        handler = first.run(run_id="r")
        await until(lambda: handler.open_inputs())
        await handler.interrupt()
        name = Asks().workflow_name
        again = Renamed(store=store, workflow_name=name, version="2", upcasters={"1": renamed}).resume("r")
        again.ctx.send_event(EventForReader(text="translated"))
        assert await again == "tides, translated"


class TestEffects:
    async def test_nobody_knows_what_became_of_it(self) -> None:
        done: list[str] = []

        class Pays(Workflow):
            repeat = False

            @step
            async def pay(self, ctx: Context, ev: StartEvent) -> StopEvent:
                return StopEvent(result=await ctx.effect("pay", self.spend, about="12 kr", repeat=self.repeat))

            async def spend(self) -> str:
                done.append("paid")
                if len(done) == 1:
                    await asyncio.Event().wait()
                return "receipt"

        store = MemoryStore()
        first = Pays(store=MemoryStore(beside=store)).run(run_id="r")
        await until(lambda: done)
        await first.interrupt()
        intents = [one["outcome"] for one in await store.history("r") if one.get("outcome", [""])[0] == "intent"]
        assert intents == [["intent", ["pay", {"about": "12 kr"}]]]
        fork = Pays(store=store)
        with pytest.raises(UnknownOutcomeError, match="It is unknown whether 'pay' of step pay happened"):
            await fork.fork("r", 2, new_id="f")
        harmless = Pays(store=store)
        harmless.repeat = True
        assert await harmless.resume("r") == "receipt"
        assert done == ["paid", "paid"]

    async def test_what_is_recorded_is_not_done_again(self) -> None:
        done: list[str] = []

        class Pays(Workflow):
            @step
            async def pay(self, ctx: Context, ev: StartEvent) -> StopEvent:
                receipt = await ctx.effect("pay", done.append, "paid")
                told = await ctx.wait_for_event(EventForReader)
                return StopEvent(result=[receipt, told.text])

        store = MemoryStore()
        first = Pays(store=MemoryStore(beside=store)).run(run_id="r")
        await until(lambda: first.ctx.run is not None and first.ctx.run.state.waiters)
        await first.interrupt()
        again = Pays(store=store).resume("r")
        again.ctx.send_event(EventForReader(text="fine"))
        assert await again == [None, "fine"]
        assert done == ["paid"]


async def test_a_step_that_keeps_something_on_its_workflow() -> None:
    class Counts(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            self.count = 1
            return StopEvent()

    with pytest.warns(StateOutsideContextWarning, match=r"Step go changed self\.count"):
        await Counts(store="memory:").run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await Counts().run()


class TestBadInput:
    async def test_an_empty_id(self) -> None:
        for flow in (Asks(), Asks(store="memory:")):
            with pytest.raises(ValueError, match="run_id is empty: name the run, or leave run_id out"):
                flow.run(run_id="")

    @pytest.mark.parametrize("run_id", [5, b"r", ["r"]], ids=str)
    async def test_an_id_that_is_no_text(self, run_id: Any) -> None:
        flow = Asks(store="memory:")
        with pytest.raises(TypeError, match="run_id must be a string that names the run"):
            flow.run(run_id=run_id)
        with pytest.raises(TypeError, match="run_id must be a string"):
            flow.resume(run_id)
        with pytest.raises(TypeError, match="run_id must be a string"):
            await flow.send_to_run(run_id, EventForReader())

    @pytest.mark.parametrize(
        ("run_id", "error", "said"),
        [
            (5, TypeError, "run_id must be a string that names the run, not 5"),
            (None, TypeError, "run_id must be a string that names the run, not None"),
            ("", ValueError, "run_id is empty: name the run$"),
        ],
    )
    async def test_a_run_that_is_there_has_an_id(self, run_id: Any, error: type[Exception], said: str) -> None:
        flow = Asks(store="memory:")
        for ask in (
            lambda: flow.resume(run_id),
            lambda: flow.live_handler(run_id),
            lambda: flow.fork(run_id, 1),
            lambda: flow.open_inputs(run_id),
            lambda: flow.awaited_events(run_id),
            lambda: flow.send_to_run(run_id, EventForReader()),
            lambda: flow.cancel_run(run_id),
        ):
            with pytest.raises(error, match=said):
                await cast("Any", ask())

    def test_the_id_of_a_branch_is_one_that_a_store_takes(self) -> None:
        flow = Asks(store="memory:")
        with pytest.raises(StoreError, match="'a b' is not a run id: use 1 to 200 characters"):
            flow.fork("r", 1, new_id="a b")
        with pytest.raises(TypeError, match="new_id must be a string that names the run, not 5"):
            flow.fork("r", 1, new_id=5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="new_id is empty: name the run, or leave new_id out"):
            flow.fork("r", 1, new_id="")

    @pytest.mark.parametrize("limit", ["x", -1, None, True, 1.0], ids=str)
    async def test_a_number_of_runs_that_is_none(self, limit: Any) -> None:
        wrong = ValueError if limit == -1 else TypeError
        with pytest.raises(wrong, match=f"limit must be a whole number, 0 or more, not {limit!r}"):
            await Asks(store="memory:").recover(limit)

    @pytest.mark.parametrize("skip", ["abc", 5, None], ids=str)
    async def test_runs_to_leave_alone_that_are_no_list(self, skip: Any) -> None:
        with pytest.raises(TypeError, match=f"skip must be a list of run ids, not {skip!r}"):
            await Asks(store="memory:").recover(skip=skip)

    async def test_words_that_are_no_text(self) -> None:
        flow = Asks(store="memory:")
        with pytest.raises(TypeError, match="key must be a string, not 5"):
            await flow.send_to_run("r", EventForReader(), key=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="step must be a string, not 5"):
            await flow.send_to_run("r", EventForReader(), step=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="reason must be a string, not 5"):
            await flow.cancel_run("r", 5)  # type: ignore[arg-type]

    @pytest.mark.parametrize("run_id", ["a b", "x" * 201, "ünï"], ids=lambda text: text[:5])
    async def test_an_id_that_no_store_takes(self, run_id: str) -> None:
        with pytest.raises(StoreError, match="run id"):
            await Asks(store="memory:").run(run_id=run_id)

    @pytest.mark.parametrize("at", ["1", 0, -1, True, None], ids=str)
    def test_a_commit_that_is_no_number(self, at: Any) -> None:
        wrong = ValueError if at in {0, -1} else TypeError
        with pytest.raises(wrong, match=f"at must be the number of a commit, 1 or more, not {at!r}"):
            Asks(store="memory:").fork("r", at)

    def test_a_state_that_is_no_dict(self) -> None:
        with pytest.raises(TypeError, match="state must be a dict from paths"):
            Asks(store="memory:").fork("r", 1, state=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="state must be a dict from paths"):
            Asks(store="memory:").fork("r", 1, state={5: 1})  # type: ignore[dict-item]

    def test_an_event_that_is_none(self) -> None:
        with pytest.raises(TypeError, match="event must be an Event, not 'yes'"):
            Asks(store="memory:").fork("r", 1, event="yes")  # type: ignore[arg-type]

    def test_a_version_that_is_no_text(self) -> None:
        with pytest.raises(WorkflowValidationError, match="version must be a text"):
            Asks(version=5)  # type: ignore[arg-type]

    async def test_what_is_no_event(self) -> None:
        with pytest.raises(TypeError, match=r"send_to_run\(\) takes an event"):
            await Asks(store="memory:").send_to_run("r", "yes")  # type: ignore[arg-type]

    @pytest.mark.parametrize("store", [5, object(), b"runs.db"], ids=["number", "object", "bytes"])
    def test_what_is_no_store(self, store: Any) -> None:
        with pytest.raises(StoreError, match="give the path of a SQLite file"):
            Asks(store=store)


async def test_an_effect_that_raised_is_not_unknown() -> None:
    tries: list[int] = []

    class Tries(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                await ctx.effect("try", self.fail)
            except OSError:
                await ctx.wait_for_event(EventForReader)
            return StopEvent(result="went on")

        async def fail(self) -> None:
            tries.append(1)
            if len(tries) == 1:
                raise OSError("no")

    store = MemoryStore()
    handler = Tries(store=MemoryStore(beside=store)).run(run_id="r")
    await until(lambda: handler.ctx.run is not None and handler.ctx.run.state.waiters)
    await handler.interrupt()
    assert await Tries(store=store).resume("r") == "went on"
    assert len(tries) == 2


class Piece(Event):
    text: str

    @classmethod
    def joined(cls, pieces: Any) -> "Piece":
        return cls(text="".join(piece.text for piece in pieces))


async def test_pieces_that_are_stored_as_one_are_not_said_to_be_lost() -> None:
    class Tells(Workflow):
        @step
        async def tell(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for text in "abc":
                ctx.write_event_to_stream(Piece(text=text))
            await ctx.wait_for_event(EventForReader, timeout=None)
            return StopEvent()

    flow = Tells(store="memory:", timeout=None)
    handler = flow.run(run_id="r")
    await until(lambda: handler.is_waiting)
    last = [item.seq for item in [await anext(reader) for reader in [handler.subscribe()] for _ in range(3)]][-1]
    await handler.interrupt()
    again = flow.resume("r")
    reader = again.subscribe()
    assert (await anext(reader)).event == Piece(text="abc")
    reset = (await anext(reader)).event
    assert isinstance(reset, StreamResetEvent)
    assert reset.lost_from == last + 1
    await again.cancel_run()


class SlowToRead(MemoryStore):
    """Reads when it is let to."""

    def __init__(self) -> None:
        super().__init__()
        self.lets_read = asyncio.Event()
        self.lets_read.set()
        self.reads = 0

    async def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[StoredCommit]:
        self.reads += 1
        await self.lets_read.wait()
        return await super().read(run_id, after, limit)


async def test_a_first_read_that_is_cancelled_loses_nothing_of_what_is_stored() -> None:
    class Tells(Workflow):
        @step
        async def tell(self, ctx: Context, ev: StartEvent) -> EventForReader:
            ctx.write_event_to_stream(Piece(text="a"))
            return EventForReader()

        @step
        async def wait(self, ctx: Context, ev: EventForReader) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent, timeout=None)
            return StopEvent()

    store = SlowToRead()
    handler = Tells(store=store, timeout=None).run(run_id="r")
    await until(lambda: handler.is_waiting)
    await handler.interrupt()
    again = Tells(store=store, timeout=None).resume("r")
    await until(lambda: again.is_waiting)
    reader = again.subscribe()
    store.lets_read.clear()
    before = store.reads
    reading = asyncio.ensure_future(anext(reader))
    await until(lambda: store.reads > before)
    reading.cancel()
    await asyncio.wait({reading})
    store.lets_read.set()
    again.ctx.send_event(HumanResponseEvent())
    assert [type(item.event) async for item in reader] == [Piece, StreamResetEvent, StopEvent]


class ShowsState(Workflow):
    @step
    async def show(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.store.get_state()).to_dict())


async def test_a_handler_may_change_the_state_before_the_store_has_the_run(kept: Any):
    handler = ShowsState(store=kept).run(run_id="early")
    await handler.ctx.store.set("k", 1)
    assert await handler == {"k": 1}
    assert (await kept.replay("early")).state_at(99) == {"k": 1}


async def test_a_run_that_is_cancelled_before_it_begins_gives_no_turn_back(store: RunStore):
    flow = ShowsState(store=store, num_concurrent_runs=1)
    handler = flow.run()
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    assert flow.__batonflow__.turns.active == 0
    assert await flow.run() == {}


def test_an_error_with_attributes_can_be_pickled():
    error = pickle.loads(pickle.dumps(RunInUseError("tides-1", "process 7", 12.5)))
    assert (type(error), str(error)) == (RunInUseError, str(RunInUseError("tides-1", "process 7", 12.5)))
    assert (error.owner, error.since) == ("process 7", 12.5)


class Waits(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(EventForReader, waiter_event=Ask(what="go on?"))
        return StopEvent(result=(await ctx.store.get_state()).to_dict())


async def test_an_edit_that_cannot_be_recorded_changes_nothing(store: MemoryStore):
    handler = Waits(store=store).run(run_id="r")
    await until(lambda: bool(handler.open_inputs()))
    await handler.ctx.store.set("x", 1)
    with pytest.raises(StoreError, match="bad"):
        async with handler.ctx.store.edit_state() as state:
            state["bad"] = lambda: 1
    assert (await handler.ctx.store.get_state()).to_dict() == {"x": 1}
    await handler.cancel_run()


async def test_questions_of_a_run_on_a_busy_loop_are_listed_at_once(store: MemoryStore):
    flow, busy, release = Waits(store=store, timeout=None), threading.Event(), threading.Event()

    async def elsewhere() -> None:
        handler = flow.run(run_id="r")
        await until(lambda: bool(handler.open_inputs()))
        busy.set()
        release.wait()  # blocks the loop of the run
        await handler.cancel_run()

    thread = threading.Thread(target=asyncio.run, args=(elsewhere(),))
    thread.start()
    try:
        await asyncio.to_thread(busy.wait)
        async with asyncio.timeout(10):
            assert [one.event.get("prefix", one.event.what) for one in await flow.open_inputs("r")] == ["go on?"]
    finally:
        release.set()
        await asyncio.to_thread(thread.join)
