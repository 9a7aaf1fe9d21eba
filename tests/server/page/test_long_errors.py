"""Errors and results that are too long for one line, in every place that shows them."""

from typing import Any

import pytest

from batonflow import FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.server import WorkflowServer
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step
from tests.server.conftest import Serving
from tests.server.page.browser import DESK, PHONE, Chromium, ViewportSize

pytestmark = [pytest.mark.external("chromium"), pytest.mark.asyncio(loop_scope="module")]

NODES = ".row.node:not([hidden])"
COMPLAINT = "The harbour is closed. " * 500


class Flooded(Workflow):
    """Fails with a long error of many lines."""

    @step
    async def fail(self, ev: StartEvent) -> StopEvent:
        raise RuntimeError("\n".join([COMPLAINT] * 4))


def dump(kb: int) -> str:
    """Return as many kilobytes."""
    return "the tide " * (kb * 110)


def moor(boat: str) -> str:
    """Fail with a long error."""
    raise RuntimeError(COMPLAINT)


def agent() -> FunctionAgent:
    calls: list[Any] = [[tool_call("dump", kb=20), tool_call("moor", boat="Ann")], "Done."]
    return FunctionAgent(name="pilot", description="Moors.", tools=[dump, moor], llm=ScriptedLLM(calls))


@pytest.mark.parametrize("size", [DESK, PHONE])
async def test_a_long_error_leaves_room_for_the_run(browser: Chromium, serving: Serving, size: ViewportSize) -> None:
    async with serving(WorkflowServer(), flooded=Flooded()) as served:
        run = await served.start("flooded")
        await served.over(run)
        async with browser.page(f"{served.url}/#run={run}", size=size, wait=".run-head .banner.failed") as watched:
            page = watched.page
            banner = page.locator(".run-head .banner.failed")
            assert "The harbour is closed." in await banner.inner_text()
            box = await banner.bounding_box()
            views = await page.locator(".views").bounding_box()
            assert box
            assert views
            assert box["height"] < size["height"] / 4
            assert views["height"] > size["height"] / 3
            await banner.locator("summary").click()
            opened = await banner.bounding_box()
            assert opened
            assert box["height"] < opened["height"] < size["height"] / 2, "the whole text scrolls in a part of the page"
            await page.get_by_role("tab", name="Errors").click()
            assert "The harbour is closed." in (await watched.texts(".card"))[0]


async def test_long_results_and_errors_of_tools_are_shown_by_their_beginning(
    browser: Chromium, serving: Serving
) -> None:
    async with serving(WorkflowServer(), agent=agent()) as served:
        run = await served.start("agent", user_msg="Moor.")
        await served.over(run)
        async with browser.page(f"{served.url}/#run={run}", wait=NODES) as watched:
            page = watched.page
            lines = await watched.texts(NODES)
            assert "→ the tide the tide" in next(line for line in lines if line.startswith("dump"))
            failed = next(line for line in lines if line.startswith("moor"))
            assert "→ RuntimeError: The harbour is closed." in failed or "→ The harbour is closed." in failed
            await page.get_by_role("tab", name="Errors").click()
            [card] = await watched.texts(".panel:not([hidden]) .card")
            assert "The harbour is closed. The harbour is closed." in card
            await page.get_by_role("tab", name="Events").click()
            rows = " ".join(await watched.texts(".row:not([hidden])"))
            assert "moor → " in rows
            assert "moor → \n" not in rows
            assert "dump → the tide" in rows
