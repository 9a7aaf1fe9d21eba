"""Running a program as its reader would: in a process of its own, in an empty folder."""

import asyncio
import os
import re
import sys
from pathlib import Path

__all__ = ["ROOT", "run_program", "without_records"]

RECORD = re.compile(
    r"^(?:.*(?: failed at attempt \d+ and (?:is called|runs) again in | raised ToolTimeoutError$)"
    r"|(?:DEBUG|INFO) batonflow\.).*\n",
    re.MULTILINE,
)
ROOT = Path(__file__).resolve().parents[3]
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "DEEPSEEK_API_KEY")


async def run_program(program: Path, folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a program; warnings are errors, and no key of this machine is seen.

    Connections that a model keeps open for its next request end with the process, so these are no fault here.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in KEYS}
    search = f"{ROOT}{os.pathsep}{program.parent}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", str(program), *arguments,
        cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**inherited, "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip
    output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), errors.decode()


def without_records(errors: str) -> str:
    """The errors of a program without the lines that it logs of retries, timeouts of tools and debugged runs."""
    return RECORD.sub("", errors)
