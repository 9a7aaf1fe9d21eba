"""Prompts answered in words, and one step with tools."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from batonflow.instrumentation import BaseEvent, BaseEventHandler, get_dispatcher
from batonflow.instrumentation.events.llm import LLMPredictEndEvent, LLMPredictStartEvent
from batonflow.llms import (
    LLM,
    AgentChatResponse,
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    CustomLLM,
    LLMMetadata,
    MockFunctionCallingLLM,
    MockLLM,
    NoToolCallError,
    ScriptedLLM,
    ToolCallBlock,
    ToolCallError,
    tool_call,
)
from batonflow.llms.call_tracing import llm_chat_callback, llm_completion_callback
from batonflow.llms.predict_and_call import FailedCall
from batonflow.llms.prompts import ChatPromptTemplate, PromptTemplate
from batonflow.llms.react_text import ReActChatFormatter
from batonflow.tools import FunctionTool

PROMPT = PromptTemplate("Name a {thing}.")


class Completing(CustomLLM):
    """A model that only completes, by repeating the prompt."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="completing")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        assert formatted
        return CompletionResponse(text=prompt)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        for length in range(1, len(prompt) + 1):
            yield CompletionResponse(text=prompt[:length], delta=prompt[length - 1])


class Shouting:
    """What an output parser is."""

    def format(self, query: str) -> str:
        return f"{query} Loudly."

    def format_messages(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        return [ChatMessage(self.format(message.content or "")) for message in messages]

    def parse(self, output: str) -> str:
        return output.upper()


class Reasoning(LLM):
    """A model that takes no tools and says one thing."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._asked: list[ChatMessage] = []

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="reasoning", is_chat_model=True)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        self._asked = list(messages)
        return ChatResponse(message=ChatMessage(self._text, role="assistant"))


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def later(word: str) -> str:
    """Give back a word."""
    await asyncio.sleep(0)
    return word


def fail() -> str:
    """Fail."""
    raise RuntimeError("out of order")


TOOLS = [FunctionTool.from_defaults(fn) for fn in (add, fail)] + [FunctionTool.from_defaults(async_fn=later)]


class TestPrompts:
    async def test_a_template_is_filled_in(self) -> None:
        llm = ScriptedLLM(["ebb", "flood"])
        assert await llm.apredict(PROMPT, thing="tide") == "ebb"
        assert llm.predict(PROMPT, thing="tide") == "flood"
        assert [request.messages[0].content for request in llm.requests] == ["Name a tide.", "Name a tide."]

    async def test_the_messages_of_a_chat_template(self) -> None:
        llm = ScriptedLLM(["ebb"])
        prompt = ChatPromptTemplate.from_messages([("system", "Be {tone}."), ("user", "Name a tide.")])
        await llm.apredict(prompt, tone="brief")
        assert [str(message) for message in llm.requests[0].messages] == ["system: Be brief.", "user: Name a tide."]

    @pytest.mark.parametrize(
        ("text", "values", "sent"),
        [
            ("Name {a} {thing}.", {"thing": "tide"}, "Name {a} tide."),
            ("{{ jinja }} {thing}", {}, "{{ jinja }} {thing}"),
        ],
    )
    async def test_a_bare_text_is_a_template_only_with_values(
        self, text: str, values: dict[str, str], sent: str
    ) -> None:
        llm = ScriptedLLM(["ebb"])
        await llm.apredict(text, **values)
        assert llm.requests[0].messages[0].content == sent

    async def test_a_model_that_completes_gets_the_text(self) -> None:
        assert await Completing().apredict(PROMPT, thing="tide") == "Name a tide."
        assert "".join(Completing().stream(PROMPT, thing="tide")) == "Name a tide."
        assert MockLLM(max_tokens=2).predict("anything") == "text text"

    async def test_system_prompt_and_wrapper(self) -> None:
        llm = ScriptedLLM(["ebb"], system_prompt="Be brief.")
        await llm.apredict(PROMPT, thing="tide")
        assert [message.role.value for message in llm.requests[0].messages] == ["system", "user"]
        wrapped = Completing(system_prompt="Be brief.", query_wrapper_prompt=PromptTemplate("<<{query_str}>>"))
        assert await wrapped.apredict(PROMPT, thing="tide") == "<<Be brief.\n\nName a tide.>>"

    async def test_the_way_in_which_a_model_wants_its_prompts(self) -> None:
        def dressed(prompt: str) -> str:
            return f"<user>{prompt}</user>"

        def joined(messages: Sequence[ChatMessage]) -> str:
            return "|".join(message.content or "" for message in messages)

        llm = Completing(system_prompt="Be brief.", completion_to_prompt=dressed, messages_to_prompt=joined)
        assert await llm.apredict(PROMPT, thing="tide") == "Be brief.\n\n<user>Name a tide.</user>"
        assert "".join(llm.stream("Name one.")) == "Be brief.\n\n<user>Name one.</user>"
        asked = ChatPromptTemplate([ChatMessage("Name a {thing}."), ChatMessage("Now.")])
        assert llm.predict(asked, thing="tide") == "Be brief.\n\nName a tide.|Now."

    async def test_tokens_come_one_by_one(self) -> None:
        llm = ScriptedLLM(["ebb and flood", "ebb and flood"])
        assert [token async for token in await llm.astream(PROMPT, thing="tide")] == ["ebb", " and", " flood"]
        assert list(llm.stream(PROMPT, thing="tide")) == ["ebb", " and", " flood"]

    async def test_a_model_that_does_not_say_what_is_new(self) -> None:
        class Silent(Reasoning):
            async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
                async def answers() -> Any:
                    for text in ("ebb", "ebb and flood"):
                        yield ChatResponse(message=ChatMessage(text, role="assistant"))

                return answers()

        assert [token async for token in await Silent("").astream("Name a tide.")] == ["ebb and flood"]

    async def test_an_output_parser_dresses_the_prompt_and_reads_the_answer(self) -> None:
        llm = ScriptedLLM(["ebb"], output_parser=Shouting())
        assert await llm.apredict(PROMPT, thing="tide") == "EBB"
        assert llm.requests[0].messages[0].content == "Name a tide. Loudly."
        assert await Completing(output_parser=Shouting()).apredict("Name a tide.") == "NAME A TIDE. LOUDLY."

    async def test_an_output_parser_wants_the_whole_answer(self) -> None:
        with pytest.raises(NotImplementedError, match="use predict"):
            await ScriptedLLM(output_parser=Shouting()).astream(PROMPT, thing="tide")
        with pytest.raises(NotImplementedError, match="use predict"):
            ScriptedLLM().stream(PromptTemplate("Name a tide.", output_parser=Shouting()))

    async def test_begin_and_end_are_reported(self) -> None:
        heard: list[BaseEvent] = []

        class Listener(BaseEventHandler):
            def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
                heard.append(event)

        dispatcher, listener = get_dispatcher("batonflow.llms"), Listener()
        dispatcher.add_event_handler(listener)
        try:
            await ScriptedLLM(["ebb"]).apredict(PROMPT, thing="tide")
            assert list(ScriptedLLM(["ebb"]).stream(PROMPT, thing="tide")) == ["ebb"]
        finally:
            dispatcher.event_handlers.remove(listener)
        starts = [event for event in heard if isinstance(event, LLMPredictStartEvent)]
        ends = [event for event in heard if isinstance(event, LLMPredictEndEvent)]
        assert [event.template_args for event in starts] == [{"thing": "tide"}] * 2
        assert [event.output for event in ends] == ["ebb", "ebb"]


class TestCallingTools:
    async def test_the_output_of_the_tool_is_the_answer(self) -> None:
        llm = ScriptedLLM([tool_call("add", a=2, b=40), tool_call("later", word="ebb")])
        response = await llm.apredict_and_call(TOOLS, "What is 2 + 40?", [ChatMessage("Hello")])
        assert str(response) == response.response == "42"
        [source] = response.sources
        assert (source.tool_name, source.raw_output) == ("add", 42)
        assert [message.content for message in llm.requests[0].messages] == ["Hello", "What is 2 + 40?"]
        assert str(llm.predict_and_call(TOOLS, ChatMessage("Say ebb"))) == "ebb"

    async def test_several_calls_at_once_only_when_allowed_and_then_in_order(self) -> None:
        two = [tool_call("add", a=2, b=40), tool_call("add", a=1, b=1)]
        llm = ScriptedLLM([two, two])
        with pytest.raises(ToolCallError, match="2 calls at once") as raised:
            await llm.apredict_and_call(TOOLS, "Add")
        assert isinstance(raised.value, ValueError)
        response = await llm.apredict_and_call(TOOLS, "Add", allow_parallel_tool_calls=True)
        assert response.response == "42\n\n2"
        assert llm.requests[1].parallel_tool_calls is True

    async def test_no_tool_is_called_when_there_are_too_many_calls(self) -> None:
        called: list[int] = []

        def count(number: int) -> int:
            """Count."""
            called.append(number)
            return number

        llm = ScriptedLLM([[tool_call("count", number=1), tool_call("count", number=2)]])
        with pytest.raises(ToolCallError):
            await llm.apredict_and_call([FunctionTool.from_defaults(count)], "Count")
        assert called == []

    async def test_an_answer_without_a_call_is_an_error_unless_it_is_not(self) -> None:
        llm = ScriptedLLM(["I know: 42.", "I know: 42."])
        with pytest.raises(NoToolCallError, match="I know: 42"):
            await llm.apredict_and_call(TOOLS, "Add")
        response = await llm.apredict_and_call(TOOLS, "Add", error_on_no_tool_call=False)
        assert (response.response, response.sources) == ("I know: 42.", [])

    @pytest.mark.parametrize(
        ("call", "told"),
        [
            (tool_call("fail"), "out of order"),
            (tool_call("subtract", a=1), "Tool subtract not found; there are: add, fail, later"),
            (ToolCallBlock(tool_name="add", tool_kwargs='{"a": '), "not a JSON object"),
        ],
    )
    async def test_a_failed_call_tells_so_or_is_an_error(self, call: Any, told: str) -> None:
        llm = ScriptedLLM([call, call])
        response = await llm.apredict_and_call(TOOLS, "Do it")
        assert told in response.response
        assert response.sources[0].is_error
        with pytest.raises(ToolCallError, match=told):
            await llm.apredict_and_call(TOOLS, "Do it", error_on_tool_error=True)

    async def test_whatever_can_be_called_is_a_tool(self) -> None:
        class Metadata:
            name = "my tool"
            description = "Of my own."

            def get_parameters_dict(self) -> dict[str, Any]:
                return {"type": "object", "properties": {}}

        class Tool:
            metadata = Metadata()

            def __call__(self, **kwargs: Any) -> Any:
                return FailedCall("my tool", "not really failed", kwargs, is_error=False)

        llm = ScriptedLLM([tool_call("my_tool")])
        assert str(await llm.apredict_and_call([Tool()], "Do it")) == "not really failed"

    async def test_the_mock_of_older_suites(self) -> None:
        llm = MockFunctionCallingLLM(
            response_generator=lambda messages: ChatMessage(role="assistant", blocks=[tool_call("add", a=1, b=1)])
        )
        assert str(await llm.apredict_and_call(TOOLS, "Add")) == "2"


class TestCallingToolsInWords:
    async def test_a_model_without_tools_is_told_of_them(self) -> None:
        llm = Reasoning('Thought: I add.\nAction: add\nAction Input: {"a": 2, "b": 40}')
        response = await llm.apredict_and_call(TOOLS, "What is 2 + 40?")
        assert str(response) == "42"
        assert response.sources[0].raw_output == 42
        system, question = llm._asked
        assert "Add two numbers." in (system.content or "")
        assert question.content == "What is 2 + 40?"
        assert str(llm.predict_and_call(TOOLS, "What is 2 + 40?")) == "42"

    async def test_it_may_answer_without_a_tool(self) -> None:
        response = await Reasoning("Thought: I know.\nAnswer: 42").apredict_and_call(TOOLS, "What is 2 + 40?")
        assert (response.response, response.sources) == ("42", [])

    async def test_a_message_without_either_form_is_an_error(self) -> None:
        with pytest.raises(NoToolCallError, match="Thought: hm"):
            await Reasoning("Thought: hm").apredict_and_call(TOOLS, "What is 2 + 40?")

    async def test_a_failing_tool_tells_so(self) -> None:
        llm = Reasoning("Thought: I try.\nAction: fail\nAction Input: {}")
        response = await llm.apredict_and_call(TOOLS, "Try")
        assert "out of order" in response.response

    async def test_there_is_one_system_message(self) -> None:
        llm = Reasoning("Thought: I know.\nAnswer: 42")
        formatter = ReActChatFormatter.from_defaults(context="You work for a port.")
        history = [ChatMessage("Be brief.", role="system"), ChatMessage("Hello")]
        await llm.apredict_and_call(TOOLS, chat_history=history, react_chat_formatter=formatter)
        assert [message.role.value for message in llm._asked] == ["system", "user"]
        assert "You work for a port.\n\nBe brief." in (llm._asked[0].content or "")
        assert len(history) == 2

    async def test_a_function_calling_class_whose_model_takes_no_tools(self) -> None:
        class Without(ScriptedLLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(is_chat_model=True)

        llm = Without(['Thought: I add.\nAction: add\nAction Input: {"a": 2, "b": 40}'])
        assert str(await llm.apredict_and_call(TOOLS, "Add", allow_parallel_tool_calls=True)) == "42"
        assert llm.requests[0].tools == []


class TestAgentChatResponse:
    def test_nodes_are_those_of_the_sources(self) -> None:
        class Found:
            source_nodes = ["first", "second"]

        sources = [FailedCall("search", "found", {}, Found()), FailedCall("add", "42", {}, 42)]
        assert AgentChatResponse(response="found", sources=sources).source_nodes == ["first", "second"]
        assert AgentChatResponse(sources=sources, source_nodes=["own"]).source_nodes == ["own"]

    async def test_its_words_as_a_stream(self) -> None:
        response = AgentChatResponse(response="ebb and flood", is_dummy_stream=True)
        assert list(response.response_gen) == ["ebb ", "and ", "flood "]
        assert [word async for word in response.async_response_gen()] == ["ebb ", "and ", "flood "]
        with pytest.raises(ValueError, match="is_dummy_stream=True"):
            list(AgentChatResponse(response="ebb").response_gen)
