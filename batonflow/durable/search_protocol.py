"""The part of a store that finds runs by their contents. Its index is made of their records.

The index is derived from the records. A search writes it; running workflows do not.
``search.find_runs`` brings it up to date and asks it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from batonflow.durable.store_protocol import RunInfo, RunStatus

__all__ = ["FoundRuns", "IndexEntry", "RunQuery", "SearchStore"]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The contents of a run in the index, up to a commit.

    Attributes:
        run_id: The run.
        created_at: The time of its creation, which tells it from an earlier run with its id.
        commit: The number of the last commit in the entry.
        is_over: Whether the run is over, so that the entry is final.
        models: The models that answered, in lower case.
        errors: The texts of errors in lower case: of the run, of attempts, of tools and of models.
        cost: The cost in US dollars; None if no price is known.
        words: The words of its texts, in the form of ``words.words_of``.
    """

    run_id: str
    created_at: float
    commit: int = 0
    is_over: bool = False
    models: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    cost: float | None = None
    words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RunQuery:
    """The runs that are wanted: those for which every given condition holds.

    Attributes:
        text: Words that occur in the run: in its input, its events, answers of models and people, calls and results
            of tools, errors, its id, its session or its metadata. The beginning of a word is enough.
        model: A part of the name of a model that answered.
        error: A part of the text of an error.
        since: The time from which the run was created, in wall-clock seconds.
        until: The time before which it was created.
        min_cost: The smallest cost in US dollars.
        max_cost: The largest cost; runs without a known cost are left out.
        status: One or several statuses.
        workflow: The name of a workflow.
        metadata: Names and values that the run has.

    Example:
        >>> RunQuery(text="refund order 1234", model="gpt", min_cost=0.5)
    """

    text: str = ""
    model: str = ""
    error: str = ""
    since: float | None = None
    until: float | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    status: Sequence[RunStatus] | None = None
    workflow: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def needs_index(self) -> bool:
        """Tell whether a listing of the store is not enough to find the runs."""
        asked = (self.text, self.model, self.error, self.since, self.until, self.min_cost, self.max_cost)
        return any(one not in (None, "") for one in asked)


class FoundRuns(NamedTuple):
    """Runs that were found.

    Attributes:
        runs: The runs.
        unread: The number of runs whose newest records are not in the index yet, at most ``search.COUNTED``.
    """

    runs: list[RunInfo]
    unread: int


@runtime_checkable
class SearchStore(Protocol):
    """The part of a store of runs that keeps the index."""

    async def outdated(self, limit: int) -> list[tuple[RunInfo, IndexEntry | None]]:
        """Return runs with commits that are not in the index, with their entries: new runs first."""
        ...

    async def count_outdated(self, most: int) -> int:
        """Return the number of runs with commits that are not in the index, counted up to a bound."""
        ...

    async def index(self, entries: Sequence[IndexEntry]) -> None:
        """Write entries in the place of earlier ones; entries of runs that are gone are dropped."""
        ...

    async def search(
        self, query: RunQuery, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> list[RunInfo]:
        """Return the runs for which a query holds, in the order of their creation.

        Args:
            query: The query.
            after: The run after which to begin.
            limit: The largest number of runs.
            newest_first: Whether to reverse the order.

        Raises:
            StoreError: There is no run ``after``, or the store cannot search.
        """
        ...
