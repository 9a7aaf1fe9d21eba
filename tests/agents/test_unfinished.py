"""A conversation goes on after a run that failed: what was done comes before what is said then."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from batonflow.agents import (
    AgentOutput,
    AgentWorkflow,
    BaseWorkflowAgent,
    Budget,
    BudgetExceededError,
    CodeActAgent,
    FunctionAgent,
    ReActAgent,
    ToolCallResult,
)
from batonflow.agents.memory import BaseMemory, ChatMemoryBuffer
from batonflow.agents.prompts import CALL_CUT_OFF
from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
from batonflow.tools import AsyncBaseTool
from batonflow.workflow_core import Context, WorkflowCancelledByUser


def search(topic: str) -> str:
    """Look something up."""
    return f"all about {topic}"


def find(*topics: str) -> list[Any]:
    return [tool_call("search", topic=topic) for topic in topics]


async def fail(made: Any, ctx: Context[Any], question: str = "One?", **options: Any) -> None:
    with pytest.raises((OSError, BudgetExceededError)):
        await made.run(question, ctx=ctx, **options)


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
        await begun.wait()
        await handler.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await handler
        if restored:
            ctx = Context.from_dict(made, json.loads(json.dumps(ctx.to_dict())))
        assert "Done." in str(await made.run("Two?", ctx=ctx))
        *_, said, observed, asked = shown(llm)
        assert said[0] == "assistant"
        assert observed[0] == role
        assert observed[1].endswith(CALL_CUT_OFF)
        assert asked == ("user", "Two?")

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
