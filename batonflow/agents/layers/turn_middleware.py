"""Users' middleware at the beginning and at the end of a turn."""

from typing import Any

from batonflow.agents.events import AgentOutput
from batonflow.agents.hooks import Block
from batonflow.agents.layers.guards import blocked_output
from batonflow.agents.members import Member, Team
from batonflow.agents.middleware_points import call_point, noted, points_of, result_of
from batonflow.llms import ChatMessage
from batonflow.workflow_core import Context

__all__ = ["after_run", "before_run"]


async def before_run(ctx: Context[Any], team: Team, agent: Member, message: ChatMessage) -> ChatMessage | AgentOutput:
    """Return the user's message after the middleware, or the output of a turn that a middleware blocked."""
    for middleware in points_of(team, agent).before_run:
        with noted(middleware, "before_run"):
            running = call_point(middleware, "before_run", ctx, message)
            decision = await result_of(running, middleware, "before_run", (ChatMessage, Block, type(None)))
        if isinstance(decision, Block):
            return blocked_output(agent, decision.reason, "input")
        message = decision or message
    return message


async def after_run(ctx: Context[Any], team: Team, agent: Member, output: AgentOutput) -> AgentOutput:
    """Return the answer after the middleware; an output with ``blocked`` if one of them has blocked it."""
    for middleware in points_of(team, agent).after_run:
        with noted(middleware, "after_run"):
            running = call_point(middleware, "after_run", ctx, output)
            decision = await result_of(running, middleware, "after_run", (AgentOutput, Block, type(None)))
        if isinstance(decision, Block):
            return blocked_output(agent, decision.reason, "output", output.tool_calls)
        output = decision or output
    return output
