"""The store for the option ``store=...``."""

import os
from os import PathLike
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.addresses import is_postgres
from batonflow.durable.stores.bounds import check_path
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core.errors import StoreError

if TYPE_CHECKING:
    from batonflow.durable.stores.postgres import PostgresStore

__all__ = ["open_store"]

_SQLITE = "sqlite:///"


def open_store(store: "str | PathLike[str] | RunStore") -> RunStore:
    """Return the store for ``Workflow(store=...)``.

    Args:
        store: ``"memory:"``, the path of a SQLite file, its address (``sqlite:///runs.db``, ``sqlite:////var/runs.db``),
            the address of a PostgreSQL database (``postgresql://user@host/database``), or a store.

    Raises:
        StoreError: The kind of store is unknown, or the value cannot be the path of a file.
    """
    given: Any = store
    if isinstance(given, RunStore) and not isinstance(given, type):  # a class also has the methods of its instances
        return given
    if store == "memory:":
        return MemoryStore()
    if not isinstance(given, str | PathLike):
        raise StoreError(f'store={given!r}: give the path of a SQLite file, "memory:", or an object that is a RunStore')
    if isinstance(given, str) and is_postgres(given):
        return _database_at(given)
    text = check_path(cast("str | PathLike[str]", given))
    if text.startswith(_SQLITE):
        return _store_at(text.removeprefix(_SQLITE))
    if "://" in text:
        shown = f"{text.partition('://')[0]}://..." if "@" in text or "?" in text else text  # it may hold a password
        raise StoreError(
            f'store={shown!r}: there are stores in memory ("memory:"), in SQLite files ("runs.db", '
            '"sqlite:///runs.db") and in PostgreSQL ("postgresql://user@host/database"); pass an object that is a '
            "RunStore for any other"
        )
    return _store_at(text)


def _database_at(address: str) -> "PostgresStore":
    """Return the store of a database; all workflows of a process share it."""
    from batonflow.durable.stores.postgres import PostgresStore  # noqa: PLC0415 - most programs do not need it

    known = _by_address.get(address)
    if known is None or known.is_closed:
        known = PostgresStore(address)
        _by_address[address] = known
    return known


def _store_at(path: str) -> SQLiteStore:
    """Return the store of a file; all workflows of a process share the store of a file."""
    known = _by_path.get(os.path.realpath(path)) if path else None
    if known is None or known.is_closed:
        known = SQLiteStore(path)
        _by_path[os.path.realpath(path)] = known
    return known


_by_address: "WeakValueDictionary[str, PostgresStore]" = WeakValueDictionary()
_by_path: WeakValueDictionary[str, SQLiteStore] = WeakValueDictionary()
