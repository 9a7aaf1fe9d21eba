"""``ctx.once``: a call whose result belongs to the delivery, not to the attempt."""

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from batonflow.workflow_core.engine.progress import current_call
from batonflow.workflow_core.engine.state import WorkItem

if TYPE_CHECKING:
    from batonflow.workflow_core.engine.runner import Run

__all__ = ["run_once"]


async def run_once(run: "Run", item: WorkItem, key: str, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The recorded result for ``key``, or that of calling ``fn`` now; concurrent calls with one key share one call."""
    progress = item.done()
    if progress.once is None:
        progress.once = {}
    records = progress.once
    while key in records:
        known: Any = records[key]
        if not isinstance(known, asyncio.Future):
            return known
        # Another branch of the step is calling; when it fails, this one tries for itself.
        await asyncio.wait([cast("asyncio.Future[None]", known)])
    pending: asyncio.Future[None] = run.loop.create_future()
    records[key] = pending
    call = progress.once_call(key)
    outside = current_call.set(call)
    try:
        result = fn(*args)
        if inspect.isawaitable(result):
            result = await result
        if run.recorder is not None:
            run.recorder.suspend(item, "once", (key, result))
        records[key] = result
        del (progress.once_calls or {})[key]
    except BaseException:
        del records[key]
        raise
    finally:
        current_call.reset(outside)
        pending.set_result(None)
    return result
