"""The state of a run in the messages for a model."""

from typing import Any

from pydantic import BaseModel

from batonflow.agents.memory.turns import is_question, text_of
from batonflow.llms import ChatMessage, TextBlock
from batonflow.llms.prompts.base import fill
from batonflow.workflow_core import Context

__all__ = ["with_shown_state"]

_KEPT = "shown_state"
"""The key of the acting agent, the state when it took over, and the text that it surrounds."""


async def with_shown_state(
    ctx: Context[Any], shown: list[ChatMessage], state: Any, agent: str, prompt: str
) -> list[ChatMessage]:
    """Return the messages with the state around the agent's task, which is the user's message or a handoff.

    The state is from the start of the agent's turn, so that its requests have the same beginning for the vendor's
    cache.

    Args:
        ctx: The run's context, inside a step.
        shown: The messages, one at least.
        state: The state now.
        agent: The name of the agent.
        prompt: The prompt around the state, with ``{state}`` and ``{msg}``.
    """
    store = ctx.store
    kept: list[str] | None = await store.get(_KEPT, default=None)
    first = not await store.get("formatted_input_with_state", default=False)
    asked: str = await store.get("user_msg_str", default="")
    if first or not isinstance(kept, list) or kept[0] != agent:
        place = _place(shown, asked)
        place = len(shown) - 1 if place is None else place
        kept = [agent, _as_text(state), text_of(shown[place])]
        await store.set(_KEPT, kept)
        await store.set("formatted_input_with_state", True)
    else:
        place = _place(shown, kept[2] if len(kept) > 2 else asked)
        if place is None:
            return shown
    return [*shown[:place], _with_state(shown[place], kept[1], prompt), *shown[place + 1 :]]


def _as_text(state: Any) -> str:
    """Return the state as text. A typed state is JSON, of the fields in ``__batonflow_shown__`` if it names some."""
    if not isinstance(state, BaseModel):
        return str(state)
    return state.model_dump_json(include=getattr(type(state), "__batonflow_shown__", None))


def _place(shown: list[ChatMessage], text: str) -> int | None:
    """Return the position of the newest question with a text, or of the newest question."""
    questions = [place for place, message in enumerate(shown) if is_question(message)]
    return next((place for place in reversed(questions) if text_of(shown[place]) == text), (questions or [None])[-1])


def _with_state(message: ChatMessage, state: str, prompt: str) -> ChatMessage:
    """Return a message with the state around its last text.

    Args:
        message: The user's message.
        state: The state as text.
        prompt: The prompt around the state, with ``{state}`` and ``{msg}``.
    """
    blocks = list(message.blocks)
    for index in range(len(blocks) - 1, -1, -1):
        block = blocks[index]
        if isinstance(block, TextBlock):
            blocks[index] = TextBlock(text=fill(prompt, {"state": state, "msg": block.text}))
            break
    return ChatMessage(blocks, role=message.role, additional_kwargs=message.additional_kwargs)
