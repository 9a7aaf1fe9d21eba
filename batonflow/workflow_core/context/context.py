"""The context of a run, for its steps and its caller: one class with three roles.

Before a run it holds the initial state. In a handler it gives access to the run. In a step it sends, collects and
waits for events, and streams them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from copy import copy
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload
from weakref import ref

from pydantic import BaseModel
from typing_extensions import TypeAliasType, TypeForm
from typing_extensions import TypeVar as DefaultTypeVar

from batonflow.retrying import RetryPolicy
from batonflow.values.serializers import BaseSerializer
from batonflow.values.types import RetryInfo
from batonflow.workflow_core import context as parts
from batonflow.workflow_core.context.state_store import DictState, InMemoryStateStore, StateCell
from batonflow.workflow_core.earlier import EarlierContext, warn_earlier
from batonflow.workflow_core.engine.ports import ask_person, dump_run, load_run, run_map
from batonflow.workflow_core.engine.state import RunState, WorkItem
from batonflow.workflow_core.errors import ContextStateError, WorkflowCancelledByUser
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.typed import DepsT, StateT

if TYPE_CHECKING:
    from batonflow.values.agent_info import AgentInfo
    from batonflow.workflow_core.map_results import MapError

__all__ = ["Context", "RetryInfo", "RunContext"]

EventT = TypeVar("EventT", bound=Event)
T = TypeVar("T")
ItemT = TypeVar("ItemT")

_IN_STEP = "only available from within step functions"
_FROM_HANDLER = "only available from handler code"
_RUNNING = "requires a running workflow"


class Context(EarlierContext, Generic[StateT, DepsT]):
    """The access to a run for a step, for its handler, or before its start.

    Args:
        workflow: The workflow that will run, or whose run the snapshot holds.
        previous_context: A snapshot made by ``to_dict()``.
        serializer: Reads the snapshot's values; JSON by default.
        deps: Objects of the program for steps and tools, as ``ctx.deps``. They are never recorded.

    Raises:
        ContextSerdeError: ``previous_context`` is not a snapshot that can be read.

    Example:
        >>> ctx = Context(workflow)
        >>> await workflow.run(ctx=ctx)  # a second run with this ctx sees the state of the first
    """

    whole: "Context[Any] | None" = None  # for a context with a view: the context with the whole store
    given_deps: Any = None
    _workflow: AnyWorkflow | None = None
    _store: Any = None

    def __init__(
        self,
        workflow: AnyWorkflow,
        previous_context: dict[str, Any] | None = None,
        serializer: BaseSerializer | None = None,
        deps: Any = None,
    ) -> None:
        self.given_serializer = serializer
        self.given_deps = deps
        self._workflow = workflow
        self._item: WorkItem | None = None
        self._run_ref: Callable[[], Run | None] = _no_run
        self._loaded: Any = None  # the ``LoadedRun`` that this context continues
        if previous_context is None:
            self._cell = StateCell(workflow.__batonflow__.steps.state_type)
        else:
            self._loaded = load_run(workflow, previous_context, serializer or workflow.__batonflow__.serializer)
            self._cell = self._loaded.cell

    @classmethod
    def for_step(cls, run: Run, item: WorkItem) -> "Context[Any]":
        """Return the context of a running attempt; it does not keep the run alive."""
        context = cls.__new__(cls)
        context._item = item
        context._run_ref = ref(run)
        context._cell = run.cell
        wanted = item.spec.config.context_state_type
        return context if wanted is None else context.with_state_type(wanted)

    @classmethod
    def from_dict(
        cls, workflow: AnyWorkflow, data: dict[str, Any], serializer: BaseSerializer | None = None, deps: Any = None
    ) -> "Context[StateT, DepsT]":
        """Return a context from a snapshot; run it with ``workflow.run(ctx=...)``.

        Raises:
            ContextSerdeError: ``data`` is not a snapshot, or its version is newer.
        """
        return cls(workflow, previous_context=data, serializer=serializer, deps=deps)

    @staticmethod
    def get_step_context() -> "Context[Any]":
        """Return the context of the step that is running here, also in functions that it calls.

        Raises:
            WorkflowRuntimeError: No step is running here.
        """
        return parts.collecting.current_context()

    def with_state_type(self, wanted: type[BaseModel]) -> "Context[Any]":
        """Return this context with a view on an agent's typed state. Other workflows get the context itself."""
        whole = self.whole or self
        find = getattr(getattr(whole.run, "workflow", None), "__batonflow_view__", None)
        store = None if find is None else find(whole.store, wanted)
        if store is None:
            return whole
        view = copy(whole)
        view._store, view.whole = store, whole
        return view

    # --- roles --------------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run | None:
        """The run of this context; None before its start."""
        return self._run_ref()

    def detach(self) -> None:
        """Separate the context from the run, so that an abandoned thread cannot act in the next attempt."""
        self._run_ref = _no_run
        if self._store is not None:
            self._store.detach()

    def bind(self, run: Run) -> None:
        """Become the context of the handler of a run that starts with this context."""
        self._run_ref = lambda: run
        if self._cell is not run.cell:
            self._cell, self._store = run.cell, None
        self._loaded = None
        if self.given_deps is not None:
            parts.dependencies.give_deps(run, self.given_deps)

    @property
    def deps(self) -> DepsT:
        """The dependencies of the run: the same object in its steps, tools, middleware and child runs.

        Raises:
            DepsMissingError: The run was given no dependencies.
            ContextStateError: Before a run.

        Example:
            >>> async def orders(ctx: RunContext[Deps], since: date) -> list[str]:
            ...     "Orders of the user."
            ...     return await ctx.deps.db.orders(ctx.deps.user, since)
        """
        if self.given_deps is not None:
            return self.given_deps
        return parts.dependencies.deps_of(self._running("deps"))

    @property
    def agent(self) -> "AgentInfo | None":
        """The agent that acts in a run of agents; None in other runs, and before a run."""
        find = getattr(getattr(self._run_ref(), "workflow", None), "__batonflow_agent__", None)
        return None if find is None else find(self)

    @property
    def is_resumable(self) -> bool:
        """Tell whether this context holds an unfinished run, which continues without a start event."""
        if self.run is not None:
            # A cancelled run can be resumed from its own context.
            return self.run.ending.done and self.run.state.running
        return self._loaded is not None and self._loaded.state.running

    def leave_cancelled_run(self) -> None:
        """Keep the state of a cancelled run, and drop its unfinished work."""
        run = self.run
        if run is not None and isinstance(run.ending.error, WorkflowCancelledByUser):
            run.state.running = False
        elif run is None and self._loaded is not None and self._loaded.state.cancelled:
            self._loaded = None

    def take_loaded(self) -> tuple[Any, StateCell]:
        """Return the initial data of a new run: the ``LoadedRun`` to continue if any, and the key-value state."""
        run = self.run
        if run is not None and self._workflow is not None:
            return run.copy_unfinished(self._workflow, self.given_serializer), self._cell
        if self._loaded is None or not self._loaded.state.running:
            return None, self._cell
        self._loaded.state.cancelled = False  # it goes on
        return self._loaded, self._cell

    def _in_step(self, name: str) -> tuple[Run, WorkItem]:
        run = self._run_ref()
        if run is not None and self._item is not None:
            return run, self._item
        needs = f"{_RUNNING} and " if run is None and self._item is None else ""
        raise ContextStateError(f"{name} {needs}is {_IN_STEP}{'; the run of this step is over' if self._item else ''}")

    def _from_handler(self, name: str) -> Run:
        if self._item is not None:
            raise ContextStateError(f"{name} is {_FROM_HANDLER}, not from inside a step")
        return self._running(name)

    def _running(self, name: str) -> Run:
        run = self._run_ref()
        if run is None:
            raise ContextStateError(f"{name} {_RUNNING}")
        return run

    @property
    def is_running(self) -> bool:
        """Tell whether the run goes on; before a run, whether the snapshot is from an unfinished run."""
        if self._item is not None:
            warn_earlier("is_running called from within a step is always True")
            return True
        if (run := self._run_ref()) is not None:
            return run.state.running and not run.ending.over
        return self._loaded is not None and self._loaded.state.running

    @property
    def run_id(self) -> str:
        """The id of the run; it stays the same when the run continues in another process.

        Raises:
            ContextStateError: Before a run.
        """
        return self._running("run_id").state.run_id

    @property
    def store(self) -> InMemoryStateStore[StateT]:
        """The run's key-value state; see ``InMemoryStateStore``."""
        if self._store is None:
            if self._item is None:
                # Looked up at each use: the context may be bound to a run later.
                self._store = InMemoryStateStore.on(self._cell, None, lambda: self.run)
            else:
                self._store = InMemoryStateStore.on(self._cell, self._item, is_detached=self._run_ref is _no_run)
        return self._store

    # --- events -------------------------------------------------------------------------------------------------------

    def send_event(self, message: Event, step: str | None = None) -> None:
        """Send an event to all steps that accept it, or to a single step.

        Args:
            message: The event.
            step: The name of a single step, or ``child.step`` of an attached workflow.

        Raises:
            ContextStateError: The run has not started, or the step is over.
            WorkflowRuntimeError: The step does not exist or does not accept the event, or the run is over.

        Example:
            >>> for name in ev.names:
            ...     ctx.send_event(Fetch(name=name))
        """
        run = self._run_ref()
        if run is None:
            over = " called before workflow started" if self._item is None else ": this step is over"
            raise ContextStateError(f"send_event(){over}")
        item = self._item
        if item is not None and item.run is not run:
            item = None  # sent by a task that outlived its step
        run.send_from(message, step, item, inside=self._item is not None)

    async def send_to(self, run_id: str, event: Event, *, step: str | None = None) -> bool:
        """Send an event to another run. With a store, it may be any stored run, otherwise a live run of this process.

        The event is sent after the earlier work of this step is recorded, and once for this delivery: a process that
        takes the step up after a crash does not send it again.

        Args:
            run_id: The run.
            event: The event.
            step: The only step for the event; ``child.step`` for a step of an attached workflow.

        Returns:
            False if the store had the event already, from a process that crashed before it recorded that.

        Raises:
            ContextStateError: Called outside of a step.
            StoreError: The run does not exist or is over, or the event cannot be written.

        Example:
            >>> await ctx.send_to("ledger", Paid(order=ev.order))
        """
        run, item = self._in_step("send_to")
        return await parts.once.send_to(run, item, run_id, event, step)

    def write_event_to_stream(self, ev: Event | None) -> None:
        """Write an event to the stream; None is ignored.

        Args:
            ev: The event.

        Raises:
            ContextStateError: Called outside of a step.
            WorkflowRuntimeError: ``ev`` is not an event.

        Example:
            >>> ctx.write_event_to_stream(Progress(percent=40))
        """
        run, item = self._run_ref(), self._item
        if run is None or item is None:
            run, item = self._in_step("write_event_to_stream")
        if ev is None or run.ending.over:
            return
        writer = item.writer
        if writer is None or writer[3] != get_ident() or not isinstance(ev, Event):  # pyright: ignore[reportUnnecessaryIsInstance]
            run.show(ev, item, self)
            return
        progress = item.progress or item.make_progress()  # fast path
        numbers = progress if progress.once_calls is None else progress.here()
        numbers.streamed = number = numbers.streamed + 1
        if number > numbers.skip_streamed:
            writer[0](ev, writer[1](), writer[2])

    def collect_events(
        self, ev: Event, expected: list[type[Event]], buffer_id: str | None = None
    ) -> list[Event] | None:
        """Put an event aside until one of each expected type has arrived.

        Args:
            ev: The event that has just arrived.
            expected: The types to wait for; a type may occur several times.
            buffer_id: Names the collection, if a step has several.

        Returns:
            The events in the order of ``expected``, or None while events are missing.

        Raises:
            ContextStateError: Called outside of a step.
            TypeError: ``expected`` is not a list of event classes.

        Example:
            >>> found = ctx.collect_events(ev, [Weather, Tide])
            >>> if found is None:
            ...     return None
        """
        run, item = self._in_step("collect_events")
        return parts.collecting.collect(run, item, ev, expected, buffer_id or "default")

    def wait_for_event(
        self,
        event_type: type[EventT],
        waiter_event: Event | None = None,
        waiter_id: str | None = None,
        requirements: dict[str, Any] | None = None,
        timeout: float | None = 2000,
    ) -> Coroutine[Any, Any, EventT]:
        """Suspend this step until an event arrives; its worker is free in the meantime.

        Args:
            event_type: The class to wait for.
            waiter_event: An event that asks for the answer; it is streamed once, when the wait begins.
            waiter_id: The id of the wait; the same id gives the same answer again.
            requirements: Attribute values that the event must have.
            timeout: Seconds to wait; None for no limit. The time counts on over a restore.

        Raises:
            ContextStateError: Called outside of a step.
            TimeoutError: No matching event arrived in time.
            TypeError: An argument has a wrong type; the message names it.

        Example:
            >>> answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="Sure?"))
        """
        try:
            run, item = self._in_step("wait_for_event")
            return parts.collecting.wait_for(run, item, event_type, waiter_event, waiter_id, requirements, timeout)
        except (ContextStateError, TypeError) as error:
            return _raised(error)

    # fmt: off
    @overload
    async def ask(self, question: str | BaseModel, *, choices: Sequence[str] = ..., timeout: float | None = ...,
                  key: str = ...) -> str: ...
    @overload
    async def ask(self, question: str | BaseModel, answer: TypeForm[T], *, choices: Sequence[str] = ...,
                  timeout: float | None = ..., key: str = ...) -> T: ...
    # fmt: on
    async def ask(
        self,
        question: str | BaseModel,
        answer: Any = str,
        *,
        choices: Sequence[str] = (),
        timeout: float | None = None,
        key: str = "",
    ) -> Any:
        """Ask a person, and wait for an answer of a type. The step's worker is free in the meantime.

        The question appears in ``handler.inputs()``, on the page, and for ``batonflow approve``. An answer that does
        not fit is refused, and the question stays open.

        Args:
            question: The text, or data to show.
            answer: The type of the answer: all that pydantic validates.
            choices: The texts to choose from, for answers of type ``str``.
            timeout: Seconds to wait; None for no limit. The time counts on over a restore.
            key: The name of the question in the step; by default its number.

        Raises:
            ContextStateError: Called outside of a step.
            TimeoutError: No answer came in time.
            TypeError: An argument has a wrong type; the message names it.

        Example:
            >>> if await ctx.ask(f"Publish {ev.title}?", bool):
            ...     publish(ev)
        """
        run, item = self._in_step("ask")
        return await ask_person(run, item, question, answer, choices, timeout, key)

    @overload
    async def once(self, key: str, fn: Callable[..., Awaitable[T]], *args: Any) -> T: ...
    @overload
    async def once(self, key: str, fn: Callable[..., T], *args: Any) -> T: ...
    async def once(self, key: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Call ``fn`` once for this delivery, even if the step is repeated after a failure or a restore.

        Args:
            key: The name of the call within this delivery; concurrent calls with one key share one call.
            fn: Sync or async; its result must be writable as JSON. A failed call is not recorded. Events and writes of
                the call are numbered within the call: they are skipped together with a recorded call, and an
                interrupted call continues where it stopped.
            args: The arguments of ``fn``.

        Raises:
            ContextStateError: Called outside of a step.
            TypeError: ``key`` is not a string.
            StoreError: The result cannot be written to the store of the run.

        Example:
            >>> receipt = await ctx.once("charge", shop.charge, order.id)
        """
        run, item = self._in_step("once")
        return await parts.once.run_once(run, item, parts.once.key_here(item, key), fn, args)

    # fmt: off
    @overload
    async def effect(self, key: str, fn: Callable[..., Awaitable[T]], *args: Any, about: Any = ...,
                     repeat: bool = ...) -> T: ...
    @overload
    async def effect(self, key: str, fn: Callable[..., T], *args: Any, about: Any = ..., repeat: bool = ...) -> T: ...
    # fmt: on
    async def effect(
        self, key: str, fn: Callable[..., Any], *args: Any, about: Any = None, repeat: bool = False
    ) -> Any:
        """Call ``fn`` as in ``once``, for an external effect that must not be repeated silently.

        With a store, the intent is written before the call and the result after it. If the process ends in between,
        the outcome is unknown; the next attempt raises an error instead of a second call.

        Args:
            key: The name of the effect within this delivery.
            fn: Sync or async; its result must be writable as JSON.
            args: The arguments of ``fn``.
            about: JSON data kept with the intent, for people who inspect the store.
            repeat: Call again after an unknown outcome, for effects that may safely happen twice.

        Raises:
            ContextStateError: Called outside of a step.
            TypeError: ``key`` is not a string.
            UnknownOutcomeError: A process started the effect and ended before the result was written.

        Example:
            >>> await ctx.effect("send", mail.send, letter, about={"to": letter.to})
        """
        run, item = self._in_step("effect")
        key = parts.once.key_here(item, key)
        return await parts.once.run_effect(run, item, key, fn, args, about=about, repeat=repeat)

    # fmt: off
    @overload
    async def map(self, fn: Callable[[ItemT], Awaitable[T]], items: Iterable[ItemT], *, workers: int = ...,
                  retry: RetryPolicy | None = ..., timeout: float | None = ..., on_error: Literal["raise"] = ...,
                  key: str = ...) -> list[T]: ...
    @overload
    async def map(self, fn: Callable[[ItemT], T], items: Iterable[ItemT], *, workers: int = ...,
                  retry: RetryPolicy | None = ..., timeout: float | None = ..., on_error: Literal["raise"] = ...,
                  key: str = ...) -> list[T]: ...
    @overload
    async def map(self, fn: Callable[[ItemT], Awaitable[T]], items: Iterable[ItemT], *, workers: int = ...,
                  retry: RetryPolicy | None = ..., timeout: float | None = ..., on_error: Literal["collect"],
                  key: str = ...) -> "list[T | MapError]": ...
    @overload
    async def map(self, fn: Callable[[ItemT], T], items: Iterable[ItemT], *, workers: int = ...,
                  retry: RetryPolicy | None = ..., timeout: float | None = ..., on_error: Literal["collect"],
                  key: str = ...) -> "list[T | MapError]": ...
    # fmt: on
    async def map(
        self,
        fn: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        workers: int = 4,
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        on_error: Literal["raise", "collect"] = "raise",
        key: str = "",
    ) -> list[Any]:
        """Call ``fn`` for each item, and return the results in the order of the items.

        Each result is kept as by ``once``: with a store, a resumed run calls ``fn`` only for the rest of the items.
        The worker of the step is free meanwhile.

        Args:
            fn: A function of one item. Synchronous functions run in threads. Results must be writable as JSON.
            items: The items; a repeated step must give the same ones.
            workers: The number of calls at the same time.
            retry: The policy after failures of an item.
            timeout: Seconds for each attempt of an item; waits inside of ``fn`` count.
            on_error: ``"raise"`` raises the first failure, and cancels the other calls. ``"collect"`` puts a
                ``MapError`` in the place of each failed item.
            key: The name of this map in the step; by default its number.

        Raises:
            ContextStateError: Called outside of a step.
            TypeError: An argument has a wrong type; the message names it.
            StepTimeoutError: A call took longer than ``timeout``.
            StoreError: A result cannot be written to the store of the run.

        Example:
            >>> pages = await ctx.map(fetch, ev.urls, workers=8, timeout=30)
        """
        run, item = self._in_step("map")
        return await run_map(
            run, item, fn, items, workers=workers, retry=retry, timeout=timeout, on_error=on_error, key=key
        )

    def retry_info(self) -> RetryInfo:
        """Return the earlier failures of this delivery; zeros on the first attempt."""
        run, item = self._in_step("retry_info")
        return parts.collecting.retry_info(run, item)

    # --- for handlers -------------------------------------------------------------------------------------------------

    def stream_events(self) -> AsyncIterator[Event]:
        """Read the streamed events and the engine's own events of the run, from the beginning.

        Each call returns a new reader; ``handler.stream_events()`` returns only the streamed events.
        """
        return _events_of(self._from_handler("stream_events"))

    async def running_steps(self) -> list[str]:
        """Return the names of the steps that are executing now."""
        run = self._from_handler("running_steps")
        return [name for name, step in run.state.steps.items() if step.active]

    def to_dict(self, serializer: BaseSerializer | None = None, *, include_state: bool = True) -> dict[str, Any]:
        """Return a snapshot as JSON data, at any moment before, during or after a run.

        Args:
            serializer: The serializer of values; JSON by default.
            include_state: Whether the key-value state is part of it.

        Raises:
            ContextStateError: Called inside a step.
            ValueError: A value of the state cannot be written; the message names its key. Or this context was made
                from a snapshot with child runs that were written with another serializer.

        Example:
            >>> kept = json.dumps(handler.ctx.to_dict())
            >>> await workflow.run(ctx=Context.from_dict(workflow, json.loads(kept)))
        """
        if self._item is not None:
            raise ContextStateError(f"to_dict is {_FROM_HANDLER}, not from inside a step")
        run = self._run_ref()
        given = serializer or self.given_serializer
        if run is not None:
            return run.snapshot(given, cell=self._cell, include_state=include_state, children_with=given)
        workflow = cast("AnyWorkflow", self._workflow)
        own = workflow.__batonflow__.serializer
        loaded = self._loaded
        if loaded is not None and loaded.children and type(given or own) is not type(self.given_serializer or own):
            raise ValueError(
                "This context has not begun to run, and its child runs are data of its snapshot: write it with the "
                f"serializer it was read with, not with {type(serializer).__name__}"
            )
        state = RunState("", workflow.__batonflow__.steps.table) if loaded is None else loaded.state
        return dump_run(state, self._cell, given or own, loaded=loaded, include_state=include_state)

    def __repr__(self) -> str:
        run = self._run_ref()
        where = f"run {run.state.run_id!r}" if run is not None else "not running"
        return f"<Context of {where}{f', step {self._item.spec.name}' if self._item is not None else ''}>"


_D = DefaultTypeVar("_D", default=Any)
_S = DefaultTypeVar("_S", bound=BaseModel, default=DictState)
RunContext = TypeAliasType("RunContext", Context[_S, _D], type_params=(_D, _S))
"""The context of a run with these dependencies: ``RunContext[Deps]``, or ``RunContext[Deps, State]``."""


async def _raised(error: Exception) -> Any:
    raise error  # when it is awaited


def _no_run() -> None:
    return None


async def _events_of(run: Run) -> AsyncIterator[Event]:
    async for item in run.reader(internal=True):
        yield item.event
