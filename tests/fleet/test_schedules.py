"""Schedules: workers start a run at each of its times, once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from batonflow.durable.store_protocol import RunStore
from batonflow.fleet import Worker, add_schedule, list_schedules, remove_schedule
from batonflow.fleet.schedules import Due, ScheduleStarts, next_time, run_id_at
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from tests.durable.conftest import Stores
from tests.server.conftest import eventually


class Report(Workflow):
    @step
    async def write(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=f"about {ev.topic}")


async def runs_of(store: RunStore, workflow: Workflow) -> list[Any]:
    return await store.list_runs(workflow=workflow.workflow_name)


async def pass_by(store: RunStore, workflow: Workflow, name: str, at: datetime) -> None:
    """Move the next time of a schedule to one that has passed, as if no worker had been there."""
    [info] = [one for one in await store.list_runs(status="ready") if one.run_id.startswith(f"schedule/{name}/")]
    started, *_ = await store.history(info.run_id)  # type: ignore[attr-defined]
    await store.delete(info.run_id, force=True)
    due = Due.model_validate(started["event"][1]).model_copy(update={"at": at.timestamp()})
    await ScheduleStarts(workflow).store(due)


@pytest.fixture
async def workers(stores: Stores) -> AsyncIterator[Any]:
    """Starts workers, which stop at the end."""
    begun: list[tuple[Worker, asyncio.Task[None]]] = []

    def begin(*workflows: Workflow, **options: Any) -> Worker:
        worker = Worker(*workflows, **options)
        begun.append((worker, asyncio.create_task(worker.run())))
        return worker

    yield begin
    for worker, running in begun:
        worker.stop()
        await running


async def test_its_worker_counts_for_the_runs_of_a_schedule(stores: Stores, workers: Any) -> None:
    store: Any = stores.open()
    await add_schedule(Report(store=store), "nightly", "0 3 * * *", {"topic": "tides"})
    workers(Report(), store=store)
    [starts] = await store.queues()

    async def is_counted() -> bool:
        return starts.count_workers(await store.workers()) == 1

    await eventually(is_counted)


async def test_each_time_starts_one_run_whatever_number_of_workers_there_are(stores: Stores, workers: Any) -> None:
    store = stores.open()
    flow = Report(store=store)
    await add_schedule(flow, "nightly", "0 3 * * *", {"topic": "tides"}, timezone="Europe/Berlin")
    await pass_by(store, flow, "nightly", datetime(2026, 3, 1, 2, 0, tzinfo=UTC))
    for _ in range(2):
        workers(Report(), store=stores.open())

    async def is_over() -> bool:
        return [one.status for one in await runs_of(store, flow)] == ["completed"]

    await asyncio.wait_for(eventually(is_over), 20)
    [run] = await runs_of(store, flow)
    assert run.run_id == "nightly/2026-03-01T03:00"
    assert await flow.resume(run.run_id) == "about tides"
    # The times that have passed are left out.
    [schedule] = await list_schedules(store)
    assert (schedule.name, schedule.cron, schedule.timezone) == ("nightly", "0 3 * * *", "Europe/Berlin")
    assert schedule.next_at > datetime.now(UTC)
    assert (schedule.next_at.hour, schedule.workflow) == (3, flow.workflow_name)


async def test_a_schedule_is_replaced_and_removed(stores: Stores) -> None:
    store = stores.open()
    flow = Report(store=store)
    await add_schedule(flow, "nightly", "0 3 * * *", {"topic": "tides"})
    await add_schedule(flow, "nightly", "0 4 * * *", {"topic": "winds"})
    await add_schedule(flow, "hourly", "0 * * * *", {"topic": "waves"})
    assert [(one.name, one.cron) for one in await list_schedules(store)] == [
        ("hourly", "0 * * * *"),
        ("nightly", "0 4 * * *"),
    ]
    assert await remove_schedule(store, "nightly")
    assert not await remove_schedule(store, "nightly")
    assert [one.name for one in await list_schedules(store)] == ["hourly"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": "a b"}, "'a b' is not a name of a schedule"),
        ({"cron": "at three"}, "'at three' is not a cron expression: write minute, hour"),
        ({"timezone": "Berlin"}, "there is no time zone 'Berlin'; write it as in Europe/Berlin"),
        ({"cron": "0 0 30 2 *"}, "is not a cron expression|has no time in the coming years"),
    ],
)
async def test_a_schedule_that_cannot_be_is_refused(stores: Stores, given: dict[str, Any], told: str) -> None:
    asked: dict[str, Any] = {"name": "nightly", "cron": "0 3 * * *", **given}
    with pytest.raises(ValueError, match=told):
        await add_schedule(Report(store=stores.open()), **asked)


def test_each_time_has_an_id_of_its_own_when_clocks_are_set_back() -> None:
    times = [datetime(2026, 10, 24, 22, 30, tzinfo=UTC).timestamp()]
    for _ in range(4):
        times.append(next_time("0 * * * *", "Europe/Berlin", times[-1]))
    assert len({run_id_at("hourly", at, "Europe/Berlin") for at in times}) == 5
    assert {later - earlier for earlier, later in pairwise(times[1:])} == {3600.0}
