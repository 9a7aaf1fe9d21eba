"""The places of sessions: the store of an agent, or this process."""

import asyncio
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from batonflow.agents.sessions.in_process import ProcessSessions, process_sessions
from batonflow.agents.sessions.turn_data import PlainObjects, TurnCodec
from batonflow.durable.codec import Codec
from batonflow.durable.live_runs import LIVE
from batonflow.durable.session_protocol import SessionStore, session_part
from batonflow.workflow_core.errors import BatonflowError, RunInUseError, StoreError
from batonflow.workflow_core.inputs import InputRequest, open_requests
from batonflow.workflow_core.run import Run

__all__ = ["Place", "ProcessPlace", "StoredPlace", "place_of"]

Requests = MutableMapping[tuple[str | None, str], Run]

RESUME = "No process drives it: take it up with resume() of the session, or with recover() of the agent"
WAIT = 'Await it, or give run() if_busy="wait" or if_busy="cancel"'


_requests: "WeakKeyDictionary[Any, WeakValueDictionary[tuple[str | None, str], Run]]" = WeakKeyDictionary()


class StoredPlace:
    """The sessions in a store.

    Args:
        agent: The agent or team.
    """

    def __init__(self, agent: Any) -> None:
        self._agent, self._keeper = agent, agent.__batonflow__.keeper
        self._store = self._keeper.store
        self.writer = TurnCodec(Codec.of(agent.__batonflow__))
        self.requests: Requests = _requests.setdefault(self._store, WeakValueDictionary())

    @property
    def sessions(self) -> SessionStore:
        """The part of the store that keeps sessions."""
        return session_part(self._store)

    def remember(self, key: tuple[str | None, str], run: Run) -> None:
        """Remember the run of a request as long as it is in memory."""
        self.requests[key] = run

    @property
    def owner(self) -> str:
        """The name of the store object."""
        return self._store.owner

    @property
    def patience(self) -> float:
        """The seconds of a lease."""
        return self._store.lease_seconds

    def live(self, run_id: str) -> Run | None:
        """Return a run of this process; None for others."""
        run = LIVE.get(self._store, {}).get(run_id)
        return run if run is not None and run.is_live else None

    async def status(self, run_id: str) -> tuple[str, str] | None:
        """Return the status of the run of an open turn, and a remedy. None means that the run has ended."""
        with suppress(BatonflowError):  # records that do not fit the code have no questions that can be read
            questions = await self._keeper.open_inputs(self._agent, run_id)
            if questions:
                return "waiting", _question(questions[0])
        info = await self._store.info(run_id)
        if info is None or info.is_over:
            return None
        if self.live(run_id) is not None or info.is_driven:
            return "running", WAIT
        if info.status == "waiting":
            return "waiting", "It waits for an event; send it with send_to_run(), or cancel the run"
        return "interrupted", RESUME

    async def cancel(self, run_id: str) -> None:
        """Ask the owner of a turn's run, or the process that takes it up, to end the run."""
        with suppress(StoreError):  # it is over
            await self._keeper.cancel(run_id, "another message of the session took its place")

    async def take_up(self, run_id: str) -> None:
        """Take up the run of a turn whose process has died. A waiting run stays as it is, unless it has input.

        Raises:
            BatonflowError: This process cannot take it up: it lacks the dependencies, or its code does not fit.
        """
        info = await self._store.info(run_id)
        if info is None or info.is_over or self.live(run_id) is not None or info.is_driven:
            return
        if info.status == "waiting" and not info.unread:
            return
        with suppress(RunInUseError):  # another process was faster
            await self._agent.resume(run_id).started()


class ProcessPlace:
    """The sessions of an agent without a store.

    Args:
        agent: The agent or team.
    """

    def __init__(self, agent: Any) -> None:
        self.kept: ProcessSessions = process_sessions(agent)
        self.sessions = self.kept
        self.writer = PlainObjects()
        self.requests: Requests = self.kept.requests
        self.owner, self.patience = self.kept.owner, 15.0

    def remember(self, key: tuple[str | None, str], run: Run) -> None:
        """Remember the run of a request, also after its end."""
        self.kept.remember(key, run)

    def live(self, run_id: str) -> Run | None:
        """Return the run of a turn under way."""
        return self.kept.live(run_id)

    async def status(self, run_id: str) -> tuple[str, str] | None:
        """Return the status of the run of an open turn, and a remedy. None means that the run has ended."""
        run = self.live(run_id)
        if run is None:
            return None
        questions = run.on_loop(lambda: open_requests(run))
        return ("waiting", _question(questions[0])) if questions else ("running", WAIT)

    async def cancel(self, run_id: str) -> None:
        """Cancel the run of a turn."""
        run = self.live(run_id)
        if run is not None:
            run.on_loop(lambda: run.ending.cancel("another message of the session took its place"))

    async def take_up(self, run_id: str) -> None:
        """Do nothing: a run in this process goes on by itself."""


Place = StoredPlace | ProcessPlace


def place_of(agent: Any) -> Place:
    """Return the place of an agent's sessions."""
    return ProcessPlace(agent) if agent.__batonflow__.keeper is None else StoredPlace(agent)


def _question(request: InputRequest) -> str:
    event: Any = request.event
    tool = getattr(event, "tool_name", None)
    asked = f" for {tool}" if tool else f": {prefix}" if (prefix := str(event.get("prefix") or "")) else ""
    return f"It waits for an answer to {type(event).__name__} {request.id!r}{asked}; answer it, or cancel the run"


class Arrivals:
    """The messages of one event loop for a session, in the order of their arrival."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        # The functions that wake the messages that wait, the first message first.
        self.waiting: list[Callable[[], None]] = []

    def is_first(self, wake: Callable[[], None]) -> bool:
        """Tell whether a message waits before all others."""
        return self.waiting[:1] == [wake]

    def leave(self, wake: Callable[[], None]) -> None:
        """Remove a message that waits no more, and wake the first of the others."""
        if wake in self.waiting:
            self.waiting.remove(wake)
            if self.waiting:
                self.waiting[0]()


_arrivals: "WeakValueDictionary[tuple[int, int, str], Arrivals]" = WeakValueDictionary()


def arrivals(place: Place, session: str) -> Arrivals:
    """Return the messages of this event loop for a session."""
    key = id(asyncio.get_running_loop()), id(place.requests), session
    found = _arrivals.get(key)
    if found is None:
        found = _arrivals[key] = Arrivals()
    return found
