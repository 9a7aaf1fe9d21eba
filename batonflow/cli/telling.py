"""What a run streams, as lines for people: live events, and recorded ones whose classes nobody has loaded."""

from collections.abc import Mapping
from typing import Any, cast

from batonflow.agents.approvals import ApprovalRequired
from batonflow.agents.events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentStream,
    AgentStreamStructuredOutput,
    ToolCall,
    ToolCallResult,
    ToolProgress,
)
from batonflow.agents.members import HANDOFF_TOOL
from batonflow.cli.briefly import content_of
from batonflow.cli.output import jsonable, say
from batonflow.cli.text import call, one_line, shown, summary
from batonflow.values.names import qualified_name
from batonflow.workflow_core.events import Event, StopEvent, StreamResetEvent
from batonflow.workflow_core.stream import StreamItem

__all__ = ["Teller", "envelope"]

Fields = Mapping[str, Any]

_LONGEST_ARGUMENT = 200
_LONGEST_RESULT = 500


def envelope(item: StreamItem) -> dict[str, Any]:
    """A streamed event for programs."""
    event = item.event
    value = jsonable(event)
    if isinstance(event, StopEvent) and type(event) is StopEvent:
        value = {**value, "result": jsonable(event.result)}
    return {
        "seq": item.seq,
        "ts": item.ts,
        "step": item.step,
        "path": item.path,
        "type": type(event).__name__,
        "qualified_name": qualified_name(type(event)),
        "value": value,
    }


class Teller:
    """Prints what a run streams.

    Example:
        >>> teller = Teller()
        >>> async for item in handler.subscribe():
        ...     teller.event(item.event)
        >>> teller.finish()
    """

    def __init__(self) -> None:
        self._speaking = ""
        self._said: list[str] = []
        self._ways = {qualified_name(cls): way for cls, way in _WAYS.items()}

    def event(self, event: Event) -> None:
        """Print an event."""
        known = next((cls for cls in type(event).__mro__ if cls in _WAYS), None)
        if known is AgentStream and isinstance(event, AgentStream):
            # Its other fields hold the whole answer so far, and are made when somebody asks.
            self._speech({"delta": event.delta, "current_agent_name": event.current_agent_name})
        else:
            self.record(qualified_name(known or type(event)), jsonable(event))

    def record(self, qualified_name: str, value: Any) -> None:
        """Print an event as a record tells it."""
        if qualified_name not in self._ways:
            self._line(summary(qualified_name.rpartition(".")[2], value))
        elif isinstance(value, Mapping):
            way = self._ways[qualified_name]
            if way is not None:
                way(self, cast("Fields", value))

    @property
    def last_speech(self) -> str:
        """What was said last, if nothing was printed behind it but its structured form."""
        return "".join(self._said)

    def finish(self) -> None:
        """End the line of whoever spoke last."""
        if self._speaking:
            say()
        self._speaking = ""

    def _line(self, text: str) -> None:
        self.finish()
        self._said = []
        say(text)

    def _speech(self, value: Fields) -> None:
        delta, name = value.get("delta"), str(value.get("current_agent_name") or "agent")
        if not delta:
            return
        if self._speaking != name:
            self.finish()
            self._said = []
            say(f"{one_line(name)}: ", end="")
            self._speaking = name
        self._said.append(str(delta))
        say(str(delta), end="")

    def _tool(self, value: Fields) -> None:
        if value.get("tool_name") != HANDOFF_TOOL:
            self._line(f"  -> {call(str(value.get('tool_name')), value.get('tool_kwargs') or {})}")

    def _result(self, value: Fields) -> None:
        output: Fields = value.get("tool_output") or {}
        arguments: Fields = value.get("tool_kwargs") or {}
        failed = bool(output.get("is_error"))
        if value.get("tool_name") == HANDOFF_TOOL and not failed:
            self._line(f"  == {one_line(str(arguments.get('to_agent')))}: {one_line(str(arguments.get('reason')))}")
            return
        text = content_of(output)
        cut = "..." if len(text) > _LONGEST_RESULT else ""
        self._line(f"  <- {'failed: ' if failed else ''}{text[:_LONGEST_RESULT]}{cut}")

    def _progress(self, value: Fields) -> None:
        self._line(f"  .. {one_line(str(value.get('tool_name')))}: {shown(value.get('value'))}")

    def _approval(self, value: Fields) -> None:
        self._line(f"  ?? {wanted(value)}")

    def _structured(self, value: Fields) -> None:
        self.finish()
        say(summary("output", value.get("output")))

    def _reset(self, value: Fields) -> None:
        """The numbers that were lost say nothing to people."""


def wanted(value: Fields) -> str:
    """An approval in words."""
    asked = call(str(value.get("tool_name")), value.get("arguments") or {}, _LONGEST_ARGUMENT)
    text = f"{one_line(str(value.get('agent')))} wants to call {asked}"
    if value.get("reason") == "unknown_outcome":
        text += " again: nobody knows whether the first call happened"
    if value.get("problem"):
        text += f"; your last answer could not be used: {one_line(str(value['problem']))}"
    return text


_WAYS: dict[type, Any] = {
    AgentInput: None,
    AgentSetup: None,
    AgentOutput: None,
    StopEvent: None,
    AgentStream: Teller._speech,  # pyright: ignore[reportPrivateUsage]
    ToolCall: Teller._tool,  # pyright: ignore[reportPrivateUsage]
    ToolCallResult: Teller._result,  # pyright: ignore[reportPrivateUsage]
    ToolProgress: Teller._progress,  # pyright: ignore[reportPrivateUsage]
    ApprovalRequired: Teller._approval,  # pyright: ignore[reportPrivateUsage]
    AgentStreamStructuredOutput: Teller._structured,  # pyright: ignore[reportPrivateUsage]
    StreamResetEvent: Teller._reset,  # pyright: ignore[reportPrivateUsage]
}
"""How the events of agents are told; None for those that say nothing new."""
