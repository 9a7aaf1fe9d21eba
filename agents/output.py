"""Structured answers: the conversation's outcome as data of a pydantic model."""

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel

from batonflow.agents.prompts import STRUCTURED_OUTPUT
from batonflow.llms import LLM, ChatMessage
from batonflow.tools import FunctionTool, ToolMetadata

__all__ = ["structured_response"]


async def structured_response(
    llm: LLM | None,
    messages: Sequence[ChatMessage],
    output_cls: type[BaseModel] | None,
    output_fn: Callable[[list[ChatMessage]], Any] | None,
) -> dict[str, Any] | None:
    """The answer of a conversation as data; None, with a warning, when it cannot be had."""
    try:
        if output_fn is not None:
            found = output_fn(list(messages))
            return await found if inspect.isawaitable(found) else found
        if output_cls is not None:
            return (await _ask(llm, messages, output_cls)).model_dump()
    except Exception as error:  # noqa: BLE001 - the answer itself must not be lost with its structured form
        warnings.warn(f"There was a problem with the generation of the structured output: {error}", stacklevel=2)
    return None


def _keep(**fields: Any) -> dict[str, Any]:
    """What the model's tool does: its arguments are the answer."""
    return fields


async def _ask(llm: Any, messages: Sequence[ChatMessage], output_cls: type[BaseModel]) -> BaseModel:
    """Have the model call a tool whose arguments are the answer."""
    name = str(output_cls.model_json_schema().get("title", output_cls.__name__))
    metadata = ToolMetadata(name=name, description=output_cls.__doc__ or f"The answer as {name}.", fn_schema=output_cls)
    tool = FunctionTool(fn=_keep, metadata=metadata)
    request = [*messages, ChatMessage(STRUCTURED_OUTPUT.format(name=name))]
    response = await llm.achat_with_tools(tools=[tool], chat_history=request, tool_required=True)
    calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
    if not calls:
        raise ValueError(f"the model called no tool and said: {response.message.content!r}")
    return output_cls.model_validate(calls[0].tool_kwargs)
