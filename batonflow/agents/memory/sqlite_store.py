"""Messages in a SQLite file."""

import re
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, field_validator
from pydantic_core import PydanticSerializationError
from typing_extensions import override

from batonflow.agents.memory.chat_store import ArchivingChatStore, MessageStatus
from batonflow.durable.stores.sqlite_schema import make_private
from batonflow.llms import ChatMessage
from batonflow.values.serializers import as_json
from batonflow.workflow_core.errors import StoreError

__all__ = ["DEFAULT_TABLE", "SQLiteChatStore"]

DEFAULT_TABLE = "batonflow_messages"
SECONDS_TO_WAIT = 30.0
"""The time for which a call waits while another process writes to the file."""

_URL = re.compile(r"sqlite(?:\+\w+)?://(?:/(?P<path>.*))?", re.DOTALL)


class SQLiteChatStore(ArchivingChatStore):
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

    model_config = ConfigDict(hide_input_in_errors=True)  # an address may hold a password

    path: Path
    table_name: str = Field(default=DEFAULT_TABLE, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")

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
                    f"chat stores keep messages in SQLite files, and {text.partition('://')[0]}:// is the address of "
                    "another database: give a path or sqlite:///path, or a store of your own derived from "
                    "ArchivingChatStore"
                )
            text = address["path"] or ""
        if text in ("", ":memory:"):
            raise ValueError(
                "a SQLiteChatStore needs a file: give a path, or use SimpleChatStore to keep messages in memory"
            )
        # A program that changes its folder must find its messages again.
        return Path(text).absolute()

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

    def _rows(
        self, connection: sqlite3.Connection, key: str, status: MessageStatus | None, newest: bool = False
    ) -> list[tuple[int, str]]:
        """Return numbers and texts of messages, oldest first, or the newest one."""
        chosen = "" if status is None else " AND status = ?"
        order = "DESC LIMIT 1" if newest else "ASC"
        query = f"SELECT id, data FROM {self.table_name} WHERE key = ?{chosen} ORDER BY id {order}"  # noqa: S608 - checked
        return connection.execute(query, (key,) if status is None else (key, status.value)).fetchall()

    def _insert(self, connection: sqlite3.Connection, key: str, rows: Sequence[tuple[str, str]]) -> None:
        statement = f"INSERT INTO {self.table_name} (key, status, role, data) VALUES (?, ?, ?, ?)"  # noqa: S608 - checked
        active = MessageStatus.ACTIVE.value
        connection.executemany(statement, [(key, active, role, data) for role, data in rows])

    def _delete(self, connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
        connection.executemany(
            f"DELETE FROM {self.table_name} WHERE id = ?",  # noqa: S608 - checked
            [(number,) for number in numbers],
        )

    @override
    def get_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> list[ChatMessage]:
        with self._transaction(writes=False) as connection:
            rows = self._rows(connection, key, status)
        return [_read(data) for _, data in rows]

    @override
    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        rows = [_written(message) for message in messages]
        with self._transaction() as connection:
            self._delete(connection, [number for number, _ in self._rows(connection, key, None)])
            self._insert(connection, key, rows)

    @override
    def add_message(self, key: str, message: ChatMessage) -> None:
        self.add_messages(key, [message])

    @override
    def add_messages(self, key: str, messages: Sequence[ChatMessage]) -> None:
        rows = [_written(message) for message in messages]
        with self._transaction() as connection:
            self._insert(connection, key, rows)

    @override
    def delete_messages(self, key: str, status: MessageStatus | None = None) -> list[ChatMessage] | None:
        with self._transaction() as connection:
            rows = self._rows(connection, key, status)
            self._delete(connection, [number for number, _ in rows])
        return [_read(data) for _, data in rows] or None

    @override
    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        with self._transaction() as connection:
            rows = self._rows(connection, key, MessageStatus.ACTIVE)[idx : idx + 1] if idx >= 0 else []
            self._delete(connection, [number for number, _ in rows])
        return _read(rows[0][1]) if rows else None

    @override
    def delete_last_message(self, key: str) -> ChatMessage | None:
        with self._transaction() as connection:
            rows = self._rows(connection, key, MessageStatus.ACTIVE, newest=True)
            self._delete(connection, [number for number, _ in rows])
        return _read(rows[0][1]) if rows else None

    @override
    def get_keys(self) -> list[str]:
        query = f"SELECT key FROM {self.table_name} GROUP BY key ORDER BY min(id)"  # noqa: S608 - checked
        with self._transaction(writes=False) as connection:
            return [key for (key,) in connection.execute(query)]

    @override
    def archive_messages(self, key: str, choose: Callable[[list[ChatMessage]], int]) -> list[ChatMessage]:
        statement = f"UPDATE {self.table_name} SET status = ? WHERE id = ?"  # noqa: S608 - checked
        with self._transaction() as connection:
            rows = self._rows(connection, key, MessageStatus.ACTIVE)
            messages = [_read(data) for _, data in rows]
            chosen = choose(list(messages))
            archived = MessageStatus.ARCHIVED.value
            connection.executemany(statement, [(archived, number) for number, _ in rows[:chosen]])
        return messages[:chosen]


def _written(message: ChatMessage) -> tuple[str, str]:
    try:
        return message.role.value, as_json(message.model_dump(mode="json")).decode()
    except PydanticSerializationError as error:
        raise StoreError(
            f"The {message.role.value} message {str(message)[:60]!r} cannot be written as JSON: {error}. Keep plain "
            "data in its additional_kwargs"
        ) from error


def _read(data: str) -> ChatMessage:
    return ChatMessage.model_validate_json(data)
