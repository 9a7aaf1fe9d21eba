"""The page with one run in it, as a file: everything that the run did can be seen, at every instant of it."""

from pathlib import Path

import pytest

from batonflow.llms import ChatMessage
from batonflow.server.page import view_run
from tests.server.page.browser import PHONE, TABLET, Chromium, Watched
from tests.server.page.conftest import Exported
from tests.server.page.flows import (
    HOSTILE,
    Counting,
    Failing,
    Hostile,
    Large,
    Outer,
    Retrying,
    agent_run,
    conversation_of,
    run_of,
    waiting_run,
)

pytestmark = [pytest.mark.external("chromium"), pytest.mark.asyncio(loop_scope="module")]


async def row_types(watched: Watched) -> list[str]:
    return await watched.texts(".row:not([hidden]) .r-type")


async def future_types(watched: Watched) -> list[str]:
    return await watched.texts(".row.future:not([hidden]) .r-type")


async def test_a_finished_run_has_its_events_graph_result_and_figures(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Counting, last=3))) as watched:
        assert await watched.texts(".run-head .status") == ["completed"]
        types = await row_types(watched)
        assert types[:4] == ["StartEvent", "Tick", "Note", "Tick"]
        assert types[-1] == "StopEvent"
        await watched.lit(begin="done", count="done", Tick="done", StopEvent="done")
        assert await watched.drawn('[data-count="count"] text') == ["4"]
        await watched.page.get_by_role("tab", name="Summary").click()
        assert (await watched.texts("#panel-summary .card"))[1].split()[:5] == ["Came", "of", "it", "StopEvent", "3"]
        assert "count" in (await watched.texts("#panel-summary tbody th"))


async def test_an_exported_run_offers_nothing_to_do(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(waiting_run())) as watched:
        for name in ("Cancel", "Fork", "Export", "Answer"):
            assert await watched.page.get_by_role("button", name=name, exact=True).count() == 0


async def test_scrubbing_shows_graph_state_and_list_of_that_instant(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Counting, last=3))) as watched:
        slider = watched.page.get_by_role("slider", name="Chosen moment")
        await slider.focus()
        await watched.presses("Home")
        await watched.lit(count="idle")
        assert (await future_types(watched))[0] == "Tick"
        await watched.page.get_by_role("tab", name="State").click()
        assert "The state is empty at this moment." in (await watched.texts("#panel-state"))[0]
        await slider.focus()
        await watched.presses("ArrowRight", "ArrowRight", "ArrowRight")
        assert await slider.get_attribute("aria-valuenow") == "3"
        assert await watched.texts("#panel-state .changed .come") == ["+\n1"]
        assert await watched.texts("#panel-state .changed .gone") == ["\N{MINUS SIGN}\n0"]
        assert "commit=4" in watched.page.url
        await watched.presses("End")
        await watched.lit(count="done")
        await watched.page.get_by_role("tab", name="Events").click()
        assert await future_types(watched) == []
        await watched.lit(StopEvent="done")


async def test_the_scrubber_follows_the_pointer(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Counting, last=30))) as watched:
        box = await watched.page.locator(".tl-track").bounding_box()
        assert box is not None
        await watched.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 10)
        await watched.page.mouse.down()
        await watched.page.mouse.move(box["x"] + 12, box["y"] + 10, steps=5)
        await watched.page.mouse.up()
        assert len(await future_types(watched)) > 5
        await watched.page.get_by_role("button", name="Newest").click()
        assert await future_types(watched) == []


async def test_bars_of_the_timeline_are_attempts(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Failing))) as watched:
        lane = await watched.page.locator('.tl-label[data-step="fail"]').bounding_box()
        area = await watched.page.locator(".tl-area").bounding_box()
        assert lane is not None
        assert area is not None
        x = area["x"] + area["width"] - 30
        # From the right: the bar ends where the step failed.
        while await watched.page.locator(".inspector.filled").count() == 0:
            x -= 12
            assert x > area["x"], "no bar was hit"
            await watched.page.mouse.click(x, lane["y"] + lane["height"] / 2)
        assert await watched.texts(".inspector h2") == ["fail"]
        assert "raise ValueError" in (await watched.texts(".inspector .traceback"))[0]
        await watched.page.mouse.move(x - 1, lane["y"] + lane["height"] / 2)
        assert "failed" in (await watched.texts(".tl-tip"))[0]


async def test_an_event_leads_to_its_cause_and_to_what_it_caused(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Retrying))) as watched:
        await watched.page.locator(".row", has_text="number: 0").first.click()
        inspector = watched.page.get_by_role("complementary", name="Inspector")
        assert await inspector.get_by_role("heading", level=2).inner_text() == "Part"
        assert (await watched.texts(".links h3")) == ["Caused by", "Made in", "Led to"]
        await inspector.locator(".link", has_text="work").click()
        assert await watched.texts(".inspector h2") == ["work"]
        await inspector.locator(".link", has_text="Done").click()
        await watched.presses("c")
        assert await watched.texts(".inspector h2") == ["Part"]
        assert await watched.texts(".inspector .tree .key") == ["number"]


async def test_search_and_filters_narrow_the_list(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Retrying))) as watched:
        await watched.presses("/")
        await watched.page.keyboard.type("no connection")
        await watched.page.locator(".count-text", has_text="2 of").wait_for()
        assert await row_types(watched) == ["OSError", "OSError"]
        await watched.presses("Escape", "Escape")
        await watched.page.get_by_label("Type").select_option("Done")
        await watched.page.locator(".count-text", has_text="4 of").wait_for()
        await watched.page.get_by_label("Type").select_option("")
        await watched.page.locator('.tl-label[data-step="join"]').click()
        await watched.page.locator(".count-text", has_text="1 of").wait_for()
        assert await row_types(watched) == ["StopEvent"]


async def test_a_failed_run_shows_error_traceback_and_what_had_happened(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Failing))) as watched:
        await watched.lit(fail="failed")
        assert "there is no such book: 'Tides & Times'" in (await watched.texts(".run-head .banner"))[0]
        await watched.page.get_by_role("tab", name="Errors").click()
        assert await watched.texts("#panel-errors .failure-text") == [
            "ValueError: there is no such book: 'Tides & Times'"
        ]
        [traceback] = await watched.texts("#panel-errors .traceback")
        assert "raise ValueError" in traceback
        assert "in fail" in traceback
        assert "/batonflow/workflow_core/" not in traceback, "frames of the engine are folded"
        await watched.page.locator("#panel-errors .traceback summary", has_text="of batonflow").first.click()
        assert "/batonflow/workflow_core/" in (await watched.texts("#panel-errors .traceback"))[0]
        await watched.page.get_by_role("tab", name="State").click()
        assert await watched.texts("#panel-state .entry h3") == ["progress"]


async def test_attempts_of_one_delivery_stand_together(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Retrying))) as watched:
        await watched.page.get_by_role("tab", name="Errors").click()
        history = await watched.texts("#panel-errors .history li")
        assert ["try 0" in history[0], "try 1" in history[1], "returned" in history[2]] == [True] * 3
        assert await watched.texts("#panel-errors .status") == ["recovered"]


async def test_children_are_lit_inside_their_parent(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Outer))) as watched:
        await watched.lit(inner__shout="done")
        assert await watched.drawn('[data-count="inner/shout"] text') == ["2"]
        assert await watched.texts(".tl-label small") == ["inner", "inner#2"]
        await watched.page.get_by_role("tab", name="State").click()
        await watched.page.get_by_label("Workflow", exact=True).select_option("inner#2")
        assert "water" in (await watched.texts("#panel-state .entry"))[0]


async def test_a_waiting_run_says_what_it_waits_for(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(waiting_run())) as watched:
        assert await watched.texts(".run-head .status") == ["waiting"]
        await watched.lit(ask="waiting")
        assert "May I spend it?" in (await watched.texts(".banners"))[0]


async def test_a_cancelled_run_shows_what_it_had(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(waiting_run(cancelled=True))) as watched:
        assert await watched.texts(".run-head .status") == ["cancelled"]
        assert (await row_types(watched))[-1] == "WorkflowCancelledEvent"
        assert await watched.texts(".banners .banner") == []


async def test_an_agents_messages_tools_tokens_and_memory(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(agent_run())) as watched:
        assert "Tokens" in (await watched.texts(".metrics"))[0]
        assert await watched.texts('[role="tab"][aria-selected="true"]') == ["Calls"]
        nodes = [text.split("\n") for text in await watched.texts(".row.node:not([hidden])")]
        names = ["writer", "Call 1", "search", "Call 2", "search", "Call 3", "publish", "Call 4"]
        assert [node[0] for node in nodes] == names
        assert nodes[0][1:3] == ["4 calls · 3 tool calls", "116 → 28"]
        assert nodes[1][1:4] == ["scripted", "I will look for notes.", "6 → 8"]
        assert nodes[2][1:3] == ["error", "(topic: tide) → there is no note on tide; there is one on tides"]
        await watched.page.locator(".row.node", has_text="I will look for notes.").click()
        assert await watched.texts(".inspector h2") == ["run_agent_step"]
        [call] = await watched.texts(".inspector .model-call")
        assert call.startswith("scripted 6 → 8 tokens · ")
        assert "ended by tool_calls" in call
        await watched.page.get_by_role("tab", name="Memory").click()
        assert "It is published." in await watched.texts("#panel-memory .md")
        await watched.page.get_by_role("tab", name="Summary").click()
        assert "writer" in await watched.texts("#panel-summary tbody th")
        await watched.page.get_by_role("tab", name="Events").click()
        # Every piece of text of a message is one row.
        await watched.page.get_by_label("Type").select_option("AgentStream")
        await watched.page.locator(".count-text", has_text="4 of").wait_for()
        await watched.page.get_by_role("button", name="By agent").click()
        assert "writer" in await watched.texts(".tl-label")


async def test_the_calls_of_a_workflow_without_agents_are_summed_up_by_step(
    browser: Chromium, exported: Exported
) -> None:
    asked = [ChatMessage("When is high water?")]
    run = conversation_of(asked, asked, answers=["At six.", "At seven."])
    async with browser.page(await exported(run)) as watched:
        [tokens] = await watched.texts(".metrics div:has(> dt:text-is('Tokens')) dd")
        await watched.page.get_by_role("tab", name="Summary").click()
        assert await watched.texts("#panel-summary .wide h3") == ["Steps"]
        cells = (await watched.texts("#panel-summary tbody tr"))[0].split("\t")
        read, written = cells[8:10]
        assert [cells[0], cells[7]] == ["ask", "2"]
        assert tokens == f"{read} → {written}"


async def test_large_values_are_folded_and_say_how_much_is_not_there(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Large))) as watched:
        await watched.page.get_by_role("tab", name="State").click()
        assert "not kept in this file" in (await watched.texts("#panel-state .entry"))[0]
        await watched.page.get_by_role("tab", name="Summary").click()
        assert await watched.page.locator("#panel-summary details.text:not([open])").count() >= 1


async def test_hostile_payloads_are_text_everywhere(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Hostile))) as watched:
        texts = await watched.texts(".row:not([hidden]) .r-brief")
        assert [f"text: {HOSTILE[0]}", f"text: {HOSTILE[4]}"] == [texts[1], texts[5]]
        for row in range(len(texts)):
            await watched.page.locator(".row:not([hidden])").nth(row).click()
        for tab in ("Summary", "State", "Memory", "Errors"):
            await watched.page.get_by_role("tab", name=tab).click()
            await watched.page.locator("details").first.evaluate(
                "all => all.ownerDocument.querySelectorAll('details').forEach(one => { one.open = true; })"
            )
        assert (
            await watched.page.locator("#main img, #main script, #main iframe, #main a[href^=javascript]").count() == 0
        )


async def test_an_address_leads_to_an_event(browser: Chromium, exported: Exported) -> None:
    address = await exported(run_of(Counting, last=6))
    async with browser.page(address) as watched:
        await watched.presses("j", "j", "j")
        here: str = await watched.page.evaluate("location.href")  # which is what it is now, as page.url need not be
        chosen = await watched.texts(".inspector h2")
        await watched.page.locator(".row", has_text="text: at 3").click()
        number = await watched.page.locator('.facts div:has(dt:text-is("Stream")) dd').inner_text()
    async with browser.page(f"{address}#{here.partition('#')[2]}&tab=state", wait=".inspector.filled") as again:
        assert await again.texts(".inspector h2") == chosen
        assert await again.texts('[role="tab"][aria-selected="true"]') == ["State"]
    async with browser.page(f"{address}#seq={number}") as numbered:
        await numbered.page.locator(".inspector.filled").wait_for()
        assert await numbered.texts(".inspector h2") == ["Note"]


async def test_the_keyboard_alone_reaches_everything(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(run_of(Counting, last=6))) as watched:
        await watched.presses("?")
        assert "Search events" in (await watched.texts("dialog"))[0]
        await watched.presses("Escape", "j", "j")
        assert await watched.texts(".inspector h2") == ["Tick"]
        assert await watched.page.locator('.row[aria-selected="true"]').count() == 1
        await watched.presses("k", "Escape", "4")
        assert await watched.texts('[role="tab"][aria-selected="true"]') == ["State"]
        await watched.page.locator('[data-node][tabindex="0"]').focus()
        await watched.presses("ArrowDown", "Enter")
        pressed = await watched.page.evaluate("document.activeElement.dataset.node")
        await watched.page.locator(f'[data-node="{pressed}"].narrowed').wait_for()
        reached = set()
        for _ in range(40):
            await watched.presses("Tab")
            reached.add(await watched.page.evaluate(
                "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).trim()"
            ))  # fmt: skip
        assert {"Chosen moment", "Fit", "Zoom in", "State", "Light or dark", "Keys"} <= reached


async def test_light_and_dark_follow_the_system_until_one_is_chosen(browser: Chromium, exported: Exported) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    address = await exported(run_of(Counting))
    async with browser.page(address) as light, browser.page(address, scheme="dark") as dark:
        of_light, of_dark = await light.page.evaluate(colour), await dark.page.evaluate(colour)
        assert of_light != of_dark
        await light.presses("t", "t")
        assert await light.page.evaluate(colour) == of_dark


TABS = ("Calls", "Events", "Summary", "State", "Memory", "Errors")


async def test_on_a_tablet_nothing_is_cut_off(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(agent_run()), size=TABLET) as watched:
        for tab in TABS:
            await watched.page.get_by_role("tab", name=tab).click()
            assert await watched.page.evaluate("document.documentElement.scrollWidth") <= TABLET["width"]


async def test_on_a_phone_nothing_is_cut_off(browser: Chromium, exported: Exported) -> None:
    async with browser.page(await exported(agent_run()), size=PHONE) as watched:
        for tab in ("Graph", "Timeline", *TABS):
            await watched.page.get_by_role("tab", name=tab).click()
            assert await watched.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        await watched.page.get_by_role("tab", name="Calls").click()
        # The mark of the tool that failed is shown.
        mark = '.row.node[data-state="failed"]:not([hidden]) .n-name small'
        await watched.page.wait_for_function(f"document.querySelector('{mark}')?.offsetWidth > 20")
        await watched.page.get_by_role("tab", name="Errors").click()
        await watched.page.locator(".card").first.click(trial=True)
        await watched.page.get_by_role("tab", name="Events").click()
        await watched.page.locator(".row:not(.node)", has_text="AgentStream").first.click()
        await watched.page.locator(".inspector .link", has_text="run_agent_step").click()
        box = await watched.page.get_by_role("complementary", name="Inspector").bounding_box()
        assert box is not None
        assert (box["x"], box["width"]) == (0, PHONE["width"])
        await watched.page.get_by_role("link", name="Open the call").click()
        await watched.page.locator(".call-main .message").first.wait_for()
        assert await watched.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


async def test_a_notebooks_frame_shows_the_page(browser: Chromium, tmp_path: Path) -> None:
    store, run_id, workflow = await run_of(Counting)
    notebook = tmp_path / "notebook.html"
    notebook.write_text(
        f"<!doctype html><body>{(await view_run(store, run_id, workflow=workflow))._repr_html_()}</body>"
    )
    async with browser.page(notebook.as_uri(), wait="") as watched:
        frame = watched.page.frame_locator("iframe")
        await frame.locator(".row").first.wait_for()
        await frame.get_by_role("tab", name="State").click()
        assert await frame.locator("#panel-state .entry h3").all_inner_texts() == ["number"]


async def test_without_its_code_a_run_still_has_a_graph(browser: Chromium, exported: Exported, tmp_path: Path) -> None:
    run = await run_of(Outer)
    (tmp_path / "run.html").write_text((await view_run(run.store, run.run_id)).page)
    async with browser.page((tmp_path / "run.html").as_uri()) as watched:
        await watched.lit(ask_twice="done")
        await watched.lit(inner__shout="done")
