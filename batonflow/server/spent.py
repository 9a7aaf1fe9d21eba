"""Tokens and costs of unfinished runs, summed up from their records; finished runs have them in their results."""

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from batonflow.durable.store_protocol import RunInfo, RunStore, StoredCommit
from batonflow.durable.trace import trace_of
from batonflow.threads import in_thread

__all__ = ["Spent", "SpentSoFar"]

_TELLS = b"AgentOutput"
"""Only commits that contain this text are parsed."""

RUNS = 1000
PAGE = 200


@dataclass
class Spent:
    """Tokens and costs up to a commit.

    Attributes:
        commit: Number of the last included commit.
        tokens: Tokens of input and output; empty before the first report of a model.
        cost: Cost in US dollars; None if no price is known.
    """

    commit: int = 0
    tokens: Counter[str] = field(default_factory=Counter[str])
    cost: float | None = None

    @classmethod
    def within(cls, commits: Sequence[StoredCommit]) -> "Spent":
        """Sum up some commits; this blocks."""
        spent = cls(commits[-1].seq)
        for entry in trace_of([commit for commit in commits if _TELLS in commit.body]):
            events = [event for event in entry.get("events", ()) if event["type"] == "AgentOutput"]
            # An answer is streamed and returned, and counts once.
            returned = [event for event in events if event["how"] == "returned"]
            for event in returned or [event for event in events if event["how"] == "streamed"]:
                value: Any = event.get("value")
                spent._count(cast("Mapping[str, Any]", value).get("usage") if isinstance(value, Mapping) else None)
        return spent

    def add(self, more: "Spent") -> None:
        """Add the sums of the following commits."""
        self.commit = more.commit
        self.tokens.update(more.tokens)
        if more.cost is not None:
            self.cost = (self.cost or 0.0) + more.cost

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, Mapping):
            return
        told = cast("Mapping[str, Any]", usage)
        for name in ("input", "output"):
            count = told.get(f"{name}_tokens")
            self.tokens[name] += count if isinstance(count, int) else 0
        cost = told.get("cost")
        if isinstance(cost, int | float) and math.isfinite(cost):
            self.cost = (self.cost or 0.0) + cost


class SpentSoFar:
    """Cache of sums for recently requested runs, so that only new commits are read."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, str, float], Spent] = OrderedDict()

    async def of(self, store: RunStore, info: RunInfo) -> Spent:
        """Return the sums of a run, up to its last commit."""
        key = (id(store), info.run_id, info.created_at)
        spent = self._known.setdefault(key, Spent())
        self._known.move_to_end(key)
        while len(self._known) > RUNS:
            self._known.popitem(last=False)
        while spent.commit < info.seq:
            at = spent.commit
            commits = await store.read(info.run_id, at, PAGE)
            if not commits:
                break
            more = await in_thread(Spent.within, commits)
            if spent.commit == at:  # else another request has been faster
                spent.add(more)
        return spent
