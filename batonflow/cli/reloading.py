"""``serve --reload``: serve in a child process that is restarted whenever the code changes."""

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

__all__ = ["serve_with_reload"]

_LOOK_SECONDS = 0.25
_SECONDS_TO_STOP = 10.0
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "build", "dist"})


def serve_with_reload(given: Namespace) -> int:
    """Serve in a child process, and restart it after each change, until Ctrl-C."""
    command, environment = _command(given), dict(os.environ)
    if given.token is not None:  # every user of a machine can read command lines
        environment["BATONFLOW_TOKEN"] = given.token
    before = _stamps(Path.cwd())
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
    """Wait for a change, and return the new modification times."""
    has_complained = False
    while (now := _stamps(Path.cwd())) == before:
        if process.poll() is not None and not has_complained:
            complain("the server has ended; it starts again with the next change")
            has_complained = True
        time.sleep(_LOOK_SECONDS)
    return now


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stamps(folder: Path) -> dict[str, int]:
    """Return the modification times of the Python files below a folder."""
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _LEFT_OUT]
        for name in names:
            path = Path(where, name)
            if path.suffix == ".py":
                with suppress(OSError):  # the file has just been removed
                    yield str(path), path.stat().st_mtime_ns
