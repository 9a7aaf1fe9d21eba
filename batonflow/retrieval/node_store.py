"""One SQLite file with nodes, their words and vectors, documents, and indexes. Each public write is one transaction."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from batonflow.nodes import BaseNode
from batonflow.retrieval.node_file import EMBED, NodeStoreError, marks_for, parts_of
from batonflow.retrieval.node_search import Found, NodeSearch
from batonflow.retrieval.words import words_of

__all__ = ["FILE_IN_FOLDER", "UNNAMED_MODEL", "WORDS_ONLY", "Found", "NodeStore", "NodeStoreError", "StoredIndex"]

FILE_IN_FOLDER = "nodes.sqlite"
WORDS_ONLY = ""
"""The name of the model of indexes without vectors."""
UNNAMED_MODEL = "given"
"""The name of the model of vectors that came without one, as in folders of LlamaIndex."""


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

    @property
    def index_id(self) -> str:
        """The id."""
        return self.id


class NodeStore(NodeSearch):
    """Nodes in one SQLite file, or in memory.

    Args:
        path: The file; ``":memory:"`` for a store that ends with the process.

    Raises:
        NodeStoreError: The file is not one of batonflow, or a newer version has written it.

    Example:
        >>> store = NodeStore("notes.db")
        >>> index = VectorStoreIndex.from_documents(documents, storage_context=StorageContext(store))
    """

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
                    words.append((number, words_of(node.get_content(EMBED))))
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

    def delete_nodes(self, numbers: Sequence[int]) -> None:
        """Delete nodes from the store and from all its indexes."""
        with self.writing():
            self._delete(numbers)

    def _delete(self, numbers: Sequence[int]) -> None:
        for one in parts_of(numbers):
            for table in ("node", "vector", "member", "keyword"):
                self._connection.execute(f"DELETE FROM {table} WHERE n IN ({marks_for(one)})", one)  # noqa: S608 - ours

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

    def documents_with(self, hashes: Sequence[str]) -> dict[str, list[str]]:
        """Return the ids of the documents with one of these hashes, by hash."""
        found: dict[str, list[str]] = {}
        with self.reading():
            for one in parts_of(hashes):
                query = f"SELECT hash, id FROM document WHERE hash IN ({marks_for(one)})"  # noqa: S608 - marks
                for content, doc in self._connection.execute(query, one):
                    found.setdefault(content, []).append(doc)
        return found

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

    def documents_in(self, number: int) -> list[tuple[str, str]]:
        """Return the ids of document and node of the nodes of an index, in their order."""
        with self.reading():
            query = """SELECT node.doc, node.id FROM member JOIN node ON node.n = member.n
                WHERE member.number = ? AND node.doc IS NOT NULL ORDER BY member.place"""
            return self._connection.execute(query, (number,)).fetchall()

    def children(self, number: int, parent: int | None) -> list[int]:
        """Return the nodes below a node of a tree; those without a parent for None."""
        with self.reading():
            query = "SELECT n FROM member WHERE number = ? AND parent IS ? ORDER BY place"
            return [n for (n,) in self._connection.execute(query, (number, parent))]

    def parents(self, number: int, nodes: Sequence[int]) -> set[int]:
        """Return the nodes of a tree that are directly above others."""
        with self.reading():
            query = "SELECT parent FROM member WHERE number = ? AND parent IS NOT NULL AND n IN ({})"
            found = (self._connection.execute(query.format(marks_for(one)), (number, *one)) for one in parts_of(nodes))
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
            query = f"""SELECT n FROM keyword WHERE number = ? AND word IN ({marks_for(words)})
                GROUP BY n ORDER BY count(*) DESC, n"""  # noqa: S608 - marks
            return [n for (n,) in self._connection.execute(query, (number, *words))]

    def keywords(self, number: int) -> list[tuple[str, int]]:
        """Return all keywords of an index with their nodes."""
        with self.reading():
            query = "SELECT word, n FROM keyword WHERE number = ? ORDER BY word, n"
            return self._connection.execute(query, (number,)).fetchall()


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
