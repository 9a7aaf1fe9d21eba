"""The REPL as a process, through a pipe and at a terminal."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

REPL = Path(__file__).with_name("repl.py")
# The terminal becomes that of the process, so that Ctrl-C typed there reaches it and its file server.
AT_TERMINAL = (
    "import fcntl, runpy, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "project"
    home.mkdir()
    (home / "tides.py").write_text("high = 6")
    (tmp_path / "secret.txt").write_text("swordfish")
    (home / "link.txt").symlink_to(tmp_path / "secret.txt")
    return home


def talk(folder: Path, *lines: str, dollars: float = 1.0) -> str:
    """Say lines through a pipe, up to its end, and return all that was printed."""
    command = [sys.executable, str(REPL), str(folder), "--delay", "0", "--dollars", str(dollars)]
    said = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("Bye.\n")
    return done.stdout


def test_it_reads_files_and_remembers_what_was_said(folder: Path) -> None:
    told = talk(folder, "read tides.py", "hello", "who am I")
    assert "> I see: high = 6\n" in told
    assert "You have said 3 things: read tides.py, hello, who am I." in told


def test_it_writes_a_file_after_a_yes_and_not_after_a_no(folder: Path) -> None:
    talk(folder, "write a.py x = 1", "n", "write sub/b.py x = 2", "y")
    assert not (folder / "a.py").exists()
    assert (folder / "sub" / "b.py").read_text() == "x = 2"


def test_the_end_of_the_input_at_a_question_is_a_no(folder: Path) -> None:
    talk(folder, "write a.py x = 1")
    assert not (folder / "a.py").exists()


def test_nothing_outside_of_the_folder_is_read_or_written(folder: Path) -> None:
    names = ["../secret.txt", "link.txt", "/etc/hostname", "sub/../../secret.txt"]
    told = talk(folder, *(line for name in names for line in (f"read {name}", f"write {name} pwned", "y")))
    for name in names:
        assert told.count(f" {name} lies outside of the folder") == 2
    assert "swordfish" not in told
    assert (folder.parent / "secret.txt").read_text() == "swordfish"


def test_the_dollars_are_those_of_the_whole_conversation(folder: Path) -> None:
    told = talk(folder, *(["list"] * 200), dollars=0.02)
    assert 2 < told.count("I see: ") < 200
    assert "BudgetExceededError" in told
    left = [float(line.split()[0][1:]) for line in told.splitlines() if line.endswith("dollars left)")]
    assert left == sorted(left, reverse=True)
    assert left[0] > left[-1]


class Terminal:
    """The program at a terminal of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.ours, theirs = pty.openpty()
        command = [sys.executable, "-c", AT_TERMINAL, str(REPL), str(folder), *options]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
        )
        os.close(theirs)
        self.seen = ""

    def says(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def says_until(self, key: str, wanted: str) -> None:
        """Press a key again until a text is there: input() may have written its prompt and not listen yet."""
        for _ in range(20):
            self.says(key)
            try:
                self.until(wanted, seconds=2)
            except TimeoutError:
                continue
            return
        raise AssertionError(self.seen)

    def until(self, wanted: str, seconds: float = 40) -> str:
        """Read until a text is there, and return all up to it."""
        deadline = time.monotonic() + seconds
        while wanted not in self.seen:
            if time.monotonic() > deadline:
                raise TimeoutError(self.seen)
            if select.select([self.ours], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.ours, 4096).decode().replace("\r\n", "\n")
                except OSError:  # the other end is closed
                    raise AssertionError(self.seen) from None
        before, found, self.seen = self.seen.partition(wanted)
        return before + found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    there = Terminal(folder, "--delay", "0.4")
    yield there
    there.close()


def test_the_answer_comes_word_by_word_and_ctrl_c_stops_it(terminal: Terminal) -> None:
    terminal.until("> ")
    terminal.says("one two three four five six\n")
    terminal.until("You have")
    assert "things" not in terminal.seen  # the rest is not there yet
    terminal.says("\x03")
    assert "six." not in terminal.until("stopped\n")
    terminal.until("> ")
    terminal.says("list\n")  # Ctrl-C reached the file server too; it is started again
    terminal.until("I see: ")
    assert "tides.py" in terminal.until("> ")


@pytest.mark.parametrize(
    "key", [pytest.param("\x03", id="ctrl-c"), pytest.param("\x04", id="ctrl-d", marks=pytest.mark.soak(only=True))]
)
def test_at_the_prompt_a_key_ends_the_program_and_its_file_server(terminal: Terminal, key: str) -> None:
    terminal.until("> ")
    terminal.says("list\n")
    terminal.until("dollars left")
    (server,) = children(terminal.process.pid)
    terminal.says_until(key, "Bye.")
    assert terminal.process.wait(20) == 0
    assert not Path(f"/proc/{server}").exists()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
