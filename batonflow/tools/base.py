"""Base classes of tools: metadata for models, calls and outputs, and the validation of arguments."""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ValidationError, field_serializer

from batonflow import values
from batonflow.llms.blocks import ContentBlock, TextBlock, sendable
from batonflow.llms.lazy_fields import assembled
from batonflow.llms.tool_protocol import ToolSpec, wire_name
from batonflow.threads import in_thread
from batonflow.tools.schema import ToolArgumentsError, argument_names, parameters_text
from batonflow.user_warnings import warn_user

_SCALARS = frozenset({str, int, float, bool, type(None)})
_SEQUENCES = frozenset({tuple, list})

__all__ = [
    "AsyncBaseTool",
    "BaseTool",
    "BaseToolAsyncAdapter",
    "DefaultToolFnSchema",
    "ToolMetadata",
    "ToolOutput",
    "adapt_to_async_tool",
    "validated_arguments",
]

_LONGEST_DESCRIPTION = 1024


class DefaultToolFnSchema(BaseModel):
    """Arguments of a tool without declared arguments: one text."""

    input: str


@dataclass
class ToolMetadata:
    """Description of a tool for models.

    Args:
        description: The purpose of the tool, and when to use it.
        name: Its name.
        fn_schema: Model of its arguments; None is one text called ``input``.
        return_direct: End the run with the output as the answer.

    Raises:
        ValueError: ``return_direct`` is neither.
    """

    description: str
    name: str | None = None
    fn_schema: type[BaseModel] | None = DefaultToolFnSchema
    return_direct: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.return_direct, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"return_direct is True or False, not {self.return_direct!r}")
        self._spec: tuple[Any, ToolSpec] | None = None

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        if self.fn_schema is None:
            return {
                "type": "object",
                "properties": {"input": {"title": "input query string", "type": "string"}},
                "required": ["input"],
            }
        # A new dict for each caller, because callers may change it.
        return cast("dict[str, Any]", json.loads(parameters_text(self.fn_schema)))

    def spec(self) -> ToolSpec:
        """Return the specification for models, which callers must not change; it is cached until a field changes.

        Raises:
            ValueError: The tool has no name.
        """
        key = (type(self), self.name, self.description, self.fn_schema)
        if self._spec is None or self._spec[0] != key:
            name = wire_name(self.get_name())
            made = ToolSpec(name=name, description=self.description or "", parameters=self.get_parameters_dict())
            self._spec = key, made
        return self._spec[1]

    @property
    def fn_schema_str(self) -> str:
        """Return the JSON schema as text; raise ValueError if ``fn_schema`` is None."""
        if self.fn_schema is None:
            raise ValueError("fn_schema is None.")
        return json.dumps(self.get_parameters_dict(), ensure_ascii=False)

    def get_name(self) -> str:
        """Return the name; raise ValueError if it is missing."""
        if self.name is None:
            raise ValueError("name is None.")
        return self.name

    def to_openai_function(self) -> dict[str, Any]:
        """Return the tool in OpenAI's deprecated form for functions; use ``to_openai_tool`` instead."""
        text = "ToolMetadata.to_openai_function() is deprecated, use to_openai_tool()"
        warn_user(text, DeprecationWarning)
        return self.to_openai_tool(skip_length_check=True)["function"]

    def to_openai_tool(self, skip_length_check: bool = False) -> dict[str, Any]:
        """Return the tool in the form of OpenAI's API.

        Args:
            skip_length_check: Allow descriptions longer than 1024 characters.

        Raises:
            ValueError: The description is longer.
        """
        if not skip_length_check and len(self.description) > _LONGEST_DESCRIPTION:
            raise ValueError(
                f"Tool description exceeds maximum length of {_LONGEST_DESCRIPTION} characters: shorten it, or move "
                "parts of it to the prompt."
            )
        name = None if self.name is None else wire_name(self.name)
        function = {"name": name, "description": self.description, "parameters": self.get_parameters_dict()}
        return {"type": "function", "function": function}


def _is_call(value: Any) -> bool:
    if type(value) is not dict or len(value) != 2:  # pyright: ignore[reportUnknownArgumentType] - a cast costs as much
        return False
    return type(value.get("args")) in _SEQUENCES and type(value.get("kwargs")) is dict  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _comes_back(value: Any, is_plain: Callable[[Any], bool]) -> bool:
    if not _is_call(value):
        return is_plain(value)
    given = value["args"]
    return type(given) is tuple and (not given or is_plain(list(given))) and is_plain(value["kwargs"])  # pyright: ignore[reportUnknownArgumentType]


class ToolOutput(BaseModel):
    """Output of a tool call.

    Args:
        tool_name: Name of the tool.
        content: The text for the model.
        blocks: The content as blocks, instead of ``content``.
        raw_input: The arguments.
        raw_output: The value that the tool returned.
        is_error: True if the call failed.
        exception: The reason for the failure.

    Raises:
        ValueError: Both ``content`` and ``blocks`` are given.
    """

    # Snapshots may replace these values by words.
    __batonflow_told__: ClassVar[frozenset[str]] = frozenset({"raw_input", "raw_output"})

    __batonflow_fits__: ClassVar[Mapping[str, Any]] = {"raw_input": _comes_back}

    blocks: list[ContentBlock]
    tool_name: str
    raw_input: dict[str, Any]
    raw_output: Any
    is_error: bool = False

    def __init__(
        self,
        tool_name: str,
        content: str | None = None,
        blocks: list[Any] | None = None,
        raw_input: dict[str, Any] | None = None,
        raw_output: Any = None,
        is_error: bool = False,
        exception: Exception | None = None,
    ) -> None:
        if content and blocks:
            raise ValueError("Cannot provide both content and blocks.")
        if content:
            blocks = [TextBlock(text=sendable(content))]
        if raw_input and _is_call(raw_input):
            # JSON turns tuples into lists.
            raw_input = {"args": tuple(raw_input["args"]), "kwargs": raw_input["kwargs"]}
        super().__init__(
            tool_name=tool_name,
            blocks=blocks or [],
            raw_input=raw_input or {},
            raw_output=raw_output,
            is_error=is_error,
        )
        if exception is not None:
            self.exception = exception

    @field_serializer("raw_input", "raw_output", when_used="json")
    def _as_json(self, value: Any) -> Any:
        # Inputs and outputs may be any objects, but events with this output must serialize to JSON.
        if type(value) in _SCALARS:
            return value
        if _is_call(value) and not value["args"] and _SCALARS.issuperset(map(type, value["kwargs"].values())):
            return value
        return values.json_or_words(value)

    @staticmethod
    def of_text(tool_name: str, text: str, raw_input: dict[str, Any], raw_output: Any) -> "ToolOutput":
        """Return the output of a call that gave a text; it skips validation, which a text cannot fail.

        Args:
            tool_name: Name of the tool.
            text: The text for the model; invalid characters are removed (see ``sendable``).
            raw_input: The arguments.
            raw_output: The value that the tool returned.
        """
        return assembled(
            ToolOutput,
            {
                "blocks": [assembled(TextBlock, {"block_type": "text", "text": text})],
                "tool_name": tool_name,
                "raw_input": raw_input,
                "raw_output": raw_output,
                "is_error": False,
            },
        )

    @property
    def content(self) -> str:
        """The text blocks joined by line breaks; setting it replaces all blocks."""
        return "\n".join([block.text for block in self.blocks if isinstance(block, TextBlock)])

    @content.setter
    def content(self, content: str) -> None:
        self.blocks = [TextBlock(text=content)]

    @property
    def exception(self) -> Exception | None:
        """The exception of a failed call; serialization omits it."""
        # A private attribute of pydantic would double the cost of every output.
        return self.__dict__.get("exception")

    @exception.setter
    def exception(self, exception: Exception | None) -> None:
        vars(self)["exception"] = exception

    def __str__(self) -> str:
        return self.content


class BaseTool(ABC):
    """A tool with a synchronous call."""

    @property
    @abstractmethod
    def metadata(self) -> ToolMetadata:
        """Name, description and parameters."""

    @abstractmethod
    def __call__(self, input: Any) -> ToolOutput:  # noqa: A002 - the contract's name
        """Call the tool."""


class AsyncBaseTool(BaseTool):
    """A tool with a synchronous and an asynchronous call."""

    def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool synchronously; the same as :meth:`call`."""
        return self.call(*args, **kwargs)

    @abstractmethod
    def call(self, input: Any) -> ToolOutput:  # noqa: A002 - the contract's name
        """Call the tool synchronously."""

    @abstractmethod
    async def acall(self, input: Any) -> ToolOutput:  # noqa: A002 - the contract's name
        """Call the tool asynchronously."""

    def acall_reporting(
        self,
        arguments: Mapping[str, Any],
        report: Callable[[Any], None] | None,  # noqa: ARG002 - for tools with progress
    ) -> Awaitable[ToolOutput]:
        """Call the tool asynchronously with arguments by name, and report its progress.

        Args:
            arguments: By name.
            report: Called on the event loop's thread with each value that the tool yields before its output.
        """
        call: Any = self.acall  # tools have their own parameters
        return call(**arguments)


class BaseToolAsyncAdapter(AsyncBaseTool):
    """Adapter that awaits a synchronous tool in a thread, with the caller's context variables.

    Args:
        tool: The tool.
    """

    def __init__(self, tool: BaseTool) -> None:
        self.base_tool = tool

    @property
    def metadata(self) -> ToolMetadata:
        """Return the metadata of the tool."""
        return self.base_tool.metadata

    @property
    def policy(self) -> Any:
        """Return the policy of the tool, or None."""
        return getattr(self.base_tool, "policy", None)

    def call(self, input: Any = ..., **kwargs: Any) -> ToolOutput:  # noqa: A002 - the contract's name
        """Call the tool."""
        # Tools written for LlamaIndex have their own signatures: one value, or several by name.
        function: Callable[..., ToolOutput] = self.base_tool
        return function(**kwargs) if input is ... else function(input, **kwargs)

    async def acall(self, input: Any = ..., **kwargs: Any) -> ToolOutput:  # noqa: A002 - the contract's name
        """Call the tool in a thread."""
        return await in_thread(self.call, input, **kwargs)


def adapt_to_async_tool(tool: BaseTool) -> AsyncBaseTool:
    """Return an asynchronous tool unchanged, and wrap a synchronous one in an adapter."""
    return tool if isinstance(tool, AsyncBaseTool) else BaseToolAsyncAdapter(tool)


# --- arguments --------------------------------------------------------------------------------------------------------

_VALIDATES: Any = getattr(BaseModel.model_validate, "__func__")  # noqa: B009 - of a bound method


def validated_arguments(
    tool_name: str, schema: type[BaseModel], arguments: Mapping[str, Any], refused: Collection[str] = ()
) -> dict[str, Any]:
    """Check and convert arguments: ``"7"`` for an int becomes 7, a dict for a model becomes that model.

    Args:
        tool_name: For the message.
        schema: Model of the arguments.
        arguments: The model's arguments, by name.
        refused: Names that the model must not send, even if the schema allows any name.

    Returns:
        The given arguments only, so that the function's own defaults hold.

    Raises:
        ToolArgumentsError: The arguments do not fit; the message names every wrong argument and its problem.
    """
    names = argument_names(schema)
    problems: list[str] = []
    if refused or not arguments.keys() <= names.keys():
        known = ", ".join(names) or "none"
        takes_any = schema.model_config.get("extra") == "allow"
        unknown = [one for one in arguments if one in refused or not (takes_any or one in names)]
        problems = [f"{one}: no such argument (known: {known})" for one in unknown]
    # Without a method of the schema's own, the validator is called without the argument checks of model_validate.
    validate = schema.model_validate if _overrides_validation(schema) else schema.__pydantic_validator__.validate_python
    try:
        try:
            checked = validate(dict(arguments))
        except ValidationError as err:
            checked = _checked_without_nulls(schema, arguments, err)
    except ValidationError as err:
        problems += [_problem(one) for one in err.errors(include_url=False)]
        raise _refusal(tool_name, problems) from err
    if problems:
        raise _refusal(tool_name, problems)
    chosen, values = checked.__pydantic_fields_set__, checked.__dict__
    given = {alias: values[name] for alias, name in names.items() if name in chosen}
    given.update(checked.__pydantic_extra__ or ())
    return given


@lru_cache(maxsize=256)
def _overrides_validation(schema: type[BaseModel]) -> bool:
    own: Any = schema.model_validate
    return getattr(own, "__func__", None) is not _VALIDATES


def _checked_without_nulls(schema: type[BaseModel], arguments: Mapping[str, Any], err: ValidationError) -> BaseModel:
    """Validate arguments again with each null for a type without None left out, because models often send it."""
    empty = [one["loc"] for one in err.errors(include_url=False) if one["input"] is None and one["loc"]]
    if not empty:
        raise err
    left = deepcopy(dict(arguments))
    for place in empty:
        _leave_out(left, place)
    return schema.model_validate(left)


def _leave_out(arguments: Any, place: Sequence[int | str]) -> None:
    """Remove the null at ``place`` from its object; places inside a union stay."""
    holder = arguments
    for part in place[:-1]:
        if isinstance(holder, list) and isinstance(part, int) and part < len(cast("list[Any]", holder)):
            holder = cast("list[Any]", holder)[part]
        else:
            holder = cast("dict[Any, Any]", holder).get(part) if isinstance(holder, dict) else None
    if isinstance(holder, dict) and cast("dict[Any, Any]", holder).get(place[-1], ...) is None:
        del holder[place[-1]]


def _problem(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"]) or "arguments"
    if error["type"] == "missing":
        return f"{where}: missing"
    text = repr(error["input"])
    return f"{where}: {error['msg']} (got {text if len(text) <= 80 else text[:77] + '...'})"


def _refusal(tool_name: str, problems: Sequence[str]) -> ToolArgumentsError:
    return ToolArgumentsError(
        f"Invalid arguments for tool {tool_name!r}: {'; '.join(problems)}. Correct them and call the tool again."
    )
