"""store="memory:": what is recorded, and what a run id means with a store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import RunInputMismatchError, StoreError
from batonflow.workflow_core.journal.memory import MemoryStore
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.workflow_core.flows import until


class Item(Event):
    n: int = 0


class Place(BaseModel):
    city: str = ""


class Hello(Workflow):
    calls = 0

    @step
    async def greet(self, ctx: Context, ev: StartEvent) -> StopEvent:
        Hello.calls += 1
        await ctx.store.set("greeted", ev.name)
        ctx.write_event_to_stream(Item(n=1))
        return StopEvent(result=f"hello {ev.name}")


class Waits(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=reply.get("text"))


def history(workflow: Workflow, run_id: str) -> list[dict[str, Any]]:
    assert isinstance(workflow.run_store, MemoryStore)
    return workflow.run_store.history(run_id)


async def test_a_run_is_started_has_segments_and_ends():
    flow = Hello(store="memory:")
    await flow.run(run_id="a", name="Ann")
    started, segment, ended = history(flow, "a")
    assert started["kind"] == "started"
    assert started["consumed"]["type"].endswith(".StartEvent")
    assert started["consumed"]["values"] == {"name": "Ann"}
    assert (segment["kind"], segment["step"], segment["attempt"]) == ("segment", "greet", 0)
    assert segment["writes"] == [[1, "greeted", "Ann"]]
    assert segment["streamed"] == [[1, {"type": f"{__name__}.Item", "values": {"n": 1}}]]
    assert segment["outcome"][0] == "returned"
    assert segment["outcome"][1]["values"] == {"result": "hello Ann"}
    assert ended["kind"] == "ended"
    assert [record["transaction"] for record in (started, segment, ended)] == [0, 1, 2]


async def test_what_comes_from_outside_is_recorded():
    flow = Waits(store="memory:")
    handler = flow.run(run_id="b")
    await until(lambda: len(history(flow, "b")) == 2)
    handler.ctx.send_event(HumanResponseEvent(text="yes"))
    await handler
    assert [record["kind"] for record in history(flow, "b")] == ["started", "segment", "input", "segment", "ended"]
    waiting, answered = (record for record in history(flow, "b") if record["kind"] == "segment")
    assert waiting["outcome"][0] == "waiting"
    assert waiting["consumed"] is not None
    assert answered["consumed"] is None
    assert answered["outcome"][1]["values"]["result"] == "yes"


async def test_records_hold_the_values_at_the_time_of_the_commit():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item:
            tags = ["a"]
            await ctx.store.set("tags", tags)
            return Item(tags=tags, where=Place(city="Bergen"))

        @step
        async def end(self, ctx: Context, ev: Item) -> StopEvent:
            ev.tags.append("changed later")
            return StopEvent()

    flow = Flow(store="memory:")
    await flow.run(run_id="c")
    first = history(flow, "c")[1]
    assert first["writes"] == [[1, "tags", ["a"]]]
    assert first["outcome"][1]["values"]["tags"] == ["a"]
    assert first["outcome"][1]["values"]["where"] == {"city": "Bergen"}


async def test_the_last_record_of_a_failed_run_has_the_error():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("n", ctx.retry_info().retry_number)
            raise ValueError("no disk")

    flow = Flow(store="memory:")
    with pytest.raises(ValueError, match="no disk"):
        await flow.run(run_id="d")
    records = history(flow, "d")
    segments = [record for record in records if record["kind"] == "segment"]
    assert [(record["attempt"], record["outcome"][0]) for record in segments] == [(0, "failed"), (1, "failed")]
    assert [record["writes"] for record in segments] == [[[1, "n", 0]], [[1, "n", 1]]]
    assert segments[0]["outcome"][1] == {"exception_type": "builtins.ValueError", "exception_message": "no disk"}
    assert records[-1]["kind"] == "ended"
    assert records[-1]["outcome"][1]["type"].endswith("WorkflowFailedEvent")


async def test_children_are_recorded_under_the_run_with_their_path():
    class Parent(Workflow):
        @step
        async def go(self, ev: StartEvent, hello: Hello) -> StopEvent:
            return StopEvent(result=await hello.run(name="Bob"))

    flow = Parent(store="memory:", workflows={"hello": Hello()})
    assert await flow.run(run_id="e") == "hello Bob"
    assert [(record["kind"], record["path"]) for record in history(flow, "e")] == [
        ("started", ""), ("started", "hello"), ("segment", "hello"), ("ended", "hello"), ("segment", ""), ("ended", ""),
    ]  # fmt: skip


async def test_what_cannot_be_recorded_fails_the_run_and_is_named():
    class Opaque:
        pass

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("thing", Opaque())
            return StopEvent()

    flow = Flow(store="memory:")
    with pytest.raises(StoreError, match=r"State key 'thing' of step go: .*Opaque cannot be recorded.*pydantic model"):
        await flow.run(run_id="f")
    assert await Hello(store="memory:").run(name="Ann") == "hello Ann"


# --- run ids ----------------------------------------------------------------------------------------------------------


async def test_the_id_of_a_live_run_gives_a_second_handler_on_it():
    flow = Waits(store="memory:")
    first = flow.run(run_id="r1")
    second = flow.run(run_id="r1")
    assert second is not first
    await until(lambda: len(history(flow, "r1")) == 2)
    second.ctx.send_event(HumanResponseEvent(text="one answer"))
    assert await first == await second == "one answer"
    assert sum(record["kind"] == "started" for record in history(flow, "r1")) == 1


async def test_the_id_of_a_finished_run_gives_its_recorded_result_and_nothing_runs():
    flow = Hello(store="memory:")
    await flow.run(run_id="r2", name="Ann")
    calls = Hello.calls
    again = flow.run(run_id="r2", name="Ann")
    assert await again == "hello Ann"
    assert again.is_done()
    assert Hello.calls == calls


async def test_other_input_under_the_same_id_is_refused():
    flow = Hello(store="memory:")
    await flow.run(run_id="r3", name="Ann")
    with pytest.raises(RunInputMismatchError, match=r"Run 'r3' was started with other input.*Ann.*another run_id"):
        flow.run(run_id="r3", name="Bob")
    assert await flow.run(run_id="r4", name="Bob") == "hello Bob"


async def test_two_workflows_may_share_a_store():
    store = MemoryStore()
    await Hello(store=store).run(run_id="x", name="Ann")
    await Hello(store=store).run(run_id="y", name="Bob")
    assert len(store.history("x")) == len(store.history("y")) == 3
    assert store.history("z") == []


@pytest.mark.parametrize("place", ["runs.db", "sqlite:///runs.db", Path("runs.db"), "postgres://x"])
def test_a_path_says_that_it_comes_later(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=r'(?s)store=.*"memory:".*later version'):
        Hello(store=place)
    assert list(tmp_path.iterdir()) == []


async def test_without_a_store_nothing_is_kept():
    assert Hello().run_store is None
    assert await asyncio.gather(Hello().run(name="a"), Hello().run(name="b")) == ["hello a", "hello b"]
