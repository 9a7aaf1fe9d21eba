"""Sessions in the memory of this process, for the store in memory and for agents without a store."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from batonflow.clock import current_source
from batonflow.durable.parts.references import whole_data
from batonflow.durable.session_protocol import (
    TURN_PAGE,
    NewTurn,
    SessionChange,
    StoredSession,
    StoredTurn,
    TurnRefused,
    TurnStatus,
)
from batonflow.durable.stores.bounds import check_limit, check_session_name
from batonflow.durable.stores.memory_parts import PartLog

__all__ = ["SessionTable", "SessionsInMemory"]


@dataclass(slots=True)
class _Session:
    """A session; ``turns`` has undone turns too, by number, and ``log`` the parts of its last run."""

    workflow: str
    created_at: float
    updated_at: float
    last: int = 0
    turns: dict[int, StoredTurn] = field(default_factory=dict[int, StoredTurn])
    undone: set[int] = field(default_factory=set[int])
    requests: dict[str, int] = field(default_factory=dict[str, int])
    # Owner and end of each ticket.
    queue: dict[int, tuple[str, float]] = field(default_factory=dict[int, tuple[str, float]])
    log: PartLog | None = None

    @property
    def standing(self) -> int:
        """The number of turns that were not undone."""
        return len(self.turns) - len(self.undone)

    def whole(self, turn: StoredTurn) -> StoredTurn:
        """Return a turn without references; sessions without a store keep other objects than bytes."""
        log, body = self.log, turn.body
        if log is None or not isinstance(body, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            return turn
        return replace(turn, body=whole_data(body, log.parts))

    @property
    def open_turn(self) -> StoredTurn | None:
        """The turn under way."""
        last = self.turns.get(self.last)
        return last if last is not None and last.status == "running" else None


class SessionTable:
    """The sessions of one process; its owner holds a lock around each call.

    Args:
        has_run: Tells whether there is a run with an id.
        is_alive: Tells whether an owner is alive.
    """

    def __init__(self, has_run: Callable[[str], bool], is_alive: Callable[[str], bool]) -> None:
        self._has_run, self._is_alive = has_run, is_alive
        self._sessions: dict[str, _Session] = {}
        self._tickets: Iterator[int] = count(1)

    def open_turn(self, turn: NewTurn, run_id: str, owner: str) -> TurnRefused | None:
        """Begin a turn; the caller creates its run."""
        found = self._sessions.get(check_session_name(turn.session)) or self._make(turn.session, turn.workflow)
        stored = self._stored(turn.session, found, turn.request_id)
        first = stored.queue[0] if stored.queue else turn.ticket
        if (
            stored.open_turn is not None
            or stored.requested is not None
            or stored.next_number != turn.number
            or turn.turns not in (None, stored.turns)
            or first != turn.ticket
        ):
            waits = turn.queues and stored.requested is None
            return TurnRefused(stored, self._in_queue(found, turn, owner) if waits else None)
        now = current_source().now()
        self._add(
            found, StoredTurn(turn.number, run_id, "running", now, None, turn.request_id, turn.digest, turn.asked)
        )
        if turn.ticket is not None:
            found.queue.pop(turn.ticket, None)
        return None

    def _make(self, name: str, workflow: str) -> _Session:
        now = current_source().now()
        made = self._sessions[name] = _Session(workflow, now, now)
        return made

    def _add(self, session: _Session, turn: StoredTurn) -> None:
        session.turns[turn.number] = turn
        session.last = max(session.last, turn.number)
        session.updated_at = current_source().now()
        if turn.request_id is not None:
            session.requests[turn.request_id] = turn.number

    def _in_queue(self, session: _Session, turn: NewTurn, owner: str) -> int:
        ticket = turn.ticket if turn.ticket in session.queue else None
        ticket = next(self._tickets) if ticket is None else ticket
        session.queue[ticket] = owner, current_source().now() + turn.patience
        return ticket

    def _stored(self, name: str, session: _Session, request_id: str | None = None) -> StoredSession:
        now = current_source().now()
        number = session.last + 1
        while self._has_run(f"{name}:{number}"):
            number += 1
        requested = None if request_id is None else session.requests.get(request_id)
        return StoredSession(
            name=name,
            workflow=session.workflow,
            turns=session.standing,
            last=session.last,
            next_number=number,
            created_at=session.created_at,
            updated_at=session.updated_at,
            open_turn=session.open_turn,
            requested=None if requested is None else session.whole(session.turns[requested]),
            queue=tuple(
                ticket
                for ticket, (owner, until) in sorted(session.queue.items())
                if until > now and self._is_alive(owner)
            ),
            part_log=None if session.log is None else session.log.number,
        )

    def keep_log(self, session: str, log: PartLog) -> None:
        """Keep the parts of a session's last run as long as the session."""
        self._sessions[session].log = log

    def end_turn(self, session: str, run_id: str, status: TurnStatus, body: bytes) -> None:
        """End the turn of a run, if it is under way."""
        found = self._sessions.get(session)
        turn = None if found is None else found.open_turn
        if found is not None and turn is not None and turn.run_id == run_id:
            now = found.updated_at = current_source().now()
            found.turns[turn.number] = replace(turn, status=status, ended=now, body=body)

    def leave_queue(self, session: str, ticket: int) -> None:
        """See ``SessionStore.leave_queue``."""
        if (found := self._sessions.get(session)) is not None:
            found.queue.pop(ticket, None)

    def read_session(self, session: str, request_id: str | None = None) -> StoredSession | None:
        """See ``SessionStore.read_session``."""
        found = self._sessions.get(check_session_name(session))
        return None if found is None else self._stored(session, found, request_id)

    def read_turns(
        self,
        session: str,
        after: int = 0,
        before: int | None = None,
        limit: int = TURN_PAGE,
        newest_first: bool = False,
    ) -> list[StoredTurn]:
        """See ``SessionStore.read_turns``."""
        found = self._sessions.get(check_session_name(session))
        if found is None:
            return []
        end = found.last + 1 if before is None else before
        numbers = sorted((n for n in found.turns if after < n < end and n not in found.undone), reverse=newest_first)
        return [found.whole(found.turns[number]) for number in numbers[:limit]]

    def list_sessions(self, workflow: str, prefix: str, after: str, limit: int) -> list[StoredSession]:
        """See ``SessionStore.list_sessions``."""
        names = sorted(
            name
            for name, session in self._sessions.items()
            if session.workflow == workflow and name.startswith(prefix) and name > after
        )
        return [self._stored(name, self._sessions[name]) for name in names[: check_limit(limit)]]

    def change_session(self, change: SessionChange) -> list[str] | None:
        """See ``SessionStore.change_session``; return the ids of runs to delete, None for a refused change."""
        found = self._sessions.get(check_session_name(change.session))
        last, turns = (0, 0) if found is None else (found.last, found.standing)
        if change.last != last or change.turns not in (None, turns):
            return None
        if found is not None and found.open_turn is not None:
            return None
        if change.delete:
            if found is None:
                return []
            del self._sessions[change.session]
            own = f"{change.session}:"
            return [turn.run_id for number, turn in found.turns.items() if turn.run_id == f"{own}{number}"]
        found = found or self._make(change.session, change.workflow)
        if change.undo_after is not None:
            found.undone |= {number for number in found.turns if number > change.undo_after}
            found.updated_at = current_source().now()
        for turn in change.add:
            self._add(found, turn)
        return []


class SessionsInMemory:
    """The methods of ``SessionStore`` over a table in memory, without ``open_turn``."""

    _lock: threading.RLock
    _sessions: SessionTable

    def _settle(self) -> None:
        """End the turns of runs that are over, if the table does not know it yet."""

    def _drop_runs(self, change: SessionChange, run_ids: Sequence[str]) -> None:
        """Delete the runs of a deleted session."""

    async def leave_queue(self, session: str, ticket: int) -> None:
        """See ``SessionStore.leave_queue``."""
        with self._lock:
            self._sessions.leave_queue(session, ticket)

    async def read_session(self, session: str, request_id: str | None = None) -> StoredSession | None:
        """See ``SessionStore.read_session``."""
        with self._lock:
            self._settle()
            return self._sessions.read_session(session, request_id)

    async def read_turns(
        self,
        session: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = TURN_PAGE,
        newest_first: bool = False,
    ) -> list[StoredTurn]:
        """See ``SessionStore.read_turns``."""
        with self._lock:
            self._settle()
            return self._sessions.read_turns(session, after, before, limit, newest_first)

    async def list_sessions(
        self, workflow: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[StoredSession]:
        """See ``SessionStore.list_sessions``."""
        with self._lock:
            self._settle()
            return self._sessions.list_sessions(workflow, prefix, after, limit)

    async def change_session(self, change: SessionChange) -> bool:
        """See ``SessionStore.change_session``."""
        with self._lock:
            self._settle()
            dropped = self._sessions.change_session(change)
            if dropped is not None and change.delete:
                self._drop_runs(change, dropped)
            return dropped is not None
