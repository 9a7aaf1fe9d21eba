"""Long results: a model is shown the beginning, and reads on as far as it wants."""

import json
import re
from typing import Any

import pytest

from batonflow.agents import CodeActAgent, FunctionAgent, ReActAgent, ToolCallResult
from batonflow.agents.results import LONG_RESULTS
from batonflow.llms import ImageBlock, ScriptedLLM, TextBlock, tool_call
from batonflow.llms.stream import ChatRequest
from batonflow.tools import ToolOutput, tool
from batonflow.workflow_core import Context

NOTE = re.compile(
    r"\n\n\[Characters up to (\d+) of (\d+)\. To read on call read_result with handle='(.+)' and offset=(\d+)\.\]$"
)


def book(length: int = 1_000) -> str:
    """Read a book."""
    return text_of(length)


def text_of(length: int) -> str:
    return "".join(f"<{number}>" for number in range(length))[:length]


def agent(*turns: Any, **options: Any) -> FunctionAgent:
    options.setdefault("tools", [book])
    return FunctionAgent(llm=ScriptedLLM(turns), **options)


def contents(output: Any) -> list[str]:
    return [call.tool_output.content for call in output.tool_calls if isinstance(call, ToolCallResult)]


def reader(first: Any, last: str = "Read.") -> Any:
    """A model that reads on for as long as there is something to read."""

    def turn(request: ChatRequest) -> Any:
        if len(request.messages) < 2:
            return first
        found = NOTE.search(request.messages[-1].content or "")
        if found is None:
            return last
        return tool_call("read_result", handle=found[3], offset=int(found[4]))

    return turn


def joined(pages: list[str]) -> str:
    """What was read, without the notes below it."""
    last = re.sub(r"\n\n\[The end: \d+ characters\.\]$", "", pages[-1])
    return "".join([NOTE.sub("", page) for page in pages[:-1]] + [last])


class TestShown:
    async def test_is_the_beginning_and_how_to_go_on(self) -> None:
        (shown,) = contents(await agent(tool_call("book"), "Done.", max_result_chars=100).run("Read."))
        found = NOTE.search(shown)
        assert found is not None
        assert shown[: found.start()] == text_of(1_000)[:100]
        assert (found[1], found[2], found[4]) == ("100", "1000", "100")

    async def test_is_all_of_a_result_that_just_fits(self) -> None:
        output = await agent(tool_call("book", length=100), "Done.", max_result_chars=100).run("Read.")
        assert contents(output) == [text_of(100)]

    async def test_is_all_of_it_where_there_is_no_limit(self) -> None:
        output = await agent(tool_call("book", length=300_000), "Done.", max_result_chars=None).run("Read.")
        assert contents(output) == [text_of(300_000)]

    async def test_is_100_000_characters_unless_told(self) -> None:
        (shown,) = contents(await agent(tool_call("book", length=300_000), "Done.").run("Read."))
        assert len(NOTE.sub("", shown)) == 100_000

    async def test_is_what_the_tools_own_limit_says(self) -> None:
        limited = tool(max_result_chars=50)(book)
        (shown,) = contents(await agent(tool_call("book"), "Done.", tools=[limited]).run("Read."))
        assert NOTE.sub("", shown) == text_of(1_000)[:50]

    async def test_keeps_pictures(self) -> None:
        def scan() -> ToolOutput:
            """Scan."""
            blocks = [TextBlock(text="x" * 500), ImageBlock(url="http://localhost/1.png")]
            return ToolOutput(tool_name="scan", blocks=blocks)

        output = await agent(tool_call("scan"), "Done.", tools=[scan], max_result_chars=100).run("Read.")
        (call,) = output.tool_calls
        assert [type(block) for block in call.tool_output.blocks] == [TextBlock, ImageBlock]

    async def test_is_offered_with_a_tool_only_when_there_is_something_to_read(self) -> None:
        made = agent("Hello.", tool_call("book"), "Done.", max_result_chars=100)
        await made.run("Hello?")
        await made.run("Read.")
        offered = [[tool.name for tool in request.tools] for request in made.the_llm().requests]  # type: ignore[attr-defined]
        assert offered == [["book"], ["book"], ["book", "read_result"]]

    async def test_also_when_it_is_an_error(self) -> None:
        def broken() -> str:
            """Fail."""
            raise OSError("x" * 5_000)

        (shown,) = contents(
            await agent(tool_call("broken"), "Done.", tools=[broken], max_result_chars=100).run("Read.")
        )
        assert len(NOTE.sub("", shown)) == 100


class TestReadingOn:
    async def test_to_the_end_of_a_megabyte(self) -> None:
        made = agent(*[reader(tool_call("book", length=1_000_000))] * 60)
        output = await made.run("Read.", max_iterations=60)
        assert str(output) == "Read."
        assert joined(contents(output)) == text_of(1_000_000)

    @pytest.mark.parametrize("limit", [70, 1_000])
    async def test_in_pages_that_keep_to_the_limit(self, limit: int) -> None:
        made = agent(*[reader(tool_call("book", length=1_500))] * 30, max_result_chars=limit)
        pages = contents(await made.run("Read.", max_iterations=30))
        assert joined(pages) == text_of(1_500)
        assert max(len(NOTE.sub("", page)) for page in pages[:-1]) == limit

    async def test_text_of_many_bytes_a_character(self) -> None:
        text = "Ebbe und Flut 🌊 прилив 潮汐 é" * 50

        def tides() -> str:
            """Read."""
            return text

        made = agent(*[reader(tool_call("tides"))] * 30, tools=[tides], max_result_chars=97)
        assert joined(contents(await made.run("Read.", max_iterations=30))) == text

    async def test_under_a_handle_that_does_not_exist(self) -> None:
        turns = [tool_call("book"), tool_call("read_result", handle="nothing"), "Done."]
        assert (
            "no result under the handle 'nothing'. Handles: 1/0."
            in contents(await agent(*turns, max_result_chars=100).run("Read."))[1]
        )

    @pytest.mark.parametrize(
        ("offset", "shown"),
        [(-50, text_of(1_000)[:100]), (990, text_of(1_000)[990:]), (5_000, "")],
        ids=["negative", "near the end", "behind the end"],
    )
    async def test_from_anywhere(self, offset: int, shown: str) -> None:
        turns = [tool_call("book"), tool_call("read_result", handle="1/0", offset=offset), "Done."]
        page = contents(await agent(*turns, max_result_chars=100).run("Read."))[1]
        assert NOTE.sub("", page).split("\n\n[The end")[0] == shown

    async def test_in_the_next_run_of_the_conversation(self) -> None:
        def other() -> str:
            """Read another."""
            return "other " * 100

        first = [tool_call("book"), "One."]
        second = [tool_call("other"), tool_call("read_result", handle="1/0", offset=100), "Two."]
        made = agent(*first, *second, tools=[book, other], max_result_chars=100)
        ctx: Context[Any] = Context(made)
        await made.run("Read.", ctx=ctx)
        ctx = Context.from_dict(made, json.loads(json.dumps(ctx.to_dict())))
        pages = contents(await made.run("Read on.", ctx=ctx))
        assert NOTE.sub("", pages[1]) == text_of(1_000)[100:200]
        found = NOTE.search(pages[0])
        assert found is not None
        assert found[3] != "1/0"

    async def test_after_an_interruption(self) -> None:
        @tool(requires_approval=True)
        def sign() -> str:
            """Sign."""
            return "signed"

        read = tool_call("read_result", handle="1/0", offset=100)
        made = agent(tool_call("book"), tool_call("sign"), read, "Done.", tools=[book, sign], max_result_chars=100)
        handler = made.run("Read.")
        requests = handler.approvals()
        await anext(requests)
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await requests.aclose()
        await handler.cancel_run()
        handler = made.run(ctx=Context.from_dict(made, saved))
        async for request in handler.approvals():
            request.approve()
        assert NOTE.sub("", contents(await handler)[-1]) == text_of(1_000)[100:200]

    async def test_a_tool_of_ones_own_with_this_name_stays_what_it_is(self) -> None:
        def read_result(handle: str) -> str:
            """Read something else."""
            return f"mine {handle}"

        turns = [tool_call("book"), tool_call("read_result", handle="x"), "Done."]
        made = agent(*turns, tools=[book, read_result], max_result_chars=100)
        assert contents(await made.run("Read."))[1] == "mine x"
        offered = [tool.name for tool in made.the_llm().requests[-1].tools]  # type: ignore[attr-defined]
        assert offered == ["book", "read_result"]


class TestInOtherKindsOfAgents:
    async def test_reasoning_in_text(self) -> None:
        turns = [
            "Thought: Read.\nAction: book\nAction Input: {}",
            'Thought: On.\nAction: read_result\nAction Input: {"handle": "1/0", "offset": 100}',
            "Thought: Done.\nAnswer: Done.",
        ]
        made = ReActAgent(llm=ScriptedLLM(turns), tools=[book], max_result_chars=100)
        assert NOTE.sub("", contents(await made.run("Read."))[1]) == text_of(1_000)[100:200]

    async def test_code_gets_the_whole_result(self) -> None:
        code = "<execute>\ntext = await book(length=5000)\nprint(len(text))\n</execute>"
        made = CodeActAgent(llm=ScriptedLLM([code, "Done."]), tools=[book], max_result_chars=100)
        handler = made.run("Read.")
        assert contents(await handler)[0].strip() == "5000"
        assert await handler.ctx.store.get(LONG_RESULTS, default=None) is None
