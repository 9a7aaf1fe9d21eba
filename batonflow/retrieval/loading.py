"""Indexes that a store has: opened by id, or all of them."""

from collections.abc import Sequence
from typing import Any

from batonflow.retrieval.index import BaseIndex, IndexStruct
from batonflow.retrieval.indexes import INDEXES
from batonflow.retrieval.node_store import NodeStoreError
from batonflow.retrieval.storage import StorageContext

__all__ = ["load_index_from_storage", "load_indices_from_storage"]


def load_index_from_storage(storage_context: StorageContext, index_id: str | None = None, **kwargs: Any) -> BaseIndex:
    """Open the index of a store.

    Args:
        storage_context: The store.
        index_id: Its id; not needed if there is one index.
        kwargs: Arguments of the index, such as ``embed_model``.

    Raises:
        ValueError: There is no such index, or more than one and no id.
        NodeStoreError: The index was made with another embedding model.
    """
    found = load_indices_from_storage(storage_context, None if index_id is None else [index_id], **kwargs)
    if not found:
        raise ValueError("No index in storage context")
    if len(found) > 1:
        ids = ", ".join(one.index_id for one in found)
        raise ValueError(f"Expected to load a single index, but got {len(found)} instead: give index_id, one of {ids}")
    return found[0]


def load_indices_from_storage(
    storage_context: StorageContext, index_ids: Sequence[str] | None = None, **kwargs: Any
) -> list[BaseIndex]:
    """Open the indexes of a store; see ``load_index_from_storage``."""
    stored = {one.id: one for one in storage_context.store.indexes()}
    found: list[BaseIndex] = []
    for index_id in stored if index_ids is None else index_ids:
        if (one := stored.get(index_id)) is None:
            raise ValueError(f"there is no index {index_id!r} in the store")
        if (cls := INDEXES.get(one.type)) is None:
            raise NodeStoreError(f"index {index_id} is of the unknown kind {one.type}")
        struct = IndexStruct(storage_context.store, one.number, one.id)
        found.append(cls(index_struct=struct, storage_context=storage_context, **kwargs))
    return found
