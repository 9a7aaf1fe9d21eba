"""`batonflow run` and `resume`: a run from a shell, over several processes."""

import json
import signal
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from batonflow.agents import AgentWorkflowStartEvent
from tests.cli.conftest import Cli
from tests.cli.projects import cli, start


def test_a_run_prints_its_result(here: Cli) -> None:
    assert here("run", "flows.py:greet", "name=Ann") == (0, "hello Ann\n", "")


def test_values_are_json_unless_the_field_is_text(here: Cli) -> None:
    assert here("run", "flows.py:greet", "name=7", "times=2", "loud=true")[1] == "HELLO 7 HELLO 7\n"


def test_options_may_stand_before_fields(here: Cli) -> None:
    assert here("run", "flows.py:greet", "--store", "runs.db", "name=Ann", "times=2")[:2] == (
        0,
        "hello Ann hello Ann\n",
    )


def test_input_comes_as_json_or_from_stdin(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert here("run", "flows.py:greet", "--input", '{"name": "Bob"}')[1] == "hello Bob\n"
    monkeypatch.setattr(sys, "stdin", StringIO('{"name": "Cid"}'))
    assert here("run", "flows.py:greet", "--input", "-")[1] == "hello Cid\n"


def test_a_field_that_is_none_is_told(here: Cli) -> None:
    code, _, errors = here("run", "flows.py:greet", "Ann")
    assert (code, errors) == (2, "batonflow run: 'Ann' is not a field: write key=value; Named has name, times, loud\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["flows.py:greet", "times=x"], "no Named can be made of this: times: Input should be a valid integer"),
        (["flows.py:greet", "nam=x"], "Named has no field 'nam'. Did you mean 'name'?"),
        (["flows.py:greet", "name=x", "tims=2"], "Named has no field 'tims'. Did you mean 'times'?"),
        (["flows.py:greet", "name=x", "price=2"], "Named has no field 'price'; it has name, times, loud"),
        (["flows.py:greet", "--input", '{"nam": "x"}'], "Named has no field 'nam'. Did you mean 'name'?"),
        (["team.py:team", "--input", '{"user_msg": 5}'], "user_msg is a text or a ChatMessage, not 5"),
        (["team.py:team", "usr_msg=x"], "run() ignores unknown option 'usr_msg'. Did you mean 'user_msg'?"),
        (["team.py:writer", "usr_msg=x", "Hello."], "run() ignores unknown option 'usr_msg'. Did you mean 'user_msg'?"),
        (
            ["team.py:writer", "tools=x", "Hello."],
            "run(tools=...) changes nothing: tools is given to FunctionAgent(...)",
        ),
        (["team.py:team"], 'AgentWorkflow needs a message: batonflow run team.py:team "Hello."'),
        (["team.py:writer", "max_iterations=3"], "FunctionAgent needs a message: batonflow run team.py:writer"),
        (["team.py:team", "max_iterations=0", "Hello."], "max_iterations is a whole number from 1 on, not 0"),
        (
            ["team.py:team", "early_stopping_method=x", "Hello."],
            "early_stopping_method is 'force' or 'generate', not 'x'",
        ),
    ],
)
def test_fields_that_do_not_fit_are_told(here: Cli, words: list[str], told: str) -> None:
    code, _, errors = here("run", *words)
    assert code == 2
    assert errors.startswith(f"batonflow run: {told}")
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("named", ["missing/runs.db", "sqlite:///missing/runs.db"])
@pytest.mark.parametrize("command", ["run", "resume", "serve", "chat"])
def test_a_store_in_a_missing_folder_is_refused(here: Cli, command: str, named: str) -> None:
    code, output, errors = here(command, "team.py:team", *["x"] * (command in ("run", "resume")), "--store", named)
    told = f"batonflow {command}: there is no folder missing for the store {named}: make it first, or name another\n"
    assert (code, output, errors) == (2, "", told)
    assert not Path("missing").exists()


def test_an_empty_id_is_told(here: Cli) -> None:
    code, _, errors = here("run", "flows.py:greet", "name=Ann", "--run-id", "")
    assert (code, errors) == (2, "batonflow run: --run-id is empty: name the run, or leave it out\n")


@pytest.mark.parametrize("command", ["run", "resume", "show", "replay", "approve", "cancel"])
def test_an_id_that_no_store_takes_is_told(here: Cli, command: str) -> None:
    assert here("run", "flows.py:greet", "--run-id", "g", "--store", "runs.db")[0] == 0
    words = {"run": ["flows.py:greet", "--run-id"], "resume": ["flows.py:greet"]}.get(command, [])
    code, output, errors = here(command, *words, "a b", "--store", "runs.db")
    assert (code, output) == (2, "")
    assert errors.startswith(f"batonflow {command}: 'a b' is not a run id: use 1 to 200 characters")


SHAPED = """
from batonflow import FunctionAgent, ScriptedLLM
from batonflow.llms import tool_call
from pydantic import BaseModel


class Verdict(BaseModel):
    tides: int


def answer(request):
    shape = any(tool.name == "Verdict" for tool in request.tools or ())
    return tool_call("Verdict", tides=2) if shape else "Twice a day."


agent = FunctionAgent(name="shaped", llm=ScriptedLLM([answer] * 9), output_cls=Verdict)
"""


@pytest.mark.parametrize(
    ("words", "said"), [(["run", "shaped.py", "--stream", "How often?"], ""), (["chat", "shaped.py"], "How often?\n")]
)
def test_an_answer_with_a_structured_form_is_shown_once(folder: Path, words: list[str], said: str) -> None:
    (folder / "shaped.py").write_text(SHAPED)
    assert cli(folder, *words, said=said) == (0, "shaped: Twice a day.\noutput(tides=2)\n", "")


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_input_that_is_no_object_is_told(here: Cli, text: str) -> None:
    code, _, errors = here("run", "flows.py:greet", "--input", text)
    assert code == 2
    assert "--input is not" in errors


def test_streaming_shows_events_as_they_come(here: Cli) -> None:
    assert here("run", "flows.py:greet", "name=Ann", "--stream")[1] == "Halfway(text='hello Ann')\nhello Ann\n"


def test_json_is_one_document(here: Cli) -> None:
    document = json.loads(here("run", "flows.py:greet", "name=Ann", "--json", "--run-id", "g1")[1])
    assert document == {
        "run_id": "g1",
        "workflow": "greet",
        "status": "completed",
        "result": "hello Ann",
        "text": "hello Ann",
        "error": None,
    }


def test_json_with_stream_is_a_line_for_each_event_and_one_for_the_end(here: Cli) -> None:
    lines = [json.loads(line) for line in here("run", "flows.py:greet", "--json", "--stream")[1].splitlines()]
    assert [line.get("type") for line in lines] == ["Halfway", "StopEvent", None]
    assert lines[0]["value"] == {"text": "hello nobody"}
    assert lines[0]["step"] == "greet"
    assert lines[2]["status"] == "completed"


def test_a_failed_run_says_where_and_why_in_one_line(here: Cli) -> None:
    code, output, errors = here("run", "flows.py:fail", "--run-id", "f1")
    assert (code, output) == (1, "")
    assert errors == "batonflow run: run f1 failed in step fail: ValueError: no such harbour: \\x1b[31mEmden\n"


def test_debug_shows_the_traceback(here: Cli) -> None:
    assert "Traceback" in here("run", "flows.py:fail", "--debug")[2]


def test_a_failed_run_is_a_document_too(here: Cli) -> None:
    code, output, _ = here("run", "flows.py:fail", "--json")
    assert code == 1
    assert json.loads(output)["error"] == {"type": "ValueError", "message": "no such harbour: \x1b[31mEmden"}


def test_words_for_an_agent_are_what_the_user_says(here: Cli) -> None:
    code, output, _ = here("run", "team.py:team", "Write", "about", "tides.", "--stream")
    assert code == 3
    assert output.startswith("  -> search(topic='tides')\n  <- High water comes twice a day (tides).\n")
    assert "  == writer: the facts are there\nwriter: I will publish this.\n" in output


def test_a_sentence_that_begins_like_a_field_is_what_the_user_says(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(AgentWorkflowStartEvent, "model_post_init", lambda self, _: made.append(dict(self.items())))
    for words, expected in (
        (["x=5, please"], {"user_msg": "x=5, please"}),
        (["x=5"], {"x": 5}),
        (["Solve", "x + 1 = 5", "max_iterations=3"], {"user_msg": "Solve x + 1 = 5", "max_iterations": 3}),
        (["user_msg=Write about tides."], {"user_msg": "Write about tides."}),
    ):
        made.clear()
        here("run", "team.py:team", *words)
        assert expected.items() <= made[0].items()


def test_a_run_without_a_store_that_waits_says_that_it_is_over(here: Cli) -> None:
    code, output, _ = here("run", "team.py:team", "Go.")
    assert code == 3
    assert "The run has no store" in output


def test_from_run_over_approve_to_resume_in_processes_of_their_own(folder: Path) -> None:
    code, output, errors = cli(folder, "run", "team.py:team", "Go.", "--run-id", "t1", "--store", "runs.db")
    assert (code, errors) == (3, "")
    assert output == (
        "t1 waits for a person\n"
        "  3/0: writer wants to call publish(title='Tides')\n"
        "  batonflow approve t1 --store runs.db\n"
        "  batonflow approve t1 --deny REASON --store runs.db\n"
        "and then\n"
        "  batonflow resume team.py:team t1 --store runs.db\n"
    )
    code, output, errors = cli(folder, "approve", "t1", "--store", "runs.db")
    assert (code, errors) == (0, "")
    assert output == (
        "approved: writer wants to call publish(title='Tides')\n"
        "no process drives it: batonflow resume OBJ t1 --store runs.db\n"
    )
    assert cli(folder, "resume", "team.py:team", "t1", "--store", "runs.db") == (
        0,
        "That is what came of it: published Tides\n",
        "",
    )


def test_a_finished_run_gives_its_result_again(here: Cli) -> None:
    for _ in range(2):
        assert here("run", "flows.py:greet", "name=Ann", "--run-id", "g", "--store", "runs.db")[:2] == (
            0,
            "hello Ann\n",
        )
    code, _, errors = here("run", "flows.py:greet", "name=Bob", "--run-id", "g", "--store", "runs.db")
    assert code == 1
    assert "started with other input" in errors


def test_the_environment_names_the_store(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONFLOW_STORE", "elsewhere.db")
    here("run", "flows.py:greet", "--run-id", "g")
    assert here("resume", "flows.py:greet", "g")[:2] == (0, "hello nobody\n")
    assert Path("elsewhere.db").exists()


def test_resume_needs_a_store_and_a_run(here: Cli) -> None:
    assert here("resume", "flows.py:greet", "g")[::2] == (
        2,
        "batonflow resume: flows.py:greet has no store: name the file with --store, or in BATONFLOW_STORE\n",
    )
    assert here("resume", "flows.py:greet", "g", "--store", "runs.db")[::2] == (
        2,
        "batonflow resume: the store has no run 'g': `batonflow runs` lists its runs\n",
    )


def test_a_killed_run_goes_on_where_it_was(folder: Path) -> None:
    process = start(folder, "run", "flows.py:slow", "--run-id", "s1", "--store", "runs.db")
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["first\n", "second\n"]
    process.kill()
    process.communicate()
    (folder / "go").touch()
    assert cli(folder, "resume", "flows.py:slow", "s1", "--store", "runs.db") == (0, "second\nthrough\n", "")


def test_ctrl_c_leaves_a_run_that_can_be_resumed(folder: Path) -> None:
    process = start(folder, "run", "flows.py:slow", "--run-id", "s1", "--store", "runs.db")
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["first\n", "second\n"]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=50)
    assert process.returncode == 130
    assert errors == "interrupted; continue the run with: batonflow resume flows.py:slow s1 --store runs.db\n"
    (folder / "go").touch()
    assert cli(folder, "resume", "flows.py:slow", "s1", "--store", "runs.db")[:2] == (0, "second\nthrough\n")


def test_a_run_that_another_process_drives_is_left_to_it(folder: Path) -> None:
    process = start(folder, "run", "flows.py:slow", "--run-id", "s1", "--store", "runs.db")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    try:
        code, _, errors = cli(folder, "resume", "flows.py:slow", "s1", "--store", "runs.db")
        assert code == 1
        assert errors.startswith("batonflow resume: ")
        assert "s1" in errors
        assert "RunInUseError" not in errors
        assert errors.count("\n") == 1
    finally:
        process.kill()
        process.communicate()


def test_a_fork_goes_on_from_a_commit_with_other_state(here: Cli, folder: Path) -> None:
    (folder / "keep.py").write_text(KEEPS)
    store = ["--store", "runs.db"]
    assert here("run", "keep.py:keeps", "--run-id", "first", *store)[1] == "tides\n"
    commit = next(
        one["commit"]
        for one in json.loads(here("show", "first", "--json", *store)[1])["entries"]
        if one.get("step") == "begin"
    )
    code, output, errors = here(
        "fork", "keep.py:keeps", "first", "--at", str(commit), "--state", 'topic="moons"', "--run-id", "second", *store
    )
    assert (code, output) == (0, "moons\n")
    assert errors == f"run second branches off from first at commit {commit}\n"
    assert json.loads(here("runs", "--json", *store)[1])[0]["forked_from"] == ["first", commit]
    code, _, errors = here("fork", "keep.py:keeps", "first", "--at", "1", "--state", "topic", *store)
    assert (code, errors.startswith("batonflow fork: --state 'topic' is not PATH=JSON")) == (2, True)
    assert here("fork", "keep.py:keeps", "nobody", "--at", "1", *store)[0] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--at", "99"], "The store has no run 'first' with a commit 99"),
        (["--at", "1", "--run-id", "first"], "There is a run 'first' already: choose another new_id"),
        (["--at", "4"], "Run 'first' is over at commit 4: fork at an earlier one"),
    ],
)
def test_a_fork_that_cannot_be_is_refused_before_anything_is_said(
    here: Cli, folder: Path, words: list[str], said: str
) -> None:
    (folder / "keep.py").write_text(KEEPS)
    store = ["--store", "runs.db"]
    here("run", "keep.py:keeps", "--run-id", "first", *store)
    assert here("fork", "keep.py:keeps", "first", *words, *store) == (2, "", f"batonflow fork: {said}\n")
    assert [run["run_id"] for run in json.loads(here("runs", "--json", *store)[1])] == ["first"]


KEEPS = """
from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step


class Next(Event):
    pass


class Keeps(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Next:
        await ctx.store.set("topic", "tides")
        return Next()

    @step
    async def end(self, ctx: Context, ev: Next) -> StopEvent:
        return StopEvent(result=await ctx.store.get("topic"))


keeps = Keeps()
"""
