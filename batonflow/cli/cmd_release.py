"""``release``: let a held run be taken up again."""

import asyncio
from argparse import Namespace

from batonflow.cli.errors import DONE, FAILED, CommandError
from batonflow.cli.output import say, say_json
from batonflow.cli.stores import opened, the_run

__all__ = ["release"]


def release(given: Namespace) -> int:
    """Release a held run."""
    return asyncio.run(_release(given))


async def _release(given: Namespace) -> int:
    async with opened(given, writes=True) as store:
        await the_run(store, given.run)
        if not await store.release_held(given.run):
            raise CommandError(f"run {given.run} is not held: nothing keeps it from being taken up", FAILED)
        if given.json:
            say_json({"run_id": given.run, "status": "ready"})
        else:
            say(f"{given.run} can be taken up again")
    return DONE
