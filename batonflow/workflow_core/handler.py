"""WorkflowHandler: the handle by which a caller follows and controls a run."""

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any, Generic, Self, cast

from batonflow.workflow_core import context as parts
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.earlier import EarlierHandler
from batonflow.workflow_core.engine.ports import execution_counts, execution_svg, progress_of
from batonflow.workflow_core.errors import WorkflowCancelledByUser
from batonflow.workflow_core.events import Event, StopEvent
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.stream import EventIterator, StreamItem, StreamReader
from batonflow.workflow_core.typed import ResultT

if TYPE_CHECKING:
    from batonflow.values.counts import ExecutionCounts
    from batonflow.workflow_core.inputs import InputRequest
    from batonflow.workflow_core.map_results import Progress

__all__ = ["WorkflowHandler", "raise_on_stall"]


class WorkflowHandler(EarlierHandler, Generic[ResultT]):
    """A running or finished run: await it for the result, stream its events, send to it, cancel it.

    Dropping the handler does not stop the run.

    Args:
        run: The run.

    Example:
        >>> handler = workflow.run(topic="tides")
        >>> async for event in handler.stream_events():
        ...     print(event)
        >>> result = await handler
    """

    __slots__ = ("__weakref__", "_asked", "_reader", "_run", "_was_cancelled")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._asked = self._was_cancelled = False
        run.ending.handlers += 1
        # The position of stream_events, shared by all of its iterators, so that each event is read once.
        self._reader: StreamReader | None = None

    def __del__(self) -> None:
        ending = self._run.ending
        if not self._asked:
            ending.handlers -= 1
            if not ending.handlers:
                ending.forgotten()

    def __await__(self) -> Generator[Any, Any, ResultT]:
        event = yield from self.stop_event_result().__await__()
        return cast("ResultT", event.result if type(event) is StopEvent else event)

    async def __aenter__(self) -> Self:
        """Return the handler; the end of the block stops a run that is not over, as ``interrupt`` does."""
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.is_done():
            self._asked = True
            await self.interrupt()

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run.state.run_id

    @property
    def ctx(self) -> Context[Any]:
        """The context of the run for code outside of its steps."""
        context = self._run.handler_context
        if context is None:
            context = self._run.handler_context = Context(self._run.workflow)
            context.bind(self._run)
        return context

    async def started(self) -> None:
        """Wait until the run has begun; with a store, until the store has it. Does not wait for its end.

        Raises:
            StoreError: The run cannot begin, for example ``RunInUseError`` or ``RunInputMismatchError``.
        """
        ending = self._run.ending
        await ending.begun()
        if ending.refused and ending.error is not None:
            self._asked = True
            raise ending.error

    @property
    def is_released(self) -> bool:
        """Tell whether the run was released from memory (``idle_release``) and waits in its store."""
        return self._run.is_released

    @property
    def is_waiting(self) -> bool:
        """Tell whether the run does nothing but wait for an event from outside."""
        return self._run.is_waiting

    def is_done(self) -> bool:
        """Tell whether the result is known."""
        return self._run.ending.resolved

    def get_stop_event(self) -> StopEvent | None:
        """Return the event that ended the run; None while it goes on."""
        return self._run.ending.event if self._run.ending.done else None

    @property
    def stopped_by(self) -> BaseException | None:
        """Return the error that awaiting the handler raises. None while the run goes on, or if it has a result."""
        return self._run.ending.error if self._run.ending.done else None

    @property
    def workflow(self) -> Any:
        """The workflow that runs."""
        return self._run.workflow

    @property
    def execution_counts(self) -> "ExecutionCounts":
        """Return the numbers of events that each step has received and produced, also in child runs."""
        counts: ExecutionCounts = execution_counts()
        counts.add_run(self._run)
        return counts

    async def stop_event_result(self) -> StopEvent:
        """Wait for the end and return the event that ended the run.

        Raises:
            WorkflowTimeoutError: The run took longer than its timeout.
            WorkflowCancelledByUser: The run was cancelled.
            asyncio.CancelledError: The run was cancelled by ``cancel()`` of this handler.
            BaseException: The exception of a step that no other step handled; the same object.
        """
        self._asked = True
        ending = self._run.ending
        await ending.wait()
        if self._was_cancelled and isinstance(ending.error, WorkflowCancelledByUser):
            raise asyncio.CancelledError from ending.error
        if ending.error is not None:
            raise ending.error
        assert ending.event is not None
        return ending.event

    async def send_event(self, event: Event, step: str | None = None) -> None:
        """Send an event into the run, to all steps that accept it, or to a single step.

        Args:
            event: The event.
            step: The name of a single step, or ``child.step`` of an attached workflow.

        Raises:
            WorkflowRuntimeError: The step does not exist or does not accept the event, or the run is over.

        Example:
            >>> if handler.is_waiting:
            ...     await handler.send_event(HumanResponseEvent(response="yes"))
        """
        self.ctx.send_event(event, step)

    def stream_events(self, expose_internal: bool = False) -> AsyncIterator[Event]:
        """Read the events that the run streams, from its beginning to its StopEvent.

        The stream can be read once: a new iteration continues where the last one stopped, and after the end it cannot
        be read again. Errors of the run are raised by awaiting the handler, not here.

        Args:
            expose_internal: Also yield the engine's own events.

        Raises:
            WorkflowRuntimeError: While iterating, when the stream was read to its end before, or another reader waits
                for its next event: ``subscribe()`` is for several readers.
        """
        if self._reader is None:
            self._reader = self._run.reader(internal=expose_internal)
        elif self._reader.internal is not expose_internal:
            self._reader.show_internal(expose_internal)
        return EventIterator(self._reader, self.run_id)

    def subscribe(self, after: int = -1, internal: bool = False) -> AsyncIterator[StreamItem]:
        """Read the stream with positions and origins. There may be any number of independent readers.

        If this process took the run up from a store, the stored stream comes first. Open questions are streamed again
        when a run is taken up, so a reader of the live part alone gets them too.

        Args:
            after: Start after this ``seq``; -1 for the beginning.
            internal: Also yield the engine's own events, of which the last 10,000 are kept.

        Example:
            >>> async for item in handler.subscribe(after=41):
            ...     print(item.seq, item.step, item.event)
        """
        return self._run.reader(after, internal=internal, stored=True)

    def inputs(self) -> "AsyncIterator[InputRequest]":
        """Read the questions to people, also of child runs. The open ones come first, then new ones until the end.

        There may be any number of readers, independent of ``stream_events``. Each gets a question once, unless it was
        answered before. After a restore, open questions are yielded again.

        Example:
            >>> async for request in handler.inputs():
            ...     request.respond(response=input(request.event.prefix))
        """
        return parts.inputs.InputReader(self._run)

    def open_inputs(self) -> "list[InputRequest]":
        """Return the open questions to people."""
        return parts.inputs.requests_from_any_thread(self._run)

    def progress(self) -> "list[Progress]":
        """Return the progress of ``ctx.map`` by step, also in child runs. Only steps of this process are included.

        Example:
            >>> for step, done, total in handler.progress():
            ...     print(f"{step}: {done} of {total}")
        """
        return progress_of(self._run)

    async def cancel_run(self, *, timeout: float = 5.0) -> None:
        """Cancel the run, and wait until its steps have ended. The run can be resumed from ``ctx.to_dict()``.

        Awaiting the handler then raises ``WorkflowCancelledByUser``. A run that is over stays as it is.

        Args:
            timeout: Seconds to wait for the steps.

        Example:
            >>> await handler.cancel_run()
            >>> snapshot = handler.ctx.to_dict()
        """
        await self._run.stop(timeout)

    async def interrupt(self, *, timeout: float = 5.0) -> None:
        """Stop the run in this process. With a store, any process can resume it; without one, it is cancelled.

        A finished run does not change.

        Args:
            timeout: Seconds to wait for the steps.
        """
        if not await self._run.stop(timeout, keep=True):
            await self.cancel_run(timeout=timeout)

    def _repr_html_(self) -> str:
        return execution_svg(self)

    def __str__(self) -> str:
        event = self.get_stop_event()
        result = None if event is None else event.result if type(event) is StopEvent else event
        name = self._run.workflow.__batonflow__.workflow_name
        return f"WorkflowHandler(workflow={name}, run_id={self.run_id}, result={result})"


def raise_on_stall(handler: WorkflowHandler[Any]) -> None:
    """Let a stall fail a run, unless its workflow has the option ``on_stall``."""
    run = handler.ctx.run
    if run is not None:
        run.ending.on_stall = "raise"
