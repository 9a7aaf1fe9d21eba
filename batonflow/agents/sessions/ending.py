"""The end of a turn: what its run adds to the session."""

from typing import Any, cast

from batonflow.agents.approvals import ApprovalRequired, unapproved_calls
from batonflow.agents.events import HANDOFF_TOOL, AgentOutput, ToolCallResult
from batonflow.agents.layers.memory_pattern import knowledge_of, pattern_of
from batonflow.agents.layers.unfinished import unanswered
from batonflow.agents.ledger import ARRIVED
from batonflow.agents.memory import BaseMemory
from batonflow.agents.memory.turns import observation
from batonflow.agents.prompts import TURN_CUT_OFF
from batonflow.agents.sessions.memories import messages_of
from batonflow.agents.sessions.turn_data import Conversation, TurnData, TurnWriter, added
from batonflow.instrumentation.logs import logger_named
from batonflow.llms import ChatMessage
from batonflow.tools import ToolSelection
from batonflow.values.state_data import MISSING, read_part
from batonflow.workflow_core.events import StopEvent
from batonflow.workflow_core.run import Run

__all__ = ["EndOfTurn"]

logger = logger_named("batonflow.agent")

_ENDS = {"failed": "failed", "cancelled": "was cancelled"}
_NO_RESULT = "no result; it may have taken effect"
_NOT_MADE = "not made; it waited for an approval"
_SHOWN_ARGUMENTS, _SHOWN_RESULT = 200, 400


class EndOfTurn:
    """Gives the data for the end of a turn.

    Args:
        agent: The agent or team.
        run: The run of the turn.
        before: The session before the turn.
        asked: The user's message.
        writer: Writes the data.
    """

    def __init__(
        self, agent: Any, run: Run, before: Conversation, asked: ChatMessage | None, writer: TurnWriter
    ) -> None:
        self._agent, self._run, self._before, self._asked, self._writer = agent, run, before, asked, writer

    def __call__(self, status: str, event: StopEvent) -> bytes:
        """Return the data of the turn for an end of its run."""
        try:
            turn = self._completed(event) if status == "completed" else self._unfinished(status)
            return self._writer.write(turn, self._asked)
        except Exception as error:  # noqa: BLE001 - memories of the program may raise any exception
            # The run itself is recorded; without its turn the session would be taken for ever.
            logger.warning("the turn of run %s is kept without its answer: %r", self._run.state.run_id, error)
            return b""

    def _value(self, name: str) -> Any:
        found = read_part(self._run.cell.state, name)
        return None if found is MISSING else found

    def _state(self) -> Any:
        """Return the state as data; None if there is not one, or it is unchanged."""
        state = self._value("state")
        if state is None or (state == {} and self._before.state is None):
            return None
        data = self._writer.state(state)
        return None if data == self._before.state else data

    def _completed(self, event: StopEvent) -> TurnData:
        memory: Any = self._value("memory")
        messages, archived = messages_of(memory)
        kept, new = added(self._before.messages, messages)
        turn = TurnData(new, kept, archived=archived, state=self._state())
        for name, own in cast("dict[str, Any]", self._value("memories") or {}).items():
            turn.members[name] = added(self._before.members.get(name, []), messages_of(own)[0])
        if hasattr(self._agent, "agents"):
            turn.agent = self._value("current_agent_name") or ""
        if isinstance(memory, BaseMemory) and pattern_of(self._agent) is not None:
            known = knowledge_of(memory)
            turn.memory = None if known == self._before.memory else known
        output = event.result if type(event) is StopEvent else event
        turn.output = _output(output, new[-1].content if new else None)
        if isinstance(output, AgentOutput) and output.usage is not None:
            turn.usage = output.usage.model_dump(mode="json", exclude_defaults=True)
        return turn

    def _unfinished(self, status: str) -> TurnData:
        """Return the user's message and a note of the calls. The tools' changes of the state are kept."""
        turn = TurnData([] if self._asked is None else [self._asked], archived=self._before.archived)
        turn.state = self._state()
        calls = self._calls()
        if calls:
            turn.messages.append(observation(TURN_CUT_OFF.format(status=_ENDS[status], calls="\n".join(calls))))
        error = self._run.ending.error
        turn.error = "" if error is None else f"{type(error).__name__}: {error}"
        usage = cast("dict[str, Any]", self._value("usage") or {})
        turn.usage = _sum(usage)
        return turn

    def _calls(self) -> list[str]:
        """Return a line for each tool call of the run, and the calls without a result."""
        done: list[Any] = list(self._value("current_tool_calls") or ())
        known = {id(one) for one in done}
        done += [one for one in cast("dict[str, Any]", self._value(ARRIVED) or {}).values() if id(one) not in known]
        results = [one for one in done if isinstance(one, ToolCallResult) and one.tool_name != HANDOFF_TOOL]
        lines = [_line(one.tool_name, one.tool_kwargs, _result(one)) for one in results]
        answered = {one.tool_id for one in results}
        cut_off = [call for call in self._open_calls() if call.tool_id not in answered]
        waited = unapproved_calls(self._run)
        outcomes = [_NOT_MADE if _is_one_of(call, waited) else _NO_RESULT for call in cut_off]
        return lines + [
            _line(call.tool_name, call.tool_kwargs, outcome) for call, outcome in zip(cut_off, outcomes, strict=True)
        ]

    def _open_calls(self) -> list[ToolSelection]:
        """Return the calls in the work of the turn that have no result."""
        agent: Any = self._agent.__batonflow_team__.member(self._value("current_agent_name"))
        work = cast("list[Any]", self._value(getattr(agent, "scratchpad_key", "")) or [])
        found = unanswered([one for one in work if isinstance(one, ChatMessage)])
        steps = cast("list[Any]", self._value(getattr(agent, "reasoning_key", "")) or [])
        if steps and hasattr(steps[-1], "action"):
            found.append(ToolSelection(tool_id="", tool_name=steps[-1].action, tool_kwargs=steps[-1].action_input))
        return [call for call in found if call.tool_name != HANDOFF_TOOL]


def _is_one_of(call: ToolSelection, waited: list[ApprovalRequired]) -> bool:
    """Tell whether a call waited for an approval; a call of a reasoning agent has no id."""
    return any(one.tool_name == call.tool_name and call.tool_id in {"", one.tool_id} for one in waited)


def _line(name: str, arguments: dict[str, Any], outcome: str) -> str:
    shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"- {name}({_cut(shown, _SHOWN_ARGUMENTS)}): {_cut(outcome, _SHOWN_RESULT)}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _result(result: ToolCallResult) -> str:
    text = result.tool_output.content or "no text"
    return f"error: {text}" if result.tool_output.is_error else text


def _output(output: Any, said: str | None) -> dict[str, Any]:
    """Return the output of a run as data, without the text if it is the last message."""
    if not isinstance(output, AgentOutput):
        return {} if output is None else {"text": str(output)}
    text = str(output)
    found = {
        "text": None if text == said else text,
        "structured": output.structured_response,
        "blocked": output.blocked,
    }
    return {name: value for name, value in found.items() if value is not None}


def _sum(by_agent: dict[str, Any]) -> dict[str, Any] | None:
    total: Any = None
    for usage in by_agent.values():
        total = usage if total is None else total + usage
    return None if total is None else total.model_dump(mode="json", exclude_defaults=True)
