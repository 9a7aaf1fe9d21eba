"""Gaps in stored streams: parallel steps stream in turns, and each step is written when it ends.

A commit with streamed events says where the first event has its place that is not written yet, if there is one. What
stands behind that place is not in order before a later commit. The first commit of whoever takes up a run says which
events were lost with the process before.
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
    """The place where a run went on after its takeover.

    Attributes:
        seq: Its place in the stream.
        ts: When that was, in wall-clock seconds.
        lost_from: What was streamed from here on was lost,
        lost_to: up to here.
    """

    seq: int
    ts: float
    lost_from: int
    lost_to: int

    def event(self) -> StreamResetEvent:
        """Return the event that reports the gap to readers."""
        return StreamResetEvent(lost_from=self.lost_from, lost_to=self.lost_to)


def note_reset(run: Run, lost_from: int) -> Reset:
    """Report to the readers of a run that was taken up which streamed events are lost, up to this place."""
    reset = Reset(run.stream.seq, run.now(), lost_from, run.stream.seq - 1)
    run.publish(reset.event(), "", 0)
    return reset


def with_reset(body: bytes, reset: Reset) -> bytes:
    """Add the gap before a commit to its body; readers pass over it."""
    return b'{"l":[%d,%.6f,%d,%d],%b' % (*reset, body[1:])


def reset_in(commit: StoredCommit) -> Reset | None:
    """Return the gap that a commit reports, None without one."""
    found = read_json(commit.body).get("l")
    return None if found is None else Reset(*found)


def last_reset(commits: Sequence[StoredCommit]) -> int:
    """The place of the last reset in some commits; -1 without one."""
    return max((reset.seq for reset in map(reset_in, commits) if reset is not None), default=-1)


def with_gap(body: bytes, place: int | None) -> bytes:
    """A commit's body that also says where something streamed is missing; its readers pass over that."""
    return body if place is None else b'{"s":%d,%b' % (place, body[1:])


def gap_after(commits: Sequence[StoredCommit], before: int = NO_GAP) -> int:
    """The first place at which an event may be missing after some commits.

    Args:
        commits: The commits, in order.
        before: The place before them; it stays where they have nothing of the stream.
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
