"""What a run did, as plain data."""

import json

import pytest
from pydantic import BaseModel
from pydantic_core import to_json

from batonflow.durable.store_protocol import StoredCommit
from batonflow.durable.trace import trace_of
from batonflow.values import JsonPickleSerializer
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none


class Half(Event):
    number: int


class Progress(Event):
    text: str


class Address(BaseModel):
    street: str


async def trace(store, run_id, **options):
    return trace_of(await store.read(run_id, 0, 10_000), **options)


async def traced(cls, *, answer=None, fails=None, **options):
    store = MemoryStore()
    handler = cls(store=store).run(run_id="r")
    if answer is not None:
        async for request in handler.inputs():
            request.respond(answer)
    if fails is None:
        await handler
    else:
        with pytest.raises(fails):
            await handler
    return await trace(store, "r", **options)


class Halves(Workflow):
    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Half | None:
        ctx.write_event_to_stream(Progress(text="splitting"))
        ctx.send_event(Half(number=1))
        await ctx.store.set("address", Address(street="Quay 1"))

    @step
    async def end(self, ev: Half) -> StopEvent:
        return StopEvent(result=ev.number)


async def test_entries_tell_who_made_what_of_which_event():
    started, split, end, ended = await traced(Halves)
    assert [entry["kind"] for entry in (started, split, end, ended)] == ["started", "segment", "segment", "ended"]
    assert [event["how"] for event in split["events"]] == ["sent", "streamed"]
    sent, streamed = split["events"]
    assert (sent["type"], sent["value"]) == ("Half", {"number": 1})
    assert streamed["qualified_name"].endswith("test_trace.Progress")
    assert streamed["seq"] == streamed["last_seq"]
    assert end["causes"] == [[split["id"], sent["number"]]]
    assert end["events"][0] == {
        "number": -1, "how": "returned", "type": "StopEvent",
        "qualified_name": "batonflow.workflow_core.events.StopEvent", "value": {"result": 1},
    }  # fmt: skip
    assert split["began"] <= split["at"] <= end["at"] <= ended["at"]
    assert split["writes"][0] == {"path": "address", "value": {"street": "Quay 1"}}
    json.dumps(await traced(Halves))


async def test_failures_have_their_traceback_and_what_followed():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def go(self, ev: StartEvent) -> StopEvent:
            raise OSError("the disk is full")

    entries = await traced(Flow, fails=OSError)
    failures = [entry["outcome"] for entry in entries if entry["kind"] == "segment"]
    assert [(failure["error"], failure["message"]) for failure in failures] == [
        ("builtins.OSError", "the disk is full")
    ] * 2
    assert 'raise OSError("the disk is full")' in failures[0]["traceback"]
    assert [failure["then"]["then"] for failure in failures] == ["retry", "ended"]


async def test_a_wait_says_what_was_asked_and_its_answer_stands_behind_it():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            answer = await ctx.wait_for_event(
                HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="Really?"), requirements={"who": "ann"}
            )
            return StopEvent(result=answer.response)

    _, waiting, _, answered, returned, _ = await traced(Flow, answer="yes")
    assert waiting["outcome"]["awaits"].endswith("HumanResponseEvent")
    assert waiting["outcome"]["requirements"] == {"who": "ann"}
    assert [event["value"]["prefix"] for event in waiting["events"] if event["how"] == "asked"] == ["Really?"]
    assert answered["kind"] == "answered"
    assert answered["events"][0]["value"]["response"] == "yes"
    assert (returned["item"], "causes" in returned) == (waiting["item"], False)


async def test_a_question_that_a_step_returns_has_its_place_in_the_stream():
    class Flow(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> InputRequiredEvent:
            return InputRequiredEvent(prefix="Really?")

        @step
        async def end(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result=ev.response)

    entries = await traced(Flow, answer="yes")
    [question] = entries[1]["events"]
    assert question["how"] == "returned"
    assert question["seq"] >= 0


def test_what_is_no_secret_keeps_its_form():
    paths = ("draft", "draft.title", "draft.pages", "count")
    values = ("x", ["a", {"b": 1}], {"first": {"text": "y"}}, 3)
    written = [[0, path, [value]] for path, value in zip(paths, values, strict=True)]
    body = to_json({"t": 0.0, "r": [{"kind": "edited", "id": 1, "path": "", "writes": written}]})
    [entry] = trace_of([StoredCommit(1, 0.0, body)])
    assert [(write["path"], write["value"]) for write in entry["writes"]] == list(zip(paths, values, strict=True))


async def test_secrets_are_replaced_and_what_is_large_is_cut_where_it_is_large():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("login", {"user": "ann", "password": "open sesame"})
            await ctx.store.set("password", "open sesame")
            await ctx.store.set("settings.api_key", "open sesame")
            await ctx.store.set("api_keys", {"shop": ["open sesame"]})
            return StopEvent(result={"name": "long", "text": "x" * 5000})

    entries = await traced(Flow, largest=1000)
    assert "open sesame" not in json.dumps(entries)
    assert entries[1]["writes"][0]["value"]["user"] == "ann"
    assert [write["value"] for write in entries[1]["writes"][1:]] == ["[redacted]"] * 3
    result = entries[1]["events"][0]["value"]["result"]
    assert result["name"] == "long"
    assert result["text"]["$large"] == 5002
    assert len(result["text"]["preview"]) == 300


async def test_what_another_serializer_wrote_is_told_as_far_as_it_can_be_read():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=complex(1, 2))

    store = MemoryStore()
    await Flow(store=store, serializer=JsonPickleSerializer()).run(run_id="r")
    entries = await trace(store, "r")
    assert [entry["kind"] for entry in entries] == ["started", "segment", "ended"]
    json.dumps(entries)
