"""Objects that are found by their texts: tools for agents, and any others."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batonflow import FunctionAgent, FunctionTool
from batonflow.llms import tool_call
from batonflow.nodes import BaseNode, TextNode
from batonflow.retrieval import (
    CustomQueryEngine,
    ObjectIndex,
    QueryPlanned,
    SimilarityPostprocessor,
    SimpleObjectNodeMapping,
    SimpleQueryToolNodeMapping,
    SimpleToolNodeMapping,
    StorageContext,
    SummaryIndex,
    ToolRetrieverRouterQueryEngine,
    load_index_from_storage,
)
from batonflow.tools import QueryEngineTool
from tests.retrieval.passages import answering
from tests.retrieval.test_indexes import Letters

CITIES = [f"city{number}" for number in range(200)]


def weather_of(city: str) -> FunctionTool:
    def weather() -> str:
        return f"sun in {city}"

    return FunctionTool.from_defaults(weather, name=f"weather_{city}", description=f"Tells the weather in {city}.")


class TestTools:
    async def test_an_agent_gets_the_tools_for_its_message(self) -> None:
        tools = ObjectIndex.from_objects([weather_of(city) for city in CITIES])
        llm = answering(tool_call("weather_city77"), "It is sunny.")
        agent = FunctionAgent(llm=llm, tool_retriever=tools.as_retriever(similarity_top_k=3))
        assert str(await agent.run("What is the weather in city77?")) == "It is sunny."
        offered = [one.name for one in llm.requests[0].tools]
        assert (offered[0], len(offered)) == ("weather_city77", 3)
        assert llm.requests[1].messages[-1].content == "sun in city77"

    def test_the_text_of_a_tool_has_its_name_and_description(self) -> None:
        node = SimpleToolNodeMapping().to_node(weather_of("Rome"))
        assert node.get_content() == "Tool name: weather_Rome\nTool description: Tells the weather in Rome."

    def test_only_tools_are_taken(self) -> None:
        with pytest.raises(ValueError, match="Object must be of type BaseTool, not str"):
            SimpleToolNodeMapping.from_objects(["a"])
        with pytest.raises(ValueError, match="Object must be of type QueryEngineTool, not FunctionTool"):
            SimpleQueryToolNodeMapping([weather_of("Rome")])

    def test_query_engines_are_found_by_their_descriptions(self) -> None:
        class Engine(CustomQueryEngine):
            def custom_query(self, query_str: str) -> str:
                return query_str

        engines = [
            QueryEngineTool.from_defaults(Engine(), name=name, description=f"Knows the {name}.")
            for name in ("sea", "sky")
        ]
        index = ObjectIndex.from_objects(engines, SimpleQueryToolNodeMapping.from_objects(engines))
        assert index.as_retriever(similarity_top_k=1).retrieve("clouds of the sky") == [engines[1]]

    def test_a_tool_of_the_same_name_replaces_the_former_one(self) -> None:
        first, second = weather_of("Rome"), weather_of("Rome")
        index = ObjectIndex.from_objects([first])
        index.insert_object(second)
        assert index.as_retriever(similarity_top_k=9).retrieve("weather in Rome") == [second]


class Knows(CustomQueryEngine):
    name: str

    def custom_query(self, query_str: str) -> str:
        return f"{self.name}: {query_str}"


class TestRouter:
    def router(self, *turns: Any, top_k: int = 1) -> ToolRetrieverRouterQueryEngine:
        tools = [
            QueryEngineTool.from_defaults(Knows(name=name), name=name, description=f"Knows the {name}.")
            for name in ("sea", "sky")
        ]
        retriever = ObjectIndex.from_objects(tools).as_retriever(similarity_top_k=top_k)
        return ToolRetrieverRouterQueryEngine(retriever, llm=answering(*turns))

    async def test_the_engine_that_is_found_answers(self) -> None:
        handler = self.router().run("the sky")
        [planned] = [event async for event in handler.stream_events() if isinstance(event, QueryPlanned)]
        answer = await handler
        assert (planned.plan, str(answer), answer.metadata["retrieved_tools"]) == (["sky"], "sky: the sky", ["sky"])

    def test_several_answers_become_one(self) -> None:
        answer = self.router("Both.", top_k=2).query("knows sea and sky")
        assert (str(answer), sorted((answer.metadata or {})["retrieved_tools"])) == ("Both.", ["sea", "sky"])

    async def test_without_an_engine_the_answer_is_empty(self) -> None:
        assert str(await self.router().aquery("zebra")) == "Empty Response"


class TestObjects:
    @pytest.mark.parametrize("options", [{}, {"embed_model": Letters()}, {"index_cls": SummaryIndex}])
    async def test_any_object_is_found_by_its_text(self, options: Any) -> None:
        index = ObjectIndex.from_objects([{"name": "tides"}, 42], **options)
        found = index.as_retriever().retrieve("tides name")
        assert {"name": "tides"} in found
        assert await index.as_retriever().aretrieve("tides name") == found
        index.insert_object("tides and moons")
        assert "tides and moons" in index.as_retriever().retrieve("moons")

    def test_functions_may_map(self) -> None:
        def read(node: BaseNode) -> str:
            return node.get_content().removeprefix("a word: ")

        def write(obj: str) -> TextNode:
            return TextNode(text=f"a word: {obj}")

        index = ObjectIndex.from_objects(["moon", "sun"], from_node_fn=read, to_node_fn=write)
        index.insert_object("star")
        assert index.as_retriever(similarity_top_k=1).retrieve("star") == ["star"]
        with pytest.raises(ValueError, match="from_node_fn and to_node_fn must be given together"):
            ObjectIndex.from_objects(["moon"], to_node_fn=write)

    async def test_postprocessors_see_the_nodes(self) -> None:
        index = ObjectIndex.from_objects(["moon", "moon and sun"])
        none = index.as_retriever(node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=99)])
        assert (none.retrieve("moon"), await none.aretrieve("moon")) == ([], [])
        assert len(index.as_node_retriever().retrieve("moon")) == 2

    def test_a_node_without_an_object_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        index = ObjectIndex.from_objects(["moon", "moon and sun"])
        other = ObjectIndex(index.index, SimpleObjectNodeMapping(["moon"]))
        assert other.as_retriever().retrieve("moon") == ["moon"]
        assert "the mapping does not have it" in caplog.text


class TestStored:
    def test_objects_that_are_json_are_written_and_read(self, tmp_path: Path) -> None:
        objects = ["moon", {"name": "sun"}]
        ObjectIndex.from_objects(objects).persist(tmp_path)
        index: ObjectIndex[Any] = ObjectIndex.from_persist_dir(tmp_path)
        assert index.as_retriever().retrieve("sun") == [{"name": "sun"}]
        assert list(index.object_node_mapping.obj_node_mapping.values()) == objects

    def test_others_are_given_again(self, tmp_path: Path) -> None:
        tools = [weather_of("Rome")]
        with pytest.warns(UserWarning, match="Unable to persist ObjectNodeMapping"):
            ObjectIndex.from_objects(tools).persist(tmp_path)
        with pytest.raises(ValueError, match="has no objects: give object_node_mapping="):
            ObjectIndex.from_persist_dir(tmp_path)
        index = ObjectIndex.from_persist_dir(tmp_path, SimpleToolNodeMapping(tools))
        assert index.as_retriever().retrieve("weather in Rome") == tools

    def test_the_ids_of_nodes_are_the_same_in_each_process(self, tmp_path: Path) -> None:
        program = "from batonflow.retrieval import *; print(SimpleObjectNodeMapping().to_node('moon').id_)"
        ids = {subprocess.check_output([sys.executable, "-c", program], text=True) for _ in range(2)}
        assert ids == {SimpleObjectNodeMapping().to_node("moon").id_ + "\n"}
        storage = StorageContext.from_defaults(path=tmp_path / "notes.db")
        ObjectIndex.from_objects(["moon"], storage_context=storage, index_id="objects")
        again = load_index_from_storage(StorageContext.from_defaults(path=tmp_path / "notes.db"), "objects")
        assert ObjectIndex(again, SimpleObjectNodeMapping(["moon"])).as_retriever().retrieve("moon") == ["moon"]
