"""The page with workers: their list, the worker of each run, and runs without a worker."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from batonflow.server import WorkflowServer
from tests.server.conftest import Serving
from tests.server.page.browser import Chromium
from tests.server.test_workers import Gate, enqueued, worker_at

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
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE runs SET held = '5 claims ended' WHERE run_id = 'left'")
            connection.close()
            await page.get_by_role("link", name="Runs").click()
            await page.get_by_text("Held: 5 claims ended").wait_for()
            await page.locator(".status.held").wait_for()
