"""Dispatchers: a worker drives each run once, whatever befalls the bells of runs."""

import asyncio
import os
import runpy
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable import claimer
from batonflow.durable.stores import postgres_listener
from batonflow.durable.stores.postgres import PostgresStore
from batonflow.fleet import (
    DBOSDispatcher,
    Dispatcher,
    ProcrastinateDispatcher,
    Worker,
    dispatcher_dbos,
    open_dispatcher,
)
from batonflow.fleet.dispatchers import DISPATCHERS, DispatcherName
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import StoreError
from tests.durable.runs import known
from tests.postgres import connected, drop_schema, new_schema, server_address
from tests.server.conftest import eventually

pytestmark = pytest.mark.external("postgresql")

SHOP = """
import asyncio, os
from batonflow import Event, StartEvent, StopEvent, Workflow, step

class Packed(Event):
    n: int

class Shop(Workflow):
    @step
    async def pack(self, ev: StartEvent) -> Packed:
        return Packed(n=ev.n)

    @step
    async def send(self, ev: Packed) -> StopEvent:
        with open("sent", "a") as sent:
            sent.write(f"{ev.n}\\n")
        await asyncio.sleep(0.3)
        return StopEvent(result=ev.n)

flow = Shop(timeout=None, workflow_name="shop")
"""


class Noting(Workflow):
    """Notes the start of each run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(timeout=None, workflow_name="noting", **options)
        self.started: list[Any] = []

    @step
    async def note(self, ev: StartEvent) -> StopEvent:
        self.started.append(ev.n)
        await asyncio.sleep(0.05)
        return StopEvent(result=ev.n)


class Bells:
    """Opens dispatchers of one kind that share their tables, as processes do."""

    def __init__(self, kind: str, address: str, schema: str) -> None:
        self.kind, self.address, self.schema = kind, address, schema
        self.opened: list[Dispatcher] = []

    def open(self) -> Dispatcher | None:
        if self.kind == "none":
            return None
        made = ProcrastinateDispatcher if self.kind == "procrastinate" else DBOSDispatcher
        bell = made(self.address, self.schema)
        self.opened.append(bell)
        return bell

    async def ring(self, run_id: str, not_before: datetime | None = None, priority: int = 0) -> None:
        if self.opened:
            await self.opened[0].ring(run_id, not_before, priority)

    async def aclose(self) -> None:
        for bell in self.opened:
            await bell.aclose()


@pytest.fixture(scope="module")
def engine_schemas() -> Iterator[dict[str, str]]:
    """The schemas of the engines, whose tables take longer to create than a test."""
    address = server_address()
    schemas = {kind: new_schema() for kind in DISPATCHERS}
    yield schemas
    for schema in schemas.values():
        drop_schema(address, schema)


@pytest.fixture(params=DISPATCHERS)
async def bells(request: pytest.FixtureRequest, engine_schemas: dict[str, str]) -> AsyncIterator[Bells]:
    if request.param != "none":
        pytest.importorskip(request.param)
    bells = Bells(request.param, server_address(), engine_schemas[request.param])
    yield bells
    await bells.aclose()


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    address, schema = server_address(), new_schema()
    store = PostgresStore(address, schema)
    yield store
    await store.aclose()
    drop_schema(address, schema)


class Working:
    """A worker that runs inside a block."""

    def __init__(self, flow: Workflow, bell: Dispatcher | None, **options: Any) -> None:
        self.worker = Worker(flow, dispatcher=bell or "none", **options)

    async def __aenter__(self) -> Worker:
        self._running = asyncio.create_task(self.worker.run())
        return self.worker

    async def __aexit__(self, *_: object) -> None:
        self.worker.stop()
        await self._running


async def completed(store: PostgresStore, *ids: str) -> None:
    async def over() -> bool:
        return all([(await known(store, run_id)).is_over for run_id in ids])

    await asyncio.wait_for(eventually(over), 20)
    assert [(await known(store, run_id)).status for run_id in ids] == ["completed"] * len(ids)


async def test_a_rung_run_is_driven_once(bells: Bells, store: PostgresStore) -> None:
    flow, bell = Noting(store=store), bells.open()
    async with Working(flow, bells.open()):
        ids = [await flow.enqueue(n=n, dispatcher=bell) for n in range(5)]
        await completed(store, *ids)
    assert sorted(flow.started) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bells", ["procrastinate", "dbos"], indirect=True)
async def test_a_bell_at_the_time_of_a_run_wakes_the_worker(
    bells: Bells, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "LOOKS_EVERY", 60.0)
    monkeypatch.setattr(postgres_listener, "LOST_HINT_SECONDS", 60.0)
    flow, bell = Noting(store=store), bells.open()
    async with Working(flow, bells.open()):
        await completed(store, await flow.enqueue(n=0, dispatcher=bell))  # the engine serves
        soon = datetime.now(UTC) + timedelta(seconds=0.7)
        run_id = await flow.enqueue(n=1, not_before=soon, dispatcher=bell)
        await completed(store, run_id)
    assert flow.started == [0, 1]


async def test_the_order_of_priorities_is_kept(bells: Bells, store: PostgresStore) -> None:
    flow, bell = Noting(store=store), bells.open()
    ids = [await flow.enqueue(n=n, priority=n, dispatcher=bell) for n in (1, 3, -5, 1000, -1000)]
    async with Working(flow, bells.open(), concurrency=1):
        await completed(store, *ids)
    assert flow.started == [1000, 3, 1, -5, -1000]


async def test_a_bell_before_the_time_of_a_run_does_not_start_it(bells: Bells, store: PostgresStore) -> None:
    flow, bell = Noting(store=store), bells.open()
    at = datetime.now(UTC) + timedelta(seconds=2)
    async with Working(flow, bells.open()):
        run_id = await flow.enqueue(n=1, not_before=at)
        await bells.ring(run_id)
        await completed(store, await flow.enqueue(n=2, dispatcher=bell))
        await completed(store, run_id)
        assert datetime.now(UTC) >= at
    assert flow.started == [2, 1]


async def test_a_run_whose_bell_is_lost_is_found(bells: Bells, store: PostgresStore) -> None:
    flow = Noting(store=store)
    async with Working(flow, bells.open()):
        await completed(store, await flow.enqueue(n=1))
    assert flow.started == [1]


async def test_doubled_late_and_unknown_bells_change_nothing(bells: Bells, store: PostgresStore) -> None:
    flow, bell = Noting(store=store), bells.open()
    run_id = await flow.enqueue(n=1, dispatcher=bell)
    await asyncio.gather(*(bells.ring(run_id, priority=n) for n in range(5)))
    await bells.ring("unknown")
    async with Working(flow, bells.open()):
        await completed(store, run_id)
        await bells.ring(run_id)
        await bells.ring("unknown")
        await completed(store, await flow.enqueue(n=2, dispatcher=bell))
    assert flow.started == [1, 2]
    assert await store.info("unknown") is None


@pytest.mark.parametrize("bells", ["procrastinate", "dbos"], indirect=True)
async def test_bells_come_by_run_id_and_forgotten_ones_do_not(bells: Bells) -> None:
    bell, listening = bells.open(), bells.open()
    assert bell is not None
    assert listening is not None
    heard: list[str] = []
    known_ids = {"a", "a/b", "b", "c"}  # other tests leave bells

    def hear(run_id: str) -> None:
        if run_id in known_ids:
            heard.append(run_id)

    for run_id in ("a/b", "a", "a", "b"):
        await bell.ring(run_id)
    await bell.ring("c", datetime.now(UTC) + timedelta(hours=1))
    await bell.forget("a")
    await bell.forget("unknown")
    serving = asyncio.create_task(listening.serve(hear))
    try:
        await asyncio.wait_for(eventually(lambda: _returned(len(heard) >= 2)), 20)
        assert sorted(heard) == ["a/b", "b"]

        async def rings_again() -> bool:  # not while the engine still writes that the first bell has rung
            await bell.ring("b")
            return len(heard) > 2

        await asyncio.wait_for(eventually(rings_again), 20)
        assert set(heard[2:]) == {"b"}
    finally:
        await bell.forget("c")
        serving.cancel()
        await asyncio.wait([serving])


@pytest.mark.parametrize("bells", ["procrastinate", "dbos"], indirect=True)
async def test_the_rows_of_bells_are_deleted_also_those_of_killed_workers(
    bells: Bells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_dbos, "SECONDS_BETWEEN_DELETIONS", 0.2)
    bell, listening = bells.open(), bells.open()
    assert bell is not None
    assert listening is not None
    await bell.ring("killed")
    table, taken = {
        "procrastinate": ("procrastinate_jobs", "status = 'doing'"),
        "dbos": (
            "workflow_status",
            "status = 'PENDING', executor_id = 'batonflow', application_version = 'batonflow-1'",
        ),
    }[bells.kind]
    with connected(bells.address) as connection:
        connection.execute(f"SET search_path = {bells.schema}".encode())
        connection.execute(f"UPDATE {table} SET {taken}".encode())
        serving = asyncio.create_task(listening.serve(lambda _: None))
        await bell.ring("rung")

        async def is_empty() -> bool:
            return connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (0,)

        try:
            await asyncio.wait_for(eventually(is_empty), 20)
        finally:
            serving.cancel()
            await asyncio.wait([serving])


async def _returned(value: bool) -> bool:
    return value


async def test_a_drained_worker_leaves_no_thread_and_no_connection(bells: Bells, store: PostgresStore) -> None:
    await store.info("a")
    flow, bell = Noting(store=store), bells.open()
    run_id = await flow.enqueue(n=1, dispatcher=bell)
    await bells.aclose()
    with connected(bells.address) as connection:

        def in_use() -> tuple[set[str], int]:
            # Those of the event loop's executor stay until the loop is closed.
            threads = {one.name for one in threading.enumerate() if not one.name.startswith("asyncio_")}
            (count,) = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ 'dispatcher|dbos'"
            ).fetchone()
            return threads, count

        before = in_use()
        other = bells.open()
        async with Working(flow, other, drain=5) as worker:
            await completed(store, run_id)
            assert worker.is_ready
        await bells.aclose()

        async def has_ended() -> bool:  # the server counts a closed connection for a moment
            threads, count = in_use()
            return threads <= before[0] and count <= before[1]

        await asyncio.wait_for(eventually(has_ended), 5)


async def _begin(folder: Path, *words: str) -> asyncio.subprocess.Process:
    program = [sys.executable, "-c", "import sys; from batonflow.cli import main; sys.exit(main())"]
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    return await asyncio.create_subprocess_exec(
        *program,
        *words,
        cwd=folder,
        env=os.environ | path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("kind", DISPATCHERS)
async def test_a_worker_that_is_killed_loses_nothing(kind: DispatcherName, database: str, tmp_path: Path) -> None:
    if kind != "none":
        pytest.importorskip(kind)
    (tmp_path / "shop.py").write_text(SHOP)
    sent = tmp_path / "sent"
    options = ("shop.py:flow", "--store", database, "--dispatcher", kind)
    async with aclosing(PostgresStore(database)) as store:
        enqueueing = await _begin(tmp_path, "enqueue", "shop.py:flow", "n=0", *options[1:], "--run-id", "run-0")
        assert await enqueueing.communicate() == (b"run-0\n", b"")
        bell = open_dispatcher(kind, store)
        ids = ["run-0"]
        flow = runpy.run_path(str(tmp_path / "shop.py"))["Shop"](workflow_name="shop", store=store)
        ids += [await flow.enqueue(n=n, run_id=f"run-{n}", dispatcher=bell) for n in range(1, 8)]
        if bell is not None:
            await bell.aclose()
        killed = await _begin(tmp_path, "worker", *options, "--concurrency", "3")
        await asyncio.wait_for(eventually(lambda: _returned(sent.exists() and len(sent.read_text()) > 6)), 20)
        os.kill(killed.pid, signal.SIGKILL)
        await killed.communicate()
        other = await _begin(tmp_path, "worker", *options)
        await completed(store, *ids)
        other.terminate()
        _, errors = await asyncio.wait_for(other.communicate(), 20)
    assert (other.returncode, errors) == (0, b"")
    times = sorted(sent.read_text().split())
    assert sorted(set(times)) == [str(n) for n in range(8)]
    assert len(times) <= 8 + 3  # only those in flight are repeated


async def test_an_engine_that_cannot_be_reached_is_logged_and_the_run_is_stored(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("procrastinate")
    flow = Noting(store=store)
    away = ProcrastinateDispatcher("postgresql://nobody@127.0.0.1:1/nowhere")
    async with Working(flow, away):
        await completed(store, await flow.enqueue(n=1, run_id="order-1", dispatcher=away))
    assert "the bell of run order-1 was not rung" in caplog.text
    assert "the dispatcher fails, so runs are found without bells" in caplog.text


@pytest.mark.parametrize(("kind", "extra"), [("procrastinate", "fleet"), ("dbos", "dbos")])
def test_an_engine_that_is_not_installed_is_named(
    kind: Any, extra: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(ImportError, match=rf"needs {kind}, which is not installed: pip install .*\[{extra}\]"):
        Worker(Noting(store=store), dispatcher=kind)


def test_bad_dispatchers_are_named(store: PostgresStore) -> None:
    for made in (ProcrastinateDispatcher, DBOSDispatcher):
        with pytest.raises(StoreError, match="schema='a; b': give a name of lower-case letters"):
            made("postgresql://app@db/prod", schema="a; b")
    with pytest.raises(ValueError, match="dispatcher='celery': there are none, procrastinate, dbos"):
        Worker(Noting(store=store), dispatcher="celery")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="dispatcher='dbos' needs a store in PostgreSQL"):
        Worker(Noting(store="memory:"), dispatcher="dbos")


async def test_a_worker_beside_an_application_of_dbos_drives_its_runs_without_bells(
    store: PostgresStore, engine_schemas: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dbos = pytest.importorskip("dbos")
    config = {"name": "shop", "system_database_url": f"sqlite:///{tmp_path / 'dbos.db'}", "log_level": "ERROR"}
    application = dbos.DBOS(config=config)
    await asyncio.to_thread(dbos.DBOS.launch)
    flow, bell = Noting(store=store), DBOSDispatcher(server_address(), engine_schemas["dbos"])
    try:
        async with aclosing(bell), Working(flow, bell):
            await completed(store, await flow.enqueue(n=1, dispatcher=bell))
            await asyncio.wait_for(eventually(lambda: _returned("the dispatcher fails" in caplog.text)), 20)
        assert dbos.DBOS(config=config) is application  # it was left alone
    finally:
        await asyncio.to_thread(dbos.DBOS.destroy, workflow_completion_timeout_sec=1)
