"""One run as one file: all of its data, none of it as markup."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from batonflow.server.page import RunView, export_run, page_html, run_page, view_run
from batonflow.server.page.derived import graph_of
from batonflow.workflow_core import Context, MemoryStore, StartEvent, StopEvent, Workflow, WorkflowTimeoutError, step
from batonflow.workflow_core.errors import StoreError
from tests.server.page.flows import HOSTILE, Asking, Counting, Failing, Hostile, Outer, agent_run, run_of, waiting_run

_DATA = re.compile(r'<script type="application/json" id="run">(.*?)</script>', re.DOTALL)


def data_of(page: str) -> dict[str, Any]:
    (text,) = _DATA.findall(page)
    return json.loads(text)


async def test_a_file_has_the_run_its_graph_and_every_entry() -> None:
    store, run_id, workflow = await run_of(Counting)
    data = data_of(await export_run(store, run_id, workflow=workflow))
    handler = data["handler"]
    assert (handler["handler_id"], handler["status"], handler["waiting"]) == ("counting", "completed", False)
    assert handler["workflow_name"].endswith("Counting")
    assert [entry["kind"] for entry in data["entries"]] == ["started", *["segment"] * 10, "ended"]
    assert handler["commits"] == data["entries"][-1]["commit"]
    assert data["representation"]["graph"]["name"] == "Counting"
    assert 'data-node="count"' in data["representation"]["svg"]


async def test_long_runs_are_whole() -> None:
    store, run_id, workflow = await run_of(Counting, last=1200)
    assert len(data_of(await export_run(store, run_id, workflow=workflow))["entries"]) == 1204


async def test_a_failed_run_says_with_what() -> None:
    store, run_id, workflow = await run_of(Failing)
    handler = data_of(await export_run(store, run_id, workflow=workflow))["handler"]
    assert (handler["status"], handler["error_type"]) == ("failed", "ValueError")
    assert handler["error"] == "there is no such book: 'Tides & Times'"


async def test_a_waiting_run_is_running_and_waits() -> None:
    store, run_id, _ = await waiting_run()
    handler = data_of(await export_run(store, run_id))["handler"]
    assert (handler["status"], handler["waiting"], handler["completed_at"]) == ("running", True, None)


async def test_an_agents_tokens_are_told() -> None:
    store, run_id, workflow = await agent_run()
    tokens = data_of(await export_run(store, run_id, workflow=workflow))["handler"]["tokens"]
    assert tokens["input"] > tokens["output"] > 0


async def test_no_payload_can_end_the_element_that_holds_it() -> None:
    store, run_id, workflow = await run_of(Hostile)
    page = await export_run(store, run_id, workflow=workflow)
    assert page.count("<script") == page_html().count("<script")
    (text,) = _DATA.findall(page)
    assert "<" not in text
    notes = [
        event["value"]["text"]
        for entry in data_of(page)["entries"]
        for event in entry.get("events", ())
        if event["type"] == "Note"
    ]
    assert notes == list(HOSTILE)


class Measuring(Workflow):
    @step
    async def measure(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("depth", float("nan"))
        return StopEvent(result=[float("inf"), 1.5])


async def test_numbers_that_json_does_not_know_are_nothing() -> None:
    store, run_id, workflow = await run_of(Measuring)

    def unknown(constant: str) -> None:
        raise AssertionError(f"browsers cannot read {constant}")

    (text,) = _DATA.findall(await export_run(store, run_id, workflow=workflow))
    data = json.loads(text, parse_constant=unknown)
    assert data["entries"][-1]["events"][0]["value"] == {"result": [None, 1.5]}


class Slow(Workflow):
    @step
    async def wait(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(60)
        return StopEvent()


async def test_a_run_whose_time_was_up_says_so() -> None:
    store = MemoryStore()
    with pytest.raises(WorkflowTimeoutError):
        await Slow(store=store, timeout=0.05).run(run_id="slow")
    handler = data_of(await export_run(store, "slow"))["handler"]
    assert (handler["error"], handler["error_type"]) == (
        "Operation timed out after 0.05 seconds",
        "WorkflowTimeoutError",
    )


def test_a_file_may_connect_to_nothing() -> None:
    page = run_page({"handler": {}, "representation": None, "entries": []})
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', page)
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert '<meta name="policy" content' not in page


async def test_a_file_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    store, run_id, workflow = await run_of(Counting)
    page = await export_run(store, run_id, workflow=workflow, path=tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == page


async def test_a_run_that_is_not_there_is_refused() -> None:
    with pytest.raises(StoreError, match="no run tides-1"):
        await export_run(MemoryStore(), "tides-1")


async def test_a_notebook_shows_the_page_in_a_frame_of_its_own() -> None:
    store, run_id, workflow = await run_of(Hostile)
    view = await view_run(store, run_id, workflow=workflow, height=300)
    assert isinstance(view, RunView)
    frame = view._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"')
    assert 'height="300"' in frame
    assert frame.count("<") == 2
    assert "allow-same-origin" not in frame


# --- graphs without code ----------------------------------------------------------------------------------------------


async def entries_of(store: Any, run_id: str) -> list[dict[str, Any]]:
    return data_of(await export_run(store, run_id))["entries"]


async def test_the_graph_of_what_happened_has_the_steps_events_and_arrows() -> None:
    store, run_id, _ = await run_of(Counting)
    graph = graph_of("flows.Counting", await entries_of(store, run_id))
    assert graph.name == "Counting"
    assert {node.id: node.node_type for node in graph.nodes} == {
        "begin": "step", "count": "step", "StartEvent": "event", "Tick": "event", "StopEvent": "event"
    }  # fmt: skip
    arrows = {(edge.source, edge.target) for edge in graph.edges}
    assert arrows == {
        ("StartEvent", "begin"), ("begin", "Tick"), ("Tick", "count"), ("count", "Tick"), ("count", "StopEvent")
    }  # fmt: skip


async def test_questions_and_answers_keep_their_kind() -> None:
    store = MemoryStore()
    handler = Asking(store=store).run(run_id="r")
    async for request in handler.inputs():
        request.respond(approved=True)
    await handler
    graph = graph_of("Asking", await entries_of(store, "r"))
    kinds = {node.id: node.event_types for node in graph.nodes if node.node_type == "event"}
    assert "InputRequiredEvent" in kinds["InputRequiredEvent"]
    assert "HumanResponseEvent" in kinds["Approved"]
    assert ("Approved", "ask") in {(edge.source, edge.target) for edge in graph.edges}


async def test_children_are_graphs_inside_once_however_often_they_ran() -> None:
    store, run_id, _ = await run_of(Outer)
    graph = graph_of("Outer", await entries_of(store, run_id))
    assert list(graph.children) == ["inner"]
    assert {node.id for node in graph.children["inner"].nodes} == {"shout", "StartEvent", "StopEvent"}
