"""The turns of a session so far, and the results that they keep."""

from typing import Any

from batonflow.agents.events import AgentOutput
from batonflow.agents.sessions.ending import EndOfTurn
from batonflow.agents.sessions.places import Place, place_of
from batonflow.agents.sessions.turn_data import Conversation, TurnData, conversation_of
from batonflow.durable.session_protocol import StoredTurn
from batonflow.llms import ChatMessage, Usage
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.events import StopEvent, WorkflowCancelledEvent, WorkflowFailedEvent
from batonflow.workflow_core.run import Run

__all__ = ["all_turns", "conversation_before", "end_of_turn_of", "result_of"]


async def all_turns(place: Place, session: str, before: int | None = None) -> list[StoredTurn]:
    """Return all turns of a session, before a number."""
    turns: list[StoredTurn] = []
    after = 0
    while page := await place.sessions.read_turns(session, after=after, before=before):
        turns += page
        after = page[-1].number
    return turns


async def conversation_before(place: Place, session: str, number: int | None = None) -> Conversation:
    """Return the conversation of the turns before a number, as far as they are over."""
    turns = await all_turns(place, session, number)
    return conversation_of(place.writer.read(turn) for turn in turns if turn.status != "running")


def result_of(turn: StoredTurn, data: TurnData) -> StopEvent:
    """Return the end of a turn whose run is no longer kept."""
    if turn.status == "cancelled":
        return WorkflowCancelledEvent()
    if turn.status == "failed":
        return WorkflowFailedEvent(step_name="", exception=WorkflowRuntimeError(data.error or "the run failed"))
    known = data.output or {}
    said = data.messages[-1].content if data.messages else None
    answer = ChatMessage(known.get("text", said) or "", role="assistant")
    output = AgentOutput(response=answer, structured_response=known.get("structured"))
    if "blocked" in known:
        output.to_dict()["blocked"] = known["blocked"]
    if data.usage is not None:
        output.usage = Usage.model_validate(data.usage)
    return StopEvent(result=output)


async def end_of_turn_of(agent: Any, run: Run) -> EndOfTurn:
    """Return the end of the turn that a stored run is, for a process that takes it up."""
    place = place_of(agent)
    session, _, number = run.state.run_id.rpartition(":")
    turns = await place.sessions.read_turns(session, after=int(number) - 1, before=int(number) + 1)
    asked = place.writer.read_asked(turns[0]) if turns else None
    if turns and turns[0].request_id is not None:  # a repeated request finds the run in this process
        place.remember((session, turns[0].request_id), run)
    return EndOfTurn(agent, run, await conversation_before(place, session, int(number)), asked, place.writer)
