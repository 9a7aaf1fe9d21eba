"""Instructions: texts of functions in the system message. A turn asks for them once and keeps them in its state."""

import inspect
from collections.abc import Sequence
from typing import Any, cast

from batonflow.agents.hooks import name_of
from batonflow.agents.instructions import EachStep
from batonflow.agents.ledger import INSTRUCTIONS, has_options
from batonflow.agents.members import Member, Team
from batonflow.agents.middleware_points import points_of
from batonflow.llms import ChatMessage, MessageRole, TextBlock
from batonflow.tools.schema import context_for, parameters_of
from batonflow.workflow_core import Context

__all__ = ["system_message"]


async def system_message(ctx: Context[Any], team: Team, agent: Member) -> ChatMessage | None:
    """Return the system message of an agent: its prompt and fixed texts first, then the texts of functions.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
        agent: The agent that acts.
    """
    given: list[Any] = [*points_of(team, agent).instructions, *agent.instructions]
    if ctx.run is not None and has_options(ctx.run):
        from batonflow.agents.run_options import instructions_of_run  # noqa: PLC0415 - most runs do not need it

        given += instructions_of_run(ctx.run)
    fixed = [agent.system_prompt, *(one for one in given if isinstance(one, str))]
    texts = [*fixed, *await _texts_of_functions(ctx, agent.name, [one for one in given if not isinstance(one, str)])]
    blocks = [TextBlock(text=text) for text in texts if text]
    return ChatMessage(blocks, role=MessageRole.SYSTEM) if blocks else None


async def _texts_of_functions(ctx: Context[Any], agent: str, functions: Sequence[Any]) -> list[str | None]:
    """Return the texts of functions; those from earlier in the turn are the same as before."""
    if not functions:
        return []
    kept: dict[str, list[str | None]] = await ctx.store.get(INSTRUCTIONS, default=None) or {}
    known = kept.get(agent, [])
    # A run that was resumed may have more of them than before.
    texts = [
        await _text_of(one, ctx) if place >= len(known) or isinstance(one, EachStep) else known[place]
        for place, one in enumerate(functions)
    ]
    if len(known) < len(texts):
        await ctx.store.set(INSTRUCTIONS, {**kept, agent: texts})
    return texts


async def _arguments(function: Any, ctx: Context[Any]) -> dict[str, Any]:
    """Return the arguments of an instruction: the context, and resources."""
    parameters = parameters_of(function)
    resources = [one.resource for one in parameters if one.resource is not None]
    given: dict[str, Any] = {}
    if resources and ctx.run is not None:
        given = await ctx.run.workflow.__batonflow__.resource_manager.resolve(resources)
    taking = next((one.name for one in parameters if one.resource is None), None)
    return given if taking is None else {**given, taking: context_for(function, ctx)}


async def _text_of(function: Any, ctx: Context[Any]) -> str | None:
    """Ask an instruction for its text.

    Raises:
        TypeError: It returned neither a string nor None.
    """
    if isinstance(function, EachStep):
        function = cast("Any", function).function
    try:
        text = function(**await _arguments(function, ctx))
        if inspect.isawaitable(text):
            text = await text
        if text is not None and not isinstance(text, str):
            raise TypeError(f"an instruction returns a text or None, not {type(text).__name__}")
    except Exception as error:
        error.add_note(f"in instruction {name_of(function)}")
        raise
    return text
