"""``ctx.agent``: facts about the agent that acts."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from batonflow import Context, Workflow
from batonflow.agents import AgentWorkflow, FunctionAgent, Middleware
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import BaseTool, Toolset
from batonflow.workflow_core import StartEvent, StopEvent, step


async def test_tools_instructions_toolsets_and_middleware_see_the_acting_agent() -> None:
    seen: dict[str, Any] = {}

    def look(ctx: Context) -> str:
        """Look."""
        seen["tool"] = ctx.agent
        return "seen"

    async def say(ctx: Context) -> str:
        seen["instruction"] = ctx.agent
        return "Be brief."

    class Desk(Toolset[Any]):
        async def tools(self, ctx: Context[Any, Any]) -> Sequence[BaseTool]:
            seen["toolset"] = ctx.agent
            return []

    class Watch(Middleware):
        async def before_run(self, ctx: Context[Any], message: Any) -> None:
            seen["middleware"] = ctx.agent

    llm = ScriptedLLM([tool_call("look"), "Done."])
    agent = FunctionAgent(name="ann", llm=llm, tools=[look, Desk()], instructions=say, middleware=[Watch()])
    handler = agent.run("Go.", max_iterations=7)
    output = await handler
    assert {one.name for one in seen.values()} == {"ann"}
    assert {(one.turn, one.session, one.max_iterations) for one in seen.values()} == {(1, "", 7)}
    assert seen["instruction"].usage.total_tokens == 0
    assert 0 < seen["tool"].usage.total_tokens < output.usage.total_tokens  # type: ignore[union-attr]
    assert handler.ctx.agent is not None
    assert handler.ctx.agent.usage == output.usage


async def test_in_a_team_it_is_the_member_that_acts() -> None:
    names: list[str] = []

    def look(ctx: Context) -> str:
        """Look."""
        assert ctx.agent is not None
        names.append(ctx.agent.name)
        return "seen"

    one = FunctionAgent(
        name="a", description="A", tools=[look],
        llm=ScriptedLLM([tool_call("look"), tool_call("handoff", to_agent="b", reason="x")]),
    )  # fmt: skip
    two = FunctionAgent(name="b", description="B", tools=[look], llm=ScriptedLLM([tool_call("look"), "Done."]))
    await AgentWorkflow([one, two], root_agent="a").run("Go.")
    assert names == ["a", "b"]


async def test_a_typed_context_knows_it_too() -> None:
    class Case(BaseModel):
        number: int = 0

    seen: list[Any] = []

    def look(ctx: Context[Case]) -> str:
        """Look."""
        seen.append(ctx.agent)
        return "seen"

    agent = FunctionAgent(name="ann", llm=ScriptedLLM([tool_call("look"), "Done."]), tools=[look], state=Case)
    await agent.run("Go.")
    assert seen[0].name == "ann"


async def test_in_a_session_the_turn_has_its_number() -> None:
    seen: list[Any] = []

    def look(ctx: Context) -> str:
        assert ctx.agent is not None
        seen.append((ctx.agent.session, ctx.agent.turn))
        return "x"

    agent = FunctionAgent(name="ann", llm=ScriptedLLM(["One.", "Two."]), instructions=look)
    await agent.run("Go.", session="chat-7")
    await agent.run("Go on.", session="chat-7")
    assert seen == [("chat-7", 1), ("chat-7", 2)]


async def test_elsewhere_it_is_none() -> None:
    class Plain(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=ctx.agent)

    flow = Plain()
    assert await flow.run() is None
    assert Context(flow).agent is None
    assert Context(FunctionAgent(llm=ScriptedLLM())).agent is None
