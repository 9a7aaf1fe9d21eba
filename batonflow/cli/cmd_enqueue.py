"""``enqueue``: store a run for the worker or server that takes it up."""

import asyncio
from argparse import Namespace
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

from batonflow.cli.errors import DONE, USAGE, CommandError
from batonflow.cli.loading import load_workflow
from batonflow.cli.output import say, say_json
from batonflow.cli.stores import checked_run_id, with_store
from batonflow.cli.values import fields_of
from batonflow.fleet.dispatchers import open_dispatcher
from batonflow.fleet.worker import check_has_own_name
from batonflow.workflow_core.workflow import Workflow

__all__ = ["enqueue"]


def enqueue(given: Namespace) -> int:
    """Store a run."""
    workflow = with_store(load_workflow(given.object), given, needed=True)
    fields = fields_of(workflow, given)
    if given.run_id is not None:
        checked_run_id(given.run_id)
    not_before = None if given.at is None else datetime.fromtimestamp(given.at).astimezone()
    place = {"run_id": given.run_id, "queue": given.queue, "priority": given.priority, "not_before": not_before}
    try:
        check_has_own_name(workflow)
        run_id = asyncio.run(_enqueue(workflow, given.dispatcher, place | fields))
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error
    if given.json:
        say_json({"run_id": run_id, "status": "ready"})
    else:
        say(run_id)
    return DONE


async def _enqueue(workflow: Workflow, dispatcher: Any, arguments: dict[str, Any]) -> str:
    store = workflow.run_store
    assert store is not None
    async with AsyncExitStack() as stack:
        bell = open_dispatcher(dispatcher, store)
        if bell is not None:
            stack.push_async_callback(bell.aclose)
        return await workflow.enqueue(**arguments, dispatcher=bell)
