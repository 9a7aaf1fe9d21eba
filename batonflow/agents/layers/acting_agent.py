"""``ctx.agent``: the name, turn, usage and limit of the agent that acts in a run."""

from typing import Any

from batonflow.agents.members import DEFAULT_MAX_ITERATIONS
from batonflow.instrumentation.logs import session_here
from batonflow.llms import Usage
from batonflow.values.agent_info import AgentInfo
from batonflow.workflow_core import Context

__all__ = ["acting_agent"]


def acting_agent(loop: Any, ctx: Context[Any]) -> AgentInfo:
    """Return the agent that acts in the run of a context.

    Args:
        loop: The agent or team that runs.
        ctx: The context of the run.
    """
    store = (ctx.whole or ctx).store
    name: str | None = store.get_sync("current_agent_name", default=None)
    totals: dict[str, Usage] = store.get_sync("usage", default=None) or {}
    session = "" if ctx.run is None else ctx.run.variables.get(session_here, "")
    return AgentInfo(
        name=loop.__batonflow_team__.member(name).name,
        turn=_turn(ctx.run_id, session),
        session=session,
        usage=sum(totals.values(), Usage()),
        max_iterations=store.get_sync("max_iterations", default=None) or DEFAULT_MAX_ITERATIONS,
    )


def _turn(run_id: str, session: str) -> int:
    """Return the number of a turn from its run id or the id of a child run. It is 1 without a session."""
    number = run_id.removeprefix(f"{session}:").partition("/")[0]
    return int(number) if session and number.isdecimal() else 1
