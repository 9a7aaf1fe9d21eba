"""What many tests of the engine need: waiting for a condition, reading a stream, saving and resuming a run."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from batonflow.workflow_core import Context, Event, Workflow, WorkflowHandler

__all__ = ["names", "resume", "saved", "streamed", "until"]


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Let the loop turn until the condition holds; a test that waits for ever fails with TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


async def streamed(handler: WorkflowHandler, *, internal: bool = False) -> list[Event]:
    """All that the run streams, to its end."""
    return [event async for event in handler.stream_events(expose_internal=internal)]


def names(events: list[Event]) -> list[str]:
    """The class names of events."""
    return [type(event).__name__ for event in events]


def saved(handler: WorkflowHandler) -> dict[str, Any]:
    """A snapshot of a run as it comes back from a file or a database."""
    return json.loads(json.dumps(handler.ctx.to_dict()))


def resume(workflow: Workflow, payload: dict[str, Any]) -> WorkflowHandler:
    """Go on with a snapshot, written once more before the run begins: that must not lose anything."""
    again = json.loads(json.dumps(Context.from_dict(workflow, payload).to_dict()))
    return workflow.run(ctx=Context.from_dict(workflow, again))
