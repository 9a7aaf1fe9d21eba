"""Dependencies of agents and teams, as type checkers see them."""

import asyncio
from dataclasses import dataclass
from typing import assert_type

from batonflow import AgentWorkflow, FunctionAgent, RunContext, ScriptedLLM
from batonflow.agents import AgentHandler, AgentResult
from batonflow.llms import tool_call


@dataclass
class Deps:
    user: str


async def whoami(ctx: RunContext[Deps]) -> str:
    """Return the user."""
    assert_type(ctx.deps, Deps)
    assert isinstance(ctx.deps, Deps)
    return ctx.deps.user


def scripted() -> ScriptedLLM:
    return ScriptedLLM([tool_call("whoami"), "Done."] * 2)


async def main() -> None:
    agent = FunctionAgent(name="a", description="A.", llm=scripted(), tools=[whoami], deps_type=Deps)
    handler = agent.run("Who am I?", deps=Deps("ann"))
    assert_type(handler, AgentHandler[str])
    assert isinstance(handler, AgentHandler)
    await handler

    counted = FunctionAgent(llm=ScriptedLLM(["[1]"]), deps_type=Deps, output_type=list[int])
    numbers = (await counted.run("Count.", deps=Deps("ann"))).output
    assert_type(numbers, list[int])
    assert isinstance(numbers, list)

    plain = FunctionAgent(name="b", description="B.", llm=ScriptedLLM(["Done."] * 2))
    await plain.run("Hello.")
    team = AgentWorkflow([agent, plain], root_agent="a", deps_type=Deps)
    text = (await team.run("Who am I?", deps=Deps("bob"))).output
    assert_type(text, str)
    assert isinstance(text, str)


def errors(agent: FunctionAgent[Deps, str], team: AgentWorkflow[Deps, str]) -> None:
    agent.run("Who am I?")  # E
    agent.run("Who am I?", deps=7)  # E
    team.run("Who am I?")  # E
    agent.run_sync("Who am I?")  # E
    agent.run_sync("Who am I?", deps=7)  # E
    team.run_sync(deps=Deps("ann"), max_iterations="3")  # E


async def made_by_the_agent() -> None:
    agent = FunctionAgent(llm=scripted(), tools=[whoami], deps_type=Deps, deps_for=lambda info: Deps(info.run_id))
    output = await agent.run("Who am I?", deps=None)
    assert_type(output, AgentResult[str])
    assert isinstance(output, AgentResult)


def at_once() -> None:
    agent = FunctionAgent(llm=scripted(), tools=[whoami], deps_type=Deps)
    output = agent.run_sync("Who am I?", deps=Deps("ann"), max_iterations=3)
    assert_type(output, AgentResult[str])
    assert isinstance(output, AgentResult)


if __name__ == "__main__":
    asyncio.run(main())
    at_once()
