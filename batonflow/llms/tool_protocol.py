"""The interface between models and tools."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol, Self, cast
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from batonflow.clock import current_source
from batonflow.llms.blocks import ToolCallBlock, has_halves, whole_texts
from batonflow.llms.lazy_fields import CALLS, assembled
from batonflow.llms.messages import ChatMessage

__all__ = [
    "ToolLike",
    "ToolMetadataLike",
    "ToolSelection",
    "ToolSpec",
    "chosen_tool",
    "not_a_tool",
    "parse_arguments",
    "tool_call_blocks",
    "tool_selections",
    "tool_specs",
    "wire_id",
    "wire_name",
]


class ToolMetadataLike(Protocol):
    """The metadata of a tool that a model reads."""

    @property
    def name(self) -> str | None:
        """The name of the tool."""
        ...

    @property
    def description(self) -> str:
        """The purpose of the tool and the cases for its use."""
        ...

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        ...


class ToolLike(Protocol):
    """The interface of a tool that a model can be given."""

    @property
    def metadata(self) -> ToolMetadataLike:
        """The name, description and parameters of the tool."""
        ...


class ToolSpec(BaseModel):
    """A tool as a model sees it. It can stand in for a tool where only the metadata is read.

    Args:
        name: Letters, digits, ``_`` and ``-`` only.
        description: The purpose of the tool and the cases for its use.
        parameters: The JSON schema of the arguments.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})

    @property
    def metadata(self) -> Self:
        """The spec itself."""
        return self

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        return self.parameters


class ToolSelection(BaseModel):
    """A tool call of a model.

    Args:
        tool_id: The id of the call, which the tool message repeats; a random one when left out.
        tool_name: The name of the tool.
        tool_kwargs: The arguments; any value that is not a dict becomes an empty dict.
        invalid_arguments: The original text of arguments that are not a JSON object, for an error to the model.
    """

    tool_id: str = Field(default_factory=lambda: str(uuid4()))
    tool_name: str
    tool_kwargs: dict[str, Any]
    invalid_arguments: str | None = None

    @staticmethod
    def made(
        tool_id: str, tool_name: str, tool_kwargs: dict[str, Any], invalid_arguments: str | None = None
    ) -> "ToolSelection":
        """Return a call of valid values, without validation; the dict is not copied."""
        return assembled(
            ToolSelection,
            {
                "tool_id": tool_id,
                "tool_name": tool_name,
                "tool_kwargs": tool_kwargs,
                "invalid_arguments": invalid_arguments,
            },
        )

    @model_validator(mode="before")
    @classmethod
    def _only_dicts(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        values = cast("dict[str, Any]", data)
        if "tool_kwargs" in values and not isinstance(values["tool_kwargs"], dict):
            return {**values, "tool_kwargs": {}}
        return values

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped = cast("dict[str, Any]", handler(self))
        if self.invalid_arguments is None:
            dumped.pop("invalid_arguments", None)
        return dumped


# The limit of OpenAI.
_LONGEST_NAME = 64
_CHOICES = frozenset({"auto", "required", "none"})


def chosen_tool(choice: Any, tools: Sequence[ToolSpec]) -> str | None:
    """Return the name of the chosen tool as vendors know it; None when the choice names no tool.

    Args:
        choice: ``tool_choice`` of a request.
        tools: The tools of the request.
    """
    if not isinstance(choice, str) or choice in _CHOICES:
        return None
    return choice if any(tool.name == choice for tool in tools) else wire_name(choice)


@lru_cache(maxsize=1024)
def wire_name(name: str) -> str:
    """Return a tool name that vendors accept: at most 64 letters, digits, ``_`` and ``-``."""
    if name.isascii() and name.isidentifier() and len(name) <= _LONGEST_NAME:
        return name
    return _cut(re.sub(r"[^A-Za-z0-9_-]", "_", name) or "_", _LONGEST_NAME, 8)


def wire_id(call_id: str | None, longest: int | None) -> str:
    """Return a call id of at most ``longest`` characters, the same for the call and its result."""
    return (call_id or "") if longest is None else _cut(call_id or "", longest, 24)


def _cut(name: str, longest: int, digits: int) -> str:
    """Return a long name cut to ``longest`` characters, with a hash that keeps it unique."""
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:digits]
    return f"{name[: longest - digits - 1]}_{digest}"


def tool_specs(tools: Iterable[Any] | None) -> list[ToolSpec]:
    """Return specs of tools, of specs, or of dicts in OpenAI's form.

    Raises:
        TypeError: An item is not a tool.
        ValueError: A tool has no name.
    """
    specs: list[ToolSpec] = []
    for tool in tools or ():
        if isinstance(tool, ToolSpec):
            specs.append(tool)
        elif isinstance(tool, dict):
            given = cast("dict[str, Any]", tool)
            specs.append(ToolSpec.model_validate(given.get("function", given)))
        elif hasattr(tool, "metadata"):
            # An isinstance check of the protocol would cost more than the rest of this function.
            metadata: ToolMetadataLike = tool.metadata
            if not metadata.name:
                raise ValueError(f"{tool!r} has no name, and a model could not call it: set the name in its metadata")
            made: Any = getattr(metadata, "spec", None)
            if made is not None:
                # Tools of this package keep their spec, so that the schema is not read again for every request.
                specs.append(made())
                continue
            specs.append(
                ToolSpec(
                    name=wire_name(metadata.name),
                    description=metadata.description or "",
                    parameters=metadata.get_parameters_dict(),
                )
            )
        else:
            raise TypeError(not_a_tool(tool))
    return specs


def not_a_tool(value: Any) -> str:
    """Return the text of the error for an object among tools that is not one."""
    given = getattr(value, "base_tool", value)  # the adapter of an object that was taken for a tool
    if callable(getattr(given, "as_tool", None)):
        return f"the agent {given.name} is not a tool: put {given.name}.as_tool() into tools"
    return f"{given!r} is not a tool: it has no metadata; for a function write FunctionTool.from_defaults(function)"


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the JSON object in ``text``, an empty one for empty text, None for anything else."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
        if "\\u" in text or (not text.isascii() and has_halves(text)):
            value = whole_texts(value)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def tool_call_blocks(message: ChatMessage) -> list[ToolCallBlock]:
    """Return the calls of an assistant message as blocks with unique ids, including calls in the older form."""
    texts = [block.tool_kwargs for block in message.blocks if isinstance(block, ToolCallBlock)]
    return [
        ToolCallBlock(
            tool_call_id=one.tool_id,
            tool_name=one.tool_name,
            tool_kwargs=texts[number] if texts and one.invalid_arguments else one.tool_kwargs,
        )
        for number, one in enumerate(tool_selections(message))
    ]


# The entry that the dict contains. Calls that a subclass makes on demand are left out.
_get: Any = getattr(dict, "get")  # noqa: B009 - dict.get would have an unknown type


def kept_calls(message: ChatMessage) -> Any:
    """Return the entry ``"tool_calls"`` of a message, None for an empty one."""
    return _get(message.additional_kwargs, CALLS)


def tool_selections(message: ChatMessage) -> list[ToolSelection]:
    """Return the calls of a message with unique ids: missing ids are made, repeated ids are changed."""
    blocks = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    selections = _from_blocks(blocks) if blocks else _from_older_form(kept_calls(message) or ())
    if len(selections) < 2:
        return selections
    # An id depends only on the calls before it, so the ids of a response that is still arriving do not change.
    seen: set[str] = set()
    for number, selection in enumerate(selections):
        given, suffix = selection.tool_id, number
        while selection.tool_id in seen:
            selection.tool_id = f"{given}_{suffix}"
            suffix += 1
        seen.add(selection.tool_id)
    return selections


def _arguments(given: Any) -> tuple[dict[str, Any], str | None]:
    """Return the arguments of a call, and their original text when it is not a JSON object."""
    if not isinstance(given, str):
        return cast("dict[str, Any]", given) if isinstance(given, dict) else {}, None
    parsed = parse_arguments(given)
    return parsed or {}, given if parsed is None else None


def _new_call_id() -> str:
    return f"call_{current_source().token(12)}"


def _from_blocks(blocks: Sequence[ToolCallBlock]) -> list[ToolSelection]:
    selections: list[ToolSelection] = []
    for block in blocks:
        if not block.tool_call_id:
            # Stored in the block, so that the next call of this function returns the same id.
            block.tool_call_id = _new_call_id()
        given = block.tool_kwargs
        arguments, invalid = _arguments(given) if isinstance(given, str) else (given, None)
        selections.append(ToolSelection.made(block.tool_call_id, block.tool_name, dict(arguments), invalid))
    return selections


def _from_older_form(calls: Sequence[Any]) -> list[ToolSelection]:
    """Return the calls in ``additional_kwargs["tool_calls"]``: selections, OpenAI's objects, or their data."""
    selections: list[ToolSelection] = []
    for call in calls:
        if isinstance(call, ToolSelection):
            # A copy, because the ids may have to change, and the message belongs to the caller.
            selections.append(call.model_copy())
        elif isinstance(call, dict):
            given = cast("dict[str, Any]", call)
            if "tool_name" in given:
                selections.append(ToolSelection.model_validate(given))
            else:
                function = cast("dict[str, Any]", given.get("function", {}))
                selections.append(_selection(given.get("id"), function.get("name", ""), function.get("arguments", "")))
        elif hasattr(call, "function"):
            # Calls that additional_kwargs make on demand, and objects of a vendor's SDK.
            function = call.function
            selections.append(_selection(getattr(call, "id", None), function.name, function.arguments))
        else:
            raise TypeError(f"{call!r} in additional_kwargs['tool_calls'] is not a tool call")
    return selections


def _selection(call_id: Any, name: Any, given: Any) -> ToolSelection:
    arguments, invalid = _arguments(given)
    return ToolSelection(
        tool_id=call_id or _new_call_id(), tool_name=str(name), tool_kwargs=arguments, invalid_arguments=invalid
    )
