"""A run as data: taken at any moment, read back in another context, and payloads of earlier versions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.workflow_core import (
    Context,
    ContextSerdeError,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    WorkflowTimeoutError,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.contract import contract
from tests.workflow_core.flows import names, resume, saved, streamed, until

PAYLOADS = Path(__file__).parent / "payloads"


class Part(Event):
    n: int


class Sum(Event):
    n: int


def written(name: str) -> dict[str, Any]:
    """A payload that LlamaIndex workflows wrote for the workflow of the same name below."""
    return json.loads((PAYLOADS / f"{name}.json").read_text().replace("shapes.", f"{__name__}."))


# --- the workflows of the payloads ------------------------------------------------------------------------------------


class Asks(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("topic", ev.topic)
        reply = await ctx.wait_for_event(HumanResponseEvent, requirements={"user": "ann"})
        return StopEvent(result=(ev.topic, reply.text))


class AsksTwice(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        first = await ctx.wait_for_event(HumanResponseEvent)
        second = await ctx.wait_for_event(HumanResponseEvent, waiter_id="second")
        return StopEvent(result=first.text + second.text)


class Collects(Workflow):
    @step
    async def fan(self, ctx: Context, ev: StartEvent) -> Part | None:
        for n in range(3):
            ctx.send_event(Part(n=n))

    @step(num_workers=1)
    async def work(self, ctx: Context, ev: Part) -> Sum:
        if ev.n == 1 and not await ctx.store.get("go", default=False):
            await asyncio.sleep(100)
        return Sum(n=ev.n * 10)

    @step
    async def gather(self, ctx: Context, ev: Sum) -> StopEvent | None:
        found = ctx.collect_events(ev, [Sum] * 3, buffer_id="sums")
        return StopEvent(result=[s.n for s in found]) if found else None


class Lists(Workflow):
    @step
    async def fan(self, ev: StartEvent) -> list[Part]:
        return [Part(n=1), Part(n=2)]

    @step
    async def work(self, ctx: Context, ev: Part) -> Sum:
        if ev.n == 2 and not await ctx.store.get("go", default=False):
            await asyncio.sleep(100)
        return Sum(n=ev.n * 10)

    @step
    async def gather(self, sums: list[Sum]) -> StopEvent:
        return StopEvent(result=[s.n for s in sums])


class Joins(Workflow):
    @step
    async def one(self, ctx: Context, ev: StartEvent) -> Part:
        return Part(n=1)

    @step
    async def other(self, ctx: Context, ev: StartEvent) -> Sum:
        if not await ctx.store.get("go", default=False):
            await asyncio.sleep(100)
        return Sum(n=2)

    @step
    async def join(self, part: Part, total: Sum) -> StopEvent:
        return StopEvent(result=(part.n, total.n))


class Retries(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(50), stop=stop_after_attempt(3)))
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        info = ctx.retry_info()
        if not await ctx.store.get("go", default=False):
            raise ValueError("the first")
        return StopEvent(result=(info.retry_number, str(info.last_exception)))


async def go_on(workflow: Workflow, payload: dict[str, Any], *answers: HumanResponseEvent) -> Any:
    ctx = Context.from_dict(workflow, payload)
    await ctx.store.set("go", True)
    handler = workflow.run(ctx=ctx)
    await asyncio.sleep(0.005)
    for answer in answers:
        handler.ctx.send_event(answer)
    return await asyncio.wait_for(handler.stop_event_result(), 30)


# --- payloads of LlamaIndex workflows ---------------------------------------------------------------------------------


@contract("5.2.5")
async def test_a_waiting_run_of_version_2():
    answers = HumanResponseEvent(user="bob", text="wrong"), HumanResponseEvent(user="ann", text="right")
    assert (await go_on(Asks(), written("v2_asks"), *answers)).result == ("tides", "right")


@contract("5.2.5")
async def test_a_run_of_version_2_with_one_wait_answered():
    stop = await go_on(AsksTwice(), written("v2_askstwice"), HumanResponseEvent(text="two"))
    assert stop.result == "one two"


@contract("5.2.5")
async def test_queue_execution_and_buffer_of_version_2():
    stop = await go_on(Collects(), written("v2_collects"))
    assert sorted(stop.result) == [0, 10, 20]


@contract("5.2.5")
async def test_an_open_stream_of_version_2():
    assert sorted((await go_on(Lists(), written("v2_lists"))).result) == [10, 20]


@contract("5.2.5")
async def test_a_half_full_join_of_version_2():
    assert (await go_on(Joins(), written("v2_joins"))).result == (1, 2)


@contract("5.2.5", "8.5")
async def test_a_delayed_retry_of_version_2():
    payload = written("v2_retries")
    payload["workers"]["go"]["queue"][0]["not_before"] = 0.0
    assert (await go_on(Retries(), payload)).result == (1, "the first")


@contract("5.2.5")
async def test_a_finished_run_of_version_2():
    class Reads(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(await ctx.store.get("list.1.a"), await ctx.store.get("n"), ev.fresh))

    flow = Reads()
    ctx = Context.from_dict(flow, written("v2_finished"))
    assert not ctx.is_running
    assert await flow.run(ctx=ctx, fresh="started anew") == (2, 3, "started anew")


@contract("5.2.5")
async def test_a_run_of_version_1():
    payload = written("v2_collects")
    payload["version"] = 1
    for worker in payload["workers"].values():
        # executions were bare events, and most of what version 2 knows was not there
        worker["in_progress"] = [entry["event"] for entry in worker["in_progress"]]
        worker["queue"] = [{key: e[key] for key in ("event", "attempts", "first_attempt_at")} for e in worker["queue"]]
        del worker["collect_generations"], worker["static_collect_events"]
    payload = {key: payload[key] for key in ("version", "state", "is_running", "workers")}
    assert sorted((await go_on(Collects(), payload)).result) == [0, 10, 20]


@contract("5.2.5")
async def test_a_waiting_run_of_version_1():
    payload = written("v2_asks")
    payload["version"] = 1
    [waiter] = payload["workers"]["ask"]["collected_waiters"]
    for key in ("work_item_id", "scope_path", "collection_release_payload", "bound_events"):
        waiter.pop(key, None)
    waiter["waiter_id"] = 'waiter_workflows.events.HumanResponseEvent_{"user": "ann"}'
    waiter["requirements"] = {"user": "ann"}
    answers = HumanResponseEvent(user="bob", text="wrong"), HumanResponseEvent(user="ann", text="right")
    assert (await go_on(Asks(), payload, *answers)).result == ("tides", "right")


@contract("5.2.5")
async def test_a_run_of_version_0():
    def text(event: Event) -> str:
        cls = type(event)
        value = {
            "__is_pydantic": True,
            "value": event.model_dump(),
            "qualified_name": f"{cls.__module__}.{cls.__name__}",
        }
        return json.dumps(value)

    payload = {
        "state": {"state_type": "DictState", "state_module": "x", "state_data": {"_data": {"kept": "[1]"}}},
        "streaming_queue": "[]",
        "queues": {"work": json.dumps([text(Part(n=2))]), "waiter_gone": json.dumps([text(Part(n=9))])},
        "in_progress": {"work": [text(Part(n=1))]},
        "event_buffers": {"gather": {"x.Sum": [text(Sum(n=0))]}},
        "accepted_events": [],
        "broker_log": [],
        "is_running": True,
        "waiting_ids": ["waiter_gone"],
    }

    class OldCollects(Collects):
        @step
        async def gather(self, ctx: Context, ev: Sum) -> StopEvent | None:
            found = ctx.collect_events(ev, [Sum] * 3)
            return StopEvent(result=[s.n for s in found]) if found else None

    flow = OldCollects()
    assert await Context.from_dict(flow, payload).store.get("kept") == [1]
    assert sorted((await go_on(flow, payload)).result) == [0, 10, 20]


@contract("5.2.5", "5.1")
async def test_an_empty_payload_is_a_fresh_context():
    flow = Asks()
    ctx = Context.from_dict(flow, {})
    assert not ctx.is_running


@contract("5.1")
async def test_bad_payloads_and_newer_versions_are_refused():
    flow = Asks()
    for payload in ({"version": "2"}, {"something": "else"}, {"version": 2, "workers": None}, "text", 3):
        with pytest.raises(ContextSerdeError, match="invalid format"):
            Context.from_dict(flow, payload)  # type: ignore[arg-type]
    with pytest.raises(ContextSerdeError, match="newer version"):
        Context.from_dict(flow, {**written("v2_asks"), "version": 99})


@contract("5.2.7")
async def test_the_state_of_another_store_is_refused_when_it_is_looked_at():
    flow = Asks()
    payload = written("v2_asks")
    payload["state"] = {"store_type": "postgres", "table": "t"}
    with pytest.raises(ContextSerdeError, match="durable state store"):
        await Context.from_dict(flow, payload).store.get("topic")


# --- our own ----------------------------------------------------------------------------------------------------------


@contract("5.2.1")
async def test_the_shape_of_a_snapshot():
    handler = Asks().run(topic="tides")
    await until(lambda: saved(handler)["workers"]["ask"]["collected_waiters"])
    payload = saved(handler)
    assert payload["version"] == 2
    assert payload["is_running"] is True
    assert payload["state"] == {
        "store_type": "in_memory",
        "state_type": "DictState",
        "state_module": "batonflow.workflow_core.events",
        "state_data": {"_data": {"topic": '"tides"'}},
    }
    assert set(payload["workers"]) == {"ask"}
    worker = payload["workers"]["ask"]
    assert {"queue", "in_progress", "collected_events", "static_collect_events", "collected_waiters"} <= set(worker)
    [waiter] = worker["collected_waiters"]
    assert waiter["has_requirements"] is True
    assert json.loads(waiter["event"])["qualified_name"].endswith(".StartEvent")
    assert {"streams", "deliveries", "elapsed_alive", "work_item_seq", "stream_seq"} <= set(payload)
    handler.ctx.send_event(HumanResponseEvent(user="ann", text="x"))
    await handler


@contract("5.2.1")
async def test_a_snapshot_may_be_taken_while_reading_the_stream():
    class Streams(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Part:
            ctx.write_event_to_stream(Part(n=0))
            await asyncio.sleep(0)
            return Part(n=1)

        @step
        async def end(self, ctx: Context, ev: Part) -> StopEvent:
            ctx.write_event_to_stream(ev)
            await asyncio.sleep(0)
            return StopEvent(result=ev.n)

    flow = Streams()
    handler = flow.run()
    results: list[Any] = []
    async for event in handler.stream_events(expose_internal=True):
        payload = saved(handler)
        if not isinstance(event, StopEvent):
            results.append(payload)
    assert saved(handler)["is_running"] is False
    for payload in results:
        if payload["is_running"]:
            assert await resume(flow, payload) == 1


@contract("5.2.3")
@pytest.mark.parametrize(
    ("how", "running"), [("stop", False), ("failure", False), ("timeout", False), ("cancel", True)]
)
async def test_is_running_after_each_kind_of_end(how: str, running: bool):
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if how == "failure":
                raise ValueError("boom")
            if how != "stop":
                await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    handler = Flow(timeout=0.01 if how == "timeout" else 10).run()
    await asyncio.sleep(0.001)
    if how == "cancel":
        await handler.cancel_run()
    try:
        await handler
    except Exception:
        if how == "stop":
            raise
    assert saved(handler)["is_running"] is running
    assert Context.from_dict(Flow(), saved(handler)).is_running is running


@contract("5.2.2")
async def test_everything_that_is_under_way_survives():
    flow = Collects()
    handler = flow.run()
    await asyncio.sleep(0.002)
    payload = saved(handler)
    await handler.cancel_run()
    assert len(payload["workers"]["work"]["in_progress"]) == 1
    assert len(payload["workers"]["work"]["queue"]) == 1
    assert len(payload["workers"]["gather"]["collected_events"]["sums"]) == 1
    assert sorted((await go_on(flow, payload)).result) == [0, 10, 20]


@contract("5.2.2")
async def test_what_was_streamed_and_set_on_the_workflow_does_not_survive():
    class Flow(Asks):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.note = "on the instance"
            ctx.write_event_to_stream(Part(n=1))
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result="end")

    handler = Flow().run()
    await asyncio.sleep(0.001)
    payload = saved(handler)
    await handler.cancel_run()
    other = Flow()
    ctx = Context.from_dict(other, payload)
    assert not hasattr(other, "note")
    again = other.run(ctx=ctx)
    again.ctx.send_event(HumanResponseEvent())
    assert names(await streamed(again)) == ["StopEvent"]


@contract("16.3")
async def test_events_that_were_on_their_way_are_in_the_payload():
    flow = Collects()
    handler = flow.run()
    handler.ctx.send_event(Part(n=5))
    payload = saved(handler)
    assert [json.loads(entry["event"])["value"]["n"] for entry in payload["deliveries"]] == [5]
    await handler.cancel_run()


@contract("16.4")
async def test_the_timeout_of_a_restored_run_is_still_enforced():
    flow = Asks(timeout=0.05)
    handler = flow.run(topic="x")
    await asyncio.sleep(0.03)
    payload = saved(handler)
    await handler.cancel_run()
    with pytest.raises(WorkflowTimeoutError):
        await resume(flow, payload)


async def test_a_snapshot_taken_in_another_thread():
    handler = Asks().run(topic="x")
    await asyncio.sleep(0.001)
    payload = await asyncio.to_thread(saved, handler)
    assert payload["is_running"] is True
    await handler.cancel_run()


async def test_events_that_cannot_be_written_are_named():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    handler = Flow().run(socket=object())
    await asyncio.sleep(0.001)
    with pytest.raises(ValueError, match="Event StartEvent cannot be written into a snapshot"):
        handler.ctx.to_dict()
    handler.ctx.send_event(HumanResponseEvent())
    await handler


async def test_steps_that_are_gone_are_left_out():
    payload = written("v2_collects")
    payload["workers"]["no_longer_here"] = payload["workers"]["fan"]
    assert sorted((await go_on(Collects(), payload)).result) == [0, 10, 20]


# --- any workflow, any moment -----------------------------------------------------------------------------------------


Moment = tuple[str, int]
"""When a run is stopped: after some turns of the event loop, or in the very turn in which some event is read."""

moments = st.lists(st.tuples(st.sampled_from(["turns", "events"]), st.integers(0, 25)), min_size=1, max_size=5)


async def stopped_at(handler: WorkflowHandler, moment: Moment) -> dict[str, Any] | None:
    """The snapshot of a run at a moment, when it goes on no more; None when the run was over before."""
    kind, count = moment
    if kind == "turns":
        for _ in range(count):
            await asyncio.sleep(0)
    else:
        await read(handler, count)
    if handler.is_done():
        return None
    payload = saved(handler)
    await handler.cancel_run()
    return payload


async def read(handler: WorkflowHandler, count: int) -> None:
    """Read some events off the stream; what the run asks meanwhile is answered."""

    async def answer() -> None:
        while True:
            await asyncio.sleep(0.001)  # nothing but an answer moves the run by now
            handler.ctx.send_event(HumanResponseEvent())

    answering = asyncio.create_task(answer())
    try:
        async for _ in handler.stream_events():
            count -= 1
            if count < 0:
                return
    finally:
        answering.cancel()


class Work(Event):
    id: str
    depth: int


class Finished(Event):
    id: str


class Many(Workflow):
    """A tree of work, spread by sends, returns and lists, with sleeps and waits, whose leaves are counted in the end.

    ``shape`` gives each node: how it hands on its children, for how many turns it pauses, and whether it waits. Each
    question and each end of a step is on the stream; ``ended`` has the steps that came to their end.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ended: list[str] = []

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Work:
        await ctx.store.set("shape", ev.shape)
        return Work(id="r", depth=0)

    @step(num_workers=2)
    async def work(self, ctx: Context, ev: Work) -> Work | list[Work] | Finished | None:
        how, pause, waits = (await ctx.store.get("shape"))[ev.depth % len(await ctx.store.get("shape"))]
        async with ctx.store.edit_state() as state:
            state["entered"] = [*state.get("entered", []), ev.id]
        for _ in range(pause):
            await asyncio.sleep(0)
        if waits:
            await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent())
        ctx.write_event_to_stream(Finished(id=ev.id))
        if ev.depth == 3:
            self.ended.append(ev.id)
            return Finished(id=ev.id)
        children = [Work(id=f"{ev.id}{n}", depth=ev.depth + 1) for n in range(2)]
        if how == "send":
            for child in children:
                ctx.send_event(child)
                await asyncio.sleep(0)
        elif how != "list":
            for child in children[: 1 if how == "both" else 2]:
                ctx.send_event(child)
        self.ended.append(ev.id)
        return {"list": children, "both": children[1]}.get(how)

    @step(num_workers=1)
    async def count(self, ctx: Context, ev: Finished) -> StopEvent | None:
        await asyncio.sleep(0)
        found = ctx.collect_events(ev, [Finished] * 8)
        return StopEvent(result=sorted(one.id for one in found)) if found else None


LEAVES = sorted(f"r{a}{b}{c}" for a in "01" for b in "01" for c in "01")
NODES = sorted(["r", *(f"r{a}" for a in "01"), *(f"r{a}{b}" for a in "01" for b in "01"), *LEAVES])

node = st.tuples(st.sampled_from(["send", "send at once", "list", "both"]), st.integers(0, 3), st.booleans())


@contract("5.2.1", "5.2.2", "16.3")
@settings(max_examples=60)
@given(st.lists(node, min_size=1, max_size=4), moments)
def test_a_run_stopped_and_resumed_at_any_moment_loses_and_doubles_nothing(
    shape: list[tuple[str, int, bool]], moments: list[Moment]
):
    async def answering(handler: Any) -> Any:
        while not handler.is_done():
            handler.ctx.send_event(HumanResponseEvent())
            for _ in range(3):
                await asyncio.sleep(0)
        return await handler

    async def scenario() -> None:
        flow = Many(disable_validation=True, timeout=20)
        handler = flow.run(shape=shape)
        for moment in moments:
            payload = await stopped_at(handler, moment)
            if payload is None:
                break
            handler = resume(flow, payload)
        assert await answering(handler) == LEAVES
        assert sorted(await handler.ctx.store.get("entered")) == NODES
        assert sorted(flow.ended) == NODES

    asyncio.run(scenario())


class Leaf(Event):
    n: int


class Inner(Event):
    n: int


class Nested(Workflow):
    """Nested fan-outs with retries, waits, ``once`` and a targeted send; everything is joined in the end.

    ``ended`` has the attempts that came to their end, by returning or failing.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ended: list[tuple[int, int]] = []

    @step
    async def outer(self, ctx: Context, ev: StartEvent) -> list[Part]:
        await ctx.store.set("plan", ev.plan)
        return [Part(n=n) for n in range(len(ev.plan))]

    @step(num_workers=2)
    async def inner(self, ctx: Context, ev: Part) -> list[Leaf]:
        count, _, _ = (await ctx.store.get("plan"))[ev.n]
        await asyncio.sleep(0)
        return [Leaf(n=ev.n * 10 + i) for i in range(count)]

    @step(num_workers=2, retry_policy=retry_policy(wait=wait_fixed(0.0), stop=stop_after_attempt(9)))
    async def leaf(self, ctx: Context, ev: Leaf) -> Sum:
        _, failures, waits = (await ctx.store.get("plan"))[ev.n // 10]
        value = await ctx.once("value", lambda: ev.n + 1)
        ctx.send_event(Finished(id=str(ev.n)), step="note")
        if ev.n % 2:
            await asyncio.sleep(0)
        attempt = ctx.retry_info().retry_number
        if attempt < failures:
            self.ended.append((ev.n, attempt))
            raise ValueError("again")
        if waits:
            await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent())
            ctx.send_event(Finished(id=f"{ev.n} waited"), step="note")
        self.ended.append((ev.n, attempt))
        return Sum(n=value)

    @step
    async def note(self, ctx: Context, ev: Finished) -> None:
        ctx.write_event_to_stream(ev)
        async with ctx.store.edit_state() as state:
            state["notes"] = [*state.get("notes", []), ev.id]

    @step
    async def join_inner(self, sums: list[Sum]) -> Inner:
        await asyncio.sleep(0)
        return Inner(n=sum(one.n for one in sums))

    @step
    async def join_outer(self, ctx: Context, inners: list[Inner]) -> StopEvent:
        for _ in range(3):
            await asyncio.sleep(0)
        return StopEvent(result=sorted(one.n for one in inners))


plans = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), min_size=0, max_size=3)


@contract("5.2.1", "5.2.2", "16.3", "3.1.3")
@settings(max_examples=60)
@given(plans, moments)
def test_streams_retries_and_waits_survive_a_stop_at_any_moment(
    plan: list[tuple[int, int, bool]], moments: list[Moment]
):
    async def scenario() -> None:
        flow = Nested(disable_validation=True, timeout=20)
        handler = flow.run(plan=plan)
        for moment in moments:
            payload = await stopped_at(handler, moment)
            if payload is None:
                break
            handler = resume(flow, payload)
        while not handler.is_done():
            handler.ctx.send_event(HumanResponseEvent())
            for _ in range(3):
                await asyncio.sleep(0)
        expected = sorted(sum(n * 10 + i + 1 for i in range(count)) for n, (count, _, _) in enumerate(plan))
        assert await handler == expected
        notes = sorted(await handler.ctx.store.get("notes", default=[]))
        attempts = [
            (n * 10 + i, attempt)
            for n, (count, failures, _) in enumerate(plan)
            for i in range(count)
            for attempt in range(failures + 1)
        ]
        assert sorted(flow.ended) == attempts
        leaves = [str(leaf) for leaf, _ in attempts]
        leaves += [f"{leaf} waited" for leaf, _ in attempts]
        # The run may end before a last note is taken, but none is taken twice.
        assert all(notes.count(one) <= leaves.count(one) for one in notes)

    asyncio.run(scenario())


async def test_a_record_of_once_that_cannot_be_written_is_named():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.once("draft", object)
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    handler = Flow().run()
    await asyncio.sleep(0.01)
    with pytest.raises(ValueError, match=r"ctx\.once\('draft', \.\.\.\) cannot be written"):
        handler.ctx.to_dict()
    await handler.cancel_run()


async def test_the_awaited_class_is_found_by_its_whole_name():
    handler = Asks().run(topic="tides")
    await until(lambda: saved(handler)["workers"]["ask"]["collected_waiters"])
    payload = saved(handler)
    await handler.cancel_run()
    (waiter,) = payload["workers"]["ask"]["collected_waiters"]
    waiter["waiting_for_event"] = "another.module.HumanResponseEvent"
    with pytest.raises(ContextSerdeError, match=r"waits for another\.module\.HumanResponseEvent, .*import its module"):
        Context.from_dict(Asks(), payload)
    waiter["waiting_for_event"] = "llama_index.core.workflow.events.HumanResponseEvent"
    again = resume(Asks(), payload)
    again.ctx.send_event(HumanResponseEvent(user="ann", text="high"))
    assert await again == ("tides", "high")
