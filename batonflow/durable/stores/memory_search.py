"""The search index of a store in memory."""

from collections.abc import Sequence

from batonflow.durable.search_protocol import IndexEntry, RunQuery
from batonflow.durable.store_protocol import RunInfo
from batonflow.durable.words import words_of

__all__ = ["MemoryIndex"]


class MemoryIndex:
    """The entries of the runs; its owner holds a lock around each call."""

    def __init__(self) -> None:
        self._entries: dict[str, IndexEntry] = {}

    def entry(self, run_id: str) -> IndexEntry | None:
        """Return the entry of a run."""
        return self._entries.get(run_id)

    def is_late(self, run_id: str, created_at: float, seq: int) -> bool:
        """Tell whether a run has commits that are not in the index."""
        entry = self._entries.get(run_id)
        return entry is None or (entry.created_at, entry.commit) != (created_at, seq)

    def write(self, entry: IndexEntry) -> None:
        """Write an entry in the place of an earlier one."""
        self._entries[entry.run_id] = entry

    def forget(self, run_id: str) -> None:
        """Take a run that is deleted out of the index."""
        self._entries.pop(run_id, None)

    def matches(self, info: RunInfo, query: RunQuery) -> bool:
        """Tell whether a query holds for a run."""
        entry = self._entries.get(info.run_id)
        return entry is not None and _is_listed(info, query) and _is_like(entry, query)


def _is_listed(info: RunInfo, query: RunQuery) -> bool:
    return (
        (query.status is None or info.status in query.status)
        and query.workflow in (None, info.workflow)
        and query.metadata.items() <= info.metadata.items()
        and (query.since is None or info.created_at >= query.since)
        and (query.until is None or info.created_at < query.until)
    )


def _is_like(entry: IndexEntry, query: RunQuery) -> bool:
    if query.min_cost is not None and (entry.cost is None or entry.cost < query.min_cost):
        return False
    if query.max_cost is not None and (entry.cost is None or entry.cost > query.max_cost):
        return False
    begins = list(words_of(query.text))
    return (
        bool(begins or not query.text.strip())
        and _contains(entry.models, query.model)
        and _contains(entry.errors, query.error)
        and all(any(word.startswith(begin) for word in entry.words) for begin in begins)
    )


def _contains(texts: Sequence[str], part: str) -> bool:
    return not part or any(part.casefold() in text for text in texts)
