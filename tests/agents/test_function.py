"""FunctionAgent: the loop, its events, its tools and what it remembers."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic import BaseModel, Field, PrivateAttr

from batonflow.agents import (
    AgentInput,
    AgentOutput,
    AgentStream,
    AgentStreamStructuredOutput,
    AgentWorkflow,
    BaseWorkflowAgent,
    Block,
    CodeActAgent,
    FunctionAgent,
    ReActAgent,
    ToolCall,
    ToolCallResult,
)
from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.llms import (
    ChatMessage,
    Faults,
    FunctionCallingLLM,
    ImageBlock,
    LLMMetadata,
    MessageRole,
    ScriptedLLM,
    ToolCallBlock,
    Usage,
    tool_call,
)
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, TextDelta, ToolCallDelta
from batonflow.tools import FunctionTool, ToolSelection
from batonflow.workflow_core import Context, HumanResponseEvent, InputRequiredEvent, StopEvent, WorkflowRuntimeError
from tests.agents.pausing import Pausing
from tests.agents.unread import Cumulative, held_by_a_stream


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def slow(seconds: float) -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return f"slept {seconds}"


def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


async def events_of(agent: FunctionAgent, message: str, **options: Any) -> tuple[list[Any], AgentOutput]:
    handler = agent.run(message, **options)
    events = [event async for event in handler.stream_events()]
    return events, await handler


def roles(messages: list[ChatMessage]) -> list[str]:
    return [message.role.value for message in messages]


class Calling(FunctionCallingLLM):
    """Calls a tool as long as it has any."""

    arguments: str
    kept: dict[str, Any] = Field(default_factory=dict)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        if request.tools:
            yield ToolCallDelta(index=0, id="1", name="add", arguments=self.arguments)
            yield Finish(reason="tool_calls", message_kwargs=self.kept)
        else:
            yield TextDelta(text="There is no time.")
            yield Finish()


class CallsInText(FunctionCallingLLM):
    """Writes its calls as text, which is replaced by what it means, or has that beside it."""

    beside_the_text: bool

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        yield TextDelta(text="done" if request.messages[-1].role == MessageRole.TOOL else "CALL add 2 40")
        yield Finish()

    async def astream_chat_with_tools(self, *args: Any, **kwargs: Any) -> Any:
        inner = await super().astream_chat_with_tools(*args, **kwargs)

        async def parsed() -> AsyncGenerator[Any, None]:
            async for piece in inner:
                if piece.stop_reason is not None and piece.message.content != "done":
                    call = ToolCallBlock(tool_call_id="1", tool_name="add", tool_kwargs={"a": 2, "b": 40})
                    piece.message.blocks[:] = [*piece.message.blocks, call] if self.beside_the_text else [call]
                yield piece

        return parsed()


class TestTheLoop:
    async def test_events_of_a_run_with_one_tool_come_in_the_documented_order(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM([tool_call("add", a=2, b=40), "42"]), tools=[add], streaming=True)
        events, output = await events_of(agent, "What is 2 + 40?")
        kinds = [type(event).__name__ for event in events if not isinstance(event, AgentStream)]
        assert kinds == [
            "AgentInput", "AgentOutput", "ToolCall", "ToolCallResult", "AgentInput", "AgentOutput", "StopEvent",
        ]  # fmt: skip
        assert str(output) == "42"
        assert isinstance(events[-1], StopEvent)

    async def test_text_is_streamed_in_pieces_that_add_up(self) -> None:
        events, output = await events_of(FunctionAgent(llm=ScriptedLLM(["Twice a day."])), "tides?")
        pieces = [event for event in events if isinstance(event, AgentStream)]
        assert len(pieces) > 2
        assert "".join(piece.delta for piece in pieces) == pieces[-1].response == str(output) == "Twice a day."

    @pytest.mark.parametrize(
        ("arguments", "shown"),
        [
            pytest.param('{"a": 2, "b": 40}', [{"a": 2, "b": 40}], id="once, when they are whole"),
            pytest.param("", [None, {}], id="at the end, when only that makes them whole"),
        ],
    )
    @pytest.mark.parametrize("kept", [{}, {"phase": "final"}])
    async def test_calls_are_shown(
        self, arguments: str, shown: list[dict[str, Any] | None], kept: dict[str, Any]
    ) -> None:
        agent = FunctionAgent(llm=Calling(arguments=arguments, kept=kept), tools=[add])
        events, _ = await events_of(agent, "What is 2 + 40?", max_iterations=1, early_stopping_method="generate")
        first = [event for event in events if isinstance(event, AgentStream)][: len(shown) + 1]
        told = [event.tool_calls[0].tool_kwargs if event.tool_calls else None for event in first]
        assert told[: len(shown)] == shown
        assert first[-1].delta == "There is no time."

    @pytest.mark.parametrize("beside_the_text", [False, True])
    async def test_calls_that_a_wrapper_finds_in_the_text_are_made_and_shown(self, *, beside_the_text: bool) -> None:
        agent = FunctionAgent(llm=CallsInText(beside_the_text=beside_the_text), tools=[add])
        events, output = await events_of(agent, "What is 2 + 40?")
        shown = [event.tool_calls[0].tool_kwargs for event in events if getattr(event, "tool_calls", None)]
        assert shown[0] == {"a": 2, "b": 40}
        assert isinstance(next(event for event in events if getattr(event, "tool_calls", None)), AgentStream)
        assert [event.tool_kwargs for event in events if isinstance(event, ToolCall)] == [{"a": 2, "b": 40}]
        assert str(output) == "done"

    async def test_without_streaming_there_are_no_pieces(self) -> None:
        events, output = await events_of(FunctionAgent(llm=ScriptedLLM(["hello"]), streaming=False), "hi")
        assert not [event for event in events if isinstance(event, AgentStream)]
        assert str(output) == "hello"

    async def test_the_model_sees_system_prompt_history_and_message(self) -> None:
        llm = ScriptedLLM(["fine"])
        agent = FunctionAgent(llm=llm, system_prompt="Be brief.")
        await agent.run(
            "How are you?", chat_history=[ChatMessage("hello"), ChatMessage("hi", role=MessageRole.ASSISTANT)]
        )
        assert [str(message) for message in llm.requests[0].messages] == [
            "system: Be brief.", "user: hello", "assistant: hi", "user: How are you?",
        ]  # fmt: skip

    async def test_an_answer_on_the_last_allowed_step_is_an_answer(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM([tool_call("add", a=1, b=1), "2"]), tools=[add])
        assert str(await agent.run("1 + 1?", max_iterations=2)) == "2"

    async def test_too_many_steps_are_an_error_that_says_what_to_do(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM([tool_call("add", a=1, b=1)] * 3), tools=[add])
        said = r"Max iterations of 2 reached.*early_stopping_method='generate'"
        with pytest.raises(WorkflowRuntimeError, match=said):
            await agent.run("1 + 1?", max_iterations=2)

    async def test_generate_answers_from_what_was_gathered(self) -> None:
        llm = ScriptedLLM([tool_call("add", a=1, b=1), tool_call("add", a=2, b=2), "I found 2."])
        agent = FunctionAgent(llm=llm, tools=[add])
        output = await agent.run("1 + 1?", max_iterations=2, early_stopping_method="generate")
        assert str(output) == "I found 2."
        shown = [str(message) for message in llm.requests[-1].messages]
        assert "tool: 2" in shown
        assert not llm.requests[-1].tools

    async def test_state_is_shown_to_the_model_and_never_written_into_the_memory(self) -> None:
        llm = ScriptedLLM(["ok"])
        handler = FunctionAgent(llm=llm, initial_state={"mood": "calm"}).run("hello")
        await handler
        assert "calm" in (llm.requests[0].messages[-1].content or "")
        memory = await handler.ctx.store.get("memory")
        assert [message.content for message in memory.get_all()] == ["hello", "ok"]

    async def test_nothing_to_answer_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="Must provide either user_msg or chat_history"):
            await FunctionAgent(llm=ScriptedLLM(["ok"])).run()

    async def test_without_a_model_the_error_says_how_to_give_one(self) -> None:
        with pytest.raises(WorkflowRuntimeError, match=r"Agent solo has no model: pass llm="):
            await FunctionAgent(name="solo").run("hello")

    def test_synchronously(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM([tool_call("add", a=2, b=40), "42"]), tools=[add])
        assert str(agent.run_sync("What is 2 + 40?")) == "42"


class TestTools:
    async def test_every_call_gets_one_result_shown_in_the_order_of_the_calls(self) -> None:
        turn = [
            tool_call("slow", seconds=0.02),
            tool_call("nope"),
            tool_call("fail", reason="no"),
            tool_call("add", a=1, b="x"),
        ]
        llm = ScriptedLLM([turn, "done"])
        events, output = await events_of(FunctionAgent(llm=llm, tools=[slow, fail, add]), "go")
        asked = [call.tool_id for call in next(event for event in events if isinstance(event, AgentOutput)).tool_calls]
        answers = [message for message in llm.requests[1].messages if message.role == MessageRole.TOOL]
        assert [message.additional_kwargs["tool_call_id"] for message in answers] == asked
        texts = [message.content or "" for message in answers]
        assert texts[0] == "slept 0.02"
        assert texts[1].startswith("Tool nope not found. Please select a tool that is available.")
        assert texts[2] == "no"
        assert "valid integer" in texts[3]
        assert [result.tool_output.is_error for result in output.tool_calls] == [False, True, True, True]
        assert [message.additional_kwargs.get("is_error", False) for message in answers] == [False, True, True, True]

    async def test_calls_of_one_answer_run_at_the_same_time(self) -> None:
        llm = ScriptedLLM([[tool_call("slow", seconds=0.05), tool_call("slow", seconds=0.01)], "done"])
        events, _ = await events_of(FunctionAgent(llm=llm, tools=[slow]), "go")
        ended = [event.tool_kwargs["seconds"] for event in events if isinstance(event, ToolCallResult)]
        assert ended == [0.01, 0.05]

    async def test_arguments_are_validated_and_converted_before_the_body_runs(self) -> None:
        llm = ScriptedLLM([tool_call("add", a="2", b=40), "42"])
        events, _ = await events_of(FunctionAgent(llm=llm, tools=[add]), "go")
        result = next(event for event in events if isinstance(event, ToolCallResult))
        assert result.tool_output.raw_output == 42

    async def test_a_direct_tool_ends_the_run_with_its_output(self) -> None:
        llm = ScriptedLLM([tool_call("add", a=2, b=40)])
        output = await FunctionAgent(llm=llm, tools=[FunctionTool.from_defaults(add, return_direct=True)]).run("go")
        assert (str(output), output.raw) == ("42", 42)

    async def test_the_pictures_of_a_direct_tool_are_in_the_answer_and_in_words_in_the_memory(self) -> None:
        def draw() -> list[Any]:
            """Draw the tides."""
            return [ImageBlock(image=b"GIF89a")]

        agent = FunctionAgent(
            llm=ScriptedLLM([tool_call("draw")]), tools=[FunctionTool.from_defaults(draw, return_direct=True)]
        )
        handler = agent.run("go")
        output = await handler
        assert [type(block) for block in output.response.blocks] == [ImageBlock]
        assert (await (await handler.ctx.store.get("memory")).aget())[-1].content == "[picture, image/gif]"

    async def test_a_direct_tool_that_fails_does_not_end_the_run(self) -> None:
        llm = ScriptedLLM([tool_call("fail", reason="no"), "It failed."])
        output = await FunctionAgent(llm=llm, tools=[FunctionTool.from_defaults(fail, return_direct=True)]).run("go")
        assert str(output) == "It failed."

    async def test_a_tool_shares_state_through_the_context(self) -> None:
        async def note(ctx: Context, text: str) -> str:
            """Note something."""
            await ctx.store.set("state.notes", [*await ctx.store.get("state.notes"), text])
            return "noted"

        llm = ScriptedLLM([tool_call("note", text="tides"), "ok"])
        handler = FunctionAgent(llm=llm, tools=[note], initial_state={"notes": []}).run("go")
        await handler
        assert await handler.ctx.store.get("state") == {"notes": ["tides"]}
        assert "ctx" not in llm.requests[0].tools[0].parameters["properties"]

    def test_a_tool_called_handoff_is_refused(self) -> None:
        def handoff(to: str) -> str:
            """Hand over."""
            return to

        with pytest.raises(ValueError, match="'handoff' is reserved"):
            FunctionAgent(tools=[handoff])

    async def test_a_model_that_cannot_call_tools_is_refused(self) -> None:
        from batonflow.llms import MockLLM

        with pytest.raises(ValueError, match="must be a FunctionCallingLLM"):
            await FunctionAgent(llm=MockLLM(), tools=[add]).run("go")


class TestPeople:
    async def test_a_waiting_tool_runs_once_and_its_siblings_too(self) -> None:
        entered: list[str] = []

        async def ask(ctx: Context) -> str:
            """Ask."""
            entered.append("ask")
            answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="sure?"))
            return str(answer.response)

        def other() -> str:
            """Something else."""
            entered.append("other")
            return "x"

        llm = ScriptedLLM([[tool_call("ask"), tool_call("other")], "done"])
        handler = FunctionAgent(llm=llm, tools=[ask, other]).run("go")
        calls = 0
        async for event in handler.stream_events():
            calls += isinstance(event, ToolCall)
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        output = await handler
        assert sorted(entered) == ["ask", "other"]
        assert calls == 2
        assert [result.tool_output.content for result in output.tool_calls] == ["yes", "x"]

    async def test_a_run_goes_on_in_another_process_from_json(self) -> None:
        async def ask(ctx: Context) -> str:
            """Ask."""
            answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="sure?"))
            return str(answer.response)

        first = FunctionAgent(llm=ScriptedLLM([tool_call("ask")]), tools=[ask])
        handler = first.run("go")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                break
        snapshot = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        second = FunctionAgent(llm=ScriptedLLM(["Understood."]), tools=[ask])
        restored = second.run(ctx=Context.from_dict(second, snapshot))
        restored.ctx.send_event(HumanResponseEvent(response="yes"))
        output = await restored
        assert str(output) == "Understood."
        assert [result.tool_output.content for result in output.tool_calls] == ["yes"]


class TestMemory:
    async def test_a_second_run_with_one_context_continues_the_conversation(self) -> None:
        llm = ScriptedLLM([tool_call("add", a=1, b=1), "2", "You asked for 1 + 1."])
        agent = FunctionAgent(llm=llm, tools=[add])
        ctx: Context[Any] = Context(agent)
        await agent.run("1 + 1?", ctx=ctx)
        await agent.run("What did I ask?", ctx=ctx)
        assert roles(llm.requests[-1].messages) == ["user", "assistant", "tool", "assistant", "user"]

    async def test_the_conversation_survives_json(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM(["hello", "still here"]))
        handler = agent.run("hi")
        await handler
        ctx: Context[Any] = Context.from_dict(agent, json.loads(json.dumps(handler.ctx.to_dict())))
        again = agent.run("there?", ctx=ctx)
        await again
        memory = await again.ctx.store.get("memory")
        assert [message.content for message in memory.get_all()] == ["hi", "hello", "there?", "still here"]

    async def test_a_memory_given_to_run_wins(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM(["a", "b"]))
        ctx: Context[Any] = Context(agent)
        await agent.run("first", ctx=ctx)
        memory = ChatMemoryBuffer.from_defaults(chat_history=[ChatMessage("from elsewhere")])
        await agent.run("second", ctx=ctx, memory=memory)
        assert [message.content for message in memory.get_all()] == ["from elsewhere", "second", "b"]


class TestInputEvents:
    async def test_the_agent_says_what_it_shows_to_the_model(self) -> None:
        llm = ScriptedLLM(["ok"])
        events, _ = await events_of(FunctionAgent(llm=llm, system_prompt="Be kind."), "hello")
        shown = next(event for event in events if isinstance(event, AgentInput))
        assert shown.input == llm.requests[0].messages


class TestUsage:
    async def test_each_answer_says_what_it_took_and_the_result_what_the_run_took(self) -> None:
        agent = FunctionAgent(name="adder", llm=ScriptedLLM([tool_call("add", a=2, b=40), "It is 42."]), tools=[add])
        events, output = await events_of(agent, "What is 2 + 40?")
        answers = [event.usage for event in events if isinstance(event, AgentOutput)]
        first, last = answers
        assert isinstance(first, Usage)
        assert isinstance(last, Usage)
        assert first.output_tokens > 0
        assert output.usage == first + last
        assert output.usage_by_agent == {"adder": output.usage}

    async def test_a_second_run_counts_anew(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM(["one two", "three"]))
        ctx = Context[Any](agent)
        taken = [(await agent.run("Hello", ctx=ctx)).usage.output_tokens for _ in range(2)]
        assert taken == [2, 1]

    async def test_an_early_stop_counts_its_answer_too(self) -> None:
        llm = ScriptedLLM([tool_call("add", a=1, b=1), "two"])
        output = await FunctionAgent(llm=llm, tools=[add]).run(
            "1 + 1?", max_iterations=1, early_stopping_method="generate"
        )
        assert len(llm.requests) == 2
        assert output.usage.output_tokens > 1


async def test_arguments_that_are_no_json_are_shown_to_the_model_which_calls_again() -> None:
    llm = ScriptedLLM([tool_call("add", a=2, b=40), "It is 42."], faults=Faults(seed=4, malformed=0.5))
    events, output = await events_of(FunctionAgent(llm=llm, tools=[add]), "What is 2 + 40?")
    results = [event.tool_output for event in events if isinstance(event, ToolCallResult)]
    assert len(results) > 1
    assert [result.is_error for result in results] == [*[True] * (len(results) - 1), False]
    assert "not a JSON object" in results[0].content
    assert str(output) == "It is 42."


class TestStreamText:
    async def test_only_what_the_model_says_to_any_number_of_readers(self) -> None:
        llm = ScriptedLLM([["Let me add.", tool_call("add", a=2, b=40)], "It is 42."])
        handler = FunctionAgent(llm=llm, tools=[add]).run("What is 2 + 40?")
        first = [text async for text in handler.stream_text()]
        assert str(await handler) == "It is 42."
        assert "".join(first) == "Let me add.It is 42."
        assert [text async for text in handler.stream_text()] == first
        assert len([event async for event in handler.stream_events()]) > len(first)

    async def test_agents_behind_tools_are_left_out_and_teams_in_the_place_of_agents_are_not(self) -> None:
        def handoff(name: str) -> list[Any]:
            return [tool_call("handoff", to_agent=name, reason="your turn")]

        helper = FunctionAgent(name="helper", llm=ScriptedLLM(["I help.", "I help again."]))
        inner = FunctionAgent(
            name="inner",
            description="Is inside.",
            llm=ScriptedLLM([["Let me ask.", *[tool_call("helper", input=said) for said in "?!"]], "Inside."]),
            tools=[helper.as_tool()],
        )
        first = FunctionAgent(name="first", description="Begins.", llm=ScriptedLLM([["You!", *handoff("inside")]]))
        inside = AgentWorkflow(agents=[inner], name="inside", description="A team inside.")
        team = AgentWorkflow(agents=[first, inside], root_agent="first")
        handler = team.run("Go.")
        assert "".join([text async for text in handler.stream_text()]) == "You!Let me ask.Inside."
        assert str(await handler) == "Inside."

    async def test_an_error_is_raised_by_the_handler(self) -> None:
        handler = FunctionAgent(llm=ScriptedLLM(["Hel", ValueError("no")]), tools=[add]).run("Hello?")
        assert [text async for text in handler.stream_text()] == ["Hel"]
        assert str(await handler) == "Hel"
        failing = FunctionAgent(llm=ScriptedLLM([ValueError("no")])).run("Hello?")
        assert [text async for text in failing.stream_text()] == []
        with pytest.raises(ValueError, match="no"):
            await failing


class Tide(BaseModel):
    hour: int
    metres: float


class HeldToForms(ScriptedLLM):
    """A scripted model whose answers can be held to a JSON schema, as those of the large vendors can."""

    @property
    def native_output_schema(self) -> bool:
        return True


class TestStructuredAnswers:
    async def test_a_model_that_can_be_held_to_the_form_is_asked_once(self) -> None:
        llm = HeldToForms([tool_call("add", a=2, b=4), '{"hour": 6, "metres": 5.4}'])
        events, output = await events_of(FunctionAgent(llm=llm, tools=[add], output_cls=Tide), "When?")
        assert output.structured_response == {"hour": 6, "metres": 5.4}
        assert output.get_pydantic_model(Tide) == Tide(hour=6, metres=5.4)
        assert len(llm.requests) == 2
        assert all(request.output_schema is not None for request in llm.requests)
        assert [event.output for event in events if isinstance(event, AgentStreamStructuredOutput)] == [
            {"hour": 6, "metres": 5.4}
        ]

    async def test_another_model_is_asked_for_the_form_of_its_answer(self) -> None:
        llm = ScriptedLLM(["High tide is at six.", tool_call("Tide", hour=6, metres=5.4)])
        output = await FunctionAgent(llm=llm, output_cls=Tide).run("When?")
        assert (str(output), output.structured_response) == ("High tide is at six.", {"hour": 6, "metres": 5.4})
        assert llm.requests[0].output_schema is None

    async def test_an_answer_that_has_the_form_already_is_taken(self) -> None:
        llm = ScriptedLLM(['{"hour": 6, "metres": 5.4}'])
        output = await FunctionAgent(llm=llm, output_cls=Tide).run("When?")
        assert output.structured_response == {"hour": 6, "metres": 5.4}

    async def test_an_answer_that_breaks_the_form_is_asked_for_again(self) -> None:
        llm = HeldToForms(['{"hour": "six"}', '{"hour": 6, "metres": 5.4}'])
        output = await FunctionAgent(llm=llm, output_cls=Tide).run("When?")
        assert output.structured_response == {"hour": 6, "metres": 5.4}


class TestPauses:
    async def test_an_answer_that_pauses_is_asked_for_further(self) -> None:
        llm = Pausing(answers=[["I look. ", "I read. ", "It is high at six."]])
        agent, ctx = FunctionAgent(llm=llm), Context[Any](FunctionAgent(llm=llm))
        output = await agent.run("Search for it.", ctx=ctx)
        assert llm.seen[-1] == ["Search for it.", "I look. I read. "]
        assert str(output) == "I look. I read. It is high at six."
        kept = await (await ctx.store.get("memory")).aget_all()
        assert [message.content for message in kept] == ["Search for it.", str(output)]

    @pytest.mark.parametrize("streaming", [True, False])
    async def test_so_it_is_by_the_other_agents(self, streaming: bool) -> None:
        llm = Pausing(answers=[["Thought: I look.\nAns", "wer: At six."]])
        assert str(await ReActAgent(llm=llm, streaming=streaming).run("When?")) == "At six."
        llm = Pausing(answers=[["I count.", "<execute>2 + 40</execute>"], ["It is ", "42."]])
        agent = CodeActAgent(llm=llm, code_execute_fn=lambda code: f"{code} is run", streaming=streaming)
        assert str(await agent.run("Count.")) == "It is 42."
        assert "2 + 40 is run" in str(llm.seen[2][-1])

    async def test_an_answer_asked_for_early_may_pause_too(self) -> None:
        llm = Pausing(answers=[["Thought: I look.\n", "Action: look\nAction Input: {}"], ["Seen it. ", "At six."]])
        agent = ReActAgent(llm=llm, early_stopping_method="generate")
        assert str(await agent.run("When?", max_iterations=1)) == "Seen it. At six."
        llm = Pausing(answers=[["I count.", "<execute>2 + 40</execute>"], ["It is ", "42."]])
        code = CodeActAgent(llm=llm, code_execute_fn=str, early_stopping_method="generate")
        assert str(await code.run("Count.", max_iterations=1)) == "It is 42."

    async def test_nothing_is_kept_of_one_that_is_blocked(self) -> None:
        llm = Pausing(answers=[["part 1", "part 2", "part 3"]])
        agent = FunctionAgent(llm=llm, output_guards=[lambda _ctx, _message: Block("Not that.")])
        ctx: Context[Any] = Context(agent)
        assert str(await agent.run("Search for it.", ctx=ctx)) == "Not that."
        kept = await (await ctx.store.get("memory")).aget_all()
        assert [message.content for message in kept if "part" in str(message.content)] == []

    async def test_not_for_ever(self) -> None:
        llm = Pausing(answers=[[f"and then {number}" for number in range(100)]])
        with pytest.raises(WorkflowRuntimeError, match="Agent Agent: the model paused its answer 20 times"):
            await FunctionAgent(llm=llm).run("Search for it.")
        assert len(llm.seen) == 20


class Ending(FunctionCallingLLM):
    """Its first answer ends for a reason, the next one is whole."""

    reason: str
    first: list[Any] = Field(exclude=True)

    _asked: list[ChatRequest] = PrivateAttr(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        self._asked.append(request)
        for event in self.first if len(self._asked) == 1 else [TextDelta(text="done")]:
            yield event
        yield Finish(reason=self.reason if len(self._asked) == 1 else "stop")


class TestAnswersThatAreNotWhole:
    @staticmethod
    def call(number: int, arguments: str) -> ToolCallDelta:
        return ToolCallDelta(index=number, id=f"c{number}", name="wipe", arguments=arguments)

    @pytest.mark.parametrize(
        ("reason", "expected", "words"),
        [
            ("length", ["/a"], "limit of its length"),
            ("refusal", [], r"before it was whole \(refusal\)"),
            ("content_filter", [], r"before it was whole \(content_filter\)"),
            ("tool_calls", ["/a", "/"], ""),
        ],
    )
    async def test_calls_that_may_not_be_what_the_model_wanted_are_not_made(
        self, reason: str, expected: list[str], words: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        wiped: list[str] = []

        def wipe(folder: str = "/") -> str:
            """Delete a folder."""
            wiped.append(folder)
            return "wiped"

        llm = Ending(reason=reason, first=[self.call(0, '{"folder": "/a"}'), self.call(1, "")])
        output = await FunctionAgent(llm=llm, tools=[wipe]).run("Wipe /a and /b.")
        assert (str(output), sorted(wiped)) == ("done", sorted(expected))  # the tools run in threads side by side
        assert "stop_reason" not in output
        said = [message.content for message in llm._asked[1].messages if message.role == "tool"]
        assert len(said) == 2
        assert re.search(words, str(said[-1]))
        assert ("is not whole" in caplog.text) is bool(words)

    async def test_calls_that_a_subclass_adds_are_made(self) -> None:
        class Adds(FunctionAgent):
            async def take_step(self, *args: Any, **kwargs: Any) -> AgentOutput:
                output = await super().take_step(*args, **kwargs)
                if output.tool_calls:
                    output.tool_calls.append(ToolSelection(tool_id="mine", tool_name="wipe", tool_kwargs={}))
                return output

        wiped: list[str] = []

        def wipe(folder: str = "mine") -> str:
            """Delete a folder."""
            wiped.append(folder)
            return "wiped"

        llm = Ending(reason="length", first=[self.call(0, "")])
        await Adds(llm=llm, tools=[wipe]).run("Wipe it.")
        assert wiped == ["mine"]

    @pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent, CodeActAgent])
    async def test_the_output_says_why_its_answer_is_not_whole(self, kind: type[BaseWorkflowAgent]) -> None:
        llm = Ending(reason="length", first=[TextDelta(text="Thought: Easy.\nAnswer: Half an ans")])
        output = await kind(llm=llm).run("What is a tide?")
        assert str(output).endswith("Half an ans")
        assert output.get("stop_reason") == "length"


class TestUnreadStreams:
    async def test_memory_grows_with_the_text_and_not_with_its_square(self) -> None:
        async def held(pieces: int) -> int:
            return await held_by_a_stream(FunctionAgent(llm=ScriptedLLM(["tide " * pieces], chunk_size=5)), pieces)

        await held(100)
        few, many = await held(1_000), await held(8_000)
        assert many < 10 * few

    async def test_of_a_model_that_makes_its_messages_itself(self) -> None:
        async def held(pieces: int) -> int:
            return await held_by_a_stream(FunctionAgent(llm=Cumulative(text="tide " * pieces)), pieces)

        await held(100)
        few, many = await held(1_000), await held(8_000)
        assert many < 10 * few

    @pytest.mark.parametrize("one_message", [False, True])
    @pytest.mark.parametrize("prefix", ["", "Hm. "])
    async def test_each_piece_tells_the_text_so_far_whatever_the_model_does(
        self, one_message: bool, prefix: str
    ) -> None:
        text = "".join(f"{number:04} " for number in range(400))
        agent = FunctionAgent(llm=Cumulative(text=text, one_message=one_message, prefix=prefix))
        events, _ = await events_of(agent, "go")
        told = [event.response for event in events if isinstance(event, AgentStream)]
        assert told == [prefix * (number % 2) + text[: 5 * number + 5] for number in range(400)]
