"""Streams and events over HTTP."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from batonflow.durable.store_protocol import Loaded, RunInfo, StoredCommit
from batonflow.durable.stores.memory import MemoryStore
from batonflow.server import WorkflowServer, app
from batonflow.workflow_core import Context, Event, SQLiteStore, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import StoreError
from tests.durable.runs import begin, write
from tests.server.conftest import Serving, eventually
from tests.server.flows import Ask, Fail, Greet, Plain, Progress, Slow, Steered, Unseen


def types(events: list[dict]) -> list[str]:
    return [event["type"] for event in events]


async def test_a_stream_tells_what_steps_wrote_and_ends_with_the_stop_event(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        run_id = await running.start("greet", name="Ann", times=2)
        live = await running.events(run_id)
        await running.over(run_id)
        stored = await running.events(run_id)
    assert types(live) == types(stored) == ["Progress", "Progress", "StopEvent"]
    first = live[0]
    assert first["value"] == {"number": 0}
    assert first["qualified_name"] == f"{Progress.__module__}.Progress"
    assert (first["types"], first["step"], first["path"], first["cause"]) == (None, "greet", "", 1)
    assert abs(first["ts"] - time.time()) < 60
    assert [int(event["id"]) for event in live] == [event["seq"] for event in live]
    for one, other in zip(live[:-1], stored[:-1], strict=True):
        assert {**one, "commit": 2} == other
    assert stored[-1]["seq"] <= live[-1]["seq"]


async def test_a_reader_goes_on_behind_its_place_and_last_event_id_counts_most(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        run_id = await running.start("greet", name="Ann", times=5)
        whole = await running.events(run_id)
        for after in range(len(whole) - 1):
            place = whole[after]["seq"]
            assert types(await running.events(run_id, after_sequence=place)) == types(whole[after + 1 :])
        running.http.headers["Last-Event-ID"] = str(whole[2]["seq"])
        assert types(await running.events(run_id, after_sequence=-1)) == types(whole[3:])
        del running.http.headers["Last-Event-ID"]
        answer = await running.http.get(f"/events/{run_id}?after_sequence={whole[-1]['seq']}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert (await running.http.get(f"/events/{run_id}?after_sequence=now")).status_code == 204
        assert (await running.http.get("/events/nobody")).status_code == 404
        for wrong in ("x", "1.5", "99999999999999999999", ""):
            assert (await running.http.get(f"/events/{run_id}?after_sequence={wrong}")).status_code == 400


async def test_lines_of_json_carry_the_place_too(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        run_id = await running.start("greet", name="Ann", times=2)
        answer = await running.http.get(f"/events/{run_id}?sse=false&include_qualified_name=false")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert types(lines) == ["Progress", "Progress", "StopEvent"]
    assert all(isinstance(line["seq"], int) and line["qualified_name"] is None for line in lines)


async def test_what_the_engine_says_of_itself_comes_only_when_asked_for(serving: Serving) -> None:
    async with serving(WorkflowServer(), slow=Slow(timeout=None)) as running:
        run_id = await running.start("slow", seconds=0.2)
        told, internal = await asyncio.gather(running.events(run_id), running.events(run_id, include_internal="true"))
    assert types(told) == ["Unseen", "StopEvent"]
    changed = [event["value"] for event in internal if event["type"] == "StepStateChanged"]
    assert [(value["name"], value["step_state"]) for value in changed] == [("wait", "running"), ("wait", "not_running")]


async def test_now_leaves_out_what_was_before(serving: Serving) -> None:
    async with serving(WorkflowServer(), slow=Slow(timeout=None)) as running:
        run_id = await running.start("slow", seconds=0.3)
        await anext(running.reading(run_id))
        assert types(await running.events(run_id, after_sequence="now")) == ["StopEvent"]


async def test_a_finished_run_is_read_whole_while_somebody_here_asks_for_its_result(serving: Serving) -> None:
    class Gated(MemoryStore):
        gate = asyncio.Event()

        async def load(self, run_id: str, at: int | None = None) -> Loaded | None:
            await self.gate.wait()
            return await super().load(run_id, at)

    store = Gated()
    greet = Greet(store=store, workflow_name="greet")
    await greet.run(name="Ann", run_id="r")
    async with serving(WorkflowServer(store=store), greet=greet) as running:
        again = greet.resume("r")
        reading = asyncio.create_task(running.events("r"))
        await asyncio.sleep(0.1)  # it has found the run that is on its way
        assert not reading.done()
        store.gate.set()
        assert types(await reading) == ["Progress", "StopEvent"]
        assert await again == "Hello, Ann!"


async def test_an_event_reaches_its_readers_before_the_next_one_is_written(serving: Serving) -> None:
    taken = asyncio.Event()

    class Ticks(Workflow):
        @step
        async def tick(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for _ in range(20):
                ctx.write_event_to_stream(Unseen(text="tick"))
                await taken.wait()
                taken.clear()
            return StopEvent()

    async with serving(WorkflowServer(), ticks=Ticks(timeout=None)) as running:
        run_id = await running.start("ticks")
        seen: list[str] = []
        async with asyncio.timeout(20):
            async for event in running.reading(run_id):
                seen.append(event["type"])
                taken.set()
    assert seen == [*20 * ["Unseen"], "StopEvent"]


async def test_a_sign_of_life_comes_while_nothing_happens(serving: Serving) -> None:
    async with serving(WorkflowServer(sse_heartbeat_interval=0.05), ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        async with running.http.stream("GET", f"/events/{run_id}") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.aiter_lines()
            seen = [await anext(lines) for _ in range(8)]
    assert ": heartbeat" in seen


async def test_many_readers_of_one_run_get_the_same(serving: Serving) -> None:
    async with serving(WorkflowServer(), slow=Slow(timeout=None)) as running:
        run_id = await running.start("slow", seconds=2.0)
        read = await asyncio.gather(*(running.events(run_id) for _ in range(30)))
    assert all(events == read[0] for events in read)
    assert types(read[0]) == ["Unseen", "StopEvent"]


async def test_an_event_goes_to_the_run_or_to_one_step(serving: Serving) -> None:
    async with serving(WorkflowServer(), steered=Steered(timeout=None)) as running:
        nudge = {"type": "Nudge", "value": {"text": "on"}}
        for event in (nudge, json.dumps(nudge), {"type": "Nudge", "data": {"text": "on"}}):
            run_id = await running.start("steered")
            assert await running.post(f"/events/{run_id}", {"event": event}) == {"status": "sent"}
            assert (await running.over(run_id))["result"]["value"] == {"result": "left on"}
        run_id = await running.start("steered")
        to_one = {"event": {"type": "Nudge", "value": {"text": "right"}}, "step": "right"}
        assert await running.post(f"/events/{run_id}", to_one) == {"status": "sent"}
        assert (await running.over(run_id))["result"]["value"] == {"result": "right right"}


async def test_an_event_that_cannot_be_is_refused(serving: Serving) -> None:
    async with serving(WorkflowServer(), steered=Steered(timeout=None)) as running:
        run_id = await running.start("steered")
        nudge = {"type": "Nudge", "value": {"text": "on"}}
        for body, said in (
            ({}, "event"),
            ({"event": {}}, "type"),
            ({"event": {"value": {}}}, "type"),
            ({"event": "nonsense"}, "JSON"),
            ({"event": {"type": "Nudge", "value": {}}}, "text"),
            ({"event": {"type": "Progress", "value": {"number": 1}}}, "declares no event Progress"),
            ({"event": {"qualified_name": "os.system", "value": {}}}, "declares no event os.system"),
            ({"event": nudge, "step": "nowhere"}, "nowhere"),
            ({"event": nudge, "step": "begin"}, "does not accept"),
            ({"event": nudge, "step": 5}, "step"),
        ):
            answer = await running.http.post(f"/events/{run_id}", json=body)
            assert answer.status_code == 400, body
            assert said in answer.json()["detail"], body
        assert (await running.http.post("/events/nobody", json={"event": nudge})).status_code == 404
        await running.post(f"/events/{run_id}", {"event": nudge})
        await running.over(run_id)
        assert (await running.http.post(f"/events/{run_id}", json={"event": nudge})).status_code == 409


async def test_only_declared_classes_are_built_from_payloads(serving: Serving) -> None:
    built: list[str] = []

    class Undeclared(Event):
        def model_post_init(self, context: object, /) -> None:
            built.append("undeclared")

    server = WorkflowServer()
    server.add_workflow("declared", Steered(timeout=None), additional_events=[Undeclared])
    async with serving(server, steered=Steered(timeout=None)) as running:
        name = f"{Undeclared.__module__}.{Undeclared.__qualname__}"
        for event in ({"type": "Undeclared", "value": {}}, {"qualified_name": name, "value": {}}):
            run_id = await running.start("steered")
            assert (await running.http.post(f"/events/{run_id}", json={"event": event})).status_code == 400
            assert built == []
        run_id = await running.start("declared")
        await running.post(f"/events/{run_id}", {"event": {"type": "Undeclared", "value": {}}})
    assert built


async def test_events_for_which_a_step_waits_need_no_declaration(serving: Serving) -> None:
    class Waits(Workflow):
        @step
        async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(await ctx.wait_for_event(Progress, timeout=None)).number)

    async with serving(WorkflowServer(), waits=Waits(timeout=None)) as running:
        run_id = await running.start("waits")
        await running.until(run_id, lambda found: found["waiting"])
        await running.post(f"/events/{run_id}", {"event": {"type": "Progress", "value": {"number": 3}}})
        assert (await running.over(run_id))["result"]["value"] == {"result": 3}


async def test_a_reader_stays_while_a_run_leaves_memory_and_comes_back(serving: Serving) -> None:
    async with serving(WorkflowServer(idle_timeout=0.05), ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        reading = asyncio.create_task(running.events(run_id))
        await running.until(run_id, lambda found: found["waiting"] and not found["live"])
        await running.post(f"/events/{run_id}", {"event": {"type": "Answered", "value": {"text": "Ann"}}})
        assert types(await reading) == ["Asked", "StopEvent"]


async def test_a_run_out_of_memory_leaves_nothing_there_when_nobody_reads_it(serving: Serving) -> None:
    async with serving(WorkflowServer(idle_timeout=0.02), ask=Ask(timeout=None)) as running:
        ids = [await running.start("ask") for _ in range(3)]
        reading = asyncio.create_task(running.events(ids[0]))
        workflow = running.server.runs.served["ask"].workflow

        async def only_one() -> bool:
            return len(workflow.live_handlers()) == 1

        await asyncio.wait_for(eventually(only_one), 30)
        for run_id in ids:
            await running.post(f"/events/{run_id}", {"event": {"type": "Answered", "value": {"text": run_id}}})
            assert (await running.over(run_id))["result"]["value"] == {"result": run_id}
            events = await running.events(run_id)
            assert [event["type"] for event in events] == ["Asked", "StopEvent"]
        assert types(await reading) == ["Asked", "StopEvent"]


async def test_a_run_of_another_process_is_read_from_the_store(serving: Serving, tmp_path: Path) -> None:
    read = asyncio.Event()

    class Steps(Workflow):
        @step
        async def one(self, ctx: Context, ev: StartEvent) -> Progress:
            ctx.write_event_to_stream(Unseen(text="one"))
            return Progress(number=1)

        @step
        async def two(self, ctx: Context, ev: Progress) -> StopEvent:
            ctx.write_event_to_stream(Unseen(text="two"))
            await read.wait()
            return StopEvent(result="far")

    # A second store object is as another process: an owner of its own.
    elsewhere = SQLiteStore(tmp_path / "runs.db")
    async with serving(WorkflowServer(store=SQLiteStore(tmp_path / "runs.db")), steps=Steps()) as running:
        handler = Steps(store=elsewhere).run(run_id="far")
        await handler.started()
        told = await running.get("/handlers/far")
        assert (told["owner"], told["live"], told["workflow_name"]) == ("other", False, "steps")
        events = []
        async for event in running.reading("far"):
            events.append(event)
            read.set()
        assert types(events) == ["Unseen", "Unseen", "StopEvent"]
        assert [event["commit"] for event in events] == sorted(event["commit"] for event in events)
        assert await handler == "far"
    await elsewhere.aclose()


class Left(Event):
    pass


class Right(Event):
    pass


class Both(Workflow):
    """Two steps at once: the left one streams first and lasts longer; the right one streams something in between."""

    def __init__(self, gates: dict[str, asyncio.Event], **options: object) -> None:
        super().__init__(**options)
        self._gates = gates

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Left | Right | None:
        ctx.send_event(Left())
        ctx.send_event(Right())

    @step
    async def left(self, ctx: Context, ev: Left) -> Progress:
        ctx.write_event_to_stream(Unseen(text="left"))
        await self._gates["left"].wait()
        ctx.write_event_to_stream(Unseen(text="left again"))
        return Progress(number=1)

    @step
    async def right(self, ctx: Context, ev: Right) -> Progress:
        ctx.write_event_to_stream(Unseen(text="right"))
        await self._gates["right"].wait()
        return Progress(number=2)

    @step
    async def end(self, ctx: Context, ev: Progress) -> StopEvent | None:
        if ctx.collect_events(ev, [Progress, Progress]):
            await self._gates["end"].wait()
            return StopEvent()
        return None


def texts(events: list[dict]) -> list[str]:
    return [event["value"].get("text", event["type"]) for event in events]


async def test_events_of_steps_at_once_come_in_order_from_another_process_whenever_reading_begins(
    serving: Serving, tmp_path: Path
) -> None:
    elsewhere = SQLiteStore(tmp_path / "runs.db")
    gates = {name: asyncio.Event() for name in ("left", "right", "end")}
    async with serving(WorkflowServer(store=SQLiteStore(tmp_path / "runs.db")), both=Both(gates)) as running:
        handler = Both(gates, store=elsewhere, timeout=None).run(run_id="far")
        await handler.started()

        async def has(text: str) -> bool:
            return text in (await running.http.get("/handlers/far/trace")).text

        reading = [asyncio.create_task(running.events("far"))]
        gates["right"].set()  # its event stands behind the first of the left one, and is stored before it
        await eventually(lambda: has('"text":"right"'))
        reading.append(asyncio.create_task(running.events("far")))
        gates["left"].set()
        await eventually(lambda: has("left again"))
        reading.append(asyncio.create_task(running.events("far")))
        first = await anext(running.reading("far"))
        cut = asyncio.create_task(running.events("far", after_sequence=first["id"]))
        gates["end"].set()
        await handler
        reading.append(asyncio.create_task(running.events("far")))
        read = [[event["id"] for event in events] for events in await asyncio.gather(*reading)]
        whole = await running.events("far")
        assert texts(whole) == ["left", "right", "left again", "StopEvent"]
        assert read == 4 * [[event["id"] for event in whole]]
        assert texts(await cut) == texts(whole)[1:]
    await elsewhere.aclose()


async def test_an_event_of_another_process_waits_for_no_step_that_has_streamed_nothing(
    serving: Serving, tmp_path: Path
) -> None:
    class Quiet(Both):
        @step
        async def left(self, ctx: Context, ev: Left) -> Progress:
            await self._gates["left"].wait()
            return Progress(number=1)

    elsewhere = SQLiteStore(tmp_path / "runs.db")
    gates = {name: asyncio.Event() for name in ("left", "right", "end")}
    async with serving(WorkflowServer(store=SQLiteStore(tmp_path / "runs.db")), quiet=Quiet(gates)) as running:
        handler = Quiet(gates, store=elsewhere, timeout=None).run(run_id="far")
        await handler.started()
        gates["right"].set()
        assert (await anext(running.reading("far")))["value"] == {"text": "right"}
        await handler.cancel_run()
    await elsewhere.aclose()


async def test_a_run_that_another_process_waits_in_is_answered_and_cancelled_from_here(
    serving: Serving, tmp_path: Path
) -> None:
    elsewhere = SQLiteStore(tmp_path / "runs.db")
    async with serving(WorkflowServer(store=SQLiteStore(tmp_path / "runs.db")), ask=Ask()) as running:
        first, second = (Ask(store=elsewhere, timeout=None).run(run_id=name) for name in ("first", "second"))
        for handler in (first, second):
            await anext(handler.inputs())
            await handler.started()

        async def asked_first() -> list[dict]:
            return (await running.get("/handlers/first/pending"))["pending"]

        asked = await eventually(asked_first)
        await running.post(f"/handlers/first/pending/{asked[0]['id']}", {"response": {"text": "Ann"}})
        assert await first == "Ann"
        assert await running.post("/handlers/second/cancel") == {"status": "cancelled"}
        assert (await running.over("second"))["status"] == "cancelled"
    await elsewhere.aclose()


async def test_streams_end_when_the_server_stops_and_nothing_says_that_the_run_is_over(
    serving: Serving, tmp_path: Path
) -> None:
    store = tmp_path / "runs.db"
    async with serving(WorkflowServer(store=store), ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        await running.until(run_id, lambda found: found["waiting"])
        reading = running.reading(run_id)
        told = [(await anext(reading))["type"]]
        await running.server.stop()
        assert told + [event["type"] async for event in reading] == ["Asked"]
        assert (await running.http.get("/handlers")).status_code == 503
        assert (await running.http.get("/health")).status_code == 503
    async with serving(WorkflowServer(store=store), ask=Ask(timeout=None)) as running:
        assert (await running.get(f"/handlers/{run_id}"))["status"] == "running"
        reading = running.reading(run_id)
        told = [(await anext(reading))["type"]]
        await running.post(f"/events/{run_id}", {"event": {"type": "Answered", "value": {"text": "Ann"}}})
        told += [event["type"] async for event in reading]
        assert (told[0], told[-1]) == ("Asked", "StopEvent")
        assert told.count("Asked") == 2  # it is open when the run is taken up, and asked again there


async def test_a_store_that_fails_is_logged_once_and_again_after_it_was_back(
    serving: Serving, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(MemoryStore):
        reason = ""

        @override
        async def info(self, run_id: str) -> RunInfo | None:
            if self.reason:
                raise StoreError(self.reason)
            return await super().info(run_id)

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "a store failed" in record.getMessage()]

    monkeypatch.setattr(app, "SECONDS_WITHOUT_FAILURES", 0.5)
    store = Away()
    async with serving(WorkflowServer(store=store), plain=Plain()) as running:
        run_id = "unknown"
        for store.reason in ("cannot be reached", "is starting") * 5:
            assert (await running.http.get(f"/handlers/{run_id}")).status_code == 503
        assert told() == ["a store failed: cannot be reached", "a store failed: is starting"]
        store.reason = ""
        assert (await running.http.get(f"/handlers/{run_id}")).status_code == 404
        await asyncio.sleep(0.6)
        store.reason = "is starting"
        assert (await running.http.get(f"/handlers/{run_id}")).status_code == 503
    assert told()[2:] == ["a store failed: is starting"]


async def test_a_run_that_fails_is_logged_once(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(WorkflowServer(), fail=Fail()) as running:
        run_id = await running.start("fail")
        await asyncio.gather(*(running.http.get(f"/events/{run_id}") for _ in range(3)))
        assert (await running.over(run_id))["status"] == "failed"
    told = [record.getMessage() for record in caplog.records if run_id in record.getMessage()]
    assert told == [f"{Fail.__module__}.Fail (run {run_id}) failed"]


class Piece(Event):
    text: str

    @classmethod
    def joined(cls, pieces: Sequence["Piece"]) -> "Piece":
        return cls(text="".join(piece.text for piece in pieces))

    def sizes(self) -> tuple[int]:
        return (len(self.text),)

    def without(self, text: int) -> "Piece":
        return Piece(text=self.text[text:])


async def test_pieces_that_are_stored_as_one_are_told_from_where_a_reader_left_off(serving: Serving) -> None:
    read = asyncio.Event()

    class Tells(Workflow):
        @step
        async def tell(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for number in range(6):
                ctx.write_event_to_stream(Piece(text=f"<{number}>"))
                await read.wait()
            return StopEvent()

    async with serving(WorkflowServer(), tells=Tells(timeout=None)) as running:
        run_id = await running.start("tells")
        live = []
        async for event in running.reading(run_id):
            live += [event] if event["type"] == "Piece" else []
            read.set()
        await running.over(run_id)
        assert [event["value"]["text"] for event in live] == ["<0>", "<1>", "<2>", "<3>", "<4>", "<5>"]
        for had in range(6):
            after = live[had]["seq"]
            rest = await running.events(run_id, after_sequence=after)
            told = "".join(event["value"]["text"] for event in rest if event["type"] == "Piece")
            assert told == "".join(event["value"]["text"] for event in live[had + 1 :])
        [whole] = [event for event in await running.events(run_id) if event["type"] == "Piece"]
        assert whole["seq"] == live[-1]["seq"]


async def test_an_event_that_cannot_be_written_hides_no_other(serving: Serving) -> None:
    class Garbled(Workflow):
        @step
        async def stream(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for text in ("before", "\ud800", "behind"):
                ctx.write_event_to_stream(Unseen(text=text))
            await asyncio.sleep(3600)
            return StopEvent()

    async with serving(WorkflowServer(), garbled=Garbled(store_streamed=False, timeout=None)) as running:
        run_id = await running.start("garbled")
        reading = running.reading(run_id)
        before, garbled, behind = [await anext(reading) for _ in range(3)]
    assert (before["value"], behind["value"]) == ({"text": "before"}, {"text": "behind"})
    assert garbled["type"] == "Unseen"
    assert garbled["seq"] == before["seq"] + 1
    assert garbled["value"] == {"text": "\\ud800"}


async def test_asking_for_the_head_of_a_stream_reads_nothing(serving: Serving) -> None:
    async with serving(WorkflowServer(), ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        answer = await asyncio.wait_for(running.http.head(f"/events/{run_id}"), 30)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"].startswith("text/event-stream")
        # The connection is free again at once: nobody reads on it.
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        for path in (f"/events/{run_id}", "/health"):
            writer.write(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        heads = [await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30) for _ in range(2)]
        writer.close()
    assert [head.split()[1] for head in heads] == [b"200", b"200"]


@pytest.mark.parametrize("value", [float("nan"), b"\xff\xfe", object(), {1, 2}])
async def test_values_that_json_has_no_word_for_do_not_break_a_stream(serving: Serving, value: object) -> None:
    class Odd(Workflow):
        @step
        async def stream(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Unseen(text="first", odd=value))
            await asyncio.sleep(3600)
            return StopEvent()

    server = WorkflowServer()
    server.add_workflow("odd", Odd(store_streamed=False, timeout=None))
    async with serving(server) as running:
        run_id = await running.start("odd")
        event = await anext(running.reading(run_id))
    assert event["type"] == "Unseen"
    assert event["value"]["text"] == "first"


# --- long stored streams ----------------------------------------------------------------------------------------------


class Counted(SQLiteStore):
    """Counts what is read of records."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.commits_read = 0

    async def read(self, run_id: str, after: int = 0, limit: int = 1000) -> Sequence[StoredCommit]:
        commits = await super().read(run_id, after, limit)
        self.commits_read += len(commits)
        return commits


class Leg(Event):
    number: int


class Journey(Workflow):
    """As many commits as it has legs, with two events each."""

    @step
    async def begin(self, ev: StartEvent) -> Leg:
        return Leg(number=ev.get("legs"))

    @step
    async def go(self, ctx: Context, ev: Leg) -> Leg | StopEvent:
        ctx.write_event_to_stream(Progress(number=2 * ev.number))
        ctx.write_event_to_stream(Progress(number=2 * ev.number - 1))
        await asyncio.sleep(0)
        return Leg(number=ev.number - 1) if ev.number > 1 else StopEvent()


@pytest.fixture
async def journey(tmp_path: Path) -> Counted:
    """A store with a run of many commits that is over, "far"."""
    store = Counted(tmp_path / "runs.db")
    await Journey(store=store, timeout=None).run(run_id="far", legs=600)
    return store


@pytest.mark.parametrize("after", [-1, 0, 7, 599, 1199, 1200])
async def test_a_long_stored_stream_is_read_whole_and_in_order(serving: Serving, journey: Counted, after: int) -> None:
    async with serving(WorkflowServer(store=journey), journey=Journey()) as running:
        whole = await running.events("far")
        assert [one["value"].get("number") for one in whole] == [*range(1200, 0, -1), None]
        if after < 1200:
            place = whole[after]["seq"] if after >= 0 else -1
            assert await running.events("far", after_sequence=place) == whole[after + 1 :]
        over = await running.http.get(f"/events/far?after_sequence={whole[-1]['seq']}")
        assert over.status_code == 204


async def test_readers_that_leave_read_no_more_than_their_first_page(serving: Serving, journey: Counted) -> None:
    async with serving(WorkflowServer(store=journey), journey=Journey()) as running:
        for _ in range(20):
            async with running.http.stream("GET", "/events/far") as answer:
                await anext(answer.aiter_lines())
        assert journey.commits_read < 600  # some pages, once for all of them


async def test_readers_of_one_run_at_a_time_share_its_pages(serving: Serving, journey: Counted) -> None:
    async with serving(WorkflowServer(store=journey), journey=Journey()) as running:
        streams = await asyncio.gather(*(running.events("far") for _ in range(10)))
        assert all(one == streams[0] for one in streams)
        assert len(streams[0]) == 1201
        assert journey.commits_read <= 2 * 603


async def test_whether_a_stream_has_an_end_behind_a_place_is_known_without_reading_it(
    serving: Serving, journey: Counted
) -> None:
    async with serving(WorkflowServer(store=journey), journey=Journey()) as running:
        last = (await running.get("/handlers/far"))["result"]["seq"]
        assert (await running.http.get(f"/events/far?after_sequence={last}")).status_code == 204
        assert journey.commits_read == 0


async def test_a_stream_is_over_also_when_the_result_does_not_tell_its_last_place(serving: Serving) -> None:
    store = MemoryStore()
    event = ["batonflow.workflow_core.events.StopEvent", {"result": 1}]
    for run_id, ending in (
        ("told", [{"kind": "ended", "id": 1, "path": "", "event": event, "seq": 3}]),
        ("untold", []),
    ):
        body = json.dumps({"t": 1.0, "e": 0.0, "r": ending}).encode()
        result = json.dumps({"event": event}).encode()
        await write(store, await begin(store, run_id), 0, [body], run_id, status="completed", result=result)
    async with serving(WorkflowServer(store=store)) as running:
        assert [one["seq"] for one in await running.events("told", after_sequence=2)] == [3]
        assert (await running.http.get("/events/told?after_sequence=3")).status_code == 204
        assert (await running.http.get("/events/untold")).status_code == 204


async def test_a_run_of_an_id_that_was_used_before_has_a_stream_of_its_own(serving: Serving) -> None:
    async with serving(WorkflowServer(), journey=Journey()) as running:
        for legs in (2, 3):
            await running.post("/workflows/journey/run", {"start_event": {"legs": legs}, "handler_id": "same"})
            numbers = [one["value"].get("number") for one in await running.events("same")]
            assert numbers == [*range(2 * legs, 0, -1), None]
            await running.post("/handlers/same/cancel?purge=true")
