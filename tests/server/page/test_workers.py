"""The page with workers: their list, the worker of each run, and runs without a worker."""

import asyncio
from pathlib import Path

import pytest

from batonflow.server import WorkflowServer
from tests.server.conftest import Serving
from tests.server.page.browser import Chromium
from tests.server.page.flows import Asking
from tests.server.test_workers import Gate, enqueued, hold, worker_at

pytestmark = [pytest.mark.external("chromium"), pytest.mark.asyncio(loop_scope="module")]


async def test_the_page_shows_workers_and_the_runs_that_they_drive(
    browser: Chromium, serving: Serving, tmp_path: Path
) -> None:
    opened, path = asyncio.Event(), tmp_path / "runs.db"
    async with serving(WorkflowServer(store=path, drive=False), shop=Gate(opened)) as served:
        await enqueued(served, "left", queue="gpu")
        async with browser.page(served.url, wait=".runs-table .id") as watched:
            page = watched.page
            assert not await page.get_by_role("columnheader", name="Worker").is_visible()
            await page.locator(".status.ready").wait_for()
            assert await page.get_by_role("link", name="Workers").count() == 0
            await enqueued(served, "taken")
            async with worker_at(path, Gate(opened)) as worker:
                await page.locator("td[data-label=Worker]", has_text=worker.name).wait_for()
                await page.reload()
                await page.get_by_role("link", name="Workers").click()
                line = page.locator(".workers-table tbody tr", has_text=worker.name)
                assert "1 of 2" in await line.inner_text()
                await page.get_by_text("No worker takes up the 1 run of shop in queue gpu.").wait_for()
                assert await page.locator(".queues-table tbody tr").count() == 2
                opened.set()
                await page.locator(".queues-table tbody tr").nth(1).wait_for(state="detached")
            await page.get_by_text("No worker has signed in.").wait_for()
            hold(path, "left", "gone")
            await page.get_by_role("link", name="Runs").click()
            await page.get_by_text("Held: 5 attempts ended").wait_for()
            await page.locator(".status.held").wait_for()
            await enqueued(served, "new")
            await page.get_by_label("Status", exact=True).select_option(label="unfinished")
            await page.locator("tbody:has(.status.ready):has(.status.held):not(:has(.status.completed))").wait_for()
            for status, run in (("held", "left"), ("ready", "new"), ("completed", "taken")):
                await page.get_by_label("Status", exact=True).select_option(status)
                await page.locator(f".runs-table tbody tr:only-child .status.{status}").wait_for()
                assert run in await page.locator(".runs-table tbody").inner_text()


@pytest.mark.parametrize("has_code", [True, False])
async def test_a_held_run_shows_why_and_is_released(
    browser: Chromium, serving: Serving, tmp_path: Path, has_code: bool
) -> None:
    path = tmp_path / "runs.db"
    async with serving(WorkflowServer(store=path, drive=False), shop=Gate(asyncio.Event())) as served:
        await enqueued(served, "r")
    hold(path, "r", "gone")
    flows = {"shop": Gate(asyncio.Event())} if has_code else {}
    async with serving(WorkflowServer(store=path, drive=False), **flows) as served:
        async with browser.page(f"{served.url}/#run=r", wait=".status.held") as watched:
            banner = watched.page.locator(".banner", has_text="Held")
            assert "5 attempts ended without a commit, the last one of gone" in await banner.inner_text()
            await banner.get_by_role("button", name="Release").click()
            await watched.page.locator(".status.ready").wait_for()
            await banner.wait_for(state="detached")
            await watched.page.get_by_text("Released. It can be taken up again.").wait_for()
        assert (await served.get("/handlers/r"))["held"] is None


async def test_the_inbox_counts_runs_that_wait_for_other_servers(
    browser: Chromium, serving: Serving, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    async with serving(WorkflowServer(store=path, idle_timeout=0.02), asking=Asking(workflow_name="asking")) as served:
        run_id = await served.start("asking")
        await served.until(run_id, lambda found: found["waiting"] and not found["live"])
    async with (
        serving(WorkflowServer(store=path), shop=Gate(asyncio.Event())) as served,
        browser.page(f"{served.url}/#view=inbox", wait=".inbox-cards p") as watched,
    ):
        sentence = "1 run of asking waits. This server does not have the workflow"
        await watched.page.get_by_text(sentence).wait_for()
        assert await watched.page.get_by_text("No run asks anything.").count() == 0
        await watched.page.get_by_role("link", name="1 run").click()
        await watched.page.get_by_role("link", name=run_id).wait_for()
