"""A run with ten thousand events: the page is there at once, holds few elements, and stays smooth."""

import time

import pytest

from tests.server.page.browser import Chromium
from tests.server.page.conftest import Exported
from tests.server.page.flows import Counting, run_of

pytestmark = [pytest.mark.external("chromium"), pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

MOST_ROWS = 400
# Against a run of some hundred events, which is opened beside it.
TIMES_AS_LONG = 6
FEW = 200

_SCROLL = """async (seconds) => {
  const list = document.querySelector('.rows');
  const frames = [];
  let rows = 0;
  let last = await new Promise(requestAnimationFrame);
  const until = last + seconds * 1000;
  while (last < until) {
    list.scrollTop = (list.scrollTop + 1700) % (list.scrollHeight - list.clientHeight);
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    rows = Math.max(rows, document.querySelectorAll('.row').length);
    last = now;
  }
  frames.sort((one, other) => one - other);
  return { p95: frames[Math.floor(frames.length * 0.95)], frames: frames.length, rows };
}"""


async def test_ten_thousand_events_stay_smooth(browser: Chromium, exported: Exported) -> None:
    small = await exported(run_of(Counting, last=FEW))
    started = time.perf_counter()
    async with browser.page(small) as watched:
        await watched.page.get_by_role("tab", name="State").click()
        before = time.perf_counter() - started
        await watched.page.get_by_role("tab", name="Events").click()
        usual = await watched.page.evaluate(_SCROLL, 1)
    address = await exported(run_of(Counting, last=7_600))
    started = time.perf_counter()
    async with browser.page(address) as watched:
        await watched.page.get_by_role("tab", name="State").click()
        interactive = time.perf_counter() - started
        await watched.page.get_by_role("tab", name="Events").click()
        assert int((await watched.texts(".count-text"))[0]) > 10_000
        figures = await watched.page.evaluate(_SCROLL, 3)
        # The scrubber moves graph, state and list at once.
        await watched.page.get_by_role("slider").focus()
        await watched.presses("PageDown", "PageDown", "ArrowLeft")
        assert await watched.page.locator(".row.future:not([hidden])").count() > 0
        await watched.presses("/")
        await watched.page.keyboard.type("at 6000")
        await watched.page.locator(".count-text", has_text="1 of").wait_for()
        assert await watched.page.locator(".row").count() <= MOST_ROWS
    assert figures["rows"] <= MOST_ROWS
    assert figures["p95"] <= TIMES_AS_LONG * usual["p95"]
    assert interactive <= TIMES_AS_LONG * before
