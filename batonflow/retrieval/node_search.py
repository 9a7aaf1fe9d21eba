"""Search in a store of nodes: by words, by vectors, and by both."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from batonflow.nodes import BaseNode
from batonflow.retrieval.filters import MetadataFilters, checked_filters
from batonflow.retrieval.node_file import Array, NodeFile, NodeStoreError, marks_for, node_in, parts_of
from batonflow.retrieval.words import query_words

__all__ = ["Found", "NodeSearch"]

_ROWS_AT_ONCE = 512


class Found(NamedTuple):
    """A node that a search has found."""

    node: BaseNode
    score: float
    number: int


class NodeSearch(NodeFile):
    """Reads and finds the nodes of a file. Words and vectors are read when a search needs them."""

    def nodes(self, ids: Sequence[str] | None = None, *, doc: str | None = None) -> list[BaseNode]:
        """Return nodes by their ids, those of a document, or all in the order of insertion."""
        with self.reading():
            if ids is not None:
                found = {row[0]: row for one in parts_of(ids) for row in self._rows(f"id IN ({marks_for(one)})", one)}
                return [node_in(found[node_id]) for node_id in ids if node_id in found]
            return [node_in(row) for row in self._rows("1" if doc is None else "doc = ?", [] if doc is None else [doc])]

    def nodes_at(self, numbers: Sequence[int]) -> list[BaseNode]:
        """Return nodes by their numbers."""
        with self.reading():
            found = {row[3]: row for one in parts_of(numbers) for row in self._rows(f"n IN ({marks_for(one)})", one)}
            return [node_in(found[number]) for number in numbers if number in found]

    def hashes(self, *, ids: Sequence[str] = (), doc: str | None = None) -> dict[str, str]:
        """Return the hashes of nodes as they were given, by id. They are those with ids, and those of a document."""
        with self.reading():
            query = "SELECT id, hash FROM node WHERE {} ORDER BY n"
            found = dict(self._connection.execute(query.format("doc = ?"), (doc,)).fetchall())
            for one in parts_of(ids):
                found.update(self._connection.execute(query.format(f"id IN ({marks_for(one)})"), one).fetchall())
            return found

    def numbers_of(self, ids: Sequence[str]) -> list[int]:
        """Return the numbers of nodes that exist."""
        with self.reading():
            query = "SELECT n FROM node WHERE id IN ({})"
            return [n for one in parts_of(ids) for (n,) in self._connection.execute(query.format(marks_for(one)), one)]

    def numbers_of_document(self, doc: str) -> list[int]:
        """Return the numbers of the nodes of a document."""
        with self.reading():
            return [n for (n,) in self._connection.execute("SELECT n FROM node WHERE doc = ?", (doc,))]

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
            if (filters := checked_filters(filters)) is not None and filters.filters:
                masks.append(np.asarray(filters.mask(self._column, len(numbers)), bool))
            return np.logical_and.reduce(masks) if masks else None

    def without_vectors(self, model: str, numbers: Sequence[int]) -> set[int]:
        """Return the nodes that have no vector of a model."""
        with self.reading():
            query = "SELECT n FROM vector WHERE model = ? AND n IN ({})"
            found = (self._connection.execute(query.format(marks_for(one)), (model, *one)) for one in parts_of(numbers))
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
        rows = {row[3]: row for one in parts_of(numbers) for row in self._rows(f"n IN ({marks_for(one)})", one)}
        return [Found(node_in(rows[number]), by_number[number], number) for number in numbers if number in rows]

    def _all_numbers(self) -> Array:
        if self._numbers is None:
            ask = "SELECT (SELECT count(*) FROM node), (SELECT min(n) FROM node), (SELECT max(n) FROM node)"
            count, first, last = self._connection.execute(ask).fetchone()
            if count and last - first + 1 == count:
                self._numbers = np.arange(first, last + 1, dtype=np.int64)
            else:  # without the + SQLite reads the texts, too
                rows = self._connection.execute("SELECT n FROM node ORDER BY +n")
                self._numbers = np.fromiter((n for (n,) in rows), np.int64, count)
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
            count = self._connection.execute("SELECT count(*) FROM vector WHERE model = ?", (model,)).fetchone()[0]
            rows = self._connection.execute("SELECT n, value FROM vector WHERE model = ? ORDER BY n", (model,))
            numbers, matrix, end = np.empty(count, np.int64), np.zeros((0, 0), np.float32), 0
            while some := rows.fetchmany(_ROWS_AT_ONCE):
                packed = np.frombuffer(b"".join([value for _, value in some]), np.float16).reshape(len(some), -1)
                if not end:
                    matrix = np.empty((count, packed.shape[1]), np.float32)
                begin, end = end, end + len(some)
                numbers[begin:end] = [n for n, _ in some]
                part = matrix[begin:end]
                part[:] = packed
                lengths = np.sqrt(np.einsum("ij,ij->i", part, part))
                part /= np.where(lengths == 0, 1, lengths)[:, None]
            self._matrices[model] = numbers, matrix
        return self._matrices[model]


def _best(scores: Array, top_k: int) -> list[int]:
    """Return the places of the largest scores; equal ones keep their order."""
    if top_k < len(scores):
        edge = np.partition(scores, len(scores) - top_k)[len(scores) - top_k] if top_k else np.inf
        chosen = np.flatnonzero(scores >= edge)
    else:
        chosen = np.arange(len(scores))
    return chosen[np.argsort(-scores[chosen], kind="stable")][:top_k].tolist()
