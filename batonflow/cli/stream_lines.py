"""Streamed events as lines for people: live events, and recorded ones whose classes are not loaded."""

from collections.abc import Mapping
from functools import partial
from typing import Any, TextIO, cast

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
from batonflow.cli.output import jsonable, say
from batonflow.cli.summary import message_text
from batonflow.cli.text import call, one_line, shown, summary
from batonflow.values.names import qualified_name
from batonflow.workflow_core.events import Event, StopEvent, StreamResetEvent
from batonflow.workflow_core.stream import StreamItem

__all__ = ["StreamPrinter", "approval_text", "envelope"]

Fields = Mapping[str, Any]

_LONGEST_ARGUMENT = 200
_LONGEST_RESULT = 500


def envelope(item: StreamItem) -> dict[str, Any]:
    """Return a streamed event as data for ``--json``."""
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


class StreamPrinter:
    """Prints the events that a run streams.

    Args:
        file: The file to print to; stdout when left out.

    Example:
        >>> printer = StreamPrinter()
        >>> async for item in handler.subscribe():
        ...     printer.event(item.event)
        >>> printer.finish()
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._say = partial(say, file=file)
        self._speaker = ""
        self._speech_parts: list[str] = []
        self._printers = {qualified_name(cls): printer for cls, printer in _PRINTERS.items()}

    def event(self, event: Event) -> None:
        """Print an event."""
        known = next((cls for cls in type(event).__mro__ if cls in _PRINTERS), None)
        if known is AgentStream and isinstance(event, AgentStream):
            # The other fields hold the whole answer so far and are computed when they are read.
            self._print_speech({"delta": event.delta, "current_agent_name": event.current_agent_name})
        else:
            self.record(qualified_name(known or type(event)), jsonable(event))

    def record(self, qualified_name: str, value: Any) -> None:
        """Print a recorded event, given as data."""
        if qualified_name not in self._printers:
            self._line(summary(qualified_name.rpartition(".")[2], value))
        elif isinstance(value, Mapping):
            print_event = self._printers[qualified_name]
            if print_event is not None:
                print_event(self, cast("Fields", value))

    @property
    def last_speech(self) -> str:
        """The last answer, if nothing except its structured form was printed after it."""
        return "".join(self._speech_parts)

    def finish(self) -> None:
        """End the line of an answer that is being printed."""
        if self._speaker:
            self._say()
        self._speaker = ""

    def _line(self, text: str) -> None:
        self.finish()
        self._speech_parts = []
        self._say(text)

    def _print_speech(self, value: Fields) -> None:
        delta, name = value.get("delta"), str(value.get("current_agent_name") or "agent")
        if not delta:
            return
        if self._speaker != name:
            self.finish()
            self._speech_parts = []
            self._say(f"{one_line(name)}: ", end="")
            self._speaker = name
        self._speech_parts.append(str(delta))
        self._say(str(delta), end="")

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
        text = message_text(output)
        cut = "..." if len(text) > _LONGEST_RESULT else ""
        self._line(f"  <- {'failed: ' if failed else ''}{text[:_LONGEST_RESULT]}{cut}")

    def _progress(self, value: Fields) -> None:
        self._line(f"  .. {one_line(str(value.get('tool_name')))}: {shown(value.get('value'))}")

    def _approval(self, value: Fields) -> None:
        self._line(f"  ?? {approval_text(value)}")

    def _structured(self, value: Fields) -> None:
        self.finish()
        self._say(summary("output", value.get("output")))

    def _reset(self, value: Fields) -> None:
        """Print nothing: lost sequence numbers do not matter to people."""


def approval_text(value: Fields) -> str:
    """Return the request for an approval in words."""
    request = call(str(value.get("tool_name")), value.get("arguments") or {}, _LONGEST_ARGUMENT)
    text = f"{one_line(str(value.get('agent')))} wants to call {request}"
    if value.get("reason") == "unknown_outcome":
        text += " again: the outcome of the first call is unknown"
    if value.get("problem"):
        text += f"; your last answer could not be used: {one_line(str(value['problem']))}"
    return text


_PRINTERS: dict[type, Any] = {
    AgentInput: None,
    AgentSetup: None,
    AgentOutput: None,
    StopEvent: None,
    AgentStream: StreamPrinter._print_speech,  # pyright: ignore[reportPrivateUsage]
    ToolCall: StreamPrinter._tool,  # pyright: ignore[reportPrivateUsage]
    ToolCallResult: StreamPrinter._result,  # pyright: ignore[reportPrivateUsage]
    ToolProgress: StreamPrinter._progress,  # pyright: ignore[reportPrivateUsage]
    ApprovalRequired: StreamPrinter._approval,  # pyright: ignore[reportPrivateUsage]
    AgentStreamStructuredOutput: StreamPrinter._structured,  # pyright: ignore[reportPrivateUsage]
    StreamResetEvent: StreamPrinter._reset,  # pyright: ignore[reportPrivateUsage]
}
"""Printers of agents' events; None for events that repeat others."""
