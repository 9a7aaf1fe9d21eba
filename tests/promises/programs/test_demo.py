"""`make demo` at a real (pseudo) terminal: the person approves, denies, edits, goes away, or stops it."""

import os
import pty
import re
import select
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

from tests.promises.programs.running import KEYS, ROOT, run_program, without_records

DEMO = ROOT / "examples" / "demo.py"
QUESTION = "Approve, deny or edit? [y/n/e] "
SECONDS = 30
CTRL_D = "\x04"


class Terminal:
    """The demo in a terminal of its own, as the person sees it."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self.seen = ""

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
        self.seen += piece.decode().replace("\r\n", "\n")
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
def demo(folder: Path) -> Iterator[Terminal]:
    """The demo up to its question."""
    screen, side = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in KEYS}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, DEMO.parent))), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(DEMO)], cwd=folder, env=environment, stdin=side, stdout=side, stderr=side
    )
    os.close(side)
    try:
        terminal = Terminal(process, screen)
        terminal.until(QUESTION)
        yield terminal
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def test_the_question_shows_tool_and_arguments_before_anything_is_published(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        assert "writer wants to call publish:\n  title: Tides\n  body: The moon pulls the sea" in terminal.seen
        assert "published" not in terminal.seen


def test_yes_publishes(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types("y\n")
        code, seen = terminal.end()
    assert code == 0
    assert "<- gave: published Tides.md" in seen
    assert "4 tool calls, 1 failed, 1 recovered from" in seen


def test_any_other_answer_asks_again(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types("perhaps\n")
        terminal.until(QUESTION)
        terminal.types("\n")
        terminal.until(QUESTION)
        terminal.types("Y\n")
        code, seen = terminal.end()
    assert code == 0
    assert "published Tides.md" in seen


def test_no_tells_the_writer_why(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types("n\n")
        terminal.until("Why not? ")
        terminal.types("too short\n")
        code, seen = terminal.end()
    assert code == 0
    assert "published" not in seen
    assert "writer: This is what came of it: Tool publish was not run, a person denied it: too short" in seen
    assert "4 tool calls, 1 failed, 1 recovered from" in seen


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
    assert "Nobody answers: denied." in seen
    assert "a person denied it: nobody answered" in seen


def test_the_end_of_input_denies_also_when_the_reason_is_asked_for(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types("n\n")
        terminal.until("Why not? ")
        terminal.types(CTRL_D)
        code, seen = terminal.end()
    assert code == 0
    assert "a person denied it: nobody answered" in seen


@pytest.mark.parametrize("before", ["", "n\n", "e\n"])
def test_an_interrupt_stops_the_run(tmp_path: Path, before: str) -> None:
    with demo(tmp_path) as terminal:
        if before:
            terminal.types(before)
            terminal.until("Why not? " if before == "n\n" else "  title: ")
        time.sleep(0.2)  # until it reads: a signal just before would be seen after the line only
        terminal.process.send_signal(signal.SIGINT)
        code, seen = terminal.end()
    assert code == 130
    assert seen.endswith("\nstopped\n")
    assert "published" not in seen


def test_what_stays_behind_is_the_article_and_the_run_in_one_folder(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types("y\n")
        terminal.end()
    assert [path.name for path in tmp_path.iterdir()] == [".demo"]
    names = {path.name for path in (tmp_path / ".demo").iterdir()}
    assert names >= {"Tides.md", "notes", "runs.db"}


def test_the_run_can_be_looked_at_in_the_page_as_the_demo_says(tmp_path: Path) -> None:
    with demo(tmp_path) as terminal:
        terminal.types("y\n")
        _, seen = terminal.end()
    command, address = re.findall(r"^  (\S+ serve \S+)$|^and open (\S+)$", seen, re.MULTILINE)
    page, run_id = address[1].split("/#run=")
    assert page == "http://127.0.0.1:8080"
    _, _, where = command[0].split()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    serve = [sys.executable, "-m", "batonflow", "serve", where, "--port", port]
    process = subprocess.Popen(serve, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while port not in process.stdout.readline():
            assert process.poll() is None
        run = httpx2.get(f"http://127.0.0.1:{port}/handlers/{run_id}").json()
        assert (run["status"], run["result"]["value"]["result"]["current_agent_name"]) == ("completed", "writer")
        assert "<title>" in httpx2.get(f"http://127.0.0.1:{port}/").text
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


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
        [sys.executable, "-c", INTERRUPTED, module, str(DEMO)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_it_can_be_read_in_one_sitting() -> None:
    assert len(DEMO.read_text().splitlines()) < 160
