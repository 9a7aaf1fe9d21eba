"""Starting runs over HTTP, and how they are told."""

import asyncio
import json
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, Literal

import pytest
from pydantic import field_validator

from batonflow.agents import FunctionAgent
from batonflow.durable.store_protocol import Appended, Ended, NewRun, RunStore, StoredCommit
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.llms import Price, ScriptedLLM
from batonflow.server import WorkflowServer, routes_runs, spent
from batonflow.server.client import WorkflowClient
from batonflow.workflow_core import Context, Event, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from tests.durable.runs import begin, write
from tests.server.conftest import Running, Serving, eventually
from tests.server.flows import Answered, Ask, Asked, Begin, Fail, Greet, Plain, Slow


@pytest.mark.parametrize(
    "body",
    [
        {"start_event": {"name": "Ann"}},
        {"start_event": {"type": "Begin", "value": {"name": "Ann"}}},
        {"start_event": {"type": "StartEvent", "value": {"name": "Ann"}}},
        {"start_event": {"qualified_name": f"{Begin.__module__}.Begin", "value": {"name": "Ann"}}},
        {"start_event": {"type": "Begin", "data": {"name": "Ann"}}},
        {"start_event": json.dumps({"name": "Ann"})},
        {"start_event": json.dumps({"type": "Begin", "value": {"name": "Ann"}})},
        {"kwargs": {"name": "Ann"}},
        {"start_event": {"name": "Ann"}, "kwargs": {}, "context": {}, "handler_id": ""},
    ],
)
async def test_every_form_of_a_start_event_starts_a_run(serving: Serving, body: dict) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        told = await running.post("/workflows/greet/run", body)
    assert told["status"] == "completed"
    assert told["result"]["value"] == {"result": "Hello, Ann!"}
    assert told["result"]["type"] == "StopEvent"


@pytest.mark.parametrize("path", ["run", "run-nowait"])
@pytest.mark.parametrize(
    "body", [{"seconds": 3}, {"seconds": 3, "handler_id": "s"}, {"seconds": 3, "start_event": None}]
)
async def test_fields_beside_the_start_event_are_refused(serving: Serving, path: str, body: dict) -> None:
    async with serving(WorkflowServer(), slow=Slow()) as running:
        answer = await running.http.post(f"/workflows/slow/{path}", json=body)
        assert answer.status_code == 400
        assert answer.json()["detail"] == (
            "The body of the request has no start_event, and seconds in its place: put the fields of the start "
            "event into start_event; the other fields are kwargs, handler_id, context, session, request_id, "
            "if_busy and metadata"
        )
        assert (await running.get("/handlers"))["handlers"] == []


async def test_what_newer_clients_send_besides_is_passed_over(serving: Serving) -> None:
    async with serving(WorkflowServer(), plain=Plain()) as running:
        for body in ({"start_event": {}, "priority": 1}, {"kwargs": {}, "priority": 1}):
            assert (await running.post("/workflows/plain/run", body))["status"] == "completed"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"start_event": {}}, "name"),
        ({"start_event": {"name": 5}}, "name"),
        ({"start_event": {"type": "Progress", "value": {"number": 1}}}, "Begin"),
        ({"start_event": {"type": "os.system", "value": {}}}, "declares no event"),
        ({"start_event": {"type": "Begin", "value": 5}}, "JSON object"),
        ({"start_event": "{"}, "JSON"),
        ({"start_event": {"name": "a"}, "kwargs": {"name": "b"}}, "not both"),
        ({"start_event": 5}, "start_event"),
        ({"start_event": {"name": "a"}, "handler_id": "has blanks"}, "handler_id"),
        ({"start_event": {"name": "a"}, "context": {"version": 1}}, "accept_context_api"),
        ({"start_event": {"name": "a", "tmes": 3}}, "Begin has no field 'tmes'. Did you mean 'times'?"),
        ({"start_event": {"type": "Begin", "value": {"name": "a", "tmes": 3}}}, "Did you mean 'times'?"),
        ({"start_event": {"name": "a", "_data": {"tmes": 3}}}, "Did you mean 'times'?"),
        ({"kwargs": {"name": "a", "colour": 3}}, "Begin has no field 'colour'; it has name, times"),
        ({"start_event": {"nmae": "a"}}, "name: Field required; Begin has no field 'nmae'. Did you mean 'name'?"),
    ],
)
async def test_a_start_event_that_does_not_fit_is_refused_with_a_reason(
    serving: Serving, body: dict, said: str
) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        answer = await running.http.post("/workflows/greet/run", json=body)
        assert answer.status_code == 400
        assert said in answer.json()["detail"]
        assert (await running.get("/handlers"))["handlers"] == []


async def test_a_body_is_needed(serving: Serving) -> None:
    async with serving(WorkflowServer(), plain=Plain()) as running:
        assert (await running.http.post("/workflows/plain/run")).status_code == 400
        assert (await running.http.post("/workflows/plain/run", content="[]")).status_code == 400
        assert (await running.post("/workflows/plain/run", {}))["result"]["value"] == {"result": {}}


async def test_fields_that_are_called_like_those_of_an_envelope_are_fields(serving: Serving) -> None:
    class Measured(StartEvent):
        type: str
        value: int

    class Measure(Workflow):
        @step
        async def measure(self, ev: Measured) -> StopEvent:
            return StopEvent(result=[ev.type, ev.value])

    async with serving(WorkflowServer(), measure=Measure(), plain=Plain()) as running:
        told = await running.post("/workflows/measure/run", {"start_event": {"type": "depth", "value": 8}})
        assert told["result"]["value"] == {"result": ["depth", 8]}
        told = await running.post("/workflows/plain/run", {"start_event": {"value": 8}})
        assert told["result"]["value"] == {"result": {"value": 8}}


async def test_a_run_tells_how_it_stands(serving: Serving) -> None:
    async with serving(WorkflowServer(), ask=Ask(timeout=None), slow=Slow(timeout=None)) as running:
        slow = await running.start("slow")
        told = await running.get(f"/handlers/{slow}")
        assert {key: told[key] for key in ("handler_id", "run_id", "workflow_name", "status", "result", "error")} == {
            "handler_id": slow,
            "run_id": slow,
            "workflow_name": "slow",
            "status": "running",
            "result": None,
            "error": None,
        }
        assert (told["live"], told["waiting"], told["owner"], told["completed_at"]) == (True, False, "this", None)
        ask = await running.start("ask")
        assert (await running.until(ask, lambda found: found["waiting"]))["status"] == "running"


async def test_a_failed_run_answers_200_and_says_what_went_wrong(serving: Serving) -> None:
    async with serving(WorkflowServer(), fail=Fail()) as running:
        told = await running.post("/workflows/fail/run")
        assert (told["status"], told["error"], told["error_type"]) == ("failed", "the kettle is empty", "ValueError")
        assert told["result"]["type"] == "WorkflowFailedEvent"
        assert await running.get(f"/handlers/{told['handler_id']}") == told


async def test_a_run_out_of_time_says_so(serving: Serving) -> None:
    async with serving(WorkflowServer(), slow=Slow(timeout=0.05)) as running:
        told = await running.post("/workflows/slow/run")
    assert (told["status"], told["error_type"]) == ("failed", "WorkflowTimeoutError")
    assert "timed out after 0.05 seconds" in told["error"]


async def test_the_switch_brings_the_older_status_codes_back(serving: Serving) -> None:
    server = WorkflowServer(compat_status_codes=True)
    async with serving(server, fail=Fail(), slow=Slow(timeout=None), plain=Plain()) as running:
        failed = await running.http.post("/workflows/fail/run", json={})
        assert failed.status_code == 500
        assert failed.json()["status"] == "failed"
        assert (await running.http.get(f"/handlers/{failed.json()['handler_id']}")).status_code == 500
        slow = await running.start("slow")
        assert (await running.http.get(f"/handlers/{slow}")).status_code == 202
        await running.post(f"/handlers/{slow}/cancel")
        assert (await running.http.get(f"/handlers/{slow}")).status_code == 500
        assert (await running.http.post(f"/handlers/{slow}/cancel")).status_code == 404
        plain = await running.post("/workflows/plain/run")
        assert (await running.http.get(f"/handlers/{plain['handler_id']}")).status_code == 200


async def test_an_id_is_used_once_and_gives_its_result_again(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet(), plain=Plain()) as running:
        body = {"start_event": {"name": "Ann"}, "handler_id": "greeting/1"}
        first = await running.post("/workflows/greet/run", body)
        assert first["handler_id"] == "greeting/1"
        assert await running.post("/workflows/greet/run", body) == first
        assert await running.post("/workflows/greet/run-nowait", body) == first
        other = {**body, "start_event": {"name": "Bob"}}
        assert (await running.http.post("/workflows/greet/run", json=other)).status_code == 409
        assert (await running.http.post("/workflows/plain/run", json=body)).status_code == 409
        assert await running.get("/handlers/greeting%2F1") == first


# --- the same start again, while the run goes on ----------------------------------------------------------------------


class Counted(Workflow):
    """Counts how often it began."""

    begun = 0

    @step
    async def count(self, ctx: Context, ev: StartEvent) -> StopEvent:
        type(self).begun += 1
        await ctx.wait_for_event(Answered, waiter_event=Asked(text="Go on?"), timeout=None)
        return StopEvent(result=ev.get("name"))


@pytest.fixture(autouse=True)
def _nothing_counted() -> None:
    Counted.begun = 0


async def answered(running: Running, run_id: str) -> None:
    await running.until(run_id, lambda found: found["waiting"])
    await running.post(f"/events/{run_id}", {"event": {"type": "Answered", "value": {"text": "yes"}}})


@pytest.mark.parametrize("path", ["run", "run-nowait"])
async def test_equal_starts_at_once_are_one_run(serving: Serving, path: str) -> None:
    body = {"start_event": {"name": "Ann"}, "handler_id": "once"}
    async with serving(WorkflowServer(), counted=Counted()) as running:
        posting = [asyncio.create_task(running.http.post(f"/workflows/counted/{path}", json=body)) for _ in range(30)]
        await eventually(lambda: one_run(running))
        await answered(running, "once")
        answers = await asyncio.gather(*posting)
        await running.over("once")
        assert [answer.status_code for answer in answers] == [200] * 30
        assert {answer.json()["handler_id"] for answer in answers} == {"once"}
        if path == "run":
            assert {answer.json()["result"]["value"]["result"] for answer in answers} == {"Ann"}
    assert Counted.begun == 1


async def one_run(running: Running) -> bool:
    return len((await running.get("/handlers"))["handlers"]) == 1


async def test_a_start_joins_a_run_that_left_memory_or_was_taken_up_again(serving: Serving, tmp_path: Path) -> None:
    body = {"start_event": {"name": "Ann"}, "handler_id": "once"}
    other = {"start_event": {"name": "Bob"}, "handler_id": "once"}
    async with serving(WorkflowServer(store=tmp_path / "runs.db"), counted=Counted()) as running:
        await running.post("/workflows/counted/run-nowait", body)
        await running.until("once", lambda found: found["waiting"])
    async with serving(WorkflowServer(store=tmp_path / "runs.db", idle_timeout=0.01), counted=Counted()) as running:
        joined = await running.post("/workflows/counted/run-nowait", body)
        assert (joined["handler_id"], joined["status"]) == ("once", "running")
        await running.until("once", lambda found: not found["live"])
        assert (await running.http.post("/workflows/counted/run", json=other)).status_code == 409
        waiting = asyncio.create_task(running.post("/workflows/counted/run", body))
        await answered(running, "once")
        assert (await waiting)["result"]["value"] == {"result": "Ann"}


async def test_a_start_joins_a_run_that_another_process_drives(serving: Serving, tmp_path: Path) -> None:
    body = {"start_event": {"name": "Ann"}, "handler_id": "once"}
    first, second = (WorkflowServer(store=SQLiteStore(tmp_path / "runs.db")) for _ in range(2))
    async with serving(first, counted=Counted()) as one, serving(second, counted=Counted()) as two:
        await one.post("/workflows/counted/run-nowait", body)
        await one.until("once", lambda found: found["waiting"])
        assert (await two.post("/workflows/counted/run-nowait", body))["owner"] == "other"
        refused = await two.http.post("/workflows/counted/run", json={**body, "start_event": {"name": "Bob"}})
        assert refused.status_code == 409
        waiting = asyncio.create_task(two.post("/workflows/counted/run", body))
        await answered(one, "once")
        assert (await waiting)["result"]["value"] == {"result": "Ann"}
    assert Counted.begun == 1


async def test_whoever_waits_for_a_run_elsewhere_is_let_go_when_the_server_stops(
    serving: Serving, tmp_path: Path
) -> None:
    body = {"start_event": {"name": "Ann"}, "handler_id": "once"}
    first, second = (WorkflowServer(store=SQLiteStore(tmp_path / "runs.db")) for _ in range(2))
    async with serving(first, counted=Counted()) as one, serving(second, counted=Counted()) as two:
        await one.post("/workflows/counted/run-nowait", body)
        await one.until("once", lambda found: found["waiting"])
        waiting = asyncio.create_task(two.http.post("/workflows/counted/run", json=body))
        await asyncio.sleep(0.1)
        await second.stop()
        assert (await waiting).status_code == 503


async def test_a_context_is_not_put_under_the_id_of_a_run_that_goes_on(serving: Serving) -> None:
    server = WorkflowServer(accept_context_api=True)
    workflow = Counted()
    handler = workflow.run(start_event=StartEvent())
    await anext(aiter(handler.stream_events()))
    context = handler.ctx.to_dict()
    await handler.cancel_run()
    async with serving(server, counted=Counted()) as running:
        await running.post("/workflows/counted/run-nowait", {"start_event": {}, "handler_id": "once"})
        answer = await running.http.post("/workflows/counted/run", json={"context": context, "handler_id": "once"})
        assert answer.status_code == 409
        assert "is already running" in answer.json()["detail"]


@pytest.mark.parametrize(
    "run_id", ["x/trace", "x/state", "x/pending", "x/fork", "x/cancel", "a/pending/b", "x/y/trace", "/cancel"]
)
async def test_ids_whose_paths_mean_something_else_are_refused(serving: Serving, run_id: str) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        body = {"start_event": {"name": "Ann"}, "handler_id": run_id}
        for path in ("run", "run-nowait"):
            assert (await running.http.post(f"/workflows/greet/{path}", json=body)).status_code == 400
        source = (await running.post("/workflows/greet/run", {"kwargs": {"name": "Ann"}}))["handler_id"]
        refused = await running.http.post(f"/handlers/{source}/fork", json={"at": 1, "new_id": run_id})
        assert refused.status_code == 400
        assert refused.json()["detail"].startswith("new_id: ")


async def test_ids_that_the_server_makes_cannot_be_guessed(serving: Serving) -> None:
    async with serving(WorkflowServer(), plain=Plain()) as running:
        ids = {(await running.post("/workflows/plain/run"))["handler_id"] for _ in range(20)}
    assert len(ids) == 20
    assert all(len(one) >= 20 and one.isalnum() for one in ids)
    assert len({one[:4] for one in ids}) == 20


async def test_runs_are_listed_page_by_page_in_both_directions(serving: Serving) -> None:
    async with serving(WorkflowServer(), plain=Plain(), fail=Fail()) as running:
        ids = [(await running.post("/workflows/plain/run"))["handler_id"] for _ in range(4)]
        ids.append((await running.post("/workflows/fail/run"))["handler_id"])

        async def listed(**query: object) -> tuple[list[str], str | None]:
            told = await running.get("/handlers", **query)
            return [one["handler_id"] for one in told["handlers"]], told["next"]

        assert await listed() == (ids, None)
        assert await listed(limit=2) == (ids[:2], ids[1])
        assert await listed(limit=3, after=ids[1]) == (ids[2:], None)
        assert await listed(limit=2, order="desc") == (ids[:2:-1], ids[3])
        assert await listed(limit=9, order="desc", after=ids[3]) == (ids[2::-1], None)
        assert await listed(status="failed") == (ids[4:], None)
        assert await listed(status=["failed", "completed"], workflow_name="plain") == (ids[:4], None)
        assert await listed(status="running") == ([], None)


async def test_runs_are_listed_by_metadata(serving: Serving) -> None:
    store = MemoryStore()
    agent = FunctionAgent(llm=ScriptedLLM(["Hi."] * 3), store=store)
    for user in ("ann", "bob"):
        await agent.run("Hello", session=user, metadata={"user": user})
    async with serving(WorkflowServer(store=store), agent=agent) as running:
        [found] = (await running.get("/handlers", metadata="user=ann"))["handlers"]
        assert (found["handler_id"], found["session"], found["metadata"]) == ("ann:1", "ann", {"user": "ann"})
        assert (await running.get("/handlers", metadata=["user=ann", "place=web"]))["handlers"] == []
        assert len((await running.get("/handlers"))["handlers"]) == 2
        async with WorkflowClient(running.url) as client:
            assert [run.run_id for run in await client.runs(metadata={"user": "bob"})] == ["bob:1"]


async def test_runs_are_found_by_their_contents(serving: Serving) -> None:
    store = MemoryStore()
    dear, cheap = (ScriptedLLM(["High water is at six."], price=Price(0, cost)) for cost in (1_000_000, 0))
    llms = {"dear": dear, "cheap": cheap}
    agents = {name: FunctionAgent(name=name, workflow_name=name, llm=llm, store=store) for name, llm in llms.items()}
    for name, agent in agents.items():
        await agent.run("When is high water?", run_id=name)
    async with serving(WorkflowServer(store=store), fail=Fail(store=store), **agents) as running:
        await running.over(await running.start("fail"))

        async def found(**query: str) -> list[str]:
            answer = await running.get("/handlers", order="desc", **query)
            assert answer["unread"] == 0
            return [run["handler_id"] for run in answer["handlers"]]

        assert await found(text="water six") == ["cheap", "dear"]
        assert await found(text="water", min_cost="0.5") == ["dear"]
        assert await found(model="scripted", max_cost="0.5") == ["cheap"]
        assert await found(text="water", workflow_name="dear") == ["dear"]
        assert await found(text="water", status="failed") == []
        assert await found(since="2020-01-01", until="2020-01-02T10:00:00+01:00") == []
        assert len(await found(since="2020-01-01")) == 3
        page = await running.get("/handlers", text="water", limit=1)
        assert ([run["handler_id"] for run in page["handlers"]], page["next"]) == (["dear"], "dear")
        assert await found(text="water", after="cheap") == ["dear"]
        async with WorkflowClient(running.url) as client:
            assert [run.run_id for run in await client.runs(text="water", min_cost=0.5)] == ["dear"]
            with pytest.raises(TypeError, match="until is a datetime, such as"):
                await client.runs(until="2026-05-01")  # type: ignore[arg-type]
            assert await client.runs(since=datetime.now().astimezone() + timedelta(days=1)) == []
            assert len(await client.runs(until=datetime.now(UTC) + timedelta(days=1), error="")) == 3


async def test_a_store_that_cannot_search_is_named(serving: Serving) -> None:
    class Listing(MemoryStore):
        search = None  # type: ignore[assignment]

    async with serving(WorkflowServer(store=Listing()), greet=Greet()) as running:
        answer = await running.http.get("/handlers", params={"text": "x"})
        assert answer.status_code == 400
        assert "Listing cannot search" in answer.json()["detail"]


@pytest.mark.parametrize(
    "query",
    [
        "status=foo", "metadata=ann", "limit=0", "limit=x", "limit=1001", "order=up", "limit=99999999999999999999",
        f"text={'x' * 1001}",
        "max_cost=1e300",
        "since=yesterday", "until=2026-13-01", "min_cost=much", "max_cost=inf",
    ],
)  # fmt: skip
async def test_questions_that_make_no_sense_are_refused(serving: Serving, query: str) -> None:
    async with serving(WorkflowServer()) as running:
        assert (await running.http.get(f"/handlers?{query}")).status_code == 400


@pytest.mark.parametrize("after", ["nobody", "@@@"])
async def test_a_page_behind_a_run_that_is_not_there_is_refused(serving: Serving, after: str) -> None:
    async with serving(WorkflowServer()) as running:
        answer = await running.http.get("/handlers", params={"after": after})
        assert answer.status_code == 400
        assert answer.json()["detail"] == f"after must be the id of a run; unknown run {after!r}"


async def test_runs_of_a_store_are_shown_without_their_code(serving: Serving, tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    async with serving(WorkflowServer(store=store), greet=Greet()) as running:
        run_id = (await running.post("/workflows/greet/run", {"kwargs": {"name": "Ann"}}))["handler_id"]
    async with serving(WorkflowServer(store=store)) as running:
        told = (await running.get("/handlers", include_results=True))["handlers"][0]
        assert (told["handler_id"], told["status"], told["result"]["value"]) == (
            run_id,
            "completed",
            {"result": "Hello, Ann!"},
        )
        assert told["workflow_name"] == Greet().workflow_name
        assert (await running.get(f"/handlers/{run_id}/state"))["state"] == {"greeted": "Ann"}
        refused = await running.http.post(f"/handlers/{run_id}/fork", json={"at": 1})
        assert refused.status_code == 409
        assert "no workflow" in refused.json()["detail"]


class Broken(StopEvent):
    """Cannot be read back, nor shown."""

    @field_validator("depth", check_fields=False)
    @classmethod
    def check(cls, depth: int) -> int:
        if cls.closed:
            raise LookupError("no chart is open")
        return depth

    depth: int
    closed: ClassVar[bool] = False


class Sound(Workflow):
    @step
    async def sound(self, ev: StartEvent) -> Broken:
        return Broken(depth=8)


class Call(Workflow):
    @step
    async def call(self, ev: StartEvent) -> StopEvent:
        raise StatusError(SimpleNamespace(status=503))


class StatusError(Exception):
    def __init__(self, response: SimpleNamespace) -> None:
        super().__init__(f"status {response.status}")


async def test_a_run_that_cannot_be_read_takes_nothing_away_from_the_others(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(WorkflowServer(), call=Call(), sound=Sound(), greet=Greet()) as running:
        call, sound = await running.start("call"), await running.start("sound")
        await running.post("/workflows/greet/run", {"kwargs": {"name": "Ann"}})
        await running.over(call)
        await running.over(sound)
        monkeypatch.setattr(Broken, "closed", True)
        listed = (await running.get("/handlers"))["handlers"]
        assert [(told["status"], told["error"]) for told in listed] == [
            ("failed", "status 503"),
            ("completed", None),
            ("completed", None),
        ]
        assert (await running.get(f"/handlers/{call}"))["error_type"] == "StatusError"
        assert (await running.get(f"/handlers/{sound}"))["result"]["value"] == {"depth": 8}
        assert [event["type"] for event in await running.events(call)] == ["WorkflowFailedEvent"]
        assert [event["type"] for event in await running.events(sound)] == ["Broken"]


async def test_a_result_that_cannot_even_be_shown_is_said_to_be_unreadable(serving: Serving) -> None:
    store = MemoryStore()
    await Greet(store=store, workflow_name="greet").run(name="Ann", run_id="good")
    epoch = await begin(store, "bad", "greet")
    assert await write(store, epoch, 0, [b'{"r":[],"e":0}'], "bad", status="completed", result=b"{}") == "committed"
    async with serving(WorkflowServer(store=store), greet=Greet(workflow_name="greet")) as running:
        good, bad = (await running.get("/handlers", include_results=True))["handlers"]
        assert (good["result_unreadable"], good["result"]["value"]) == (False, {"result": "Hello, Ann!"})
        assert (bad["result_unreadable"], bad["result"], bad["status"]) == (True, None, "completed")


async def test_runs_of_programs_in_the_same_store_belong_to_the_served_workflow(
    serving: Serving, tmp_path: Path
) -> None:
    store = tmp_path / "runs.db"
    await Greet(store=store).run(name="Ann", run_id="by-a-program")
    async with serving(WorkflowServer(store=store), greet=Greet()) as running:
        assert (await running.get("/handlers/by-a-program"))["workflow_name"] == "greet"


async def test_one_class_may_be_served_twice(serving: Serving) -> None:
    async with serving(WorkflowServer(), one=Slow(timeout=None), other=Slow(timeout=None)) as running:
        first, second = await running.start("one"), await running.start("other")
        assert (await running.get(f"/handlers/{first}"))["workflow_name"] == "one"
        assert (await running.get(f"/handlers/{second}"))["workflow_name"] == "other"
        assert len((await running.get("/handlers", workflow_name="other"))["handlers"]) == 1


async def test_two_servers_of_one_workflow_keep_their_runs_apart(serving: Serving) -> None:
    flow = Greet()
    async with serving(WorkflowServer(), greet=flow) as one, serving(WorkflowServer(), greet=flow) as other:
        await one.post("/workflows/greet/run", {"kwargs": {"name": "Ann"}})
        assert len((await one.get("/handlers"))["handlers"]) == 1
        assert (await other.get("/handlers"))["handlers"] == []
    assert flow.run_store is None
    assert await flow.run(name="Bob") == "Hello, Bob!"


async def test_what_a_result_says_of_its_models_is_told(serving: Serving) -> None:
    class Spent(Workflow):
        @step
        async def spend(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result={"usage": {"input_tokens": 7, "output_tokens": 2, "cost": 0.5}})

    async with serving(WorkflowServer(), spent=Spent(), plain=Plain()) as running:
        told = await running.post("/workflows/spent/run")
        assert (told["cost"], told["tokens"]) == (0.5, {"input": 7, "output": 2})
        told = await running.post("/workflows/plain/run")
        assert (told["cost"], told["tokens"]) == (None, None)


async def test_the_calls_of_a_workflow_without_agents_are_told_of_after_its_end(serving: Serving) -> None:
    llm = ScriptedLLM(["High water is at six."], price=Price(0, 1_000_000))

    class Asks(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(await llm.acomplete("When is high water?")).text)

    async with serving(WorkflowServer(), asks=Asks()) as running:
        await running.post("/workflows/asks/run")
        [told] = (await running.get("/handlers"))["handlers"]
        assert told["tokens"]["output"] > 0
        assert told["cost"] == told["tokens"]["output"]


async def test_what_unfinished_runs_have_taken_is_summed_up_beside_the_loop(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed: list[tuple[bool, int]] = []
    records_of, loop_thread = spent.records_of, threading.get_ident()

    def watched(commits: Sequence[StoredCommit]) -> list[dict]:
        summed.append((threading.get_ident() == loop_thread, len(commits)))
        return records_of(commits)

    monkeypatch.setattr(spent, "records_of", watched)
    store = MemoryStore()
    call = {"model": "m", "vendor": "v", "usage": {"input_tokens": 2, "output_tokens": 1, "cost": 0.5}}
    for number in range(20):
        bodies = []
        for place in range(250):
            outcome = ["returned", [["tests.Other", {"text": "x" * 500}]]]
            record = {"kind": "segment", "id": place, "path": "", "step": "s", "item": place, "outcome": outcome}
            record |= {"calls": [call]} if place % 50 == 0 else {}
            bodies.append(json.dumps({"t": 1.0, "e": 0.0, "r": [record]}).encode())
        epoch = await begin(store, f"long-{number}", stream_seq=10)
        await write(store, epoch, 0, bodies, f"long-{number}")

    async with serving(WorkflowServer(store=store)) as running:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        beating = asyncio.create_task(beat())
        told = (await running.get("/handlers"))["handlers"]
        beating.cancel()
        assert [(run["tokens"], run["cost"]) for run in told] == [({"input": 10, "output": 5}, 2.5)] * 20
        assert sum(commits for _, commits in summed) == 20 * 5  # others are not taken apart
        assert not any(on_loop for on_loop, _ in summed)
        assert beats > 20
        assert (await running.get("/handlers"))["handlers"] == told
        assert sum(commits for _, commits in summed) == 20 * 5


class LateStore(MemoryStore):
    """Its runs are over when something comes for them."""

    async def append(
        self, run_id: str, key: str, payload: bytes, kind: Literal["event", "cancel"] = "event"
    ) -> Appended | Ended | None:
        await super().append(run_id, "end", b"", "cancel")
        async for _ in self.subscribe(run_id, 0):
            pass
        return await super().append(run_id, key, payload, kind)


async def test_what_meets_the_end_of_its_run_is_told_that_it_is_over(serving: Serving) -> None:
    async with serving(WorkflowServer(store=LateStore()), ask=Ask(timeout=None)) as running:
        for path, body in (
            ("/events/{}", {"event": {"type": "Answered", "value": {"text": "Ann"}}}),
            ("/handlers/{}/pending/{}", {"response": {"text": "Ann"}}),
        ):
            run_id = await running.start("ask")
            await running.until(run_id, lambda found: found["waiting"])
            [asked] = (await running.get(f"/handlers/{run_id}/pending"))["pending"]
            answer = await running.http.post(path.format(run_id, asked["id"]), json=body)
            assert answer.status_code == 409
            assert "is over (cancelled)" in answer.json()["detail"]


async def test_a_run_is_cancelled_and_deleted(serving: Serving) -> None:
    async with serving(WorkflowServer(), slow=Slow(timeout=None)) as running:
        run_id = await running.start("slow")
        assert await running.post(f"/handlers/{run_id}/cancel") == {"status": "cancelled"}
        assert (await running.get(f"/handlers/{run_id}"))["status"] == "cancelled"
        assert (await running.http.post(f"/handlers/{run_id}/cancel")).status_code == 409
        assert await running.post(f"/handlers/{run_id}/cancel?purge=true") == {"status": "deleted"}
        assert (await running.http.get(f"/handlers/{run_id}")).status_code == 404
        run_id = await running.start("slow")
        assert await running.post(f"/handlers/{run_id}/cancel?purge=true") == {"status": "deleted"}
        assert (await running.get("/handlers"))["handlers"] == []


async def test_a_run_that_nobody_ends_is_not_told_to_be_cancelled(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_runs, "SECONDS_TO_CANCEL", 0.05)
    store = MemoryStore()
    elsewhere = MemoryStore(beside=store)
    run = NewRun(run_id="r", workflow=Slow().workflow_name, version="", digest="")
    await elsewhere.create(run, elsewhere.owner, 60)
    async with serving(WorkflowServer(store=store), slow=Slow(timeout=None)) as running:
        answer = await running.http.post("/handlers/r/cancel")
        assert (answer.status_code, answer.json()) == (202, {"status": "cancelling"})
        assert (await running.get("/handlers/r"))["status"] == "running"


async def left_waiting(store: RunStore, *run_ids: str) -> None:
    for run_id in run_ids:
        handler = Ask(timeout=None, store=store, workflow_name="ask").run(run_id=run_id)
        await anext(handler.inputs())
        await handler.interrupt()


@pytest.mark.parametrize("code", [{"slow": Slow(timeout=None, workflow_name="ask")}, {}], ids=["unfit", "gone"])
async def test_a_run_whose_code_does_not_fit_or_is_gone_is_cancelled_and_deleted(
    serving: Serving, code: dict[str, Workflow]
) -> None:
    store = MemoryStore()
    await left_waiting(store, "a", "b")
    async with serving(WorkflowServer(store=store), **code) as running:
        assert await running.post("/handlers/a/cancel") == {"status": "cancelled"}
        assert (await running.get("/handlers/a"))["status"] == "cancelled"
        assert (await running.events("a"))[-1]["type"] == "WorkflowCancelledEvent"
        assert await running.post("/handlers/b/cancel?purge=true") == {"status": "deleted"}
        assert [told["run_id"] for told in (await running.get("/handlers"))["handlers"]] == ["a"]


async def test_it_is_said_of_a_run_why_it_cannot_be_taken_up(serving: Serving) -> None:
    store = MemoryStore()
    await left_waiting(store, "r")
    await store.append("r", "key", b"[]")  # so that it is time
    unfit = Slow(timeout=None, workflow_name="ask")
    async with serving(WorkflowServer(store=store, sse_heartbeat_interval=0.05), slow=unfit) as running:
        told = await running.until("r", lambda found: found["error"])
        assert told["status"] == "running"
        assert "run r of slow cannot be resumed: Step ask of Slow is in the records" in told["error"]
        async with running.http.stream("GET", "/events/r") as answer:
            async with asyncio.timeout(20):
                async for line in answer.aiter_lines():
                    if line == f": {told['error']}":
                        break


async def test_the_error_of_a_server_does_not_tell_what_happened_inside(
    serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    class Touchy(Event):
        text: str

        def __init__(self, **data: object) -> None:
            raise RuntimeError("secret insides")

    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> InputRequiredEvent:
            return InputRequiredEvent()

        @step
        async def end(self, ev: Touchy) -> StopEvent:
            return StopEvent()

    async with serving(WorkflowServer(), flow=Flow(timeout=None, disable_validation=True)) as running:
        run_id = await running.start("flow")
        answer = await running.http.post(f"/events/{run_id}", json={"event": {"type": "Touchy", "value": {"text": ""}}})
    assert answer.status_code == 500
    assert answer.json() == {"detail": "Internal Server Error"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "secret insides" in capsys.readouterr().err


async def test_a_context_goes_on_where_a_server_takes_such(serving: Serving) -> None:
    flow = Ask(timeout=None)
    handler = flow.run()
    await anext(handler.inputs())
    saved = handler.ctx.to_dict()
    await handler.cancel_run()
    async with serving(WorkflowServer(accept_context_api=True), ask=flow) as running:
        run_id = (await running.post("/workflows/ask/run-nowait", {"context": saved}))["handler_id"]
        await running.post(f"/events/{run_id}", {"event": {"type": "Answered", "value": {"text": "Ann"}}})
        assert (await running.over(run_id))["result"]["value"] == {"result": "Ann"}
        for nonsense in ({"version": 77}, {"a": [1]}):
            answer = await running.http.post("/workflows/ask/run-nowait", json={"context": nonsense})
            assert answer.status_code == 400


async def test_a_run_that_is_awaited_goes_on_when_the_client_leaves(serving: Serving) -> None:
    async with serving(WorkflowServer(), slow=Slow(timeout=None)) as running:
        waiting = asyncio.create_task(
            running.http.post("/workflows/slow/run", json={"kwargs": {"seconds": 0.3}, "handler_id": "s"})
        )

        async def there() -> bool:
            return (await running.http.get("/handlers/s")).status_code == 200

        await eventually(there)
        waiting.cancel()
        assert (await running.over("s"))["status"] == "completed"


async def test_what_there_is_is_told(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet(), ask=Ask()) as running:
        assert await running.get("/health") == {"status": "healthy"}
        assert await running.get("/workflows") == {"workflows": ["greet", "ask"]}
        schema = await running.get("/workflows/greet/schema")
        assert (schema["start"]["title"], schema["stop"]["title"]) == ("Begin", "StopEvent")
        assert schema["start"]["required"] == ["name"]
        names = [one["title"] for one in (await running.get("/workflows/greet/events"))["events"]]
        assert "Progress" not in names
        await running.events(await running.start("greet", name="Ann"))
        names = [one["title"] for one in (await running.get("/workflows/greet/events"))["events"]]
        assert "Progress" in names  # it was streamed meanwhile
        drawn = await running.get("/workflows/greet/representation")
        assert {node["id"] for node in drawn["graph"]["nodes"]} >= {"greet", "Begin", "StopEvent"}
        assert 'data-node="greet"' in drawn["svg"]
        for path in ("schema", "events", "representation"):
            assert (await running.http.get(f"/workflows/nobody/{path}")).status_code == 404
        assert (await running.http.post("/workflows/nobody/run", json={})).status_code == 404
        answer = await running.http.get("/handlers/nobody")
        assert answer.status_code == 404
        told = "Handler not found: this server has no run 'nobody'; GET /handlers lists the runs that it has"
        assert answer.json()["detail"] == told
        assert (await running.http.delete("/handlers/nobody")).status_code == 405


async def test_results_are_told_without_an_envelope_too(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        run_id = await running.start("greet", name="Ann")
        await running.over(run_id)
        assert (await running.get(f"/results/{run_id}"))["result"] == "Hello, Ann!"


async def test_state_is_told_as_it_was_after_any_commit(serving: Serving) -> None:
    async with serving(WorkflowServer(), ask=Ask(timeout=None)) as running:
        run_id = await running.start("ask")
        await running.until(run_id, lambda found: found["waiting"])
        await running.post(f"/events/{run_id}", {"event": {"type": "Answered", "value": {"text": "Ann"}}})
        last = (await running.over(run_id))["commits"]
        states = [(await running.get(f"/handlers/{run_id}/state", commit=n))["state"] for n in range(1, last + 1)]
        assert states[0] == {}
        assert {"user": {"name": "nobody"}} in states
        assert states[-1] == {"user": {"name": "Ann"}}
        assert await running.get(f"/handlers/{run_id}/state") == {"commit": last, "state": states[-1], "children": {}}
        assert (await running.http.get(f"/handlers/{run_id}/state?commit={last + 1}")).status_code == 404


async def test_the_trace_is_told_page_by_page(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        run_id = await running.start("greet", name="Ann", times=3)
        await running.over(run_id)
        whole = await running.get(f"/handlers/{run_id}/trace")
        assert [entry["kind"] for entry in whole["entries"]] == ["started", "segment", "ended"]
        assert (whole["more"], whole["status"]) == (False, "completed")
        after, entries, more = 0, [], True
        while more:
            page = await running.get(f"/handlers/{run_id}/trace", after=after, limit=1)
            after, more, entries = page["next"], page["more"], entries + page["entries"]
        assert entries == whole["entries"]
        large = "x" * 10_000
        run_id = await running.start("greet", name=large)
        await running.over(run_id)
        assert large not in json.dumps(await running.get(f"/handlers/{run_id}/trace"))
        assert large in json.dumps(await running.get(f"/handlers/{run_id}/trace", full="true"))


async def test_a_fork_begins_where_it_is_told_with_what_it_is_told(serving: Serving) -> None:
    class Two(Workflow):
        @step
        async def one(self, ctx: Context, ev: StartEvent) -> Event:
            await ctx.store.set("word", "first")
            return Event()

        @step
        async def two(self, ctx: Context, ev: Event) -> StopEvent:
            return StopEvent(result=await ctx.store.get("word"))

    async with serving(WorkflowServer(), two=Two(), ask=Ask(timeout=None)) as running:
        source = (await running.post("/workflows/two/run"))["handler_id"]
        told = await running.post(
            f"/handlers/{source}/fork", {"at": 2, "state": {"word": "second"}, "new_id": "branch"}
        )
        assert told["forked_from"] == [source, 2]
        assert (await running.over("branch"))["result"]["value"] == {"result": "second"}
        for body, status in (
            ({"at": 99}, 400),
            ({"at": 0}, 400),
            ({}, 400),
            ({"at": "2"}, 400),
            ({"at": 2, "new_id": "branch"}, 409),
            ({"at": 2, "new_id": "no blanks"}, 400),
        ):
            assert (await running.http.post(f"/handlers/{source}/fork", json=body)).status_code == status, body

        asked = await running.start("ask")
        await running.until(asked, lambda found: found["waiting"])
        for name in ("", ".", "a..b", "__class__", "user.name.x"):
            refused = await running.http.post(f"/handlers/{asked}/fork", json={"at": 2, "state": {name: 1}})
            assert refused.status_code == 400
            assert repr(name) in refused.json()["detail"]
        assert len((await running.get("/handlers", workflow_name="ask"))["handlers"]) == 1
        answer = {"type": "Answered", "value": {"text": "Bob"}}
        told = await running.post(f"/handlers/{asked}/fork", {"at": 2, "event": answer})
        assert (await running.over(told["handler_id"]))["result"]["value"] == {"result": "Bob"}
        assert (await running.get(f"/handlers/{asked}"))["status"] == "running"
