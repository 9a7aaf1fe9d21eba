"""Messages in a SQLite file."""

import re
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import field_validator
from typing_extensions import override

from batonflow.agents.memory.table_store import DEFAULT_TABLE, TableChatStore
from batonflow.durable.stores.sqlite_schema import make_private
from batonflow.workflow_core.errors import StoreError

__all__ = ["DEFAULT_TABLE", "SQLiteChatStore"]

SECONDS_TO_WAIT = 30.0
"""The time for which a call waits while another process writes to the file."""

_URL = re.compile(r"sqlite(?:\+\w+)?://(?:/(?P<path>.*))?", re.DOTALL)


class SQLiteChatStore(TableChatStore):
    """A chat store in a SQLite file, which any number of objects and processes may share.

    Every call opens the file, is one transaction, and closes it: there is nothing to close afterwards, and the object
    may be copied and used in any thread.

    Args:
        path: The file, or its address ``sqlite:///chats.db``. It is made at the first write; its folder must exist.
        table_name: The table for the messages.
        db_schema: Put before the table's name with ``_``, as SQLite has no schemas.

    Raises:
        ValueError: The address is of another kind, or names no file; the table's name is not a plain one.
        StoreError: By every method: the file cannot be opened, read or written.

    Example:
        >>> store = SQLiteChatStore("chats.db")
        >>> memory = Memory.from_defaults(session_id="ann", chat_store=store)
    """

    path: Path

    def __init__(
        self, path: str | PathLike[str], table_name: str = DEFAULT_TABLE, db_schema: str | None = None
    ) -> None:
        table_name = f"{db_schema}_{table_name}" if db_schema else table_name
        super().__init__(path=path, table_name=table_name)  # pyright: ignore[reportCallIssue] - the fields

    @field_validator("path", mode="before")
    @classmethod
    def _from_address(cls, value: Any) -> Any:
        text = str(value)
        if "://" in text:
            address = _URL.fullmatch(text)
            if address is None:
                # The rest of an address may hold a password.
                raise ValueError(
                    f"a SQLiteChatStore keeps messages in a file, and {text.partition('://')[0]}:// is the address of "
                    "another database: give a path or sqlite:///path, a PostgresChatStore, or a store of your own "
                    "derived from ArchivingChatStore"
                )
            text = address["path"] or ""
        if text in ("", ":memory:"):
            raise ValueError(
                "a SQLiteChatStore needs a file: give a path, or use SimpleChatStore to keep messages in memory"
            )
        # A program that changes its folder must find its messages again.
        return Path(text).absolute()

    @override
    @contextmanager
    def _transaction(self, writes: bool = True) -> Generator[sqlite3.Connection, None, None]:
        try:
            if not self.path.exists() and self.path.parent.is_dir():
                make_private(self.path)
            with closing(sqlite3.connect(self.path, timeout=SECONDS_TO_WAIT, isolation_level=None)) as connection:
                if connection.execute("PRAGMA journal_mode").fetchone() == ("delete",):
                    # As safe, and several times as fast where deleting a file is slow. A file in WAL mode stays in it.
                    connection.execute("PRAGMA journal_mode = TRUNCATE")
                known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (self.table_name,)).fetchone()
                connection.execute("BEGIN" if known and not writes else "BEGIN IMMEDIATE")
                for statement in () if known else self._schema():
                    connection.execute(statement)
                yield connection
                connection.execute("COMMIT")  # an exception leaves it out, and closing takes everything back
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"The messages in {self.path} cannot be read or written: {error}") from error

    def _schema(self) -> Sequence[str]:
        name = self.table_name
        return (
            (
                # The mark tells a store of runs that it may lie in the same file.
                f"CREATE TABLE IF NOT EXISTS {name} (/* batonflow */ "
                "id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, "
                "status TEXT NOT NULL, role TEXT NOT NULL, data TEXT NOT NULL)"
            ),
            f"CREATE INDEX IF NOT EXISTS {name}_by_key ON {name} (key, status, id)",
        )

    @override
    def _repeat(self, connection: sqlite3.Connection, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        connection.executemany(statement, rows)
