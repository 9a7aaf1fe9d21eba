"""Places of indexes: a file, memory, or a store of vectors of another maker."""

import sqlite3
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import ConfigDict

from batonflow.nodes import BaseNode
from batonflow.retrieval.filters import MetadataFilters
from batonflow.retrieval.json_folders import read_folder, read_values, write_folder
from batonflow.retrieval.kv_store import SimpleKVStore
from batonflow.retrieval.node_store import FILE_IN_FOLDER, UNNAMED_MODEL, WORDS_ONLY, NodeStore, StoredIndex
from batonflow.retrieval.vectors import (
    BasePydanticVectorStore,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
    best_and_different,
)
from batonflow.threads import in_thread

__all__ = ["RefDocInfo", "SimpleDocumentStore", "SimpleIndexStore", "SimpleVectorStore", "StorageContext"]

_BY_WORDS = {VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE}
_BY_BOTH = {VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SEMANTIC_HYBRID}


class RefDocInfo(NamedTuple):
    """The nodes of a document, and its metadata."""

    node_ids: list[str]
    metadata: dict[str, Any]


class _View:
    def __init__(
        self,
        store: NodeStore | SimpleKVStore | None = None,
        simple_kvstore: SimpleKVStore | None = None,
        namespace: str | None = None,  # noqa: ARG002 - programs give it and the next
        batch_size: int = 1,  # noqa: ARG002
    ) -> None:
        given = store or simple_kvstore
        self.store = read_values(given.to_dict()) if isinstance(given, SimpleKVStore) else given or NodeStore()


class SimpleDocumentStore(_View):
    """The nodes and documents of a store.

    Args:
        store: The store; by default a new one in memory.
        simple_kvstore: A store of LlamaIndex's values, in the place of it. They are copied.
    """

    @property
    def docs(self) -> dict[str, BaseNode]:
        """All nodes by their ids."""
        return {node.id_: node for node in self.store.nodes()}

    def add_documents(self, nodes: Sequence[BaseNode], allow_update: bool = True) -> None:
        """Add nodes.

        Raises:
            ValueError: A node exists, and ``allow_update`` is False.
        """
        if not allow_update and (known := self.store.nodes([node.id_ for node in nodes])):
            raise ValueError(f"node {known[0].id_} exists already: set allow_update to replace it")
        self.store.add_nodes(nodes)

    def document_exists(self, doc_id: str) -> bool:
        """Tell whether a node exists."""
        return bool(self.store.numbers_of([doc_id]))

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Return a node.

        Raises:
            ValueError: It does not exist, and ``raise_error`` is set.
        """
        found = self.store.nodes([doc_id])
        if not found and raise_error:
            raise ValueError(f"there is no node {doc_id}")
        return found[0] if found else None

    def get_node(self, node_id: str, raise_error: bool = True) -> BaseNode | None:
        """Return a node; see ``get_document``."""
        return self.get_document(node_id, raise_error)

    def get_nodes(self, node_ids: Sequence[str], raise_error: bool = True) -> list[BaseNode]:
        """Return nodes; see ``get_document``."""
        found = self.store.nodes(node_ids)
        if raise_error and len(found) < len(set(node_ids)):
            missing = set(node_ids) - {node.id_ for node in found}
            raise ValueError(f"there is no node {min(missing)}")
        return found

    async def aget_nodes(self, node_ids: Sequence[str], raise_error: bool = True) -> list[BaseNode]:
        """Return nodes; see ``get_document``."""
        return await in_thread(self.get_nodes, node_ids, raise_error)

    def delete_document(self, doc_id: str, raise_error: bool = True) -> None:
        """Delete a node; see ``get_document``."""
        numbers = self.store.numbers_of([doc_id])
        if not numbers and raise_error:
            raise ValueError(f"there is no node {doc_id}")
        self.store.delete_nodes(numbers)

    def set_document_hash(self, doc_id: str, doc_hash: str) -> None:
        """Store the hash of a document."""
        self.store.note_document(doc_id, doc_hash)

    def get_document_hash(self, doc_id: str) -> str | None:
        """Return the hash of a document, or None."""
        return self.store.document_hash(doc_id)

    def get_all_ref_doc_info(self) -> dict[str, RefDocInfo]:
        """Return all documents with their nodes."""
        found = {doc: RefDocInfo([], metadata) for doc, (_, metadata) in self.store.documents().items()}
        for node in self.store.nodes():
            if node.ref_doc_id in found:
                found[node.ref_doc_id].node_ids.append(node.id_)
        return found

    def get_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Return a document with its nodes, or None."""
        known = self.store.documents().get(ref_doc_id)
        return known and RefDocInfo([node.id_ for node in self.store.nodes(doc=ref_doc_id)], known[1])

    def ref_doc_exists(self, ref_doc_id: str) -> bool:
        """Tell whether a document exists."""
        return ref_doc_id in self.store.documents()

    def delete_ref_doc(self, ref_doc_id: str, raise_error: bool = True) -> None:
        """Delete a document with its nodes; see ``get_document``."""
        numbers = self.store.numbers_of_document(ref_doc_id)
        if raise_error and not numbers and not self.ref_doc_exists(ref_doc_id):
            raise ValueError(f"there is no document {ref_doc_id}")
        with self.store.writing():
            self.store.delete_nodes(numbers)
            self.store.forget_document(ref_doc_id)


class SimpleIndexStore(_View):
    """The indexes of a store.

    Args:
        store: The store; by default a new one in memory.
        simple_kvstore: A store of LlamaIndex's values, in the place of it. They are copied.
    """

    def index_structs(self) -> list[StoredIndex]:
        """Return all indexes."""
        return self.store.indexes()

    def get_index_struct(self, struct_id: str | None = None) -> StoredIndex | None:
        """Return an index; by default the only one.

        Raises:
            ValueError: There are several.
        """
        found = [one for one in self.store.indexes() if struct_id in {None, one.id}]
        if len(found) > 1:
            raise ValueError(f"there are several indexes: give the id of one of {', '.join(one.id for one in found)}")
        return found[0] if found else None

    def delete_index_struct(self, key: str) -> None:
        """Delete an index; its nodes stay."""
        if (found := self.get_index_struct(key)) is not None:
            self.store.delete_index(found.number)


class SimpleVectorStore(BasePydanticVectorStore):
    """The vectors of a store.

    Args:
        store: The store; by default a new one in memory.
        model: The name of the model of the vectors.
        index: The number of the index whose nodes are searched; None for all nodes.

    Raises:
        ValueError: The mode of a query is not offered.
    """

    _class_name: ClassVar[str] = "SimpleVectorStore"

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    def __init__(self, store: NodeStore | None = None, model: str = UNNAMED_MODEL, index: int | None = None) -> None:
        super().__init__()
        self._store = NodeStore() if store is None else store
        self._model, self._index = model, index

    _store: NodeStore
    _model: str
    _index: int | None

    def join(self, docstore: SimpleDocumentStore) -> None:
        """Put the vectors and the nodes of a document store into one store."""
        if self._store is docstore.store:
            return
        if not (own := {node.id_ for node in self._store.nodes()}):
            self._store = docstore.store
            return
        with self._store.writing():
            self._store.add_nodes([node for node in docstore.store.nodes() if node.id_ not in own])
            for doc, (content, metadata) in docstore.store.documents().items():
                self._store.note_document(doc, content, metadata)
        docstore.store = self._store

    def place(self) -> dict[str, Any]:
        """Return the arguments of ``at`` for records.

        Raises:
            ValueError: The store is in memory, so that another process cannot open it.
        """
        if self._store.path == ":memory:":
            raise ValueError('a SimpleVectorStore in memory cannot be recorded: give it NodeStore("notes.db")')
        return {"path": str(Path(self._store.path).absolute()), "model": self._model, "index": self._index}

    @classmethod
    def at(cls, path: str, model: str = "given", index: int | None = None) -> Self:
        """Return the vectors of a store in a file."""
        return cls(NodeStore(path), model, index)

    @property
    def client(self) -> NodeStore:
        """The store."""
        return self._store

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes with vectors, and return their ids."""
        self._store.add_nodes(nodes, model=self._model)
        return [node.id_ for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a document."""
        self._store.delete_nodes(self._store.numbers_of_document(ref_doc_id))

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> None:
        """Delete nodes by their ids, or by conditions on their metadata."""
        self._store.delete_nodes(self._store.numbers_of([node.id_ for node in self.get_nodes(node_ids, filters)]))

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return nodes by their ids, or by conditions on their metadata."""
        with self._store.reading():
            allowed = self._store.mask(index=self._index, filters=filters, ids=node_ids)
            nodes = self._store.nodes()
        return nodes if allowed is None else [node for node, one in zip(nodes, allowed, strict=True) if one]

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """Find nodes."""
        with self._store.reading():
            return self._found(query)

    def _found(self, query: VectorStoreQuery) -> VectorStoreQueryResult:
        store, mode, asked, text = self._store, query.mode, query.query_embedding, query.query_str or ""
        allowed = store.mask(index=self._index, filters=query.filters, ids=query.node_ids, docs=query.doc_ids)
        top_k = query.similarity_top_k
        if mode in _BY_WORDS or (asked is None and self._model == WORDS_ONLY):
            found = store.by_words(text, query.sparse_top_k or top_k if mode in _BY_WORDS else top_k, allowed)
        elif mode not in {*_BY_BOTH, VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR}:
            raise ValueError(f"Invalid query mode: {mode}; the modes are default, mmr, text_search, sparse and hybrid")
        elif asked is None:
            raise ValueError("the query has no vector: give query_embedding")
        elif mode in _BY_BOTH:
            found = store.by_both(text, self._model, asked, query.hybrid_top_k or top_k, allowed, query.alpha)
        elif mode is VectorStoreQueryMode.MMR:
            found = store.by_vector(self._model, asked, max(4 * top_k, 50), allowed)
            unit = store.vectors(self._model, [one.number for one in found])
            threshold = 0.5 if query.mmr_threshold is None else query.mmr_threshold
            chosen = best_and_different(asked, unit, top_k, threshold)
            found = [found[at]._replace(score=score) for at, score in chosen]
        else:
            found = store.by_vector(self._model, asked, top_k, allowed)
        return VectorStoreQueryResult(
            [one.node for one in found], [one.score for one in found], [one.node.id_ for one in found]
        )


class StorageContext:
    """The place of indexes.

    Args:
        store: Nodes, words, vectors and indexes.
        vector_store: A store of vectors of another maker, which is used in the place of ours.

    Example:
        >>> storage = StorageContext.from_defaults(path="notes.db")
        >>> index = VectorStoreIndex.from_documents(documents, storage_context=storage)
    """

    def __init__(self, store: NodeStore | None = None, vector_store: BasePydanticVectorStore | None = None) -> None:
        self.store = NodeStore() if store is None else store
        self.docstore = SimpleDocumentStore(self.store)
        self.index_store = SimpleIndexStore(self.store)
        self.vector_stores: dict[str, BasePydanticVectorStore] = {}
        if vector_store is not None:
            self.vector_stores["default"] = vector_store

    @property
    def vector_store(self) -> BasePydanticVectorStore:
        """The store of vectors."""
        return self.vector_stores.setdefault("default", SimpleVectorStore(self.store))

    @property
    def foreign_vectors(self) -> BasePydanticVectorStore | None:
        """The store of vectors if another maker wrote it."""
        found = self.vector_stores.get("default")
        return None if found is None or (isinstance(found, SimpleVectorStore) and found.client is self.store) else found

    def add_vector_store(self, vector_store: BasePydanticVectorStore, namespace: str) -> None:
        """Add a store of vectors under a name."""
        self.vector_stores[namespace] = vector_store

    @classmethod
    def from_defaults(
        cls,
        docstore: SimpleDocumentStore | None = None,
        index_store: Any = None,  # noqa: ARG003 - programs give one
        vector_store: Any = None,
        vector_stores: dict[str, Any] | None = None,
        persist_dir: str | PathLike[str] | None = None,
        path: str | PathLike[str] | None = None,
    ) -> Self:
        """Return a place of indexes.

        Args:
            docstore: A store whose nodes are used.
            index_store: Accepted and left out; the indexes are in the store of the nodes.
            vector_store: A store of vectors.
            vector_stores: Stores of vectors by name; that named ``"default"`` is used.
            persist_dir: A folder of ``persist``, also of LlamaIndex. It is read into memory.
            path: A file of nodes, in which all changes are written at once.

        Raises:
            FileNotFoundError: ``persist_dir`` does not exist.
            NodeStoreError: The file is not one of batonflow, or the folder cannot be read.
        """
        own = vector_store if isinstance(vector_store, SimpleVectorStore) else None
        if own is not None and docstore is not None:
            own.join(docstore)
        store = docstore.store if docstore is not None else own.client if own is not None else None
        if path is not None:
            store = NodeStore(path)
        elif persist_dir is not None:
            store = _read_folder(Path(persist_dir))
        made = cls(store, vector_store)
        made.vector_stores.update(vector_stores or {})
        return made

    def persist(
        self,
        persist_dir: str | PathLike[str] = "./storage",
        *,
        format: Literal["sqlite", "json"] = "sqlite",  # noqa: A002 - the clearest name
    ) -> None:
        """Write all nodes and indexes into a folder.

        Args:
            persist_dir: The folder.
            format: ``"sqlite"`` for one file, or ``"json"`` for the files of LlamaIndex, which it opens.

        Raises:
            ValueError: The format is unknown, the folder has a file of the other format, or there are vectors of
                several models.
        """
        if format == "json":
            if (Path(persist_dir) / FILE_IN_FOLDER).exists():  # it would be read instead
                raise ValueError(f"{persist_dir} has a {FILE_IN_FOLDER}: name another folder for JSON")
            write_folder(self.store, Path(persist_dir))
            return
        if format != "sqlite":
            raise ValueError(f"the format is 'sqlite' or 'json', not {format!r}")
        Path(persist_dir).mkdir(parents=True, exist_ok=True)
        target = sqlite3.connect(Path(persist_dir) / FILE_IN_FOLDER)
        try:
            self.store.copy_to(target)
        finally:
            target.close()


def _read_folder(folder: Path) -> NodeStore:
    file = folder / FILE_IN_FOLDER
    if not file.exists():
        if (folder / "docstore.json").exists():
            return read_folder(folder)
        raise FileNotFoundError(f"there is no {file}: persist() writes it")
    source = sqlite3.connect(file)
    try:
        return NodeStore.copy_of(source)
    finally:
        source.close()
