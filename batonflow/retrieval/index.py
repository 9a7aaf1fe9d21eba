"""The base class of indexes: made of nodes, and changed by documents."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Self

from batonflow.instrumentation.logs import logger_named
from batonflow.llms import Settings
from batonflow.nodes import BaseNode, Document, IndexNode, TransformComponent
from batonflow.nodes.schema import document_of
from batonflow.retrieval.index_engines import IndexEngines
from batonflow.retrieval.node_store import UNNAMED_MODEL, WORDS_ONLY, NodeStoreError
from batonflow.retrieval.splitters import SentenceSplitter
from batonflow.retrieval.storage import RefDocInfo, SimpleDocumentStore, StorageContext
from batonflow.retrieval.stored_index import IndexStruct, RecordedIndex, data_of, index_of, opened_or_made, stored_ones
from batonflow.threads import in_thread

__all__ = ["BaseIndex", "IndexStruct"]

logger = logger_named("batonflow.retrieval")


class BaseIndex(RecordedIndex, IndexEngines):
    """The base class of indexes.

    Args:
        nodes: The nodes; they may be documents.
        objects: Index nodes with objects, which count as nodes.
        index_struct: An index that exists, in the place of nodes.
        storage_context: The place of the nodes; by default memory.
        transformations: Transformations of documents; by default the node parser of ``Settings``.
        show_progress: Accepted and kept.
        callback_manager: Accepted and kept; use instrumentation instead.
        index_id: The id. An index of this id in the store is opened, and gets those of the nodes that it lacks.

    Raises:
        ValueError: Neither or both of ``nodes`` and ``index_struct`` are given.
        NodeStoreError: The index of this id is of another kind.
    """

    index_type: ClassVar[str] = "base"
    writes_at_once: ClassVar[bool] = True
    """True if nodes are added in one transaction, without requests to a model in it."""

    def __init__(
        self,
        nodes: Sequence[BaseNode] | None = None,
        objects: Sequence[IndexNode] | None = None,
        index_struct: IndexStruct | None = None,
        storage_context: StorageContext | None = None,
        transformations: Sequence[TransformComponent] | None = None,
        show_progress: bool = False,
        callback_manager: Any = None,
        index_id: str | None = None,
    ) -> None:
        if (index_struct is None) == (nodes is None and objects is None):
            raise ValueError(f"{type(self).__name__}() needs nodes or index_struct, one of the two")
        self._storage_context = storage_context or StorageContext()
        self._store = self._storage_context.store
        self._transformations = list(transformations) if transformations is not None else None
        self._show_progress, self.callback_manager = show_progress, callback_manager
        self._object_map = {one.index_id: one.obj for one in objects or () if one.obj is not None}
        given = [document_of(one) for one in (*(nodes or ()), *(objects or ()))]
        made, is_new = index_struct, False
        if made is None:
            made, is_new = opened_or_made(self._store, self.index_type, index_id or str(uuid.uuid4()), self._data())
        self._struct = made
        if not is_new:
            self._check(data_of(self._store, made.number))
            given = made.missing(given)
        self._register()
        if not given:
            return
        try:
            self._add(given)
        except BaseException:
            if is_new and not set(made.nodes) - {one.id_ for one in given}:  # others may have opened it meanwhile
                self._store.delete_index(made.number)
            raise

    @classmethod
    def from_documents(
        cls,
        documents: Sequence[Document | Any],
        storage_context: StorageContext | None = None,
        transformations: Sequence[TransformComponent] | None = None,
        show_progress: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Return an index of documents. Documents that the store has already add nothing to it.

        With ``index_id``, the index of this id gets the documents if it exists.

        Args:
            documents: The documents.
            storage_context: The place of the nodes; by default memory.
            transformations: Transformations of documents; by default the node parser of ``Settings``.
            show_progress: Accepted and kept.
            kwargs: Further arguments of the index.
        """
        storage = storage_context or StorageContext()
        steps = transformations if transformations is not None else default_transformations()
        given = [document_of(one) for one in documents]
        nodes = transformed(given, steps)
        known = {content: doc for doc, (content, _) in storage.store.documents().items()}
        for document in given:
            nodes = stored_ones(storage.store, document, nodes, known)
        options: dict[str, Any] = {"storage_context": storage, "transformations": steps, **kwargs}
        same = None if kwargs.get("index_id") else index_of(cls.index_type, storage.store, nodes)
        if same is not None:
            with suppress(NodeStoreError):  # it was made with another model
                return cls(index_struct=same, **options)
        made = cls(nodes, show_progress=show_progress, **options)
        made._note(given, known)
        return made

    def _note(self, documents: Sequence[BaseNode], known: Mapping[str | None, str]) -> None:
        with self._store.writing():
            for document in documents:
                if document.hash not in known:
                    self._store.note_document(document.id_, document.hash, document.metadata)

    # --- for subclasses -----------------------------------------------------------------------------------------------

    def _data(self) -> dict[str, Any]:
        """Return the data of the index in its store."""
        return {}

    def _check(self, data: Mapping[str, Any]) -> None:
        """Refuse to open an index that this object cannot use."""

    def _check_model(self, data: Mapping[str, Any], key: str) -> None:
        made = data.get("embed_model", WORDS_ONLY)
        if made == UNNAMED_MODEL:
            self._name_model(key)
        elif made != key:
            raise NodeStoreError(
                f"index {self.index_id} was made with {made or 'words alone'}, not {key or 'words alone'}: "
                "give the same embed_model, or make the index again"
            )

    def _name_model(self, key: str) -> None:
        """Give vectors without the name of a model to this one. A search by words leaves them for later."""
        if key == WORDS_ONLY:
            return
        with self._store.writing():
            self._store.rename_vectors(UNNAMED_MODEL, key)
            for one in self._store.indexes():
                if one.struct.get("embed_model") == UNNAMED_MODEL:
                    self._store.put_index(one.id, one.type, {**one.struct, "embed_model": key}, one.number)

    def _add(self, nodes: Sequence[BaseNode]) -> None:
        """Add nodes to the store and to the index."""
        with self._store.writing():
            numbers = self._store.add_nodes(nodes)
            self._store.add_members(self._struct.number, numbers)

    async def prepare(self, nodes: Sequence[BaseNode]) -> None:
        """Prepare nodes before they are added, for example with vectors."""

    def _remove(self, numbers: Sequence[int]) -> None:
        """Remove nodes from the index; they stay in the store."""
        self._store.remove_members(self._struct.number, numbers)

    # --- facts --------------------------------------------------------------------------------------------------------

    @property
    def index_id(self) -> str:
        """The id of the index."""
        return self._struct.index_id

    def set_index_id(self, index_id: str) -> None:
        """Give the index another id."""
        data = data_of(self._store, self._struct.number)
        self._store.put_index(index_id, self.index_type, data, self._struct.number)
        self._struct.index_id = index_id

    @property
    def transformations(self) -> list[TransformComponent]:
        """The transformations of documents."""
        return default_transformations() if self._transformations is None else list(self._transformations)

    @property
    def index_struct(self) -> IndexStruct:
        """The nodes of the index."""
        return self._struct

    @property
    def docstore(self) -> SimpleDocumentStore:
        """The nodes of the store."""
        return self._storage_context.docstore

    @property
    def storage_context(self) -> StorageContext:
        """The place of the nodes."""
        return self._storage_context

    @property
    def summary(self) -> str:
        """The subject of the index."""
        return str(data_of(self._store, self._struct.number).get("summary", ""))

    @summary.setter
    def summary(self, new_summary: str) -> None:
        data = {**data_of(self._store, self._struct.number), "summary": new_summary}
        self._store.put_index(self.index_id, self.index_type, data, self._struct.number)

    @property
    def ref_doc_info(self) -> dict[str, RefDocInfo]:
        """The documents of the nodes of this index."""
        known, found = self._store.documents(), dict[str, RefDocInfo]()
        for doc, node_id in self._store.documents_in(self._struct.number):
            found.setdefault(doc, RefDocInfo([], known.get(doc, (None, {}))[1])).node_ids.append(node_id)
        return found

    # --- changes ------------------------------------------------------------------------------------------------------

    def insert_nodes(self, nodes: Sequence[BaseNode], **_: Any) -> None:
        """Add nodes."""
        self._add([document_of(one) for one in nodes])

    def insert(self, document: Document | Any, **_: Any) -> None:
        """Add a document."""
        node = document_of(document)
        self._add(transformed([node], self.transformations))
        self._note([node], {})

    def delete_nodes(self, node_ids: Sequence[str], delete_from_docstore: bool = False, **_: Any) -> None:
        """Remove nodes from the index.

        Args:
            node_ids: The ids of the nodes.
            delete_from_docstore: Whether to delete them from the store too.
        """
        numbers = self._store.numbers_of(node_ids)
        self._remove(numbers)
        if delete_from_docstore:
            self._store.delete_nodes(numbers)

    def delete_ref_doc(self, ref_doc_id: str, delete_from_docstore: bool = False, **_: Any) -> None:
        """Remove the nodes of a document from the index; see ``delete_nodes``."""
        numbers = self._store.numbers_of_document(ref_doc_id)
        if not numbers:
            logger.warning("there is no document %s in index %s", ref_doc_id, self.index_id)
            return
        self._remove(numbers)
        if delete_from_docstore:
            self.docstore.delete_ref_doc(ref_doc_id)

    def update_ref_doc(self, document: Document | Any, **_: Any) -> None:
        """Replace the nodes of a document by those of a later version."""
        node = document_of(document)
        former = self._store.nodes(doc=node.id_)
        if former and self._storage_context.foreign_vectors is not None:  # it deletes by documents alone
            self.delete_ref_doc(node.id_, delete_from_docstore=True)
            former = []
        nodes = transformed([node], self.transformations)
        self._add(nodes)  # a failure here leaves the former version
        with self._store.writing():
            kept = {one.id_ for one in nodes}
            self.delete_nodes([one.id_ for one in former if one.id_ not in kept], delete_from_docstore=True)
            self._note([node], {})

    def refresh_ref_docs(self, documents: Sequence[Document | Any], **_: Any) -> list[bool]:
        """Add new documents and replace changed ones; tell for each whether it was new or changed."""
        done: list[bool] = []
        for document in map(document_of, documents):
            known = self._store.document_hash(document.id_)
            done.append(known != document.hash)
            if known is None:
                self.insert(document)
            elif known != document.hash:
                self.update_ref_doc(document)
        return done

    async def ainsert_nodes(self, nodes: Sequence[BaseNode], **kwargs: Any) -> None:
        """Add nodes, in a thread. Requests to an embedding model are sent from here, ``num_workers`` at once."""
        given = [document_of(one) for one in nodes]
        await self.prepare(given)
        await in_thread(lambda: self.insert_nodes(given, **kwargs))

    async def ainsert(self, document: Document | Any, **kwargs: Any) -> None:
        """Add a document, in a thread."""
        await in_thread(lambda: self.insert(document, **kwargs))

    async def adelete_nodes(self, node_ids: Sequence[str], delete_from_docstore: bool = False, **kwargs: Any) -> None:
        """Remove nodes, in a thread; see ``delete_nodes``."""
        await in_thread(lambda: self.delete_nodes(node_ids, delete_from_docstore, **kwargs))

    async def adelete_ref_doc(self, ref_doc_id: str, delete_from_docstore: bool = False, **kwargs: Any) -> None:
        """Remove the nodes of a document, in a thread; see ``delete_ref_doc``."""
        await in_thread(lambda: self.delete_ref_doc(ref_doc_id, delete_from_docstore, **kwargs))

    async def aupdate_ref_doc(self, document: Document | Any, **kwargs: Any) -> None:
        """Replace the nodes of a document, in a thread."""
        await in_thread(lambda: self.update_ref_doc(document, **kwargs))

    async def arefresh_ref_docs(self, documents: Sequence[Document | Any], **kwargs: Any) -> list[bool]:
        """Add new documents and replace changed ones, in a thread; see ``refresh_ref_docs``."""
        return await in_thread(lambda: self.refresh_ref_docs(documents, **kwargs))


def default_transformations() -> list[TransformComponent]:
    """Return the transformations of ``Settings``; by default a splitter into sentences."""
    if (given := Settings.transformations) is not None:
        return list(given)
    return [SentenceSplitter(Settings.chunk_size, Settings.chunk_overlap)]


def transformed(nodes: Sequence[BaseNode], steps: Sequence[TransformComponent]) -> list[BaseNode]:
    """Pass nodes through transformations."""
    for one in steps:
        nodes = one(nodes)
    return list(nodes)
