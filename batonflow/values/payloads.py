"""Conversion of earlier snapshot formats to the current one."""

from typing import Any, cast

from pydantic_core import from_json

__all__ = ["CURRENT_VERSION", "NotASnapshotError", "entries", "mapping", "upgrade"]

CURRENT_VERSION = 2


class NotASnapshotError(ValueError):
    """A payload is not a snapshot, or its version is newer."""


def entries(data: dict[str, Any], key: str) -> list[Any]:
    """Return the list under a key of a payload; empty if it is absent or null."""
    return data.get(key) or []


def mapping(data: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the dict under a key of a payload; empty if it is absent or null."""
    return data.get(key) or {}


def upgrade(payload: Any) -> dict[str, Any]:
    """Return a snapshot of any known version as version 2.

    Raises:
        NotASnapshotError: It is not a snapshot, or its version is newer.
    """
    if not isinstance(payload, dict):
        raise NotASnapshotError(
            f"Context dict specified in an invalid format: a snapshot is a dict, not {type(payload).__name__}"
        )
    data = cast("dict[str, Any]", payload)
    version = data.get("version", 0)
    if isinstance(version, bool) or not isinstance(version, int):
        raise NotASnapshotError(f"Context dict specified in an invalid format: version {version!r} is not a number")
    if version > CURRENT_VERSION:
        raise NotASnapshotError(
            f"Context dict specified in an invalid format: it has version {version}, this library reads up to "
            f"{CURRENT_VERSION}; "
            "it was probably written by a newer version"
        )
    if not data or (version and "workers" not in data and "state" in data):
        nothing: dict[str, Any] = {}
        return {**data, "version": CURRENT_VERSION, "workers": nothing}
    if version == CURRENT_VERSION:
        _check_shape(data)
        return data
    return _from_v1(data) if version == 1 else _from_v0(data)


def _check_shape(data: dict[str, Any]) -> None:
    workers = data.get("workers")
    if not isinstance(workers, dict) or not all(isinstance(worker, dict) for worker in cast("Any", workers).values()):
        raise NotASnapshotError(
            "Context dict specified in an invalid format: it has no 'workers', so it is not a snapshot of a run"
        )


def _attempt(entry: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", entry) if isinstance(entry, dict) else {"event": entry, "attempts": 0}


def _from_v1(data: dict[str, Any]) -> dict[str, Any]:
    """Version 1: executions were bare events, and requirements of waiters could not be read back."""
    _check_shape(data)
    workers: dict[str, Any] = {}
    for name, worker in data["workers"].items():
        waiters: list[dict[str, Any]] = []
        for entry in entries(worker, "collected_waiters"):
            waiter = {key: value for key, value in entry.items() if key != "requirements"}
            waiter["has_requirements"] = bool(entry.get("requirements") or entry.get("has_requirements"))
            waiters.append(waiter)
        workers[name] = {
            **worker,
            "queue": [_attempt(entry) for entry in entries(worker, "queue")],
            "in_progress": [_attempt(entry) for entry in entries(worker, "in_progress")],
            "collected_waiters": waiters,
        }
    return {**data, "version": CURRENT_VERSION, "workers": workers}


def _from_v0(data: dict[str, Any]) -> dict[str, Any]:
    """Version 0: queues were JSON texts, executions came before queued events, buffers were keyed by event type."""
    if not {"queues", "in_progress", "event_buffers", "is_running", "state"} & set(data):
        raise NotASnapshotError("Context dict specified in an invalid format: it has no key of a snapshot")
    waiting = set(data.get("waiting_ids") or [])
    queues: dict[str, str] = data.get("queues") or {}
    in_progress: dict[str, list[str]] = data.get("in_progress") or {}
    buffers: dict[str, dict[str, list[str]]] = data.get("event_buffers") or {}
    workers: dict[str, Any] = {}
    for name in [*in_progress, *queues, *buffers]:
        if name in waiting:
            continue
        queued = from_json(queues.get(name) or "[]")
        collected = [event for events in buffers.get(name, {}).values() for event in events]
        workers[name] = {
            "queue": [_attempt(event) for event in [*(in_progress.get(name) or []), *queued]],
            "in_progress": [],
            "collected_events": {"default": collected} if collected else {},
            "collected_waiters": [],
        }
    return {
        "version": CURRENT_VERSION,
        "state": data.get("state") or {},
        "is_running": bool(data.get("is_running")),
        "workers": workers,
    }
