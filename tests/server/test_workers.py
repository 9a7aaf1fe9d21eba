"""Workers over HTTP: their listing, the runs in their queues, and the runs that they drive."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from batonflow.fleet import Worker
from batonflow.server import WorkflowServer
from batonflow.workflow_core import SQLiteStore, StartEvent, StopEvent, Workflow, step
from tests.server.conftest import Running, Serving

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
