"""Messages to a run through its store, which reach it in whichever process drives it."""

from batonflow.cli.errors import FAILED, CommandError
from batonflow.cli.output import say
from batonflow.cli.stores import KeptStore, store_option, the_run
from batonflow.durable.store_protocol import RunInfo

__all__ = ["say_how_to_resume", "unfinished_run"]


async def unfinished_run(store: KeptStore, run_id: str) -> RunInfo:
    """Return the record of a run that has not ended.

    Raises:
        CommandError: The store has no such run, or the run has ended.
    """
    info = await the_run(store, run_id)
    if info.is_over:
        raise CommandError(f"run {run_id} is over ({info.status}): it takes nothing more", FAILED)
    return info


def say_how_to_resume(info: RunInfo, store: KeptStore) -> None:
    """Print the command that resumes a run, unless a process drives it."""
    if not info.is_driven:
        say(f"no process drives it: batonflow resume OBJ {info.run_id} {store_option(store)}")
