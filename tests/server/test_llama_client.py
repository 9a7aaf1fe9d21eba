"""The client of the server that people know, unchanged, against ours."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from llama_agents.client import WorkflowClient
from workflows.context.serializers import JsonSerializer
from workflows.events import HumanResponseEvent as TheirResponse
from workflows.events import StartEvent as TheirStart
from workflows.events import StopEvent as TheirStop
from workflows.events import WorkflowCancelledEvent, WorkflowFailedEvent, WorkflowTimedOutEvent

from batonflow.server import WorkflowServer
from tests.server.conftest import Serving
from tests.server.flows import Ask, Fail, Greet, Plain, Slow


class Answered(TheirResponse):
    text: str


class Other(TheirStart):
    name: str


class Begin(TheirStart):
    name: str
    times: int = 1


async def test_it_learns_what_there_is(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet(), ask=Ask()) as running:
        client = WorkflowClient(base_url=running.url)
        assert (await client.is_healthy()).status == "healthy"
        assert (await client.list_workflows()).workflows == ["greet", "ask"]
        schema = await client.get_workflow_schema("greet")
        assert (schema.start["title"], schema.stop["title"]) == ("Begin", "StopEvent")
        events = await client.get_workflow_events_schema("greet")
        assert {one["title"] for one in events.events} == {"Begin", "StopEvent"}
        graph = (await client.get_workflow_graph("greet")).graph
        assert {node.id for node in graph.nodes} >= {"greet", "Begin", "StopEvent"}
        assert {(edge.source, edge.target) for edge in graph.edges} >= {("Begin", "greet"), ("greet", "StopEvent")}


@pytest.mark.parametrize("start", [Begin(name="Ann"), {"name": "Ann"}])
async def test_it_runs_and_gets_the_result(serving: Serving, start: object) -> None:
    async with serving(WorkflowServer(), greet=Greet(), plain=Plain()) as running:
        client = WorkflowClient(base_url=running.url)
        told = await client.run_workflow("greet", start_event=start)
        assert (told.status, told.result.value) == ("completed", {"result": "Hello, Ann!"})
        assert told.result.load_event([TheirStop]).result == "Hello, Ann!"
        assert (await client.run_workflow("plain")).status == "completed"
        handler = await client.run_workflow_nowait("greet", start_event=start)
        assert (await client.wait_for_handler(handler.handler_id, poll_interval=0.01)).status == "completed"
        assert (await client.get_result(handler.handler_id)).result.value == {"result": "Hello, Ann!"}
        assert (await client.run_workflow_nowait("plain")).status in ("running", "completed")


async def test_it_loads_built_in_events_without_being_told_their_classes(serving: Serving) -> None:
    flows = {"greet": Greet(), "fail": Fail(), "slow": Slow(timeout=0.05), "ask": Ask(timeout=None)}
    async with serving(WorkflowServer(), **flows) as running:
        client = WorkflowClient(base_url=running.url)
        greeted = await client.run_workflow("greet", start_event={"name": "Ann"})
        assert type(greeted.result.load_event()) is TheirStop
        failed = (await client.run_workflow("fail")).result.load_event()
        assert (type(failed), failed.step_name) == (WorkflowFailedEvent, "fail")
        late = (await client.run_workflow("slow")).result.load_event()
        assert (type(late), late.timeout) == (WorkflowTimedOutEvent, 0.05)
        run_id = (await client.run_workflow_nowait("ask")).handler_id
        await running.until(run_id, lambda found: found["waiting"])
        await client.cancel_handler(run_id)
        internal = [
            event.load_event()
            async for event in client.get_workflow_events(greeted.handler_id, include_internal_events=True)
            if event.qualified_name.startswith("workflows.")
        ]
        assert type(internal[-1]) is TheirStop
        cancelled = (await client.get_handler(run_id)).result.load_event()
        assert type(cancelled) is WorkflowCancelledEvent


@pytest.mark.parametrize("form", [lambda wrapped: wrapped, json.dumps])
async def test_a_start_event_of_its_serializer_is_unwrapped(serving: Serving, form: Callable[..., Any]) -> None:
    def wrapped(event: TheirStart) -> Any:
        return form(json.loads(JsonSerializer().serialize(event)))

    async with serving(WorkflowServer(), greet=Greet(), plain=Plain()) as running:

        async def answer(workflow: str, start_event: Any) -> tuple[int, Any]:
            told = await running.http.post(f"/workflows/{workflow}/run", json={"start_event": start_event})
            body = told.json()
            return told.status_code, body["result"]["value"]["result"] if told.status_code == 200 else body["detail"]

        assert await answer("greet", wrapped(Begin(name="Ann"))) == (200, "Hello, Ann!")
        assert await answer("plain", wrapped(TheirStart(name="Ann"))) == (200, {"name": "Ann"})
        code, detail = await answer("greet", wrapped(TheirStop(result="Ann")))
        assert (code, detail) == (400, "Workflow greet starts with Begin, not with StopEvent")
        code, detail = await answer("greet", wrapped(Other(name="Ann")))
        assert code == 400
        assert "declares no event Other" in detail
        inner = {"inner": {"name": "Ann", "times": 1}}
        assert await answer("plain", wrapped(TheirStart(inner=Begin(name="Ann")))) == (200, inner)


@pytest.mark.parametrize(
    "start_event",
    [
        {"__is_pydantic": True, "value": {"name": "Ann"}},
        {"__is_pydantic": False, "value": {"name": "Ann"}, "qualified_name": "x.Begin"},
        {"__is_pydantic": True, "value": "Ann", "qualified_name": "x.Begin"},
        {"__is_pydantic": True, "value": {}, "qualified_name": "x.Begin", "more": 1},
        {"__is_component": True, "value": {}, "qualified_name": "x.Begin"},
        {"name": {"__is_pydantic": True, "value": {}, "qualified_name": "x.Begin"}},
        {"name": [[{"__is_component": True}]]},
        {"type": "StartEvent", "value": {"name": {"__is_pydantic": True}}},
    ],
)
async def test_other_marks_of_the_serializer_are_refused(serving: Serving, start_event: Any) -> None:
    async with serving(WorkflowServer(), greet=Greet(), plain=Plain()) as running:
        for workflow in ("plain", "greet"):
            answer = await running.http.post(f"/workflows/{workflow}/run", json={"start_event": start_event})
            assert answer.status_code == 400
            assert "__is_" in answer.json()["detail"]


async def test_it_reads_the_stream_to_its_end_and_from_any_place(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        client = WorkflowClient(base_url=running.url)
        run_id = (await client.run_workflow_nowait("greet", start_event=Begin(name="Ann", times=4))).handler_id
        stream = client.get_workflow_events(run_id)
        whole, places = [], []
        async for event in stream:
            whole.append(event.type)
            places.append(stream.last_sequence)
        assert whole == ["Progress"] * 4 + ["StopEvent"]
        rest = client.get_workflow_events(run_id, after_sequence=places[2])
        assert [event.type async for event in rest] == ["Progress", "StopEvent"]
        over = client.get_workflow_events(run_id, after_sequence=places[-1])
        assert [event.type async for event in over] == []
        with pytest.raises(ValueError, match="not found"):
            async for _ in client.get_workflow_events("nobody"):
                pass


async def test_it_answers_a_person_s_question_by_an_event(serving: Serving) -> None:
    async with serving(WorkflowServer(), ask=Ask(timeout=None)) as running:
        client = WorkflowClient(base_url=running.url)
        run_id = (await client.run_workflow_nowait("ask")).handler_id
        seen = []
        async for event in client.get_workflow_events(run_id, include_internal_events=True):
            seen.append(event.type)
            if event.type == "Asked":
                assert (await client.send_event(run_id, Answered(text="Ann"))).status == "sent"
        assert {"StepStateChanged", "Asked", "StopEvent"} <= set(seen)
        assert (await client.get_handler(run_id)).result.value == {"result": "Ann"}
        with pytest.raises(httpx.HTTPStatusError, match="409"):
            await client.send_event(run_id, Answered(text="Bob"), step="ask")


async def test_it_lists_and_cancels(serving: Serving) -> None:
    async with serving(WorkflowServer(), slow=Slow(timeout=None), plain=Plain(), fail=Fail()) as running:
        client = WorkflowClient(base_url=running.url)
        slow = (await client.run_workflow_nowait("slow")).handler_id
        await client.run_workflow("plain")
        failed = await client.run_workflow("fail")
        assert (failed.status, failed.error) == ("failed", "the kettle is empty")
        assert len((await client.get_handlers()).handlers) == 3
        listed = await client.get_handlers(status=["running"], workflow_name=["slow", "plain"])
        assert [one.handler_id for one in listed.handlers] == [slow]
        assert (await client.cancel_handler(slow)).status == "cancelled"
        assert (await client.get_handler(slow)).status == "cancelled"
        assert (await client.cancel_handler(slow, purge=True)).status == "deleted"
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            await client.get_handler(slow)


async def test_it_brings_the_token_by_the_client_that_it_is_given(serving: Serving) -> None:
    async with serving(WorkflowServer(token="correct-horse"), greet=Greet()) as running:
        with pytest.raises(httpx.HTTPStatusError, match="401"):
            await WorkflowClient(base_url=running.url).list_workflows()
        headers = {"Authorization": "Bearer correct-horse"}
        async with httpx.AsyncClient(base_url=running.url, headers=headers) as http:
            client = WorkflowClient(httpx_client=http)
            told = await client.run_workflow("greet", handler_id="mine", start_event=Begin(name="Ann"))
            assert told.handler_id == "mine"
            assert [event.type async for event in client.get_workflow_events("mine")] == ["Progress", "StopEvent"]
