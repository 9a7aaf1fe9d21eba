"""Synchronous steps, tools, memories and nested synchronous calls, each in a thread or on a loop of its own."""

import asyncio
import contextvars
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from batonflow import (
    Context,
    Event,
    FunctionAgent,
    ScriptedLLM,
    StartEvent,
    StopEvent,
    Workflow,
    bridge,
    step,
    threads,
    tool,
)
from batonflow.agents.memory import BaseMemory
from batonflow.llms import ChatMessage, ToolCallBlock
from batonflow.threads import abandoned_threads, in_thread
from batonflow.tools import FunctionTool, run_tool
from batonflow.workflow_core.errors import ContextStateError, StepTimeoutError


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """An event that lets every hanging call of a test end with the test."""
    event = threading.Event()
    yield event
    event.set()
    for _ in range(500):
        if not abandoned_threads():
            return
        time.sleep(0.01)
    pytest.fail(f"threads of the test go on: {abandoned_threads()}")


class Part(Event):
    number: int


class Counted(Event):
    pass


class TestInThread:
    async def test_it_gives_the_result_and_raises_what_the_function_raises(self) -> None:
        assert await in_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await in_thread(divmod, 7, 0)

    async def test_it_has_the_context_variables_of_the_caller_and_keeps_its_own_changes(self) -> None:
        variable = contextvars.ContextVar("variable", default="unset")
        variable.set("caller")

        def body() -> str:
            found = variable.get()
            variable.set("body")
            return found

        assert (await in_thread(body), variable.get()) == ("caller", "caller")

    async def test_stop_iteration_arrives_as_an_error(self) -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await in_thread(next, iter(()))

    async def test_calls_one_after_another_share_a_thread(self) -> None:
        assert len({await in_thread(threading.get_ident) for _ in range(20)}) == 1

    async def test_a_thread_is_a_daemon_and_no_thread_of_the_default_pool_is_used(self) -> None:
        class Refusing(ThreadPoolExecutor):
            def submit(self, *args: Any, **kwargs: Any) -> Any:
                raise AssertionError("the default pool was used")

        asyncio.get_running_loop().set_default_executor(Refusing())
        assert (await in_thread(threading.current_thread)).daemon

    async def test_an_idle_thread_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads, "SECONDS_IDLE", 0.01)
        threads._threads.forget()
        used = await in_thread(threading.current_thread)
        await asyncio.to_thread(used.join, 10)
        assert not used.is_alive()
        assert await in_thread(threading.current_thread) is not used

    async def test_an_abandoned_call_is_counted_and_logged_by_its_name(
        self, release: threading.Event, caplog: pytest.LogCaptureFixture
    ) -> None:
        def hang() -> None:
            release.wait(30)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await in_thread(hang)
        (name,) = abandoned_threads()
        assert name.endswith("hang")
        assert abandoned_threads() == {name: 1}
        assert "hang goes on in its thread" in caplog.text
        release.set()

    async def test_an_abandoned_call_of_a_step_names_its_workflow_and_run(
        self, release: threading.Event, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Flow(Workflow):
            @step(timeout=0.5)  # the thread has begun by then
            def wait(self, ev: StartEvent) -> StopEvent:
                release.wait(30)
                return StopEvent()

        with pytest.raises(StepTimeoutError):
            await Flow(workflow_name="tides").run(run_id="r-1")
        assert "Step wait goes on in its thread although its caller (workflow tides, run r-1) has" in caplog.text
        release.set()

    async def test_a_system_without_threads_left_is_told_by_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        threads._threads.forget()
        monkeypatch.setattr(threads._Worker, "start", refuse)
        with pytest.raises(RuntimeError, match=r"No thread could be started .* Lower num_workers"):
            await in_thread(int)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
    def test_a_forked_process_begins_without_threads(self) -> None:
        program = """
            import asyncio, os
            from batonflow import StartEvent, StopEvent, Workflow, step

            class Plain(Workflow):
                @step
                def go(self, ev: StartEvent) -> StopEvent:
                    return StopEvent(result="done")

            assert Plain().run_sync() == "done"
            child = os.fork()
            os.write(1, Plain().run_sync().encode() + b"\\n")
            if child:
                os.waitpid(child, 0)
        """
        assert run_program(program) == "done\ndone\n"


def run_program(program: str, *, cpus: int | None = None) -> str:
    if cpus is not None and hasattr(os, "sched_setaffinity"):
        program = f"import os\nos.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{cpus}])\n" + textwrap.dedent(
            program
        )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


class TestHangingWork:
    async def test_hanging_tools_that_are_given_up_hold_up_nothing_else(self, release: threading.Event) -> None:
        @tool(timeout=0.5)  # enough for every thread to begin, also on a busy machine
        def hang() -> str:
            """Hang."""
            release.wait(30)
            return "late"

        count = (os.cpu_count() or 1) + 8  # more than the default pool has
        outputs = await asyncio.gather(*(run_tool(hang, {}) for _ in range(count)))
        assert all(output.is_error for output in outputs)
        assert sum(abandoned_threads().values()) == count

        @tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        assert (await run_tool(add, {"a": 1, "b": 2})).content == "3"
        assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)

    async def test_a_late_thread_of_a_timed_out_step_cannot_write_the_state(self, release: threading.Event) -> None:
        refused: list[BaseException] = []
        tried = threading.Event()

        class Late(Workflow):
            @step(timeout=0.5)  # time enough for the first write on a busy machine
            def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
                store = ctx.store
                store.set_sync("early", 1)
                release.wait(30)
                try:
                    store.set_sync("late", 1)
                except ContextStateError as error:
                    refused.append(error)
                tried.set()
                return StopEvent()

        handler = Late().run()
        with pytest.raises(StepTimeoutError):
            await handler
        release.set()
        assert await asyncio.to_thread(tried.wait, 10)
        assert "attempt of this step is over" in str(refused[0])
        assert (await handler.ctx.store.get_state()).to_dict() == {"early": 1}


class TestNumbers:
    async def test_steps_do_not_time_out_while_they_wait_for_a_thread(self) -> None:
        class Fan(Workflow):
            @step
            async def split(self, ev: StartEvent) -> list[Part]:
                return [Part(number=number) for number in range(40)]

            @step(timeout=5, num_workers=40)
            def work(self, ev: Part) -> Part | StopEvent:
                barrier.wait(4)
                return StopEvent(result="all at once")

        barrier = threading.Barrier(40)
        assert await Fan().run() == "all at once"

    @pytest.mark.parametrize("workers", [1, 3])
    async def test_num_workers_is_kept(self, workers: int) -> None:
        now, most, guard = 0, 0, threading.Lock()

        class Fan(Workflow):
            @step
            async def split(self, ev: StartEvent) -> list[Part]:
                return [Part(number=number) for number in range(12)]

            @step(num_workers=workers)
            def work(self, ev: Part) -> Counted:
                nonlocal now, most
                with guard:
                    now += 1
                    most = max(most, now)
                time.sleep(0.01)
                with guard:
                    now -= 1
                return Counted()

            @step
            async def join(self, ev: list[Counted]) -> StopEvent:
                return StopEvent(result=len(ev))

        assert await Fan().run() == 12
        assert most == workers


class TestBackgroundLoop:
    @pytest.mark.parametrize("way", ["sys.exit(3)", "raise KeyboardInterrupt"])
    def test_an_exit_in_a_task_of_a_step_ends_its_run_alone(self, way: str) -> None:
        class Exits(Workflow):
            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                async def leave() -> None:
                    exec(way, {"sys": sys})

                await asyncio.create_task(leave())
                return StopEvent()

        class Plain(Workflow):
            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                return StopEvent(result="still here")

        with pytest.raises((SystemExit, KeyboardInterrupt)):
            Exits().run_sync()
        assert Plain().run_sync() == "still here"

    def test_a_stopped_loop_goes_on(self) -> None:
        class Stops(Workflow):
            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                asyncio.get_running_loop().stop()
                await asyncio.sleep(0)
                return StopEvent(result="went on")

        assert Stops().run_sync() == "went on"

    def test_a_caller_learns_of_a_dead_loop(self) -> None:
        program = """
            import asyncio, ctypes, threading
            from batonflow import StartEvent, StopEvent, Workflow, step

            class Dies(Workflow):
                @step
                async def go(self, ev: StartEvent) -> StopEvent:
                    def kill():
                        raise OSError("the loop dies")
                    asyncio.get_running_loop()._run_once = kill
                    await asyncio.sleep(60)
                    return StopEvent()

            class Plain(Workflow):
                @step
                async def go(self, ev: StartEvent) -> StopEvent:
                    return StopEvent(result="another loop")

            threading.excepthook = lambda args: None
            try:
                Dies().run_sync()
            except RuntimeError as error:
                print(error)
            print(Plain().run_sync())
        """
        assert run_program(program) == "The background event loop of run_sync() has ended\nanother loop\n"


class Outer(Workflow):
    """A synchronous step that runs a workflow, which runs an agent, whose tool runs a workflow."""

    @step
    def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.store.set_sync("seen", ev.number)
        found = Middle(timeout=None).run_sync(number=ev.number)
        return StopEvent(result=(ctx.store.get_sync("seen"), found))


class Middle(Workflow):
    @step
    async def go(self, ev: StartEvent) -> Part:
        return Part(number=ev.number)

    @step
    def ask(self, ev: Part) -> StopEvent:
        call = ToolCallBlock(tool_call_id="1", tool_name="double", tool_kwargs={"number": ev.number})
        agent = FunctionAgent(llm=ScriptedLLM([call, f"twice {ev.number}"]), tools=[double], timeout=None)
        return StopEvent(result=str(agent.run_sync("Double it.", memory=Notes())))


class Inner(Workflow):
    @step
    def go(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=2 * ev.number)


@tool
def double(number: int) -> int:
    """Double a number."""
    return Inner(timeout=None).run_sync(number=number)


class Notes(BaseMemory):
    """A memory with synchronous methods only."""

    messages: list[ChatMessage] = []

    @classmethod
    def from_defaults(cls, **kwargs: Any) -> "Notes":
        return cls()

    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002 - the contract's name
        return list(self.messages)

    def get_all(self) -> list[ChatMessage]:
        return list(self.messages)

    def put(self, message: ChatMessage) -> None:
        self.messages.append(message)

    def set(self, messages: list[ChatMessage]) -> None:
        self.messages = list(messages)

    def reset(self) -> None:
        self.messages = []


class TestEverythingNested:
    @pytest.mark.parametrize("count", [1, 8, 64])
    def test_from_threads(self, count: int) -> None:
        with ThreadPoolExecutor(count) as pool:
            found = list(pool.map(lambda number: Outer(timeout=None).run_sync(number=number), range(count)))
        assert found == [(number, f"twice {number}") for number in range(count)]

    @pytest.mark.parametrize("count", [1, 8, 64])
    async def test_on_one_loop(self, count: int) -> None:
        flow = Outer(timeout=None)
        found = await asyncio.gather(*(flow.run(number=number) for number in range(count)))
        assert found == [(number, f"twice {number}") for number in range(count)]

    @pytest.mark.parametrize("count", [1, 8, 64])
    def test_on_one_processor(self, count: int) -> None:
        program = f"""
            from concurrent.futures import ThreadPoolExecutor
            from tests.workflow_core.test_threads import Outer

            with ThreadPoolExecutor({count}) as pool:
                found = list(pool.map(lambda number: Outer(timeout=None).run_sync(number=number), range({count})))
            assert found == [(number, f"twice {{number}}") for number in range({count})], found
            print("all")
        """
        assert run_program(program, cpus=1) == "all\n"

    def test_an_asynchronous_step_may_block_its_loop_with_run_sync(self) -> None:
        class Blocks(Workflow):
            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                return StopEvent(result=Outer(timeout=None).run_sync(number=ev.number))

        assert Blocks().run_sync(number=4) == (4, "twice 4")
        assert asyncio.run(_awaited(lambda: Blocks().run(number=5))) == (5, "twice 5")

    def test_calls_one_after_another_share_a_loop(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            found = list(pool.map(lambda number: Where(timeout=None).run_sync(number=number), range(8)))
        assert len(set(found)) == 1

    def test_many_calls_at_a_time_share_a_bounded_number_of_loops(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bridge, "LOOPS_PER_DEPTH", 2)
        monkeypatch.setattr(bridge, "_loops", bridge._Loops())
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda number: Outer(timeout=None).run_sync(number=number), range(32)))
        assert found == [(number, f"twice {number}") for number in range(32)]
        assert len(list(bridge._loops)) <= 2 * 4

    def test_a_step_that_blocks_its_loop_holds_up_no_other_call(self) -> None:
        class Blocks(Workflow):
            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                with ThreadPoolExecutor(4) as pool:  # plain threads, which the step waits for on its loop
                    found = pool.map(lambda number: Inner(timeout=None).run_sync(number=number), range(4))
                    return StopEvent(result=list(found))

        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(Blocks(timeout=None).run_sync) for _ in range(4)]
            assert [call.result(30) for call in calls] == [[0, 2, 4, 6]] * 4

    def test_run_sync_of_an_attached_workflow_learns_of_the_end_of_its_loop(self) -> None:
        loop = asyncio.new_event_loop()
        loop.close()
        with pytest.raises(RuntimeError, match="the run has ended"):
            bridge.run_on_background_loop(lambda: asyncio.sleep(0), loop=loop)


class Where(Workflow):
    """Tells the thread of its loop."""

    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=threading.get_ident())


async def _awaited(start: Callable[[], Any]) -> Any:
    return await start()


class TestStateFromThreads:
    async def test_synchronous_steps_edit_the_state_in_turn(self) -> None:
        class Counts(Workflow):
            @step
            async def split(self, ctx: Context, ev: StartEvent) -> list[Part]:
                await ctx.store.set("count", 0)
                return [Part(number=number) for number in range(50)]

            @step(num_workers=8)
            def count(self, ctx: Context, ev: Part) -> Counted:
                with ctx.store.edit_state_sync() as state:
                    seen = state.count
                    time.sleep(0.0005)
                    state.count = seen + 1
                return Counted()

            @step
            async def join(self, ctx: Context, ev: list[Counted]) -> StopEvent:
                return StopEvent(result=await ctx.store.get("count"))

        assert await Counts().run() == 50

    async def test_blocks_of_loops_in_threads_exclude_one_another(self) -> None:
        async def add(ctx: Context) -> None:
            async with ctx.store.edit_state() as state:
                seen = state.get("count", 0)
                await asyncio.sleep(0.0005)
                state["count"] = seen + 1

        class Counts(Workflow):
            @step
            async def split(self, ev: StartEvent) -> list[Part]:
                return [Part(number=number) for number in range(30)]

            @step(num_workers=6)
            def count(self, ctx: Context, ev: Part) -> Counted:
                if ev.number % 2:
                    asyncio.run(add(ctx))  # a loop of its own, as programs do where nothing else is offered
                else:
                    with ctx.store.edit_state_sync() as state:
                        state["count"] = state.get("count", 0) + 1
                return Counted()

            @step
            async def join(self, ctx: Context, ev: list[Counted]) -> StopEvent:
                return StopEvent(result=await ctx.store.get("count"))

        assert await asyncio.wait_for(Counts().run(), 30) == 30

    @pytest.mark.parametrize("stored", [False, True])
    async def test_every_method_has_a_synchronous_form(self, tmp_path: Any, stored: bool) -> None:
        found: list[Any] = []

        class Uses(Workflow):
            @step
            def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
                store = ctx.store
                store.set_sync("user.name", "Ann")
                found.append(store.get_sync("user.name"))
                found.append(store.get_sync("user.age", 7))
                state = store.get_state_sync()
                state["extra"] = 1
                store.set_state_sync(state)
                found.append(store.get_state_sync().to_dict())
                store.clear_sync()
                found.append(store.get_state_sync().to_dict())
                with store.edit_state_sync() as draft:
                    draft["left"] = True
                    with pytest.raises(RuntimeError, match="edit_state"):
                        store.set_sync("other", 1)
                    with pytest.raises(RuntimeError, match="edit_state"), store.edit_state_sync():
                        pass
                return StopEvent(result=store.get_sync("left"))

        workflow = Uses(store=str(tmp_path / "runs.db") if stored else None)
        handler = workflow.run(run_id="r1")
        assert await handler is True
        assert found == ["Ann", 7, {"user": {"name": "Ann"}, "extra": 1}, {}]
        assert handler.ctx.store.get_sync("left") is True

    async def test_writes_on_the_loop_and_in_threads_do_not_wait_for_each_other(self) -> None:
        class Both(Workflow):
            @step
            async def split(self, ev: StartEvent) -> list[Part]:
                return [Part(number=number) for number in range(4)]

            @step(num_workers=4)
            def threaded(self, ctx: Context, ev: Part) -> Counted:
                for number in range(200):
                    ctx.store.set_sync("threaded", number)
                return Counted()

            @step(num_workers=4)
            async def looped(self, ctx: Context, ev: Part) -> Counted:
                for number in range(200):
                    ctx.store.set_sync("looped", number)
                    await asyncio.sleep(0)
                return Counted()

            @step
            async def join(self, ev: list[Counted]) -> StopEvent:
                return StopEvent(result=len(ev))

        assert await asyncio.wait_for(Both(timeout=None).run(), 30) == 8

    def test_runs_on_two_loops_write_the_state_of_each_other(self) -> None:
        contexts: dict[int, Context] = {}
        both = threading.Barrier(2)

        class Writes(Workflow):
            @step
            async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
                contexts[ev.number] = ctx
                await asyncio.to_thread(both.wait, 30)
                for number in range(200):
                    await contexts[1 - ev.number].store.set("other", number)
                await asyncio.to_thread(both.wait, 30)
                return StopEvent(result=await ctx.store.get("other"))

        with ThreadPoolExecutor(2) as pool:
            found = pool.map(lambda number: asyncio.run(_awaited(lambda: Writes().run(number=number))), range(2))
            assert list(found) == [199, 199]

    async def test_a_failing_block_changes_nothing_and_frees_the_state(self) -> None:
        class Fails(Workflow):
            @step
            def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
                ctx.store.set_sync("count", 1)
                with pytest.raises(ZeroDivisionError), ctx.store.edit_state_sync() as state:
                    state.count = 1 / 0
                ctx.store.set_sync("after", 2)
                return StopEvent(result=ctx.store.get_state_sync().to_dict())

        assert await Fails().run() == {"count": 1, "after": 2}

    async def test_a_synchronous_write_on_the_loop_of_an_open_edit_names_the_remedy(self) -> None:
        opened, leave = asyncio.Event(), asyncio.Event()

        class Edits(Workflow):
            @step
            async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
                async with ctx.store.edit_state() as state:
                    state["a"] = 1
                    opened.set()
                    await leave.wait()
                return StopEvent()

        handler = Edits().run()
        await opened.wait()
        with pytest.raises(RuntimeError, match="await the asynchronous method"):
            handler.ctx.store.set_sync("b", 1)
        leave.set()
        await handler
        handler.ctx.store.set_sync("b", 1)
        assert handler.ctx.store.get_state_sync().to_dict() == {"a": 1, "b": 1}

    async def test_a_cancelled_wait_for_the_state_passes_the_turn_on(self) -> None:
        from batonflow.workflow_core.context.state_store import DictState, InMemoryStateStore

        store = InMemoryStateStore(DictState())

        async def add() -> None:
            async with store.edit_state() as state:
                await asyncio.sleep(0)
                state["count"] = state.get("count", 0) + 1

        async with store.edit_state():
            waiting = [asyncio.create_task(add()) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
        waiting[1].cancel()  # its turn may have come
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.wait_for(store.set("after", 1), 30)
        assert await store.get("count") == 1


class TestTurnsOfRuns:
    @pytest.mark.parametrize("kind", ["sync", "async"])
    def test_one_instance_on_several_loops_keeps_its_bound(self, kind: str) -> None:
        now, most, guard, homes = 0, 0, threading.Lock(), set[tuple[int, int]]()

        def enter(began_on: int) -> None:
            nonlocal now, most
            with guard:
                now += 1
                most = max(most, now)
                homes.add((began_on, threading.get_ident()))
            time.sleep(0.002)
            with guard:
                now -= 1

        class Async(Workflow):
            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                enter(ev.home)
                await asyncio.sleep(0.001)
                return StopEvent(result=ev.home)

        class Sync(Workflow):
            @step
            def go(self, ev: StartEvent) -> StopEvent:
                enter(ev.home)
                return StopEvent(result=ev.home)

        flow = (Sync if kind == "sync" else Async)(num_concurrent_runs=2, timeout=None)

        def on_a_loop(_: int) -> list[int]:
            async def main() -> list[int]:
                home = threading.get_ident()
                return list(await asyncio.gather(*(flow.run(home=home) for _ in range(10))))

            return asyncio.run(asyncio.wait_for(main(), 40))

        with ThreadPoolExecutor(6) as pool:
            for found in pool.map(on_a_loop, range(6)):
                assert len(found) == 10
        assert most <= 2
        if kind == "async":
            assert all(began == ran for began, ran in homes)

    def test_a_turn_is_not_lost_with_the_loop_that_it_was_meant_for(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        class Slow(Workflow):
            @step
            def go(self, ev: StartEvent) -> StopEvent:
                begun.set()
                go_on.wait(10)
                return StopEvent(result=ev.name)

        flow = Slow(num_concurrent_runs=1, timeout=None)
        first = ThreadPoolExecutor(1).submit(lambda: flow.run_sync(name="first"))
        assert begun.wait(10)

        async def leaves() -> None:
            flow.run(name="gone")
            await asyncio.sleep(0)

        asyncio.run(leaves())
        last = ThreadPoolExecutor(1).submit(lambda: flow.run_sync(name="last"))
        go_on.set()
        assert (first.result(10), last.result(10)) == ("first", "last")


class TestContextOfSynchronousTools:
    async def test_a_synchronous_tool_uses_the_state(self) -> None:
        async def go() -> Any:
            def remember(ctx: Context, note: str) -> str:
                """Remember a note."""
                with ctx.store.edit_state_sync() as state:
                    state["notes"] = [*state.get("notes", []), note]
                return "ok"

            calls = [
                ToolCallBlock(tool_call_id=str(n), tool_name="remember", tool_kwargs={"note": f"n{n}"})
                for n in range(10)
            ]
            agent = FunctionAgent(
                llm=ScriptedLLM([calls, "done"]), tools=[FunctionTool.from_defaults(remember)], timeout=None
            )
            handler = agent.run("Remember.")
            await handler
            return await handler.ctx.store.get("notes")

        assert sorted(await asyncio.wait_for(go(), 30)) == [f"n{n}" for n in range(10)]
