"""How one agent of a team hands over to another: a tool, and the rules for it."""

from collections.abc import Mapping, Sequence
from typing import Any

from batonflow.agents.loop import HANDOFF, Member
from batonflow.agents.prompts import HANDOFF_NOT_PERMITTED, HANDOFF_TOO_OFTEN, HANDOFF_UNKNOWN
from batonflow.llms.prompts.base import fill
from batonflow.tools import FunctionTool, ToolOutput
from batonflow.workflow_core import Context

__all__ = ["handoff_tool", "refusal", "targets"]


def targets(agent: Member, names: Sequence[str]) -> list[str]:
    """The agents that ``agent`` may hand over to: all others of the team unless it says which."""
    if agent.can_handoff_to is None:
        return [name for name in names if name != agent.name]
    return [name for name in agent.can_handoff_to if name in names and name != agent.name]


def refusal(agent: Member, to_agent: str, names: Sequence[str]) -> str | None:
    """Why ``agent`` may not hand over to ``to_agent``, None when it may."""
    allowed = targets(agent, names)
    if to_agent in allowed:
        return None
    words = HANDOFF_NOT_PERMITTED if to_agent in names else HANDOFF_UNKNOWN
    return words.format(from_agent=agent.name, to_agent=to_agent, valid=", ".join(allowed) or "none")


def handoff_tool(
    agent: Member, agents: Mapping[str, Member], description: str, max_handoffs: int | None
) -> FunctionTool | None:
    """The tool with which ``agent`` hands over; None when there is nobody to hand over to.

    Args:
        agent: Who may call it.
        agents: The team.
        description: What the model reads of it; has ``{agent_info}``.
        max_handoffs: How often the task may change hands in a run; None for as often as there are steps.
    """
    names = list(agents)
    allowed = targets(agent, names)
    if not allowed:
        return None

    async def handoff(ctx: Context[Any], to_agent: str, reason: str) -> Any:
        words = refusal(agent, to_agent, names)
        done: int = await ctx.store.get("num_handoffs", default=0)
        if words is None and max_handoffs is not None and done >= max_handoffs:
            words = HANDOFF_TOO_OFTEN.format(limit=max_handoffs)
        if words is not None:
            return ToolOutput(tool_name=HANDOFF, content=words, raw_output=words, is_error=True)
        await ctx.store.set("num_handoffs", done + 1)
        await ctx.store.set("next_agent", to_agent)
        told: str = await ctx.store.get("handoff_output_prompt")
        return fill(told, {"to_agent": to_agent, "reason": reason})

    info = str({name: agents[name].description for name in allowed})
    return FunctionTool.from_defaults(
        async_fn=handoff, name=HANDOFF, description=fill(description, {"agent_info": info}), return_direct=True
    )
