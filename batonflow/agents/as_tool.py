"""Agents and teams as tools of other agents: a question goes in, the answer comes out."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from batonflow.agents.budget import run_inside
from batonflow.agents.events import AgentOutput
from batonflow.agents.layers.limits import LEDGER
from batonflow.agents.layers.usage import count_earlier_usage
from batonflow.agents.prompts import AGENT_AS_TOOL
from batonflow.tools import FunctionTool, ToolMetadata, ToolOutput, ToolPolicy
from batonflow.tools.base import DefaultToolFnSchema
from batonflow.workflow_core import Context, Workflow

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]+")

__all__ = ["AgentTool", "attach", "attach_agents", "refuse_itself", "run_within"]


def attach(workflow: Workflow, name: str, other: Workflow) -> None:
    """Make runs of ``other`` inside steps of ``workflow`` belong to its runs.

    Args:
        workflow: The workflow with the steps that run it.
        name: Under which; a similar one when two agents of a team know others by one name.
        other: The agent or team.
    """
    attached, free, number = workflow.__batonflow__.children, name, 1
    if any(known is other for known in attached.values()):
        return
    while free in attached:
        number += 1
        free = f"{name}-{number}"
    workflow.__batonflow__.attach({free: other})


def attach_agents(workflow: Workflow, tools: Sequence[Any]) -> None:
    """Attach all agents among the tools of a workflow."""
    for tool in tools:
        if isinstance(tool, AgentTool):
            attach(workflow, tool.metadata.get_name(), tool.agent)


def refuse_itself(agent: Any, tools: Any) -> None:
    """Refuse tools behind which an agent asks itself, directly or through others.

    Raises:
        ValueError: It does; the message names the agents on the way.
    """
    left: list[tuple[Any, tuple[str, ...]]] = [(tool, ()) for tool in _agent_tools(tools)]
    seen: set[int] = set()
    while left:
        tool, way = left.pop()
        way = (*way, tool.metadata.get_name())
        for other in (tool.agent, *getattr(tool.agent, "agents", {}).values()):
            if other is agent:
                raise ValueError(
                    f"Agent {agent.name} would be its own tool, through {' -> '.join(way)}: "
                    "leave that tool out, or give it another agent"
                )
            if id(other) not in seen:
                seen.add(id(other))
                left += [(inner, way) for inner in _agent_tools(getattr(other, "tools", ()))]


def _agent_tools(tools: Any) -> list["AgentTool"]:
    listed = cast("Iterable[Any]", tools) if isinstance(tools, Iterable) else ()
    return [tool for tool in listed if isinstance(tool, AgentTool)]


async def run_within(agent: Any, *args: Any, **options: Any) -> AgentOutput:
    """Run an agent or a team inside a step of another one, on its account.

    Args:
        agent: The agent or team.
        args: As for ``run``.
        options: As for ``run``.
    """
    with run_inside() as charge:
        handler = agent.run(*args, **options)
        store = handler.ctx.store
        try:
            # Usage from before an interruption, which has not been counted here.
            count_earlier_usage(await store.get("usage", default=None) or {})
            charge(await store.get(LEDGER, default=None) or {})
            return await handler
        except asyncio.CancelledError:
            if not _is_over_around(handler.ctx):
                # Only this call was given up, so its answer has no reader any more.
                await handler.cancel_run()
            raise


def _is_over_around(ctx: Context[Any]) -> bool:
    """Return whether a run around that of ``ctx`` is over, and so ends this one, perhaps to be resumed."""
    around = None if ctx.run is None or ctx.run.family is None else ctx.run.family.parent
    while around is not None and not around.run.ending.over:
        around = around.parent
    return around is not None


class AgentTool(FunctionTool):
    """A tool with an agent or a team behind it, which works in a run of its own without the caller's conversation.

    The run belongs to the caller's: its events are in the caller's stream, it is cancelled with it, people are asked
    through it, and its usage counts there too.

    Args:
        agent: The agent or team.
        name: The name for models; characters that vendors do not allow become ``_``.
        description: The description for models.
    """

    def __init__(self, agent: Workflow, name: str, description: str) -> None:
        name = _NOT_ALLOWED.sub("_", name)

        async def ask(input: str) -> ToolOutput:  # noqa: A002 - the name that models know from other tools
            output = await run_within(agent, input)
            return ToolOutput(
                tool_name=name, content=str(output) or "(no text)", raw_input={"input": input}, raw_output=str(output)
            )

        metadata = ToolMetadata(
            description=AGENT_AS_TOOL.format(description=description), name=name, fn_schema=DefaultToolFnSchema
        )
        # Its run goes on where it was: calling it again repeats nothing.
        super().__init__(async_fn=ask, metadata=metadata, policy=ToolPolicy(idempotent=True))
        self.agent = agent
