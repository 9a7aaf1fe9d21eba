"""``ctx.once`` and ``ctx.effect``: calls with results that belong to the delivery, not to the attempt."""

import asyncio
import hashlib
import inspect
import re
from collections.abc import Callable
from typing import Any, cast

from batonflow.instrumentation.context import replace_call
from batonflow.workflow_core.engine.state import OnceCall, WorkItem, current_call, current_item
from batonflow.workflow_core.errors import StoreError, UnknownOutcomeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.run import Run

__all__ = ["begun_earlier", "key_here", "name_of_call", "run_effect", "run_once", "send_to"]

_OF_MAP = re.compile(r"\[\d+\]$")


def name_of_call(item: WorkItem, kind: str, key: str) -> str:
    """Return the name of a map or a question: the key, or its number. Inside ``once``, it begins with that call."""
    numbers = item.make_progress().here()
    numbers.named_calls += 1
    name = key or f"{kind} {numbers.named_calls}"
    return f"{numbers.key}/{name}" if isinstance(numbers, OnceCall) else name


def key_here(item: WorkItem, key: str) -> str:
    """Return the key of ``once`` in the records. In a function of ``map``, each item has its own keys."""
    call = item.make_progress().here()
    return f"{call.key}/{key}" if isinstance(call, OnceCall) and _OF_MAP.search(call.key) else key


async def run_once(
    run: Run, item: WorkItem, key: str, fn: Callable[..., Any], args: tuple[Any, ...], intent: Any = None
) -> Any:
    """Return the recorded result for ``key``, or call ``fn``; concurrent calls with one key share one call.

    With an intent, a store is told of it before the call.
    """
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"once() and effect() take a text as their key, got {key!r}")
    if run.recorder is not None:
        run.recorder.check_name(key)
    progress = item.make_progress()
    if progress.once is None:
        progress.once = {}
    records = progress.once
    while key in records:
        known: Any = records[key]
        if not isinstance(known, asyncio.Future):
            return known
        # Another branch of the step is calling; if it fails, this branch calls again.
        await asyncio.wait([cast("asyncio.Future[None]", known)])
    pending: asyncio.Future[None] = run.loop.create_future()
    records[key] = pending
    call = progress.once_call(key)
    outside = current_call.set(call)
    recorder, drive = run.recorder, run.root.drive
    try:
        if intent is not None and recorder is not None:
            segment = recorder.suspend(item, "intent", [key, intent])
            progress.begun[key] = intent
            if drive is not None and segment is not None:
                await drive.has(segment)
        changed_before = recorder.call_begins(item) if recorder is not None else ()
        if (replace := replace_call.get()) is not None and not _OF_MAP.search(key):
            fn = replace(run, item, key, intent, fn)
        result = fn(*args)
        if inspect.isawaitable(result):
            result = await result
        if recorder is not None:
            segment = recorder.suspend(item, "once", (key, result), changed_before)
            progress.begun.pop(key, None)
            progress.unreturned[key] = result
            if drive is not None and segment is not None:
                await drive.has(segment)
        records[key] = result
        del (progress.once_calls or {})[key]
    except BaseException as error:
        del records[key]
        if intent is not None and recorder is not None and isinstance(error, Exception):
            recorder.suspend(item, "raised", key)  # a cancelled caller must not hide the outcome
        raise
    finally:
        progress.begun.pop(key, None)
        progress.unreturned.pop(key, None)
        current_call.reset(outside)
        pending.set_result(None)
    return result


def begun_earlier(key: str) -> dict[str, Any] | None:
    """Return the intent of an effect that the step began before a restore.

    Returns:
        The intent while the outcome is unknown, an empty dict if the effect has a
        result, and None if it was not begun.
    """
    item = current_item.get()
    progress = None if item is None else item.progress
    if progress is None:
        return None
    if progress.once and key in progress.once:
        return {}
    return (progress.intents or {}).get(key)


async def run_effect(
    run: Run,
    item: WorkItem,
    key: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    about: Any = None,
    repeat: bool = False,
) -> Any:
    """Call ``fn`` as in ``run_once``, for an effect that must not be repeated silently.

    Raises:
        UnknownOutcomeError: An earlier process began the call, and its outcome is unknown.
    """
    intents, times = item.make_progress().intents, 0
    if intents is not None and key in intents:
        times = intents[key].get("times", 1)
        waits = any(waiter.key.endswith(f"@{key}") for waiter in run.state.waiters.of(item))
        # A call with a wait inside begins again by contract.
        if not (repeat or waits):
            raise UnknownOutcomeError(
                f"It is unknown whether {key!r} of step {item.spec.name} happened: its process or lease has ended",
                times,
            )
        del intents[key]
    intent = {"about": about} if not times else {"about": about, "times": times + 1}
    return await run_once(run, item, key, fn, args, intent)


async def send_to(run: Run, item: WorkItem, run_id: str, event: Event, step: str | None) -> bool:
    """Send an event to another run, once for this delivery; see ``Context.send_to``."""
    if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"send_to() takes an event, not {event!r}")
    progress = item.make_progress()
    name = name_of_call(item, "send", "")
    attempt = item.failures.count if item.failures is not None else 0
    about = {"to": run_id, "event": type(event).__name__, "step": step}
    content = hashlib.sha256(repr((run_id, step, event)).encode(errors="surrogatepass")).hexdigest()[:16]
    sent = (progress.once or {}).get(name)
    if isinstance(sent, list) and attempt != sent[0] and content != sent[1]:
        name = f"{name} of attempt {attempt}"  # a repeated attempt that sends another event

    async def deliver() -> list[Any]:
        return [attempt, content, await _deliver(run, run_id, event, step, f"{run.path}:{item.id} {name}")]

    found: list[Any] = await run_effect(run, item, name, deliver, (), about=about, repeat=True)
    return found[2]


async def _deliver(run: Run, run_id: str, event: Event, step: str | None, name: str) -> bool:
    options = run.root.workflow.__batonflow__
    if options.keeper is not None:
        key = hashlib.sha256(f"{run.root.state.run_id} {name}".encode(errors="surrogatepass")).hexdigest()[:32]
        return await options.keeper.send(run.workflow, run_id, event, f"sent {key}", step)
    target = options.runtime.find(run_id)
    if target is None or target.ending.over:
        raise StoreError(
            f"There is no live run {run_id!r} in this process, or it is over. Give the workflows a store to reach runs "
            "of other processes"
        )
    target.send_from(event, step, None, inside=False)
    return True
