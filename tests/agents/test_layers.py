"""The layers around a tool: which of them a call passes through, and in which order."""

import copy
from importlib import import_module
from typing import Any

import pytest

from batonflow.agents import AgentWorkflow, Budget, Deny, FunctionAgent, ToolCall
from batonflow.agents.invocation import ToolInvocation
from batonflow.agents.tool_calls import _layers_around  # pyright: ignore[reportPrivateUsage]
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import ToolOutput, tool
from batonflow.workflow_core import Context


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(max_calls=2, requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def agent(*script: Any, tools: Any = (add,), **options: Any) -> FunctionAgent:
    return FunctionAgent(llm=ScriptedLLM(list(script)), tools=list(tools), **options)


async def around(made: FunctionAgent, limits: Any = None) -> list[str]:
    (used,) = await made.get_tools()
    team: Any = made.__batonflow_team__
    call = ToolCall(tool_name="add", tool_kwargs={}, tool_id="1")
    return [
        layer.__name__
        for layer in _layers_around(ToolInvocation(Context(made), team, made, used, call, "0", limits), None)
    ]


class TestTheLayers:
    async def test_a_tool_without_policy_in_an_agent_without_hooks_is_called_at_once(self) -> None:
        assert await around(agent(max_result_chars=None)) == []

    async def test_they_stand_in_their_order(self) -> None:
        made = agent(tools=[pay], before_tool=[lambda ctx, call: None])
        assert await around(made, limits=object()) == [
            "shorten_result", "call_hooks", "refuse_used_up", "check_approval", "count_call",
            "answer_over_budget", "charge_call",
        ]  # fmt: skip

    async def test_they_follow_changes_of_the_options(self) -> None:
        made = agent()
        assert await around(made) == ["shorten_result"]
        made.before_tool = [lambda ctx, call: None]
        made.max_result_chars = None
        assert await around(made) == ["call_hooks"]

    @pytest.mark.parametrize("team", [False, True])
    async def test_a_call_that_a_hook_refuses_is_not_shown_to_the_hooks_after_it(self, team: bool) -> None:
        seen: list[str] = []

        def after(ctx: Any, result: Any) -> None:
            seen.append(result.tool_output.content)

        deny = [lambda ctx, call: Deny("no") if call.tool_kwargs["a"] == 1 else None]
        calls = [tool_call("add", a=1, b=2), tool_call("add", a=2, b=2), "Done."]
        made: Any = agent(*calls, before_tool=deny, after_tool=[after], budget=Budget(max_tool_calls=5))
        output = await (AgentWorkflow([made]) if team else made).run("Go.")
        assert seen == ["4"]
        assert [one.tool_output.content for one in output.tool_calls] == ["Tool add was not run: no", "4"]


class TestOverriddenCalls:
    async def test_they_are_asked_alone_and_in_a_team_and_find_the_call_under_way(self) -> None:
        class Doubles(FunctionAgent):
            async def _call_tool(self, ctx: Any, tool: Any, tool_input: Any) -> ToolOutput:
                return await super()._call_tool(ctx, tool, {**tool_input, "b": tool_input["b"] * 2})

        for team in (False, True):
            made: Any = Doubles(tools=[add], llm=ScriptedLLM([tool_call("add", a=1, b=2), "Done."]))
            output = await (AgentWorkflow([made]) if team else made).run("Go.")
            assert [one.tool_output.content for one in output.tool_calls] == ["5"]


async def test_a_copy_of_an_agent_runs_with_its_own_options() -> None:
    made = agent(tool_call("add", a=1, b=2), "Done.")
    other = copy.copy(made)
    other.name, other.llm = "Other", ScriptedLLM(["Hello."])
    assert str(await other.run("Go.")) == "Hello."
    team = copy.copy(AgentWorkflow([made]))
    assert str(await team.run("Go.")) == "Done."


@pytest.mark.parametrize(
    "old", ["calling", "contexts", "effects", "forking", "outcomes", "output", "results", "scratchpad", "unfinished"]
)
def test_earlier_paths_of_modules_lead_to_those_of_today(old: str) -> None:
    assert import_module(f"batonflow.agents.{old}").__name__ != f"batonflow.agents.{old}"
