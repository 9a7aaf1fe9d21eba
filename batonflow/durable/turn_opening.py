"""The opening of a run that is a session's turn, or a request that may be known."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from typing_extensions import override

from batonflow.durable.live_runs import LIVE, METADATA
from batonflow.durable.opening import Opening
from batonflow.durable.parts.references import PartReader
from batonflow.durable.parts.writer import PartWriter
from batonflow.durable.session_protocol import NewTurn, TurnRefused, session_part
from batonflow.durable.store_protocol import Created, PartsGoneError
from batonflow.workflow_core.context.state_store import StateCell
from batonflow.workflow_core.dependencies import provide_deps
from batonflow.workflow_core.errors import RunInUseError, StoreError
from batonflow.workflow_core.events import StopEvent
from batonflow.workflow_core.run import Run

__all__ = ["TurnOpening", "keep_metadata"]

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5


class TurnOpening(Opening):
    """The opening of a run whose id is known only after a look at the session."""

    _stored_session: tuple[int, list[bytes]] | None = None

    async def read_parts(self, session: str) -> None:
        """Read the messages that the store has of a session, so that its next turn refers to them."""
        store = self._connection.part_store
        if store is None:
            return
        stored = await session_part(self._store).read_session(session)
        log = None if stored is None else stored.part_log
        self._stored_session = None if log is None else (log, await store.read_parts(log))

    @override
    def _parts_of_state(self) -> PartWriter | None:
        if self._stored_session is None:
            return super()._parts_of_state()
        log, bodies = self._stored_session
        parts = PartWriter(PartReader(bodies))
        parts.place = self._store, log
        return parts

    @property
    def digest(self) -> str:
        """The digest of the prepared input."""
        return self._digest

    def name(self, run_id: str) -> None:
        """Give the run its id."""
        self._forget()
        self._run.state.run_id = run_id
        if not self._has_live(run_id):  # otherwise another message was faster
            LIVE.setdefault(self._store, {})[run_id] = self._run

    def begin_anew(self) -> None:
        """Drop the prepared records, and the state of the run."""
        self._run.silence()
        self._lease = None
        cell: StateCell = self._run.cell
        cell.recorder = None

    async def open_turn(self, turn: NewTurn, end_of_turn: Callable[[str, StopEvent], bytes]) -> TurnRefused | None:
        """Begin the prepared run as a turn of its session.

        Args:
            turn: The turn.
            end_of_turn: Gives the data for its end.

        Returns:
            The refusal of the store; the run has not begun then.
        """
        if self._options.deps is not None:
            await provide_deps(self._workflow, self._run)
        store, turn_id = self._store, self._run.state.run_id
        try:
            opened = await session_part(store).open_turn(turn, self._new_run(), store.owner, store.lease_seconds)
        except PartsGoneError:  # the session was deleted in this moment, so the turn is refused or the first one
            self._stored_session = None
            self.begin_anew()
            self.prepare(self._event)
            opened = await session_part(store).open_turn(turn, self._new_run(), store.owner, store.lease_seconds)
        if isinstance(opened, TurnRefused):
            self._forget()  # another process, or another message, has the turn of this number
            return opened
        assert self._lease is not None
        self._lease.end_of_turn = end_of_turn
        LIVE.setdefault(store, {})[turn_id] = self._run
        self._begin(Created(opened.epoch, opened.part_log))
        return None

    async def follow(
        self, run_id: str, rebuilt: StopEvent | None = None, taken_up: Callable[[], None] | None = None
    ) -> None:
        """Take up a run, or wait for its end while another process drives it.

        Args:
            run_id: The run.
            rebuilt: The result of a run that the store no longer has.
            taken_up: Called before this process takes the run up.

        Raises:
            StoreError: The run does not exist, or its records cannot be read.
        """
        if not await self._came_to(run_id, rebuilt, taken_up):
            self._forget()
            self._run.state.run_id = run_id
            # For its caller the run has begun, in another place.
            self.start(self._wait_for(run_id, rebuilt, taken_up))

    async def _wait_for(self, run_id: str, rebuilt: StopEvent | None, taken_up: Callable[[], None] | None) -> None:
        pause = FIRST_PAUSE
        while not self._run.ending.done:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)
            if not self._run.ending.done and await self._came_to(run_id, rebuilt, taken_up):
                return
        self.leave()

    async def _came_to(self, run_id: str, rebuilt: StopEvent | None, taken_up: Callable[[], None] | None) -> bool:
        """Give the result of a run, or take the run up. Return False while it goes on in another place."""
        info = await self._store.info(run_id)
        if info is None and rebuilt is not None:
            self._forget()
            self._run.state.run_id = run_id
            self._run.take_result(rebuilt, 0)
            return True
        if info is not None and not info.is_over and (self._has_live(run_id) or info.is_driven):
            return False
        self.name(run_id)
        if taken_up is not None:
            taken_up()
        try:
            await self.carry_on()
        except RunInUseError:  # another process was faster
            self._forget()
            return False
        return True

    def _has_live(self, run_id: str) -> bool:
        """Tell whether another run object of this process stands for the run."""
        known = LIVE.get(self._store, {}).get(run_id)
        return known is not None and known is not self._run and known.is_live

    def leave(self) -> None:
        """End a run that was cancelled before it began; nothing of it is stored."""
        self._forget()
        self._run.silence()
        self._run.ending.recorded()


def keep_metadata(store: Any, run: Run, metadata: Mapping[str, str]) -> None:
    """Keep the metadata of a new run until its store has it.

    Raises:
        StoreError: The store cannot find runs by metadata.
    """
    METADATA[run] = metadata
    if "metadata" not in inspect.signature(store.list_runs).parameters:
        raise StoreError(
            f"{type(store).__name__} does not keep metadata: its list_runs() has no parameter metadata. Use a "
            "SQLiteStore, or leave metadata= out"
        )
