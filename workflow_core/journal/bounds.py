"""What names and records a store takes; the same for every store."""

import re
from collections.abc import Sequence
from typing import Any, get_args

from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.journal.store import NewRun, RunCommit, RunStatus

__all__ = [
    "MAX_RECORD",
    "check_age",
    "check_commit",
    "check_fork",
    "check_new_run",
    "check_owner",
    "check_payload",
    "check_run_id",
    "check_statuses",
]

MAX_RECORD = 64 * 1024 * 1024
"""Bytes that one commit, snapshot, result or inbox item may have at most."""

_RUN_ID = re.compile(r"[A-Za-z0-9_.:/-]{1,200}").fullmatch
_OWNER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}").fullmatch
_MAX_TEXT = 1000


def check_run_id(run_id: str) -> str:
    """The run id itself.

    Raises:
        StoreError: It is none.
    """
    if not _RUN_ID(run_id):
        raise StoreError(
            f"{run_id!r} is no run id: use 1 to 200 characters, each a letter or digit of ASCII or one of _ . : / -"
        )
    return run_id


def check_statuses(status: RunStatus | Sequence[RunStatus] | None) -> Sequence[RunStatus] | None:
    """The statuses that runs are asked for by, None for any.

    Raises:
        StoreError: One of them is none.
    """
    if status is None:
        return None
    statuses: Sequence[RunStatus] = [status] if isinstance(status, str) else list(status)
    for one in statuses:
        if one not in get_args(RunStatus):
            raise StoreError(f"No run has the status {one!r}: there are {', '.join(get_args(RunStatus))}")
    return statuses


def check_owner(owner: str) -> str:
    """The owner's name itself.

    Raises:
        StoreError: It is none.
    """
    if not _OWNER(owner):
        raise StoreError(
            f"{owner!r} is no name of an owner: use store.owner, or up to 100 ASCII letters, digits, _ . - and no dot "
            "at the beginning"
        )
    return owner


def check_new_run(run: NewRun) -> None:
    """Refuse a run whose names cannot be kept.

    Raises:
        StoreError: Names what is wrong with which.
    """
    check_run_id(run.run_id)
    for name, text in (
        ("workflow", run.workflow),
        ("digest", run.digest),
        ("version", run.version or ""),
        ("shape", run.shape),
    ):
        _check_text(f"The {name} of run {run.run_id!r}", text)
    if run.first is not None:
        _check_size(f"The beginning of run {run.run_id!r}", run.first)


def check_payload(run_id: str, key: str, payload: bytes) -> None:
    """Refuse an inbox item that cannot be kept.

    Raises:
        StoreError: Names what is wrong.
    """
    check_run_id(run_id)
    _check_text(f"The key of an event for run {run_id!r}", key)
    _check_size(f"The event {key!r} for run {run_id!r}", payload)


def check_commit(entry: RunCommit) -> None:
    """Refuse commits that are too large.

    Raises:
        StoreError: Names the run, what is too large, and the bound.
    """
    for body in entry.commits:
        if len(body) > MAX_RECORD:
            number = entry.expected_seq + 1 + next(i for i, each in enumerate(entry.commits) if each is body)
            _check_size(f"Commit {number} of run {entry.run_id!r}", body)
    if entry.snapshot is not None:
        _check_size(f"The snapshot of run {entry.run_id!r}", entry.snapshot)
    if entry.result is not None:
        _check_size(f"The result of run {entry.run_id!r}", entry.result)


def check_age(seconds: float) -> float:
    """The age from which on ended runs are deleted.

    Raises:
        ValueError: It is no number of seconds from 0 on.
    """
    given: Any = seconds
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise ValueError(f"seconds is how long ago a run has ended at least, from 0 on, not {seconds!r}")
    return seconds


def check_fork(run_id: str, at: int, commits: Sequence[bytes]) -> None:
    """Refuse a branch whose name or own commits cannot be kept.

    Raises:
        StoreError: Names what is wrong.
    """
    check_run_id(run_id)
    for number, body in enumerate(commits, at + 1):
        _check_size(f"Commit {number} of run {run_id!r}", body)


def _check_size(what: str, data: bytes) -> None:
    if len(data) > MAX_RECORD:
        raise StoreError(
            f"{what} has {len(data):,} bytes, more than the {MAX_RECORD:,} that a store keeps in one piece: keep large "
            "data elsewhere and pass on where it is"
        )


def _check_text(what: str, text: str) -> None:
    if len(text) > _MAX_TEXT:
        raise StoreError(f"{what} has {len(text):,} characters, more than {_MAX_TEXT:,}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise StoreError(f"{what} is no valid text: {text[:100]!r}") from None
