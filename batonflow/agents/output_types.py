"""Declared outputs of agents: types of any kind, and functions that make the output."""

import inspect
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from batonflow.agents.run_output import Answered, OutputMissingError, OutputUnfitError, TextOutput, type_in_words
from batonflow.llms.structured import Form, UnfitError, checked_as_json
from batonflow.workflow_core.typed import without_alias

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
        if self.is_object:
            try:
                return self._validated(value)
            except UnfitError:
                if not wrapped:
                    raise
        if not wrapped:
            raise UnfitError(f"- {WIRE}: Field required, and no other field", json.dumps(value, default=str))
        return self._validated(value[WIRE])

    def parse_text(self, text: str) -> Any:
        """Return the instance in a text: the JSON of which it consists, or an object in it.

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
            data = self.adapter.dump_python(value, mode="json", warnings=False)
        except ValueError:
            data = to_jsonable_python(value, fallback=str)
        return cast("dict[str, Any]", data) if self.is_object and isinstance(data, dict) else {WIRE: data}

    def _validated(self, value: Any) -> Any:
        return checked_as_json(value, self.adapter.validate_python, self.adapter.validate_json)


class TypedOutput(TextOutput):
    """The output of a run with ``output_type``.

    Args:
        declared: The types and functions.

    Raises:
        ValueError: A type has no JSON schema, or there are no types.
    """

    def __init__(self, declared: Sequence[Any]) -> None:
        self.functions: list[Callable[..., Any]] = [one for one in declared if _is_function(one)]
        types = [part for one in declared if not _is_function(one) for part in _members(one)]
        self.takes_text = str in types
        asked = [one for one in types if one is not str]
        returned = [part for one in self.functions for part in _members(_returned(one))]
        self.output_type: Any = _union([*types, *returned])
        self.form = TypedForm(_union(asked)) if asked else None
        """The form of the types; the text and the results of functions are not part of it."""

    @cached_property
    def whole(self) -> TypedForm:
        """The form of all values, also of those that functions return."""
        return TypedForm(self.output_type)

    def read(self, answer: Answered) -> Any:
        """Return the output of an answer that no guard has blocked."""
        data, text = answer.structured_response, str(answer)
        if data is None and self.takes_text:
            return text
        try:
            return self.whole.parse_text(text) if data is None else self.whole.parse_value(data)
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


def declared_output(output_type: Any, output_cls: type[BaseModel] | None) -> TextOutput | None:
    """Return the declared output of an agent or a team; None for text.

    Raises:
        ValueError: Both are given, or a type has no JSON schema.
    """
    if output_type is None:
        return None if output_cls is None else FormOutput(output_cls)
    if output_cls is not None:
        raise ValueError("output_type and output_cls say the same: give one of them")
    listed = isinstance(output_type, Sequence) and not isinstance(output_type, str)
    declared: list[Any] = [*output_type] if listed else [output_type]
    if not declared:
        raise ValueError("output_type is a type, a function, or a list of these; the list is empty")
    made = TypedOutput(declared)
    return None if made.output_type is str and not made.functions else made


def _is_function(one: Any) -> bool:
    return callable(one) and not isinstance(one, type) and get_origin(one) is None and not hasattr(one, "__value__")


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
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        found = get_type_hints(target).get("return", Any)
        TypeAdapter(found)
    except Exception:  # noqa: BLE001 - annotations of the user may hold anything
        return Any
    return found
