"""``serve``: serve a workflow, an agent or a server over HTTP until Ctrl-C."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
import time
import webbrowser
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from batonflow.cli.errors import DONE, INTERRUPTED, USAGE, CommandError
from batonflow.cli.loading import load
from batonflow.cli.output import complain, say
from batonflow.cli.stores import check_store, default_store
from batonflow.durable.stores.opening import open_store
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.server import WorkflowServer
from batonflow.server.stopping import uvicorn_here
from batonflow.threads import in_thread
from batonflow.workflow_core.workflow import Workflow

if TYPE_CHECKING:
    import uvicorn

__all__ = ["serve"]

_LOOK_SECONDS = 0.05
_CHANGE_SECONDS = 0.25
_SECONDS_TO_STOP = 10.0
_LARGEST_BODY = 2**20
_LARGEST_MESSAGE = 32 * _LARGEST_BODY  # with the files of a conversation, as base64
_ANY = {
    "0.0.0.0": ("127.0.0.1", socket.AF_INET, "192.0.2.1"),  # noqa: S104 - only compared
    "::": ("::1", socket.AF_INET6, "2001:db8::1"),
}
"""Hosts that mean all addresses, with the loopback address, its family, and an address of another machine."""

_LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "build", "dist"})


def serve(given: Namespace) -> int:
    """Serve an object until Ctrl-C."""
    if given.reload:
        return serve_with_reload(given)
    value = load(given.object)
    if isinstance(value, WorkflowServer):
        if given.store is not None or given.token is not None:
            raise CommandError(f"{given.object} is a server with its own store and token: leave the options out", USAGE)
        if given.no_drive:
            raise CommandError(f"{given.object} is a server: create it with WorkflowServer(drive=False)", USAGE)
        return asyncio.run(_serve(value, given))
    workflow: Workflow = value
    store = given.store or default_store()
    if store is not None:
        check_store(store)
    # Metadata may say whose dependencies a run gets, so clients choose it only on servers that a program makes.
    chats = hasattr(workflow, "__batonflow_team__") and workflow.__batonflow__.deps is None
    most = _LARGEST_MESSAGE if chats else _LARGEST_BODY
    if given.no_drive and store is None and workflow.__batonflow__.store is None:
        raise CommandError("--no-drive needs a store that workers share: name it with --store", USAGE)
    drives = not given.no_drive
    server = WorkflowServer(store=store, token=given.token, accept_sessions=chats, max_body=most, drive=drives)
    served = workflow if given.store is None else Workflow.with_store(workflow, open_store(given.store))
    server.add_workflow(_name(given.object, workflow), served)
    if store is None and workflow.__batonflow__.store is None:
        complain("runs are kept in memory only: --store FILE keeps them over restarts")
    return asyncio.run(_serve(server, given))


def _name(spec: str, workflow: Workflow) -> str:
    """Return the name of the workflow in URLs: its own name, or its name in the module."""
    given = workflow.__batonflow__.name
    if given and "/" not in given:
        return given
    return spec.partition(":")[2].rpartition(".")[2] or str(getattr(workflow, "name", "") or type(workflow).__name__)


async def _serve(server: WorkflowServer, given: Namespace) -> int:
    for store in server.runs.stores:
        if isinstance(store, SQLiteStore) and store.path.exists():
            check_store(str(store.path))
    host: str = given.host
    _check_address(host, given.port)
    serving = asyncio.create_task(server.serve(host, given.port))
    try:
        listening = await _started(serving)
        if listening is not None:
            # For port 0 the system chooses the port when uvicorn binds it; a choice made earlier could be taken by
            # another program in between.
            port = listening.servers[0].sockets[0].getsockname()[1]
            names = ", ".join(server.runs.served)
            address = _address(host)
            url = f"http://[{address}]:{port}/" if ":" in address else f"http://{address}:{port}/"
            where = url if address == host else f"{host}, port {port}: {url}"
            say(f"serving {names} on {where} (Ctrl-C stops)")
            if given.open:
                chat = next(iter(server.chats()), None)
                await in_thread(webbrowser.open, url if chat is None else f"{url}#chat={quote(chat)}")
        await serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    return DONE


def _address(host: str) -> str:
    """Return the address for clients, that of this machine for a host that means all addresses."""
    loopback, family, other = _ANY.get(host, (host, None, ""))
    if family is not None:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((other, 9))  # chooses a network, and sends nothing
            return str(probe.getsockname()[0])
    return loopback


async def _started(serving: "asyncio.Task[None]") -> "uvicorn.Server | None":
    """Wait until uvicorn listens, and return it; return None if the server has ended instead."""
    while not serving.done():
        found = uvicorn_here()
        if found is not None and found.started:
            return found
        await asyncio.sleep(_LOOK_SECONDS)
    return None


def _check_address(host: str, port: int) -> None:
    """Check that a server can listen on an address.

    Raises:
        CommandError: The port is in use, or the address does not exist.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise CommandError(
                f"port {port} of {host} is in use by another program: end it, or choose another port with --port"
            ) from error
        reason = getattr(error, "strerror", None) or error
        raise CommandError(
            f"cannot listen on {host}, port {port}: {reason}. Choose others with --host and --port"
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
    return [
        *program,
        *where,
        *([] if given.store is None else ["--store", given.store]),
        *["--debug"] * given.debug,
        *["--no-drive"] * given.no_drive,
    ]


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
    """Return the Python files of a folder with the times of their last change."""
    found: dict[str, int] = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _LEFT_OUT]
        for path in (Path(where, name) for name in names if name.endswith(".py")):
            with suppress(OSError):  # the file has just been removed
                found[str(path)] = path.stat().st_mtime_ns
    return found
