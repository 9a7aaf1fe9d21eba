"""The parser of the command line; it loads only the standard library."""

import argparse
import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from batonflow import __version__

__all__ = ["STATUSES", "STORE_VARIABLE", "default_store", "parsed", "parser"]

STORE_VARIABLE = "BATONFLOW_STORE"
SHELLS = ("bash", "zsh", "fish")
_DISPATCHERS = ("none", "procrastinate", "dbos")
STATUSES = ("ready", "running", "waiting", "interrupted", "held", "completed", "failed", "cancelled")

_OBJECT = (
    "module:name or file.py:name of a workflow, an agent, a team, or a function that makes one; the name may be left "
    "out when there is only one"
)


class _Commands(Protocol):
    """The object that adds commands to a parser; argparse has no public name for it."""

    def add_parser(self, name: str, *, help: str, description: str) -> argparse.ArgumentParser:  # noqa: A002
        """Add a command."""
        ...


_EPILOG = """exit codes: 0 done, 1 failed, 2 wrong command line, 3 the run waits for a person, 130 interrupted

batonflow run team.py:team "Write about tides." --store runs.db --run-id tides-1
batonflow approve tides-1 --store runs.db
batonflow resume team.py:team tides-1 --store runs.db"""


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line.

    Args:
        arguments: The words after the program's name; by default the arguments of this process.

    Raises:
        SystemExit: The command line is wrong or asks for help; the message has been printed.
    """
    top = parser()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        top.print_help(sys.stderr)
        raise SystemExit(2)
    given, left = top.parse_known_args(words)
    # argparse does not assign positional arguments of any number that stand after an option.
    late = next((name for name in ("fields", "objects", "request", "reason") if hasattr(given, name)), "")
    if left and late and not any(one.startswith("-") for one in left):
        found: Any = getattr(given, late)
        if isinstance(found, list):
            setattr(given, late, [*found, *left])
            left = []
        elif len(left) == 1 and not found:
            setattr(given, late, left.pop())
    if left:
        top.error(f"unrecognized arguments: {' '.join(left)}")
    return given


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="batonflow",
        description="Run, watch, answer, draw, check and serve workflows and agents.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"batonflow {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _of_objects(commands)
    _of_passages(commands)
    _of_fleets(commands)
    _of_lists(commands)
    _of_stores(commands)
    completions = _added(commands, "completions", "print a script that completes command lines in a shell")
    completions.add_argument("shell", choices=SHELLS, help="for ~/.bashrc: source <(batonflow completions bash)")
    return top


def _added(commands: _Commands, name: str, text: str) -> argparse.ArgumentParser:
    one = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    one.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return one


def _takes_object(command: argparse.ArgumentParser, help_text: str = _OBJECT) -> None:
    command.add_argument("object", metavar="OBJ", help=help_text)


def _takes_store(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--store",
        default=None,
        metavar="FILE",
        help=f"the SQLite file, or the postgresql:// address, that keeps the runs; {STORE_VARIABLE} when left out",
    )


def _takes_fields(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "fields",
        nargs="*",
        default=[],
        metavar="key=value",
        help="fields of the start event; words without a key are an agent's message, or an engine's question",
    )
    command.add_argument(
        "--input", metavar="JSON", help="fields of the start event as a JSON object; - reads it from stdin"
    )


def _takes_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON, for programs")


def _of_objects(commands: _Commands) -> None:
    run = _added(commands, "run", "run a workflow or an agent, and print its result")
    _takes_object(run)
    _takes_fields(run)
    run.add_argument("--run-id", metavar="ID", help="the run's id; the same id again resumes the run")
    run.add_argument("--stream", action="store_true", help="print the events that the run streams")
    _takes_store(run)
    _takes_json(run)

    resume = _added(commands, "resume", "resume a stored run")
    _takes_object(resume)
    resume.add_argument("run", metavar="RUN", help="the run's id")
    resume.add_argument("--stream", action="store_true", help="print the events that the run streams")
    _takes_store(resume)
    _takes_json(resume)

    fork = _added(commands, "fork", "continue a copy of a run from one of its commits")
    _takes_object(fork)
    fork.add_argument("run", metavar="RUN", help="the id of the run to branch off from")
    fork.add_argument("--at", type=_positive, required=True, metavar="COMMIT", help="the last commit that both have")
    fork.add_argument(
        "--state", action="append", default=[], metavar="PATH=JSON", help="a value for the state; may be repeated"
    )
    fork.add_argument("--run-id", metavar="ID", help="the new run's id; generated when left out")
    fork.add_argument("--stream", action="store_true", help="print the events that the run streams")
    _takes_store(fork)
    _takes_json(fork)

    trial = _added(commands, "try", "run a stored run again with another model, and compare the two runs")
    _takes_object(trial)
    trial.add_argument("run", metavar="RUN", help="the run's id")
    trial.add_argument("--llm", metavar="NAME", help='the model that answers, such as "openai:gpt-5.6"')
    trial.add_argument("--system", metavar="TEXT", help="the system message in place of the agent's own")
    trial.add_argument("--temperature", type=_temperature, metavar="X", help="the temperature of all requests")
    trial.add_argument("--effects", action="store_true", help="let functions of ctx.effect run that the run has not")
    trial.add_argument("--run-id", metavar="ID", help="the new run's id; generated when left out")
    _takes_store(trial)
    _takes_json(trial)

    chat = _added(commands, "chat", "talk to an agent; approvals are asked in place, Ctrl-C stops the answer")
    _takes_object(chat)
    _takes_store(chat)

    draw = _added(commands, "draw", "draw all paths of events through a workflow")
    _takes_object(draw)
    draw.add_argument(
        "-o", "--output", metavar="FILE", help="a .html, .svg or .mermaid file; without it, Mermaid text goes to stdout"
    )

    check = _added(commands, "check", "check graph, tools, handoffs and output types, without calling a model")
    _takes_object(check)
    _takes_json(check)

    serve = _added(commands, "serve", "serve a workflow or an agent over HTTP, with a page to watch its runs")
    _takes_object(serve, _OBJECT.replace("a workflow", "a WorkflowServer, a workflow"))
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    serve.add_argument("--port", type=_port, default=8080, help="the port to listen on (default: %(default)s)")
    serve.add_argument("--reload", action="store_true", help="start again when a Python file of this folder changes")
    serve.add_argument("--no-drive", action="store_true", help="only store and show runs; workers drive them")
    serve.add_argument("--open", action="store_true", help="open the page in a browser")
    serve.add_argument("--token", help="the bearer token that clients must send; BATONFLOW_TOKEN when left out")
    _takes_store(serve)


def _of_passages(commands: _Commands) -> None:
    ingest = _added(commands, "ingest", "read files into a file of passages; the same command again adds what is new")
    ingest.add_argument("source", metavar="SOURCE", help="the folder, which is read with all folders in it, or a file")
    ingest.add_argument("file", metavar="FILE", help="the file of passages, such as notes.db")
    ingest.add_argument("--exclude", action="append", metavar="PATTERN", help='files to leave out, such as "*.log"')
    ingest.add_argument(
        "--generated", action="store_true", help="read the indexes and copies of sources that Sphinx generates, too"
    )
    ingest.add_argument("--prune", action="store_true", help="delete the passages of files that are gone")
    ingest.add_argument("--encoding", default="utf-8", metavar="NAME", help="the encoding of text (default: utf-8)")
    ingest.add_argument("--batch", type=_positive, default=64, metavar="N", help="files written together (default: 64)")

    ask = _added(commands, "ask", "answer a question from a file of passages; without a model, print the passages")
    ask.add_argument("file", metavar="FILE", help="the file that `batonflow ingest` has written")
    ask.add_argument("question", metavar="QUESTION", help="the question")
    ask.add_argument("--llm", metavar="NAME", help='the model that answers, such as "openai:gpt-5.6"')
    ask.add_argument("--top-k", type=_positive, default=5, metavar="N", help="the number of passages (default: 5)")

    for one in (ingest, ask):
        one.add_argument("--embed-model", metavar="NAME", help='search by vectors, too, with "openai:NAME"')
        one.add_argument("--index", metavar="ID", help="the index in the file; may be left out when there is one")
        _takes_json(one)


def _of_fleets(commands: _Commands) -> None:
    worker = _added(commands, "worker", "drive the runs of a store, beside other workers")
    worker.add_argument("objects", nargs="+", metavar="OBJ", help=_OBJECT)
    worker.add_argument(
        "--concurrency",
        type=_positive,
        default=20,
        metavar="N",
        help="the largest number of runs in memory (default: 20)",
    )
    worker.add_argument("--queue", type=_names, metavar="NAMES", help="only runs of these queues, such as default,gpu")
    worker.add_argument(
        "--drain", type=_seconds, default=60.0, help="the seconds that runs get after SIGTERM or Ctrl-C (default: 60)"
    )
    worker.add_argument(
        "--dispatcher", choices=_DISPATCHERS, default="none", help="an engine whose bells tell of runs (default: none)"
    )
    worker.add_argument("--health", type=_address, metavar="HOST:PORT", help="answer GET /live and GET /ready there")
    _takes_store(worker)

    enqueue = _added(commands, "enqueue", "store a run for the worker or server that takes it up")
    _takes_object(enqueue)
    _takes_fields(enqueue)
    enqueue.add_argument("--run-id", metavar="ID", help="the run's id; the same id again does not store a second run")
    enqueue.add_argument("--queue", metavar="NAME", help="the queue (default: default)")
    enqueue.add_argument(
        "--priority", type=_priority, default=0, metavar="N", help="larger numbers are taken up first (default: 0)"
    )
    enqueue.add_argument("--at", type=_time, metavar="TIME", help="the earliest time to take it up (ISO 8601)")
    enqueue.add_argument(
        "--dispatcher", choices=_DISPATCHERS, default="none", help="the engine that tells a worker (default: none)"
    )
    _takes_store(enqueue)
    _takes_json(enqueue)

    queue = _added(commands, "queue", "count the runs that are ready, running, waiting and held")
    _takes_store(queue)
    _takes_json(queue)

    workers = _added(commands, "workers", "list the workers of a store, with their runs and last signs of life")
    _takes_store(workers)
    _takes_json(workers)

    drain = _added(commands, "drain", "let a worker take up no further run, and end")
    drain.add_argument("worker", metavar="WORKER", help="the worker's name, as `batonflow workers` shows it")
    _takes_store(drain)
    _takes_json(drain)

    store = _added(commands, "store", "create the tables of a store, or check that it can be used")
    store.add_argument("action", choices=("init", "check"), help="init creates a missing store, check uses one")
    _takes_store(store)
    _takes_json(store)

    release = _added(commands, "release", "let a held run be taken up again")
    release.add_argument("run", metavar="RUN", help="the run's id")
    _takes_store(release)
    _takes_json(release)

    _of_schedules(
        _added(commands, "schedule", "let workers start runs at given times").add_subparsers(
            dest="action", required=True, metavar="ACTION"
        )
    )


def _of_schedules(actions: _Commands) -> None:
    add = _added(actions, "add", "add a schedule, or replace the one of this name")
    add.add_argument("name", metavar="NAME", help="the name of the schedule")
    _takes_object(add)
    add.add_argument("cron", metavar="CRON", help="minute, hour, day, month and weekday, as in '0 3 * * *'")
    _takes_fields(add)
    add.add_argument("--tz", default="UTC", metavar="ZONE", help="the time zone, as in Europe/Berlin (default: UTC)")
    add.add_argument("--queue", metavar="NAME", help="the queue of the runs (default: default)")
    add.add_argument("--priority", type=_priority, default=0, metavar="N", help="the priority of the runs (default: 0)")
    listed = _added(actions, "list", "list the schedules of a store")
    remove = _added(actions, "remove", "start no further run of a schedule")
    remove.add_argument("name", metavar="NAME", help="the name of the schedule")
    for one in (add, listed, remove):
        _takes_store(one)
        _takes_json(one)


def _of_lists(commands: _Commands) -> None:
    runs = _added(commands, "runs", "list the runs of a store, newest first")
    runs.add_argument("--status", choices=STATUSES, action="append", help="only runs with this status; may be repeated")
    runs.add_argument("--workflow", metavar="NAME", help="only runs of this workflow")
    runs.add_argument(
        "--metadata",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only runs that were given this metadata; may be repeated",
    )
    runs.add_argument("--text", default="", metavar="WORDS", help="only runs with these words in their contents")
    runs.add_argument(
        "--model", default="", metavar="NAME", help="only runs with answers of this model; a part is enough"
    )
    runs.add_argument("--error", default="", metavar="TEXT", help="only runs with an error that has this text")
    runs.add_argument("--since", type=_time, metavar="TIME", help="only runs created at or after this time (ISO 8601)")
    runs.add_argument("--until", type=_time, metavar="TIME", help="only runs created before this time")
    runs.add_argument("--min-cost", type=_dollars, metavar="USD", help="only runs that cost so many dollars or more")
    runs.add_argument("--max-cost", type=_dollars, metavar="USD", help="only runs that cost so many dollars or less")
    runs.add_argument("--limit", type=_positive, default=20, help="the largest number of runs (default: %(default)s)")
    _takes_store(runs)
    _takes_json(runs)


def _of_stores(commands: _Commands) -> None:
    show = _added(commands, "show", "print the records of a run")
    show.add_argument("run", metavar="RUN", help="the run's id")
    show.add_argument("--follow", action="store_true", help="continue with new records until the run is over")
    show.add_argument("--html", metavar="FILE", help="write the page of the run into a file instead")
    _takes_store(show)
    _takes_json(show)

    replay = _added(commands, "replay", "print the stream of a run again, without running it")
    replay.add_argument("run", metavar="RUN", help="the run's id")
    _takes_store(replay)
    _takes_json(replay)

    diff = _added(commands, "diff", "compare two runs, record by record")
    diff.add_argument("run", metavar="RUN", help="a run's id")
    diff.add_argument("other", metavar="OTHER", help="the other run's id")
    _takes_store(diff)
    _takes_json(diff)

    compare = _added(commands, "compare", "show two runs side by side: calls, tokens, cost, time, state and result")
    compare.add_argument("run", metavar="RUN", help="a run's id")
    compare.add_argument("other", metavar="OTHER", help="the other run's id")
    _takes_store(compare)
    _takes_json(compare)

    case = _added(commands, "case", "save runs as test cases, for pytest")
    actions: _Commands = case.add_subparsers(dest="action", required=True, metavar="ACTION")
    save = _added(actions, "save", "write a completed run into a file: its input, calls of models, tools and result")
    save.add_argument("run", metavar="RUN", help="the run's id")
    save.add_argument("--to", default="cases", metavar="FOLDER", help="the folder of the file (default: %(default)s)")
    save.add_argument("--name", default="", metavar="NAME", help="the name of the case; the run's id when left out")
    save.add_argument("--force", action="store_true", help="replace a case of the same name")
    _takes_store(save)

    approve = _added(commands, "approve", "answer a question of a run: approve or deny a tool call, or send an answer")
    approve.add_argument("run", metavar="RUN", help="the run's id")
    approve.add_argument(
        "request", nargs="?", metavar="REQUEST", help="which request; may be left out when there is one"
    )
    answers = approve.add_mutually_exclusive_group()
    answers.add_argument("--deny", metavar="REASON", help="deny the tool call; the model gets the reason")
    answers.add_argument("--arguments", metavar="JSON", help="approve, with other arguments for the tool")
    answers.add_argument("--answer", metavar="JSON", help="answer a question: its fields, or just a text")
    approve.add_argument(
        "--type", metavar="CLASS", help="the qualified name of the answer's class, if the records do not contain it"
    )
    _takes_store(approve)
    _takes_json(approve)

    cancel = _added(commands, "cancel", "cancel a run, in whichever process it runs")
    cancel.add_argument("run", metavar="RUN", help="the run's id")
    cancel.add_argument("reason", nargs="?", default="", metavar="REASON", help="why, for the records")
    _takes_store(cancel)
    _takes_json(cancel)


def _positive(text: str) -> int:
    return _whole(text, 1, None, "a whole number from 1 on")


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if all(names):
        return names
    raise argparse.ArgumentTypeError(f"{text!r} is not a list of names, such as default,gpu")


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) < float("inf"):
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")


def _priority(text: str) -> int:
    with suppress(ValueError):
        if -1000 <= (number := int(text)) <= 1000:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from -1000 to 1000")


def _time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()  # of this place, if it does not name another
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time in ISO 8601, such as 2026-05-01 or 2026-05-01T18:30"
        ) from None


def _dollars(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of US dollars")
    return number


def _temperature(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if 0 <= number <= 10:
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a temperature, such as 0 or 0.7")


def _port(text: str) -> int:
    return _whole(text, 0, 65535, "the number of a port, from 0 (any that is free) to 65535")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if host:
        with suppress(argparse.ArgumentTypeError):
            return host.strip("[]"), _port(port)
    raise argparse.ArgumentTypeError(f"{text!r} is not an address, such as 127.0.0.1:9090")


def _whole(text: str, least: int, most: int | None, expected: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 20:
        number = int(text)
        if least <= number and (most is None or number <= most):
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")


def default_store() -> str | None:
    """Return the store that the environment names."""
    return os.environ.get(STORE_VARIABLE) or None
