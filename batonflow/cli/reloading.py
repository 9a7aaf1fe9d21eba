"""``serve --reload``: a process that serves, and is started anew whenever the code changes."""

import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from batonflow.cli.errors import INTERRUPTED
from batonflow.cli.output import complain

__all__ = ["reloading"]

_LOOK_SECONDS = 0.25
_SECONDS_TO_STOP = 10.0
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "build", "dist"})


def reloading(given: Namespace) -> int:
    """Serve in a process of its own, and in another one after each change; until Ctrl-C."""
    command, environment = _command(given), dict(os.environ)
    if given.token is not None:  # command lines can be seen by every user of a machine
        environment["BATONFLOW_TOKEN"] = given.token
    before = _stamps(Path.cwd())
    first = True
    while True:
        opening = ["--open"] if given.open and first else []
        process = subprocess.Popen([*command, *opening], env=environment)  # noqa: S603 - this very program
        try:
            before = _changed(before, process)
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            _stopped(process)
        complain("the code has changed: starting again")
        first = False


def _command(given: Namespace) -> list[str]:
    program = [sys.executable, "-m", "batonflow", "serve", given.object]
    where = ["--host", given.host, "--port", str(given.port)]
    return [*program, *where, *([] if given.store is None else ["--store", given.store]), *["--debug"] * given.debug]


def _changed(before: dict[str, int], process: "subprocess.Popen[bytes]") -> dict[str, int]:
    """Wait for a change; returns when each file was changed."""
    told = False
    while (now := _stamps(Path.cwd())) == before:
        if process.poll() is not None and not told:
            complain("the server has ended; it starts again with the next change")
            told = True
        time.sleep(_LOOK_SECONDS)
    return now


def _stopped(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stamps(folder: Path) -> dict[str, int]:
    """When each Python file below a folder was changed."""
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _LEFT_OUT]
        for name in names:
            path = Path(where, name)
            if path.suffix == ".py":
                with suppress(OSError):  # it was removed just now
                    yield str(path), path.stat().st_mtime_ns
