"""A process that runs what it is told to, as soon as it is told; two of them are told the same at the same moment."""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from batonflow.workflow_core import Context, StopEvent, step
from batonflow.workflow_core.errors import RunInUseError
from tests.promises.crash.outside import FileLedger
from tests.promises.crash.programs import Chain, Link
from tests.promises.crash.stores import store_in


class ShortChain(Chain):
    """Long enough for two to meet in it."""

    @step
    async def go(self, ctx: Context, ev: Link) -> Link | StopEvent:
        await asyncio.sleep(0.01)
        return await super().go(ctx, ev)


async def outcome(workflow: ShortChain, run_id: str) -> dict[str, Any]:
    """What ``run`` gives."""
    try:
        return {"result": await workflow.run(run_id=run_id, topic="tides")}
    except RunInUseError as error:
        return {"owner": error.owner, "since": error.since}


async def work(folder: Path, number: int) -> None:
    store = store_in(folder)
    workflow = ShortChain(store, FileLedger(folder / "ledger", number))
    await store.list_runs()  # open
    print(store.owner, flush=True)
    while run_id := (await asyncio.to_thread(sys.stdin.readline)).strip():
        print(json.dumps(await outcome(workflow, run_id)), flush=True)
    await store.aclose()


def main(folder: str, number: str) -> None:
    """One of the processes."""
    logging.getLogger("batonflow").setLevel(logging.CRITICAL)
    asyncio.run(work(Path(folder), int(number)))
