"""``runs``: list the runs of a store."""

import asyncio
import time
from argparse import Namespace

from batonflow.cli.errors import DONE
from batonflow.cli.output import say_json, table
from batonflow.cli.records import count_questions, run_as_json, status_text
from batonflow.cli.stores import opened
from batonflow.cli.text import age
from batonflow.durable.store_protocol import RunInfo
from batonflow.durable.stores.sqlite import SQLiteStore

__all__ = ["runs"]

_PAGE = 500


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
    """Return the requested runs, newest first; a run with an open question counts as waiting."""
    limit: int = given.limit
    if given.status != ["waiting"]:
        return await store.list_runs(status=given.status, workflow=given.workflow, limit=limit, newest_first=True)
    found: list[RunInfo] = []
    last: str | None = None
    while len(found) < limit:
        page = await store.list_runs(
            status=["ready", "running", "waiting"], workflow=given.workflow, after=last, limit=_PAGE, newest_first=True
        )
        found += [info for info in page if info.status == "waiting" or await count_questions(store, info)]
        if len(page) < _PAGE:
            break
        last = page[-1].run_id
    return found[:limit]
