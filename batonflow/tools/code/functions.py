"""Tools as functions of the code: names, parameters, and declarations in Python."""

import builtins
import inspect
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from batonflow.tools.base import BaseTool, ToolOutput
from batonflow.tools.function import FunctionTool
from batonflow.tools.schema import ToolDefinitionError

__all__ = ["CodeFunction", "code_functions", "declarations"]

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_RESERVED = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "asyncio"}
_DEEPEST = 8


@dataclass(frozen=True)
class CodeFunction:
    """A tool in the form for code: an async function.

    Args:
        name: Its name in the code.
        tool: The tool.
    """

    name: str
    tool: BaseTool

    @property
    def tool_name(self) -> str:
        """The tool's own name."""
        return self.tool.metadata.get_name()

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return self.tool.metadata.get_parameters_dict()

    @cached_property
    def parameters(self) -> list[str]:
        """Names of the parameters, in positional order."""
        return list(self.schema.get("properties", {}))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name; the tool checks them against its schema.

        Raises:
            TypeError: A call has too many positional arguments, or one argument twice.
        """
        names = self.parameters
        if len(args) > len(names):
            raise TypeError(f"{self.name}() takes {len(names)} arguments but {len(args)} were given")
        arguments = dict(zip(names, args, strict=False))
        twice = [name for name in kwargs if name in arguments]
        if twice:
            raise TypeError(f"{self.name}() got multiple values for argument {twice[0]!r}")
        return {**arguments, **kwargs}

    @cached_property
    def declaration(self) -> str:
        """Return ``async def name(...) -> ...`` in one line, without body."""
        required = set(self.schema.get("required", []))
        shown: list[str] = []
        by_name_only = False
        for name, one in self.schema.get("properties", {}).items():
            if name in self.unnamed:
                continue
            text = f"{name}: {_annotation(one, self.schema)}"
            if name not in required:
                text += f" = {one['default']!r}" if isinstance(one, dict) and "default" in one else " = ..."
                by_name_only = True
            elif by_name_only and "*" not in shown:
                shown.append("*")
            shown.append(text)
        if self.unnamed or self._allows_extra_arguments:
            shown.append("**others: Any")
        return f"async def {self.name}({', '.join(shown)}) -> {self._returned}"

    @cached_property
    def unnamed(self) -> dict[str, str]:
        """Describe arguments that can only be passed as ``**{"name": value}``."""
        required = self.schema.get("required", [])
        return {
            name: f"{_annotation(one, self.schema)}{'' if name in required else ', may be left out'}"
            for name, one in self.schema.get("properties", {}).items()
            if not name.isidentifier() or keyword.iskeyword(name)
        }

    @property
    def _allows_extra_arguments(self) -> bool:
        names, schema = self.parameters, self.schema
        others = schema.get("additionalProperties")
        if not names and self.tool.metadata.fn_schema is None and others is not False:
            return True  # schemas of other origin may describe arguments elsewhere, or accept any
        return bool(others) or any(name not in names for name in schema.get("required", []))

    @property
    def _returned(self) -> str:
        if not isinstance(self.tool, FunctionTool):
            return "Any"
        function = self.tool.real_fn
        try:
            annotation = get_type_hints(function if inspect.isroutine(function) else type(function).__call__)["return"]
            if annotation is ToolOutput:  # the code gets the content of the list
                return "Any"
            schema = TypeAdapter(annotation).json_schema(mode="serialization")
        except (KeyError, NameError, TypeError, AttributeError, PydanticSchemaGenerationError, PydanticUserError):
            return "Any"
        return _annotation(schema, schema)


def code_functions(tools: Sequence[BaseTool]) -> dict[str, CodeFunction]:
    """Return the tools as functions of the code, by name.

    Characters that are invalid in names become ``_``; names of builtins and keywords get a trailing ``_``.

    Raises:
        ToolDefinitionError: Two tools would have the same name.
    """
    functions: dict[str, CodeFunction] = {}
    for tool in tools:
        tool_name = tool.metadata.get_name()
        name = re.sub(r"\W", "_", tool_name, flags=re.ASCII)
        if not name.isidentifier():
            name = f"_{name}"
        # The type checker reserves names with two leading underscores.
        name = re.sub(r"^__+", "_", name)
        if name in _RESERVED:
            name += "_"
        if name in functions:
            raise ToolDefinitionError(
                f"tools {functions[name].tool_name!r} and {tool_name!r} would both be {name!r} in code: rename one"
            )
        functions[name] = CodeFunction(name, tool)
    return functions


def declarations(tools: Sequence[BaseTool]) -> str:
    """Return declarations of the tools as Python functions with descriptions, for the prompt.

    Example:
        >>> print(declarations([add]))
        async def add(a: int, b: int) -> int:
            '''Add two numbers.'''
    """
    return "\n\n".join(
        f'{one.declaration}:\n    """{_indented(_description(one))}"""' for one in code_functions(tools).values()
    )


def _description(function: CodeFunction) -> str:
    text = function.tool.metadata.description or function.tool_name
    # The description of a function begins with its signature, which the declaration already has.
    head, _, rest = text.partition("\n")
    if rest and head.startswith(f"{function.tool_name}("):
        text = rest
    if function.unnamed:
        others = ", ".join(f'"{name}": {about}' for name, about in function.unnamed.items())
        text = f'{text.rstrip()}\nFurther arguments, to be given as **{{"name": value}}: {others}'
    return text.strip().replace('"""', "'''").replace("\\", "\\\\")


def _indented(text: str) -> str:
    return text if "\n" not in text else text.replace("\n", "\n    ") + "\n    "


def _annotation(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return "Any"
    one = cast("dict[str, Any]", schema)
    if "$ref" in one:
        name = str(one["$ref"]).rpartition("/")[2]
        return _annotation({**root.get("$defs", {}), **root.get("definitions", {})}.get(name), root, depth + 1)
    values = one.get("enum", [one["const"]] if "const" in one else [])
    if values and all(value is None or isinstance(value, str | int) for value in values):
        return f"Literal[{', '.join(repr(value) for value in values)}]"
    for key in ("anyOf", "oneOf"):
        if key in one:
            kinds = [_annotation(option, root, depth + 1) for option in one[key]]
            return "Any" if "Any" in kinds else " | ".join(dict.fromkeys(kinds))
    kind = one.get("type")
    if isinstance(kind, list):
        kinds = [_annotation({**one, "type": each}, root, depth + 1) for each in cast("list[Any]", kind)]
        return " | ".join(dict.fromkeys(kinds))
    if kind == "array":
        return f"list[{_annotation(one.get('items'), root, depth + 1)}]"
    if kind == "object":
        # Models cross the border as dicts.
        return f"dict[str, {_annotation(one.get('additionalProperties'), root, depth + 1)}]"
    return _SCALARS.get(str(kind), "Any")
