"""The store for the option ``store=...``."""

import os
from os import PathLike
from typing import Any, cast
from weakref import WeakValueDictionary

from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.bounds import check_path
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core.errors import StoreError

__all__ = ["open_store"]

_SQLITE = "sqlite:///"


def open_store(store: "str | PathLike[str] | RunStore") -> RunStore:
    """Return the store for ``Workflow(store=...)``.

    Args:
        store: ``"memory:"``, the path of a SQLite file, its address (``sqlite:///runs.db``, ``sqlite:////var/runs.db``),
            or a store.

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
    text = check_path(cast("str | PathLike[str]", given))
    if text.startswith(_SQLITE):
        return _store_at(text.removeprefix(_SQLITE))
    if "://" in text:
        raise StoreError(
            f'store={text!r}: there are stores in memory ("memory:") and in SQLite files ("runs.db", '
            '"sqlite:///runs.db"); pass an object that is a RunStore for any other'
        )
    return _store_at(text)


def _store_at(path: str) -> SQLiteStore:
    """Return the store of a file; all workflows of a process share the store of a file."""
    known = _by_path.get(os.path.realpath(path)) if path else None
    if known is None or known.is_closed:
        known = SQLiteStore(path)
        _by_path[os.path.realpath(path)] = known
    return known


_by_path: WeakValueDictionary[str, SQLiteStore] = WeakValueDictionary()
