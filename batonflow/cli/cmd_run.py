"""``run``: drive a new run until it is over or waits for a person."""

import asyncio
from argparse import Namespace

from batonflow.cli.errors import USAGE, CommandError
from batonflow.cli.loading import load_workflow
from batonflow.cli.run_session import RunSession
from batonflow.cli.stores import checked_run_id, with_store
from batonflow.cli.values import fields_of
from batonflow.workflow_core.handler import WorkflowHandler, raise_on_stall

__all__ = ["run"]


def run(given: Namespace) -> int:
    """Run a workflow, an agent or an engine."""
    workflow = with_store(load_workflow(given.object), given)
    fields = fields_of(workflow, given)
    if given.run_id == "":
        raise CommandError("--run-id is empty: name the run, or leave it out", USAGE)
    if given.run_id is not None and workflow.__batonflow__.store is not None:
        checked_run_id(given.run_id)
    options = {} if given.run_id is None else {"run_id": given.run_id}

    def begin() -> WorkflowHandler:
        handler = workflow.run(**options, **fields)
        raise_on_stall(handler)
        return handler

    return asyncio.run(RunSession(workflow, given).drive(begin))
