"""The property has teeth: agents that treat results badly are found out by a few seeds."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from batonflow.agents import BaseWorkflowAgent, CodeActAgent, FunctionAgent, ReActAgent, ToolCallResult
from batonflow.agents.memory import BaseMemory
from batonflow.llms import ChatMessage, MessageRole
from batonflow.llms.stream import ChatRequest
from batonflow.tools import AsyncBaseTool, FunctionTool, ToolOutput
from batonflow.workflow_core import Context
from tests.agents.scripts.playing import Broken, play
from tests.agents.scripts.script import ActKind, AgentKind, Script, draw
from tests.agents.scripts.sockets import play_over_sockets
from tests.agents.scripts.stage import CLASSES, Classes, ScriptModel, Stage
from tests.agents.scripts.transcript import bodies

_LEFT: list[asyncio.Task[None]] = []

Results = list[ToolCallResult]


def dropped(results: Results) -> Results:
    return results[:-1]


def doubled(results: Results) -> Results:
    return [*results, results[-1]]


def reversed_(results: Results) -> Results:
    return results[::-1]


def exchanged(results: Results) -> Results:
    """Every result under the id of another call."""
    outputs = [one.tool_output for one in results]
    return [
        one.model_copy(update={"tool_output": output})
        for one, output in zip(results, [*outputs[1:], outputs[0]], strict=True)
    ]


def renamed(results: Results) -> Results:
    return [one.model_copy(update={"tool_id": f"{one.tool_id}x"}) for one in results]


FAULTS = [dropped, doubled, reversed_, exchanged, renamed]


def with_fault(cls: type[BaseWorkflowAgent], fault: Callable[[Results], Results]) -> type[BaseWorkflowAgent]:
    """The class, with the results of its calls gone bad before it takes note of them."""

    class Faulty(cls):  # type: ignore[valid-type, misc]
        async def handle_tool_call_results(self, ctx: Context[Any], results: Results, memory: BaseMemory) -> None:
            await super().handle_tool_call_results(ctx, fault(list(results)), memory)

    return Faulty


def scripts(kind: AgentKind) -> list[Script]:
    """Scripts of one agent of a kind."""
    found = [draw(seed) for seed in range(200)]
    return [one for one in found if [agent.kind for agent in one.agents] == [kind]]


def with_kind(kind: ActKind, agent: AgentKind = "function") -> list[Script]:
    """Scripts of one agent in which a call comes to ``kind``."""
    return [one for one in scripts(agent) if any(act.kind == kind for act in one.decisions.values())]


def finds(classes: Classes, some: list[Script], play_one: Callable[..., Stage] = play) -> str:
    """What is said of the first script that comes out wrong, last of all how to play it alone."""
    for script in some:
        try:
            play_one(script, classes)
        except Broken as error:
            return "\n".join([*error.problems, str(error)])
    pytest.fail(f"none of {len(some)} scripts found it")


@pytest.mark.parametrize("fault", FAULTS)
def test_function_agents(fault: Callable[[Results], Results]) -> None:
    faulty = {**CLASSES, "function": with_fault(FunctionAgent, fault)}
    assert "request" in finds(faulty, scripts("function"))


@pytest.mark.parametrize("fault", [dropped, doubled])
def test_react_agents(fault: Callable[[Results], Results]) -> None:
    faulty = {**CLASSES, "react": with_fault(ReActAgent, fault)}
    assert "action" in finds(faulty, scripts("react"))


@pytest.mark.parametrize("fault", [dropped, doubled])
def test_codeact_agents(fault: Callable[[Results], Results]) -> None:
    faulty = {**CLASSES, "codeact": with_fault(CodeActAgent, fault)}
    code_only = [one for one in scripts("codeact") if all(act.kind != "handoff" for act in one.decisions.values())]
    assert "snippet" in finds(faulty, code_only)


@pytest.mark.parametrize("fault", [dropped, reversed_])
def test_over_sockets_the_server_refuses(fault: Callable[[Results], Results]) -> None:
    faulty = {**CLASSES, "function": with_fault(FunctionAgent, fault)}
    said = finds(faulty, scripts("function"), play_over_sockets)
    assert "--sockets" in said


class LateWords(ScriptModel):
    """Is shown something between a call and its results."""

    def sent(self, request: ChatRequest) -> dict[str, dict[str, Any]]:
        shown: list[ChatMessage] = []
        for message in request.messages:
            if message.role == MessageRole.TOOL and shown[-1].role != MessageRole.TOOL:
                shown.append(ChatMessage("By the way."))
            shown.append(message)
        return bodies(shown)


def test_words_before_results() -> None:
    def play_one(script: Script, classes: Classes) -> Stage:
        return play(script, classes, LateWords.on)

    said = finds(CLASSES, scripts("function"), play_one)
    assert "directly behind the message that called" in said


def eager(cls: type[BaseWorkflowAgent]) -> type[BaseWorkflowAgent]:
    """The class, running every tool twice."""

    class Eager(cls):  # type: ignore[valid-type, misc]
        async def call_one_tool(self, ctx: Context[Any], tool: Any, tool_input: dict[str, Any]) -> ToolOutput:
            await super().call_one_tool(ctx, tool, tool_input)
            return await super().call_one_tool(ctx, tool, tool_input)

    return Eager


def test_a_tool_that_runs_twice() -> None:
    assert "ran 2 times" in finds({**CLASSES, "function": eager(FunctionAgent)}, with_kind("good async"))


def test_a_tool_that_runs_twice_in_code() -> None:
    faulty = {**CLASSES, "codeact": eager(CodeActAgent)}
    assert "ran 2 times" in finds(faulty, with_kind("good async", "codeact"), play_over_sockets)


class Trusting(FunctionAgent):
    """Asks nobody."""

    async def get_tools(self, input_str: str | None = None) -> Sequence[AsyncBaseTool]:
        return [
            FunctionTool.from_defaults(
                tool.real_fn, name=tool.metadata.get_name(), return_direct=tool.metadata.return_direct
            )
            for tool in await super().get_tools(input_str)
            if isinstance(tool, FunctionTool)
        ]


def test_a_tool_that_runs_though_a_person_would_have_said_no() -> None:
    assert "denied" in finds({**CLASSES, "function": Trusting}, with_kind("denied"))


class Stuck(FunctionAgent):
    """Never takes note of anything."""

    async def handle_tool_call_results(self, ctx: Context[Any], results: Results, memory: BaseMemory) -> None:
        await asyncio.Event().wait()


def test_a_run_that_hangs() -> None:
    assert "hangs" in finds({**CLASSES, "function": Stuck}, with_kind("good async"))


class Leaky(FunctionAgent):
    """Leaves a task behind."""

    async def handle_tool_call_results(self, ctx: Context[Any], results: Results, memory: BaseMemory) -> None:
        _LEFT.append(asyncio.create_task(asyncio.sleep(3600), name="left behind"))
        await super().handle_tool_call_results(ctx, results, memory)


def test_a_task_that_is_left() -> None:
    assert "left behind" in finds({**CLASSES, "function": Leaky}, with_kind("good async"))
    _LEFT.clear()
