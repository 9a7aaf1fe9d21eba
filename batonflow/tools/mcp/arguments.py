"""Schemas of servers: passed to models unchanged, and checked before a call is sent."""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from batonflow.llms._vendor import load
from batonflow.tools.base import ToolMetadata
from batonflow.tools.schema import ToolArgumentsError, ToolDefinitionError

__all__ = ["MCPToolMetadata", "problems_of", "validated"]

_LONGEST_PROBLEM = 200


@dataclass
class MCPToolMetadata(ToolMetadata):
    """Description of a server's tool for models.

    Args:
        schema: JSON schema of the arguments, from the server.
    """

    schema: dict[str, Any] = field(default_factory=dict[str, Any])

    @cached_property
    def _text(self) -> str:
        # Vendors require these two, which servers omit for tools without arguments.
        return json.dumps({"type": "object", "properties": {}, **self.schema}, ensure_ascii=False)

    def get_parameters_dict(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return cast("dict[str, Any]", json.loads(self._text))

    @property
    def fn_schema_str(self) -> str:
        """The JSON schema as text."""
        return self._text


def problems_of(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return the problems of ``value``, one for each place.

    Raises:
        ToolDefinitionError: The schema itself cannot be used.
    """
    return [_problem(error) for error in _errors(schema, value)]


def _errors(schema: Mapping[str, Any], value: Any) -> list[Any]:
    jsonschema, referencing = load("jsonschema", "mcp"), load("referencing", "mcp")
    chosen = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        chosen.check_schema(schema)
        # An empty registry: a schema must not make this process fetch remote references.
        return list(chosen(schema, registry=referencing.Registry()).iter_errors(value))
    except (jsonschema.SchemaError, referencing.exceptions.Unresolvable, re.error) as err:
        reason = getattr(err, "message", None) or str(err)
        raise ToolDefinitionError(f"a JSON schema of the server cannot be used: {reason}") from err


def _problem(error: Any) -> str:
    path = [str(part) for part in error.absolute_path]
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return "; ".join(f"{'.'.join([*path, name])}: missing" for name in missing)
    text = str(error.message)
    shown = text if len(text) <= _LONGEST_PROBLEM else text[: _LONGEST_PROBLEM - 3] + "..."
    return f"{'.'.join(path) or 'arguments'}: {shown}"


def validated(tool_name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that can be sent.

    A null for a type without null counts as absent, because models often send it.

    Raises:
        ToolArgumentsError: The arguments do not fit; the text is for the model.
        ToolDefinitionError: The schema cannot be used.
    """
    checked = deepcopy(dict(arguments))
    errors = _errors(schema, checked)
    if any(error.instance is None for error in errors):
        for error in errors:
            if error.instance is None:
                _leave_out(checked, list(error.absolute_path))
        errors = _errors(schema, checked)
    if errors:
        problems = "; ".join(dict.fromkeys(_problem(error) for error in errors))
        raise ToolArgumentsError(
            f"Invalid arguments for tool {tool_name!r}: {problems}. Correct them and call the tool again."
        )
    return checked


def _leave_out(arguments: dict[str, Any], path: list[Any]) -> None:
    holder: Any = arguments
    for part in path[:-1]:
        holder = holder[part]
    if path and isinstance(holder, dict):
        cast("dict[str, Any]", holder).pop(path[-1], None)
