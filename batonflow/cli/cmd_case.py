"""``case``: save stored runs as test cases."""

import asyncio
from argparse import Namespace
from pathlib import Path

from batonflow.cases.case import CaseError, case_of_run
from batonflow.cli.errors import DONE, CommandError
from batonflow.cli.output import complain
from batonflow.cli.stores import opened, the_run

__all__ = ["case"]


def case(given: Namespace) -> int:
    """Save a run as a test case."""
    return asyncio.run(_save(given))


async def _save(given: Namespace) -> int:
    async with opened(given) as store:
        await the_run(store, given.run)
        try:
            written = (await case_of_run(store, given.run, name=given.name)).write(Path(given.to), replace=given.force)
        except CaseError as error:
            raise CommandError(str(error)) from error
    complain(f"written: {written}")
    return DONE
