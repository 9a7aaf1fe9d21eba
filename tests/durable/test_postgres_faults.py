"""PostgreSQL with faults: it is away, it crashes, a session is ended, the tables are too new, rights are missing."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.search import find_runs
from batonflow.durable.search_protocol import RunQuery
from batonflow.durable.store_protocol import Busy, Claimed, RunStore
from batonflow.durable.stores import postgres_connection, postgres_threads
from batonflow.durable.stores.postgres import PostgresStore
from batonflow.durable.stores.postgres_connection import Database
from batonflow.durable.stores.postgres_listener import Listener
from batonflow.durable.stores.postgres_workers import ENDED_SECONDS
from batonflow.durable.worker_protocol import WorkerSign
from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Stores
from tests.durable.runs import TTL, begin, bodies, entry, known, write
from tests.postgres import DatabaseClock, OwnServer, connected, new_schema

pytestmark = pytest.mark.external("postgresql")


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    server = OwnServer()
    yield server
    server.close()


@pytest.fixture
async def store(server: OwnServer) -> AsyncIterator[PostgresStore]:
    server.start()
    store = PostgresStore(server.address)
    yield store
    await store.aclose()
    with connected(server.address) as connection:
        connection.execute("DROP SCHEMA IF EXISTS batonflow CASCADE")


@pytest.fixture
async def others(tmp_path: Path) -> AsyncIterator[Stores]:
    """Stores in the server that all tests share."""
    stores = Stores("postgres", tmp_path)
    yield stores
    await stores.aclose()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="batonflow")


class TestValues:
    async def test_one_that_cannot_be_sent_leaves_the_other_runs_of_the_batch_unwritten(self, others: Stores) -> None:
        store = others.open()
        good = await begin(store, "a")
        bad = await begin(store, "b")
        entries = [entry(store, good, 0, [b"1"], "a"), entry(store, bad, 0, [b"1"], "b", stream_seq=2**70)]
        with pytest.raises(OverflowError):
            await store.commit(entries)
        assert await bodies(store, "a") == []
        assert (await store.commit(entries[:1]))[0].outcome == "committed"


class TestFullDisk:
    async def test_a_full_disk_is_an_error_until_there_is_space_again(self, server: OwnServer) -> None:
        disk = server.small_disk(megabytes=8)
        store = PostgresStore(f"{server.address}&options=-c%20default_tablespace%3Dsmall", schema=new_schema())
        try:
            epoch, seq, filling = await begin(store), 0, disk / "filling"
            full = pytest.raises(StoreError, match=r"There is no space left for postgresql://.*: free some")
            with full, filling.open("ab", buffering=0) as file:
                while seq < 1000:
                    with suppress(OSError):
                        file.write(bytes(1_000_000))
                    assert await write(store, epoch, seq, [os.urandom(100_000)]) == "committed"
                    seq += 1
            filling.unlink()
            assert await write(store, epoch, seq, [b"1"]) == "committed"
            assert len(await bodies(store)) == seq + 1
        finally:
            await store.aclose()


class TestOutage:
    async def test_what_is_written_meanwhile_waits_until_it_is_back(
        self, server: OwnServer, store: PostgresStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        epoch = await begin(store)
        server.crash()
        writing = asyncio.create_task(write(store, epoch, 0, [b"1"]))
        reading = asyncio.create_task(known(store))
        await asyncio.sleep(0.2)
        assert not writing.done()
        assert not reading.done()
        await asyncio.to_thread(server.start)
        assert await writing in ("committed", "already")
        assert (await reading).run_id == "a"
        assert await bodies(store) == [b"1"]
        assert caplog.text.count("Runs in memory go on for 30 s and are written when it is back") == 1
        while "can be reached again" not in caplog.text:  # noqa: ASYNC110 - a thread says so
            await asyncio.sleep(0.01)

    async def test_the_driver_adds_nothing_to_the_log(
        self, server: OwnServer, store: PostgresStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        epochs = {run_id: await begin(store, run_id) for run_id in "abc"}
        server.crash()
        batch = [entry(store, epoch, 0, [b"1"], run_id) for run_id, epoch in epochs.items()]
        writing = asyncio.create_task(store.commit(batch))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.start)
        assert {verdict.outcome for verdict in await writing} == {"committed"}
        logging.getLogger("psycopg").warning("error ignored in a program that uses psycopg itself")
        told = [record.getMessage() for record in caplog.records if record.name == "psycopg"]
        assert told == ["error ignored in a program that uses psycopg itself"]

    async def test_one_that_lasts_too_long_is_an_error(
        self, server: OwnServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres_connection, "OUTAGE_SECONDS", 0.2)
        epoch = await begin(store)
        server.crash()
        with pytest.raises(StoreError, match=r"The store postgresql://.* cannot be reached: .* has lasted longer"):
            await write(store, epoch, 0)
        await asyncio.to_thread(server.start)
        assert await write(store, epoch, 0) == "committed"

    async def test_listings_fail_before_what_driven_runs_read_and_write(
        self, server: OwnServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres_connection, "READ_SECONDS", 0.5)
        epoch = await begin(store)
        server.crash()
        patient = [write(store, epoch, 0), store.unread({}), store.info("a"), *(store.load("a") for _ in range(6))]
        going_on = [asyncio.create_task(one) for one in patient]  # more than there are readers
        found = (store.list_runs, lambda: find_runs(store, RunQuery(text="x")), store.queues, store.workers)
        for read in found:
            with pytest.raises(StoreError, match=r"The store postgresql://.* cannot be reached: .*Check the address"):
                await read()
        assert not any(task.done() for task in going_on)
        await asyncio.to_thread(server.start)
        assert await asyncio.gather(*going_on)
        assert (await known(store)).run_id == "a"

    async def test_a_released_run_gets_its_answer_when_it_is_over(
        self, server: OwnServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres_connection, "READ_SECONDS", 0.1)
        run = Asks(timeout=None, store=store, idle_release=0.01).run(run_id="r")
        while not run.is_released:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await store.info("r")
        server.crash()
        run.ctx.send_event(HumanResponseEvent(response="yes"))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.start)
        assert await run == "yes"

    async def test_a_run_that_cannot_be_written_is_logged_as_stopped_here(
        self, server: OwnServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(postgres_connection, "OUTAGE_SECONDS", 0.2)
        handler = Steps(store, Counter()).run(run_id="alone", x=1)
        await handler.started()
        server.crash()
        while "stopped in this process: The store" not in caplog.text:
            handler = None
            gc.collect()
            await asyncio.sleep(0.05)
        assert "Traceback" not in caplog.text
        await asyncio.to_thread(server.start)

    async def test_runs_dropped_in_an_outage_are_ready_when_it_is_over_and_those_in_memory_stay(
        self, server: OwnServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres_connection, "OUTAGE_SECONDS", 0.2)
        flow = Paused(store)
        dropped, kept = flow.run(run_id="dropped", x=1), flow.run(run_id="kept", x=1)
        held = store._writer._held  # pyright: ignore[reportPrivateUsage]
        while len(flow.gates) < 2 or len(held.epochs()) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        server.crash()
        flow.gates["dropped"].set()
        with pytest.raises(StoreError, match="has lasted longer"):
            await dropped
        await asyncio.to_thread(server.start)
        back = time.monotonic()

        async def is_ready() -> bool:
            return (await known(store, "dropped")).status == "ready"

        await _eventually(is_ready)
        assert time.monotonic() - back < TTL / 2, "its lease of 15 s has not ended"
        assert (await known(store, "kept")).owner == store.owner
        assert [one.run_id for one in await store.claim_due(store.owner, TTL, 10)] == ["dropped"]
        flow.gates["kept"].set()
        assert await kept == "done"

    async def test_an_owner_that_is_back_renews_the_leases_of_its_runs_in_memory(
        self, server: OwnServer, store: PostgresStore
    ) -> None:
        store.hold("held", await begin(store, "held", ttl=300))
        await begin(store, "free", ttl=300)
        before = _leases(server)
        server.crash()
        await asyncio.to_thread(server.start)

        async def is_renewed() -> bool:
            return _leases(server)["held"] > before["held"]

        await _eventually(is_renewed)
        assert _leases(server)["free"] == before["free"]

    async def test_an_owner_comes_back_though_another_session_has_locked_one_of_its_runs(
        self, server: OwnServer, store: PostgresStore
    ) -> None:
        for run_id in ("free", "locked"):
            store.hold(run_id, await begin(store, run_id, ttl=300))
        before = _leases(server)
        with connected(server.address) as other, other.transaction():
            other.execute("SELECT FROM batonflow.runs WHERE run_id = 'locked' FOR UPDATE")
            ask = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            with connected(server.address) as killing:
                killing.execute(ask)

            async def is_renewed() -> bool:
                return _leases(server)["free"] > before["free"]

            await _eventually(is_renewed)

    async def test_a_run_that_waits_for_a_person_is_not_said_to_belong_to_another_process(
        self, server: OwnServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(postgres_connection, "OUTAGE_SECONDS", 0.5)
        flow = Paused(store, asks=True)
        run = flow.run(run_id="r", x=1)
        while not flow.gates:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        server.crash()
        flow.gates["r"].set()
        with pytest.raises(StoreError, match="has lasted longer"):
            await run
        await asyncio.sleep(0.1)  # it was leaving memory
        assert "could not leave memory" not in caplog.text
        await asyncio.to_thread(server.start)

    async def test_operations_of_an_outage_end_together(
        self, server: OwnServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seconds, times = 2.0, 5
        monkeypatch.setattr(postgres_connection, "OUTAGE_SECONDS", seconds)
        epoch = await begin(store)
        server.crash()
        begun = time.monotonic()
        for _ in range(times):
            with pytest.raises(StoreError, match="has lasted longer"):
                await write(store, epoch, 0)
        assert time.monotonic() - begun < times * seconds
        await asyncio.to_thread(server.start)

    async def test_a_restart_between_two_operations_is_not_an_outage(
        self, server: OwnServer, store: PostgresStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        epoch = await begin(store)
        server.crash()
        await asyncio.to_thread(server.start)
        assert await write(store, epoch, 0) == "committed"
        assert "cannot be reached" not in caplog.text

    async def test_runs_survive_crashes_of_the_database(self, server: OwnServer, store: PostgresStore) -> None:
        done: Counter[str] = Counter()
        flow = Steps(store, done)
        runs = [asyncio.create_task(flow.run_to_its_end(f"r{number}")) for number in range(10)]
        for _ in range(2):
            await asyncio.sleep(0.3)
            server.crash()
            await asyncio.to_thread(server.start)
        assert await asyncio.wait_for(asyncio.gather(*runs), 60) == ["done"] * 10
        assert set(done.values()) == {1}
        assert [info.status for info in await store.list_runs()] == ["completed"] * 10

    async def test_a_live_owner_keeps_its_runs_after_a_crash(self, server: OwnServer, store: PostgresStore) -> None:
        epoch = await begin(store)
        server.crash()
        await asyncio.to_thread(server.start)
        other = PostgresStore(server.address)
        assert isinstance(await other.claim("a", other.owner, TTL), Busy)
        assert await other.claim_due(other.owner, TTL, 10) == []
        assert await write(store, epoch, 0) in ("committed", "already")
        await other.aclose()

    async def test_an_owner_that_went_with_the_database_is_replaced_when_its_lease_ends(
        self, server: OwnServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gone = PostgresStore(server.address)
        await begin(gone, ttl=0.5)
        monkeypatch.setattr(Listener, "_opened", _never)  # of the owner that is gone, too
        server.crash()
        await asyncio.to_thread(server.start)
        monkeypatch.undo()
        gone._writer.listener._held.clear()  # pyright: ignore[reportPrivateUsage]
        await _eventually(lambda: _is_taken(store))
        await gone.aclose()


class Second(Event):
    pass


class Next(Event):
    number: int


class Steps(Workflow):
    """A workflow of twenty steps that are noted."""

    def __init__(self, store: RunStore, done: Counter[str]) -> None:
        super().__init__(store=store, timeout=None)
        self._done = done

    async def run_to_its_end(self, run_id: str) -> Any:
        return await self.run(run_id=run_id)

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Next:
        return Next(number=0)

    @step
    async def go_on(self, ctx: Context, ev: Next) -> Next | StopEvent:
        self._done[f"{ctx.run_id} {ev.number}"] += 1
        await asyncio.sleep(0.05)
        return Next(number=ev.number + 1) if ev.number < 20 else StopEvent(result="done")


class Asks(Workflow):
    """Waits for a person."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(HumanResponseEvent)).response)


class Paused(Workflow):
    """A workflow that goes on when the test opens its gate; then it may ask a person."""

    def __init__(self, store: RunStore, *, asks: bool = False) -> None:
        super().__init__(store=store, timeout=None, idle_release=0)
        self.gates: dict[str, asyncio.Event] = {}
        self._asks = asks

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Second:
        gate = self.gates[ctx.run_id] = asyncio.Event()
        await gate.wait()
        return Second()

    @step
    async def finish(self, ctx: Context, ev: Second) -> StopEvent:
        return StopEvent(result=await ctx.ask("Go on?", str) if self._asks else "done")


def _leases(server: OwnServer) -> dict[str, float]:
    with connected(server.address) as connection:
        return dict(connection.execute("SELECT run_id, lease_until FROM batonflow.runs").fetchall())


def _never(_: Listener) -> Any:
    raise OSError("gone")


async def _is_taken(store: PostgresStore) -> bool:
    return isinstance(await store.claim("a", store.owner, TTL), Claimed)


async def _eventually(condition: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < end, "it took too long"
        await asyncio.sleep(0.02)


class TestWorkers:
    async def test_one_that_was_killed_before_a_restart_of_the_database_counts_as_ended_after_a_minute(
        self, server: OwnServer, store: PostgresStore
    ) -> None:
        gone = PostgresStore(server.address)
        for kept, name in ((gone, "gone"), (store, "blocked")):
            await kept.sign(WorkerSign(name, kept.owner, "web1", 7, ["Flow"], None, 20))
        epoch = await begin(gone, ttl=300)
        await gone.aclose()
        server.crash()
        await asyncio.to_thread(server.start)
        clock = DatabaseClock(server.address, "batonflow")
        try:
            assert [one.is_alive for one in await store.workers()] == [True, True], "it is not known yet"
            clock.put(wall=ENDED_SECONDS - 5)
            assert [one.is_alive for one in await store.workers()] == [True, True]
            clock.put(wall=ENDED_SECONDS + 5)
            assert [one.state for one in await store.workers() if one.sign.name == "gone"] == ["ended"]
        finally:
            clock.close()
        assert (await known(store)).owner == gone.owner, "its runs are not touched"
        assert (await known(store)).epoch == epoch

    async def test_one_that_does_not_sign_and_holds_its_lock_has_not_ended(
        self, server: OwnServer, store: PostgresStore
    ) -> None:
        await store.sign(WorkerSign("blocked", store.owner, "web1", 7, ["Flow"], None, 20))
        clock = DatabaseClock(server.address, "batonflow")
        try:
            clock.put(wall=ENDED_SECONDS + 5)
            assert [one.is_alive for one in await store.workers()] == [True]
        finally:
            clock.close()


class TestSessions:
    async def test_the_lock_of_an_owner_is_taken_again_when_its_session_was_ended(self, others: Stores) -> None:
        store, other = others.open(), others.open()
        await begin(store)
        with connected(others.address) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND "
                f" ((classid::bigint << 32) | objid::bigint) = {others.schema}.lock_of(%s)".encode(),
                (store.owner,),
            ).fetchall()
        assert ended == [(True,)]

        async def is_alive() -> bool:
            return (await known(other)).owner_alive

        await _eventually(is_alive)
        assert isinstance(await other.claim("a", other.owner, TTL), Busy)

    async def test_an_ended_session_of_the_writer_is_replaced(self, others: Stores) -> None:
        store = others.open()
        epoch = await begin(store)
        with connected(others.address) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'batonflow' AND query LIKE %s",
                (f"%{others.schema}%",),
            )
        assert await write(store, epoch, 0) == "committed"

    async def test_two_stores_cannot_have_one_owner(self, others: Stores) -> None:
        store, other = others.open(), others.open()
        await begin(store)
        with pytest.raises(StoreError, match=f"Owner '{store.owner}' is in use by another process or store"):
            await other.claim("a", store.owner, TTL)


class TestTables:
    async def test_newer_tables_are_refused(self, others: Stores) -> None:
        await others.open().info("a")
        with connected(others.address) as connection:
            connection.execute(f"UPDATE {others.schema}.facts SET version = 99".encode())
        with pytest.raises(StoreError, match=r"postgresql://.* has schema version 99, .* knows those up to \d+"):
            await others.open().info("a")

    async def test_a_user_without_rights_is_told(self, others: Stores) -> None:
        with connected(others.address) as connection:
            connection.execute("DROP ROLE IF EXISTS batonflow_guest")
            connection.execute("CREATE ROLE batonflow_guest LOGIN PASSWORD 'secret'")
        address = others.address.replace("://postgres:@", "://batonflow_guest:secret@")
        if address == others.address:
            pytest.skip("the address of the server has another form")
        store = PostgresStore(address, others.schema)
        with pytest.raises(
            StoreError, match=r"refuses its user: permission denied .* GRANT CREATE ON DATABASE"
        ) as said:
            await store.info("a")
        assert "secret" not in str(said.value)
        await store.aclose()

    async def test_many_stores_make_them_once(self, others: Stores) -> None:
        stores = [others.open() for _ in range(8)]
        assert await asyncio.gather(*(store.info("a") for store in stores)) == [None] * 8


class TestPoolers:
    async def test_one_that_shares_sessions_is_refused(self, others: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
        # Two clients of a pooler in transaction mode get one session, and see another number of its process.
        connect = Database._connect  # pyright: ignore[reportPrivateUsage]
        shared: list[Any] = []

        class Shared:
            """A client of the pooler."""

            class info:
                backend_pid = -1

            def __init__(self, real: Any) -> None:
                self._real = real

            def __getattr__(self, name: str) -> Any:
                return getattr(self._real, name)

            def __enter__(self) -> "Shared":  # noqa: PYI034
                return self

            def __exit__(self, *_: object) -> None:
                return None

        def pooled(self: Database, dsn: str, **options: Any) -> Any:
            if not shared:
                shared.append(connect(self, dsn, **options))
            return Shared(shared[0])

        database = Database(others.address, others.schema, "power")
        monkeypatch.setattr(Database, "_connect", pooled)
        with pytest.raises(StoreError, match=r"a pooler in transaction mode, .* Give the store listen_dsn="):
            database.connect_to_listen()
        monkeypatch.undo()
        database.connect_to_listen().close()


class TestRoundTrips:
    async def test_a_run_of_three_steps_takes_two_and_a_notification(
        self, others: Stores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = others.open()
        await store.list_runs()
        flow = Three(store=store)
        await flow.run(run_id="first", x=1)
        await asyncio.sleep(0.1)  # until its notifications are sent
        trips: Counter[str] = Counter()
        session: Any = postgres_threads._Session  # pyright: ignore[reportPrivateUsage]
        for kind, name in ((session, "_ask"), (Listener, "_send")):
            monkeypatch.setattr(kind, name, _counted(getattr(kind, name), trips, name))
        await flow.run(run_id="second", x=1)
        await asyncio.sleep(0.1)
        assert trips["_ask"] == 2
        assert trips["_send"] <= 1

    async def test_one_store_serves_several_event_loops(self, others: Stores) -> None:
        store = others.open()
        results: list[Any] = []

        def run(number: int) -> None:
            results.append(asyncio.run(_run_one(store, f"r{number}")))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert results == ["done"] * 4


class TestProcesses:
    async def test_a_commit_need_not_wait_for_the_disk_of_the_server(self, others: Stores) -> None:
        stores = [
            PostgresStore(others.address, others.schema, durability="process"),
            PostgresStore(others.address, others.schema, listen_dsn=others.address),
        ]
        others.opened += stores
        epoch = await begin(stores[0])
        assert await write(stores[0], epoch, 0, [b"1"]) == "committed"
        assert await bodies(stores[1]) == [b"1"]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    async def test_the_child_of_a_fork_is_another_owner_with_connections_of_its_own(self, others: Stores) -> None:
        store = others.open()
        epoch = await begin(store)
        owner = store.owner
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = asyncio.Runner().run(_as_a_child(store, owner))
            finally:
                os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert await write(store, epoch, 0) == "committed"

    async def test_the_end_of_a_process_is_noticed_at_once(self, others: Stores) -> None:
        other = others.open()
        await other.list_runs()
        program = (
            "import asyncio, sys\n"
            "from batonflow.durable.stores.postgres import PostgresStore\n"
            "from batonflow.durable.store_protocol import NewRun\n"
            "async def work():\n"
            "    store = PostgresStore(*sys.argv[1:])\n"
            "    await store.create(NewRun('a', 'Flow', 'd'), store.owner, 60.0)\n"
            "    print('at work', flush=True)\n"
            "    await asyncio.sleep(60)\n"
            "asyncio.run(work())\n"
        )
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", program, others.address, others.schema], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "at work\n"
        assert isinstance(await other.claim("a", other.owner, TTL), Busy)
        process.kill()
        killed = time.monotonic()
        await asyncio.to_thread(process.wait)
        process.stdout.close()

        async def is_taken() -> bool:
            return isinstance(await other.claim("a", other.owner, TTL), Claimed)

        await _eventually(is_taken)
        assert time.monotonic() - killed < 30, "the lease of a minute has not ended"


async def _as_a_child(store: RunStore, owner: str) -> int:
    if store.owner == owner:
        return 2
    return 0 if isinstance(await store.claim("a", store.owner, TTL), Busy) else 3


class Third(Event):
    pass


class Three(Workflow):
    @step
    async def one(self, ev: StartEvent) -> Second:
        return Second()

    @step
    async def two(self, ev: Second) -> Third:
        return Third()

    @step
    async def three(self, ev: Third) -> StopEvent:
        return StopEvent(result="done")


async def _run_one(store: RunStore, run_id: str) -> Any:
    return await Three(store=store).run(run_id=run_id)


def _counted(call: Any, counts: Counter[str], name: str) -> Any:
    def counted(*arguments: Any) -> Any:
        counts[name] += 1
        return call(*arguments)

    return counted
