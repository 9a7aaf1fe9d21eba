"""Schedules: runs that workers start at given times.

A schedule is a chain of stored runs. Each is due at one time of the schedule. It stores the next one, and the run to
start. The ids of both contain the time, so each time starts one run, whatever number of workers look at it and wherever
one of them ends.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from batonflow.clock import current_source
from batonflow.durable.history import StoredHistory
from batonflow.durable.store_protocol import RunInfo, RunStore
from batonflow.lazy import how_to_install
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import StoreError

__all__ = ["Schedule", "ScheduleStarts", "add_schedule", "list_schedules", "remove_schedule"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
STARTS_OF = "schedule of "
"""The begin of the name of a workflow that starts the scheduled runs of another one."""
_IDS = "schedule"
_PAGE = 1000


class Schedule(NamedTuple):
    """A schedule in a store.

    Attributes:
        name: Its name.
        workflow: The name of the workflow.
        cron: The times, as a cron expression.
        timezone: The time zone of the expression.
        next_at: The next time.
    """

    name: str
    workflow: str
    cron: str
    timezone: str
    next_at: datetime


class Due(StartEvent):
    """A time of a schedule, with the data for the next times."""

    schedule: str
    cron: str
    timezone: str
    token: str
    at: float
    queue: str | None = None
    priority: int = 0
    arguments: dict[str, Any]


class ScheduleStarts(Workflow):
    """The workflow that starts the runs of the schedules of another workflow.

    Args:
        target: The workflow, with its store.
    """

    def __init__(self, target: Workflow) -> None:
        super().__init__(timeout=None, workflow_name=STARTS_OF + target.workflow_name, store=target.run_store)
        self._target: Any = target

    @step
    async def begin(self, ev: Due) -> StopEvent:
        """Store the next time, and the run of this one. Both ids contain their times, so a repetition adds nothing."""
        now = current_source().now()
        await self.store(ev.model_copy(update={"at": next_time(ev.cron, ev.timezone, max(now, ev.at))}))
        run_id = run_id_at(ev.schedule, ev.at, ev.timezone)
        await self._target.enqueue(run_id=run_id, queue=ev.queue, priority=ev.priority, **ev.arguments)
        return StopEvent(result=run_id)

    async def store(self, due: Due) -> None:
        """Store a time of a schedule."""
        await self.enqueue(
            due, run_id=_id(due), queue=due.queue, priority=due.priority, not_before=datetime.fromtimestamp(due.at, UTC)
        )


def next_time(cron: str, timezone: str, after: float) -> float:
    """Return the first time of a cron expression after another time, in wall-clock seconds.

    Raises:
        ValueError: The expression or the time zone does not exist, or there is not another time.
    """
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {timezone!r}; write it as in Europe/Berlin") from None
    cronsim = _cron_reader()
    try:
        return next(cronsim.CronSim(cron, datetime.fromtimestamp(after, zone))).timestamp()
    except cronsim.CronSimError:
        raise ValueError(
            f"{cron!r} is not a cron expression: write minute, hour, day, month and weekday, as in '0 3 * * *'"
        ) from None
    except StopIteration:
        raise ValueError(f"{cron!r} has no time in the coming years") from None


def _cron_reader() -> Any:
    """Return cronsim, which is imported at first use."""
    try:
        import cronsim  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(f"Schedules need cronsim, which is not installed: {how_to_install('fleet')}") from error
    return cronsim


async def add_schedule(
    workflow: Workflow,
    name: str,
    cron: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    timezone: str = "UTC",
    queue: str | None = None,
    priority: int = 0,
) -> Schedule:
    """Let workers start a run of a workflow again and again. A schedule of this name is replaced.

    Workers of the workflow start the runs. If all of them were away, the run of the last time that passed begins as
    soon as one is back, and others that passed are left out. The id of a run is ``NAME/TIME``.

    Args:
        workflow: The workflow or agent, with a store.
        name: The name of the schedule: letters, digits, and ``_ . -``.
        cron: The times: minute, hour, day of the month, month and weekday.
        arguments: The keyword arguments of ``run``, as JSON data.
        timezone: The time zone of the times, such as ``"Europe/Berlin"``.
        queue: The queue of the runs.
        priority: The priority of the runs.

    Raises:
        ValueError: The name, the expression or the time zone is not valid.
        StoreError: The store fails.

    Example:
        >>> await add_schedule(report, "nightly", "0 3 * * *", {"topic": "tides"}, timezone="Europe/Berlin")
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name of a schedule: use 1 to 100 letters, digits, and _ . -")
    source = current_source()
    at = next_time(cron, timezone, source.now())
    starts = ScheduleStarts(workflow)
    due = Due(
        schedule=name, cron=cron, timezone=timezone, token=source.token(6), at=at, queue=queue, priority=priority,
        arguments=dict(arguments or {}),
    )  # fmt: skip
    store = starts.run_store
    assert store is not None
    await remove_schedule(store, name)
    await starts.store(due)
    return Schedule(name, workflow.workflow_name, cron, timezone, datetime.fromtimestamp(at, ZoneInfo(timezone)))


async def list_schedules(store: RunStore) -> list[Schedule]:
    """Return the schedules of a store, by name.

    Raises:
        StoreError: The store fails.
    """
    found = [await _read(store, info) for info in await _waiting(store)]
    return sorted(one for one in found if one is not None)


async def remove_schedule(store: RunStore, name: str) -> bool:
    """Start no further run of a schedule; return False if it does not exist. Its earlier runs go on.

    Raises:
        StoreError: The store fails.
    """
    removed = False
    # One that begins meanwhile stores the next one.
    while found := [info.run_id for info in await _waiting(store) if info.run_id.startswith(f"{_IDS}/{name}/")]:
        for run_id in found:
            removed = await store.delete(run_id, force=True) or removed
    return removed


async def _waiting(store: RunStore) -> list[RunInfo]:
    """Return the runs for coming times."""
    found: list[RunInfo] = []
    after: str | None = None
    while True:
        page = await store.list_runs(status=["ready", "running", "waiting"], after=after, limit=_PAGE)
        found += [info for info in page if info.workflow.startswith(STARTS_OF)]
        if len(page) < _PAGE:
            return found
        after = page[-1].run_id


async def _read(store: RunStore, info: RunInfo) -> Schedule | None:
    try:
        started, *_ = await cast("Any", StoredHistory).history(store, info.run_id)
    except StoreError:  # it was removed since
        return None
    due = Due.model_validate(started["event"][1])
    at = datetime.fromtimestamp(due.at, ZoneInfo(due.timezone))
    return Schedule(due.schedule, info.workflow.removeprefix(STARTS_OF), due.cron, due.timezone, at)


def _id(due: Due) -> str:
    return f"{_IDS}/{run_id_at(due.schedule, due.at, due.timezone)}/{due.token}"


def run_id_at(schedule: str, at: float, timezone: str) -> str:
    """Return the id of the run of a time. The second of two equal times has a mark, when clocks are set back."""
    local = datetime.fromtimestamp(at, ZoneInfo(timezone))
    return f"{schedule}/{local.replace(tzinfo=None).isoformat(timespec='minutes')}{'-again' if local.fold else ''}"
