"""What real processes leave in the world outside, and how they are started, stopped and killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.promises.crash.world import Ledger

__all__ = ["FileLedger", "Line", "Process", "lines_of"]

ROOT = Path(__file__).resolve().parents[3]

MOST_SECONDS = 120.0
# Not with -m: names of workflows hold the name of their module.
BEGIN = "import sys; from {} import main; main(*sys.argv[1:])"


class Line(NamedTuple):
    """What a process noted: its number, what happened to which run, and more of it."""

    life: int
    kind: str
    run_id: str
    value: Any


class FileLedger(Ledger):
    """Notes what happens in a file; each line is one write.

    Args:
        path: The file.
        life: Number of the process.
    """

    def __init__(self, path: Path, life: int) -> None:
        super().__init__()
        self._life = life
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, effect: str, run_id: str = "") -> None:
        self.write("effect", run_id, effect)

    def write(self, kind: str, run_id: str, value: Any) -> None:
        """Add a line."""
        os.write(self._file, json.dumps([self._life, kind, run_id, value]).encode() + b"\n")


def lines_of(path: Path) -> list[Line]:
    """All that was noted, in order."""
    return [Line(*json.loads(line)) for line in path.read_bytes().splitlines()] if path.exists() else []


class Process:
    """A process that waits until it is told to begin, so that none is waited for while it starts.

    Args:
        module: Its ``main`` is called with the folder and the arguments.
        folder: Where it works, and puts what it has to complain about.
        arguments: Further ones.
    """

    def __init__(self, module: str, folder: Path, *arguments: Any) -> None:
        with (folder / "errors").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", BEGIN.format(module), str(folder), *map(str, arguments)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def tell(self, line: str) -> None:
        """Give it a line to read."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def hear(self) -> str:
        """A line that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def begin(self) -> None:
        """Let it begin; returns when it does."""
        self.tell("go")
        assert self.hear() == "at work", "a process did not start"

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as nothing can be caught."""
        self._process.kill()
        self._process.communicate()

    def ended_by_itself(self, seconds: float = MOST_SECONDS) -> int | None:
        """Its exit status once it ends; None when it does not in time."""
        try:
            self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        return self._process.returncode

    @property
    def is_over(self) -> bool:
        """Whether it ended, although nobody killed it."""
        return self._process.poll() is not None
