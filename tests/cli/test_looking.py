"""`batonflow runs`, `show` and `replay`: what a store tells of its runs, without their code."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from batonflow.agents import FunctionAgent
from batonflow.cli import stores
from batonflow.durable import search
from batonflow.llms import ScriptedLLM
from tests.cli.conftest import Cli
from tests.cli.projects import cli, start


@pytest.fixture
def store(here: Cli) -> list[str]:
    """A store with four runs: done, failed, and two that wait."""
    option = ["--store", "runs.db"]
    here("run", "flows.py:greet", "name=Ann", "--run-id", "done", *option)
    here("run", "flows.py:fail", "--run-id", "failed", *option)
    here("run", "flows.py:ask", "--run-id", "asking", *option)
    here("run", "team.py:team", "Go.", "--run-id", "team", *option)
    # Nothing of the code is needed from here on.
    Path("flows.py").unlink()
    Path("team.py").unlink()
    return option


def test_runs_are_listed_newest_first_with_what_they_wait_for(here: Cli, store: list[str]) -> None:
    code, output, _ = here("runs", *store)
    rows = [line.split() for line in output.splitlines()]
    assert code == 0
    assert rows[0] == ["RUN", "WORKFLOW", "STATUS", "AGE", "COMMITS"]
    assert [row[:3] for row in rows[1:]] == [
        ["team", "batonflow.agents.team.AgentWorkflow", "waiting"],
        ["asking", "ask", "waiting"],
        ["failed", "fail", "failed"],
        ["done", "greet", "completed"],
    ]


def test_runs_can_be_chosen(here: Cli, store: list[str]) -> None:
    def ids(*options: str) -> list[str]:
        return [run["run_id"] for run in json.loads(here("runs", "--json", *options, *store)[1])]

    assert ids("--status", "completed", "--status", "failed") == ["failed", "done"]
    assert ids("--workflow", "ask") == ["asking"]
    assert here("runs", "--limit", "1", *store)[2] == "there may be more than 1: see --limit\n"
    assert ids("--limit", "1") == ["team"]
    assert {run["run_id"]: run["asks"] for run in json.loads(here("runs", "--json", *store)[1])} == {
        "team": 1,
        "asking": 1,
        "failed": 0,
        "done": 0,
    }


def test_runs_can_be_chosen_by_metadata(here: Cli, folder: Path) -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["Hi."] * 2), store=folder / "chats.db")
    for user in ("ann", "bob"):
        agent.run_sync("Hello", session=user, metadata={"user": user})

    def runs(*options: str) -> tuple[int, str, str]:
        return here("runs", "--json", "--store", "chats.db", *options)

    [found] = json.loads(runs("--metadata", "user=ann")[1])
    assert (found["run_id"], found["session"], found["metadata"]) == ("ann:1", "ann", {"user": "ann"})
    assert json.loads(runs("--metadata", "user=ann", "--status", "waiting")[1]) == []
    assert len(json.loads(runs()[1])) == 2
    code, _, errors = runs("--metadata", "ann")
    assert code == 2
    assert "--metadata takes NAME=VALUE, not 'ann'" in errors


def test_runs_are_found_by_their_contents(here: Cli, store: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def ids(*options: str) -> list[str]:
        code, output, errors = here("runs", "--json", *options, *store)
        assert (code, errors) == (0, "")
        return [run["run_id"] for run in json.loads(output)]

    assert ids("--text", "hello ann") == ["done"]
    assert ids("--model", "script") == ["team"]
    assert ids("--error", "ValueError") == []
    assert ids("--status", "waiting", "--since", "2020-01-01") == ["team", "asking"]
    assert ids("--until", "2020-01-01T10:00") == []
    assert ids("--min-cost", "0.01") == []
    for option, wrong, said in (
        ("--since", "yesterday", "'yesterday' is not a time in ISO 8601"),
        ("--max-cost", "much", "'much' is not a number of US dollars"),
    ):
        code, _, errors = here("runs", option, wrong, *store)
        assert code == 2
        assert said in errors


def test_a_long_preparation_of_a_search_says_what_is_left(
    here: Cli, store: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS_TO_REPORT", 0)
    monkeypatch.setattr(search, "_RUNS_AT_ONCE", 1)
    code, output, errors = here("runs", "--text", "hello", *store)
    assert code == 0
    assert "done" in output
    assert errors.splitlines() == [f"reading runs for the search: {left} left" for left in (3, 2, 1, 0)]


def test_show_tells_a_run_record_by_record(here: Cli, store: list[str]) -> None:
    code, output, _ = here("show", "done", *store)
    head, records = output.split("\n\n")
    assert code == 0
    assert head.splitlines()[:3] == ["run       done", "workflow  greet", "status    completed"]
    told = [line.split(maxsplit=3)[2:] for line in records.splitlines()]
    assert told[0] == ["-", "started with Named(name='Ann', times=1, loud=False)"]
    assert told[1][0] == "greet"
    assert told[1][1].endswith("-> Halfway(text='hello Ann')")
    assert told[-1] == ["-", "ended with StopEvent 'hello Ann'"]


def test_show_says_how_long_a_run_has_waited(here: Cli, store: list[str]) -> None:
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        connection.execute("UPDATE runs SET created_at = created_at - 7200, updated_at = updated_at - 7200")
    assert "\nlasted    2h0" in here("show", "asking", *store)[1]
    assert "\nlasted    2h0" not in here("show", "done", *store)[1]


def test_show_says_why_a_run_failed_and_what_one_waits_for(here: Cli, store: list[str]) -> None:
    assert "failed: ValueError: no such harbour: \\x1b[31mEmden" in here("show", "failed", *store)[1]
    output = here("show", "asking", *store)[1]
    assert "waits for Answer(who='ann'), asked Question(text='Sail?')" in output
    assert "batonflow approve asking --answer JSON --store runs.db\n    the JSON needs yes (boolean)\n" in output
    output = here("show", "team", *store)[1]
    assert "batonflow approve team --deny REASON --store runs.db" in output
    assert re.search(r"run_agent_step +\S+, asked scripted \(\d+ -> \d+ tokens, \S+\) -> AgentOutput", output)


def test_show_and_runs_agree_where_a_run_stands(here: Cli, store: list[str]) -> None:
    def standings(run_id: str) -> set[str]:
        rows = [line.split(maxsplit=2) for line in here("runs", *store)[1].splitlines()]
        [listed] = [row[2] for row in rows if row[0] == run_id]
        shown = here("show", run_id, *store)[1].splitlines()[2].removeprefix("status    ")
        return {shown} if listed.startswith(f"{shown}  ") else {shown, listed}

    assert standings("asking") == standings("team") == {"waiting (1 asked)"}
    here("approve", "team", *store)
    assert standings("team") == {"ready (answered)"}
    assert standings("done") == {"completed"}


def test_a_run_whose_process_was_killed_is_interrupted(folder: Path) -> None:
    running = start(folder, "run", "flows.py:slow", "--run-id", "s", "--store", "runs.db")
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(2)] == ["first\n", "second\n"]
    assert "running, driven by a living process" in cli(folder, "show", "s", "--store", "runs.db")[1]
    running.kill()
    running.communicate()
    assert "status    interrupted\n" in cli(folder, "show", "s", "--store", "runs.db")[1]
    assert cli(folder, "runs", "--store", "runs.db")[1].splitlines()[1].split()[:3] == ["s", "slow", "interrupted"]
    assert cli(folder, "run", "flows.py:greet", "--run-id", "g", "--store", "runs.db")[0] == 0

    def chosen(*statuses: str) -> list[str]:
        options = [word for status in statuses for word in ("--status", status)]
        code, output, errors = cli(folder, "runs", "--store", "runs.db", *options)
        assert (code, errors) == (0, "")
        return [line.split()[0] for line in output.splitlines()[1:]]

    assert chosen("interrupted") == ["s"]
    assert chosen("interrupted", "completed") == ["g", "s"]
    assert chosen("waiting") == []


def test_show_as_json(here: Cli, store: list[str]) -> None:
    told = json.loads(here("show", "asking", "--json", *store)[1])
    assert [entry["kind"] for entry in told["entries"]] == ["started", "segment"]
    [asked] = told["waiting"]
    assert asked["requirements"] == {"who": "ann"}
    assert asked["fields"] == {
        "who": {"type": "string", "required": True},
        "yes": {"type": "boolean", "required": True},
    }


def test_show_follows_a_run_of_another_process(folder: Path) -> None:
    running = start(folder, "run", "flows.py:slow", "--run-id", "s", "--store", "runs.db")
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.readline()
    following = start(folder, "show", "s", "--follow", "--json", "--store", "runs.db")
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["kind"] == "started"
    running.kill()
    running.communicate()
    (folder / "go").touch()
    assert cli(folder, "resume", "flows.py:slow", "s", "--store", "runs.db")[0] == 0
    output, errors = following.communicate(timeout=50)
    assert json.loads(output.splitlines()[-1])["kind"] == "ended"
    assert (following.returncode, errors) == (0, "")


def test_show_as_a_page(here: Cli, store: list[str]) -> None:
    assert here("show", "team", "--html", "team.html", *store)[::2] == (0, "written: team.html\n")
    page = Path("team.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "High water comes twice a day" in page


def test_a_page_in_a_missing_folder_is_refused(here: Cli, store: list[str]) -> None:
    code, output, errors = here("show", "team", "--html", "missing/team.html", *store)
    told = "batonflow show: there is no folder missing for missing/team.html: make it first, or name another\n"
    assert (code, output, errors) == (2, "", told)
    assert not Path("missing").exists()


def test_runs_that_ask_something_wait(here: Cli, store: list[str]) -> None:
    listed = json.loads(here("runs", "--status", "waiting", "--json", *store)[1])
    assert {run["run_id"] for run in listed} == {"team", "asking"}
    listed = json.loads(here("runs", "--status", "waiting", "--status", "failed", "--json", *store)[1])
    assert [run["run_id"] for run in listed] == ["team", "asking", "failed"]


def test_replay_prints_what_was_streamed(here: Cli, store: list[str]) -> None:
    assert here("replay", "done", *store)[1] == "Halfway(text='hello Ann')\ndone is completed: StopEvent 'hello Ann'\n"
    assert here("replay", "team", *store)[1] == (
        "  -> search(topic='tides')\n"
        "  <- High water comes twice a day (tides).\n"
        "  == writer: the facts are there\n"
        "writer: I will publish this.\n"
        "  -> publish(title='Tides')\n"
        "  ?? writer wants to call publish(title='Tides')\n"
        "team is waiting (1 asked), not over yet\n"
    )


def test_replay_as_json(here: Cli, store: list[str]) -> None:
    told = json.loads(here("replay", "done", "--json", *store)[1])
    assert [event["type"] for event in told["events"]] == ["Halfway"]
    assert told["result"] == {
        "qualified_name": "batonflow.workflow_core.events.StopEvent",
        "value": {"result": "hello Ann"},
    }


@pytest.mark.parametrize("command", ["show", "replay", "approve", "cancel"])
def test_a_run_that_is_not_there(here: Cli, store: list[str], command: str) -> None:
    code, _, errors = here(command, "nobody", *store)
    assert code == 2
    assert errors.endswith("the store has no run 'nobody': `batonflow runs` lists its runs\n")


def test_a_store_that_is_not_there_is_not_made(here: Cli) -> None:
    assert here("runs", "--store", "typo.db")[::2] == (
        2,
        "batonflow runs: there is no store typo.db: --store names the SQLite file of earlier runs\n",
    )
    assert here("runs")[::2] == (
        2,
        "batonflow runs: no store is named: --store FILE, or BATONFLOW_STORE in the environment\n",
    )
    assert not Path("typo.db").exists()


def test_a_file_that_is_no_store_is_told_in_a_line(here: Cli) -> None:
    code, _, errors = here("runs", "--store", "flows.py")
    assert code == 1
    assert errors.count("\n") == 1


def test_diff_tells_where_two_runs_part(here: Cli) -> None:
    store = ["--store", "runs.db"]
    for name in ("Ann", "Bob"):
        here("run", "flows.py:greet", f"name={name}", "--run-id", name, *store)
    here("run", "flows.py:greet", "name=Ann", "--run-id", "again", *store)
    code, output, _ = here("diff", "Ann", "again", *store)
    assert (code, output) == (0, "the runs are the same\n")
    code, output, _ = here("diff", "Ann", "Bob", *store)
    assert code == 1
    assert "the first 0 records are the same" in output
    assert "Ann" in output
    assert "Bob" in output
    told = json.loads(here("diff", "Ann", "Bob", "--json", *store)[1])
    assert told["same"] == 0
    assert "Bob" in json.dumps(told["differences"][0]["right"])
    assert here("diff", "Ann", "nobody", *store)[0] == 2


@pytest.mark.parametrize(("words", "statement"), [(("runs",), "BEGIN EXCLUSIVE"), (("cancel", "x"), "BEGIN IMMEDIATE")])
def test_a_locked_store_is_told_and_waited_for(
    here: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], statement: str
) -> None:
    monkeypatch.setattr(stores, "_SILENCE", 0.0)
    monkeypatch.setattr(stores, "_PATIENCE", 0.3)
    cli(folder, "run", "flows.py:greet", "name=Ann", "--store", "runs.db")
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE")  # else readers would not mind
        other.execute(statement)
        code, _, errors = here(*words, "--store", "runs.db")
        other.execute("ROLLBACK")
    assert code == 1
    first, last = errors.splitlines()
    assert first == "runs.db is locked by another program; waiting 0.3 seconds for it"
    assert last.startswith(f"batonflow {words[0]}: runs.db is locked by another program: end it")
    assert here("runs", "--store", "runs.db")[0] == 0
