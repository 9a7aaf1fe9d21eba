"""Indexes: made of nodes and documents, changed, stored, opened again, and asked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batonflow.llms import Settings
from batonflow.nodes import BaseNode, Document, IndexNode, NodeWithScore, TextNode
from batonflow.retrieval import (
    BaseEmbedding,
    BasePydanticVectorStore,
    BM25Retriever,
    EmptyIndex,
    KeywordTableIndex,
    MetadataFilters,
    MockEmbedding,
    NodeStoreError,
    RAKEKeywordTableIndex,
    SimpleKeywordTableIndex,
    SimpleVectorStore,
    StorageContext,
    SummaryIndex,
    TreeIndex,
    VectorStoreIndex,
    VectorStoreQuery,
    VectorStoreQueryResult,
    WordsRetriever,
    load_index_from_storage,
    load_indices_from_storage,
)
from batonflow.workflow_core import JsonSerializer
from tests.retrieval.passages import BREAD, SEA, answering, texts_of

TEXTS = [SEA, BREAD, "A zebra has stripes."]


class Letters(BaseEmbedding):
    """A vector of how often each letter occurs; it counts its texts."""

    texts: int = 0

    def _get_query_embedding(self, query: str) -> list[float]:
        return [float(query.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        self.texts += 1
        return self._get_query_embedding(text)


def documents(*texts: str) -> list[Document]:
    return [Document(text=text, id_=f"d{n}", metadata={"n": n}) for n, text in enumerate(texts or TEXTS)]


def found(retriever: Any, query: str) -> list[str]:
    return texts_of(retriever.retrieve(query))


class TestVectorStoreIndex:
    def test_finds_the_nearest_nodes(self) -> None:
        index = VectorStoreIndex.from_documents(documents(), embed_model=Letters())
        retriever = index.as_retriever(similarity_top_k=1)
        assert found(retriever, "zebra stripes") == ["A zebra has stripes."]
        assert texts_of(asyncio.run(retriever.aretrieve("yeast bread"))) == [BREAD]
        [one] = retriever.retrieve("zebra stripes")
        assert 0.5 < one.get_score() <= 1.0
        assert one.node.ref_doc_id == "d2"

    def test_searches_by_words_without_a_model(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("INFO"):
            index = VectorStoreIndex([TextNode(text=text) for text in TEXTS])
        assert "no embedding model is set: searching by words" in caplog.text
        assert found(index.as_retriever(), "Who has stripes?") == ["A zebra has stripes."]

    @pytest.mark.parametrize("mode", ["default", "mmr", "text_search", "sparse", "hybrid", "semantic_hybrid"])
    def test_answers_in_each_mode(self, mode: str) -> None:
        index = VectorStoreIndex.from_documents(documents(), embed_model=Letters())
        retriever = index.as_retriever(vector_store_query_mode=mode, similarity_top_k=1)
        assert found(retriever, "zebra stripes") == ["A zebra has stripes."]

    def test_chooses_different_nodes_with_mmr(self) -> None:
        index = VectorStoreIndex(
            [TextNode(text=text) for text in ("zebra zebra", "zebra zebras", "bread")], embed_model=Letters()
        )
        options: dict[str, Any] = {"vector_store_query_mode": "mmr", "similarity_top_k": 2}
        near = index.as_retriever(**options, vector_store_kwargs={"mmr_threshold": 1.0})
        far = index.as_retriever(**options, vector_store_kwargs={"mmr_threshold": 0.1})
        assert found(near, "zebra") == ["zebra zebra", "zebra zebras"]
        assert found(far, "zebra") == ["zebra zebra", "bread"]
        with pytest.raises(ValueError, match="mmr_threshold must be a number from 0 to 1"):
            index.as_retriever(**options, vector_store_kwargs={"mmr_threshold": 2.0}).retrieve("zebra")

    @pytest.mark.parametrize("mode", ["svm", "logistic_regression", "linear_regression"])
    def test_refuses_the_modes_of_learners(self, mode: str) -> None:
        index = VectorStoreIndex.from_documents(documents(), embed_model=Letters())
        with pytest.raises(ValueError, match="Invalid query mode"):
            index.as_retriever(vector_store_query_mode=mode).retrieve("zebra")

    def test_keeps_to_filters_and_documents(self) -> None:
        index = VectorStoreIndex.from_documents(documents(), embed_model=Letters())
        assert found(index.as_retriever(filters=MetadataFilters.from_dict({"n": 1})), "zebra") == [BREAD]
        assert found(index.as_retriever(doc_ids=["d0"]), "zebra") == [SEA]
        nodes = list(index.docstore.docs.values())
        assert found(index.as_retriever(node_ids=[nodes[1].id_]), "zebra") == [BREAD]

    def test_keeps_vectors_that_nodes_have(self) -> None:
        model = Letters()
        VectorStoreIndex([TextNode(text="a", embedding=[0.5] * 26)], embed_model=model)
        assert model.texts == 0

    def test_uses_a_store_of_another_maker(self) -> None:
        store = Theirs()
        index = VectorStoreIndex.from_documents(
            documents(),
            storage_context=StorageContext.from_defaults(vector_store=store),
            embed_model=MockEmbedding(embed_dim=4),
        )
        assert found(index.as_retriever(similarity_top_k=1), "zebra") == [SEA]
        index.delete_ref_doc("d0")
        assert found(index.as_retriever(similarity_top_k=1), "zebra") == [BREAD]
        again = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=4))
        assert found(again.as_retriever(similarity_top_k=1), "zebra") == [BREAD]
        store.stores_text = False
        with pytest.raises(ValueError, match="does not store text"):
            VectorStoreIndex.from_vector_store(store)

    def test_takes_a_simple_store_as_its_own(self) -> None:
        store = SimpleVectorStore()
        storage = StorageContext.from_defaults(vector_store=store)
        index = VectorStoreIndex.from_documents(documents(), storage_context=storage, embed_model=Letters())
        assert found(index.as_retriever(similarity_top_k=1), "zebra stripes") == ["A zebra has stripes."]
        assert len(store.get_nodes()) == 3


class Theirs(BasePydanticVectorStore):
    """A store that finds nodes in the order of insertion."""

    stores_text: bool = True
    nodes: list[Any] = []

    @property
    def client(self) -> None:
        return None

    def add(self, nodes: Any, **_: Any) -> list[str]:
        assert all(node.embedding is not None for node in nodes)
        self.nodes = [*self.nodes, *nodes]
        return [node.id_ for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        self.nodes = [node for node in self.nodes if node.ref_doc_id != ref_doc_id]

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        assert query.query_embedding is not None
        nodes = self.nodes[: query.similarity_top_k]
        return VectorStoreQueryResult(nodes, [1.0] * len(nodes), [node.id_ for node in nodes])


class TestChanges:
    def test_documents_are_added_changed_and_removed(self) -> None:
        index = VectorStoreIndex.from_documents(documents())
        index.insert(Document(text="Waves are made by wind.", id_="waves"))
        assert found(index.as_retriever(), "waves") == ["Waves are made by wind."]
        index.update_ref_doc(Document(text="Waves come from storms.", id_="waves"))
        assert found(index.as_retriever(), "waves") == ["Waves come from storms."]
        index.delete_ref_doc("waves", delete_from_docstore=True)
        assert found(index.as_retriever(), "waves") == []
        assert sorted(index.ref_doc_info) == ["d0", "d1", "d2"]

    def test_a_document_that_is_not_there_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        VectorStoreIndex([]).delete_ref_doc("none")
        assert "there is no document none" in caplog.text

    def test_nodes_that_are_removed_from_an_index_stay_in_the_store(self) -> None:
        index = VectorStoreIndex.from_documents(documents())
        [sea] = [node for node in index.docstore.docs.values() if node.get_content() == SEA]
        index.delete_nodes([sea.id_])
        assert found(index.as_retriever(), "moon") == []
        assert index.docstore.document_exists(sea.id_)
        index.delete_nodes([sea.id_], delete_from_docstore=True)
        assert not index.docstore.document_exists(sea.id_)

    async def test_only_new_and_changed_documents_are_read_again(self) -> None:
        index = VectorStoreIndex.from_documents(documents())
        assert await index.arefresh_ref_docs(documents()) == [False, False, False]
        assert index.refresh_ref_docs(documents(SEA, "Bread needs time.", "A", "B")) == [False, True, True, True]
        assert found(index.as_retriever(), "bread time") == ["Bread needs time."]

    async def test_each_change_has_an_asynchronous_twin(self) -> None:
        index = VectorStoreIndex([])
        await index.ainsert_nodes([TextNode(text="a moon", id_="n")])
        await index.ainsert(Document(text="two moons", id_="d"))
        await index.aupdate_ref_doc(Document(text="three moons", id_="d"))
        assert set(found(index.as_retriever(), "moon")) == {"a moon", "three moons"}
        await index.adelete_nodes(["n"])
        await index.adelete_ref_doc("d")
        assert found(index.as_retriever(), "moon") == []


class TestStorage:
    def test_an_index_in_a_file_is_opened_again(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        made = VectorStoreIndex.from_documents(
            documents(), StorageContext.from_defaults(path=path), embed_model=Letters()
        )
        made.set_index_id("notes")
        made.summary = "Facts of nature."
        index = load_index_from_storage(StorageContext.from_defaults(path=path), embed_model=Letters())
        assert (index.index_id, index.summary) == ("notes", "Facts of nature.")
        assert found(index.as_retriever(similarity_top_k=1), "zebra stripes") == ["A zebra has stripes."]

    def test_the_same_documents_add_nothing(self, tmp_path: Path) -> None:
        model, storage = Letters(), StorageContext.from_defaults(path=tmp_path / "notes.db")
        for _ in range(2):
            again = [Document(text=text) for text in TEXTS]
            index = VectorStoreIndex.from_documents(again, storage, embed_model=model)
        assert (len(index.docstore.docs), model.texts, len(storage.store.indexes())) == (3, 3, 1)
        assert len(found(index.as_retriever(similarity_top_k=5), "zebra")) == 3

    def test_an_index_in_a_file_stands_in_records_as_its_place(self, tmp_path: Path) -> None:
        storage = StorageContext.from_defaults(path=tmp_path / "notes.db")
        index = SummaryIndex.from_documents(documents(), storage)
        serializer = JsonSerializer()
        written = serializer.serialize(index)
        assert "notes.db" in written
        assert serializer.deserialize(written) is index
        place = index.to_dict()
        del index
        assert found(SummaryIndex.from_dict(place).as_retriever(), "x") == TEXTS
        with pytest.raises(
            ValueError, match="a SummaryIndex in memory cannot be recorded: make it with storage_context="
        ):
            serializer.serialize(SummaryIndex([]))

    def test_indexes_over_the_same_nodes_hold_them_once(self) -> None:
        storage, nodes = StorageContext(), [TextNode(text=text) for text in TEXTS]
        VectorStoreIndex(nodes, storage_context=storage)
        SummaryIndex(nodes[:2], storage_context=storage)
        assert len(storage.docstore.docs) == 3
        vectors, summary = load_indices_from_storage(storage)
        assert (len(vectors.index_struct.nodes), len(summary.index_struct.nodes)) == (3, 2)
        assert found(summary.as_retriever(), "x") == TEXTS[:2]

    def test_an_index_names_its_model(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        VectorStoreIndex.from_documents(documents(), StorageContext.from_defaults(path=path), embed_model=Letters())
        with pytest.raises(NodeStoreError, match="was made with Letters unknown, not MockEmbedding"):
            load_index_from_storage(StorageContext.from_defaults(path=path), embed_model=MockEmbedding(embed_dim=4))

    def test_the_index_to_open_must_be_clear(self) -> None:
        storage = StorageContext()
        with pytest.raises(ValueError, match="No index in storage context"):
            load_index_from_storage(storage)
        SummaryIndex([], storage_context=storage)
        SummaryIndex([], storage_context=storage, index_id="b")
        with pytest.raises(ValueError, match="give index_id"):
            load_index_from_storage(storage)
        assert load_index_from_storage(storage, "b").index_id == "b"
        with pytest.raises(ValueError, match="there is no index 'c'"):
            load_index_from_storage(storage, "c")

    def test_a_folder_is_written_and_read(self, tmp_path: Path) -> None:
        VectorStoreIndex.from_documents(documents()).storage_context.persist(tmp_path / "storage")
        index = load_index_from_storage(StorageContext.from_defaults(persist_dir=tmp_path / "storage"))
        assert found(index.as_retriever(), "stripes") == ["A zebra has stripes."]
        with pytest.raises(FileNotFoundError):
            StorageContext.from_defaults(persist_dir=tmp_path / "none")


class TestOtherIndexes:
    def test_a_list_gives_all_nodes_in_their_order(self) -> None:
        index = SummaryIndex.from_documents(documents())
        assert found(index.as_retriever(), "x") == TEXTS
        assert [one.score for one in index.as_retriever().retrieve("x")] == [None] * 3
        near = index.as_retriever(retriever_mode="embedding", embed_model=Letters())
        assert found(near, "zebra stripes") == ["A zebra has stripes."]
        llm = answering("Doc: 3, Relevance: 9\nDoc: 1, Relevance: 2")
        assert found(index.as_retriever(retriever_mode="llm", llm=llm), "zebra") == ["A zebra has stripes.", SEA]
        with pytest.raises(ValueError, match="Unknown retriever mode: other"):
            index.as_retriever(retriever_mode="other")

    def test_a_table_of_keywords_orders_nodes_by_how_many_fit(self) -> None:
        index = SimpleKeywordTableIndex.from_documents(documents(SEA, "The moon is far.", BREAD))
        assert found(index.as_retriever(), "moon and sea") == [SEA, "The moon is far."]
        assert "moon" in index.index_struct.table
        assert found(index.as_retriever(num_chunks_per_query=1), "moon and sea") == [SEA]
        rake = RAKEKeywordTableIndex.from_documents(documents("Spring tides are high.", BREAD))
        assert found(rake.as_retriever(), "spring tides?") == ["Spring tides are high."]

    def test_a_model_may_choose_the_keywords(self) -> None:
        llm = answering("KEYWORDS: moon, sea", "KEYWORDS: bread", "KEYWORDS: moon")
        index = KeywordTableIndex([TextNode(text=SEA), TextNode(text=BREAD)], llm=llm)
        assert found(index.as_retriever(), "What is above?") == [SEA]

    def test_an_empty_index_asks_the_model_alone(self) -> None:
        assert str(EmptyIndex().as_query_engine(answering("Of course.")).query("Do you know?")) == "Of course."
        with pytest.raises(ValueError, match="response_mode='generation'"):
            EmptyIndex().as_query_engine(answering(), response_mode="compact")

    def test_nodes_are_needed_or_an_index(self) -> None:
        with pytest.raises(ValueError, match="needs nodes or index_struct"):
            SummaryIndex()

    def test_a_document_is_a_node(self) -> None:
        assert found(SummaryIndex([Document(text=SEA)]).as_retriever(), "x") == [SEA]


class TestTree:
    def test_a_tree_is_built_of_summaries_and_gone_down(self) -> None:
        llm = answering("About the sea.", "About animals.", "ANSWER: 2", "ANSWER: 1")
        nodes = [TextNode(text=text) for text in (SEA, "Tides come twice a day.", *TEXTS[2:])]
        index = TreeIndex(nodes, num_children=2, llm=llm)
        assert found(index.as_retriever(retriever_mode="root"), "x") == ["About the sea.", "About animals."]
        assert found(index.as_retriever(retriever_mode="all_leaf"), "x") == [node.text for node in nodes]
        assert found(index.as_retriever(), "stripes?") == ["A zebra has stripes."]

    def test_the_nearest_summary_is_followed_without_a_model(self) -> None:
        llm = answering("sea moon tides", "zebra stripes")
        index = TreeIndex([TextNode(text=text) for text in (SEA, "Tides.", *TEXTS[2:])], num_children=2, llm=llm)
        retriever = index.as_retriever(retriever_mode="select_leaf_embedding", embed_model=Letters())
        assert found(retriever, "zebra") == ["A zebra has stripes."]

    def test_a_full_place_is_divided(self) -> None:
        llm = answering("first half", "second half")
        index = TreeIndex([TextNode(text="a"), TextNode(text="b")], num_children=2, llm=llm)
        index.insert_nodes([TextNode(text="c")])
        assert found(index.as_retriever(retriever_mode="root"), "x") == ["first half", "second half"]
        assert sorted(found(index.as_retriever(retriever_mode="all_leaf"), "x")) == ["a", "b", "c"]

    def test_a_tree_without_summaries_has_leaves_alone(self) -> None:
        index = TreeIndex([TextNode(text="a")], build_tree=False)
        assert found(index.as_retriever(retriever_mode="all_leaf"), "x") == ["a"]
        with pytest.raises(ValueError, match="needs summaries"):
            index.as_retriever()
        with pytest.raises(ValueError, match="Invalid number of children"):
            TreeIndex([], num_children=1)


class TestRetrievers:
    def test_words_are_searched_over_nodes_indexes_and_stores(self) -> None:
        nodes = [TextNode(text=text) for text in TEXTS]
        index = SummaryIndex(nodes)
        for given in ({"nodes": nodes}, {"index": index}, {"docstore": index.docstore}):
            assert found(WordsRetriever.from_defaults(**given), "stripes") == ["A zebra has stripes."]  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="exactly one of index, nodes, or docstore"):
            WordsRetriever.from_defaults()

    async def test_index_nodes_are_followed_into_their_objects(self) -> None:
        inner = SummaryIndex([TextNode(text="inner")]).as_retriever()
        objects = [
            IndexNode(text="to a retriever", index_id="a", obj=inner),
            IndexNode(text="to a node", index_id="b", obj=TextNode(text="node")),
            IndexNode(text="to an engine", index_id="c", obj=EmptyIndex().as_query_engine(answering("an answer"))),
        ]
        retriever = VectorStoreIndex(objects=objects).as_retriever(similarity_top_k=3)
        assert sorted(texts_of(await retriever.aretrieve("to"))) == ["an answer", "inner", "node"]

    def test_takes_the_arguments_of_programs_for_bm25_of_llama_index(self) -> None:
        nodes = [TextNode(text=f"Tides of {year}.", metadata={"year": year}) for year in (2019, 2020)]
        options: dict[str, Any] = {"stemmer": object(), "language": "english", "tokenizer": str.split, "verbose": True}
        retriever = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=2, **options)
        assert found(retriever, "the tide of 2020") == ["Tides of 2020.", "Tides of 2019."]
        with pytest.raises(TypeError, match="does not have an argument 'topk'"):
            BM25Retriever.from_defaults(nodes=nodes, topk=2)
        filters = MetadataFilters.from_dict({"year": 2019})
        storage = StorageContext()
        storage.docstore.add_documents(nodes)
        for given in ({"nodes": nodes}, {"docstore": storage.docstore}, {"index": VectorStoreIndex(nodes)}):
            made = BM25Retriever.from_defaults(filters=filters, similarity_top_k=9, **given)  # type: ignore[arg-type]
            assert found(made, "tides") == ["Tides of 2019."]

    def test_equal_nodes_of_one_document_appear_once(self) -> None:
        class Twice(WordsRetriever):
            def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
                return super()._retrieve(query_bundle) * 2

        storage = StorageContext()
        storage.store.add_nodes([TextNode(text=SEA)])
        assert found(Twice(storage), "moon") == [SEA]


def test_questions_are_answered_from_an_index() -> None:
    engine = VectorStoreIndex.from_documents(documents()).as_query_engine(answering("The moon."), similarity_top_k=1)
    answer = engine.query("What pulls the sea?")
    assert (str(answer), texts_of(answer.source_nodes)) == ("The moon.", [SEA])


def test_settings_are_read_when_an_index_is_made() -> None:
    Settings.embed_model = Letters()
    try:
        index = VectorStoreIndex([TextNode(text=text) for text in TEXTS])
    finally:
        Settings.embed_model = None
    assert isinstance(index.embed_model, Letters)


async def test_an_index_is_a_tool_of_an_agent() -> None:
    index = VectorStoreIndex.from_documents(documents())
    output = await index.as_tool("notes", "Knows facts.").acall(input="stripes")  # type: ignore[attr-defined]
    assert "A zebra has stripes." in str(output)
    assert BaseNode is not None
