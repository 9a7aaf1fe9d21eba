"""A dispatcher with Procrastinate: a bell is a job, which a worker takes and deletes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from batonflow.durable.stores.postgres_connection import check_plain_schema_name
from batonflow.fleet.dispatcher_protocol import bell_may_be_lost
from batonflow.lazy import how_to_install

if TYPE_CHECKING:
    from procrastinate import App, JobContext

__all__ = ["ProcrastinateDispatcher"]

QUEUE = "batonflow"
TASK = "batonflow.ring"
SECONDS_BETWEEN_LOOKS = 1.0
"""Seconds between searches for jobs whose time has come, as Procrastinate does not notify of them."""
MOST_CONNECTIONS = 3


class ProcrastinateDispatcher:
    """A dispatcher with jobs of Procrastinate, in the queue ``batonflow``.

    The tables are created at first use. A waiting job has the id of its run as queueing lock, so that a run has one.

    Args:
        dsn: The address of the database, which leads directly to the server.
        schema: The schema of Procrastinate's tables.

    Raises:
        ImportError: Procrastinate is not installed.
        StoreError: The schema cannot have this name.

    Example:
        >>> bell = ProcrastinateDispatcher("postgresql://app@db/prod")
        >>> await Worker(flow, dispatcher=bell).run()
    """

    def __init__(self, dsn: str, schema: str = "procrastinate") -> None:
        self._library = _library()
        self._schema = check_plain_schema_name(schema)
        self._dsn = dsn
        self._app: App | None = None
        self._opening = asyncio.Lock()

    async def ring(self, run_id: str, not_before: datetime | None = None, priority: int = 0) -> None:
        """See ``Dispatcher.ring``."""
        at = None if not_before is None else not_before.astimezone()
        with bell_may_be_lost(run_id):
            app = await self._opened()
            job = app.configure_task(TASK, queue=QUEUE, queueing_lock=run_id, priority=priority, schedule_at=at)
            with suppress(self._library.exceptions.AlreadyEnqueued):  # it has not rung yet
                await job.defer_async(run_id=run_id)

    async def serve(self, on_ring: Callable[[str], None]) -> None:
        """See ``Dispatcher.serve``."""
        app = await self._opened()
        await self._delete_stalled(app)
        await app.run_worker_async(
            queues=[QUEUE],
            name="batonflow",
            fetch_job_polling_interval=SECONDS_BETWEEN_LOOKS,
            delete_jobs="always",
            additional_context={"on_ring": on_ring},
            install_signal_handlers=False,
        )

    async def forget(self, run_id: str) -> None:
        """See ``Dispatcher.forget``."""
        jobs = (await self._opened()).job_manager
        for job in await jobs.list_jobs_async(queue=QUEUE, task=TASK, status="todo", queueing_lock=run_id):
            assert job.id is not None
            await jobs.cancel_job_by_id_async(job.id, delete_job=True)

    async def aclose(self) -> None:
        """See ``Dispatcher.aclose``."""
        async with self._opening:
            app, self._app = self._app, None
            if app is not None:
                await app.close_async()

    async def _opened(self) -> "App":
        async with self._opening:
            if self._app is not None:
                return self._app
            await self._create_tables()
            connector = self._library.PsycopgConnector(
                conninfo=self._dsn, kwargs=self._options(), min_size=1, max_size=MOST_CONNECTIONS
            )
            app: App = self._library.App(connector=connector)
            app.task(name=TASK, queue=QUEUE, pass_context=True)(_rung)
            try:
                await app.open_async()
            except BaseException:
                await app.close_async()
                raise
            self._app = app
            return app

    def _options(self) -> dict[str, str]:
        return {"options": f"-c search_path={self._schema}", "application_name": "batonflow dispatcher"}

    async def _create_tables(self) -> None:
        """Create the tables, unless another process has done so."""
        psycopg = self._psycopg()
        async with await psycopg.AsyncConnection.connect(self._dsn, **self._options()) as connection:
            lock = f"batonflow/procrastinate/{self._schema}"
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (lock,))
            found = await connection.execute("SELECT to_regclass('procrastinate_jobs') IS NOT NULL")
            if await found.fetchone() == (True,):
                return
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}".encode())
            await connection.execute(self._library.schema.SchemaManager.get_schema().encode())

    def _psycopg(self) -> Any:
        import psycopg  # noqa: PLC0415 - an extra

        return psycopg

    async def _delete_stalled(self, app: "App") -> None:
        """Delete the jobs of killed workers."""
        for job in await app.job_manager.get_stalled_jobs(queue=QUEUE, task_name=TASK):
            with suppress(self._library.exceptions.ConnectorException):  # another worker deletes it
                await app.job_manager.finish_job(job, self._library.jobs.Status.FAILED, delete_job=True)


async def _rung(context: "JobContext", run_id: str) -> None:
    cast("Any", context).additional_context["on_ring"](run_id)


def _library() -> Any:
    """Return Procrastinate, which is imported at first use."""
    try:
        import procrastinate  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(
            f"The dispatcher needs procrastinate, which is not installed: {how_to_install('fleet')}"
        ) from error
    return procrastinate
