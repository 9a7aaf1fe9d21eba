"""Replays of stored runs: records, streams, and the differences of two runs."""

import difflib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from batonflow.durable.codec import Codec
from batonflow.durable.gaps import reset_in
from batonflow.durable.streamed import after_pieces
from batonflow.values.serializers import JsonSerializer, as_json, read_json
from batonflow.values.types import check_whole
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import Event, InputRequiredEvent, StopEvent, WorkflowFailedEvent
from batonflow.workflow_core.options import AnyWorkflow, is_workflow

if TYPE_CHECKING:
    from batonflow.durable.store_protocol import RunStatus, StoredCommit
    from batonflow.llms.stream import ModelCall

__all__ = ["Difference", "ReplayedEvent", "ReplayedRun", "RunDiff", "compare", "records_of", "replayed"]


def records_of(commits: Sequence["StoredCommit"]) -> list[dict[str, Any]]:
    """Return the records of commits in order, with the number (``commit``) and the time (``at``) of their commit."""
    found: list[dict[str, Any]] = []
    for commit in commits:
        body = read_json(commit.body)
        found += [{**record, "commit": commit.seq, "at": body["t"]} for record in body["r"]]
    return found


class ReplayedEvent(NamedTuple):
    """A streamed event of a run.

    Attributes:
        seq: The position in the stream; for joined pieces of an answer the position of the last one.
        ts: The time, in wall-clock seconds.
        step: The step that wrote it; empty for the engine.
        path: The place of the workflow in the tree; empty for the run itself.
        commit: The number of its commit.
        event: The event.
        cause: The number of the delivery that wrote it; 0 for the engine.
    """

    seq: int
    ts: float
    step: str
    path: str
    commit: int
    event: Event
    cause: int = 0


@dataclass(frozen=True)
class ReplayedRun:
    """A run from its records.

    Attributes:
        run_id: The run.
        status: The status of the run.
        records: The records, in order.
        events: The streamed events, in order; the StopEvent last, if there is one.
    """

    run_id: str
    status: "RunStatus"
    records: list[dict[str, Any]]
    events: list[ReplayedEvent]
    _codec: Codec

    @property
    def model_calls(self) -> "list[ModelCall]":
        """The calls of models, in the order of their records."""
        return [_call_of(data, self._codec) for record in self.records for data in record.get("calls", ())]

    @property
    def stop_event(self) -> StopEvent | None:
        """The event that ended the run; None while it goes on."""
        last = self.events[-1].event if self.events else None
        return last if isinstance(last, StopEvent) else None

    @property
    def result(self) -> Any:
        """The result of the run.

        Raises:
            StoreError: The run is not over.
            Exception: The error of a failed run.
        """
        event = self.stop_event
        if event is None:
            raise StoreError(f"Run {self.run_id!r} is not over: it has no result yet")
        if isinstance(event, WorkflowFailedEvent):
            raise event.exception
        return event.result if type(event) is StopEvent else event

    async def stream_events(self) -> AsyncIterator[Event]:
        """Return the streamed events in the form of ``handler.stream_events()``."""
        for entry in self.events:
            yield entry.event

    def state_at(self, commit: int) -> dict[str, Any]:
        """Return the recorded key-value state of the run itself after a commit.

        Dotted paths are separate keys until a value above them is written. Values that were set before the first
        record that ``compact`` has left are missing.

        Raises:
            TypeError: ``commit`` is not a number.
            ValueError: ``commit`` is less than 0.
        """
        check_whole(commit, "commit is the number of a commit, or 0 for the beginning")
        state: dict[str, Any] = {}
        for record in self.records:
            if record["commit"] > commit or record["path"]:
                continue
            written = [*record.get("state", ()), *((path, value) for _, path, value in record.get("writes", ()))]
            for path, value in written:
                for covered in [known for known in state if known == path or known.startswith(f"{path}.")]:
                    del state[covered]
                if value is not None:
                    state[path] = self._codec.read(value)
        return state


def replayed(
    run_id: str,
    status: "RunStatus",
    commits: Sequence["StoredCommit"],
    workflow: AnyWorkflow | None = None,
    after: int = -1,
) -> ReplayedRun:
    """Return a run from its commits, without execution of steps, models or tools.

    Args:
        run_id: The run.
        status: The status of the run.
        commits: All commits of the run.
        workflow: The workflow, for classes that are declared inside functions.
        after: The last position that a reader has. An answer that it has in part continues after that part.

    Raises:
        StoreError: The class of a recorded value is not loaded.
        TypeError: ``workflow`` is not a workflow.
    """
    if workflow is not None and not is_workflow(workflow):
        raise TypeError(f"workflow is an object of a workflow, such as Flow(), not {workflow!r}")
    codec = Codec(JsonSerializer() if workflow is None else workflow.__batonflow__.serializer)
    records = records_of(commits)
    events: list[ReplayedEvent] = []
    for record in records:
        step, path, commit = record.get("step", ""), record["path"], record["commit"]
        cause = record.get("item", 0)
        for _, data, first, ts, *more in record.get("streamed", ()):
            if data is not None:  # otherwise the workflow does not record its stream
                last, sizes = more[0] if more else first, more[1] if len(more) > 1 else None
                event = after_pieces(codec.read(data), sizes, after - first)
                events.append(ReplayedEvent(last, ts, step, path, commit, event, cause))
        if "published" in record:
            asked = [codec.read(event) for event in record["outcome"][1]]
            questions = [event for event in asked if isinstance(event, InputRequiredEvent)]
            for (seq, ts), event in zip(record["published"], questions, strict=True):
                events.append(ReplayedEvent(seq, ts, step, path, commit, event, cause))
        if record["kind"] == "ended" and not path:
            last = record.get("seq", max((entry.seq for entry in events), default=-1) + 1)
            events.append(ReplayedEvent(last, record["at"], "", "", commit, codec.read(record["event"])))
    events += [
        ReplayedEvent(reset.seq, reset.ts, "", "", commit.seq, reset.event())
        for commit in commits
        if (reset := reset_in(commit)) is not None
    ]
    events.sort(key=lambda entry: entry.seq)
    return ReplayedRun(run_id, status, records, events, codec)


def _call_of(data: dict[str, Any], codec: Codec) -> "ModelCall":
    from batonflow.llms.stream import ModelCall  # noqa: PLC0415 - only readers of agents' runs need models

    return ModelCall.from_data(data, codec.read)


# --- differences ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """A difference between two runs.

    Attributes:
        left: The record of the first run, with its ``commit``; None if it is missing.
        right: The record of the second run.
    """

    left: dict[str, Any] | None
    right: dict[str, Any] | None

    def __str__(self) -> str:
        return "\n".join(f"{mark} {_told(record)}" for mark, record in (("-", self.left), ("+", self.right)) if record)


@dataclass(frozen=True)
class RunDiff:
    """The differences of two runs, record by record, without numbers and times.

    Attributes:
        same: The number of equal records at the beginning.
        differences: The differences, in order.
    """

    same: int
    differences: list[Difference] = field(default_factory=list[Difference])

    @property
    def first(self) -> Difference | None:
        """The first difference."""
        return self.differences[0] if self.differences else None

    def __str__(self) -> str:
        head = f"the first {self.same} records are the same"
        return "\n".join([head, *map(str, self.differences)]) if self.differences else "the runs are the same"


_PASSING = frozenset({"calls", "id", "seq", "item", "origins", "commit", "at", "began", "releases", "published"})


def _essence(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without numbers and times, which differ between runs."""
    kept = {name: value for name, value in record.items() if name not in _PASSING}
    if "streamed" in kept:
        kept["streamed"] = [event for _, event, *_ in kept["streamed"]]
    if "collects" in kept:
        kept["collects"] = [(buffer, event, found is not None) for _, buffer, event, found in kept["collects"]]
    if kept.get("child"):
        kept["child"] = kept["child"]["name"]
    if record["kind"] == "segment" and record["outcome"][0] == "failed":
        told = record["outcome"][1]
        kept["outcome"] = ["failed", told["exception_type"], told["exception_message"]]
    if record["kind"] == "segment" and record["outcome"][0] == "waiting":
        waiter = record["outcome"][1]
        kept["outcome"] = ["waiting", waiter["waiting_for_event"], waiter["requirements"], waiter["question"]]
    return kept


def _told(record: dict[str, Any]) -> str:
    where = f"{record['path']}/{record.get('step', '')}".strip("/") or record["kind"]
    return f"commit {record['commit']}, {where}: {as_json(_essence(record)).decode()[:400]}"


def compare(left: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]]) -> RunDiff:
    """Return the differences between the records of two runs."""
    # The order of keys does not matter, and is another one in records of earlier versions.
    one, other = ([json.dumps(_essence(one), sort_keys=True) for one in records] for records in (left, right))
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    differences: list[Difference] = []
    matcher = difflib.SequenceMatcher(None, one[same:], other[same:], autojunk=False)
    for tag, begin, end, first, last in matcher.get_opcodes():
        if tag == "equal":
            continue
        lefts, rights = list(left[same + begin : same + end]), list(right[same + first : same + last])
        differences += [Difference(*pair) for pair in zip_longest(lefts, rights)]
    return RunDiff(same, differences)
