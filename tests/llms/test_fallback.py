"""FallbackLLM: who is asked, in which order, and what is told about it."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from batonflow.llms import (
    LLM,
    AuthenticationError,
    ChatMessage,
    ChatResponse,
    FallbackLLM,
    ImageBlock,
    IncompleteResponseError,
    LLMConfigurationError,
    LLMConnectionError,
    LLMMetadata,
    LLMServerError,
    RateLimitError,
    ScriptedLLM,
    TextBlock,
    tool_call,
)
from batonflow.llms.stream import ChatRequest, StreamEvent, TextDelta

ASK = [ChatMessage("Who is there?")]


class Broken(LLM):
    """Says so much, and breaks off or fails."""

    said: list[str] = []
    error: Any = None

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="broken", context_window=1000, is_function_calling_model=True)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        for text in self.said:
            yield TextDelta(text=text)
        if self.error is not None:
            raise self.error


class TestWhoAnswers:
    @pytest.mark.parametrize(
        "error",
        [
            LLMConnectionError("no connection"),
            RateLimitError("slow down", status_code=429),
            LLMServerError("oops", status_code=500),
            None,
        ],
        ids=["connection", "429", "500", "breaks off"],
    )
    async def test_the_next_model_answers_when_the_first_cannot(self, error: Any) -> None:
        llm = FallbackLLM([Broken(error=error), ScriptedLLM(["I am."], model="second")])
        response = await llm.achat(ASK)
        assert (response.message.content, response.model) == ("I am.", "second")
        assert response.additional_kwargs["answered_by"] == "ScriptedLLM second"
        (why,) = response.additional_kwargs["switched_from"]
        assert str(error or "broke off before it began") in why

    async def test_a_model_may_be_named_twice_to_be_asked_twice(self) -> None:
        twice = ScriptedLLM([RateLimitError("slow down", status_code=429), "I am."])
        assert (await FallbackLLM([twice, twice]).achat(ASK)).message.content == "I am."

    async def test_the_first_model_answers_when_it_can(self) -> None:
        second = ScriptedLLM(["No, I."])
        response = await FallbackLLM([ScriptedLLM(["I."], model="first"), second]).achat(ASK)
        assert (response.message.content, second.requests) == ("I.", [])
        assert response.additional_kwargs == {"answered_by": "ScriptedLLM first"}

    async def test_tools_go_to_whoever_answers(self) -> None:
        second = ScriptedLLM([tool_call("add", a=1)])
        llm = FallbackLLM([Broken(error=LLMServerError("oops")), second])
        spec = {"name": "add", "description": "", "parameters": {"type": "object", "properties": {}}}
        response = await llm.achat_with_tools([spec], "Add.")
        assert [call.tool_name for call in llm.get_tool_calls_from_response(response)] == ["add"]
        assert [tool.name for tool in second.requests[0].tools] == ["add"]

    async def test_a_model_that_writes_another_method_can_be_a_member(self) -> None:
        class Plain(LLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(model_name="plain")

            async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
                return ChatResponse(message=ChatMessage("Me.", role="assistant"))

        response = await FallbackLLM([Broken(error=LLMServerError("oops")), Plain()]).achat(ASK)
        assert (response.message.content, response.model) == ("Me.", "plain")

    @pytest.mark.parametrize("method", ["achat", "astream_chat"])
    async def test_nothing_of_its_answers_is_lost(self, method: str) -> None:
        said = ChatMessage(
            [TextBlock(text="A picture: "), ImageBlock(url="http://127.0.0.1/tide.png"), tool_call("add", a=1)],
            role="assistant",
            additional_kwargs={"kept": 1},
        )

        class Draws(LLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(model_name="draws")

            async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
                return ChatResponse(message=said, additional_kwargs={"seed": 7}, stop_reason="stop")

        llm = FallbackLLM([Draws()])
        if method == "achat":
            response = await llm.achat(ASK)
        else:
            [*_, response] = [piece async for piece in await llm.astream_chat(ASK)]
        assert [type(block) for block in response.message.blocks] == [type(block) for block in said.blocks]
        assert response.message.additional_kwargs == {"kept": 1}
        assert response.additional_kwargs["seed"] == 7

    def test_also_for_synchronous_callers(self) -> None:
        assert FallbackLLM([Broken(), ScriptedLLM(["I am."])]).complete("Who?").text == "I am."


class TestWhoDoesNot:
    async def test_nothing_is_shown_twice(self) -> None:
        second = ScriptedLLM(["Hello again."])
        responses = await FallbackLLM([Broken(said=["Hel"]), second]).astream_chat(ASK)
        assert (await anext(responses)).delta == "Hel"
        with pytest.raises(IncompleteResponseError, match="half way") as raised:
            await anext(responses)
        assert (second.requests, raised.value.retryable) == ([], False)

    async def test_nor_when_the_caller_would_switch_after_anything(self) -> None:
        second = ScriptedLLM(["Hello again."])
        llm = FallbackLLM([Broken(said=["Hel"], error=LLMServerError("oops")), second], switch_on=lambda _: True)
        responses = await llm.astream_chat(ASK)
        assert (await anext(responses)).delta == "Hel"
        with pytest.raises(LLMServerError, match="oops"):
            await anext(responses)
        assert second.requests == []

    async def test_a_request_that_is_at_fault_itself_is_not_sent_again(self) -> None:
        second = ScriptedLLM(["Never."])
        with pytest.raises(AuthenticationError):
            await FallbackLLM([Broken(error=AuthenticationError("wrong key")), second]).achat(ASK)
        assert second.requests == []

    async def test_unless_the_caller_says_so(self) -> None:
        llm = FallbackLLM(
            [Broken(error=AuthenticationError("wrong key")), ScriptedLLM(["I am."])],
            switch_on=lambda error: isinstance(error, AuthenticationError),
        )
        assert (await llm.achat(ASK)).message.content == "I am."

    async def test_the_last_error_tells_of_those_before_it(self) -> None:
        llm = FallbackLLM([Broken(error=RateLimitError("slow down")), Broken(error=LLMServerError("oops"))])
        with pytest.raises(LLMServerError, match="oops") as raised:
            await llm.achat(ASK)
        assert raised.value.__notes__ == ["asked before: slow down"]

    async def test_a_mistake_in_a_model_is_not_hidden(self) -> None:
        with pytest.raises(ZeroDivisionError):
            await FallbackLLM([Broken(error=ZeroDivisionError()), ScriptedLLM(["I."])]).achat(ASK)

    def test_no_models_is_an_error(self) -> None:
        with pytest.raises(LLMConfigurationError, match="at least one"):
            FallbackLLM([])


def test_the_metadata_hold_for_all_of_them() -> None:
    metadata = FallbackLLM([ScriptedLLM([], model="first"), Broken()]).metadata
    assert (metadata.model_name, metadata.context_window, metadata.is_chat_model) == ("first", 1000, True)
