"""The store that a command works on."""

import sqlite3
import time
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

from batonflow.cli.arguments import STORE_VARIABLE, default_store
from batonflow.cli.errors import USAGE, CommandError
from batonflow.cli.output import complain
from batonflow.durable.store_protocol import RunInfo, RunStore
from batonflow.durable.stores.bounds import check_run_id
from batonflow.durable.stores.opening import open_store
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.durable.stores.sqlite_faults import is_busy
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.workflow import Workflow

__all__ = ["checked_run_id", "opened", "store_option", "the_run", "wait_until_free", "with_store"]

_SQLITE = "sqlite:///"


def with_store(workflow: Workflow, given: Namespace, *, needed: bool = False) -> Workflow:
    """The workflow with its runs where the command line says, else it itself, else the environment.

    Raises:
        CommandError: There is no store, and one is needed.
    """
    named = given.store if given.store is not None or workflow.__batonflow__.store is not None else default_store()
    if named is not None:
        wait_until_free(named)
        return Workflow.with_store(workflow, open_store(named))
    if workflow.__batonflow__.store is None and needed:
        raise CommandError(f"{given.object} has no store: name the file with --store, or in {STORE_VARIABLE}", USAGE)
    return workflow


def store_option(store: RunStore | None) -> str:
    """``--store FILE`` for a store that other processes can open, empty for any other."""
    if not isinstance(store, SQLiteStore):
        return ""
    path = store.path
    return f"--store {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}"


def opened(given: Namespace, *, writes: bool = False) -> AbstractAsyncContextManager[SQLiteStore]:
    """The store that is there already; closed at the end.

    Args:
        given: The command line.
        writes: Whether the command writes into it.

    Raises:
        CommandError: None is named, there is none, or another program keeps it locked.
    """
    named = given.store if given.store is not None else default_store()
    if not named:
        raise CommandError(f"no store is named: --store FILE, or {STORE_VARIABLE} in the environment", USAGE)
    path = Path(str(named).removeprefix(_SQLITE))
    if not path.is_file():
        raise CommandError(f"there is no store {named}: --store names the SQLite file that runs were kept in", USAGE)
    wait_until_free(path, writes=writes)
    return _open(path)


def wait_until_free(named: str | Path, *, writes: bool = True) -> None:
    """Wait for a store that another program has locked, and say so; the store itself would wait in silence.

    Raises:
        CommandError: It stays locked.
    """
    path = Path(str(named).removeprefix(_SQLITE))
    begun, told = time.monotonic(), False
    while path.is_file() and _is_locked(path, writes=writes):
        waited = time.monotonic() - begun
        if waited > _PATIENCE:
            raise CommandError(
                f"{named} is locked by another program: end it (a shell of sqlite3, a backup, a process that is "
                "stopped), and try again"
            )
        if waited > _SILENCE and not told:
            complain(f"{named} is locked by another program; waiting {_PATIENCE:g} seconds for it")
            told = True
        time.sleep(_LOOK_SECONDS)


_PATIENCE, _SILENCE, _LOOK_SECONDS = 10.0, 1.0, 0.05


def _is_locked(path: Path, *, writes: bool) -> bool:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=0, uri=True)) as connection:
            connection.isolation_level = None
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            if writes:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        return is_busy(error)  # what else is wrong with it the store says itself
    return False


@asynccontextmanager
async def _open(path: Path) -> AsyncGenerator[SQLiteStore]:
    store = SQLiteStore(path)
    try:
        yield store
    finally:
        await store.aclose()


def checked_run_id(run_id: str) -> str:
    """The id itself.

    Raises:
        CommandError: No store takes it.
    """
    try:
        return check_run_id(run_id)
    except StoreError as error:
        raise CommandError(str(error), USAGE) from error


async def the_run(store: RunStore, run_id: str) -> RunInfo:
    """What the store says of a run.

    Raises:
        CommandError: It has no such run, or that is no run id.
    """
    info = await store.info(checked_run_id(run_id))
    if info is None:
        raise CommandError(f"the store has no run {run_id!r}: `batonflow runs` lists those it has", USAGE)
    return info
