"""Users' middleware around an answer of the model."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from batonflow.agents.asking import request_here, turn_here
from batonflow.agents.events import AgentOutput
from batonflow.agents.members import Member, Team
from batonflow.agents.middleware import CallModel, Middleware, ModelRequest
from batonflow.agents.middleware_points import PassedOn, call_point, noted, points_of, result_of
from batonflow.llms import ChatMessage
from batonflow.tools import AsyncBaseTool
from batonflow.workflow_core import Context

__all__ = ["around_model"]


async def around_model(
    ctx: Context[Any],
    team: Team,
    agent: Member,
    take_step: Callable[[list[ChatMessage], Sequence[AsyncBaseTool]], Awaitable[AgentOutput]],
    shown: list[ChatMessage],
    tools: Sequence[AsyncBaseTool],
) -> AgentOutput:
    """Pass a request for an answer through the middleware, the outermost first.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
        agent: The agent that acts.
        take_step: Asks the model with messages and tools.
        shown: The messages for the model.
        tools: The tools for the model.
    """
    wrapping = points_of(team, agent).around_model
    if not wrapping:
        return await take_step(shown, tools)
    names = [tool.metadata.get_name() for tool in tools]
    turn = [message for message in await agent.unfinished(ctx) if isinstance(message, ChatMessage)]

    async def ask(request: ModelRequest) -> AgentOutput:
        added = next((one for tool in request.tools if (one := tool.metadata.get_name()) not in names), None)
        if added is not None:
            raise ValueError(
                f"Agent {agent.name} has no tool {added!r}: around_model may leave out tools; "
                "a middleware adds tools with its method tools()"
            )
        token, turns = request_here.set(request), turn_here.set(None if request.turn == turn else request.turn)
        try:
            return await take_step(request.messages, request.tools)
        finally:
            request_here.reset(token)
            turn_here.reset(turns)

    call: CallModel = ask
    for middleware in reversed(wrapping):
        call = partial(_through, middleware, ctx, call)
    llm, streams = agent.llm_or_none(), agent.streaming
    return await call(ModelRequest(agent.name, list(shown), list(tools), llm, streams, turn=list(turn)))


async def _through(
    middleware: Middleware[Any], ctx: Context[Any], call_next: CallModel, request: ModelRequest
) -> AgentOutput:
    passed_on = PassedOn()

    def go_on(changed: ModelRequest) -> Awaitable[AgentOutput]:
        return passed_on.of(call_next(changed))

    with noted(middleware, "around_model", passed_on):
        running = call_point(middleware, "around_model", ctx, request, go_on)
        return await result_of(running, middleware, "around_model", (AgentOutput,))
