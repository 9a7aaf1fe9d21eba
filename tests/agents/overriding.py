"""Agents that override one of the six steps, and a program that is killed in the middle of a turn.

``python overriding.py STEP PLACE [kill]`` runs one of them on ``runs.db`` in the current folder. With ``kill`` the
process ends itself with SIGKILL when the model is asked for the second time; without it, the run goes on.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from batonflow.agents import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentWorkflow,
    AgentWorkflowStartEvent,
    FunctionAgent,
    ToolCall,
    ToolCallResult,
)
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.tools import ToolOutput, tool
from batonflow.workflow_core import Context, StopEvent, step

__all__ = ["LEDGER", "MADE", "STEPS", "made", "wired_team"]

LEDGER: list[str] = []


def note(words: str) -> None:
    LEDGER.append(words)


class Starts(FunctionAgent):
    @step
    async def init_run(self, ctx: Context[Any], ev: AgentWorkflowStartEvent) -> AgentInput | StopEvent:
        note("override init_run")
        begins = await super().init_run(ctx, ev)
        assert isinstance(begins, AgentInput)
        note("base init_run")
        return begins


class SetsUp(FunctionAgent):
    @step
    async def setup_agent(self, ctx: Context[Any], ev: AgentInput) -> AgentSetup:
        note("override setup_agent")
        setup = await super().setup_agent(ctx, ev)
        assert setup.input
        note("base setup_agent")
        return setup


class Asks(FunctionAgent):
    @step
    async def run_agent_step(self, ctx: Context[Any], ev: AgentSetup) -> AgentOutput:
        note("override run_agent_step")
        output = await super().run_agent_step(ctx, ev)
        assert output.current_agent_name == "worker"
        note("base run_agent_step")
        return output


class Parses(FunctionAgent):
    @step
    async def parse_agent_output(self, ctx: Context[Any], ev: AgentOutput) -> StopEvent | AgentInput | ToolCall | None:
        note("override parse_agent_output")
        decided = await super().parse_agent_output(ctx, ev)
        note("base parse_agent_output")
        return decided


class Forbids(FunctionAgent):
    """Runs no tool; the loop answers a call of a tool that is unknown."""

    @step
    async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult:
        note("override call_tool")
        unknown = ToolCall(tool_name="forbidden", tool_kwargs={}, tool_id=ev.tool_id)
        refused = await super().call_tool(ctx, unknown)
        assert "act" in refused.tool_output.content, "the tools of the team are named"
        note("base call_tool")
        output = ToolOutput(tool_name=ev.tool_name, content="forbidden", raw_input=ev.tool_kwargs, is_error=True)
        return refused.model_copy(update={"tool_name": ev.tool_name, "tool_output": output})


class Collects(FunctionAgent):
    @step
    async def aggregate_tool_results(self, ctx: Context[Any], ev: ToolCallResult) -> AgentInput | StopEvent | None:
        note("override aggregate_tool_results")
        further = await super().aggregate_tool_results(ctx, ev)
        note("base aggregate_tool_results")
        return further


MADE: dict[str, type[FunctionAgent]] = {
    "init_run": Starts,
    "setup_agent": SetsUp,
    "run_agent_step": Asks,
    "parse_agent_output": Parses,
    "call_tool": Forbids,
    "aggregate_tool_results": Collects,
}
STEPS = tuple(MADE)


@tool(idempotent=True)
async def act() -> str:
    """Act."""
    note("body")
    return "acted"


def made(name: str, second: Any = "Done.", **options: Any) -> FunctionAgent:
    """An agent that calls a tool once, and overrides the step ``name``."""

    def turn(request: Any) -> Any:
        called = any(message.role == "tool" for message in request.messages)
        return tool_call("act") if not called else second() if callable(second) else second

    llm = ScriptedLLM([turn] * 20)
    return MADE[name](name="worker", description="Works.", llm=llm, tools=[act], **options)


def wired_team(agent: FunctionAgent, **options: Any) -> AgentWorkflow:
    """A team that begins with ``agent``, and has another agent."""
    other = FunctionAgent(name="other", description="Other.", llm=ScriptedLLM(["Unused."]))
    return AgentWorkflow(agents=[agent, other], root_agent="worker", name="team", **options)


def killed() -> Any:
    note("killed")
    os.kill(os.getpid(), signal.SIGKILL)


class Lines(list[str]):
    """A ledger in a file, which a killed process leaves behind."""

    def append(self, words: str, /) -> None:
        with Path("ledger").open("a") as file:
            file.write(words + "\n")


async def main(name: str, place: str, *more: str) -> None:
    second: Any = killed if more else "Done."
    if place == "alone":
        workflow: Any = made(name, second, store="runs.db")
    else:
        workflow = wired_team(made(name, second), store="runs.db")
    print(await workflow.run("Go.", run_id="r"))


if __name__ == "__main__":
    LEDGER = Lines()
    asyncio.run(main(*sys.argv[1:]))
