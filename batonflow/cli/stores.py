"""The store of a command."""

import shlex
import sqlite3
import time
from argparse import Namespace
from contextlib import AbstractAsyncContextManager, aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from batonflow.cli.arguments import STORE_VARIABLE, default_store
from batonflow.cli.errors import USAGE, CommandError
from batonflow.cli.output import check_folder, complain
from batonflow.durable.store_protocol import RunInfo, RunStore
from batonflow.durable.stores.addresses import is_postgres
from batonflow.durable.stores.bounds import check_run_id
from batonflow.durable.stores.opening import open_store
from batonflow.durable.stores.postgres_connection import address_of
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.durable.stores.sqlite_faults import explained, is_busy
from batonflow.durable.stores.sqlite_schema import DatabaseFile
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.workflow import Workflow

if TYPE_CHECKING:
    from batonflow.durable.stores.postgres import PostgresStore

__all__ = ["KeptStore", "check_store", "checked_run_id", "opened", "store_option", "the_run", "with_store"]

KeptStore: TypeAlias = "SQLiteStore | PostgresStore"
"""A store that keeps runs after the end of a process."""

_SQLITE = "sqlite:///"


def with_store(workflow: Workflow, given: Namespace, *, needed: bool = False) -> Workflow:
    """Return the workflow with the store of ``--store``, of its own, or of the environment, in this order.

    Raises:
        CommandError: No store is named, and ``needed`` is True. Or the store cannot be used.
        StoreError: The file cannot be written.
    """
    named = given.store if given.store is not None or workflow.__batonflow__.store is not None else default_store()
    if named is not None:
        check_store(named)
        return Workflow.with_store(workflow, open_store(named))
    if workflow.__batonflow__.store is None and needed:
        raise CommandError(f"{given.object} has no store: name the file with --store, or in {STORE_VARIABLE}", USAGE)
    return workflow


def store_option(store: RunStore | None) -> str:
    """Return ``--store FILE`` or ``--store ADDRESS`` without a password, and an empty text for stores in memory."""
    dsn = getattr(store, "direct_dsn", None)  # of a store in PostgreSQL
    if dsn:
        return f"--store {shlex.quote(address_of(dsn, with_user=True))}"
    if not isinstance(store, SQLiteStore):
        return ""
    path = store.path
    return f"--store {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}"


def opened(given: Namespace, *, writes: bool = False) -> AbstractAsyncContextManager["KeptStore"]:
    """Open an existing store, and close it at the end.

    Args:
        given: The command line.
        writes: True if the command writes into it.

    Raises:
        CommandError: No store is named, the file does not exist, or another program keeps it locked.
    """
    named = given.store if given.store is not None else default_store()
    if not named:
        raise CommandError(f"no store is named: --store FILE, or {STORE_VARIABLE} in the environment", USAGE)
    name = str(named).removeprefix(_SQLITE)
    if "://" in name or is_postgres(name):
        return aclosing(cast("PostgresStore", open_store(name)))
    path = Path(name)
    if not path.is_file():
        raise CommandError(f"there is no store {named}: --store names the SQLite file of earlier runs", USAGE)
    _wait_until_free(path, writes=writes)
    return aclosing(SQLiteStore(path))


def check_store(named: str) -> None:
    """Check that a store can be made or written, before a command begins. Wait for a locked store.

    Raises:
        CommandError: The store stays locked, or its folder does not exist.
        StoreError: The file cannot be written.
    """
    path = named.removeprefix(_SQLITE)
    if path and "://" not in path and not is_postgres(path):
        if not Path(path).exists():
            check_folder(path, f"the store {named}")
        _wait_until_free(path)


def _wait_until_free(named: str | Path, *, writes: bool = True) -> None:
    """Wait for a store that another program has locked, with a message after a second.

    Raises:
        CommandError: It stays locked.
        StoreError: The file cannot be written, though the command writes.
    """
    path = Path(str(named).removeprefix(_SQLITE))
    begun, has_complained = time.monotonic(), False
    while path.is_file() and _is_locked(path, writes=writes):
        waited = time.monotonic() - begun
        if waited > _PATIENCE:
            raise CommandError(
                f"{named} is locked by another program: end it (a shell of sqlite3, a backup, a process that is "
                "stopped), and try again"
            )
        if waited > _SILENCE and not has_complained:
            complain(f"{named} is locked by another program; waiting {_PATIENCE:g} seconds for it")
            has_complained = True
        time.sleep(_LOOK_SECONDS)


_PATIENCE, _SILENCE, _LOOK_SECONDS = 10.0, 1.0, 0.05


def _is_locked(path: Path, *, writes: bool) -> bool:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=0, uri=True)) as connection:
            connection.isolation_level = None
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            if writes:
                connection.execute("BEGIN IMMEDIATE")
                # Read-only files begin such a transaction too; only a change shows that they cannot be written.
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                connection.execute(f"PRAGMA user_version = {version}")
                connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        if writes and error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise explained(DatabaseFile(path.absolute(), "process"), error, 0.0) from error
        return is_busy(error)  # the store itself reports other errors
    return False


def checked_run_id(run_id: str) -> str:
    """Return a valid run id.

    Raises:
        CommandError: Stores do not accept the id.
    """
    try:
        return check_run_id(run_id)
    except StoreError as error:
        raise CommandError(str(error), USAGE) from error


async def the_run(store: RunStore, run_id: str) -> RunInfo:
    """Return the record of a run.

    Raises:
        CommandError: The store has no such run, or the id is not valid.
    """
    info = await store.info(checked_run_id(run_id))
    if info is None:
        raise CommandError(f"the store has no run {run_id!r}: `batonflow runs` lists its runs", USAGE)
    return info
