"""Tokens and costs of runs, summed up from the calls of models in their records."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain

from batonflow.durable.replay import records_of
from batonflow.durable.spending import Spending, spending_of
from batonflow.durable.store_protocol import RunInfo, RunStore, StoredCommit
from batonflow.threads import in_thread

__all__ = ["PAGE", "SpentSoFar"]

_WITH_CALLS = b'"calls":'
"""Only commits that contain this text are parsed."""

RUNS = 1000
PAGE = 200


class SpentSoFar:
    """Cache of sums for recently requested runs, so that only new commits are read."""

    def __init__(self) -> None:
        # By run: the number of the last included commit, and the sums up to it.
        self._known: OrderedDict[tuple[int, str, float], tuple[int, Spending]] = OrderedDict()

    async def of(self, store: RunStore, info: RunInfo) -> Spending:
        """Return the sums of a run, up to its last commit."""
        key = (id(store), info.run_id, info.created_at)
        last, spent = self._known.get(key, (0, Spending()))
        while last < info.seq and (commits := await store.read(info.run_id, last, PAGE)):
            last, spent = commits[-1].seq, spent + await in_thread(_spent_in, commits)
            if last > self._known.get(key, (0, spent))[0]:  # else another request has been faster
                self._known[key] = last, spent
        if key in self._known:
            self._known.move_to_end(key)
        while len(self._known) > RUNS:
            self._known.popitem(last=False)
        return spent


def _spent_in(commits: Sequence[StoredCommit]) -> Spending:
    """Sum up some commits; this blocks."""
    records = records_of([commit for commit in commits if _WITH_CALLS in commit.body])
    return spending_of(chain.from_iterable(record.get("calls", ()) for record in records))
