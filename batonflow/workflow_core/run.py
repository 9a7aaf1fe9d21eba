"""The interface of a run for callers and other runs: tree, events, stream and release from memory."""

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from threading import get_ident
from typing import Any, TypeVar, cast

from batonflow.instrumentation.logs import describe_with
from batonflow.new_runs import mark_input
from batonflow.workflow_core.engine.broker import Broker
from batonflow.workflow_core.engine.ports import Ownership, Recorder, dump_run, execution_counts, load_run
from batonflow.workflow_core.engine.runner import Runner
from batonflow.workflow_core.engine.state import Causes, RunState, Waiter, WorkItem, current_item, is_address
from batonflow.workflow_core.errors import RunInterruptedError, WorkflowRuntimeError
from batonflow.workflow_core.events import Event, StopEvent, WorkflowCancelledEvent
from batonflow.workflow_core.stream import Entry, Origin, StreamReader

__all__ = ["Run", "fields_of"]


@describe_with
def fields_here() -> dict[str, Any]:
    """Return the run and the step of the code that runs here, for records of logs."""
    item = current_item.get()
    return {} if item is None or item.run is None else fields_of(item.run, item)


SECONDS_TO_LOOK = 1.0
"""Seconds between two looks of a waiting thread at the loop of a run: it may have ended."""

SECONDS_TO_STOP = 5.0
"""Seconds for the steps of an abandoned run."""

_STOPPING: "set[asyncio.Task[bool]]" = set()
"""The tasks that stop abandoned runs; the event loop holds tasks only weakly."""

T = TypeVar("T")


def fields_of(run: Any, item: WorkItem | None = None) -> dict[str, Any]:
    """Return the fields of records of logs for a run and an attempt of a step."""
    failed = 0 if item is None or item.failures is None else item.failures.count
    of_step = {} if item is None else {"step": item.spec.name, "attempt": 1 + failed}
    return {"run_id": run.state.run_id, "workflow": run.workflow.__batonflow__.workflow_name, **of_step}


class Run(Runner):
    """A run in its tree, which may leave memory while it waits."""

    __slots__ = ()

    # --- the tree -----------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Any:
        """The run at the root of the tree."""
        run: Any = self
        while run.family is not None and run.family.parent is not None:
            run = run.family.parent.run
        return run

    @property
    def questions(self) -> Any:
        """The questions to people of the whole tree, kept by the root."""
        if self._questions is None:
            self._questions = self.make_questions()
        return self._questions

    def inside(self) -> Iterator[Any]:
        """Yield this run and its child runs at all levels."""
        yield self
        for child in self.family.children if self.family is not None else ():
            yield from child.run.inside()

    def waits(self) -> "Iterator[tuple[Any, Waiter]]":
        """Yield the waits of this run and of its child runs, each with its run."""
        for run in self.inside():
            for waiter in run.state.waiters:
                yield run, waiter

    def at(self, path: str) -> Any:
        """Return the run at a path below this one; None if it is not in memory."""
        return next((run for run in self.inside() if run.path == path), None)

    def unfold(self) -> None:
        """Create the child runs of a restored run that is only inspected."""
        for child in self.family.unfold() if self.family is not None else ():
            child.unfold()

    def came_back(self) -> None:
        """Tell the tree that this run was restored: its questions can be answered, and held events delivered."""
        root = self.root
        root.questions.is_back(self)
        root.deliver_held_back()

    @property
    def is_active(self) -> bool:
        """Tell whether the run is still working."""
        return self.state.busy > 0 or not self.idle

    def child_over(self, child: Any) -> None:
        """Note the end of a child run. If an event started the child, its failure also fails this run."""
        ended = child.run
        counts = self.state.child_counts = self.state.child_counts or {}
        counts.setdefault(child.name, execution_counts()).add(ended.state)
        error = ended.ending.error
        cancelled = self.ending.done or isinstance(ended.ending.event, WorkflowCancelledEvent)
        if child.by_event and error is not None and not cancelled:
            self.ending.fail(ended.path, error)
        elif not any(other.by_event for other in self.family.children):
            self.ending.children_ended()
        self.settle()

    def wants(self, event: Event) -> bool:
        """Tell whether a step of this run waits for the event."""
        return any(self.state.waiters.wanting(event))

    def reaches(self, event: Event) -> bool:
        """Tell whether a step of this run or its child runs accepts or awaits the event."""
        if self.state.table.route(type(event)).accepted or self.wants(event):
            return True
        return self.family is not None and any(child.run.reaches(event) for child in self.family.children)

    def take_from_inside(self, event: Event, causes: Causes) -> bool:
        """Take an event that no step of a child run accepts. Return False if no step here accepts or awaits it."""
        accepted = self.state.table.route(type(event)).accepted
        if not accepted and not self.wants(event):
            return False
        if not (accepted and self.ending.over):
            self.send(event, None, None, causes)
        return True

    def next_due(self) -> float | None:
        """Return the earliest timeout of the waits in the tree, in wall-clock seconds."""
        return min((waiter.due for _, waiter in self.waits() if waiter.due is not None), default=None)

    def awaits_people(self) -> bool:
        """Tell whether the run, or a child run that its steps await, only waits for events from outside."""
        children = self.family.children if self.family is not None else ()
        if self.idle:
            waits = bool(self.state.waiters) or self.state.table.accepts_human
            return waits or any(child.run.awaits_people() for child in children)
        callers = {child.call[0] for child in children if child.call is not None}
        return self.state.busy == len(callers) > 0 and all(child.run.awaits_people() for child in children)

    # --- events -------------------------------------------------------------------------------------------------------

    def answer(self, event: Event, target: str) -> None:
        """Send the answer to a question of this run, which may be released."""
        if self.root.is_away or self.is_replaced:
            self.root.send_to(event, self.path, target)
        else:
            self.send(event, target, None)

    def show(self, event: Event, item: WorkItem, context: Any) -> None:
        """Show an event of a step to the readers of the stream. Calls of other threads go through its context again."""
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WorkflowRuntimeError(f"write_event_to_stream() takes an Event, got {type(event).__name__}")
        if get_ident() != self.thread_id:
            self.on_loop(lambda: context.write_event_to_stream(event))
            return
        progress = item.progress or item.make_progress()
        numbers = progress if progress.once_calls is None else progress.here()
        numbers.streamed = number = numbers.streamed + 1
        family = self.family
        if number <= numbers.skip_streamed or (family is not None and id(event) in family.own_streamed):
            return
        if item.segment is not None:
            item.segment.streamed.append((numbers.named(number), event, self.root.stream.seq, self.now()))
        self.publish(event, item.spec.name, item.id)

    def forward(self, event: Event, ts: float, origin: Origin) -> None:
        """Append an event of this run to the streams of all runs around it."""
        if isinstance(event, StopEvent):
            return
        family = self.family.parent
        while family is not None:
            if not family.run.ending.done:
                family.own_streamed.add(id(event))
                family.run.stream.publish(event, ts, origin)
            family = family.parent

    # --- callers ------------------------------------------------------------------------------------------------------

    @property
    def is_released(self) -> bool:
        """Tell whether the tree of the run is released from memory and waits in its store."""
        return self.root.is_asleep

    @property
    def is_waiting(self) -> bool:
        """Tell whether the run is idle and waits for an event from outside."""
        return not self.ending.over and (self.is_asleep or self.awaits_people())

    @property
    def is_live(self) -> bool:
        """Tell whether this process drives the run, in memory or released."""
        return not (self.ending.resolved or self.loop.is_closed())

    def snapshot(
        self, serializer: Any, *, cell: Any = None, include_state: bool = True, children_with: Any = None
    ) -> dict[str, Any]:
        """Return a snapshot of the run, from any thread.

        Raises:
            ValueError: A value cannot be written; the message names it.
        """
        return self.on_loop(
            lambda: dump_run(
                self.state,
                cell or self.cell,
                serializer or self.workflow.__batonflow__.serializer,
                run=self,
                include_state=include_state,
                children_with=children_with,
            )
        )

    def copy_unfinished(self, workflow: Any, given: Any) -> Any:
        """Return the run's remaining work as a loaded snapshot for a workflow, or None after its end."""
        if not self.state.running:
            return None
        serializer = given or workflow.__batonflow__.serializer
        payload = dump_run(self.state, self.cell, serializer, run=self, include_state=False, children_with=given)
        loaded = load_run(workflow, payload, serializer)
        loaded.state.cancelled = False
        return loaded

    async def stop(self, timeout: float, *, keep: bool = False) -> bool:
        """Cancel the run, or leave it to its store with ``keep``, and wait until its steps have ended.

        Returns:
            False, without an effect, if ``keep`` is set and the run has no store.
        """
        if keep:
            root = self.root
            keeper = root.workflow.__batonflow__.keeper
            if keeper is not None:
                await root.wait_on_its_loop(root.given_up(keeper, timeout), timeout)
            return keeper is not None
        if self.is_replaced:
            return True  # a step that is dropped during the release must not end the run, which continues later
        self.on_loop(self.ending.cancel)
        await self.wait_on_its_loop(self._ended_within(timeout, "cancelled"), timeout)
        return True

    async def given_up(self, keeper: Any, timeout: float) -> None:
        """Stop the run in this process, and wait until its steps have ended."""
        await keeper.give_up(self)
        await self._ended_within(timeout, "interrupted")

    async def _ended_within(self, timeout: float, ended_as: str) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self.ending.wait()
        except TimeoutError:
            self.ending.warn(f"some steps did not end within {timeout} seconds after the run was {ended_as}")

    async def wait_on_its_loop(self, work: Coroutine[Any, Any, None], seconds: float) -> None:
        """Wait for work on the event loop of the run. The running loop may be another one."""
        loop = self.loop
        if asyncio.get_running_loop() is loop:
            await work
        elif loop.is_running():
            # Bounded, because the loop of the run may end in the meantime.
            await asyncio.wait([asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))], timeout=seconds + 1)
        else:
            work.close()  # the loop does not run any more

    def reader(self, after: int = -1, *, internal: bool = False, stored: bool = False) -> StreamReader:
        """Make a reader of the run's stream; ``stored`` begins with the part that only a store has."""
        keeper = self.workflow.__batonflow__.keeper if stored else None
        earlier = None if keeper is None else partial(keeper.stored_stream, self)
        return StreamReader(self.stream, after, internal=internal, earlier=earlier)

    def abandoned(self) -> None:
        """Stop the run if its workflow says so: the last task that awaited or read it was cancelled."""
        if self.ending.done:
            return
        if self.workflow.__batonflow__.keeper is None:
            self.ending.cancel()
        else:
            stopping = self.loop.create_task(self.stop(SECONDS_TO_STOP, keep=True))
            _STOPPING.add(stopping)
            stopping.add_done_callback(_STOPPING.discard)

    def on_loop(self, function: Callable[[], T]) -> T:
        """Call ``function`` on the thread of the run's event loop, and return its result."""
        if threading.get_ident() == self.thread_id:
            return function()
        done = self.carry(function)
        while True:
            concurrent.futures.wait([done], SECONDS_TO_LOOK)
            if self.is_carried(done):
                return done.result()

    def is_carried(self, done: "concurrent.futures.Future[Any]") -> bool:
        """Tell whether a call on the run's loop has its outcome.

        Raises:
            WorkflowRuntimeError: The loop has ended, and the call was not made.
        """
        if not done.done() and self.loop.is_closed():
            raise WorkflowRuntimeError(
                f"The event loop of run {self.state.run_id} ended before it could act on a call of another thread"
            )
        return done.done()

    def carry(self, function: Callable[[], T]) -> "concurrent.futures.Future[T]":
        """Schedule ``function`` on the run's event loop, and return the future of its outcome."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def call() -> None:
            try:
                done.set_result(function())
            except BaseException as error:  # noqa: BLE001 - handed to the calling thread
                done.set_exception(error)

        self.loop.call_soon_threadsafe(call)
        return done

    # --- memory -------------------------------------------------------------------------------------------------------

    def adopt(self, loaded: Any) -> None:
        """Take the state of a loaded run, before this run begins."""
        self.state, self.cell = loaded.state, loaded.cell
        self.broker = Broker(self.state)
        if self.state.served:  # otherwise the mark of the code that resumes the run stays, which may be a server
            mark_input(self.variables, served=True)
        if loaded.children or loaded.counts:
            family = self.family = self.family or self.make_child_runs(None)
            family.restore(loaded.counts, loaded.children)
        if self.handler_context is not None:
            self.handler_context.bind(self)
        self.held_back = deque()
        self.idle = False
        if self._questions is not None:
            self._questions.wakes_up()

    def record_with(self, drive: Ownership, recorder: Recorder) -> None:
        """Record the run from here on."""
        self.drive, self.recorder = drive, recorder
        recorder.watch(self.cell)

    def open(self, event: Event | None, causes: Causes, *, then: Event | None = None) -> None:
        """Begin, because the store has the run. Deliver earlier events, and send ``then`` last."""
        held, self.arrived_while_released = self.arrived_while_released or [], None
        if self.ending.done:  # cancelled before its begin
            self.record_end()
        else:
            self.workflow.__batonflow__.turns.launch(self, event, None, causes)
            for sent, target, path in held:
                if path or is_address(target):
                    self.send_to(sent, path, target)
                else:
                    self.when_taken(sent, partial(self.send, sent, target, None))
        if then is not None:
            self.send(then, None, None)

    def record_end(self) -> None:
        """Record the end of the run if it is not yet recorded, unless the run goes on elsewhere."""
        event = self.ending.event
        if self.recorder is not None and event is not None and not isinstance(self.ending.error, RunInterruptedError):
            self.recorder.ended(event, self.stream.seq)

    def take_result(self, event: StopEvent, seq: int, missed: Sequence[Entry] = ()) -> None:
        """Take the result of a run that has already finished; ``missed`` was streamed while it was released here."""
        self.silence()
        self.arrived_while_released = None
        stream = self.stream
        if not stream.events:  # all of it is in the store only
            stream.begins = seq
        for stream.seq, ts, *origin, one in missed:
            stream.publish(one, ts, cast("Origin", tuple(origin)))
        stream.seq = max(stream.seq, seq)
        self.publish(event, "", 0)
        self.ending.restore(event)

    def begin_release(self) -> bool:
        """Hold events from now on, so that the run can leave memory. Return False if there is work or input."""
        # An answer may have arrived that is not delivered yet.
        coming = bool(self.held_back) or any(inner.undelivered() for inner in self.inside())
        if not self.awaits_people() or coming or self.ending.over:
            return False
        self.arrived_while_released = []  # from now on, events are held
        self.waiting.disarm()
        return True

    def end_release(self, left: Callable[[], None] | None, *, goes_on: bool) -> None:
        """Leave memory and call ``left``, or without it go on; deliver the events that came meanwhile."""
        held, self.arrived_while_released = self.arrived_while_released or [], None
        if isinstance(self.ending.error, RunInterruptedError):
            return
        if left is not None:
            left()
            self.sleep()
        if self.ending.done and left is not None:  # cancelled or timed out in the meantime
            self.request_restore()  # its end is recorded when the run is back
        elif self.ending.done:
            self.record_end()
        else:
            if left is None and goes_on:
                self.waiting.rearm()
            for event, target, path in held:
                (self.at(path) or self).send(event, target, None)

    def sleep(self) -> None:
        """Leave memory: the store has everything. Waiting steps are dropped, and begin again after ``restore``."""
        tasks = [item.task for item in self.state.items.values() if item.task]
        children = list(self.family.children) if self.family is not None else []
        if self.family is None or self.family.parent is None:
            self.questions.falls_asleep()
        if self.observer is not None:
            self.observer.run_left(self)
            self.observer = None
        self.silence()
        self.state, self.cell = RunState(self.state.run_id, self.state.table), type(self.cell)(self.cell.state_type)
        self.broker = Broker(self.state)
        for child in children:
            child.run.sleep()
        if self.family is not None:
            self.family = self.make_child_runs(self.family.parent)
        for task in tasks:
            task.cancel()
        self.arrived_while_released = []

    @property
    def is_asleep(self) -> bool:
        """Tell whether the run is released and its restore is not requested."""
        return self.is_away and self.drive is None and self.opening is None

    @property
    def is_away(self) -> bool:
        """Tell whether the run is released or being restored; its events are held until it is back."""
        return self.arrived_while_released is not None

    @property
    def is_replaced(self) -> bool:
        """Tell whether the run was a child of a released run, so that another object replaces it."""
        return self.is_away and self.family is not None and self.family.parent is not None

    def request_restore(self) -> None:
        """Request a restore into memory."""
        keeper = self.workflow.__batonflow__.keeper
        if keeper is not None:
            keeper.wake(self)

    def restore(self) -> None:
        """Restore the run from its store, for an event or a timer."""
        self.workflow.__batonflow__.keeper.restore(self)

    def when_taken(self, event: Event, deliver: Callable[[], None], ready: Callable[[], bool] | None = None) -> None:
        """Deliver an event. After a restore, wait until it is ``ready`` to be taken, or nothing else goes on."""
        self._when(ready or partial(self.reaches, event), deliver)

    def _when(self, ready: Callable[[], bool], deliver: Callable[[], None]) -> None:
        if self.held_back is None or ready():
            deliver()
        else:
            self.held_back.append((ready, deliver))

    def send_to(self, event: Event, path: str, target: str | None = None) -> None:
        """Send an event to one workflow of the tree, once its run is in memory."""
        if self.arrived_while_released is not None:
            self.arrived_while_released.append((event, target, path))
            if self.is_asleep:
                self.request_restore()
            return

        def ready() -> bool:
            taker = self.at(path)
            return taker is not None and taker.reaches(event)

        self._when(ready, lambda: (self.at(path) or self).send(event, target, None))

    def deliver_held_back(self) -> None:
        """Deliver held events that a restored step or child run accepts now."""
        waiting, self.held_back = self.held_back or (), deque()
        for ready, deliver in waiting:
            self._when(ready, deliver)

    def stop_unrecorded(self, fault: Exception) -> None:
        """Stop in this process, because work cannot be recorded; the store has the last written state."""
        root = self.root
        drive = root.drive
        stopped = RunInterruptedError(
            f"Run {root.state.run_id!r} was stopped, because its work cannot be recorded "
            f"({type(fault).__name__}: {fault}); it stands in the store as it was written last"
        )
        stopped.__cause__ = fault
        if drive is not None:
            drive.fail(stopped)
        else:
            root.ending.drop(stopped)

    def silence(self) -> None:
        """Stop recording, also in child runs."""
        self.recorder = self.drive = None
        for child in self.family.children if self.family is not None else ():
            child.run.silence()
