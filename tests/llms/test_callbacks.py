"""Events of calls: whatever is called and however its answer is made, a call is told of once, from beginning to end."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, PrivateAttr

from batonflow.instrumentation import BaseEvent, BaseEventHandler, SimpleSpanHandler, get_dispatcher
from batonflow.llms import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    CustomLLM,
    FallbackLLM,
    FunctionCallingLLM,
    LLMMetadata,
    MockFunctionCallingLLM,
    MockLLM,
    ScriptedLLM,
    Usage,
    track_usage,
)
from batonflow.llms.call_tracing import llm_chat_callback, llm_completion_callback
from batonflow.llms.prompts import PromptTemplate

ASK = [ChatMessage("Why?")]
CHAT = ["LLMChatStartEvent", "LLMChatEndEvent"]
COMPLETION = ["LLMCompletionStartEvent", "LLMCompletionEndEvent"]


def streamed(kind: list[str], pieces: int) -> list[str]:
    return [kind[0], *[kind[0].replace("Start", "InProgress")] * pieces, kind[1]]


class Listener(BaseEventHandler):
    _heard: list[Any] = PrivateAttr(default_factory=list)

    @property
    def heard(self) -> list[Any]:
        return self._heard

    @property
    def names(self) -> list[str]:
        return [type(event).__name__ for event in self._heard]

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self._heard.append(event)


@pytest.fixture
def listener() -> Iterator[Listener]:
    dispatcher, one = get_dispatcher("batonflow.llms.base"), Listener()
    dispatcher.add_event_handler(one)
    yield one
    dispatcher.event_handlers.remove(one)


def said(text: str) -> ChatResponse:
    return ChatResponse(message=ChatMessage(text, role="assistant"), delta=text)


def completed(text: str) -> CompletionResponse:
    return CompletionResponse(text=text, delta=text)


class Own(FunctionCallingLLM):
    """Written as models for LlamaIndex are: every method of the family, decorated."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="own", is_chat_model=True, is_function_calling_model=True)

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return said("ab")

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self.chat(messages, **kwargs)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        yield said("a")
        yield said("b")

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        async def pieces() -> ChatResponseAsyncGen:
            for response in self.stream_chat(messages, **kwargs):
                yield response

        return pieces()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return completed("ab")

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return self.complete(prompt, formatted=formatted, **kwargs)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        return (completed(text) for text in "ab")

    @llm_completion_callback()
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        async def pieces() -> CompletionResponseAsyncGen:
            for response in self.stream_complete(prompt, formatted=formatted, **kwargs):
                yield response

        return pieces()


class Completes(CustomLLM):
    """One method, not even decorated."""

    failing: bool = False

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="completes")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        yield completed("a")
        if self.failing:
            raise ConnectionError("gone")
        yield completed("b")


async def asked(llm: Any, method: str, **kwargs: Any) -> None:
    """Call a method of any kind, and take all that it gives."""
    result = getattr(llm, method)(*([ASK] if "chat" in method else ["Why?"]), **kwargs)
    if isinstance(result, Awaitable):
        result = await result
    if isinstance(result, AsyncGenerator):
        [piece async for piece in result]
    elif isinstance(result, Iterator):
        list(result)


WHOLE_CHATS = ("chat", "achat")
CHATS_IN_PIECES = ("stream_chat", "astream_chat")
WHOLE_COMPLETIONS = ("complete", "acomplete")
COMPLETIONS_IN_PIECES = ("stream_complete", "astream_complete")


class TestADecoratedModel:
    @pytest.mark.parametrize(
        ("methods", "names"),
        [
            (WHOLE_CHATS, CHAT),
            (CHATS_IN_PIECES, streamed(CHAT, 2)),
            (WHOLE_COMPLETIONS, COMPLETION),
            (COMPLETIONS_IN_PIECES, streamed(COMPLETION, 2)),
        ],
    )
    async def test_each_method_tells_once(self, listener: Listener, methods: list[str], names: list[str]) -> None:
        for method in methods:
            await asked(Own(), method)
            assert listener.names == names, method
            listener.heard.clear()

    async def test_what_events_say(self, listener: Listener) -> None:
        await asked(Own(), "achat", temperature=0, extra_headers={"x-key": "secret"})
        start, end = listener.heard
        assert start.messages == end.messages == ASK
        assert start.additional_kwargs == {"temperature": 0}
        assert start.model_dict["model_name"] == "own"
        assert end.response.message.content == "ab"
        listener.heard.clear()
        await asked(Own(), "stream_complete", temperature=0)
        start, *pieces, end = listener.heard
        assert start.prompt == pieces[0].prompt == end.prompt == "Why?"
        assert start.additional_kwargs == {"temperature": 0}
        assert [piece.response.text for piece in pieces] == ["a", "b"]
        assert end.response is pieces[-1].response

    def test_what_is_asked_may_be_given_by_name(self, listener: Listener) -> None:
        Own().chat(messages=ASK)
        Own().complete(prompt="Why?")
        assert listener.heard[0].messages == ASK
        assert listener.heard[2].prompt == "Why?"
        assert listener.heard[0].additional_kwargs == listener.heard[2].additional_kwargs == {}

    async def test_events_of_a_call_are_of_the_span_that_it_began_in(self, listener: Listener) -> None:
        @get_dispatcher("batonflow.llms.base").span
        async def opened() -> ChatResponseAsyncGen:
            return await Own().astream_chat(ASK)

        async for _ in await opened():
            pass
        [span] = {event.span_id for event in listener.heard}
        assert "opened-" in span

    @pytest.mark.parametrize("way", ["predict", "astream_chat_with_tools", "achat_with_tools", "behind another"])
    async def test_our_own_ways_to_a_model_tell_once(self, listener: Listener, way: str) -> None:
        llm, prompt = Own(), PromptTemplate("Why {what}?")
        match way:
            case "predict":
                await llm.apredict(prompt, what="so")
            case "achat_with_tools":
                await llm.achat_with_tools([], user_msg="Why?")
            case "astream_chat_with_tools":
                [_ async for _ in await llm.astream_chat_with_tools([], user_msg="Why?")]
            case _:
                [_ async for _ in await FallbackLLM([llm]).astream_chat(ASK)]
        pieces = [name for name in listener.names if "InProgress" in name]
        assert [name for name in listener.names if name in CHAT] == CHAT
        assert bool(pieces) == (way in {"astream_chat_with_tools", "behind another"})

    async def test_an_override_that_calls_what_it_overrides_is_the_same_call(self, listener: Listener) -> None:
        class Derived(Own):
            @llm_chat_callback()
            async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return await super().achat(messages, **kwargs)

        class Scripted(ScriptedLLM):
            @llm_chat_callback()
            async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return await super().achat(messages, **kwargs)

        for llm in (Derived(), Scripted(["ab"])):
            await llm.achat(ASK)
            assert listener.names == CHAT
            listener.heard.clear()

    async def test_what_is_asked_between_the_pieces_is_another_call(self, listener: Listener) -> None:
        llm = Own()
        async for _ in await llm.astream_chat(ASK):
            await llm.achat(ASK)
        for _ in llm.stream_chat(ASK):
            llm.chat(ASK)
        assert [name for name in listener.names if "InProgress" not in name] == [CHAT[0], *CHAT, *CHAT, CHAT[1]] * 2

    async def test_another_model_that_a_model_asks_is_told_of(self, listener: Listener) -> None:
        class Asks(Own):
            @llm_chat_callback()
            def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return Own().chat(messages)

        await asked(Asks(), "achat")
        assert listener.names == [CHAT[0], *CHAT, CHAT[1]]

    async def test_plain_functions_that_give_something_to_await_and_generators(self, listener: Listener) -> None:
        class Odd(Own):
            @llm_chat_callback()
            def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Awaitable[ChatResponse]:
                return super().achat(messages, **kwargs)

            @llm_chat_callback()
            async def pieces(self, messages: Sequence[ChatMessage]) -> ChatResponseAsyncGen:
                yield said("a")

        await Odd().achat(ASK)
        assert listener.names == CHAT
        listener.heard.clear()
        assert [piece.delta async for piece in Odd().pieces(ASK)] == ["a"]
        assert listener.names == streamed(CHAT, 1)

    async def test_with_nobody_listening_it_is_called_as_it_is(self) -> None:
        class Bare:
            """Has nothing that could be told."""

            @llm_chat_callback()
            def stream_chat(self, messages: Sequence[ChatMessage]) -> Any:
                return messages

        assert Bare().stream_chat(ASK) is ASK
        assert Own.achat.__name__ == "achat"


class TestModelsThatDerive:
    @pytest.mark.parametrize(
        ("method", "names"),
        [
            ("chat", [CHAT[0], *COMPLETION, CHAT[1]]),
            ("achat", [CHAT[0], *COMPLETION, CHAT[1]]),
            ("complete", COMPLETION),
            ("acomplete", COMPLETION),
            ("astream_complete", streamed(COMPLETION, 2)),
        ],
    )
    @pytest.mark.parametrize("model", [Completes, lambda: MockLLM(max_tokens=2)], ids=["custom", "mock"])
    async def test_a_model_that_completes(
        self, listener: Listener, model: Callable[[], Any], method: str, names: list[str]
    ) -> None:
        await asked(model(), method)
        assert listener.names == names

    async def test_a_method_of_ones_own_tells_when_it_is_decorated(self, listener: Listener) -> None:
        await asked(Completes(), "stream_complete")
        assert listener.names == []
        await asked(MockLLM(max_tokens=2), "stream_complete")
        assert listener.names == streamed(COMPLETION, 2)

    @pytest.mark.parametrize("method", CHATS_IN_PIECES)
    async def test_a_chat_in_pieces_of_a_completion_in_pieces(self, listener: Listener, method: str) -> None:
        await asked(MockLLM(max_tokens=2), method)
        assert [name for name in listener.names if "Chat" in name] == streamed(CHAT, 2)
        assert [name for name in listener.names if "Completion" in name] == streamed(COMPLETION, 2)

    @pytest.mark.parametrize("method", [*WHOLE_CHATS, *CHATS_IN_PIECES, *WHOLE_COMPLETIONS, *COMPLETIONS_IN_PIECES])
    @pytest.mark.parametrize(
        "model", [lambda: MockFunctionCallingLLM(is_chat_model=True), lambda: ScriptedLLM(["ab"])], ids=["mock", "ours"]
    )
    async def test_a_model_that_chats(self, listener: Listener, model: Callable[[], Any], method: str) -> None:
        await asked(model(), method)
        in_pieces = "stream" in method
        chats = [name for name in listener.names if "Chat" in name]
        completions = [name for name in listener.names if "Completion" in name]
        assert [name for name in chats if name in CHAT] == CHAT
        assert (len(chats) > len(CHAT)) == in_pieces
        assert [name for name in completions if name in COMPLETION] == (COMPLETION if "complete" in method else [])
        assert (len(completions) > len(COMPLETION)) == (in_pieces and "complete" in method)

    async def test_an_answer_in_a_form_is_told_of_by_the_model_behind(self, listener: Listener) -> None:
        class Song(BaseModel):
            title: str

        llm = ScriptedLLM(['{"title": "Ebb"}', '{"title": "Ebb"}'], pydantic_program_mode="llm").as_structured_llm(Song)
        await asked(llm, "achat")
        assert [name for name in listener.names if name in CHAT] == CHAT
        listener.heard.clear()
        await asked(llm, "stream_chat")
        assert [name for name in listener.names if name in CHAT] == CHAT

    async def test_what_is_no_list_of_messages_is_treated_as_ever(self, listener: Listener) -> None:
        given: Any
        for given in ("Why?", None):
            with pytest.raises((TypeError, AttributeError)):
                await Completes().achat(given)
            assert listener.names[-1] == "ExceptionEvent"
        given = iter(ASK)
        assert (await Completes().achat(given)).message.content == "b"
        assert listener.names[-1] == CHAT[1]

    async def test_usage_is_counted_once(self, listener: Listener) -> None:
        with track_usage() as totals:
            await FallbackLLM([ScriptedLLM(["ab"])]).achat(ASK)
        assert totals.requests == 1
        assert totals.usage != Usage()
        assert listener.names == CHAT


class TestFailures:
    async def test_an_error_ends_a_call(self, listener: Listener) -> None:
        class Broken(Own):
            @llm_chat_callback()
            def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                raise ConnectionError("gone")

        for method in WHOLE_CHATS:
            with pytest.raises(ConnectionError):
                await asked(Broken(), method)
            assert listener.names == [CHAT[0], "ExceptionEvent"]
            assert str(listener.heard[1].exception) == "gone"
            assert listener.heard[1].span_id == listener.heard[0].span_id
            listener.heard.clear()

    @pytest.mark.parametrize("method", COMPLETIONS_IN_PIECES)
    async def test_an_error_in_the_middle(self, listener: Listener, method: str) -> None:
        class Broken(Completes):
            stream_complete = llm_completion_callback()(Completes.stream_complete)

        with pytest.raises(ConnectionError):
            await asked(Broken(failing=True), method)
        assert listener.names == [*streamed(COMPLETION, 1)[:-1], "ExceptionEvent"]

    async def test_a_stream_that_is_left(self, listener: Listener) -> None:
        async with aclosing(await Own().astream_chat(ASK)) as pieces:
            await anext(pieces)
        answer = Own().stream_chat(ASK)
        next(answer)
        answer.close()
        async with aclosing(await ScriptedLLM(["a b c"]).astream_chat(ASK)) as pieces:
            await anext(pieces)
        assert listener.names == [*streamed(CHAT, 1)[:-1], "ExceptionEvent"] * 3
        assert {type(event.exception) for event in listener.heard[2::3]} == {GeneratorExit}


class TestPieces:
    async def test_there_are_no_events_of_pieces_where_nobody_wants_them(self, listener: Listener) -> None:
        made: list[Any] = []

        class Whole(Listener):
            hears_pieces: ClassVar[bool] = False

        whole, dispatcher = Whole(), get_dispatcher("batonflow.llms.base")
        spans = SimpleSpanHandler()
        dispatcher.event_handlers = [whole]
        dispatcher.add_span_handler(spans)
        try:
            for llm in (Own(), ScriptedLLM(["a b"])):
                await asked(llm, "astream_chat")
                made.append(list(whole.names))
                whole.heard.clear()
        finally:
            dispatcher.event_handlers = [listener]
            dispatcher.span_handlers.remove(spans)
        assert made == [CHAT, CHAT]
