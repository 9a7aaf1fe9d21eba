"""Calls of tools for models: validate, run, and turn every failure into an output for the model."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from batonflow.clock import current_source
from batonflow.instrumentation import events, get_dispatcher
from batonflow.instrumentation.context import active_span_id, undo
from batonflow.instrumentation.logs import in_words, logger_named
from batonflow.instrumentation.redaction import redacted
from batonflow.instrumentation.traced import bound
from batonflow.llms import genai
from batonflow.llms.tool_protocol import ToolSelection
from batonflow.tools.base import AsyncBaseTool, BaseTool, ToolOutput, adapt_to_async_tool, validated_arguments
from batonflow.tools.function import FunctionTool
from batonflow.tools.generators import Report
from batonflow.tools.policy import ToolErrors, raises
from batonflow.tools.schema import ToolArgumentsError, ToolError, ToolRetry, ToolTimeoutError, context_for
from batonflow.workflow_core.step import RetryPolicy, next_delay

__all__ = [
    "acall_tool",
    "acall_tool_with_selection",
    "asks_for_approval",
    "call_tool",
    "call_tool_with_selection",
    "checked_arguments",
    "dispatcher",
    "error_output",
    "may_need_approval",
    "needs_approval",
    "own",
    "run_tool",
    "traced",
    "unknown_tool_output",
]

_SCALARS = frozenset({str, int, float, bool, type(None)})

T = TypeVar("T")

# The characters of an output in the event at the end of a call.
_SUMMARY = 200

logger = logger_named("batonflow.tool")

# Handlers filter by this name. The classes of its events are loaded only for processes with a handler.
dispatcher = get_dispatcher("batonflow.tools.call")


def error_output(tool_name: str, arguments: Mapping[str, Any], error: Exception, prefix: str = "") -> ToolOutput:
    """Return an output that describes an error to the model."""
    # Some exceptions have no text, and an empty answer does not help a model.
    try:
        text = str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - str() of a user's exception may raise anything
        text = type(error).__name__
    return ToolOutput(
        content=prefix + text,
        tool_name=tool_name,
        raw_input=dict(arguments),
        raw_output=text,
        is_error=True,
        exception=error,
    )


def unknown_tool_output(tool_name: str, arguments: Mapping[str, Any], known: Iterable[str] = ()) -> ToolOutput:
    """Return the output for a call of an unknown tool.

    Args:
        tool_name: The unknown name.
        arguments: Its arguments.
        known: Names of the available tools.
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


def _requirement(tool: BaseTool) -> Any:
    return getattr(getattr(tool, "policy", None), "requires_approval", False)


def may_need_approval(tool: BaseTool) -> bool:
    """Return True if some arguments of ``tool`` require approval."""
    return bool(_requirement(tool))


async def needs_approval(tool: BaseTool, arguments: dict[str, Any], ctx: Any = None) -> bool:
    """Return True if a person must approve ``tool`` with ``arguments``.

    Args:
        tool: The tool.
        arguments: The arguments of the call.
        ctx: The run's context, for a ``requires_approval`` of ``(ctx, arguments)``.
    """
    required = _requirement(tool)
    if callable(required):
        try:
            required = await asks_for_approval(required, ctx, arguments)
        except Exception as err:
            logger.exception("requires_approval of tool %r failed", tool.metadata.name)
            raise RuntimeError(
                f"Tool {tool.metadata.name!r} was not run: the check of its requires_approval failed "
                f"({type(err).__name__}: {err})."
            ) from err
    if not isinstance(required, bool):
        raise TypeError(f"requires_approval of tool {tool.metadata.name!r} returned {required!r}, not True or False")
    return required


async def asks_for_approval(required: Any, ctx: Any, arguments: dict[str, Any]) -> Any:
    """Return the answer of a function of ``(arguments)`` or ``(ctx, arguments)``."""
    if not _takes_context(required):
        answer = required(arguments)
    elif ctx is None:
        raise TypeError("it takes a Context, which runs of agents have; in other calls give run_tool(..., ctx=ctx)")
    else:
        answer = required(context_for(required, ctx), arguments)
    return await answer if inspect.isawaitable(answer) else answer


def _takes_context(function: Callable[..., Any]) -> bool:
    """Return True for a function that cannot be called with the arguments alone."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return True
    except ValueError:  # a function written in C
        return False
    return False


def own(value: T) -> T:
    """Copy the lists and dicts of a JSON value; keep all other objects."""
    kind = type(value)
    if kind is dict:
        return cast("T", {name: own(one) for name, one in cast("dict[Any, Any]", value).items()})
    if kind is list:
        return cast("T", [own(one) for one in cast("list[Any]", value)])
    return value


def checked_arguments(tool: AsyncBaseTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in the form the tool expects, as a copy that it may change.

    Raises:
        ToolArgumentsError: The arguments do not fit; the message names every wrong argument and its problem.
    """
    arguments = {name: value if type(value) in _SCALARS else own(value) for name, value in arguments.items()}
    if isinstance(tool, FunctionTool):
        return tool.validate_arguments(arguments)
    schema: Any = tool.metadata.fn_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        # Only checked: tools of other libraries convert their values themselves.
        validated_arguments(tool.metadata.get_name(), schema, arguments)
    return arguments


def _are_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        left, right = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return left.keys() == right.keys() and all(_are_same(value, right[name]) for name, value in left.items())
    if isinstance(one, list | tuple):
        pair = cast("list[Any]", one), cast("list[Any]", other)
        return len(pair[0]) == len(pair[1]) and all(map(_are_same, *pair))
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - __eq__ of a user's object may raise anything
        return False


async def run_tool(
    tool: BaseTool,
    arguments: Mapping[str, Any],
    *,
    ctx: Any = None,
    approved: bool = False,
    checked: Mapping[str, Any] | None = None,
    invalid_arguments: str | None = None,
    idempotency_key: str | None = None,
    report: Report | None = None,
    call_id: str | None = None,
    on_error: ToolErrors | Callable[[], ToolErrors] = "tell",
) -> ToolOutput:
    """Validate a model's arguments, run the tool, and return its output; exceptions become error outputs.

    The tool's policy sets the timeout and the retries. Wrong arguments and a missing approval are never retried.
    Control flow of the engine and cancellation propagate, because they are not instances of ``Exception``.

    Args:
        tool: The tool.
        arguments: The model's arguments, by name.
        ctx: The workflow's Context, for functions with such a parameter.
        approved: True if a person has approved the call; required by tools whose policy demands it.
        checked: Arguments that are already checked and converted; equal ``arguments`` are not checked again.
        invalid_arguments: The model's text if it was not a JSON object: the tool does not run.
        idempotency_key: For functions with a parameter of this name; equal for all attempts of this call.
        report: Called on the event loop's thread with each value that a generator yields.
        call_id: The model's id of the call, for traces.
        on_error: ``"tell"`` exceptions as outputs, let ``"raise_bugs"`` bugs of the tool out, or ``"raise"`` all of
            its exceptions; or a function that returns one of these. The policy of the tool has priority. Errors of
            ``ToolError``, such as wrong arguments, are always told.

    Raises:
        Exception: An exception of the tool, if ``on_error`` says so.

    Example:
        >>> output = await run_tool(add, {"a": "2", "b": 40})
        >>> output.content
        '42'
    """
    function = tool if isinstance(tool, FunctionTool) else None
    target = function or adapt_to_async_tool(tool)
    name, policy = target.metadata.name or "", cast("Any", getattr(tool, "policy", None))
    try:
        if invalid_arguments is not None:
            raise ToolArgumentsError(
                f"Invalid arguments for tool {name!r}: not a JSON object: {invalid_arguments[:200]!r}. "
                "Correct them and call the tool again."
            )
        same = checked is not None and _are_same(dict(arguments), checked)
        values = dict(arguments) if same else checked_arguments(target, arguments)
        asks = getattr(policy, "requires_approval", False) is not False
        if not approved and asks and await needs_approval(tool, values, ctx):
            raise PermissionError(f"Tool {name!r} was not run: it requires a person's approval, which was not given.")
    except Exception as err:  # noqa: BLE001 - a predicate or validator of the user may raise anything
        return error_output(name, arguments, err)
    try:
        resources = await function.resolved(ctx) if function is not None and function.resources else {}
    except Exception as err:  # noqa: BLE001 - a factory of the user may raise anything
        return _told(target, policy, values, on_error, err)
    filled_in = {} if function is None else {**function.filled_in(ctx, idempotency_key), **resources}
    running = _outcome(target, policy, values, filled_in, report, idempotency_key, on_error)
    return await (traced(tool, target, values, filled_in, call_id, running) if dispatcher.enabled else running)


async def traced(
    tool: BaseTool,
    target: AsyncBaseTool,
    values: dict[str, Any],
    filled_in: dict[str, Any],
    call_id: str | None,
    running: Awaitable[ToolOutput],
) -> ToolOutput:
    """Await a tool's output inside a span, between a start and an end event.

    Args:
        tool: The original tool.
        target: The tool, or its asynchronous adapter.
        values: The model's arguments.
        filled_in: Arguments that the caller fills in.
        call_id: The model's id of the call.
        running: The awaitable output.
    """
    name = target.metadata.name or ""
    tags = {
        genai.OPERATION: "execute_tool",
        genai.TOOL_NAME: name,
        genai.TOOL_TYPE: "function",
        genai.TOOL_DESCRIPTION: target.metadata.description,
    }
    if call_id is not None:
        tags[genai.TOOL_CALL_ID] = call_id
    if genai.captures_content():
        tags[genai.TOOL_ARGUMENTS] = json.dumps(redacted(values))
    given = bound(target.acall, **{**values, **filled_in}) if dispatcher.tells_arguments else None
    span_id = dispatcher.open_span(f"{type(tool).__name__}.acall", instance=tool, bound_args=given, tags=tags)
    # The work of the tool, including model calls, belongs inside the span.
    token = active_span_id.set(span_id)
    dispatcher.event(events.tool.ToolCallStartEvent(tool_name=name, tool_kwargs=values, span_id=span_id))
    try:
        output = await running
    except BaseException as err:
        dispatcher.tag_span(span_id, {genai.ERROR_TYPE: type(err).__name__})
        dispatcher.fail_span(span_id, err, tool, given)
        raise
    finally:
        undo(token)
    if output.is_error:
        dispatcher.tag_span(span_id, {genai.ERROR_TYPE: type(output.exception or output).__name__})
    if genai.captures_content():
        dispatcher.tag_span(span_id, {genai.TOOL_RESULT: json.dumps(redacted(output.content))})
    dispatcher.event(
        events.tool.ToolCallEndEvent(
            tool_name=name, output=output.content[:_SUMMARY], is_error=output.is_error, span_id=span_id
        )
    )
    dispatcher.close_span(span_id, output, tool, given)
    return output


async def _outcome(
    tool: AsyncBaseTool,
    policy: Any,
    values: dict[str, Any],
    filled_in: dict[str, Any],
    report: Report | None,
    key: str | None,
    on_error: ToolErrors | Callable[[], ToolErrors],
) -> ToolOutput:
    """Return the output of the first successful attempt, or the last error as an output."""
    timeout: float | None = getattr(policy, "timeout", None)
    retry: RetryPolicy | None = getattr(policy, "retry", None)
    try:
        if timeout is None and retry is None:
            return await tool.acall_reporting({**values, **filled_in}, report)
        return await _Attempts(tool, values, filled_in, report, timeout).outcome(retry, key)
    except Exception as err:  # noqa: BLE001 - a tool of the user may raise anything
        return _told(tool, policy, values, on_error, err)


def _told(
    tool: AsyncBaseTool,
    policy: Any,
    values: dict[str, Any],
    on_error: ToolErrors | Callable[[], ToolErrors],
    error: Exception,
) -> ToolOutput:
    """Return the output that tells the model of an error; raise the error where it fails the run."""
    mode: ToolErrors = getattr(policy, "on_error", None) or (on_error() if callable(on_error) else on_error)
    if raises(error, mode):
        raise error
    name = tool.metadata.name or ""
    _log_told(name, error)
    return error_output(name, values, error)


def _log_told(name: str, error: Exception) -> None:
    """Log an exception that the model is told, with its traceback unless the tool addressed the model."""
    if isinstance(error, ToolRetry | ToolArgumentsError) or type(error) is ToolError:
        logger.debug("%s told the model: %s", in_words(f"tool {name}"), error)
    else:
        # The traceback of a timeout shows only the wait for the tool.
        shown = None if isinstance(error, ToolTimeoutError) else error
        logger.warning("%s raised %s", in_words(f"tool {name}"), type(error).__name__, exc_info=shown)


class _Attempts:
    """Attempts of a call with checked arguments, each within its timeout.

    Args:
        tool: The tool.
        values: The model's arguments.
        filled_in: Arguments that the caller fills in.
        report: Receives the progress of a generator.
        timeout: Seconds for one attempt; None for no limit.
    """

    def __init__(
        self,
        tool: AsyncBaseTool,
        values: dict[str, Any],
        filled_in: dict[str, Any],
        report: Report | None,
        timeout: float | None,
    ) -> None:
        self._name = tool.metadata.name or ""
        self._tool = tool
        self._values = values
        self._filled_in = filled_in
        self._report = report
        self._timeout = timeout

    async def outcome(self, retry: RetryPolicy | None, key: str | None) -> ToolOutput:
        """Return the output of the first successful attempt; raise the error of the last one.

        Args:
            retry: Decides about further attempts.
            key: The call's idempotency key.
        """
        if retry is None:
            return await self._within_time(self._values)
        source = current_source()
        started, failures = source.monotonic(), 0
        # Jitter keeps calls that failed together from being retried together.
        seed = f"{key or source.token()}:{self._name}"
        while True:
            try:
                # A tool may change its arguments; each attempt begins with a copy of the model's arguments.
                return await self._within_time(deepcopy(self._values))
            except ToolArgumentsError:
                raise
            except Exception as err:
                failures += 1
                delay = next_delay(retry, source.monotonic() - started, failures, err, f"{seed}:{failures}")
                if delay is None:
                    raise
                logger.warning(
                    "%s failed at attempt %d and is called again in %g seconds: %r",
                    in_words(f"tool {self._name}"),
                    failures,
                    delay,
                    err,
                )
            await asyncio.sleep(delay)

    async def _within_time(self, values: dict[str, Any]) -> ToolOutput:
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                output = await self._tool.acall_reporting({**values, **self._filled_in}, self._report)
        except Exception as err:
            if limit.expired():
                raise self._too_late() from err
            raise
        if limit.expired():
            raise self._too_late()
        return output

    def _too_late(self) -> ToolTimeoutError:
        return ToolTimeoutError(
            f"Tool {self._name!r} gave no result within {self._timeout:g} seconds and was given up. Its effects "
            "are unknown."
        )


def _positional(tool: BaseTool, arguments: Mapping[str, Any]) -> bool:
    """Return True if the only argument goes by position: some tools name it differently from their schema."""
    # A schema without properties has no such key.
    if len(arguments) != 1 or len(tool.metadata.get_parameters_dict().get("properties", {})) != 1:
        return False
    if not isinstance(tool, FunctionTool):
        return True
    try:
        inspect.signature(tool.real_fn).bind_partial(**arguments)
    except TypeError:
        return True
    return False


def call_tool(tool: BaseTool, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a tool synchronously with unvalidated arguments; exceptions become error outputs."""
    function: Any = tool
    try:
        if _positional(tool, arguments):
            value = next(iter(arguments.values()))
            if isinstance(tool, FunctionTool):
                return function(value)
            try:
                return function(value)
            except Exception:  # noqa: BLE001 - the tool may require arguments by name
                return function(**arguments)
        return function(**arguments)
    except Exception as err:  # noqa: BLE001 - the boundary of tools
        return error_output(tool.metadata.get_name(), arguments, err, "Encountered error: ")


async def acall_tool(tool: BaseTool, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a tool asynchronously with unvalidated arguments; exceptions become error outputs."""
    target: Any = adapt_to_async_tool(tool)
    try:
        if _positional(tool, arguments):
            value = next(iter(arguments.values()))
            if isinstance(tool, FunctionTool):
                return await target.acall(value)
            try:
                return await target.acall(value)
            except Exception:  # noqa: BLE001 - the tool may require arguments by name
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
        tools: The available tools.
        verbose: Print call and output.

    Raises:
        KeyError: No tool has that name.
    """
    return _shown(call_tool(_selected(tool_call, tools, verbose), tool_call.tool_kwargs), verbose)


async def acall_tool_with_selection(
    tool_call: ToolSelection, tools: Sequence[BaseTool], verbose: bool = False
) -> ToolOutput:
    """Call the tool that a selection names, asynchronously."""
    return _shown(await acall_tool(_selected(tool_call, tools, verbose), tool_call.tool_kwargs), verbose)
