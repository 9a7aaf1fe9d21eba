"""Running a program as its reader would: in a process of its own, in an empty folder."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ROOT", "Forking", "forking", "run_program", "without_records"]

RECORD = re.compile(
    r"^(?:.*(?: failed at attempt \d+ and (?:is called|runs) again in | raised ToolTimeoutError$)"
    r"|(?:DEBUG|INFO) batonflow\.).*\n",
    re.MULTILINE,
)
ROOT = Path(__file__).resolve().parents[3]
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "DEEPSEEK_API_KEY")


FLAGS = ("-W", "error", "-W", "ignore::ResourceWarning")


def environment_for(*search: Path, **environment: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in KEYS}
    path = os.pathsep.join(map(str, search))
    return {**inherited, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment}


async def run_program(program: Path, folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a program; warnings are errors, and no key of this machine is seen.

    Connections that a model keeps open for its next request end with the process, so these are no fault here.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, *FLAGS, str(program), *arguments, cwd=folder, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environment_for(ROOT, program.parent, **environment),
    )  # fmt: skip
    output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), errors.decode()


class Forking:
    """A process that imports the package once, and forks for each program."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def run_program(self, program: Path, folder: Path, beside: Path, **environment: str) -> tuple[int, str, str]:
        """See ``run_program``; ``beside`` is a folder for the output of the program."""
        job = {
            "program": str(program),
            "folder": str(folder),
            "environment": environment_for(ROOT, program.parent, **environment),
            "output": str(beside / "output"),
            "errors": str(beside / "errors"),
        }
        reader, writer = await asyncio.open_unix_connection(self._path)
        writer.write(json.dumps(job).encode() + b"\n")
        code = int(await reader.read())
        writer.close()
        await writer.wait_closed()
        output, errors = [(beside / name).read_text() for name in ("output", "errors")]
        return code, output, errors


@contextmanager
def forking(path: Path) -> Iterator[Forking]:
    """Start a process for programs, which listens on a socket."""
    server = Path(__file__).with_name("forking.py")
    process = subprocess.Popen([sys.executable, *FLAGS, str(server), str(path)], env=environment_for(ROOT))
    while not path.exists():
        assert process.poll() is None, "it did not start"
    yield Forking(path)
    with socket.socket(socket.AF_UNIX) as last:
        last.connect(str(path))
    assert process.wait() == 0


def without_records(errors: str) -> str:
    """The errors of a program without the lines that it logs of retries, timeouts of tools and debugged runs."""
    return RECORD.sub("", errors)
