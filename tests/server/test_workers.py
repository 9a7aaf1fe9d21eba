"""Workers over HTTP: their listing, the runs in their queues, and the runs that they drive."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.stores.attempts import held_words
from batonflow.fleet import Worker
from batonflow.server import WorkflowServer
from batonflow.server.client import WorkflowClient
from batonflow.workflow_core import SQLiteStore, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import ServerRefusedError
from tests.server.conftest import Running, Serving, eventually

ID = "shop"


class Gate(Workflow):
    """Waits in a step until it may go on."""

    def __init__(self, opened: asyncio.Event, **options: Any) -> None:
        super().__init__(timeout=None, workflow_name=ID, **options)
        self.opened = opened

    @step
    async def wait(self, ev: StartEvent) -> StopEvent:
        await self.opened.wait()
        return StopEvent(result="done")


@asynccontextmanager
async def worker_at(path: Path, flow: Workflow) -> AsyncIterator[Worker]:
    store = SQLiteStore(path)
    worker = Worker(flow, store=store, concurrency=2, queues=["default"])
    working = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        worker.stop()
        await working
        await store.aclose()


async def enqueued(running: Running, run_id: str, **fields: Any) -> None:
    await running.post(
        "/handlers?enqueue=1", {"workflow": ID, "start_event": {}, "handler_id": run_id, **fields}, status=202
    )


async def test_workers_and_the_runs_in_their_queues_are_listed(serving: Serving, tmp_path: Path) -> None:
    opened = asyncio.Event()
    server = WorkflowServer(store=tmp_path / "runs.db", drive=False)
    async with serving(server, shop=Gate(opened)) as running:
        assert await running.get("/fleet") == {"workers": [], "queues": []}
        await enqueued(running, "taken")
        await enqueued(running, "left", queue="gpu")
        async with worker_at(tmp_path / "runs.db", Gate(opened)) as worker:
            told = await running.until("taken", lambda found: found["worker"] is not None)
            assert (told["worker"], told["owner"], told["held"]) == (worker.name, "other", None)
            assert [one["worker"] for one in (await running.get("/handlers"))["handlers"]] == [worker.name, None]
            fleet = await running.get("/fleet")
            [known] = fleet["workers"]
            assert (known["name"], known["state"], known["runs"], known["slots"]) == (worker.name, "working", 1, 2)
            assert (known["workflows"], known["queues"]) == ([ID, f"schedule of {ID}"], ["default"])
            assert [(one["queue"], one["ready"], one["running"], one["workers"]) for one in fleet["queues"]] == [
                ("default", 0, 1, 1),
                ("gpu", 1, 0, 0),
            ]
            opened.set()
            await running.over("taken")
        assert (await running.get("/fleet"))["workers"] == []


def hold(path: Path, run_id: str, owner: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET held = ? WHERE run_id = ?", (held_words(5, owner), run_id))


async def test_ready_and_held_runs_are_told_apart_from_running_ones(serving: Serving, tmp_path: Path) -> None:
    opened, path = asyncio.Event(), tmp_path / "runs.db"
    async with serving(WorkflowServer(store=path, drive=False), shop=Gate(opened)) as running:
        for run_id in ("ready", "held"):
            await enqueued(running, run_id, queue="gpu")
        hold(path, "held", "gone")
        await enqueued(running, "done")
        async with worker_at(path, Gate(opened)):
            opened.set()
            await running.over("done")
            opened.clear()
            await enqueued(running, "running")
            await running.until("running", lambda found: found["phase"] == "running")
            for statuses, expected in {
                ("ready",): ["ready"],
                ("held",): ["held"],
                ("waiting",): [],
                ("ready", "completed"): ["ready", "done"],
                ("running",): ["ready", "held", "running"],
                (): ["ready", "held", "done", "running"],
            }.items():
                found = (await running.get("/handlers", status=list(statuses)))["handlers"]
                assert [run["handler_id"] for run in found] == expected
                assert {(run["status"], run["phase"]) for run in found} <= {
                    ("running", "ready"),
                    ("running", "held"),
                    ("running", "running"),
                    ("completed", "completed"),
                }
            [first] = (await running.get("/handlers", status=["ready", "held"], limit=1))["handlers"]
            [second] = (await running.get("/handlers", status=["ready", "held"], after="ready"))["handlers"]
            assert (first["handler_id"], second["handler_id"]) == ("ready", "held")
            refused = await running.http.get("/handlers", params={"status": "away"})
            assert refused.status_code == 400
            assert "running, ready, waiting, held, completed" in refused.json()["detail"]
            async with WorkflowClient(running.url) as client:
                assert [run.run_id for run in await client.runs(status="held")] == ["held"]
            opened.set()


async def test_a_held_run_names_its_worker_and_is_released(serving: Serving, tmp_path: Path) -> None:
    opened, path = asyncio.Event(), tmp_path / "runs.db"
    server = WorkflowServer(store=path, drive=False, token="open-sesame")
    async with (
        serving(server, shop=Gate(opened)) as running,
        WorkflowClient(running.url, token="open-sesame") as client,
    ):
        await enqueued(running, "r", queue="gpu")
        async with worker_at(path, Gate(opened)) as worker:
            [signed] = await eventually(running.server.runs.stores[0].workers)
            owner = signed.sign.owner
            hold(path, "r", owner)
            told = await running.get("/handlers/r")
            assert told["held"] == f"5 attempts ended without a commit, the last one of worker {worker.name}"
        refused = await running.http.post("/handlers/r/release", json={}, headers={"Authorization": "Bearer wrong"})
        assert refused.status_code == 401
        told = await running.post("/handlers/r/release")
        assert (told["handler_id"], told["held"], told["phase"]) == ("r", None, "ready")
        with pytest.raises(ServerRefusedError, match="Run r is not held"):
            await client.release("r")
        assert "no run 'other'" in (await running.post("/handlers/other/release", status=404))["detail"]
    async with serving(WorkflowServer(store=path, drive=False)) as running:
        hold(path, "r", owner)
        assert (await running.post("/handlers/r/release"))["phase"] == "ready", "without the code, too"
