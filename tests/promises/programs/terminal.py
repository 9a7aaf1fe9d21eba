"""The demo at a pseudo terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.promises.programs.running import KEYS, ROOT

DEMO = ROOT / "examples" / "demo.py"
TERMINAL = DEMO.with_name("demo_terminal.py")
QUESTION = "Approve, deny or edit? [y/n/e] "
SECONDS = 30


class Terminal:
    """The demo in a terminal of its own, as the person sees it."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self.seen = ""
        self.pieces: list[tuple[float, str]] = []

    def until(self, text: str) -> None:
        """Read until `text` appears behind what was waited for before."""
        start = len(self.seen)
        while text not in self.seen[start:]:
            assert self._read(), f"the demo ended without {text!r}:\n{self.seen}"

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], SECONDS)
        assert ready, f"nothing came for {SECONDS} s:\n{self.seen}"
        try:
            piece = os.read(self._screen, 4096)
        except OSError:  # what Linux says when the other side has closed
            return False
        text = piece.decode().replace("\r\n", "\n")
        self.seen += text
        self.pieces.append((time.monotonic(), text))
        return bool(piece)

    def types(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def end(self) -> tuple[int, str]:
        """Read to the end; the exit code and everything on the screen."""
        while self._read():
            pass
        code = self.process.wait(SECONDS)
        assert "Traceback" not in self.seen
        assert "was never" not in self.seen  # awaited, or retrieved: what asyncio says of what was left behind
        return code, self.seen


@contextmanager
def demo(folder: Path, *command: str, **environment: str) -> Iterator[Terminal]:
    """The demo up to its question: the part of its second process, or what another command does."""
    screen, side = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name not in (*KEYS, "FORCE_COLOR")}
    search = os.pathsep.join(map(str, (ROOT, DEMO.parent)))
    process = subprocess.Popen(
        [sys.executable, *(command or (str(TERMINAL), "run-1"))],
        cwd=folder, stdin=side, stdout=side, stderr=side, start_new_session=True,
        env={**inherited, "PYTHONPATH": search, "PYTHONWARNINGS": "error", "NO_COLOR": "1", **environment},
    )  # fmt: skip
    os.close(side)
    try:
        terminal = Terminal(process, screen)
        terminal.until(QUESTION)
        yield terminal
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(screen)
