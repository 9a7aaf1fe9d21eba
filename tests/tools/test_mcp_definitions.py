"""The names of servers and of their tools, and what their schemas make of arguments."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.tools import ToolArgumentsError, ToolDefinitionError
from batonflow.tools.mcp import MCPTools
from batonflow.tools.mcp.arguments import MCPToolMetadata, validated
from batonflow.tools.mcp.definitions import tool_name

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}, "in": {"type": "object"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("command", "namespace"),
    [
        ("uvx mcp-server-time --local-timezone=UTC", "time"),
        ("uvx mcp-server-time@2026.10.19", "time"),
        ("python3.12 -m mcp_server_time", "time"),
        ("npx -y @modelcontextprotocol/server-everything stdio", "everything"),
        ("npx @acme/weather-mcp@1.2", "weather"),
        ("node /srv/tickets.js", "tickets"),
        ("docker run -i --rm mcp/fetch", "fetch"),
        ("uv run my__server.py", "my"),
        ("/opt/github-mcp-server stdio", "github"),
        ("python -c pass", "mcp"),
    ],
)
def test_a_namespace_is_what_the_command_is_called(command: str, namespace: str) -> None:
    assert MCPTools(command).namespace == namespace


@pytest.mark.parametrize(
    ("url", "namespace"),
    [
        ("https://mcp.linear.app/mcp", "linear"),
        ("https://api.githubcopilot.com/mcp/", "githubcopilot"),
        ("http://127.0.0.1:8000/mcp", "mcp"),
        ("http://localhost:8000/mcp", "localhost"),
    ],
)
def test_a_namespace_is_what_the_host_is_called(url: str, namespace: str) -> None:
    assert MCPTools(url=url).namespace == namespace


class TestToolNames:
    def test_a_name_is_namespaced(self) -> None:
        assert tool_name("time", "get_current-time") == "time__get_current-time"
        assert tool_name("", "add") == "add"

    def test_names_that_vendors_do_not_take_are_changed_without_becoming_one(self) -> None:
        dotted, spaced = tool_name("x", "files.list"), tool_name("x", "files list")
        assert dotted.startswith("x__files_list_")
        assert len({dotted, spaced, tool_name("x", "files_list")}) == 3

    @given(st.text(max_size=100), st.text(max_size=100))
    def test_every_name_is_valid_and_none_is_that_of_another(self, one: str, other: str) -> None:
        names = [tool_name("space", one), tool_name("space", other)]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
        assert (names[0] == names[1]) == (one == other)


class TestArguments:
    def test_every_problem_is_named_with_its_place(self) -> None:
        with pytest.raises(ToolArgumentsError) as refused:
            validated("t", {**OBJECT, "additionalProperties": False}, {"in": 5, "x": 1})
        assert str(refused.value).startswith("Invalid arguments for tool 't': ")
        for problem in ("n: missing", "in: 5 is not of type 'object'", "'x' was unexpected"):
            assert problem in str(refused.value)

    def test_null_is_left_out_where_it_does_not_fit_and_kept_where_it_does(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["integer", "null"]}}}
        assert validated("t", schema, {"a": None, "b": None}) == {"b": None}

    def test_null_for_what_is_required_is_a_problem(self) -> None:
        with pytest.raises(ToolArgumentsError, match="n: missing"):
            validated("t", OBJECT, {"n": None})

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object", "properties": {"n": {"$ref": "http://127.0.0.1:9/schema.json"}}},
            {"type": "object", "properties": {"n": {"type": "number", "minimum": "low"}}},
            {"type": "object", "properties": {"n": {"$ref": "#/$defs/none"}}},
        ],
    )
    def test_a_schema_that_cannot_be_used_is_the_server_s_fault(self, schema: dict[str, Any]) -> None:
        with pytest.raises(ToolDefinitionError, match="JSON schema of the server cannot be used"):
            validated("t", schema, {"n": 1})

    def test_the_schema_is_shown_as_it_came_and_complete_for_vendors(self) -> None:
        metadata = MCPToolMetadata("d", "t", None, schema={"type": "object", "additionalProperties": False})
        assert metadata.get_parameters_dict() == {"type": "object", "properties": {}, "additionalProperties": False}
        metadata.get_parameters_dict()["properties"]["x"] = 1
        assert "x" not in metadata.fn_schema_str
