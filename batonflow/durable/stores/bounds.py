"""Bounds of names, numbers and records for all stores."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Literal, cast, get_args

from batonflow.durable.search_protocol import RunQuery
from batonflow.durable.store_protocol import NewRun, RunCommit, RunStatus
from batonflow.values.types import is_seconds, is_whole
from batonflow.workflow_core.errors import StoreError

__all__ = [
    "MAX_RECORD",
    "check_age",
    "check_commit",
    "check_commit_number",
    "check_durability",
    "check_file_options",
    "check_fork",
    "check_lease",
    "check_limit",
    "check_listing",
    "check_metadata",
    "check_new_run",
    "check_owner",
    "check_path",
    "check_payload",
    "check_query",
    "check_run_id",
    "check_session_name",
    "driven",
    "in_session",
    "no_run_after",
]

MAX_RECORD = 64 * 1024 * 1024
"""Bytes that one commit, snapshot, result or inbox item may have at most."""

_RUN_ID = re.compile(r"[A-Za-z0-9_.:/-]{1,200}").fullmatch
_SESSION = re.compile(r"[A-Za-z0-9_.:/-]{1,180}").fullmatch
_OWNER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}").fullmatch
_MAX_TEXT = 1000
_LARGEST_NUMBER = 2**62
_LARGEST_PRIORITY = 1000


def check_run_id(run_id: str) -> str:
    """Return the run id.

    Raises:
        StoreError: The value is not a run id.
    """
    try:
        matched = _RUN_ID(run_id)
    except TypeError:  # not a text; this costs nothing for texts
        matched = None
    if not matched:
        raise StoreError(
            f"{run_id!r} is not a run id: use 1 to 200 characters, each a letter or digit of ASCII or one of _ . : / -"
        )
    return run_id


def driven(run_id: str, owner: str | None) -> StoreError:
    """Return the error for the deletion of a run with a live owner."""
    return StoreError(
        f"Run {run_id!r} is being driven by {owner}: cancel it and wait for its end, or delete it with force=True, "
        "after which nothing more of it is recorded"
    )


def in_session(run_id: str) -> StoreError:
    """Return the error for the deletion of a conversation that a session keeps."""
    name = run_id.rpartition(":")[0]
    return StoreError(
        f"Run {run_id!r} is a turn of session {name!r}, which keeps what was said: delete the session with "
        f"await agent.session({name!r}).delete()"
    )


def check_session_name(name: Any) -> str:
    """Return the name of a session.

    Raises:
        StoreError: The value is not the name of a session.
    """
    if not isinstance(name, str) or not _SESSION(name):
        raise StoreError(
            f"{name!r} is not the name of a session: use 1 to 180 characters, each a letter or digit of ASCII or one "
            "of _ . : / -"
        )
    return name


def check_metadata(metadata: Any) -> Mapping[str, str] | None:
    """Return the metadata of a run; None without any.

    Raises:
        StoreError: The value is not a dict of texts.
    """
    if metadata is None:
        return None
    given: dict[Any, Any] = dict(cast("Mapping[Any, Any]", metadata)) if isinstance(metadata, Mapping) else {0: 0}
    texts = [one for pair in given.items() for one in pair]
    if not all(isinstance(one, str) for one in texts):
        raise StoreError(f'metadata is a dict of texts such as {{"user": "ann"}}, not {metadata!r}')
    for text in texts:
        _check_text("The metadata of a run", text)
    return given or None


def check_listing(
    status: RunStatus | Sequence[RunStatus] | None, workflow: str | None, after: str | None, limit: int
) -> Sequence[RunStatus] | None:
    """Check the filters of a listing, and return the statuses; None for all.

    Raises:
        StoreError: A filter is not valid; the message names it.
    """
    check_limit(limit)
    if after is not None:
        check_run_id(after)
    name: Any = workflow
    if name is not None and not isinstance(name, str):
        raise StoreError(f"workflow={name!r}: give the name of a workflow, or None for all")
    if name is not None:
        _check_text("workflow", name)
    return _statuses(status)


def no_run_after(after: str) -> StoreError:
    """Return the error for a listing behind a run that is gone."""
    return StoreError(f"Run {after!r}, to list those behind it, is not there any more: begin anew")


def check_query(query: RunQuery, after: str | None, limit: int) -> RunQuery:
    """Check a search, and return its query with a sequence of statuses.

    Raises:
        StoreError: A condition is not valid; the message names it.
    """
    for name in ("text", "model", "error"):
        text: Any = getattr(query, name)
        if not isinstance(text, str):
            raise StoreError(f"{name}={text!r}: give a text, or an empty one for all runs")
        _check_text(name, text)
    for name in ("since", "until", "min_cost", "max_cost"):
        value: Any = getattr(query, name)
        if value is not None and not (isinstance(value, int | float) and abs(value) < _LARGEST_NUMBER):
            raise StoreError(f"{name}={value!r}: give a number, or None for all runs")
    statuses = check_listing(query.status, query.workflow, after, limit)
    return replace(query, status=statuses, metadata=check_metadata(query.metadata) or {})


def _statuses(status: Any) -> Sequence[RunStatus] | None:
    if status is None:
        return None
    statuses: list[Any] = [status] if isinstance(status, str) or not isinstance(status, Iterable) else [*status]
    for one in statuses:
        if one not in get_args(RunStatus):
            raise StoreError(f"No run has the status {one!r}: there are {', '.join(get_args(RunStatus))}")
    return statuses


def check_limit(limit: int) -> int:
    """Check the limit of a listing.

    Raises:
        StoreError: The limit is not a whole number of at least 0.
    """
    if not is_whole(limit):
        raise StoreError(f"limit={limit!r}: give a whole number, 0 or more")
    return limit


def check_commit_number(at: int | None) -> None:
    """Refuse a value that cannot be the number of a commit; None means the last commit.

    Raises:
        StoreError: The value is not a whole number.
    """
    number: Any = at
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise StoreError(f"at={number!r}: give the number of a commit, or leave it out")


def check_path(path: str | PathLike[str]) -> str:
    """Return the path of a database as text.

    Raises:
        StoreError: The path cannot be that of a file.
    """
    given: Any = path
    text: Any = os.fspath(path) if isinstance(given, str | PathLike) else None
    if not isinstance(text, str):
        raise StoreError(f"path={given!r}: give the path of a file, as text or as a Path")
    if text in {"", ":memory:"}:
        raise StoreError(f'{text!r} is not the path of a file: store="memory:" keeps runs in this process only')
    if "\0" in text:
        raise StoreError(f"{text!r} is not the path of a file: take the NUL character out")
    return text


def check_lease(lease_seconds: float) -> float:
    """Check the seconds of a lease.

    Raises:
        StoreError: The value is not a number of seconds above 0.
    """
    if not is_seconds(lease_seconds) or lease_seconds == 0:
        raise StoreError(f"lease_seconds={lease_seconds!r}: give a number of seconds above 0")
    return lease_seconds


def check_durability(durability: Literal["process", "power"]) -> None:
    """Refuse an unknown durability.

    Raises:
        StoreError: The value is not a durability.
    """
    if durability not in ("process", "power"):
        raise StoreError(f'durability={durability!r}: choose "process" or "power"')


def check_file_options(durability: Literal["process", "power"], busy_seconds: float, max_bytes: int | None) -> None:
    """Refuse invalid options of a database.

    Raises:
        StoreError: An option is not valid; the message names it.
    """
    check_durability(durability)
    if not is_seconds(busy_seconds):
        raise StoreError(f"busy_seconds={busy_seconds!r}: give a number of seconds, 0 or more")
    if max_bytes is not None and not is_whole(max_bytes, least=1):
        raise StoreError(f"max_bytes={max_bytes!r}: give a whole number of bytes above 0, or None for no bound")


def check_owner(owner: str) -> str:
    """Return the owner's name.

    Raises:
        StoreError: The value is not the name of an owner.
    """
    if not _OWNER(owner):
        raise StoreError(
            f"{owner!r} is not an owner: use store.owner, or up to 100 ASCII letters, digits, _ . - and no dot "
            "at the beginning"
        )
    return owner


def check_new_run(run: NewRun) -> None:
    """Refuse a run with names that cannot be stored.

    Raises:
        StoreError: A name cannot be stored; the message names the reason.
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
    _check_parts(run.run_id, run.parts)
    check_metadata(run.metadata)
    _check_place(run.queue, run.priority, run.not_before)


def _check_place(queue: Any, priority: Any, not_before: Any) -> None:
    """Refuse a wrong place of a run among the ready ones."""
    if not (isinstance(queue, str) and _OWNER(queue)):
        raise StoreError(
            f"queue={queue!r}: give a name of up to 100 ASCII letters, digits, _ . - and no dot at the start"
        )
    if not (is_whole(priority, least=-_LARGEST_PRIORITY) and priority <= _LARGEST_PRIORITY):
        raise StoreError(f"priority={priority!r}: give a whole number from -{_LARGEST_PRIORITY} to {_LARGEST_PRIORITY}")
    if not_before is not None and not is_seconds(not_before):
        raise StoreError(f"not_before={not_before!r}: give a time in wall-clock seconds, or None for now")


def check_payload(run_id: str, key: str, payload: bytes) -> None:
    """Refuse an inbox item that cannot be stored.

    Raises:
        StoreError: A value is not valid; the message names it.
    """
    check_run_id(run_id)
    _check_text(f"The key of an event for run {run_id!r}", key)
    _check_size(f"The event {key!r} for run {run_id!r}", payload)


def check_commit(entry: RunCommit) -> None:
    """Refuse commits that are too large.

    Raises:
        StoreError: A commit is too large; the message names the run and the bound.
    """
    for body in entry.commits:
        if len(body) > MAX_RECORD:
            number = entry.expected_seq + 1 + next(i for i, each in enumerate(entry.commits) if each is body)
            _check_size(f"Commit {number} of run {entry.run_id!r}", body)
    _check_parts(entry.run_id, entry.parts)
    if entry.snapshot is not None:
        _check_size(f"The snapshot of run {entry.run_id!r}", entry.snapshot)
    if entry.turn is not None:
        _check_size(f"The turn of run {entry.run_id!r}", entry.turn)
    if entry.result is not None:
        _check_size(f"The result of run {entry.run_id!r}", entry.result)


def _check_parts(run_id: str, parts: Sequence[bytes]) -> None:
    for body in parts:
        if len(body) > MAX_RECORD:
            _check_size(f"A message or text of run {run_id!r}", body)


def check_age(seconds: float) -> float:
    """Check the age from which ended runs are deleted.

    Raises:
        ValueError: The value is not a number of seconds of at least 0.
    """
    if not is_seconds(seconds):
        raise ValueError(f"seconds is how long ago a run has ended at least, from 0 on, not {seconds!r}")
    return seconds


def check_fork(run_id: str, at: int, commits: Sequence[bytes]) -> None:
    """Refuse a fork with a name or commits that cannot be stored.

    Raises:
        StoreError: A value is not valid; the message names it.
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
        raise StoreError(f"{what} is not valid text: {text[:100]!r}") from None
