"""docs/reference/cli.md: every command on it prints the text that stands there. The README: its fleet drives a run."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.projects import ROOT, cli, environment, start

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "==== the next command"

# Runs a server until it has said where it serves, and then interrupts it as Ctrl-C does.
UNTIL_SERVED = """
import signal, subprocess, sys
served = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(served.stdout.readline(), end="", flush=True)
served.send_signal(signal.SIGINT)
for line in served.stdout:
    if "a second signal" not in line:  # a worker says so if it has taken up a run already
        print(line, end="")
served.stdout.close()
served.wait()
"""


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block with what they print."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def fits(expected: str, printed: str) -> bool:
    """Whether it is what the page says, whose dots stand for anything within a line, and blanks for any number."""
    pattern = re.sub(r"(?:\\ )+", " +", re.escape(expected).replace(r"\.\.\.", "[^\n]*"))
    return re.fullmatch(pattern, printed) is not None


def in_time(command: str, expected: str) -> str:
    """The command, ended by itself where it serves."""
    if not expected.startswith(("serving", "driving")):
        return command
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(UNTIL_SERVED)} {command}"


@pytest.mark.timeout(180)
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "batonflow"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m batonflow "$@"\n')
    shim.chmod(0o755)
    folder = tmp_path / "project"
    folder.mkdir()
    search = environment()
    search["PATH"] = f"{shim.parent}:{search['PATH']}"
    seen = 0
    for kind, text in BLOCK.findall(PAGE):
        if kind == "python":
            (folder / text.split("\n", 1)[0].removeprefix("# ")).write_text(text)
            continue
        told = commands(text)
        # The code of a command is kept for the next one to ask.
        script = "".join(
            f"{in_time(command, expected)}\ncode=$?; echo '{MARK}'; (exit $code)\n" for command, expected in told
        )
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{script}"], cwd=folder, env=search, capture_output=True, text=True, timeout=150
        )
        printed = done.stdout.split(f"{MARK}\n")
        assert len(printed) == len(told) + 1, done.stdout
        for (command, expected), got in zip(told, printed, strict=False):
            seen += 1
            assert fits(expected, got), f"$ {command}\n{got}"
    assert seen > 15


def test_the_fleet_of_the_readme_drives_a_run(tmp_path: Path) -> None:
    found = re.search(r"^```\n((?:batonflow .*\n){3})```$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert found is not None
    enqueue, worker, queue = [shlex.split(line)[1:] for line in found[1].splitlines()]
    shop = re.search(r"^```python\n(.*?)^```$", (ROOT / "docs/how-to/fleet.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shop is not None
    (tmp_path / "shop.py").write_text(shop[1])
    code, run_id, errors = cli(tmp_path, *enqueue)
    assert (code, errors) == (0, "")
    process = start(tmp_path, *worker)
    try:
        end = time.monotonic() + 30
        while (told := cli(tmp_path, *queue)) != (0, "every run is over\n", "") and time.monotonic() < end:
            assert told[0] == 0, told
    finally:
        process.kill()
        process.communicate()
    assert "rope is on its way" in cli(tmp_path, "replay", run_id.strip(), "--store", "runs.db")[1]
