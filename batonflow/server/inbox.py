"""The open questions of all unfinished runs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from batonflow.durable.search import RunQuery
from batonflow.server.pending import open_requests, request_as_json
from batonflow.server.runs import IN_STORE, Place, Runs
from batonflow.workflow_core.errors import StoreError

__all__ = ["Inbox"]

MOST_RUNS = 1000
"""The number of unfinished runs that are looked at, the newest first."""

Questions = list[dict[str, Any]]


class Inbox:
    """Reader of the open questions. The records of a run are read again only after a change of the run.

    Args:
        runs: The runs of the server.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        # By store, id and time of creation: the last commit, the number of unread messages, and the questions.
        self._known: dict[tuple[int, str, float], tuple[tuple[int, int], Questions]] = {}

    async def read(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the questions, the runs with unreadable ones, and counts of runs that wait for other servers.

        Args:
            names: Only runs of these workflows; all by default.
        """
        query = RunQuery(status=IN_STORE["running"])
        places, more, _ = await self._runs.page(query, lambda one: one.fits(names), None, MOST_RUNS, newest_first=True)
        known, self._known = self._known, {}
        pending: Questions = []
        unreadable: list[dict[str, str]] = []
        unserved = Counter(place.info.workflow for place in places if place.served is None and place.phase == "waiting")
        for place in places:
            try:
                questions = await self._questions(place, known)
            except StoreError as error:
                unreadable.append({"handler_id": place.info.run_id, "detail": str(error)})
                continue
            if questions:
                run = self._runs.run_as_json(place)
                about = {
                    name: run[name] for name in ("handler_id", "workflow_name", "started_at", "session", "metadata")
                }
                pending += [{**question, **about} for question in questions]
        return {"pending": pending, "unreadable": unreadable, "unserved": unserved, "more": more}

    async def _questions(self, place: Place, known: dict[Any, tuple[tuple[int, int], Questions]]) -> Questions:
        info = place.info
        key, stamp = (id(place.store), info.run_id, info.created_at), (info.seq, info.unread)
        live = place.live()
        is_at_rest = live is None or live.is_released
        if is_at_rest and (found := known.get(key)) is not None and found[0] == stamp:
            self._known[key] = found
            return found[1]
        questions = [request_as_json(one) for one in await open_requests(place)]
        if is_at_rest:
            self._known[key] = stamp, questions
        return questions
