"""What OpenTelemetry is told of runs and steps, read back from exporters in memory."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from batonflow.durable import lease as drive
from batonflow.instrumentation import BaseEvent, get_dispatcher, instrument_tags
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    MemoryStore,
    SQLiteStore,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowCancelledByUser,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.promises.programs.running import ROOT
from tests.workflow_core.exported import Exported
from tests.workflow_core.flows import until


@pytest.fixture
def exported() -> Iterator[Exported]:
    out = Exported()
    tracing = out.instrument()
    yield out
    tracing.uninstrument()
    out.close()


class Part(Event):
    n: int = 0


class TwoSteps(Workflow):
    @step
    async def first(self, ev: StartEvent) -> Part:
        return Part(n=1)

    @step
    async def second(self, ev: Part) -> StopEvent:
        return StopEvent(result=ev.n)


async def test_a_run_is_a_span_with_one_for_each_step_inside(exported: Exported) -> None:
    await TwoSteps(workflow_name="two").run(run_id="r1")
    run = exported.one("invoke_workflow two")
    assert run.parent is None
    assert run.kind == SpanKind.INTERNAL
    assert dict(run.attributes) == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "two",
        "gen_ai.conversation.id": "r1",
        "openinference.span.kind": "CHAIN",
        "batonflow.run.id": "r1",
        "batonflow.run.status": "completed",
    }
    assert run.status.status_code == StatusCode.UNSET
    for name, came in (("first", "StartEvent"), ("second", "Part")):
        one = exported.one(f"step {name}")
        assert exported.parent(one) == "invoke_workflow two"
        assert one.attributes["batonflow.step.name"] == name
        assert one.attributes["batonflow.step.input"] == came
        assert one.attributes["batonflow.step.status"] == "completed"
        assert run.start_time <= one.start_time <= one.end_time <= run.end_time


async def test_the_span_around_a_run_is_its_parent(exported: Exported) -> None:
    with exported.tracers.get_tracer("http").start_as_current_span("GET /"):
        handler = TwoSteps(workflow_name="two").run()
        assert trace.get_current_span().name == "GET /"  # starting a run changes nothing here
    await handler
    assert exported.parent(exported.one("invoke_workflow two")) == "GET /"
    assert len({span.context.trace_id for span in exported.spans}) == 1


async def test_what_others_trace_in_a_step_lies_in_its_span(exported: Exported) -> None:
    tracer = exported.tracers.get_tracer("other")

    class Traced(Workflow):
        @step
        async def in_a_task(self, ev: StartEvent) -> Part:
            async def inner() -> None:
                with tracer.start_as_current_span("in a task"):
                    await asyncio.sleep(0)

            await asyncio.create_task(inner())
            return Part()

        @step
        def in_a_thread(self, ev: Part) -> StopEvent:
            with tracer.start_as_current_span("in a thread"):
                return StopEvent()

    await Traced(workflow_name="traced").run()
    assert exported.parent(exported.one("in a task")) == "step in_a_task"
    assert exported.parent(exported.one("in a thread")) == "step in_a_thread"
    assert not trace.get_current_span().get_span_context().is_valid


async def test_steps_at_the_same_time_do_not_mix(exported: Exported) -> None:
    tracer = exported.tracers.get_tracer("other")

    class Fan(Workflow):
        @step
        async def split(self, ev: StartEvent) -> list[Part]:
            return [Part(n=n) for n in range(8)]

        @step(num_workers=8)
        async def work(self, ev: Part) -> HumanResponseEvent:
            await asyncio.sleep(0)
            with tracer.start_as_current_span(f"work {ev.n}"):
                await asyncio.sleep(0.001 * (8 - ev.n))
            return HumanResponseEvent(n=ev.n)

        @step
        async def join(self, parts: list[HumanResponseEvent]) -> StopEvent:
            return StopEvent(result=len(parts))

    assert await Fan(workflow_name="fan").run() == 8
    above = {exported.named(f"work {n}")[0].parent.span_id for n in range(8)}
    assert above == {span.context.span_id for span in exported.named("step work")}
    assert {exported.parent(span) for span in exported.named("step work")} == {"invoke_workflow fan"}


class Inner(Workflow):
    @step
    async def inside(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="inner")


async def test_a_child_workflow_lies_in_the_step_that_runs_it(exported: Exported) -> None:
    class Outer(Workflow):
        @step
        async def call(self, ev: StartEvent, inner: Inner) -> StopEvent:
            with exported.tracers.get_tracer("other").start_as_current_span("between"):
                return StopEvent(result=await inner.run())

    outer = Outer(workflow_name="outer", workflows={"inner": Inner(workflow_name="inner")})
    assert await outer.run() == "inner"
    inner = exported.one("invoke_workflow inner")
    assert inner.attributes["batonflow.run.path"] == "inner"
    assert exported.parent(exported.one("step inside")) == "invoke_workflow inner"
    assert exported.parent(inner) == "between"
    assert exported.parent(exported.one("between")) == "step call"


async def test_a_retry_is_a_span_of_its_own_behind_one_that_failed(exported: Exported) -> None:
    tries: list[int] = []

    class Flaky(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
        async def knock(self, ev: StartEvent) -> StopEvent:
            tries.append(1)
            if len(tries) < 2:
                raise ConnectionError("nobody there, key sk-aaaaaaaaaaaaaaaaaaaaaaaa")
            return StopEvent()

    await Flaky(workflow_name="flaky").run()
    failed, done = exported.named("step knock")
    assert (failed.attributes["batonflow.step.attempt"], done.attributes["batonflow.step.attempt"]) == (0, 1)
    assert failed.status.status_code == StatusCode.ERROR
    assert failed.attributes["error.type"] == "ConnectionError"
    assert failed.attributes["batonflow.step.status"] == "failed"
    (raised,) = failed.events
    assert raised.name == "exception"
    assert raised.attributes["exception.message"] == "nobody there, key [redacted]"
    assert "sk-aaaa" not in str(failed.status.description) + str(dict(raised.attributes))
    assert done.status.status_code == StatusCode.UNSET


async def test_a_failure_is_one_of_step_and_run(exported: Exported) -> None:
    class Fails(Workflow):
        @step
        async def fail(self, ev: StartEvent) -> StopEvent:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Fails(workflow_name="fails").run()
    for name in ("step fail", "invoke_workflow fails"):
        span = exported.one(name)
        assert span.status.status_code == StatusCode.ERROR
        assert span.events[0].attributes["exception.type"] == "ValueError"
        assert "raise ValueError" in span.events[0].attributes["exception.stacktrace"]
    assert exported.one("invoke_workflow fails").attributes["batonflow.run.status"] == "failed"


class Waits(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=answer.response)


async def waiting(handler: Any) -> None:
    await until(lambda: handler.is_waiting)


async def test_a_cancelled_run_is_no_error(exported: Exported) -> None:
    class Sleeps(Workflow):
        @step
        async def rest(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(60)
            return StopEvent()

    handler = Sleeps(workflow_name="sleeps").run()
    await asyncio.sleep(0.01)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    assert exported.one("invoke_workflow sleeps").attributes["batonflow.run.status"] == "cancelled"
    assert exported.one("step rest").attributes["batonflow.step.status"] == "cancelled"
    assert {span.status.status_code for span in exported.spans} == {StatusCode.UNSET}


async def test_a_wait_ends_a_step_s_span_and_another_begins_with_the_answer(exported: Exported) -> None:
    handler = Waits(workflow_name="waits").run()
    await waiting(handler)
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    assert await handler == "yes"
    before, after = exported.named("step ask")
    assert [event.name for event in before.events] == ["batonflow.wait"]
    assert before.attributes["batonflow.step.status"] == "waiting"
    assert after.attributes["batonflow.step.status"] == "completed"
    assert exported.parent(before) == exported.parent(after) == "invoke_workflow waits"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_resumed_run_is_linked_to_the_trace_before(exported: Exported, tmp_path: Path, kind: str) -> None:
    def store() -> Any:
        return MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "runs.db")

    kept = store()
    handler = Waits(workflow_name="waits", store=kept).run(run_id="r1")
    await waiting(handler)
    await handler.interrupt()
    if kind == "sqlite":
        await kept.aclose()
        kept = store()  # as another process would have it
    handler = Waits(workflow_name="waits", store=kept).resume("r1")
    await handler.started()
    await waiting(handler)
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    await handler
    first, second = exported.named("invoke_workflow waits")
    assert first.attributes["batonflow.run.status"] == "interrupted"
    assert first.status.status_code == StatusCode.UNSET
    (link,) = second.links
    assert link.context.span_id == first.context.span_id
    assert link.context.trace_id == first.context.trace_id != second.context.trace_id
    assert dict(link.attributes) == {"batonflow.link": "resumes"}
    assert first.attributes["batonflow.run.id"] == second.attributes["batonflow.run.id"] == "r1"
    await kept.aclose()


async def test_a_run_that_leaves_memory_leaves_no_span_open(exported: Exported) -> None:
    store = MemoryStore()
    handler = Waits(workflow_name="waits", store=store, idle_release=0.02).run()
    await until(lambda: handler.is_released)
    (released,) = exported.named("invoke_workflow waits")
    assert released.attributes["batonflow.run.status"] == "released"
    handler.ctx.send_event(HumanResponseEvent(response="back"))
    assert await handler == "back"
    _, back = exported.named("invoke_workflow waits")
    assert back.links[0].context.span_id == released.context.span_id
    await store.aclose()


def test_it_asks_for_no_events_of_the_pieces_of_answers(exported: Exported) -> None:
    assert get_dispatcher().enabled
    assert not get_dispatcher().tells_pieces


class Hop(Event):
    left: int


class Hops(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Hop:
        return Hop(left=ev.hops)

    @step
    async def hop(self, ctx: Context, ev: Hop) -> Hop | StopEvent:
        if ev.left:
            return Hop(left=ev.left - 1)
        answer = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=answer.response)


@pytest.mark.parametrize("hops", [2, 4])
async def test_a_snapshot_does_not_hide_where_a_run_was_traced(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, hops: int
) -> None:
    monkeypatch.setattr(drive, "SNAPSHOT_EVERY", 2)
    flow = Hops(workflow_name="hops", store=MemoryStore())
    handler = flow.run(run_id="r1", hops=hops)
    await waiting(handler)
    await handler.interrupt()
    handler = flow.resume("r1")
    await waiting(handler)
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    await handler
    first, second = exported.named("invoke_workflow hops")
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


async def test_a_run_that_nobody_traced_has_no_link(exported: Exported) -> None:
    store = MemoryStore()
    exported_before = get_dispatcher().span_handlers[:]
    get_dispatcher().span_handlers = []
    handler = Waits(workflow_name="waits", store=store).run(run_id="r1")
    await waiting(handler)
    await handler.interrupt()
    assert b'"o"' not in b"".join(commit.body[:8] for commit in await store.read("r1"))
    get_dispatcher().span_handlers = exported_before
    handler = Waits(workflow_name="waits", store=store).resume("r1")
    await handler.started()
    await waiting(handler)
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    await handler
    assert exported.one("invoke_workflow waits").links == ()
    await store.aclose()


class Noted(BaseEvent):
    secret: str


class Says(Workflow):
    @step
    async def say(self, ev: StartEvent) -> StopEvent:
        get_dispatcher(__name__).event(Noted(secret="password of the harbour"))
        return StopEvent(result="a secret result")


async def test_nothing_that_was_said_is_exported_unless_it_is_asked_for(exported: Exported) -> None:
    await Says(workflow_name="says").run(topic="a secret topic")
    told = [
        (span.name, dict(span.attributes), [(e.name, dict(e.attributes)) for e in span.events])
        for span in exported.spans
    ]
    assert "secret" not in str(told)
    assert [event.name for event in exported.one("step say").events] == ["Noted"]


async def test_events_of_one_s_own_say_what_they_hold_with_content() -> None:
    out = Exported()
    tracing = out.instrument(content=True)
    try:
        await Says(workflow_name="says").run()
    finally:
        tracing.uninstrument()
        out.close()
    assert dict(out.one("step say").events[0].attributes) == {"secret": "password of the harbour"}


async def test_tags_in_force_are_attributes(exported: Exported) -> None:
    with instrument_tags({"tenant": "acme", "list": ["a", "b"], "map": {"api_key": "x", "n": 1}}):
        await TwoSteps(workflow_name="two").run()
    attributes = exported.one("step first").attributes
    assert attributes["tenant"] == "acme"
    assert attributes["list"] == ("a", "b")
    assert attributes["map"] == '{"api_key": "[redacted]", "n": 1}'


async def test_functions_that_are_spans_nest_too(exported: Exported) -> None:
    dispatcher = get_dispatcher(__name__)

    @dispatcher.span
    async def outer() -> None:
        await inner()

    @dispatcher.span
    async def inner() -> None: ...

    await outer()
    names = {span.name.rpartition(".")[2]: span for span in exported.spans}
    assert names["inner"].parent.span_id == names["outer"].context.span_id


async def test_how_long_runs_take_is_a_metric(exported: Exported) -> None:
    for _ in range(3):
        await TwoSteps(workflow_name="two").run()
    (point,) = exported.points("batonflow.workflow.duration")
    assert dict(point.attributes) == {"gen_ai.workflow.name": "two", "batonflow.run.status": "completed"}
    assert point.count == 3


async def test_uninstrument_leaves_nothing() -> None:
    out = Exported()
    before = list(get_dispatcher().span_handlers), list(get_dispatcher().event_handlers)
    tracing = out.instrument(content=True)
    handler = Waits(workflow_name="waits").run()
    await waiting(handler)
    tracing.uninstrument()
    tracing.uninstrument()
    assert (list(get_dispatcher().span_handlers), list(get_dispatcher().event_handlers)) == before
    assert {span.name for span in out.spans} == {"invoke_workflow waits", "step ask"}  # ended, not forgotten
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    await handler
    await TwoSteps(workflow_name="two").run()
    assert not out.named("invoke_workflow two")
    assert otel_context.get_current() == {}
    out.close()


async def test_runs_leave_nothing_behind_in_the_handler(exported: Exported) -> None:
    await TwoSteps(workflow_name="two").run()
    gc.collect()
    (spans,) = [one for one in get_dispatcher().span_handlers if type(one).__module__.endswith("otel")]
    assert spans.open_spans == {}


def test_nothing_of_opentelemetry_is_loaded_without_asking() -> None:
    program = (
        "import sys, batonflow; from batonflow import FunctionAgent, ScriptedLLM\n"
        "FunctionAgent(llm=ScriptedLLM(['hello'])).run_sync('hi')\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- processes that are killed ----------------------------------------------------------------------------------------


class Stuck(Workflow):
    """Its second step hangs in the first process."""

    @step
    async def first(self, ev: StartEvent) -> Part:
        return Part(n=1)

    @step
    async def second(self, ev: Part) -> StopEvent:
        if "STUCK" in os.environ:
            print("stuck", flush=True)
            await asyncio.sleep(3600)
        return StopEvent(result=ev.n)


KILLED = """
import asyncio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from batonflow.tracing.otel import instrument
from tests.tracing.test_otel import Stuck


class Lines(SpanExporter):
    def export(self, spans):
        for span in spans:
            parent = span.parent.span_id if span.parent else 0
            print(span.name, span.context.trace_id, span.context.span_id, parent, sep=";", flush=True)
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Lines()))
instrument(provider)


async def main():
    with provider.get_tracer("app").start_as_current_span("request"):
        handler = Stuck(store="runs.db", workflow_name="stuck").run(run_id="r1")
    await handler


asyncio.run(main())
"""


async def test_the_span_of_a_killed_process_is_sent_by_the_one_that_takes_the_run_up(
    exported: Exported, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STUCK": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    sent: dict[str, tuple[int, int, int]] = {}
    while (line := (await process.stdout.readline()).decode().strip()) != "stuck":
        name, *numbers = line.split(";")
        sent[name] = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
    store = SQLiteStore(tmp_path / "runs.db")
    while (info := await store.info("r1")) is None or info.seq < 2:  # noqa: ASYNC110 - until the other process has written
        await asyncio.sleep(0.01)
    process.kill()
    await process.communicate()
    trace_id, _, run_span = sent["step first"]
    assert "invoke_workflow stuck" not in sent  # an orphan, so far

    assert await Stuck(store=store, workflow_name="stuck").resume("r1") == 1
    await store.aclose()
    lost, resumed = exported.named("invoke_workflow stuck")
    assert (lost.context.trace_id, lost.context.span_id) == (trace_id, run_span)
    assert lost.parent.span_id == sent["request"][1]
    assert lost.attributes["batonflow.run.status"] == "abandoned"
    assert lost.attributes["batonflow.run.id"] == "r1"
    assert lost.status.status_code == StatusCode.ERROR
    assert lost.start_time <= lost.end_time <= resumed.start_time
    assert resumed.links[0].context.span_id == run_span
    assert resumed.attributes["batonflow.run.status"] == "completed"


async def test_a_run_that_was_interrupted_is_not_sent_again(exported: Exported, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    handler = Waits(workflow_name="waits", store=store).run(run_id="r1")
    await waiting(handler)
    await handler.interrupt()
    handler = Waits(workflow_name="waits", store=store).resume("r1")
    await handler.started()
    await waiting(handler)
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    await handler
    statuses = [span.attributes["batonflow.run.status"] for span in exported.named("invoke_workflow waits")]
    assert statuses == ["interrupted", "completed"]
    await store.aclose()
