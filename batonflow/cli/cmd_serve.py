"""``serve``: serve a workflow, an agent or a server over HTTP until Ctrl-C."""

import asyncio
import os
import socket
import subprocess
import sys
import time
import webbrowser
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from batonflow.cli.errors import DONE, FAILED, INTERRUPTED, USAGE, CommandError
from batonflow.cli.loading import load
from batonflow.cli.output import complain, say
from batonflow.cli.stores import default_store, wait_until_free
from batonflow.durable.stores.opening import open_store
from batonflow.threads import in_thread
from batonflow.workflow_core.workflow import Workflow

try:
    from batonflow.server import WorkflowServer
except ImportError as error:
    raise CommandError(str(error), FAILED) from error

__all__ = ["serve"]

_LOOK_SECONDS = 0.05
_CHANGE_SECONDS = 0.25
_SECONDS_TO_STOP = 10.0
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "build", "dist"})


def serve(given: Namespace) -> int:
    """Serve an object until Ctrl-C."""
    if given.reload:
        return serve_with_reload(given)
    value = load(given.object)
    if isinstance(value, WorkflowServer):
        if given.store is not None or given.token is not None:
            raise CommandError(f"{given.object} is a server with its own store and token: leave the options out", USAGE)
        return asyncio.run(_serve(value, given))
    assert isinstance(value, Workflow)
    store = given.store or default_store()
    if store is not None:
        wait_until_free(store)
    server = WorkflowServer(store=store, token=given.token)
    workflow = value if given.store is None else Workflow.with_store(value, open_store(given.store))
    server.add_workflow(_name(given.object, value), workflow)
    if store is None and value.__batonflow__.store is None:
        complain("runs are kept in memory only: --store FILE keeps them over restarts")
    return asyncio.run(_serve(server, given))


def _name(spec: str, workflow: Workflow) -> str:
    """Return the name of the workflow in URLs: its own name, or its name in the module."""
    given = workflow.__batonflow__.name
    if given and "/" not in given:
        return given
    return spec.partition(":")[2].rpartition(".")[2] or str(getattr(workflow, "name", "") or type(workflow).__name__)


async def _serve(server: WorkflowServer, given: Namespace) -> int:
    port = _free_port(given.host, given.port)
    serving = asyncio.create_task(server.serve(given.host, port))
    host: str = given.host
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - the address for clients
    try:
        while not serving.done():
            with suppress(OSError):
                _, writer = await asyncio.open_connection(address, port)
                writer.close()
                break
            await asyncio.sleep(_LOOK_SECONDS)
        if not serving.done():
            names = ", ".join(server.runs.served)
            shown_address = f"[{address}]" if ":" in address else address
            url = f"http://{shown_address}:{port}/"
            say(f"serving {names} on {url} (Ctrl-C stops)")
            if given.open:
                await in_thread(webbrowser.open, url)
        await serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    return DONE


def _free_port(host: str, port: int) -> int:
    """Return the port to listen on, a free one for 0.

    Raises:
        CommandError: The port is in use, or the address does not exist.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            return int(trial.getsockname()[1])
    except (OSError, OverflowError) as error:
        raise CommandError(
            f"cannot listen on {host}, port {port}: {error}; --host and --port choose another"
        ) from error


# --- --reload: serve in a child process that is restarted whenever the code changes -----------------------------------


def serve_with_reload(given: Namespace) -> int:
    """Serve in a child process, and restart it after each change, until Ctrl-C."""
    command, environment = _command(given), dict(os.environ)
    if given.token is not None:  # every user of a machine can read command lines
        environment["BATONFLOW_TOKEN"] = given.token
    before = _modification_times(Path.cwd())
    first = True
    while True:
        opening = ["--open"] if given.open and first else []
        process = subprocess.Popen([*command, *opening], env=environment)  # noqa: S603 - this very program
        try:
            before = _wait_for_change(before, process)
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            _stop(process)
        complain("the code has changed: starting again")
        first = False


def _command(given: Namespace) -> list[str]:
    program = [sys.executable, "-m", "batonflow", "serve", given.object]
    where = ["--host", given.host, "--port", str(given.port)]
    return [*program, *where, *([] if given.store is None else ["--store", given.store]), *["--debug"] * given.debug]


def _wait_for_change(before: dict[str, int], process: "subprocess.Popen[bytes]") -> dict[str, int]:
    has_complained = False
    while (now := _modification_times(Path.cwd())) == before:
        if process.poll() is not None and not has_complained:
            complain("the server has ended; it starts again with the next change")
            has_complained = True
        time.sleep(_CHANGE_SECONDS)
    return now


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _modification_times(folder: Path) -> dict[str, int]:
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _LEFT_OUT]
        for name in names:
            path = Path(where, name)
            if path.suffix == ".py":
                with suppress(OSError):  # the file has just been removed
                    yield str(path), path.stat().st_mtime_ns
