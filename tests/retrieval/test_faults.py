"""Faults of stores and indexes that a review has found."""

import sqlite3
from datetime import date
from typing import Any

import pytest

from batonflow.llms import MockLLM
from batonflow.nodes import Document, TextNode
from batonflow.retrieval import (
    MockEmbedding,
    SimpleKeywordTableIndex,
    SimpleVectorStore,
    StorageContext,
    SummaryIndex,
    TreeIndex,
    VectorStoreIndex,
)
from batonflow.retrieval.node_store import NodeStore, NodeStoreError
from batonflow.retrieval.vectors import VectorStoreQuery


def test_a_new_version_of_a_node_stays_in_other_indexes() -> None:
    storage = StorageContext()
    first = SummaryIndex([TextNode(text="old", id_="a")], storage_context=storage)
    SummaryIndex([TextNode(text="new", id_="a")], storage_context=storage)
    assert [one.text for one in first.as_retriever().retrieve("?")] == ["new"]


def test_words_that_are_added_later_keep_vectors() -> None:
    store = NodeStore()
    node = TextNode(text="tide", id_="a", embedding=[1.0, 0.0])
    store.add_nodes([node], model="m", with_words=False)
    store.add_nodes([TextNode(text="tide", id_="a")])
    assert [one.node.id_ for one in store.by_vector("m", [1.0, 0.0], 1)] == ["a"]


def test_the_last_of_equal_ids_in_one_write_counts() -> None:
    store = NodeStore()
    nodes = [TextNode(text=text, id_="a", embedding=[1.0, 0.0]) for text in ("old", "new")]
    numbers = store.add_nodes(nodes, model="m")
    assert numbers[0] == numbers[1] == store.numbers_of(["a"])[0]
    assert [one.node.get_content() for one in store.by_vector("m", [1.0, 0.0], 5)] == ["new"]
    assert store.without_vectors("m", numbers) == set()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_vectors_that_are_not_numbers_are_refused(bad: float) -> None:
    with pytest.raises(NodeStoreError, match="vector of node a"):
        NodeStore().add_nodes([TextNode(text="x", id_="a", embedding=[bad, 1.0])], model="m")


@pytest.mark.parametrize("size", [1e6, 1e-9])
def test_long_and_short_vectors_are_found(size: float) -> None:
    store = NodeStore()
    store.add_nodes([TextNode(text="x", id_="a", embedding=[size, size])], model="m")
    [found] = store.by_vector("m", [1.0, 1.0], 1)
    assert found.score == pytest.approx(1.0, abs=0.01)


def test_a_commit_that_fails_ends_the_transaction(tmp_path: Any) -> None:
    store = NodeStore(tmp_path / "n.db")

    class Failing:
        def __init__(self, real: sqlite3.Connection) -> None:
            self.real, self.fails = real, True

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def execute(self, query: str, *values: Any) -> Any:
            if query == "COMMIT" and self.fails:
                self.fails = False
                raise sqlite3.OperationalError("disk is full")
            return self.real.execute(query, *values)

    store._connection = Failing(store._connection)  # type: ignore[assignment]
    with pytest.raises(sqlite3.OperationalError):
        store.add_nodes([TextNode(text="lost")])
    store.add_nodes([TextNode(text="kept", id_="k")])
    assert [one.id_ for one in NodeStore(tmp_path / "n.db").nodes()] == ["k"]


def test_a_search_reads_one_state_of_the_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = NodeStore(tmp_path / "n.db"), NodeStore(tmp_path / "n.db")
    mine.add_nodes([TextNode(text="tide", id_=name, embedding=[1.0, 0.0]) for name in "ab"], model="m")
    masked = NodeStore.mask

    def mask(self: NodeStore, **kwargs: Any) -> Any:
        found = masked(self, **kwargs)
        other.add_nodes([TextNode(text="tide", id_="c", embedding=[1.0, 0.0])], model="m")
        return found

    monkeypatch.setattr(NodeStore, "mask", mask)
    found = SimpleVectorStore(mine, "m").query(VectorStoreQuery([1.0, 0.0], similarity_top_k=3, node_ids=["a", "b"]))
    assert found.ids == ["a", "b"]


def test_words_that_are_made_again_contain_the_metadata(tmp_path: Any) -> None:
    store = NodeStore(tmp_path / "n.db")
    store.add_nodes([TextNode(text="tide", id_="a", metadata={"port": "Brest"})])
    store._connection.execute("UPDATE fact SET value = '0' WHERE name = 'words'")
    store.close()
    assert [one.node.id_ for one in NodeStore(tmp_path / "n.db").by_words("Brest", 1)] == ["a"]


def test_a_text_with_a_lone_surrogate_is_kept() -> None:
    store = NodeStore()
    store.add_nodes([TextNode(text="tide \ud800", id_="a", metadata={"x": "\udfff"})])
    [node] = store.nodes()
    assert (node.get_content(), node.metadata) == ("tide \ud800", {"x": "\udfff"})


def test_documents_with_dates_are_added_once() -> None:
    storage = StorageContext()
    for _ in range(2):
        document = Document(text="tide", id_="d", metadata={"day": date(2020, 1, 1)})
        VectorStoreIndex.from_documents([document], storage_context=storage)
    assert len(storage.store.nodes()) == len(storage.store.indexes()) == 1


def _embedding_that_fails() -> Any:
    class Failing(MockEmbedding):
        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            if any("bad" in one for one in texts):
                raise OSError("no network")
            return super()._get_text_embeddings(texts)

        def _get_text_embedding(self, text: str) -> list[float]:
            if "bad" in text:
                raise OSError("no network")
            return super()._get_text_embedding(text)

    return Failing(embed_dim=3)


def test_an_update_that_fails_keeps_the_former_version() -> None:
    index = VectorStoreIndex.from_documents([Document(text="good", id_="d")], embed_model=_embedding_that_fails())
    with pytest.raises(OSError, match="network"):
        index.update_ref_doc(Document(text="bad", id_="d"))
    assert [one.text for one in index.as_retriever().retrieve("?")] == ["good"]
    index.update_ref_doc(Document(text="better", id_="d"))
    assert [one.text for one in index.as_retriever().retrieve("?")] == ["better"]


def test_a_build_that_fails_leaves_no_index() -> None:
    storage = StorageContext()
    with pytest.raises(OSError, match="network"):
        VectorStoreIndex([TextNode(text="bad")], embed_model=_embedding_that_fails(), storage_context=storage)
    assert storage.store.indexes() == []


def test_a_summary_without_leaves_is_removed_from_a_tree() -> None:
    llm = MockLLM(max_tokens=1)
    nodes = [TextNode(text=name, id_=name) for name in "abcd"]
    index = TreeIndex(nodes, llm=llm, num_children=2)
    index.delete_nodes(["a", "b"])
    assert [one.text for one in index.as_retriever(retriever_mode="all_leaf").retrieve("?")] == ["c", "d"]


def test_a_new_version_of_a_node_loses_its_former_keywords() -> None:
    index = SimpleKeywordTableIndex([TextNode(text="moon", id_="a")])
    index.insert_nodes([TextNode(text="sun", id_="a")])
    assert index.as_retriever().retrieve("moon") == []
    assert [one.text for one in index.as_retriever().retrieve("sun")] == ["sun"]
