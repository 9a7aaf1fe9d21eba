"""A small MCP server for the tests: ``python mcp_server.py stdio``, or ``http PORT``."""

# ruff: noqa: E402 - the collector stops before the imports

import gc

gc.disable()  # A quarter of the time of the imports, at each of many starts; no server lives long enough to need it.

import os
import sys
from pathlib import Path
from typing import Annotated

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Audio, Context, Elicit, Image, Resolve
from mcp_types import BlobResourceContents, EmbeddedResource, ResourceLink
from pydantic import BaseModel

server = MCPServer("trial", log_level="ERROR")


class Size(BaseModel):
    litres: int


def what_add_says() -> str:
    return Path(os.environ["ADD_SAYS"]).read_text() if "ADD_SAYS" in os.environ else "Add two numbers."


@server.tool(description=what_add_says())
def add(a: int, b: int = 1) -> int:
    return a + b


@server.tool(name="files.list", structured_output=False)
def files(place: Annotated[str | None, "Where"] = None) -> str:
    """List files."""
    return f"nothing in {place}"


@server.tool()
async def work(ctx: Context, steps: int) -> str:
    """Work, and say how far it is."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return "worked"


@server.tool()
async def hang(note: str) -> str:
    """Never answer; write a note when told to stop."""
    Path(note).write_text("running")  # noqa: ASYNC240 - a word
    try:
        await anyio.sleep_forever()
    finally:
        Path(note).write_text("stopped")  # noqa: ASYNC240 - a word


@server.tool()
async def leave() -> str:
    """End the server in the middle of a call."""
    print("out of tea", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def whoami() -> int:
    """The number of this process."""
    return os.getpid()


@server.tool()
def secret() -> str:
    """What the environment says."""
    return f"{os.environ.get('GIVEN')} {os.environ.get('OPENAI_API_KEY')}"


@server.tool(structured_output=False)
def talk(letters: int) -> str:
    """Say much."""
    return "x" * letters


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the kettle is empty")


@server.tool(structured_output=False)
def show() -> list:
    """Every kind of content."""
    return [
        "look:",
        Image(data=b"\x89PNG\r\n\x1a\n0000", format="png"),
        Audio(data=b"RIFF0000WAVE", format="wav"),
        ResourceLink(type="resource_link", name="tea", uri="shop://tea", description="all about it"),
        EmbeddedResource(
            type="resource",
            resource=BlobResourceContents(uri="shop://leaflet.pdf", mime_type="application/pdf", blob="JVBERi0="),
        ),
    ]


async def ask_size() -> Elicit[Size]:
    return Elicit("How big a pot?", Size)


@server.tool()
async def brew(size: Annotated[Size, Resolve(ask_size)]) -> str:
    """Brew, and ask how much: in the newer protocol the answer to the call is the question."""
    return f"{size.litres} l"


@server.tool()
async def brew_slowly(ctx: Context) -> str:
    """Brew, and ask in the middle of the call, which only the older protocol can do."""
    answer = await ctx.elicit("How big a pot?", Size)
    return f"{answer.data.litres} l" if answer.action == "accept" else answer.action


@server.tool()
async def stay(note: str) -> str:
    """Write a note, and stay until it is taken away."""
    Path(note).write_text("here")  # noqa: ASYNC240 - a word
    while Path(note).exists():  # noqa: ASYNC110, ASYNC240 - nobody tells
        await anyio.sleep(0.01)
    return "stayed"


@server.tool()
async def brew_in_company(ctx: Context, note: str, stubborn: bool = False) -> str:
    """Brew slowly, but ask only when there is a note; stubbornly means to ask on when the call is given up."""
    while not Path(note).exists():  # noqa: ASYNC110, ASYNC240 - nobody tells
        await anyio.sleep(0.01)
    with anyio.CancelScope(shield=stubborn):
        return await brew_slowly(ctx)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
