"""Ports: the protocols through which the engine works with what lies above it, and the names it loads late.

A run is recorded, owned, observed and kept by parts that the engine does not know: it calls these protocols, and the
packages above implement them. ``LiveRun`` is the run as its own parts see it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from batonflow.lazy import at_first_use
from batonflow.workflow_core.engine.state import AttemptRecord, Causes, RunState, Waiter, WorkItem
from batonflow.workflow_core.engine.ticks import Tick
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import StepSpec
from batonflow.workflow_core.stream import Entry, StreamLog

__all__ = [
    "AttachedRuns",
    "Clock",
    "Keeper",
    "LiveRun",
    "Observer",
    "OpenQuestions",
    "Ownership",
    "Recorder",
    "RunStoreLike",
    "dump_run",
    "execution_svg",
    "load_run",
    "observer_for",
    "open_keeper",
    "stepwise_run",
    "workflow_svg",
]

# Loaded at their first use, as most runs need none of them; the first four lie above the engine.
open_keeper = at_first_use("batonflow.durable.keeper", "open_keeper")
observer_for = at_first_use("batonflow.tracing.observer", "observer_for")
workflow_svg = at_first_use("batonflow.draw", "workflow_svg")
execution_svg = at_first_use("batonflow.draw", "execution_svg")
load_run = at_first_use("batonflow.workflow_core.context.snapshot", "load_run")
dump_run = at_first_use("batonflow.workflow_core.context.snapshot", "dump_run")
stepwise_run = at_first_use("batonflow.workflow_core.compat.stepwise", "StepwiseRun")


class Clock(Protocol):
    """Tells the time, in wall-clock seconds."""

    def __call__(self) -> float:
        """Return the time."""
        ...


class Recorder(Protocol):
    """Turns the work of a run into records. A run without a store has no recorder."""

    def for_child(self, path: str, serializer: Any) -> "Recorder":
        """Return the recorder of a workflow inside this one."""
        ...

    def watch(self, cell: Any) -> None:
        """Record the changes of a state."""
        ...

    def started(self, event: Event, target: str | None, causes: Causes, about: dict[str, Any] | None = None) -> Causes:
        """Record that the run began with an event; return the causes of what the event starts."""
        ...

    def received(self, event: Event, target: str | None, causes: Causes, answers: int | None = None) -> Causes:
        """Record an event from outside; return the causes of what it starts."""
        ...

    def open(self, item: WorkItem, consumed: Event | None) -> None:
        """Begin the record of an attempt, or go on after a suspension."""
        ...

    def returned(self, item: WorkItem, result: Any) -> None:
        """Turn a finished attempt into data; raises ``StoreError`` for a value that cannot be written."""
        ...

    def failed(self, item: WorkItem, error: BaseException) -> None:
        """Record the error of an attempt, with as much of its work as can be written."""
        ...

    def close(self, item: WorkItem, verdict: dict[str, Any] | None = None) -> None:
        """Complete the record of an attempt with the broker's verdict on a failure."""
        ...

    def abandon(self, item: WorkItem) -> None:
        """Drop the open record of an attempt that was cancelled."""
        ...

    def cut(self) -> None:
        """Close all open records, as the steps of the run are over."""
        ...

    def published(self, item: WorkItem, seq: int, ts: float) -> None:
        """Note the place in the stream of an event that a step returned."""
        ...

    def dropped(self, causes: Causes) -> None:
        """Record that an event was taken by no step."""
        ...

    def answered(self, waiter: Waiter, answer: Event | None, causes: Causes) -> None:
        """Record the answer of a wait, or None when its time was up."""
        ...

    def gave_up(self, waiter: Waiter) -> None:
        """Note that a step waits no longer."""
        ...

    def can_write(self, value: Any) -> bool:
        """Tell whether a value can be recorded."""
        ...

    def check_name(self, name: str) -> None:
        """Refuse a name under which a record would not be found again."""
        ...

    def call_begins(self, item: WorkItem) -> set[str]:
        """Return the state values that were changed in place before a call of ``ctx.once``."""
        ...

    def suspend(
        self, item: WorkItem, kind: str, value: Any, changed_before: Collection[str] = ()
    ) -> AttemptRecord | None:
        """End a record with a wait, an intent or an outcome of ``ctx.once``, and begin the next."""
        ...

    def read(self, item: WorkItem, key: str | None, value: Any = None) -> None:
        """Note that a step read a key of the state, or all of it."""
        ...

    def wrote(self, item: WorkItem, path: str, value: Any) -> None:
        """Note that a step changed a key of the state."""
        ...

    def edited(self, changes: list[tuple[str, Any]]) -> None:
        """Record a change of the state from outside the steps."""
        ...

    def ended(self, event: Event, seq: int) -> None:
        """Record the end of the run."""
        ...


class Ownership(Protocol):
    """The hold of this process on a run that a store keeps."""

    trace: dict[str, Any] | None
    earlier_trace: dict[str, Any] | None

    def idle(self) -> None:
        """Learn that the run only waits, so that it may leave memory after a while."""
        ...

    def busy(self) -> None:
        """Learn that the run goes on."""
        ...

    async def has(self, segment: Any) -> None:
        """Wait until a record is written."""
        ...

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back when all that is recorded now is written."""
        ...

    def close(self) -> None:
        """Let go of the run."""
        ...

    def fail(self, error: Any) -> None:
        """Stop the run here, as nothing more of it can be written."""
        ...


class Observer(Protocol):
    """Hears the progress of a run. Asked for once per run; a run without one pays a truth test."""

    def run_started(self, run: Any, event: Event | None) -> None:
        """Hear that a run begins with an event, or goes on from a snapshot."""

    def step_started(self, run: Any, item: WorkItem) -> None:
        """Hear that an attempt begins, or goes on after a wait."""

    def step_ended(self, run: Any, item: WorkItem, result: Any, error: BaseException | None) -> None:
        """Hear that an attempt ended, or suspends itself for a wait."""

    def run_ended(self, run: Any, event: Event, error: BaseException | None) -> None:
        """Hear that a run is over, or goes on in another process."""

    def run_left(self, run: Any) -> None:
        """Hear that a waiting run leaves memory; when it comes back it starts again, without an event."""


class RunStoreLike(Protocol):
    """A store of runs; ``batonflow.durable.stores.protocol.RunStore`` is the whole protocol."""

    @property
    def owner(self) -> str:
        """The name of this process as an owner of runs."""
        ...

    @property
    def lease_seconds(self) -> float:
        """The seconds for which a claim on a run holds."""
        ...


class Keeper(Protocol):
    """Keeps runs in a store, so that they outlive their process; what ``Workflow(store=...)`` opens."""

    @property
    def store(self) -> Any:
        """The store."""
        ...

    def check_run_id(self, run_id: str) -> None:
        """Refuse an id that no run can have."""
        ...

    def live_run(self, workflow: Any, run_id: str, event: Event | None = None) -> Any:
        """Return the run of this id that goes on in this process, else None."""
        ...

    def live_runs(self, workflow: Any) -> list[Any]:
        """Return the runs of a workflow that go on in this process."""
        ...

    def forget_sleeping(self, workflow: Any) -> int:
        """Let go of runs that left memory and have no handlers; return their number."""
        ...

    def begin(self, workflow: Any, run: Any, event: Event | None) -> None:
        """Begin a run under its id, or go on with the run that the store has."""
        ...

    def resume(self, workflow: Any, run: Any) -> None:
        """Go on with a run that the store has."""
        ...

    def fork(
        self, workflow: Any, run: Any, source: str, at: int, state: Mapping[str, Any], event: Event | None
    ) -> None:
        """Begin a run that shares the work of another run up to a commit."""
        ...

    async def recover(self, workflow: Any, limit: int, skip: Collection[str]) -> list[Any]:
        """Take up unfinished runs that no living process drives."""
        ...

    async def give_up(self, run: Any) -> None:
        """Stop a run in this process and leave it to the next process that takes it up."""
        ...

    def wake(self, run: Any) -> None:
        """Bring a run that left memory back, as soon as its turn comes."""
        ...

    def restore(self, run: Any) -> None:
        """Bring a run that left memory back."""
        ...

    async def stored_stream(self, run: Any, after: int) -> list[Entry]:
        """Return the stream of a run from before this process took it up."""
        ...

    async def send(
        self, workflow: Any, run_id: str, event: Event, key: str | None = None, step: str | None = None
    ) -> bool:
        """Put an event into the inbox of a run; tell whether it is new there."""
        ...

    async def cancel(self, run_id: str, reason: str) -> None:
        """Cancel a run, whichever process drives it."""
        ...

    async def open_inputs(self, workflow: Any, run_id: str) -> list[Any]:
        """Return the questions to people that stand open in a run."""
        ...

    async def awaited_events(self, workflow: Any, run_id: str, at: int | None) -> set[type[Event]]:
        """Return the classes of the events that the steps of a run wait for."""
        ...


class AttachedRuns(Protocol):
    """The runs of the attached workflows of one run, and the way to the run around it."""

    @property
    def parent(self) -> Any:
        """The attached runs of the run around, None at the root."""
        ...

    @property
    def children(self) -> Sequence[Any]:
        """The child runs that go on."""
        ...

    @property
    def finished(self) -> Sequence[Any]:
        """The child runs that are over and whose results may be asked for again."""
        ...

    @property
    def saved(self) -> Sequence[dict[str, Any]]:
        """The child runs of a snapshot that are not taken up yet."""
        ...

    @property
    def counts(self) -> dict[str, int]:
        """The number of runs of each attached workflow so far."""
        ...

    def outlives(self) -> bool:
        """Tell whether the run has to wait for child runs before its StopEvent counts; cancel the others."""
        ...

    def keep_for_snapshot(self) -> None:
        """Keep the child runs of a cancelled run, which may be resumed."""
        ...

    def cancel(self) -> None:
        """Cancel every child run."""
        ...

    def ended(self) -> None:
        """Tell the run around that this one is over."""
        ...

    def active(self) -> bool:
        """Tell whether a child run still does something by itself."""
        ...

    def expecting(self) -> bool:
        """Tell whether something may still come from a child run."""
        ...

    def wake_around(self) -> None:
        """Learn that something goes on again in this run, and so in every run around it."""
        ...

    def offer(self, event: Event, causes: Causes) -> bool:
        """Give an event that no own step took to attached workflows and to the run around."""
        ...

    def forward(self, event: Event, ts: float, step: str, path: str, cause: int) -> None:
        """Show an event in the streams of the runs around."""
        ...

    def attempt_over(self, item: WorkItem) -> None:
        """Forget the calls of an attempt that is over."""
        ...

    def restart(self) -> None:
        """Take up the child runs that events had started."""
        ...

    def adopt(self, name: str, workflow: Any) -> None:
        """Attach a workflow for this run only."""
        ...

    def description_of(self, run: Any) -> dict[str, Any] | None:
        """Describe a child run for a record."""
        ...

    def check_target(self, event: Event, target: str) -> None:
        """Refuse a target that is not a step of an attached workflow which accepts the event."""
        ...

    def send_to(self, event: Event, target: str, causes: Causes) -> None:
        """Deliver an event to a step of an attached workflow."""
        ...

    def name_of(self, workflow: object) -> str | None:
        """Return the name under which a workflow is attached."""
        ...

    def unfold(self) -> None:
        """Make the child runs of a restored run that never begins, to be looked at."""
        ...

    def streamed(self, event: Event) -> bool:
        """Tell whether a child run has streamed this very object already."""
        ...

    def restore(self, counts: dict[str, int], saved: list[dict[str, Any]]) -> None:
        """Remember the child runs of a snapshot."""
        ...


class OpenQuestions(Protocol):
    """The questions to people of a tree of runs."""

    def opened(self, run: Any, waiter: Waiter, asked: Event | None) -> None:
        """Learn that a step waits."""
        ...

    def answered_by(self, event: Event) -> int | None:
        """Return the number of the question that an event answers, 0 for a question that is closed."""
        ...

    def attempt_failed(self, run: Any, item: WorkItem) -> None:
        """Drop the questions of a failed attempt, which the next attempt asks again."""
        ...

    def person_answered(self, run: Any, event: Event) -> None:
        """Close the question that an answer belongs to."""
        ...

    def falls_asleep(self) -> None:
        """Keep the open questions while the run is out of memory."""
        ...

    def wakes_up(self) -> None:
        """Look at the questions of a run that is back in memory."""
        ...


class LiveRun(Protocol):
    """A run as its parts see it: waits, timeouts, the end, the call of a step."""

    workflow: AnyWorkflow
    state: RunState
    path: str
    stream: StreamLog
    loop: asyncio.AbstractEventLoop
    now: Clock
    recorder: Recorder | None
    drive: Ownership | None
    opening: "asyncio.Task[None] | None"
    early: list[tuple[Event, str | None, str]] | None
    observer: Observer | None
    family: AttachedRuns | None
    ending: Any

    @property
    def root(self) -> Any:
        """The run at the root of the tree."""
        ...

    @property
    def is_asleep(self) -> bool:
        """Tell whether the run left memory and nothing has woken it yet."""
        ...

    @property
    def is_replaced(self) -> bool:
        """Tell whether another object goes on in the place of this run inside one that left memory."""
        ...

    def context_for(self, item: WorkItem) -> Any:
        """Return the context of a running attempt."""
        ...

    async def resources(self, spec: StepSpec) -> dict[str, Any]:
        """Return the injected arguments of a step."""
        ...

    def feed(self, tick: Tick) -> None:
        """Decide about a tick from outside a step."""
        ...

    def start_all(self, tick: Tick) -> None:
        """Decide about a tick and give every started step a task of its own."""
        ...

    def settle(self) -> None:
        """Notice when nothing is queued, executing or on its way."""
        ...

    def publish(self, event: Event, step: str, cause: int) -> None:
        """Put an event on the stream."""
        ...

    def is_past(self, item: WorkItem) -> bool:
        """Tell whether a delivery is from before the run left memory."""
        ...

    def awaits_people(self) -> bool:
        """Tell whether the run only waits for events from outside."""
        ...

    def rouse(self) -> None:
        """Come back into memory."""
        ...

    def silence(self) -> None:
        """Record nothing more."""
        ...

    def stop_unrecorded(self, fault: Exception) -> None:
        """Stop here, as the work of the run cannot be recorded."""
        ...
