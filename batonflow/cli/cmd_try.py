"""``try``: run a stored run again with another model or other parameters, and compare the two runs."""

import asyncio
from argparse import Namespace

from batonflow.cases.case import CaseError
from batonflow.cases.trial import try_run
from batonflow.cli.cmd_compare import comparison_lines
from batonflow.cli.errors import DONE, FAILED, USAGE, CommandError
from batonflow.cli.loading import load_workflow
from batonflow.cli.output import complain, say, say_json
from batonflow.cli.stores import checked_run_id, the_run, with_store
from batonflow.llms.errors import LLMConfigurationError
from batonflow.workflow_core.workflow import Workflow

__all__ = ["try_"]


def try_(given: Namespace) -> int:
    """Run a stored run again with changes, and print the comparison."""
    workflow = with_store(load_workflow(given.object), given, needed=True)
    new_id = None if given.run_id is None else checked_run_id(given.run_id)
    return asyncio.run(_try(workflow, given, new_id))


async def _try(workflow: Workflow, given: Namespace, new_id: str | None) -> int:
    store = workflow.__batonflow__.store
    assert store is not None
    info = await the_run(store, given.run)
    name = workflow.__batonflow__.workflow_name
    if info.workflow != name:
        raise CommandError(f"run {given.run!r} is a run of {info.workflow}, and {given.object} is {name}", USAGE)
    changes = {"llm": given.llm, "system": given.system, "temperature": given.temperature}
    try:
        trial = await try_run(store, given.run, workflow, **changes, new_id=new_id, effects=given.effects)
    except (CaseError, LLMConfigurationError) as error:
        raise CommandError(str(error), USAGE) from error
    if given.json:
        say_json(trial.comparison.as_data())
    else:
        say("\n".join(comparison_lines(trial.comparison)))
    if trial.error is not None:
        complain(f"run {trial.run_id} failed: {type(trial.error).__name__}: {trial.error}")
    return DONE if trial.error is None else FAILED
