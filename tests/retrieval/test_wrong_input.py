"""Input that cannot be used: the error names the thing and the remedy."""

from pathlib import Path
from typing import Any

import pytest

from batonflow.nodes import Document, TextNode
from batonflow.retrieval import (
    BM25Retriever,
    CallableEmbedding,
    DocumentSummaryIndex,
    NodeStore,
    NodeStoreError,
    QueryFusionRetriever,
    SentenceSplitter,
    SummaryIndex,
    VectorStoreIndex,
)

DOCUMENTS = [Document(text="Tides follow the moon."), Document(text="Bread needs yeast.")]


def index(fn: Any) -> VectorStoreIndex:
    return VectorStoreIndex.from_documents(DOCUMENTS, embed_model=CallableEmbedding(fn))


def test_a_model_gives_one_vector_for_each_text() -> None:
    with pytest.raises(ValueError, match="CallableEmbedding gave 1 vectors for 2 texts"):
        index(lambda texts: [[1.0]] * (len(texts) - 1))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_of_vectors_are_finite(number: float) -> None:
    with pytest.raises(NodeStoreError, match="has values that are not finite numbers"):
        index(lambda texts: [[number, 1.0]] * len(texts))


def test_large_numbers_are_taken() -> None:
    store = NodeStore()
    store.add_nodes([TextNode(text="a", embedding=[3e5, 4e5])], model="m")
    [found] = store.by_vector("m", [3e5, 4e5], 1)
    assert found.score == pytest.approx(1.0, abs=1e-3)


def test_an_empty_question_has_no_vector() -> None:
    with pytest.raises(ValueError, match="the question is empty"):
        index(lambda texts: [[1.0]] * len(texts)).as_retriever().retrieve("")
    assert VectorStoreIndex.from_documents(DOCUMENTS).as_retriever().retrieve("") == []


def test_a_document_is_needed() -> None:
    with pytest.raises(TypeError, match=r"'text' is not a document: write Document\(text=...\)"):
        VectorStoreIndex.from_documents(["text"])
    with pytest.raises(TypeError, match="is not a document"):
        SentenceSplitter().get_nodes_from_documents(["text"])


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(NodeStoreError, match="cannot be opened: unable to open database file"):
        NodeStore(tmp_path)


RETRIEVERS = [
    lambda value: VectorStoreIndex.from_documents(DOCUMENTS).as_retriever(similarity_top_k=value),
    lambda value: VectorStoreIndex.from_documents(DOCUMENTS).as_query_engine(similarity_top_k=value),
    lambda value: SummaryIndex.from_documents(DOCUMENTS).as_retriever("embedding", similarity_top_k=value),
    lambda value: DocumentSummaryIndex([]).as_retriever(similarity_top_k=value),
    lambda value: BM25Retriever.from_defaults(nodes=DOCUMENTS, similarity_top_k=value),
    lambda value: QueryFusionRetriever([], similarity_top_k=value),
]


@pytest.mark.parametrize("made", RETRIEVERS)
def test_a_search_finds_one_passage_or_more(made: Any) -> None:
    for value in (-1, 0):
        with pytest.raises(ValueError, match=rf"^similarity_top_k={value} finds nothing: give 1 or more"):
            made(value)
    for value in ("3", 2.5):
        with pytest.raises(TypeError, match=rf"^similarity_top_k={value!r} is not a whole number: give 1 or more"):
            made(value)


@pytest.mark.parametrize("name", ["sparse_top_k", "hybrid_top_k"])
def test_the_other_numbers_of_passages_are_checked_too(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}=0 finds nothing"):
        VectorStoreIndex.from_documents(DOCUMENTS).as_retriever(**{name: 0})


def test_filters_have_a_type_of_their_own() -> None:
    made = VectorStoreIndex.from_documents(DOCUMENTS)
    told = r"^filters={'year': 2020} are not MetadataFilters: write MetadataFilters.from_dict\(filters\)"
    with pytest.raises(TypeError, match=told):
        made.as_retriever(filters={"year": 2020})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=told):
        made.storage_context.vector_store.get_nodes(filters={"year": 2020})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^filters=\[\] are not MetadataFilters: write MetadataFilters\(filters="):
        made.as_query_engine(filters=[])
