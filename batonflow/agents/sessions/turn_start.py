"""The start of a run as a turn of its session."""

import asyncio
from dataclasses import replace
from typing import Any, Protocol, cast

from batonflow.agents.sessions.ending import EndOfTurn
from batonflow.agents.sessions.history import conversation_before, result_of
from batonflow.agents.sessions.memories import fill
from batonflow.agents.sessions.places import Place, ProcessPlace
from batonflow.agents.sessions.waiting import Queue
from batonflow.durable.live_runs import QUEUED, other_input
from batonflow.durable.session_protocol import NewTurn, StoredTurn, TurnRefused
from batonflow.durable.store_protocol import NewRun
from batonflow.durable.turn_opening import TurnOpening
from batonflow.llms import ChatMessage
from batonflow.workflow_core.dependencies import provide_deps
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import StartEvent
from batonflow.workflow_core.run import Run

__all__ = ["TurnStart"]

_PAUSE = 0.01


class Asked(Protocol):
    """The options of the run that are about its session."""

    session: str | None
    request_id: str | None
    if_busy: Any


class TurnStart:
    """The start of a run as a turn of its session.

    Args:
        agent: The agent or team.
        place: The place of the session.
        request: The options.
        run: The run, which has no number yet.
        event: The start event.
        digest: The digest of the event; None if it is made later.
    """

    def __init__(
        self, agent: Any, place: Place, request: Asked, run: Run, event: StartEvent, digest: str | None
    ) -> None:
        self._agent, self._place, self._request, self._run = agent, place, request, run
        self._event, self._digest = event, digest
        self._session = cast("str", request.session)
        self._options = agent.__batonflow__
        said = event.get("user_msg")
        self._asked = ChatMessage(said) if isinstance(said, str) else said
        self._opening: TurnOpening | None = None
        self._on_abandon = run.stream.on_abandon
        name = self._options.workflow_name
        self._queue = Queue(place, self._session, name, request.request_id, request.if_busy, run)

    def begin(self) -> None:
        """Begin as soon as it is the turn of the message."""
        run = self._run
        self._into_queue()
        if self._options.keeper is not None:
            self._opening = TurnOpening(self._agent, self._options.keeper.store, run)
            self._opening.start(self._find_turn())
        else:
            run.arrived_while_released = []
            run.opening = asyncio.get_running_loop().create_task(self._safely(), name="batonflow-open-turn")

    def _give_up(self) -> None:
        self._run.ending.cancel()
        self._queue.wake()

    def _out_of_queue(self) -> None:
        """From now on an abandoned run is stopped as other runs are."""
        QUEUED.pop(self._run, None)
        self._run.stream.on_abandon = self._on_abandon

    def _into_queue(self) -> None:
        """Give up the place, and nothing else, if the caller leaves."""
        QUEUED[self._run] = self._give_up
        if self._on_abandon is not None:
            self._run.stream.on_abandon = self._give_up

    async def _safely(self) -> None:
        run = self._run
        await asyncio.sleep(0)
        try:
            await self._find_turn()
        except Exception as error:  # noqa: BLE001 - the task is not awaited, so the handler reports every error
            self._options.runtime.discard(run)
            run.ending.refuse(error)
        finally:
            run.opening = None

    async def _find_turn(self) -> None:
        queue = self._queue
        await queue.arrive()
        try:
            while True:
                number = await queue.number()
                if number is None:
                    self._leave()
                    return
                if isinstance(number, StoredTurn):
                    await queue.leave()  # others must not wait for a message that needs no turn
                    await self._follow(number)
                    return
                refused = await self._open(number, queue)
                if refused is None:
                    queue.took_turn()
                    return
                queue.refused(refused)
        finally:
            await queue.leave()

    def _leave(self) -> None:
        """End a run that was cancelled before its turn; a repeated request begins anew."""
        key = self._session, self._request.request_id or ""
        if self._place.requests.get(key) is self._run:
            del self._place.requests[key]
        if self._opening is not None:
            self._opening.leave()
        else:
            self._run.ending.recorded()

    async def _open(self, number: int, queue: Queue) -> TurnRefused | None:
        """Begin the turn with a number; return the refusal if another message was faster."""
        run, place, opening = self._run, self._place, self._opening
        before = await conversation_before(place, self._session, number)
        if opening is not None:
            opening.begin_anew()
            await opening.read_parts(self._session)
        fill(run, self._agent, self._session, before, place.writer)
        end = EndOfTurn(self._agent, run, before, self._asked, place.writer)
        run_id = f"{self._session}:{number}"
        turn = NewTurn(
            session=self._session,
            workflow=self._options.workflow_name,
            number=number,
            request_id=self._request.request_id,
            digest=self._digest or "",
            asked=place.writer.asked(self._asked),
            turns=before.turns,
            ticket=queue.ticket,
            queues=self._request.if_busy != "raise",
            patience=place.patience,
        )
        if opening is None:
            return await self._open_here(cast("ProcessPlace", place), turn, run_id, end)
        opening.name(run_id)
        opening.prepare(self._event)
        self._out_of_queue()
        refused = await opening.open_turn(replace(turn, digest=opening.digest), end)
        if refused is not None:
            self._into_queue()
        return refused

    async def _open_here(self, place: ProcessPlace, turn: NewTurn, run_id: str, end: EndOfTurn) -> TurnRefused | None:
        run, options = self._run, self._options
        options.runtime.discard(run)
        run.state.run_id = run_id
        if options.deps is not None:
            await provide_deps(self._agent, run)
        opened = await place.sessions.open_turn(turn, NewRun(run_id, turn.workflow, turn.digest), place.owner, 0.0)
        if isinstance(opened, TurnRefused):
            return opened
        options.runtime.add(run)
        place.kept.watch(run, turn.session, end)
        self._out_of_queue()
        if run.ending.done:
            run.ending.recorded()
        else:
            run.opening = None
            run.open(self._event, ())
        return None

    async def _follow(self, turn: StoredTurn) -> None:
        """Give the run the result of the same request, as soon as there is one."""
        run, place = self._run, self._place
        if self._digest is not None and turn.digest and turn.digest != self._digest:
            raise other_input(turn.run_id)
        if self._opening is not None:
            data = None if turn.status == "running" else place.writer.read(turn)
            known = None if data is None else result_of(turn, data)
            await self._opening.follow(turn.run_id, known, self._out_of_queue)
            return
        live = place.live(turn.run_id)
        while turn.status == "running" and not run.ending.done:
            await asyncio.sleep(_PAUSE)
            live = place.live(turn.run_id) or live
            found = await place.sessions.read_session(self._session, self._request.request_id)
            if found is None or found.requested is None:
                raise StoreError(f"Session {self._session!r} was deleted while a request waited for its result")
            turn = found.requested
        if run.ending.done:
            self._leave()
            return
        self._options.runtime.discard(run)
        run.state.run_id = turn.run_id
        ended = None if live is None else live.ending.event
        run.take_result(ended or result_of(turn, place.writer.read(turn)), 0)
