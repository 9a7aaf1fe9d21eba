"""`batonflow worker`, `workers`, `drain`, `enqueue`, `queue`, `release`, `schedule` and `store`."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.stores.attempts import held_words
from tests.cli.conftest import Cli
from tests.cli.projects import ROOT, cli, start

Started = Callable[..., "subprocess.Popen[str]"]
STORE = ("--store", "runs.db")


@pytest.fixture
def worker(folder: Path) -> Iterator[Started]:
    """Starts a worker, and waits until it drives runs."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> "subprocess.Popen[str]":
        process = start(folder, "worker", *arguments, *STORE)
        begun.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("driving runs of"), (line, process.stderr.read() if process.stderr and not line else "")
        return process

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def output(folder: Path, *arguments: str) -> str:
    code, out, err = cli(folder, *arguments)
    assert code == 0, err
    return out


def status_of(folder: Path, run_id: str) -> str:
    listed = json.loads(output(folder, "runs", "--json", *STORE))
    return next(run["status"] for run in listed if run["run_id"] == run_id)


def until(folder: Path, run_id: str, status: str) -> None:
    for _ in range(200):
        if status_of(folder, run_id) == status:
            return
    raise AssertionError(f"{run_id} is {status_of(folder, run_id)}")


def test_runs_are_stored_counted_driven_and_the_worker_ends_with_sigterm(folder: Path, worker: Started) -> None:
    assert (
        output(folder, "enqueue", "flows.py:greet", "name=Ann", "--run-id", "g1", "--queue", "mail", *STORE) == "g1\n"
    )
    [line] = json.loads(output(folder, "queue", "--json", *STORE))
    assert [line[name] for name in ("queue", "workflow", "ready", "running")] == ["mail", "greet", 1, 0]
    process = worker("flows.py:greet", "flows.py:ask", "--queue", "mail,default")
    until(folder, "g1", "completed")
    assert "every run is over" in output(folder, "queue", *STORE)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=40)
    assert (process.returncode, errors) == (0, "")


def test_a_run_of_a_killed_worker_is_ended_by_another(folder: Path, worker: Started) -> None:
    output(folder, "enqueue", "flows.py:slow", "--run-id", "s1", *STORE)
    first = worker("flows.py:slow")
    assert first.stdout is not None
    assert [first.stdout.readline().strip() for _ in range(2)] == ["first", "second"]
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=40)
    (folder / "go").touch()
    second = worker("flows.py:slow")
    assert second.stdout is not None
    assert second.stdout.readline().strip() == "second", "the first step is not repeated"
    until(folder, "s1", "completed")


def test_a_run_that_does_not_end_in_time_is_given_back(folder: Path, worker: Started) -> None:
    output(folder, "enqueue", "flows.py:slow", "--run-id", "s1", *STORE)
    process = worker("flows.py:slow", "--drain", "0.2")
    assert process.stdout is not None
    assert [process.stdout.readline().strip() for _ in range(2)] == ["first", "second"]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=40)
    assert process.returncode == 0
    assert "1 run may go on for 0.2 seconds" in errors
    [line] = json.loads(output(folder, "queue", "--json", *STORE))
    assert (line["ready"], line["running"]) == (1, 0)


def test_fields_and_objects_may_stand_after_options(folder: Path, here: Cli, worker: Started) -> None:
    for words in (
        ("enqueue", "flows.py:greet", "--queue", "mail", "name=Ann", "--run-id", "g1", *STORE, "times=2"),
        ("enqueue", "flows.py:greet", *STORE, "--run-id", "g2", "name=Ann", "times=2"),
        ("run", "flows.py:greet", *STORE, "name=Ann", "--run-id", "g3", "times=2"),
        ("schedule", "add", "s1", "--tz", "Europe/Berlin", "flows.py:greet", "0 3 * * *", *STORE, "name=Ann"),
        ("schedule", "add", "s2", "flows.py:greet", "0 3 * * *", "--queue", "mail", "name=Ann", *STORE),
    ):
        code, _, err = here(*words)
        assert code == 0, (words, err)
    worker("flows.py:greet", "--concurrency", "2", "flows.py:ask")
    output(folder, "enqueue", "flows.py:ask", "--run-id", "a1", *STORE)
    until(folder, "g1", "completed")
    until(folder, "a1", "waiting")
    for run_id in ("g1", "g2", "g3"):
        assert "Ann hello Ann" in here("replay", run_id, *STORE)[1]
    for words, code in {("queue", "mail", *STORE): 2, ("schedule", "remove", *STORE, "s1", "s2"): 2}.items():
        assert here(*words)[0] == code


class TestAnswering:
    """`approve` and `cancel` say how the run goes on."""

    def waiting(self, here: Cli) -> None:
        assert here("run", "flows.py:ask", "--run-id", "a1", *STORE)[0] == 3

    def approve(self, here: Cli) -> list[str]:
        code, out, err = here("approve", "a1", "--answer", '{"yes": true}', *STORE)
        assert code == 0, err
        return out.splitlines()[1:]

    def test_a_worker_takes_the_run_up(self, folder: Path, here: Cli, worker: Started) -> None:
        self.waiting(here)
        worker("flows.py:ask")
        until(folder, "a1", "waiting")
        assert self.approve(here) == ["a worker takes it up"]
        until(folder, "a1", "completed")

    def test_a_worker_drives_the_run(self, folder: Path, here: Cli, worker: Started) -> None:
        output(folder, "enqueue", "flows.py:slow", "--run-id", "s1", *STORE)
        process = worker("flows.py:slow")
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["first", "second"]
        [one] = listed(folder)
        assert here("cancel", "s1", *STORE)[1] == f"s1 is told to end\nworker {one['name']} drives it\n"

    def test_no_worker_serves_the_run(self, here: Cli, worker: Started) -> None:
        self.waiting(here)
        worker("flows.py:greet")
        assert self.approve(here) == [
            "no process drives it and no worker takes it up: batonflow resume OBJ a1 --store runs.db"
        ]

    def test_a_held_run_is_to_be_released(self, here: Cli) -> None:
        self.waiting(here)
        hold("a1", "5 attempts ended")
        assert self.approve(here) == ["it is held: batonflow release a1 --store runs.db lets it be taken up again"]


def hold(run_id: str, reason: str) -> None:
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        connection.execute("UPDATE runs SET status = 'ready', held = ? WHERE run_id = ?", (reason, run_id))


def test_the_reason_of_a_held_run_names_its_worker(folder: Path, here: Cli, worker: Started) -> None:
    here("enqueue", "flows.py:greet", "--run-id", "g1", *STORE)
    worker("flows.py:ask")
    with closing(sqlite3.connect("runs.db")) as connection:
        [(name, owner)] = connection.execute("SELECT name, owner FROM workers")
    hold("g1", held_words(5, owner))
    reason = f"5 attempts ended without a commit, the last one of worker {name}"
    assert f"held      {reason}; batonflow release g1" in here("show", "g1", *STORE)[1]
    assert [run["held"] for run in json.loads(here("runs", "--json", *STORE)[1])] == [reason]
    hold("g1", held_words(5, "gone"))
    assert "the last one of gone;" in here("show", "g1", *STORE)[1]


POSTGRES = ("--store", "postgresql://app@127.0.0.1:1/prod")


@pytest.mark.parametrize(
    ("extra", "package", "words"),
    [
        ("postgres", "psycopg", ("queue", *POSTGRES)),
        ("postgres", "psycopg", ("worker", "flows.py:greet", *POSTGRES)),
        ("postgres", "psycopg", ("enqueue", "flows.py:greet", *POSTGRES)),
        ("fleet", "procrastinate", ("enqueue", "flows.py:greet", "--dispatcher", "procrastinate", *POSTGRES)),
        ("fleet", "procrastinate", ("worker", "flows.py:greet", "--dispatcher", "procrastinate", *POSTGRES)),
        ("dbos", "dbos", ("enqueue", "flows.py:greet", "--dispatcher", "dbos", *POSTGRES)),
        ("dbos", "dbos", ("worker", "flows.py:greet", "--dispatcher", "dbos", *POSTGRES)),
        ("fleet", "cronsim", ("schedule", "add", "s", "flows.py:greet", "0 3 * * *", *STORE)),
        ("retrieval", "numpy", ("ingest", "notes", "notes.db")),
        ("retrieval", "numpy", ("ask", "notes.db", "Who?")),
        ("server", "starlette", ("serve", "flows.py:greet")),
    ],
    ids=lambda words: words if isinstance(words, str) else words[0],
)
def test_a_missing_extra_is_named_in_one_form(folder: Path, extra: str, package: str, words: tuple[str, ...]) -> None:
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    code, out, err = cli(folder, *words, PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")
    assert (code, out) == (1, "")
    form = rf"batonflow {words[0]}: [\w ]+ needs? {package}, which is not installed: pip install .*\[{extra}\]'\n"
    assert re.fullmatch(form, err), err


def listed(folder: Path) -> list[dict[str, Any]]:
    return json.loads(output(folder, "workers", "--json", *STORE))


def test_workers_are_listed_and_one_ends_when_it_is_drained(folder: Path, worker: Started) -> None:
    output(folder, "enqueue", "flows.py:slow", "--run-id", "s1", *STORE)
    process = worker("flows.py:slow", "--concurrency", "3", "--drain", "60")
    assert process.stdout is not None
    assert [process.stdout.readline().strip() for _ in range(2)] == ["first", "second"]
    [one] = listed(folder)
    assert [one[name] for name in ("state", "runs", "slots", "workflows", "queues")] == [
        "working",
        1,
        3,
        ["slow", "schedule of slow"],
        None,
    ]
    assert (one["pid"], str(process.pid) in one["name"]) == (process.pid, True)
    table = output(folder, "workers", *STORE)
    assert all(text in table for text in ("WORKER", "LAST SIGN", one["name"], "working", "1 of 3", "slow", "s ago"))
    assert "takes up no further run" in output(folder, "drain", one["name"], *STORE)
    assert [each["state"] for each in listed(folder)] == ["draining"]
    process.send_signal(signal.SIGTERM)  # interrupts the run at once if the worker has heard that it shall drain
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=40)
    assert process.returncode == 0
    assert status_of(folder, "s1") == "ready", "another worker may continue it"
    assert listed(folder) == []
    assert output(folder, "workers", *STORE) == "no worker has signed in\n"


def test_a_killed_worker_is_listed_as_ended(folder: Path, worker: Started) -> None:
    process = worker("flows.py:slow")
    until_signed = time.monotonic() + 10
    while not listed(folder) and time.monotonic() < until_signed:
        time.sleep(0.05)
    process.kill()
    process.wait(timeout=40)
    [one] = listed(folder)
    assert one["state"] == "ended"
    code, out, err = cli(folder, "drain", one["name"], *STORE)
    assert (code, out) == (1, "")
    assert f"batonflow drain: {one['name']} has ended" in err
    assert cli(folder, "drain", "unknown", *STORE)[0] == 2


def health(address: str, path: str, method: str = "GET") -> int:
    request = urllib.request.Request(address + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_worker_answers_about_its_health(folder: Path, worker: Started) -> None:
    output(folder, "enqueue", "flows.py:slow", "--run-id", "s1", *STORE)
    process = worker("flows.py:slow", "--health", "127.0.0.1:0")
    assert process.stderr is not None
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
    assert found is not None
    assert [process.stdout.readline().strip() for _ in range(2)] == ["first", "second"]
    assert [health(found[0], path) for path in ("/live", "/ready", "/other")] == [200, 200, 404]
    assert health(found[0], "/live", "POST") == 405
    process.send_signal(signal.SIGTERM)
    process.stderr.readline()
    assert [health(found[0], path) for path in ("/live", "/ready")] == [200, 503]


def test_a_store_is_created_and_checked(here: Cli) -> None:
    code, _, err = here("store", "check", *STORE)
    assert (code, "there is no store runs.db" in err) == (2, True)
    assert here("store", "init", *STORE)[:2] == (0, f"{Path.cwd() / 'runs.db'} has its tables\n")
    assert here("store", "init", *STORE)[0] == 0
    assert here("store", "check", *STORE)[1] == f"{Path.cwd() / 'runs.db'} can be used: 0 unfinished runs, 0 workers\n"
    code, out, _ = here("store", "check", "--json", *STORE)
    assert (code, json.loads(out)["usable"]) == (0, True)
    Path("other.db").write_text("not a database, and long enough to be refused " * 20)
    code, _, err = here("store", "check", "--store", "other.db")
    assert (code, "other.db" in err) == (1, True)
    code, _, err = here("store", "check", "--store", "postgresql://app:secret@127.0.0.1:1/prod")
    assert (code, "cannot be reached" in err, "secret" in err) == (1, True, False)


def test_mistakes_end_in_one_line(here: Cli) -> None:
    for words, expected in {
        ("worker", "flows.py:greet"): "has no store",
        ("worker", "flows.py:greet", "flows.py:greet", *STORE): "two workflows have the name 'greet'",
        ("worker", "flows.py:greet", "--drain", "-1", *STORE): "not a number of seconds",
        ("worker", "flows.py:greet", "--queue", "a,,b", *STORE): "not a list of names",
        ("worker", "flows.py:greet", "--health", "9090", *STORE): "is not an address, such as 127.0.0.1:9090",
        ("serve", "flows.py:greet", "--no-drive"): "--no-drive needs a store",
        ("store", "init"): "no store is named",
        ("store", "mend", *STORE): "invalid choice",
        ("workers", "--store", "none.db"): "there is no store none.db",
        ("enqueue", "flows.py:greet"): "has no store",
        ("enqueue", "flows.py:greet", "nam=Ann", *STORE): "nam",
        ("enqueue", "flows.py:greet", "--priority", "5000", *STORE): "from -1000 to 1000",
        ("schedule", "add", "s", "flows.py:greet", "at three", "name=Ann", *STORE): "not a cron expression",
        ("schedule", "add", "a b", "flows.py:greet", "0 3 * * *", "name=Ann", *STORE): "not a name of a schedule",
        ("schedule", "add", "s", "flows.py:greet", "0 3 * * *", "name=Ann", "--tz", "Bonn", *STORE): "no time zone",
        ("queue", "--store", "none.db"): "there is no store none.db",
    }.items():
        code, _, err = here(*words)
        assert (code, expected in err, "Traceback" in err) == (2, True, False), (words, err)


def test_only_a_known_worker_is_drained(here: Cli) -> None:
    here("store", "init", *STORE)
    code, _, err = here("drain", "nobody", *STORE)
    assert (code, "has no worker 'nobody'" in err) == (2, True)


def test_only_a_held_run_is_released(here: Cli) -> None:
    here("enqueue", "flows.py:greet", "--run-id", "g1", *STORE)
    code, _, err = here("release", "g1", *STORE)
    assert (code, "g1 is not held" in err) == (1, True)
    code, _, err = here("release", "g2", *STORE)
    assert code != 0
    assert "g2" in err


def test_schedules_are_added_listed_and_removed(here: Cli) -> None:
    code, out, err = here("schedule", "add", "nightly", "flows.py:greet", "0 3 * * *", "name=Ann", *STORE)
    assert (code, out[:17]) == (0, "nightly: next at "), err
    _, out, _ = here("schedule", "list", "--json", *STORE)
    [listed] = json.loads(out)
    assert (listed["name"], listed["workflow"], listed["cron"], listed["timezone"]) == (
        "nightly",
        "greet",
        "0 3 * * *",
        "UTC",
    )
    assert here("schedule", "remove", "nightly", *STORE)[0] == 0
    code, _, err = here("schedule", "remove", "nightly", *STORE)
    assert (code, "there is no schedule 'nightly'" in err) == (2, True)
    assert here("schedule", "list", *STORE)[1] == "there are no schedules\n"


@pytest.mark.parametrize("command", ["worker", "enqueue"])
def test_a_dispatcher_needs_a_store_in_postgresql(folder: Path, command: str) -> None:
    code, out, err = cli(folder, command, "flows.py:greet", "--dispatcher", "procrastinate", *STORE)
    assert (code, out) == (2, "")
    assert "dispatcher='procrastinate' needs a store in PostgreSQL" in err
    assert not (folder / "runs.db").exists()
