"""Agents and teams as tools: the run behind the tool belongs to the run that called it."""

import asyncio
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batonflow.agents import (
    AgentOutput,
    AgentStream,
    AgentWorkflow,
    CodeActAgent,
    FunctionAgent,
    ReActAgent,
    ToolCallResult,
)
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import run_tool, tool
from batonflow.workflow_core import Context
from tests.workflow_core.flows import until

PUBLISHED: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_published() -> None:
    PUBLISHED.clear()


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish."""
    PUBLISHED.append(title)
    return f"published {title}"


def agent(*turns: Any, name: str = "press", **options: Any) -> FunctionAgent:
    options.setdefault("tools", [publish])
    return FunctionAgent(name=name, description=f"The {name}.", llm=ScriptedLLM(turns), **options)


def requests(member: FunctionAgent) -> list[Any]:
    assert isinstance(member.llm, ScriptedLLM)
    return member.llm.requests


def ask(*questions: str, name: str = "press") -> list[Any]:
    return [tool_call(name, input=question) for question in questions]


def contents(output: Any) -> list[str]:
    return [call.tool_output.content for call in output.tool_calls if isinstance(call, ToolCallResult)]


class TestTheTool:
    async def test_is_called_with_a_question_and_gives_the_answer(self) -> None:
        press = agent("It is out.")
        boss = agent(ask("Is it out?"), "Yes.", name="boss", tools=[press.as_tool()])
        output = await boss.run("Ask the press whether it is out.")
        assert (str(output), contents(output)) == ("Yes.", ["It is out."])
        assert [message.content for message in requests(press)[0].messages] == ["Is it out?"]

    async def test_is_named_and_described_like_the_agent_unless_told(self) -> None:
        press = agent("No.")
        given, renamed = press.as_tool().metadata, press.as_tool(name="printer", description="Prints.").metadata
        assert given.name == "press"
        assert given.description.startswith("The press.\n")
        assert renamed.name == "printer"
        assert renamed.description.startswith("Prints.\n")

    def test_refuses_options_of_other_types(self) -> None:
        agent = FunctionAgent(llm=ScriptedLLM())
        with pytest.raises(ValueError, match=r"as_tool\(deps=...\) is a function of \(ctx\) .*, not 5"):
            agent.as_tool(deps=5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"as_tool\(\) takes the name of the tool, not 5"):
            agent.as_tool(5)  # type: ignore[arg-type]

    async def test_tells_what_went_wrong(self) -> None:
        boss = agent(ask("Well?"), "Then not.", name="boss", tools=[agent(OSError("no line")).as_tool()])
        output = await boss.run("Ask.")
        assert contents(output) == ["no line"]
        assert str(output) == "Then not."

    async def test_each_call_is_a_run_of_its_own(self) -> None:
        press = agent("One.", "Two.")
        boss = agent(ask("First?"), ask("Second?"), "Done.", name="boss", tools=[press.as_tool()])
        await boss.run("Ask.")
        assert [[message.content for message in one.messages] for one in requests(press)] == [["First?"], ["Second?"]]

    async def test_works_outside_of_any_run(self) -> None:
        output = await run_tool(agent("It is out.").as_tool(), {"input": "Is it?"})
        assert output.content == "It is out."

    async def test_may_be_a_team(self) -> None:
        handoff = tool_call("handoff", to_agent="second", reason="it knows")
        team = AgentWorkflow(
            agents=[agent(handoff, name="first"), agent("Second here.", name="second")],
            root_agent="first",
            name="office",
            description="Knows it all.",
        )
        boss = agent(ask("Who?", name="office"), "Done.", name="boss", tools=[team.as_tool()])
        output = await boss.run("Ask.")
        assert contents(output) == ["Second here."]
        assert set(output.usage_by_agent) == {"boss", "first", "second"}

    async def test_serves_agents_that_reason_in_text_and_agents_that_write_code(self) -> None:
        press = agent("One.", "Two.", tools=[])
        thinker = ReActAgent(
            llm=ScriptedLLM(
                ['Thought: Ask.\nAction: press\nAction Input: {"input": "Well?"}', "Thought: So.\nAnswer: One."]
            ),
            tools=[press.as_tool()],
        )
        assert str(await thinker.run("Ask.")) == "One."
        code = "<execute>\nprint(await press(input='Well?'))\n</execute>"
        coder = CodeActAgent(llm=ScriptedLLM([code, "Done."]), tools=[press.as_tool()])
        output = await coder.run("Ask.")
        assert contents(output)[0].strip() == "Two."
        assert output.usage_by_agent["press"].output_tokens == 1

    async def test_an_agent_may_call_one_that_calls_one(self) -> None:
        inner = agent("Deep.", name="inner")
        middle = agent(ask("Deeper?", name="inner"), "It says: deep.", name="middle", tools=[inner.as_tool()])
        outer = agent(ask("Deep?", name="middle"), "Done.", name="outer", tools=[middle.as_tool()])
        handler = outer.run("Ask.")
        output = await handler
        assert set(output.usage_by_agent) == {"outer", "middle", "inner"}
        paths = [item.path async for item in handler.subscribe() if isinstance(item.event, AgentStream)]
        assert list(dict.fromkeys(paths)) == ["middle", "middle/inner", ""] or "middle/inner" in paths

    @pytest.mark.parametrize(("name", "called"), [("fact checker", "fact_checker"), ("Ann (press)", "Ann_press_")])
    def test_has_a_name_that_vendors_take(self, name: str, called: str) -> None:
        assert agent(name=name).as_tool().metadata.name == called


class TestAnAgentThatIsItsOwnTool:
    """It would ask itself without end."""

    def test_is_refused_when_it_is_made_so(self) -> None:
        made = agent("x")
        words = r"Agent press would be its own tool, through press: leave that tool out"
        with pytest.raises(ValueError, match=words):
            made.tools = [made.as_tool()]
        assert [tool.metadata.name for tool in made.tools] == ["publish"]  # type: ignore[union-attr]

    def test_is_refused_through_others(self) -> None:
        first, second = agent("x", name="first"), agent("x", name="second")
        second.tools = [first.as_tool()]
        third = agent("x", name="third", tools=[second.as_tool()])
        with pytest.raises(ValueError, match="Agent first would be its own tool, through third -> second -> first"):
            first.tools = [third.as_tool()]

    def test_is_refused_through_a_team(self) -> None:
        member = agent("x", name="member")
        team = AgentWorkflow(agents=[member], root_agent="member", name="team")
        with pytest.raises(ValueError, match="Agent member would be its own tool, through team"):
            member.tools = [team.as_tool()]

    async def test_is_refused_before_the_first_call_when_the_list_was_changed(self) -> None:
        made = agent(tool_call("press", input="Again?"))
        made.tools.append(made.as_tool())
        with pytest.raises(ValueError, match="would be its own tool"):
            await made.run("Hello?")
        assert made.llm.requests == []  # type: ignore[union-attr]

    def test_one_agent_behind_two_is_no_circle(self) -> None:
        shared = agent("x", name="shared")
        both = [agent("x", name=name, tools=[shared.as_tool()]).as_tool() for name in ("one", "two")]
        assert len(agent("x", tools=both).tools) == 2


class TestTheRunBehindIt:
    async def test_belongs_to_the_caller_also_when_the_tool_came_later(self) -> None:
        press = agent(tool_call("publish", title="a"), "It is out.")
        boss = agent(ask("Publish a."), "Done.", name="boss", tools=[])
        boss.tools.append(press.as_tool())
        for made in (boss, AgentWorkflow(agents=[boss])):
            boss.llm = ScriptedLLM([ask("Publish a."), "Done."])
            press.llm = ScriptedLLM([tool_call("publish", title="a"), "It is out."])
            handler = made.run("Publish.")
            async for request in handler.approvals():
                request.approve()
            assert contents(await handler) == ["It is out."]

    async def test_two_members_of_a_team_may_know_different_agents_by_one_name(self) -> None:
        handoff = tool_call("handoff", to_agent="second", reason="r")
        presses = [agent(tool_call("publish", title=title), f"{title} is out.") for title in "ab"]
        first = agent(ask("Publish."), handoff, name="first", tools=[presses[0].as_tool()])
        second = agent(ask("Publish."), "Done.", name="second", tools=[presses[1].as_tool()])
        handler = AgentWorkflow(agents=[first, second], root_agent="first").run("Publish.")
        async for request in handler.approvals():
            request.approve()
        assert [text for text in contents(await handler) if "out" in text] == ["a is out.", "b is out."]

    async def test_streams_into_the_callers_stream(self) -> None:
        boss = agent(ask("Well?"), "Done.", name="boss", tools=[agent("It is out.").as_tool()])
        handler = boss.run("Ask.")
        said: dict[str, str] = {}
        async for item in handler.subscribe():
            if isinstance(item.event, AgentStream):
                said[item.path] = said.get(item.path, "") + item.event.delta
        assert said == {"press": "It is out.", "": "Done."}
        outputs = [
            event.current_agent_name async for event in handler.stream_events() if isinstance(event, AgentOutput)
        ]
        assert "press" in outputs

    async def test_is_cancelled_with_it(self) -> None:
        begun, over = asyncio.Event(), asyncio.Event()

        async def forever() -> str:
            """Take forever."""
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                over.set()
            return "never"

        press = agent(tool_call("forever"), tools=[forever])
        handler = agent(ask("Well?"), name="boss", tools=[press.as_tool()]).run("Ask.")
        await begun.wait()
        await handler.cancel_run()
        await asyncio.wait_for(over.wait(), 30)

    async def test_ends_when_the_time_of_the_call_is_up(self) -> None:
        over = asyncio.Event()

        async def forever(_: Any) -> str:
            try:
                await asyncio.Event().wait()
            finally:
                over.set()
            return "never"

        press = agent(forever).as_tool()
        press.policy = tool(timeout=0.01)(lambda: None).policy
        output = await agent(ask("Well?"), "Then not.", name="boss", tools=[press]).run("Ask.")
        assert "gave no result within 0.01 seconds" in contents(output)[0]
        await asyncio.wait_for(over.wait(), 30)

    async def test_does_nothing_more_when_its_call_was_given_up(self) -> None:
        go, steps = asyncio.Event(), list[str]()

        async def work() -> str:
            """Work."""
            await go.wait()
            steps.append("done")
            return "done"

        async def meanwhile() -> None:
            """Go on with something else."""
            go.set()
            await asyncio.sleep(0.05)

        press = agent(tool_call("work"), "Out.", tools=[work])
        helper = press.as_tool()
        helper.policy = tool(timeout=0.01)(lambda: None).policy
        output = await agent(
            ask("Well?"), tool_call("meanwhile"), "Then not.", name="boss", tools=[helper, meanwhile]
        ).run("Ask.")
        assert "gave no result within 0.01 seconds" in contents(output)[0]
        assert steps == []
        assert len(requests(press)) == 1

    async def test_is_cancelled_when_the_code_that_called_it_ends_without_waiting(self) -> None:
        begun, ended = asyncio.Event(), list[str]()

        async def forever() -> str:
            """Take forever."""
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("forever")
            return "never"

        async def fail() -> str:
            """Fail when the other one is at work."""
            await begun.wait()
            raise LookupError("no")

        press = agent(tool_call("forever"), "Out.", tools=[forever])
        code = "<execute>\nimport asyncio\nawait asyncio.gather(press('Well?'), fail())\n</execute>"
        boss = CodeActAgent(llm=ScriptedLLM([code, lambda _: " ".join(ended)]), tools=[press.as_tool(), fail])
        assert str(await boss.run("Ask.")) == "forever"

    async def test_goes_on_where_it_was_when_the_callers_run_was_cancelled(self) -> None:
        begun, go, ran = asyncio.Event(), asyncio.Event(), list[str]()

        def first() -> str:
            """Run."""
            ran.append("first")
            return "done"

        async def second() -> str:
            """Wait."""
            begun.set()
            await go.wait()
            ran.append("second")
            return "done"

        press = agent(tool_call("first"), tool_call("second"), "Out.", tools=[first, second])
        boss = agent(ask("Well?"), "Done.", name="boss", tools=[press.as_tool()])
        handler = boss.run("Ask.")
        await begun.wait()
        await handler.cancel_run()
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        go.set()
        output = await boss.run(ctx=Context.from_dict(boss, saved))
        assert (str(output), contents(output), ran) == ("Done.", ["Out."], ["first", "second"])


class TestApprovals:
    async def test_of_the_run_behind_are_answered_through_the_callers_handler(self) -> None:
        press = agent(tool_call("publish", title="a"), "It is out.")
        handler = agent(ask("Publish a."), "Done.", name="boss", tools=[press.as_tool()]).run("Publish.")
        async for request in handler.approvals():
            assert (request.agent, request.tool_name, request.arguments) == ("press", "publish", {"title": "a"})
            assert "press" in request.id
            request.approve(arguments={"title": "b"})
        assert contents(await handler) == ["It is out."]
        assert PUBLISHED == ["b"]

    @pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
    async def test_of_two_agents_at_once_and_of_the_caller_in_any_order(self, order: tuple[str, ...]) -> None:
        left = agent(tool_call("publish", title="a"), "Left is out.", name="left")
        right = agent(tool_call("publish", title="b"), "Right is out.", name="right")
        calls = [*ask("a", name="left"), *ask("b", name="right"), tool_call("publish", title="c")]
        boss = agent(calls, "Done.", name="boss", tools=[left.as_tool(), right.as_tool(), publish])
        handler = boss.run("Publish.")
        waiting: dict[str, Any] = {}
        async for request in handler.approvals():
            waiting[request.arguments["title"]] = request
            if len(waiting) == 3:
                for title in order:
                    waiting[title].deny("no") if title == "b" else waiting[title].approve()
        output = await handler
        assert contents(output) == ["Left is out.", "Right is out.", "published c"]
        assert sorted(PUBLISHED) == ["a", "c"]
        assert "denied it: no" in (requests(right)[1].messages[-1].content or "")

    async def test_of_one_agent_called_twice_at_once(self) -> None:
        def both(request: Any) -> Any:
            return (
                "Out."
                if request.messages[-1].role == "tool"
                else tool_call("publish", title=request.messages[0].content)
            )

        press = agent(*[both] * 4)
        handler = agent(ask("a", "b"), "Done.", name="boss", tools=[press.as_tool()]).run("Publish.")
        ids: set[str] = set()
        async for request in handler.approvals():
            ids.add(request.id)
            request.approve()
        await handler
        assert len(ids) == 2
        assert sorted(PUBLISHED) == ["a", "b"]

    async def test_are_asked_again_after_an_interruption_and_what_was_done_is_not_done_again(self) -> None:
        press = agent(tool_call("publish", title="a"), tool_call("publish", title="b"), "Both are out.")
        boss = agent(ask("Publish."), "Done.", name="boss", tools=[press.as_tool()])
        handler = boss.run("Publish.")
        asking = handler.approvals()
        (await anext(asking)).approve()
        await anext(asking)
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await asking.aclose()
        await handler.cancel_run()
        handler = boss.run(ctx=Context.from_dict(boss, saved))
        asked = []
        async for request in handler.approvals():
            asked.append(request.arguments["title"])
            request.approve()
        output = await handler
        assert (asked, PUBLISHED) == (["b"], ["a", "b"])
        assert contents(output) == ["Both are out."]
        assert len(requests(boss)) == 2
        assert len(requests(press)) == 3
        assert output.usage_by_agent["press"].output_tokens == 2 + 2 + 3


PROGRAM = """
import asyncio, json, sys
from batonflow.agents import FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import tool
from batonflow.workflow_core import Context

@tool(requires_approval=True)
async def publish(title: str) -> str:
    "Publish."
    print("published", title)
    return f"published {title}"

def team(press_turns, boss_turns):
    presses = [
        FunctionAgent(name=name, description="Publishes.", llm=ScriptedLLM(press_turns(name)), tools=[publish])
        for name in ("left", "right")
    ]
    return FunctionAgent(name="boss", llm=ScriptedLLM(boss_turns), tools=[one.as_tool() for one in presses])

async def main():
    if sys.argv[1] == "-":
        calls = [tool_call(name, input="Publish.") for name in ("left", "right")]
        handler = team(lambda name: [tool_call("publish", title=name)], [calls]).run("Publish both.")
        requests = handler.approvals()
        for _ in range(2):
            await anext(requests)
        print(json.dumps(handler.ctx.to_dict()))
        await requests.aclose()
        await handler.cancel_run()
        return
    boss = team(lambda name: [f"{name} is out."], ["Both are out."])
    handler = boss.run(ctx=Context.from_dict(boss, json.load(open(sys.argv[1]))))
    waiting = {}
    async for request in handler.approvals():
        waiting[request.arguments["title"]] = request
        if len(waiting) == 2:
            waiting["right"].approve()
            waiting["left"].deny("later")
    output = await handler
    print(output, [call.tool_output.content for call in output.tool_calls], sorted(output.usage_by_agent))

asyncio.run(main())
"""


def test_approvals_of_two_agents_behind_tools_come_in_another_process(tmp_path: Path) -> None:
    program, snapshot = tmp_path / "program.py", tmp_path / "run.json"
    program.write_text(PROGRAM)

    def run(argument: str) -> str:
        command = [sys.executable, "-W", "error", str(program), argument]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path.cwd()).stdout

    snapshot.write_text(run("-"))
    assert run(str(snapshot)).splitlines() == [
        "published right",
        "Both are out. ['left is out.', 'right is out.'] ['boss', 'left', 'right']",
    ]


@pytest.mark.parametrize("pause", [None, 0, 0.01])
async def test_their_approvals_are_given_while_the_run_is_out_of_memory(
    pause: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    paid: list[str] = []

    @tool(requires_approval=True)
    def pay(who: str) -> str:
        """Pay."""
        paid.append(who)
        return f"paid {who}"

    first = FunctionAgent(
        name="clerk",
        llm=ScriptedLLM([[tool_call("pay", who="Ann"), tool_call("pay", who="Bob")], "Both."]),
        tools=[pay],
    )
    second = FunctionAgent(name="other", llm=ScriptedLLM([tool_call("pay", who="Cem"), "One."]), tools=[pay])
    calls = [tool_call("clerk", input="pay"), tool_call("other", input="pay")]
    boss = FunctionAgent(
        llm=ScriptedLLM([calls, "Done."]),
        tools=[first.as_tool(), second.as_tool()],
        store="memory:",
        idle_release=0,
        on_stall="raise",
    )
    handler = boss.run("Go.")
    requests = handler.approvals()
    asked = [await anext(requests) for _ in range(3)]
    await until(lambda: handler.is_released)
    await asyncio.sleep(0.05)
    assert handler.is_released  # it stays away
    for request in asked:
        request.approve()
        if pause is not None:
            await asyncio.sleep(pause)
    assert str(await handler) == "Done."
    assert sorted(paid) == ["Ann", "Bob", "Cem"]
    assert not caplog.records
