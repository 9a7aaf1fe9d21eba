"""The trace of a run as plain data for pages and terminals: one entry per record, in order.

It does not need the user's code: classes are names, and values are JSON. A reader of an unfinished run asks for the
entries after its last commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import from_json, to_json

from batonflow.durable.replay import records_of
from batonflow.instrumentation.redaction import redacted
from batonflow.values.serializers import IS_DATA, is_marked

if TYPE_CHECKING:
    from batonflow.durable.store_protocol import RunInfo, StoredCommit

__all__ = ["LARGEST_BLOCK", "PREVIEW", "plain_event", "plain_value", "run_told", "trace_of"]

PREVIEW = 300
"""Characters of a value that is too large to be shown whole."""

LARGEST_BLOCK = 1024 * 1024
"""Bytes of JSON of a block of a shared message; larger blocks are cut."""

DEPTH = 3
FIELDS = 64

_ENTRY = ("id", "kind", "path", "step", "item", "attempt", "began", "commit", "at", "target", "key")


def trace_of(
    commits: Sequence["StoredCommit"], *, largest: int | None = None, parts: list[Any] | None = None
) -> list[dict[str, Any]]:
    """Return the entries of a run's commits.

    Each entry has ``id``, ``kind``, ``path`` (of the workflow in the tree), ``commit`` and ``at`` (its time in
    wall-clock seconds). Entries of steps have ``step``, ``item`` (the number of the delivery), ``attempt`` and
    ``began``. All may have ``causes`` (pairs of an entry and the number of the event in it), ``events``, ``writes``
    (path, value, and whether it was deleted), ``calls`` (of models, see ``llms.ModelCall``) and ``outcome``. Likely
    secrets are replaced.

    An event has ``number``, ``how`` (its kind: ``"came"``, ``"returned"``, ``"sent"``, ``"streamed"`` or
    ``"asked"``), ``type``, ``qualified_name`` and ``value``; streamed events also ``seq``, ``last_seq`` and ``ts``.

    Args:
        commits: The commits of a run, in order.
        largest: The bytes of JSON from which a part of a value becomes ``{"$large": bytes, "preview": text}``.
        parts: A list that receives each message and each tool of the calls once. The calls then hold their indexes, so
            that a conversation is written once. A block of a message has at most ``LARGEST_BLOCK`` bytes.

    Example:
        >>> trace_of(await store.read("tides-1"))
    """
    teller = _Teller(largest, None if parts is None else _Parts(parts))
    return [teller.entry(record) for record in records_of(commits)]


def run_told(info: "RunInfo", kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a run for files and HTTP. Times are in ISO 8601.

    Args:
        info: The listing of the run.
        kind: The class name of its last event; empty for an unfinished run.
        value: The fields of that event as data.
    """
    error, error_type = _error_in(kind, value) if info.status == "failed" else (None, None)
    return {
        "handler_id": info.run_id,
        "workflow_name": info.workflow,
        "run_id": info.run_id,
        "status": info.status if info.is_over else "running",
        "started_at": _iso(info.created_at),
        "updated_at": _iso(info.updated_at),
        "completed_at": _iso(info.updated_at) if info.is_over else None,
        "commits": info.seq,
        "forked_from": info.forked_from,
        "error": error,
        "error_type": error_type,
        **_usage_in(value),
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _error_in(kind: str, value: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the text and the class of the error in the last event of a run."""
    if kind == "WorkflowTimedOutEvent":
        return f"Operation timed out after {value.get('timeout')} seconds", "WorkflowTimeoutError"
    error: Any = value.get("exception")
    if kind != "WorkflowFailedEvent" or not isinstance(error, Mapping):
        return None, None
    told = cast("Mapping[str, Any]", error)
    name = str(told.get("exception_type") or "").rpartition(".")[2]
    return str(told.get("exception_message") or ""), name or None


def _usage_in(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usage of models in an event; None without it."""
    for place in (value, value.get("result")):
        usage: Any = cast("Mapping[str, Any]", place).get("usage") if isinstance(place, Mapping) else None
        if isinstance(usage, Mapping) and "input_tokens" in usage:
            known = cast("Mapping[str, Any]", usage)
            read, written = (known.get(name) or 0 for name in ("input_tokens", "output_tokens"))
            if isinstance(read, int) and isinstance(written, int):
                return {"cost": known.get("cost"), "tokens": {"input": read, "output": written}}
    return {"cost": None, "tokens": None}


class _Parts:
    """The messages and tools of calls, each once."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts
        self._known: dict[bytes, int] = {}
        self._teller = _Teller(LARGEST_BLOCK)

    def indexes(self, items: Sequence[Any]) -> list[int]:
        """Return the indexes of messages or tools, and add the unknown ones."""
        return list(map(self._index, items))

    def _index(self, item: Any) -> int:
        text = to_json(item, inf_nan_mode="constants")
        if text not in self._known:
            self._known[text] = len(self._parts)
            self._parts.append(self._teller.message(item))
        return self._known[text]


class _Teller:
    def __init__(self, largest: int | None, parts: _Parts | None = None) -> None:
        self._largest = largest
        self._parts = parts

    def entry(self, record: dict[str, Any]) -> dict[str, Any]:
        entry: dict[str, Any] = {name: record[name] for name in _ENTRY if name in record}
        if record.get("origins"):
            entry["causes"] = record["origins"]
        if record.get("calls"):
            entry["calls"] = list(map(self._call, record["calls"]))
        if record.get("child"):
            entry["child"] = record["child"]["name"]
        if events := list(self._events(record)):
            entry["events"] = events
        written = [*record.get("state", ()), *([path, value] for _, path, value in record.get("writes", ()))]
        if written:
            entry["writes"] = [
                {"path": path, "deleted": True}
                if value is None
                else {"path": path, "value": self._written(path, value)}
                for path, value in written
            ]
        if "outcome" in record:
            entry["outcome"] = self._outcome(*record["outcome"])
        return entry

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        """Return a call of a model with its messages as plain data.

        The parts that a call refers to are those of the conversation, which the agent needs with its secrets.
        """
        said = {name: plain_value(call[name]) for name in ("messages", "tool_specs", "answer") if name in call}
        if self._parts is not None:
            return {**call, **{name: self._parts.indexes(items) for name, items in said.items()}}
        shown = {name: self._small(items) for name, items in said.items()}
        if "answer" in said:
            shown["answer"] = self._small(said["answer"][0])
        return {**call, **shown}

    def message(self, message: Any) -> Any:
        """Return a message or a tool without secrets; its blocks are cut one by one."""
        shown = cast("dict[str, Any]", redacted(message))
        if isinstance(blocks := shown.get("blocks"), list):
            return {**shown, "blocks": [self._cut(block, DEPTH) for block in cast("list[Any]", blocks)]}
        return self._cut(shown, DEPTH)

    def _events(self, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if record.get("event") is not None:
            yield self._event(record["event"], "came", 0)
        for number, event, target in record.get("sends", ()):
            yield self._event(event, "sent", number) | ({"target": target} if target else {})
        for number, event, seq, ts, *last in record.get("streamed", ()):
            if event is not None:
                yield self._event(event, "streamed", number) | {"seq": seq, "last_seq": (last or [seq])[0], "ts": ts}
        kind, *details = record.get("outcome", ("",))
        if kind == "returned" and details:
            # Returned questions to people are also streamed.
            returned, places = details[0], record.get("published", ())
            for index, event in enumerate(returned):
                told = self._event(event, "returned", -1 - index)
                if len(places) == len(returned):
                    seq, ts = places[index]
                    told |= {"seq": seq, "last_seq": seq, "ts": ts}
                yield told
        if kind == "waiting" and details[0].get("question") is not None:
            yield self._event(details[0]["question"], "asked", None)

    def _outcome(self, kind: str, *details: Any) -> dict[str, Any]:
        if kind == "failed":
            error, *verdict = details
            told = {
                "error": error.get("exception_type", ""),
                "message": error.get("exception_message", ""),
                "traceback": error.get("traceback", ""),
            }
            return {"kind": kind, **told, "then": self._small(verdict[0]) if verdict else None}
        if kind == "waiting":
            waiter = details[0]
            return {
                "kind": kind,
                "key": waiter["key"],
                "awaits": waiter["waiting_for_event"],
                "requirements": None if waiter["requirements"] is None else self._value(waiter["requirements"]),
                "due": waiter["due"],
            }
        if kind == "once":
            key, value = details[0]
            return {"kind": kind, "key": key, "value": self._value(value)}
        if kind == "intent":
            return {"kind": kind, "key": details[0][0], "about": self._small(details[0][1]["about"])}
        return {"kind": kind}

    def _event(self, event: Any, how: str, number: Any) -> dict[str, Any]:
        name, value = plain_event(event)
        return {
            "number": number,
            "how": how,
            "type": name.rpartition(".")[2],
            "qualified_name": name,
            "value": self._small(value),
        }

    def _value(self, value: Any) -> Any:
        return self._small(plain_value(value))

    def _written(self, path: str, value: Any) -> Any:
        """Return a value of the state; its path may mark it as a secret."""
        names = path.split(".")
        placed = plain_value(value)
        for name in reversed(names):
            placed = {name: placed}
        shown = redacted(placed)
        for name in names:
            shown = cast("dict[str, Any]", shown)[name]
            if not isinstance(shown, dict):
                break
        return self._cut(shown, DEPTH)

    def _small(self, value: Any) -> Any:
        """Return a value without secrets and without large parts."""
        return self._cut(redacted(value), DEPTH)

    def _cut(self, value: Any, depth: int) -> Any:
        if self._largest is None or isinstance(value, int | float | None):
            return value
        text = to_json(value, inf_nan_mode="constants")
        if len(text) <= self._largest:
            return value
        if isinstance(value, dict) and depth and len(cast("dict[str, Any]", value)) <= FIELDS:
            # Most large values have one large field, and the other fields describe it.
            return {name: self._cut(part, depth - 1) for name, part in cast("dict[str, Any]", value).items()}
        return {"$large": len(text), "preview": text[: 4 * PREVIEW].decode(errors="ignore")[:PREVIEW]}


def plain_event(data: Any) -> tuple[str, Any]:
    """Return the class name and the known fields of a recorded event. Its class need not be importable."""
    return _marked(data) if isinstance(data, str) else (data[0], _plain(data[1]))


def plain_value(data: Any) -> Any:
    """Return a recorded value of the state, without its class."""
    return _marked(data)[1] if isinstance(data, str) else _plain(data[-1])


def _marked(text: str) -> tuple[str, Any]:
    """Describe a value from a serializer other than JSON by its class, if known, and the value."""
    try:
        data = from_json(text)
    except ValueError:
        return "", text
    if isinstance(data, dict) and "qualified_name" in data:
        return str(cast("dict[str, Any]", data)["qualified_name"]), _plain(data)
    return "", _plain(data)


def _plain(value: Any) -> Any:
    """Return a value without the marks of classes."""
    if isinstance(value, Mapping):
        mapping = cast("dict[str, Any]", value)
        if is_marked(mapping):
            if mapping.get(IS_DATA) is not True:
                return _plain(mapping["value"])
            mapping = mapping["value"]
        return {name: _plain(part) for name, part in mapping.items()}
    if isinstance(value, list):
        return [_plain(part) for part in cast("list[Any]", value)]
    return value
