"""`make demo` at a pseudo terminal: a process is killed, and the person approves, denies, edits, leaves or stops it."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.promises.programs.running import ROOT, run_program, without_records
from tests.promises.programs.terminal import DEMO, QUESTION, SECONDS, TERMINAL, demo

CTRL_D = "\x04"


def test_yes_publishes_and_any_other_answer_asks_again(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        assert "writer wants to call publish:\n  title: Tides\n  body: The moon pulls the sea" in terminal.seen
        assert "published" not in terminal.seen
        for answer in ("perhaps\n", "\n"):
            terminal.types(answer)
            terminal.until(QUESTION)
        assert "published" not in terminal.seen
        terminal.types("Y\n")
        code, seen = terminal.end()
    assert code == 0
    assert "\033" not in seen
    assert "<- gave: published Tides.md" in seen
    assert "3 tool calls, 1 failed, 0 repeated" in seen
    # The article and the run stay behind, in one folder.
    assert [path.name for path in tmp_path.iterdir()] == [".demo"]
    names = {path.name for path in (tmp_path / ".demo").iterdir()}
    assert names >= {"Tides.md", "notes", "runs.db"}


def test_it_is_coloured_in_a_terminal_that_wants_it(tmp_path: Path) -> None:
    with demo(tmp_path, NO_COLOR="") as terminal:
        assert "\033[96m\nresearcher: \033[0m" in terminal.seen


def test_no_tells_the_writer_why(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types("n\n")
        terminal.until("Why not? ")
        terminal.types("too short\n")
        code, seen = terminal.end()
    assert code == 0
    assert "published" not in seen
    assert "writer: Here is the outcome: Tool publish was not run, a person denied it: too short" in seen
    assert "3 tool calls, 2 failed, 0 repeated" in seen


def test_edited_arguments_are_those_that_are_used(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types("e\n")
        terminal.until("  title: ")
        terminal.types("High water\n")
        terminal.until("  body: ")
        terminal.types("\n")
        code, seen = terminal.end()
    kept = "# High water\n\nThe moon pulls the sea towards it. So high water comes twice a day.\n"
    assert code == 0
    assert f"published High water.md, {len(kept)} bytes" in seen


def test_the_end_of_input_denies(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types(CTRL_D)
        code, seen = terminal.end()
    assert code == 0
    assert "The input has ended: denied." in seen
    assert "a person denied it: the input has ended" in seen


def test_the_end_of_input_denies_also_when_the_reason_is_asked_for(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types("n\n")
        terminal.until("Why not? ")
        terminal.types(CTRL_D)
        code, seen = terminal.end()
    assert code == 0
    assert "a person denied it: the input has ended" in seen


@pytest.mark.parametrize(
    ("before", "command"),
    [
        pytest.param("e\n", (), id="at the arguments"),
        pytest.param("", (str(DEMO),), id="at the question of a killed team"),
        pytest.param("", (), id="at the question", marks=pytest.mark.soak(only=True)),
        pytest.param("n\n", (), id="at the reason", marks=pytest.mark.soak(only=True)),
    ],
)
def test_an_interrupt_stops_the_run(tmp_path: Path, before: str, command: tuple[str, ...]) -> None:
    with demo(tmp_path, *command) as terminal:
        if before:
            terminal.types(before)
            terminal.until("Why not? " if before == "n\n" else "  title: ")
        time.sleep(0.2)  # until it reads: a signal just before would be seen after the line only
        os.killpg(terminal.process.pid, signal.SIGINT)  # what a terminal does at Ctrl-C
        code, seen = terminal.end()
    assert code == 130
    assert seen.endswith("\nstopped\n")
    assert "published" not in seen


@contextmanager
def serving(command: list[str], folder: Path, **environment: str) -> Iterator[str]:
    """The address that a command serves on, which is passed as its last option."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    process = subprocess.Popen(
        [*command, "--port", port], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        while port not in process.stdout.readline():
            assert process.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(SECONDS)
        process.stdout.close()


def test_after_a_kill_another_process_repeats_no_call_and_the_page_shows_the_run(tmp_path: Path) -> None:
    with demo(tmp_path, str(DEMO)) as terminal:
        killed = terminal.seen.index("*** kill -9")
        assert "<- gave: The moon pulls the sea" in terminal.seen[:killed]
        assert "search" not in terminal.seen[killed:]
        terminal.types("y\n")
        _, seen = terminal.end()
    [(first, second)] = re.findall(r"^process (\d+) made 2, process (\d+) made 1$", seen, re.MULTILINE)
    assert first != second
    command, address = re.findall(r"^  (\S+ serve \S+)$|^and open (\S+)$", seen, re.MULTILINE)
    page, run_id = address[1].split("/#run=")
    assert page == "http://127.0.0.1:8080"
    with serving([sys.executable, "-m", "batonflow", "serve", command[0].split()[-1]], tmp_path) as served:
        run = httpx2.get(f"{served}/handlers/{run_id}").json()
        assert (run["status"], run["result"]["value"]["result"]["current_agent_name"]) == ("completed", "writer")
        assert "<title>" in httpx2.get(f"{served}/").text


def test_with_page_it_serves_and_opens_the_page_at_its_end(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    with serving([sys.executable, str(DEMO), "--page"], tmp_path, BROWSER=str(browser)) as served:
        [run] = httpx2.get(f"{served}/handlers").json()["handlers"]
        assert run["status"] == "completed"
        deadline = time.monotonic() + SECONDS
        while not opened.exists() or not opened.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert opened.read_text().startswith(served)


def test_an_unknown_option_is_named(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(DEMO), "--pages"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "--pages: the demo takes --page, and behind it the options of `batonflow serve`\n"
    assert list(tmp_path.iterdir()) == []


async def test_without_a_terminal_it_says_so_and_approves(tmp_path: Path) -> None:
    code, output, errors = await run_program(DEMO, tmp_path)
    assert (code, without_records(errors)) == (0, "")
    assert "There is no terminal to ask at: approved." in output
    assert QUESTION not in output
    assert "published Tides.md" in output


async def test_it_asks_a_real_model_when_there_is_a_key(tmp_path: Path) -> None:
    code, output, errors = await run_program(
        DEMO, tmp_path, OPENAI_API_KEY="none", OPENAI_BASE_URL="http://127.0.0.1:9/v1"
    )
    assert output.startswith("model: gpt-5.6\n")
    assert code == 1
    assert "LLMConnectionError" in errors


INTERRUPTED = """
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.path.insert(0, os.path.dirname(sys.argv[2]))
runpy.run_path(sys.argv[2], run_name="__main__")
"""


@pytest.mark.parametrize("module", ["asyncio", "models", "batonflow.llms.scripted"])
def test_ctrl_c_during_the_imports_ends_it_quietly(tmp_path: Path, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, str(TERMINAL)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("part", sorted(DEMO.parent.glob("demo*.py")), ids=lambda path: path.stem)
def test_each_part_can_be_read_in_one_sitting(part: Path) -> None:
    assert len(part.read_text().splitlines()) < 130
