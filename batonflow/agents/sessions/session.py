"""Session: one conversation of an agent, as a program uses it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, cast, overload

from pydantic import BaseModel

from batonflow import agents as kinds
from batonflow.agents.events import AgentOutput, AgentResult
from batonflow.agents.handler import AgentHandler
from batonflow.agents.run_output import OutputMissingError, OutputUnfitError
from batonflow.agents.sessions.history import all_turns, conversation_before, result_of
from batonflow.agents.sessions.places import Place, place_of
from batonflow.agents.sessions.starting import IfBusy
from batonflow.agents.sessions.turn_data import TurnData, newest
from batonflow.agents.sessions.waiting import busy_error
from batonflow.clock import current_source
from batonflow.durable.session_protocol import SessionChange, StoredSession, StoredTurn
from batonflow.durable.stores.bounds import check_session_name
from batonflow.llms import ChatMessage, Usage
from batonflow.values.types import check_whole, is_whole
from batonflow.workflow_core.errors import RunInputMismatchError, StoreError
from batonflow.workflow_core.typed import AgentDepsT, OutT

__all__ = ["Session", "SessionInfo", "Turn", "list_sessions"]

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class SessionInfo:
    """The listing of a session. Times are in wall-clock seconds.

    Attributes:
        name: The name.
        turns: The number of turns, without those that were undone.
        created: The time of creation.
        updated: The time of the last change.
        running: The run of the turn under way; None without one.
    """

    name: str
    turns: int
    created: float
    updated: float
    running: str | None = None


@dataclass(frozen=True)
class Turn(Generic[OutT]):
    """A turn of a session. Times are in wall-clock seconds.

    Attributes:
        number: The number; an undone turn leaves a gap.
        run_id: The id of its run; empty for messages that were added without a run.
        request_id: The id of the request; None without one.
        status: ``"running"``, ``"completed"``, ``"failed"`` or ``"cancelled"``.
        user_msg: The user's message.
        output: The output; None for a turn without one.
        usage: The tokens and their cost.
        started: The time of its beginning.
        ended: The time of its end; None before.
        messages: The messages that it has added.
        error: The error of a turn that did not end well; empty for others.
        agent: The agent of a team that acts after it; empty for a turn of one agent, or without an answer.
    """

    number: int
    run_id: str
    request_id: str | None
    status: Literal["running", "completed", "failed", "cancelled"]
    user_msg: ChatMessage | None
    output: OutT | None
    usage: Usage
    started: float
    ended: float | None
    messages: Sequence[ChatMessage] = ()
    error: str = ""
    agent: str = ""


class Session(Generic[AgentDepsT, OutT]):
    """A conversation in the store of an agent; ``agent.session(name)`` returns it.

    Args:
        agent: The agent or team.
        name: The name.

    Example:
        >>> chat = agent.session("ann")
        >>> print(await chat.run("And tomorrow?"))
    """

    def __init__(self, agent: Any, name: str) -> None:
        try:
            self.name = check_session_name(name)
        except StoreError as error:
            raise ValueError(str(error)) from None
        self._agent = agent
        self._place: Place = place_of(agent)
        _ = self._place.sessions

    def __repr__(self) -> str:
        return f"Session({self.name!r} of {self._agent.name})"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return kinds.session_bundle(self)

    # --- turns --------------------------------------------------------------------------------------------------------

    @overload
    def run(
        self: "Session[None, OutT]",
        user_msg: str | ChatMessage | None = None,
        *,
        deps: None = None,
        request_id: str | None = None,
        if_busy: IfBusy = "raise",
        metadata: Mapping[str, str] | None = None,
        **options: Any,
    ) -> AgentHandler[OutT]: ...
    @overload
    def run(
        self,
        user_msg: str | ChatMessage | None = None,
        *,
        deps: AgentDepsT | None,
        request_id: str | None = None,
        if_busy: IfBusy = "raise",
        metadata: Mapping[str, str] | None = None,
        **options: Any,
    ) -> AgentHandler[OutT]: ...
    def run(self, user_msg: str | ChatMessage | None = None, **options: Any) -> AgentHandler[OutT]:
        """Start the next turn and return its handler; the same as ``agent.run(..., session=name)``.

        The id of the run, ``"{session}:{number}"``, is known when ``await handler.started()`` returns.

        Args:
            user_msg: The user's message.
            options: Other arguments of ``agent.run``.

        Raises:
            ValueError: An argument does not go with a session. Awaiting the handler raises ``SessionBusyError`` for a
                session with another turn.
        """
        return self._agent.run(user_msg, session=self.name, **options)

    @overload
    def run_sync(
        self: "Session[None, OutT]",
        user_msg: str | ChatMessage | None = None,
        *,
        deps: None = None,
        request_id: str | None = None,
        if_busy: IfBusy = "raise",
        metadata: Mapping[str, str] | None = None,
        **options: Any,
    ) -> AgentResult[OutT]: ...
    @overload
    def run_sync(
        self,
        user_msg: str | ChatMessage | None = None,
        *,
        deps: AgentDepsT | None,
        request_id: str | None = None,
        if_busy: IfBusy = "raise",
        metadata: Mapping[str, str] | None = None,
        **options: Any,
    ) -> AgentResult[OutT]: ...
    def run_sync(self, user_msg: str | ChatMessage | None = None, **options: Any) -> AgentResult[OutT]:
        """Run the next turn to its end in synchronous code; see ``run``."""
        return self._agent.run_sync(user_msg, session=self.name, **options)

    async def resume(self, *, deps: Any = None) -> AgentHandler[OutT] | None:
        """Take up the turn under way, for example after the end of its process, and return its handler.

        Args:
            deps: The dependencies of the run, which no store keeps.

        Returns:
            None if no turn is under way. Awaiting the handler raises ``RunInUseError`` if another process drives it.
        """
        found = await self._place.sessions.read_session(self.name)
        if found is None or found.open_turn is None:
            return None
        run_id = found.open_turn.run_id
        live = self._place.live(run_id)
        if live is not None:
            return self._agent.__batonflow_handler__(live)
        return self._agent.resume(run_id, deps=deps)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def messages(self, last: int | None = None) -> list[ChatMessage]:
        """Return the messages of the turns that are over.

        Args:
            last: The number of the newest messages; None for all.

        Raises:
            ValueError: ``last`` is not a whole number of at least 1.
        """
        if last is None:
            return (await conversation_before(self._place, self.name)).messages
        check_whole(last, "last is a whole number, 1 or more", least=1)
        read: list[TurnData] = []
        before: int | None = None
        while page := await self._place.sessions.read_turns(
            self.name, before=before, limit=max(last, 10), newest_first=True
        ):
            read += [self._place.writer.read(turn) for turn in page if turn.status != "running"]
            if (found := newest(read, last)) is not None:
                return found
            before = page[-1].number
        return (await conversation_before(self._place, self.name)).messages[-last:]

    async def turns(self) -> AsyncIterator[Turn[OutT]]:
        """Yield the turns, the oldest first; the last one may be under way.

        Example:
            >>> async for turn in chat.turns():
            ...     print(turn.number, turn.user_msg, turn.output)
        """
        after = 0
        while page := await self._place.sessions.read_turns(self.name, after=after):
            for turn in page:
                yield self._turn(turn)
            after = page[-1].number

    def _turn(self, turn: StoredTurn) -> Turn[OutT]:
        is_over = turn.status != "running"
        data = self._place.writer.read(turn) if is_over else TurnData()
        return Turn(
            number=turn.number,
            run_id=turn.run_id,
            request_id=turn.request_id,
            status=turn.status,
            user_msg=self._place.writer.read_asked(turn),
            output=self._output(turn, data) if turn.status == "completed" and turn.run_id else None,
            usage=Usage.model_validate(data.usage or {}),
            started=turn.started,
            ended=turn.ended,
            messages=tuple(data.messages),
            error=data.error,
            agent=data.agent,
        )

    def _output(self, turn: StoredTurn, data: TurnData) -> OutT | None:
        """Return the output of a turn as the agent declares it; None for a blocked or another one."""
        ended: Any = result_of(turn, data).result
        if not isinstance(ended, AgentOutput):
            return None
        ended.declare(self._agent.__batonflow_team__.declared)
        try:
            return ended.output
        except (OutputMissingError, OutputUnfitError):
            return None

    @overload
    async def state(self, cls: None = None) -> dict[str, Any]: ...
    @overload
    async def state(self, cls: type[ModelT]) -> ModelT: ...
    async def state(self, cls: type[ModelT] | None = None) -> ModelT | dict[str, Any]:
        """Return the state after the last turn that is over.

        Args:
            cls: A model for the state; a dict by default.

        Raises:
            ValidationError: The state does not fit the model.
        """
        data = (await conversation_before(self._place, self.name)).state
        if data is None:
            typed: BaseModel | None = self._agent.__batonflow_state__
            found: Any = dict(getattr(self._agent, "initial_state", None) or {})
            found = found if typed is None else typed.model_copy(deep=True)
        else:
            found = self._place.writer.read_state(data)
        if cls is not None:
            return found if isinstance(found, cls) else cls.model_validate(found)
        return cast("dict[str, Any]", found.model_dump() if isinstance(found, BaseModel) else found)

    async def usage(self) -> Usage:
        """Return the tokens of all turns, and their cost if it is known."""
        total = Usage()
        for turn in await all_turns(self._place, self.name):
            if turn.status != "running":
                total += Usage.model_validate(self._place.writer.read(turn).usage or {})
        return total

    # --- changes ------------------------------------------------------------------------------------------------------

    async def add(self, messages: Iterable[ChatMessage]) -> None:
        """Add messages as a turn without a run, for example a conversation from another program.

        Args:
            messages: The messages.

        Raises:
            TypeError: A value is not a ChatMessage.
            SessionBusyError: A turn is under way.
        """
        given = list(messages)
        for one in given:
            if not isinstance(one, ChatMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"add() takes a list of ChatMessage, not {one!r:.100}")
        now = current_source().now()

        async def added(found: StoredSession | None) -> dict[str, Any]:
            before = await conversation_before(self._place, self.name)
            body = self._place.writer.write(TurnData(given, archived=before.archived), None)
            number = 1 if found is None else found.next_number
            return {"add": [StoredTurn(number, "", "completed", now, now, body=body)]}

        if given:
            await self._change(added)

    async def undo(self, turns: int = 1) -> None:
        """Take back the last turns: their messages, state and notes. Their runs and what tools have done stay.

        Args:
            turns: The number of turns.

        Raises:
            ValueError: ``turns`` is not a whole number of at least 1, or the session has fewer turns.
            SessionBusyError: A turn is under way.
        """
        check_whole(turns, "turns is a whole number, 1 or more", least=1)

        async def undone(_: StoredSession | None) -> dict[str, Any]:
            newest = await self._place.sessions.read_turns(self.name, limit=turns + 1, newest_first=True)
            if len(newest) < turns:
                raise ValueError(f"Session {self.name!r} has {len(newest)} turns, so {turns} cannot be undone")
            return {"undo_after": newest[turns].number if len(newest) > turns else 0}

        await self._change(undone)

    async def fork(self, name: str, at_turn: int | None = None) -> "Session[AgentDepsT, OutT]":
        """Return a new session with the turns of this one.

        Args:
            name: The name of the new session.
            at_turn: The number of the last turn of both; by default the last turn that is over.

        Raises:
            ValueError: The name is not valid or in use, or there is no such turn.
        """
        other: Session[AgentDepsT, OutT] = Session(self._agent, name)
        turns = [turn for turn in await all_turns(self._place, self.name) if turn.status != "running"]
        if at_turn is not None:
            if not is_whole(at_turn, least=1) or all(turn.number != at_turn for turn in turns):
                known = ", ".join(str(turn.number) for turn in turns[-10:])
                raise ValueError(f"Session {self.name!r} has no turn {at_turn!r} that is over; there are {known or 0}")
            turns = [turn for turn in turns if turn.number <= at_turn]
        if not turns:
            raise ValueError(f"Session {self.name!r} has no turn that is over")
        # A request of the first session is not a request of the second one.
        copies = [replace(turn, request_id=None, digest="") for turn in turns]
        change = SessionChange(name, self._agent.__batonflow__.workflow_name, last=0, add=copies)
        if not await self._place.sessions.change_session(change):
            raise ValueError(f"There is a session {name!r} already: choose another name")
        return other

    async def delete(self) -> None:
        """Delete the session with the runs of its turns; an unknown session is ignored.

        Raises:
            SessionBusyError: A turn is under way.
        """

        async def deleted(_: StoredSession | None) -> dict[str, Any]:
            return {"delete": True}

        await self._change(deleted)

    async def _change(self, change_of: Callable[[StoredSession | None], Awaitable[dict[str, Any]]]) -> None:
        """Change the session. If its turns have changed in the meantime, make the change again."""
        name, workflow = self.name, self._agent.__batonflow__.workflow_name
        while True:
            found = await self._place.sessions.read_session(name)
            _check(found, workflow)
            if found is not None and found.open_turn is not None:
                if (error := await busy_error(self._place, found)) is not None:
                    raise error
                continue
            last, turns = (0, 0) if found is None else (found.last, found.turns)
            change = SessionChange(name, workflow, last, turns, **await change_of(found))
            if await self._place.sessions.change_session(change):
                return


def _check(found: StoredSession | None, workflow: str) -> None:
    if found is not None and found.workflow != workflow:
        raise RunInputMismatchError(
            f"Session {found.name!r} belongs to workflow {found.workflow}, not to {workflow}: choose another name"
        )


async def list_sessions(agent: Any, prefix: str, limit: int) -> list[SessionInfo]:
    """Return the sessions of an agent; see ``AgentRuns.sessions``."""
    place = place_of(agent)
    check_whole(limit, "limit is a whole number, 0 or more")
    found = await place.sessions.list_sessions(agent.__batonflow__.workflow_name, prefix, "", limit)
    return [
        SessionInfo(
            name=one.name,
            turns=one.turns,
            created=one.created_at,
            updated=one.updated_at,
            running=None if one.open_turn is None else one.open_turn.run_id,
        )
        for one in found
    ]
