"""Retrievers over retrievers: index nodes by id, a router, and a changed question."""

import asyncio

import pytest

from batonflow.nodes import BaseRetriever, IndexNode, NodeWithScore, QueryBundle, Response, TextNode
from batonflow.retrieval import (
    CustomQueryEngine,
    HyDEQueryTransform,
    LLMSingleSelector,
    RecursiveRetriever,
    RouterRetriever,
    TransformRetriever,
)
from batonflow.tools import RetrieverTool
from tests.retrieval.passages import BREAD, SEA, Notes, answering, texts_of


class Points(BaseRetriever):
    """Gives index nodes with these ids, and scores."""

    def __init__(self, *ids: str) -> None:
        super().__init__()
        self.ids = ids

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=IndexNode(text=key, index_id=key), score=0.5) for key in self.ids]


class Says(CustomQueryEngine):
    """Answers with one source."""

    def custom_query(self, query_str: str) -> Response:
        return Response("The moon.", [NodeWithScore(node=TextNode(text=SEA))])


class TestRecursiveRetriever:
    async def test_index_nodes_lead_to_retrievers_engines_and_nodes(self) -> None:
        retriever = RecursiveRetriever(
            "root",
            {"root": Points("notes", "engine", "node"), "notes": Notes(BREAD)},
            query_engine_dict={"engine": Says()},
            node_dict={"node": TextNode(text="A node.")},
        )
        said = "Query: What moves?\nResponse: The moon."
        assert texts_of(await retriever.aretrieve("What moves?")) == [BREAD, said, "A node."]
        found = await asyncio.to_thread(retriever.retrieve, "What moves?")
        assert [one.score for one in found] == [1.0, 0.5, 0.5]

    def test_the_sources_of_answers_come_apart(self) -> None:
        retriever = RecursiveRetriever(
            "root", {"root": Points("engine")}, {"engine": Says()}, query_response_tmpl="{response}"
        )
        nodes, sources = retriever.retrieve_all(QueryBundle("What moves?"))
        assert (texts_of(nodes), texts_of(sources)) == (["The moon."], [SEA])

    def test_index_nodes_that_point_at_each_other_are_followed_once(self) -> None:
        retriever = RecursiveRetriever("a", {"a": Points("b", "a"), "b": Points("a", "notes"), "notes": Notes(SEA)})
        assert texts_of(retriever.retrieve("q")) == [SEA]

    def test_wrong_ids_are_errors(self) -> None:
        with pytest.raises(ValueError, match="Root id other not in retriever_dict"):
            RecursiveRetriever("other", {"root": Notes()})
        with pytest.raises(ValueError, match="must not have overlapping keys"):
            RecursiveRetriever("root", {"root": Notes()}, {"root": Says()})
        with pytest.raises(ValueError, match="Query id missing not found"):
            RecursiveRetriever("root", {"root": Points("missing")}).retrieve("q")


def tools() -> list[RetrieverTool]:
    return [
        RetrieverTool.from_defaults(Notes(text), name=name, description=f"about {name}")
        for name, text in (("sea", SEA), ("bread", BREAD))
    ]


class TestRouterRetriever:
    async def test_the_selector_chooses_a_retriever(self) -> None:
        router = RouterRetriever.from_defaults(tools(), selector=LLMSingleSelector(answering("2")))
        assert texts_of(await router.aretrieve("What needs yeast?")) == [BREAD]

    def test_results_of_several_retrievers_are_joined_by_node(self) -> None:
        llm = answering('{"choices": [{"number": 2}, {"number": 1}]}')
        router = RouterRetriever.from_defaults(tools(), llm, select_multi=True)
        assert texts_of(router.retrieve("q")) == [BREAD]  # both nodes have the id n1

    def test_the_selector_fits_the_model(self) -> None:
        router = RouterRetriever.from_defaults(tools(), answering('{"number": 1}'))
        assert texts_of(router.retrieve("q")) == [SEA]


class TestTransformRetriever:
    async def test_the_retriever_gets_the_changed_question(self) -> None:
        asked: list[list[str]] = []

        class Watching(Notes):
            def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
                asked.append(query_bundle.embedding_strs)
                return super()._retrieve(query_bundle)

        retriever = TransformRetriever(Watching(), HyDEQueryTransform(answering("An answer.", "Another.")))
        assert texts_of(await retriever.aretrieve("q")) == [SEA, BREAD]
        await asyncio.to_thread(retriever.retrieve, "q")
        assert asked == [["An answer.", "q"], ["Another.", "q"]]

    async def test_a_transformation_without_an_asynchronous_form_runs_in_a_thread(self) -> None:
        class Louder:
            def run(self, query: QueryBundle, metadata: dict[str, str]) -> QueryBundle:
                return QueryBundle(query.query_str + metadata["end"])

        notes = Notes()
        await TransformRetriever(notes, Louder(), {"end": "!"}).aretrieve("q")
        assert notes.asked == ["q!"]
