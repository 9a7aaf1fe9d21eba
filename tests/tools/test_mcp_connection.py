"""A server's life: nothing is left behind, and a server that ended is started or met again."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from batonflow.llms.errors import MissingDependencyError
from batonflow.tools import run_tool
from batonflow.tools.mcp import MCPConnectionError, MCPServerError, MCPTimeoutError, MCPTools, transport
from tests.promises.programs.running import run_program
from tests.tools.mcp_trial import SERVER, alone, children, gone, lister, named, served, soon

FORGETFUL = """
import asyncio
import sys

from batonflow.tools.mcp import MCPTools

server = MCPTools([sys.executable, SERVER, "stdio"])


async def main():
    tools = {tool.definition.name: tool for tool in await server.aget_tools()}
    print((await tools["whoami"].acall()).content)
    print(await asyncio.to_thread(lambda: tools["whoami"].call().content))


asyncio.run(main())
"""
DEAF = """
import runpy
import signal
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.argv = ["server", "stdio"]
runpy.run_path(SERVER, run_name="__main__")
time.sleep(60)
"""


def protocols(one: str, other: str) -> pytest.MarkDecorator:
    """Try a test with one protocol, and in ``make soak`` with the other as well."""
    return pytest.mark.parametrize("protocol", [one, pytest.param(other, marks=pytest.mark.soak(only=True))])


NEWER = protocols("auto", "legacy")
OLDER = protocols("legacy", "auto")


async def number_of(server: MCPTools) -> int:
    return int((await (await named(server, "whoami")).acall()).content)


class TestProcess:
    async def test_it_ends_with_the_block(self) -> None:
        before = children()
        async with alone() as server:
            assert len(children() - before) == 1
            assert {await number_of(server)} == children() - before
        assert children() == before

    async def test_it_ends_when_the_block_fails(self) -> None:
        before = children()
        with pytest.raises(ZeroDivisionError):
            async with alone():
                raise ZeroDivisionError
        assert children() == before

    async def test_it_ends_when_connecting_is_cancelled(self) -> None:
        before = children()

        async def enter() -> None:
            async with alone():
                pytest.fail("the cancellation came too late")

        task = asyncio.create_task(enter())
        await soon(lambda: children() != before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children() == before

    async def test_one_that_never_answers_is_given_up(self) -> None:
        before = children()
        silent = MCPTools([sys.executable, "-c", "import time; time.sleep(60)"], connect_timeout=0.5)
        with pytest.raises(MCPConnectionError, match=r"'mcp' could not be started \(no answer within 0.5 s\)"):
            async with silent:
                pytest.fail("nobody answered")
        assert children() == before

    async def test_one_that_does_not_listen_is_made_to_end(self) -> None:
        before = children()
        program = DEAF.replace("SERVER", repr(str(SERVER)))
        async with MCPTools([sys.executable, "-c", program]) as server:
            assert len(await server.aget_tools()) > 1
        assert children() == before

    async def test_it_ends_with_a_program_that_forgot_it(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(FORGETFUL.replace("SERVER", repr(str(SERVER))))
        exit_code, output, errors = await run_program(program, tmp_path)
        assert (exit_code, errors) == (0, "")
        one, other = map(int, output.split())
        assert one != other  # a synchronous call has a server of its own
        await soon(lambda: gone(one) and gone(other))

    async def test_closing_it_from_another_loop_ends_it_too(self) -> None:
        before = children()
        server = alone()
        await server.aget_tools()
        await asyncio.to_thread(server.close)
        assert children() == before


class TestFailure:
    async def test_a_command_that_there_is_not(self) -> None:
        with pytest.raises(
            MCPConnectionError, match=r"'nothing' could not be started \(command not found: mcp-nothing"
        ):
            await MCPTools("mcp-nothing --fast").aget_tools()

    async def test_a_command_that_ends_at_once_is_quoted(self) -> None:
        with pytest.raises(MCPConnectionError, match=r"(?s)could not be started.*Its last output:\nno licence found"):
            await MCPTools([sys.executable, "-c", "import sys; sys.exit('no licence found')"]).aget_tools()

    async def test_an_address_where_nobody_is(self) -> None:
        with pytest.raises(MCPConnectionError, match="cannot be reached"):
            await MCPTools(url="http://127.0.0.1:9/mcp").aget_tools()

    async def test_without_the_package_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name == "mcp" or name.startswith("mcp.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "mcp", None)
        with pytest.raises(MissingDependencyError, match=r"pip install .*\[mcp\]"):
            await alone().aget_tools()

    async def test_what_is_closed_says_so_until_it_is_entered_again(self) -> None:
        server = alone()
        async with server:
            add = await named(server, "add")
        with pytest.raises(MCPConnectionError, match="is closed"):
            await add.acall(a=1)
        async with server:
            assert (await add.acall(a=1)).content == "2"


class TestList:
    async def test_one_that_does_not_come_is_given_up_and_asked_for_again(self, tmp_path: Path) -> None:
        mood = tmp_path / "mood"
        mood.write_text("silent")
        async with lister(mood, timeout=0.5) as server:
            for output in await asyncio.gather(*(server.aget_tools() for _ in range(3)), return_exceptions=True):
                assert isinstance(output, MCPTimeoutError)
                assert "took more than 0.5 s for its list of tools" in str(output)
            mood.write_text("talkative")
            assert len(await server.aget_tools()) == 1

    async def test_a_call_does_not_wait_for_ever_for_one_that_has_changed(self, tmp_path: Path) -> None:
        mood = tmp_path / "mood"
        mood.write_text("talkative")
        async with lister(mood, timeout=0.5) as server:
            greet = await named(server, "greet")
            assert (await greet.acall()).content == "hello"
            mood.write_text("silent")
            with pytest.raises(MCPTimeoutError, match="for its list of tools"):
                await greet.acall()
            mood.write_text("talkative")
            assert (await greet.acall()).content == "hello"


class TestReconnecting:
    @NEWER
    async def test_a_call_under_way_fails_with_the_server_s_last_words_and_the_next_one_works(
        self, protocol: str
    ) -> None:
        async with alone(protocol=protocol) as server:
            first = await number_of(server)
            output = await run_tool(await named(server, "leave"), {})
            assert output.is_error
            assert output.content.startswith(
                "MCP server 'trial' ended while running 'leave'; whether that took effect is unknown"
            )
            assert output.content.endswith("Its last output:\nout of tea")
            assert await number_of(server) != first

    async def test_every_call_under_way_is_told(self, tmp_path: Path) -> None:
        async with alone() as server:
            hang, leave = await named(server, "hang"), await named(server, "leave")
            note = tmp_path / "note"
            hanging = asyncio.create_task(run_tool(hang, {"note": str(note)}))
            await soon(note.exists)
            await run_tool(leave, {})
            assert "ended while running 'hang'" in (await hanging).content

    async def test_a_server_that_died_in_the_meantime_is_not_noticed_by_the_next_call(self) -> None:
        async with alone() as server:
            add, first = await named(server, "add"), await number_of(server)
            os.kill(first, signal.SIGKILL)
            await soon(lambda: gone(first))
            for _ in range(20):  # the pipe's end arrives with the loop's next turns
                await asyncio.sleep(0.01)
            assert (await add.acall(a=1)).content == "2"

    @OLDER
    async def test_a_server_behind_an_address_may_be_restarted(self, protocol: str) -> None:
        async with served() as (url, process):
            server = MCPTools(url=url, protocol=protocol)
            async with server:
                add = await named(server, "add")
                process.kill()
                await process.wait()
                async with served(int(url.split(":")[2].partition("/")[0])):
                    assert (await add.acall(a=1)).content == "2"

    async def test_when_it_ends_while_it_is_asked_for_its_tools_those_who_waited_meet_it_again(
        self, tmp_path: Path
    ) -> None:
        mood = tmp_path / "mood"
        mood.write_text("ends")
        async with lister(mood) as server:
            first, *others = await asyncio.gather(*(server.aget_tools() for _ in range(3)), return_exceptions=True)
        assert isinstance(first, MCPConnectionError)
        assert "ended while listing its tools" in str(first)
        assert [[tool.definition.name for tool in tools] for tools in others] == [["greet"], ["greet"]]

    @NEWER
    async def test_calls_side_by_side_find_a_server_that_was_restarted(self, protocol: str) -> None:
        async with served() as (url, process), MCPTools(url=url, protocol=protocol) as server:
            add = await named(server, "add")
            process.kill()
            await process.wait()
            async with served(int(url.split(":")[2].partition("/")[0])):
                outputs = await asyncio.gather(*(add.acall(a=number) for number in range(3)))
        assert [output.content for output in outputs] == ["1", "2", "3"]

    @OLDER
    async def test_a_server_behind_an_address_that_dies_is_met_again_once_it_is_back(self, protocol: str) -> None:
        async with served() as (url, process), MCPTools(url=url, protocol=protocol) as server:
            leave = await named(server, "leave")
            add = await named(server, "add")
            output = await run_tool(leave, {})
            assert output.is_error
            assert "ended while running 'leave'" in output.content
            await process.wait()
            assert "MCP server" in (await run_tool(add, {"a": 1})).content
            async with served(int(url.split(":")[2].partition("/")[0])):
                assert (await add.acall(a=1)).content == "2"

    @NEWER
    async def test_calls_side_by_side_find_their_tools_after_it(self, protocol: str) -> None:
        async with alone(protocol=protocol) as server:
            everybody = await asyncio.gather(*(server.aget_tools() for _ in range(3)))
            assert {len(tools) for tools in everybody} == {len(await server.aget_tools())} != {0}
            add, first = await named(server, "add"), await number_of(server)
            await run_tool(await named(server, "leave"), {})
            outputs = await asyncio.gather(*(add.acall(a=number) for number in range(3)))
            assert [output.content for output in outputs] == ["1", "2", "3"]
            assert await number_of(server) != first


class TestHTTP:
    @OLDER
    async def test_calls_progress_side_by_side_over_http(self, protocol: str) -> None:
        async with served() as (url, _), MCPTools(url=url, protocol=protocol, namespace="far") as server:
            add = await named(server, "add")
            assert add.metadata.name == "far__add"
            outputs = await asyncio.gather(*(add.acall(a=number) for number in range(10)))
            assert [output.content for output in outputs] == [str(number + 1) for number in range(10)]

    @NEWER
    async def test_a_cancelled_call_is_cancelled_at_the_server(self, protocol: str, tmp_path: Path) -> None:
        note = tmp_path / "note"
        async with served() as (url, _), MCPTools(url=url, protocol=protocol) as server:
            call = asyncio.create_task((await named(server, "hang")).acall(note=str(note)))
            await soon(lambda: note.exists() and note.read_text() == "running")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await soon(lambda: note.read_text() == "stopped")

    @OLDER
    async def test_a_result_may_be_longer_than_the_package_takes_by_itself(self, protocol: str) -> None:
        async with served() as (url, _), MCPTools(url=url, protocol=protocol) as server:
            assert len((await (await named(server, "talk")).acall(letters=2_000_000)).content) == 2_000_000

    async def test_one_that_is_too_long_is_an_error_that_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transport, "LARGEST_EVENT_BYTES", 100_000)
        async with served() as (url, _), MCPTools(url=url, protocol="legacy") as server:
            talk = await named(server, "talk")
            with pytest.raises(MCPServerError, match=r"running 'talk', sent too much at once: .* 100000 byte limit"):
                await talk.acall(letters=200_000)
            assert (await talk.acall(letters=1)).content == "x"
