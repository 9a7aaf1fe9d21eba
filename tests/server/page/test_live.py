"""The page on a real server: runs are started, followed, answered, forked, cancelled and taken away from it."""

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from batonflow.agents import AgentStream, FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.server import WorkflowServer
from batonflow.server.client import WorkflowClient
from batonflow.workflow_core import Context, StartEvent, StopEvent, Workflow, step
from tests.server.conftest import Running, Serving
from tests.server.page.browser import Chromium, Watched
from tests.server.page.flows import (
    Asking,
    Counting,
    Failing,
    Hostile,
    Inner,
    Large,
    Making,
    Outer,
    make_writer,
    waiting_run,
)

pytestmark = [pytest.mark.external("chromium"), pytest.mark.asyncio(loop_scope="module")]

LIST = ".runs-table"


async def until_status(watched: Watched, status: str) -> None:
    await watched.page.locator(f".run-head .status.{status}").wait_for()


async def opened(watched: Watched, served: Running, run_id: str) -> None:
    await watched.page.goto(f"{served.url}/#run={run_id}")
    await watched.page.locator(".row").first.wait_for()


async def test_a_run_is_started_from_its_schema_and_followed(browser: Chromium, serving: Serving) -> None:
    go_on, server = asyncio.Event(), WorkflowServer()
    async with serving(server, making=Making(go_on)) as served, browser.page(served.url, wait=".runs-head") as watched:
        await watched.page.get_by_role("button", name="Start a run").click()
        form = watched.page.get_by_role("dialog")
        assert await form.get_by_label("count").input_value() == "3"
        assert await form.locator("select[data-name=colour] option").all_inner_texts() == ["red", "blue"]
        assert not await form.get_by_label("gift").is_checked()
        await form.get_by_role("button", name="Start").click()
        assert await form.locator(".problem", has_text="needed").count() == 1
        await form.get_by_label("item").fill("tea")
        await form.get_by_label("count").fill("many")
        await form.get_by_role("button", name="Start").click()
        assert await form.locator(".problem", has_text="not a number").count() == 1
        await form.get_by_label("count").fill("4")
        await form.get_by_role("button", name="Start").click()
        await watched.lit(make="running")
        await watched.page.locator('.tl-label[data-step="make"]').wait_for()
        go_on.set()
        await until_status(watched, "completed")
        await watched.lit(StopEvent="done")
        assert await watched.drawn('[data-count="make"] text') == ["4"]
        (run,) = (await served.get("/handlers", include_results=True))["handlers"]
        assert run["result"]["value"] == {"result": "tea, packed"}
        assert f"run={run['handler_id']}" in watched.page.url


async def test_a_run_may_be_started_from_json(browser: Chromium, serving: Serving) -> None:
    async with (
        serving(WorkflowServer(), making=Making()) as served,
        browser.page(served.url, wait=".runs-head") as watched,
    ):
        await watched.page.get_by_role("button", name="Start a run").click()
        form = watched.page.get_by_role("dialog")
        # What is written goes along, whether or not it is all that is needed.
        await form.get_by_role("button", name="As JSON").click()
        await form.get_by_role("button", name="As a form").click()
        await form.get_by_label("item").fill("salt")
        await form.get_by_role("button", name="As JSON").click()
        field = form.get_by_label("Fields as JSON")
        assert '"item": "salt"' in await field.input_value()
        await field.fill('{"item": "pepper", "count": 1')
        await form.get_by_role("button", name="Start").click()
        assert await form.locator(".problem", has_text="not JSON").count() == 1
        await field.fill('{"item": "pepper", "count": 1}')
        await form.get_by_role("button", name="Start").click()
        await until_status(watched, "completed")
        await watched.page.get_by_role("tab", name="Summary").click()
        await watched.page.locator(".card", has_text="pepper, packed").wait_for()


async def test_a_question_is_answered_with_a_form(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), asking=Asking()) as served:
        run_id = await served.start("asking")
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await (
                watched.page.locator(".banner", has_text="May I spend it?").get_by_role("button", name="Answer").click()
            )
            form = watched.page.get_by_role("dialog")
            assert await form.get_by_label("amount").input_value() == "10"
            assert await form.get_by_label("who").count() == 0
            await form.get_by_label("approved").check()
            await form.get_by_label("amount").fill("12.5")
            await form.get_by_role("button", name="Send answer").click()
            await until_status(watched, "completed")
            await watched.page.locator(".banner").first.wait_for(state="detached")
        result = (await served.over(run_id))["result"]["value"]["result"]
        assert result == {"approved": True, "amount": 12.5, "colour": "red"}


async def test_a_tool_call_is_approved_with_other_arguments(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), writer=make_writer()) as served:
        run_id = await served.start("writer", user_msg="Write about tides.")
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await watched.page.get_by_role("button", name="Review").click()
            form = watched.page.get_by_role("dialog")
            await form.get_by_label("Arguments").fill('{"title": "Tides", "body": "Twice a day."}')
            await form.get_by_role("button", name="Approve").click()
            await until_status(watched, "completed")
            await watched.page.locator(".row.node", has_text="published Tides, 12 letters").wait_for()


async def test_arguments_that_do_not_fit_are_asked_again_with_the_problem(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), writer=make_writer()) as served:
        run_id = await served.start("writer", user_msg="Write about tides, and publish it.")
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await watched.page.get_by_role("button", name="Review").click()
            form = watched.page.get_by_role("dialog")
            await form.get_by_label("Arguments").fill('{"title": 5}')
            await form.get_by_role("button", name="Approve").click()
            await watched.page.locator(".banner", has_text="title: Input should be a valid string").wait_for()
            await watched.page.goto(f"{served.url}/#view=inbox")
            await watched.page.locator(".inbox-cards", has_text="title: Input should be a valid string").wait_for()


async def test_a_run_whose_workflow_is_not_served_is_shown_with_its_question(
    browser: Chromium, serving: Serving
) -> None:
    run = await waiting_run()
    async with (
        serving(WorkflowServer(store=run.store), counting=Counting()) as served,
        browser.page(f"{served.url}/#run={run.run_id}") as watched,
    ):
        await watched.page.locator(".banner.waiting", has_text="May I spend it?").wait_for()
        assert "can only show this run" in (await watched.texts(".banner.unserved"))[0]
        assert await watched.page.get_by_role("button", name="Fork").count() == 0
        await watched.page.get_by_role("link", name="Runs").click()
        await watched.page.get_by_label("Workflow").select_option("Asking")
        await watched.page.locator(".pager", has_text="1\N{EN DASH}1").wait_for()


async def test_a_tool_call_is_denied_with_a_reason(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), writer=make_writer()) as served:
        run_id = await served.start("writer", user_msg="Write about tides.")
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await watched.page.get_by_role("button", name="Review").click()
            form = watched.page.get_by_role("dialog")
            await form.get_by_label("Reason").fill("not before Monday")
            await form.get_by_role("button", name="Deny").click()
            await until_status(watched, "completed")
            await watched.page.locator(".row", has_text="not before Monday").first.wait_for()


async def test_the_inbox_has_the_questions_of_all_runs(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), asking=Asking(), writer=make_writer()) as served:
        async with browser.page(served.url, wait=".view-link") as watched:
            await watched.page.get_by_role("link", name="Inbox").click()
            await watched.page.get_by_text("No run asks anything.").wait_for()
            asking = await served.start("asking")
            await watched.page.locator(".view-link .badge", has_text="1").wait_for()
            await served.start("writer", user_msg="Write about tides.")
            approval = watched.page.locator(".card", has_text="writer asks for publish")
            assert "body: High water comes twice a day." in await approval.inner_text()
            await approval.get_by_role("button", name="Review").click()
            await watched.page.get_by_role("dialog").get_by_role("button", name="Approve").click()
            await approval.wait_for(state="detached")
            question = watched.page.locator(".card", has_text="May I spend it?")
            await question.get_by_role("link", name=asking).click()
            await watched.page.locator(".run-id", has_text=asking).wait_for()
            await watched.page.go_back()
            await question.get_by_role("button", name="Answer").click()
            form = watched.page.get_by_role("dialog")
            await form.get_by_label("amount").fill("12.5")
            await form.get_by_role("button", name="Send answer").click()
            await watched.page.get_by_text("No run asks anything.").wait_for()
            await watched.page.get_by_role("link", name="Runs").click()
            await watched.page.locator(f"{LIST} tbody tr").nth(1).wait_for()
        assert (await served.over(asking))["result"]["value"]["result"]["amount"] == 12.5


async def test_a_run_is_cancelled(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), asking=Asking()) as served:
        run_id = await served.start("asking")
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await watched.page.get_by_role("button", name="Cancel").click()
            await watched.page.get_by_role("button", name="Cancel the run").click()
            await until_status(watched, "cancelled")
            assert await watched.page.get_by_role("button", name="Cancel", exact=True).count() == 0
            await watched.lit(ask="cancelled")
        assert (await served.get(f"/handlers/{run_id}"))["status"] == "cancelled"


async def test_a_run_that_is_over_is_forked_before_its_end(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), making=Making()) as served:
        run_id = await served.start("making", item="tea", count=1)
        commits = (await served.over(run_id))["commits"]
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await watched.page.get_by_role("button", name="Fork").click()
            form = watched.page.get_by_role("dialog")
            assert await form.locator("strong").inner_text() == str(commits - 1)
            await form.get_by_role("button", name="Fork", exact=True).click()
            await form.get_by_role("link", name="Open the new run").click()
            await until_status(watched, "completed")


async def test_a_run_is_forked_with_another_state(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), making=Making()) as served:
        run_id = await served.start("making", item="tea", count=1)
        await served.over(run_id)
        async with browser.page(f"{served.url}/#run={run_id}&commit=2") as watched:
            await watched.page.locator(".row.future").first.wait_for()
            await watched.page.get_by_role("button", name="Fork").click()
            form = watched.page.get_by_role("dialog")
            assert await form.locator("strong").inner_text() == "2"
            await form.get_by_label("State after this commit").fill('{"item": "coffee", "left": 1}')
            await form.get_by_role("button", name="Fork", exact=True).click()
            await form.get_by_role("link", name="Open the new run").click()
            await watched.page.locator(".origin", has_text=run_id).wait_for()
            await until_status(watched, "completed")
            forks = [
                run for run in (await served.get("/handlers", include_results=True))["handlers"] if run["forked_from"]
            ]
            assert [run["forked_from"] for run in forks] == [[run_id, 2]]
            assert forks[0]["result"]["value"] == {"result": "coffee, packed"}
            await watched.page.locator(".origin a").click()
            await watched.page.locator(".run-id", has_text=run_id).wait_for()


async def test_a_failed_run_is_inspected(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), failing=Failing()) as served:
        run_id = await served.start("failing")
        await served.over(run_id)
        async with browser.page(served.url, wait=f"{LIST} .run-error") as watched:
            assert "there is no such book" in (await watched.texts(".run-error"))[0]
            await watched.page.get_by_role("link", name=run_id).click()
            await watched.page.get_by_role("tab", name="Errors").click()
            assert "raise ValueError" in (await watched.texts(".traceback"))[0]
            await watched.lit(fail="failed")
            await watched.page.go_back()
            await watched.page.locator(LIST).wait_for()


async def test_runs_are_listed_newest_first_filtered_and_paged(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), failing=Failing(), counting=Counting(last=1)) as served:
        for number in range(53):
            await served.post("/workflows/counting/run", {"start_event": {}, "handler_id": f"counting-{number}"})
        await served.post("/workflows/failing/run", {"start_event": {}, "handler_id": "failing-1"})
        async with browser.page(served.url, wait=f"{LIST} tbody tr") as watched:
            rows = watched.page.locator(f"{LIST} tbody tr")
            assert await rows.count() == 50
            assert await rows.first.locator("a").inner_text() == "failing-1"
            await watched.page.get_by_role("button", name="Older").click()
            await watched.page.locator(".pager", has_text="51\N{EN DASH}54").wait_for()
            assert await rows.last.locator("a").inner_text() == "counting-0"
            await watched.page.get_by_role("button", name="Newer").click()
            await watched.page.locator(".pager", has_text="1\N{EN DASH}50").wait_for()
            # The way back from a run leads to the same page.
            await watched.page.get_by_role("button", name="Older").click()
            await watched.page.locator(".pager", has_text="51\N{EN DASH}").wait_for()
            await watched.page.locator(f"{LIST} tbody a").first.click()
            await watched.page.locator(".run-id").wait_for()
            await watched.page.go_back()
            await watched.page.locator(".pager", has_text="51\N{EN DASH}").wait_for()
            await watched.page.get_by_role("link", name="Runs", exact=True).click()
            await watched.page.locator(".pager", has_text="1\N{EN DASH}50").wait_for()
            await watched.page.get_by_label("Status").select_option("failed")
            await watched.page.locator(".pager", has_text="1\N{EN DASH}1").wait_for()
            await watched.page.get_by_label("Status").select_option("")
            await watched.page.get_by_label("Workflow").select_option("failing")
            await watched.page.locator(".pager", has_text="1\N{EN DASH}1").wait_for()
            assert "workflow=failing" in watched.page.url


async def test_runs_are_found_by_their_contents(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), failing=Failing(), counting=Counting(last=1)) as served:
        await served.post("/workflows/counting/run", {"start_event": {}, "handler_id": "counting-1"})
        await served.post("/workflows/failing/run", {"start_event": {}, "handler_id": "failing-1"})
        async with browser.page(served.url, wait=f"{LIST} tbody tr") as watched:
            rows = watched.page.locator(f"{LIST} tbody tr")
            pager, search = watched.page.locator(".pager"), watched.page.get_by_role("searchbox", name="Search")
            await search.fill("counting")
            await pager.filter(has_text="1\N{EN DASH}1").wait_for()
            assert await rows.locator("a").all_inner_texts() == ["counting-1"]
            await search.fill("nowhere")
            await pager.filter(has_text="No run fits.").wait_for()
            assert "text=nowhere" in watched.page.url
            await watched.page.get_by_role("button", name="More filters").click()
            await search.fill("")
            await watched.page.get_by_label("Error").fill("no such book")
            await pager.filter(has_text="1\N{EN DASH}1").wait_for()
            assert await rows.locator("a").all_inner_texts() == ["failing-1"]
            await watched.page.get_by_label("From", exact=True).fill("2020-01-01")
            await watched.page.get_by_label("To", exact=True).fill(datetime.now().astimezone().date().isoformat())
            await watched.page.get_by_label("Metadata").fill("wrong")
            await watched.page.get_by_text("Write it as name=value.").wait_for()
            await watched.page.wait_for_url(lambda url: "until=20" in url and "since=2020-01-01" in url)
            assert await rows.locator("a").all_inner_texts() == ["failing-1"]
            # The address has all of it.
            await watched.page.reload()
            await pager.filter(has_text="1\N{EN DASH}1").wait_for()
            assert await watched.page.get_by_label("Error").input_value() == "no such book"
            await watched.page.get_by_role("button", name="Clear the filters").click()
            await pager.filter(has_text="1\N{EN DASH}2").wait_for()
            assert "error" not in watched.page.url
            # An address with a condition that cannot be read.
            await watched.page.goto(f"{served.url}/#min_cost=abc&error=no+such+book")
            await pager.filter(has_text="1\N{EN DASH}1").wait_for()


async def test_children_are_seen_in_a_served_run(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), outer=Outer(workflows={"inner": Inner()})) as served:
        run_id = await served.start("outer")
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await watched.lit(inner__shout="done")


async def test_large_values_are_fetched_when_they_are_wanted(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), large=Large()) as served:
        run_id = await served.start("large")
        await served.over(run_id)
        async with browser.page(f"{served.url}/#run={run_id}&tab=summary", wait="#panel-summary .large") as watched:
            await watched.page.locator("#panel-summary .large").get_by_role("button", name="Load").first.click()
            await watched.page.locator("#panel-summary details.text pre").first.wait_for(state="attached")
            whole = await watched.page.locator("#panel-summary details.text pre").first.text_content()
            assert whole is not None
            assert whole.endswith("page the end")


async def test_an_exported_run_is_the_same_without_the_server(
    browser: Chromium, serving: Serving, tmp_path: Path
) -> None:
    async with serving(WorkflowServer(), hostile=Hostile()) as served:
        run_id = await served.start("hostile")
        await served.over(run_id)
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            rows = await watched.texts(".row:not([hidden])")
            async with watched.page.expect_download() as download:
                await watched.page.get_by_role("button", name="Export").click()
            await (await download.value).save_as(tmp_path / "run.html")
    async with browser.page((tmp_path / "run.html").as_uri()) as file:
        assert await file.texts(".row:not([hidden])") == rows
        await file.lit(attack="failed")
        assert "Content-Security-Policy" in (tmp_path / "run.html").read_text()


async def test_hostile_payloads_stay_text_while_they_are_streamed(browser: Chromium, serving: Serving) -> None:
    async with (
        serving(WorkflowServer(), hostile=Hostile()) as served,
        browser.page(served.url, wait=".runs-head") as watched,
    ):
        run_id = await served.start("hostile")
        await opened(watched, served, run_id)
        await until_status(watched, "failed")
        await watched.page.get_by_role("tab", name="State").click()
        assert await watched.texts("#panel-state .entry h3") == ["<img src=x onerror=window.hit=1>"]


async def test_the_token_is_asked_for_and_kept(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(token="between-us"), counting=Counting()) as served:
        run_id = await served.start("counting")
        context = await browser.browser.new_context()
        page = await context.new_page()
        await page.goto(served.url)
        await page.get_by_role("textbox", name="Token").fill("a guess")
        await page.keyboard.press("Enter")
        await page.get_by_text("That token was not accepted.").wait_for()
        await page.get_by_role("textbox", name="Token").fill("between-us")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name=run_id).click()
        await page.locator(".run-head .status.completed").wait_for()
        await page.reload()
        await page.locator(".run-head .status.completed").wait_for()
        assert "between-us" not in page.url
        await context.close()


class Speaking(Workflow):
    """Says something piece by piece, and then thinks until it is told to go on."""

    def __init__(self, go_on: asyncio.Event) -> None:
        super().__init__()
        self.go_on = go_on

    @step
    async def speak(self, ctx: Context, ev: StartEvent) -> StopEvent:
        said = ""
        for piece in ("\U0001f30a ", "High ", "water ", "comes ", "twice a day."):
            said += piece
            ctx.write_event_to_stream(
                AgentStream(delta=piece, response=said, current_agent_name="writer", tool_calls=[], raw=None)
            )
            await asyncio.sleep(0.06)  # longer than the page puts pieces together
        await self.go_on.wait()
        return StopEvent(result=said)


async def test_what_is_streamed_is_seen_before_it_is_committed_as_one_message(
    browser: Chromium, serving: Serving
) -> None:
    go_on = asyncio.Event()
    async with serving(WorkflowServer(), speaking=Speaking(go_on)) as served:
        run_id = await served.start("speaking")
        async with browser.page(f"{served.url}/#run={run_id}", wait=".message.live") as watched:
            await watched.page.locator(".message.live", has_text="High water").wait_for()
            await watched.page.get_by_role("tab", name="Events").click()
            streaming = watched.page.locator('.row[data-how="streaming"]:not([hidden])')
            await streaming.filter(has_text="\U0001f30a High water comes twice a day.").wait_for()
            assert await streaming.count() == 1
            await watched.page.get_by_role("tab", name="Calls").click()
            await watched.page.locator(".message.live", has_text="High water comes twice a day.").wait_for()
            go_on.set()
            await until_status(watched, "completed")
            await watched.page.get_by_role("tab", name="Events").click()
            await watched.page.locator('.row[data-how="streamed"]', has_text="High water").wait_for()
            assert await streaming.count() == 0


async def test_an_address_that_changes_is_followed(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), counting=Counting()) as served:
        run_id = await served.start("counting")
        await served.over(run_id)
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await watched.page.evaluate("location.hash += '&commit=3&tab=state'")
            await watched.page.locator("#panel-state", has_text="after commit 3").wait_for()
            await watched.page.locator("#skip").focus()
            await watched.presses("Enter")
            assert await watched.page.evaluate("document.activeElement.id") == "main"
            assert await watched.page.locator(".run").count() == 1


# --- what a list and a page say of the same run -----------------------------------------------------------------------


async def test_a_fork_begins_where_it_branched_off(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), making=Making()) as served:
        run_id = await served.start("making", item="tea", count=2)
        await served.over(run_id)
        await asyncio.sleep(1.5)  # the gap, which is longer than both runs
        fork = await served.post(f"/handlers/{run_id}/fork", {"at": 2, "new_id": "fork"})
        over = await served.over("fork")
        async with browser.page(f"{served.url}/#run=fork") as watched:
            await watched.page.locator(".row").first.wait_for()
            assert fork["forked_from"] == [run_id, 2]
            assert "before" in await watched.texts(".row .r-time")
            where = await watched.page.locator(".tl-knob").get_attribute("aria-valuetext") or ""
            assert seconds(where.partition(", ")[2].removesuffix(" after the start")) < 1.5
            took = await fact(watched, "Took")
            assert took == await listed(watched, served, "fork", "Took")
            began, ended = (datetime.fromisoformat(over[name]) for name in ("started_at", "completed_at"))
            assert (ended - began).total_seconds() < 1.5
            assert seconds(took) < 1.5


def seconds(told: str) -> float:
    number, unit = told.split()
    return float(number) * {"µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


async def fact(watched: Watched, name: str) -> str:
    """What the head of a run says."""
    facts = watched.page.locator(".run-head dl div, .run-head .fact", has_text=name)
    return (await facts.first.inner_text()).removeprefix(name).strip()


async def listed(watched: Watched, served: Running, run_id: str, column: str) -> str:
    """What the list of runs says."""
    await watched.page.goto(f"{served.url}/#")
    row = watched.page.locator(f"{LIST} tbody tr", has=watched.page.get_by_role("link", name=run_id, exact=True))
    return await row.locator(f'td[data-label="{column}"]').inner_text()


async def test_a_tool_that_failed_is_among_the_errors(browser: Chromium, serving: Serving) -> None:
    def look(harbour: str) -> str:
        """Look."""
        raise ConnectionError("the line is dead")

    agent = FunctionAgent(name="looker", tools=[look], llm=ScriptedLLM([tool_call("look", harbour="Emden"), "Sorry."]))
    async with serving(WorkflowServer(), agent=agent) as served:
        run_id = await served.start("agent", user_msg="Look.")
        await served.over(run_id)
        async with browser.page(f"{served.url}/#run={run_id}&tab=errors", wait=".card") as watched:
            card = watched.page.locator(".card", has_text="looker / look")
            assert "the line is dead" in await card.inner_text()
            assert await watched.page.get_by_text("Nothing failed.").count() == 0
            assert (await watched.page.get_by_role("tab", name="Errors").inner_text()).split() == ["Errors", "1"]


@pytest.mark.parametrize("run_id", ["..", ".", "a/../b", "..."])
async def test_a_run_whose_id_means_something_in_paths_is_reached(
    browser: Chromium, serving: Serving, run_id: str
) -> None:
    async with serving(WorkflowServer(), making=Making()) as served:
        body = {"start_event": {"item": "tea", "count": 1}, "handler_id": run_id}
        await served.post("/workflows/making/run", body)
        async with WorkflowClient(served.url) as client:
            assert (await client.get(run_id)).status == "completed"
        async with browser.page(served.url, wait=f"{LIST} tbody tr") as watched:
            await watched.page.get_by_role("link", name=run_id, exact=True).click()
            await until_status(watched, "completed")
            await watched.page.locator(".row").first.wait_for()
            await watched.page.locator(".run-id", has_text=run_id).wait_for()


async def test_the_list_says_when_the_server_does_not_answer(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), making=Making()) as served:
        await served.post("/workflows/making/run", {"start_event": {"item": "tea", "count": 1}, "handler_id": "tea"})
        async with browser.page(served.url, wait=f"{LIST} tbody tr") as watched:
            away = watched.page.locator(".away")
            assert await away.is_hidden()
            await watched.page.route("**/handlers?**", lambda route: route.abort())
            await away.wait_for()
            assert "when the server answered last" in await away.inner_text()
            assert await watched.page.locator(f"{LIST} tbody tr").count() == 1
            await watched.page.unroute("**/handlers?**")
            await away.wait_for(state="hidden")
            watched.problems.clear()  # a request that fails is told on the console


async def test_the_rows_of_the_list_carry_no_results(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(), making=Making()) as served:
        await served.post("/workflows/making/run", {"start_event": {"item": "tea", "count": 1}, "handler_id": "tea"})
        (brief,) = (await served.get("/handlers"))["handlers"]
        (whole,) = (await served.get("/handlers", include_results="true"))["handlers"]
        assert whole["result"]["value"] == {"result": "tea, packed"}
        assert brief == {**whole, "result": None}
        asked: list[str] = []
        async with browser.page("about:blank", wait="body") as watched:
            watched.page.on("request", lambda request: asked.append(request.url))
            await watched.page.goto(served.url)
            await watched.page.locator(f"{LIST} tbody tr").wait_for()
        assert [url for url in asked if "/handlers?" in url and "include_results" in url] == []


async def test_a_run_that_waits_says_what_it_has_taken_so_far(browser: Chromium, serving: Serving) -> None:
    async with serving(WorkflowServer(idle_timeout=0.05), writer=make_writer()) as served:
        run_id = await served.start("writer", user_msg="Write about tides.")
        waits = await served.until(run_id, lambda found: found["waiting"] and found["tokens"])
        assert waits["tokens"]["input"] > 0
        assert waits["tokens"]["output"] > 0
        await served.until(run_id, lambda found: not found["live"])
        assert (await served.get(f"/handlers/{run_id}"))["tokens"] == waits["tokens"]
        async with browser.page(f"{served.url}/#run={run_id}") as watched:
            await watched.page.locator(".row").first.wait_for()
            tokens = await fact(watched, "Tokens")
            assert tokens == await listed(watched, served, run_id, "Tokens")
            assert tokens != "\N{EN DASH}"
