"""Measure the page with a run of ten thousand events, and with a call of many messages, in headless Chromium.

    python benchmarks/page.py [--write docs/evidence/performance.md]

Needs `chromium` and the package playwright (`requirements/test.txt`).
"""

import argparse
import asyncio
import gzip
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, async_playwright
from reporting import Table, report

from batonflow.llms import ChatMessage, ScriptedLLM
from batonflow.server.page import export_run, page_html
from batonflow.workflow_core import Context, Event, MemoryStore, StartEvent, StopEvent, Workflow, step

MARKS = ("<!-- page begin -->", "<!-- page end -->")
LAST = 7_600
ROUNDS = 5

_WATCH = """() => {
  new MutationObserver((_, observer) => {
    if (!document.querySelector('.row')) return;
    observer.disconnect();
    // Two frames later the first one with rows is on the screen, and the thread is free again.
    requestAnimationFrame(() => requestAnimationFrame(() => { window.interactive = performance.now(); }));
  }).observe(document, { childList: true, subtree: true });
}"""

_SCROLL = """async () => {
  const list = document.querySelector('.rows');
  const frames = [];
  let rows = 0;
  let last = await new Promise(requestAnimationFrame);
  const until = last + 4000;
  while (last < until) {
    list.scrollTop = (list.scrollTop + 1700) % (list.scrollHeight - list.clientHeight);
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    rows = Math.max(rows, document.querySelectorAll('.row').length);
    last = now;
  }
  frames.sort((one, other) => one - other);
  return { p50: frames[Math.floor(frames.length / 2)], p95: frames[Math.floor(frames.length * 0.95)], rows };
}"""


class Tick(Event):
    """A number."""

    number: int


class Note(Event):
    """Something to read."""

    text: str


class Counting(Workflow):
    """Goes on until the last number."""

    @step
    async def begin(self, ev: StartEvent) -> Tick:
        """Begin."""
        return Tick(number=0)

    @step
    async def count(self, ctx: Context, ev: Tick) -> Tick | StopEvent:
        """Take the next number."""
        if ev.number % 3 == 0:
            ctx.write_event_to_stream(Note(text=f"at {ev.number}"))
        await ctx.store.set("number", ev.number)
        return StopEvent(result=ev.number) if ev.number == LAST else Tick(number=ev.number + 1)


# From the click on a call until two frames later, when its messages are on the screen and the thread is free again.
_OPEN = """() => new Promise((done) => {
  const began = performance.now();
  document.querySelector('.opener').click();
  const look = () => document.querySelector('.call-main .answer')
    ? requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)))
    : requestAnimationFrame(look);
  look();
})"""
MESSAGES = 200
ANSWER = "## The tides\n\nHigh water comes **twice** a day:\n\n- at `06:10`\n- at `18:35`\n\nThe moon pulls the sea. "


class Asking(Workflow):
    """Asks a model with a long conversation."""

    @step
    async def ask(self, ev: StartEvent) -> StopEvent:
        """Ask once."""
        roles = ("user", "assistant")
        messages = [ChatMessage(f"{number}. {ANSWER * 3}", role=roles[number % 2]) for number in range(MESSAGES)]
        return StopEvent(result=(await ScriptedLLM([ANSWER]).achat(messages)).message.content)


async def _call_opened(browser: Browser, folder: str) -> float:
    """Return the median time to open a call of many messages, in milliseconds."""
    flow = Asking(timeout=None, store=MemoryStore())
    await flow.run(run_id="asking")
    assert flow.run_store is not None
    path = Path(folder, "call.html")
    await export_run(flow.run_store, "asking", workflow=flow, path=path)
    times: list[float] = []
    for _ in range(ROUNDS):
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        await page.goto(path.as_uri())
        await page.locator(".opener").first.wait_for()
        times.append(await page.evaluate(_OPEN))
        await page.close()
    return statistics.median(times)


async def measured() -> dict[str, Any]:
    """Load the page with the run some times, and scroll."""
    flow = Counting(timeout=None, store=MemoryStore())
    await flow.run(run_id="counting")
    assert flow.run_store is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.html")
        file = await export_run(flow.run_store, "counting", workflow=flow, path=path)
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=args)
            loads = [await _load(browser, path) for _ in range(ROUNDS)]
            opened = await _call_opened(browser, folder)
            await browser.close()
    html = page_html().encode()
    return {
        "page": len(html),
        "compressed": len(gzip.compress(html, 9)),
        "file": len(file.encode()),
        "interactive": statistics.median(load["interactive"] for load in loads),
        "p50": statistics.median(load["p50"] for load in loads),
        "p95": statistics.median(load["p95"] for load in loads),
        "opened": opened,
        "rows": max(load["rows"] for load in loads),
    }


async def _load(browser: Browser, path: Path) -> dict[str, float]:
    page = await browser.new_page(viewport={"width": 1440, "height": 900})
    await page.add_init_script(f"({_WATCH})()")
    await page.goto(path.as_uri())
    await page.wait_for_function("window.interactive")
    found = await page.evaluate(_SCROLL)
    found["interactive"] = await page.evaluate("window.interactive")
    await page.close()
    return found


def tables(_: argparse.Namespace) -> list[Table]:
    """Everything that is measured."""
    found = asyncio.run(measured())
    lines = [
        "| the page, with a run of more than 10,000 events | |",
        "|---|---:|",
        f"| its size, compressed | {found['page'] / 1e3:.0f} kB, {found['compressed'] / 1e3:.0f} kB |",
        f"| the file of the run | {found['file'] / 1e6:.1f} MB |",
        f"| from opening the file until it can be used | {found['interactive']:.0f} ms |",
        f"| a frame while scrolling, median and p95 | {found['p50']:.0f} and {found['p95']:.0f} ms |",
        f"| rows in the document, at most | {found['rows']} |",
        f"| from the click on a call of {MESSAGES} messages until it is on the screen | {found['opened']:.0f} ms |",
    ]
    return [lines]


if __name__ == "__main__":
    sys.exit(report(__doc__, MARKS, tables))
