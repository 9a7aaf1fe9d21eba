"""``worker``: drive the runs of a store, beside other workers, until Ctrl-C or SIGTERM."""

import asyncio
import signal
from argparse import Namespace
from contextlib import suppress

from batonflow.cli.errors import DONE, USAGE, CommandError
from batonflow.cli.loading import load_workflow
from batonflow.cli.output import complain, say
from batonflow.cli.stores import with_store
from batonflow.cli.text import counted
from batonflow.fleet.health import serve_health
from batonflow.fleet.worker import Worker

__all__ = ["worker"]


def worker(given: Namespace) -> int:
    """Drive runs until the process is told to stop."""
    workflows = [
        with_store(load_workflow(one), Namespace(store=given.store, object=one), needed=True) for one in given.objects
    ]
    try:
        made = Worker(
            *workflows,
            concurrency=given.concurrency,
            queues=given.queue,
            drain=given.drain,
            dispatcher=given.dispatcher,
        )
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error
    names = ", ".join(one.__batonflow__.workflow_name for one in workflows)
    return asyncio.run(_healthy(made, names, given))


async def _healthy(worker: Worker, names: str, given: Namespace) -> int:
    """Drive runs, and answer about the health of the worker."""
    if given.health is None:
        return await _work(worker, names, given)
    host, port = given.health
    try:
        async with serve_health(host, port, lambda: worker.is_ready) as port:
            complain(f"health on http://{host}:{port}/live and /ready")
            return await _work(worker, names, given)
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(
            f"cannot listen on {host}, port {port}: {reason}. Choose others with --health", USAGE
        ) from error


async def _work(worker: Worker, names: str, given: Namespace) -> int:
    loop = asyncio.get_running_loop()
    stops = 0

    def stop() -> None:
        nonlocal stops
        stops += 1
        worker.stop()
        if worker.runs and stops == 1:
            complain(f"{counted(worker.runs, 'run')} may go on for {given.drain:g} seconds; a second signal ends that")
        elif worker.runs and stops == 2:
            complain(f"interrupting {counted(worker.runs, 'run')}")

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows Ctrl-C interrupts at once
            loop.add_signal_handler(number, stop)
    await worker.run(started=lambda: say(f"driving runs of {names} (Ctrl-C stops)"))
    return DONE
