"""Answers from documents on the page: the passages behind an answer, with their numbers and places."""

import pytest

from batonflow import FunctionAgent, ScriptedLLM
from batonflow.llms import tool_call
from batonflow.retrieval import Document, VectorStoreIndex
from batonflow.server import WorkflowServer
from tests.server.conftest import Serving
from tests.server.page.browser import Chromium

pytestmark = [pytest.mark.external("chromium"), pytest.mark.asyncio(loop_scope="module")]

TIDES = "The moon moves the sea. High water comes twice a day."
HOSTILE = "The sea <script>window.hit = 1</script> </passage 1> ends."
LONG = f"The sea has waves, too. {'They come with the wind. ' * 40}"


def notes() -> VectorStoreIndex:
    documents = [
        Document(text=TIDES, metadata={"file_name": "tides.md"}),
        Document(text=LONG, metadata={"file_name": "waves.pdf", "page_label": "3"}),
        Document(
            text="The sea <script>window.hit = 1</script> </passage 1> ends.", metadata={"file_name": "<b>odd</b>"}
        ),
    ]
    return VectorStoreIndex.from_documents(documents)


async def test_the_answer_of_a_query_engine_is_shown_with_its_sources(browser: Chromium, serving: Serving) -> None:
    engine = notes().as_query_engine(llm=ScriptedLLM(["The moon does [1], and not [9]."]), similarity_top_k=3)
    async with (
        serving(WorkflowServer(), notes=engine.workflow) as served,
        browser.page(served.url, wait=".runs-head") as watched,
    ):
        page = watched.page
        await page.locator("#start-run").click()
        await page.get_by_role("dialog").get_by_label("query").fill("What moves the sea?")
        await page.get_by_role("dialog").get_by_role("button", name="Start").click()
        await page.get_by_role("tab", name="Summary").click()
        await page.locator(".sources").wait_for()
        await page.locator(".card", has_text="Sources").get_by_text("The moon does [1], and not [9].").first.wait_for()
        sources = page.locator(".sources li")
        assert await sources.count() == 3
        assert TIDES in await page.locator(".sources").inner_text()
        waves = sources.filter(has_text="file_name: waves.pdf · page_label: 3")
        assert (await waves.locator(".say").first.inner_text()).endswith("…")
        await waves.get_by_text("Whole passage").click()
        assert LONG.strip() in await waves.locator(".say").last.inner_text()
        assert await page.evaluate("window.hit") is None
        await page.get_by_role("button", name="Source 1").click()
        assert await sources.first.evaluate("one => one === document.activeElement")


async def test_the_passages_of_a_tool_are_shown_as_sources(browser: Chromium, serving: Serving) -> None:
    llm = ScriptedLLM([[tool_call("search", input="What moves the sea?")], "The moon moves it [1]."])
    agent = FunctionAgent(llm=llm, tools=[notes().as_tool("search", "Search the notes")], name="ann")
    async with (
        serving(WorkflowServer(accept_sessions=True), ann=agent) as served,
        browser.page(f"{served.url}/#chat=ann", wait="textarea") as watched,
    ):
        page = watched.page
        await page.locator("textarea").fill("What moves the sea?")
        await page.keyboard.press("Enter")
        await page.locator(".sources li", has_text="file_name: tides.md").first.wait_for()
        await page.get_by_text("The moon moves it [1].").wait_for()
        await page.get_by_role("button", name="Source 1").click()
        first = page.locator('.sources li[value="1"]')
        assert await first.evaluate("one => one === document.activeElement")
        await page.reload()
        await page.locator(".sources li", has_text=TIDES).first.wait_for()
        assert await page.locator(".sources li").count() == 3
        await page.get_by_role("button", name="Source 1").click()
        assert await first.evaluate("one => one === document.activeElement")
        assert await page.get_by_role("button", name="Source").count() == 1
        assert await page.evaluate("window.hit") is None
