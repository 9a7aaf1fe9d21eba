"""A look for tasks that a test left behind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["no_task_left"]


@asynccontextmanager
async def no_task_left() -> AsyncIterator[None]:
    """Fail when a task that began inside of the block is still alive shortly after it."""
    before = asyncio.all_tasks()
    yield
    pending = asyncio.all_tasks() - before - {asyncio.current_task()}
    if pending:
        # A task cancelled by the test's last line needs a few turns of the loop to unwind.
        _, pending = await asyncio.wait(pending, timeout=1)
    assert not pending, f"the test left tasks running: {pending}"
