"""Pictures of the page, to be looked at: ``python -m tests.server.page.screenshots FOLDER``.

Needs Chromium. Each is of a real run: a busy one in light and dark, an agent's, a failed one, one that waits with the
form for its answer, the list of runs, the inbox, and all that matters at the width of a phone.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Page

from batonflow.server import WorkflowServer
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.server.conftest import Running, running
from tests.server.page.browser import DESK, PHONE, Chromium, chromium
from tests.server.page.flows import Asking, Failing, Making, make_writer

SLOW = 0.12


class Station(Event):
    name: str


class Reading(Event):
    station: str
    metres: float


class Table(Event):
    rows: int


class Doubt(Event):
    station: str


class Chart(Workflow):
    """Draws one chart."""

    @step
    async def scale(self, ctx: Context, ev: StartEvent) -> Table:
        await asyncio.sleep(SLOW)
        await ctx.store.set("scale", "metres")
        return Table(rows=ev.rows)

    @step
    async def draw(self, ev: Table) -> StopEvent:
        await asyncio.sleep(2 * SLOW)
        return StopEvent(result=f"chart of {ev.rows} rows")


class TideTables(Workflow):
    """Reads gauges along the coast, checks what they say, and draws charts of it."""

    @step
    async def plan(self, ctx: Context, ev: StartEvent) -> Station | None:
        await asyncio.sleep(SLOW / 2)
        await ctx.store.set("coast", "east and west")
        await ctx.store.set("readings", {})
        for name in STATIONS:
            ctx.send_event(Station(name=name))

    @step(num_workers=4, retry_policy=retry_policy(wait=wait_fixed(SLOW), stop=stop_after_attempt(4)))
    async def read_gauge(self, ctx: Context, ev: Station) -> Reading:
        chance = random.Random(f"{ev.name}{ctx.retry_info().retry_number}")
        await asyncio.sleep(SLOW * chance.uniform(0.6, 3))
        if ev.name in ("Whitby", "Leith") and ctx.retry_info().retry_number < 1 + (ev.name == "Leith"):
            raise ConnectionError(f"the gauge at {ev.name} does not answer")
        return Reading(station=ev.name, metres=round(chance.uniform(0.4, 6.1), 2))

    @step(num_workers=2)
    async def check(self, ctx: Context, ev: Reading) -> Doubt | Table | None:
        await asyncio.sleep(SLOW / 2)
        readings = {**await ctx.store.get("readings"), ev.station: ev.metres}
        await ctx.store.set("readings", readings)
        if ev.metres > 5:
            ctx.send_event(Doubt(station=ev.station))
        return Table(rows=len(readings)) if len(readings) == len(STATIONS) else None

    @step
    async def look_again(self, ev: Doubt) -> None:
        await asyncio.sleep(SLOW)

    @step
    async def publish(self, ev: Table, chart: Chart) -> StopEvent:
        made = [await chart.run(rows=ev.rows), await chart.run(rows=ev.rows // 2)]
        return StopEvent(result=made)


STATIONS = (
    "Dover", "Leith", "Whitby", "Newlyn", "Holyhead", "Lerwick", "Portree", "Cromer", "Harwich", "Bangor", "Hilbre",
)  # fmt: skip


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Running, dict[str, str]]]:
    """A server with a run of every kind, by name."""
    flows = {
        "tides": TideTables(workflows={"chart": Chart()}, timeout=None),
        "writer": make_writer(),
        "failing": Failing(),
        "asking": Asking(),
        "making": Making(),
    }
    async with running(WorkflowServer(), **flows) as server:
        runs = {name: await server.start(name) for name in ("failing", "tides", "asking")}
        runs["writer"] = await server.start("writer", user_msg="Write about tides, and publish it.")
        runs["making"] = await server.start("making", item="tea", count=4)
        for name in ("tides", "making", "failing"):
            await server.over(runs[name])
        yield server, runs


async def _busy(page: Page) -> None:
    await page.locator(".row", has_text="Dover").nth(1).click()


async def _scrubbed(page: Page) -> None:
    await page.get_by_role("tab", name="State").click()
    await page.get_by_role("slider").focus()
    for _ in range(3):
        await page.keyboard.press("PageDown")


async def _call(page: Page) -> None:
    await page.locator(".opener").last.click()
    await page.locator(".call-main .message").first.wait_for()


async def _approval(page: Page) -> None:
    await page.get_by_role("button", name="Review").click()
    await page.locator("dialog textarea").wait_for()


async def _question(page: Page) -> None:
    await page.get_by_role("button", name="Answer").click()
    await page.locator("dialog .field").first.wait_for()


async def _inbox(page: Page) -> None:
    await page.get_by_role("link", name="Inbox").click()
    await page.locator(".inbox-cards .card").first.wait_for()


def _tab(name: str) -> Callable[[Page], Awaitable[None]]:
    async def choose(page: Page) -> None:
        await page.get_by_role("tab", name=name).click()

    return choose


PICTURES: tuple[tuple[str, str | None, Any, Any, Callable[[Page], Awaitable[None]] | None], ...] = (
    ("busy-light", "tides", DESK, "light", _busy),
    ("busy-dark", "tides", DESK, "dark", _busy),
    ("scrubbed-light", "tides", DESK, "light", _scrubbed),
    ("summary-dark", "tides", DESK, "dark", _tab("Summary")),
    ("retries-light", "tides", DESK, "light", _tab("Errors")),
    ("failed-dark", "failing", DESK, "dark", _tab("Errors")),
    ("approval-light", "writer", DESK, "light", _approval),
    ("agent-dark", "writer", DESK, "dark", _tab("Calls")),
    ("call-light", "writer", DESK, "light", _call),
    ("phone-call", "writer", PHONE, "dark", _call),
    ("list-light", None, DESK, "light", None),
    ("inbox-light", None, DESK, "light", _inbox),
    ("phone-list", None, PHONE, "dark", None),
    ("phone-events", "tides", PHONE, "light", None),
    ("phone-graph", "tides", PHONE, "light", _tab("Graph")),
    ("phone-timeline", "tides", PHONE, "dark", _tab("Timeline")),
    ("phone-question", "asking", PHONE, "light", _question),
)


async def _take(browser: Chromium, server: Running, runs: dict[str, str], folder: Path) -> None:
    for name, run, size, scheme, prepare in PICTURES:
        address = server.url if run is None else f"{server.url}/#run={runs[run]}"
        wait = ".runs-table tbody tr" if run is None else ".row"
        async with browser.page(address, size=size, scheme=scheme, wait=wait) as watched:
            if prepare is not None:
                await prepare(watched.page)
            # What is drawn in the next frame should be in the picture.
            await watched.page.wait_for_timeout(400)
            await watched.page.screenshot(path=folder / f"{name}.png")
            sys.stdout.write(f"{folder / name}.png\n")


async def main(folder: Path) -> None:
    async with served() as (server, runs), chromium() as browser:
        await _take(browser, server, runs, folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.server.page.screenshots FOLDER")
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1])))
