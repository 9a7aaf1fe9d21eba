"""The words of stored nodes, as an inverted file, and the search by words with BM25.

Each write adds one block: the nodes and counts of every word in it. A search reads the blocks of its words alone, so
the first search is as quick as the next ones. BM25 is that of Robertson and Zaragoza, "The Probabilistic Relevance
Framework: BM25 and Beyond" (2009).
"""

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

__all__ = ["Postings"]

SCHEMA = """
CREATE TABLE posting (word TEXT, block INTEGER, nodes BLOB, counts BLOB, PRIMARY KEY (word, block)) WITHOUT ROWID;
CREATE TABLE block (block INTEGER PRIMARY KEY, nodes BLOB, lengths BLOB);
"""

_FIRST_CJK = "\u3041"
"""The first of the characters whose words are pairs. A question of lone characters asks for the pairs with them."""
_WITH_WORD = "SELECT nodes, counts FROM posting WHERE word = :word ORDER BY block"
_WITH_CHARACTER = f"""
WITH RECURSIVE first (sign) AS (
    SELECT substr(min(word), 1, 1) FROM posting WHERE word >= '{_FIRST_CJK}'
    UNION ALL
    SELECT (SELECT substr(min(word), 1, 1) FROM posting WHERE word > sign || char(0x10FFFF))
    FROM first WHERE sign IS NOT NULL
)
SELECT nodes, counts FROM posting WHERE word BETWEEN :word AND :word || char(0x10FFFF)
UNION ALL
SELECT nodes, counts FROM first CROSS JOIN posting ON word = sign || :word WHERE sign <> :word
"""  # noqa: S608 - a constant

_K, _B = 2.4, 0.85
"""The weights of repeated words and of the lengths of texts. They answered questions of four handbooks best."""
_MOST_COUNT = 255
_MOST_BLOCKS = 64
_SMALL = 4096
_KEPT_WORDS = 2000

Array = np.ndarray[Any, Any]


class _Numbering(dict[str, int]):
    """Numbers for words, in the order in which they are first looked up."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class Postings:
    """The words of the nodes of a store.

    Args:
        connection: The database.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._of_word: dict[str, tuple[Array, Array]] = {}
        self._lengths: Array | None = None

    def forget(self) -> None:
        """Forget the words in memory, because the database has changed."""
        self._of_word.clear()
        self._lengths = None

    def add(self, words: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Add the words of new nodes as one block, and join small blocks when there are many.

        Args:
            words: Numbers of nodes in ascending order, and their words.
        """
        known = _Numbering()
        nodes, lengths, flat = array("i"), array("i"), array("q")
        for number, own in words:
            nodes.append(number)
            lengths.append(len(own))
            flat.extend(map(known.__getitem__, own))
        if not nodes:
            return
        places = np.repeat(np.arange(len(nodes)), lengths)
        pairs, counts = np.unique(np.asarray(flat) * len(nodes) + places, return_counts=True)
        of_word, place = np.divmod(pairs, len(nodes))
        of_node, counts = np.asarray(nodes)[place], np.minimum(counts, _MOST_COUNT).astype(np.uint8)
        bounds = np.searchsorted(of_word, np.arange(len(known) + 1)).tolist()
        rows = [
            (word, of_node[begin:end].tobytes(), counts[begin:end].tobytes())
            for word, (begin, end) in zip(known, pairwise(bounds), strict=True)
        ]
        self._write(nodes, lengths, sorted(rows))
        blocks = self._connection.execute("SELECT count(*) FROM block").fetchone()[0]
        if blocks > _MOST_BLOCKS:
            self._join()
        self.forget()

    def _write(self, nodes: "array[int]", lengths: "array[int]", words: list[tuple[str, bytes, bytes]]) -> None:
        block = self._connection.execute("SELECT coalesce(max(block), 0) + 1 FROM block").fetchone()[0]
        self._connection.execute("INSERT INTO block VALUES (?, ?, ?)", (block, nodes.tobytes(), lengths.tobytes()))
        self._connection.executemany(
            "INSERT INTO posting VALUES (?, ?, ?, ?)", [(word, block, of, counts) for word, of, counts in words]
        )

    def _join(self) -> None:
        """Make one block of the small ones."""
        read = self._connection.execute
        small = "SELECT block FROM block WHERE length(nodes) < ?"
        size = (_SMALL * array("i").itemsize,)
        nodes, lengths = array("i"), array("i")
        query = f"SELECT nodes, lengths FROM block WHERE block IN ({small}) ORDER BY block"  # noqa: S608 - constants
        for of, own in read(query, size):
            nodes.frombytes(of)
            lengths.frombytes(own)
        found: dict[str, tuple[list[bytes], list[bytes]]] = defaultdict(lambda: ([], []))
        query = f"SELECT word, nodes, counts FROM posting WHERE block IN ({small}) ORDER BY word, block"  # noqa: S608
        for word, of, counts in read(query, size):
            found[word][0].append(of)
            found[word][1].append(counts)
        read(f"DELETE FROM posting WHERE block IN ({small})", size)  # noqa: S608
        read("DELETE FROM block WHERE length(nodes) < ?", size)
        self._write(nodes, lengths, [(word, b"".join(of), b"".join(own)) for word, (of, own) in found.items()])

    def scores(self, words: Iterable[str], size: int) -> Array:
        """Return the BM25 score of each node number below ``size``; 0 for nodes without any of the words."""
        scores = np.zeros(size, np.float32)
        lengths = self._all_lengths(size)
        known = int(np.count_nonzero(lengths))
        if not known:
            return scores
        part = (_K * (1 - _B + _B * lengths / (lengths.sum() / known))).astype(np.float32)
        asked = set(words)
        if all(len(word) == 1 and word >= _FIRST_CJK for word in asked):
            asked = {f"{word}*" for word in asked}
        for word in asked:
            nodes, counts = self._postings(word)
            if len(nodes):
                weight = np.log(1 + (known - len(nodes) + 0.5) / (len(nodes) + 0.5))
                scores[nodes] += weight * counts * (_K + 1) / (counts + part[nodes])
        return scores

    def _all_lengths(self, size: int) -> Array:
        lengths = self._lengths
        if lengths is None or len(lengths) < size:
            lengths = np.zeros(size, np.int32)
            for of, own in self._connection.execute("SELECT nodes, lengths FROM block"):
                lengths[np.frombuffer(of, np.int32)] = np.frombuffer(own, np.int32)
            self._lengths = lengths
        return lengths

    def _postings(self, word: str) -> tuple[Array, Array]:
        found = self._of_word.get(word)
        if found is None:
            query = _WITH_CHARACTER if word.endswith("*") else _WITH_WORD
            blocks = self._connection.execute(query, {"word": word.rstrip("*")}).fetchall()
            nodes = np.frombuffer(b"".join(row[0] for row in blocks), np.int32)
            counts = np.frombuffer(b"".join(row[1] for row in blocks), np.uint8).astype(np.float32)
            if word.endswith("*"):  # a text has it in several words
                nodes, places = np.unique(nodes, return_inverse=True)
                counts = np.bincount(places, counts, len(nodes)).astype(np.float32)
            if len(self._of_word) >= _KEPT_WORDS:
                self._of_word.clear()
            found = self._of_word[word] = nodes, counts
        return found
