"""``fork``: drive a new run that shares the first commits of a stored one."""

import asyncio
from argparse import Namespace
from typing import Any

from batonflow.cli.errors import FAILED, USAGE, CommandError
from batonflow.cli.loading import load_workflow
from batonflow.cli.output import complain
from batonflow.cli.run_session import RunSession
from batonflow.cli.stores import checked_run_id, the_run, with_store
from batonflow.cli.values import json_or_text
from batonflow.workflow_core.errors import RunInputMismatchError, StoreError, WorkflowRuntimeError
from batonflow.workflow_core.stored_runs import StoredRuns
from batonflow.workflow_core.workflow import Workflow

__all__ = ["fork"]


def fork(given: Namespace) -> int:
    """Fork a run at a commit, and drive the new run."""
    workflow = with_store(load_workflow(given.object), given, needed=True)
    state: dict[str, Any] = {}
    for word in given.state:
        path, sign, value = word.partition("=")
        if not path or not sign:
            raise CommandError(f"--state {word!r} is not PATH=JSON, as in --state state.topic='\"moons\"'", USAGE)
        state[path] = json_or_text(value)
    new_id = None if given.run_id is None else checked_run_id(given.run_id)
    return asyncio.run(_fork(workflow, given, state, new_id))


async def _fork(workflow: Workflow, given: Namespace, state: dict[str, Any], new_id: str | None) -> int:
    assert workflow.__batonflow__.store is not None
    await the_run(workflow.__batonflow__.store, given.run)
    handler = StoredRuns.fork(workflow, given.run, given.at, state=state, new_id=new_id)
    try:
        await handler.started()
    except (StoreError, WorkflowRuntimeError) as error:
        # These errors mean that the id, the commit or the state is wrong; others come from the store or the code.
        is_misuse = type(error) in {StoreError, RunInputMismatchError, WorkflowRuntimeError} and not error.__cause__
        raise CommandError(str(error), USAGE if is_misuse else FAILED) from error
    if not given.json:
        complain(f"run {handler.run_id} branches off from {given.run} at commit {given.at}")
    return await RunSession(workflow, given).drive(lambda: handler)
