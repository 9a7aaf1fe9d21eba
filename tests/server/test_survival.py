"""Runs outlive the server that began them: killed at any moment, the next one goes on with all of them."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from batonflow.durable.store_protocol import Claimed
from batonflow.server import WorkflowServer
from batonflow.workflow_core import (
    Context,
    MemoryStore,
    RunInUseError,
    SQLiteStore,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    step,
)
from tests.server.conftest import Serving, eventually
from tests.server.flows import Answered, Ask

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@asynccontextmanager
async def process(
    store: Path, port: int, idle: float = 60
) -> AsyncIterator[tuple["subprocess.Popen[bytes]", httpx2.AsyncClient]]:
    program = [sys.executable, "-m", "tests.server.served_program", str(store), str(port), str(idle)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(program, cwd=ROOT, env=environment)  # noqa: ASYNC220 - it is killed by its object
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:

            async def healthy() -> bool:
                assert started.poll() is None
                try:
                    return (await http.get("/health")).status_code == 200
                except httpx2.TransportError:
                    return False

            await eventually(healthy)
            yield started, http
    finally:
        started.kill()
        started.wait()


async def test_kill_minus_9_during_a_hundred_runs_loses_none(tmp_path: Path) -> None:
    store, port = tmp_path / "runs.db", free_port()
    accepted: dict[str, int] = {}

    async with process(store, port) as (server, http):

        async def start(number: int) -> None:
            body = {"start_event": {"number": number}, "handler_id": f"run-{number}"}
            try:
                answer = await http.post("/workflows/chain/run-nowait", json=body)
            except httpx2.TransportError:
                return  # killed before it answered: it promised nothing
            assert answer.status_code == 200
            accepted[f"run-{number}"] = number

        async def kill() -> None:
            async def enough() -> bool:
                return len(accepted) > 60

            await eventually(enough)
            server.send_signal(signal.SIGKILL)

        await asyncio.gather(kill(), *(start(number) for number in range(100)))

    assert len(accepted) > 60
    store.with_suffix(".go").touch()
    async with process(store, port) as (_, http):

        async def all_over() -> bool:
            return not (await http.get("/handlers?status=running")).json()["handlers"]

        await asyncio.wait_for(eventually(all_over), 20)
        told = {one["handler_id"]: one for one in (await http.get("/handlers?include_results=true")).json()["handlers"]}
    assert accepted.keys() <= told.keys()
    assert all(told[name]["status"] == "completed" for name in accepted)
    assert {name: told[name]["result"]["value"]["result"] for name in accepted} == accepted


async def test_a_run_that_only_just_began_is_taken_up_at_once(tmp_path: Path) -> None:
    store, port = tmp_path / "runs.db", free_port()
    async with process(store, port) as (server, http):
        await http.post("/workflows/chain/run-nowait", json={"start_event": {"number": 7}, "handler_id": "seven"})
        server.kill()
    async with process(store, port) as (_, http):
        told = (await http.get("/handlers/seven")).json()
        assert (told["status"], told["live"], told["owner"]) == ("running", True, "this")


async def test_an_accepted_event_is_not_lost_with_the_server(tmp_path: Path) -> None:
    store, port = tmp_path / "runs.db", free_port()
    for idle in (0.05, 60):
        name = f"ask-{idle}"
        async with process(store, port, idle) as (server, http):
            await http.post("/workflows/ask/run-nowait", json={"handler_id": name})

            async def waits(http: httpx2.AsyncClient = http, name: str = name, idle: float = idle) -> bool:
                told = (await http.get(f"/handlers/{name}")).json()
                return told["waiting"] and told["live"] == (idle == 60)

            await eventually(waits)
            event = {"event": {"type": "Answered", "value": {"text": "Ann"}}}
            assert (await http.post(f"/events/{name}", json=event)).status_code == 200
            server.kill()
        async with process(store, port) as (_, http):

            async def over(http: httpx2.AsyncClient = http, name: str = name) -> bool:
                return (await http.get(f"/handlers/{name}")).json()["status"] == "completed"

            await asyncio.wait_for(eventually(over), 30)


async def test_a_reader_comes_back_to_the_next_server_and_misses_nothing(tmp_path: Path) -> None:
    store, port = tmp_path / "runs.db", free_port()
    seen: list[tuple[str, int]] = []

    async def read(http: httpx2.AsyncClient, after: int) -> None:
        async with http.stream("GET", f"/events/r?after_sequence={after}") as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    seen.append((event["type"], event["value"].get("number"), event["seq"]))
                    if event["value"].get("number") == 2:
                        return

    async with process(store, port) as (server, http):
        await http.post("/workflows/chain/run-nowait", json={"start_event": {"number": 1}, "handler_id": "r"})
        await read(http, -1)
        server.kill()
    store.with_suffix(".go").touch()
    async with process(store, port) as (_, http):
        await read(http, seen[-1][2])
        assert seen[-1][:2] == ("Progress", 2)  # of the step that runs again
        await read(http, seen[-1][2])
    # The second server says of what it does not know; a step whose end was not written streams again, also the first.
    kinds = [entry[:2] for entry in seen]
    assert kinds[:3] == [("Progress", 1), ("Progress", 2), ("StreamResetEvent", None)]
    assert kinds[-2:] == [("Progress", 2), ("StopEvent", None)]
    assert kinds[3:-2] in ([], [("Progress", 1)])
    numbers = [entry[2] for entry in seen]
    assert numbers == sorted(set(numbers))


async def test_an_orderly_end_leaves_runs_to_the_next_server(tmp_path: Path) -> None:
    store, port = tmp_path / "runs.db", free_port()
    async with process(store, port) as (server, http):
        await http.post("/workflows/chain/run-nowait", json={"start_event": {"number": 1}, "handler_id": "r"})
        server.terminate()
        assert await asyncio.to_thread(server.wait, 10) in (0, -signal.SIGTERM)
    store.with_suffix(".go").touch()
    async with process(store, port) as (_, http):

        async def over() -> bool:
            return (await http.get("/handlers/r")).json()["status"] == "completed"

        await asyncio.wait_for(eventually(over), 30)


async def test_what_came_while_no_server_ran_brings_a_run_back(serving: Serving, tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    async with serving(WorkflowServer(store=store, idle_timeout=0.02), ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        await running.until(run_id, lambda found: found["waiting"] and not found["live"])
    elsewhere = SQLiteStore(store)
    await Ask(store=elsewhere).send_to_run(run_id, Answered(text="Ann"))
    await elsewhere.aclose()
    async with serving(WorkflowServer(store=SQLiteStore(store)), ask=Ask(timeout=None)) as running:
        assert (await running.over(run_id))["result"]["value"] == {"result": "Ann"}


async def test_what_another_process_sends_brings_a_run_back_while_the_server_runs(
    serving: Serving, tmp_path: Path
) -> None:
    store, elsewhere = tmp_path / "runs.db", SQLiteStore(tmp_path / "runs.db")
    async with serving(WorkflowServer(store=store, idle_timeout=0.02), ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        await running.until(run_id, lambda found: found["waiting"] and not found["live"])
    async with serving(WorkflowServer(store=SQLiteStore(store)), ask=Ask(timeout=None)) as running:
        reading = asyncio.create_task(running.events(run_id))
        await Ask(store=elsewhere).send_to_run(run_id, Answered(text="Ann"))
        assert (await running.over(run_id))["result"]["value"] == {"result": "Ann"}
        told = [event["type"] for event in await reading if event["type"] != "StreamResetEvent"]
        # Asked again where the reader was there when the run was taken up.
        assert told in (["Asked", "StopEvent"], ["Asked", "Asked", "StopEvent"])
    await elsewhere.aclose()


async def said(caplog: pytest.LogCaptureFixture, times: int) -> bool:
    return len([record for record in caplog.records if "cannot be resumed" in record.getMessage()]) == times


async def test_a_run_that_does_not_fit_the_code_stays_and_holds_no_other_up(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Later(Workflow):
        @step
        async def other(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="later")

    store = SQLiteStore(tmp_path / "runs.db")
    before = Ask(store=store, timeout=None, workflow_name="flow").run(run_id="old")
    await anext(before.inputs())
    await before.interrupt()
    async with serving(WorkflowServer(store=store), flow=Later(workflow_name="flow")) as running:
        await asyncio.wait_for(eventually(partial(said, caplog, 1)), 30)
        assert (await running.post("/workflows/flow/run"))["result"]["value"] == {"result": "later"}
        told = await running.get("/handlers/old")
        assert (told["status"], told["live"]) == ("running", False)
        for path in ("/handlers/old/pending",):
            answer = await running.http.get(path)
            assert answer.status_code == 409
            assert "Step ask" in answer.json()["detail"]
        assert (await running.get("/handlers/old/trace"))["entries"]
    assert await said(caplog, 1)


async def test_a_run_at_which_the_code_fails_in_any_way_is_left_to_others(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    works = True

    class Counts(BaseModel):
        number: int = 1

        def model_post_init(self, context: object, /) -> None:
            if not works:
                raise ZeroDivisionError("no number")

    class Counting(Workflow):
        @step
        async def ask(self, ctx: Context[Counts], ev: StartEvent) -> StopEvent:
            await ctx.store.set("number", 2)
            return StopEvent(result=(await ctx.wait_for_event(Answered, timeout=None)).text)

    store = SQLiteStore(tmp_path / "runs.db")
    left = Counting(store=store, timeout=None).run(run_id="left")

    async def waits() -> bool:
        return left.is_waiting

    await eventually(waits)
    await left.interrupt()
    await store.aclose()
    works = False
    async with serving(WorkflowServer(store=SQLiteStore(tmp_path / "runs.db")), counting=Counting(timeout=None)) as one:

        async def given_up() -> bool:
            return "no number" in caplog.text and (await one.get("/handlers/left"))["owner"] is None

        await asyncio.wait_for(eventually(given_up), 30)
        works = True
        other = SQLiteStore(tmp_path / "runs.db")

        async def taken_up() -> WorkflowHandler | None:
            handler = Counting(store=other, timeout=None).resume("left")
            try:
                await handler.started()
            except RunInUseError:  # the server is just trying again
                return None
            return handler

        await (await asyncio.wait_for(eventually(taken_up), 30)).cancel_run()
        await other.aclose()


class SlowToAnswer(MemoryStore):
    """Claims at once, and takes its time to say so."""

    def __init__(self) -> None:
        super().__init__()
        self.claimed = asyncio.Event()

    async def claim_due(self, *args: Any, **options: Any) -> list[Claimed]:
        found = await super().claim_due(*args, **options)
        if found:
            self.claimed.set()
            await asyncio.sleep(0.2)
        return found


async def test_what_is_claimed_when_the_server_stops_is_left_to_others(serving: Serving) -> None:
    store = SlowToAnswer()
    server = WorkflowServer(store=store)
    server.add_workflow("flow", Ask(timeout=None, workflow_name="flow"))
    await server.start()
    left = Ask(store=MemoryStore(beside=store), timeout=None, workflow_name="flow").run(run_id="left")
    await anext(left.inputs())
    await left.interrupt()
    await store.claimed.wait()
    await server.stop()
    info = await store.info("left")
    assert info is not None
    assert info.owner is None


async def test_runs_that_cannot_go_on_hold_up_nothing_that_comes_for_others(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Renamed(Workflow):
        @step
        async def asks_now(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(await ctx.wait_for_event(Answered, timeout=None)).text)

    def renamed() -> Workflow:
        return Renamed(workflow_name="flow", timeout=None)

    store = SQLiteStore(tmp_path / "runs.db")
    flow = Ask(store=store, timeout=None, workflow_name="flow")
    for number in range(3):
        old = flow.run(run_id=f"old-{number}")
        await anext(old.inputs())
        await old.interrupt()
    await store.aclose()
    async with serving(WorkflowServer(store=tmp_path / "runs.db", idle_timeout=0.02), flow=renamed()) as running:
        new = [await running.start("flow") for _ in range(3)]
        for run_id in new:
            await running.until(run_id, lambda found: found["waiting"] and not found["live"])
    elsewhere = SQLiteStore(tmp_path / "runs.db")
    caplog.clear()
    async with serving(WorkflowServer(store=SQLiteStore(tmp_path / "runs.db")), flow=renamed()) as running:
        await asyncio.wait_for(eventually(partial(said, caplog, 3)), 30)
        for run_id in new:
            await Ask(store=elsewhere).send_to_run(run_id, Answered(text=run_id))
            told = await asyncio.wait_for(running.over(run_id), 30)
            assert told["result"]["value"] == {"result": run_id}
        assert len((await running.get("/handlers", status="running"))["handlers"]) == 3
    await elsewhere.aclose()


async def test_a_server_that_stops_begins_no_runs(serving: Serving) -> None:
    let_in, go_on, held, gave_way = (asyncio.Event() for _ in range(4))

    class Holds:
        """Holds one request up that was let in before the server stops."""

        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope.get("query_string") == b"late":
                let_in.set()
                await go_on.wait()
            await self._app(scope, receive, send)

    class Stubborn(Workflow):
        @step
        async def stay(self, ev: StartEvent) -> StopEvent:
            try:
                await asyncio.sleep(3600)
            finally:
                held.set()
                await gave_way.wait()
            return StopEvent()

    server = WorkflowServer(middleware=[Middleware(Holds)])
    async with serving(server, stubborn=Stubborn(timeout=None), ask=Ask(timeout=None)) as running:
        await running.start("stubborn")
        late = asyncio.create_task(running.http.post("/workflows/ask/run-nowait?late", json={}))
        await let_in.wait()
        stopping = asyncio.create_task(server.stop())
        await held.wait()
        assert (await running.http.post("/workflows/ask/run-nowait", json={})).status_code == 503
        go_on.set()
        assert (await late).status_code == 200
        gave_way.set()
        await stopping
        assert [one.workflow.live_handlers() for one in server.runs.served.values()] == [[], []]


async def test_starting_and_stopping_twice_is_as_once(tmp_path: Path) -> None:
    server = WorkflowServer(store=tmp_path / "runs.db")
    server.add_workflow("ask", Ask(timeout=None))
    await server.stop()
    for _ in range(2):
        await asyncio.gather(server.start(), server.start())
        async with server.contextmanager() as same:
            assert same is server
        await server.stop()
        await server.stop()
