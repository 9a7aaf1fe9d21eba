"""Traces of agents: a span for each answer of a model, with the name of the agent."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from batonflow.instrumentation import events, get_dispatcher
from batonflow.instrumentation.context import active_instrument_tags, active_span_id, instrument_tags, undo
from batonflow.instrumentation.traced import bound
from batonflow.llms import genai

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from batonflow.agents.events import AgentOutput
    from batonflow.agents.members import Member, Team
    from batonflow.workflow_core import Context

__all__ = ["dispatcher", "speaking", "spoken", "traced"]

T = TypeVar("T")

dispatcher = get_dispatcher(__name__)

# Events of traces are made, and their classes loaded, only when the dispatcher has handlers.


def speaking(name: str) -> "AbstractContextManager[None]":
    """Let the spans of models and tools inside of ``with`` say which agent's they are."""
    return instrument_tags({**active_instrument_tags.get(), genai.AGENT_NAME: name})


async def spoken(name: str, running: Awaitable[T]) -> T:
    """Await a tool, with the name of its agent in the spans."""
    with speaking(name):
        return await running


async def traced(
    team: "Team", agent: "Member", given: tuple[Any, ...], running: "Awaitable[AgentOutput]"
) -> "AgentOutput":
    """Wait for an agent's answer, inside a span, with an event before and one after.

    Args:
        team: The agents of the loop.
        agent: The agent.
        given: The arguments of its ``take_step``; first the run's context.
        running: The answer.
    """
    ctx: Context[Any] = given[0]
    run_id = ctx.run_id
    turn: int = await ctx.store.get("num_iterations", default=0) + 1
    asked: str = await ctx.store.get("user_msg_str", default="")
    tags: dict[str, Any] = {genai.AGENT_NAME: agent.name, genai.CONVERSATION_ID: run_id, genai.TURN: turn}
    if team.loop is not agent:  # else the span of the run is that of the agent
        tags |= {genai.OPERATION: "invoke_agent", genai.AGENT_DESCRIPTION: agent.description}
    arguments = bound(agent.take_step, *given) if dispatcher.tells_arguments else None
    name = f"{type(agent).__name__}.take_step"
    span_id = dispatcher.open_span(name, instance=agent, bound_args=arguments, tags=tags)
    token = active_span_id.set(span_id)
    dispatcher.event(events.agent.AgentRunStepStartEvent(task_id=run_id, step=turn, input=asked, span_id=span_id))
    try:
        with speaking(agent.name):
            output = await running
    except BaseException as err:
        dispatcher.tag_span(span_id, {genai.ERROR_TYPE: type(err).__name__})
        dispatcher.fail_span(span_id, err, agent, arguments)
        raise
    finally:
        undo(token)
    dispatcher.event(events.agent.AgentRunStepEndEvent(step_output=output, span_id=span_id))
    dispatcher.close_span(span_id, output, agent, arguments)
    return output
