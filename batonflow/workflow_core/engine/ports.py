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

    def __call__(self) -> float: ...


class Recorder(Protocol):
    """Turns the work of a run into records. A run without a store has no recorder."""

    def for_child(self, path: str, serializer: Any) -> "Recorder": ...

    def watch(self, cell: Any) -> None: ...

    def started(
        self, event: Event, target: str | None, causes: Causes, about: dict[str, Any] | None = None
    ) -> Causes: ...

    def received(self, event: Event, target: str | None, causes: Causes, answers: int | None = None) -> Causes: ...

    def open(self, item: WorkItem, consumed: Event | None) -> None: ...

    def returned(self, item: WorkItem, result: Any) -> None: ...

    def failed(self, item: WorkItem, error: BaseException) -> None: ...

    def close(self, item: WorkItem, verdict: dict[str, Any] | None = None) -> None: ...

    def abandon(self, item: WorkItem) -> None: ...

    def cut(self) -> None: ...

    def published(self, item: WorkItem, seq: int, ts: float) -> None: ...

    def dropped(self, causes: Causes) -> None: ...

    def answered(self, waiter: Waiter, answer: Event | None, causes: Causes) -> None: ...

    def gave_up(self, waiter: Waiter) -> None: ...

    def can_write(self, value: Any) -> bool: ...

    def check_name(self, name: str) -> None: ...

    def call_begins(self, item: WorkItem) -> set[str]: ...

    def suspend(
        self, item: WorkItem, kind: str, value: Any, changed_before: Collection[str] = ()
    ) -> AttemptRecord | None: ...

    def read(self, item: WorkItem, key: str | None, value: Any = None) -> None: ...

    def wrote(self, item: WorkItem, path: str, value: Any) -> None: ...

    def edited(self, changes: list[tuple[str, Any]]) -> None: ...

    def ended(self, event: Event, seq: int) -> None: ...


class Ownership(Protocol):
    """The hold of this process on a run that a store keeps."""

    trace: dict[str, Any] | None
    earlier_trace: dict[str, Any] | None

    def idle(self) -> None: ...

    def busy(self) -> None: ...

    async def has(self, segment: Any) -> None: ...

    def when_written(self, callback: Callable[[], None]) -> None: ...

    def close(self) -> None: ...

    def fail(self, error: Any) -> None: ...


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
    def owner(self) -> str: ...

    @property
    def lease_seconds(self) -> float: ...


class Keeper(Protocol):
    """Keeps runs in a store, so that they outlive their process; what ``Workflow(store=...)`` opens."""

    @property
    def store(self) -> Any: ...

    def check_run_id(self, run_id: str) -> None: ...

    def live_run(self, workflow: Any, run_id: str, event: Event | None = None) -> Any: ...

    def live_runs(self, workflow: Any) -> list[Any]: ...

    def forget_sleeping(self, workflow: Any) -> int: ...

    def begin(self, workflow: Any, run: Any, event: Event | None) -> None: ...

    def resume(self, workflow: Any, run: Any) -> None: ...

    def fork(
        self, workflow: Any, run: Any, source: str, at: int, state: Mapping[str, Any], event: Event | None
    ) -> None: ...

    async def recover(self, workflow: Any, limit: int, skip: Collection[str]) -> list[Any]: ...

    async def give_up(self, run: Any) -> None: ...

    def wake(self, run: Any) -> None: ...

    def restore(self, run: Any) -> None: ...

    async def stored_stream(self, run: Any, after: int) -> list[Entry]: ...

    async def send(
        self, workflow: Any, run_id: str, event: Event, key: str | None = None, step: str | None = None
    ) -> bool: ...

    async def cancel(self, run_id: str, reason: str) -> None: ...

    async def open_inputs(self, workflow: Any, run_id: str) -> list[Any]: ...

    async def awaited_events(self, workflow: Any, run_id: str, at: int | None) -> set[type[Event]]: ...


class AttachedRuns(Protocol):
    """The runs of the attached workflows of one run, and the way to the run around it."""

    @property
    def parent(self) -> Any: ...

    @property
    def children(self) -> Sequence[Any]: ...

    @property
    def finished(self) -> Sequence[Any]: ...

    @property
    def saved(self) -> Sequence[dict[str, Any]]: ...

    @property
    def counts(self) -> dict[str, int]: ...

    def outlives(self) -> bool: ...

    def keep_for_snapshot(self) -> None: ...

    def cancel(self) -> None: ...

    def ended(self) -> None: ...

    def active(self) -> bool: ...

    def expecting(self) -> bool: ...

    def wake_around(self) -> None: ...

    def offer(self, event: Event, causes: Causes) -> bool: ...

    def forward(self, event: Event, ts: float, step: str, path: str, cause: int) -> None: ...

    def attempt_over(self, item: WorkItem) -> None: ...

    def restart(self) -> None: ...

    def adopt(self, name: str, workflow: Any) -> None: ...

    def description_of(self, run: Any) -> dict[str, Any] | None: ...

    def check_target(self, event: Event, target: str) -> None: ...

    def send_to(self, event: Event, target: str, causes: Causes) -> None: ...

    def name_of(self, workflow: object) -> str | None: ...

    def unfold(self) -> None: ...

    def streamed(self, event: Event) -> bool: ...

    def restore(self, counts: dict[str, int], saved: list[dict[str, Any]]) -> None: ...


class OpenQuestions(Protocol):
    """The questions to people of a tree of runs."""

    def opened(self, run: Any, waiter: Waiter, asked: Event | None) -> None: ...

    def answered_by(self, event: Event) -> int | None: ...

    def attempt_failed(self, run: Any, item: WorkItem) -> None: ...

    def person_answered(self, run: Any, event: Event) -> None: ...

    def falls_asleep(self) -> None: ...

    def wakes_up(self) -> None: ...


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
    def root(self) -> Any: ...

    @property
    def is_asleep(self) -> bool: ...

    @property
    def is_replaced(self) -> bool: ...

    def context_for(self, item: WorkItem) -> Any: ...

    async def resources(self, spec: StepSpec) -> dict[str, Any]: ...

    def feed(self, tick: Tick) -> None: ...

    def start_all(self, tick: Tick) -> None: ...

    def settle(self) -> None: ...

    def publish(self, event: Event, step: str, cause: int) -> None: ...

    def is_past(self, item: WorkItem) -> bool: ...

    def awaits_people(self) -> bool: ...

    def rouse(self) -> None: ...

    def silence(self) -> None: ...

    def stop_unrecorded(self, fault: Exception) -> None: ...
