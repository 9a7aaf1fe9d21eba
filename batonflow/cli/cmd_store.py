"""``store``: create the tables of a store, or check that it can be used."""

import asyncio
from argparse import Namespace
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from batonflow.cli.arguments import default_store
from batonflow.cli.errors import DONE, USAGE, CommandError
from batonflow.cli.output import say, say_json
from batonflow.cli.stores import KeptStore, check_store, opened
from batonflow.cli.text import counted
from batonflow.durable.stores.opening import open_store
from batonflow.durable.stores.sqlite import SQLiteStore

if TYPE_CHECKING:
    from batonflow.durable.store_protocol import RunStore

__all__ = ["store"]


def store(given: Namespace) -> int:
    """Create or check a store."""
    return asyncio.run(_init(given) if given.action == "init" else _check(given))


async def _init(given: Namespace) -> int:
    named = given.store if given.store is not None else default_store()
    if not named or named == "memory:":
        raise CommandError("no store is named: --store FILE, or BATONFLOW_STORE in the environment", USAGE)
    check_store(named)
    made: RunStore = open_store(named)
    async with aclosing(cast("KeptStore", made)) as kept:
        await kept.sign_off("")  # the first operation creates the tables
        return _told(kept, given, "has its tables")


async def _check(given: Namespace) -> int:
    async with opened(given, writes=True) as kept:
        if not isinstance(kept, SQLiteStore) and not await kept.has_tables():
            raise CommandError(f"{_place(kept)} does not have its tables: run `batonflow store init`")
        await kept.sign_off("")  # it can be written
        runs = sum(one.ready + one.later + one.running + one.waiting + one.held for one in await kept.queues())
        workers = sum(worker.is_alive for worker in await kept.workers())
        return _told(kept, given, f"can be used: {counted(runs, 'unfinished run')}, {counted(workers, 'worker')}")


def _told(kept: KeptStore, given: Namespace, state: str) -> int:
    if given.json:
        say_json({"store": str(_place(kept)), "usable": True})
    else:
        say(f"{_place(kept)} {state}")
    return DONE


def _place(kept: KeptStore) -> str:
    address = getattr(kept, "address", None)
    return str(address if address is not None else getattr(kept, "path", ""))
