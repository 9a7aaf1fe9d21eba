"""The wait of a message for its turn."""

import asyncio
from contextlib import suppress

from batonflow.agents.sessions.errors import SessionBusyError
from batonflow.agents.sessions.places import WAIT, Arrivals, Place, arrivals
from batonflow.durable.session_protocol import NewTurn, StoredSession, StoredTurn, TurnRefused
from batonflow.durable.store_protocol import NewRun
from batonflow.workflow_core.errors import BatonflowError, RunInputMismatchError
from batonflow.workflow_core.run import Run

__all__ = ["Queue", "busy_error"]

SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.25
SECONDS_BETWEEN_HELP = 0.5


class Queue:
    """The place of one message before its turn.

    Args:
        place: The place of the session.
        session: The name of the session.
        workflow: The name of the agent's workflow.
        request_id: The id of the request; None without one.
        if_busy: The action for a message whose session is busy with another turn.
        run: The run of the message, which may be cancelled meanwhile.
    """

    def __init__(
        self, place: Place, session: str, workflow: str, request_id: str | None, if_busy: str, run: Run
    ) -> None:
        self._place, self._session, self._workflow = place, session, workflow
        self._request_id, self._if_busy, self._run = request_id, if_busy, run
        self.ticket: int | None = None
        self._renewed_at = self._helped_at = float("-inf")
        self._cancelled: str | None = None
        self._arrivals: Arrivals | None = None
        self._holds_lock = False
        self._pauses = 0
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look at once whether the run was cancelled, or is the next one."""
        self._woken.set()

    async def _sleep(self, seconds: float) -> bool:
        """Sleep until the time is over or ``wake`` is called; return True in the latter case."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        woken = self._woken.is_set()
        self._woken.clear()
        return woken

    async def _sleep_behind_others(self) -> None:
        """Sleep while other messages of this event loop come first, as far as the ticket stays good.

        Only the first message of an event loop looks into the place. Otherwise hundreds of messages would hold up the
        store.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._place.patience / 4
        while loop.time() < until and not self._run.ending.done and not await self._sleep(LONGEST_PAUSE / 2):
            pass

    async def arrive(self) -> None:
        """Take the place after earlier messages of this event loop, which have their tickets then."""
        found = arrivals(self._place, self._session)
        await found.lock.acquire()
        self._arrivals, self._holds_lock = found, True
        found.waiting.append(self.wake)

    def _let_next_arrive(self) -> None:
        if self._arrivals is not None and self._holds_lock:
            self._holds_lock = False
            self._arrivals.lock.release()

    def _wait_no_more(self) -> None:
        self._let_next_arrive()
        if self._arrivals is not None:
            self._arrivals.leave(self.wake)

    async def leave(self) -> None:
        """Give up the place, or what is left of it."""
        ticket, self.ticket = self.ticket, None
        try:
            if ticket is not None:
                await self._place.sessions.leave_queue(self._session, ticket)
        finally:
            self._wait_no_more()

    def took_turn(self) -> None:
        """Note that the turn has begun, which has used the ticket up."""
        self.ticket = None
        self._wait_no_more()

    def refused(self, refusal: TurnRefused) -> None:
        """Note that another message was faster."""
        self.ticket = self.ticket if refusal.ticket is None else refusal.ticket

    async def number(self) -> int | StoredTurn | None:
        """Wait for the turn.

        Returns:
            The number of the next turn; the turn of the same request; None if the run was cancelled.

        Raises:
            SessionBusyError: Another turn is under way, and the message does not wait, or that turn cannot go on.
            RunInputMismatchError: The session belongs to another workflow.
        """
        while not self._run.ending.done:
            found = await self._place.sessions.read_session(self._session, self._request_id)
            if found is None:
                return 1
            if found.workflow != self._workflow:
                raise RunInputMismatchError(
                    f"Session {self._session!r} belongs to workflow {found.workflow}, not to {self._workflow}: choose "
                    "another name, or give both agents one workflow_name"
                )
            if found.requested is not None:
                return found.requested
            if found.open_turn is None and (not found.queue or found.queue[0] == self.ticket):
                return found.next_number
            if self._if_busy != "raise":
                await self._wait(found)
            elif (error := await busy_error(self._place, found)) is not None:
                raise error
        return None

    async def _wait(self, found: StoredSession) -> None:
        now = asyncio.get_running_loop().time()
        if self.ticket is None or now - self._renewed_at > self._place.patience / 3:
            await self._take_ticket(now)
            self._let_next_arrive()
        open_turn = found.open_turn
        if open_turn is not None and self._if_busy == "cancel" and self._cancelled is None:
            self._cancelled = open_turn.run_id
            await self._place.cancel(open_turn.run_id)
            self._helped_at = now  # its own process comes first
        is_first = not found.queue or found.queue[0] == self.ticket
        if open_turn is not None and is_first and now - self._helped_at > SECONDS_BETWEEN_HELP:
            self._helped_at = now
            try:
                await self._place.take_up(open_turn.run_id)
            except BatonflowError as error:
                remedy = f"No process drives it, and this one cannot take it up: {error}"
                raise SessionBusyError(found.name, open_turn.run_id, "interrupted", remedy) from error
        await self._pause(open_turn, is_first=is_first)

    async def _take_ticket(self, now: float) -> None:
        nothing = NewTurn(
            self._session, self._workflow, 0, self._request_id, "", b"",
            ticket=self.ticket, queues=True, patience=self._place.patience,
        )  # fmt: skip
        run = NewRun(f"{self._session}:0", self._workflow, digest="")
        refused = await self._place.sessions.open_turn(nothing, run, self._place.owner, self._place.patience)
        if isinstance(refused, TurnRefused):
            self.ticket = refused.ticket
        self._renewed_at = now

    async def _pause(self, open_turn: StoredTurn | None, *, is_first: bool) -> None:
        pause = min(SHORTEST_PAUSE * 1.5**self._pauses, LONGEST_PAUSE)
        self._pauses = min(self._pauses + 1, 20)
        live = None if open_turn is None else self._place.live(open_turn.run_id)
        if self._arrivals is not None and not self._arrivals.is_first(self.wake):
            await self._sleep_behind_others()
            return
        if live is None or not is_first:
            await self._sleep(pause if is_first else max(pause, LONGEST_PAUSE / 2))
            return
        self._pauses = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + LONGEST_PAUSE
        # Not by awaiting the run: its caller decides whether it goes on without other readers.
        while loop.time() < until and not live.ending.resolved and not self._run.ending.done:
            await self._sleep(SHORTEST_PAUSE)


async def busy_error(place: Place, found: StoredSession) -> SessionBusyError | None:
    """Return the error for a session with another turn or waiting messages. None means that the turn is over."""
    if found.open_turn is None:
        return SessionBusyError(found.name, f"{found.name}:{found.last}", "queued", f"Other messages wait. {WAIT}")
    status = await place.status(found.open_turn.run_id)
    return None if status is None else SessionBusyError(found.name, found.open_turn.run_id, *status)
