"""The base classes of what looks things up: one method is written, the rest follows."""

import asyncio
import threading
from typing import Any

import pytest

from batonflow.instrumentation import BaseEvent, BaseEventHandler, SimpleSpanHandler, get_dispatcher
from batonflow.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from batonflow.tools import (
    BaseNodePostprocessor,
    BaseRetriever,
    CustomQueryEngine,
    Document,
    FunctionTool,
    MetadataMode,
    NodeWithScore,
    QueryBundle,
    Response,
    TextNode,
)


def found(text: str, score: float | None = None, **metadata: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, metadata=metadata), score=score)


class TestNodes:
    def test_metadata_are_shown_to_whom_they_concern(self) -> None:
        node = TextNode(
            text="Tides follow the moon.",
            metadata={"page": 3, "file": "a.txt", "topic": "sea"},
            excluded_llm_metadata_keys=["file"],
            excluded_embed_metadata_keys=["page", "file", "topic"],
        )
        assert node.get_content() == node.get_text() == "Tides follow the moon."
        assert node.get_content(MetadataMode.LLM) == "page: 3\ntopic: sea\n\nTides follow the moon."
        assert node.get_content(MetadataMode.EMBED) == "Tides follow the moon."
        assert node.get_metadata_str() == "page: 3\nfile: a.txt\ntopic: sea"
        assert node.get_metadata_str(MetadataMode.NONE) == ""

    def test_in_the_form_of_its_templates(self) -> None:
        node = TextNode(
            text="Tides.",
            metadata={"page": 3, "topic": "sea"},
            metadata_template="<{key}>{value}",
            metadata_separator=" ",
            text_template="{content} ({metadata_str})",
        )
        assert node.get_content(MetadataMode.ALL) == "Tides. (<page>3 <topic>sea)"

    def test_ids_are_made_up_or_given(self) -> None:
        assert TextNode().node_id != TextNode().node_id
        assert TextNode(id_="n1").node_id == "n1"
        assert Document(doc_id="d1", text="t").doc_id == Document(id_="d1").id_ == "d1"
        assert Document(extra_info={"a": 1}).metadata == {"a": 1}

    def test_the_hash_is_that_of_text_and_metadata(self) -> None:
        node = TextNode(text="a", metadata={"b": 1})
        assert node.hash == TextNode(text="a", metadata={"b": 1}).hash
        node.set_content("c")
        assert node.hash == TextNode(text="c", metadata={"b": 1}).hash != TextNode(text="c").hash

    def test_a_node_without_embedding_says_so(self) -> None:
        assert TextNode(embedding=[0.5]).get_embedding() == [0.5]
        with pytest.raises(ValueError, match="embedding not set"):
            TextNode().get_embedding()

    def test_a_scored_node_speaks_for_its_node(self) -> None:
        one = found("Tides.", 0.5, page=3)
        assert (one.text, one.get_text(), one.metadata, one.get_score()) == ("Tides.", "Tides.", {"page": 3}, 0.5)
        assert one.node_id == one.node.id_
        assert one.get_content(MetadataMode.LLM) == "page: 3\n\nTides."
        assert found("x").get_score() == 0.0
        with pytest.raises(ValueError, match="Score not set"):
            found("x").get_score(raise_error=True)

    def test_both_survive_json(self) -> None:
        one = NodeWithScore(node=Document(doc_id="d1", text="Tides.", metadata={"page": 3}), score=0.5)
        again = NodeWithScore.model_validate_json(one.model_dump_json())
        assert (again.node_id, again.text, again.metadata, again.score) == ("d1", "Tides.", {"page": 3}, 0.5)

    def test_tools_that_return_nodes_show_their_text(self) -> None:
        def search() -> list[NodeWithScore]:
            return [found("a"), found("b")]

        assert FunctionTool.from_defaults(search).call().content == "a\nb"

    def test_a_bundle_is_its_question(self) -> None:
        assert str(QueryBundle("why?")) == "why?"
        assert QueryBundle("why?").embedding_strs == ["why?"]
        assert QueryBundle("").embedding_strs == []
        assert QueryBundle("why?", custom_embedding_strs=["a", "b"]).embedding_strs == ["a", "b"]


class Written(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [found(f"{query_bundle.query_str} {threading.current_thread() is threading.main_thread()}")]


class WrittenAsync(BaseRetriever):
    def __init__(self, greeting: str) -> None:
        super().__init__(verbose=True)
        self.greeting = greeting

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        await asyncio.sleep(0)
        return [found(f"{self.greeting} {query_bundle.query_str}")]


class Best(BaseNodePostprocessor):
    limit: int = 1

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return sorted(nodes, key=NodeWithScore.get_score, reverse=True)[: self.limit]


class AsyncMark(BaseNodePostprocessor):
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return [found(f"{one.text} for {query_bundle}") for one in nodes]


class Tides(CustomQueryEngine):
    port: str

    def custom_query(self, query_str: str) -> str:
        return f"{query_str} Noon at {self.port}."


class AsyncTides(CustomQueryEngine):
    async def acustom_query(self, query_str: str) -> Response:
        return Response("Noon.", source_nodes=[found("the table")])


class TestOneMethodIsWritten:
    async def test_retrievers(self) -> None:
        assert Written().retrieve("moon")[0].text == "moon True"
        assert (await Written().aretrieve(QueryBundle("moon")))[0].text == "moon False"
        assert WrittenAsync("hello").retrieve(QueryBundle("moon"))[0].text == "hello moon"
        assert (await WrittenAsync("hello").aretrieve("moon"))[0].text == "hello moon"

    async def test_postprocessors(self) -> None:
        nodes = [found("a", 0.1), found("b", 0.9), found("c")]
        assert [one.text for one in Best(limit=2).postprocess_nodes(nodes)] == ["b", "a"]
        assert [one.text for one in await Best().apostprocess_nodes(nodes)] == ["b"]
        assert AsyncMark().postprocess_nodes(nodes, query_str="me")[0].text == "a for me"
        assert (await AsyncMark().apostprocess_nodes(nodes, QueryBundle("me")))[0].text == "a for me"

    async def test_query_engines(self) -> None:
        assert str(Tides(port="Emden").query("When?")) == "When? Noon at Emden."
        answer = await Tides(port="Emden").aquery(QueryBundle("When?"))
        assert (answer.response, answer.source_nodes) == ("When? Noon at Emden.", [])
        assert AsyncTides().query("When?").source_nodes[0].text == "the table"
        assert str(await AsyncTides().aquery("When?")) == "Noon."
        assert str(Response(None)) == "None"

    def test_one_question_at_a_time(self) -> None:
        with pytest.raises(ValueError, match="both query_str and query_bundle"):
            Best().postprocess_nodes([], QueryBundle("a"), "b")

    @pytest.mark.parametrize(
        ("base", "methods"),
        [
            (BaseRetriever, "_retrieve or _aretrieve"),
            (BaseNodePostprocessor, "_postprocess_nodes or _apostprocess_nodes"),
            (CustomQueryEngine, "custom_query or acustom_query"),
        ],
    )
    def test_none_is_too_few(self, base: type, methods: str) -> None:
        empty = type("Empty", (base,), {})
        with pytest.raises(TypeError, match=f"^Empty has no implementation: write {methods}$"):
            empty()


async def test_a_retrieval_is_a_span_with_start_and_end() -> None:
    heard: list[BaseEvent] = []

    class Listener(BaseEventHandler):
        def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
            heard.append(event)

    dispatcher = get_dispatcher("batonflow.nodes")
    spans, listener = SimpleSpanHandler(), Listener()
    dispatcher.add_span_handler(spans)
    dispatcher.add_event_handler(listener)
    try:
        nodes = await WrittenAsync("hello").aretrieve("moon")
        WrittenAsync("hello").retrieve("sun")
    finally:
        dispatcher.span_handlers.remove(spans)
        dispatcher.event_handlers.remove(listener)
    start, end, *_ = heard
    assert isinstance(start, RetrievalStartEvent)
    assert isinstance(end, RetrievalEndEvent)
    assert (start.str_or_query_bundle, end.nodes) == ("moon", nodes)
    assert len(heard) == 4
    assert [span.id_.split("-")[0] for span in spans.completed_spans] == [
        "WrittenAsync.aretrieve",
        "WrittenAsync.retrieve",
    ]
