"""Indexes as they are in their stores, and the nodes that a store has already."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast
from weakref import WeakValueDictionary

from batonflow.nodes import BaseNode
from batonflow.retrieval.node_store import NodeStore, NodeStoreError
from batonflow.retrieval.storage import StorageContext

__all__ = ["IndexStruct", "RecordedIndex", "data_of", "index_of", "opened_or_made", "stored_ones"]

_OPEN: "WeakValueDictionary[tuple[str, str], RecordedIndex]" = WeakValueDictionary()
"""The indexes in files that are open in this process, by path and id."""


class IndexStruct:
    """The nodes of an index, as they are in its store.

    Args:
        store: The store.
        number: The number of the index.
        index_id: The id of the index.
        summary: The subject of the index.
    """

    def __init__(self, store: NodeStore, number: int, index_id: str, summary: str | None = None) -> None:
        self.store, self.number, self.index_id, self.summary = store, number, index_id, summary

    @property
    def nodes(self) -> list[str]:
        """The ids of the nodes, in their order."""
        return [node.id_ for node in self.store.nodes_at(self.store.members(self.number))]

    @property
    def nodes_dict(self) -> dict[str, str]:
        """The ids of the nodes, by themselves."""
        return {node_id: node_id for node_id in self.nodes}

    @property
    def table(self) -> dict[str, set[str]]:
        """The ids of the nodes by keyword."""
        found: dict[str, set[str]] = {}
        pairs = self.store.keywords(self.number)
        numbers = list({n for _, n in pairs})
        ids = dict(zip(numbers, (node.id_ for node in self.store.nodes_at(numbers)), strict=True))
        for word, n in pairs:
            found.setdefault(word, set()).add(ids[n])
        return found

    def missing(self, nodes: Sequence[BaseNode]) -> list[BaseNode]:
        """Return those of the nodes that the index does not have as they are."""
        with self.store.reading():
            hashes, members = self.store.hashes(ids=[node.id_ for node in nodes]), set(self.store.members(self.number))
            same = (node.id_ for node in nodes if hashes.get(node.id_) == node.hash)
            held = {node_id for node_id in same if self.store.numbers_of([node_id])[0] in members}
        return [node for node in nodes if node.id_ not in held]


class RecordedIndex:
    """The base class of indexes as values in records, which hold the places of indexes in files."""

    _store: NodeStore
    _struct: IndexStruct

    def _register(self) -> None:
        if self._store.path != ":memory:":
            _OPEN[str(Path(self._store.path).absolute()), self._struct.index_id] = self

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in records."""
        return cls.__name__

    def to_dict(self) -> dict[str, Any]:
        """Return the place of the index, for records of runs.

        Raises:
            ValueError: The index is in memory, so that another process cannot open it.
        """
        if self._store.path == ":memory:":
            raise ValueError(
                f"a {type(self).__name__} in memory cannot be recorded: make it with "
                'storage_context=StorageContext.from_defaults(path="notes.db")'
            )
        return {"path": str(Path(self._store.path).absolute()), "index_id": self._struct.index_id}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the index at a place, as it is if it is open in this process."""
        if isinstance(known := _OPEN.get((data["path"], data["index_id"])), cls):
            return known
        storage = StorageContext.from_defaults(path=data["path"])
        stored = next((one for one in storage.store.indexes() if one.id == data["index_id"]), None)
        if stored is None:
            raise NodeStoreError(f"there is no index {data['index_id']} in {data['path']} any more")
        return cast("Any", cls)(
            index_struct=IndexStruct(storage.store, stored.number, stored.id), storage_context=storage
        )


def data_of(store: NodeStore, number: int) -> dict[str, Any]:
    """Return the data of an index."""
    return next((one.struct for one in store.indexes() if one.number == number), dict[str, Any]())


def opened_or_made(store: NodeStore, kind: str, index_id: str, data: Mapping[str, Any]) -> tuple[IndexStruct, bool]:
    """Return the index of an id, and True if it is new. An index of another kind is a NodeStoreError."""
    with store.writing():
        known = next((one for one in store.indexes() if one.id == index_id), None)
        if known is not None and known.type != kind:
            raise NodeStoreError(f"index {index_id} is of the kind {known.type}, not {kind}: give another index_id")
        number = store.put_index(index_id, kind, data) if known is None else known.number
        return IndexStruct(store, number, index_id), known is None


def index_of(kind: str, store: NodeStore, nodes: Sequence[BaseNode]) -> IndexStruct | None:
    """Return the index of a kind with just these nodes, or None."""
    numbers = store.numbers_of([node.id_ for node in nodes])
    if not numbers or len(numbers) != len({node.id_ for node in nodes}):
        return None
    same = (one for one in store.indexes() if one.type == kind and _leaves(store, one.number) == set(numbers))
    return next((IndexStruct(store, one.number, one.id) for one in same), None)


def _leaves(store: NodeStore, number: int) -> set[int]:
    """Return the nodes of an index without the summaries above them."""
    members = store.members(number)
    return set(members) - store.parents(number, members)


def stored_ones(
    store: NodeStore, document: BaseNode, nodes: list[BaseNode], known: Mapping[str | None, str]
) -> list[BaseNode]:
    """Replace the nodes of a document by equal ones in the store."""
    if (doc := known.get(document.hash)) is None:
        return nodes
    mine = [node for node in nodes if node.ref_doc_id == document.id_]
    stored = store.nodes(doc=doc)
    if [node.hash for node in mine] != list(store.hashes(doc=doc).values()):
        return nodes
    instead = {new.id_: old for new, old in zip(mine, stored, strict=True)}
    return [instead.get(node.id_, node) for node in nodes]
