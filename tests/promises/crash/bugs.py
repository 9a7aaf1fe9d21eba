"""Deliberate bugs, one at a time, each of which would lose or double something; the crashes must find them all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from batonflow.agents import layers
from batonflow.agents.invocation import CallNext, ToolInvocation
from batonflow.durable import lease as driving
from batonflow.durable import recorded_run
from batonflow.durable.attempt_record import AttemptRecord
from batonflow.durable.lease import RunLease
from batonflow.durable.recorded_run import RecordedRun, RecordedWorkflow
from batonflow.durable.recorder import Recorder
from batonflow.tools import ToolOutput
from batonflow.workflow_core.engine.ending import Ending
from batonflow.workflow_core.engine.state import WorkItem

__all__ = ["BUGS", "Bug"]


@dataclass(frozen=True)
class Bug:
    """A way to break the code.

    Attributes:
        name: What is wrong.
        plant: Breaks it.
        program: Of which program it is found.
    """

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    program: str


def commits_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    take = RunLease.take

    def swapped(self: RunLease) -> Any:
        commit = take(self)
        if commit is not None:
            commit.commits.reverse()
        return commit

    patch.setattr(RunLease, "take", swapped)


def state_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    make = Recorder._make

    def without(self: Recorder, segment: AttemptRecord, *rest: Any, **options: Any) -> None:
        make(self, segment, *rest, **options)
        assert segment.data is not None
        segment.data.pop("writes", None)

    patch.setattr(Recorder, "_make", without)


def committed_before_what_it_rests_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AttemptRecord, "group", lambda self: [self])


def parts_of_an_attempt_in_any_order(patch: pytest.MonkeyPatch) -> None:
    suspend = Recorder.suspend

    def unchained(self: Recorder, item: Any, kind: str, value: Any) -> Any:
        ended = suspend(self, item, kind, value)
        item.segment.after.clear()
        return ended

    patch.setattr(Recorder, "suspend", unchained)


def result_given_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    complete = Ending._complete

    def early(self: Ending, *rest: Any) -> None:
        complete(self, *rest)
        self._unrecorded = False
        self._let_out()

    patch.setattr(Ending, "_complete", early)


def sends_are_not_numbered(patch: pytest.MonkeyPatch) -> None:
    segment = RecordedRun._segment

    def forgotten(self: RecordedRun, record: dict[str, Any]) -> None:
        segment(self, record)
        for item in self.places[record["path"]].state.items.values():
            if item.progress is not None:
                item.progress.skip_sends = 0

    patch.setitem(recorded_run._APPLY, "segment", forgotten)


def results_of_once_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(recorded_run._OUTCOMES, "once", lambda *_: None)


def collected_events_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordedRun, "_collect", lambda *_: None)


def answers_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    apply = RecordedRun.commit

    def without(self: RecordedRun, records: list[dict[str, Any]], elapsed: float | None = None) -> None:
        apply(self, [record for record in records if record["kind"] != "answered"], elapsed)

    patch.setattr(RecordedRun, "commit", without)


def changes_in_place_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recorder, "_note_changes", lambda *_: None)


def events_for_other_workflows_are_dropped(patch: pytest.MonkeyPatch) -> None:
    def sent(self: RecordedWorkflow, origin: Any, event: Any, recoveries: Any, target: Any) -> None:
        self.came(origin, event, None, recoveries, target)

    patch.setattr(RecordedWorkflow, "sent", sent)


def snapshots_of_what_is_under_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(driving, "SNAPSHOT_EVERY", 1)
    patch.setattr(Recorder, "is_quiet", lambda _: True)


def failures_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    failed = RecordedRun._failed

    def forgotten(self: RecordedRun, place: RecordedWorkflow, item: WorkItem, *rest: Any) -> None:
        failed(self, place, item, *rest)
        item.failures = None

    patch.setitem(recorded_run._OUTCOMES, "failed", forgotten)


def tools_are_repeated_silently(patch: pytest.MonkeyPatch) -> None:
    async def silently(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
        return await call_next(invocation)

    patch.setattr(layers, "record_call", silently)


BUGS = [
    Bug("commits in the wrong order", commits_in_the_wrong_order, "chain"),
    Bug("state outside the transaction", state_outside_the_transaction, "chain"),
    Bug("committed before what it rests on", committed_before_what_it_rests_on, "held"),
    Bug("parts of an attempt in any order", parts_of_an_attempt_in_any_order, "held"),
    Bug("result given before it is written", result_given_before_it_is_written, "chain"),
    Bug("sends are not numbered", sends_are_not_numbered, "people"),
    Bug("results of once are forgotten", results_of_once_are_forgotten, "chain"),
    Bug("collected events are forgotten", collected_events_are_forgotten, "fans"),
    Bug("answers are forgotten", answers_are_forgotten, "people"),
    Bug("changes in place are overlooked", changes_in_place_are_overlooked, "chain"),
    Bug("events for other workflows are dropped", events_for_other_workflows_are_dropped, "family"),
    Bug("snapshots of what is under way", snapshots_of_what_is_under_way, "fans"),
    Bug("failures are not counted", failures_are_not_counted, "retries"),
    Bug("tools are repeated silently", tools_are_repeated_silently, "team"),
]
