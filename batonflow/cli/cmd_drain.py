"""``drain``: ask a worker to take up no further run, and to end."""

import asyncio
from argparse import Namespace

from batonflow.cli.errors import DONE, FAILED, USAGE, CommandError
from batonflow.cli.output import say, say_json
from batonflow.cli.stores import opened

__all__ = ["drain"]


def drain(given: Namespace) -> int:
    """Ask a worker to end as with SIGTERM."""
    return asyncio.run(_drain(given))


async def _drain(given: Namespace) -> int:
    async with opened(given, writes=True) as store:
        if any(one.sign.name == given.worker and one.state == "ended" for one in await store.workers()):
            raise CommandError(f"{given.worker} has ended: other workers take up its runs", FAILED)
        if not await store.drain(given.worker):
            raise CommandError(f"the store has no worker {given.worker!r}: `batonflow workers` lists them", USAGE)
    if given.json:
        say_json({"worker": given.worker, "state": "draining"})
    else:
        say(f"{given.worker} takes up no further run, and ends when its runs are over or interrupted")
    return DONE
