"""Calling tools on behalf of a model: validate, run, and turn every failure into an output the model can read."""

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

from batonflow.llms.tool_protocol import ToolSelection
from batonflow.tools.base import AsyncBaseTool, BaseTool, ToolOutput, adapt_to_async_tool
from batonflow.tools.errors import ToolArgumentsError
from batonflow.tools.function import FunctionTool
from batonflow.tools.schema import validated_arguments
from batonflow.workflow_core.instrumentation import get_dispatcher
from batonflow.workflow_core.instrumentation.events.tool import ToolCallEndEvent, ToolCallStartEvent

__all__ = [
    "acall_tool",
    "acall_tool_with_selection",
    "call_tool",
    "call_tool_with_selection",
    "checked_arguments",
    "error_output",
    "may_need_approval",
    "needs_approval",
    "run_tool",
    "unknown_tool_output",
]

_dispatcher = get_dispatcher(__name__)
_SUMMARY = 200


def error_output(tool_name: str, arguments: Mapping[str, Any], error: Exception, prefix: str = "") -> ToolOutput:
    """The output that tells a model of ``error``."""
    # Some exceptions have no text; a model can do nothing with an empty answer.
    text = str(error) or type(error).__name__
    return ToolOutput(
        content=prefix + text,
        tool_name=tool_name,
        raw_input=dict(arguments),
        raw_output=text,
        is_error=True,
        exception=error,
    )


def unknown_tool_output(tool_name: str, arguments: Mapping[str, Any], known: Iterable[str] = ()) -> ToolOutput:
    """The output for a call of a tool that does not exist.

    Args:
        tool_name: The name the model made up.
        arguments: Its arguments.
        known: Names of the tools there are.
    """
    names = ", ".join(known)
    return ToolOutput(
        content=f"Tool {tool_name} not found. Please select a tool that is available."
        + (f" Available tools: {names}." if names else ""),
        tool_name=tool_name,
        raw_input=dict(arguments),
        raw_output=None,
        is_error=True,
    )


def may_need_approval(tool: BaseTool) -> bool:
    """Whether there are arguments with which ``tool`` would have to be approved."""
    return bool(getattr(getattr(tool, "policy", None), "requires_approval", False))


async def needs_approval(tool: BaseTool, arguments: dict[str, Any]) -> bool:
    """Whether a person must agree before ``tool`` runs with ``arguments``."""
    policy = getattr(tool, "policy", None)
    required = getattr(policy, "requires_approval", False)
    if callable(required):
        required = required(arguments)
        if inspect.isawaitable(required):
            required = await required
    return bool(required)


def checked_arguments(tool: AsyncBaseTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the tool takes them.

    Raises:
        ToolArgumentsError: They do not fit; the text names every argument and what is wrong with it.
    """
    if isinstance(tool, FunctionTool):
        return tool.validate_arguments(arguments)
    schema: Any = tool.metadata.fn_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        # Checked only: how a tool of another make wants its values is its own business.
        validated_arguments(tool.metadata.get_name(), schema, arguments)
    return dict(arguments)


async def run_tool(
    tool: BaseTool,
    arguments: Mapping[str, Any],
    *,
    ctx: Any = None,
    approved: bool = False,
    invalid_arguments: str | None = None,
) -> ToolOutput:
    """Validate a model's arguments, run the tool, and return its output; what it raises becomes an error output.

    Control flow of the engine and cancellation pass through, as they are no ``Exception``.

    Args:
        tool: The tool.
        arguments: What the model sent, by name.
        ctx: The workflow's Context, for functions that want it.
        approved: Whether a person has agreed, for tools that require it; without, such a tool is refused.
        invalid_arguments: The model's text when it was no JSON object: the model is told so and the tool does not run.

    Example:
        >>> output = await run_tool(add, {"a": "2", "b": 40})
        >>> output.content
        '42'
    """
    target = adapt_to_async_tool(tool)
    name = target.metadata.name or ""
    try:
        if invalid_arguments is not None:
            raise ToolArgumentsError(
                f"Invalid arguments for tool {name!r}: not a JSON object: {invalid_arguments[:200]!r}. "
                "Correct them and call the tool again."
            )
        values = checked_arguments(target, arguments)
        if not approved and await needs_approval(tool, values):
            raise PermissionError(f"Tool {name!r} was not run: it requires a person's approval, which was not given.")
    except Exception as err:  # noqa: BLE001 - a predicate or validator of the user's may raise anything
        return error_output(name, arguments, err)
    given = dict(values)
    if isinstance(target, FunctionTool) and target.ctx_param_name is not None and ctx is not None:
        given[target.ctx_param_name] = ctx
    if not _dispatcher.enabled:
        return await _run(target, given, values)
    span_id = _dispatcher.open_span(f"{name}.call", instance=tool)
    _dispatcher.event(ToolCallStartEvent(tool_name=name, tool_kwargs=values, span_id=span_id))
    try:
        output = await _run(target, given, values)
    except BaseException as err:
        _dispatcher.fail_span(span_id, err, tool)
        raise
    _dispatcher.event(
        ToolCallEndEvent(tool_name=name, output=output.content[:_SUMMARY], is_error=output.is_error, span_id=span_id)
    )
    _dispatcher.close_span(span_id, output, tool)
    return output


async def _run(target: AsyncBaseTool, given: dict[str, Any], values: dict[str, Any]) -> ToolOutput:
    try:
        return await cast("Any", target).acall(**given)
    except Exception as err:  # noqa: BLE001 - the boundary of tools: the model reads what went wrong
        return error_output(target.metadata.name or "", values, err)


def _positional(tool: BaseTool, arguments: Mapping[str, Any]) -> bool:
    """Whether the only argument goes by position: some tools name it differently from their schema."""
    if len(arguments) != 1 or len(tool.metadata.get_parameters_dict()["properties"]) != 1:
        return False
    if not isinstance(tool, FunctionTool):
        return True
    try:
        inspect.signature(tool.real_fn).bind_partial(**arguments)
    except TypeError:
        return True
    return False


def call_tool(tool: BaseTool, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a tool synchronously with arguments as they are; what it raises becomes an error output."""
    function: Any = tool
    try:
        if _positional(tool, arguments):
            value = next(iter(arguments.values()))
            if isinstance(tool, FunctionTool):
                return function(value)
            try:
                return function(value)
            except Exception:  # noqa: BLE001 - such a tool may insist on names
                return function(**arguments)
        return function(**arguments)
    except Exception as err:  # noqa: BLE001 - the boundary of tools
        return error_output(tool.metadata.get_name(), arguments, err, "Encountered error: ")


async def acall_tool(tool: BaseTool, arguments: Mapping[str, Any]) -> ToolOutput:
    """The same asynchronously."""
    target: Any = adapt_to_async_tool(tool)
    try:
        if _positional(tool, arguments):
            value = next(iter(arguments.values()))
            if isinstance(tool, FunctionTool):
                return await target.acall(value)
            try:
                return await target.acall(value)
            except Exception:  # noqa: BLE001 - such a tool may insist on names
                return await target.acall(**arguments)
        return await target.acall(**arguments)
    except Exception as err:  # noqa: BLE001 - the boundary of tools
        return error_output(tool.metadata.get_name(), arguments, err, "Encountered error: ")


def _selected(selection: ToolSelection, tools: Sequence[BaseTool], verbose: bool) -> BaseTool:
    if verbose:
        print("=== Calling Function ===")
        print(f"Calling function: {selection.tool_name} with args: {json.dumps(selection.tool_kwargs)}")
    return {tool.metadata.name: tool for tool in tools}[selection.tool_name]


def _shown(output: ToolOutput, verbose: bool) -> ToolOutput:
    if verbose:
        print("=== Function Output ===")
        print(output.content)
    return output


def call_tool_with_selection(tool_call: ToolSelection, tools: Sequence[BaseTool], verbose: bool = False) -> ToolOutput:
    """Call the tool that a selection names.

    Args:
        tool_call: The selection.
        tools: Where to look for the tool.
        verbose: Print call and output.

    Raises:
        KeyError: No tool has that name.
    """
    return _shown(call_tool(_selected(tool_call, tools, verbose), tool_call.tool_kwargs), verbose)


async def acall_tool_with_selection(
    tool_call: ToolSelection, tools: Sequence[BaseTool], verbose: bool = False
) -> ToolOutput:
    """The same asynchronously."""
    return _shown(await acall_tool(_selected(tool_call, tools, verbose), tool_call.tool_kwargs), verbose)
