"""SessionStore: the part of a store of runs that keeps sessions, which are conversations of several runs.

A store has this part if it has its six methods. A session has turns with growing numbers. The turn under way is a run
of the same store: both begin in one transaction, and the commit that ends the run also ends the turn, with the data of
``RunCommit.turn``. Only the run of the last turn can be unfinished, so a session has one turn at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from batonflow.durable.store_protocol import NewRun
from batonflow.workflow_core.errors import StoreError

__all__ = [
    "TURN_PAGE",
    "NewTurn",
    "SessionChange",
    "SessionStore",
    "StoredSession",
    "StoredTurn",
    "TurnOpened",
    "TurnRefused",
    "TurnStatus",
    "session_part",
]

TurnStatus = Literal["running", "completed", "failed", "cancelled"]
"""``running``: the run of the turn is not over, whatever it waits for."""

TURN_PAGE = 500
"""The number of turns that a reader of a session reads at once."""


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn to begin.

    Attributes:
        session: The name of the session, which is created if it does not exist.
        workflow: The name of the workflow.
        number: The number of the turn, from ``StoredSession.next_number``.
        request_id: The id of the request; None without one.
        digest: A digest of the input.
        asked: The input, as the caller encodes it.
        turns: The number of turns that the caller has read, without those that were undone; None for any number.
        ticket: The place in the queue; None without one.
        queues: Whether a refused turn gets a ticket.
        patience: The seconds that a ticket is good for without another attempt.
    """

    session: str
    workflow: str
    number: int
    request_id: str | None
    digest: str
    asked: bytes
    turns: int | None = None
    ticket: int | None = None
    queues: bool = False
    patience: float = 15.0


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn of a session. Times are in wall-clock seconds.

    Attributes:
        number: The number.
        run_id: The run; empty for messages that were added without a run.
        status: The status.
        started: The time of its beginning.
        ended: The time of its end; None before.
        request_id: The id of the request.
        digest: The digest of the input.
        asked: The input.
        body: The data of its end.
    """

    number: int
    run_id: str
    status: TurnStatus
    started: float
    ended: float | None = None
    request_id: str | None = None
    digest: str = ""
    asked: bytes = b""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """The listing of a session, without its turns. Times are in wall-clock seconds.

    Attributes:
        name: The name.
        workflow: The name of the workflow.
        turns: The number of turns, without those that were undone.
        last: The highest number of a turn, also of one that was undone.
        next_number: The number of the next turn, for which the store has no run yet.
        created_at: The time of creation.
        updated_at: The time of the last change.
        open_turn: The turn that is not over.
        requested: The turn with the request id that was asked for.
        queue: The tickets that wait, in order.
        part_log: The log with the parts of its last run, in a store that keeps parts; None without one.
    """

    name: str
    workflow: str
    turns: int
    last: int
    next_number: int
    created_at: float
    updated_at: float
    open_turn: StoredTurn | None = None
    requested: StoredTurn | None = None
    queue: tuple[int, ...] = ()
    part_log: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TurnOpened:
    """The turn has begun. Its run belongs to its creator under this epoch; its parts are in the log ``part_log``."""

    epoch: int
    part_log: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TurnRefused:
    """The session has another turn, the request is known, or others wait. ``ticket`` is the place in the queue."""

    session: StoredSession
    ticket: int | None = None


@dataclass(frozen=True, slots=True)
class SessionChange:
    """A change of a session that has no turn under way.

    Attributes:
        session: The name; the session is created if it does not exist.
        workflow: The name of the workflow.
        last: The ``last`` that the caller has seen; 0 for a session that does not exist.
        turns: The number of turns that the caller has seen, without those that were undone; None for any number.
        add: Turns to add, with numbers above ``last``.
        undo_after: Undo the turns with higher numbers; None for no turn.
        delete: Delete the session with its turns and their runs.
    """

    session: str
    workflow: str
    last: int
    turns: int | None = None
    add: Sequence[StoredTurn] = field(default_factory=tuple[StoredTurn, ...])
    undo_after: int | None = None
    delete: bool = False


@runtime_checkable
class SessionStore(Protocol):
    """The part of a store of runs that keeps sessions; see the docstring of the module."""

    async def open_turn(self, turn: NewTurn, run: NewRun, owner: str, ttl: float) -> TurnOpened | TurnRefused:
        """Begin a turn and create its run, in one transaction.

        It is refused if the session has a turn under way, its next number or the number of its turns is another one,
        the request id is known, a run with this id exists, or other tickets are first. A ticket is used up or renewed.
        """
        ...

    async def leave_queue(self, session: str, ticket: int) -> None:
        """Give up a place in the queue of a session."""
        ...

    async def read_session(self, session: str, request_id: str | None = None) -> StoredSession | None:
        """Return a session, with the turn of a request id; None for an unknown session."""
        ...

    async def read_turns(
        self,
        session: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = TURN_PAGE,
        newest_first: bool = False,
    ) -> list[StoredTurn]:
        """Return the turns with numbers above ``after`` and below ``before``, without those that were undone."""
        ...

    async def list_sessions(
        self, workflow: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[StoredSession]:
        """Return a workflow's sessions with a prefix of their names, in the order of names, after a name."""
        ...

    async def change_session(self, change: SessionChange) -> bool:
        """Change a session in one transaction. Return False if it has changed since, or has a turn under way."""
        ...


def session_part(store: Any) -> SessionStore:
    """Return the part of a store that keeps sessions.

    Raises:
        StoreError: The store does not have this part.
    """
    if not isinstance(store, SessionStore):
        raise StoreError(
            f"{type(store).__name__} does not keep sessions: it lacks the methods of SessionStore in "
            "batonflow.durable.session_protocol. Use a SQLiteStore or a PostgresStore, or leave session= out"
        )
    return store
