"""Runs looked at while nothing goes on in them, and what else a server needs of workflows and handlers."""

import asyncio
import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.at_rest import run_at_rest
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import (
    InputClosedError,
    InputResponseError,
    RunInputMismatchError,
    RunInterruptedError,
    StoreError,
    WorkflowRuntimeError,
    WorkflowValidationError,
)
from tests.workflow_core.flows import until


class Question(InputRequiredEvent):
    text: str


class Answer(HumanResponseEvent):
    text: str


class Other(HumanResponseEvent):
    pass


class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(
            Answer, waiter_event=Question(text="Who?"), requirements={"about": "names"}, timeout=None
        )
        return StopEvent(result=answer.text)


class Outer(Workflow):
    @step
    async def call(self, ev: StartEvent, desk: Ask) -> StopEvent:
        return StopEvent(result=await desk.run())


class Two(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> None: ...

    @step
    async def left(self, ev: Answer) -> StopEvent:
        return StopEvent(result="left")

    @step
    async def right(self, ev: Answer) -> StopEvent:
        await asyncio.sleep(0)
        return StopEvent(result="right")


def outer(store: SQLiteStore) -> Outer:
    return Outer(store=store, timeout=None, workflows={"desk": Ask(timeout=None)})


async def left_waiting(tmp_path: Path, inside: bool = False) -> None:
    """A run that another process, which is over, has left while it waited."""
    store = SQLiteStore(tmp_path / "runs.db")
    handler = (outer(store) if inside else Ask(store=store, timeout=None)).run(run_id="r")
    await anext(handler.inputs())
    await handler.interrupt()
    await store.aclose()


@pytest.mark.parametrize("inside", [False, True])
async def test_a_question_is_closed_from_the_commit_of_its_answer_on(inside: bool) -> None:
    store = MemoryStore()
    flow = outer(store) if inside else Ask(store=store, timeout=None)
    handler = flow.run(run_id="r")
    request = await anext(handler.inputs())
    await flow.send_to_run("r", request.answer(text="Ann"), key=request.answer_key)
    await handler
    commits = await store.read("r")
    asked = next(commit.seq for commit in commits if b'"waiting"' in commit.body)
    answered = next(commit.seq for commit in commits if b'"input"' in commit.body)
    is_open: dict[int, bool] = {}
    for commit in commits[:-1]:
        found = await run_at_rest(flow, store, "r", commit.seq)
        assert found is not None
        is_open[commit.seq] = bool(found[0].questions.at_rest())
    assert is_open == {seq: asked <= seq < answered for seq in is_open}
    await store.aclose()


@pytest.mark.parametrize("inside", [False, True])
async def test_questions_of_a_run_that_nobody_drives_are_known_and_answered_by_an_event(
    tmp_path: Path, inside: bool
) -> None:
    await left_waiting(tmp_path, inside)
    store = SQLiteStore(tmp_path / "runs.db")
    flow = outer(store) if inside else Ask(store=store, timeout=None)
    [request] = await flow.open_inputs("r")
    assert request.event == Question(text="Who?")
    assert request.path == ("desk" if inside else "")
    assert (request.response_type, request.filled) == (Answer, {"about": "names"})
    assert await flow.awaited_events("r") == {Answer}
    with pytest.raises(InputResponseError, match="text"):
        request.answer(text=5)
    with pytest.raises(InputResponseError, match="about"):
        request.answer(text="Ann", about="ages")
    with pytest.raises(InputClosedError, match=r"send_to_run\(run_id, request\.answer"):
        request.respond(text="Ann")
    answer = request.answer(text="Ann")
    assert await flow.send_to_run("r", answer, key="first") is True
    assert await flow.send_to_run("r", answer, key="first") is False
    assert await flow.resume("r") == "Ann"
    assert await flow.open_inputs("r") == []
    await store.aclose()


async def test_looking_at_a_run_begins_nothing_and_leaves_no_trace(tmp_path: Path) -> None:
    await left_waiting(tmp_path)
    store = SQLiteStore(tmp_path / "runs.db")
    flow = Ask(store=store, timeout=None)
    before = await store.info("r")
    await flow.open_inputs("r")
    assert await store.info("r") == before
    assert flow.live_handlers() == []
    assert flow.live_handler("r") is None
    assert flow.last_run_state is None
    await store.aclose()


async def test_what_a_run_waited_for_earlier_is_known_too() -> None:
    flow = Ask(store="memory:", timeout=None)
    handler = flow.run(run_id="r")
    request = await anext(handler.inputs())
    assert await flow.awaited_events("r") == {Answer}
    request.respond(text="Ann")
    await handler
    assert await flow.awaited_events("r") == set()
    assert await flow.awaited_events("r", at=1) == set()
    assert await flow.awaited_events("r", at=2) == {Answer}


async def test_questions_of_a_run_in_this_process_are_those_of_its_handler() -> None:
    flow = Ask(store="memory:", timeout=None)
    handler = flow.run(run_id="r")
    await anext(handler.inputs())
    [request] = await flow.open_inputs("r")
    request.respond(text="Ann")
    assert await handler == "Ann"
    with pytest.raises(InputClosedError):
        request.respond(text="Bob")
    assert await flow.open_inputs("r") == []


async def test_a_question_whose_answer_is_in_the_inbox_is_not_open_any_more() -> None:
    flow = Ask(store="memory:", timeout=None)
    handler = flow.run(run_id="r")
    await anext(handler.inputs())
    await handler.interrupt()
    [request] = await flow.open_inputs("r")
    assert await flow.send_to_run("r", request.answer(text="Ann"), key=request.answer_key)
    assert await flow.open_inputs("r") == []
    assert await flow.resume("r") == "Ann"


async def test_an_answer_that_is_used_while_the_questions_are_read_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    run = Ask(store=store).run(run_id="r")
    await anext(run.inputs())
    await run.interrupt()
    looking = Ask(store=MemoryStore(beside=store))
    [request] = await looking.open_inputs("r")
    await looking.send_to_run("r", request.answer(text="Ann"), key=request.answer_key)

    async def used_meanwhile(_self: MemoryStore, _after: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(MemoryStore, "unread", used_meanwhile)
    assert await looking.open_inputs("r") == []


async def test_what_is_not_there_asks_nobody_and_waits_for_nothing() -> None:
    flow = Ask(store="memory:", timeout=None)
    with pytest.raises(StoreError, match=r"The store has no run 'nobody': its list_runs\(\) gives those that there"):
        await flow.open_inputs("nobody")
    for at in (None, 1):
        with pytest.raises(StoreError, match="The store has no run 'nobody'"):
            await flow.awaited_events("nobody", at)
    handler = flow.run(run_id="r")  # has not reached the store yet
    assert await flow.open_inputs("r") == []
    assert await flow.awaited_events("r") in (set(), {Answer})
    await handler.cancel_run()


@pytest.mark.parametrize("at", ["x", True])
async def test_what_a_run_waited_for_is_asked_by_the_number_of_a_commit(at: Any) -> None:
    flow = Ask(store="memory:", timeout=None)
    await flow.run(run_id="r").started()
    with pytest.raises(StoreError, match=f"at={at!r}: give the number of a commit"):
        await flow.awaited_events("r", at)
    await flow.cancel_run("r")


async def test_a_workflow_with_a_store_leaves_the_one_it_was_made_of_as_it_was() -> None:
    plain = Ask(timeout=None)
    one, other = MemoryStore(), MemoryStore()
    first = plain.with_store(one, idle_release=5, name="first")
    second = plain.with_store(other)
    assert (plain.run_store, first.run_store, second.run_store) == (None, one, other)
    assert (plain.idle_release, first.idle_release, second.idle_release) == (None, 5, None)
    assert (first.workflow_name, second.workflow_name) == ("first", plain.workflow_name)
    assert Ask(idle_release=1).with_store(one, idle_release=5).idle_release == 1
    handler = first.run(run_id="r")
    await handler.started()
    assert await one.info("r") is not None
    assert await other.info("r") is None
    assert [live.run_id for live in first.live_handlers()] == ["r"]
    assert second.live_handlers() == []
    await handler.cancel_run()


class Needed(Event):
    pass


class Unsound(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent()

    @step
    async def never(self, ev: Needed) -> StopEvent:
        return StopEvent()


async def test_with_store_refuses_a_workflow_that_cannot_run() -> None:
    with pytest.raises(WorkflowValidationError, match="Needed"):
        Unsound().with_store(MemoryStore())
    assert Unsound(disable_validation=True).with_store(MemoryStore()).run_store is not None


async def test_with_store_counts_runs_for_itself() -> None:
    plain = Ask(timeout=None, num_concurrent_runs=1)
    kept = plain.with_store(MemoryStore())
    handlers = [plain.run(), kept.run()]
    for handler in handlers:
        await anext(handler.inputs())  # neither waits for the other
    for handler in handlers:
        await handler.cancel_run()


async def test_started_waits_for_the_store_and_says_what_stands_in_the_way() -> None:
    flow = Ask(store="memory:", timeout=None)
    handler = flow.run(run_id="r", topic="one")
    await handler.started()
    assert not handler.is_done()
    await handler.cancel_run()
    with pytest.raises(RunInputMismatchError):
        await flow.run(run_id="r", topic="two").started()
    with pytest.raises(StoreError, match="no run"):
        await flow.resume("nobody").started()
    without_store = Ask(timeout=None).run()
    await without_store.started()
    await without_store.cancel_run()


async def test_a_handler_says_whether_its_run_waits_and_what_stopped_it(tmp_path: Path) -> None:
    flow = Ask(store="memory:", timeout=None, idle_release=0.01)
    handler = flow.run(run_id="r")
    await until(lambda: handler.is_released)
    assert handler.is_waiting
    assert handler.stopped_by is None
    await handler.interrupt()
    assert not handler.is_waiting
    assert isinstance(handler.stopped_by, RunInterruptedError)
    again = flow.resume("r")
    await flow.send_to_run("r", Answer(text="Ann", about="names"))
    assert await again == "Ann"
    assert again.stopped_by is None


async def test_an_event_in_the_inbox_may_be_for_one_step() -> None:
    flow = Two(store="memory:", timeout=None)
    for step_name in ("left", "right"):
        handler = flow.run(run_id=step_name)
        await handler.started()
        await flow.send_to_run(step_name, Answer(text=""), step=step_name)
        assert await handler == step_name
    with pytest.raises(WorkflowRuntimeError, match="nowhere"):
        await flow.send_to_run("left", Answer(text=""), step="nowhere")
    with pytest.raises(WorkflowRuntimeError, match="does not accept"):
        await flow.send_to_run("left", Other(), step="right")


async def test_an_event_in_the_inbox_may_be_for_a_step_of_an_attached_workflow() -> None:
    class Desk(Workflow, entry=[Other]):
        @step
        async def note(self, ctx: Context, ev: Other) -> StopEvent:
            ctx.send_event(Answer(text="noted"))
            return StopEvent()

    class House(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> None: ...

        @step
        async def end(self, ev: Answer) -> StopEvent:
            return StopEvent(result=ev.text)

    flow = House(store="memory:", timeout=None, workflows={"desk": Desk(timeout=None)}, disable_validation=True)
    handler = flow.run(run_id="r")
    await handler.started()
    await flow.send_to_run("r", Other(), step="desk.note")
    assert await handler == "noted"


async def test_a_run_that_cannot_be_taken_up_is_not_claimed_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Changed(Workflow):
        @step
        async def renamed(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    store = MemoryStore()
    handler = Ask(store=store, timeout=None, workflow_name="flow").run(run_id="r")
    await anext(handler.inputs())
    await handler.interrupt()
    with caplog.at_level(logging.CRITICAL):
        handlers = await Changed(store=store, workflow_name="flow").recover()
        with pytest.raises(StoreError, match="Step ask"):
            await handlers[0]
    assert len(handlers) == 1
    assert (info := await store.info("r")) is not None
    assert info.epoch < 6


@pytest.mark.parametrize("internal", [False, True])
async def test_what_was_streamed_stands_in_the_store_at_the_place_that_readers_saw(internal: bool) -> None:
    store = MemoryStore()
    handler = Ask(store=store, timeout=None).run(run_id="r")
    (await anext(handler.inputs())).respond(text="Ann")
    seen = [item.seq async for item in handler.subscribe(internal=internal) if isinstance(item.event, Question)]
    last = [item.seq async for item in handler.subscribe()][-1]
    replayed = (await store.replay("r")).events
    assert [entry.seq for entry in replayed if isinstance(entry.event, Question)] == seen
    ended = (await store.history("r"))[-1]
    assert ended["kind"] == "ended"
    assert replayed[-2].seq < ended["seq"] <= last


class Asks(Workflow):
    """Asks without a wait."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="Who?")

    @step
    async def take(self, ev: Answer) -> StopEvent:
        return StopEvent(result=ev.text)


class Around(Workflow):
    """Calls one that asks without a wait."""

    @step
    async def call(self, ev: StartEvent, desk: Asks) -> StopEvent:
        return StopEvent(result=await desk.run())


@pytest.mark.parametrize(("around", "inside"), [(Outer, Ask), (Around, Asks)])
async def test_a_question_that_is_streamed_again_says_which_workflow_asks(around: Any, inside: Any) -> None:
    flow = around(store=MemoryStore(), timeout=None, workflows={"desk": inside(timeout=None)})
    handler = flow.run(run_id="r")
    asked = await anext(handler.inputs())
    live = await anext(item async for item in handler.subscribe() if isinstance(item.event, Question))
    await handler.interrupt()
    again = flow.resume("r")
    (await anext(again.inputs())).respond(text="Ann")
    assert await again == "Ann"
    repeated = [item async for item in again.subscribe(after=live.seq) if isinstance(item.event, Question)]
    assert [(item.path, item.event) for item in repeated] == [("desk", asked.event)]


async def test_runs_that_nobody_holds_are_let_go_of_when_they_have_left_memory() -> None:
    flow = Ask(store="memory:", timeout=None, idle_release=0.01)
    dropped, held = flow.run(run_id="dropped"), flow.run(run_id="held")  # a workflow remembers its last run
    for handler in (held, dropped):
        await until(lambda handler=handler: handler.is_released)
    kept = weakref.ref(dropped.ctx)
    del dropped, handler
    assert flow.forget_sleeping() == 1

    def is_gone() -> bool:
        gc.collect()
        return kept() is None

    await until(is_gone)
    assert [handler.run_id for handler in flow.live_handlers()] == ["held"]
    for run_id in ("held", "dropped"):
        await flow.send_to_run(run_id, Answer(text="Ann", about="names"))
    assert await held == "Ann"
    [again] = await flow.recover()
    assert await again == "Ann"
