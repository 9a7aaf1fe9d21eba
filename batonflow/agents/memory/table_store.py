"""Messages in a table of a database."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from pydantic import ConfigDict, Field
from pydantic_core import PydanticSerializationError
from typing_extensions import override

from batonflow.agents.memory.chat_store import ArchivingChatStore, MessageStatus
from batonflow.llms import ChatMessage
from batonflow.values.serializers import as_json
from batonflow.workflow_core.errors import StoreError

__all__ = ["DEFAULT_TABLE", "TableChatStore"]

DEFAULT_TABLE = "batonflow_messages"


class TableChatStore(ArchivingChatStore):
    """A chat store in a table, which any number of objects and processes may share.

    Every call is one transaction. There is nothing to close afterwards, and the object may be copied and used in any
    thread.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # an address may hold a password

    table_name: str = Field(default=DEFAULT_TABLE, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")

    _mark: ClassVar[str] = "?"
    """The mark for a value in a statement."""

    @abstractmethod
    def _transaction(self, writes: bool = True) -> AbstractContextManager[Any]:
        """Begin a transaction, in which the table is there, and end it."""

    @abstractmethod
    def _repeat(self, connection: Any, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Carry out a statement once for each row of values."""

    def _rows(
        self, connection: Any, key: str, status: MessageStatus | None, newest: bool = False
    ) -> list[tuple[int, str]]:
        """Return numbers and texts of messages, oldest first, or the newest one."""
        chosen = "" if status is None else f" AND status = {self._mark}"
        order = "DESC LIMIT 1" if newest else "ASC"
        query = f"SELECT id, data FROM {self.table_name} WHERE key = {self._mark}{chosen} ORDER BY id {order}"  # noqa: S608 - checked
        return connection.execute(query, (key,) if status is None else (key, status.value)).fetchall()

    def _insert(self, connection: Any, key: str, rows: Sequence[tuple[str, str]]) -> None:
        marks = ", ".join([self._mark] * 4)
        statement = f"INSERT INTO {self.table_name} (key, status, role, data) VALUES ({marks})"  # noqa: S608 - checked
        active = MessageStatus.ACTIVE.value
        self._repeat(connection, statement, [(key, active, role, data) for role, data in rows])

    def _delete(self, connection: Any, numbers: Sequence[int]) -> None:
        self._repeat(
            connection,
            f"DELETE FROM {self.table_name} WHERE id = {self._mark}",  # noqa: S608 - checked
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
        statement = f"UPDATE {self.table_name} SET status = {self._mark} WHERE id = {self._mark}"  # noqa: S608 - checked
        with self._transaction() as connection:
            rows = self._rows(connection, key, MessageStatus.ACTIVE)
            messages = [_read(data) for _, data in rows]
            chosen = choose(list(messages))
            archived = MessageStatus.ARCHIVED.value
            self._repeat(connection, statement, [(archived, number) for number, _ in rows[:chosen]])
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
