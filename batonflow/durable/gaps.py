"""Gaps in stored streams: parallel steps stream alternately, but each step is recorded at its end.

A commit with streamed events contains the place of the first unwritten event, if there is one. Events after that
place are complete only with a later commit. The first commit after a takeover contains the range of
events that were lost with the earlier process.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batonflow.durable.store_protocol import StoredCommit
from batonflow.values.serializers import read_json
from batonflow.workflow_core.events import StreamResetEvent
from batonflow.workflow_core.run import Run

__all__ = ["NO_GAP", "Reset", "gap_after", "last_reset", "note_reset", "reset_in", "with_gap", "with_reset"]

NO_GAP = 2**53
"""A place behind all others."""


class Reset(NamedTuple):
    """The place in the stream where a run continued after a takeover.

    Attributes:
        seq: The place in the stream.
        ts: The time, in wall-clock seconds.
        lost_from: The first lost place.
        lost_to: The end of the lost places.
    """

    seq: int
    ts: float
    lost_from: int
    lost_to: int

    def event(self) -> StreamResetEvent:
        """Return the event that reports the gap to readers."""
        return StreamResetEvent(lost_from=self.lost_from, lost_to=self.lost_to)


def note_reset(run: Run, lost_from: int) -> Reset:
    """Report the lost events to the readers of a resumed run, up to this place."""
    reset = Reset(run.stream.seq, run.now(), lost_from, run.stream.seq - 1)
    run.publish(reset.event(), "", 0)
    return reset


def with_reset(body: bytes, reset: Reset) -> bytes:
    """Add the gap before a commit to its body; readers of records skip it."""
    return b'{"l":[%d,%.6f,%d,%d],%b' % (*reset, body[1:])


def reset_in(commit: StoredCommit) -> Reset | None:
    """Return the gap in a commit; None without one."""
    found = read_json(commit.body).get("l")
    return None if found is None else Reset(*found)


def last_reset(commits: Sequence[StoredCommit]) -> int:
    """Return the place of the last reset in commits; -1 without one."""
    return max((reset.seq for reset in map(reset_in, commits) if reset is not None), default=-1)


def with_gap(body: bytes, place: int | None) -> bytes:
    """Return the body of a commit with the place of the first missing event. Readers of records skip it."""
    return body if place is None else b'{"s":%d,%b' % (place, body[1:])


def gap_after(commits: Sequence[StoredCommit], before: int = NO_GAP) -> int:
    """Return the first place at which an event may be missing after commits.

    Args:
        commits: The commits, in order.
        before: The place before these commits, which is the result if they have no streamed events.
    """
    for commit in reversed(commits):
        body = read_json(commit.body)
        if "s" in body:
            return int(body["s"])
        if any(_is_streamed(record) for record in body["r"]):
            return NO_GAP
    return before


def _is_streamed(record: Mapping[str, Any]) -> bool:
    return "streamed" in record or "published" in record or (record["kind"] == "ended" and not record["path"])
