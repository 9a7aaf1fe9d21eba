"""Toolsets, instructions, middleware and the choice of tools, as type checkers see them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_type

from batonflow import (
    AgentWorkflow,
    BaseTool,
    Context,
    FunctionAgent,
    FunctionTool,
    ReActAgent,
    RunContext,
    ScriptedLLM,
    Toolset,
    tool,
)
from batonflow.agents import AgentOutput, Middleware, ModelRequest, each_step
from batonflow.agents.middleware import CallModel
from batonflow.llms import tool_call
from batonflow.tools.mcp import MCPTools


@dataclass
class Deps:
    user: str


@dataclass
class Other:
    number: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Desk(Toolset[Deps]):
    async def tools(self, ctx: Context[Any, Deps]) -> Sequence[BaseTool]:
        assert_type(ctx.deps, Deps)
        assert isinstance(ctx.deps, Deps)
        return [FunctionTool.from_defaults(add)] if ctx.deps.user == "ann" else []


class Plain(Toolset):
    async def tools(self, ctx: Context) -> Sequence[BaseTool]:
        return [FunctionTool.from_defaults(add, name="plain_add")]


def is_ann(ctx: RunContext[Deps], one: BaseTool) -> bool:
    return ctx.deps.user == "ann" and one.metadata.name != ""


def large(ctx: RunContext[Deps], name: str, arguments: dict[str, Any]) -> bool:
    return name == "add" and arguments["a"] > len(ctx.deps.user)


def customer(ctx: RunContext[Deps]) -> str:
    return f"The customer is {ctx.deps.user}."


async def number(ctx: RunContext[Other]) -> str:
    return f"The number is {ctx.deps.number}."


def choice(ctx: RunContext[Deps]) -> str | None:
    return "auto" if ctx.deps.user else None


def acting(ctx: Context) -> str:
    assert ctx.agent is not None
    assert_type(ctx.agent.name, str)
    assert isinstance(ctx.agent.name, str)
    assert_type(ctx.agent.usage.total_tokens, int)
    assert isinstance(ctx.agent.usage.total_tokens, int)
    return ctx.agent.name


class Audit(Middleware[Deps]):
    async def around_model(self, ctx: Context[Any, Deps], request: ModelRequest, call_next: CallModel) -> AgentOutput:
        assert_type(ctx.deps, Deps)
        assert isinstance(ctx.deps, Deps)
        return await call_next(request)


class Quiet(Middleware):
    async def around_model(self, ctx: Context[Any], request: ModelRequest, call_next: CallModel) -> AgentOutput:
        return await call_next(request.with_(stream=False))


@tool(requires_approval=lambda arguments: arguments["a"] > 10)
def asked(a: int) -> int:
    """Ask."""
    return a


async def needs_clerk(ctx: Context[Any, Deps], arguments: dict[str, Any]) -> bool:
    return ctx.deps.user != "ann" and arguments["a"] > 10


def hide(ctx: Context[Any, Deps], one: BaseTool) -> BaseTool | None:
    return one if ctx.deps.user == "ann" else None


@tool(requires_approval=needs_clerk, prepare=hide)
def clerk(a: int) -> int:
    """Ask a clerk."""
    return a


async def main() -> None:
    desk = Desk().filtered(is_ann).approval_required(large).prefixed("desk_")
    assert_type(desk, Toolset[Deps])
    assert isinstance(desk, Toolset)
    agent = FunctionAgent(
        llm=ScriptedLLM([tool_call("plain_add", a=1, b=2), "Done."]),
        tools=[add, asked, clerk, Plain(), desk, Toolset.of(add).prefixed("x_")],
        instructions=[customer, "Be brief.", each_step(customer), acting, lambda: "It rains."],
        middleware=[Audit(), Quiet()],
        tool_choice=choice,
        deps_type=Deps,
    )
    assert_type(agent, FunctionAgent[Deps, str])
    assert isinstance(agent, FunctionAgent)
    async with agent as same:
        assert_type(same, FunctionAgent[Deps, str])
        assert isinstance(same, FunctionAgent)
        text = (await agent.run("Go.", deps=Deps("ann"))).output
    assert_type(text, str)
    assert isinstance(text, str)
    plain = FunctionAgent(llm=ScriptedLLM(["Done."]), tools=[Plain()], middleware=[Quiet()], instructions="Be brief.")
    assert_type(plain, FunctionAgent[object, str])
    assert isinstance(plain, FunctionAgent)
    said = (await plain.run("Go.")).output
    assert_type(said, str)
    assert isinstance(said, str)
    ReActAgent(llm=ScriptedLLM(), tools=[desk], instructions=customer, deps_type=Deps)
    AgentWorkflow([plain], middleware=[Audit()], deps_type=Deps)
    given = await plain.run("Go.", llm=ScriptedLLM(["Done."]), instructions=["Be kind."], tool_choice="none")
    assert_type(given.output, str)
    assert isinstance(given.output, str)
    seen = await agent.run(
        "Go.", deps=Deps("ann"), llm=ScriptedLLM(["Done."]), instructions=customer, tool_choice=choice
    )
    assert_type(seen.output, str)
    assert isinstance(seen.output, str)
    server = MCPTools("uvx mcp-server-time", allow=["get_*"])
    FunctionAgent(llm=ScriptedLLM(), tools=[server, server.prefixed("again_")])


def errors(agent: FunctionAgent[Deps, str]) -> None:
    FunctionAgent(instructions=[number], deps_type=Deps)  # E
    FunctionAgent(middleware=[Audit()], deps_type=Other)  # E
    FunctionAgent(tools=[Desk()], deps_type=Other)  # E
    FunctionAgent(tool_choice=choice, deps_type=Other)  # E
    AgentWorkflow([agent], middleware=[Audit()], deps_type=Other)  # E
    FunctionAgent(tools=[3])  # E
    FunctionAgent(instructions=3)  # E
    FunctionAgent(tool_choice=3)  # E
    Desk().filtered(customer)  # E
    tool(prepare=3)  # E
    agent.run("Go.", deps=Deps("ann"), llm=3)  # E
    agent.run("Go.", deps=Deps("ann"), instructions=number)  # E
    agent.run("Go.", deps=Deps("ann"), tool_choice=3)  # E
    agent.resume("r", llm=3)  # E


if __name__ == "__main__":
    asyncio.run(main())
