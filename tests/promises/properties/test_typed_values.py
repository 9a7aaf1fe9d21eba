"""Whatever a model, the state or a result holds comes back as it was, from every place where it is written."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from batonflow.durable.codec import Codec
from batonflow.values.unmarked import alike
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    JsonSerializer,
    MemoryStore,
    RunStore,
    SQLiteStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from tests.promises.properties.typed_values import Drawing, marked, models, shapes
from tests.workflow_core.flows import until

few = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def same(one: Any, other: Any) -> None:
    assert alike(one, other), f"{other!r} is now {one!r}"


@given(models() | models(Event))
def test_models_come_back_from_text(model: BaseModel):
    serializer = JsonSerializer()
    text = serializer.serialize(model)
    same(serializer.deserialize(text), model)
    assert serializer.serialize(serializer.deserialize(text)) == text or alike(serializer.deserialize(text), model)


@given(marked)
def test_values_come_back_from_text(value: Any):
    serializer = JsonSerializer()
    same(serializer.deserialize(serializer.serialize({"it": value})), {"it": value})
    same(serializer.deserialize(serializer.serialize(StopEvent(result=value, more=value))).result, value)


@given(models(Event), marked)
def test_events_and_values_come_back_from_records(event: Event, value: Any):
    codec = Codec(JsonSerializer())
    event["dynamic"] = value
    same(codec.read(json.loads(json.dumps(codec.event(event)))), event)
    same(codec.read(json.loads(json.dumps(codec.value(value)))), value)


class Stage(Drawing):
    """Typed state."""

    last: Any = None


class Carried(Event):
    value: Any


class Carry(Workflow):
    """Puts a value into its state, an event and a result of once, and waits."""

    @step
    async def begin(self, ctx: Context[Stage], ev: StartEvent) -> Carried:
        await ctx.store.set("last", ev.value)
        await ctx.store.set("shapes", ev.shapes)
        once = await ctx.once("it", lambda: ev.value)
        await ctx.wait_for_event(HumanResponseEvent)
        return Carried(value=once, given=ev.value)

    @step
    async def end(self, ctx: Context[Stage], ev: Carried) -> StopEvent:
        state = await ctx.store.get_state()
        return StopEvent(result=[ev.value, ev.given, state.last, state.shapes])


def waits(handler: Any) -> bool:
    return bool(handler.ctx.to_dict()["workers"]["begin"]["collected_waiters"])


@few
@given(marked | models(), st.lists(shapes, max_size=2))
def test_what_a_run_holds_comes_back_from_a_snapshot(value: Any, drawn: list[Any]):
    async def there_and_back() -> Any:
        handler = Carry(timeout=None).run(value=value, shapes=drawn)
        await until(lambda: waits(handler))
        payload = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        flow = Carry(timeout=None)
        again = flow.run(ctx=Context.from_dict(flow, payload))
        await until(lambda: waits(again))
        again.ctx.send_event(HumanResponseEvent())
        return await again

    same(asyncio.run(there_and_back()), [value, value, value, drawn])


async def _through(store: RunStore, value: Any, drawn: list[Any]) -> tuple[Any, Any, Any]:
    """The results of a run that is interrupted, and of its fork, and the value in its stored end."""
    first = Carry(timeout=None, store=store)
    handler = first.run(run_id="it", value=value, shapes=drawn)
    await until(lambda: waits(handler))
    await handler.interrupt()
    flow = Carry(timeout=None, store=store)
    again = flow.resume("it")
    await until(lambda: waits(again))
    commit = (await store.read("it"))[-1].seq
    again.ctx.send_event(HumanResponseEvent())
    result = await again
    fork = flow.fork("it", at=commit, new_id="fork")
    await until(lambda: waits(fork))
    fork.ctx.send_event(HumanResponseEvent())
    stored = Carry(timeout=None, store=store).run(run_id="it", value=value, shapes=drawn)
    return result, await fork, await stored


@few
@given(marked | models(), st.lists(shapes, max_size=2), st.booleans())
def test_what_a_run_holds_comes_back_from_stores_and_in_forks(value: Any, drawn: list[Any], in_file: bool):
    async def there_and_back() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store: RunStore = SQLiteStore(Path(folder) / "runs.db") if in_file else MemoryStore()
            try:
                for found in await _through(store, value, drawn):
                    same(found, [value, value, value, drawn])
            finally:
                await store.aclose()

    asyncio.run(there_and_back())
