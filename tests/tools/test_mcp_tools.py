"""Tools of real MCP servers, given to agents and called by hand."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batonflow import FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.llms.blocks import AudioBlock, DocumentBlock, ImageBlock, TextBlock
from batonflow.tools import ToolDefinitionError, acall_tool, run_tool
from batonflow.tools.mcp import MCPTimeoutError, MCPTools
from batonflow.workflow_core.events import InputRequiredEvent
from tests.tools.mcp_trial import TIME, named, soon, trial


class TestTools:
    async def test_a_server_of_others_tells_the_time(self) -> None:
        async with MCPTools(TIME) as time:
            current, convert = await time.aget_tools()
            assert [current.metadata.name, convert.metadata.name] == ["time__get_current_time", "time__convert_time"]
            output = await run_tool(current, {"timezone": "UTC"})
        assert (output.is_error, output.tool_name) == (False, "time__get_current_time")
        assert output.raw_output["timezone"] == "UTC"
        assert '"timezone": "UTC"' in output.content

    async def test_the_model_is_shown_the_server_s_own_schema(self) -> None:
        async with MCPTools(TIME) as time:
            tool = (await time.aget_tools())[1]
            shown = tool.metadata.to_openai_tool()["function"]
        assert shown["parameters"] == tool.definition.schema
        assert shown["parameters"]["properties"]["time"]["description"].startswith("Time to convert")
        assert shown["description"] == tool.definition.description
        assert tool.definition.annotations["read_only_hint"] is True

    async def test_a_tool_that_fails_says_so_in_its_output(self) -> None:
        async with MCPTools(TIME) as time:
            output = await run_tool((await time.aget_tools())[0], {"timezone": "Nowhere/At all"})
        assert output.is_error
        assert "Nowhere/At all" in output.content

    async def test_arguments_are_checked_before_the_call_is_sent(self) -> None:
        async with MCPTools(TIME) as time:
            tool = (await time.aget_tools())[1]
            output = await run_tool(tool, {"source_timezone": 5, "time": "12:00"})
        assert output.is_error
        assert output.content == (
            "Invalid arguments for tool 'time__convert_time': source_timezone: 5 is not of type 'string'; "
            "target_timezone: missing. Correct them and call the tool again."
        )

    async def test_null_for_an_argument_that_takes_none_leaves_it_out(self) -> None:
        async with trial() as server:
            assert (await run_tool(await named(server, "add"), {"a": 41, "b": None})).content == "42"
            assert (await run_tool(await named(server, "files.list"), {"place": None})).content == "nothing in None"

    async def test_every_kind_of_content_becomes_a_block(self) -> None:
        async with trial() as server:
            output = await run_tool(await named(server, "show"), {})
        text, picture, sound, link, leaflet = output.blocks
        assert text == TextBlock(text="look:")
        assert isinstance(picture, ImageBlock)
        assert (picture.resolve_image().read(), picture.image_mimetype) == (b"\x89PNG\r\n\x1a\n0000", "image/png")
        assert isinstance(sound, AudioBlock)
        assert (sound.resolve_audio().read(), sound.format) == (b"RIFF0000WAVE", "wav")
        assert link == TextBlock(text="tea <shop://tea>: all about it")
        assert isinstance(leaflet, DocumentBlock)
        assert (leaflet.resolve_document().read(), leaflet.document_mimetype) == (b"%PDF-", "application/pdf")

    async def test_an_argument_may_be_given_by_position(self) -> None:
        async with MCPTools(TIME) as time:
            tool = (await time.aget_tools())[0]
            assert (await tool.acall("UTC")).raw_output["timezone"] == "UTC"
            assert (await acall_tool(tool, {"timezone": "UTC"})).raw_output["timezone"] == "UTC"


class TestAgents:
    async def test_an_agent_takes_the_tools(self) -> None:
        llm = ScriptedLLM([tool_call("trial__add", a=2, b=40), "It is 42."])
        async with trial() as server:
            output = await FunctionAgent(llm=llm, tools=await server.aget_tools()).run("2 + 40?")
        assert str(output) == "It is 42."
        assert output.tool_calls[0].tool_output.raw_output == {"result": 42}

    async def test_an_agent_takes_the_object_itself_and_connects_with_its_first_run(self) -> None:
        server = trial()
        llm = ScriptedLLM([tool_call("trial__add", a=2, b=40), "It is 42."])
        agent = FunctionAgent(llm=llm, tool_retriever=server)
        try:
            output = await agent.run("2 + 40?")
        finally:
            await server.aclose()
        assert output.tool_calls[0].tool_output.content == "42"

    async def test_a_person_is_asked_where_that_is_required(self) -> None:
        llm = ScriptedLLM([tool_call("trial__add", a=1), tool_call("trial__whoami"), "Done."])
        async with trial(requires_approval=["add"]) as server:
            handler = FunctionAgent(llm=llm, tools=await server.aget_tools()).run("Go.")
            asked: list[str] = []
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    asked.append(event.tool_name)
                    handler.deny(event.id, reason="not today")
            output = await handler
        assert asked == ["trial__add"]
        assert [call.tool_output.is_error for call in output.tool_calls] == [True, False]


class TestChoice:
    async def test_only_what_is_allowed_and_not_denied_is_offered(self) -> None:
        async with trial(allow=["add", "brew*", "fail"], deny=["brew_*"]) as server:
            assert {tool.metadata.name for tool in await server.aget_tools()} == {
                "trial__add", "trial__brew", "trial__fail"
            }  # fmt: skip

    async def test_a_name_that_no_tool_has_is_refused(self) -> None:
        async with trial(deny=["leav"]) as server:
            with pytest.raises(ToolDefinitionError, match=r"has no tool 'leav'.*It has: add, files\.list"):
                await server.aget_tools()

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({}, "either a command"),
            ({"command": "a", "url": "http://b"}, "either a command"),
            ({"url": "ftp://b"}, "begins with http"),
            ({"command": "a", "headers": {"x": "y"}}, "headers cannot be given with a command"),
            ({"url": "http://b", "env": {"x": "y"}}, "env cannot be given with a url"),
            ({"command": "a", "namespace": "a__b"}, "namespace 'a__b'"),
            ({"command": "a", "allow": "add"}, r"\['add'\]"),
            ({"command": "a", "on_change": "look"}, "on_change"),
        ],
    )
    def test_arguments_that_do_not_fit_are_refused(self, options: dict[str, Any], told: str) -> None:
        with pytest.raises(ValueError, match=told):
            MCPTools(**options)

    def test_what_is_secret_is_not_shown(self) -> None:
        tools = MCPTools(url="https://ann:pw@example.com/mcp?key=k", headers={"Authorization": "Bearer s3cret"})
        assert repr(tools) == "<MCPTools 'example'>"
        assert "s3cret" not in repr(vars(tools))


class TestCalls:
    async def test_calls_from_several_tasks_go_side_by_side(self) -> None:
        async with trial() as server:
            add = await named(server, "add")
            outputs = await asyncio.gather(*(add.acall(a=number) for number in range(20)))
        assert [output.content for output in outputs] == [str(number + 1) for number in range(20)]

    async def test_a_call_that_takes_too_long_is_stopped_at_the_server(self, tmp_path: Path) -> None:
        note = tmp_path / "note"
        async with trial(timeout=0.5) as server:
            with pytest.raises(MCPTimeoutError, match=r"took more than 0.5 s for 'hang'"):
                await (await named(server, "hang")).acall(note=str(note))
            await soon(lambda: note.read_text() == "stopped")
            assert (await (await named(server, "add")).acall(a=1)).content == "2"

    async def test_a_cancelled_call_is_cancelled_at_the_server(self, tmp_path: Path) -> None:
        note = tmp_path / "note"
        async with trial() as server:
            call = asyncio.create_task((await named(server, "hang")).acall(note=str(note)))
            await soon(lambda: note.exists() and note.read_text() == "running")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await soon(lambda: note.read_text() == "stopped")

    async def test_the_server_s_environment_holds_what_it_is_given_and_no_key(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        async with trial(env={"GIVEN": "yes"}) as server:
            assert (await (await named(server, "secret")).acall()).content == "yes None"

    def test_without_a_loop_the_tools_are_called_synchronously(self) -> None:
        server = trial()
        try:
            add = next(tool for tool in server.get_tools() if tool.definition.name == "add")
            assert add.call(a=1).content == "2"
            assert add(a=2).content == "3"
        finally:
            server.close()
