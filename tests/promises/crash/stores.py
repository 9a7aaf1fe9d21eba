"""The store of the processes that work in a folder: its SQLite file, or the database that a file there names."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.stores.postgres import PostgresStore
from batonflow.durable.stores.sqlite import SQLiteStore
from tests.postgres import drop_schema, new_schema, server_address

__all__ = ["KINDS", "SECONDS_TO_NOTICE", "KeptStore", "damages_of", "is_noticed_later", "kept_in", "store_in"]

KINDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.external("postgresql")))
KeptStore = SQLiteStore | PostgresStore

SECONDS_TO_NOTICE = 0.2
"""The database notices the end of a process a little later than the system."""


@contextmanager
def kept_in(folder: Path, kind: str) -> Generator[None]:
    """Let the processes of a folder keep their runs in a store of this kind."""
    if kind == "sqlite":
        yield
        return
    address, schema = server_address(), new_schema()
    (folder / "postgres").write_text(f"{schema} {address}")
    try:
        yield
    finally:
        drop_schema(address, schema)


def store_in(folder: Path, **options: Any) -> KeptStore:
    """Return a store of the processes of a folder."""
    if not (folder / "postgres").exists():
        return SQLiteStore(folder / "runs.db", **options)
    schema, address = (folder / "postgres").read_text().split(" ", 1)
    options.pop("busy_seconds", None)
    return PostgresStore(address, schema, **options)


def is_noticed_later(folder: Path) -> bool:
    """Tell whether the end of a process is noticed a little later."""
    return (folder / "postgres").exists()


def damages_of(folder: Path) -> list[str]:
    """Return the damages of a SQLite file."""
    if not (folder / "runs.db").exists():
        return []
    with closing(sqlite3.connect(folder / "runs.db")) as connection:
        said = connection.execute("PRAGMA integrity_check").fetchall()
    return [] if said == [("ok",)] else [f"the file is damaged: {said}"]
