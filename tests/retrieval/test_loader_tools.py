"""Tools that load texts when an agent asks for them."""

from typing import Any

import pytest

from batonflow import FunctionAgent, FunctionTool
from batonflow.llms import tool_call
from batonflow.nodes import Document
from batonflow.retrieval import LoadAndSearchToolSpec, OnDemandLoaderTool, SummaryIndex
from tests.retrieval.passages import BREAD, SEA, answering, prompts_to

PAGES = {"sea": [Document(text=SEA)], "bread": BREAD}


def read_page(page: str) -> Any:
    """Reads a page."""
    return PAGES[page]


async def aread_page(page: str) -> Any:
    """Reads a page."""
    return PAGES[page]


class Reader:
    def load_data(self, page: str) -> Any:
        return PAGES[page]


class TestOnDemandLoaderTool:
    @pytest.mark.parametrize("reader", [read_page, aread_page, Reader()])
    async def test_it_loads_and_answers(self, reader: Any) -> None:
        llm = answering("The moon.", "The moon.")
        tool = OnDemandLoaderTool.from_defaults(reader, name="page", query_kwargs={"llm": llm})
        output = await tool.acall(page="sea", query_str="What pulls the sea?")
        assert (output.content, tool.call(page="sea", query_str="What pulls the sea?").content) == ("The moon.",) * 2
        assert SEA in prompts_to(llm)[0]
        assert list(tool.metadata.get_parameters_dict()["properties"]) == ["page", "query_str"]

    async def test_an_agent_calls_it(self) -> None:
        tool = OnDemandLoaderTool.from_tool(
            FunctionTool.from_defaults(read_page), index_cls=SummaryIndex, query_kwargs={"llm": answering("Yeast.")}
        )
        llm = answering(tool_call("read_page", page="bread", query_str="What does bread need?"), "It needs yeast.")
        assert str(await FunctionAgent(llm=llm, tools=[tool]).run("What does bread need?")) == "It needs yeast."
        assert llm.requests[1].messages[-1].content == "Yeast."
        assert tool.metadata.description == read_page.__doc__ or "Reads a page." in tool.metadata.description

    def test_the_question_is_needed(self) -> None:
        tool = OnDemandLoaderTool.from_defaults(read_page)
        with pytest.raises(ValueError, match="Missing query_str in kwargs with parameter name: query_str"):
            tool.call(page="sea")

    async def test_the_function_may_get_the_question(self) -> None:
        asked: list[str] = []

        def search(question: str) -> str:
            asked.append(question)
            return SEA

        tool = OnDemandLoaderTool.from_defaults(
            search,
            use_query_str_in_loader=True,
            query_str_kwargs_key="question",
            return_direct=True,
            query_kwargs={"llm": answering("The moon.")},
        )
        await tool.acall(question="What pulls?")
        assert asked == ["What pulls?"]
        assert tool.metadata.return_direct


class TestLoadAndSearchToolSpec:
    async def test_one_tool_loads_and_the_other_answers(self) -> None:
        llm = answering("The moon.", "Yeast.")
        spec = LoadAndSearchToolSpec.from_defaults(FunctionTool.from_defaults(read_page), query_kwargs={"llm": llm})
        load, read = spec.to_tool_list()
        assert [load.metadata.name, read.metadata.name] == ["read_page", "read_read_page"]
        assert (await read.acall(query="What?")).content == "Error: there is no data yet. Call read_page first."
        assert (await load.acall(page="sea")).content == "1 loaded. Ask read_read_page about them."
        assert read.call(query="What pulls the sea?").content == "The moon."
        load.call(page="bread")
        assert (await read.acall(query="What does bread need?")).content == "Yeast."
        assert (SEA in prompts_to(llm)[0], BREAD in prompts_to(llm)[1]) == (True, True)

    async def test_an_agent_uses_both(self) -> None:
        tool = FunctionTool.from_defaults(aread_page)
        spec = LoadAndSearchToolSpec.from_defaults(tool, name="page", query_kwargs={"llm": answering("The moon.")})
        llm = answering(tool_call("page", page="sea"), tool_call("read_page", query="What pulls?"), "The moon does.")
        agent = FunctionAgent(llm=llm, tools=spec.to_tool_list())
        assert str(await agent.run("What pulls the sea?")) == "The moon does."
        assert llm.requests[2].messages[-1].content == "The moon."
