"""Workflow: the class that users subclass. It gathers the steps, checks them, and starts runs."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ValidationError

from batonflow.workflow_core.bridge import run_on_background_loop
from batonflow.workflow_core.clock import current_source
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.context.serializers import BaseSerializer, JsonSerializer
from batonflow.workflow_core.context.snapshot import load_run
from batonflow.workflow_core.context.state_store import DictState, StateCell
from batonflow.workflow_core.decorators import StepFunction, WorkflowGraphCheck
from batonflow.workflow_core.engine.runner import Run
from batonflow.workflow_core.engine.state import RunState, current_item
from batonflow.workflow_core.engine.ticks import EventArrived
from batonflow.workflow_core.errors import (
    ContextStateError,
    NoRunningLoopError,
    WorkflowConfigurationError,
    WorkflowRuntimeError,
    WorkflowValidationError,
)
from batonflow.workflow_core.events import Event, StartEvent, StopEvent
from batonflow.workflow_core.family import Family
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.inputs import say_when_asked
from batonflow.workflow_core.instrumentation import get_dispatcher
from batonflow.workflow_core.journal.segments import Causes
from batonflow.workflow_core.lazy import at_first_use
from batonflow.workflow_core.options import Options, ParentStop, Upcaster
from batonflow.workflow_core.plugins import BasicRuntime
from batonflow.workflow_core.representation.validate import validate_workflow
from batonflow.workflow_core.resource import ResourceManager
from batonflow.workflow_core.steps import StepTable
from batonflow.workflow_core.stored_runs import StoredRuns, check_context, check_run_id

if TYPE_CHECKING:
    from batonflow.workflow_core.journal.store import RunStore
    from batonflow.workflow_core.observers import Observer

__all__ = ["Workflow"]

logger = logging.getLogger("batonflow.workflow_core")
dispatcher = get_dispatcher("batonflow.workflow_core.observers")

workflow_svg = at_first_use("batonflow.workflow_core.draw", "workflow_svg")
observer_for = at_first_use("batonflow.workflow_core.observers", "observer_for")
open_store = at_first_use("batonflow.workflow_core.journal.stores", "open_store")
begin_recorded = at_first_use("batonflow.workflow_core.durable", "begin_recorded")
known_run = at_first_use("batonflow.workflow_core.durable", "known_run")
in_words = at_first_use("batonflow.workflow_core.problems", "in_words")
stepwise_run = at_first_use("batonflow.workflow_core.compat.stepwise", "StepwiseRun")


class Workflow(StoredRuns):
    """Steps that pass events to one another. Subclass it, decorate methods with ``@step``, and call ``run``.

    Args:
        timeout: Seconds a run may take, None for ever.
        disable_validation: Leave the checks of the event graph out.
        verbose: Print what the steps do.
        resource_manager: Keeps injected resources; one per workflow unless shared.
        num_concurrent_runs: How many runs of this instance may be active; others wait for their turn.
        runtime: Where runs live; the process by default.
        workflow_name: Name of this workflow; module and class by default.
        skip_graph_checks: Checks to leave out: ``"reachability"``, ``"terminal_event"``, ``"dead_end"``.
        serializer: Writes and reads snapshots; JSON by default.
        on_stall: What to do when a run can no longer move: ``"warn"`` or ``"raise"``.
        timeout_excludes_waiting: Let the timeout stand still while a run waits for something from outside.
        store: Where runs are kept, so that they outlive the process: the path of a SQLite file, ``"memory:"``, or a
            ``RunStore``.
        types: Further classes that snapshots may hold, for example ones declared inside functions.
        workflows: Name -> workflow to attach; see ``add_workflows``.
        version: Names the version of this workflow's code; kept with each run in a store.
        upcasters: Earlier version -> function that translates a record of a run started under it, for when code and
            records do not fit any more.
        idle_release: With a store: a run that only waits leaves memory after so many seconds, and comes back with the
            next event or timer. None: it stays.
        store_streamed: Whether the store keeps what steps stream, for those who read it there.

    Raises:
        WorkflowConfigurationError: There is no step for a start event, none that returns a stop event, or several of
        either. WorkflowValidationError: An option has a value that it cannot have.

    Example:
        >>> class Hello(Workflow):
        ...     @step
        ...     async def greet(self, ev: StartEvent) -> StopEvent:
        ...         return StopEvent(result=f"hello {ev.name}")
        >>> Hello().run_sync(name="Ann")
        'hello Ann'
    """

    __batonflow_workflow__: ClassVar[bool] = True
    run_handler_class: ClassVar[type[WorkflowHandler]] = WorkflowHandler
    _free_steps: ClassVar[dict[str, StepFunction]] = {}
    _entry: ClassVar[tuple[type[Event], ...]] = ()

    def __init_subclass__(cls, *, entry: Iterable[type[Event]] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Free functions belong to the one class they were added to; methods are inherited in the ordinary way.
        cls._free_steps = {}
        cls._table_cache = None
        if entry is not None:
            cls._entry = tuple(entry)

    _table_cache: ClassVar[StepTable | None] = None

    def __init__(
        self,
        timeout: float | None = 45.0,
        disable_validation: bool = False,
        verbose: bool = False,
        resource_manager: ResourceManager | None = None,
        num_concurrent_runs: int | None = None,
        runtime: BasicRuntime | None = None,
        workflow_name: str | None = None,
        skip_graph_checks: set[WorkflowGraphCheck] | None = None,
        serializer: BaseSerializer | None = None,
        *,
        on_stall: Literal["warn", "raise"] = "warn",
        timeout_excludes_waiting: bool = False,
        store: "str | PathLike[str] | RunStore | None" = None,
        types: Iterable[type] = (),
        workflows: "Mapping[str, Workflow] | None" = None,
        version: str | None = None,
        upcasters: Mapping[str, Upcaster] | None = None,
        idle_release: float | None = None,
        store_streamed: bool = True,
    ) -> None:
        options = Options(
            timeout=timeout,
            disable_validation=disable_validation,
            verbose=verbose,
            resource_manager=resource_manager,
            num_concurrent_runs=num_concurrent_runs,
            runtime=runtime,
            workflow_name=workflow_name,
            skip_graph_checks=skip_graph_checks,
            serializer=serializer,
            on_stall=on_stall,
            timeout_excludes_waiting=timeout_excludes_waiting,
            types=types,
            version=version,
            upcasters=upcasters,
            idle_release=idle_release,
            store_streamed=store_streamed,
        )
        options.store = None if store is None else open_store(store)
        # Set past any __setattr__ of the subclass: agents, for one, are pydantic models too.
        object.__setattr__(self, "_options", options)
        self._check_start_and_stop()
        options.attach(type(self).__name__, workflows)

    _options: Options

    # --- steps --------------------------------------------------------------------------------------------------------

    @classmethod
    def add_step(cls, func: Any) -> None:
        """Make a decorated free function a step of this class (and of no other).

        Raises:
            WorkflowValidationError: The function is not decorated, or a step of its name is there already.
        """
        name = func.__name__
        if not hasattr(func, "_step_config"):
            raise WorkflowValidationError(f"Step function {name} is missing the `@step` decorator")
        if name in cls._step_functions():
            raise WorkflowValidationError(
                f"A step {name} is already part of this workflow, {cls.__name__}: rename one of them"
            )
        cls._free_steps[name] = func
        cls._table_cache = None

    @classmethod
    def _step_functions(cls) -> dict[str, Any]:
        """Step name -> function: methods in the order of their definition, base classes first, then free functions."""
        found: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if hasattr(value, "_step_config") and callable(value):
                    found[name] = value
                elif name in found:
                    del found[name]
        return {**found, **cls._free_steps}

    @classmethod
    def _class_table(cls) -> StepTable:
        table = cls._table_cache
        if table is None:
            table = cls._table_cache = StepTable(cls.__name__, cls._step_functions())
        return table

    @property
    def step_table(self) -> StepTable:
        """The steps of this workflow's class as the engine sees them."""
        return type(self)._class_table()

    def _check_start_and_stop(self) -> None:
        _ = self.start_event_class
        _ = self.stop_event_class

    def _the_one(self, base: type[Event], classes: Iterable[type], sentence: str) -> Any:
        found = list(dict.fromkeys(cls for cls in classes if isinstance(cls, type) and issubclass(cls, base)))  # pyright: ignore[reportUnnecessaryIsInstance]
        name = type(self).__name__
        if not found:
            raise WorkflowConfigurationError(f"At least one Event of type {sentence} by any step. (workflow {name})")
        if len(found) > 1:
            names = ", ".join(sorted(cls.__name__ for cls in found))
            raise WorkflowConfigurationError(
                f"Only one type of {base.__name__} is allowed per workflow, found {len(found)}: {names} (workflow "
                f"{name})"
            )
        return found[0]

    @property
    def start_event_class(self) -> type[StartEvent]:
        """The class of the event that ``run`` starts with."""
        return self.step_table.once("start", self._find_start_event_class)

    def _find_start_event_class(self) -> type[StartEvent]:
        accepted = [cls for spec in self.step_table.steps.values() for cls in spec.config.accepted_events]
        if self._entry and not any(issubclass(cls, StartEvent) for cls in accepted):
            return StartEvent
        return self._the_one(StartEvent, accepted, "StartEvent must be received")

    @property
    def stop_event_class(self) -> type[StopEvent]:
        """The class of the event that ends a run."""
        returned = [cls for spec in self.step_table.steps.values() for cls in spec.config.return_types]
        return self._the_one(StopEvent, returned, "StopEvent must be returned")

    @property
    def events(self) -> list[type[Event]]:
        """Every event class that a step accepts or returns."""
        specs = self.step_table.steps.values()
        classes = [cls for spec in specs for cls in (*spec.config.accepted_events, *spec.config.return_types)]
        return list(dict.fromkeys(cls for cls in classes if issubclass(cls, Event)))

    @property
    def entry_events(self) -> tuple[type[Event], ...]:
        """Events that start a run of this workflow when it is attached to another."""
        start = self.start_event_class
        return self._entry or (() if start is StartEvent else (start,))

    @property
    def run_state_type(self) -> type[BaseModel]:
        """The class of the key-value state: the most derived of those that the steps ask for with ``Context[...]``.

        Raises:
            ValueError: The classes do not lie on one line of inheritance, or the state has fields without defaults.
        """
        return self.step_table.once("state", self._find_state_type)

    def _find_state_type(self) -> type[BaseModel]:
        found: type[BaseModel] = DictState
        for spec in self.step_table.steps.values():
            wanted = spec.config.context_state_type
            if wanted is None or found is wanted or (found is not DictState and issubclass(found, wanted)):
                continue
            if found is not DictState and not issubclass(wanted, found):
                raise ValueError(
                    f"Steps of {type(self).__name__} ask for Context[{found.__name__}] and "
                    f"Context[{wanted.__name__}]: state "
                    "classes must have a compatible inheritance, one derived from the other"
                )
            found = wanted
        return found

    # --- options ------------------------------------------------------------------------------------------------------

    @property
    def workflow_name(self) -> str:
        """The name given at construction, else module and class."""
        cls = type(self)
        return self._options.name or f"{cls.__module__}.{cls.__qualname__}"

    @property
    def runtime(self) -> BasicRuntime:
        """Where the runs live."""
        return self._options.runtime

    @property
    def serializer(self) -> BaseSerializer:
        """Writes and reads snapshots; knows the classes that the steps declare."""
        if self._options.serializer is not None:
            return self._options.serializer
        return JsonSerializer().knowing(self.declared_types)

    @property
    def declared_types(self) -> list[type]:
        """The classes that snapshots of this workflow may hold besides those found by their name."""
        return [*self.events, self.run_state_type, *self._options.types]

    @property
    def run_resources(self) -> ResourceManager:
        """Keeps the injected resources."""
        return self._options.resource_manager

    @property
    def run_store(self) -> "RunStore | None":
        """Where the runs are recorded."""
        return self._options.store

    @property
    def version(self) -> str | None:
        """Names the version of this workflow's code."""
        return self._options.version

    def upcaster(self, version: str | None) -> Upcaster | None:
        """Translates records of runs that were started under a version; None when nothing has to be translated."""
        return self._options.upcasters.get(version or "") if version != self._options.version else None

    @property
    def idle_release(self) -> float | None:
        """After how many seconds a run that only waits leaves memory."""
        return self._options.idle_release

    @property
    def timeout_seconds(self) -> float | None:
        """How long a run may take."""
        return self._options.timeout

    @property
    def timeout_leaves_out_waiting(self) -> bool:
        """Whether the timeout stands still while a run waits."""
        return self._options.timeout_excludes_waiting

    @property
    def stall_raises(self) -> bool:
        """Whether a run that can no longer move fails."""
        return self._options.on_stall == "raise"

    @property
    def skipped_graph_checks(self) -> frozenset[str]:
        """Graph checks that are left out."""
        return self._options.skip_graph_checks

    @property
    def last_run_state(self) -> RunState | None:
        """The state of the run started last; for drawing what happened."""
        return self._options.last_state

    # --- other workflows ----------------------------------------------------------------------------------------------

    def add_workflows(self, *, on_parent_stop: ParentStop = "finish", **workflows: "Workflow") -> None:
        """Attach workflows by name: steps can ask for them, and events that no step here takes go to them.

        Args:
            on_parent_stop: When this workflow's run stops, let runs that an event started ``"finish"``, or ``"cancel"``
                them.
            **workflows: Name -> workflow.

        Raises:
            WorkflowValidationError: A name is taken by another workflow, a value is no workflow, or ``on_parent_stop``
                neither of the two.
        """
        self._options.attach(type(self).__name__, workflows, on_parent_stop)

    @property
    def attached_workflows(self) -> "dict[str, Workflow]":
        """Name -> attached workflow."""
        return self._options.children

    def trace_tags(self) -> dict[str, Any]:
        """What the span of a run is tagged with beside the run's id; for subclasses, as values of JSON."""
        return {}

    def on_parent_stop(self, name: str) -> ParentStop:
        """What happens to event-started runs of an attached workflow when this one stops."""
        return self._options.on_parent_stop.get(name, "finish")

    def check_target(self, event: Event, step: str) -> None:
        """Raise ``WorkflowRuntimeError`` unless there is a step of this name which accepts the event."""
        spec = self.step_table.steps.get(step)
        if spec is None:
            raise WorkflowRuntimeError(
                f"Step {step} does not exist in {type(self).__name__}; its steps are {', '.join(self.step_table.steps)}"
            )
        route = self.step_table.route(type(event))
        takers = [*route.singles, *(spec for spec, _ in route.joins), *route.collects]
        if spec not in takers:
            raise WorkflowRuntimeError(f"Step {step} does not accept event of type {type(event)}")

    # --- runs ---------------------------------------------------------------------------------------------------------

    def validate(self, *, validate_resource_configs: bool = True, validate_resources: bool = False) -> bool:
        """Check the steps, the events between them and the resources; ``run`` does so once.

        Args:
            validate_resource_configs: Read every ``ResourceConfig`` file.
            validate_resources: Build every resource; not possible inside a running event loop.

        Returns:
            Whether the workflow asks people: it produces an InputRequiredEvent or accepts a HumanResponseEvent.

        Raises:
            WorkflowValidationError: Something does not fit; the message says what and where.
        """
        return validate_workflow(
            self, validate_resource_configs=validate_resource_configs, validate_resources=validate_resources
        )

    def run(
        self, ctx: "Context[Any] | None" = None, start_event: StartEvent | None = None, **kwargs: Any
    ) -> WorkflowHandler:
        """Start a run and return its handler at once.

        Args:
            ctx: Carries state into the run, or a snapshot to go on with.
            start_event: The event to start with; else one is built from the keyword arguments.
            kwargs: Fields of the start event; and ``run_id``, ``stepwise``.

        Raises:
            TypeError: ``ctx`` is no Context, or ``run_id`` no text.
            WorkflowRuntimeError: The start event cannot be built, or no event loop is running (use ``run_sync``).
            WorkflowValidationError: The workflow is not sound.
            ContextStateError: The run of ``ctx`` still goes on.
            RuntimeError: A run of this id is not over yet.
        """
        run_id: str | None = kwargs.pop("run_id", None)
        stepwise: bool = kwargs.pop("stepwise", False)
        check_context(ctx)
        check_run_id(run_id)
        if ctx is not None and ctx.run is not None and not ctx.run.ending.done:
            raise ContextStateError(f"The run of this context is already running (run {ctx.run.state.run_id!r})")
        resumes = ctx is not None and ctx.is_resumable
        event = None if resumes else self._start_event(start_event, kwargs)
        self._options.check_once(self)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise NoRunningLoopError(
                f"{type(self).__name__}.run() needs a running event loop: call it from async code, or use run_sync()"
            ) from None
        parent = self._parent()
        if parent is not None and event is not None:
            family, name, item = parent
            return self.run_handler_class(family.call(self, name, item, event, ctx))
        store = self._options.store
        if store is None:
            run = self.new_run(ctx, run_id, stepwise=stepwise)
            self.launch_run(run, event)
        elif stepwise:
            raise WorkflowRuntimeError(
                "run(stepwise=True) hands its events to the caller and cannot be kept in a store"
            )
        else:
            known = None if run_id is None else known_run(store, self, run_id, event)
            run = known or self.new_run(ctx, run_id)
            if known is None:
                begin_recorded(self, store, run, event)
        return self.run_handler_class(run)

    def run_sync(self, *args: Any, **kwargs: Any) -> Any:
        """Run to the end and return the result; from plain code, a notebook, or under a running event loop.

        Ctrl-C cancels the run and raises KeyboardInterrupt.

        Args:
            args: As for ``run``.
            kwargs: As for ``run``.

        Raises:
            RuntimeError: Called on the background loop itself, where waiting would block the run; await ``run()``
            there.
        """
        return run_on_background_loop(lambda: self.run(*args, **kwargs), beside=say_when_asked)

    def _start_event(self, given: StartEvent | None, kwargs: dict[str, Any]) -> StartEvent:
        if given is not None:
            if not isinstance(given, StartEvent):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"start_event must be an instance of 'StartEvent', got {type(given).__name__}")
            if kwargs:
                logger.warning("run() was given a start_event: the arguments %s are ignored", ", ".join(kwargs))
            return given
        cls = self.start_event_class
        try:
            return cls(**kwargs)
        except ValidationError as error:
            problems = in_words(error)
            raise WorkflowRuntimeError(f"Failed creating a start event of type {cls.__name__}: {problems}") from error

    def _parent(self) -> "tuple[Family, str, Any] | None":
        """The run whose step is calling ``run()``, when this workflow is attached to it."""
        item = current_item.get()
        if item is None or item.run is None or item.run.family is None:
            return None
        name = item.run.family.name_of(self)
        return (item.run.family, name, item) if name is not None else None

    def new_run(self, ctx: "Context[Any] | None", run_id: str | None, *, stepwise: bool = False) -> Run:
        """A run that has not begun, with what a context carries into it."""
        restored, cell, children = (
            ctx.take_restored() if ctx is not None else (None, StateCell(self.run_state_type), {})
        )
        if cell.foreign is not None:
            raise WorkflowRuntimeError(
                f"The snapshot keeps its state in a durable state store ({cell.foreign}), which this runtime does not "
                "offer"
            )
        if restored is None:
            restored = RunState("", self.step_table)
        restored.run_id = run_id or restored.run_id or current_source().token()
        run = (stepwise_run if stepwise else Run)(self, restored, cell)
        if children and children["runs"]:
            run.family = run.family or Family(run, None)
        if run.family is not None and children:
            run.family.restore(children["counts"], children["runs"])
        if ctx is not None:
            ctx.bind(run)
            run.handler_context = ctx
        if self._options.store is None:  # else the store knows which runs there are
            self._options.runtime.add(run)
        self._options.last_state = run.state
        return run

    def prepare_run(
        self, *, path: str, parent: Family, payload: dict[str, Any] | None = None, ctx: "Context[Any] | None" = None
    ) -> Run:
        """A run of this workflow inside another one: new, perhaps with the state of a context, or from a snapshot."""
        run_id = f"{parent.run.state.run_id}/{path.rpartition('/')[2]}"
        if payload is not None:
            loaded = load_run(self, payload, self.serializer)
            state, cell, children = loaded.state, loaded.cell, loaded.children
            state.run_id = run_id
        else:
            cell = StateCell(self.run_state_type) if ctx is None else ctx.take_restored()[1]
            state, children = RunState(run_id, self.step_table), {}
        run = Run(self, state, cell, path=path, parent=parent)
        if run.family is not None and children:
            run.family.restore(children["counts"], children["runs"])
        if ctx is not None:
            ctx.bind(run)
            run.handler_context = ctx
        self._options.last_state = state
        recorder = parent.run.recorder
        if recorder is not None:
            run.recorder = recorder.for_child(path, self.serializer)
            run.recorder.watch(run.cell)
        return run

    def launch_run(self, run: Run, event: Event | None, step: str | None = None, causes: Causes = ()) -> None:
        """Begin a run now, or when one of the active runs ends.

        Args:
            run: The run.
            event: What it starts with; None for a restored one.
            step: The only step that the event goes to.
            causes: What the event depends on, when another workflow of the tree made it.
        """
        limit = self._options.num_concurrent_runs
        if limit is not None and self._options.active >= limit:
            self._options.pending[run] = event, step, causes
            if event is not None:  # a snapshot taken until its turn comes holds it
                run.state.running = True
                run.state.restored_deliveries = [EventArrived(event, step)]
        else:
            self._options.active += 1
            run.begin(event, step, causes)

    def run_ended(self, run: Run) -> None:
        """A run is over: forget it and let the next waiting one begin."""
        options = self._options
        options.runtime.discard(run)
        if run in options.pending:
            del options.pending[run]
            return
        options.active -= 1
        if options.pending and (options.num_concurrent_runs or 0) > options.active:
            options.active += 1
            following, beginning = options.pending.popitem(last=False)
            following.begin(*beginning)

    def run_observer(self) -> "Observer | None":
        """Who hears the runs of this workflow: spans when anybody listens, verbose output when asked for."""
        if not (self._options.verbose or dispatcher.enabled):
            return None
        return observer_for(verbose=self._options.verbose)

    def _repr_html_(self) -> str:
        return workflow_svg(self)
