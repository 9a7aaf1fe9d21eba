"""`batonflow chat`: at a terminal and through a pipe."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.projects import cli, environment

AGENT = """
import asyncio
from batonflow import FunctionAgent, ScriptedLLM


async def answer(request):
    said = [str(one.content) for one in request.messages if one.role.value == "user"]
    if said[-1] == "slowly":
        print("thinking", flush=True)
        await asyncio.sleep(60)
    if said[-1] == "fail":
        raise ConnectionError("the line is dead")
    return f"you said {', '.join(said)}."


agent = FunctionAgent(name="echo", llm=ScriptedLLM([answer] * 30))
"""


@pytest.fixture
def echo(folder: Path) -> Path:
    (folder / "echo.py").write_text(AGENT)
    return folder


def test_through_a_pipe_every_line_is_a_turn_of_one_conversation(echo: Path) -> None:
    assert cli(echo, "chat", "echo.py", said="one\n\ntwo\n") == (
        0,
        "echo: you said one.\necho: you said one, two.\n",
        "",
    )


def test_a_new_conversation_and_the_end(echo: Path) -> None:
    output = cli(echo, "chat", "echo.py", said="one\n/new\ntwo\n/quit\nthree\n")[1]
    assert output == "echo: you said one.\necho: you said two.\n"


def test_commands_are_not_said_to_the_agent(echo: Path) -> None:
    code, output, errors = cli(echo, "chat", "echo.py", said="/help\n/hlep\n/etc/hosts is what?\n")
    assert code == 0
    first, answer = output.splitlines()
    assert all(name in first for name in ("/new", "/help", "/quit", "Ctrl-C"))
    assert errors == "there is no command /hlep; /help lists the commands\n"
    assert answer == "echo: you said /etc/hosts is what?."


def test_a_turn_that_fails_does_not_end_the_conversation(echo: Path) -> None:
    code, output, errors = cli(echo, "chat", "echo.py", said="fail\nagain\n")
    assert (code, errors) == (0, "ConnectionError: the line is dead\n")
    assert output.endswith("again.\n")


def test_approvals_are_asked_in_place(folder: Path) -> None:
    code, output, _ = cli(folder, "chat", "team.py:team", said='Go.\ne\nnonsense\n{"title": "Ebb"}\n')
    assert code == 0
    assert "  ?? writer wants to call publish(title='Tides')\n" in output
    assert output.endswith("  <- published Ebb\nwriter: That is what came of it: published Ebb\n")
    output = cli(folder, "chat", "team.py:team", said="Go.\nn\nnot today\n")[1]
    assert "a person denied it: not today" in output


def test_where_nobody_answers_a_tool_does_not_run(folder: Path) -> None:
    output = cli(folder, "chat", "team.py:team", said="Go.\n")[1]
    assert "no answer: denied\n" in output
    assert "<- failed" in output


def test_turns_are_kept_in_a_store(echo: Path) -> None:
    cli(echo, "chat", "echo.py", "--store", "runs.db", said="one\ntwo\n")
    assert cli(echo, "runs", "--store", "runs.db")[1].count("completed") == 2


def test_only_agents_can_be_talked_to(here: Cli) -> None:
    assert here("chat", "flows.py:greet")[::2] == (
        2,
        "batonflow chat: flows.py:greet is not an agent: start it with `batonflow run flows.py:greet`\n",
    )


class Terminal:
    """A chat at a terminal of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._ours, theirs = pty.openpty()
        # The terminal becomes that of the process, so that Ctrl-C typed there reaches it.
        program = (
            "import fcntl, runpy, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
            f"sys.argv = ['batonflow', 'chat', {name!r}]; runpy.run_module('batonflow', run_name='__main__')"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=folder, env=environment(TERM="dumb"),
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._seen = ""

    def says(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupts(self, wanted: str) -> str:
        """Ctrl-C at a prompt, again and again until something is there: the line editor may not be listening yet."""
        for _ in range(20):
            self.says("\x03")
            if (found := self._found(wanted, 2)) is not None:
                return found
        raise AssertionError(self._seen)

    def until(self, wanted: str) -> str:
        """Read until something is there; gives all up to it."""
        found = self._found(wanted, 40)
        assert found is not None, self._seen
        return found

    def _found(self, wanted: str, seconds: float) -> str | None:
        deadline = time.monotonic() + seconds
        while wanted not in self._seen:
            if time.monotonic() > deadline:
                return None
            if select.select([self._ours], [], [], 0.2)[0]:
                try:
                    piece = os.read(self._ours, 4096)
                except OSError:  # how Linux says that the other end is closed
                    return None
                self._seen += piece.decode().replace("\r\n", "\n")
        before, found, self._seen = self._seen.partition(wanted)
        return before + found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(echo: Path) -> Iterator[Terminal]:
    there = Terminal(echo, "echo.py")
    yield there
    there.close()


def test_ctrl_c_stops_the_answer_and_not_the_program(terminal: Terminal) -> None:
    terminal.until("> ")
    terminal.says("one\n")
    assert "you said one." in terminal.until("> ")
    terminal.says("slowly\n")
    terminal.until("thinking")
    terminal.says("\x03")
    assert "stopped" in terminal.until("> ")
    terminal.says("two\n")
    assert "two." in terminal.until("> ")  # what was said before is not forgotten
    terminal.says("half a li")
    terminal.until("half a li")  # Ctrl-C throws away what is not read yet, and the line editor would wait for it
    terminal.interrupts("> ")
    terminal.says("\x04")
    assert terminal.process.wait(40) == 0


def test_lines_are_remembered(terminal: Terminal) -> None:
    terminal.until("> ")
    terminal.says("one\n")
    terminal.until("> ")
    terminal.says("\x10\n")  # Ctrl-P: the line before
    assert "you said one, one." in terminal.until("> ")
    terminal.says("/quit\n")
    assert terminal.process.wait(40) == 0


def test_ctrl_c_at_a_question_stops_the_turn(folder: Path) -> None:
    terminal = Terminal(folder, "team.py:team")
    try:
        terminal.until("> ")
        terminal.says("Go.\n")
        terminal.until("[e]dit: ")
        assert "stopped" in terminal.interrupts("> ")
        terminal.says("Go on.\n")
        terminal.until("[e]dit: ")
        terminal.says("y\n")
        assert "published Tides" in terminal.until("> ")
    finally:
        terminal.close()
