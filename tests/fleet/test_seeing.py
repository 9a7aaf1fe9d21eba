"""OpenTelemetry on workers: the link from an enqueued run to its span, the delay of claims, and counts of queues."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batonflow.fleet import Worker, queue_counts
from batonflow.instrumentation.dispatcher import get_dispatcher
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from tests.durable.conftest import Stores
from tests.fleet.test_worker import ended
from tests.server.conftest import eventually
from tests.workflow_core.exported import Exported


@pytest.fixture
def exported() -> Iterator[Exported]:
    out = Exported()
    tracing = out.instrument()
    yield out
    tracing.uninstrument()
    out.close()


class Shop(Workflow):
    @step
    async def pack(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="packed")


def counts(exported: Exported) -> dict[tuple[Any, ...], float]:
    points = exported.points("batonflow.queue.runs")
    names = ("batonflow.queue.name", "batonflow.queue.state")
    return {tuple(point.attributes[name] for name in names): point.value for point in points if point.value}


async def test_the_span_of_a_run_is_linked_to_the_trace_in_which_it_was_enqueued(
    exported: Exported, stores: Stores
) -> None:
    here = stores.open()
    with exported.tracers.get_tracer("shop").start_as_current_span("order") as order:
        run_id = await Shop(store=here, workflow_name="shop").enqueue()
    worker = Worker(Shop(workflow_name="shop"), store=stores.open())
    working = asyncio.create_task(worker.run())
    assert await ended(here, run_id) == ["completed"]
    worker.stop()
    await working
    (link,) = exported.one("invoke_workflow shop").links
    assert link.context.span_id == order.get_span_context().span_id
    assert dict(link.attributes) == {"batonflow.link": "enqueued"}
    [delay] = exported.points("batonflow.claim.delay")
    assert (delay.count, dict(delay.attributes)) == (1, {"gen_ai.workflow.name": "shop"})
    assert 0 <= delay.sum < 20


async def test_a_worker_counts_the_runs_in_queues(
    exported: Exported, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_counts, "SECONDS_BETWEEN_COUNTS", 0.0)
    monkeypatch.setattr("batonflow.fleet.worker.SECONDS_BETWEEN_SIGNS", 0.02)
    here = stores.open()
    flow = Shop(store=here, workflow_name="shop")
    later = datetime.now(UTC) + timedelta(hours=1)
    await flow.enqueue(queue="gpu")
    await flow.enqueue(queue="gpu", not_before=later)
    worker = Worker(Shop(workflow_name="shop"), store=stores.open(), queues=["default"])
    working = asyncio.create_task(worker.run())

    async def counted(expected: dict[tuple[Any, ...], float]) -> bool:
        return counts(exported) == expected

    await eventually(lambda: counted({("gpu", "ready"): 1, ("gpu", "later"): 1}))
    [oldest] = exported.points("batonflow.queue.oldest")
    assert 0 <= oldest.value < 20
    for info in await here.list_runs():
        await here.delete(info.run_id, force=True)
    await eventually(lambda: counted({}))
    worker.stop()
    await working


async def test_queues_are_counted_only_if_something_listens(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Store:
        async def queues(self) -> list[Any]:
            asked.append("queues")
            return []

    assert not get_dispatcher(queue_counts.__name__).enabled
    store: Any = Store()
    await queue_counts.QueueCounts().report([store])
    assert asked == []
