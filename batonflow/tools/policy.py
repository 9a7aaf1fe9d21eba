"""ToolPolicy: approval, timeout, retries and limits of a tool, and the meaning of an interrupted call."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from batonflow.tools.schema import ToolDefinitionError, ToolError
from batonflow.values.types import is_seconds, is_whole
from batonflow.workflow_core.context import Context
from batonflow.workflow_core.step import RetryPolicy

__all__ = ["Approval", "OnUnknown", "ToolErrors", "ToolPolicy", "raises"]

Approval = (
    bool
    | Callable[[dict[str, Any]], bool | Awaitable[bool]]
    | Callable[[Context[Any], dict[str, Any]], bool | Awaitable[bool]]
)
OnUnknown = Literal["ask", "retry", "fail"]
ToolErrors = Literal["tell", "raise_bugs", "raise"]
"""The way of a tool's exception: told to the model, or out of the run. The later ones are stricter."""

_BUGS = (NameError, AttributeError, TypeError, ImportError, AssertionError)


@dataclass(frozen=True)
class ToolPolicy:
    """Approval, timeout, retries and limits of a tool, and the meaning of an interrupted call.

    Args:
        requires_approval: True if a person must approve each call, or a function of ``(arguments)`` or
            ``(ctx, arguments)`` that returns True for calls that a person must approve.
        approval_timeout: Seconds until an unanswered request counts as denied.
        idempotent: True if it is safe to repeat a call.
        on_unknown: Reaction to a call with an unknown outcome: ask a person, run it again, or report a failure to the
            model.
        timeout: Seconds for one attempt; None for no limit.
        retry: Retry policy of failed attempts; see ``batonflow.workflow_core.retry_policy``.
        max_calls: Largest number of calls in one run of an agent; None for no limit.
        max_result_chars: Largest number of characters of a result that the model receives at once; None for all.
        on_error: The way of the tool's exceptions: ``"tell"`` them to the model, ``"raise_bugs"`` out of the run, or
            ``"raise"`` all of them; None for the setting of the agent.

    Raises:
        ToolDefinitionError: A value is invalid; the message names the field and the remedy.

    Example:
        >>> policy = ToolPolicy(timeout=10, retry=retry_policy(wait=wait_exponential(), stop=stop_after_attempt(3)))
        >>> FunctionTool.from_defaults(fetch, policy=policy)
    """

    requires_approval: Approval = False
    approval_timeout: float | None = None
    idempotent: bool = False
    on_unknown: OnUnknown = "ask"
    timeout: float | None = None
    retry: RetryPolicy | None = None
    max_calls: int | None = None
    max_result_chars: int | None = None
    on_error: ToolErrors | None = None

    def __post_init__(self) -> None:
        # Programs that no type checker has seen may pass any value.
        given: dict[str, Any] = vars(self)
        if not isinstance(given["requires_approval"], bool) and not callable(given["requires_approval"]):
            _refuse("requires_approval", given, "True, False, or a function of the arguments that returns one of them")
        if not isinstance(given["idempotent"], bool):
            _refuse("idempotent", given, "True or False")
        if given["on_unknown"] not in {"ask", "retry", "fail"}:
            _refuse("on_unknown", given, "'ask', 'retry' or 'fail'")
        if given["on_error"] not in {None, *get_args(ToolErrors)}:
            _refuse("on_error", given, "'tell', 'raise_bugs' or 'raise'; leave it out for the setting of the agent")
        for name in ("timeout", "approval_timeout"):
            if not _is_duration(given[name]):
                _refuse(name, given, "a number of seconds greater than 0; leave it out for no limit")
        for name in ("max_calls", "max_result_chars"):
            if not _is_count(given[name]):
                _refuse(name, given, "a whole number from 1 on; leave it out for no limit")
        if not _is_retry(given["retry"]):
            _refuse("retry", given, "a retry policy, as in retry_policy(stop=stop_after_attempt(3))")


def raises(error: Exception, on_error: ToolErrors) -> bool:
    """Return whether an exception of a tool leaves the run instead of being told to the model.

    Args:
        error: The exception. The errors of ``ToolError`` are always told.
        on_error: The setting of the tool or its agent.
    """
    if on_error == "tell" or isinstance(error, ToolError):
        return False
    return on_error == "raise" or isinstance(error, _BUGS)


def _refuse(name: str, given: dict[str, Any], remedy: str) -> None:
    raise ToolDefinitionError(f"{name}={given[name]!r} is invalid. Give {remedy}")


def _is_duration(value: Any) -> bool:
    return value is None or (is_seconds(value) and 0 < value < math.inf)


def _is_count(value: Any) -> bool:
    return value is None or is_whole(value, least=1)


def _is_retry(value: Any) -> bool:
    return value is None or (isinstance(value, RetryPolicy) and not isinstance(value, type))
