"""Dispatchers, handlers and spans."""

import asyncio
import contextvars
import gc
import importlib
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest
from pydantic import PrivateAttr

from batonflow.clock import SeededSource, use_source
from batonflow.instrumentation import (
    BaseEvent,
    BaseEventHandler,
    BaseSpan,
    BaseSpanHandler,
    Dispatcher,
    DispatcherSpanMixin,
    Manager,
    NullEventHandler,
    NullSpanHandler,
    SimpleSpanHandler,
    active_instrument_tags,
    active_span_id,
    get_dispatcher,
    instrument_tags,
)
from batonflow.instrumentation.events import (
    SpanDropEvent,
    StepEndEvent,
    WorkflowRunOutputEvent,
    WorkflowStepOutputEvent,
)
from batonflow.instrumentation.traced import bound, named, signature_of
from batonflow.tracing.summary import summarize
from batonflow.workflow_core.events import Event, StopEvent
from tests.contract import contract


class Noted(BaseEvent):
    what: str = ""


class Listener(BaseEventHandler):
    """Keeps every event it hears."""

    _heard: list[BaseEvent] = PrivateAttr(default_factory=list)

    @property
    def heard(self) -> list[BaseEvent]:
        return self._heard

    def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
        self._heard.append(event)


class Recorder(BaseSpanHandler[BaseSpan]):
    """Writes down what happens to spans as (what, name, parent's name)."""

    _log: list[tuple[str, ...]] = PrivateAttr(default_factory=list)
    _arguments: dict[str, dict[str, Any]] = PrivateAttr(default_factory=dict)
    _spans: dict[str, BaseSpan] = PrivateAttr(default_factory=dict)

    @property
    def log(self) -> list[tuple[str, ...]]:
        return self._log

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> BaseSpan:
        self._log.append(("enter", short(id_), short(parent_span_id)))
        self._arguments[short(id_)] = dict(bound_args.arguments)
        self._spans[short(id_)] = BaseSpan(id_=id_, parent_id=parent_span_id, tags=tags or {})
        return self._spans[short(id_)]

    def prepare_to_exit_span(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, result: Any = None, **kwargs: Any
    ) -> BaseSpan | None:
        self._log.append(("exit", short(id_), repr(result)))
        return self.open_spans.get(id_)

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> BaseSpan | None:
        self._log.append(("drop", short(id_), type(err).__name__))
        return self.open_spans.get(id_)


def short(span_id: str | None) -> str:
    """``"Class.method"`` or ``"function"`` of a span id."""
    return "" if span_id is None else span_id.rpartition("-")[0].rpartition("<locals>.")[2]


@pytest.fixture
def tree() -> Manager:
    """A tree of its own, so that no test hears another."""
    return Manager(Dispatcher(name="root", propagate=False))


@pytest.fixture
def dispatcher(tree: Manager) -> Dispatcher:
    return tree.get("app")


@pytest.fixture
def spans(dispatcher: Dispatcher) -> Recorder:
    recorder = Recorder()
    dispatcher.add_span_handler(recorder)
    return recorder


@pytest.fixture
def events(dispatcher: Dispatcher) -> Listener:
    listener = Listener()
    dispatcher.add_event_handler(listener)
    return listener


class TestTree:
    def test_a_name_always_gives_the_same_dispatcher(self) -> None:
        assert get_dispatcher("tests.tree.same") is get_dispatcher("tests.tree.same")
        assert get_dispatcher() is get_dispatcher("root")

    def test_the_parent_is_the_nearest_existing_dispatcher_above(self, tree: Manager) -> None:
        leaf = tree.get("a.b.c")
        assert leaf.parent is tree.root
        middle = tree.get("a")
        assert leaf.parent is middle
        assert middle.parent is tree.root
        assert tree.root.parent is None
        assert leaf.root is tree.root
        assert (leaf.parent_name, leaf.log_name) == ("a", "a.a.b.c")
        assert leaf.root_name == tree.root.root_name == tree.root.name

    def test_the_earlier_way_to_report_is_the_same_and_says_that_it_is_deprecated(self, tree: Manager) -> None:
        listener = Listener()
        tree.root.add_event_handler(listener)
        with pytest.warns(DeprecationWarning, match=r"use event\(\)"):
            report = tree.get("x").get_dispatch_event()
        report(Noted(what="it"))
        assert len(listener.heard) == 1

    def test_the_root_hears_all(self, tree: Manager) -> None:
        listener = Listener()
        tree.root.add_event_handler(listener)
        tree.get("x.y").event(Noted(what="deep"))
        tree.get("z").event(Noted(what="shallow"))
        assert [event.what for event in listener.heard if isinstance(event, Noted)] == ["deep", "shallow"]

    def test_handlers_hear_what_is_below_them_and_nothing_beside(self, tree: Manager) -> None:
        listener = Listener()
        tree.get("x").add_event_handler(listener)
        tree.get("x.y").event(Noted(what="below"))
        tree.get("z").event(Noted(what="beside"))
        assert [event.what for event in listener.heard if isinstance(event, Noted)] == ["below"]

    def test_propagate_false_keeps_it_from_the_parents(self, tree: Manager) -> None:
        above, here = Listener(), Listener()
        tree.get("x").add_event_handler(above)
        quiet = tree.get("x.y")
        quiet.add_event_handler(here)
        quiet.propagate = False
        quiet.event(Noted())
        assert (len(above.heard), len(here.heard)) == (0, 1)
        quiet.propagate = True
        quiet.event(Noted())
        assert (len(above.heard), len(here.heard)) == (1, 2)

    def test_a_dispatcher_made_between_two_others_is_heard_through(self, tree: Manager) -> None:
        leaf = tree.get("x.y.z")
        listener = Listener()
        tree.get("x.y").add_event_handler(listener)
        leaf.event(Noted())
        assert len(listener.heard) == 1


class TestEnabled:
    def test_is_false_until_a_handler_is_added_anywhere_above(self, tree: Manager) -> None:
        leaf = tree.get("x.y")
        assert not leaf.enabled
        tree.root.add_span_handler(SimpleSpanHandler())
        assert leaf.enabled

    def test_follows_every_way_of_changing_handlers(self, tree: Manager) -> None:
        leaf, listener = tree.get("x.y"), Listener()
        top = tree.get("x")
        top.event_handlers.append(listener)
        assert leaf.enabled
        assert top.event_handlers == [listener]
        top.event_handlers.remove(listener)
        assert not leaf.enabled
        top.event_handlers = [listener]
        assert leaf.enabled
        top.event_handlers[0] = NullEventHandler()
        assert not leaf.enabled
        top.span_handlers = [SimpleSpanHandler()]
        assert leaf.enabled
        leaf.propagate = False
        assert not leaf.enabled

    def test_null_handlers_do_not_count(self, dispatcher: Dispatcher) -> None:
        dispatcher.add_event_handler(NullEventHandler())
        dispatcher.add_span_handler(NullSpanHandler())
        assert not dispatcher.enabled

    async def test_without_handlers_a_traced_call_opens_no_span(self, dispatcher: Dispatcher) -> None:
        @dispatcher.span
        async def work() -> str | None:
            return active_span_id.get()

        assert await work() is None


class TestPieces:
    def test_they_are_told_while_a_handler_wants_them(self, dispatcher: Dispatcher) -> None:
        class Deaf(Listener):
            hears_pieces: ClassVar[bool] = False

        assert not dispatcher.tells_pieces
        dispatcher.add_event_handler(Deaf())
        dispatcher.add_span_handler(Recorder())
        assert dispatcher.enabled
        assert not dispatcher.tells_pieces
        dispatcher.add_event_handler(Listener())
        assert dispatcher.tells_pieces


class TestArguments:
    def test_they_are_told_while_a_span_handler_wants_them(self, dispatcher: Dispatcher) -> None:
        class Deaf(Recorder):
            hears_arguments: ClassVar[bool] = False

        assert not dispatcher.tells_arguments
        dispatcher.add_event_handler(Listener())
        dispatcher.add_span_handler(NullSpanHandler())
        dispatcher.add_span_handler(Deaf())
        assert (dispatcher.enabled, dispatcher.tells_arguments) == (True, False)
        wants = Recorder()
        dispatcher.root.add_span_handler(wants)
        assert dispatcher.tells_arguments
        dispatcher.root.span_handlers.remove(wants)
        assert not dispatcher.tells_arguments

    def test_those_of_a_method_leave_self_out(self) -> None:
        class Index:
            def load(self, name: str, *, method: str = "fast", **options: Any) -> None: ...

        given = bound(Index().load, "notes", method="slow", limit=3)
        assert given.arguments == {"name": "notes", "method": "slow", "options": {"limit": 3}}
        assert (given.args, given.kwargs) == (("notes",), {"method": "slow", "limit": 3})
        assert signature_of(Index().load) is signature_of(Index().load)

    def test_what_does_not_fit_or_says_nothing_of_itself_has_none(self) -> None:
        class Unkept:
            __hash__ = None  # type: ignore[assignment]

            def __call__(self, x: int) -> None: ...

        assert bound(lambda x: x, y=1).arguments == {}
        assert bound(dict.fromkeys, 1, 2, 3).arguments == {}
        assert named(type, {"x": 1}).arguments == {}
        assert bound(Unkept(), 1).arguments == {"x": 1}

    def test_some_may_be_named_in_the_order_of_the_parameters(self) -> None:
        def go(ctx: str, ev: int, /, other: str) -> None: ...

        given = named(go, {"ev": 1, "ctx": "c", "more": 2})
        assert list(given.arguments.items()) == [("ctx", "c"), ("ev", 1)]
        assert given.args == ("c", 1)


class TestEvents:
    def test_carry_span_time_id_and_the_tags_in_force(self, dispatcher: Dispatcher, events: Listener) -> None:
        token = active_span_id.set("work-1")
        try:
            with instrument_tags({"tenant": "acme"}):
                dispatcher.event(Noted(what="now", tags={"own": 1}))
        finally:
            active_span_id.reset(token)
        [event] = events.heard
        assert event.span_id == "work-1"
        assert event.tags == {"own": 1, "tenant": "acme"}
        assert event.timestamp.tzinfo is None
        dump = event.model_dump()
        assert dump["class_name"] == "Noted"
        assert dump["what"] == "now"

    def test_ids_come_from_the_source_in_force(self) -> None:
        with use_source(SeededSource(3)):
            first = [Noted().id_, Noted().id_]
        with use_source(SeededSource(3)):
            assert [Noted().id_, Noted().id_] == first
        assert first[0] != first[1]

    async def test_aevent_waits_for_every_asynchronous_handler(self, dispatcher: Dispatcher) -> None:
        done: list[str] = []

        class Slow(Listener):
            async def ahandle(self, event: BaseEvent, **kwargs: Any) -> Any:
                await asyncio.sleep(0)
                done.append("slow")

        class Broken(Listener):
            async def ahandle(self, event: BaseEvent, **kwargs: Any) -> Any:
                raise ValueError("broken")

        plain = Listener()
        for handler in (Broken(), Slow(), plain):
            dispatcher.add_event_handler(handler)
        await dispatcher.aevent(Noted())
        assert done == ["slow"]
        assert len(plain.heard) == 1

    def test_keyword_arguments_reach_the_handlers(self, dispatcher: Dispatcher) -> None:
        given: dict[str, Any] = {}

        class Curious(Listener):
            def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
                given.update(kwargs)

        dispatcher.add_event_handler(Curious())
        dispatcher.event(Noted(), attempt=2)
        assert given == {"attempt": 2}

    def test_typed_events_know_their_names(self) -> None:
        assert StepEndEvent(run_id="r", step="s", input_event="StartEvent").class_name() == "StepEndEvent"
        assert WorkflowStepOutputEvent(output="x").class_name() == "step.output"
        assert WorkflowRunOutputEvent(output="x").class_name() == "workflow.output"


class TestTags:
    def test_an_inner_block_replaces_and_the_end_restores(self) -> None:
        with instrument_tags({"a": 1}):
            with instrument_tags({"b": 2}):
                assert active_instrument_tags.get() == {"b": 2}
            assert active_instrument_tags.get() == {"a": 1}
        assert active_instrument_tags.get() == {}

    def test_they_are_also_where_programs_written_for_llamaindex_import_them_from(self) -> None:
        home = importlib.import_module("batonflow.instrumentation.dispatcher")
        assert home.instrument_tags is instrument_tags
        assert home.active_instrument_tags is active_instrument_tags

    def test_what_get_returns_is_a_copy(self) -> None:
        active_instrument_tags.get()["leak"] = True
        assert active_instrument_tags.get() == {}


class TestFunctions:
    def test_a_call_is_a_span_with_its_arguments_and_result(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        @dispatcher.span
        def double(number: int, *, twice: bool = False) -> int:
            return number * 2

        assert double(4, twice=True) == 8
        assert spans.log == [("enter", "double", ""), ("exit", "double", "8")]
        assert spans._arguments["double"] == {"number": 4, "twice": True}
        assert spans.open_spans == {}

    async def test_nested_calls_are_children(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        @dispatcher.span
        async def inner() -> int:
            return 1

        @dispatcher.span
        async def outer() -> int:
            return await inner() + await inner()

        await outer()
        await inner()
        entered = [line[1:] for line in spans.log if line[0] == "enter"]
        assert entered == [("outer", ""), ("inner", "outer"), ("inner", "outer"), ("inner", "")]

    async def test_an_error_drops_the_span_and_is_reported(
        self, dispatcher: Dispatcher, spans: Recorder, events: Listener
    ) -> None:
        @dispatcher.span
        async def fail() -> None:
            raise ValueError("too big")

        with pytest.raises(ValueError, match="too big"):
            await fail()
        assert spans.log == [("enter", "fail", ""), ("drop", "fail", "ValueError")]
        [event] = events.heard
        assert isinstance(event, SpanDropEvent)
        assert event.err_str == "too big"
        assert short(event.span_id) == "fail"
        assert active_span_id.get() is None

    def test_methods_are_named_after_the_class_of_the_instance(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        class Base:
            @dispatcher.span
            def work(self, number: int) -> int:
                return number

            @classmethod
            @dispatcher.span
            def make(cls) -> str:
                return "made"

            @staticmethod
            @dispatcher.span
            def helper(number: int) -> int:
                return number

        class Derived(Base):
            pass

        Derived().work(3)
        Derived.make()
        Base.helper(1)
        assert [line[1] for line in spans.log if line[0] == "enter"] == ["Derived.work", "Derived.make", "Base.helper"]
        assert spans._arguments["Derived.work"] == {"number": 3}

    def test_a_bound_method_can_be_traced(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        class Worker:
            def work(self, number: int) -> int:
                return number + 1

        assert dispatcher.span(Worker().work)(1) == 2
        assert spans.log[0][1] == "Worker.work"

    def test_decorating_twice_makes_one_span(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        @dispatcher.span
        @dispatcher.span
        def once() -> None: ...

        once()
        assert len(spans.log) == 2

    def test_wrong_arguments_raise_what_the_function_raises(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        @dispatcher.span
        def one(number: int) -> int:
            return number

        with pytest.raises(TypeError, match="one"):
            one()  # type: ignore[call-arg]
        assert spans.log[-1][0] == "drop"

    async def test_a_returned_future_ends_the_span_when_it_is_done(
        self, dispatcher: Dispatcher, spans: Recorder
    ) -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        @dispatcher.span
        def start() -> asyncio.Future[int]:
            return future

        assert start() is future
        assert [line[0] for line in spans.log] == ["enter"]
        future.set_result(5)
        await asyncio.sleep(0)
        assert spans.log[-1] == ("exit", "start", "5")

    @pytest.mark.parametrize("cancelled", [True, False])
    async def test_a_failed_or_cancelled_future_drops_the_span(
        self, dispatcher: Dispatcher, spans: Recorder, cancelled: bool
    ) -> None:
        @dispatcher.span
        def start() -> asyncio.Future[int]:
            return asyncio.get_running_loop().create_future()

        future = start()
        if cancelled:
            future.cancel()
        else:
            future.set_exception(ValueError("no"))
        await asyncio.sleep(0)
        assert spans.log[-1] == ("drop", "start", "CancelledError" if cancelled else "ValueError")

    def test_subclasses_of_the_mixin_are_traced_without_decorating(self, spans: Recorder) -> None:
        get_dispatcher(__name__).add_span_handler(spans)
        try:

            class Base(DispatcherSpanMixin):
                @get_dispatcher(__name__).span
                def work(self) -> int:
                    return 1

            class Derived(Base):
                def work(self) -> int:
                    return 2

                def other(self) -> int:
                    return 3

            assert (Derived().work(), Derived().other()) == (2, 3)
        finally:
            get_dispatcher(__name__).span_handlers.remove(spans)
        assert spans.log == [("enter", "Derived.work", ""), ("exit", "Derived.work", "2")]


class TestAcrossTasksAndThreads:
    async def test_parents_are_right_in_concurrent_tasks(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        @dispatcher.span
        async def inner(number: int) -> None:
            await asyncio.sleep(0)

        @dispatcher.span
        async def left() -> None:
            await asyncio.gather(inner(1), inner(2))

        @dispatcher.span
        async def right() -> None:
            await asyncio.sleep(0)
            await inner(3)

        await asyncio.gather(left(), right())
        parents = sorted(line[2] for line in spans.log if line[:2] == ("enter", "inner"))
        assert parents == ["left", "left", "right"]
        assert spans.open_spans == {}

    async def test_a_thread_that_inherits_the_context_keeps_the_parent(
        self, dispatcher: Dispatcher, spans: Recorder
    ) -> None:
        @dispatcher.span
        def inner() -> None: ...

        @dispatcher.span
        async def outer() -> None:
            await asyncio.to_thread(inner)
            thread = threading.Thread(target=contextvars.copy_context().run, args=(inner,))
            thread.start()
            thread.join()

        await outer()
        assert [line[2] for line in spans.log if line[:2] == ("enter", "inner")] == ["outer", "outer"]

    def test_many_threads_lose_no_span(self, dispatcher: Dispatcher) -> None:
        handler = SimpleSpanHandler()
        dispatcher.add_span_handler(handler)

        @dispatcher.span
        def work() -> None: ...

        def many() -> None:
            for _ in range(100):
                work()

        threads = [threading.Thread(target=many) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(handler.completed_spans) == 800
        assert handler.open_spans == {}

    async def test_a_task_cancelled_in_a_span_drops_it(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        @dispatcher.span
        async def forever() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert spans.log[-1] == ("drop", "forever", "CancelledError")

    def test_a_coroutine_left_to_the_garbage_collector_closes_its_span(
        self, dispatcher: Dispatcher, spans: Recorder
    ) -> None:
        @dispatcher.span
        async def work() -> None:
            await asyncio.sleep(0)

        coroutine: Any = work()
        contextvars.copy_context().run(coroutine.send, None)
        del coroutine
        gc.collect()
        assert spans.log[-1] == ("drop", "work", "GeneratorExit")


class TestGenerators:
    def test_the_span_lasts_from_first_item_to_end(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        @dispatcher.span
        def count() -> Iterator[int]:
            yield 1
            spans.log.append(("inside", short(active_span_id.get())))
            yield 2

        numbers = count()
        assert spans.log == []
        assert next(numbers) == 1
        assert active_span_id.get() is None
        assert list(numbers) == [2]
        assert [line[0] for line in spans.log] == ["enter", "inside", "exit"]
        assert spans.log[1] == ("inside", "count")

    def test_sent_and_thrown_values_reach_the_generator(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        @dispatcher.span
        def echo() -> Any:
            got = yield "ready"
            try:
                yield got
            except KeyError:
                yield "caught"
            return "end"

        generator = echo()
        assert next(generator) == "ready"
        assert generator.send("hello") == "hello"
        assert generator.throw(KeyError("x")) == "caught"
        with pytest.raises(StopIteration) as stop:
            next(generator)
        assert stop.value.value == "end"
        assert spans.log[-1] == ("exit", "echo", "'end'")

    def test_leaving_early_closes_and_failing_drops(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        closed: list[bool] = []

        @dispatcher.span
        def numbers() -> Any:
            try:
                yield 1
                raise ValueError("no more")
            finally:
                closed.append(True)

        early = numbers()
        next(early)
        early.close()
        assert spans.log[-1][0] == "exit"
        failing = numbers()
        next(failing)
        with pytest.raises(ValueError, match="no more"):
            next(failing)
        assert spans.log[-1] == ("drop", "numbers", "ValueError")
        assert closed == [True, True]

    async def test_async_generators_too(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        @dispatcher.span
        async def inner() -> None: ...

        @dispatcher.span
        async def stream() -> AsyncIterator[int]:
            for number in range(3):
                await inner()
                yield number

        seen: list[int] = []
        async for number in stream():
            seen.append(number)
            await inner()
        assert seen == [0, 1, 2]
        assert [line[2] for line in spans.log if line[:2] == ("enter", "inner")] == ["stream", ""] * 3
        assert spans.log[-1] == ("exit", "stream", "None")

    async def test_async_generators_left_early_or_failing(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        closed: list[bool] = []

        @dispatcher.span
        async def numbers() -> Any:
            try:
                yield 1
                raise ValueError("no more")
            finally:
                await asyncio.sleep(0)
                closed.append(True)

        early = numbers()
        assert await anext(early) == 1
        await early.aclose()
        assert spans.log[-1][0] == "exit"
        failing = numbers()
        await anext(failing)
        with pytest.raises(ValueError, match="no more"):
            await anext(failing)
        assert spans.log[-1][0] == "drop"
        caught = numbers()
        await anext(caught)
        with pytest.raises(KeyError):
            await caught.athrow(KeyError("thrown"))
        assert spans.log[-1] == ("drop", "numbers", "KeyError")
        assert closed == [True, True, True]

    async def test_without_handlers_they_are_the_function_s_own(self, dispatcher: Dispatcher) -> None:
        @dispatcher.span
        def count() -> Iterator[int]:
            yield 1

        @dispatcher.span
        async def acount() -> AsyncIterator[int]:
            yield 1

        assert list(count()) == [1]
        assert [number async for number in acount()] == [1]


class TestLowLevelSpans:
    def test_open_close_and_fail(self, dispatcher: Dispatcher, spans: Recorder, events: Listener) -> None:
        outer = dispatcher.open_span("Flow.run", tags={"run_id": "r"})
        inner = dispatcher.open_span("Flow.step", parent_id=outer)
        dispatcher.fail_span(inner, ValueError("no"))
        dispatcher.close_span(outer, result=3)
        assert spans.log == [
            ("enter", "Flow.run", ""),
            ("enter", "Flow.step", "Flow.run"),
            ("drop", "Flow.step", "ValueError"),
            ("exit", "Flow.run", "3"),
        ]
        assert spans._spans["Flow.run"].tags == {"run_id": "r"}
        assert [type(event) for event in events.heard] == [SpanDropEvent]

    def test_the_active_span_is_the_parent_unless_another_or_none_is_given(
        self, dispatcher: Dispatcher, spans: Recorder
    ) -> None:
        token = active_span_id.set("around-1")
        try:
            dispatcher.open_span("a")
            dispatcher.open_span("b", parent_id=None)
        finally:
            active_span_id.reset(token)
        assert [line[2] for line in spans.log] == ["around", ""]

    def test_tags_in_force_are_on_the_span(self, dispatcher: Dispatcher, spans: Recorder) -> None:
        with instrument_tags({"tenant": "acme"}):
            dispatcher.open_span("a", tags={"more": 1})
            assert active_instrument_tags.get() == {"tenant": "acme"}
        assert spans._spans["a"].tags == {"tenant": "acme", "more": 1}


class TestFailingHandlers:
    def test_never_break_the_caller_and_are_logged_once(
        self, dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken(BaseEventHandler):
            def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
                raise RuntimeError("handler broke")

        class BrokenSpans(Recorder):
            def new_span(self, *args: Any, **kwargs: Any) -> BaseSpan:
                raise RuntimeError("span handler broke")

        after = Listener()
        for handler in (Broken(), after):
            dispatcher.add_event_handler(handler)
        broken, healthy = BrokenSpans(), Recorder()
        dispatcher.add_span_handler(broken)
        dispatcher.add_span_handler(healthy)

        @dispatcher.span
        def work() -> str:
            dispatcher.event(Noted())
            return "done"

        with caplog.at_level(logging.ERROR):
            assert [work(), work()] == ["done", "done"]
        assert len(after.heard) == 2
        assert len(healthy.log) == 4
        assert sorted(record.getMessage().split()[0] for record in caplog.records) == ["Broken", "BrokenSpans"]

    def test_what_is_not_an_exception_still_stops_the_program(self, dispatcher: Dispatcher) -> None:
        class Quit(BaseEventHandler):
            def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
                raise KeyboardInterrupt

        dispatcher.add_event_handler(Quit())
        with pytest.raises(KeyboardInterrupt):
            dispatcher.event(Noted())


class TestPropagation:
    @contract("14.4")
    def test_a_captured_context_continues_elsewhere(self, dispatcher: Dispatcher) -> None:
        class Traced(Recorder):
            def capture_propagation_context(self) -> dict[str, Any]:
                return {"traced": "trace-7"}

            def restore_propagation_context(self, context: dict[str, Any]) -> None:
                self.log.append(("restored", context["traced"]))

        recorder = Traced()
        dispatcher.add_span_handler(recorder)

        def sender() -> dict[str, Any]:
            active_span_id.set("Flow.run-1")
            active_instrument_tags.set({"tenant": "acme"})
            return dispatcher.capture_propagation_context()

        def receiver(context: dict[str, Any]) -> None:
            dispatcher.restore_propagation_context(context)
            dispatcher.open_span("child")

        captured = contextvars.copy_context().run(sender)
        assert captured == {"traced": "trace-7", "active_span_id": "Flow.run-1", "instrument_tags": {"tenant": "acme"}}
        contextvars.copy_context().run(receiver, captured)
        assert recorder.log == [("restored", "trace-7"), ("enter", "child", "Flow.run")]
        assert recorder._spans["child"].tags == {"tenant": "acme"}

    def test_nothing_active_captures_nothing(self, dispatcher: Dispatcher) -> None:
        assert dispatcher.capture_propagation_context() == {}
        dispatcher.restore_propagation_context({})
        assert active_span_id.get() is None


class TestSimpleSpanHandler:
    def test_keeps_durations_errors_and_prints_trees(
        self, dispatcher: Dispatcher, capsys: pytest.CaptureFixture[str]
    ) -> None:
        handler = SimpleSpanHandler()
        dispatcher.add_span_handler(handler)
        outer = dispatcher.open_span("outer")
        first = dispatcher.open_span("first", parent_id=outer)
        dispatcher.close_span(first)
        second = dispatcher.open_span("second", parent_id=outer)
        dispatcher.fail_span(second, ValueError("bad"))
        dispatcher.close_span(outer)

        assert [span.id_ for span in handler.completed_spans] == [first, outer]
        [dropped] = handler.dropped_spans
        assert dropped.metadata == {"error": "bad"}
        assert all(span.duration >= 0 and span.end_time is not None for span in handler.completed_spans)
        handler.print_trace_trees()
        lines = [line.split("-")[0] for line in capsys.readouterr().out.splitlines()]
        assert lines == ["outer", "├── first", "└── second"]

    def test_a_span_whose_parent_is_unknown_is_a_root(self, dispatcher: Dispatcher) -> None:
        handler = SimpleSpanHandler()
        dispatcher.add_span_handler(handler)
        dispatcher.close_span(dispatcher.open_span("orphan", parent_id="gone-1"))
        assert handler.format_trace_trees().startswith("orphan-")

    def test_shutdown_drops_open_spans_and_closes_handlers(self, dispatcher: Dispatcher) -> None:
        closed: list[str] = []

        class Closing(SimpleSpanHandler):
            def close(self) -> None:
                closed.append("closed")

        handler = Closing()
        dispatcher.add_span_handler(handler)
        span_id = dispatcher.open_span("work")
        dispatcher.shutdown()
        assert [span.id_ for span in handler.dropped_spans] == [span_id]
        assert handler.open_spans == {}
        assert closed == ["closed"]


class TestSummaries:
    def test_name_class_and_fields_with_long_values_shortened(self) -> None:
        class Found(Event):
            text: str
            pages: list[int]

        line = summarize(Found(text="x" * 80, pages=[1, 2, 3, 4], source="atlas"))
        assert line == f"Found(text='{'x' * 50}...', pages=[4 items], source='atlas')"

    def test_are_never_longer_than_the_limit_and_never_raise(self) -> None:
        class Wild:
            def __repr__(self) -> str:
                raise ValueError("no repr")

        assert len(summarize(StopEvent(result=[["y" * 400]]))) == 200
        assert summarize(StopEvent(result=3)) == "StopEvent(result=3)"
        assert summarize(Wild()) == "Wild"
        assert summarize({"a": 1, "b": 2, "c": 3, "d": 4}) == "{4 keys}"
