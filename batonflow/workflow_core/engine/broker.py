"""The broker decides. It takes a run's state and one tick, changes the state and returns commands.

It does not read a clock, create ids or do I/O: equal states and equal ticks give equal commands. The cost of a tick
does not depend on the number of steps, queued events or past ticks.
"""

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from batonflow.workflow_core.engine.state import (
    RETURNED,
    TO_STEPS,
    Causes,
    Failures,
    Recoveries,
    RunState,
    StepState,
    Stream,
    Waiter,
    WorkItem,
    is_address,
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
    RunEnded,
    RunIdle,
    SetRetryTimer,
    Stalled,
    StartStep,
    StepFailed,
    StepReturned,
    Tick,
    Unrouted,
    WaitClosed,
    WaitOpened,
    WaitTimedOut,
    Warn,
    WorkerLent,
    WorkerWanted,
)
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.events import (
    CollectionReleaseEvent,
    Event,
    StepFailedEvent,
    StopEvent,
    WorkflowFailedEvent,
)
from batonflow.workflow_core.routing import StepSpec
from batonflow.workflow_core.step import next_delay

__all__ = ["Broker"]


class Broker:
    """The rules of a run."""

    __slots__ = ("_commands", "_state", "_table")

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._table = state.table

    def decide(self, tick: Tick) -> list[Command]:
        """Take one tick and return the commands for it, in order."""
        commands: list[Command] = []
        self._commands = commands
        match tick:
            case StepReturned():
                self._on_returned(tick)
            case EventArrived():
                self._on_event(tick)
            case StepFailed():
                self._on_failed(tick)
            case WaitOpened():
                self._on_wait_opened(tick)
            case WaitTimedOut():
                self._on_wait_timed_out(tick)
            case WaitClosed():
                self._on_wait_closed(tick)
            case WorkerLent(item):
                item.step.release(item)
                self._start_next(item.step)
            case WorkerWanted(waiter):
                self._on_worker_wanted(waiter)
            case RetryDue():
                self._on_retry_due(tick)
            case RunIdle():
                self._on_idle(tick)
            case RunEnded():
                self._end(tick.event, tick.error, resumable=tick.resumable)
        del self._commands
        return commands

    # --- events -------------------------------------------------------------------------------------------------------

    def _on_event(self, tick: EventArrived) -> None:
        if tick.target is not None:
            if is_address(tick.target):
                self._on_answer(tick)
                return
            if self._targets_collector(tick):
                return
        if not self._deliver(tick.event, None, tick.recoveries, tick.causes, tick.target):
            self._commands.append(Unrouted(tick.event, tick.target, tick.causes))

    def _on_answer(self, tick: EventArrived) -> None:
        """Give an answer to the wait that asked, or to the steps if the question has no wait."""
        if tick.target == TO_STEPS:
            taken = self._deliver(tick.event, None, tick.recoveries, tick.causes, to_waits=False)
        else:
            taken = bool(self._answer_waiters(tick.event, tick.target, tick.causes))
        if not taken:
            self._commands.append(Unrouted(tick.event, tick.target, tick.causes))

    def _targets_collector(self, tick: EventArrived) -> bool:
        spec = self._table.steps[cast("str", tick.target)]
        if not spec.has_collection:
            return False
        error = WorkflowRuntimeError(
            f"Step {spec.name} collects a stream and takes no targeted events: {type(tick.event).__name__} was sent "
            "to it with send_event(step=...). Return the event from a step of the stream instead"
        )
        self._end(WorkflowFailedEvent(step_name=spec.name, exception=error), error)
        return True

    def _deliver(
        self,
        event: Event,
        stream: Stream | None,
        recoveries: Recoveries | None,
        causes: Causes,
        target: str | None = None,
        *,
        to_waits: bool = True,
    ) -> bool:
        """Deliver an event to all steps that accept it; return False if no step does."""
        route = self._table.routes[type(event)]
        served = self._answer_waiters(event, target, causes) if to_waits and self._state.waiters.all else None
        for spec in route.singles:
            if (target is None or spec.name == target) and not (served and spec.name in served):
                self._enqueue(self._new_item(spec, event, stream, recoveries, causes))
        for spec, slots in route.joins:
            if (target is None or spec.name == target) and not (served and spec.name in served):
                self._join(spec, slots, event, stream, recoveries, causes)
        if route.collects and target is None:
            self._collect_into(stream, route.collects, event, causes)
        if route.takes_human and not served:
            self._commands.append(PersonAnswered(event))
        return route.accepted or bool(served) or route.is_input_required

    def _new_item(
        self, spec: StepSpec, event: Event, stream: Stream | None, recoveries: Recoveries | None, causes: Causes
    ) -> WorkItem:
        state = self._state
        state.item_seq += 1
        step = state.steps.get(spec.name) or state.step(spec)
        item = WorkItem(state.item_seq, step, event, stream, recoveries)
        item.causes = causes
        if stream is not None:
            stream.live += 1
        state.busy += 1
        event_type = type(event)
        received = step.received
        received[event_type] = received.get(event_type, 0) + 1
        return item

    def _enqueue(self, item: WorkItem) -> None:
        """Start a delivery if a worker is free, otherwise put it last in the queue. It counts as busy in both cases."""
        step = item.step
        self._state.items[item.id] = item
        if step.active < item.spec.num_workers and not step.queue:
            step.occupy(item)
            self._commands.append(StartStep(item))
        else:
            step.enqueue(item)
            self._commands.append(Enqueued(item))

    def _start_next(self, step: StepState) -> None:
        """Give free workers to queued deliveries: new attempts start, answered waits go on."""
        while step.queue and step.active < step.spec.num_workers:
            item = step.queue.popleft()
            step.occupy(item)
            if item.answered is None:
                self._commands.append(StartStep(item))
            else:
                self._commands.extend(ResumeWait(waiter) for waiter in item.answered)
                item.answered = None

    def _close(self, item: WorkItem) -> None:
        """Close a delivery: forget it, free its worker, and end its stream if it was the last."""
        step = item.step
        self._state.items.pop(item.id, None)
        if item.open_waits or item.answered is not None:
            self._warn_of_withdrawn(item)
            self._drop_waits(step, item)
        if not item.suspended:
            self._state.busy -= 1
        step.release(item)
        if item.stream is not None:
            if item.segment is not None:
                item.stream.causes.append(item.segment)
            self._leave(item.stream)
        if step.queue:
            self._start_next(step)

    # --- joins, streams -----------------------------------------------------------------------------------------------

    def _join(
        self,
        spec: StepSpec,
        slots: Sequence[int],
        event: Event,
        stream: Stream | None,
        recoveries: Recoveries | None,
        causes: Causes,
    ) -> None:
        """Put an event into a slot of a join; the oldest complete set becomes one delivery."""
        step = self._state.step(spec)
        key = stream.id if stream is not None else 0
        queues = step.joins.get(key)
        if queues is None:
            queues = step.joins[key] = [deque() for _ in spec.slots]
        slot = slots[0] if len(slots) == 1 else min(slots, key=lambda slot: len(queues[slot]))
        queues[slot].append(event)
        if causes:
            if key not in step.join_causes:
                step.join_causes[key] = [deque() for _ in spec.slots]
            step.join_causes[key][slot].extend(causes)
        if stream is not None:
            stream.live += 1
        if not all(queues):
            return
        taken = tuple(queue.popleft() for queue in step.join_causes.get(key, ()))
        item = self._new_item(spec, event, stream, recoveries, taken)
        item.inputs = tuple(queue.popleft() for queue in queues)
        if not any(queues):
            del step.joins[key]
            step.join_causes.pop(key, None)
        if stream is not None:
            stream.live -= len(item.inputs)
        self._enqueue(item)

    def _collect_into(
        self, stream: Stream | None, collectors: Sequence[StepSpec], event: Event, causes: Causes
    ) -> None:
        if stream is None:
            names = ", ".join(spec.name for spec in collectors)
            self._commands.append(
                Warn(f"{type(event).__name__} was sent outside any collection stream, step {names} does not see it")
            )
            return
        stream.causes.extend(segment for segment, _ in causes)
        for spec in collectors:
            if spec.name in stream.released:
                continue
            members = stream.collected.setdefault(spec.name, [])
            members.append(event)
            if causes:
                stream.collected_causes.setdefault(spec.name, []).extend(causes)
            if len(members) == spec.take:
                self._release_collection(stream, spec, stream.collected.pop(spec.name))

    def _release_collection(self, stream: Stream, spec: StepSpec, members: list[Event]) -> None:
        stream.released.add(spec.name)
        trigger = CollectionReleaseEvent(events=members, stream_id=f"stream_{stream.id}", binding_id=spec.name)
        causes = tuple(stream.collected_causes.pop(spec.name, ()))
        item = self._new_item(spec, trigger, stream.parent, stream.recoveries, causes)
        item.inputs = members
        item.released_stream = stream.key
        item.after = stream.causes or None
        self._enqueue(item)

    def _open_stream(self, item: WorkItem, events: list[Event]) -> None:
        """Open the stream of a fan-out, inside the stream of the step that returned the events."""
        state = self._state
        state.stream_seq += 1
        stream = Stream(state.stream_seq, item.spec.name, item.stream, item.recoveries)
        stream.key = item.segment.id if item.segment is not None else 0
        state.streams[stream.id] = stream
        if item.stream is not None:
            item.stream.live += 1
        stream.live = 1  # stays open until all members are delivered
        for place, event in enumerate(events):
            self._produce(item, event, stream, RETURNED - place)
        self._leave(stream)

    def _leave(self, stream: Stream) -> None:
        """Remove one piece of work from a stream; the last one releases its collections."""
        stream.live -= 1
        if stream.live:
            return
        bound = list(self._table.bound_collectors(stream.producer))
        bound += [self._table.steps[name] for name in stream.collected if self._table.steps[name] not in bound]
        for spec in bound:
            if spec.name not in stream.released:
                self._release_collection(stream, spec, stream.collected.pop(spec.name, []))
        del self._state.streams[stream.id]
        if stream.parent is not None:
            self._leave(stream.parent)

    def end_idle_streams(self) -> None:
        """Release the complete collections of a restored state, and end its streams without work."""
        self._commands = []  # the runner starts all deliveries that have a worker
        for stream in sorted(self._state.streams.values(), key=lambda stream: -stream.id):  # inner ones first
            for spec in [self._table.steps[name] for name in stream.collected]:
                if spec.take and len(stream.collected[spec.name]) >= spec.take:
                    self._release_collection(stream, spec, stream.collected.pop(spec.name)[: spec.take])
            if not stream.live and stream.id in self._state.streams:
                stream.live = 1
                self._leave(stream)
        del self._commands

    # --- results ------------------------------------------------------------------------------------------------------

    def _on_returned(self, tick: StepReturned) -> None:
        item, result = tick.item, tick.result
        # The worker is freed before the result is delivered, so that a step that feeds itself does not queue.
        item.step.release(item)
        if result is not None:
            if isinstance(result, Event) and item.spec.may_be_bare:
                if isinstance(result, StopEvent):
                    self._count_produced(item, result)
                    self._end(result, None)
                    return
                self._produce(item, result, item.stream)
            else:
                problem = item.spec.problem_with(result)
                if problem is not None:
                    self._on_failed(StepFailed(item, WorkflowRuntimeError(problem), tick.now))
                    return
                if any(issubclass(cls, StopEvent) for cls in set(map(type, result))):
                    stop = next(event for event in result if isinstance(event, StopEvent))
                    self._count_produced(item, stop)
                    self._end(stop, None)
                    return
                self._open_stream(item, cast("list[Event]", result))
        self._close(item)

    def _count_produced(self, item: WorkItem, event: Event) -> None:
        produced = item.step.produced
        produced[type(event)] = produced.get(type(event), 0) + 1

    def _produce(self, item: WorkItem, event: Event, stream: Stream | None, number: int = RETURNED) -> None:
        event_type = type(event)
        produced = item.step.produced
        produced[event_type] = produced.get(event_type, 0) + 1
        if self._table.routes[event_type].is_input_required:
            self._commands.append(Publish(event, item))
        causes = item.as_cause(number) if item.segment is not None else ()
        if not self._deliver(event, stream, item.recoveries, causes):
            self._commands.append(Unrouted(event, None, causes))

    def _on_failed(self, tick: StepFailed) -> None:
        item, error, now = tick.item, tick.error, tick.now
        step = item.step
        failures = item.failures
        if failures is None:
            failures = item.failures = Failures(0, item.started_at)
        failures.count += 1
        failures.last_error, failures.last_failed_at = error, now
        elapsed = max(0.0, now - failures.first_attempt_at)
        delay = None
        if item.spec.retry_policy is not None and isinstance(error, Exception):
            seed = f"{self._state.run_id}:{item.spec.name}:{failures.count}"
            delay = next_delay(item.spec.retry_policy, elapsed, failures.count, error, seed)
        if delay is not None:
            told = f"step {item.spec.name} failed at attempt {failures.count} and runs again in {delay:.3g} seconds"
            self._commands.append(Warn(f"{told}: {error!r}"))
            self._retry(step, item, now + delay if delay > 0 else None)
        elif not self._recover(item, error, failures.count, elapsed, now):
            event = WorkflowFailedEvent(
                step_name=item.spec.name,
                exception=error if isinstance(error, Exception) else WorkflowRuntimeError(repr(error)),
                attempts=failures.count,
                elapsed_seconds=elapsed,
            )
            self._end(event, error)

    def _retry(self, step: StepState, item: WorkItem, due: float | None) -> None:
        """Retry a failed delivery; until then it holds no worker, but counts as busy."""
        if item.progress is not None:
            item.progress.begin_again()
        self._drop_waits(step, item)
        item.away = False
        if item.suspended:
            item.suspended = False
            self._state.busy += 1
        step.release(item)
        item.due = due
        if due is None:
            self._enqueue(item)
        else:
            self._state.delayed[item.id] = item
            self._commands.append(SetRetryTimer(item))
        self._start_next(step)

    def _on_retry_due(self, tick: RetryDue) -> None:
        if self._state.delayed.pop(tick.item.id, None) is not None:
            tick.item.due = None
            self._enqueue(tick.item)

    def _recover(self, item: WorkItem, error: BaseException, attempts: int, elapsed: float, now: float) -> bool:
        """Give a failure to the step's ``@catch_error`` handler, if it may still run for this lineage."""
        name = item.spec.handler
        if name is None or not isinstance(error, Exception):
            return False
        used = (item.recoveries or {}).get(name, 0)
        if used >= self._table.handlers[name].max_recoveries:
            return False
        event = StepFailedEvent(
            step_name=item.spec.name,
            input_event=item.event,
            exception=error,
            attempts=attempts,
            elapsed_seconds=elapsed,
            failed_at=datetime.fromtimestamp(now, UTC),
        )
        recoveries = {**(item.recoveries or {}), name: used + 1}
        handling = self._new_item(self._table.steps[name], event, item.stream, recoveries, item.as_cause())
        self._commands.append(Recovered(item, handling))
        self._enqueue(handling)
        self._close(item)
        return True

    # --- waits --------------------------------------------------------------------------------------------------------

    def _on_wait_opened(self, tick: WaitOpened) -> None:
        waiter = tick.waiter
        item = waiter.item
        waiter.asked = True
        if waiter not in self._state.waiters:  # a restored wait exists before its step asks again
            self._state.waiters.add(waiter)
            item.open_waits += 1
        if not item.suspended:
            item.suspended = True
            step = item.step
            step.release(item)
            self._state.busy -= 1
            self._start_next(step)

    def _answer_waiters(self, event: Event, target: str | None, causes: Causes) -> set[str]:
        """Give an event to the open waits that accept it; return the names of their steps."""
        served: set[str] = set()
        for waiter in self._state.waiters.takers(event, target):
            served.add(waiter.item.spec.name)
            self._answer(waiter, event, causes)
        return served

    def _on_wait_timed_out(self, tick: WaitTimedOut) -> None:
        if tick.waiter in self._state.waiters:
            self._answer(tick.waiter, None, ())

    def _answer(self, waiter: Waiter, answer: Event | None, causes: Causes) -> None:
        """Keep the answer with the delivery, and let the step go on when it has a worker."""
        item = waiter.item
        self._forget(waiter)
        item.make_progress().answers[waiter.key] = answer
        self._commands.append(Answered(waiter, answer, causes))
        if item.answered is not None:
            item.answered.append(waiter)
        elif not item.suspended:
            self._commands.append(ResumeWait(waiter))
        else:
            item.suspended = False
            self._state.busy += 1
            self._queue_again(waiter)

    def _queue_again(self, waiter: Waiter) -> None:
        """Let a suspended step go on when it has a worker."""
        item = waiter.item
        item.answered = [waiter]
        item.step.enqueue(item)
        self._start_next(item.step)

    def _on_worker_wanted(self, waiter: Waiter) -> None:
        item = waiter.item
        if item.answered is not None:
            item.answered.append(waiter)
        elif item.worker >= 0 or item.suspended:  # another branch of the step has a worker, or waits for its own event
            self._commands.append(ResumeWait(waiter))
        elif waiter.futures:
            self._queue_again(waiter)
        else:
            item.step.occupy(item)  # its code is already running

    def _on_wait_closed(self, tick: WaitClosed) -> None:
        waiter = tick.waiter
        if waiter not in self._state.waiters:
            return
        self._forget(waiter)
        self._commands.append(GaveUp(waiter))
        if waiter.item.suspended:
            # Its code is already running, so it takes a worker even if all are busy.
            waiter.item.suspended = False
            self._state.busy += 1
            waiter.item.step.occupy(waiter.item)

    def _forget(self, waiter: Waiter) -> None:
        self._state.waiters.remove(waiter)
        waiter.item.open_waits -= 1

    def _warn_of_withdrawn(self, item: WorkItem) -> None:
        """Warn of restored waits that the code has not opened again: an answer may arrive for them."""
        for waiter in self._state.waiters.of(item):
            if not waiter.asked:
                awaited = waiter.event_type.__name__
                self._commands.append(
                    Warn(
                        f"step {item.spec.name} waited for {awaited} before the run was taken up, and ended without: "
                        f"{waiter.id} is withdrawn, as the code does not ask for it any more"
                    )
                )

    def _drop_waits(self, step: StepState, item: WorkItem) -> None:
        """Forget the waits of a finished attempt, including an answered wait in the queue."""
        if item.answered is not None and step.queue is not None:
            step.queue.remove(item)
            item.answered = None
        for waiter in self._state.waiters.of(item):
            self._forget(waiter)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _on_idle(self, tick: RunIdle) -> None:
        state = self._state
        self._commands.append(Idle())
        waiting = state.waiters
        if state.streams and not any(waiter.item.stream for waiter in waiting):
            self._fail_open_streams()
        elif not waiting and not tick.expecting:
            self._commands.append(Stalled(self._waiting_on()))

    def _fail_open_streams(self) -> None:
        streams = list(self._state.streams.values())
        names = ", ".join(f"stream {stream.id} of step {stream.producer}" for stream in streams)
        lacks = "; ".join(self._waiting_on()) or "no join reports what it lacks"
        error = WorkflowRuntimeError(f"Nothing is left to run, but {names} never ended: {lacks}")
        self._end(WorkflowFailedEvent(step_name=streams[-1].producer, exception=error), error)

    def _waiting_on(self) -> list[str]:
        """Describe the missing events of all waiting joins."""
        texts: list[str] = []
        for name, step in self._state.steps.items():
            for buffer_id, buffer in step.buffers.items():
                texts.append(f"step {name} (collect_events, buffer {buffer_id!r}) lacks {', '.join(buffer.lacks())}")
            for queues in step.joins.values():
                empty = [slot for slot, queue in zip(step.spec.slots, queues, strict=True) if not queue]
                lacking = ", ".join(f"{slot.types[0].__name__} for {slot.name!r}" for slot in empty)
                texts.append(f"step {name} (join) lacks {lacking}")
        return texts

    def _end(self, event: StopEvent, error: BaseException | None, *, resumable: bool = False) -> None:
        """End the run; drop queued, held back and waiting work unless the run can be resumed."""
        state = self._state
        self._commands.append(Finish(event, error, resumable, list(state.items.values()), list(state.waiters)))
        if not resumable:
            state.running = False
            state.busy = 0
            state.waiters.clear()
            state.delayed.clear()
            state.streams.clear()
            state.items.clear()
            for step in state.steps.values():
                step.clear()
