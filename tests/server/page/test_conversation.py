"""A long conversation on the page: its newest message, its speakers, drafts, and a server that is away."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route

from batonflow import FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.server import WorkflowServer
from batonflow.workflow_core import MemoryStore
from tests.server.conftest import Running, Serving
from tests.server.page.browser import DESK, TABLET, Chromium, Watched
from tests.server.page.flows import make_team, publish, search
from tests.server.page.test_chat import answered, say

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


async def test_a_long_conversation_opens_at_its_end_and_follows_it(browser: Chromium, serving: Serving) -> None:
    async with serving(server(), talker=talker(*[LONG] * 9)) as served:
        for number in range(4):
            await turn(served, f"Message {number}")
        async with browser.page(f"{served.url}/#chat=talker&session=long", wait=".turn") as watched:
            await is_at_the_end(watched)
            await turn(served, "From another tab")
            await answered(watched, 5)
            await is_at_the_end(watched)
            await watched.page.locator(".chat-log").evaluate("(log) => log.scrollTo(0, 100)")
            await turn(served, "Again from another tab")
            await answered(watched, 6)
            assert await watched.page.locator(".chat-log").evaluate("(log) => log.scrollTop") == 100
            await say(watched, "Here I am.")
            await answered(watched, 7)
            await is_at_the_end(watched)


async def test_the_end_stays_in_view_while_a_question_is_shown(browser: Chromium, serving: Serving) -> None:
    agent = talker(LONG, LONG, tool_call("publish", title="Tides", body="High water"), "Published.", tools=[publish])
    async with serving(server(), talker=agent) as served:
        for text in ("One", "Two"):
            await turn(served, text)
        async with browser.page(f"{served.url}/#chat=talker&session=long", wait=".turn") as watched:
            await say(watched, "Publish it.")
            banner = watched.page.locator(".chat .banner")
            await banner.wait_for()
            await is_at_the_end(watched)
            assert "title: Tides · body: High water" in await banner.inner_text()
            await watched.page.locator(".turn.running .call small", has_text="waits for approval").wait_for()
            assert await watched.page.locator(".turn").get_by_text("at work").count() == 0
            await banner.get_by_role("button", name="Review").click()
            await watched.page.get_by_role("button", name="Approve").click()
            await answered(watched, 3)


async def test_a_team_is_named_agent_by_agent_and_a_failed_tool_stays_marked(
    browser: Chromium, serving: Serving
) -> None:
    async with (
        serving(server(), team=make_team()) as served,
        browser.page(f"{served.url}/#chat=team", wait=".composer") as watched,
    ):
        await say(watched, "Write about the sea.")
        await answered(watched, 1)
        for _ in range(2):
            assert await watched.texts(".turn .message > header b") == ["user", "researcher", "researcher", "author"]
            assert await watched.texts(".turn .call.failed > header") == ["search\nerror"]
            await watched.page.reload()
            await answered(watched, 1)


async def test_an_agent_without_a_stream_is_read_before_its_tools_are_done(browser: Chromium, serving: Serving) -> None:
    script = [["I publish.", tool_call("publish", title="Tides", body="")], "Published."]
    agent = talker(*script, tools=[publish], streaming=False)
    async with (
        serving(server(), talker=agent) as served,
        browser.page(f"{served.url}/#chat=talker", wait=".composer") as watched,
    ):
        await say(watched, "Publish it.")
        await watched.page.locator(".turn.running .message.assistant", has_text="I publish.").wait_for()
        assert await watched.texts(".turn.running .message > header b") == ["user", "talker"]
        await watched.page.get_by_role("button", name="Review").click()
        await watched.page.get_by_role("button", name="Approve").click()
        await answered(watched, 1)


async def test_an_agent_that_begins_after_a_handoff_is_named(browser: Chromium, serving: Serving) -> None:
    team = make_team()
    team.agents["author"].llm = ScriptedLLM(["The sea.", "The sea again."])
    async with serving(server(), team=team) as served:
        for text in ("Write.", "Again."):
            await turn(served, text, "s", "team")
        turns = (await served.get("/workflows/team/turns", session="s"))["turns"]
        assert [(one["first_agent"], one["last_agent"]) for one in turns] == [
            ("researcher", "author"),
            ("author", "author"),
        ]
        async with browser.page(f"{served.url}/#chat=team&session=s", wait=".turn") as watched:
            assert (await watched.texts(".turn .message > header b"))[-2:] == ["user", "author"]


async def test_a_stopped_turn_says_so_and_nothing_in_the_name_of_the_user(browser: Chromium, serving: Serving) -> None:
    async def slowly(place: str) -> str:
        """Look for a long time."""
        await asyncio.sleep(60)
        return place

    agent = talker(tool_call("slowly", place="Leith"), "Again.", tools=[slowly])
    async with (
        serving(server(), talker=agent) as served,
        browser.page(f"{served.url}/#chat=talker", wait=".composer") as watched,
    ):
        await say(watched, "Look.")
        await watched.page.locator(".turn.running .call", has_text="at work").wait_for()
        await watched.page.get_by_role("button", name="Stop").click()
        await watched.page.locator(".turn.cancelled").wait_for()
        await watched.page.locator(".turn.running").wait_for(state="detached")
        assert await watched.texts(".turn .message > header b") == ["user"]
        assert "Stopped." in (await watched.texts(".turn"))[0]
        assert await watched.page.get_by_text("WorkflowCancelledByUser").count() == 0
        await watched.page.get_by_text("Note to the model").click()
        await watched.page.get_by_text("it may have taken effect").wait_for()
        await say(watched, "Look again.")
        await answered(watched, 1)
        assert await watched.texts(".turn .message > header b") == ["user", "user", "talker"]


async def test_a_text_that_was_being_written_stays_when_its_turn_is_stopped(
    browser: Chromium, serving: Serving
) -> None:
    agent = FunctionAgent[Any, Any](name="talker", llm=ScriptedLLM(["The tide " * 400, "Again."], delay=0.02))
    async with (
        serving(server(), talker=agent) as served,
        browser.page(f"{served.url}/#chat=talker", wait=".composer") as watched,
    ):
        await say(watched, "Tell me all.")
        await watched.page.locator(".message.live", has_text="The tide").wait_for()
        await watched.page.get_by_role("button", name="Stop").click()
        await watched.page.locator(".turn.cancelled .message", has_text="The tide").wait_for()
        await watched.page.locator(".turn.cancelled", has_text="Stopped.").wait_for()


async def test_the_way_back_from_a_run_leads_to_its_turn(browser: Chromium, serving: Serving) -> None:
    async with serving(server(), talker=talker(*[LONG] * 5)) as served:
        for number in range(5):
            await turn(served, f"Message {number}")
        async with browser.page(f"{served.url}/#chat=talker&session=long", wait=".turn") as watched:
            await is_at_the_end(watched)
            calls = watched.page.get_by_role("link", name="Calls").nth(2)
            await calls.scroll_into_view_if_needed()
            await watched.page.wait_for_function(f"() => ({FROM_THE_END})() > 100")
            there = await watched.page.locator(".chat-log").evaluate("(log) => log.scrollTop")
            await calls.click()
            await watched.page.locator(".run-id", has_text="long:3").wait_for()
            await watched.page.go_back()
            await watched.page.wait_for_function(
                "(there) => Math.abs((document.querySelector('.chat-log')?.scrollTop ?? 0) - there) < 2", arg=there
            )


async def test_a_message_beside_that_of_another_page_waits_in_the_box(browser: Chromium, serving: Serving) -> None:
    agent = talker(tool_call("publish", title="Tides", body=""), "Published.", tools=[publish])
    async with (
        serving(server(), talker=agent) as served,
        browser.page(f"{served.url}/#chat=talker&session=long", wait=".chat-list .muted") as watched,
    ):
        await watched.page.route("**/sessions?*", lambda route: route.fulfill(json={"sessions": []}))
        start = {"start_event": {"user_msg": "Publish it."}, "session": "long"}
        await served.post("/workflows/talker/run-nowait", start)
        await say(watched, "And quickly.")
        await watched.page.locator(".chat-note", has_text="another message of this conversation is being").wait_for()
        assert await watched.page.get_by_role("textbox", name="Message").input_value() == "And quickly."
        watched.problems.clear()  # the refused message


async def test_a_message_is_kept_while_the_server_is_away(browser: Chromium, serving: Serving) -> None:
    async with serving(server(), talker=talker("One.", "Two.", "Three.")) as served:
        await turn(served, "Hello")
        async with browser.page(f"{served.url}/#chat=talker&session=long", wait=".turn") as watched:
            note, box = watched.page.locator(".chat-note"), watched.page.get_by_role("textbox", name="Message")
            await watched.page.context.set_offline(True)
            await note.get_by_text("The server does not answer.").wait_for()
            for _ in range(3):
                await say(watched, "Are you there?")
                await note.get_by_text("Your message was not sent").wait_for()
            assert await box.input_value() == "Are you there?"
            assert await watched.texts(".notice") == []
            await watched.page.context.set_offline(False)
            await turn(served, "Sent from another tab")
            await answered(watched, 2)
            await box.press("Enter")
            await answered(watched, 3)
            assert (await box.input_value(), await note.is_visible()) == ("", False)
            watched.problems.clear()  # a request that fails is told on the console


async def test_a_server_that_hangs_is_away(browser: Chromium, serving: Serving) -> None:
    async with (
        serving(server(), talker=talker("One.")) as served,
        browser.page(f"{served.url}/#chat=talker", wait=".composer") as watched,
    ):
        answers = asyncio.Event()

        async def hang(route: Route) -> None:
            await answers.wait()
            await route.continue_()

        await watched.page.route("**/sessions?**", hang)
        await watched.page.locator(".chat-note", has_text="The server does not answer.").wait_for()
        answers.set()
        await watched.page.locator(".chat-note").wait_for(state="hidden")


async def test_a_turn_goes_on_when_the_server_is_back(browser: Chromium, serving: Serving) -> None:
    go_on = asyncio.Event()

    async def slowly() -> str:
        """Look for a long time."""
        await go_on.wait()
        return "calm"

    async with (
        serving(server(), talker=talker(tool_call("slowly"), "It is calm.", tools=[slowly])) as served,
        browser.page(f"{served.url}/#chat=talker", wait=".composer") as watched,
    ):
        await say(watched, "Look.")
        await watched.page.locator(".turn.running .call", has_text="at work").wait_for()
        await watched.page.context.set_offline(True)
        note = watched.page.locator(".chat-note")
        await note.get_by_text("The server does not answer.").wait_for()
        assert await watched.page.get_by_text("At work…").count() == 0
        await watched.page.get_by_role("button", name="Stop").click()
        await note.get_by_text("The turn was not stopped").wait_for()
        assert await watched.texts(".notice") == []
        go_on.set()
        await watched.page.context.set_offline(False)
        await answered(watched, 1)
        await note.wait_for(state="hidden")
        watched.problems.clear()  # a request that fails is told on the console


async def test_a_conversation_opens_when_the_server_is_back(browser: Chromium, serving: Serving) -> None:
    async with serving(server(), talker=talker("One.")) as served:
        await turn(served, "Hello")
        async with browser.page(served.url, wait="#top") as watched:
            await watched.page.context.set_offline(True)
            await watched.page.evaluate("() => (location.hash = '#chat=talker&session=long')")
            await watched.page.locator(".chat-note", has_text="The server does not answer.").wait_for()
            assert await watched.page.locator(".chat-welcome").count() == 0
            assert await watched.texts(".notice") == []
            await watched.page.context.set_offline(False)
            await answered(watched, 1)
            watched.problems.clear()  # a request that fails is told on the console


async def test_a_conversation_that_the_server_has_lost_begins_anew(browser: Chromium, serving: Serving) -> None:
    agent = talker("One.", "Two.", "Anew.", store=MemoryStore())
    async with serving(server(), talker=agent) as served:
        for text in ("Hello", "Again"):
            await turn(served, text)
        async with browser.page(f"{served.url}/#chat=talker&session=long", wait=".turn") as watched:
            await watched.page.context.set_offline(True)
            await watched.page.locator(".chat-note", has_text="The server does not answer.").wait_for()
            await agent.session("long").delete()
            await watched.page.context.set_offline(False)
            await watched.page.locator(".turn").first.wait_for(state="detached")
            await say(watched, "Hello again")
            await answered(watched, 1)
            assert await watched.texts(".turn .message .md") == ["Hello again", "Anew."]
            watched.problems.clear()  # a request that fails is told on the console


async def test_a_turn_that_the_server_has_lost_gives_its_message_back(browser: Chromium, serving: Serving) -> None:
    script = ["One.", tool_call("publish", title="Tides", body=""), "Two."]
    agent = talker(*script, tools=[publish], store=MemoryStore())
    async with serving(server(), talker=agent) as served:
        await turn(served, "Hello")
        async with browser.page(f"{served.url}/#chat=talker&session=long", wait=".turn") as watched:
            await say(watched, "Publish it.")
            await watched.page.get_by_role("button", name="Review").wait_for()
            await watched.page.context.set_offline(True)
            await watched.page.locator(".chat-note", has_text="The server does not answer.").wait_for()
            await served.post("/handlers/long:2/cancel")
            await served.over("long:2")
            await agent.session("long").delete()
            await watched.page.context.set_offline(False)
            await watched.page.locator(".chat-note", has_text="The server does not have this turn any more.").wait_for()
            box = watched.page.get_by_role("textbox", name="Message")
            assert await box.input_value() == "Publish it."
            await watched.page.locator(".turn").first.wait_for(state="detached")
            await box.press("Enter")
            await answered(watched, 1)
            assert await watched.texts(".turn .message .md") == ["Publish it.", "Two."]
            watched.problems.clear()  # a request that fails is told on the console


async def test_enter_says_why_a_message_waits(browser: Chromium, serving: Serving) -> None:
    agent = talker(tool_call("publish", title="Tides", body=""), "Published.", tools=[publish])
    async with (
        serving(server(), talker=agent) as served,
        browser.page(f"{served.url}/#chat=talker", wait=".composer") as watched,
    ):
        await say(watched, "Publish it.")
        await watched.page.get_by_role("button", name="Review").wait_for()
        await say(watched, "And quickly.")
        await watched.page.locator(".chat-note", has_text="The agent is at work.").wait_for()
        await watched.page.get_by_role("button", name="Review").click()
        await watched.page.get_by_role("button", name="Approve").click()
        await answered(watched, 1)
        assert not await watched.page.locator(".chat-note").is_visible()
        assert await watched.page.get_by_role("textbox", name="Message").input_value() == "And quickly."


async def test_a_draft_stays_with_its_conversation(browser: Chromium, serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("low water at nine")
    async with serving(server(), talker=talker("One.", "Two.")) as served:
        await turn(served, "Hello", "a")
        async with browser.page(f"{served.url}/#chat=talker&session=a", wait=".turn") as watched:
            box, chip = (
                watched.page.get_by_role("textbox", name="Message"),
                watched.page.get_by_role("button", name="Remove note.txt"),
            )
            await box.fill("Half a thought")
            await watched.page.locator(".composer input[type=file]").set_input_files(tmp_path / "note.txt")
            await chip.wait_for()
            await watched.page.get_by_role("link", name="Inbox").click()
            await box.wait_for(state="detached")
            await watched.page.go_back()
            await box.wait_for()
            assert (await box.input_value(), await chip.count()) == ("Half a thought", 1)
            await watched.page.get_by_role("link", name="New").click()
            await watched.page.locator(".chat-welcome").wait_for()
            assert (await box.input_value(), await chip.count()) == ("", 0)
            await watched.page.go_back()
            await chip.wait_for()
            await box.press("Enter")
            await answered(watched, 2)
            await watched.page.get_by_role("link", name="Inbox").click()
            await box.wait_for(state="detached")
            await watched.page.go_back()
            await box.wait_for()
            assert (await box.input_value(), await chip.count()) == ("", 0)


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
