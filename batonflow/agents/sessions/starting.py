"""The options of a run beside its input, and the start of runs that have some."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from batonflow.agents.handler import AgentHandler
from batonflow.agents.sessions.places import place_of
from batonflow.agents.sessions.request_ids import run_id_of_request
from batonflow.agents.sessions.turn_start import TurnStart
from batonflow.clock import current_source
from batonflow.durable.codec import Codec
from batonflow.durable.digests import digest_of_start
from batonflow.durable.live_runs import DIGESTS, other_input
from batonflow.durable.session_protocol import session_part
from batonflow.durable.stores.bounds import check_metadata, check_session_name
from batonflow.durable.turn_opening import TurnOpening, keep_metadata
from batonflow.instrumentation.logs import debugging
from batonflow.run_facts import describe_run
from batonflow.workflow_core.dependencies import known_deps, open_run
from batonflow.workflow_core.engine.ports import tell_run
from batonflow.workflow_core.errors import (
    ContextStateError,
    NoRunningLoopError,
    RunInUseError,
    StoreError,
    WorkflowRuntimeError,
)
from batonflow.workflow_core.events import StartEvent
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.runs import new_run
from batonflow.workflow_core.stored_runs import check_run_id
from batonflow.workflow_core.validation.tree import calling_step
from batonflow.workflow_core.validation.validate import check_once

__all__ = ["IfBusy", "Request", "start_request", "take_request"]

IfBusy = Literal["raise", "wait", "cancel"]
"""The action for a message to a busy session: raise an error, queue it, or end the turn."""

_PAUSE = 0.01

_finding = threading.Lock()

_MEANT = {
    "ctx": "the context of a turn is made from the session; give ctx= without session=",
    "memory": "the messages of a session are its memory; a memory with blocks is given to the agent, as memory=",
    "chat_history": "the messages before are those of the session; add others with session(name).add(messages)",
    "run_id": "the run of a turn is named by the session; name the request with request_id=",
}


@dataclass(slots=True)
class Request:
    """The options of ``run`` beside the input.

    Args:
        session: The name of the session; None without one.
        request_id: The id of the request.
        if_busy: The action for a message whose session is busy with another turn.
        metadata: Texts to find the run by.
    """

    session: str | None = None
    request_id: str | None = None
    if_busy: IfBusy = "raise"
    metadata: Mapping[str, str] | None = None

    @property
    def says_something(self) -> bool:
        """Tell whether one of the options is used."""
        return self.session is not None or self.request_id is not None or bool(self.metadata)


def take_request(agent: Any, kwargs: dict[str, Any], beside: Mapping[str, Any]) -> Request | None:
    """Take the options of a request out of the arguments of ``run``; None without any.

    Args:
        agent: The agent or team. A field of its start event with one of the names keeps its value.
        kwargs: The arguments; the options are removed.
        beside: The arguments that do not go with a session.

    Raises:
        ValueError: An option has a value that it cannot have, or does not go with another argument.
    """
    fields = agent.__batonflow__.steps.start_event_class.model_fields
    names = [name for name in Request.__slots__ if name in kwargs and name not in fields]
    request = Request(**{name: kwargs.pop(name) for name in names})
    _check(request)
    if not request.says_something:
        return None
    given = [name for name, value in {**beside, "run_id": kwargs.get("run_id")}.items() if value is not None]
    if request.session is not None:
        _refuse_beside_session(given)
    if request.request_id is not None and "run_id" in given:
        raise ValueError("run(request_id=...) does not go with run_id=: both name the run; give one of them")
    if calling_step(agent) is not None:
        raise ValueError(
            f"run(session=..., request_id=..., metadata=...) inside a step: the run of {agent.name} is a part of the "
            "run around it, so give these to that one"
        )
    return request


def _refuse_beside_session(given: Sequence[str]) -> None:
    if given:
        raise ValueError(f"run(session=...) does not go with {given[0]}=: {_MEANT[given[0]]}")


def _check(request: Request) -> None:
    if request.session is not None:
        try:
            check_session_name(request.session)
        except StoreError as error:
            raise ValueError(str(error)) from None
    if request.request_id is not None and (not isinstance(request.request_id, str) or not request.request_id):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"request_id is a text that names the request, not {request.request_id!r}")
    if request.if_busy not in get_args(IfBusy):
        raise ValueError(f"if_busy is one of {', '.join(get_args(IfBusy))}, not {request.if_busy!r}")
    if request.if_busy != "raise" and request.session is None and request.request_id is None:
        raise ValueError(f"run(if_busy={request.if_busy!r}) needs session=: without a session no run is in the way")
    try:
        request.metadata = check_metadata(request.metadata)
    except StoreError as error:
        raise ValueError(str(error)) from None


def start_request(
    agent: Any, request: Request, ctx: Any, event: StartEvent | None, options: Mapping[str, Any]
) -> AgentHandler[Any]:
    """Start a run with a session, a request id or metadata, and return its handler.

    Args:
        agent: The agent or team.
        request: The options of the request.
        ctx: The context with the dependencies of the run.
        event: The start event; None for a run that goes on from the context.
        options: ``run_id``, ``debug`` and ``stepwise``.

    Raises:
        ValueError: ``stepwise`` does not go with a request, or a value of the event does not go with a session.
    """
    if options.get("stepwise"):
        raise ValueError("run(stepwise=True) does not go with session=, request_id= or metadata=: leave it out")
    if request.session is not None and event is not None:
        _refuse_beside_session([name for name in ("memory", "chat_history") if event.get(name)])
    return Start(agent, request, ctx, event, options.get("run_id"), options.get("debug")).handler()


class Start:
    """The start of one run.

    Args:
        agent: The agent or team.
        request: The options.
        ctx: The context with the dependencies of the run.
        event: The start event; None for a run that goes on from the context.
        run_id: The id that was given.
        debug: Whether the run is debugged.
    """

    def __init__(
        self, agent: Any, request: Request, ctx: Any, event: StartEvent | None, run_id: str | None, debug: bool | None
    ) -> None:
        self._agent, self._request, self._event = agent, request, event
        self._ctx, self._debug = ctx, debug
        self._options = agent.__batonflow__
        self._place = place_of(agent)
        if request.session is None and request.request_id is not None:
            run_id = run_id_of_request(agent, request.request_id)
        self._run_id = run_id

    def handler(self) -> AgentHandler[Any]:
        """Start the run, or find that of the same request, and return a handler."""
        agent, request = self._agent, self._request
        check_run_id(self._run_id)
        around = None if self._ctx is None else self._ctx.run
        if around is not None and not around.ending.done:
            raise ContextStateError(f"The run of this context is already running (run {around.state.run_id!r})")
        check_once(agent)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise NoRunningLoopError(
                f"{type(agent).__name__}.run() needs a running event loop: call it from async code, or use run_sync()"
            ) from None
        digest = None if request.request_id is None else self._digest()
        with _finding:  # threads may make the same request at once
            run = self._known(digest)
            if run is not None and run.ending.resolved is False and run.loop is not asyncio.get_running_loop():
                return self._follower(run)
            if run is not None:
                return agent.__batonflow_handler__(run)
            if request.session is not None and self._options.keeper is not None:
                session_part(self._options.keeper.store)
            run = new_run(agent, self._ctx, self._run_id or self._provisional(), debug=self._debug)
            if request.request_id is not None:
                self._place.remember((request.session, request.request_id), run)
                if digest is not None:
                    DIGESTS[run] = digest
        describe_run(run, request.session or "", request.metadata)
        if request.metadata and self._options.keeper is not None:
            keep_metadata(self._options.keeper.store, run, request.metadata)
        handler = agent.__batonflow_handler__(run)
        if request.session is not None:
            TurnStart(agent, self._place, request, run, cast("StartEvent", self._event), digest).begin()
        elif self._options.keeper is not None:
            self._begin_stored(run)
        elif self._options.deps is not None and known_deps(run) is None:
            open_run(agent, run, self._event)
        else:
            self._options.turns.launch(run, self._event)
        if run.variables.get(debugging):
            tell_run(handler)
        return handler

    def _follower(self, other: Run) -> AgentHandler[Any]:
        """Return the handler of a run that ends as the same request does on another event loop."""
        run = new_run(self._agent, self._ctx, f"{other.state.run_id}?{current_source().token(8)}", debug=self._debug)
        run.arrived_while_released = []
        loop = asyncio.get_running_loop()

        async def begin() -> None:
            # For its caller the run has begun, on another loop.
            run.opening = loop.create_task(self._follow(run, other), name="batonflow-same-request")

        run.opening = loop.create_task(begin())
        return self._agent.__batonflow_handler__(run)

    async def _follow(self, run: Run, other: Run) -> None:
        theirs, ours = other.ending, run.ending
        while not (theirs.resolved or other.loop.is_closed() or ours.done):  # noqa: ASYNC110 - the end is on another loop
            await asyncio.sleep(_PAUSE)
        run.opening = None
        if ours.done:
            ours.recorded()
            return
        self._options.runtime.discard(run)
        run.state.run_id = other.state.run_id
        if theirs.event is not None:
            run.take_result(theirs.event, 0)
        else:
            ours.refuse(theirs.error or WorkflowRuntimeError(f"The event loop of run {run.state.run_id!r} was closed"))

    def _provisional(self) -> str | None:
        """Return the id of a run whose turn has no number yet."""
        session = self._request.session
        return None if session is None else f"{session}:?{current_source().token(8)}"

    def _digest(self) -> str | None:
        try:
            return digest_of_start(Codec.of(self._options), cast("StartEvent", self._event))
        except StoreError:  # without a store, values need not be data
            return None

    def _known(self, digest: str | None) -> Run | None:
        """Return the run of the same request or the same id in this process.

        Raises:
            RunInputMismatchError: The request was made with other input.
        """
        keeper, request_id = self._options.keeper, self._request.request_id
        if request_id is None:
            if keeper is None or self._run_id is None:
                return None
            return keeper.live_run(self._agent, self._run_id, self._event)
        run = self._place.requests.get((self._request.session, request_id))
        if run is None or run.ending.refused:
            return None
        if run.ending.resolved:
            if keeper is not None:
                return None  # the store has the result
        elif run.loop is not asyncio.get_running_loop() and (self._request.session is not None or run.loop.is_closed()):
            return None  # the session has it, or it can never end
        if digest is not None and DIGESTS.get(run, digest) != digest:
            raise other_input(run.state.run_id)
        return run

    def _begin_stored(self, run: Run) -> None:
        opening = TurnOpening(self._agent, self._options.keeper.store, run)
        try:
            opening.prepare(self._event)
        except StoreError:
            opening.give_up()
            raise
        opening.start(self._create(opening, run.state.run_id))

    async def _create(self, opening: TurnOpening, run_id: str) -> None:
        try:
            await opening.create()
        except RunInUseError:
            if self._request.request_id is None:
                raise
            await opening.follow(run_id)
