"""``POST /handlers/{id}/fork`` with ``call``: a call of a model once more, with changes of its request."""

from typing import Any

import pytest

from batonflow import FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.server import WorkflowServer
from batonflow.server.client import WorkflowClient
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from tests.server.conftest import Running, Serving
from tests.server.test_pending import path_of, pending

SECOND = [tool_call("look", place="lake"), "Rude."]


def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is calm"


def agent() -> FunctionAgent:
    llm = ScriptedLLM([tool_call("look", place="sea"), "Calm.", *SECOND])
    return FunctionAgent(name="one", system_prompt="Be kind.", tools=[look], llm=llm)


async def calls_of(server: Running, run_id: str) -> list[dict[str, Any]]:
    """The calls of models of a run, with the entry that each is in."""
    trace = await server.get(f"/handlers/{run_id}/trace", full=True)
    return [{**call, "entry": entry["id"]} for entry in trace["entries"] for call in entry.get("calls", ())]


async def begun(server: Running) -> tuple[str, list[dict[str, Any]]]:
    run_id = await server.start("agent", user_msg="How is the sea?")
    await server.over(run_id)
    return run_id, await calls_of(server, run_id)


async def test_a_call_is_made_again_with_other_messages_and_options(serving: Serving) -> None:
    async with serving(WorkflowServer(store="memory:"), agent=agent()) as server:
        run_id, [first, _] = await begun(server)
        call = {
            "record": first["entry"],
            "messages": {"0": "Be rude.", "1": "And the lake?"},
            "options": {"top_p": 0.5},
        }
        forked = await server.post(f"/handlers/{run_id}/fork", {"call": call})
        await server.until(forked["handler_id"], lambda found: found["waiting"])
        [asked] = await pending(server, forked["handler_id"])
        assert asked["event"]["value"]["tool_name"] == "look"
        await server.post(path_of(forked["handler_id"], asked), {"response": {"approved": True}})
        await server.over(forked["handler_id"])
        calls = await calls_of(server, forked["handler_id"])
        texts = [[block["text"] for message in one["messages"][:2] for block in message["blocks"]] for one in calls]
        assert texts == [["Be rude.", "And the lake?"]] * 2
        assert [one["options"]["top_p"] for one in calls] == [0.5, 0.5]
        assert forked["forked_from"][0] == run_id


async def test_a_tool_result_is_changed_a_message_left_out_and_no_approval_asked(serving: Serving) -> None:
    async with serving(WorkflowServer(store="memory:"), agent=agent()) as server:
        run_id, [_, second] = await begun(server)
        async with WorkflowClient(server.url) as client:
            call = {"record": second["entry"], "messages": {1: None, 3: "rough"}, "ask_before_tools": False}
            fork = await client.fork(run_id, call=call)
            await server.over(fork.run_id)
        _, asked, *_ = await calls_of(server, fork.run_id)  # both runs have the first call
        assert [message["role"] for message in asked["messages"]] == ["system", "assistant", "tool"]
        assert asked["messages"][-1]["blocks"][0]["text"] == "rough"


@pytest.mark.parametrize(
    ("call", "status", "told"),
    [
        ({"record": 9999}, 404, "has no call 9999:0"),
        ({"index": 4}, 404, "has no call"),
        ({"messages": {"9": "x"}}, 400, "no message 9; it has 2"),
        ({"messages": {"-1": "x"}}, 400, "greater than or equal to 0"),
        ({"messages": {"0": 5}}, 400, "valid string"),
        ({"llm": "nobody:knows"}, 400, "names no model; known are anthropic:<model>"),
        ({"options": 3}, 400, "valid dictionary"),
        ({"options": {"messages": []}}, 400, "options cannot hold messages"),
        ({"message": {"0": "x"}}, 400, "message"),
        ({"messages": {"0": None, "1": None}}, 400, "no message left"),
    ],
)
async def test_what_does_not_fit_is_refused(serving: Serving, call: dict[str, Any], status: int, told: str) -> None:
    async with serving(WorkflowServer(store="memory:"), agent=agent()) as server:
        run_id, [first, _] = await begun(server)
        body = {"call": {"record": first["entry"], **call}}
        answer = await server.http.post(f"/handlers/{run_id}/fork", json=body)
        assert (answer.status_code, told in answer.text) == (status, True), answer.text


async def test_changes_are_not_written_as_state(serving: Serving) -> None:
    async with serving(WorkflowServer(store="memory:"), agent=agent()) as server:
        run_id, _ = await begun(server)
        state = {"request_changes.messages.x": []}
        answer = await server.http.post(f"/handlers/{run_id}/fork", json={"at": 2, "state": state})
        assert (answer.status_code, "give the changes as call" in answer.text) == (400, True)


async def test_a_prompt_with_a_secret_is_changed_where_the_secret_is_written_again(serving: Serving) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz012345"
    llm = ScriptedLLM(["Hello.", "Good day."])
    secretive = FunctionAgent(name="one", system_prompt=f"The key is {key}.", llm=llm)
    async with serving(WorkflowServer(store="memory:"), agent=secretive) as server:
        run_id, [call] = await begun(server)
        told = call["messages"][0]["blocks"][0]["text"]
        body: dict[str, Any] = {"call": {"record": call["entry"], "messages": {"0": told}}}
        answer = await server.http.post(f"/handlers/{run_id}/fork", json=body)
        assert (answer.status_code, "stands for a secret" in answer.text) == (400, True)
        body["call"]["messages"] = {"0": "Be brief."}
        forked = await server.post(f"/handlers/{run_id}/fork", body)
        await server.over(forked["handler_id"])
        assert str(llm.requests[1].messages[0].content) == "Be brief."


async def test_a_commit_or_a_call_is_needed(serving: Serving) -> None:
    async with serving(WorkflowServer(store="memory:"), agent=agent()) as server:
        run_id, _ = await begun(server)
        for body in ({}, {"at": 1, "call": {"record": 1}}):
            answer = await server.http.post(f"/handlers/{run_id}/fork", json=body)
            assert (answer.status_code, "either at" in answer.text) == (400, True), answer.text


async def test_a_call_of_a_plain_step_cannot_be_changed(serving: Serving) -> None:
    class Asks(Workflow):
        llm = ScriptedLLM(["Hello."])

        @step
        async def ask(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=str(await self.llm.acomplete("Hi")))

    async with serving(WorkflowServer(store="memory:"), asks=Asks()) as server:
        run_id = await server.start("asks")
        await server.over(run_id)
        [call] = await calls_of(server, run_id)
        answer = await server.http.post(f"/handlers/{run_id}/fork", json={"call": {"record": call["entry"]}})
        assert (answer.status_code, "Only calls of agents" in answer.text) == (400, True), answer.text
