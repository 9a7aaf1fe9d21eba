"""The program around the commands: help, exit codes, pipes, colours."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.projects import cli, environment, start

HEAVY = ("openai", "anthropic", "mcp", "starlette", "uvicorn", "pydantic", "rich", "asyncio")
COMMANDS = (
    "run",
    "chat",
    "draw",
    "check",
    "serve",
    "runs",
    "show",
    "replay",
    "approve",
    "resume",
    "cancel",
    "fork",
    "diff",
    "compare",
    "case",
    "try",
    "ingest",
    "ask",
    "worker",
    "workers",
    "drain",
    "enqueue",
    "queue",
    "release",
    "store",
    "completions",
)


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], []])
def test_help_and_mistakes_load_nothing_but_the_standard_library(folder: Path, arguments: list[str]) -> None:
    program = (
        "import sys; from batonflow.cli import main; code = main(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_names_every_command_and_the_exit_codes(here: Cli) -> None:
    code, output, _ = here("--help")
    assert code == 0
    assert all(f"    {name}" in output for name in COMMANDS)
    assert "3 the run waits for a person" in output


@pytest.mark.parametrize("arguments", [[], ["sail"], ["run"], ["runs", "--limit", "0"], ["run", "x", "--nonsense"]])
def test_a_wrong_command_line_ends_with_2(here: Cli, arguments: list[str]) -> None:
    code, output, errors = here(*arguments)
    assert (code, output) == (2, "")
    assert "usage: batonflow" in errors


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    cli(folder, "run", "flows.py:greet", "--store", "runs.db", "--run-id", "g")
    process = start(folder, "show", "g", "--store", "runs.db", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(50) == 141
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()


def on_terminal(folder: Path, *arguments: str, **more: str) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "batonflow", *arguments],
        cwd=folder, env=environment(TERM="xterm-256color", **more), stdin=theirs, stdout=theirs, stderr=theirs,
    ):  # fmt: skip
        os.close(theirs)
        printed = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            printed += piece
    os.close(ours)
    return printed.decode()


def test_colours_are_for_terminals_that_want_them(folder: Path) -> None:
    cli(folder, "run", "flows.py:greet", "--store", "runs.db", "--run-id", "g[red]g")
    cli(folder, "run", "flows.py:greet", "--store", "runs.db", "--run-id", "g")
    assert "\x1b[32mcompleted" in on_terminal(folder, "runs", "--store", "runs.db")
    assert "\x1b[" not in on_terminal(folder, "runs", "--store", "runs.db", NO_COLOR="1")
    assert "\x1b[" not in cli(folder, "runs", "--store", "runs.db")[1]


def test_nothing_that_a_run_says_reaches_the_terminal_as_a_command(folder: Path) -> None:
    (folder / "hostile.py").write_text(
        "from batonflow import *\n"
        "class Said(Event):\n    text: str\n"
        "class Hostile(Workflow):\n"
        "    @step\n"
        "    async def say(self, ctx: Context, ev: StartEvent) -> StopEvent:\n"
        "        text = '\\x1b]0;owned\\x07\\x9b31m\\u202e[bold red]markup[/]\\r'\n"
        "        ctx.write_event_to_stream(Said(text=text))\n"
        "        return StopEvent(result=text)\n"
        "flow = Hostile()\n"
    )
    printed = on_terminal(folder, "run", "hostile.py:flow", "--stream", "--run-id", "h", "--store", "runs.db")
    printed += on_terminal(folder, "show", "h", "--store", "runs.db")
    printed += on_terminal(folder, "replay", "h", "--store", "runs.db")
    assert not set(printed) & set("\x1b\x07\x9b\u202e")
    assert printed.count("\r") == printed.count("\n")  # only those of the terminal's own line ends
    assert "[bold red]markup[/]" in printed


def test_without_a_command_it_shows_the_commands(here: Cli) -> None:
    code, output, errors = here()
    assert (code, output) == (2, "")
    assert all(f"    {name}" in errors for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("serve", "x", "--port", "80a"), "argument --port: '80a' is not the number of a port, from 0"),
        (("serve", "x", "--port", "70000"), "argument --port: '70000' is not the number of a port, from 0"),
        (("runs", "--limit", "few"), "argument --limit: 'few' is not a whole number from 1 on"),
    ],
)
def test_a_number_that_is_none_is_told(here: Cli, words: tuple[str, ...], told: str) -> None:
    code, _, errors = here(*words)
    assert code == 2
    assert told in errors


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_name_every_command_and_option(here: Cli, shell: str) -> None:
    code, output, errors = here("completions", shell)
    assert (code, errors) == (0, "")
    for word in (*COMMANDS, "reload", "store", "completed"):
        assert word in output


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("re", {"resume", "replay", "release"}), ("serve --re", {"--reload"}), ("runs comp", {"completed"})],
)
def test_a_shell_completes_with_the_script(here: Cli, folder: Path, typed: str, completed: set[str]) -> None:
    (folder / "complete.bash").write_text(here("completions", "bash")[1])
    words = ["batonflow", *typed.split(" ")]
    asked = f"""
source complete.bash
COMP_WORDS=({" ".join(words)})
COMP_CWORD={len(words) - 1}
_batonflow
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", asked], cwd=folder, capture_output=True, text=True, check=True)
    assert (set(done.stdout.split()), done.stderr) == (completed, "")
