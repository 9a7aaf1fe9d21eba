"""``runs``: list the runs of a store."""

import asyncio
import time
from argparse import Namespace
from typing import Any

from batonflow.cli.errors import DONE
from batonflow.cli.output import say_json, table
from batonflow.cli.records import count_questions, run_as_json, status_text
from batonflow.cli.stores import opened
from batonflow.cli.text import age
from batonflow.durable.store_protocol import RunInfo
from batonflow.durable.stores.sqlite import SQLiteStore

__all__ = ["runs"]

_PAGE = 500

_IN_STORE = {"waiting": ["ready", "running", "waiting"], "interrupted": ["running"]}
"""The statuses in the store of runs that are printed as ``waiting`` or ``interrupted``."""


def runs(given: Namespace) -> int:
    """List the runs of a store."""
    return asyncio.run(_runs(given))


async def _runs(given: Namespace) -> int:
    async with opened(given) as store:
        found = await _select(store, given)
        if given.json:
            say_json([{**run_as_json(info), "asks": await count_questions(store, info)} for info in found])
            return DONE
        now = time.time()
        rows = [
            (info.run_id, info.workflow, await status_text(store, info), age(now - info.created_at), str(info.seq))
            for info in found
        ]
        table(("RUN", "WORKFLOW", "STATUS", "AGE", "COMMITS"), rows)
    return DONE


async def _select(store: SQLiteStore, given: Namespace) -> list[RunInfo]:
    """Return the requested runs, newest first, by their status as it is printed."""
    limit: int = given.limit
    wanted = set[str](given.status or ())
    if not wanted & _IN_STORE.keys():
        return await store.list_runs(status=given.status, workflow=given.workflow, limit=limit, newest_first=True)
    stored: list[Any] = list({status for one in wanted for status in _IN_STORE.get(one, [one])})
    found: list[RunInfo] = []
    last: str | None = None
    while len(found) < limit:
        page = await store.list_runs(status=stored, workflow=given.workflow, after=last, limit=_PAGE, newest_first=True)
        found += [info for info in page if wanted & {info.status, (await status_text(store, info)).split()[0]}]
        if len(page) < _PAGE:
            break
        last = page[-1].run_id
    return found[:limit]
