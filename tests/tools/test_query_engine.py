"""Query engines and retrievers as tools: anything with the right method will do."""

import threading
from typing import Any

import pytest

from batonflow.tools import (
    BaseNodePostprocessor,
    NodeWithScore,
    QueryBundle,
    QueryEngineTool,
    RetrieverTool,
    TextNode,
    ToolDefinitionError,
    ToolMetadata,
    ToolPolicy,
    run_tool,
)


class Engine:
    def query(self, question: str) -> str:
        return f"sync {question}"

    async def aquery(self, question: str) -> str:
        return f"async {question}"


class SyncEngine:
    def query(self, question: str) -> str:
        return f"{question} {threading.current_thread() is threading.main_thread()}"


class AsyncEngine:
    async def aquery(self, question: str) -> str:
        return f"async {question}"


class TestQueryEngineTool:
    async def test_the_answer_as_text_is_the_output(self) -> None:
        class Answer:
            def __str__(self) -> str:
                return "noon"

        answer = Answer()

        class Tables:
            def query(self, question: str) -> Answer:
                return answer

        output = QueryEngineTool.from_defaults(Tables()).call("When?")
        assert (output.content, output.raw_output, output.tool_name) == ("noon", answer, "query_engine_tool")
        assert output.raw_input == {"input": "When?"}

    async def test_engines_with_one_method_do(self) -> None:
        for engine, sync, awaited in (
            (Engine(), "sync q", "async q"),
            (SyncEngine(), "q True", "q False"),
            (AsyncEngine(), "async q", "async q"),
        ):
            tool = QueryEngineTool.from_defaults(engine)
            assert tool.query_engine is engine
            assert tool.call("q").content == sync
            assert (await tool.acall("q")).content == awaited

    def test_where_the_question_comes_from(self) -> None:
        tool = QueryEngineTool.from_defaults(Engine())
        assert tool.call("a", input="b").content == "sync a"
        assert tool(input="b").content == "sync b"
        assert tool.call(question="c").content == "sync {'question': 'c'}"
        strict = QueryEngineTool.from_defaults(Engine(), resolve_input_errors=False)
        for empty in (lambda: strict.call(question="c"), tool.call):
            with pytest.raises(ValueError, match="give it as `input`"):
                empty()

    async def test_a_model_gives_it_as_input(self) -> None:
        tool = QueryEngineTool.from_defaults(Engine(), name="tables", description="Tide tables.", return_direct=True)
        assert (tool.metadata.name, tool.metadata.description) == ("tables", "Tide tables.")
        assert tool.metadata.return_direct
        assert list(tool.metadata.get_parameters_dict()["properties"]) == ["input"]
        assert (await run_tool(tool, {"input": "q"})).content == "async q"
        assert "input: missing" in (await run_tool(tool, {"question": "q"})).content

    async def test_it_has_a_policy(self) -> None:
        tool = QueryEngineTool(Engine(), ToolMetadata("d", "t"), policy=ToolPolicy(requires_approval=True))
        assert (await run_tool(tool, {"input": "q"})).is_error
        assert QueryEngineTool.from_defaults(Engine(), policy=ToolPolicy(timeout=3)).policy.timeout == 3

    def test_something_else_is_refused(self) -> None:
        with pytest.raises(ToolDefinitionError, match=r"'tables': dict has neither query\(\) nor aquery\(\)"):
            QueryEngineTool.from_defaults({}, name="tables")


class Notes:
    def __init__(self, *nodes: Any) -> None:
        self.nodes = list(nodes)
        self.asked: list[Any] = []

    async def aretrieve(self, question: str) -> list[Any]:
        self.asked.append(question)
        return self.nodes


def node(text: str, score: float = 0.0, **metadata: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, metadata=metadata), score=score)


class Above(BaseNodePostprocessor):
    least: float

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return [one for one in nodes if one.get_score() >= self.least]


class Marked(BaseNodePostprocessor):
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return [node(f"{one.text} ({query_bundle})") for one in nodes]


class TestRetrieverTool:
    async def test_what_was_found_is_shown_with_its_metadata(self) -> None:
        notes = Notes(node("Tides follow the moon.", page=3), node("Bread needs yeast."))
        tool = RetrieverTool.from_defaults(notes)
        for output in (tool.call("moon"), await tool.acall(input="moon"), await run_tool(tool, {"input": "moon"})):
            assert output.content == "page: 3\n\nTides follow the moon.\n\nBread needs yeast."
            assert output.raw_output == notes.nodes
            assert (output.tool_name, output.raw_input) == ("retriever_tool", {"input": "moon"})
        assert notes.asked == ["moon"] * 3
        assert tool.retriever is notes

    async def test_postprocessors_work_one_after_the_other(self) -> None:
        notes = Notes(node("a", 0.9), node("b", 0.1))
        tool = RetrieverTool.from_defaults(notes, [Above(least=0.5), Marked()])
        assert tool.call("moon").content == (await tool.acall("moon")).content == "a (moon)"

    async def test_nodes_of_another_make(self) -> None:
        class Content:
            def get_content(self) -> str:
                return "with content"

        class Text:
            text = "with text"

        tool = RetrieverTool.from_defaults(Notes(Content(), Text(), "plain", TextNode(text="node")))
        assert (await tool.acall("moon")).content == "with content\n\nwith text\n\nplain\n\nnode"

    async def test_nothing_is_said_in_words(self) -> None:
        output = await RetrieverTool.from_defaults(Notes()).acall("moon")
        assert (output.content, output.raw_output, output.is_error) == ("Nothing was found.", [], False)

    async def test_name_description_and_policy(self) -> None:
        tool = RetrieverTool.from_defaults(
            Notes(), name="notes", description="Finds notes.", policy=ToolPolicy(requires_approval=True)
        )
        assert (tool.metadata.name, tool.metadata.description) == ("notes", "Finds notes.")
        assert (await run_tool(tool, {"input": "moon"})).is_error

    def test_what_cannot_retrieve_is_refused(self) -> None:
        with pytest.raises(ToolDefinitionError, match=r"'notes': Engine has neither retrieve\(\) nor aretrieve\(\)"):
            RetrieverTool.from_defaults(Engine(), name="notes")
        with pytest.raises(ValueError, match="give it as `input`"):
            RetrieverTool.from_defaults(Notes()).call()
