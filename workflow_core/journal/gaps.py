"""Gaps in what a store has of a stream: steps that go on at once stream in turns, and each is written when it is done.

A commit with streamed events says where the first event has its place that is not written yet, if there is one. What
stands behind that place is not in order before a later commit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from batonflow.workflow_core.context.serializers import read_json
from batonflow.workflow_core.journal.store import StoredCommit

__all__ = ["NO_GAP", "gap_after", "with_gap"]

NO_GAP = 2**53
"""A place behind all others."""


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
