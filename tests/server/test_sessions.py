"""Sessions, repeated messages and metadata of agents over HTTP."""

import asyncio
from typing import Any

import pytest

from batonflow import RunContext
from batonflow.agents import FunctionAgent, RunInfo
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.server import WorkflowServer
from batonflow.server.client import WorkflowClient
from batonflow.tools import tool
from tests.server.conftest import Serving
from tests.server.flows import Greet


def echo(request: Any) -> str:
    return f"{len(request.messages) - 1}: {request.messages[-1].content}"


def agent(*turns: Any, **options: Any) -> FunctionAgent[Any, Any]:
    return FunctionAgent(llm=ScriptedLLM([*turns] or [echo] * 9), **options)


def body(text: str, **beside: Any) -> dict[str, Any]:
    return {"start_event": {"user_msg": text}, **beside}


async def test_a_run_is_a_turn_of_its_session(serving: Serving) -> None:
    clerk = agent(store=MemoryStore())
    async with serving(WorkflowServer(accept_sessions=True), clerk=clerk) as running:
        first = await running.post("/workflows/clerk/run", body("Hello", session="ann"))
        second = await running.post("/workflows/clerk/run-nowait", body("Again", session="ann", if_busy="wait"))
        await running.over(second["handler_id"])
        assert [first["handler_id"], second["handler_id"]] == ["ann:1", "ann:2"]
        assert (await running.get("/handlers/ann:2"))["session"] == "ann"
        assert [str(turn.output) async for turn in clerk.session("ann").turns()] == ["0: Hello", "2: Again"]


async def test_a_repeated_message_gets_the_same_run(serving: Serving) -> None:
    async with serving(WorkflowServer(accept_sessions=True), clerk=agent()) as running:
        for beside in ({"session": "ann", "request_id": "m1"}, {"request_id": "m1"}):
            runs = [await running.post("/workflows/clerk/run", body("Hello", **beside)) for _ in range(2)]
            assert runs[0]["handler_id"] == runs[1]["handler_id"]
            other = await running.http.post("/workflows/clerk/run", json=body("Bye", **beside))
            assert other.status_code == 409
            assert "other input" in other.json()["detail"]


async def test_a_busy_session_is_named_and_its_approval_is_answered_by_either_id(serving: Serving) -> None:
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    clerk = agent(tool_call("pay"), "Done.", tools=[pay], timeout=None)
    async with serving(WorkflowServer(accept_sessions=True), clerk=clerk) as running:
        await running.post("/workflows/clerk/run-nowait", body("Pay", session="ann"))
        await running.until("ann:1", lambda found: found["waiting"])
        refused = await running.http.post("/workflows/clerk/run-nowait", json=body("Hello", session="ann"))
        assert refused.status_code == 409
        assert "ann:1" in refused.json()["detail"]
        [asked] = (await running.get("/handlers/ann:1/pending"))["pending"]
        assert (asked["id"], asked["event"]["value"]["id"]) == ("approval 1/0", "1/0")
        # By the id that readers of the stream know.
        await running.post("/handlers/ann:1/pending/1%2F0", {"response": {"approved": True, "reason": None}})
        assert (await running.over("ann:1"))["status"] == "completed"


async def test_deps_are_made_from_the_metadata(serving: Serving) -> None:
    def whoami(ctx: RunContext[str]) -> str:
        """Tell the user."""
        return ctx.deps

    def user_of(info: RunInfo) -> str:
        return f"{info.metadata['user']} in {info.session}"

    clerk = agent(tool_call("whoami"), lambda request: request.messages[-1].content, tools=[whoami], deps_type=str,
                  deps_for=user_of)  # fmt: skip
    async with serving(WorkflowServer(accept_sessions=True), clerk=clerk) as running:
        async with WorkflowClient(running.url) as client:
            said = await client.run("clerk", {"user_msg": "Who am I?"}, session="s1", metadata={"user": "ann"})
            assert said["response"]["blocks"][0]["text"] == "ann in s1"
        [run] = (await running.get("/handlers", metadata="user=ann"))["handlers"]
        assert run["handler_id"] == "s1:1"


@pytest.mark.parametrize(
    ("accepts", "workflow", "beside", "said"),
    [
        (False, "clerk", {"session": "ann"}, "does not accept session: create it with WorkflowServer(accept_sessions="),
        (False, "clerk", {"metadata": {"user": "ann"}}, "does not accept metadata"),
        (True, "greet", {"session": "ann"}, "greet is not an agent: leave out session"),
        (True, "clerk", {"session": "ann", "handler_id": "x"}, "run(session=...) does not go with run_id="),
        (True, "clerk", {"session": "a b"}, "session"),
        (True, "clerk", {"session": "ann", "if_busy": "queue"}, "if_busy"),
        (True, "clerk", {"metadata": {"user": 7}}, "metadata"),
        (True, "clerk", {"sesion": "ann"}, "has no field 'sesion'. Did you mean 'session'?"),
        (False, "clerk", {"handlerid": "x"}, "has no field 'handlerid'. Did you mean 'handler_id'?"),
    ],
)
async def test_a_request_that_does_not_fit_is_refused(
    serving: Serving, accepts: bool, workflow: str, beside: dict[str, Any], said: str
) -> None:
    async with serving(WorkflowServer(accept_sessions=accepts), clerk=agent(), greet=Greet()) as running:
        start = body("Hello", **beside) if workflow == "clerk" else {"start_event": {"name": "Ann"}, **beside}
        refused = await asyncio.wait_for(running.http.post(f"/workflows/{workflow}/run", json=start), 10)
        assert refused.status_code == 400
        assert said in refused.json()["detail"]
        assert (await running.get("/handlers"))["handlers"] == []


class TestConversations:
    async def test_the_agents_with_sessions_are_named(self, serving: Serving) -> None:
        for accepts, names in ((True, ["clerk"]), (False, [])):
            async with serving(WorkflowServer(accept_sessions=accepts), clerk=agent(), greet=Greet()) as running:
                assert await running.get("/chats") == {"chats": names}

    async def test_sessions_are_listed_latest_first_with_the_turn_under_way(self, serving: Serving) -> None:
        @tool(requires_approval=True)
        def pay() -> str:
            """Pay."""
            return "paid"

        clerk = agent("Hello.", tool_call("pay"), tools=[pay])
        async with serving(WorkflowServer(accept_sessions=True), clerk=clerk) as running:
            await running.post("/workflows/clerk/run", body("Hello", session="bob"))
            await running.post("/workflows/clerk/run-nowait", body("Pay", session="ann"))
            ann, bob = (await running.get("/workflows/clerk/sessions"))["sessions"]
            assert (ann["name"], ann["running"]) == ("ann", "ann:1")
            assert (bob["name"], bob["turns"], bob["running"]) == ("bob", 1, None)
            assert (await running.get("/workflows/clerk/sessions", prefix="b", limit=1))["sessions"] == [bob]
            await running.post("/handlers/ann:1/cancel")
            await running.over("ann:1")

    async def test_the_turns_have_their_messages_without_secrets(self, serving: Serving) -> None:
        key = "sk-abcdefghijklmnopqrstuvwxyz012345"
        async with serving(WorkflowServer(accept_sessions=True), clerk=agent()) as running:
            await running.post("/workflows/clerk/run", body(f"My key is {key}", session="ann"))
            [turn] = (await running.get("/workflows/clerk/turns", session="ann"))["turns"]
            assert (turn["number"], turn["run_id"], turn["status"]) == (1, "ann:1", "completed")
            assert [one["role"] for one in turn["messages"]] == ["user", "assistant"]
            assert turn["user_msg"] == turn["messages"][0]
            assert key not in str(turn)
            assert (await running.get("/workflows/clerk/turns", session="nobody"))["turns"] == []

    async def test_errors_are_shown_without_secrets(self, serving: Serving) -> None:
        key = "sk-abcdefghijklmnopqrstuvwxyz012345"
        clerk = agent(ValueError(f"bad key {key}"))
        async with serving(WorkflowServer(accept_sessions=True), clerk=clerk) as running:
            await running.post("/workflows/clerk/run-nowait", body("Hello", session="ann"))
            await running.over("ann:1")
            [turn] = (await running.get("/workflows/clerk/turns", session="ann"))["turns"]
            assert turn["error"] == "ValueError: bad key [redacted]"

    async def test_the_latest_are_listed_and_only_new_turns_are_read(self, serving: Serving) -> None:
        async with serving(WorkflowServer(accept_sessions=True), clerk=agent()) as running:
            for name in ("a", "b", "c", "c"):
                await running.post("/workflows/clerk/run", body("Hello", session=name))
            assert [one["name"] for one in (await running.get("/workflows/clerk/sessions", limit=2))["sessions"]] == [
                "c",
                "b",
            ]
            turns = (await running.get("/workflows/clerk/turns", session="c", after=1))["turns"]
            assert [turn["number"] for turn in turns] == [2]

    async def test_sessions_of_another_agent_are_not_there(self, serving: Serving) -> None:
        store = MemoryStore()
        clerk, other = agent(store=store, workflow_name="clerk"), agent(store=store, workflow_name="other")
        async with serving(WorkflowServer(accept_sessions=True), clerk=clerk, other=other) as running:
            await running.post("/workflows/clerk/run", body("Hello", session="ann"))
            assert (await running.get("/workflows/other/turns", session="ann"))["turns"] == []
            fork = {"session": "ann", "new_name": "bob"}
            answer = await running.http.post("/workflows/other/sessions", json=fork)
            assert (answer.status_code, "no session 'ann'" in answer.text) == (404, True)

    async def test_a_branch_has_the_first_turns(self, serving: Serving) -> None:
        async with serving(WorkflowServer(accept_sessions=True), clerk=agent()) as running:
            for text in ("One", "Two"):
                await running.post("/workflows/clerk/run", body(text, session="ann"))
            fork = {"session": "ann", "new_name": "ann.2", "at_turn": 1}
            assert await running.post("/workflows/clerk/sessions", fork) == {"name": "ann.2"}
            await running.post("/workflows/clerk/run", body("Other", session="ann.2"))
            turns = (await running.get("/workflows/clerk/turns", session="ann.2"))["turns"]
            assert [str(turn["messages"][-1]["blocks"][0]["text"]) for turn in turns] == ["0: One", "2: Other"]
            again = await running.http.post("/workflows/clerk/sessions", json=fork)
            assert (again.status_code, "choose another name" in again.text) == (400, True)

    @pytest.mark.parametrize(
        ("path", "told"),
        [
            ("/workflows/greet/sessions", "is not an agent"),
            ("/workflows/clerk/turns", "session is needed"),
            ("/workflows/clerk/turns?session=a%20b", "a b"),
            ("/workflows/clerk/sessions?limit=0", "from 1 to 1000"),
        ],
    )
    async def test_what_does_not_fit_is_refused(self, serving: Serving, path: str, told: str) -> None:
        async with serving(WorkflowServer(accept_sessions=True), clerk=agent(), greet=Greet()) as running:
            answer = await running.http.get(path)
            assert (answer.status_code, told in answer.text) == (400, True), answer.text

    async def test_a_server_that_does_not_accept_sessions_shows_none(self, serving: Serving) -> None:
        async with serving(WorkflowServer(), clerk=agent()) as running:
            for path in ("sessions", "turns?session=ann"):
                answer = await running.http.get(f"/workflows/clerk/{path}")
                assert (answer.status_code, "accept_sessions=True" in answer.text) == (400, True)
