"""Which records a run leaves in a store, and what they say."""

import asyncio
import functools
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from batonflow.durable.codec import Codec
from batonflow.durable.stores.memory import MemoryStore
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
from batonflow.workflow_core.errors import RunInputMismatchError, StoreError
from batonflow.workflow_core.events import StepFailedEvent
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.durable.listening import Listener, Record, found_in, history, numbered, shown
from tests.workflow_core.flows import until


class Item(Event):
    n: int = 0


class Looked(Event): ...


class Third(Event): ...


class Place(BaseModel):
    city: str = ""


class Remembered(Place):
    """Changed in place by methods of its own, as memories are."""

    shared_in_drafts: ClassVar[bool] = True


class Hello(Workflow):
    @step
    async def greet(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("greeted", ev.name)
        ctx.write_event_to_stream(Item(n=1))
        return StopEvent(result=f"hello {ev.name}")


class Waits(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=reply.get("text"))


def kinds(records: list[Record]) -> list[str]:
    return [record["kind"] for record in records]


def of_kind(records: list[Record], kind: str) -> list[Record]:
    return [record for record in records if record["kind"] == kind]


async def recorded(workflow: type[Workflow], **arguments: Any) -> list[Record]:
    """The records of a run to its end."""
    journal = Listener()
    await workflow(store=journal).run(**arguments)
    return journal.records()


async def test_a_run_is_started_has_segments_and_ends():
    flow = Hello(store="memory:")
    await flow.run(run_id="a", name="Ann")
    started, segment, ended = await history(flow.run_store, "a")
    assert (started["kind"], started["path"]) == ("started", "")
    assert started["event"] == ["batonflow.workflow_core.events.StartEvent", {"name": "Ann"}]
    assert (segment["kind"], segment["step"], segment.get("attempt", 0)) == ("segment", "greet", 0)
    assert segment["origins"] == [[started["id"], 0]]
    assert numbered(segment["writes"]) == [(1, "greeted", "Ann")]
    [[number, event, _, _]] = segment["streamed"]
    assert (number, event) == (1, [f"{__name__}.Item", {"n": 1}])
    kind, [returned] = segment["outcome"]
    assert (kind, shown(returned)) == ("returned", ("StopEvent", {"result": "hello Ann"}))
    assert (ended["kind"], ended["event"]) == ("ended", returned)
    assert [record["commit"] for record in (started, segment, ended)] == [1, 2, 3]


async def test_records_are_numbered_upwards_from_when_they_began():
    records = await recorded(Hello, name="Ann")
    numbers = [record["id"] for record in records]
    assert numbers == sorted(set(numbers))


async def test_what_the_state_holds_from_the_beginning_is_in_the_first_record():
    journal = Listener()
    flow = Hello(store=journal)
    ctx: Context = Context(flow)
    await ctx.store.set("known", {"from": "before"})
    await flow.run(ctx=ctx, name="Ann")
    started = journal.records()[0]
    assert [(name, found_in(value)) for name, value in started["state"]] == [("known", {"from": "before"})]


async def test_what_comes_from_outside_is_recorded_and_who_took_it():
    journal = Listener()
    handler = Waits(store=journal).run()
    await until(lambda: len(journal.segments()) == 1)
    handler.ctx.send_event(HumanResponseEvent(text="yes"))
    await handler
    records = journal.records()
    assert kinds(records) == ["started", "segment", "input", "answered", "segment", "ended"]
    _, waiting, came, answered, went_on, _ = records
    assert waiting["outcome"][0] == "waiting"
    assert "origins" in waiting
    assert shown(came["event"]) == shown(answered["event"]) == ("HumanResponseEvent", {"text": "yes"})
    assert answered["origins"] == [[came["id"], 0]]
    assert (answered["step"], answered["item"]) == ("go", waiting["item"])
    assert answered["key"] == waiting["outcome"][1]["key"]
    assert "origins" not in went_on, "it goes on with the delivery that waited"
    assert shown(went_on["outcome"][1][0]) == ("StopEvent", {"result": "yes"})


async def test_a_wait_whose_time_is_up_is_answered_with_nothing():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                await ctx.wait_for_event(HumanResponseEvent, timeout=0.001)
            except TimeoutError:
                return StopEvent(result="too late")
            return StopEvent()

    records = await recorded(Flow)
    assert kinds(records) == ["started", "segment", "answered", "segment", "ended"]
    _, waiting, answered, *_ = records
    assert waiting["outcome"][1]["due"] is not None
    assert "event" not in answered
    assert "origins" not in answered


async def test_a_wait_that_the_step_gives_up_is_named_in_what_it_does_next():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                async with asyncio.timeout(0.001):
                    await ctx.wait_for_event(HumanResponseEvent, waiter_id="who")
            except TimeoutError:
                pass
            return StopEvent()

    records = await recorded(Flow)
    waiting, returned = of_kind(records, "segment")
    assert waiting["outcome"][1]["key"] == "who"
    assert returned["gave_up"] == ["who"]


async def test_a_question_and_what_its_answer_must_have_are_kept_with_the_wait():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            question = Item(n=7)
            await ctx.wait_for_event(HumanResponseEvent, waiter_event=question, requirements={"by": "Ann"})
            return StopEvent()

    journal = Listener()
    handler = Flow(store=journal).run()
    await until(lambda: len(journal.segments()) == 1)
    handler.ctx.send_event(HumanResponseEvent(by="Ann"))
    await handler
    waiting, _ = of_kind(journal.records(), "segment")
    about = waiting["outcome"][1]
    assert shown(about["question"]) == ("Item", {"n": 7})
    assert found_in(about["requirements"]) == {"by": "Ann"}
    assert waiting["streamed"][0][:2] == [0, about["question"]], "asked once, under a number that no step gives"


async def test_an_event_that_nobody_takes_is_recorded_as_dropped():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.send_event(Item(n=1))
            await asyncio.sleep(0.001)
            return StopEvent()

    records = await recorded(Flow)
    [segment] = of_kind(records, "segment")
    [dropped] = of_kind(records, "dropped")
    assert dropped["origins"] == [[segment["id"], 1]]


async def test_what_is_put_aside_and_found_complete_is_recorded():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item | None:
            ctx.send_event(Item(n=1))
            ctx.send_event(Item(n=2))

        @step
        async def both(self, ctx: Context, ev: Item) -> StopEvent | None:
            return StopEvent() if ctx.collect_events(ev, [Item, Item]) else None

    records = await recorded(Flow)
    first, second = [record for record in of_kind(records, "segment") if record["step"] == "both"]
    [[_, buffer, put_aside, found]] = first["collects"]
    assert (shown(put_aside), found) == (("Item", {"n": 1}), None)
    [[number, same_buffer, put_aside, found]] = second["collects"]
    assert same_buffer == buffer
    assert shown(put_aside) == ("Item", {"n": 2})
    assert found == [[first["item"], number], [second["item"], number]], "each is named by who put it aside"


async def test_a_list_is_told_from_a_single_event():
    class Flow(Workflow):
        @step
        async def split(self, ev: StartEvent) -> list[Item]:
            return [Item(n=1), Item(n=2)]

        @step
        async def join(self, parts: list[Item]) -> StopEvent:
            return StopEvent(result=len(parts))

    records = await recorded(Flow)
    split, join = of_kind(records, "segment")
    kind, events, listed = split["outcome"]
    assert (kind, [shown(event)[1] for event in events], listed) == ("returned", [{"n": 1}, {"n": 2}], True)
    assert join["origins"] == [[split["id"], -1], [split["id"], -2]]
    assert join["releases"] == split["id"]
    assert len(join["outcome"]) == 2


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
    _, first, *_ = await history(flow.run_store, "c")
    assert numbered(first["writes"]) == [(1, "tags", ["a"])]
    event = Codec(flow.serializer).read(first["outcome"][1][0])
    assert event == Item(n=0, tags=["a"], where=Place(city="Bergen"))


async def test_what_a_receiver_changes_in_an_event_is_not_in_the_record_of_a_step_that_returned_before():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item | None:
            ctx.send_event(Item(tags=["a"]))

        @step
        async def take(self, ev: Item) -> StopEvent:
            ev.tags.append("changed later")
            return StopEvent()

    go, _ = of_kind(await recorded(Flow), "segment")
    [[_, event, _]] = go["sends"]
    assert shown(event) == ("Item", {"n": 0, "tags": ["a"]})


async def test_a_value_of_the_state_that_is_changed_in_place_is_recorded_with_who_changed_it():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item:
            await ctx.store.set("tags", ["a"])
            return Item()

        @step
        async def change(self, ctx: Context, ev: Item) -> StopEvent:
            (await ctx.store.get("tags")).append("b")
            return StopEvent()

    records = await recorded(Flow)
    go, change = of_kind(records, "segment")
    assert numbered(go["writes"]) == [(1, "tags", ["a"])]
    assert numbered(change["writes"]) == [(0, "tags", ["a", "b"])], "as if it had set it"


VALUES = [["a"], {"a": [1]}, Place(city="Bergen"), [Place(city="Bergen")], Item(tags=["a"])]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_value_that_is_only_looked_at_is_not_recorded_again(value: Any):
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item:
            await ctx.store.set("found", value)
            return Item()

        @step
        async def look(self, ctx: Context, ev: Item) -> Looked:
            await ctx.store.get("found")
            return Looked()

        @step
        async def look_again(self, ctx: Context, ev: Looked) -> StopEvent:
            return StopEvent(result=bool(await ctx.store.get("found")))

    records = await recorded(Flow)
    assert ["writes" in record for record in of_kind(records, "segment")] == [True, False, False]


async def test_what_a_call_of_once_changes_in_place_is_recorded_with_its_result():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item:
            await ctx.store.set("inside", [])
            await ctx.store.set("outside", [])
            await ctx.store.set("around", [])
            return Item()

        @step
        async def change(self, ctx: Context, ev: Item) -> StopEvent:
            async def add() -> None:
                for key in ("inside", "around"):
                    (await ctx.store.get(key)).append(1)

            around = await ctx.store.get("around")
            (await ctx.store.get("outside")).append(2)
            await ctx.once("add", add)
            await ctx.once("nothing", lambda: None)
            around.append(3)
            return StopEvent()

    _, called, nothing, returned = of_kind(await recorded(Flow), "segment")
    assert numbered(called["writes"]) == [(0, "around", [1]), (0, "inside", [1])], "it is not called again"
    assert "writes" not in nothing
    assert numbered(returned["writes"]) == [(0, "around", [1, 3]), (0, "outside", [2])], "the attempt does that again"


async def test_what_a_step_changes_in_a_value_that_it_has_set_is_recorded_with_the_next_one_that_is_given_it():
    left: list[list[str]] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item:
            left.append(["a"])
            await ctx.store.set("tags", left[0])
            return Item()

        @step
        async def pause(self, ev: Item) -> Looked:
            left[0].append("b")  # as a task does that a step has left behind
            return Looked()

        @step
        async def look(self, ctx: Context, ev: Looked) -> StopEvent:
            await ctx.store.get("tags")
            return StopEvent()

    go, _, look = of_kind(await recorded(Flow), "segment")
    assert numbered(go["writes"]) == [(1, "tags", ["a"])]
    assert numbered(look["writes"]) == [(0, "tags", ["a", "b"])]


async def test_a_value_that_was_set_and_given_to_another_before_it_was_written_is_watched_from_then_on():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item | None:
            await ctx.store.set("tags", ["a"])
            ctx.send_event(Item())
            await given.wait()

        @step
        async def change(self, ctx: Context, ev: Item) -> StopEvent:
            tags = await ctx.store.get("tags")
            tags.append("b")
            given.set()
            for _ in range(20):  # the other one ends, and what it has set is written as it is now
                await asyncio.sleep(0)
            return StopEvent()

    given = asyncio.Event()
    go, change = of_kind(await recorded(Flow), "segment")
    assert numbered(go["writes"]) == [(1, "tags", ["a", "b"])]
    assert numbered(change["writes"]) == [(0, "tags", ["a", "b"])], "who has changed it says so too"


async def test_a_value_that_a_step_set_then_got_and_changed_is_recorded_by_that_step_only():
    class Flow(Workflow):
        @step
        async def fill(self, ctx: Context, ev: StartEvent) -> Item:
            await ctx.store.set("place", Remembered())
            place = await ctx.store.get("place")
            place.city = "Rome"
            return Item()

        @step
        async def look(self, ctx: Context, ev: Item) -> Looked:
            await ctx.store.get("place")
            return Looked()

        @step
        async def change(self, ctx: Context, ev: Looked) -> StopEvent:
            place = await ctx.store.get("place")
            place.city = "Oslo"
            return StopEvent()

    fill, look, change = of_kind(await recorded(Flow), "segment")
    assert fill["writes"][0][2][1]["value"] == {"city": "Rome"}
    assert "writes" not in look
    assert change["writes"][0][2][1]["value"] == {"city": "Oslo"}


async def test_a_value_that_another_step_holds_while_one_sets_it_keeps_the_changes_of_both():
    class Flow(Workflow):
        @step
        async def fill(self, ctx: Context, ev: StartEvent) -> None:
            place = Remembered()
            await ctx.store.set("place", place)
            ctx.send_event(Item())
            await holds.wait()
            place.city += "a"

        @step
        async def hold(self, ctx: Context, ev: Item) -> StopEvent:
            place = await ctx.store.get("place")
            holds.set()
            for _ in range(20):  # the other step ends
                await asyncio.sleep(0)
            ctx.send_event(Third())
            place.city += "b"
            for _ in range(20):  # the next one is given the value before this one ends
                await asyncio.sleep(0)
            return StopEvent()

        @step
        async def look(self, ctx: Context, ev: Third) -> None:
            await ctx.store.get("place")

    holds = asyncio.Event()
    journal = Listener()
    await Flow(store=journal, disable_validation=True).run()
    writes = [one["writes"][-1][2][1]["value"]["city"] for one in journal.records() if "writes" in one]
    assert writes[0] == "a"
    assert writes[-1] == "ab"


@pytest.mark.parametrize("listed", [False, True])
async def test_an_event_that_is_streamed_and_returned_is_turned_into_data_once(listed: bool):
    class Counted(Event):
        text: str

        @model_serializer(mode="wrap")
        def _count(self, handler: SerializerFunctionWrapHandler) -> Any:
            made.append(self)
            return handler(self)

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Counted | list[Counted]:
            event = Counted(text="ghp_abcdefghijklmnop1234")
            ctx.write_event_to_stream(event)
            return [event, event] if listed else event

        @step
        async def take(self, ctx: Context, ev: Counted) -> StopEvent | None:
            return StopEvent()

    made: list[Event] = []
    store = MemoryStore()
    flow = Flow(store=store, types=[Counted])
    await flow.run(run_id="r")
    [go] = [one for one in await store.history("r") if one.get("step") == "go"]
    [[_, streamed, *_]] = go["streamed"]
    assert streamed[1]["text"] == "[redacted]"
    assert [one[1]["text"] for one in go["outcome"][1]] == ["ghp_abcdefghijklmnop1234"] * (1 + listed)
    assert len(made) == 1 + listed


async def test_a_change_of_the_state_from_outside_is_a_record_of_its_own():
    journal = Listener()
    handler = Waits(store=journal).run()
    await until(lambda: len(journal.segments()) == 1)
    await handler.ctx.store.set("told", "from outside")
    handler.ctx.send_event(HumanResponseEvent())
    await handler
    [edited] = of_kind(journal.records(), "edited")
    assert numbered(edited["writes"]) == [(0, "told", "from outside")]


async def test_the_last_record_of_a_failed_run_has_the_error():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("n", ctx.retry_info().retry_number)
            raise ValueError("no disk")

    flow = Flow(store="memory:")
    with pytest.raises(ValueError, match="no disk"):
        await flow.run(run_id="d")
    records = await history(flow.run_store, "d")
    segments = of_kind(records, "segment")
    assert [(record.get("attempt", 0), record["outcome"][0]) for record in segments] == [(0, "failed"), (1, "failed")]
    assert [numbered(record["writes"]) for record in segments] == [[(1, "n", 0)], [(1, "n", 1)]]
    error = segments[0]["outcome"][1]
    assert (error["exception_type"], error["exception_message"]) == ("builtins.ValueError", "no disk")
    assert error["traceback"].endswith("ValueError: no disk\nin step go of Flow, run d, attempt 1 of 2\n")
    assert 'raise ValueError("no disk")' in error["traceback"]
    assert segments[0]["began"] <= segments[1]["began"]
    assert [record["outcome"][2]["then"] for record in segments] == ["retry", "ended"]
    assert records[-1]["kind"] == "ended"
    assert shown(records[-1]["event"])[0] == "WorkflowFailedEvent"


async def test_a_failure_that_is_taken_care_of_says_by_which_step():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise ValueError("no disk")

        @catch_error
        async def care(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result=str(ev.exception))

    records = await recorded(Flow)
    go, care = of_kind(records, "segment")
    verdict = go["outcome"][2]
    assert (verdict["then"], verdict["step"]) == ("recovered", "care")
    assert shown(verdict["event"])[0] == "StepFailedEvent"
    assert care["origins"] == [[go["id"], -1]]


async def test_of_a_failed_attempt_stays_what_can_be_written():
    class Opaque:
        pass

    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("plain", ctx.retry_info().retry_number)
            if ctx.retry_info().retry_number == 0:
                await ctx.store.set("thing", Opaque())
                raise ValueError("no disk")
            await ctx.store.set("thing", "mended")
            return StopEvent()

    records = await recorded(Flow)
    failed, returned = of_kind(records, "segment")
    assert numbered(failed["writes"]) == [(1, "plain", 0)]
    assert numbered(returned["writes"]) == [(1, "plain", 1), (2, "thing", "mended")]


async def test_children_are_recorded_under_the_run_with_their_path():
    class Parent(Workflow):
        @step
        async def go(self, ev: StartEvent, hello: Hello) -> StopEvent:
            return StopEvent(result=await hello.run(name="Bob"))

    flow = Parent(store="memory:", workflows={"hello": Hello()})
    assert await flow.run(run_id="e") == "hello Bob"
    records = await history(flow.run_store, "e")
    assert [(record["kind"], record["path"]) for record in records] == [
        ("started", ""), ("started", "hello"), ("segment", "hello"), ("ended", "hello"), ("segment", ""), ("ended", ""),
    ]  # fmt: skip
    _, child, *_, call, _ = records
    assert (child["child"]["name"], child["child"]["by_event"]) == ("hello", False)
    assert child["child"]["call"] == [call["item"], 1]
    assert child["child"]["caller"]["step"] == call["step"] == "go"


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
    assert [record["kind"] for record in await history(flow.run_store, "f")] == ["started", "segment", "ended"]
    assert await Hello(store="memory:").run(name="Ann") == "hello Ann"


@pytest.mark.parametrize(
    ("does", "named"),
    [
        (lambda ctx, thing: ctx.send_event(Item(thing=thing)), "Sent event of step go: Item cannot be recorded"),
        (lambda ctx, thing: ctx.write_event_to_stream(Item(thing=thing)), "Streamed event of step go: Item cannot be"),
        (lambda ctx, thing: StopEvent(result=thing), "StopEvent cannot be recorded"),
    ],
)
async def test_an_event_that_cannot_be_recorded_is_named_with_what_the_step_did_with_it(does: Any, named: str):
    class Opaque:
        pass

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return does(ctx, Opaque()) or StopEvent()

        @step
        async def take(self, ev: Item) -> None: ...

    with pytest.raises(StoreError, match=rf"{named}.*Opaque.*pydantic model or plain data"):
        await Flow(store="memory:", disable_validation=True).run()


HALF = "a\udcff.txt"
"""A name of a file that is not UTF-8, as Python gives it."""


class Names(Workflow):
    """Puts such a name wherever a run may have one."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> Item | None:
        await ctx.store.set("name", ev.name)
        await ctx.store.set("sizes", [{ev.name: 3}])
        ctx.write_event_to_stream(Item(tags=[ev.name]))
        ctx.send_event(Item(tags=[await ctx.once("name", lambda: ev.name)], where=Place(city=ev.name)))

    @step
    async def wait(self, ctx: Context, ev: Item) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent, InputRequiredEvent(prefix=HALF))
        told = await ctx.store.get("name"), await ctx.store.get("sizes"), ev.tags, ev.where, answer.response
        return StopEvent(result=list(told))


async def test_halves_of_characters_are_kept_with_backslashes_wherever_they_come_from(tmp_path: Path):
    flow = Names(store=tmp_path / "runs.db")
    handler = flow.run(run_id="a", name=HALF)
    async for _ in handler.inputs():
        break
    snapshot = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.interrupt()
    await flow.send_to_run("a", HumanResponseEvent(response=HALF))
    shown = "a\\udcff.txt"
    expected = [shown, [{shown: 3}], [shown], Place(city=shown), shown]
    assert await flow.resume("a") == expected
    assert (await flow.run(run_id="a", name=HALF)) == expected, "read from the file"
    with pytest.raises(RunInputMismatchError):
        await flow.run(run_id="a", name="other")
    again = Names()
    handler = again.run(ctx=Context.from_dict(again, snapshot))
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    assert await handler == [*expected[:-1], "yes"], "from a snapshot"


@pytest.mark.parametrize(
    "name",
    [
        lambda ctx: ctx.store.set(HALF, 1),
        lambda ctx: ctx.store.set(f"a.{HALF}", 1),
        lambda ctx: ctx.once(HALF, lambda: 1),
        lambda ctx: ctx.wait_for_event(HumanResponseEvent, waiter_id=HALF),
        lambda ctx: asyncio.sleep(0, ctx.collect_events(StartEvent(), [StartEvent], HALF)),
    ],
    ids=["state", "path", "once", "wait", "collect"],
)
async def test_half_a_character_is_no_name_under_which_a_record_would_be_found_again(name: Any):
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await name(ctx)
            return StopEvent(result="named")

    with pytest.raises(StoreError, match=r"cannot name anything .* half a character"):
        await asyncio.wait_for(Flow(store="memory:").run(), 30)
    if "wait" not in repr(name.__code__.co_names):
        assert await Flow().run() == "named"


async def test_an_error_with_half_a_character_is_told_and_not_hidden_by_another():
    class Fails(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise ValueError(f"no such file: {HALF}")

    flow = Fails(store="memory:")
    with pytest.raises(ValueError, match="no such file"):
        await flow.run(run_id="a")
    *_, ended = await history(flow.run_store, "a")
    [_, failed, _] = ended["event"]
    assert failed["exception"]["exception_message"] == "no such file: a\\udcff.txt"


def deep(levels: int) -> Any:
    return functools.reduce(lambda inner, _: [inner], range(levels), 0)


@pytest.mark.parametrize("place", ["state", "result", "sent", "streamed", "once"])
async def test_what_is_too_deep_for_json_is_refused_wherever_it_comes_from(place: str):
    DEEP = deep(400)

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if place == "state":
                await ctx.store.set("deep", DEEP)
            if place == "sent":
                ctx.send_event(Item(deep=DEEP))
            if place == "streamed":
                ctx.write_event_to_stream(Item(deep=DEEP))
            if place == "once":
                await ctx.once("deep", lambda: DEEP)
            return StopEvent(result=DEEP if place == "result" else "written")

        @step
        async def take(self, ev: Item) -> None: ...

    flow = Flow(store="memory:", disable_validation=True)
    with pytest.raises(StoreError, match=r"cannot be recorded.*depth"):
        await asyncio.wait_for(flow.run(run_id="a"), 30)
    assert [info.status for info in await flow.run_store.list_runs()] == ["failed"]


@pytest.mark.parametrize("levels", [180, 200, 240])
async def test_what_is_nested_nearly_too_deeply_is_read_again(tmp_path: Path, levels: int):
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent | None:
            ctx.send_event(Item(deep=ev.deep))
            await ctx.store.set("deep", ev.deep)

        @step
        async def take(self, ctx: Context, ev: Item) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent, InputRequiredEvent())
            return StopEvent(result=[ev.deep, await ctx.store.get("deep")])

    flow = Flow(store=tmp_path / "runs.db", disable_validation=True)
    handler = flow.run(run_id="a", deep=deep(levels))
    async for _ in handler.inputs():
        break
    await handler.interrupt()
    handler = flow.resume("a")
    async for question in handler.inputs():
        question.respond(response="yes")
        break
    assert await asyncio.wait_for(handler, 30) == [deep(levels)] * 2
    assert await flow.run(run_id="a", deep=deep(levels)) == [deep(levels)] * 2, "read from the file"
    assert (await flow.run_store.history("a"))[-1]["kind"] == "ended"


@pytest.mark.parametrize("kind", [Place, Remembered])
async def test_changes_in_place_by_two_steps_that_were_given_the_same_model_are_both_recorded(kind: type[Place]):
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item | Looked | None:
            await ctx.store.set("place", kind(city=""))
            ctx.send_event(Item())
            ctx.send_event(Looked())

        @step
        async def first(self, ctx: Context, ev: Item) -> None:
            place = await ctx.store.get("place")
            await both.wait()
            place.city += "a"

        @step
        async def second(self, ctx: Context, ev: Looked) -> StopEvent:
            place = await ctx.store.get("place")
            await both.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            place.city += "b"
            ctx.send_event(Third())
            for _ in range(20):
                await asyncio.sleep(0)  # the next one is given the value before this one ends
            return StopEvent()

        @step
        async def third(self, ctx: Context, ev: Third) -> None:
            await ctx.store.get("place")

    both = asyncio.Barrier(2)
    journal = Listener()
    await Flow(store=journal, disable_validation=True).run()
    changes = [one for one in of_kind(journal.records(), "segment")[1:] if "writes" in one]
    assert changes[0]["writes"][0][2][1]["value"]["city"] == "a"
    assert changes[-1]["writes"][0][2][1]["value"]["city"] == "ab"


async def test_a_value_that_was_replaced_from_outside_is_watched_anew():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item:
            await ctx.store.set("tags", ["a"])
            await ctx.wait_for_event(HumanResponseEvent)
            return Item()

        @step
        async def change(self, ctx: Context, ev: Item) -> StopEvent:
            (await ctx.store.get("tags")).pop()
            return StopEvent()

    journal = Listener()
    handler = Flow(store=journal).run()
    await until(lambda: len(journal.segments()) == 1)
    await handler.ctx.store.set("tags", ["a", "b"])
    handler.ctx.send_event(HumanResponseEvent())
    await handler
    *_, change = of_kind(journal.records(), "segment")
    assert numbered(change["writes"]) == [(0, "tags", ["a"])]


async def test_what_was_changed_in_place_beside_what_was_set_inside_a_value_is_recorded_too():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item:
            await ctx.store.set("counts", {"x": 0, "y": 0})
            return Item()

        @step
        async def change(self, ctx: Context, ev: Item) -> StopEvent:
            (await ctx.store.get("counts"))["y"] = 1
            await ctx.store.set("counts.x", 1)
            await ctx.store.get("counts")
            return StopEvent()

    *_, change = of_kind(await recorded(Flow), "segment")
    assert numbered(change["writes"])[-1] == (0, "counts", {"x": 1, "y": 1})


async def test_a_value_that_holds_itself_is_refused_and_ends_the_run():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            endless: list[Any] = []
            endless.append(endless)
            await ctx.store.set("endless", endless)
            return StopEvent()

    with pytest.raises(StoreError, match="State key 'endless' of step go: a list cannot be recorded"):
        await Flow(store="memory:").run()
