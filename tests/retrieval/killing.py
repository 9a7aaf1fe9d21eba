"""Programs that are killed while they hang in a request, and run again."""

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["killed_and_run_again"]

SECONDS_WITHOUT_COMMIT = 0.5


def killed_and_run_again(program: str, folder: Path, hang_at: str, form: str) -> list[str]:
    """Kill a program of this folder by SIGKILL in a request, run it again to its end, and return the lines of its log.

    Records are written in batches, so it is killed when its store has not grown for a while.
    """
    log = folder / "log"
    first = _started(program, folder, hang_at, form)
    try:
        while not (log.exists() and "hangs" in log.read_text()):
            assert first.poll() is None
            time.sleep(0.02)
        known, since = -1, time.monotonic()
        while time.monotonic() < since + SECONDS_WITHOUT_COMMIT:
            if (now := _commits(folder / "runs.db")) != known:
                known, since = now, time.monotonic()
            time.sleep(0.02)
    finally:
        first.kill()
        first.wait()
    assert _started(program, folder, "", form).wait(30) == 0
    return log.read_text().splitlines()


def _started(program: str, folder: Path, hang_at: str, form: str) -> "subprocess.Popen[bytes]":
    script = str(Path(__file__).with_name(program))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, script, str(folder), hang_at, form], env=environment)


def _commits(path: Path) -> int:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT sum(seq) FROM runs").fetchone()[0]
    finally:
        connection.close()
