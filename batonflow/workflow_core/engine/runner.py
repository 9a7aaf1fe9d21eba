"""The runner acts: it starts tasks, keeps timers, streams events and turns outcomes into ticks for the broker.

There is no loop task and no mailbox. When a step ends, its task creates the tick, lets the broker decide, carries out
commands, and goes on with one of the steps that it started. Three rules keep this correct:

- Every task runs in a copy of the run's context variables. If a step changes them, the next step gets a new
  task.
- Sent events are delivered from an inbox, one started step per turn of the event loop, so that a started step reaches
  its first pause before the next event arrives. A step's result waits for the events that the step has sent.
- After some steps in a row, or a millisecond, the task yields to the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context as ContextVars
from contextvars import copy_context
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

from batonflow.clock import current_source
from batonflow.instrumentation import get_dispatcher
from batonflow.instrumentation.logs import is_told
from batonflow.threads import name_callers_by
from batonflow.values.names import qualified_name
from batonflow.workflow_core.engine import ports
from batonflow.workflow_core.engine.attempts import (
    Waiting,
    call_step,
    record_outcome,
    record_wait,
    verdict,
    was_returned,
)
from batonflow.workflow_core.engine.broker import Broker
from batonflow.workflow_core.engine.ending import Ending, logger
from batonflow.workflow_core.engine.ports import Clock, LiveRun, Observer, Ownership, Recorder, observer_for
from batonflow.workflow_core.engine.state import (
    RETURNED,
    TO_STEPS,
    Causes,
    RunState,
    WorkItem,
    current_item,
    is_address,
    run_in_words,
)
from batonflow.workflow_core.engine.ticks import (
    Answered,
    Command,
    Enqueued,
    EventArrived,
    Finish,
    GaveUp,
    Idle,
    PersonAnswered,
    Publish,
    Recovered,
    ResumeWait,
    RetryDue,
    RunIdle,
    SetRetryTimer,
    Stalled,
    StartStep,
    StepFailed,
    StepReturned,
    Tick,
    Unrouted,
    Warn,
    line_of,
)
from batonflow.workflow_core.errors import StepCancelledError, StepTimeoutError, StoreError, WorkflowRuntimeError
from batonflow.workflow_core.events import Event, InputRequiredEvent, StopEvent
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import StepSpec
from batonflow.workflow_core.stream import StreamLog

__all__ = ["Runner"]

name_callers_by(run_in_words)

T = TypeVar("T")

dispatcher = get_dispatcher("batonflow.workflow_core.observers")

HOPS_PER_TURN = 32
SECONDS_PER_TURN = 0.001


class Runner(LiveRun):
    """A run of a workflow: its state, its tasks and its stream. ``Run`` in ``run.py`` supplies the other methods."""

    __slots__ = (
        "__weakref__", "_ends_waiting", "_inbox", "_pump_held", "_pump_scheduled", "_questions", "_resumed",
        "_tick_log", "_unstarted", "arrived_while_released", "broker", "cell", "drive", "ending", "family",
        "handler_context", "held_back", "idle", "loop", "now", "observer", "opening", "path", "recorder", "source",
        "state", "stream", "thread_id", "variables", "waiting", "workflow",
    )  # fmt: skip

    def __init__(
        self, workflow: AnyWorkflow, state: RunState, cell: Any, *, path: str = "", parent: Any = None
    ) -> None:
        self.workflow = workflow
        self.state = state
        self.cell = cell
        self.path = path
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.thread_id = get_ident()
        self.source = current_source()
        self.now: Clock = self.source.now
        self.broker = Broker(state)
        self.stream = StreamLog(self.loop)
        # Questions are named by their places in the stream; the questions of a snapshot keep their names.
        self.stream.seq = state.question_seq
        self.recorder: Recorder | None = None
        # For a run in a store: its ownership, the task that opens it, and the events sent before it was open.
        self.drive: Ownership | None = None
        self.opening: asyncio.Task[None] | None = None
        # Events that arrived while the run was released, with their steps and places in the tree.
        self.arrived_while_released: list[tuple[Event, str | None, str]] | None = None
        # After a restore: events without a step that takes them, because that step has not been restored yet.
        self.held_back: deque[tuple[Callable[[], bool], Callable[[], None]]] | None = None
        self._tick_log = self.source.tick_log
        self.family: Any = None
        if parent is not None or workflow.__batonflow__.children:
            self.family = self.make_child_runs(parent)
        self.handler_context: Any = None
        self.waiting = Waiting(self)
        self._questions: Any = None
        self.ending: Any = Ending(self)
        self.observer: Observer | None = None
        self._inbox: deque[tuple[Tick, WorkItem | None]] | None = None
        self._pump_scheduled = True  # a pump is scheduled when the run begins
        self.idle = self._resumed = False
        self._unstarted = self._ends_waiting = 0
        self._pump_held = False
        self.variables: ContextVars = copy_context()

    # --- the life of a run --------------------------------------------------------------------------------------------

    def begin(self, event: Event | None, step: str | None = None, causes: Causes = ()) -> None:
        """Start with an event, for one step if it is named, or continue from a restored state."""
        self.state.running = True
        self._pump_scheduled = held = bool(self._inbox)
        self.ending.begin()
        options = self.workflow.__batonflow__
        if options.verbose or dispatcher.enabled or is_told(logger, self.variables):
            self.observer = self.variables.run(observer_for, verbose=options.verbose)
        if self.observer is not None:
            self.observer.run_started(self, event)
        if event is not None:
            if self.recorder is not None and self.path:  # at the root, the start is already recorded
                try:
                    causes = self.recorder.started(event, step, causes, self._as_child())
                except StoreError as error:
                    self.ending.fail("", error)
                    return
            self.state.restored_ticks = ()
            self.feed(EventArrived(event, step, causes=causes))
        else:
            self._restart()
        if held:
            self.loop.call_soon(self._pump)

    def _as_child(self) -> dict[str, Any] | None:
        """Describe this run as a child run, for its record."""
        child = self.family.parent.description_of(self) if self.family and self.family.parent else None
        return child and {"child": child}

    def _restart(self) -> None:
        """Restart a restored run: executing deliveries start again, and timers are set again."""
        underway, self.state.restored_ticks = self.state.restored_ticks, ()
        ended = {tick.item for tick in underway if not isinstance(tick, EventArrived)}
        for item in list(self.state.items.values()):
            if item.worker >= 0 and item not in ended:
                self.spawn(item)
        for item in self.state.delayed.values():
            self._set_retry_timer(item)
        self.waiting.rearm()
        if self.state.stopped is not None:
            self.ending.go_on_after(self.state.stopped)
        if self.family is not None:
            self.family.restart()
        for tick in underway:
            if isinstance(tick, EventArrived):
                self.when_taken(tick.event, partial(self._post, tick, None))
            else:
                self._post(self._ended_before(tick), None)
        self.loop.call_soon(self.settle)
        if self.ending.over:
            self.ending.children_ended()

    def _ended_before(self, tick: StepReturned | StepFailed) -> StepReturned | StepFailed:
        """Return the outcome of a step that ended before the snapshot; the broker decides about it only now."""
        item = tick.item
        if item.open_waits:
            self.waiting.abandon(item)
        if self.recorder is None:
            return tick
        self.recorder.open(item, item.event)
        return record_outcome(self.recorder, tick)

    def feed(self, tick: Tick) -> None:
        """Decide on a tick from outside of steps, and start the resulting steps."""
        if self.ending.over:
            return
        for item in self._decide(tick):
            self.spawn(item)
        self.settle()

    def send(self, event: Event, target: str | None, sender: WorkItem | None, causes: Causes = ()) -> None:
        """Queue an event for delivery, in order; the result of the sending step waits for it."""
        if self.arrived_while_released is not None:
            self.arrived_while_released.append((event, target, ""))
            if self.is_asleep:
                self.request_restore()
            return
        if sender is not None:
            sender.undelivered += 1
            if sender.segment is not None:
                causes = sender.as_cause(sender.segment.sends[-1][0])
            produced = sender.step.produced
            produced[type(event)] = produced.get(type(event), 0) + 1
        elif self.recorder is not None:
            causes = self.recorder.received(event, target, causes, answers=self.root.questions.answered_by(event))
        recoveries = sender.recoveries if sender is not None else None
        self._post(EventArrived(event, target, recoveries, causes), sender)

    def send_from(self, event: Event, target: str | None, item: WorkItem | None, *, inside: bool) -> None:
        """Send an event from a step, whose result waits for it, or from outside; WorkflowRuntimeError if impossible."""
        if get_ident() != self.thread_id:
            self.on_loop(lambda: self.send_from(event, target, item, inside=inside))
            return
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WorkflowRuntimeError(f"send_event() takes an Event, got {type(event).__name__}")
        if self.ending.over:
            if inside:
                return  # a cancelled step that is still ending
            raise WorkflowRuntimeError(
                f"Run {self.state.run_id} of {self.workflow.__batonflow__.workflow_name} is over, it takes no more "
                f"events; {type(event).__name__} was not delivered. Start a new run"
            )
        family = self.family if target is not None and "." in target else None
        if family is not None and target is not None:
            family.check_target(event, target)
        elif target is not None:
            self.workflow.__batonflow__.check_target(event, target)
        if item is not None:
            progress = item.progress or item.make_progress()
            numbers = progress if progress.once_calls is None else progress.here()
            numbers.sends += 1
            if numbers.sends <= numbers.skip_sends:
                return
            if item.segment is not None:
                item.segment.sends.append((numbers.named(numbers.sends), event, target))
        if family is not None and target is not None:
            sent = item.segment.sends[-1][0] if item is not None and item.segment is not None else RETURNED
            family.send_to(event, target, item.as_cause(sent) if item is not None else ())
        elif item is not None or self.arrived_while_released is not None:
            self.send(event, target, item)
        else:
            self.when_taken(event, partial(self.send, event, target, None))

    def _post(self, tick: Tick, sender: WorkItem | None) -> None:
        """Append a tick to the inbox."""
        if self._inbox is None:
            self._inbox = deque()
        self._inbox.append((tick, sender))
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self.loop.call_soon(self._pump)

    def underway(self) -> list[Tick]:
        """Return the undecided ticks: events, and outcomes of steps that wait for their own sends."""
        return [*self.state.restored_ticks, *(tick for tick, _ in self._inbox or ())]

    def undelivered(self) -> list[EventArrived]:
        """Return the events that are sent and not yet delivered."""
        return [tick for tick in self.underway() if isinstance(tick, EventArrived)]

    def publish(self, event: Event, step: str, cause: int) -> None:
        """Append an event to the stream of this run and of all runs around it."""
        ts, origin = self.now(), (step, self.path, cause)
        self.stream.publish(event, ts, origin)
        if self.family is not None:
            self.forward(event, ts, origin)

    def context_for(self, item: WorkItem) -> Any:
        """Return the context of a running attempt; always the same object."""
        if item.context is None:
            item.context = self.make_context(self, item)
            if item.segment is None and self.family is None:  # the context streams without the run
                item.writer = self.stream.publish, self.now, (item.spec.name, self.path, item.id), self.thread_id
        return item.context

    def is_from_before_release(self, item: WorkItem) -> bool:
        """Tell whether a delivery is from before the release from memory."""
        return self.state.steps.get(item.spec.name) is not item.step

    async def resources(self, spec: StepSpec) -> dict[str, Any]:
        """Return the injected arguments of a step."""
        manager = self.workflow.__batonflow__.resource_manager
        found = manager.resolve_sync_if_ready(spec.resources)
        if found is None:
            found = await manager.resolve(spec.resources)
        for name, value in found.items():
            if getattr(value, "__batonflow_workflow__", False):
                self.attach(name, value)
        return found

    def attach(self, name: str, workflow: AnyWorkflow) -> None:
        """Attach a workflow to this run only."""
        family = self.family = self.family or self.make_child_runs(None)
        family.adopt(name, workflow)
        for item in self.state.items.values():
            item.writer = None  # a child run may stream an event that a step then streams again

    # --- steps --------------------------------------------------------------------------------------------------------

    def spawn(self, item: WorkItem) -> None:
        """Start a step in a new task."""
        self._unstarted += 1
        item.task = self.loop.create_task(self._drive(item), context=self.variables.copy())

    def _spawn_all(self, items: Sequence[WorkItem]) -> None:
        """Give steps tasks of their own; each reaches its first pause before the next event is delivered."""
        for item in items:
            self.spawn(item)
            self._pump_held = self._pump_scheduled

    async def _drive(self, item: WorkItem) -> None:
        """Run a step, then the first step that its result starts, and so on for a while."""
        task = asyncio.current_task()
        assert task is not None
        self._unstarted -= 1
        hops = 0
        stopwatch = self.source.stopwatch
        turn_ends = stopwatch() + SECONDS_PER_TURN
        try:
            while True:
                variables = self._enter(item, task)
                try:
                    spec = item.spec
                    if spec.plan == "method":  # as most steps
                        result = await spec.func(self.workflow, self.context_for(item), item.event)
                    else:
                        result = await call_step(self, item)
                    tick: StepReturned | StepFailed = StepReturned(item, result, self.now())
                    if (self._unstarted or self._ends_waiting) and isinstance(result, StopEvent):
                        # Steps started by the same event begin before the run ends; the first StopEvent counts.
                        self._ends_waiting += 1
                        try:
                            await asyncio.sleep(0)
                        finally:
                            self._ends_waiting -= 1
                except BaseException as error:  # noqa: BLE001 - the boundary between a step and the engine
                    failure = self._failure(item, error, task)
                    if failure is None:
                        return
                    tick = failure
                started = self.leave(item, tick) or self._deliver_next()
                if not started:
                    return
                hops += 1
                over = hops > HOPS_PER_TURN or stopwatch() > turn_ends
                if over or task.cancelling() or _changed(variables):
                    self._spawn_all(started)
                    return
                if len(started) > 1:
                    self._spawn_all(started[1:])
                item = started[0]
        except Exception as error:  # noqa: BLE001 - a fault of the engine itself must not leave the run hanging
            self.ending.fail(item.spec.name, error)

    def _enter(self, item: WorkItem, task: "asyncio.Task[None]") -> ContextVars:
        """Open an attempt; return a copy of the context variables, to detect changes later."""
        item.run = self
        item.task = task
        item.started_at = now = self.now()
        current_item.set(item)
        spec = item.spec
        if self.recorder is not None:
            self.recorder.open(item, item.event)
        if spec.timeout is not None:
            self.waiting.start_step_timer(item, task)
        self.stream.note(now, "running", spec.name, item.worker, type(item.event), None)
        if self.observer is not None:
            self.observer.step_started(self, item)
        return copy_context()

    def _failure(self, item: WorkItem, error: BaseException, task: "asyncio.Task[None]") -> StepFailed | None:
        """Return the failed attempt for an exception, or None when the run is over."""
        if self.ending.over or self.loop.is_closed() or self.is_from_before_release(item):
            return None  # the run is over or has left memory
        if isinstance(error, GeneratorExit):
            if asyncio.current_task(self.loop) is not task:
                return None  # the task is discarded with its event loop
            cause, error = error, WorkflowRuntimeError(f"Step {item.spec.name} raised GeneratorExit by itself")
            error.__cause__ = cause
        if isinstance(error, asyncio.CancelledError):
            cancelled = error
            if self.waiting.timed_out(item):
                task.uncancel()
                if item.context is not None:
                    item.context.detach()
                error = StepTimeoutError(
                    f"Step {item.spec.name} took longer than its timeout of {item.spec.timeout} seconds{run_in_words()}"
                )
            elif task.cancelling():
                if self.root.drive is None:
                    self.ending.cancel()
                else:  # cancelled from outside, for example by the end of the event loop
                    self.root.ending.interrupted("as a task of its steps was cancelled")
                return None
            else:
                error = StepCancelledError(
                    f"Step {item.spec.name} raised CancelledError by itself; a task it awaited was probably cancelled"
                )
            error.__cause__ = cancelled
        self.root.questions.attempt_failed(self, item)
        ports.note_failure(self, item, error)
        return StepFailed(item, error, self.now())

    def leave(self, item: WorkItem, tick: StepReturned | StepFailed) -> list[WorkItem]:
        """Close an attempt, give its outcome to the broker, and return the steps to start."""
        if item.at_end is not None:
            item.look_at_end()
        item.run = None
        item.context = None
        # The task's variables hold the item: without this the two form a cycle that only the garbage collector frees.
        item.task = None
        if self.ending.over or self.is_from_before_release(item):
            if self.recorder is not None:
                self.recorder.abandon(item)
            return []
        if self.recorder is not None:
            tick = record_outcome(self.recorder, tick)
        if self.family is not None and item.progress is not None and item.progress.has_called:
            self.family.attempt_over(item)
        spec = item.spec
        if spec.timeout is not None:
            self.waiting.stop_step_timer(item)
        if item.open_waits:
            self.waiting.abandon(item)
        result: object = tick.result if isinstance(tick, StepReturned) else None
        error = tick.error if isinstance(tick, StepFailed) else None
        returns = type(result) if error is None else None
        self.stream.note(tick.now, "not_running", spec.name, item.worker, type(item.event), returns)
        if self.observer is not None:
            self.observer.step_ended(self, item, result, error)
        if item.undelivered and (error is None or self.state.running):
            self._post(tick, None)
            return []
        started = self._decide(tick)
        if not started:
            self.settle()
        return started

    # --- deciding and acting ------------------------------------------------------------------------------------------

    def _deliver_next(self) -> list[WorkItem]:
        """Deliver from the inbox until a step starts. The task has no other step to continue with.

        That saves a task for each event that a step sends. The pump is scheduled in any case, and finds less to do.
        """
        while self._inbox and not self._unstarted and not self.ending.over:
            tick, sender = self._inbox.popleft()
            if sender is not None:
                sender.undelivered -= 1
            started = self._decide(tick)
            if self._resumed:
                self._resumed, self._pump_held = False, True
                return started
            if started:
                return started
        return []

    def _pump(self) -> None:
        """Deliver from the inbox until a step starts. The rest waits for the next turn of the event loop."""
        if self._pump_held:
            self._pump_held = False
            self.loop.call_soon(self._pump)
            return
        self._pump_scheduled = False
        try:
            while self._inbox and not self.ending.over:
                tick, sender = self._inbox.popleft()
                if sender is not None:
                    sender.undelivered -= 1
                started = self._decide(tick)
                if started or self._resumed:
                    self._resumed = False
                    for item in started:
                        self.spawn(item)
                    if self._inbox:
                        self._pump_scheduled = True
                        self.loop.call_soon(self._pump)
                    return
            self.settle()
        except Exception as error:  # noqa: BLE001 - nobody awaits a callback, so its failure must end the run
            self.ending.fail("", error)

    def _decide(self, tick: Tick) -> list[WorkItem]:
        """Let the broker decide, carry out its commands, and return the steps to start."""
        if self._tick_log is not None:
            self._tick_log.append(line_of(tick))
        started: list[WorkItem] = []
        commands = self.broker.decide(tick)
        for command in commands:
            if type(command) is StartStep:
                started.append(command.item)
            elif type(command) is Finish:
                self._close_segment(tick, commands)  # before the end is recorded
                self.ending.finish(command)
            else:
                self._act(command)
        if self.recorder is not None:
            # Only now, so that child runs started by its events are committed together with it.
            self._close_segment(tick, commands)
        if started or type(tick) is EventArrived or (self.idle and self.state.busy):
            if self.drive is not None or self.ending.alive_since is None:
                self.ending.busy_again()
            if self.idle:
                self.idle = False
                if self.family is not None:
                    self.family.wake_around()
        return [] if self.ending.over else started

    def _close_segment(self, tick: Tick, commands: list[Command]) -> None:
        """Close the record of an attempt, whose outcome is decided and is the last entry of the record."""
        if self.recorder is not None and isinstance(tick, StepReturned | StepFailed):
            self.recorder.close(tick.item, verdict(tick, commands))

    def start_all(self, tick: Tick) -> None:
        """Decide on a tick, and start each resulting step in a new task."""
        for item in self._decide(tick):
            self.spawn(item)

    def settle(self) -> None:
        """Report once that nothing is queued, executing or under way, and whether an event may still arrive."""
        if self._inbox or self.idle or self.ending.over or (self.state.busy and self.family is None):
            return
        idle = not (self.state.busy or (self.family is not None and self.family.active()))
        if idle and self.held_back is not None:
            if self.held_back:
                self.held_back.popleft()[1]()
                return
            self.held_back = None
        self.idle = idle
        self.ending.idle()
        root = self.root
        if root.drive is not None and root.awaits_people():
            root.drive.idle()
        if not self.idle:
            return
        self.start_all(RunIdle(self.state.table.accepts_human or bool(self.family and self.family.children)))
        if self.family is not None and self.family.parent is not None:
            self.family.parent.run.settle()

    def _set_retry_timer(self, item: WorkItem) -> None:
        item.timer = self.loop.call_later(max(0.0, (item.due or 0.0) - self.now()), self.feed, RetryDue(item))

    def _act(self, command: Command) -> None:
        """Carry out a command other than StartStep and Finish."""
        match command:
            case Answered() | GaveUp():
                record_wait(self.recorder, command)
            case Recovered():
                pass  # the record of the failed attempt contains it
            case Publish():
                if self.recorder is not None:
                    self.recorder.published(command.item, self.root.stream.seq, self.now())
                self.publish(command.event, command.item.spec.name, command.item.id)
            case Enqueued(item):
                self.stream.note(self.now(), "preparing", item.spec.name, "<enqueued>", type(item.event), None)
            case ResumeWait():
                self.waiting.resume(command.waiter)
                self._resumed = True
            case Unrouted():
                self._offer(command)
            case PersonAnswered():
                self.root.questions.person_answered(self, command.event)
            case Warn():
                self.ending.warn(command.text)
            case Idle():
                self.stream.note(self.now(), "idle", "", "", "", None)
            case Stalled():
                self.stream.note(self.now(), "stalled", "", "", "\n".join(command.waiting_on), None)
                self.ending.stalled(command.waiting_on)
            case _:
                assert isinstance(command, SetRetryTimer)
                self._set_retry_timer(command.item)

    def _offer(self, command: Unrouted) -> None:
        """Offer an unaccepted event to the tree of workflows. Report it as unhandled if it is not taken."""
        event = command.event
        if is_address(command.target) and command.target != TO_STEPS:
            self.ending.warn(f"{type(event).__name__} answers a question that is not open any more, and is dropped")
        elif self.family is not None and self.family.offer(event, command.causes):
            return
        if self.recorder is not None and command.causes and not was_returned(command.causes):
            self.recorder.dropped(command.causes)
        cls = type(event)
        # The end of a sender that waits for its own sends does not count as work.
        ending = [
            tick for tick, _ in self._inbox or () if isinstance(tick, StepReturned) and _starts_nothing(tick.result)
        ]
        idle = "idle" if self.state.busy == len(ending) == len(self._inbox or ()) else ""
        self.stream.note(self.now(), "unhandled", cls.__name__, idle, qualified_name(cls), command.target)


def _starts_nothing(result: Any) -> bool:
    return result is None or isinstance(result, InputRequiredEvent)


def _changed(before: ContextVars) -> bool:
    """Tell whether context variables differ from an earlier copy; values without comparison count as changed."""
    try:
        return copy_context() != before
    except Exception:  # noqa: BLE001 - == of user values may raise anything
        return True
