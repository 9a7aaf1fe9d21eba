"""Spans and events of runs: what tracing sees of a workflow."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import PrivateAttr

from batonflow.instrumentation import (
    BaseEvent,
    BaseEventHandler,
    BaseSpan,
    BaseSpanHandler,
    active_instrument_tags,
    active_span_id,
    get_dispatcher,
    instrument_tags,
)
from batonflow.instrumentation.events import SpanDropEvent
from batonflow.instrumentation.events.run import (
    RunEndEvent,
    RunStartEvent,
    StepEndEvent,
    WorkflowRunOutputEvent,
    WorkflowStepOutputEvent,
)
from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.resource import Resource
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.contract import contract
from tests.workflow_core.flows import resume, saved, until


class Item(Event):
    n: int = 0


class Spans(BaseSpanHandler[BaseSpan]):
    """Writes down what becomes of each span, by the name that its id begins with."""

    _log: list[tuple[str, str]] = PrivateAttr(default_factory=list)
    _made: list[BaseSpan] = PrivateAttr(default_factory=list)
    _given: list[tuple[str, str, dict[str, Any]]] = PrivateAttr(default_factory=list)

    @property
    def log(self) -> list[tuple[str, str]]:
        return self._log

    @property
    def made(self) -> list[BaseSpan]:
        return self._made

    def given(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """What opening and closing said that the spans of that name were given."""
        return [(what, arguments) for what, of, arguments in self._given if of == name]

    def named(self, name: str) -> list[BaseSpan]:
        return [span for span in self._made if short(span.id_) == name]

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> BaseSpan:
        self._log.append(("open", short(id_)))
        self._given.append(("open", short(id_), dict(bound_args.arguments)))
        span = BaseSpan(id_=id_, parent_id=parent_span_id, tags=tags or {})
        self._made.append(span)
        return span

    def prepare_to_exit_span(self, id_: str, bound_args: Any, instance: Any = None, result: Any = None, **kwargs: Any):
        self._log.append(("close", short(id_)))
        self._given.append(("close", short(id_), dict(bound_args.arguments)))
        return self.open_spans.get(id_)

    def prepare_to_drop_span(self, id_: str, bound_args: Any, instance: Any = None, err: Any = None, **kwargs: Any):
        self._log.append(("drop", short(id_)))
        self._given.append(("drop", short(id_), dict(bound_args.arguments)))
        return self.open_spans.get(id_)


class Listener(BaseEventHandler):
    _heard: list[BaseEvent] = PrivateAttr(default_factory=list)

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self._heard.append(event)

    def of(self, cls: type[BaseEvent]) -> list[Any]:
        return [event for event in self._heard if isinstance(event, cls)]


def short(span_id: str) -> str:
    """``Flow.go`` of ``Flow.go-<token>``."""
    return span_id.rpartition("-")[0]


@pytest.fixture
def spans() -> Iterator[Spans]:
    handler, root = Spans(), get_dispatcher()
    root.add_span_handler(handler)
    yield handler
    root.span_handlers.remove(handler)


@pytest.fixture
def heard() -> Iterator[Listener]:
    handler, root = Listener(), get_dispatcher()
    root.add_event_handler(handler)
    yield handler
    root.event_handlers.remove(handler)


class Flow(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> Item:
        return Item(n=ev.n)

    @step
    async def end(self, ev: Item) -> StopEvent:
        return StopEvent(result=ev.n)


class Waits(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent()


class Fails(Workflow):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def go(self, ev: StartEvent) -> StopEvent:
        raise ValueError("boom")


@contract("14.1")
async def test_a_span_for_the_run_and_one_for_each_execution_below_it(spans: Spans):
    await Flow().run(n=1)
    assert spans.log == [
        ("open", "Flow.run"), ("open", "Flow.go"), ("close", "Flow.go"),
        ("open", "Flow.end"), ("close", "Flow.end"), ("close", "Flow.run"),
    ]  # fmt: skip
    [run] = spans.named("Flow.run")
    assert run.parent_id is None
    assert [span.parent_id for span in spans.made[1:]] == [run.id_, run.id_]
    assert spans.open_spans == {}


@contract("14.1")
async def test_spans_inside_a_step_lie_below_its_span(spans: Spans):
    dispatcher = get_dispatcher("batonflow.tests")

    @dispatcher.span
    async def inner() -> int:
        return 1

    class Calls(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            await asyncio.gather(inner(), inner())
            return StopEvent()

    await Calls().run()
    [go] = spans.named("Calls.go")
    inners = [span for span in spans.made if "inner" in span.id_]
    assert [span.parent_id for span in inners] == [go.id_, go.id_]


@contract("14.1", "14.4")
async def test_a_run_lies_below_the_span_that_started_it(spans: Spans):
    dispatcher = get_dispatcher("batonflow.tests")

    @dispatcher.span
    async def outer() -> None:
        await Flow().run(n=1)

    await outer()
    [parent] = [span for span in spans.made if "outer" in span.id_]
    [run] = spans.named("Flow.run")
    assert run.parent_id == parent.id_


@contract("14.1")
async def test_a_child_workflow_lies_below_the_step_that_called_it(spans: Spans):
    class Parent(Workflow):
        @step
        async def call(self, ev: StartEvent, flow: Flow) -> StopEvent:
            return StopEvent(result=await flow.run(n=1))

    await Parent(workflows={"flow": Flow()}).run()
    [call] = spans.named("Parent.call")
    [child] = spans.named("Flow.run")
    assert child.parent_id == call.id_


@contract("14.1")
async def test_each_attempt_is_a_span(spans: Spans):
    with pytest.raises(ValueError, match="boom"):
        await Fails().run()
    assert len(spans.named("Fails.go")) == 2


async def test_a_run_is_given_its_start_event_and_a_step_its_parameters(spans: Spans):
    contexts: list[Context] = []

    class Keeps(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item:
            contexts.append(ctx)
            return Item(n=ev.n)

        @step
        def end(self, came: Item) -> StopEvent:
            return StopEvent(result=came.n)

    start = StartEvent(n=3)
    await Keeps().run(start_event=start)
    assert spans.given("Keeps.run") == [("open", {"start_event": start}), ("close", {"start_event": start})]
    arguments = {"ctx": contexts[0], "ev": start}
    assert spans.given("Keeps.go") == [("open", arguments), ("close", arguments)]
    assert spans.given("Keeps.end") == [(what, {"came": Item(n=3)}) for what in ("open", "close")]


async def test_a_start_event_made_of_keywords_is_given_too_whatever_run_takes(spans: Spans):
    class Asks(Workflow):
        def run(self, question: str) -> Any:  # type: ignore[override]
            return super().run(n=len(question))

        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=ev.n)

    assert await Asks().run("Why?") == 4
    [(_, opened), (_, closed)] = spans.given("Asks.run")
    assert opened == closed == {"start_event": StartEvent(n=4)}


def test_the_span_of_a_run_has_the_parameters_of_run():
    taken: list[inspect.BoundArguments] = []

    class Takes(Spans):
        def new_span(self, id_: str, bound_args: inspect.BoundArguments, *args: Any, **kwargs: Any) -> BaseSpan:
            taken.append(bound_args)
            return super().new_span(id_, bound_args, *args, **kwargs)

    handler, root = Takes(), get_dispatcher()
    root.add_span_handler(handler)
    try:
        Flow().run_sync(n=1)
    finally:
        root.span_handlers.remove(handler)
    names = list(inspect.signature(Flow().run).parameters)
    assert list(taken[0].signature.parameters) == names == ["ctx", "start_event", "kwargs"]
    assert list(taken[1].signature.parameters) == ["ctx", "ev"]


async def test_joins_lists_and_free_steps_are_given_what_they_take_without_what_is_injected(spans: Spans):
    class Other(Event):
        pass

    class Both(Event):
        pass

    class Many(Workflow):
        @step
        async def spread(self, ev: StartEvent) -> list[Item]:
            return [Item(n=1), Item(n=2)]

        @step
        async def gather(self, items: list[Item], ctx: Context) -> Other | Both:
            ctx.send_event(Other())
            return Both()

        @step
        async def end(
            self, one: Other, two: Both, made: Annotated[list[int], Resource(lambda: [7])], flow: Flow
        ) -> StopEvent:
            return StopEvent(result=made)

    class Free(Workflow):
        pass

    @step(workflow=Free)
    async def alone(ev: StartEvent) -> StopEvent:
        return StopEvent()

    await Many(workflows={"flow": Flow()}).run()
    await Free().run()
    [(_, gathered), _] = spans.given("Many.gather")
    assert list(gathered) == ["items", "ctx"]
    assert gathered["items"] == [Item(n=1), Item(n=2)]
    [(_, ended), _] = spans.given("Many.end")
    assert ended == {"one": Other(), "two": Both()}
    assert [arguments for _, arguments in spans.given("Free.alone")] == [{"ev": StartEvent()}] * 2


async def test_failing_and_waiting_say_it_too(spans: Spans):
    with pytest.raises(ValueError, match="boom"):
        await Fails().run()
    assert [(what, list(arguments)) for what, arguments in spans.given("Fails.go")] == [
        ("open", ["ev"]), ("drop", ["ev"]), ("open", ["ev"]), ("drop", ["ev"]),
    ]  # fmt: skip
    assert spans.given("Fails.run") == [(what, {"start_event": StartEvent()}) for what in ("open", "drop")]
    handler = Waits().run()
    await until(lambda: ("close", "Waits.go") in spans.log)
    handler.ctx.send_event(HumanResponseEvent())
    await handler
    went = spans.given("Waits.go")
    assert [(what, list(arguments)) for what, arguments in went] == [
        (what, ["ctx", "ev"]) for what in ("open", "close") * 2
    ]
    assert len({id(arguments["ctx"]) for _, arguments in went}) == 1


async def test_a_run_that_goes_on_has_no_start_event(spans: Spans):
    flow = Waits()
    handler = flow.run()
    await asyncio.sleep(0.001)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent())
    await again
    assert spans.given("Waits.run")[-1] == ("close", {"start_event": None})


@contract("14.2")
async def test_spans_carry_tags(spans: Spans):
    await Flow().run(run_id="traced", n=1)
    [run] = spans.named("Flow.run")
    assert run.tags["llamaindex.run_id"] == "traced"
    assert run.tags["llamaindex.start_event"] == "StartEvent(n=1)"
    [end] = spans.named("Flow.end")
    assert end.tags["llamaindex.run_id"] == "traced"
    assert end.tags["llamaindex.step.input_event"] == "Item"
    assert end.tags["llamaindex.step.input_summary"] == "Item(n=1)"


async def test_what_happens_in_a_run_is_tagged_with_its_id_and_the_tags_around_it(spans: Spans, heard: Listener):
    class Noted(BaseEvent):
        by: str

    class Parent(Workflow):
        @step
        async def call(self, ev: StartEvent) -> StopEvent:
            get_dispatcher("of.a.user").event(Noted(by="parent"))
            await Child().run(run_id="inner")
            get_dispatcher("of.a.user").event(Noted(by="parent"))
            return StopEvent()

    class Child(Workflow):
        @step
        async def call(self, ev: StartEvent) -> StopEvent:
            get_dispatcher("of.a.user").open_span("of a user")
            get_dispatcher("of.a.user").event(Noted(by="child"))
            return StopEvent()

    with instrument_tags({"user": "ann"}):
        await Parent().run(run_id="outer")
        assert active_instrument_tags.get() == {"user": "ann"}
    outer, inner = (
        {"user": "ann", "llamaindex.run_id": run_id, "gen_ai.conversation.id": run_id} for run_id in ("outer", "inner")
    )
    assert [event.tags for event in heard.of(Noted)] == [outer, inner, outer]
    for cls in (RunStartEvent, StepEndEvent, RunEndEvent):
        tags = {event.run_id: event.tags for event in heard.of(cls)}
        assert tags == {"outer": outer, "inner": inner}, cls
    assert [span.tags for span in spans.named("of a user")] == [inner]


async def test_a_run_that_nobody_hears_is_tagged_with_nothing():
    class Looks(Workflow):
        @step
        async def look(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=active_instrument_tags.get())

    assert await Looks().run() == {}


@contract("14.2")
async def test_two_output_events_with_short_summaries(heard: Listener):
    class Long(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=[f"{n}" * 100 for n in range(3)], **{f"k{n}": "v" * 100 for n in range(9)})

    await Long().run()
    [step_output] = heard.of(WorkflowStepOutputEvent)
    [run_output] = heard.of(WorkflowRunOutputEvent)
    assert (step_output.class_name(), run_output.class_name()) == ("step.output", "workflow.output")
    for event in (step_output, run_output):
        assert event.output.startswith("StopEvent(")
        assert len(event.output) <= 200


@contract("14.3")
async def test_waiting_closes_the_span_and_going_on_opens_another(spans: Spans, heard: Listener):
    handler = Waits().run()
    await until(lambda: ("close", "Waits.go") in spans.log)
    assert len(spans.open_spans) == 1, "the run's own"
    handler.ctx.send_event(HumanResponseEvent())
    await handler
    assert spans.log == [
        ("open", "Waits.run"), ("open", "Waits.go"), ("close", "Waits.go"),
        ("open", "Waits.go"), ("close", "Waits.go"), ("close", "Waits.run"),
    ]  # fmt: skip
    assert [event.status for event in heard.of(StepEndEvent)] == ["waiting", "completed"]


@contract("14.3")
async def test_cancelling_closes_spans_normally(spans: Spans, heard: Listener):
    class Sleeps(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(100)
            return StopEvent()

    handler = Sleeps().run()
    await asyncio.sleep(0)
    await handler.cancel_run()
    assert [what for what, _ in spans.log] == ["open", "open", "close", "close"]
    assert [event.status for event in heard.of(RunEndEvent)] == ["cancelled"]
    assert heard.of(SpanDropEvent) == []


@contract("14.3")
async def test_failures_drop_spans(spans: Spans, heard: Listener):
    with pytest.raises(ValueError, match="boom"):
        await Fails().run()
    assert [what for what, name in spans.log if name == "Fails.go"] == ["open", "drop"] * 2
    assert spans.log[-1] == ("drop", "Fails.run")
    assert {event.err_str for event in heard.of(SpanDropEvent)} == {"boom"}
    assert heard.of(RunEndEvent)[0].status == "failed"
    assert spans.open_spans == {}


@contract("14.3")
async def test_a_stop_event_closes_the_spans_of_other_running_steps(spans: Spans):
    class Two(Workflow):
        @step
        async def long(self, ev: StartEvent) -> None:
            await asyncio.sleep(100)

        @step
        async def quick(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.001)
            return StopEvent()

    await Two().run()
    assert ("close", "Two.long") in spans.log
    assert spans.open_spans == {}


@contract("14.4")
async def test_a_restored_run_is_traced_again(spans: Spans, heard: Listener):
    flow = Waits()
    handler = flow.run()
    await asyncio.sleep(0.001)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent())
    await again
    assert len(spans.named("Waits.run")) == 2
    assert heard.of(RunStartEvent)[1].input_event is None
    assert spans.open_spans == {}


async def test_a_failing_handler_never_breaks_a_run(caplog: pytest.LogCaptureFixture):
    class Broken(BaseEventHandler):
        def handle(self, event: BaseEvent, **kwargs: Any) -> None:
            raise RuntimeError("handler broken")

    broken, root = Broken(), get_dispatcher()
    root.add_event_handler(broken)
    try:
        assert await Flow().run(n=3) == 3
    finally:
        root.event_handlers.remove(broken)
    assert "handler broken" in caplog.text


async def test_the_active_span_outside_is_untouched(spans: Spans):
    before = active_span_id.get()
    await Flow().run(n=1)
    assert active_span_id.get() == before


async def test_tags_of_a_run_come_from_the_class_and_not_from_an_attribute_of_that_name(spans: Spans):
    class Tagged(Flow):
        def __init__(self) -> None:
            super().__init__()
            self.trace_tags = ["mine"]  # type: ignore[method-assign]

    class Tags(Flow):
        def trace_tags(self) -> dict[str, Any]:
            return {"shop": "north"}

    await Tagged().run(n=1)
    await Tags().run(n=1)
    [first], [second] = spans.named("Tagged.run"), spans.named("Tags.run")
    assert "shop" not in first.tags
    assert second.tags["shop"] == "north"
