"""Declared outputs of agents: types of any kind, and functions that make the output."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import replace
from functools import cached_property
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from batonflow.agents.prompts import FINAL_ANSWER_TOOL, OUTPUT_UNFIT
from batonflow.agents.run_output import Answered, OutputMissingError, OutputUnfitError, TextOutput, type_in_words
from batonflow.llms.structured import Form, UnfitError, checked_as_json
from batonflow.tools import (
    AsyncBaseTool,
    BaseTool,
    FunctionTool,
    ToolMetadata,
    ToolOutput,
    ToolPolicy,
    adapt_to_async_tool,
)
from batonflow.tools.schema import ToolArgumentsError
from batonflow.values.types import without_alias

__all__ = ["FINAL_ANSWER", "FormOutput", "TypedForm", "TypedOutput", "declared_output"]

FINAL_ANSWER = "final_answer"
"""The name of the tool that takes the output."""

WIRE = "response"
"""The key of a value in its wire form, if its JSON is not an object."""


class TypedForm(Form[Any]):
    """The form of an output of any type that pydantic validates.

    Args:
        output_type: The type.

    Raises:
        ValueError: pydantic cannot validate the type, or it has no JSON schema.
    """

    def __init__(self, output_type: Any) -> None:
        try:
            self.adapter: TypeAdapter[Any] = TypeAdapter(output_type)
            schema = self.adapter.json_schema()
        except Exception as error:
            raise ValueError(f"output_type {type_in_words(output_type)} has no JSON schema: {error}") from error
        self.output_type = output_type
        self.name, self.title = FINAL_ANSWER, type_in_words(output_type)
        self.description = str(schema.get("description") or "")
        self._take_schema(schema)
        self.is_object = self.parameters.get("type") == "object"
        if not self.is_object:
            inner = {key: value for key, value in schema.items() if key != "$defs"}
            wire: dict[str, Any] = {"type": "object", "properties": {WIRE: inner}, "required": [WIRE]}
            self.parameters = {**wire, **({"$defs": schema["$defs"]} if "$defs" in schema else {})}

    def parse_value(self, value: dict[str, Any]) -> Any:
        """Return the instance for a value in its wire form.

        Raises:
            UnfitError: The value does not fit.
        """
        wrapped = set(value) == {WIRE}
        if wrapped and not self.is_object:
            return self._validated(value[WIRE])
        try:
            return self._validated(value)
        except UnfitError as error:
            if wrapped:  # written for a type whose JSON is not an object
                return self._validated(value[WIRE])
            if self.is_object:
                raise
            raise UnfitError(f"- {WIRE}: Field required, and no other field", error.answer) from error

    def parse_text(self, text: str) -> Any:
        """Return the instance in a text, which is JSON or contains an object.

        Raises:
            UnfitError: There is no fitting value.
        """
        try:
            value = json.loads(text)
        except ValueError:
            return super().parse_text(text)
        return self.parse_value(cast("Any", value)) if isinstance(value, dict) else self._validated(value)

    def wire(self, value: Any) -> dict[str, Any]:
        """Return a value in its wire form, as JSON data."""
        try:
            data = self.adapter.dump_python(value, mode="json", warnings=False, by_alias=True, round_trip=True)
        except ValueError:
            data = to_jsonable_python(value, fallback=str)
        return cast("dict[str, Any]", data) if self.is_object and isinstance(data, dict) else {WIRE: data}

    def _validated(self, value: Any) -> Any:
        return checked_as_json(value, self.adapter.validate_python, self.adapter.validate_json)


class TypedOutput(TextOutput):
    """The output of a run with ``output_type``.

    Args:
        declared: The types and functions.
        retries: How often an answer that does not fit goes back to the model.

    Raises:
        ValueError: A type has no JSON schema, or there are no types.
    """

    def __init__(self, declared: Sequence[Any], retries: int = 0) -> None:
        self.functions: list[Callable[..., Any]] = [one for one in declared if _is_function(one)]
        types = [part for one in declared if not _is_function(one) for part in _members(one)]
        self.takes_text = str in types
        asked = [one for one in types if one is not str]
        returned = [part for one in self.functions for part in _members(_returned(one))]
        self.output_type: Any = _union([*types, *returned])
        self.retries = retries
        self.form = TypedForm(_union(asked)) if asked else None
        """The form of the types; the text and the results of functions are not part of it."""

    @cached_property
    def tools(self) -> list[AsyncBaseTool]:
        """The tools that end a run: functions, and one that takes a value of the output types."""
        last = [] if self.form is None else [FinalAnswerTool(self.form)]
        return [*map(_last_tool, self.functions), *last]

    def wire_of_text(self, text: str) -> dict[str, Any] | None:
        """Return the wire form of an answer in text; None if the text itself is the output.

        Raises:
            UnfitError: The answer does not fit.
        """
        if self.form is None:
            if self.takes_text:
                return None
            raise UnfitError(f"- call {' or '.join(tool.metadata.get_name() for tool in self.tools)}", text)
        try:
            return self.form.wire(self.form.parse_text(text))
        except UnfitError:
            if self.takes_text:
                return None
            raise

    def as_json(self, answer: Any) -> tuple[str, Any]:
        """Return the output of an answer as JSON, and the output itself."""
        value = self.value_of(answer)
        wire = self.whole.wire(value)
        data = wire if self.whole.is_object else wire[WIRE]
        return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False), value

    @cached_property
    def whole(self) -> TypedForm:
        """The form of all values, also of those that functions return."""
        return TypedForm(self.output_type)

    def read(self, answer: Answered) -> Any:
        """Return the output of an answer that no guard has blocked."""
        kept = getattr(answer, "_value", self)
        if kept is not self:
            return kept
        data, text = answer.structured_response, str(answer)
        if data is None and self.takes_text:
            return text
        try:
            form = self.whole if self.functions or self.form is None else self.form
            return form.parse_text(text) if data is None else form.parse_value(data)
        except UnfitError as error:
            raise OutputUnfitError(error.answer, str(error), self.output_type) from error


class FormOutput(TextOutput):
    """The output of a run with ``output_cls``: an instance of the class.

    Args:
        output_cls: The class.
    """

    def __init__(self, output_cls: type[BaseModel]) -> None:
        self.output_type = output_cls

    def read(self, answer: Any) -> Any:
        """Return the output of an answer that no guard has blocked."""
        found = answer.get_pydantic_model(self.output_type)
        if found is None:
            if answer.get("blocked") is not None:
                raise OutputMissingError("A guard has blocked the structured form of the answer.")
            raise OutputUnfitError(str(answer), "- there is no structured form of it", self.output_type)
        return found


def declared_output_of(agent: Any) -> TypedOutput | None:
    """Return the declared output of an agent.

    Raises:
        ValueError: It is declared twice, cannot be asked for, or a tool of the agent has the name of its tool.
    """
    typed = declared_output(agent.output_type, agent.output_cls, agent.output_retries)
    if typed is not None:
        names = {tool.metadata.get_name() for tool in agent.tools if isinstance(tool, BaseTool)}
        taken = next((one for tool in typed.tools if (one := tool.metadata.get_name()) in names), None)
        if taken is not None:
            raise ValueError(f"Agent {agent.name} has a tool {taken!r}, which is the name of a tool for its output")
    return typed


class FinalAnswerMetadata(ToolMetadata):
    """The description of ``final_answer``, with the schema of the output."""

    def __init__(self, form: TypedForm) -> None:
        super().__init__(description=FINAL_ANSWER_TOOL, name=FINAL_ANSWER, fn_schema=None, return_direct=True)
        self._parameters = json.dumps(form.parameters)

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        return cast("dict[str, Any]", json.loads(self._parameters))


class FinalAnswerTool(FunctionTool):
    """The tool that takes the output of a run.

    Args:
        form: The form of the output.
    """

    def __init__(self, form: TypedForm) -> None:
        async def take(**arguments: Any) -> ToolOutput:
            value = form.parse_value(arguments)
            text = json.dumps(form.wire(value), ensure_ascii=False)
            return ToolOutput(tool_name=FINAL_ANSWER, content=text, raw_input=arguments, raw_output=value)

        super().__init__(async_fn=take, metadata=FinalAnswerMetadata(form), policy=ToolPolicy(idempotent=True))
        self._form = form

    def validate_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check a model's arguments with the declared type.

        Raises:
            ToolArgumentsError: They do not fit; the text is for the model.
        """
        try:
            self._form.parse_value(dict(arguments))
        except UnfitError as error:
            raise ToolArgumentsError(OUTPUT_UNFIT.format(problems=error, remedy="Correct it and call again.")) from None
        return dict(arguments)


def _last_tool(function: Callable[..., Any]) -> AsyncBaseTool:
    """Return a function as a tool whose result is the answer."""
    given: Any = function
    if not isinstance(given, BaseTool):
        return FunctionTool.from_defaults(given, return_direct=True)
    made = copy(adapt_to_async_tool(given))
    cast("Any", made)._metadata = replace(given.metadata, return_direct=True)
    return made


_VALUES = (str, bytes, int, float, Mapping, AbstractSet, BaseModel)
"""The classes of values, which are given by mistake for their types."""


def declared_output(output_type: Any, output_cls: type[BaseModel] | None, retries: int = 1) -> TypedOutput | None:
    """Return the declared output of an agent or a team; None without an ``output_type``, and for text.

    Raises:
        ValueError: Both are given, or a type has no JSON schema.
    """
    if output_type is None:
        return None
    if output_cls is not None:
        raise ValueError("output_type and output_cls say the same: give one of them")
    listed = isinstance(output_type, Sequence) and not isinstance(output_type, str)
    declared: list[Any] = [*output_type] if listed else [output_type]
    if not declared:
        raise ValueError("output_type is a type, a function, or a list of these; the list is empty")
    if isinstance(output_type, _VALUES) or any(isinstance(one, _VALUES) for one in declared):
        raise ValueError(f"output_type is a type, a function, or a list of these, not {output_type!r}")
    made = TypedOutput(declared, retries)
    return None if made.output_type is str and not made.functions else made


def _is_function(one: Any) -> bool:
    return isinstance(one, BaseTool) or (
        callable(one) and not isinstance(one, type) and get_origin(one) is None and not hasattr(one, "__value__")
    )


def _members(annotation: Any) -> list[Any]:
    annotation = without_alias(annotation)
    if get_origin(annotation) in (Union, UnionType):
        return [part for one in get_args(annotation) for part in _members(one)]
    return [annotation]


def _union(types: Sequence[Any]) -> Any:
    if Any in types:
        return Any
    return Union[tuple(types)]  # noqa: UP007 - its members are known at run time only


def _returned(function: Callable[..., Any]) -> Any:
    """Return the declared result of a function; Any where it has no annotation that pydantic validates."""
    function = function.real_fn if isinstance(function, FunctionTool) else function
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        found = get_type_hints(target).get("return", Any)
        TypeAdapter(found)
    except Exception:  # noqa: BLE001 - annotations of the user may hold anything
        return Any
    return found
