"""One SQLite file with nodes, their words and vectors, documents, and indexes.

Many processes read; one writes at a time. Each public write is one transaction, so a process that is killed leaves the
writes before. Words and vectors are read when a search needs them.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from batonflow.nodes import BaseNode, MetadataMode
from batonflow.nodes.schema import node_of
from batonflow.retrieval import postings
from batonflow.retrieval.filters import MetadataFilters
from batonflow.retrieval.postings import Postings
from batonflow.retrieval.words import WORDS_VERSION, query_words, words_of

__all__ = ["FILE_IN_FOLDER", "UNNAMED_MODEL", "WORDS_ONLY", "Found", "NodeStore", "NodeStoreError", "StoredIndex"]

FILE_IN_FOLDER = "nodes.sqlite"
WORDS_ONLY = ""
"""The name of the model of indexes without vectors."""
UNNAMED_MODEL = "given"
"""The name of the model of vectors that came without one, as in folders of LlamaIndex."""
VERSION = 1
_PATIENCE = 30.0
"""Seconds to wait for another process that writes."""
_EMBED = MetadataMode.EMBED
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


class Found(NamedTuple):
    """A node that a search has found."""

    node: BaseNode
    score: float
    number: int


class StoredIndex(NamedTuple):
    """An index in a store.

    Attributes:
        number: Its number in the store.
        id: Its id.
        type: The kind of the index.
        struct: Further data, such as the summary and the name of the embedding model.
    """

    number: int
    id: str
    type: str
    struct: dict[str, Any]


class NodeStore:
    """Nodes in one SQLite file, or in memory.

    Args:
        path: The file; ``":memory:"`` for a store that ends with the process.

    Raises:
        NodeStoreError: The file is not one of batonflow, or a newer version has written it.

    Example:
        >>> store = NodeStore("notes.db")
        >>> index = VectorStoreIndex.from_documents(documents, storage_context=StorageContext(store))
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
        self._postings.add((row[3], words_of(_node(row).get_content(_EMBED))) for row in nodes)
        self._connection.execute("UPDATE fact SET value = ? WHERE name = 'words'", (str(WORDS_VERSION),))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def copy_to(self, target: sqlite3.Connection) -> None:
        """Copy everything into another database."""
        with self._lock:
            self._connection.backup(target)

    @classmethod
    def copy_of(cls, source: sqlite3.Connection) -> "NodeStore":
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

    # --- nodes --------------------------------------------------------------------------------------------------------

    def add_nodes(self, nodes: Sequence[BaseNode], *, model: str = "", with_words: bool = True) -> list[int]:
        """Store nodes and return their numbers. A node whose id and hash are known is left as it is.

        Args:
            nodes: The nodes.
            model: The name of the model of their vectors, which are stored under it.
            with_words: Whether they can be found by words.
        """
        with self.writing():
            numbers: dict[str, int] = {}
            words: list[tuple[int, list[str]]] = []
            vectors: list[tuple[str, int, bytes]] = []
            for node in {node.id_: node for node in nodes}.values():  # the last of equal ids counts
                number, is_new = self._add(node, with_words)
                numbers[node.id_] = number
                if with_words and is_new:
                    words.append((number, words_of(node.get_content(_EMBED))))
                if model and node.embedding is not None:
                    vectors.append((model, number, _packed(node)))
            self._postings.add(words)
            self._check_size(model, vectors)
            self._connection.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", vectors)
        return [numbers[node.id_] for node in nodes]

    def _add(self, node: BaseNode, with_words: bool) -> tuple[int, bool]:
        """Return the number of a node, and whether it is new."""
        read, content = self._connection.execute, node.hash
        known = read("SELECT n, hash, words FROM node WHERE id = ?", (node.id_,)).fetchone()
        if known is not None and known[1] == content and (known[2] or not with_words):
            return known[0], False
        if known is not None:
            read("DELETE FROM node WHERE n = ?", (known[0],))
        body = node.model_dump(mode="json", exclude={"embedding", "metadata"}, exclude_defaults=True)
        metadata = node.model_dump(mode="json", include={"metadata"})["metadata"]
        row = (node.id_, node.ref_doc_id, content, _json(body), _json(metadata), with_words)
        query = "INSERT INTO node (id, doc, hash, body, metadata, words) VALUES (?, ?, ?, ?, ?, ?)"
        number = cast("int", read(query, row).lastrowid)
        if known is not None:
            self._renumber(known[0], number, keep_vectors=known[1] == content)
        return number, True

    def _renumber(self, old: int, new: int, *, keep_vectors: bool) -> None:
        """Give the new version of a node the places of the former one in all indexes."""
        if not keep_vectors:
            self._connection.execute("DELETE FROM vector WHERE n = ?", (old,))
        for table, column in (("vector", "n"), ("member", "n"), ("member", "parent"), ("keyword", "n")):
            query = f"UPDATE {table} SET {column} = ? WHERE {column} = ?"  # noqa: S608 - ours
            self._connection.execute(query, (new, old))

    def _check_size(self, model: str, vectors: list[tuple[str, int, bytes]]) -> None:
        """Refuse vectors of another length than those before."""
        known = self._connection.execute(
            "SELECT length(value) FROM vector WHERE model = ? LIMIT 1", (model,)
        ).fetchone()
        sizes = {len(value) // 2 for _, _, value in vectors} | ({known[0] // 2} if known else set[int]())
        if len(sizes) > 1:
            raise NodeStoreError(f"vectors of {model} have different lengths: {', '.join(map(str, sorted(sizes)))}")

    def nodes(self, ids: Sequence[str] | None = None, *, doc: str | None = None) -> list[BaseNode]:
        """Return nodes by their ids, those of a document, or all in the order of insertion."""
        with self.reading():
            if ids is not None:
                found = {row[0]: row for one in _parts(ids) for row in self._rows(f"id IN ({_marks(one)})", one)}
                return [_node(found[node_id]) for node_id in ids if node_id in found]
            return [_node(row) for row in self._rows("1" if doc is None else "doc = ?", [] if doc is None else [doc])]

    def nodes_at(self, numbers: Sequence[int]) -> list[BaseNode]:
        """Return nodes by their numbers."""
        with self.reading():
            found = {row[3]: row for one in _parts(numbers) for row in self._rows(f"n IN ({_marks(one)})", one)}
            return [_node(found[number]) for number in numbers if number in found]

    def _rows(self, condition: str, values: Sequence[Any]) -> list[tuple[str, str, str, int]]:
        query = f"SELECT id, body, metadata, n FROM node WHERE {condition} ORDER BY n"  # noqa: S608 - ours
        return self._connection.execute(query, list(values)).fetchall()

    def hashes(self, *, ids: Sequence[str] = (), doc: str | None = None) -> dict[str, str]:
        """Return the hashes of nodes as they were given, by id. They are those with ids, and those of a document."""
        with self.reading():
            query = "SELECT id, hash FROM node WHERE {} ORDER BY n"
            found = dict(self._connection.execute(query.format("doc = ?"), (doc,)).fetchall())
            for one in _parts(ids):
                found.update(self._connection.execute(query.format(f"id IN ({_marks(one)})"), one).fetchall())
            return found

    def numbers_of(self, ids: Sequence[str]) -> list[int]:
        """Return the numbers of nodes that exist."""
        with self.reading():
            query = "SELECT n FROM node WHERE id IN ({})"
            return [n for one in _parts(ids) for (n,) in self._connection.execute(query.format(_marks(one)), one)]

    def numbers_of_document(self, doc: str) -> list[int]:
        """Return the numbers of the nodes of a document."""
        with self.reading():
            return [n for (n,) in self._connection.execute("SELECT n FROM node WHERE doc = ?", (doc,))]

    def delete_nodes(self, numbers: Sequence[int]) -> None:
        """Delete nodes from the store and from all its indexes."""
        with self.writing():
            self._delete(numbers)

    def _delete(self, numbers: Sequence[int]) -> None:
        for one in _parts(numbers):
            for table in ("node", "vector", "member", "keyword"):
                self._connection.execute(f"DELETE FROM {table} WHERE n IN ({_marks(one)})", one)  # noqa: S608 - ours

    # --- documents ----------------------------------------------------------------------------------------------------

    def note_document(self, doc: str, content: str | None, metadata: Mapping[str, Any] | None = None) -> None:
        """Store the hash of a document, by which a later version of it is noticed."""
        with self.writing():
            told = json.dumps(dict(metadata or {}), default=str)
            self._connection.execute("INSERT OR REPLACE INTO document VALUES (?, ?, ?)", (doc, content, told))

    def documents(self) -> dict[str, tuple[str | None, dict[str, Any]]]:
        """Return the hashes and metadata of documents by their ids."""
        with self.reading():
            rows = self._connection.execute("SELECT id, hash, metadata FROM document").fetchall()
            return {doc: (content, json.loads(metadata)) for doc, content, metadata in rows}

    def document_hash(self, doc: str) -> str | None:
        """Return the hash of a document, or None."""
        with self.reading():
            row = self._connection.execute("SELECT hash FROM document WHERE id = ?", (doc,)).fetchone()
            return row and row[0]

    def documents_from(self, source: str) -> dict[str, tuple[str | None, dict[str, Any]]]:
        """Return the documents of a source as ``documents`` does: that with its name, or all parts."""
        with self.reading():
            query = "SELECT id, hash, metadata FROM document WHERE id = ? OR (id >= ? AND id < ?)"
            rows = self._connection.execute(query, (source, f"{source}_part_0", f"{source}_part_:")).fetchall()
            return {doc: (content, json.loads(metadata)) for doc, content, metadata in rows}

    def is_in_index(self, number: int, doc: str) -> bool:
        """Tell whether an index has all nodes of a document."""
        with self.reading():
            query = """SELECT 1 FROM node WHERE doc = ?
                AND NOT EXISTS (SELECT 1 FROM member WHERE number = ? AND member.n = node.n)"""
            return self._connection.execute(query, (doc, number)).fetchone() is None

    def forget_document(self, doc: str) -> None:
        """Remove the hash of a document."""
        with self.writing():
            self._connection.execute("DELETE FROM document WHERE id = ?", (doc,))

    # --- indexes ------------------------------------------------------------------------------------------------------

    def indexes(self) -> list[StoredIndex]:
        """Return all indexes, in the order of creation."""
        with self.reading():
            rows = self._connection.execute("SELECT number, id, type, struct FROM indexes ORDER BY number").fetchall()
            return [StoredIndex(number, index_id, kind, json.loads(struct)) for number, index_id, kind, struct in rows]

    def put_index(self, index_id: str, kind: str, struct: Mapping[str, Any], number: int | None = None) -> int:
        """Store an index, or new data of one with a number; return its number."""
        with self.writing():
            told = json.dumps(dict(struct), ensure_ascii=False)
            query = "SELECT number FROM indexes WHERE id = ? AND number IS NOT ?"
            for (replaced,) in self._connection.execute(query, (index_id, number)).fetchall():
                self.delete_index(replaced)
            row = (number, index_id, kind, told)
            done = self._connection.execute("INSERT OR REPLACE INTO indexes VALUES (?, ?, ?, ?)", row)
            return number if number is not None else cast("int", done.lastrowid)

    def delete_index(self, number: int) -> None:
        """Delete an index; its nodes stay."""
        with self.writing():
            for table in ("indexes", "member", "keyword"):
                self._connection.execute(f"DELETE FROM {table} WHERE number = ?", (number,))  # noqa: S608 - ours

    def add_members(self, number: int, nodes: Sequence[int], parent: int | None = None) -> None:
        """Add nodes to an index behind the others, below a parent in a tree."""
        with self.writing():
            query = "SELECT coalesce(max(place), 0) + 1 FROM member WHERE number = ?"
            first = self._connection.execute(query, (number,)).fetchone()[0]
            rows = [(number, n, place, parent) for place, n in enumerate(dict.fromkeys(nodes), first)]
            self._connection.executemany("INSERT OR REPLACE INTO member VALUES (?, ?, ?, ?)", rows)

    def remove_members(self, number: int, nodes: Sequence[int]) -> None:
        """Remove nodes from an index; they stay in the store."""
        with self.writing():
            for table in ("member", "keyword"):
                query = f"DELETE FROM {table} WHERE number = ? AND n = ?"  # noqa: S608 - ours
                self._connection.executemany(query, [(number, n) for n in nodes])

    def members(self, number: int) -> list[int]:
        """Return the numbers of the nodes of an index, in their order."""
        with self.reading():
            query = "SELECT n FROM member WHERE number = ? ORDER BY place"
            return [n for (n,) in self._connection.execute(query, (number,))]

    def children(self, number: int, parent: int | None) -> list[int]:
        """Return the nodes below a node of a tree; those without a parent for None."""
        with self.reading():
            query = "SELECT n FROM member WHERE number = ? AND parent IS ? ORDER BY place"
            return [n for (n,) in self._connection.execute(query, (number, parent))]

    def parents(self, number: int, nodes: Sequence[int]) -> set[int]:
        """Return the nodes of a tree that are directly above others."""
        with self.reading():
            query = "SELECT parent FROM member WHERE number = ? AND parent IS NOT NULL AND n IN ({})"
            found = (self._connection.execute(query.format(_marks(one)), (number, *one)) for one in _parts(nodes))
            return {n for rows in found for (n,) in rows}

    def set_parent(self, number: int, nodes: Sequence[int], parent: int) -> None:
        """Put nodes of a tree below another one."""
        with self.writing():
            query = "UPDATE member SET parent = ? WHERE number = ? AND n = ?"
            self._connection.executemany(query, [(parent, number, n) for n in nodes])

    def add_keywords(self, number: int, words: Iterable[tuple[str, int]]) -> None:
        """Add keywords of nodes to an index."""
        with self.writing():
            rows = [(number, word, n) for word, n in words]
            self._connection.executemany("INSERT OR IGNORE INTO keyword VALUES (?, ?, ?)", rows)

    def nodes_with(self, number: int, words: Sequence[str]) -> list[int]:
        """Return the nodes with keywords; those with most of the words come first."""
        with self.reading():
            query = f"""SELECT n FROM keyword WHERE number = ? AND word IN ({_marks(words)})
                GROUP BY n ORDER BY count(*) DESC, n"""  # noqa: S608 - marks
            return [n for (n,) in self._connection.execute(query, (number, *words))]

    def keywords(self, number: int) -> list[tuple[str, int]]:
        """Return all keywords of an index with their nodes."""
        with self.reading():
            query = "SELECT word, n FROM keyword WHERE number = ? ORDER BY word, n"
            return self._connection.execute(query, (number,)).fetchall()

    # --- search -------------------------------------------------------------------------------------------------------

    def by_words(self, query: str, top_k: int, allowed: "Array | None" = None) -> list[Found]:
        """Return the nodes with the best BM25 scores for the words of a query.

        Args:
            query: The query.
            top_k: The largest number of nodes.
            allowed: Whether each of all nodes may be found, as from ``mask``.
        """
        with self.reading():
            return self._found(*self._by_words(query, top_k, allowed))

    def by_vector(self, model: str, vector: Sequence[float], top_k: int, allowed: "Array | None" = None) -> list[Found]:
        """Return the nodes whose vectors of a model have the largest cosine to a vector; see ``by_words``."""
        with self.reading():
            return self._found(*self._by_vector(model, vector, top_k, allowed))

    def by_both(
        self,
        query: str,
        model: str,
        vector: Sequence[float],
        top_k: int,
        allowed: "Array | None" = None,
        alpha: float | None = None,
    ) -> list[Found]:
        """Return the nodes that words and vectors find, by the weighted sum of 1/(20 + rank)."""
        weight = 0.5 if alpha is None else alpha
        with self.reading():
            found: dict[int, float] = {}
            for share, (numbers, _) in (
                (1 - weight, self._by_words(query, 2 * top_k, allowed)),
                (weight, self._by_vector(model, vector, 2 * top_k, allowed)),
            ):
                for rank, number in enumerate(numbers):
                    found[number] = found.get(number, 0.0) + share / (20 + rank)
            best = sorted(found, key=lambda number: (-found[number], number))[:top_k]
            return self._found(best, [found[number] for number in best])

    def mask(
        self,
        *,
        index: int | None = None,
        filters: MetadataFilters | None = None,
        ids: Sequence[str] | None = None,
        docs: Sequence[str] | None = None,
    ) -> "Array | None":
        """Return whether each of all nodes may be found; None if all may.

        Args:
            index: Only nodes of this index.
            filters: Only nodes whose metadata meet these conditions.
            ids: Only nodes with these ids.
            docs: Only nodes of these documents.
        """
        with self.reading():
            numbers = self._all_numbers()
            masks: list[Array] = []
            if index is not None and len(members := self._members_of(index)) < len(numbers):
                masks.append(np.isin(numbers, members, assume_unique=True))
            if ids is not None:
                masks.append(np.isin(numbers, self.numbers_of(ids)))
            if docs is not None:
                masks.append(np.isin(numbers, [n for doc in docs for n in self.numbers_of_document(doc)]))
            if filters is not None and filters.filters:
                masks.append(np.asarray(filters.mask(self._column, len(numbers)), bool))
            return np.logical_and.reduce(masks) if masks else None

    def without_vectors(self, model: str, numbers: Sequence[int]) -> set[int]:
        """Return the nodes that have no vector of a model."""
        with self.reading():
            query = "SELECT n FROM vector WHERE model = ? AND n IN ({})"
            found = (self._connection.execute(query.format(_marks(one)), (model, *one)) for one in _parts(numbers))
            return set(numbers) - {n for rows in found for (n,) in rows}

    def rename_vectors(self, model: str, new: str) -> None:
        """Give the vectors of a model another name."""
        with self.writing():
            self._connection.execute("UPDATE OR REPLACE vector SET model = ? WHERE model = ?", (new, model))

    def vectors(self, model: str, numbers: Sequence[int]) -> "Array":
        """Return the unit vectors of nodes, by rows."""
        with self.reading():
            of, matrix = self._matrix(model)
            return matrix[np.searchsorted(of, np.asarray(numbers, np.int64))]

    def _by_words(self, query: str, top_k: int, allowed: "Array | None") -> tuple[list[int], list[float]]:
        numbers = self._all_numbers()
        if not len(numbers):
            return [], []
        last = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'node'").fetchone()[0]
        scores = self._postings.scores(query_words(query), last + 1)[numbers]
        if allowed is not None:
            scores = np.where(allowed, scores, 0.0)
        best = [at for at in _best(scores, top_k) if scores[at] > 0]
        return numbers[best].tolist(), scores[best].tolist()

    def _by_vector(
        self, model: str, vector: Sequence[float], top_k: int, allowed: "Array | None"
    ) -> tuple[list[int], list[float]]:
        of, matrix = self._matrix(model)
        asked = np.asarray(vector, np.float32)
        if not len(of):
            return [], []
        if asked.shape != matrix.shape[1:]:
            raise NodeStoreError(f"the query has {len(asked)} numbers, and vectors of {model} have {matrix.shape[1]}")
        scores = matrix @ (asked / (float(np.linalg.norm(asked)) or 1.0))
        if allowed is not None:
            numbers = self._all_numbers()
            mine = allowed if len(of) == len(numbers) else allowed[np.searchsorted(numbers, of)]
            scores = np.where(mine, scores, -np.inf)
        best = [at for at in _best(scores, top_k) if scores[at] > -np.inf]
        return of[best].tolist(), scores[best].tolist()

    def _found(self, numbers: Sequence[int], scores: Sequence[float]) -> list[Found]:
        by_number = dict(zip(numbers, scores, strict=True))
        rows = {row[3]: row for one in _parts(numbers) for row in self._rows(f"n IN ({_marks(one)})", one)}
        return [Found(_node(rows[number]), by_number[number], number) for number in numbers if number in rows]

    def _all_numbers(self) -> Array:
        if self._numbers is None:
            rows = self._connection.execute("SELECT n FROM node ORDER BY n")
            self._numbers = np.fromiter((n for (n,) in rows), np.int64)
        return self._numbers

    def _members_of(self, index: int) -> Array:
        if index not in self._members:
            rows = self._connection.execute("SELECT n FROM member WHERE number = ?", (index,))
            self._members[index] = np.fromiter((n for (n,) in rows), np.int64)
        return self._members[index]

    def _column(self, key: str) -> list[Any]:
        if key not in self._columns:
            rows = self._connection.execute("SELECT metadata FROM node ORDER BY n")
            self._columns[key] = [json.loads(metadata).get(key) for (metadata,) in rows]
        return self._columns[key]

    def _matrix(self, model: str) -> tuple[Array, Array]:
        """Return the numbers of nodes and their unit vectors."""
        if model not in self._matrices:
            rows = self._connection.execute(
                "SELECT n, value FROM vector WHERE model = ? ORDER BY n", (model,)
            ).fetchall()
            numbers = np.fromiter((n for n, _ in rows), np.int64, len(rows))
            packed = np.frombuffer(b"".join(value for _, value in rows), np.float16)
            matrix = packed.reshape(len(rows), -1).astype(np.float32) if rows else np.zeros((0, 0), np.float32)
            lengths = np.linalg.norm(matrix, axis=1, keepdims=True) if rows else 1.0
            self._matrices[model] = numbers, matrix / np.where(lengths == 0, 1, lengths)
        return self._matrices[model]


def _packed(node: BaseNode) -> bytes:
    """Return the unit vector of a node in the form of the file."""
    vector = np.asarray(node.embedding, np.float64)
    if not np.isfinite(vector).all():
        raise NodeStoreError(f"the vector of node {node.id_} has values that are not finite numbers")
    return (vector / (np.linalg.norm(vector) or 1.0)).astype(np.float16).tobytes()


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # SQLite holds no lone surrogates, so such a text is written with escapes.
    return text if text.encode(errors="ignore").decode() == text else json.dumps(value)


def _node(row: tuple[str, str, str, int]) -> BaseNode:
    return node_of({**json.loads(row[1]), "metadata": json.loads(row[2])})


def _best(scores: Array, top_k: int) -> list[int]:
    """Return the places of the largest scores; equal ones keep their order."""
    if top_k < len(scores):
        edge = np.partition(scores, len(scores) - top_k)[len(scores) - top_k] if top_k else np.inf
        chosen = np.flatnonzero(scores >= edge)
    else:
        chosen = np.arange(len(scores))
    return chosen[np.argsort(-scores[chosen], kind="stable")][:top_k].tolist()


def _parts(values: Sequence[Any]) -> Generator[list[Any]]:
    """Yield values in lists that fit into one statement."""
    for begin in range(0, len(values), 900):
        yield list(values[begin : begin + 900])


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
