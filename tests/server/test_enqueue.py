"""Runs that a client stores for whichever process takes them up."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batonflow import FunctionAgent, ScriptedLLM
from batonflow.durable.stores.memory import MemoryStore
from batonflow.fleet import Worker
from batonflow.server import WorkflowServer
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from tests.server.conftest import Serving


class Doubles(Workflow):
    @step
    async def double(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=2 * ev.n)


async def test_a_run_is_stored_and_taken_up(serving: Serving) -> None:
    async with serving(WorkflowServer(), doubles=Doubles()) as running:
        body = {"workflow": "doubles", "start_event": {"n": 21}, "handler_id": "r"}
        told = await running.post("/handlers?enqueue=1", body, status=202)
        assert told["handler_id"] == "r"
        assert (await running.over("r"))["result"]["value"]["result"] == 42
        assert (await running.post("/handlers?enqueue=1", body, status=202))["status"] == "completed"


async def test_the_stream_of_a_new_run_begins_with_its_first_event(serving: Serving) -> None:
    store = MemoryStore()
    later = (datetime.now(UTC) + timedelta(seconds=0.3)).isoformat()
    async with serving(WorkflowServer(store=store), doubles=Doubles()) as running:
        body = {"workflow": "doubles", "start_event": {"n": 1}, "handler_id": "r", "not_before": later}
        await running.post("/handlers?enqueue=1", body, status=202)
        assert [event["type"] for event in await running.events("r")] == ["StopEvent"]
        assert [event["type"] for event in await running.events("r")] == ["StopEvent"]
    async with serving(WorkflowServer(store=store, drive=False), doubles=Doubles()) as running:
        await running.post("/handlers?enqueue=1", {**body, "handler_id": "s"}, status=202)
        reading = asyncio.create_task(running.events("s"))
        flow = Doubles(store=MemoryStore(beside=store), workflow_name=(await store.list_runs())[0].workflow)
        worker = Worker(flow)
        working = asyncio.create_task(worker.run())
        assert [event["type"] for event in await reading] == ["StopEvent"]
        worker.stop()
        await working


async def test_a_run_waits_for_its_time(serving: Serving) -> None:
    store = MemoryStore()
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    async with serving(WorkflowServer(store=store), doubles=Doubles()) as running:
        body = {"workflow": "doubles", "start_event": {"n": 1}, "not_before": later, "queue": "gpu", "priority": 7}
        run_id = (await running.post("/handlers?enqueue=1", body, status=202))["handler_id"]
        info = await store.info(run_id)
        assert info is not None
        assert (info.status, info.queue, info.priority) == ("ready", "gpu", 7)


async def test_an_agents_run_is_stored(serving: Serving) -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["High water is at six."]))
    async with serving(WorkflowServer(), agent=agent) as running:
        body = {"workflow": "agent", "start_event": {"user_msg": "When is high water?"}}
        run_id = (await running.post("/handlers?enqueue=1", body, status=202))["handler_id"]
        assert (await running.over(run_id))["status"] == "completed"


@pytest.mark.parametrize(
    ("path", "changed", "status", "said"),
    [
        ("/handlers", {}, 400, "add enqueue=1"),
        ("/handlers?enqueue=1", {"workflow": "gone"}, 404, "gone"),
        ("/handlers?enqueue=1", {"workflow": None}, 400, "workflow"),
        ("/handlers?enqueue=1", {"priority": 5000}, 400, "priority=5000: give a whole number"),
        ("/handlers?enqueue=1", {"queue": "a b"}, 400, "queue='a b': give a name"),
        ("/handlers?enqueue=1", {"not_before": "soon"}, 400, "not_before must be a time in ISO 8601"),
        ("/handlers?enqueue=1", {"handler_id": "a b"}, 400, "handler_id"),
    ],
)
async def test_wrong_requests_are_named(
    serving: Serving, path: str, changed: dict[str, Any], status: int, said: str
) -> None:
    async with serving(WorkflowServer(), doubles=Doubles()) as running:
        body = {"workflow": "doubles", "start_event": {"n": 1}} | changed
        assert said in str(await running.post(path, body, status=status))
        assert (await running.get("/handlers"))["handlers"] == []


async def test_an_id_belongs_to_its_input(serving: Serving) -> None:
    async with serving(WorkflowServer(), doubles=Doubles()) as running:
        later = "2999-01-01"
        body = {"workflow": "doubles", "start_event": {"n": 1}, "handler_id": "r", "not_before": later}
        await running.post("/handlers?enqueue=1", body, status=202)
        body["start_event"] = {"n": 2}
        assert "other input" in str(await running.post("/handlers?enqueue=1", body, status=409))


class TestWithoutDriving:
    async def test_runs_are_stored_for_workers_and_shown(self, serving: Serving) -> None:
        store = MemoryStore()
        async with serving(WorkflowServer(store=store, drive=False), doubles=Doubles()) as running:
            body = {"start_event": {"n": 21}, "handler_id": "r"}
            told = await running.post("/workflows/doubles/run-nowait", body)
            assert (told["handler_id"], told["status"]) == ("r", "running")
            waiting = asyncio.create_task(running.post("/workflows/doubles/run", body))
            await asyncio.sleep(0.3)
            info = await store.info("r")
            assert info is not None
            assert (info.status, waiting.done()) == ("ready", False)
            worker = Worker(Doubles(workflow_name=info.workflow), store=MemoryStore(beside=store))
            working = asyncio.create_task(worker.run())
            assert (await asyncio.wait_for(waiting, 10))["result"]["value"]["result"] == 42
            worker.stop()
            await working

    async def test_a_run_that_only_this_process_could_start_is_refused(self, serving: Serving) -> None:
        agent = FunctionAgent(llm=ScriptedLLM(["yes"]))
        server = WorkflowServer(accept_sessions=True, drive=False)
        async with serving(server, agent=agent) as running:
            body = {"start_event": {"user_msg": "hi"}, "session": "s"}
            told = await running.post("/workflows/agent/run-nowait", body, status=409)
            assert "does not drive runs: leave out context, session" in str(told)
