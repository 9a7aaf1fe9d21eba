"""``cancel``: put a request to cancel into a run's inbox."""

import asyncio
from argparse import Namespace

from batonflow.cli.errors import DONE
from batonflow.cli.inbox import say_how_it_goes_on, unfinished_run
from batonflow.cli.output import say, say_json
from batonflow.cli.stores import opened
from batonflow.durable.cancels import cancel_run, cancel_without_code

__all__ = ["cancel"]


def cancel(given: Namespace) -> int:
    """Cancel a run."""
    return asyncio.run(_cancel(given))


async def _cancel(given: Namespace) -> int:
    async with opened(given, writes=True) as store:
        info = await unfinished_run(store, given.run)
        if info.held:  # a process that takes it up may end
            await cancel_without_code(store, given.run, given.reason)
        else:
            await cancel_run(store, given.run, given.reason)
        if given.json:
            say_json({"run_id": given.run, "status": "sent", "driven": info.is_driven})
        elif info.held:
            say(f"{given.run} is cancelled")
        else:
            say(f"{given.run} is told to end")
            await say_how_it_goes_on(info, store)
    return DONE
