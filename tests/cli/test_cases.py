"""Commands for runs as cases: ``case save``, ``compare`` and ``try``."""

import asyncio
import json
from pathlib import Path

from batonflow.cases import Case
from tests.cli.conftest import Cli
from tests.cli.projects import cli
from tests.llms.loopback import Answer, loopback

PILOT = """
from batonflow import FunctionAgent, ScriptedLLM

agent = FunctionAgent(llm=ScriptedLLM(["Eight metres."]), workflow_name="pilot")
"""
STORE = ("--store", "runs.db")


def finished(here: Cli, run_id: str, *answer: str) -> None:
    """Run the team to its end."""
    assert here("run", "team.py:team", "Write about tides.", *STORE, "--run-id", run_id)[0] == 3
    assert here("approve", run_id, *STORE, *answer)[0] == 0
    assert here("resume", "team.py:team", run_id, *STORE)[0] == 0


def test_a_run_becomes_a_case_once(here: Cli, folder: Path) -> None:
    finished(here, "tides-1")
    assert here("case", "save", "tides-1", *STORE) == (0, "", "written: cases/tides-1.json\n")
    code, output, errors = here("case", "save", "tides-1", *STORE)
    assert (code, output) == (1, "")
    assert errors.startswith("batonflow case: there is a case cases/tides-1.json already")
    assert here("case", "save", "tides-1", *STORE, "--force")[0] == 0
    assert here("case", "save", "tides-1", *STORE, "--to", "kept", "--name", "tides")[0] == 0
    case = Case.read(folder / "kept" / "tides.json")
    assert [(call.agent, call.purpose) for call in case.calls] == [("researcher", "turn")] * 2 + [
        ("writer", "turn")
    ] * 2


def test_runs_that_cannot_become_cases_are_refused(here: Cli, folder: Path) -> None:
    here("run", "team.py:team", "Write about tides.", *STORE, "--run-id", "waits")
    assert here("case", "save", "absent", *STORE)[::2] == (
        2, "batonflow case: the store has no run 'absent': `batonflow runs` lists its runs\n",
    )  # fmt: skip
    code, _, errors = here("case", "save", "waits", *STORE)
    assert code == 1
    assert "run 'waits' is not over, and a case holds a result" in errors
    assert "batonflow resume OBJ waits" in errors
    assert here("case", *STORE)[0] == 2
    assert not (folder / "cases").exists()


def test_two_runs_are_compared(here: Cli) -> None:
    finished(here, "one")
    finished(here, "two", "--deny", "not now")
    code, output, errors = here("compare", "one", "two", *STORE)
    assert (code, errors) == (0, "")
    assert output.splitlines()[0].split() == ["one", "two"]
    assert "calls   4 of models, 3 of tools  4 of models, 3 of tools" in output
    assert "the runs part at tool publish\n  --- one\n  +++ two\n" in output
    assert "  -published Tides\n" in output
    assert "    researcher: calls search(" in output
    assert "  - publish(title='Tides'): published Tides\n" in output
    assert "\nthe results differ\n" in output
    code, output, _ = here("compare", "one", "one", *STORE)
    assert (code, output.endswith("the runs did the same, with the same result\n")) == (0, True)
    data = json.loads(here("compare", "one", "two", *STORE, "--json")[1])
    assert (data["same"], data["left"]["model_calls"], data["first"]["where"]) == (False, 4, "tool publish")
    assert here("compare", "one", "three", *STORE)[0] == 2


def test_a_run_is_tried_with_a_change(here: Cli) -> None:
    finished(here, "one")
    command = ("try", "team.py:team", "one", *STORE, "--system", "Be brief.", "--temperature", "0.5", "--run-id", "two")
    code, output, errors = here(*command)
    assert (code, errors) == (0, "")
    assert "the runs part at call 1 (researcher), message 1 (" in output
    assert "+Be brief." in output
    runs = json.loads(here("runs", *STORE, "--json")[1])
    assert {run["run_id"]: run["status"] for run in runs} == {"one": "completed", "two": "completed"}
    data = json.loads(here("try", "team.py:team", "one", *STORE, "--json")[1])
    assert (data["same"], data["first"]) == (True, None)


async def test_a_run_is_tried_with_the_model_of_a_vendor(folder: Path) -> None:
    (folder / "pilot.py").write_text(PILOT)
    run = ("run", "pilot.py:agent", "How deep is Emden?", *STORE, "--run-id", "one")
    assert (await asyncio.to_thread(cli, folder, *run))[0] == 0
    deltas = [{"role": "assistant", "content": "8 "}, {"content": "m."}]
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5.6-2026"}
    parts: list[dict[str, object]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    parts.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    lines = [b"data: " + json.dumps({**head, "choices": [part]}).encode() + b"\n\n" for part in parts]
    async with loopback() as server:
        server.answers.append(Answer([*lines, b"data: [DONE]\n\n"]))
        keys = {"OPENAI_API_KEY": "unused", "OPENAI_BASE_URL": f"{server.url}/v1"}
        command = ("try", "pilot.py:agent", "one", *STORE, "--llm", "openai:gpt-5.6", "--temperature", "0")
        code, output, errors = await asyncio.to_thread(cli, folder, *command, **keys)
        [request] = server.received
    assert (code, errors) == (0, "")
    assert (request.body["model"], request.body["temperature"]) == ("gpt-5.6", 0)
    assert request.body["messages"][-1] == {"role": "user", "content": "How deep is Emden?"}
    assert output.splitlines()[2].split() == ["model", "scripted", "gpt-5.6-2026"]
    assert "the runs part at call 1 (Agent), option temperature\n" in output
    assert "  -Eight metres.\n  +8 m.\n" in output


def test_mistakes_of_a_trial_are_told(here: Cli) -> None:
    here("run", "flows.py:greet", *STORE, "--run-id", "greeted")
    code, _, errors = here("try", "flows.py:greet", "greeted", *STORE, "--llm", "nonsense")
    assert (code, "names no model; known are anthropic:<model>" in errors) == (2, True)
    code, _, errors = here("try", "flows.py:greet", "greeted", *STORE, "--llm", "openai:gpt-5.6")
    assert (code, "set OPENAI_API_KEY" in errors) == (2, True)
    code, _, errors = here("try", "flows.py:fail", "greeted", *STORE)
    assert (code, "run 'greeted' is a run of greet, and flows.py:fail is fail" in errors) == (2, True)
    assert here("try", "flows.py:greet", "greeted", *STORE, "--temperature", "warm")[0] == 2
    assert here("try", "flows.py:greet", "greeted", *STORE)[0] == 0
    here("run", "flows.py:fail", *STORE, "--run-id", "failed")
    code, output, errors = here("try", "flows.py:fail", "failed", *STORE, "--run-id", "again")
    assert (code, "run again failed: ValueError: no such harbour" in errors) == (1, True)
    assert "status  failed" in output
