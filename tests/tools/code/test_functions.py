"""Tools become functions of the code: names, declarations, and arguments by name."""

import ast
from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel

from batonflow.tools import FunctionTool, ToolDefinitionError, ToolPolicy, tool
from batonflow.tools.code import declarations
from batonflow.tools.code.functions import code_functions
from batonflow.tools.mcp.definitions import ToolDefinition
from batonflow.tools.mcp.tool import MCPTool


class Place(BaseModel):
    city: str
    country: str = "NL"


@tool
async def weather(place: Place, days: int = 1, unit: Literal["C", "F"] = "C", notes: list[str] | None = None) -> Place:
    """Say what the weather will be.

    Args:
        place: Where.
    """
    return place


def named(name: str, function: object = None) -> FunctionTool:
    return FunctionTool.from_defaults(function or (lambda a: a), name=name, description="d")


def test_a_declaration_is_python_with_the_types_that_cross_the_border() -> None:
    assert code_functions([weather])["weather"].declaration == (
        "async def weather(place: dict[str, Any], days: int = 1, unit: Literal['C', 'F'] = 'C', "
        "notes: list[str] | None = None) -> dict[str, Any]"
    )


def test_declarations_carry_the_description_once_and_are_python() -> None:
    text = declarations([weather, named("other")])
    assert text.count("Say what the weather will be.") == 1
    assert [node.name for node in ast.parse(text).body] == ["weather", "other"]


@pytest.mark.parametrize(
    ("tool_name", "name"),
    [
        ("get-weather", "get_weather"),
        ("2nd", "_2nd"),
        ("class", "class_"),
        ("print", "print_"),
        ("__x", "_x"),
        ("über", "_ber"),
    ],
)
def test_names_that_python_cannot_use_are_changed(tool_name: str, name: str) -> None:
    functions = code_functions([named(tool_name)])
    assert list(functions) == [name]
    assert functions[name].tool_name == tool_name


def of_schema(**schema: Any) -> MCPTool:
    definition = ToolDefinition("send", "Send a mail.", {"type": "object", **schema})
    return MCPTool(definition, "send", cast("Any", None), ToolPolicy())


@pytest.mark.parametrize(
    ("schema", "parameters"),
    [
        ({"properties": {"x": True}}, "x: Any = ..."),
        ({}, "**others: Any"),
        ({"additionalProperties": False}, ""),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}, "**others: Any"),
        ({"properties": {"x": {"type": "string"}}, "required": ["x", "ghost"]}, "x: str, **others: Any"),
        ({"properties": {"from": {"type": "string"}, "to": {}}, "required": ["to"]}, "to: Any, **others: Any"),
    ],
)
def test_schemas_that_no_function_has_made_are_declared_as_they_are_meant(schema: Any, parameters: str) -> None:
    [function] = code_functions([of_schema(**schema)]).values()
    assert function.declaration == f"async def send({parameters}) -> Any"
    ast.parse(f"{function.declaration}: ...")


def test_arguments_that_python_cannot_name_are_told() -> None:
    text = declarations([of_schema(properties={"from": {"type": "string"}, "a-b": True}, required=["from"])])
    assert '**{"name": value}: "from": str, "a-b": Any, may be left out' in text
    ast.parse(text)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"'a-b' and 'a.b' would both be 'a_b' in code: rename one"):
        code_functions([named("a-b"), named("a.b")])


def test_arguments_are_bound_by_name() -> None:
    function = code_functions([weather])["weather"]
    assert function.bind([{"city": "x"}, 2], {"unit": "F"}) == {"place": {"city": "x"}, "days": 2, "unit": "F"}
    with pytest.raises(TypeError, match="multiple values for argument 'place'"):
        function.bind([1], {"place": 2})
    with pytest.raises(TypeError, match=r"weather\(\) takes 4 arguments but 5 were given"):
        function.bind([1, 2, 3, 4, 5], {})


def test_a_tool_without_types_takes_anything() -> None:
    assert code_functions([named("f")])["f"].declaration == "async def f(a: Any) -> Any"


def test_models_inside_models_are_dicts() -> None:
    def visit(places: list[Place], by: dict[str, int]) -> dict[str, list[Place]]:
        """Visit."""
        return {"a": places}

    declaration = code_functions([FunctionTool.from_defaults(visit)])["visit"].declaration
    assert declaration == (
        "async def visit(places: list[dict[str, Any]], by: dict[str, int]) -> dict[str, list[dict[str, Any]]]"
    )
