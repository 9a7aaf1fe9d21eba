"""Writing the page of a run into a file."""

from batonflow.cli.errors import CommandError
from batonflow.workflow_core.journal.sqlite import SQLiteStore
from batonflow.workflow_core.journal.store import RunInfo

__all__ = ["write_page"]


async def write_page(store: SQLiteStore, info: RunInfo, file: str) -> None:
    """Write the page of a run into a file.

    Raises:
        CommandError: This installation has no page.
    """
    raise CommandError(f"{file}: not there yet {store} {info}")
