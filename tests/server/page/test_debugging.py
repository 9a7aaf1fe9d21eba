"""A team makes a wrong call, and a person finds the cause on the page alone."""

from typing import Any

import pytest

from batonflow import AgentWorkflow, FunctionAgent, tool
from batonflow.llms import Price, ScriptedLLM, tool_call
from batonflow.llms.stream import ChatRequest
from batonflow.server import WorkflowServer
from tests.server.conftest import Serving
from tests.server.page.browser import Chromium
from tests.server.page.flows import search

pytestmark = [pytest.mark.external("chromium"), pytest.mark.asyncio(loop_scope="module")]

NODES = ".row.node:not([hidden])"
HINT = "Notes are called by the first word of the question."


def researching(request: ChatRequest) -> Any:
    """Search under a wrong name unless the temperature is 0, and then hand over."""
    if request.messages[-1].role == "user":
        return tool_call("search", topic="tides" if request.options.get("temperature") == 0 else "tide")
    return tool_call("handoff", to_agent="author", reason="to write")


def writing(request: ChatRequest) -> Any:
    """Publish the result of the search."""
    if any("published" in (message.content or "") for message in request.messages if message.role == "tool"):
        return "It is published."
    found = next(message.content or "" for message in request.messages if message.role == "tool")
    return tool_call("publish", title="Tides", body=found[:40])


@tool(requires_approval=True)
def publish(title: str, body: str) -> str:
    """Publish an article."""
    return f"published {title}: {body}"


def team() -> AgentWorkflow:
    options: dict[str, Any] = {"price": Price(2, 8)}
    researcher = FunctionAgent(
        name="researcher",
        description="Finds notes.",
        system_prompt=HINT,
        tools=[search],
        can_handoff_to=["author"],
        llm=ScriptedLLM([researching] * 20, **options),
    )
    author = FunctionAgent(
        name="author", description="Writes.", tools=[publish], llm=ScriptedLLM([writing] * 20, **options)
    )
    return AgentWorkflow(agents=[researcher, author], root_agent="researcher")


async def test_a_wrong_tool_call_is_traced_to_its_prompt_repaired_compared_and_found_again(
    browser: Chromium, serving: Serving
) -> None:
    async with (
        serving(WorkflowServer(accept_sessions=True), team=team()) as served,
        browser.page(f"{served.url}/#chat=team", wait=".composer") as watched,
    ):
        page = watched.page
        # A turn of a conversation, with an approval in its place.
        await page.get_by_role("textbox", name="Message").fill("When is high water?")
        await watched.presses("Enter")
        await page.get_by_role("button", name="Review").click()
        await page.get_by_role("button", name="Approve").click()
        await page.locator(".turn.completed").wait_for()
        assert "there is no note on tide" in " ".join(await watched.texts(".turn .call-result"))
        await page.get_by_role("link", name="Calls").last.click()
        await page.locator(".metrics", has_text="Conversation").wait_for()

        # The prompt that led to the wrong call, and its cost.
        failed = page.locator(f'{NODES}[data-state="failed"]')
        await failed.wait_for()
        assert "(topic: tide)" in await failed.inner_text()
        await page.locator(".opener").first.click()
        await page.get_by_role("heading", name="researcher: call 1").wait_for()
        await page.locator(".call-main .answer").wait_for()
        assert HINT in " ".join(await watched.texts(".call-main .message"))
        assert "$" in " ".join(await watched.texts(".call-side"))
        await page.get_by_role("link", name="Run", exact=True).click()
        await page.get_by_role("tab", name="Errors").click()
        await page.get_by_role("link", name="Open the call").click()
        await page.get_by_role("heading", name="researcher: call 1").wait_for()

        # The same call with the temperature 0.
        await page.get_by_role("button", name="Try again").click()
        form = page.locator(".try-again")
        await form.get_by_label("temperature").fill("0")
        await form.get_by_label("Ask before tools run").uncheck()
        await form.get_by_role("button", name="Run from here").click()
        await form.get_by_role("link", name="Open the new run").wait_for()
        [fork] = await form.locator("code").all_inner_texts()

        # Beside the run that it came from, where its question is answered.
        await form.get_by_role("link", name="Compare").click()
        await page.get_by_role("button", name="Review").wait_for()
        places = [await page.locator(one).first.bounding_box() for one in (".compare .banner", ".compare .card")]
        assert [one and one["width"] > 1000 for one in places] == [True, True], "they lie above each other"
        assert [one and one["y"] < 400 for one in places] == [True, True]
        await page.get_by_role("button", name="Review").click()
        await page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        await page.locator(".compare-run .status.completed").nth(1).wait_for()
        await page.locator(".compare .banner").wait_for(state="detached")
        cells = await watched.texts(".compare .pair-cell")
        assert ["temperature\nnot set" in cells[0], "temperature\n0" in cells[1]] == [True, True]
        assert "Cost" in " ".join(await watched.texts(".compare .card"))
        await page.locator(".compare-run a").last.click()
        await page.locator(NODES).first.wait_for()
        assert (await served.over(fork))["status"] == "completed"
        assert await page.locator(f'{NODES}[data-state="failed"]').count() == 0

        # The head of a fork leads to the comparison.
        await page.get_by_role("link", name="Compare").click()
        await page.locator(".compare .pair-cell").first.wait_for()
        cells = await watched.texts(".compare .pair-cell")
        assert "there is no note on tide; there is one on tides" in cells[0]
        assert "The moon pulls the sea towards it." in cells[1]

        # The conversation goes on from the first run.
        await page.goto(f"{served.url}/#chat=team")
        await page.locator(".chat-link").first.click()
        await page.locator(".turn.completed").wait_for()
        await page.get_by_role("textbox", name="Message").fill("And tomorrow?")
        await watched.presses("Enter")
        await page.locator(".turn.completed").nth(1).wait_for()

        # All runs are found by the words of their results, and the first one by its error.
        await page.goto(f"{served.url}/#text=published")
        rows = page.locator(".runs tbody tr")
        await rows.nth(2).wait_for()
        await page.goto(f"{served.url}/#error=no%20note%20on%20tide")
        await page.reload()
        await page.locator(".pager", has_text="1\N{EN DASH}1").wait_for()
        [first] = await rows.locator("a").all_inner_texts()
        assert first.startswith("when-is-high-water-")
        assert first.endswith(":1")
