"""Chat stores that are given by a path or a URL."""

from os import PathLike

from batonflow.agents.memory.postgres_store import PostgresChatStore
from batonflow.agents.memory.sqlite_store import SQLiteChatStore
from batonflow.agents.memory.table_store import DEFAULT_TABLE
from batonflow.durable.stores.addresses import is_postgres

__all__ = ["chat_store_at"]


def chat_store_at(
    place: str | PathLike[str], table_name: str = DEFAULT_TABLE, db_schema: str | None = None
) -> PostgresChatStore | SQLiteChatStore:
    """Return the chat store in a SQLite file or a PostgreSQL database.

    Args:
        place: A path, or a URL, which may name a driver.
        table_name: The name of the table.
        db_schema: The schema of the table.

    Raises:
        ValueError: The URL is of an unknown kind, or a name is not allowed.
    """
    if isinstance(place, str) and place.startswith("postgresql+"):
        place = f"postgresql://{place.partition('://')[2]}"
    if isinstance(place, str) and is_postgres(place):
        return PostgresChatStore(place, table_name, db_schema)
    return SQLiteChatStore(place, table_name, db_schema)
