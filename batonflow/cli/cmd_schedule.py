"""``schedule``: let workers start runs again and again, list these schedules, and remove them."""

import asyncio
from argparse import Namespace

from batonflow.cli.errors import DONE, USAGE, CommandError
from batonflow.cli.loading import load_workflow
from batonflow.cli.output import say, say_json, table
from batonflow.cli.stores import opened, with_store
from batonflow.cli.values import fields_of
from batonflow.fleet.schedules import Schedule, add_schedule, list_schedules, remove_schedule
from batonflow.fleet.worker import check_has_own_name

__all__ = ["schedule"]

_NAMES = ("name", "workflow", "cron", "timezone", "next_at")


def schedule(given: Namespace) -> int:
    """Add, list or remove schedules."""
    if given.action == "add":
        return _add(given)
    return asyncio.run(_list(given) if given.action == "list" else _remove(given))


def _add(given: Namespace) -> int:
    workflow = with_store(load_workflow(given.object), given, needed=True)
    fields = fields_of(workflow, given)
    place = {"timezone": given.tz, "queue": given.queue, "priority": given.priority}
    try:
        check_has_own_name(workflow)
        added = asyncio.run(add_schedule(workflow, given.name, given.cron, fields, **place))
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error
    if given.json:
        say_json(_as_data(added))
    else:
        say(f"{added.name}: next at {added.next_at.isoformat(timespec='minutes')}")
    return DONE


async def _list(given: Namespace) -> int:
    async with opened(given) as store:
        told = [_as_data(one) for one in await list_schedules(store)]
    if given.json:
        say_json(told)
    elif told:
        table([name.upper().replace("_", " ") for name in _NAMES], [[one[name] for name in _NAMES] for one in told])
    else:
        say("there are no schedules")
    return DONE


async def _remove(given: Namespace) -> int:
    async with opened(given) as store:
        if not await remove_schedule(store, given.name):
            raise CommandError(f"there is no schedule {given.name!r}; `batonflow schedule list` lists them", USAGE)
    if given.json:
        say_json({"name": given.name, "removed": True})
    else:
        say(f"{given.name} is removed; its earlier runs go on")
    return DONE


def _as_data(one: Schedule) -> dict[str, str]:
    return {**one._asdict(), "next_at": one.next_at.isoformat(timespec="minutes")}
