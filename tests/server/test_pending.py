"""Questions to people over HTTP."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import PrivateAttr

from batonflow.cli import main
from batonflow.durable.stores.memory import MemoryStore
from batonflow.server import WorkflowServer
from batonflow.server.pending import open_requests
from batonflow.server.runs import Place
from batonflow.server.served import Served
from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    SQLiteStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from tests.server.conftest import Running, Serving, eventually
from tests.server.flows import Answered, Ask, Asked


async def pending(running: Running, run_id: str) -> list[dict]:
    return (await running.get(f"/handlers/{run_id}/pending"))["pending"]


async def waiting(running: Running, workflow: str = "ask") -> str:
    run_id = await running.start(workflow)
    await running.until(run_id, lambda found: found["waiting"])
    return run_id


def path_of(run_id: str, asked: dict) -> str:
    return f"/handlers/{run_id}/pending/{quote(asked['id'], safe='')}"


async def test_a_question_tells_what_is_asked_and_which_answer_fits(serving: Serving) -> None:
    async with serving(WorkflowServer(), ask=Ask(timeout=None)) as running:
        [asked] = await pending(running, await waiting(running))
    assert asked["event"]["type"] == "Asked"
    assert asked["event"]["value"] == {"text": "Who?"}
    assert (asked["response_type"], asked["filled"], asked["path"], asked["kind"]) == ("Answered", {}, "", "input")
    assert set(asked["schema"]["properties"]) == {"text", "loud"}
    assert asked["schema"]["required"] == ["text"]


async def test_a_run_that_was_just_deleted_asks_nothing() -> None:
    store = MemoryStore()
    flow = Ask(store=store, timeout=None)
    handler = flow.run(run_id="r")
    await anext(handler.inputs())
    await handler.interrupt()
    info = await store.info("r")
    assert info is not None
    await store.delete("r")
    assert await open_requests(Place(info, store, Served("ask", flow, ()))) == []


async def test_an_answer_is_used_once(serving: Serving) -> None:
    async with serving(WorkflowServer(), ask=Ask(timeout=None)) as running:
        run_id = await waiting(running)
        [asked] = await pending(running, run_id)
        path = path_of(run_id, asked)
        answers = await asyncio.gather(
            *(running.http.post(path, json={"response": {"text": name}}) for name in ("Ann", "Bob", "Cid"))
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
        assert (await running.over(run_id))["status"] == "completed"
        assert (await running.http.post(path, json={"response": {"text": "Dan"}})).status_code == 409
        assert await pending(running, run_id) == []


async def test_an_answer_that_does_not_fit_says_where(serving: Serving) -> None:
    async with serving(WorkflowServer(), ask=Ask(timeout=None)) as running:
        run_id = await waiting(running)
        [asked] = await pending(running, run_id)
        answer = await running.http.post(path_of(run_id, asked), json={"response": {"text": 5}})
        assert answer.status_code == 422
        assert [(one["loc"], bool(one["msg"])) for one in answer.json()["detail"]] == [(["text"], True)]
        assert (await running.http.post(path_of(run_id, asked), json={})).status_code == 400
        unknown = await running.http.post(f"/handlers/{run_id}/pending/never", json={"response": {}})
        assert unknown.status_code == 404
        assert unknown.json()["detail"] == f"The run does not have this question; open: {asked['id']}"
        assert (await running.http.get("/handlers/nobody/pending")).status_code == 404
        assert len(await pending(running, run_id)) == 1


async def test_what_the_step_requires_is_filled_in(serving: Serving) -> None:
    class Choose(Workflow):
        @step
        async def choose(self, ctx: Context, ev: StartEvent) -> StopEvent:
            one, other = await asyncio.gather(*(self.ask(ctx, text) for text in ("a/b c", "d#e?f")))
            return StopEvent(result=[one.text, other.text])

        async def ask(self, ctx: Context, text: str) -> Answered:
            return await ctx.wait_for_event(
                Answered,
                waiter_event=Asked(text=text),
                waiter_id=f"question {text}",
                requirements={"of": text},
                timeout=None,
            )

    async with serving(WorkflowServer(), choose=Choose(timeout=None)) as running:
        run_id = await waiting(running, "choose")
        first, second = await pending(running, run_id)
        assert (first["filled"], second["filled"]) == ({"of": "a/b c"}, {"of": "d#e?f"})
        await running.post(path_of(run_id, second), {"response": {"text": "second"}})
        wrong = await running.http.post(path_of(run_id, first), json={"response": {"text": "x", "of": "other"}})
        assert wrong.status_code == 422
        assert [asked["id"] for asked in await pending(running, run_id)] == [first["id"]]
        await running.post(path_of(run_id, first), {"response": {"text": "first"}})
        assert (await running.over(run_id))["result"]["value"] == {"result": ["first", "second"]}


@pytest.mark.parametrize("store", ["memory:", "file"])
async def test_a_run_out_of_memory_is_asked_and_answered(serving: Serving, store: str, tmp_path: Path) -> None:
    server = WorkflowServer(store=tmp_path / "runs.db" if store == "file" else store, idle_timeout=0.02)
    async with serving(server, ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        await running.until(run_id, lambda found: found["waiting"] and not found["live"])
        [asked] = await pending(running, run_id)
        assert (await running.get(f"/handlers/{run_id}"))["live"] is False
        await running.post(path_of(run_id, asked), {"response": {"text": "Ann"}})
        assert (await running.over(run_id))["result"]["value"] == {"result": "Ann"}


async def test_a_run_from_before_the_server_is_asked_and_answered(serving: Serving, tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    async with serving(WorkflowServer(store=store, idle_timeout=0.02), ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        await running.until(run_id, lambda found: found["waiting"] and not found["live"])
        before = await pending(running, run_id)
    async with serving(WorkflowServer(store=SQLiteStore(store)), ask=Ask(timeout=None)) as running:
        told = await running.get(f"/handlers/{run_id}")
        assert (told["status"], told["waiting"], told["live"]) == ("running", True, False)
        assert await pending(running, run_id) == before
        await running.post(path_of(run_id, before[0]), {"response": {"text": "Ann"}})
        assert (await running.over(run_id))["result"]["value"] == {"result": "Ann"}


async def test_questions_of_workflows_inside_are_asked_with_their_path(serving: Serving, tmp_path: Path) -> None:
    class Outer(Workflow):
        @step
        async def call(self, ev: StartEvent, desk: Ask) -> StopEvent:
            return StopEvent(result=await desk.run())

    def outer() -> Outer:
        return Outer(timeout=None, workflows={"desk": Ask(timeout=None)})

    store = tmp_path / "runs.db"
    async with serving(WorkflowServer(store=store, idle_timeout=0.02), outer=outer()) as running:
        run_id = await running.start("outer")
        await running.until(run_id, lambda found: found["waiting"] and not found["live"])
        [asked] = await pending(running, run_id)
        assert asked["path"] == "desk"
    async with serving(WorkflowServer(store=SQLiteStore(store)), outer=outer()) as running:
        assert await pending(running, run_id) == [asked]
        await running.post(path_of(run_id, asked), {"response": {"text": "Ann"}})
        assert (await running.over(run_id))["result"]["value"] == {"result": "Ann"}
        states = await running.get(f"/handlers/{run_id}/state")
        assert states["children"] == {"desk": {"user": {"name": "Ann"}}}


async def test_a_question_that_a_step_returns_is_answered_by_whoever_takes_the_answer(serving: Serving) -> None:
    class Returned(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> InputRequiredEvent:
            return InputRequiredEvent(prefix="Name: ")

        @step
        async def end(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result=ev.response)

    for idle_timeout in (60, 0.02):
        async with serving(WorkflowServer(idle_timeout=idle_timeout), ask=Returned(timeout=None)) as running:
            run_id = await running.start("ask")
            await running.until(run_id, _waits_in_memory if idle_timeout == 60 else _waits_elsewhere)
            [asked] = await pending(running, run_id)
            assert asked["schema"]["required"] == ["response"]
            path = path_of(run_id, asked)
            await running.post(path, {"response": {"response": "Ann"}})
            assert (await running.over(run_id))["result"]["value"] == {"result": "Ann"}
            assert (await running.http.post(path, json={"response": {"response": "Bob"}})).status_code == 409


async def test_of_several_questions_the_one_that_was_answered_is_closed(serving: Serving) -> None:
    class Siblings(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> list[InputRequiredEvent]:
            return [InputRequiredEvent(prefix=name) for name in ("Ann", "Bob")]

        @step
        async def take(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent | None:
            heard = [*await ctx.store.get("heard", default=[]), ev.response]
            await ctx.store.set("heard", heard)
            return StopEvent(result=heard) if len(heard) == 2 else None

    for idle_timeout in (60, 0.02):
        async with serving(WorkflowServer(idle_timeout=idle_timeout), ask=Siblings(timeout=None)) as running:
            run_id = await running.start("ask")
            await running.until(run_id, _waits_in_memory if idle_timeout == 60 else _waits_elsewhere)
            first, second = await pending(running, run_id)
            await running.post(path_of(run_id, second), {"response": {"response": "two"}})
            await asyncio.sleep(0.1)
            assert [one["id"] for one in await pending(running, run_id)] == [first["id"]]
            again = await running.http.post(path_of(run_id, second), json={"response": {"response": "two"}})
            assert again.status_code == 409
            await running.post(path_of(run_id, first), {"response": {"response": "one"}})
            assert (await running.over(run_id))["result"]["value"] == {"result": ["two", "one"]}


def _waits_in_memory(found: dict) -> bool:
    return found["waiting"] and found["live"]


def _waits_elsewhere(found: dict) -> bool:
    return found["waiting"] and not found["live"]


async def test_events_that_ask_for_leave_are_told_as_such(serving: Serving) -> None:
    class ApprovalRequired(InputRequiredEvent):
        tool_name: str

    class Gate(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Answered, waiter_event=ApprovalRequired(tool_name="rm"), timeout=None)
            return StopEvent()

    async with serving(WorkflowServer(), gate=Gate(timeout=None, types=[ApprovalRequired])) as running:
        [asked] = await pending(running, await waiting(running, "gate"))
    assert asked["kind"] == "approval"


class Loose(Workflow):
    """A step asks, and another takes every answer that comes."""

    def __init__(self) -> None:
        super().__init__(timeout=None)
        self.taken: list[str] = []

    @step
    async def ask(self, ev: StartEvent) -> Asked:
        return Asked(text="Who?")

    @step
    async def take(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        self.taken.append(ev.text)
        await asyncio.sleep(0.1)
        return StopEvent(result=ev.text)


class Allowed(HumanResponseEvent):
    approved: bool


class Leave(Workflow):
    def __init__(self) -> None:
        super().__init__(timeout=None)

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(
            Allowed, waiter_event=Asked(text="May I?"), requirements={"id": "1/0"}, timeout=None
        )
        return StopEvent(result=answer.approved)


async def asked_of(running: Running, run_id: str) -> dict:
    [asked] = await eventually(lambda: pending(running, run_id))
    return asked


async def test_of_many_who_answer_a_question_at_once_one_is_heard_also_over_two_servers(
    serving: Serving, tmp_path: Path
) -> None:
    store, loose = tmp_path / "runs.db", Loose()
    async with (
        serving(WorkflowServer(store=SQLiteStore(store)), loose=loose) as one,
        serving(WorkflowServer(store=SQLiteStore(store)), loose=loose) as other,
    ):
        for _ in range(5):
            loose.taken.clear()
            run_id = await one.start("loose")
            path = path_of(run_id, await asked_of(other, run_id))
            answers = await asyncio.gather(
                *(
                    running.http.post(path, json={"response": {"text": f"{number}"}})
                    for number in range(6)
                    for running in (one, other)
                )
            )
            assert sorted(answer.status_code for answer in answers) == [200] + [409] * 11
            await one.over(run_id)
            assert len(loose.taken) == 1


async def test_of_a_yes_and_a_no_at_once_one_is_heard(serving: Serving, tmp_path: Path) -> None:
    async with serving(WorkflowServer(store=tmp_path / "runs.db"), leave=Leave()) as running:
        for _ in range(8):
            run_id = await running.start("leave")
            path = path_of(run_id, await asked_of(running, run_id))
            yes, no = await asyncio.gather(
                running.http.post(path, json={"response": {"approved": True}}),
                running.http.post(path, json={"response": {"approved": False}}),
            )
            assert {yes.status_code, no.status_code} == {200, 409}
            assert (await running.over(run_id))["result"]["value"] == {"result": yes.status_code == 200}


async def test_several_questions_of_a_step_are_answered_in_any_order(serving: Serving) -> None:
    class Two(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> list[Asked]:
            return [Asked(text="Who?"), Asked(text="Where?")]

        @step
        async def take(self, ctx: Context, ev: Answered) -> StopEvent | None:
            heard = [*await ctx.store.get("heard", []), ev.text]
            await ctx.store.set("heard", heard)
            return StopEvent(result=heard) if len(heard) == 2 else None

    async with serving(WorkflowServer(), two=Two(timeout=None)) as running:
        run_id = await running.start("two")

        async def open_are(number: int) -> list[dict] | None:
            found = await pending(running, run_id)
            return found if len(found) == number else None

        _, last = await eventually(lambda: open_are(2))
        await running.post(path_of(run_id, last), {"response": {"text": "first"}})
        [left] = await eventually(lambda: open_are(1))
        await running.post(path_of(run_id, left), {"response": {"text": "second"}})
        assert (await running.over(run_id))["result"]["value"] == {"result": ["first", "second"]}


@pytest.mark.parametrize(
    ("workflow", "fields"),
    [(lambda: Ask(timeout=None), {"text": "Ann"}), (Loose, {"text": "Ann"}), (Leave, {"approved": True})],
)
async def test_of_an_answer_from_the_command_line_and_one_over_http_at_once_one_is_heard(
    serving: Serving, tmp_path: Path, workflow: Callable[[], Workflow], fields: dict
) -> None:
    store = tmp_path / "runs.db"
    typed = json.dumps(fields if "approved" in fields else {**fields, "loud": True})
    async with serving(WorkflowServer(store=store), asks=workflow()) as running:
        for _ in range(4):
            run_id = await running.start("asks")
            path = path_of(run_id, await asked_of(running, run_id))
            words = ["approve", run_id, "--answer", typed, "--store", str(store)]
            code, answer = await asyncio.gather(
                asyncio.to_thread(main, words), running.http.post(path, json={"response": fields})
            )
            assert (code, answer.status_code) in ((0, 409), (1, 200))
            await running.over(run_id)


class Begun(StartEvent):
    _trusted: bool = PrivateAttr(default=False)


class Vouched(HumanResponseEvent):
    _trusted: bool = PrivateAttr(default=False)


class Trusting(Workflow):
    @step
    async def ask(self, ctx: Context, ev: Begun) -> StopEvent:
        answer = await ctx.wait_for_event(Vouched, waiter_event=Asked(text="Well?"), timeout=None)
        return StopEvent(result=[ev._trusted, answer._trusted])


async def test_private_attributes_are_not_for_clients(serving: Serving) -> None:
    async with serving(WorkflowServer(), ask=Trusting(timeout=None)) as running:
        run_id = await waiting(running)
        [asked] = await pending(running, run_id)
        for fields in ({"_trusted": True}, {"_data": {"_trusted": True}}):
            refused = await running.http.post("/workflows/ask/run-nowait", json={"start_event": fields})
            assert refused.status_code == 400
            event = {"event": {"type": "Vouched", "value": fields}}
            assert (await running.http.post(f"/events/{run_id}", json=event)).status_code == 400
            refused = await running.http.post(path_of(run_id, asked), json={"response": fields})
            assert refused.status_code == 422
            assert [one["loc"] for one in refused.json()["detail"]] == [["_trusted"]]
        await running.post(path_of(run_id, asked), {"response": {"self": 1}})
        assert (await running.over(run_id))["result"]["value"] == {"result": [False, False]}


# --- the clock of a run that waits ------------------------------------------------------------------------------------


class Consults(Workflow):
    """Calls a workflow that asks."""

    @step
    async def consult(self, ev: StartEvent, ask: Ask) -> StopEvent:
        return StopEvent(result=await ask.run())


class Sleeps(Workflow):
    @step
    async def sleep(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(3600)
        return StopEvent()


@pytest.mark.parametrize(
    "workflow",
    [Ask(timeout=0.3), Consults(timeout=0.3, workflows={"ask": Ask(timeout=0.3)})],
    ids=["asks", "calls one that asks"],
)
async def test_the_timeout_of_a_run_stands_still_while_it_waits_for_a_person(
    serving: Serving, workflow: Workflow
) -> None:
    own = workflow.__batonflow__.timeout_excludes_waiting
    async with serving(WorkflowServer(), ask=workflow, sleep=Sleeps(timeout=0.3)) as running:
        run_id = await running.start("ask")
        await running.until(run_id, lambda found: found["waiting"])
        # As long as it takes a run that does not wait for a person to be out of time.
        for _ in range(2):
            assert (await running.post("/workflows/sleep/run"))["error_type"] == "WorkflowTimeoutError"
        await running.post(f"/events/{run_id}", {"event": {"type": "Answered", "value": {"text": "Ann"}}})
        assert (await running.over(run_id))["result"]["value"] == {"result": "Ann"}
    assert workflow.__batonflow__.timeout_excludes_waiting is own  # the workflow stays as it is outside the server


async def test_the_inbox_has_the_questions_of_all_runs_until_they_are_answered(serving: Serving) -> None:
    server = WorkflowServer()
    async with serving(server, ask=Ask(timeout=None), other=Ask(timeout=None, workflow_name="other")) as running:
        assert await running.get("/pending") == {"pending": [], "unreadable": [], "unserved": {}, "more": False}
        first, second = await waiting(running), await waiting(running, "other")
        told = (await running.get("/pending"))["pending"]
        assert [(one["handler_id"], one["workflow_name"]) for one in told] == [(second, "other"), (first, "ask")]
        [alone] = await pending(running, first)
        assert {name: told[1][name] for name in alone} == alone
        [only] = (await running.get("/pending", workflow_name="ask"))["pending"]
        assert only["handler_id"] == first
        await running.post(path_of(first, alone), {"response": {"text": "Ann"}})
        assert [one["handler_id"] for one in (await running.get("/pending"))["pending"]] == [second]


async def test_the_inbox_counts_waiting_runs_of_workflows_that_the_server_does_not_have(
    serving: Serving, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    server = WorkflowServer(store=path, idle_timeout=0.02)
    async with serving(server, ask=Ask(timeout=None, workflow_name="ask")) as running:
        for _ in range(2):
            run_id = await running.start("ask")
            await running.until(run_id, _waits_elsewhere)
    async with serving(WorkflowServer(store=path), leave=Leave()) as running:
        asked = await running.start("leave")
        await running.until(asked, lambda found: found["waiting"])
        told = await running.get("/pending")
        assert [one["handler_id"] for one in told["pending"]] == [asked]
        assert told["unserved"] == {"ask": 2}
        found = await running.get("/handlers", workflow_name="ask", status="waiting")
        assert run_id in [one["handler_id"] for one in found["handlers"]]


async def test_the_inbox_reads_a_run_that_nobody_drives_once_for_each_change(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    elsewhere = SQLiteStore(tmp_path / "runs.db")
    flow = Ask(store=elsewhere, timeout=None, workflow_name="ask")
    handler = flow.run(run_id="r")
    await anext(handler.inputs())  # another process drives the run

    async def is_written() -> bool:
        return (await elsewhere.info("r")).seq == 2  # pyright: ignore[reportOptionalMemberAccess]

    await eventually(is_written)
    read: list[str] = []
    load = SQLiteStore.load

    async def counted(self: SQLiteStore, run_id: str, at: int | None = None) -> Any:
        read.append(run_id)
        return await load(self, run_id, at)

    async with serving(WorkflowServer(store=store), ask=Ask(timeout=None, workflow_name="ask")) as running:
        monkeypatch.setattr(SQLiteStore, "load", counted)
        [asked] = (await running.get("/pending"))["pending"]
        assert read == ["r"]
        read.clear()
        assert [(await running.get("/pending"))["pending"] for _ in range(3)] == [[asked]] * 3
        assert read == []
        await running.post(path_of("r", asked), {"response": {"text": "Ann"}})
        assert (await running.get("/pending"))["pending"] == []
        assert await handler == "Ann"
    await elsewhere.aclose()


async def test_a_run_that_the_code_does_not_fit_any_more_is_named_in_the_inbox(serving: Serving) -> None:
    class Renamed(Workflow):
        @step
        async def other(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await ctx.wait_for_event(Answered))

    store = MemoryStore()
    flow = Ask(store=store, timeout=None, workflow_name="ask")
    handler = flow.run(run_id="r")
    await anext(handler.inputs())
    async with serving(
        WorkflowServer(store=MemoryStore(beside=store)), ask=Renamed(timeout=None, workflow_name="ask")
    ) as running:
        told = await running.get("/pending")
    assert told["pending"] == []
    [problem] = told["unreadable"]
    assert problem["handler_id"] == "r"
    assert "Step ask of Renamed is in the records of the run and not in the code" in problem["detail"]
    await handler.cancel_run()
