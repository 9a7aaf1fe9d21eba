"""Folders of LlamaIndex: those that it has written open here, and ours have the same content.

``llama_index_folder`` was written by ``StorageContext.persist`` of llama-index-core 0.14.25, with an embedding model
that counts "moon", "bread" and 1. So was ``llama_index_summaries``, by a model that writes summaries.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from batonflow.nodes import BaseNode, Document, TextNode
from batonflow.retrieval import (
    BaseEmbedding,
    DocumentSummaryIndex,
    KeywordTableIndex,
    NodeStoreError,
    SimpleKeywordTableIndex,
    StorageContext,
    SummaryIndex,
    TreeIndex,
    VectorStoreIndex,
    load_index_from_storage,
    load_indices_from_storage,
)
from tests.retrieval.passages import answering

FOLDER, SUMMARIES = (Path(__file__).with_name(name) for name in ("llama_index_folder", "llama_index_summaries"))
NAMES = ("docstore.json", "index_store.json", "default__vector_store.json", "image__vector_store.json")
DOCUMENTS = [
    Document(text="Tides follow the moon. The moon is far.", id_="sea", metadata={"page": 12}),
    Document(text="Bread needs yeast and time.", id_="bread", metadata={"page": 31}),
    Document(text="Salt keeps fish.", id_="salt"),
]


class Counting(BaseEmbedding):
    """The embedding model of the folder."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return [float(text.lower().count("moon")), float(text.lower().count("bread")), 1.0]


class Other(Counting):
    """Another model."""


def opened() -> StorageContext:
    return StorageContext.from_defaults(persist_dir=FOLDER)


def ids(found: list[Any]) -> list[str]:
    return [one.node.id_ for one in found]


def content(folder: Path) -> dict[str, Any]:
    """The content of a folder, with indexes as data, and without the lengths of vectors."""
    data = {name: json.loads((folder / name).read_text()) for name in NAMES}
    for one in data["index_store.json"]["index_store/data"].values():
        one["__data__"] = json.loads(one["__data__"])
        for nodes in one["__data__"].get("table", {}).values():
            nodes.sort()
    for name, vector in data["default__vector_store.json"]["embedding_dict"].items():
        length = sum(x * x for x in vector) ** 0.5
        data["default__vector_store.json"]["embedding_dict"][name] = [round(x / length, 2) for x in vector]
    return data


def test_nodes_documents_and_vectors_are_those_of_the_folder() -> None:
    storage = opened()
    [sea] = storage.store.nodes(["sea-1"])
    assert isinstance(sea, TextNode)
    assert (sea.text, sea.metadata, sea.ref_doc_id) == (DOCUMENTS[0].text, {"page": 12}, "sea")
    assert set(storage.docstore.get_all_ref_doc_info()) == {"sea", "bread", "salt"}
    index = load_index_from_storage(storage, "vectors", embed_model=Counting())
    found = index.as_retriever(similarity_top_k=3).retrieve("moon moon")
    assert ids(found)[0] == "sea-1"
    assert found[0].score == pytest.approx(1.0, abs=0.01)


def test_all_indexes_open_and_answer() -> None:
    storage = opened()
    vectors, listed, words, tree = load_indices_from_storage(storage)
    assert [type(one) for one in (vectors, listed, words, tree)] == [
        VectorStoreIndex, SummaryIndex, KeywordTableIndex, TreeIndex,
    ]  # fmt: skip
    assert ids(listed.as_retriever().retrieve("all")) == ["sea-1", "bread-2", "salt-3"]
    assert listed.summary == "All notes."
    assert ids(words.as_retriever(retriever_mode="simple").retrieve("Does it need yeast?")) == ["bread-2"]
    assert ids(tree.as_retriever(retriever_mode="all_leaf").retrieve("all")) == ["sea-1", "bread-2", "salt-3"]
    assert len(tree.as_retriever(retriever_mode="root").retrieve("all")) == 2
    asked = load_index_from_storage(storage, "tree", llm=answering("ANSWER: 2"))
    assert ids(asked.as_retriever().retrieve("salt")) == ["salt-3"]


def test_without_an_embedding_model_it_is_searched_by_words_and_keeps_its_vectors(tmp_path: Path) -> None:
    storage = opened()
    assert ids(load_index_from_storage(storage, "vectors").as_retriever(similarity_top_k=1).retrieve("fish")) == [
        "salt-3"
    ]
    index = load_index_from_storage(storage, "vectors", embed_model=Counting())
    assert ids(index.as_retriever(similarity_top_k=1).retrieve("bread")) == ["bread-2"]
    with pytest.raises(NodeStoreError, match="made with Counting unknown, not Other unknown"):
        load_index_from_storage(storage, "vectors", embed_model=Other())
    storage.persist(tmp_path)  # the file knows the model
    again = StorageContext.from_defaults(path=tmp_path / "nodes.sqlite")
    with pytest.raises(NodeStoreError, match="made with Counting unknown"):
        load_index_from_storage(again, "vectors", embed_model=Other())


def test_documents_that_llama_index_has_read_are_known() -> None:
    index = load_index_from_storage(opened(), "vectors", embed_model=Counting())
    changed = Document(text="Salt melts ice.", id_="salt")
    assert index.refresh_ref_docs(DOCUMENTS) == [False, False, False]
    assert index.refresh_ref_docs([*DOCUMENTS[:2], changed]) == [False, False, True]
    assert index.as_retriever(similarity_top_k=1, vector_store_query_mode="text_search").retrieve("ice")[0].text == (
        "Salt melts ice."
    )


@pytest.mark.parametrize("folder", [FOLDER, SUMMARIES])
def test_the_way_there_and_back_changes_nothing(tmp_path: Path, folder: Path) -> None:
    StorageContext.from_defaults(persist_dir=folder).persist(tmp_path / "json", format="json")
    assert content(tmp_path / "json") == content(folder)
    assert sorted(one.name for one in (tmp_path / "json").iterdir()) == sorted(one.name for one in folder.iterdir())


def summaries_of(folder: Path, model: BaseEmbedding | None) -> DocumentSummaryIndex:
    storage = StorageContext.from_defaults(persist_dir=folder)
    found = load_index_from_storage(storage, embed_model=model, llm=answering("Doc: 1, Relevance: 9", "About salt."))
    assert isinstance(found, DocumentSummaryIndex)
    return found


@pytest.mark.parametrize("model", [None, Counting()])
def test_summaries_of_documents_open_and_answer(model: BaseEmbedding | None) -> None:
    index = summaries_of(SUMMARIES, model)
    assert (index.get_document_summary("sea"), index.get_document_summary("bread")) == (
        "About the moon.",
        "About bread.",
    )
    for _ in range(2):
        assert ids(index.as_retriever().retrieve("the moon")) == ["sea-1", "sea-2"]
    assert ids(index.as_retriever("llm").retrieve("the moon")) == ["sea-1", "sea-2"]
    index.insert(Document(text="Salt keeps fish.", id_="salt"))
    index.delete_ref_doc("sea", delete_from_docstore=True)
    assert [one.get_content() for one in index.summaries()] == ["About bread.", "About salt."]
    assert "sea" not in str([node.id_ for node in index.storage_context.store.nodes()])


def test_summaries_made_here_are_written_and_read(tmp_path: Path) -> None:
    storage = StorageContext()
    llm = answering("About tides.", "About baking.", "About salt.")
    DocumentSummaryIndex.from_documents(DOCUMENTS, storage, llm=llm, embed_model=Counting(), index_id="s")
    storage.persist(tmp_path, format="json")
    again = summaries_of(tmp_path, Counting())
    assert {doc: again.get_document_summary(doc) for doc in ("sea", "bread", "salt")} == {
        "sea": "About tides.",
        "bread": "About baking.",
        "salt": "About salt.",
    }
    data = json.loads(json.loads((tmp_path / "index_store.json").read_text())["index_store/data"]["s"]["__data__"])
    vectors = json.loads((tmp_path / "default__vector_store.json").read_text())
    assert vectors["text_id_to_ref_doc_id"] == {id_: doc for doc, id_ in data["doc_id_to_summary_id"].items()}


def test_indexes_made_here_are_written_and_read(tmp_path: Path) -> None:
    storage = StorageContext()
    index = VectorStoreIndex.from_documents(DOCUMENTS, storage, embed_model=Counting(), index_id="v")
    SimpleKeywordTableIndex(storage.store.nodes(), storage_context=storage, index_id="k")
    nodes: list[BaseNode] = [TextNode(text=f"leaf {number}") for number in range(5)]
    TreeIndex(nodes, llm=answering(*["sum"] * 9), num_children=2, storage_context=storage, index_id="t")
    storage.persist(tmp_path / "json", format="json")
    again = StorageContext.from_defaults(persist_dir=tmp_path / "json")
    copy = load_index_from_storage(again, "v", embed_model=Counting())
    for question in ("moon", "bread"):
        assert ids(copy.as_retriever().retrieve(question)) == ids(index.as_retriever().retrieve(question))
    tree = load_index_from_storage(again, "t")
    assert ids(tree.as_retriever(retriever_mode="all_leaf").retrieve("all")) == [node.id_ for node in nodes]
    assert again.docstore.get_document_hash("sea") == DOCUMENTS[0].hash


def test_what_a_folder_cannot_hold_is_refused(tmp_path: Path) -> None:
    storage = StorageContext()
    for model in (Counting(), Other()):
        VectorStoreIndex.from_documents(DOCUMENTS, storage, embed_model=model)
    with pytest.raises(ValueError, match="vectors of one model, not of Counting unknown, Other unknown"):
        storage.persist(tmp_path, format="json")
    storage.persist(tmp_path)
    with pytest.raises(ValueError, match=r"has a nodes\.sqlite: name another folder"):
        opened().persist(tmp_path, format="json")
    with pytest.raises(ValueError, match="the format is 'sqlite' or 'json', not 'xml'"):
        opened().persist(tmp_path, format="xml")  # type: ignore[arg-type]


def test_older_folders_open_too(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    (tmp_path / "default__vector_store.json").rename(tmp_path / "vector_store.json")
    data = json.loads((tmp_path / "docstore.json").read_text())
    for one in data["docstore/data"].values():
        one["__data__"] = json.dumps(one["__data__"])
    (tmp_path / "docstore.json").write_text(json.dumps(data))
    index = load_index_from_storage(
        StorageContext.from_defaults(persist_dir=tmp_path), "vectors", embed_model=Counting()
    )
    assert ids(index.as_retriever(similarity_top_k=1).retrieve("bread")) == ["bread-2"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docstore.json", "{"),
        ("docstore.json", "[]"),
        ("docstore.json", '{"docstore/data": {"a": 1}}'),
        ("docstore.json", '{"docstore/data": {}}'),
        ("index_store.json", '{"index_store/data": {"a": {"__type__": "list"}}}'),
        ("default__vector_store.json", '{"embedding_dict": {"sea-1": ["a"]}}'),
        ("default__vector_store.json", '{"embedding_dict": {"sea-1": [1], "bread-2": [1, 2]}}'),
    ],
)
def test_a_folder_that_is_broken_is_refused(tmp_path: Path, name: str, text: str) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(NodeStoreError, match="is not a folder of LlamaIndex"):
        StorageContext.from_defaults(persist_dir=tmp_path)


def test_indexes_of_other_kinds_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    data = json.loads((tmp_path / "index_store.json").read_text())
    data["index_store/data"]["words"]["__type__"] = "kg"
    (tmp_path / "index_store.json").write_text(json.dumps(data))
    assert len(load_indices_from_storage(StorageContext.from_defaults(persist_dir=tmp_path))) == 3
    assert "index words is left out: there are no indexes of the kind kg" in caplog.text
    with pytest.raises(FileNotFoundError):
        StorageContext.from_defaults(persist_dir=tmp_path / "nowhere")
