"""The trace context of a run in its commits and snapshots. The trace of a resumption finds the earlier one.

They contain it only if tracing is enabled.
"""

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from batonflow.durable.parts.references import has_references
from batonflow.durable.store_protocol import StoredCommit
from batonflow.values.serializers import read_json

__all__ = ["ABANDONED", "trace_in", "with_trace"]

ABANDONED = "abandoned"
"""Key of a process's last sign of life, beside its trace. It is set if the process ended without a word."""

_MARK = b'{"o":'


def with_trace(body: bytes, trace: dict[str, Any]) -> bytes:
    """Return the body of a commit with the trace context of the run; readers of records skip it."""
    return b"%b%b,%b" % (_MARK, to_json(trace, fallback=repr), body[1:])


def trace_in(commits: Sequence[StoredCommit], snapshot: bytes | None = None) -> dict[str, Any] | None:
    """Return the last trace context in commits, or that of the snapshot before them."""
    for commit in reversed(commits):
        if commit.body.startswith(_MARK) or has_references(commit.body):
            found: dict[str, Any] | None = read_json(commit.body).get("o")
            if found is not None:
                return found
    return None if snapshot is None or b'"trace":' not in snapshot else read_json(snapshot).get("trace")
