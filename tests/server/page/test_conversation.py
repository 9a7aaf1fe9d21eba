"""A long conversation on the page: its newest message, its speakers, drafts, and a server that is away."""

from typing import Any

import pytest

from batonflow import FunctionAgent
from batonflow.llms import ScriptedLLM
from batonflow.server import WorkflowServer
from tests.server.conftest import Running, Serving
from tests.server.page.browser import DESK, TABLET, Chromium, Watched
from tests.server.page.flows import search

pytestmark = [pytest.mark.external("chromium"), pytest.mark.asyncio(loop_scope="module")]

FROM_THE_END = """() => {
    const log = document.querySelector(".chat-log");
    return Math.round(log.scrollHeight - log.scrollTop - log.clientHeight);
}"""
LONG = "\n\n".join(["The tide comes in and goes out."] * 12)


def talker(*script: Any, **options: Any) -> FunctionAgent[Any, Any]:
    return FunctionAgent(name="talker", llm=ScriptedLLM([*script]), **options)


def server() -> WorkflowServer:
    return WorkflowServer(accept_sessions=True)


async def turn(served: Running, text: str, session: str = "long", agent: str = "talker") -> None:
    """Send a message from elsewhere."""
    start = {"start_event": {"user_msg": text}, "session": session}
    await served.over((await served.post(f"/workflows/{agent}/run-nowait", start))["handler_id"])


async def is_at_the_end(watched: Watched) -> None:
    await watched.page.wait_for_function(f"() => ({FROM_THE_END})() < 2")


@pytest.mark.parametrize("size", [DESK, TABLET])
async def test_the_list_of_conversations_fits_its_side(browser: Chromium, serving: Serving, size: Any) -> None:
    async with serving(server(), talker=talker("One.", tools=[search])) as served:
        await turn(served, "Hello", "a-very-long-name-of-a-conversation-about-the-sea-and-its-tides")
        async with browser.page(f"{served.url}/#chat=talker", size=size, wait=".chat-link") as watched:
            wider = await watched.page.locator(".chat-list").evaluate("(list) => list.scrollWidth - list.clientWidth")
            assert wider == 0
            side = await watched.page.locator(".chat-side").bounding_box()
            time = await watched.page.locator(".chat-link small").bounding_box()
            assert side is not None
            assert time is not None
            assert time["x"] + time["width"] < side["x"] + side["width"]
