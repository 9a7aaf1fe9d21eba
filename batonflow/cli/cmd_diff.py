"""``diff``: compare two stored runs."""

import asyncio
from argparse import Namespace

from batonflow.cli.errors import DONE, FAILED
from batonflow.cli.output import say, say_json
from batonflow.cli.stores import opened, the_run
from batonflow.instrumentation.logs import fit_to_show
from batonflow.instrumentation.redaction import redacted

__all__ = ["diff"]


def diff(given: Namespace) -> int:
    """Print the differences of two runs."""
    return asyncio.run(_diff(given))


async def _diff(given: Namespace) -> int:
    async with opened(given) as store:
        for run_id in (given.run, given.other):
            await the_run(store, run_id)
        found = await store.diff(given.run, given.other)
    if given.json:
        pairs = [{"left": redacted(one.left), "right": redacted(one.right)} for one in found.differences]
        say_json({"same": found.same, "differences": pairs})
    else:
        say(fit_to_show(str(found)))
    return DONE if not found.differences else FAILED
