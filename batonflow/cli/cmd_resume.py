"""``resume``: drive a stored run until it is over or waits for a person."""

import asyncio
from argparse import Namespace

from batonflow.cli.loading import load_workflow
from batonflow.cli.run_session import RunSession
from batonflow.cli.stores import the_run, with_store
from batonflow.workflow_core.stored_runs import StoredRuns
from batonflow.workflow_core.workflow import Workflow

__all__ = ["resume"]


def resume(given: Namespace) -> int:
    """Resume a run of a store."""
    workflow = with_store(load_workflow(given.object), given, needed=True)
    return asyncio.run(_resume(workflow, given))


async def _resume(workflow: Workflow, given: Namespace) -> int:
    assert workflow.__batonflow__.store is not None
    await the_run(workflow.__batonflow__.store, given.run)
    return await RunSession(workflow, given).drive(lambda: StoredRuns.resume(workflow, given.run))
