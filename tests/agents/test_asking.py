"""How agents listen to a model: from its stream's events, or from the responses that are made of them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from batonflow.agents import AgentOutput, AgentStream, FunctionAgent
from batonflow.instrumentation import BaseEventHandler, get_dispatcher
from batonflow.llms import (
    LLM,
    ChatMessage,
    ChatResponse,
    FunctionCallingLLM,
    LLMMetadata,
    ScriptedLLM,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from batonflow.llms.errors import IncompleteResponseError
from batonflow.llms.stream import BlockDone, ChatRequest, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta


class Given(FunctionCallingLLM):
    """A model whose first answer consists of given events."""

    events: list[Any] = Field(exclude=True)
    asked: int = 0

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="given", is_function_calling_model=True)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        self.asked += 1
        for event in self.events if self.asked == 1 else [TextDelta(text="done"), Finish()]:
            yield event


class WithAMethodOfItsOwn(Given):
    """The same, answering through a method that a subclass has written."""

    async def astream_chat_with_tools(self, *args: Any, **kwargs: Any) -> Any:
        return await super().astream_chat_with_tools(*args, **kwargs)


def look_up(word: str) -> str:
    """Look a word up."""
    return word


async def heard(llm: FunctionCallingLLM) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What an agent with ``llm`` streams of the answer, and its output."""
    handler = FunctionAgent(llm=llm, tools=[look_up]).run("Go.")
    shown = [event async for event in handler.stream_events() if isinstance(event, AgentStream | AgentOutput)]
    output = await handler
    return [event.model_dump() | {"raw": getattr(event, "raw", None)} for event in shown], output.model_dump()


_TEXTS = st.sampled_from(["", "a", "ö {", "}", "two words "])
_RAW = st.sampled_from([None, {"piece": 1}])
_PIECES = st.one_of(
    st.builds(TextDelta, text=_TEXTS, part=st.integers(0, 1), raw=_RAW),
    st.builds(ThinkingDelta, text=_TEXTS, raw=_RAW),
    st.builds(BlockDone, block=st.just(ThinkingBlock(content="hm")), raw=_RAW),
    st.builds(
        BlockDone, block=st.just(ToolCallBlock(tool_call_id="b", tool_name="look_up", tool_kwargs={"word": "x"}))
    ),
    st.builds(
        ToolCallDelta,
        index=st.integers(0, 1),
        id=st.sampled_from(["c1", "c2"]),
        name=st.just("look_up"),
        arguments=st.sampled_from(['{"word": ', '"x"}', '{"word": "y"}', "[1]"]),
    ),
)
_FINISH = st.builds(
    Finish,
    reason=st.sampled_from(["stop", "tool_calls", "length"]),
    usage=st.sampled_from([None, Usage(input_tokens=3, output_tokens=2)]),
    raw=_RAW,
    message_kwargs=st.sampled_from([{}, {"kept": 1}]),
)


@given(pieces=st.lists(_PIECES, max_size=6), finish=_FINISH)
def test_an_agent_shows_the_same_whichever_way_it_listens(pieces: Sequence[Any], finish: Finish) -> None:
    at_once = asyncio.run(heard(Given(events=[*pieces, finish])))
    assert at_once == asyncio.run(heard(WithAMethodOfItsOwn(events=[*pieces, finish])))


@pytest.mark.parametrize("llm", [Given, WithAMethodOfItsOwn])
async def test_an_answer_without_its_terminal_mark_is_an_error(llm: type[Given]) -> None:
    handler = FunctionAgent(llm=llm(events=[TextDelta(text="half")])).run("Go.")
    with pytest.raises(IncompleteResponseError, match="half way") as caught:
        await handler
    assert caught.value.model == "given"
    assert [event.delta async for event in handler.stream_events() if isinstance(event, AgentStream)] == ["half"]


@pytest.mark.parametrize("llm", [Given, WithAMethodOfItsOwn])
async def test_a_model_is_let_go_when_the_run_is_cancelled(llm: type[Given]) -> None:
    left = asyncio.Event()

    class Endless(llm):  # type: ignore[valid-type, misc]
        """A model that says one word and goes on thinking."""

        async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
            try:
                yield TextDelta(text="one")
                await asyncio.Event().wait()
            finally:
                left.set()

    handler = FunctionAgent(llm=Endless(events=[])).run("Go.")
    async for event in handler.stream_events():
        if isinstance(event, AgentStream):
            await handler.cancel_run()
            break
    assert left.is_set()


@pytest.mark.parametrize("llm", [Given, WithAMethodOfItsOwn])
async def test_a_stream_is_closed_when_the_answer_is_whole(llm: type[Given]) -> None:
    closed = False
    held: list[Any] = []  # what nobody holds is closed when it is thrown away

    class Connected(llm):  # type: ignore[valid-type, misc]
        """A model that keeps a connection open for as long as it is listened to."""

        def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
            held.append(self._connected())
            return held[-1]

        async def _connected(self) -> AsyncGenerator[StreamEvent, None]:
            nonlocal closed
            try:
                yield TextDelta(text="done")
                yield Finish()
            finally:
                closed = True

    assert str(await FunctionAgent(llm=Connected(events=[])).run("Go.")) == "done"
    assert closed


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BlockDone(block="text"), "a block of an answer is str"),
        (lambda: Finish(reason=None), "reason of an answer is NoneType, not text"),
        (lambda: Finish(model=["m"]), "model of an answer is list, not text"),
        (lambda: Finish(message_kwargs=None), "message_kwargs of an answer is NoneType, not a dict"),
        (lambda: Finish(usage={"input_tokens": "many"}), "input_tokens"),
        (lambda: ToolCallDelta(index=0, id=7), "a piece of an answer is int, not text: 7"),
        (lambda: ToolCallDelta(index=0, name=["add"]), "a piece of an answer is list, not text"),
    ],
)
def test_adapters_are_told_what_does_not_fit(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


class Wrapped:
    """A method with something around it, as libraries that trace programs put it there; it hands on what it has."""

    def __init__(self, method: Any, seen: list[str]) -> None:
        self._method, self._seen = method, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def __get__(self, owner: Any, kind: type[Any]) -> Any:
        return Wrapped(self._method.__get__(owner, kind), self._seen)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._seen.append(self._method.__name__)
        return self._method(*args, **kwargs)


@pytest.mark.parametrize(
    ("cls", "name"), [(FunctionCallingLLM, "astream_chat_with_tools"), (LLM, "astream_chat")], ids=["tools", "chat"]
)
async def test_methods_that_are_wrapped_are_called(monkeypatch: pytest.MonkeyPatch, cls: type[LLM], name: str) -> None:
    seen: list[str] = []
    monkeypatch.setattr(cls, name, Wrapped(getattr(cls, name), seen))
    assert str(await FunctionAgent(llm=Given(events=[TextDelta(text="done"), Finish()])).run("Go.")) == "done"
    assert seen == [name]


async def test_whoever_listens_to_models_alone_is_told_of_those_of_agents() -> None:
    class EventForReader(BaseEventHandler):
        names: list[str] = Field(default_factory=list)

        def handle(self, event: Any, **kwargs: Any) -> None:
            self.names.append(type(event).__name__)

    told = EventForReader()
    dispatcher = get_dispatcher("batonflow.llms.base")
    dispatcher.add_event_handler(told)
    try:
        await FunctionAgent(llm=Given(events=[TextDelta(text="done"), Finish()])).run("Go.")
    finally:
        dispatcher.event_handlers.remove(told)
    assert told.names == ["LLMChatStartEvent", "LLMChatInProgressEvent", "LLMChatInProgressEvent", "LLMChatEndEvent"]


async def test_what_a_model_prepares_stays_its_own() -> None:
    class Keeps(Given):
        """Gives the same arguments for every request of a kind."""

        kept: dict[str, Any] = Field(default_factory=dict)

        def _prepare_chat_with_tools(self, tools: Any, **kwargs: Any) -> dict[str, Any]:
            self.kept.update({"messages": kwargs["chat_history"], "tools": tools})
            return self.kept

    call = ToolCallDelta(index=0, id="c", name="look_up", arguments='{"word": "x"}')
    llm = Keeps(events=[call, Finish(reason="tool_calls")])
    assert str(await FunctionAgent(llm=llm, tools=[look_up]).run("Go.")) == "done"
    assert set(llm.kept) == {"messages", "tools"}


@pytest.mark.parametrize("llm", [Given, WithAMethodOfItsOwn])
async def test_a_model_that_gives_something_else_than_events_is_told_so(llm: type[Given]) -> None:
    with pytest.raises(TypeError, match="'text' is not a stream event: a model's _stream must yield TextDelta"):
        await FunctionAgent(llm=llm(events=["text"])).run("Go.")

    class NoGenerator(llm):  # type: ignore[valid-type, misc]
        async def _stream(self, request: ChatRequest) -> Any:
            return TextDelta(text="done")

    with pytest.raises(
        TypeError, match=r"NoGenerator\._stream is not an asynchronous generator: write it with `yield`"
    ):
        await FunctionAgent(llm=NoGenerator(events=[])).run("Go.")


async def test_a_model_that_says_it_calls_tools_and_has_no_way_to_is_refused() -> None:
    class Plain(LLM):
        """A model that only chats."""

        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(model_name="plain", is_function_calling_model=True)

        async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
            yield Finish()

    with pytest.raises(ValueError, match="LLM must be a FunctionCallingLLM"):
        await FunctionAgent(llm=Plain()).run("Go.")

    class Whole(Plain):
        """One that answers questions with tools, in one piece only."""

        async def achat_with_tools(self, tools: Any, **kwargs: Any) -> ChatResponse:
            return ChatResponse(message=ChatMessage("done", role="assistant"))

        def get_tool_calls_from_response(self, response: ChatResponse, **kwargs: Any) -> list[Any]:
            return []

    assert str(await FunctionAgent(llm=Whole(), streaming=False).run("Go.")) == "done"


async def test_a_question_of_a_class_of_its_own_is_asked_as_its_text() -> None:
    class Question(str, Enum):  # noqa: UP042 - the form whose text is not that of its members
        TIDES = "Why are there tides?"

    llm = ScriptedLLM(["The moon."])
    await FunctionAgent(llm=llm).run(Question.TIDES)
    (asked,) = llm.requests[0].messages
    assert type(asked.content) is str
    assert asked.content == "Why are there tides?"
