"""Messages in a PostgreSQL database."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import override

from batonflow.agents.memory.table_store import DEFAULT_TABLE, TableChatStore
from batonflow.durable.stores.postgres_connection import address_of, check_schema_name, one_connection
from batonflow.workflow_core.errors import StoreError

__all__ = ["PostgresChatStore"]


class PostgresChatStore(TableChatStore):
    """A chat store in a PostgreSQL database. Any number of processes and machines may share it.

    Every call makes a connection, is one transaction, and closes it: there is nothing to close afterwards, and the
    object may be copied and used in any thread.

    Args:
        dsn: The address of the database.
        table_name: The table for the messages.
        db_schema: The schema of the table.

    Raises:
        ValueError: The address is of another kind; a name is not a plain one.
        StoreError: By every method: the database cannot be reached, read or written.

    Example:
        >>> store = PostgresChatStore("postgresql://app@db/prod")
        >>> memory = Memory.from_defaults(session_id="ann", chat_store=store)
    """

    dsn: str = Field(repr=False)  # it may hold a password
    db_schema: str = Field(default="public", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")

    _mark: ClassVar[str] = "%s"

    def __init__(self, dsn: str, table_name: str = DEFAULT_TABLE, db_schema: str | None = None) -> None:
        super().__init__(dsn=dsn, table_name=table_name, db_schema=db_schema or "public")  # pyright: ignore[reportCallIssue] - the fields

    @field_validator("dsn", "db_schema")
    @classmethod
    def _is_allowed(cls, value: str, field: ValidationInfo) -> str:
        check: Callable[[str], Any] = address_of if field.field_name == "dsn" else check_schema_name
        try:
            check(value)
        except StoreError as error:
            raise ValueError(str(error)) from None
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _without_values(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Leave the values, which may hold a password, out of errors."""
        try:
            return handler(values)
        except ValidationError as error:
            lines = [_without_value(one["msg"], one["loc"]) for one in error.errors(include_input=False)]
            raise ValidationError.from_exception_data(error.title, lines, hide_input=True) from None

    @override
    @contextmanager
    def _transaction(self, writes: bool = True) -> Generator[Any, None, None]:
        connection: Any
        with one_connection(self.dsn) as connection:
            connection.execute(f"SET search_path = {self.db_schema}")
            table = f"{self.db_schema}.{self.table_name}".lower()
            (is_there,) = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,)).fetchone()
            if not is_there:
                self._make_table(connection)
            if writes:  # messages are inserted and archived in the order of the calls
                connection.execute(f"LOCK TABLE {self.table_name} IN SHARE ROW EXCLUSIVE MODE")
            yield connection

    def _make_table(self, connection: Any) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('batonflow/messages', 0))")
        if self.db_schema != "public":
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.db_schema}")
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.table_name} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            "key text NOT NULL, status text NOT NULL, role text NOT NULL, data text NOT NULL)"
        )
        connection.execute(
            f"CREATE INDEX IF NOT EXISTS {self.table_name}_by_key ON {self.table_name} (key, status, id)"
        )

    @override
    def _repeat(self, connection: Any, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(statement, rows)


def _without_value(message: str, place: tuple[int | str, ...]) -> InitErrorDetails:
    said = PydanticCustomError("value_error", "{message}", {"message": message})
    return InitErrorDetails(type=said, loc=place, input=None)
