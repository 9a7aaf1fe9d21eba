"""Readers of sources that are not files: texts, the rows of a database, and functions."""

import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

from batonflow.llms._bridge import run_sync
from batonflow.nodes import Document
from batonflow.nodes.schema import document_of
from batonflow.retrieval.file_readers import BaseReader, FilePath, ReaderError
from batonflow.threads import in_thread

__all__ = ["CallableReader", "SQLReader", "StringIterableReader"]


class StringIterableReader(BaseReader):
    """Makes a document of each text.

    Example:
        >>> StringIterableReader().load_data(["Tides follow the moon.", "Bread needs yeast."])
    """

    def load_data(self, texts: Iterable[str]) -> list[Document]:
        """Return the documents."""
        return [Document(text=text) for text in texts]


class SQLReader(BaseReader):
    """Makes a document of each row that a query finds in a SQLite file.

    The connection can only read: neither changes nor other files are allowed.

    Args:
        path: The file.

    Example:
        >>> SQLReader("shop.db").load_data("SELECT id, name, text FROM article", id_column="id")
    """

    def __init__(self, path: FilePath) -> None:
        self.path = Path(path).absolute()

    def lazy_load_data(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        metadata_columns: Sequence[str] = (),
        id_column: str | None = None,
    ) -> Generator[Document]:
        """Yield a document for each row, with lines of the form ``column: value``.

        Args:
            query: The query.
            parameters: The values for ``?`` or ``:name`` in it.
            metadata_columns: Columns that go to the metadata instead of the text.
            id_column: The column with the ids of the documents.

        Raises:
            ReaderError: The file cannot be opened, or the query is wrong or does more than read.
        """
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as connection:
                connection.set_authorizer(_only_reads)
                rows = connection.execute(query, parameters)
                names = [column[0] for column in rows.description or ()]
                if unknown := {*metadata_columns, *filter(None, [id_column])} - set(names):
                    raise ReaderError(f"the query has no column {min(unknown)}; it has {', '.join(names)}")
                for row in rows:
                    values = dict(zip(names, row, strict=True))
                    text = "\n".join(f"{name}: {one}" for name, one in values.items() if name not in metadata_columns)
                    options = {} if id_column is None else {"id_": str(values[id_column])}
                    yield Document(text=text, metadata={name: values[name] for name in metadata_columns}, **options)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ReaderError(f"{self.path} cannot be read with this query: {error}") from error


class CallableReader(BaseReader):
    """Reads with a function, sync or async. It returns a document or a text, or several of them.

    Args:
        fn: The function. Documents of LangChain are taken, too.

    Example:
        >>> reader = CallableReader(fetch_tickets)
        >>> documents = reader.load_data(since="2026-01-01")
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def load_data(self, *args: Any, **kwargs: Any) -> list[Document]:
        """Call the function and return its documents."""
        found = self.fn(*args, **kwargs)
        return _documents(run_sync(_awaited(found)) if isawaitable(found) else found)

    async def aload_data(self, *args: Any, **kwargs: Any) -> list[Document]:
        """Call the function, in a thread if it is sync, and return its documents."""
        found = await in_thread(lambda: self.fn(*args, **kwargs))
        return await in_thread(_documents, await found if isawaitable(found) else found)


def _only_reads(action: int, *_: Any) -> int:
    allowed = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY


async def _awaited(value: Any) -> Any:
    return await value


def _documents(found: Any) -> list[Document]:
    one = isinstance(found, str | Mapping | Document) or not isinstance(found, Iterable)
    values: list[Any] = [found] if one else list(cast("Iterable[Any]", found))
    return [Document(text=one) if isinstance(one, str) else cast("Document", document_of(one)) for one in values]
