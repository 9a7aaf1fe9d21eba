"""The protocol's reference server, which speaks the older protocol, over both transports."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from batonflow import FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.llms.blocks import ImageBlock, TextBlock
from batonflow.tools import run_tool
from batonflow.tools.mcp import MCPElicitation, MCPElicitationResponse, MCPProgress, MCPTools
from tests.tools.mcp_trial import children, listens, named, soon

FOLDER = Path(__file__).with_name("mcp_everything")
PROGRAM = FOLDER / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"

pytestmark = pytest.mark.external("node")


@pytest.fixture(autouse=True)
def _installed() -> None:
    assert PROGRAM.exists(), f"the server is not installed: cd {FOLDER} && npm ci --ignore-scripts"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def served(port: int) -> AsyncIterator[None]:
    nowhere = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        "node", str(PROGRAM), "streamableHttp", env={**os.environ, "PORT": str(port)}, stdout=nowhere, stderr=nowhere
    )
    try:
        await soon(lambda: listens(port))
        yield
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def over_http() -> AsyncIterator[MCPTools]:
    port = free_port()
    async with served(port), MCPTools(url=f"http://127.0.0.1:{port}/mcp", namespace="everything") as server:
        yield server


@asynccontextmanager
async def over_stdio() -> AsyncIterator[MCPTools]:
    before = children()
    async with MCPTools(["node", str(PROGRAM), "stdio"], namespace="everything") as server:
        yield server
    assert children() == before


@pytest.fixture(params=[over_stdio, over_http], ids=["stdio", "http"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[MCPTools]:
    async with request.param() as server:
        yield server


async def test_text_sums_and_arguments(server: MCPTools) -> None:
    assert (await run_tool(await named(server, "echo"), {"message": "tea"})).content == "Echo: tea"
    assert "42" in (await run_tool(await named(server, "get-sum"), {"a": 2, "b": 40})).content
    refused = await run_tool(await named(server, "get-sum"), {"a": "two"})
    assert "a: 'two' is not of type 'number'; b: missing" in refused.content


async def test_images(server: MCPTools) -> None:
    output = await run_tool(await named(server, "get-tiny-image"), {})
    (image,) = [block for block in output.blocks if isinstance(block, ImageBlock)]
    assert image.image_mimetype == "image/png"
    assert image.resolve_image().read().startswith(b"\x89PNG")


async def test_structured_content(server: MCPTools) -> None:
    output = await run_tool(await named(server, "get-structured-content"), {"location": "New York"})
    assert set(output.raw_output) == {"temperature", "conditions", "humidity"}


async def test_links_and_embedded_resources(server: MCPTools) -> None:
    links = await run_tool(await named(server, "get-resource-links"), {"count": 2})
    assert "<demo://resource/dynamic/text/2>" in links.content
    embedded = await run_tool(await named(server, "get-resource-reference"), {"resourceType": "Blob", "resourceId": 1})
    assert [type(block) for block in embedded.blocks if not isinstance(block, TextBlock)]


async def test_progress_in_a_run(server: MCPTools) -> None:
    llm = ScriptedLLM([tool_call("everything__trigger-long-running-operation", duration=0.3, steps=3), "Done."])
    handler = FunctionAgent(llm=llm, tools=await server.aget_tools()).run("Go.")
    told = [event async for event in handler.stream_events() if isinstance(event, MCPProgress)]
    await handler
    assert [(event.progress, event.total) for event in told] == [(1, 3), (2, 3), (3, 3)]


async def test_a_person_is_asked_by_a_tool_that_appears_once_people_can_be_asked(server: MCPTools) -> None:
    # The server adds it after the handshake and says that its list has changed.
    while "trigger-elicitation-request" not in {tool.definition.name for tool in await server.aget_tools()}:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    llm = ScriptedLLM([tool_call("everything__trigger-elicitation-request"), "Done."])
    handler = FunctionAgent(llm=llm, tool_retriever=server).run("Go.")
    async for event in handler.stream_events():
        if isinstance(event, MCPElicitation):
            assert "name" in event.requested_schema["required"]
            handler.ctx.send_event(MCPElicitationResponse(id=event.id, content={"name": "Ann"}))
    output = await handler
    assert "Ann" in output.tool_calls[0].tool_output.content


@pytest.mark.parametrize("first", [False, True], ids=["asked in the call", "asked before the call"])
async def test_a_person_is_sent_to_an_address(server: MCPTools, first: bool) -> None:
    while "trigger-url-elicitation" not in {tool.definition.name for tool in await server.aget_tools()}:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    arguments = {"url": "https://example.com/consent", "elicitationId": "e1", "errorPath": first}
    llm = ScriptedLLM([tool_call("everything__trigger-url-elicitation", **arguments), "Done."])
    handler = FunctionAgent(llm=llm, tool_retriever=server).run("Go.")
    asked: list[tuple[str | None, object]] = []
    async for event in handler.stream_events():
        if isinstance(event, MCPElicitation):
            asked.append((event.url, event.requested_schema))
            handler.ctx.send_event(MCPElicitationResponse(id=event.id))
    output = (await handler).tool_calls[0].tool_output
    assert asked[-1] == ("https://example.com/consent", None)
    assert len(asked) == (2 if first else 1)  # the server has an address of its own that comes first
    assert not output.is_error, output.content


async def test_a_server_that_was_restarted_is_met_again_although_it_forgot_the_session() -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        async with served(port):
            server = await stack.enter_async_context(MCPTools(url=f"http://127.0.0.1:{port}/mcp"))
            echo = await named(server, "echo")
        async with served(port):
            assert (await echo.acall(message="again")).content == "Echo: again"
            await server.aclose()
