"""The typed state of agents and teams, as type checkers see it."""

import asyncio
from dataclasses import dataclass
from typing import assert_type

from pydantic import BaseModel

from batonflow import AgentWorkflow, Context, FunctionAgent, RunContext, ScriptedLLM
from batonflow.agents import ToolCall, ToolCallResult
from batonflow.llms import tool_call
from batonflow.workflow_core import step


class Case(BaseModel):
    topics: list[str] = []
    count: int = 0


@dataclass
class Deps:
    user: str


async def note(ctx: Context[Case], topic: str) -> str:
    """Note a topic."""
    async with ctx.store.edit_state() as case:
        assert_type(case, Case)
        assert isinstance(case, Case)
        case.topics.append(topic)
    now = await ctx.store.get_state()
    assert_type(now.count, int)
    assert isinstance(now.count, int)
    return str(now.count)


async def sign(ctx: RunContext[Deps, Case]) -> str:
    """Sign the case."""
    with ctx.store.edit_state_sync() as case:
        assert_type(case, Case)
        assert isinstance(case, Case)
        case.topics.append(ctx.deps.user)
    return "signed"


class Counts(FunctionAgent[Deps]):
    @step
    async def call_tool(self, ctx: Context[Case], ev: ToolCall) -> ToolCallResult:
        async with ctx.store.edit_state() as case:
            case.count += 1
        return await super().call_tool(ctx, ev)


async def main() -> None:
    llm = ScriptedLLM([tool_call("note", topic="tides"), tool_call("sign"), "Done."] * 2)
    agent = Counts(name="clerk", description="Notes.", llm=llm, tools=[note, sign], deps_type=Deps, state=Case)
    handler = agent.run("Note.", deps=Deps("ann"))
    await handler
    case = await handler.state(Case)
    assert_type(case, Case)
    assert isinstance(case, Case)
    assert case == Case(topics=["tides", "ann"], count=2)

    team = AgentWorkflow([agent], deps_type=Deps, state=Case(count=40))
    led = team.run("Note.", deps=Deps("bob"), state=Case(count=40))
    await led
    assert (await led.state(Case)).count == 42


def errors(agent: FunctionAgent[object, str]) -> None:
    FunctionAgent(state=5)  # E
    AgentWorkflow([agent], state={"count": 1})  # E


async def wrong(ctx: Context[Case]) -> None:
    state = await ctx.store.get_state()
    state.cuont = 1  # E


if __name__ == "__main__":
    asyncio.run(main())
