"""ScriptedLLM and the mocks."""

import asyncio
from typing import Any

import pytest

from batonflow.llms import (
    ChatMessage,
    Faults,
    ImageBlock,
    IncompleteResponseError,
    LLMConfigurationError,
    MockFunctionCallingLLM,
    MockLLM,
    RateLimitError,
    ScriptedLLM,
    ScriptExhaustedError,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolSelection,
    tool_call,
)
from batonflow.llms.stream import ChatRequest

ASK = [ChatMessage("What is 2 + 40?")]


async def stream(llm: ScriptedLLM) -> list[str]:
    return [response.delta or "" async for response in await llm.astream_chat(ASK)]


class TestScriptedLLM:
    async def test_answers_turn_by_turn_word_by_word(self) -> None:
        llm = ScriptedLLM(["Tides follow the moon.", "Yes."])
        assert await stream(llm) == ["Tides", " follow", " the", " moon.", ""]
        assert llm.remaining == 1
        assert (await llm.achat(ASK)).message.content == "Yes."

    async def test_white_space_is_kept(self) -> None:
        text = "\n  a\tb  \n"
        assert "".join(await stream(ScriptedLLM([text]))) == text

    async def test_a_tool_call_shows_only_once_it_is_whole(self) -> None:
        llm = ScriptedLLM([tool_call("search", query="a long question about the tides", limit=3)])
        responses = [response async for response in await llm.astream_chat_with_tools([], chat_history=ASK)]
        calls = [llm.get_tool_calls_from_response(one, error_on_no_tool_call=False) for one in responses]
        assert calls[0] == []
        assert all(one in ([], calls[-1]) for one in calls)
        assert calls[-1] == [
            ToolSelection(
                tool_id=calls[-1][0].tool_id,
                tool_name="search",
                tool_kwargs={"query": "a long question about the tides", "limit": 3},
            )
        ]
        assert responses[-1].stop_reason == "tool_calls"

    async def test_a_turn_may_hold_thoughts_text_and_several_calls(self) -> None:
        llm = ScriptedLLM([[ThinkingBlock(content="let me see"), "Adding.", tool_call("add", a=1), tool_call("now")]])
        responses = [response async for response in await llm.astream_chat(ASK)]
        thoughts = "".join(one.additional_kwargs.get("thinking_delta", "") for one in responses)
        assert thoughts == "let me see"
        message = responses[-1].message
        assert [block.block_type for block in message.blocks] == ["thinking", "text", "tool_call", "tool_call"]
        calls = llm.get_tool_calls_from_response(responses[-1])
        assert [(one.tool_name, one.tool_kwargs) for one in calls] == [("add", {"a": 1}), ("now", {})]
        assert [one.tool_id[-4:] for one in calls] == ["_1_1", "_1_2"]

    async def test_another_script_has_other_ids(self) -> None:
        """A conversation kept by one process goes on in the next one, whose script begins anew."""
        ids = [
            llm.get_tool_calls_from_response(await llm.achat(ASK))[0].tool_id
            for llm in (ScriptedLLM([tool_call("now")]) for _ in range(2))
        ]
        assert ids[0] != ids[1]

    async def test_messages_selections_and_broken_arguments_are_turns_too(self) -> None:
        llm = ScriptedLLM(
            [
                ChatMessage(
                    "with a call",
                    additional_kwargs={"tool_calls": [ToolSelection(tool_id="x", tool_name="t", tool_kwargs={})]},
                ),
                ToolSelection(tool_id="y", tool_name="u", tool_kwargs={"k": 1}),
                ToolCallBlock(tool_name="v", tool_kwargs='{"broken'),
            ]
        )
        first = await llm.achat(ASK)
        assert (first.message.content, llm.get_tool_calls_from_response(first)[0].tool_id) == ("with a call", "x")
        assert llm.get_tool_calls_from_response(await llm.achat(ASK))[0].tool_kwargs == {"k": 1}
        assert llm.get_tool_calls_from_response(await llm.achat(ASK))[0].invalid_arguments == '{"broken'

    async def test_functions_see_the_request(self) -> None:
        async def slowly(request: ChatRequest) -> str:
            return f"{len(request.messages)} messages"

        llm = ScriptedLLM([lambda request: request.messages[-1].content or "", slowly])
        assert (await llm.achat(ASK)).message.content == "What is 2 + 40?"
        assert (await llm.achat(ASK)).message.content == "1 messages"

    async def test_exceptions_are_raised(self) -> None:
        llm = ScriptedLLM([RateLimitError("slow down", retry_after=3.0), TimeoutError, "fine"])
        with pytest.raises(RateLimitError) as error:
            await llm.achat(ASK)
        assert error.value.retry_after == 3.0
        with pytest.raises(TimeoutError):
            await llm.achat(ASK)
        assert (await llm.achat(ASK)).message.content == "fine"

    async def test_requests_are_recorded_as_they_were(self) -> None:
        llm = ScriptedLLM(["a", "b"])
        history = list(ASK)
        await llm.achat_with_tools([{"name": "add"}], chat_history=history, tool_choice="auto")
        history.append(ChatMessage("more"))
        [request] = llm.requests
        assert [message.content for message in request.messages] == ["What is 2 + 40?"]
        assert [tool.name for tool in request.tools] == ["add"]

    async def test_running_out_says_how_long_the_script_is_and_what_was_asked(self) -> None:
        llm = ScriptedLLM(["only one"])
        await llm.achat(ASK)
        with pytest.raises(ScriptExhaustedError, match=r"1 turn, and this is request 2.*What is 2 \+ 40") as raised:
            await llm.achat(ASK)
        assert str(raised.value).startswith("scripted: The script has 1 turn,")

    async def test_what_is_no_turn_is_named(self) -> None:
        with pytest.raises(TypeError, match="5 is not a turn"):
            await ScriptedLLM([5]).achat(ASK)  # type: ignore[list-item]
        with pytest.raises(TypeError, match="list of turns"):
            ScriptedLLM("not a list")

    async def test_usage_and_metadata(self) -> None:
        llm = ScriptedLLM(["two words"], model="mine")
        response = await llm.achat(ASK)
        assert response.usage is not None
        assert (response.usage.input_tokens, response.usage.output_tokens) == (5, 2)
        assert (response.model, llm.metadata.model_name) == ("mine", "mine")
        assert llm.metadata.is_function_calling_model

    def test_works_synchronously(self) -> None:
        llm = ScriptedLLM(["a b", "c"])
        assert [response.delta for response in llm.stream_chat(ASK)] == ["a", " b", ""]
        assert llm.complete("x").text == "c"


class TestMockLLM:
    def test_echoes_the_prompt_character_by_character(self) -> None:
        llm = MockLLM()
        assert llm.complete("abc").text == "abc"
        assert [one.delta for one in llm.stream_complete("abc")] == ["a", "b", "c"]
        assert llm.chat([ChatMessage("hi")]).message.content == "user: hi\nassistant: "
        assert [one.text for one in llm.stream_complete("")] == [""]

    async def test_or_says_text_so_many_times(self) -> None:
        llm = MockLLM(max_tokens=3, is_chat_model=True)
        assert (await llm.acomplete("x")).text == "text text text"
        assert [one.delta for one in llm.stream_complete("x")] == ["text", " text", " text"]
        assert (llm.metadata.num_output, llm.metadata.is_chat_model) == (3, True)


class TestMockFunctionCallingLLM:
    async def test_answers_with_the_function(self) -> None:
        def answer(messages: list[ChatMessage]) -> ChatMessage:
            return ChatMessage(f"{len(messages)} so far", role="assistant")

        llm = MockFunctionCallingLLM(response_generator=answer)
        assert (await llm.achat_with_tools([], "hi", ASK)).message.content == "2 so far"
        assert llm.chat(ASK).message.content == "1 so far"

    async def test_functions_that_take_more_are_told_more(self) -> None:
        llm = MockFunctionCallingLLM(response_generator=lambda messages, tools: ChatMessage(str(len(tools))))
        assert (await llm.achat_with_tools([{"name": "a"}], chat_history=ASK)).message.content == "1"

        def everything(messages: list[ChatMessage], **kwargs: object) -> ChatMessage:
            return ChatMessage(",".join(kwargs))

        llm.response_generator = everything
        assert (await llm.achat_with_tools([], chat_history=ASK)).message.content == "tools"

    async def test_iterators_of_messages_are_streamed(self) -> None:
        def some(messages: list[ChatMessage]):
            yield ChatMessage("a")
            yield ChatMessage("ab")

        async def more(messages: list[ChatMessage]):
            yield ChatMessage("c")

        llm = MockFunctionCallingLLM(response_generator=some)
        assert [one.message.content async for one in await llm.astream_chat(ASK)] == ["a", "ab"]
        llm.response_generator = more
        assert [one.message.content async for one in await llm.astream_chat(ASK)] == ["c"]

    async def test_calls_come_from_additional_kwargs_first_then_from_blocks(self) -> None:
        kept = [ToolSelection(tool_id="1", tool_name="t", tool_kwargs={})]
        block = ToolCallBlock(tool_call_id="2", tool_name="u", tool_kwargs={"x": 1})
        answers = iter(
            [ChatMessage(blocks=[block], additional_kwargs={"tool_calls": kept}), ChatMessage(blocks=[block])]
        )
        llm = MockFunctionCallingLLM(response_generator=lambda messages: next(answers))
        assert llm.get_tool_calls_from_response(await llm.achat(ASK)) == kept
        assert llm.get_tool_calls_from_response(await llm.achat(ASK))[0].tool_id == "2"

    async def test_without_a_function_it_echoes_every_kind_of_block(self) -> None:
        llm = MockFunctionCallingLLM()
        message = ChatMessage(blocks=[TextBlock(text="see "), ImageBlock(image=b"picture!")])
        assert (await llm.achat([message])).message.content == "see <image>picture!</image>"
        assert (await llm.achat([])).message.content == "<empty>"
        assert (await llm.achat([ChatMessage("done", role="tool")])).message.content == "Tool calls complete."


class TestFaults:
    """What goes wrong is decided by the seed, and a turn that goes wrong is given again."""

    TURNS = (tool_call("add", a=1), [tool_call("add", a=2), tool_call("add", a=3)], "one two three four")

    async def survive(self, faults: Faults) -> tuple[list[Any], list[str]]:
        """Ask until the script is told, as a program that repeats what failed; what was answered, what went wrong."""
        llm, answers, wrong = ScriptedLLM(self.TURNS, faults=faults), list[Any](), list[str]()
        while llm.remaining:
            try:
                response = await llm.achat(ASK)
            except (RateLimitError, IncompleteResponseError) as error:
                wrong.append(type(error).__name__)
                continue
            calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
            if any(call.invalid_arguments for call in calls):
                wrong.append("malformed")
                continue
            assert len({call.tool_id for call in calls}) == len(calls)
            answers.append([call.tool_kwargs for call in calls] or response.message.content)
        return answers, wrong

    async def test_a_program_that_survives_them_ends_as_without_them(self) -> None:
        kinds: set[str] = set()
        for seed in range(30):
            faults = Faults(seed, rate_limited=0.3, cut=0.3, malformed=0.3, duplicate_ids=0.5)
            answers, wrong = await self.survive(faults)
            assert answers == [[{"a": 1}], [{"a": 2}, {"a": 3}], "one two three four"]
            kinds |= set(wrong)
        assert kinds == {"RateLimitError", "IncompleteResponseError", "malformed"}

    async def test_the_same_seed_makes_the_same_faults(self) -> None:
        def faults(seed: int) -> Faults:
            return Faults(seed, rate_limited=0.4, cut=0.4)

        assert await self.survive(faults(3)) == await self.survive(faults(3))
        assert len({str(await self.survive(faults(seed))) for seed in range(8)}) > 1

    async def test_slow_tokens(self) -> None:
        stream = await ScriptedLLM(["one two"], faults=Faults(slow=1000)).astream_chat(ASK)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), timeout=0.05)

    def test_a_part_is_between_none_and_all(self) -> None:
        with pytest.raises(LLMConfigurationError, match=r"Faults\.cut is 5"):
            Faults(cut=5)
