"""Budgets of agents that act by writing code: calls inside a call, paid for once."""

import json
from typing import Any

import pytest

from batonflow.agents import AgentWorkflow, Budget, BudgetExceededError, CodeActAgent, FunctionAgent
from batonflow.llms import ChatMessage, ScriptedLLM, track_usage
from batonflow.tools import tool
from batonflow.workflow_core import Context

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def search(topic: str) -> str:
    """Look something up."""
    RAN.append(topic)
    return f"all about {topic}"


@tool(requires_approval=True, approval_timeout=3600)
def publish(title: str) -> str:
    """Publish."""
    RAN.append(title)
    return f"published {title}"


def agent(code: str, *turns: Any, **options: Any) -> CodeActAgent:
    options.setdefault("tools", [search, publish])
    return CodeActAgent(llm=ScriptedLLM([f"<execute>\n{code}\n</execute>", *turns]), **options)


def helper() -> FunctionAgent:
    return FunctionAgent(name="helper", description="Helps.", llm=ScriptedLLM(["I helped you."]))


TWO = """
for topic in ['a', 'b']:
    try:
        print(await search(topic=topic))
    except Exception as error:
        print(error)
"""


async def test_a_snippet_counts_as_a_call_and_so_does_each_in_it() -> None:
    made = agent(TWO, "As far as I got.", budget=Budget(max_tool_calls=2, on_exceeded="answer"))
    output = await made.run("Go.")
    assert (str(output), RAN) == ("As far as I got.", ["a"])
    (call,) = output.tool_calls
    assert "used up (max_tool_calls=2)" in call.tool_output.content


async def test_the_budget_of_a_team_holds_for_the_calls_of_code() -> None:
    coder = agent(TWO, "As far as I got.", name="coder", description="Codes.", tools=[search])
    team = AgentWorkflow([coder], budget=Budget(max_tool_calls=2, on_exceeded="answer"))
    output = await team.run("Go.")
    assert (str(output), RAN) == ("As far as I got.", ["a"])


async def test_one_too_many_ends_the_run_whatever_the_code_makes_of_it() -> None:
    with pytest.raises(BudgetExceededError, match="max_tool_calls=2"):
        await agent(TWO, budget=Budget(max_tool_calls=2)).run("Go.")
    assert RAN == ["a"]


async def test_what_models_take_inside_is_counted_once() -> None:
    other = ScriptedLLM(["one two three four"])

    async def ask() -> str:
        """Ask."""
        return str(await other.achat([ChatMessage("Count.")]))

    made = agent("print(await helper(input='Help.'))\nprint(await ask())", "Done.", tools=[helper().as_tool(), ask])
    with track_usage() as totals:
        handler = made.run("Go.", budget=Budget(max_tokens=100_000))
        output = await handler
    assert output.usage == totals.usage
    assert output.usage_by_agent["helper"].output_tokens == 3
    assert (await handler.ctx.store.get("ledger"))["spent"][""][0] == totals.usage.total_tokens


async def test_also_when_the_snippet_was_interrupted_behind_it() -> None:
    code = "print(await helper(input='Help.'))\nprint(await publish(title='x'))"
    made = agent(code, "Done.", tools=[helper().as_tool(), publish])
    handler = made.run("Go.", budget=Budget(max_tokens=100_000))
    requests = handler.approvals()
    asked = await anext(requests)
    saved = json.loads(json.dumps(handler.ctx.to_dict()))
    await requests.aclose()
    await handler.cancel_run()
    handler = made.run(ctx=Context.from_dict(made, saved))
    async for request in handler.approvals():
        assert request.expires_at == asked.expires_at
        request.approve()
    output = await handler
    assert (str(output), RAN) == ("Done.", ["x"])
    assert output.usage_by_agent["helper"].output_tokens == 3
    assert (await handler.ctx.store.get("ledger"))["spent"][""][0] == output.usage.total_tokens
