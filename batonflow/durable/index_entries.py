"""Entries of the search index, made of the records of runs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from batonflow.durable.replay import records_of
from batonflow.durable.search_protocol import IndexEntry
from batonflow.durable.store_protocol import RunInfo, StoredCommit
from batonflow.durable.words import words_of
from batonflow.values.names import IS_PYDANTIC

__all__ = ["extended", "first_entry"]

MOST_WORDS = 5_000
"""Words of a run in the index."""

MOST_ERRORS = 20
LONGEST_ERROR = 500
LONGEST_TEXT = 50_000
"""Characters of a text whose words are read; pictures and files are longer."""

# Fields whose texts nobody searches for: names of classes and kinds, and numbers of calls.
_PASSED_OVER = frozenset({
    "qualified_name", "block_type", "role", "tool_id", "tool_call_id", "exception_type", "traceback", "finish",
})  # fmt: skip


def first_entry(info: RunInfo) -> IndexEntry:
    """Return the entry of a run without records: its id, its session and its metadata."""
    texts = (info.run_id, info.session, *info.metadata.values())
    words = frozenset(word for text in texts for word in words_of(text))
    return IndexEntry(info.run_id, info.created_at, words=words)


def extended(entry: IndexEntry, commits: Sequence[StoredCommit]) -> IndexEntry:
    """Return an entry with the contents of further commits.

    Args:
        entry: The entry of the run up to the commit before these.
        commits: The commits, in order.
    """
    reading = _Reading(entry)
    for record in records_of(commits):
        reading.record(record)
    return replace(
        entry,
        commit=commits[-1].seq,
        models=tuple(reading.models),
        errors=tuple(reading.errors),
        input_tokens=reading.tokens[0],
        output_tokens=reading.tokens[1],
        cost=reading.cost,
        words=frozenset(reading.words),
    )


class _Reading:
    """The contents of an entry, which grow with each record."""

    def __init__(self, entry: IndexEntry) -> None:
        self.models = dict.fromkeys(entry.models)
        self.errors = dict.fromkeys(entry.errors)
        self.tokens = (entry.input_tokens, entry.output_tokens)
        self.cost = entry.cost
        self.words = set(entry.words)

    def record(self, record: Mapping[str, Any]) -> None:
        """Read a record."""
        self._event(record.get("event"))
        for _, event, *_ in record.get("sends", ()):
            self._event(event)
        for call in record.get("calls", ()):
            self._call(call)
        kind, *details = record.get("outcome", ("",))
        if kind == "returned" and details:
            for event in details[0]:
                self._event(event)
        elif kind == "waiting":
            self._event(details[0]["question"])
        elif kind == "failed" and isinstance(details[0], Mapping):
            self._error(cast("Mapping[str, Any]", details[0]).get("exception_message"))

    def _event(self, event: Any) -> None:
        """Read an event, which is a pair of its class and its fields."""
        if isinstance(event, list) and len(cast("list[Any]", event)) > 1:
            self._value(cast("list[Any]", event)[1])

    def _value(self, value: Any) -> None:
        for text in _texts(value, self._error):
            self._text(text)

    def _text(self, text: str) -> None:
        for word in words_of(text[:LONGEST_TEXT]):
            if len(self.words) >= MOST_WORDS:
                return
            self.words.add(word)

    def _error(self, text: Any) -> None:
        if isinstance(text, str) and text:
            if len(self.errors) < MOST_ERRORS:
                self.errors[text[:LONGEST_ERROR]] = None
            self._text(text)

    def _call(self, call: Mapping[str, Any]) -> None:
        """Read the call of a model."""
        self.models[str(call.get("model", ""))] = None
        self._error(call.get("error"))
        self._value(call.get("answer"))
        usage: Mapping[str, Any] = call.get("usage") or {}
        read, written = self.tokens
        self.tokens = (read + usage.get("input_tokens", 0), written + usage.get("output_tokens", 0))
        cost = usage.get("cost")
        if isinstance(cost, int | float) and math.isfinite(cost):
            self.cost = (self.cost or 0.0) + cost


def _texts(value: Any, failed: Any) -> Iterator[str]:
    """Yield the texts in a value, without those of earlier conversations, and report the texts of errors."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if not (items and _is_message(items[0]) and _is_message(items[-1])) or len(items) == 1:
            for item in items:
                yield from _texts(item, failed)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if "exception_message" in fields:
            failed(fields["exception_message"])
        elif fields.get("is_error") is True:
            failed("\n".join(_texts(fields.get("blocks"), failed)))
        for name, one in fields.items():
            if name not in _PASSED_OVER:
                yield from _texts(one, failed)


def _is_message(item: Any) -> bool:
    """Tell whether an item of a list is a message, so that the list is a conversation that earlier records have."""
    if isinstance(item, dict):
        fields = cast("dict[str, Any]", item)
        inner = fields.get("value") if IS_PYDANTIC in fields else fields
        return isinstance(inner, dict) and "blocks" in inner and "role" in inner
    return False
