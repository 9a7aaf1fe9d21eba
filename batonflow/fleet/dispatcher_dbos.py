"""A dispatcher with DBOS: a bell is a workflow in a queue, which a worker takes and deletes."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from batonflow.clock import current_source
from batonflow.durable.stores.postgres_connection import check_plain_schema_name
from batonflow.fleet.dispatcher_protocol import bell_may_be_lost
from batonflow.lazy import how_to_install

if TYPE_CHECKING:
    from dbos import DBOSClient, EnqueueOptions

__all__ = ["DBOSDispatcher"]

NAME = "batonflow"
"""The name of the queue, of the application, and of its executors."""
WORKFLOW = "batonflow.ring"
VERSION = "batonflow-1"
LOWEST_PRIORITY = 1001
"""DBOS begins with the smallest number, which is at least 1."""
MOST_CONNECTIONS = 4
"""Connections of the application, and of the client; one more listens."""
SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_END = 1
"""Seconds for the bells that are ringing; DBOS does not close the connections of later ones."""
SECONDS_BETWEEN_DELETIONS = 60.0
MOST_DELETIONS = 1000
ENDED = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]

_on_ring: Callable[[str], object] | None = None
"""The function of the worker of this process, as DBOS has one application in a process."""


class DBOSDispatcher:
    """A dispatcher with workflows of DBOS, in the queue ``batonflow`` of an application of this name.

    The tables are created at first use. A workflow that waits or runs has the id of its run as deduplication id, so
    that a run has one. A process whose own code launches DBOS can ring, but cannot serve.

    Args:
        dsn: The address of the database.
        schema: The schema of the tables of DBOS.

    Raises:
        ImportError: DBOS is not installed.
        StoreError: The schema cannot have this name.

    Example:
        >>> bell = DBOSDispatcher("postgresql://app@db/prod")
        >>> await Worker(flow, dispatcher=bell).run()
    """

    def __init__(self, dsn: str, schema: str = "dbos") -> None:
        self._library = _library()
        self._schema = check_plain_schema_name(schema)
        self._dsn = dsn
        # In a thread, which goes on after a cancellation, and whose connections are to be closed then.
        self._opening: asyncio.Task[DBOSClient] | None = None

    async def ring(self, run_id: str, not_before: datetime | None = None, priority: int = 0) -> None:
        """See ``Dispatcher.ring``."""
        options: EnqueueOptions = {
            "workflow_name": WORKFLOW,
            "queue_name": NAME,
            "workflow_id": f"{_prefix(run_id)}{secrets.token_hex(6)}",
            "deduplication_id": run_id,
            "duplication_policy": "return-existing",
            "priority": LOWEST_PRIORITY - priority,
        }
        if not_before is not None:
            options["delay_seconds"] = max(0.0, not_before.timestamp() - current_source().now())
        with bell_may_be_lost(run_id):
            await (await self._opened()).enqueue_async(options, run_id)

    async def serve(self, on_ring: Callable[[str], None]) -> None:
        """See ``Dispatcher.serve``."""
        global _on_ring  # noqa: PLW0603 - DBOS itself is global
        loop = asyncio.get_running_loop()
        client = await self._opened()
        dbos = self._library.DBOS
        _register(dbos)
        config = {
            "name": NAME,
            "system_database_url": self._dsn,
            "dbos_system_schema": self._schema,
            "application_version": VERSION,
            "executor_id": NAME,
            "log_level": "WARNING",
            "sys_db_pool_size": MOST_CONNECTIONS,
        }
        dbos(config=config)
        dbos.listen_queues([NAME])  # this fails where the process has launched DBOS itself
        _on_ring = lambda run_id: loop.call_soon_threadsafe(on_ring, run_id)  # noqa: E731
        working = asyncio.create_task(asyncio.to_thread(self._launch))
        try:
            while True:
                await asyncio.shield(working)
                await asyncio.sleep(SECONDS_BETWEEN_DELETIONS)
                working = asyncio.create_task(asyncio.to_thread(self._delete_rung, client))
        finally:
            await asyncio.wait([working])
            _on_ring = None
            await asyncio.to_thread(dbos.destroy, workflow_completion_timeout_sec=SECONDS_TO_END)

    async def forget(self, run_id: str) -> None:
        """See ``Dispatcher.forget``."""
        client = await self._opened()
        found = await client.list_workflows_async(
            queue_name=NAME, workflow_id_prefix=_prefix(run_id), status=["ENQUEUED", "DELAYED"], load_output=False
        )
        # The prefix of one id may begin others.
        await client.delete_workflows_async([one.workflow_id for one in found if one.deduplication_id == run_id])

    async def aclose(self) -> None:
        """See ``Dispatcher.aclose``."""
        opening, self._opening = self._opening, None
        if opening is not None:
            with suppress(Exception):  # it was not opened
                await asyncio.to_thread((await opening).destroy)

    async def _opened(self) -> "DBOSClient":
        if self._opening is None or (self._opening.done() and self._opening.exception()):
            self._opening = asyncio.create_task(asyncio.to_thread(self._connected))
        return await asyncio.shield(self._opening)

    def _connected(self) -> "DBOSClient":
        self._library.DBOS.migrate(self._dsn, schema=self._schema)
        return self._library.DBOSClient(
            system_database_url=self._dsn,
            dbos_system_schema=self._schema,
            application_name=NAME,
            retry_connection_errors=False,
            system_database_pool_size=MOST_CONNECTIONS,
        )

    def _launch(self) -> None:
        self._library.DBOS.launch()
        self._library.DBOS.register_queue(NAME, polling_interval_sec=SECONDS_BETWEEN_LOOKS)

    def _delete_rung(self, client: "DBOSClient") -> None:
        found = client.list_workflows(
            queue_name=NAME, status=ENDED, limit=MOST_DELETIONS, load_input=False, load_output=False
        )
        if found:
            client.delete_workflows([one.workflow_id for one in found])


def _prefix(run_id: str) -> str:
    return f"{NAME}/{run_id}/"


@cache
def _register(dbos: Any) -> None:
    """Register the workflow, once in a process."""

    @dbos.workflow(name=WORKFLOW)
    def rung(run_id: str) -> None:  # pyright: ignore[reportUnusedFunction]
        if _on_ring is not None:
            with suppress(RuntimeError):  # the event loop has been closed
                _on_ring(run_id)


def _library() -> Any:
    """Return DBOS, which is imported at first use."""
    try:
        import dbos  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(f"The dispatcher needs dbos, which is not installed: {how_to_install('dbos')}") from error
    return dbos
