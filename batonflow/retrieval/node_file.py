"""The SQLite file of a store of nodes: its tables, its versions, and its transactions.

Many processes read; one writes at a time. A process that is killed leaves the transactions before.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

import numpy as np

from batonflow.nodes import BaseNode, MetadataMode
from batonflow.nodes.schema import node_of
from batonflow.retrieval import postings
from batonflow.retrieval.postings import Postings
from batonflow.retrieval.words import WORDS_VERSION, words_of

__all__ = ["EMBED", "Array", "NodeFile", "NodeStoreError", "marks_for", "node_in", "parts_of"]

VERSION = 1
_PATIENCE = 30.0
"""Seconds to wait for another process that writes."""
EMBED = MetadataMode.EMBED
_ID = 0x626E6F64  # in the header of the file
_SCHEMA = f"""
CREATE TABLE node (
    n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, doc TEXT, hash TEXT NOT NULL, body TEXT NOT NULL,
    metadata TEXT NOT NULL, words INTEGER NOT NULL
);
CREATE INDEX node_by_doc ON node (doc);
CREATE TABLE document (id TEXT PRIMARY KEY, hash TEXT, metadata TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE vector (model TEXT, n INTEGER, value BLOB NOT NULL, PRIMARY KEY (model, n)) WITHOUT ROWID;
CREATE TABLE indexes (number INTEGER PRIMARY KEY, id TEXT UNIQUE, type TEXT NOT NULL, struct TEXT NOT NULL);
CREATE TABLE member (number INTEGER, n INTEGER, place INTEGER, parent INTEGER, PRIMARY KEY (number, n)) WITHOUT ROWID;
CREATE TABLE keyword (number INTEGER, word TEXT, n INTEGER, PRIMARY KEY (number, word, n)) WITHOUT ROWID;
CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
{postings.SCHEMA}
"""

Array = np.ndarray[Any, Any]


class NodeStoreError(ValueError):
    """A file of nodes cannot be used."""


class NodeFile:
    """A file of nodes, or a database in memory.

    Args:
        path: The file; ``":memory:"`` for a database that ends with the process.

    Raises:
        NodeStoreError: The file is not one of batonflow, or a newer version has written it.
    """

    def __init__(self, path: str | PathLike[str] = ":memory:") -> None:
        self.path = fspath(path)
        self._lock = threading.RLock()
        if self.path != ":memory:":
            Path(self.path).absolute().parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = sqlite3.connect(
                self.path, check_same_thread=False, isolation_level=None, timeout=_PATIENCE
            )
        except sqlite3.OperationalError as error:
            raise NodeStoreError(f"{self.path} cannot be opened: {error}") from error
        self._postings = Postings(self._connection)
        self._version = -1
        self._numbers: Array | None = None
        self._matrices: dict[str, tuple[Array, Array]] = {}
        self._columns: dict[str, list[Any]] = {}
        self._members: dict[int, Array] = {}
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            problem = "is locked by another program" if locked else "is not a file of nodes"
            raise NodeStoreError(f"{self.path} {problem}: {error}") from error

    def _open(self) -> None:
        read = self._connection.execute
        self._use_wal()
        for setting in ("synchronous = NORMAL", "foreign_keys = OFF"):
            read(f"PRAGMA {setting}")
        with self.writing():
            of, version = read("PRAGMA application_id").fetchone()[0], read("PRAGMA user_version").fetchone()[0]
            if not read("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                for one in _SCHEMA.split(";"):
                    read(one)
                read(f"PRAGMA application_id = {_ID}")
                read(f"PRAGMA user_version = {VERSION}")
                read("INSERT INTO fact VALUES ('words', ?)", (str(WORDS_VERSION),))
            elif of != _ID:
                raise NodeStoreError(f"{self.path} is a database of another program: give another path")
            elif version > VERSION:
                raise NodeStoreError(
                    f"{self.path} was written by a newer batonflow (version {version} of its tables): update this one"
                )
            elif read("SELECT value FROM fact WHERE name = 'words'").fetchone()[0] != str(WORDS_VERSION):
                self._read_words_again()

    def _use_wal(self) -> None:
        """Write ahead. SQLite does not wait for another process that switches to it at this moment."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)
            else:
                return

    def _read_words_again(self) -> None:
        """Make the words of all nodes again, because the rules for words have changed."""
        for table in ("posting", "block"):
            self._connection.execute(f"DELETE FROM {table}")  # noqa: S608 - ours
        nodes = self._rows("words", [])
        for some in parts_of(nodes):
            self._postings.add((row[3], words_of(node_in(row).get_content(EMBED))) for row in some)
        self._connection.execute("UPDATE fact SET value = ? WHERE name = 'words'", (str(WORDS_VERSION),))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def copy_to(self, target: sqlite3.Connection) -> None:
        """Copy everything into another database."""
        with self._lock:
            self._connection.backup(target)

    @classmethod
    def copy_of(cls, source: sqlite3.Connection) -> Self:
        """Return a store in memory with everything of a database."""
        made = cls()
        source.backup(made._connection)
        made._forget()
        made._open()
        return made

    @contextmanager
    def writing(self) -> Generator[None]:
        """Make one transaction of the writes in the block."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # some errors have ended it
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._forget()

    @contextmanager
    def writing_durably(self) -> Generator[None]:
        """Make one transaction of the block, which a loss of power leaves there with all transactions before."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("PRAGMA synchronous = FULL")
            try:
                with self.writing():
                    yield
            finally:
                self._connection.execute("PRAGMA synchronous = NORMAL")

    @contextmanager
    def reading(self) -> Generator[None]:
        """Read one state of the file in the block, whatever other processes write meanwhile."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN")
            try:
                version = self._connection.execute("PRAGMA data_version").fetchone()[0]
                if version != self._version:
                    self._forget()
                    self._version = version
                yield
            finally:
                self._connection.execute("COMMIT")

    def _forget(self) -> None:
        """Forget the tables in memory, because the file has changed."""
        self._postings.forget()
        self._numbers = None
        self._matrices.clear()
        self._columns.clear()
        self._members.clear()

    def _rows(self, condition: str, values: Sequence[Any]) -> list[tuple[str, str, str, int]]:
        query = f"SELECT id, body, metadata, n FROM node WHERE {condition} ORDER BY n"  # noqa: S608 - ours
        return self._connection.execute(query, list(values)).fetchall()


def node_in(row: tuple[str, str, str, int]) -> BaseNode:
    """Return the node in a row."""
    return node_of({**json.loads(row[1]), "metadata": json.loads(row[2])})


def parts_of(values: Sequence[Any]) -> Generator[list[Any]]:
    """Yield values in lists that fit into one statement."""
    for begin in range(0, len(values), 900):
        yield list(values[begin : begin + 900])


def marks_for(values: Sequence[Any]) -> str:
    """Return the marks of values in a statement."""
    return ", ".join("?" * len(values))
