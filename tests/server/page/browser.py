"""Chromium, and pages in it that are watched: nothing may be asked of other hosts, no script of a payload may run."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, Request, ViewportSize, async_playwright

Scheme = Literal["light", "dark"]
DESK = ViewportSize(width=1440, height=900)
TABLET = ViewportSize(width=1024, height=768)
PHONE = ViewportSize(width=360, height=740)
OWN = ("127.0.0.1", "")
AXE = Path(__file__).with_name("axe") / "node_modules/axe-core/axe.min.js"


@dataclass
class Watched:
    """A page, and what happened in it that should not."""

    page: Page
    problems: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", self._asked)
        self.page.on("request", self._requested)

    def _said(self, message: ConsoleMessage) -> None:
        # A refused script or style is told there too.
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    async def _asked(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def _requested(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and (parts.hostname or "") not in OWN:
            self.problems.append(f"request: {request.url}")

    async def check(self) -> None:
        if await self.page.evaluate("() => window.hit"):
            self.problems.append("a script of a payload ran")
        assert self.problems == []

    async def settle(self) -> None:
        """Wait until what changed is shown: the page draws once per frame."""
        await self.page.evaluate(
            "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
        )

    async def texts(self, selector: str) -> list[str]:
        await self.settle()
        return await self.page.locator(selector).all_inner_texts()

    async def drawn(self, selector: str) -> list[str]:
        """Texts of a drawing."""
        await self.settle()
        return await self.page.locator(selector).all_text_contents()

    async def lit(self, **nodes: str) -> None:
        """Waits until nodes of the graph are lit so; in their names ``__`` stands for the slash before a child's."""
        for name, state in nodes.items():
            node = name.replace("__", "/")
            await self.page.locator(f'[data-node="{node}"][data-state="{state}"]').wait_for()

    async def presses(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)


@dataclass
class Chromium:
    browser: Browser

    @asynccontextmanager
    async def page(
        self, url: str, *, size: ViewportSize = DESK, scheme: Scheme = "light", wait: str = ".row"
    ) -> AsyncIterator[Watched]:
        """A page at an address, checked at the end."""
        context = await self.browser.new_context(
            viewport=size, color_scheme=scheme, reduced_motion="reduce", accept_downloads=True
        )
        try:
            watched = Watched(await context.new_page())
            watched.listen()
            await watched.page.goto(url)
            if wait:
                await watched.page.locator(wait).first.wait_for()
            yield watched
            await watched.check()
        finally:
            await context.close()


@asynccontextmanager
async def chromium() -> AsyncIterator[Chromium]:
    options: dict[str, Any] = {"executable_path": shutil.which("chromium")}
    # Chromium's own sandbox does not work for root.
    if os.geteuid() == 0:
        options["args"] = ["--no-sandbox"]
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(**options)
        try:
            yield Chromium(browser)
        finally:
            await browser.close()
