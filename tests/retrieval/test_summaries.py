"""The index of summaries: built, asked, changed, stored and opened again."""

from pathlib import Path
from typing import Any

import pytest

from batonflow.llms import ScriptedLLM
from batonflow.nodes import Document, IndexNode, TextNode
from batonflow.retrieval import (
    DocumentSummaryIndex,
    NodeStoreError,
    SentenceSplitter,
    SimpleVectorStore,
    StorageContext,
    TreeIndex,
    VectorStoreIndex,
    load_index_from_storage,
)
from tests.retrieval.passages import answering, prompts_to, texts_of
from tests.retrieval.test_indexes import Letters, Theirs

SEA, BREAD = "The moon pulls. It has no wind.", "Yeast works. It wants time."
SPLIT = [SentenceSplitter(5, 0)]


def documents(**changed: str) -> list[Document]:
    return [Document(text=text, id_=name) for name, text in {"sea": SEA, "bread": BREAD, **changed}.items()]


def about(request: Any) -> str:
    """A model that writes summaries and chooses the second one."""
    text = str(request.messages[-1].content)
    if "Relevance" in text:
        return "Doc: 2, Relevance: 7"
    return "About tides." if "moon" in text else "About baking."


def writing() -> ScriptedLLM:
    return ScriptedLLM([about] * 20)


def index_of(**options: Any) -> DocumentSummaryIndex:
    options.setdefault("llm", writing())
    return DocumentSummaryIndex.from_documents(documents(), transformations=SPLIT, **options)


def test_each_document_has_a_summary() -> None:
    llm = writing()
    index = index_of(llm=llm, summary_query="Say it in one line.")
    assert index.get_document_summary("sea") == "About tides."
    assert index.get_document_summary("bread") == "About baking."
    assert len(llm.requests) == 2
    assert "Say it in one line." in prompts_to(llm)[0]
    with pytest.raises(ValueError, match="doc_id other not in index"):
        index.get_document_summary("other")


@pytest.mark.parametrize("model", [None, Letters()])
@pytest.mark.parametrize("mode", ["embedding", "llm"])
async def test_both_retrievers_give_all_nodes_of_the_document(model: Any, mode: str) -> None:
    retriever = index_of(embed_model=model).as_retriever(mode)
    assert texts_of(await retriever.aretrieve("baking")) == ["Yeast works.", "It wants time."]
    assert texts_of(retriever.retrieve("baking")) == ["Yeast works.", "It wants time."]


def test_the_nodes_have_the_score_of_their_summary() -> None:
    assert [one.score for one in index_of().as_retriever("llm").retrieve("q")] == [7.0, 7.0]


def test_several_documents_can_be_asked_for() -> None:
    assert len(index_of(embed_model=Letters()).as_retriever(similarity_top_k=2).retrieve("q")) == 4
    chosen = answering("Doc: 1, Relevance: 3\nDoc: 2, Relevance: 9")
    assert texts_of(index_of().as_retriever("llm", llm=chosen, choice_top_k=2).retrieve("q")) == [
        "Yeast works.",
        "It wants time.",
        "The moon pulls.",
        "It has no wind.",
    ]


def test_a_batch_has_so_many_summaries() -> None:
    llm = writing()
    index_of(llm=llm).as_retriever("llm", choice_batch_size=1).retrieve("q")
    assert len(llm.requests) == 2 + 2


def test_without_vectors_only_the_model_chooses() -> None:
    index = index_of(embed_summaries=False, embed_model=Letters())
    with pytest.raises(ValueError, match="Cannot use embedding retriever if embed_summaries is False"):
        index.as_retriever()
    with pytest.raises(ValueError, match="Unknown retriever mode: other"):
        index.as_retriever("other")


def test_a_node_without_a_document_is_refused() -> None:
    with pytest.raises(ValueError, match="ref_doc_id of node n cannot be None"):
        DocumentSummaryIndex([TextNode(text="a", id_="n")], llm=writing())


def test_it_answers_questions() -> None:
    llm = ScriptedLLM([about, about, "It wants time."])
    engine = index_of(llm=llm).as_query_engine(llm)
    answer = engine.query("baking")
    assert (str(answer), texts_of(answer.source_nodes)) == ("It wants time.", ["Yeast works.", "It wants time."])


class TestInAFile:
    def storage(self, tmp_path: Path) -> StorageContext:
        return StorageContext.from_defaults(path=tmp_path / "notes.db")

    @pytest.mark.parametrize("model", [None, Letters()])
    def test_it_is_opened_again_without_a_request(self, tmp_path: Path, model: Any) -> None:
        index_of(storage_context=self.storage(tmp_path), embed_model=model, index_id="one")
        index = load_index_from_storage(self.storage(tmp_path), "one", embed_model=model)
        assert isinstance(index, DocumentSummaryIndex)
        assert index.get_document_summary("sea") == "About tides."
        assert texts_of(index.as_retriever().retrieve("baking")) == ["Yeast works.", "It wants time."]

    def test_another_embedding_model_is_refused(self, tmp_path: Path) -> None:
        index_of(storage_context=self.storage(tmp_path), embed_model=Letters())
        with pytest.raises(NodeStoreError, match="was made with Letters unknown, not words alone"):
            load_index_from_storage(self.storage(tmp_path))

    def test_an_index_without_vectors_stays_one(self, tmp_path: Path) -> None:
        index_of(storage_context=self.storage(tmp_path), embed_summaries=False)
        index = load_index_from_storage(self.storage(tmp_path), embed_model=Letters())
        with pytest.raises(ValueError, match="embed_summaries is False"):
            index.as_retriever()

    def test_the_same_documents_again_ask_nothing_and_add_nothing(self, tmp_path: Path) -> None:
        first = index_of(storage_context=self.storage(tmp_path))
        llm = writing()
        again = index_of(storage_context=self.storage(tmp_path), llm=llm)
        assert (again.index_id, len(llm.requests)) == (first.index_id, 0)
        assert len(self.storage(tmp_path).docstore.docs) == 4 + 2

    def test_the_same_holds_for_a_tree(self, tmp_path: Path) -> None:
        nodes = [Document(text=f"Page {number}.", id_=f"p{number}") for number in range(4)]
        options: Any = {"num_children": 2, "llm": ScriptedLLM(["Some pages."] * 9)}
        first = TreeIndex.from_documents(nodes, self.storage(tmp_path), **options)
        options["llm"] = ScriptedLLM([])
        assert TreeIndex.from_documents(nodes, self.storage(tmp_path), **options).index_id == first.index_id

    def test_another_index_over_the_nodes_does_not_find_summaries(self, tmp_path: Path) -> None:
        index_of(storage_context=self.storage(tmp_path))
        other = VectorStoreIndex.from_documents(documents(), self.storage(tmp_path), transformations=SPLIT)
        assert other.as_retriever().retrieve("baking") == []


class TestChanges:
    def test_a_new_version_of_a_document_has_a_new_summary(self) -> None:
        index = index_of()
        assert index.refresh_ref_docs(documents(sea="Flour and water.")) == [True, False]
        assert index.get_document_summary("sea") == "About baking."
        assert len(index.summaries()) == 2

    def test_a_document_is_deleted_with_its_summary(self) -> None:
        index = index_of()
        index.delete_ref_doc("sea", delete_from_docstore=True)
        assert [one.get_content() for one in index.summaries()] == ["About baking."]
        assert len(index.docstore.docs) == 2 + 1

    def test_a_summary_stays_until_its_last_node_is_deleted(self) -> None:
        index = index_of()
        first, second = (one.node.id_ for one in index.as_retriever().retrieve("baking"))
        index.delete_nodes([first])
        assert texts_of(index.as_retriever().retrieve("baking")) == ["It wants time."]
        index.delete_nodes([second])
        assert index.as_retriever().retrieve("baking") == []

    def test_a_document_is_added(self) -> None:
        index = index_of()
        index.insert(Document(text="The moon is far.", id_="moon"))
        assert index.get_document_summary("moon") == "About tides."


def test_vectors_of_summaries_may_be_in_a_store_of_another_maker() -> None:
    theirs = Theirs()
    index = index_of(storage_context=StorageContext.from_defaults(vector_store=theirs), embed_model=Letters())
    assert index.vector_store is theirs
    first, second = index.as_retriever().retrieve("q")
    assert texts_of([first, second]) == ["The moon pulls.", "It has no wind."]
    index.delete_nodes([first.node.id_])
    assert texts_of(index.as_retriever().retrieve("q")) == ["It has no wind."]
    index.delete_nodes([second.node.id_])
    assert texts_of(index.as_retriever().retrieve("q")) == ["Yeast works.", "It wants time."]
    assert isinstance(index_of().vector_store, SimpleVectorStore)


def test_objects_count_as_nodes() -> None:
    with pytest.raises(ValueError, match="cannot be None"):
        DocumentSummaryIndex(objects=[IndexNode(text="a", index_id="i")], llm=writing())
