"""Structured answers: the result of a conversation as data of a pydantic model."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from pydantic import BaseModel

from batonflow.agents.budget import Limits
from batonflow.agents.ledger import within_time
from batonflow.llms import LLM, ChatMessage
from batonflow.llms.structured import Form, UnfitError
from batonflow.llms.structured_llm import generate_structured_response
from batonflow.user_warnings import warn_user

__all__ = ["native_form", "structured_response"]


def native_form(output_cls: type[BaseModel]) -> Any:
    """Return the schema of a form for vendors; None if the form has no strict schema."""
    return Form(output_cls).native


async def structured_response(
    llm: LLM | None,
    messages: Sequence[ChatMessage],
    output_cls: type[BaseModel] | None,
    output_fn: Callable[[list[ChatMessage]], Any] | None,
    answer: str | None = None,
    limits: Limits | None = None,
) -> dict[str, Any] | None:
    """Return the answer of a conversation as JSON data; None, with a warning, after a failure.

    Args:
        llm: The model that creates the answer.
        messages: The conversation.
        output_cls: The class of the answer.
        output_fn: A function that creates the answer from the conversation instead.
        answer: The text of the answer; if it already consists of the data, the model is not asked.
        limits: The budgets that apply, for their time.
    """
    try:
        if output_fn is not None:
            found = output_fn(list(messages))
            return _as_data(await within_time(found, limits) if inspect.isawaitable(found) else found)
        if output_cls is not None:
            if answer is not None and (data := _in_form(answer, output_cls)) is not None:
                return data
            if llm is None:
                raise ValueError("the agent has no model that could give it")
            return await within_time(generate_structured_response(messages, llm, output_cls), limits)
    except Exception as error:  # noqa: BLE001 - the answer itself must not be lost with its structured form
        warn_user(f"There was a problem with the generation of the structured output: {error}")
    return None


def _as_data(found: Any) -> dict[str, Any] | None:
    """Return the result of a user's function in the form of the output."""
    if isinstance(found, BaseModel):
        return found.model_dump(mode="json")
    if found is not None and not isinstance(found, dict):
        raise TypeError(f"structured_output_fn returns a dict or a pydantic object, not {type(found).__name__}")
    return cast("dict[str, Any] | None", found)


def _in_form(answer: str, output_cls: type[BaseModel]) -> dict[str, Any] | None:
    """Return the data of which ``answer`` consists; None for other answers."""
    text = answer.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        return Form(output_cls).parse_text(text).model_dump(mode="json")
    except UnfitError:
        return None
