"""Saved cases: the file, and the runs that cannot become one."""

import json
from pathlib import Path
from typing import Any

import pytest

from batonflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    SQLiteStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.cases import Case, CaseError, case_of_run, read_cases
from batonflow.llms import ChatMessage, ChatResponse, FunctionCallingLLM, LLMMetadata, tool_call
from batonflow.workflow_core import MemoryStore, StoreError
from tests.cases.runs import agent_of, done, saved


class Flow(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ev.get("fails"):
            raise OSError("no disk")
        if ev.get("asks"):
            await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent())
        return StopEvent(result="done")


class Whole(FunctionCallingLLM):
    """A model that does not stream, whose calls are not recorded."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="whole", is_function_calling_model=True)

    async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=ChatMessage("Hello.", role="assistant"))


async def refused(store: Any, run_id: str) -> str:
    with pytest.raises(CaseError) as caught:
        await case_of_run(store, run_id)
    return str(caught.value)


async def test_a_run_that_is_not_there_or_not_over_is_refused(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    flow = Flow(store=store, timeout=None)
    with pytest.raises(StoreError, match="no run 'absent'"):
        await case_of_run(store, "absent")
    handler = flow.run(asks=True, run_id="asks")
    await anext(handler.inputs())
    assert "run 'asks' is not over" in (text := await refused(store, "asks"))
    assert "batonflow approve asks" in text
    await handler.cancel_run()
    assert "run 'asks' is cancelled" in await refused(store, "asks")
    with pytest.raises(OSError, match="no disk"):
        await flow.run(fails=True, run_id="fails")
    assert "run 'fails' is failed" in await refused(store, "fails")
    await store.aclose()


async def test_a_run_whose_calls_were_not_recorded_is_refused() -> None:
    store = MemoryStore()
    agent = agent_of(store=store)
    agent.llm = Whole()
    await agent.run("Hello?", run_id="r")
    assert "implements _stream" in await refused(store, "r")


async def test_a_run_with_an_edited_state_is_refused() -> None:
    store = MemoryStore()
    agent = agent_of(store=store)
    await agent.run("How deep?", run_id="r")
    await agent.fork("r", at=4, state={"noted": 1}, new_id="fork", llm=agent_of("Eight.", "Eight.").llm)
    assert "was changed from outside" in await refused(store, "fork")
    plain = agent.fork("r", at=4, new_id="plain", llm=agent_of("Eight.", "Eight.").llm)
    await plain
    case = await case_of_run(store, "plain")
    assert case.input == {"user_msg": "How deep?"}


async def test_secrets_are_left_out_and_still_fit(tmp_path: Path) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    case = await saved(agent_of(), tmp_path, user_msg=f"My key is {key}. How deep?")
    assert key not in (tmp_path / "run-1.json").read_text()
    assert str(await case.replay(agent_of())) == "Eight metres."


async def test_secret_arguments_of_tools_do_not_make_them_run(tmp_path: Path) -> None:
    def login(password: str) -> str:
        """Log in."""
        done.append(password)
        return "logged in"

    turns = (tool_call("login", password="hunter2"), tool_call("login", password="hunter3"), "Done.")
    case = await saved(agent_of(*turns, tools=[login]), tmp_path, user_msg="Log in.")
    assert "hunter" not in (tmp_path / "run-1.json").read_text()
    assert str(await case.replay(agent_of(*turns, tools=[login]))) == "Done."
    assert done == []


async def test_a_name_of_a_case_is_a_name_of_a_file(tmp_path: Path) -> None:
    store = MemoryStore()
    await Flow(store=store).run(run_id="team/tides:1")
    assert (await case_of_run(store, "team/tides:1")).write(tmp_path).name == "team-tides-1.json"
    assert (await case_of_run(store, "team/tides:1", name="../x")).write(tmp_path).name == "x.json"
    with pytest.raises(CaseError, match="there is a case"):
        (await case_of_run(store, "team/tides:1", name="x")).write(tmp_path)
    (await case_of_run(store, "team/tides:1", name="x")).write(tmp_path, replace=True)
    assert [case.name for case in read_cases(tmp_path)] == ["team-tides-1", "x"]


def test_files_that_are_not_cases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="there are no cases in"):
        read_cases(tmp_path)
    with pytest.raises(CaseError, match="there is no case"):
        Case.read(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(CaseError, match="is not a case"):
        Case.read(tmp_path / "x.json")
    (tmp_path / "x.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(CaseError, match="not a case of format 1"):
        read_cases(tmp_path / "x.json")
