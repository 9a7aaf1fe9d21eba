"""`batonflow approve` and `cancel`: a person answers from another process than the one that runs."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from batonflow.cli.questions import open_questions
from batonflow.durable import lease as drive
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.cli.conftest import Cli
from tests.cli.projects import cli

STORE = ["--store", "runs.db"]


class Where(InputRequiredEvent):
    text: str


class Once(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(HumanResponseEvent, waiter_event=Where(text="Where?"), requirements={"of": 1})
        return StopEvent()


class Around(Workflow):
    """A workflow inside it asks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(workflows={"inner": Once(timeout=None)}, **options)

    @step
    async def call(self, ev: StartEvent, inner: Once) -> StopEvent:
        return await inner.run()


class Again(Workflow):
    """Waits in its second attempt."""

    @step(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ctx.retry_info().retry_number == 0:
            raise OSError("not yet")
        await ctx.wait_for_event(HumanResponseEvent, waiter_event=Where(text="Where?"), waiter_id="where")
        return StopEvent()


class Several(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> list[Where]:
        return [Where(text="Where?"), Where(text="Where?")]

    @step
    async def take(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent()


@pytest.fixture
def waiting(here: Cli) -> Cli:
    """Runs that wait: a team for an approval, and two workflows for an answer."""
    for run_id, words in {"team": ["team.py:team", "Go."], "ask": ["flows:ask"], "around": ["flows:around"]}.items():
        assert here("run", *words, "--run-id", run_id, *STORE)[0] == 3
    return here


def test_denied(waiting: Cli) -> None:
    assert waiting("approve", "team", "--deny", "not today", *STORE)[1].startswith("denied: ")
    assert "a person denied it: not today" in waiting("resume", "team.py:team", "team", *STORE)[1]


def test_approved_with_other_arguments(waiting: Cli) -> None:
    assert waiting("approve", "team", "3/0", "--arguments", '{"title": "Ebb"}', *STORE)[0] == 0
    assert waiting("resume", "team.py:team", "team", *STORE)[1] == "That is what came of it: published Ebb\n"


def test_arguments_that_do_not_fit_are_asked_about_again(waiting: Cli) -> None:
    _, output, _ = waiting("approve", "team", "--arguments", '{"name": "Ebb"}', *STORE)
    assert "the tool checks the other arguments when the run continues\n" in output
    code, output, _ = waiting("resume", "team.py:team", "team", *STORE)
    assert code == 3
    assert "your last answer could not be used" in output
    assert waiting("approve", "team", *STORE)[0] == 0
    assert waiting("resume", "team.py:team", "team", *STORE)[0] == 0


def test_a_question_is_answered_with_its_fields_and_what_is_required_is_filled_in(waiting: Cli) -> None:
    assert waiting("approve", "ask", "--answer", '{"yes": true}', *STORE)[0] == 0
    assert waiting("resume", "flows:ask", "ask", *STORE)[1] == "ann said yes\n"


def test_a_text_is_an_answer_too(waiting: Cli) -> None:
    assert waiting("approve", "around", "--answer", "north", *STORE)[0] == 0
    assert waiting("resume", "flows:around", "around", *STORE)[1] == "north\n"


def test_a_question_that_requires_nothing_is_answered_too(here: Cli) -> None:
    Path("paint.py").write_text(
        "from batonflow import Context, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step\n"
        "class Paint(Workflow):\n"
        "    @step\n"
        "    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:\n"
        "        asked = InputRequiredEvent(prefix='Which colour?')\n"
        "        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=asked)\n"
        "        return StopEvent(result=answer.response)\n"
    )
    assert here("run", "paint.py:Paint", "--run-id", "wall", *STORE)[0] == 3
    assert here("approve", "wall", "--answer", "red", *STORE)[0] == 0
    assert here("resume", "paint.py:Paint", "wall", *STORE)[1] == "red\n"


def test_as_json(waiting: Cli) -> None:
    told = json.loads(waiting("approve", "team", "--json", *STORE)[1])
    assert told == {"run_id": "team", "request": "approval 3/0", "answer": "approved", "driven": False}


def test_an_answer_is_given_once(waiting: Cli) -> None:
    waiting("approve", "ask", "--answer", '{"yes": true}', *STORE)
    code, _, errors = waiting("approve", "ask", "--answer", '{"yes": false}', *STORE)
    assert code == 1
    assert "was answered before" in errors
    waiting("resume", "flows:ask", "ask", *STORE)
    code, _, errors = waiting("approve", "ask", "--answer", '{"yes": false}', *STORE)
    assert (code, errors) == (1, "batonflow approve: run ask is over (completed): it takes nothing more\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ask"], 2, "is a question: answer it with --answer JSON; it needs yes (boolean)"),
        (["ask", "--deny", "no"], 2, "--deny is for approvals"),
        (["ask", "--answer", '{"who": "bob"}'], 2, "who must be 'ann', as the waiting step requires; leave it out"),
        (["ask", "nothing", "--answer", "x"], 2, "has no open request 'nothing'; open is waiter_flows.Answer_1_1"),
        (["team", "--answer", "yes"], 2, "is an approval: --deny REASON, --arguments JSON, or neither"),
        (["team", "--arguments", "[1]"], 2, "--arguments is not a JSON object"),
    ],
)
def test_what_does_not_fit_is_told(waiting: Cli, words: list[str], code: int, said: str) -> None:
    got, output, errors = waiting("approve", *words, *STORE)
    assert (got, output) == (code, "")
    assert said in errors


def test_of_several_requests_one_is_named(here: Cli) -> None:
    Path("pair.py").write_text(
        "from batonflow import *\n"
        "class Ask(InputRequiredEvent):\n    n: int\n"
        "class Said(HumanResponseEvent):\n    n: int\n"
        "class Part(Event):\n    n: int\n"
        "class Pair(Workflow):\n"
        "    @step\n    async def split(self, ev: StartEvent) -> list[Part]:\n        return [Part(n=1), Part(n=2)]\n"
        "    @step\n    async def ask(self, ctx: Context, ev: Part) -> Said:\n"
        "        return await ctx.wait_for_event(Said, waiter_event=Ask(n=ev.n), waiter_id=f'q{ev.n}?',"
        " requirements={'n': ev.n})\n"
        "    @step\n    async def end(self, parts: list[Said]) -> StopEvent:\n"
        "        return StopEvent(result=sorted((part.response for part in parts), reverse=True))\n"
        "pair = Pair(timeout=None)\n"
    )
    output = here("run", "pair.py", "--run-id", "p", *STORE)[1]
    assert "  batonflow approve p 'q2?' --answer JSON --store runs.db\n" in output, "shells would look for files"
    code, _, errors = here("approve", "p", "--answer", "x", *STORE)
    assert code == 2
    assert "has several open questions, name one: q1? (" in errors
    assert here("approve", "p", "q2?", "--answer", '"two"', *STORE)[0] == 0
    code, output, _ = here("resume", "pair.py", "p", *STORE)
    assert code == 3
    assert "q1?: Ask(n=1)" in output
    assert "q2" not in output
    here("approve", "p", "--answer", "one", *STORE)
    assert json.loads(here("resume", "pair.py", "p", *STORE)[1]) == ["two", "one"]


@pytest.mark.parametrize("snapshot_every", [1000, 1])
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('{"aye": true}', "yes is missing"),
        ("aye", "yes is missing"),
        ('{"yes": "perhaps"}', "yes has to be a boolean, and is 'perhaps'"),
    ],
)
def test_an_answer_that_cannot_fit_is_refused_before_it_is_written(
    here: Cli, monkeypatch: pytest.MonkeyPatch, snapshot_every: int, answer: str, problem: str
) -> None:
    monkeypatch.setattr(drive, "SNAPSHOT_EVERY", snapshot_every)
    assert here("run", "flows:ask", "--run-id", "ask", *STORE)[0] == 3
    code, _, errors = here("approve", "ask", "--answer", answer, *STORE)
    assert code == 2
    assert errors == f"batonflow approve: the answer does not fit Answer: {problem}. It needs yes (boolean)\n"
    assert here("approve", "ask", "--answer", '{"yes": true}', *STORE)[0] == 0, "the correction is taken"
    assert here("resume", "flows:ask", "ask", *STORE)[:2] == (0, "ann said yes\n")


def test_an_answer_that_only_the_code_can_judge_leaves_the_question_open(here: Cli) -> None:
    Path("port.py").write_text(
        "from pydantic import Field\n"
        "from batonflow import Context, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step\n"
        "class Depth(HumanResponseEvent):\n    metres: int = Field(gt=0)\n"
        "class Port(Workflow):\n"
        "    @step\n"
        "    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:\n"
        "        answer = await ctx.wait_for_event(Depth, waiter_event=InputRequiredEvent(prefix='How deep?'))\n"
        "        return StopEvent(result=answer.metres)\n"
        "port = Port(timeout=None)\n"
    )
    assert "  the JSON needs metres\n" in here("run", "port.py:port", "--run-id", "p", *STORE)[1]
    assert here("approve", "p", "--answer", '{"metres": -1}', *STORE)[0] == 0
    code, output, errors = here("resume", "port.py:port", "p", *STORE)
    assert code == 3, "it still waits"
    assert "batonflow approve p --answer JSON" in output + errors
    assert here("approve", "p", "--answer", '{"metres": 7}', *STORE)[0] == 0
    assert "was answered before" in here("approve", "p", "--answer", '{"metres": 8}', *STORE)[2]
    assert here("resume", "port.py:port", "p", *STORE)[:2] == (0, "7\n")


def test_a_cancelled_run_ends_when_it_is_taken_up(waiting: Cli) -> None:
    code, output, _ = waiting("cancel", "ask", "too late", *STORE)
    assert (code, output) == (0, "ask is told to end\nno process drives it: batonflow resume OBJ ask --store runs.db\n")
    code, _, errors = waiting("resume", "flows:ask", "ask", *STORE)
    assert (code, errors) == (1, "batonflow resume: run ask was cancelled\n")
    assert (
        waiting("cancel", "ask", *STORE)[2] == "batonflow cancel: run ask is over (cancelled): it takes nothing more\n"
    )


@pytest.mark.parametrize("compacted", [False, True])
def test_a_run_of_which_a_snapshot_is_left(here: Cli, monkeypatch: pytest.MonkeyPatch, *, compacted: bool) -> None:
    monkeypatch.setattr(drive, "SNAPSHOT_EVERY", 1)
    here("run", "team.py:team", "Go.", "--run-id", "team", *STORE)
    here("run", "flows:around", "--run-id", "around", *STORE)
    if compacted:

        async def compact() -> None:
            store = SQLiteStore("runs.db")
            assert await store.compact("team") > 0
            assert await store.compact("around") > 0
            await store.aclose()

        asyncio.run(compact())
    assert "3/0: writer wants to call publish(title='Tides')" in here("show", "team", *STORE)[1]
    assert here("approve", "team", "3/0", *STORE)[0] == 0
    assert here("approve", "team", "3/0", *STORE)[0] == 1
    assert here("resume", "team.py:team", "team", *STORE)[1] == "That is what came of it: published Tides\n"
    assert here("approve", "around", "--answer", "south", *STORE)[0] == 0
    assert here("resume", "flows:around", "around", *STORE)[1] == "south\n"


@pytest.mark.parametrize("snapshot", [False, True])
async def test_its_answers_have_the_keys_that_those_of_programs_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, snapshot: bool
) -> None:
    if snapshot:
        monkeypatch.setattr(drive, "SNAPSHOT_EVERY", 1)
    store = SQLiteStore(tmp_path / "runs.db")
    for cls in (Once, Again, Several, Around):
        flow = cls(timeout=None, store=store)
        handler = flow.run()
        await handler.started()
        inputs = handler.inputs()
        live = [await anext(inputs) for _ in range(2 if cls is Several else 1)]
        keys = {request.answer_key for request in live}
        await handler.interrupt()
        if snapshot:
            await store.compact(handler.run_id)
        rest = await flow.open_inputs(handler.run_id)
        assert keys == {request.answer_key for request in rest}
        assert keys == {question.answer_key for question in await open_questions(store, handler.run_id)}
        assert len(keys) == len(live)
    await store.aclose()


def test_neither_needs_the_code_of_the_run(waiting: Cli, folder: Path) -> None:
    Path("flows.py").rename("elsewhere.txt")
    assert cli(folder, "approve", "ask", "--answer", '{"yes": true}', *STORE)[0] == 0
    assert cli(folder, "cancel", "around", *STORE)[0] == 0
