"""StorageContext: one store of nodes, vectors and indexes, made of the parts that programs give."""

from pathlib import Path
from typing import Any

import pytest

from batonflow.retrieval import (
    BaseEmbedding,
    Document,
    SimpleDocumentStore,
    SimpleIndexStore,
    SimpleVectorStore,
    StorageContext,
    SummaryIndex,
    TextNode,
    VectorStoreIndex,
    load_index_from_storage,
)
from tests.retrieval.passages import SEA


class Lengths(BaseEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        return [float(len(text)), 1.0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


@pytest.mark.parametrize("format_", ["sqlite", "json"])
@pytest.mark.parametrize("first", ["nodes", "vectors"])
def test_a_document_store_and_a_store_of_vectors_become_one(tmp_path: Path, format_: Any, first: str) -> None:
    docstore, vectors, model = SimpleDocumentStore(), SimpleVectorStore(), Lengths(model_name="lengths")
    before = [TextNode(text="before", id_="b", embedding=[6.0, 1.0])]
    (docstore.add_documents if first == "nodes" else vectors.add)(before)
    storage = StorageContext.from_defaults(docstore=docstore, vector_store=vectors, index_store=SimpleIndexStore())
    index = VectorStoreIndex([TextNode(text=SEA, id_="sea")], storage_context=storage, embed_model=model)
    assert sorted(docstore.docs) == ["b", "sea"]
    assert vectors.client is docstore.store is storage.store
    assert [one.id for one in storage.index_store.index_structs()] == [index.index_id]
    storage.persist(tmp_path, format=format_)
    loaded = load_index_from_storage(StorageContext.from_defaults(persist_dir=tmp_path), embed_model=model)
    assert [found.node_id for found in loaded.as_retriever().retrieve(SEA)] == ["sea"]


def test_an_index_is_looked_up_and_deleted_by_its_id() -> None:
    storage = StorageContext.from_defaults()
    one, two = (SummaryIndex([TextNode(text=SEA, id_="sea")], storage_context=storage) for _ in range(2))
    with pytest.raises(ValueError, match="there are several indexes"):
        storage.index_store.get_index_struct()
    storage.index_store.delete_index_struct(two.index_id)
    found = storage.index_store.get_index_struct()
    assert (found and found.id, storage.index_store.get_index_struct("gone")) == (one.index_id, None)
    assert list(storage.docstore.docs) == ["sea"]


async def test_a_document_store_knows_documents_with_their_nodes() -> None:
    storage = StorageContext.from_defaults()
    document = Document(text=SEA, doc_id="tides", metadata={"port": "Leith"})
    index = VectorStoreIndex.from_documents([document], storage_context=storage, embed_model=Lengths())
    docstore, [node_id] = storage.docstore, index.index_struct.nodes
    info = docstore.get_ref_doc_info("tides")
    assert info is not None
    assert (info.node_ids, info.metadata["port"], docstore.get_ref_doc_info("gone")) == ([node_id], "Leith", None)
    assert index.index_struct.nodes_dict == {node_id: node_id}
    assert [node.id_ for node in await docstore.aget_nodes([node_id])] == [node_id]
    docstore.set_document_hash("tides", "seen")
    assert docstore.get_document_hash("tides") == "seen"
    docstore.delete_document(node_id)
    assert docstore.docs == {}
    with pytest.raises(ValueError, match=f"there is no node {node_id}"):
        docstore.delete_document(node_id)
    docstore.delete_document(node_id, raise_error=False)
