"""A conversation goes on after a run that failed: what was done comes before what is said then."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batonflow.agents import (
    AgentOutput,
    AgentWorkflow,
    AgentWorkflowStartEvent,
    BaseWorkflowAgent,
    Budget,
    BudgetExceededError,
    CodeActAgent,
    FunctionAgent,
    ReActAgent,
    ToolCall,
    ToolCallResult,
)
from batonflow.agents.memory import BaseMemory, ChatMemoryBuffer, SQLiteChatStore
from batonflow.agents.prompts import CALL_CUT_OFF
from batonflow.llms import ChatMessage, ScriptedLLM, ToolCallBlock, tool_call
from batonflow.llms.stream import ChatRequest
from batonflow.tools import AsyncBaseTool
from batonflow.workflow_core import Context, WorkflowCancelledByUser, WorkflowTimeoutError


def search(topic: str) -> str:
    """Look something up."""
    return f"all about {topic}"


async def slow() -> str:
    """Take long."""
    await asyncio.sleep(60)
    return "never"


def find(*topics: str) -> list[Any]:
    return [tool_call("search", topic=topic) for topic in topics]


async def fail(made: Any, ctx: Context[Any], question: str = "One?", **options: Any) -> None:
    with pytest.raises((OSError, BudgetExceededError)):
        await made.run(question, ctx=ctx, **options)


async def cancel_after(begun: asyncio.Event, handler: Any) -> None:
    await begun.wait()
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler


def shown(llm: ScriptedLLM) -> list[tuple[str, str]]:
    return [(message.role.value, message.content or "") for message in llm.requests[-1].messages]


class TestTheTurn:
    @pytest.mark.parametrize("restored", [False, True])
    async def test_comes_before_the_next_question(self, restored: bool) -> None:
        llm = ScriptedLLM([find("tides"), OSError("no line"), "Done."])
        made = FunctionAgent(llm=llm, tools=[search])
        ctx: Context[Any] = Context(made)
        await fail(made, ctx)
        if restored:
            ctx = Context.from_dict(made, json.loads(json.dumps(ctx.to_dict())))
        assert str(await made.run("Two?", ctx=ctx)) == "Done."
        assert shown(llm) == [("user", "One?"), ("assistant", ""), ("tool", "all about tides"), ("user", "Two?")]

    async def test_has_a_result_for_every_call(self) -> None:
        llm = ScriptedLLM([find("a", "b"), "Done."])
        made = FunctionAgent(llm=llm, tools=[search])
        ctx: Context[Any] = Context(made)
        await fail(made, ctx, budget=Budget(max_tool_calls=1))
        await made.run("Two?", ctx=ctx)
        assert [role for role, _ in shown(llm)] == ["user", "assistant", "tool", "tool", "user"]
        told = {text for role, text in shown(llm) if role == "tool"}
        refused = "Tool search was not run: what may be spent on this task is used up (max_tool_calls=1)."
        assert any(text.startswith(refused) for text in told)

    async def test_is_not_told_where_another_memory_begins(self) -> None:
        llm = ScriptedLLM([find("tides"), OSError("no line"), "Done."])
        made = FunctionAgent(llm=llm, tools=[search])
        ctx: Context[Any] = Context(made)
        await fail(made, ctx)
        await made.run("Two?", ctx=ctx, memory=ChatMemoryBuffer.from_defaults())
        assert shown(llm) == [("user", "Two?")]

    async def test_of_a_team_is_that_of_who_acted_last(self) -> None:
        handoff = tool_call("handoff", to_agent="second", reason="it knows")
        llm = ScriptedLLM([find("tides"), OSError("no line"), "Done."])
        first = FunctionAgent(name="first", description="First.", llm=ScriptedLLM([handoff]))
        second = FunctionAgent(name="second", description="Second.", llm=llm, tools=[search])
        team = AgentWorkflow(agents=[first, second], root_agent="first")
        ctx: Context[Any] = Context(team)
        await fail(team, ctx)
        output = await team.run("Two?", ctx=ctx)
        assert (str(output), output.current_agent_name) == ("Done.", "second")
        assert [role for role, _ in shown(llm)] == ["user", "assistant", "tool", "assistant", "tool", "user"]

    async def test_of_an_agent_that_reasons_in_text(self) -> None:
        turns = [
            'Thought: Look.\nAction: search\nAction Input: {"topic": "tides"}',
            OSError("no line"),
            "Thought: So.\nAnswer: Done.",
        ]
        llm = ScriptedLLM(turns)
        made = ReActAgent(llm=llm, tools=[search])
        ctx: Context[Any] = Context(made)
        await fail(made, ctx)
        assert str(await made.run("Two?", ctx=ctx)) == "Done."
        texts = [text for _, text in shown(llm)]
        assert texts[-1] == "Two?"
        assert any("all about tides" in text for text in texts[:-1])

    async def test_of_an_agent_that_writes_code(self) -> None:
        code = "<execute>\nprint(await search(topic='tides'))\n</execute>"
        llm = ScriptedLLM([code, OSError("no line"), "Done."])
        made = CodeActAgent(llm=llm, tools=[search])
        ctx: Context[Any] = Context(made)
        await fail(made, ctx)
        assert str(await made.run("Two?", ctx=ctx)) == "Done."
        texts = [text for _, text in shown(llm)]
        assert texts[-1] == "Two?"
        assert any("all about tides" in text for text in texts[:-1])

    @pytest.mark.parametrize(
        ("kind", "turn", "role"),
        [
            (FunctionAgent, tool_call("search_long", topic="tides"), "tool"),
            (ReActAgent, 'Thought: Look.\nAction: search_long\nAction Input: {"topic": "tides"}', "user"),
            (CodeActAgent, "<execute>\nprint(await search_long(topic='tides'))\n</execute>", "user"),
        ],
    )
    @pytest.mark.parametrize("restored", [False, True])
    async def test_a_call_that_a_cancelled_run_was_at_has_a_result_too(
        self, kind: Any, turn: Any, role: str, *, restored: bool
    ) -> None:
        begun = asyncio.Event()

        async def search_long(topic: str) -> str:
            """Look something up, for a long time."""
            begun.set()
            await asyncio.sleep(60)
            return topic

        llm = ScriptedLLM([turn, "Thought: So.\nAnswer: Done."])
        made = kind(llm=llm, tools=[search_long])
        ctx: Context[Any] = Context(made)
        handler = made.run("One?", ctx=ctx)
        await cancel_after(begun, handler)
        if restored:
            ctx = Context.from_dict(made, json.loads(json.dumps(ctx.to_dict())))
        assert "Done." in str(await made.run("Two?", ctx=ctx))
        *_, said, observed, asked = shown(llm)
        assert said[0] == "assistant"
        assert observed[0] == role
        assert observed[1].endswith(CALL_CUT_OFF)
        assert asked == ("user", "Two?")

    @pytest.mark.parametrize("end", ["cancel", "timeout", "budget"])
    @pytest.mark.parametrize("restored", [False, True])
    async def test_what_a_call_gave_beside_one_that_was_cut_off_is_told(self, end: str, *, restored: bool) -> None:
        llm = ScriptedLLM([[tool_call("slow"), tool_call("search", topic="tides")], "Done."])
        limits: dict[str, Any] = {"timeout": {"timeout": 0.2}, "budget": {"budget": Budget(seconds=0.2)}}.get(end, {})
        made = FunctionAgent(llm=llm, tools=[search, slow], **limits)
        ctx: Context[Any] = Context(made)
        handler = made.run("One?", ctx=ctx)
        async for event in handler.stream_events():
            if isinstance(event, ToolCallResult) and event.tool_name == "search" and end == "cancel":
                await asyncio.sleep(0.05)
                await handler.cancel_run()
        with pytest.raises((WorkflowCancelledByUser, WorkflowTimeoutError, BudgetExceededError)):
            await handler
        if restored:
            ctx = Context.from_dict(made, json.loads(json.dumps(ctx.to_dict())))
        made = FunctionAgent(llm=llm, tools=[search, slow])
        assert str(await made.run("Two?", ctx=ctx)) == "Done."
        assert shown(llm)[2:] == [("tool", CALL_CUT_OFF), ("tool", "all about tides"), ("user", "Two?")]

    async def test_has_a_result_for_every_call_of_a_model_that_uses_ids_twice(self) -> None:
        same = ToolCallBlock(tool_call_id="call_same", tool_name="search", tool_kwargs={"topic": "tides"})
        again = ToolCallBlock(tool_call_id="call_same", tool_name="slow", tool_kwargs={})
        llm = ScriptedLLM([same, again, "Done."])
        made = FunctionAgent(llm=llm, tools=[search, slow])
        ctx: Context[Any] = Context(made)
        handler = made.run("One?", ctx=ctx)
        async for event in handler.stream_events():
            if isinstance(event, ToolCall) and event.tool_name == "slow":
                await handler.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await handler
        assert str(await made.run("Two?", ctx=ctx)) == "Done."
        told = [("assistant", ""), ("tool", "all about tides"), ("assistant", ""), ("tool", CALL_CUT_OFF)]
        assert shown(llm) == [("user", "One?"), *told, ("user", "Two?")]

    @pytest.mark.parametrize("restored", [False, True])
    async def test_has_the_result_of_each_call_where_several_of_an_answer_have_one_id(self, restored: bool) -> None:
        async def wait(seconds: float) -> str:
            """Wait."""
            await asyncio.sleep(seconds)
            return f"waited {seconds}"

        def call(seconds: float) -> ToolCallBlock:
            return ToolCallBlock(tool_call_id="same", tool_name="wait", tool_kwargs={"seconds": seconds})

        llm = ScriptedLLM([[call(60), call(0), call(61)], "Done."])
        made = FunctionAgent(llm=llm, tools=[wait])
        ctx: Context[Any] = Context(made)
        handler = made.run("One?", ctx=ctx)
        async for event in handler.stream_events():
            if isinstance(event, ToolCallResult):
                await asyncio.sleep(0.05)
                await handler.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await handler
        if restored:
            ctx = Context.from_dict(made, json.loads(json.dumps(ctx.to_dict())))
        assert str(await made.run("Two?", ctx=ctx)) == "Done."
        assert shown(llm)[2:] == [
            ("tool", CALL_CUT_OFF), ("tool", "waited 0.0"), ("tool", CALL_CUT_OFF), ("user", "Two?"),
        ]  # fmt: skip

    async def test_that_was_written_down_when_it_was_cancelled_is_there_once(self, tmp_path: Path) -> None:
        stops: list[asyncio.Task[None]] = []

        class Stops(SQLiteChatStore):
            """Cancels the run while the turn is being written."""

            async def aadd_messages(self, key: str, messages: Sequence[ChatMessage]) -> None:
                if len(messages) > 1 and not stops:
                    stops.append(asyncio.create_task(handler.cancel_run()))
                await super().aadd_messages(key, messages)

        llm = ScriptedLLM([find("tides"), "Five metres.", "Done."])
        made = FunctionAgent(llm=llm, tools=[search])
        ctx: Context[Any] = Context(made)
        memory = ChatMemoryBuffer.from_defaults(chat_store=Stops(tmp_path / "chats.db"))
        handler = made.run("One?", ctx=ctx, memory=memory)
        with pytest.raises(WorkflowCancelledByUser):
            await handler
        assert str(await made.run("Two?", ctx=ctx)) == "Done."
        assert [role for role, _ in shown(llm)] == ["user", "assistant", "tool", "assistant", "user"]

    async def test_of_an_agent_of_one_s_own(self) -> None:
        made = Notebook(llm=ScriptedLLM([OSError("no line"), "Done."]))
        ctx: Context[Any] = Context(made)
        await fail(made, ctx)
        assert str(await made.run("Two?", ctx=ctx)) == "Done."
        kept = await (await ctx.store.get("memory")).aget_all()
        assert [message.content for message in kept] == ["One?", "I begin.", "Two?", "I begin.", "Done."]


class Notebook(BaseWorkflowAgent):
    """Keeps what it says in a turn under a name of its own, and moves it into the memory at the end."""

    async def take_step(
        self, ctx: Context[Any], llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool], memory: BaseMemory
    ) -> AgentOutput:
        begun = ChatMessage("I begin.", role="assistant")
        await ctx.store.set("notes", [begun])
        said = (await self.the_llm().achat(llm_input)).message
        await ctx.store.set("notes", [begun, said])
        return AgentOutput(response=said, current_agent_name=self.name)

    async def handle_tool_call_results(
        self, ctx: Context[Any], results: list[ToolCallResult], memory: BaseMemory
    ) -> None: ...

    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        await memory.aput_messages(await self.unfinished(ctx))
        await ctx.store.set("notes", [])
        return output

    async def unfinished(self, ctx: Context[Any]) -> list[ChatMessage]:
        return await ctx.store.get("notes", default=[])


class TestACancelledRun:
    @staticmethod
    async def cancelled() -> tuple[FunctionAgent, Context[Any]]:
        begun = asyncio.Event()

        async def wait() -> str:
            """Wait."""
            if begun.is_set():
                return "waited"
            begun.set()
            await asyncio.sleep(60)
            return "never"

        made = FunctionAgent(llm=ScriptedLLM([tool_call("wait"), "Done.", "Done again."]), tools=[wait])
        ctx: Context[Any] = Context(made)
        handler = made.run("One?", ctx=ctx)
        await cancel_after(begun, handler)
        return made, ctx

    async def test_goes_on_when_what_was_given_with_a_message_was_refused(self) -> None:
        made, ctx = await self.cancelled()
        with pytest.raises(ValueError, match="memory is a BaseMemory"):
            made.run("Two?", ctx=ctx, memory=7)  # type: ignore[arg-type]
        assert ctx.is_resumable
        output = await made.run(ctx=ctx)
        assert [call.tool_output.content for call in output.tool_calls] == ["waited"]

    async def test_is_left_for_a_start_event_too(self) -> None:
        made, ctx = await self.cancelled()
        assert str(await made.run(ctx=ctx, start_event=AgentWorkflowStartEvent(user_msg="Two?"))) == "Done."
        kept = await (await ctx.store.get("memory")).aget_all()
        assert [message.content for message in kept if message.role == "user"] == ["One?", "Two?"]


class TestAResultOfMany:
    async def test_counts_once_when_its_turn_is_over_before_it_is_kept(self) -> None:
        stopped: list[str] = []

        async def hold(ctx: Context[Any]) -> str:
            """Edit the state until the other results wait to be kept."""
            async with ctx.store.edit_state():
                for _ in range(30):
                    await asyncio.sleep(0)
            return "held"

        async def stop(topic: str) -> str:
            """Cancel the run, once."""
            if not stopped:
                stopped.append(topic)
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            await asyncio.sleep(0.02)
            return f"stopped at {topic}"

        def answer(request: ChatRequest) -> Any:
            match [message.content for message in request.messages if message.role == "tool"]:
                case []:
                    return [*find("a", "b", "c"), tool_call("hold")]
                case [_, _, _, _]:
                    return tool_call("stop", topic="d")
                case results:
                    return " ".join(str(result) for result in results)

        def made() -> FunctionAgent:
            return FunctionAgent(llm=ScriptedLLM([answer] * 5), tools=[search, hold, stop])

        first = made().run("Go.")
        with pytest.raises(WorkflowCancelledByUser):
            await first
        payload = json.loads(json.dumps(first.ctx.to_dict()))
        again = made()
        output = await again.run(ctx=Context.from_dict(again, payload))
        assert str(output) == "all about a all about b all about c held stopped at d"
