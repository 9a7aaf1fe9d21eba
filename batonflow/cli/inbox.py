"""Messages to a run through its store, which reach it in whichever process drives it."""

from batonflow.cli.errors import FAILED, CommandError
from batonflow.cli.output import say
from batonflow.cli.stores import KeptStore, store_option, the_run
from batonflow.durable.store_protocol import RunInfo
from batonflow.durable.worker_protocol import QueueInfo

__all__ = ["say_how_it_goes_on", "unfinished_run"]


async def unfinished_run(store: KeptStore, run_id: str) -> RunInfo:
    """Return the record of a run that has not ended.

    Raises:
        CommandError: The store has no such run, or the run has ended.
    """
    info = await the_run(store, run_id)
    if info.is_over:
        raise CommandError(f"run {run_id} is over ({info.status}): it takes nothing more", FAILED)
    return info


async def say_how_it_goes_on(info: RunInfo, store: KeptStore) -> None:
    """Print the worker that drives a run, or the command that lets it go on."""
    workers = await store.workers()
    if info.is_driven:
        for worker in workers:
            if worker.sign.owner == info.owner:
                say(f"worker {worker.sign.name} drives it")
        return
    if info.held:
        say(f"it is held: batonflow release {info.run_id} {store_option(store)} lets it be taken up again")
        return
    kind = QueueInfo(info.queue, info.workflow, info.version, 0, 0, 0, 0, 0, None)
    if kind.count_workers(workers):
        say("a worker takes it up")
    else:
        also = " and no worker takes it up" if workers else ""
        say(f"no process drives it{also}: batonflow resume OBJ {info.run_id} {store_option(store)}")
