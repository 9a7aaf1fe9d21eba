"""Answers of people to ``ctx.ask``: their type, its JSON schema, and the check of an answer."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import BaseModel, TypeAdapter, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic_core import to_jsonable_python

from batonflow.values.answer_fields import AnswerFields

__all__ = ["AnswerType", "fields_of_schema", "given_answer", "request_schema", "schema_without", "type_of_schema"]


class AnswerType:
    """The type of an answer.

    Args:
        answer: The type: all that pydantic validates.
        choices: The only texts that fit, for answers of type ``str``.

    Raises:
        TypeError: Pydantic cannot validate the type, or there are choices for another type than ``str``.
    """

    def __init__(self, answer: Any, choices: Sequence[str] = ()) -> None:
        if choices == []:
            raise ValueError("ask(): choices is empty: give the answers to choose from, or leave choices out")
        if choices and answer is not str:
            raise TypeError(f"ask(): choices are for answers of type str, not {answer!r}: use a Literal or an Enum")
        if isinstance(choices, str) or not all(isinstance(one, str) for one in cast("Sequence[Any]", choices)):
            raise TypeError(f"ask(): choices takes a list of texts, got {choices!r}")
        kind: Any = Literal[tuple(choices)] if choices else answer
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
            self.schema = self._schema()
        except PydanticUserError as error:
            text = f"ask(): answer= takes a type that pydantic can validate, got {answer!r}: {error}"
            raise TypeError(text) from None

    def _schema(self) -> dict[str, Any]:
        try:
            return self._adapter.json_schema()
        except PydanticInvalidForJsonSchema:
            return {}  # JSON Schema lacks the type

    def value(self, given: Any) -> Any:
        """Return an answer as a value of the type.

        Raises:
            ValidationError: It does not fit.
        """
        return self._adapter.validate_python(given)

    def as_data(self, given: Any) -> Any:
        """Return an answer as JSON data.

        Raises:
            ValidationError: It does not fit.
        """
        return to_jsonable_python(
            self._adapter.dump_python(self.value(given), mode="json", by_alias=True, round_trip=True)
        )


def _is_object(schema: Mapping[str, Any]) -> bool:
    return "properties" in schema


def given_answer(schema: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    """Return the answer in the fields of an event: the field ``response``, or all fields of an object."""
    if not fields and _is_object(schema):
        return {}
    if set(fields) <= {"response"} and not (_is_object(schema) and "response" in schema["properties"]):
        return fields.get("response")
    return dict(fields)


def request_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an answer with its fields; anything but an object is the field ``response``."""
    if _is_object(schema):
        return dict(schema)
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    whole = {"type": "object", "properties": {"response": inner}, "required": ["response"]}
    return {**whole, "$defs": schema["$defs"]} if "$defs" in schema else whole


def fields_of_schema(schema: Mapping[str, Any]) -> AnswerFields:
    """Describe the fields of an answer by its schema, in the form of ``answer_fields``."""
    whole = request_schema(schema)
    needed = whole.get("required", ())
    return {name: (_type(described), name in needed) for name, described in whole["properties"].items()}


def _type(described: Any) -> str:
    kind = cast("Mapping[str, Any]", described).get("type", "") if isinstance(described, Mapping) else ""
    return kind if kind in ("string", "boolean", "integer", "number", "array", "object") else ""


_PLAIN: dict[Any, Any] = {"string": str, "boolean": bool, "integer": int, "number": float, "null": None}
_DEEPEST = 8


def type_of_schema(schema: Mapping[str, Any]) -> Any:
    """Return a type for a schema, to check answers without their class. It may accept more than the schema."""
    return _type_of(schema, schema.get("$defs", {}), 0)


def _type_of(schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int) -> Any:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if depth >= _DEEPEST:
        return Any
    if name in defs:
        return _type_of(defs[name], defs, depth + 1)
    if "const" in schema or schema.get("enum"):
        return Literal[tuple(schema.get("enum") or [schema["const"]])]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        first, *others = (_type_of(one, defs, depth + 1) for one in options)
        for other in others:
            first = first | other
        return first
    kind = schema.get("type", "")
    if kind == "array":
        return list[_type_of(schema.get("items", {}), defs, depth + 1)]
    if kind == "object" and "properties" in schema:
        needed = schema.get("required", ())
        fields: dict[str, Any] = {
            key: (_type_of(one, defs, depth + 1), ... if key in needed else None)
            for key, one in schema["properties"].items()
        }
        return create_model(str(schema.get("title", "answer")), **fields)
    return dict[str, Any] if kind == "object" else _PLAIN.get(kind, Any)


def schema_without(cls: type[BaseModel], filled: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an event without the fields that are already set."""
    schema: dict[str, Any]
    try:
        schema = cls.model_json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError):
        # JSON Schema lacks the type of a field; the names of the fields are still useful.
        wanted = [name for name, field in cls.model_fields.items() if field.is_required()]
        schema = {"type": "object", "properties": {name: {} for name in cls.model_fields}, "required": wanted}
    properties = {name: value for name, value in schema.get("properties", {}).items() if name not in filled}
    required = [name for name in schema.get("required", ()) if name not in filled]
    if not properties:
        properties, required = {"response": {"type": "string"}}, ["response"]
    schema = {**schema, "title": cls.__name__, "type": "object", "properties": properties, "required": required}
    return schema if required else {key: value for key, value in schema.items() if key != "required"}
