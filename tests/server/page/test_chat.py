"""Conversations on the page: turns, questions in place, stops, edits in a branch, files, and the first visit."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batonflow import FunctionAgent, tool
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.server import WorkflowServer
from tests.server.conftest import Serving
from tests.server.page.browser import Chromium, Watched
from tests.server.page.flows import HOSTILE, Making

pytestmark = [pytest.mark.external("chromium"), pytest.mark.asyncio(loop_scope="module")]


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def look(place: str) -> str:
    """Look."""
    return f"{place} is calm"


def skipper(*script: Any, **options: Any) -> FunctionAgent[Any, Any]:
    return FunctionAgent(name="skipper", tools=[look, publish], llm=ScriptedLLM(list(script)), **options)


def server() -> WorkflowServer:
    return WorkflowServer(accept_sessions=True)


async def say(watched: Watched, text: str) -> None:
    await watched.page.get_by_role("textbox", name="Message").fill(text)
    await watched.presses("Enter")


async def answered(watched: Watched, turns: int) -> None:
    await watched.page.locator(".turn.completed").nth(turns - 1).wait_for()
    await watched.page.locator(".turn.running").wait_for(state="detached")


async def test_a_first_visit_shows_what_is_served_and_leads_to_a_conversation(
    browser: Chromium, serving: Serving
) -> None:
    agent = skipper(tool_call("look", place="Leith"), "The sea is **calm**.", "Still calm.")
    async with (
        serving(server(), skipper=agent, making=Making()) as served,
        browser.page(served.url, wait=".welcome") as watched,
    ):
        await watched.page.locator(".welcome .sketch svg").nth(1).wait_for()
        assert await watched.texts(".welcome h2") == ["skipper", "making"]
        await watched.page.locator(".welcome").get_by_role("link", name="Chat").click()
        await watched.page.locator(".chat-welcome .sketch svg").wait_for()
        await say(watched, "How is the sea?")
        await answered(watched, 1)
        assert await watched.texts(".turn .message > header b") == ["user", "skipper", "skipper"]
        assert await watched.texts(".turn .md strong") == ["calm"]
        assert (await watched.texts(".turn .call-result")) == ["Leith is calm"]
        await say(watched, "And now?")
        await answered(watched, 2)
        [name] = [one["name"] for one in (await served.get("/workflows/skipper/sessions"))["sessions"]]
        assert name.startswith("how-is-the-sea-")
        assert await watched.texts(".chat-link[aria-current] span") == [name]
        await watched.page.reload()
        await answered(watched, 2)
        await watched.page.get_by_role("link", name="Calls").last.click()
        await watched.page.locator(".run-id", has_text=f"{name}:2").wait_for()


async def test_an_approval_is_answered_in_the_conversation(browser: Chromium, serving: Serving) -> None:
    agent = skipper(tool_call("publish", title="Tides"), "Published.")
    async with (
        serving(server(), skipper=agent) as served,
        browser.page(f"{served.url}/#chat=skipper", wait=".composer") as watched,
    ):
        await say(watched, "Publish it.")
        await watched.page.get_by_role("button", name="Review").click()
        await watched.page.get_by_role("button", name="Approve").click()
        await answered(watched, 1)
        assert (await watched.texts(".turn .call-result")) == ["published Tides"]


async def test_a_turn_is_seen_while_it_is_written_and_stopped(browser: Chromium, serving: Serving) -> None:
    async def slowly(place: str) -> str:
        """Look for a long time."""
        await asyncio.sleep(60)
        return place

    llm = ScriptedLLM([tool_call("slowly", place="Leith"), "Again."])
    agent = FunctionAgent(name="skipper", tools=[slowly], llm=llm)
    async with (
        serving(server(), skipper=agent) as served,
        browser.page(f"{served.url}/#chat=skipper", wait=".composer") as watched,
    ):
        await say(watched, "Look.")
        await watched.page.locator(".turn.running .call", has_text="at work").wait_for()
        assert await watched.page.get_by_role("button", name="Send").is_disabled()
        await watched.page.reload()
        await watched.page.locator(".turn.running .call", has_text="at work").wait_for()
        await watched.page.get_by_role("button", name="Stop").click()
        await watched.page.locator(".turn.cancelled").wait_for()
        await watched.page.locator(".turn.running").wait_for(state="detached")
        await say(watched, "Look again.")
        await answered(watched, 1)


async def test_a_message_is_edited_and_sent_again_in_a_branch(browser: Chromium, serving: Serving) -> None:
    agent = skipper("One.", "Two.", "Other.", "First.")
    async with (
        serving(server(), skipper=agent) as served,
        browser.page(f"{served.url}/#chat=skipper", wait=".composer") as watched,
    ):
        for turn, text in enumerate(("Hello", "Again"), start=1):
            await say(watched, text)
            await answered(watched, turn)
        await watched.page.get_by_role("button", name="Edit").nth(1).click()
        await watched.page.locator(".turn textarea").fill("Something else")
        await watched.page.get_by_role("button", name="Send in a branch").click()
        await watched.page.get_by_text("Other.").wait_for()
        await answered(watched, 2)
        assert await watched.texts(".turn .message .md") == ["Hello", "One.", "Something else", "Other."]
        await watched.page.get_by_role("button", name="Edit").first.click()
        await watched.page.locator(".turn textarea").fill("Good day")
        await watched.page.get_by_role("button", name="Send in a branch").click()
        await watched.page.get_by_text("First.").wait_for()
        await answered(watched, 1)
        names = sorted(one["name"] for one in (await served.get("/workflows/skipper/sessions"))["sessions"])
        assert [name.removeprefix(names[0])[:8] for name in names] == ["", "-branch-", "-branch-"]


async def test_a_message_that_is_being_edited_stays_while_the_agent_is_at_work(
    browser: Chromium, serving: Serving
) -> None:
    agent = skipper("One.", tool_call("publish", title="Tides"), "Published.")
    async with (
        serving(server(), skipper=agent) as served,
        browser.page(f"{served.url}/#chat=skipper", wait=".composer") as watched,
    ):
        await say(watched, "Hello")
        await answered(watched, 1)
        await say(watched, "Publish it.")
        await watched.page.get_by_role("button", name="Review").wait_for()
        await watched.page.get_by_role("button", name="Edit").first.click()
        await watched.page.locator(".turn textarea").fill("Good day")
        await watched.page.get_by_role("button", name="Review").click()
        await watched.page.get_by_role("button", name="Approve").click()
        await answered(watched, 2)
        assert await watched.page.locator(".turn textarea").input_value() == "Good day"
        await watched.page.get_by_role("button", name="Keep").click()
        assert await watched.texts(".turn .message.user .md") == ["Hello", "Publish it."]


async def test_files_are_sent_as_parts_of_the_message(browser: Chromium, serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("low water at nine")
    agent = skipper("Read.")
    async with (
        serving(server(), skipper=agent) as served,
        browser.page(f"{served.url}/#chat=skipper", wait=".composer") as watched,
    ):
        await watched.page.locator(".composer input[type=file]").set_input_files(tmp_path / "note.txt")
        await watched.page.get_by_role("button", name="Remove note.txt").wait_for()
        await say(watched, "Read this.")
        await answered(watched, 1)
        assert isinstance(agent.llm, ScriptedLLM)
        text, document = agent.llm.requests[0].messages[-1].blocks
        assert (text.text, document.title) == ("Read this.", "note.txt")  # type: ignore[union-attr]


async def test_hostile_texts_are_inert(browser: Chromium, serving: Serving) -> None:
    agent = skipper(*HOSTILE)
    async with (
        serving(server(), skipper=agent) as served,
        browser.page(f"{served.url}/#chat=skipper", wait=".composer") as watched,
    ):
        for turn, text in enumerate(HOSTILE[:3], start=1):
            await say(watched, text)
            await answered(watched, turn)


async def test_a_failed_turn_says_why(browser: Chromium, serving: Serving) -> None:
    agent = skipper(ValueError("no model today"), "Back.")
    async with (
        serving(server(), skipper=agent) as served,
        browser.page(f"{served.url}/#chat=skipper", wait=".composer") as watched,
    ):
        await say(watched, "Hello")
        await watched.page.locator(".turn.failed .failure-text", has_text="no model today").wait_for()
        await watched.page.locator(".turn.running").wait_for(state="detached")
        await say(watched, "Still there?")
        await answered(watched, 1)
