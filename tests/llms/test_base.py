"""What derives from what: a model writes one method, and the whole family works."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from inspect import BoundArguments
from typing import Any
from unittest.mock import MagicMock

import pytest

from batonflow.instrumentation import BaseEvent, BaseEventHandler, SimpleSpanHandler, get_dispatcher
from batonflow.instrumentation.events.llm import LLMChatEndEvent, LLMChatStartEvent
from batonflow.llms import (
    LLM,
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
    IncompleteResponseError,
    LLMError,
    LLMMetadata,
    NoToolCallError,
    Usage,
)
from batonflow.llms._bridge import run_sync
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, TextDelta

PIECES = ["tides ", "follow ", "the moon"]
WHOLE = "".join(PIECES)
ASK = [ChatMessage("Why are there tides?")]


class Named:
    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="test")


def so_far() -> list[tuple[str, str]]:
    return [("".join(PIECES[: number + 1]), piece) for number, piece in enumerate(PIECES)]


def say(text: str, delta: str | None = None) -> ChatResponse:
    return ChatResponse(message=ChatMessage(text, role="assistant"), delta=delta)


class Native(Named, LLM):
    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        for piece in PIECES:
            yield TextDelta(text=piece)
        yield Finish(usage=Usage(output_tokens=3))


class AStreamChat(Named, LLM):
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        async def pieces() -> ChatResponseAsyncGen:
            for text, delta in so_far():
                yield say(text, delta)

        return pieces()


class AChat(Named, LLM):
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return say(WHOLE)


class StreamChat(Named, LLM):
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        for text, delta in so_far():
            yield say(text, delta)


class Chat(Named, LLM):
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return say(WHOLE)


class AStreamComplete(Named, LLM):
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        async def pieces() -> CompletionResponseAsyncGen:
            for text, delta in so_far():
                yield CompletionResponse(text=text, delta=delta)

        return pieces()


class AComplete(Named, LLM):
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=WHOLE)


class StreamComplete(Named, LLM):
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        for text, delta in so_far():
            yield CompletionResponse(text=text, delta=delta)


class Complete(Named, LLM):
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=WHOLE)


EVERY = [Native, AStreamChat, AChat, StreamChat, Chat, AStreamComplete, AComplete, StreamComplete, Complete]
STREAMING = {Native, AStreamChat, StreamChat, AStreamComplete, StreamComplete}


@pytest.mark.parametrize("kind", EVERY)
class TestDerivation:
    async def test_asynchronously(self, kind: type[LLM]) -> None:
        model = kind()
        assert (await model.achat(ASK)).message.content == WHOLE
        assert (await model.acomplete("Why?")).text == WHOLE
        deltas = [response.delta or "" async for response in await model.astream_chat(ASK)]
        assert "".join(deltas) == WHOLE
        texts = [completion async for completion in await model.astream_complete("Why?")]
        assert texts[-1].text == WHOLE
        assert "".join(one.delta or "" for one in texts) == WHOLE
        if kind in STREAMING:
            assert [delta for delta in deltas if delta] == PIECES

    def test_synchronously(self, kind: type[LLM]) -> None:
        model = kind()
        assert model.chat(ASK).message.content == WHOLE
        assert model.complete("Why?").text == WHOLE
        deltas = [response.delta or "" for response in model.stream_chat(ASK)]
        assert "".join(deltas) == WHOLE
        assert "".join(one.delta or "" for one in model.stream_complete("Why?")) == WHOLE
        if kind in STREAMING:
            assert [delta for delta in deltas if delta] == PIECES

    async def test_synchronously_under_a_running_loop(self, kind: type[LLM]) -> None:
        assert kind().chat(ASK).message.content == WHOLE

    async def test_a_stream_left_early_leaves_nothing_behind(self, kind: type[LLM]) -> None:
        stream = await kind().astream_chat(ASK)
        await anext(stream)
        await stream.aclose()
        sync = kind().stream_chat(ASK)
        next(sync)
        sync.close()


class TestWhichMethodIsUsed:
    def test_a_class_that_defines_none_is_refused_with_the_choice(self) -> None:
        with pytest.raises(TypeError, match=r"Silent must define metadata and one of _stream, astream_chat, achat"):

            class Silent(Named, LLM):  # pyright: ignore[reportUnusedClass]
                pass

    def test_metadata_is_abstract(self) -> None:
        class Nameless(LLM):
            async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return say("")

        with pytest.raises(TypeError, match="metadata"):
            Nameless()  # type: ignore[abstract]

    async def test_the_stream_of_an_adapter_comes_before_every_override(self) -> None:
        class Logging(Native):
            def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return say("overridden")

        assert (await Logging().achat(ASK)).message.content == WHOLE
        assert Logging().chat(ASK).message.content == "overridden"

    async def test_asynchronous_before_synchronous_and_streams_before_calls(self) -> None:
        class Several(AStreamChat):
            def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return say("chat")

        class SeveralAtOnce(Named, LLM):
            def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return say("chat")

            async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
                return await AStreamChat().astream_chat(messages)

        assert (await SeveralAtOnce().achat(ASK)).message.content == WHOLE
        assert Several().chat(ASK).message.content == "chat"

    @pytest.mark.parametrize("kind", EVERY)
    async def test_an_override_may_call_the_version_above_it(self, kind: type[LLM]) -> None:
        calls: list[str] = []

        class Counting(kind):  # type: ignore[valid-type,misc]
            async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                calls.append("achat")
                return await super().achat(messages, **kwargs)

            async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
                calls.append("astream_chat")
                return await super().astream_chat(messages, **kwargs)

            def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
                calls.append("complete")
                return super().complete(prompt, formatted, **kwargs)

        model: LLM = Counting()
        assert (await model.achat(ASK)).message.content == WHOLE
        assert "achat" in calls
        assert [one.message.content async for one in await model.astream_chat(ASK)][-1] == WHOLE
        assert model.complete("Why?").text == WHOLE
        assert "complete" in calls

    def test_completion_stays_in_its_family(self) -> None:
        class Two(CustomLLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata()

            def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
                return CompletionResponse(text=f"complete {formatted}: {prompt}")

            def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
                yield CompletionResponse(text="streamed", delta="streamed")

        model = Two()
        assert model.complete("x").text == "complete False: x"
        assert model.chat([ChatMessage("x")]).message.content == "complete True: user: x\nassistant: "
        assert [one.message.content for one in model.stream_chat(ASK)] == ["streamed"]

    async def test_a_model_s_own_prompt_form_is_used(self) -> None:
        class Echo(Complete):
            def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
                return CompletionResponse(text=prompt)

        model = Echo(messages_to_prompt=lambda messages: " | ".join(str(one) for one in messages))
        assert (await model.achat(ASK)).message.content == "user: Why are there tides?"

    def test_test_doubles_may_shadow_methods_by_fields(self) -> None:
        with pytest.warns(UserWarning, match="shadows"):

            class Double(FunctionCallingLLM):
                get_tool_calls_from_response: Any = MagicMock(return_value=["x"])
                achat: Any = MagicMock()

                def __init__(self) -> None:
                    super().__init__()
                    self._responses = ["free", "private"]

                @property
                def metadata(self) -> LLMMetadata:
                    return LLMMetadata()

        double = Double()
        assert double.get_tool_calls_from_response("anything") == ["x"]
        assert double._responses == ["free", "private"]

    async def test_a_model_that_only_takes_tools_cannot_chat_and_says_so(self) -> None:
        class ToolsOnly(Named, LLM):
            async def astream_chat_with_tools(self, tools: Any, chat_history: Any, **kwargs: Any) -> Any:
                return None

        with pytest.raises(LLMError, match="ToolsOnly cannot achat"):
            await ToolsOnly().achat(ASK)


class TestStreams:
    async def test_the_last_piece_carries_usage_and_reason(self) -> None:
        responses = [response async for response in await Native().astream_chat(ASK)]
        assert [one.usage for one in responses[:-1]] == [None] * 3
        assert responses[-1].usage == Usage(output_tokens=3)
        assert responses[-1].stop_reason == "stop"
        assert (await Native().achat(ASK)).delta is None

    @pytest.mark.parametrize(
        ("said", "state", "retryable"), [(["half"], "half way", False), ([], "before it began", True)]
    )
    async def test_a_stream_without_its_terminal_mark_is_an_error(
        self, said: list[str], state: str, retryable: bool
    ) -> None:
        class Broken(Named, LLM):
            async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
                for text in said:
                    yield TextDelta(text=text)

        with pytest.raises(IncompleteResponseError, match=state) as error:
            async for _ in await Broken().astream_chat(ASK):
                pass
        # Once a part has been shown, asking again would show it twice.
        assert error.value.retryable is retryable
        assert error.value.model == "test"
        with pytest.raises(IncompleteResponseError, match=state) as error:
            await Broken().achat(ASK)
        # Who waits for the whole answer has been shown nothing.
        assert error.value.retryable

    async def test_leaving_a_stream_ends_the_adapter_s_request(self) -> None:
        ended: list[bool] = []

        class Slow(Named, LLM):
            async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
                try:
                    while True:
                        yield TextDelta(text="on and on ")
                finally:
                    ended.append(True)

        stream = await Slow().astream_chat(ASK)
        await anext(stream)
        await stream.aclose()
        assert ended == [True]

    async def test_a_model_that_streams_nothing_has_said_nothing(self) -> None:
        class Mute(Named, LLM):
            async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
                async def nothing() -> ChatResponseAsyncGen:
                    for response in list[ChatResponse]():
                        yield response

                return nothing()

        assert (await Mute().achat(ASK)).message.content is None


class TestBridge:
    def test_errors_come_through(self) -> None:
        class Failing(Named, LLM):
            async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            Failing().chat(ASK)

    def test_a_synchronous_call_inside_a_synchronous_call_has_a_loop_of_its_own(self) -> None:
        class Nested(Named, LLM):
            async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return AChat().chat(messages)

        assert Nested().chat(ASK) == AChat().chat(ASK)

    async def test_cancelling_whoever_reads_a_blocking_stream_closes_it_when_its_thread_is_back(self) -> None:
        fetching, go_on, closed = threading.Event(), threading.Event(), threading.Event()

        class Blocking(Named, LLM):
            def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
                try:
                    fetching.set()
                    go_on.wait(30)
                    yield say("late")
                finally:
                    closed.set()

        reading = asyncio.create_task(Blocking().achat(ASK))
        await asyncio.to_thread(fetching.wait, 30)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert not closed.is_set()
        go_on.set()
        assert await asyncio.to_thread(closed.wait, 30)

    def test_one_thread_serves_all_calls(self) -> None:
        async def where() -> str:
            return threading.current_thread().name

        assert {run_sync(where()) for _ in range(5)} == {"batonflow-sync-0"}

    def test_an_interrupted_call_is_cancelled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cancelled = threading.Event()
        started = threading.Event()

        async def forever() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        def interrupted(self: Any, timeout: float | None = None) -> Any:
            started.wait(30)
            raise KeyboardInterrupt

        monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_sync(forever())
        assert cancelled.wait(30)


@contextmanager
def given_to_spans() -> Iterator[list[tuple[str, str, dict[str, Any]]]]:
    """What happens to the spans of models meanwhile: their names and what they are given."""
    given: list[tuple[str, str, dict[str, Any]]] = []

    class Notes(SimpleSpanHandler):
        def span_enter(self, id_: str, bound_args: BoundArguments, *args: Any, **kwargs: Any) -> None:
            given.append(("open", id_.partition("-")[0], dict(bound_args.arguments)))

        def span_exit(self, id_: str, bound_args: BoundArguments, *args: Any, **kwargs: Any) -> None:
            given.append(("close", id_.partition("-")[0], dict(bound_args.arguments)))

        def span_drop(self, id_: str, bound_args: BoundArguments, *args: Any, **kwargs: Any) -> None:
            given.append(("drop", id_.partition("-")[0], dict(bound_args.arguments)))

    dispatcher, notes = get_dispatcher("batonflow.llms"), Notes()
    dispatcher.add_span_handler(notes)
    try:
        yield given
    finally:
        dispatcher.span_handlers.remove(notes)


class TestInstrumentation:
    async def test_a_call_is_a_span_with_start_and_end(self) -> None:
        heard: list[BaseEvent] = []

        class Listener(BaseEventHandler):
            def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
                heard.append(event)

        dispatcher = get_dispatcher("batonflow.llms")
        spans, listener = SimpleSpanHandler(), Listener()
        dispatcher.add_span_handler(spans)
        dispatcher.add_event_handler(listener)
        try:
            await Native().achat(ASK, extra_headers={"x-key": "secret"}, temperature=0)
        finally:
            dispatcher.span_handlers.remove(spans)
            dispatcher.event_handlers.remove(listener)
        start, end = heard
        assert isinstance(start, LLMChatStartEvent)
        assert isinstance(end, LLMChatEndEvent)
        assert start.model_dict["model_name"] == "test"
        assert start.additional_kwargs == {"temperature": 0}
        assert end.response.message.content == WHOLE
        [span] = spans.completed_spans
        assert span.id_ == start.span_id == end.span_id
        assert span.id_.startswith("Native.achat-")

    @pytest.mark.parametrize("way", ["achat", "astream_chat", "chat", "stream_chat"])
    async def test_a_span_is_named_after_the_method_and_has_its_arguments_without_what_may_hold_keys(
        self, way: str
    ) -> None:
        with given_to_spans() as given:
            answer = getattr(Native(), way)(ASK, extra_headers={"x-key": "secret"}, temperature=0)
            answer = await answer if way.startswith("a") else answer
            if way == "astream_chat":
                async for _ in answer:
                    pass
            elif way == "stream_chat":
                list(answer)
        arguments = {"messages": ASK, "kwargs": {"temperature": 0}}
        assert given == [("open", f"Native.{way}", arguments), ("close", f"Native.{way}", arguments)]

    async def test_a_model_that_takes_more_has_the_arguments_of_the_base(self) -> None:
        class Takes(Native):
            async def achat(self, said: Any, mood: str = "kind", **kwargs: Any) -> ChatResponse:  # type: ignore[override]
                return await super().achat([ChatMessage(said)], **kwargs)

        with given_to_spans() as given:
            await Takes().achat("Why?", mood="cross")
        assert given[0] == ("open", "Takes.achat", {"messages": [ChatMessage("Why?")]})

    async def test_leaving_and_failing_say_the_arguments_too(self) -> None:
        class Fails(Named, LLM):
            async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
                yield TextDelta(text="no")
                raise LLMError("broken")

        with given_to_spans() as given:
            answer = await Native().astream_chat(ASK)
            await anext(answer)
            await answer.aclose()
            with pytest.raises(LLMError):
                await Fails().achat(ASK)
        assert [one for one in given if one[0] != "open"] == [
            ("close", "Native.astream_chat", {"messages": ASK}), ("drop", "Fails.achat", {"messages": ASK}),
        ]  # fmt: skip


class TestLeaving:
    @pytest.mark.parametrize("way", ["astream_chat", "astream_complete", "astream", "behind another"])
    async def test_leaving_in_the_middle_ends_the_stream_at_once(self, way: str) -> None:
        ended: list[bool] = []

        class Endless(Named, LLM):
            async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
                async def pieces() -> ChatResponseAsyncGen:
                    try:
                        while True:
                            yield say("", "more ")
                    finally:
                        ended.append(True)

                return pieces()

        llm = Endless()
        answers: dict[str, Any] = {
            "astream_chat": lambda: llm.astream_chat(ASK),
            "astream_complete": lambda: llm.astream_complete("Why?"),
            "astream": lambda: llm.astream("Why?"),
            "behind another": lambda: FallbackLLM([llm]).astream_chat(ASK),
        }
        answer = await answers[way]()
        await anext(answer)
        await answer.aclose()
        assert ended == [True]


class TestWhatIsNoConversation:
    @pytest.mark.parametrize("messages", ["Why?", ChatMessage("Why?")], ids=["text", "one message"])
    async def test_what_is_no_list_is_refused_with_the_remedy(self, messages: Any) -> None:
        with pytest.raises(TypeError, match=r"write \[ChatMessage"):
            await Native().achat(messages)

    async def test_what_is_no_message_is_refused_by_its_place(self) -> None:
        with pytest.raises(TypeError, match=r"messages\[1\] is a dict, not a ChatMessage"):
            await Native().achat([*ASK, {"role": "user", "content": "Why?"}])  # type: ignore[list-item]


class TestWithTools:
    async def test_tools_history_and_choice_reach_the_adapter(self) -> None:
        seen: list[ChatRequest] = []

        class Recording(FunctionCallingLLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(is_function_calling_model=True)

            async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
                seen.append(request)
                yield TextDelta(text="ok")
                yield Finish()

        model, spec = Recording(), {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
        await model.achat_with_tools(
            [spec], "and now?", ASK, allow_parallel_tool_calls=True, tool_required=True, top_k=3
        )
        [request] = seen
        assert [message.content for message in request.messages] == ["Why are there tides?", "and now?"]
        assert [tool.name for tool in request.tools] == ["add"]
        assert (request.tool_choice, request.parallel_tool_calls) == ("required", True)
        assert request.options == {"top_k": 3}
        async for _ in await model.astream_chat_with_tools(tools=[], chat_history=ASK, tool_choice="add"):
            pass
        assert (seen[1].tools, seen[1].tool_choice) == ([], None)
        model.chat_with_tools([spec], user_msg="x", tool_choice="add")
        assert seen[2].tool_choice == "add"
        assert [one.message.content for one in model.stream_chat_with_tools([spec], "x")][-1] == "ok"

    async def test_a_subclass_may_leave_calls_out_of_an_answer(self) -> None:
        class First(FunctionCallingLLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(is_function_calling_model=True)

            async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
                yield TextDelta(text="a b")
                yield Finish()

            def _validate_chat_with_tools_response(
                self, response: ChatResponse, tools: Any, allow_parallel_tool_calls: bool = False, **kwargs: Any
            ) -> ChatResponse:
                return response if allow_parallel_tool_calls else say((response.message.content or "").split()[0])

        model = First()
        assert (await model.achat_with_tools([], "go")).message.content == "a"
        assert (await model.achat_with_tools([], "go", allow_parallel_tool_calls=True)).message.content == "a b"
        assert model.chat_with_tools([], "go").message.content == "a"

    def test_no_call_is_an_error_only_when_asked_for(self) -> None:
        class Talking(FunctionCallingLLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(is_function_calling_model=True)

            def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return say("only words")

        model = Talking()
        response = model.chat(ASK)
        assert model.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
        with pytest.raises(NoToolCallError, match="only words"):
            model.get_tool_calls_from_response(response)

    async def test_a_preparation_without_tool_required_is_tolerated(self) -> None:
        class Older(FunctionCallingLLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(is_function_calling_model=True)

            def _prepare_chat_with_tools(  # type: ignore[override]
                self,
                tools: Any,
                user_msg: Any = None,
                chat_history: Any = None,
                verbose: bool = False,
                allow_parallel_tool_calls: bool = False,
            ) -> dict[str, Any]:
                return {"messages": chat_history}

            async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
                return say(WHOLE)

        assert (await Older().achat_with_tools([], chat_history=ASK)).message.content == WHOLE
        with pytest.warns(UserWarning, match="no parameter tool_required"):
            await Older().achat_with_tools([], chat_history=ASK, tool_required=True)
