"""One tool call of an agent, as an object that passes through the layers around the tool."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from batonflow.agents.arguments import as_sent
from batonflow.agents.budget import Limits
from batonflow.agents.events import ToolCall, ToolCallResult, ToolProgress
from batonflow.agents.members import Member, Team
from batonflow.tools import AsyncBaseTool, ToolOutput
from batonflow.workflow_core import Context
from batonflow.workflow_core.events import Event

__all__ = [
    "HANDLE",
    "CallNext",
    "ToolInvocation",
    "ToolLayer",
    "call_options",
    "invocation_here",
    "refusal_output",
    "result_of",
    "under_way",
]


@dataclass(slots=True, eq=False)
class ToolInvocation:
    """A tool call on its way from the model's request to the result.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
        agent: The agent that calls.
        tool: The tool.
        call: The event with the arguments as the model gave them.
        place: Names the call within its run; the same after a restore.
        limits: The budgets that hold; None without budgets.
        arguments: The arguments to call with, which a hook or a person may have changed; they may hold objects.
        reported: The same as data of JSON, for results and records.
        approved: Whether the approval layer has let the call pass.
        checked: The arguments of an approval, as the tool has validated them.
        refused: Whether the call ended before the tool could run.
        handle: The key of the whole text, if the model is shown the beginning of a long result.
    """

    ctx: Context[Any]
    team: Team
    agent: Member
    tool: AsyncBaseTool
    call: ToolCall
    place: str
    limits: Limits | None = None
    arguments: dict[str, Any] = field(init=False)
    reported: dict[str, Any] = field(init=False)
    approved: bool = False
    checked: dict[str, Any] | None = None
    refused: bool = False
    handle: str | None = None

    def __post_init__(self) -> None:
        self.arguments = self.reported = self.call.tool_kwargs

    @property
    def policy(self) -> Any:
        """The policy of the tool, or None."""
        return getattr(self.tool, "policy", None)

    def options(self) -> dict[str, Any]:
        """Return the options of ``run_tool`` for this call."""
        return {
            "approved": self.approved,
            "checked": self.checked,
            "idempotency_key": f"{self.ctx.run_id}/{self.place}",
            "report": self.report,
            "call_id": self.call.tool_id,
        }

    def report(self, value: Any) -> None:
        """Stream a value that the tool yields."""
        if not isinstance(value, Event):
            data = value
            recorder = None if self.ctx.run is None else self.ctx.run.recorder
            if recorder is not None and not recorder.can_write(value):
                data = as_sent({"value": value})["value"]
            value = ToolProgress(tool_name=self.call.tool_name, tool_id=self.call.tool_id, value=data)
        self.ctx.write_event_to_stream(value)

    def refuse(self, words: str) -> ToolOutput:
        """End the call before the tool runs; the result has the arguments of the model.

        Args:
            words: The text for the model.
        """
        self.refused, self.reported = True, self.call.tool_kwargs
        return refusal_output(self.call, words)


HANDLE = "handle"
"""The field of a result with the key of its whole text."""

CallNext = Callable[[ToolInvocation], Awaitable[ToolOutput]]
"""Passes an invocation on to the next layer, and in the end to the tool."""


class ToolLayer(Protocol):
    """Takes part in a tool call: before it, after it, or in its place."""

    def __call__(self, invocation: ToolInvocation, call_next: CallNext) -> Awaitable[ToolOutput]:
        """Return the output of the call, in most cases that of ``call_next``."""
        ...


under_way: ContextVar[ToolInvocation | None] = ContextVar("batonflow_call", default=None)


def invocation_here(ctx: Context[Any]) -> ToolInvocation | None:
    """Return the invocation around this code, if it belongs to the run of ``ctx``.

    Args:
        ctx: The run's context, inside a step.
    """
    found, run = under_way.get(), ctx.run
    return found if found is not None and run is not None and found.ctx.run is run else None


def call_options() -> dict[str, Any]:
    """Return the options of ``run_tool`` for the call under way here; empty outside of a call."""
    found = under_way.get()
    return {} if found is None else found.options()


def refusal_output(call: ToolCall, words: str) -> ToolOutput:
    """Return the output of a call that is not made.

    Args:
        call: The call.
        words: The reason, for the model.
    """
    return ToolOutput(tool_name=call.tool_name, content=words, raw_input=call.tool_kwargs, is_error=True)


def result_of(
    call: ToolCall,
    output: ToolOutput,
    return_direct: bool,
    arguments: dict[str, Any] | None = None,
    handle: str | None = None,
) -> ToolCallResult:
    """Return the result of a call, with the place of the call in the model's answer.

    Args:
        call: The call.
        output: The output.
        return_direct: Whether it ends the run as the answer.
        arguments: The arguments of the call, where they differ from those of the model.
        handle: The key of its whole text, if it is shown in part.
    """
    given = call.tool_kwargs if arguments is None else arguments
    result = ToolCallResult.of(call, given, output, return_direct=return_direct)
    data = result.to_dict()
    data["position"] = call.get("position", 0)
    if handle is not None and return_direct:
        data[HANDLE] = handle
    return result
