"""A browser for the tests of a module, which share an event loop, and files of exported runs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from batonflow.server.page import export_run
from tests.leftovers import no_task_left
from tests.server.page.browser import Chromium, chromium
from tests.server.page.flows import Recorded

Exported = Callable[[Awaitable[Recorded]], Awaitable[str]]


@pytest_asyncio.fixture(loop_scope="module")
async def _no_task_left() -> AsyncIterator[None]:
    """Fail the test when it leaves a task on the loop of its module, where the browser stays."""
    async with no_task_left():
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Chromium]:
    async with chromium() as started:
        yield started


@pytest.fixture
def exported(tmp_path: Path) -> Exported:
    """Writes a recorded run as a file; gives its address."""

    async def write(recorded: Awaitable[Recorded]) -> str:
        run = await recorded
        path = tmp_path / f"{run.run_id}.html"
        await export_run(run.store, run.run_id, workflow=run.workflow, path=path)
        return path.as_uri()

    return write
