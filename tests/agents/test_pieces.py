"""Pieces of an answer in a stream: the events are made when they are read, for each reader, and are those of before."""

import asyncio
import gc
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow import AgentStream, Context, FunctionAgent, ScriptedLLM
from batonflow.llms import FunctionCallingLLM, LLMMetadata, tool_call
from batonflow.llms.answer import Answer
from batonflow.llms.stream import Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta

METADATA = LLMMetadata(model_name="fake", is_chat_model=True, is_function_calling_model=True)


class Chunk(BaseModel):
    number: int


class Streams(FunctionCallingLLM):
    """A model that streams given events, as an adapter does."""

    events: list[Any]

    @property
    def metadata(self) -> LLMMetadata:
        return METADATA

    async def _stream(self, request):
        for event in self.events:
            yield event
            await asyncio.sleep(0)


def events(raw: bool) -> list[StreamEvent]:
    chunk = (lambda number: Chunk(number=number)) if raw else (lambda _: None)
    return [
        ThinkingDelta(text="Hm", raw=chunk(0)),
        TextDelta(text="Twice ", raw=chunk(1)),
        TextDelta(text="a day", part=1, raw=chunk(2)),
        ToolCallDelta(index=0, id="c1", name="look", arguments='{"at": ', raw=chunk(3)),
        ToolCallDelta(index=0, arguments='"six"}', raw=chunk(4)),
        TextDelta(text=".", part=2, raw=chunk(5)),
        Finish(reason="stop"),
    ]


def as_before(given: list[StreamEvent]) -> list[AgentStream]:
    """The events made of the responses for each piece."""
    answer = Answer()
    return [AgentStream.of(response, "sea") for one in given[:-1] if (response := answer.add(one)) is not None]


async def streamed(agent: FunctionAgent, **options: Any) -> list[AgentStream]:
    handler = agent.run("Tides?", **options)
    found = [event async for event in handler.stream_events() if isinstance(event, AgentStream)]
    await handler.cancel_run()
    return found


@pytest.mark.parametrize("raw", [False, True], ids=["without-raw", "with-raw"])
@pytest.mark.parametrize("store", [None, "memory:"], ids=["pieces", "recorded"])
async def test_the_events_are_those_of_responses(raw: bool, store: str | None) -> None:
    def look(at: str) -> str:
        """Look."""
        raise AssertionError

    given = events(raw)
    wanted = as_before(given)
    agent = FunctionAgent(name="sea", llm=Streams(events=given), tools=[look], store=store)
    handler = agent.run("Tides?", max_iterations=1, early_stopping_method="generate")
    found = []
    async for event in handler.stream_events():
        if isinstance(event, AgentStream):
            found.append(event)
            if len(found) == len(wanted):
                break
    await handler.cancel_run()
    assert [one.model_dump() for one in found] == [one.model_dump() for one in wanted]
    assert [one.raw for one in found] == [one.raw for one in wanted]
    assert [type(one.raw) for one in found] == [dict if raw else type(None)] * len(wanted)


async def test_each_reader_gets_all_events_at_any_time() -> None:
    handler = FunctionAgent(llm=ScriptedLLM(["one two three"])).run("?")
    early = [event async for event in handler.stream_events()]
    late = [item.event async for item in handler.subscribe()]
    assert [type(event) for event in early] == [type(event) for event in late]
    assert [event.model_dump() for event in early] == [event.model_dump() for event in late]
    assert [event.response for event in late if isinstance(event, AgentStream)] == ["one", "one two", "one two three"]
    items = [item async for item in handler.subscribe()]
    assert {(item.step, item.path) for item in items if isinstance(item.event, AgentStream)} == {("run_agent_step", "")}
    seqs = [item.seq for item in items]
    assert seqs == sorted(set(seqs))


async def test_a_change_of_an_event_is_not_seen_by_another_reader() -> None:
    handler = FunctionAgent(llm=ScriptedLLM(["one"])).run("?")
    async for event in handler.stream_events():
        if isinstance(event, AgentStream):
            event.delta = "changed"
    texts = [item.event.delta async for item in handler.subscribe() if isinstance(item.event, AgentStream)]
    assert texts == ["one"]


async def test_a_long_stream_keeps_texts_and_not_events() -> None:
    llm = Streams(events=[*(TextDelta(text="x") for _ in range(3000)), Finish(reason="stop")])
    handler = FunctionAgent(name="long", llm=llm).run("?")
    count = 0
    async for event in handler.stream_events():
        count += isinstance(event, AgentStream)
    await handler
    assert count == 3000
    kept = [one for one in gc.get_objects() if isinstance(one, AgentStream) and one.current_agent_name == "long"]
    assert len(kept) < 10


async def test_a_context_of_a_subclass_sees_all_events() -> None:
    seen: list[Any] = []

    class Watched(Context):
        def write_event_to_stream(self, ev):
            seen.append(ev)
            super().write_event_to_stream(ev)

    llm = ScriptedLLM(["one two"])

    class Asks(FunctionAgent):
        async def take_step(self, ctx, llm_input, tools, memory):
            ctx.__class__ = Watched
            return await super().take_step(ctx, llm_input, tools, memory)

    agent = Asks(llm=llm)
    found = await streamed(agent)
    assert [event.delta for event in seen if isinstance(event, AgentStream)] == [event.delta for event in found]
    assert len(found) == 2


async def test_a_resumed_snapshot_passes_over_pieces_that_were_streamed() -> None:
    hold = asyncio.Event()
    begun = asyncio.Event()

    class Slow(Streams):
        async def _stream(self, request):
            yield TextDelta(text="one ")
            begun.set()
            await hold.wait()
            yield TextDelta(text="two")
            yield Finish(reason="stop")

    handler = FunctionAgent(llm=Slow(events=[])).run("?")
    await begun.wait()
    await asyncio.sleep(0)
    saved = handler.ctx.to_dict()
    await handler.cancel_run()
    hold.set()
    agent = FunctionAgent(llm=Slow(events=[]))
    resumed = agent.run(ctx=Context.from_dict(agent, saved))
    texts = [item.event.delta async for item in resumed.subscribe() if isinstance(item.event, AgentStream)]
    before = FunctionAgent(llm=ScriptedLLM(["one two"]))
    assert str(await resumed) == str(await before.run("?")) == "one two"
    assert texts == ["two"]


async def test_tools_answers_and_pieces_stay_in_order() -> None:
    def look() -> str:
        """Look."""
        return "high"

    llm = ScriptedLLM([["Let me see.", tool_call("look")], "It is high."])
    handler = FunctionAgent(llm=llm, tools=[look]).run("?")
    names = [type(event).__name__ async for event in handler.stream_events()]
    first_result = names.index("ToolCallResult")
    assert "AgentStream" in names[:first_result]
    assert "AgentStream" in names[first_result:]
