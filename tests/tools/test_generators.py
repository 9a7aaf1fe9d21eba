"""Generators as tools: what they yield is reported while they work, what they return is the result."""

import asyncio
import contextvars
import functools
import sqlite3
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from batonflow.testing import run_virtual
from batonflow.tools import FunctionTool, ToolOutput, ToolTimeoutError, run_tool, tool
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none


@tool
def index(files: int) -> Generator[str, None, str]:
    """Index files."""
    for number in range(1, files + 1):
        yield f"file {number}"
    return f"{files} files indexed"


@tool
async def aindex(files: int) -> AsyncIterator[str]:
    """Index files."""
    for number in range(1, files + 1):
        yield f"file {number}"
    yield f"{files} files indexed"


class TestResult:
    async def test_a_synchronous_generator_s_is_what_it_returns(self) -> None:
        assert (await run_tool(index, {"files": 2})).content == "2 files indexed"

    async def test_else_what_it_yielded_last(self) -> None:
        @tool
        def count() -> Iterator[int]:
            yield 1
            yield 2

        output = await run_tool(count, {})
        assert (output.content, output.raw_output) == ("2", 2)

    async def test_an_asynchronous_one_s_is_what_it_yielded_last(self) -> None:
        assert (await run_tool(aindex, {"files": 2})).content == "2 files indexed"

    async def test_one_that_says_nothing_gives_none(self) -> None:
        @tool
        def silent() -> Iterator[int]:
            yield from ()

        assert (await run_tool(silent, {})).raw_output is None

    async def test_it_may_be_an_output(self) -> None:
        @tool
        def shut() -> Generator[str, None, ToolOutput]:
            yield "knocking"
            return ToolOutput(tool_name="shut", content="nobody there", is_error=True)

        output = await run_tool(shut, {})
        assert (output.content, output.is_error) == ("nobody there", True)

    async def test_by_hand_the_progress_is_dropped(self) -> None:
        for made in (index, aindex):
            assert made.call(files=1).content == "1 files indexed"
            assert (await made.acall(1)).content == "1 files indexed"

    async def test_callbacks_get_the_result(self) -> None:
        made = FunctionTool.from_defaults(index.real_fn, callback=lambda value: f"<{value}>")
        assert made.call(files=1).content == "<1 files indexed>"
        assert (await made.acall(files=1)).content == "<1 files indexed>"

    async def test_what_only_returns_a_generator_is_one_too(self) -> None:
        @functools.wraps(index.real_fn)
        def wrapped(files: int) -> Any:
            return index.real_fn(files)

        async def returned(files: int) -> Any:
            return index.real_fn(files)

        partial = functools.partial(aindex.real_fn, files=3)
        assert (await run_tool(FunctionTool.from_defaults(wrapped), {"files": 3})).content == "3 files indexed"
        assert (await run_tool(FunctionTool.from_defaults(returned), {"files": 3})).content == "3 files indexed"
        assert (await run_tool(FunctionTool.from_defaults(partial), {})).content == "3 files indexed"

    async def test_an_asynchronous_one_beside_a_synchronous_function(self) -> None:
        def count(files: int) -> str:
            return "by the synchronous one"

        both = FunctionTool.from_defaults(count, async_fn=aindex.real_fn)
        assert both.call(files=1).content == "by the synchronous one"
        assert (await both.acall(files=1)).content == "1 files indexed"
        only = FunctionTool.from_defaults(async_fn=aindex.real_fn)
        assert only.call(files=1).content == "1 files indexed"
        assert (await only.acall(files=1)).content == "1 files indexed"


class TestReport:
    @pytest.mark.parametrize("made", [index, aindex], ids=["sync", "async"])
    async def test_everything_is_reported_in_order_before_the_result(self, made: FunctionTool) -> None:
        heard: list[Any] = []
        output = await run_tool(made, {"files": 3}, report=heard.append)
        assert heard[:3] == ["file 1", "file 2", "file 3"]
        assert heard[3:] == (["3 files indexed"] if made is aindex else [])
        assert output.content == "3 files indexed"

    @pytest.mark.parametrize("made", [index, aindex], ids=["sync", "async"])
    async def test_on_the_thread_of_the_loop(self, made: FunctionTool) -> None:
        threads: set[int] = set()
        await run_tool(made, {"files": 2}, report=lambda _: threads.add(threading.get_ident()))
        assert threads == {threading.get_ident()}

    async def test_at_once(self) -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        gate = threading.Event()

        @tool
        def step_by_step() -> Iterator[str]:
            yield "begun"
            gate.wait(30)
            yield "ended"

        task = asyncio.create_task(run_tool(step_by_step, {}, report=heard.put_nowait))
        assert await heard.get() == "begun"
        assert not task.done()
        gate.set()
        assert await heard.get() == "ended"
        assert (await task).content == "ended"

    async def test_plain_functions_report_nothing(self) -> None:
        heard: list[Any] = []
        assert (await run_tool(tool(lambda: "x"), {}, report=heard.append)).content == "x"
        assert heard == []

    def test_every_attempt_reports_from_its_beginning(self) -> None:
        heard: list[str] = []

        @tool(retry=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def download() -> AsyncIterator[str]:
            yield "connecting"
            if len(heard) < 2:
                raise ConnectionError("lost")
            yield "done"

        assert run_virtual(run_tool(download, {}, report=heard.append)).content == "done"
        assert heard == ["connecting", "connecting", "done"]

    @pytest.mark.parametrize("made", [index, aindex], ids=["sync", "async"])
    async def test_a_report_that_fails_fails_the_call(self, made: FunctionTool) -> None:
        def fail(value: Any) -> None:
            raise LookupError("nobody listens")

        output = await run_tool(made, {"files": 3}, report=fail)
        assert (output.content, output.is_error) == ("nobody listens", True)

    async def test_a_report_that_fails_closes_the_generator_before_the_call_is_over(self) -> None:
        left: list[str] = []

        @tool
        async def watch() -> AsyncIterator[str]:
            try:
                yield "watching"
            finally:
                left.append("closed")

        def fail(value: Any) -> None:
            raise LookupError("nobody listens")

        output = await run_tool(watch, {}, report=fail)
        # The exception's traceback still holds the generator: nothing but being closed ends it.
        assert (output.is_error, left) == (True, ["closed"])

    async def test_a_subclass_that_is_called_in_its_own_way_is(self) -> None:
        class Own(FunctionTool):
            async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
                return ToolOutput(tool_name="own", content=f"own {kwargs}")

        made = Own(fn=index.real_fn, metadata=index.metadata)
        assert (await run_tool(made, {"files": 1}, report=print)).content == "own {'files': 1}"


class TestThread:
    async def test_a_synchronous_one_stays_in_one_thread(self) -> None:
        @tool
        def query() -> Iterator[Any]:
            database = sqlite3.connect(":memory:")  # refuses to be used in another thread
            try:
                yield "connected"
                yield database.execute("select 41 + 1").fetchone()[0]
            finally:
                database.close()

        assert (await run_tool(query, {}, report=lambda _: None)).content == "42"

    async def test_an_asynchronous_one_needs_none(self) -> None:
        where: list[int] = []

        def body(files: int) -> int:
            where.append(threading.get_ident())
            return files

        async def abody(files: int) -> AsyncIterator[int]:
            yield body(files)

        def threaded(files: int) -> Iterator[int]:
            yield body(files)

        for function in (abody, threaded):
            await run_tool(FunctionTool.from_defaults(function, description="Index."), {"files": 1})
        assert where[0] == threading.get_ident() != where[1]

    async def test_it_has_the_caller_s_context_variables(self) -> None:
        variable = contextvars.ContextVar("variable", default="unset")
        heard: list[str] = []

        @tool
        def read() -> Iterator[str]:
            yield variable.get()

        variable.set("set")
        await run_tool(read, {}, report=lambda value: heard.append(f"{value} {variable.get()}"))
        assert heard == ["set set"]


class TestEnd:
    @pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
    async def test_an_exception_midway_is_an_error_output(self, asynchronous: bool) -> None:
        def fail() -> Iterator[str]:
            yield "half"
            raise OSError("the disk is full")

        async def afail() -> AsyncIterator[str]:
            yield "half"
            raise OSError("the disk is full")

        heard: list[str] = []
        made = FunctionTool.from_defaults(afail if asynchronous else fail)
        output = await run_tool(made, {}, report=heard.append)
        assert (output.content, output.is_error, heard) == ("the disk is full", True, ["half"])

    async def test_a_cancellation_closes_an_asynchronous_one(self) -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        left: list[str] = []

        @tool
        async def watch() -> AsyncIterator[str]:
            try:
                yield "watching"
                await asyncio.Event().wait()
            finally:
                left.append("closed")

        task = asyncio.create_task(run_tool(watch, {}, report=heard.put_nowait))
        await heard.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert left == ["closed"]

    async def test_a_cancellation_closes_a_synchronous_one_at_its_next_yield_in_its_thread(self) -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        gate, closed = threading.Event(), threading.Event()
        threads: list[int] = []

        @tool
        def watch() -> Iterator[str]:
            threads.append(threading.get_ident())
            try:
                yield "watching"
                gate.wait(30)
                yield "late"
                pytest.fail("nobody asked for more")
            finally:
                threads.append(threading.get_ident())
                closed.set()

        task = asyncio.create_task(run_tool(watch, {}, report=heard.put_nowait))
        await heard.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        assert await asyncio.to_thread(closed.wait, 30)
        assert heard.empty()
        assert threads[0] == threads[1]

    async def test_after_a_timeout_nothing_more_is_reported(self) -> None:
        heard: list[str] = []
        gate, closed = threading.Event(), threading.Event()

        @tool(timeout=1)  # long enough for a thread to begin on a busy machine
        def watch() -> Iterator[str]:
            try:
                gate.wait(30)
                yield "late"
            finally:
                closed.set()

        output = await run_tool(watch, {}, report=heard.append)
        assert isinstance(output.exception, ToolTimeoutError)
        gate.set()
        assert await asyncio.to_thread(closed.wait, 30)
        await asyncio.sleep(0)
        assert heard == []

    def test_the_time_limit_holds_for_the_whole(self) -> None:
        heard: list[int] = []

        @tool(timeout=10)
        async def drip() -> AsyncIterator[int]:
            for second in range(60):
                yield second
                await asyncio.sleep(1)

        output = run_virtual(run_tool(drip, {}, report=heard.append))
        assert isinstance(output.exception, ToolTimeoutError)
        assert heard == list(range(10))
