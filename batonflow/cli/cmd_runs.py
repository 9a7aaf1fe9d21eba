"""``runs``: list the runs of a store."""

import asyncio
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from batonflow.cli.errors import DONE, USAGE, CommandError
from batonflow.cli.output import complain, say_json, table
from batonflow.cli.records import count_questions, run_as_json, status_text, with_worker
from batonflow.cli.stores import KeptStore, opened
from batonflow.cli.text import age
from batonflow.durable.search import COUNTED, RunQuery, listed_runs, update_index
from batonflow.durable.store_protocol import RunInfo

__all__ = ["runs"]

_PAGE = 500

_IN_STORE = {"waiting": ["ready", "running", "waiting"], "interrupted": ["running"], "held": ["ready"]}
"""The statuses in the store of runs that are printed otherwise."""


def runs(given: Namespace) -> int:
    """List the runs of a store."""
    return asyncio.run(_runs(given))


async def _runs(given: Namespace) -> int:
    async with opened(given) as store:
        found = await _select(store, given)
        if given.json:
            named = [await with_worker(store, info) for info in found]
            say_json([{**run_as_json(info), "asks": await count_questions(store, info)} for info in named])
            return DONE
        now = time.time()
        rows = [
            (info.run_id, info.workflow, await status_text(store, info), age(now - info.created_at), str(info.seq))
            for info in found
        ]
        table(("RUN", "WORKFLOW", "STATUS", "AGE", "COMMITS"), rows)
        if len(found) == given.limit:
            complain(f"there may be more than {given.limit}: see --limit")
    return DONE


async def _select(store: KeptStore, given: Namespace) -> list[RunInfo]:
    """Return the requested runs, newest first, by their status as it is printed."""
    limit: int = given.limit
    wanted = set[str](given.status or ())
    query = _query(given)
    if query.needs_index:
        await update_index(store, report=_say_left)
    if not wanted & _IN_STORE.keys():
        return await listed_runs(store, replace(query, status=given.status), limit=limit)
    stored: list[Any] = list({status for one in wanted for status in _IN_STORE.get(one, [one])})
    found: list[RunInfo] = []
    last: str | None = None
    while len(found) < limit:
        page = await listed_runs(store, replace(query, status=stored), after=last, limit=_PAGE)
        found += [info for info in page if wanted & {info.status, (await status_text(store, info)).split()[0]}]
        if len(page) < _PAGE:
            break
        last = page[-1].run_id
    return found[:limit]


def _query(given: Namespace) -> RunQuery:
    return RunQuery(
        text=given.text,
        model=given.model,
        error=given.error,
        since=given.since,
        until=given.until,
        min_cost=given.min_cost,
        max_cost=given.max_cost,
        workflow=given.workflow,
        metadata=_metadata(given.metadata),
    )


def _say_left(left: int) -> None:
    complain(f"reading runs for the search: {'at least ' if left >= COUNTED else ''}{left} left")


def _metadata(given: Sequence[str]) -> dict[str, str]:
    """Return the metadata of the options ``--metadata``.

    Raises:
        CommandError: An option is not NAME=VALUE.
    """
    pairs = [one.partition("=") for one in given]
    if wrong := next((one for one, (_, sign, _) in zip(given, pairs, strict=True) if not sign), None):
        raise CommandError(f"--metadata takes NAME=VALUE, not {wrong!r}", USAGE)
    return {name: value for name, _, value in pairs}
