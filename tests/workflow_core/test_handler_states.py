"""The states of a handler x its methods: each cell says what a caller meets, and no cell hangs.

``waits`` stands for a method that goes on when the run does; ``end`` for an iteration that ends with the run.
"""

import asyncio
import importlib.util
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from batonflow.agents import ApprovalRequired, ToolCall
from batonflow.durable import connection as desk_module
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    step,
)
from tests.workflow_core.flows import until


class Progress(Event):
    pass


class Desk(Workflow):
    """Does as it is told: works, asks, ends or fails."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Progress())
        if ev.does == "work":
            await asyncio.Event().wait()
        if ev.does == "ask":
            await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="?"), timeout=None)
        if ev.does == "fail":
            raise LookupError("not there")
        return StopEvent(result="done")


def desk(store: MemoryStore | None = None, **options: Any) -> Desk:
    return Desk(timeout=None, store=store, **options)


async def over(handler: WorkflowHandler) -> WorkflowHandler:
    await asyncio.wait({asyncio.ensure_future(handler.stop_event_result())})
    assert handler.is_done()
    return handler


async def until_waiting(handler: WorkflowHandler) -> WorkflowHandler:
    await until(lambda: handler.is_waiting and handler.open_inputs())
    return handler


# --- states: each gives a handler -------------------------------------------------------------------------------------


async def working(store: MemoryStore | None) -> WorkflowHandler:
    handler = desk(store).run(run_id="r", does="work")
    await until(lambda: handler._run.stream.events)
    return handler


async def waiting(store: MemoryStore | None) -> WorkflowHandler:
    return await until_waiting(desk(store).run(run_id="r", does="ask"))


async def finished(store: MemoryStore | None) -> WorkflowHandler:
    return await over(desk(store).run(run_id="r", does="end"))


async def failed(store: MemoryStore | None) -> WorkflowHandler:
    return await over(desk(store).run(run_id="r", does="fail"))


async def cancelled(store: MemoryStore | None) -> WorkflowHandler:
    handler = await waiting(store)
    await handler.cancel_run()
    return handler


async def queued(store: MemoryStore | None) -> WorkflowHandler:
    flow = desk(store, num_concurrent_runs=1)
    first = flow.run(run_id="first", does="work")
    await until(lambda: first._run.stream.events)
    OTHERS.append(first)
    handler = flow.run(run_id="r", does="end")
    await handler.started()
    return handler


async def asleep(store: MemoryStore | None) -> WorkflowHandler:
    handler = desk(store, idle_release=0).run(run_id="r", does="ask")
    await until(lambda: handler.is_released)
    return handler


async def interrupted(store: MemoryStore | None) -> WorkflowHandler:
    handler = await waiting(store)
    await handler.interrupt()
    return handler


async def finished_before(store: MemoryStore | None) -> WorkflowHandler:
    await finished(store)
    handler = desk(store).run(run_id="r", does="end")
    await handler.started()
    return handler


async def finished_before_and_not_looked_at(store: MemoryStore | None) -> WorkflowHandler:
    await finished(store)
    return desk(store).run(run_id="r", does="end")


async def failed_before(store: MemoryStore | None) -> WorkflowHandler:
    await failed(store)
    handler = desk(store).run(run_id="r", does="fail")
    await handler.started()
    return handler


async def cancelled_before(store: MemoryStore | None) -> WorkflowHandler:
    await cancelled(store)
    handler = desk(store).run(run_id="r", does="ask")
    await handler.started()
    return handler


async def resumed(store: MemoryStore | None) -> WorkflowHandler:
    await interrupted(store)
    return await until_waiting(desk(store).resume("r"))


async def refused(store: MemoryStore | None) -> WorkflowHandler:
    await finished(store)
    return await over(desk(store).run(run_id="r", does="work"))


async def driven_elsewhere(store: MemoryStore | None) -> WorkflowHandler:
    OTHERS.append(await waiting(store))
    return await over(desk(MemoryStore(beside=store)).run(run_id="r", does="ask"))


async def unknown(store: MemoryStore | None) -> WorkflowHandler:
    return await over(desk(store).resume("r"))


@contextmanager
def unseen_here(store: MemoryStore) -> Iterator[None]:
    """Keep the runs here from seeing the store meanwhile, and until the test has called a method."""
    seen, look = asyncio.Event(), store.info

    async def look_later(run_id: str) -> Any:
        await seen.wait()
        return await look(run_id)

    store.info = look_later
    yield
    store.info = look
    # The method is called in the next turn of the loop, and this comes behind it however late it is.
    asyncio.get_running_loop().call_later(0.01, seen.set)


async def asleep_here_and_finished_elsewhere(store: MemoryStore | None) -> WorkflowHandler:
    assert store is not None
    handler = await asleep(store)
    with unseen_here(store):
        other = await until_waiting(desk(MemoryStore(beside=store)).resume("r"))
        other.ctx.send_event(HumanResponseEvent())
        await other
    return handler


async def asleep_here_and_cancelled_elsewhere(store: MemoryStore | None) -> WorkflowHandler:
    assert store is not None
    handler = await asleep(store)
    with unseen_here(store):
        other = await until_waiting(desk(MemoryStore(beside=store)).resume("r"))
        await other.cancel_run()
    return handler


OTHERS: list[WorkflowHandler] = []


# --- methods: each tells what came of it ------------------------------------------------------------------------------


async def awaiting(handler: WorkflowHandler) -> Any:
    return await handler


async def stop_event(handler: WorkflowHandler) -> Any:
    return type(await handler.stop_event_result()).__name__


async def sending(handler: WorkflowHandler) -> Any:
    await handler.send_event(HumanResponseEvent())
    return "sent"


async def streaming(handler: WorkflowHandler) -> Any:
    return [type(event).__name__ async for event in handler.stream_events()]


async def subscribing(handler: WorkflowHandler) -> Any:
    return [type(item.event).__name__ async for item in handler.subscribe()]


async def inputs(handler: WorkflowHandler) -> Any:
    return [request.event.prefix async for request in handler.inputs()]


async def cancelling(handler: WorkflowHandler) -> Any:
    return await handler.cancel_run()


async def interrupting(handler: WorkflowHandler) -> Any:
    return await handler.interrupt()


async def starting(handler: WorkflowHandler) -> Any:
    return await handler.started()


METHODS: dict[str, Callable[[WorkflowHandler], Awaitable[Any]]] = {
    "await": awaiting,
    "stop_event_result": stop_event,
    "started": starting,
    "send_event": sending,
    "stream_events": streaming,
    "subscribe": subscribing,
    "inputs": inputs,
    "cancel_run": cancelling,
    "interrupt": interrupting,
}


async def outcome(handler: WorkflowHandler, method: str, expected: Any) -> Any:
    """What a method gives or raises; ``waits`` when it was expected to wait and does."""
    task = asyncio.ensure_future(METHODS[method](handler))
    done, _ = await asyncio.wait({task}, timeout=0.05 if expected == "waits" else 20)
    if not done:
        task.cancel()
        await asyncio.wait({task})
        return "waits"
    error = task.exception()
    return task.result() if error is None else type(error).__name__


@asynccontextmanager
async def in_state(state: Callable[[Any], Awaitable[WorkflowHandler]], stored: bool) -> AsyncIterator[WorkflowHandler]:
    store = MemoryStore() if stored else None
    handler = await state(store)
    try:
        yield handler
    finally:
        for one in (handler, *OTHERS):
            await asyncio.wait_for(one.cancel_run(), 20)
        OTHERS.clear()


# --- the table --------------------------------------------------------------------------------------------------------

GOES_ON = (
    dict.fromkeys(METHODS, "waits") | dict.fromkeys(["started", "cancel_run", "interrupt"]) | {"send_event": "sent"}
)


def ends(
    result: Any, streamed: list[str], subscribed: list[str] | None = None, event: str | None = None
) -> dict[str, Any]:
    """The row of a run that is over: its result or error, and what its readers get."""
    return {
        "await": result,
        "stop_event_result": event or result,
        "started": None,
        "send_event": "WorkflowRuntimeError",
        "stream_events": streamed,
        "subscribe": streamed if subscribed is None else subscribed,
        "inputs": [],
        "cancel_run": None,
        "interrupt": None,
    }


def never_began(error: str) -> dict[str, Any]:
    return ends(error, []) | {"started": error}


ASKED = ["Progress", "InputRequiredEvent"]
ELSEWHERE = {"send_event": "sent", "inputs": ["?"]}

IN_MEMORY: dict[Callable[[Any], Awaitable[WorkflowHandler]], dict[str, Any]] = {
    working: GOES_ON,
    waiting: GOES_ON,
    queued: GOES_ON,
    finished: ends("done", ["Progress", "StopEvent"], event="StopEvent"),
    failed: ends("LookupError", ["Progress", "WorkflowFailedEvent"]),
    cancelled: ends("WorkflowCancelledByUser", [*ASKED, "WorkflowCancelledEvent"]),
}

STORED: dict[Callable[[Any], Awaitable[WorkflowHandler]], dict[str, Any]] = {
    **IN_MEMORY,
    asleep: GOES_ON,
    resumed: GOES_ON,
    interrupted: ends("RunInterruptedError", ASKED),
    finished_before: ends("done", ["StopEvent"], ["Progress", "StopEvent"], event="StopEvent"),
    finished_before_and_not_looked_at: ends("done", ["StopEvent"], ["Progress", "StopEvent"], event="StopEvent"),
    failed_before: ends("LookupError", ["WorkflowFailedEvent"], ["Progress", "WorkflowFailedEvent"]),
    cancelled_before: ends("WorkflowCancelledByUser", ["WorkflowCancelledEvent"], [*ASKED, "WorkflowCancelledEvent"]),
    refused: never_began("RunInputMismatchError"),
    driven_elsewhere: never_began("RunInUseError"),
    unknown: never_began("StoreError"),
    asleep_here_and_finished_elsewhere: ends("done", [*ASKED, "StopEvent"], event="StopEvent") | ELSEWHERE,
    asleep_here_and_cancelled_elsewhere: ends("WorkflowCancelledByUser", [*ASKED, "WorkflowCancelledEvent"])
    | ELSEWHERE,
}

CELLS = [
    pytest.param(state, stored, method, expected[method], id=f"{state.__name__}-{stored}-{method}")
    for stored, table in (("memory", IN_MEMORY), ("store", STORED))
    for state, expected in table.items()
    for method in METHODS
]


@pytest.mark.parametrize(("state", "stored", "method", "expected"), CELLS)
async def test_each_method_in_each_state(
    state: Callable[[Any], Awaitable[WorkflowHandler]],
    stored: str,
    method: str,
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk_module, "SECONDS_BETWEEN_LOOKS", 0.01)
    async with in_state(state, stored == "store") as handler:
        assert await outcome(handler, method, expected) == expected


@pytest.mark.parametrize(
    ("state", "is_done", "is_waiting", "is_released", "stopped_by"),
    [
        (working, False, False, False, None),
        (waiting, False, True, False, None),
        (asleep, False, True, True, None),
        (finished, True, False, False, None),
        (failed, True, False, False, "LookupError"),
        (cancelled, True, False, False, "WorkflowCancelledByUser"),
        (interrupted, True, False, False, "RunInterruptedError"),
        (finished_before, True, False, False, None),
        (failed_before, True, False, False, "LookupError"),
        (refused, True, False, False, "RunInputMismatchError"),
    ],
)
async def test_the_properties_in_each_state(
    state: Callable[[Any], Awaitable[WorkflowHandler]],
    is_done: bool,
    is_waiting: bool,
    is_released: bool,
    stopped_by: str | None,
) -> None:
    async with in_state(state, stored=True) as handler:
        assert (handler.is_done(), handler.is_waiting, handler.is_released) == (is_done, is_waiting, is_released)
        assert (handler.get_stop_event() is not None) is is_done
        assert (None if handler.stopped_by is None else type(handler.stopped_by).__name__) == stopped_by
        assert handler.run_id == "r"
        assert "run_id=r" in str(handler)
        assert isinstance(handler.ctx.to_dict(), dict)
        assert len(handler.open_inputs()) == (state in (waiting, asleep))


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="eager tasks came with Python 3.12")
async def test_eager_tasks_say_of_no_awaited_run_that_it_was_not_awaited(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
    try:
        with pytest.raises(LookupError):
            await desk().run(does="fail")
    finally:
        asyncio.get_running_loop().set_task_factory(None)
    assert "awaited" not in caplog.text


class TestAfterAKill:
    PROGRAM = """
        import asyncio, sys
        from batonflow import FunctionAgent, ScriptedLLM, tool
        from batonflow.llms import tool_call

        @tool(requires_approval=True)
        def publish(title: str) -> str:
            "Publish."
            return f"published {title}"

        agent = FunctionAgent(
            name="writer", tools=[publish], store=sys.argv[1], timeout=None,
            llm=ScriptedLLM([[tool_call("publish", title="tides"), tool_call("publish", title="moons")], "Done."]),
        )

        async def main():
            async for event in agent.run("Write.", run_id="w").stream_events():
                print(type(event).__name__, flush=True)

        if __name__ == "__main__":
            asyncio.run(main())
    """

    def agent_in(self, source: Path, store: str) -> Any:
        spec = importlib.util.spec_from_file_location("writer", source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["writer.py", store])
            spec.loader.exec_module(module)
        return module.agent

    async def test_a_reader_sees_what_was_streamed_and_the_open_questions(self, tmp_path: Path) -> None:
        source, store = tmp_path / "writer.py", str(tmp_path / "runs.db")
        source.write_text(textwrap.dedent(self.PROGRAM))
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(source), store, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        before: list[str] = []
        while before.count("ApprovalRequired") < 2:
            before.append((await process.stdout.readline()).decode().strip())
        agent = self.agent_in(source, store)
        while len(await agent.open_inputs("w")) < 2:  # noqa: ASYNC110 - until the store of the other process has them
            await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
        handler = agent.resume("w")
        told: list[Any] = []
        async for item in handler.subscribe():
            told.append(item.event)
            if sum(isinstance(event, ApprovalRequired) for event in told) == 4:
                break
        names = [type(event).__name__ for event in told]
        asked = ["ToolCall", "ApprovalRequired", "ToolCall", "ApprovalRequired"]
        assert [name for name in names if name in asked] == [*asked, "ApprovalRequired", "ApprovalRequired"]
        questions = [event for event in told if isinstance(event, ApprovalRequired)]
        assert questions[:2] == questions[2:]
        calls = {event.tool_id: event.tool_kwargs for event in told if isinstance(event, ToolCall)}
        assert len(calls) == 2
        assert all(calls[question.tool_id] == question.arguments for question in questions)

        again = handler.stream_events()  # one reader of the live part meets the open questions too
        for question in questions[:2]:
            event = await anext(again)
            while not isinstance(event, ApprovalRequired):
                event = await anext(again)
            assert event == question
        await handler.cancel_run()  # the model of this process would begin its script anew
