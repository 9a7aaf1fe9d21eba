"""Entries of the search index, made of the records of runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from batonflow.durable.replay import records_of
from batonflow.durable.search_protocol import IndexEntry
from batonflow.durable.spending import Spending, spending_of
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
        cost=(Spending(cost=entry.cost) + spending_of(reading.calls)).cost,
        words=frozenset(reading.words),
    )


class _Reading:
    """The contents of an entry, which grow with each record."""

    def __init__(self, entry: IndexEntry) -> None:
        self.models = dict.fromkeys(entry.models)
        self.errors = dict.fromkeys(entry.errors)
        self.calls: list[Mapping[str, Any]] = []
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
                self.errors[text[:LONGEST_ERROR].casefold()] = None
            self._text(text)

    def _call(self, call: Mapping[str, Any]) -> None:
        """Read the call of a model."""
        self.models[str(call.get("model", "")).casefold()] = None
        self._error(call.get("error"))
        self._value(call.get("answer"))
        self.calls.append(call)


def _texts(value: Any, failed: Callable[[Any], None]) -> Iterator[str]:
    """Yield the texts and numbers in a value, without those of earlier conversations, and report texts of errors."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if len(items) == 1 or not (items and _is_message(items[0]) and _is_message(items[-1])):
            for item in items:
                yield from _texts(item, failed)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        passed_over = _passed_over(fields)
        if passed_over is _OF_ERRORS:
            failed(fields["exception_message"])
        elif fields.get("is_error") is True and "raw_input" in fields:
            failed("\n".join(_texts(fields.get("blocks"), failed)))
        for name, one in fields.items():
            if name not in passed_over:
                yield from _texts(one, failed)


# Fields of the framework's own values with names of classes and numbers of calls, which are not contents.
_OF_ERRORS = frozenset({"exception_type", "traceback"})
_KINDS: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    (frozenset({"exception_type", "exception_message"}), _OF_ERRORS),
    (frozenset({"qualified_name", IS_PYDANTIC}), frozenset({"qualified_name"})),
    (frozenset({"blocks", "role"}), frozenset({"role"})),
    (frozenset({"block_type"}), frozenset({"block_type", "tool_call_id"})),
    (frozenset({"tool_id", "tool_name"}), frozenset({"tool_id"})),
    (frozenset({"input_tokens", "output_tokens"}), frozenset({"input_tokens", "output_tokens"})),
)


_NO_FIELDS: frozenset[str] = frozenset()


def _passed_over(fields: Mapping[str, Any]) -> frozenset[str]:
    return next((left_out for marks, left_out in _KINDS if marks <= fields.keys()), _NO_FIELDS)


def _is_message(item: Any) -> bool:
    """Tell whether an item of a list is a message. Such a list is a conversation of earlier records."""
    if isinstance(item, dict):
        fields = cast("dict[str, Any]", item)
        inner = fields.get("value") if IS_PYDANTIC in fields else fields
        return isinstance(inner, dict) and "blocks" in inner and "role" in inner
    return False
