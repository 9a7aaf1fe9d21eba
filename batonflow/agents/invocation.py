"""A tool call on its way through the layers, and the results of a call."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, get_args

from batonflow.agents.arguments import as_sent
from batonflow.agents.budget import Limits
from batonflow.agents.events import ToolCall, ToolCallResult, ToolProgress
from batonflow.agents.ledger import account_here
from batonflow.agents.members import Member, Team
from batonflow.instrumentation.logs import describe_with, is_debugging
from batonflow.tools import AsyncBaseTool, ToolOutput
from batonflow.tools.policy import ToolErrors
from batonflow.workflow_core import Context
from batonflow.workflow_core.engine.state import current_item
from batonflow.workflow_core.events import Event

__all__ = [
    "HANDLE",
    "LONG_RESULTS",
    "READ_RESULT",
    "Approval",
    "CallNext",
    "ToolInvocation",
    "ToolLayer",
    "call_options",
    "invocation_here",
    "refusal_output",
    "result_of",
    "under_way",
]

READ_RESULT = "read_result"
"""The name of the tool that reads on in a long result."""

LONG_RESULTS = "long_results"
"""The key of the state store for whole results by handle."""

HANDLE = "handle"
"""The field of a result with the key of its whole text."""


class Approval(NamedTuple):
    """The approval of a call, which also permits further runs with the same arguments.

    Attributes:
        asked: The arguments before the question.
        arguments: The arguments to call with.
        reported: The same as data of JSON.
    """

    asked: dict[str, Any]
    arguments: dict[str, Any]
    reported: dict[str, Any]


@dataclass(slots=True, eq=False)
class ToolInvocation:
    """A tool call on its way from the model's request to the result.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
        agent: The agent that calls.
        tool: The tool.
        call: The event with the arguments as the model gave them.
        place: The name of the call within its run; it stays the same after a restore.
        limits: The budgets that apply; None without budgets.
        policy: The policy of the tool, or None.
        arguments: The arguments to call with, which a hook or a person may have changed; they may hold objects.
        reported: The same as data of JSON, for results and records.
        approved: Whether the approval layer has let the call pass.
        checked: The arguments of an approval, as the tool has validated them.
        refused: Whether the call ended before the tool could run.
        handle: The key of the whole text, if the model is shown the beginning of a long result.
        approval: The approval for an earlier run of the tool for this call.
        first_place: The place of the first run of the tool for this call.
    """

    ctx: Context[Any]
    team: Team
    agent: Member
    tool: AsyncBaseTool
    call: ToolCall
    place: str
    limits: Limits | None = None
    policy: Any = field(init=False)
    arguments: dict[str, Any] = field(init=False)
    reported: dict[str, Any] = field(init=False)
    approved: bool = False
    checked: dict[str, Any] | None = None
    refused: bool = False
    handle: str | None = None
    approval: "Approval | None" = None
    first_place: str = field(init=False)

    def __post_init__(self) -> None:
        self.first_place = self.place
        self.policy = getattr(self.tool, "policy", None)
        self.arguments = self.reported = self.call.tool_kwargs

    @property
    def idempotency_key(self) -> str:
        """The key of the call, the same for each run of the tool for it."""
        return f"{self.ctx.run_id}/{self.first_place}"

    def options(self) -> dict[str, Any]:
        """Return the options of ``run_tool`` for this call."""
        return {
            "approved": self.approved,
            "checked": self.checked,
            "idempotency_key": self.idempotency_key,
            "report": self.report,
            "on_error": self.on_error,
            "call_id": self.call.tool_id,
        }

    def on_error(self) -> ToolErrors:
        """Return the way of an exception of the tool: the strictest of agent, team and debugging."""
        debugging: ToolErrors = "raise_bugs" if is_debugging() else "tell"
        asked: list[ToolErrors] = [self.agent.tool_errors, self.team.tool_errors, debugging]
        return max(asked, key=get_args(ToolErrors).index)

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


CallNext = Callable[[ToolInvocation], Awaitable[ToolOutput]]
"""Passes an invocation on to the next layer, and in the end to the tool."""


class ToolLayer(Protocol):
    """A layer around a tool call, which acts before it, after it, or instead of it."""

    def __call__(self, invocation: ToolInvocation, call_next: CallNext) -> Awaitable[ToolOutput]:
        """Return the output of the call, usually that of ``call_next``."""
        ...


under_way: ContextVar[ToolInvocation | None] = ContextVar("batonflow_call", default=None)


def _described() -> dict[str, Any]:
    """Return the agent and the tool of the code that runs here, for records of logs."""
    found, item = under_way.get(), current_item.get()
    if found is not None and item is not None and found.ctx.run is item.run:
        return {"agent": found.agent.name, "tool": found.call.tool_name}
    account = account_here()
    return {} if account is None else {"agent": account.agent}


describe_with(_described)


def invocation_here(ctx: Context[Any]) -> ToolInvocation | None:
    """Return the invocation around this code, if it belongs to the run of ``ctx``.

    Args:
        ctx: The run's context, inside a step.
    """
    found, run = under_way.get(), ctx.run
    return found if found is not None and run is not None and found.ctx.run is run else None


def call_options() -> dict[str, Any]:
    """Return the options of ``run_tool`` for the running call; empty outside of a call."""
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
