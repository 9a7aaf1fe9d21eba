"""axe finds nothing serious on any view, in light and in dark, on a desk and on a phone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batonflow.server import WorkflowServer
from tests.server.conftest import Serving
from tests.server.page.browser import AXE, DESK, PHONE, Chromium, Scheme, Watched
from tests.server.page.conftest import Exported
from tests.server.page.flows import Asking, Failing, Making, Retrying, agent_run, make_writer, run_of
from tests.server.test_workers import Gate, enqueued, hold

pytestmark = [pytest.mark.external("chromium"), pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

BOTH = ["dark", pytest.param("light", marks=pytest.mark.soak(only=True))]


@pytest.fixture(autouse=True)
def _installed() -> None:
    assert AXE.exists(), f"axe is not installed: cd {AXE.parent.parent.parent} && npm ci --ignore-scripts"


async def findings(watched: Watched) -> list[str]:
    # Evaluated by the debugger, so the page's policy does not refuse it.
    await watched.page.evaluate(AXE.read_text(encoding="utf-8"))
    report: dict[str, Any] = await watched.page.evaluate("axe.run()")
    return [
        f"{found['id']}: {node['html'][:160]}"
        for found in report["violations"]
        if found["impact"] in ("serious", "critical")
        for node in found["nodes"]
    ]


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(DESK, "light", id="desk-light"),
        pytest.param(PHONE, "dark", id="phone-dark", marks=pytest.mark.soak(only=True)),
        pytest.param(DESK, "dark", id="desk-dark", marks=pytest.mark.soak(only=True)),
        pytest.param(PHONE, "light", id="phone-light", marks=pytest.mark.soak(only=True)),
    ],
)
async def test_a_run(browser: Chromium, exported: Exported, scheme: Scheme, size: Any) -> None:
    async with browser.page(await exported(agent_run()), scheme=scheme, size=size) as watched:
        found = await findings(watched)
        await watched.presses("j", "j", "j", "j")
        found += await findings(watched)
        await watched.presses("Enter")
        await watched.page.locator(".call-main .message").first.wait_for()
        await watched.page.locator(".tool-spec summary").first.click()
        found += await findings(watched)
        await watched.presses("Escape", "Escape", "[", "[")
        for tab in ("Events", "Summary", "State", "Memory"):
            await watched.page.get_by_role("tab", name=tab).click()
            found += await findings(watched)
        assert found == []


@pytest.mark.parametrize("scheme", BOTH)
async def test_failures_and_retries(browser: Chromium, exported: Exported, scheme: Scheme) -> None:
    found: list[str] = []
    for cls in (Failing, Retrying):
        async with browser.page(await exported(run_of(cls)), scheme=scheme) as watched:
            await watched.page.get_by_role("tab", name="Errors").click()
            found += await findings(watched)
            await watched.presses("1", "j", "j", "j", "j", "?")
            found += await findings(watched)
    assert found == []


@pytest.mark.parametrize("scheme", BOTH)
async def test_the_list_and_the_forms(browser: Chromium, serving: Serving, scheme: Scheme) -> None:
    flows = {"asking": Asking(), "failing": Failing(), "making": Making(), "writer": make_writer()}
    async with serving(WorkflowServer(), **flows) as served:
        asking = await served.start("asking")
        await served.over(await served.start("failing"))
        writer = await served.start("writer", user_msg="Write about tides.")
        async with browser.page(served.url, scheme=scheme, wait=".runs-table .run-error") as watched:
            found = await findings(watched)
            await watched.page.get_by_role("link", name="Inbox").click()
            await watched.page.locator(".inbox-cards .card").first.wait_for()
            found += await findings(watched)
            await watched.page.goto(f"{served.url}/#view=workers")
            await watched.page.locator(".queues-table tbody tr").first.wait_for()
            found += await findings(watched)
            await watched.page.get_by_role("link", name="Runs").click()
            await watched.page.get_by_role("button", name="Start a run").click()
            await watched.page.get_by_label("Workflow").last.select_option("making")
            await watched.page.locator("dialog .field").first.wait_for()
            await watched.page.get_by_role("button", name="Start", exact=True).click()
            found += await findings(watched)
            for run_id, name in ((asking, "Answer"), (writer, "Review")):
                await watched.page.goto(f"{served.url}/?{run_id}#run={run_id}")
                await watched.page.get_by_role("button", name=name).click()
                found += await findings(watched)
                await watched.presses("Escape")
                await watched.page.get_by_role("button", name="Fork").click()
                await watched.page.locator("dialog textarea").wait_for()
                found += await findings(watched)
            await watched.page.goto(f"{served.url}/?both#compare={asking},{writer}")
            await watched.page.locator(".compare .pair-cell").first.wait_for()
            found += await findings(watched)
        assert found == []


@pytest.mark.parametrize("scheme", BOTH)
async def test_a_conversation_and_a_call_that_is_changed(browser: Chromium, serving: Serving, scheme: Scheme) -> None:
    found: list[str] = []
    async with serving(WorkflowServer(accept_sessions=True), writer=make_writer()) as served:
        async with browser.page(served.url, scheme=scheme, wait=".welcome .sketch svg") as watched:
            found += await findings(watched)
            await watched.page.locator(".welcome").get_by_role("link", name="Chat").click()
            await watched.page.locator(".chat-welcome .sketch svg").wait_for()
            found += await findings(watched)
            await watched.page.get_by_role("textbox", name="Message").fill("Write about tides, and publish it.")
            await watched.presses("Enter")
            await watched.page.get_by_role("button", name="Review").wait_for()
            found += await findings(watched)
            await watched.page.get_by_role("link", name="Follow the run").click()
            await watched.page.locator(".opener").first.click()
            await watched.page.get_by_role("button", name="Try again").click()
            await watched.page.get_by_role("button", name="Edit: message 1").click()
            await watched.page.get_by_label("Text of message 1").wait_for()
            found += await findings(watched)
        [run] = (await served.get("/handlers"))["handlers"]
        await served.post(f"/handlers/{run['handler_id']}/cancel")
        await served.over(run["handler_id"])
    assert found == []


@pytest.mark.parametrize("scheme", BOTH)
async def test_a_held_run(browser: Chromium, serving: Serving, scheme: Scheme, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with serving(WorkflowServer(store=path, drive=False), shop=Gate(asyncio.Event())) as served:
        await enqueued(served, "r")
        hold(path, "r", "gone")
        async with browser.page(f"{served.url}/#run=r", scheme=scheme, wait=".status.held") as watched:
            assert await findings(watched) == []
