"""Who is charged for what models take: every token once, in the name of the agent for which it was spent."""

import asyncio
import json
from typing import Any

import pytest

from batonflow.agents import AgentWorkflow, Budget, FunctionAgent
from batonflow.agents.memory import ChatSummaryMemoryBuffer
from batonflow.llms import ChatMessage, ScriptedLLM, Usage, tool_call, track_usage
from batonflow.llms.stream import ChatRequest, Finish
from batonflow.tools import tool
from batonflow.workflow_core import Context

WRITTEN: dict[int, int] = {}


@pytest.fixture(autouse=True)
def _count_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    WRITTEN.clear()
    finish = ScriptedLLM._finish  # pyright: ignore[reportPrivateUsage]

    def counting(self: ScriptedLLM, request: ChatRequest, events: Any) -> Finish:
        WRITTEN[id(self)] = WRITTEN.get(id(self), 0) + len(events)
        return finish(self, request, events)

    monkeypatch.setattr(ScriptedLLM, "_finish", counting)


def search(topic: str) -> str:
    """Look something up."""
    return f"All about {topic}."


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def agent(*turns: Any, name: str = "writer", **options: Any) -> FunctionAgent:
    options.setdefault("tools", [search, publish])
    return FunctionAgent(name=name, description=f"The {name}.", llm=ScriptedLLM(turns), **options)


def find(topic: str) -> Any:
    return tool_call("search", topic=topic)


def taken(llm: Any) -> Usage:
    """What a model took in all: ScriptedLLM counts words in, and pieces out."""
    read = sum(len((message.content or "").split()) for request in llm.requests for message in request.messages)
    return Usage(input_tokens=read, output_tokens=WRITTEN.get(id(llm), 0))


def reported(*agents: FunctionAgent) -> Usage:
    """The same of the models of agents."""
    return sum((taken(one.llm) for one in agents), Usage())


async def interrupted(made: Any, **options: Any) -> dict[str, Any]:
    """What is left of a run that is interrupted when a person is asked and nothing else goes on."""
    handler = made.run("Go.", **options)
    asking = handler.approvals()
    await anext(asking)
    for _ in range(300):
        await asyncio.sleep(0)
    saved = json.loads(json.dumps(handler.ctx.to_dict()))
    await asking.aclose()
    await handler.cancel_run()
    return saved


async def resumed(made: Any, saved: dict[str, Any]) -> Any:
    handler = made.run(ctx=Context.from_dict(made, saved))
    async for request in handler.approvals():
        request.approve()
    return handler


class TestWhoIsCharged:
    async def test_the_sum_is_what_the_models_reported(self) -> None:
        fact = agent(find("a"), "A fact.", find("b"), "Another.", name="fact")
        ask = tool_call("fact", input="?")
        editor = agent(ask, ask, "Edited.", name="editor", tools=[fact.as_tool()])
        writer = agent(tool_call("handoff", to_agent="editor", reason="r"), "The summary.", name="writer")
        team = AgentWorkflow(agents=[writer, editor], root_agent="writer", handoff_carries="summary")
        with track_usage() as totals:
            output = await team.run("Go.")
        assert set(output.usage_by_agent) == {"writer", "editor", "fact"}
        for one in (writer, editor, fact):
            assert output.usage_by_agent[one.name] == reported(one)
        assert output.usage == reported(writer, editor, fact) == totals.usage

    async def test_a_model_that_a_tool_asks_is_charged_to_the_agent_that_called(self) -> None:
        other = ScriptedLLM(["Said the other."])

        async def ask() -> str:
            """Ask."""
            return str(await other.achat([ChatMessage("What?")]))

        made = agent(tool_call("ask"), "Done.", tools=[ask])
        output = await made.run("Go.")
        assert output.usage_by_agent["writer"] == reported(made) + taken(other)

    async def test_summaries_that_a_memory_makes_are_charged_to_the_agent_that_is_shown_them(self) -> None:
        notes = ScriptedLLM(["In short: tides."] * 5)
        memory = ChatSummaryMemoryBuffer.from_defaults(llm=notes, token_limit=20)
        made = agent("word " * 30, "Done.", tools=[])
        ctx: Context[Any] = Context(made)
        first = await made.run("Tell me all about the tides of the sea, please.", memory=memory, ctx=ctx)
        second = await made.run("And now?", ctx=ctx)
        assert notes.requests
        assert first.usage + second.usage == reported(made) + taken(notes)

    async def test_agents_of_one_name_are_charged_together(self) -> None:
        twin = agent("Yes.", name="writer")
        made = agent(tool_call("twin", input="?"), "Done.", tools=[twin.as_tool(name="twin")])
        output = await made.run("Go.")
        assert output.usage_by_agent == {"writer": reported(made, twin)}


class TestOverAnInterruption:
    async def test_what_an_agent_behind_a_tool_had_spent_is_charged(self) -> None:
        press = agent(find("a"), tool_call("publish", title="x"), "Out.", name="press")
        made = agent(tool_call("press", input="Publish."), "Done.", tools=[press.as_tool()])
        handler = await resumed(made, await interrupted(made, budget=Budget(max_tool_calls=9)))
        output = await handler
        ledger = await handler.ctx.store.get("ledger")
        assert ledger["spent"][""][2] == 3  # the agent, and its two tools
        assert set(output.usage_by_agent) == {"writer", "press"}
        assert ledger["spent"][""][0] == output.usage.total_tokens == reported(made, press).total_tokens

    async def test_and_not_twice_when_another_one_had_ended_meanwhile(self) -> None:
        quick = agent(find("a"), "Quick.", name="quick")
        slow = agent(find("b"), tool_call("publish", title="x"), "Slow.", name="slow")
        calls = [tool_call("slow", input="?"), tool_call("quick", input="?")]
        made = agent(calls, "Done.", tools=[quick.as_tool(), slow.as_tool()])
        handler = await resumed(made, await interrupted(made, budget=Budget(max_tokens=100_000)))
        output = await handler
        ledger = await handler.ctx.store.get("ledger")
        assert output.usage == reported(made, quick, slow)
        assert ledger["spent"][""] == [output.usage.total_tokens, 0.0, 5]
        assert ledger["spent"]["writer"] == ledger["spent"][""]

    async def test_two_levels_deep(self) -> None:
        inner = agent(find("a"), tool_call("publish", title="x"), "Out.", name="inner")
        middle = agent(
            find("b"), tool_call("inner", input="?"), "Said.", name="middle", tools=[search, inner.as_tool()]
        )
        made = agent(tool_call("middle", input="?"), "Done.", tools=[middle.as_tool()])
        handler = await resumed(made, await interrupted(made, budget=Budget(max_tokens=100_000)))
        output = await handler
        assert output.usage_by_agent == {one.name: reported(one) for one in (made, middle, inner)}
        ledger = await handler.ctx.store.get("ledger")
        assert ledger["spent"][""] == [output.usage.total_tokens, 0.0, 5]

    async def test_of_teams_in_teams(self) -> None:
        member = agent(find("a"), tool_call("publish", title="x"), "Out.", name="member")
        inner = AgentWorkflow(agents=[member], name="inner", description="Inner.")
        team = AgentWorkflow(agents=[inner], budget=Budget(max_tokens=100_000))
        output = await (await resumed(team, await interrupted(team)))
        assert output.usage == reported(member)
        assert set(output.usage_by_agent) == {"member"}
