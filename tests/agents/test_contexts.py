"""AgentContext and SimpleAgentContext: one step of an agent's thinking without a run."""

import dataclasses
from typing import Any

import pytest

from batonflow.agents import AgentContext, FunctionAgent, ReActAgent, SimpleAgentContext
from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
from batonflow.workflow_core import Context, StartEvent, StopEvent, Workflow, step


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def one_step(agent: FunctionAgent | ReActAgent, ctx: Any) -> Any:
    return await agent.take_step(ctx, [ChatMessage("What is 2 + 40?")], await agent.get_tools(), ChatMemoryBuffer())


async def test_it_keeps_state_and_streams_to_nobody() -> None:
    ctx = SimpleAgentContext()
    await ctx.store.set("a.b", 1)
    assert await ctx.store.get("a.b") == 1
    assert await ctx.store.get("c", default=3) == 3
    assert ctx.is_running is False
    ctx.write_event_to_stream(StopEvent(result=1))
    assert await SimpleAgentContext().store.get("a", default=None) is None


def test_its_fields_stay_what_they_are() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SimpleAgentContext().is_running = True  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_function_agent_thinks_in_it() -> None:
    ctx = SimpleAgentContext()
    output = await one_step(FunctionAgent(llm=ScriptedLLM([tool_call("add", a=2, b=40)]), tools=[add]), ctx)
    assert [(call.tool_name, call.tool_kwargs) for call in output.tool_calls] == [("add", {"a": 2, "b": 40})]
    assert len(await ctx.store.get("scratchpad")) == 1


async def test_a_react_agent_thinks_in_it() -> None:
    ctx = SimpleAgentContext()
    text = 'Thought: I add.\nAction: add\nAction Input: {"a": 2, "b": 40}'
    output = await one_step(ReActAgent(llm=ScriptedLLM([text]), tools=[add]), ctx)
    assert [(call.tool_name, call.tool_kwargs) for call in output.tool_calls] == [("add", {"a": 2, "b": 40})]
    assert len(await ctx.store.get("current_reasoning")) == 1


class Look(Workflow):
    @step
    async def look(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=isinstance(ctx, AgentContext))


async def test_contexts_are_told_from_other_objects_within_a_step_too() -> None:
    assert isinstance(SimpleAgentContext(), AgentContext)
    assert isinstance(Context(Look()), AgentContext)
    assert await Look().run() is True
    assert not isinstance(object(), AgentContext)
    assert not isinstance(Look(), AgentContext)
