"""Workflow: the base class of workflows, which collects and checks steps and starts runs."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from os import PathLike
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ValidationError

from batonflow import values
from batonflow.bridge import run_on_background_loop
from batonflow.instrumentation.logs import debugging, logger_named, take_debug
from batonflow.new_runs import Enqueueing, place_of_new_runs
from batonflow.resources import ResourceManager
from batonflow.runtime import BasicRuntime, get_current_runtime
from batonflow.user_warnings import warn_of_checkpoints
from batonflow.values.serializers import BaseSerializer
from batonflow.workflow_core import context as parts
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.engine.ports import RunStoreLike, open_keeper, tell_run, workflow_svg
from batonflow.workflow_core.engine.state import RunState
from batonflow.workflow_core.errors import ContextStateError, NoRunningLoopError, WorkflowRuntimeError
from batonflow.workflow_core.events import Event, StartEvent, StopEvent
from batonflow.workflow_core.handler import WorkflowHandler, raise_on_stall
from batonflow.workflow_core.options import (
    NotInitialized,
    Options,
    ParentStop,
    Upcaster,
    check_graph_names,
    checked,
    option,
    shown,
)
from batonflow.workflow_core.routing import ClassSteps, StepTable, steps_of, steps_to_make
from batonflow.workflow_core.runs import new_run
from batonflow.workflow_core.step import WorkflowGraphCheck
from batonflow.workflow_core.stored_runs import StoredRuns, check_context, check_run_id
from batonflow.workflow_core.turns import Turns
from batonflow.workflow_core.typed import ResultT
from batonflow.workflow_core.validation.tree import calling_step
from batonflow.workflow_core.validation.validate import check_once, validate_workflow

__all__ = ["Workflow"]

logger = logger_named("batonflow.workflow")


class Workflow(StoredRuns[ResultT], Enqueueing):
    """The base class of workflows: steps that pass events to each other. Subclasses decorate methods with ``@step``.

    Args:
        timeout: Seconds for a run; None for no limit.
        disable_validation: Skip the checks of the event graph.
        verbose: Print the start and end of steps.
        resource_manager: The manager of injected resources; by default each workflow has its own.
        num_concurrent_runs: The number of active runs of this instance; further runs wait. Workers and servers also
            do not take up stored runs beyond this number, over all processes of the store.
        runtime: The runtime of runs; by default this process.
        workflow_name: The name of this workflow; module and class by default.
        skip_graph_checks: The checks to skip: ``"reachability"``, ``"terminal_event"``, ``"dead_end"``.
        serializer: The serializer of snapshots; JSON by default.
        on_stall: The reaction to a run with nothing left to do: ``"warn"``, ``"raise"``, or ``"wait"`` for a service,
            which takes events of other runs. By default agents, and ``run_sync`` without a store, raise; others warn.
        timeout_excludes_waiting: Pause the timeout while a run waits for input; by default with a store.
        store: The store of runs, which then outlive the process: the path of a SQLite file, a URL, or a ``RunStore``.
        types: Further classes for snapshots, for example classes declared inside functions.
        workflows: The workflows to attach, by name; see ``add_workflows``.
        version: The version of this workflow's code, which is stored with each run.
        upcasters: Functions by earlier version that translate a record of a run from that version.
        idle_release: Seconds after which a stored run that only waits is released from memory; it is restored for the
            next event or timer. None: it stays in memory.
        store_streamed: Whether the store keeps streamed events.
        debug: Tell each run on stderr, and let bugs of tools fail it. None: the variable ``BATONFLOW_DEBUG``.
        on_abandon: What happens to a run if the last task that awaits or reads it is cancelled: ``"continue"``, or
            ``"stop"`` as by ``handler.interrupt()``, the default of agents.

    Raises:
        WorkflowConfigurationError: No step accepts a start event, no step returns a stop event, or there are several of
            them.
        WorkflowValidationError: The value of an option is not allowed.

    Example:
        >>> class Hello(Workflow):
        ...     @step
        ...     async def greet(self, ev: StartEvent) -> StopEvent:
        ...         return StopEvent(result=f"hello {ev.name}")
        >>> Hello().run_sync(name="Ann")
        'hello Ann'
    """

    __batonflow_workflow__: ClassVar[bool] = True
    if not TYPE_CHECKING:
        __batonflow__ = NotInitialized()
    # Whether external effects use the id of the run, so that a copy of the run must keep the id.
    __batonflow_id_matters__: ClassVar[bool] = False
    # The options of these names if they are not given.
    __batonflow_on_stall__: ClassVar[Literal["raise"] | None] = None
    __batonflow_on_abandon__: ClassVar[Literal["stop", "continue"]] = "continue"
    __batonflow_handler__: ClassVar[type[WorkflowHandler]] = WorkflowHandler
    __batonflow_steps__: ClassVar[ClassSteps]
    # Methods that the engine calls by name; steps cannot have these names.
    __batonflow_called__: ClassVar[frozenset[str]] = frozenset({"run", "trace_tags"})

    def __init_subclass__(cls, *, entry: Iterable[type[Event]] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__batonflow_steps__ = ClassSteps(cls, cls.__batonflow_steps__.entry if entry is None else entry)

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
        on_stall: Literal["warn", "raise", "wait"] | None = None,
        timeout_excludes_waiting: bool | None = None,
        store: str | PathLike[str] | RunStoreLike | None = None,
        types: Iterable[type] = (),
        workflows: "Mapping[str, Workflow | type[Workflow]] | None" = None,
        version: str | None = None,
        upcasters: Mapping[str, Upcaster] | None = None,
        idle_release: float | None = None,
        store_streamed: bool = True,
        debug: bool | None = None,
        on_abandon: Literal["stop", "continue"] | None = None,
    ) -> None:
        options = Options(
            steps_to_make(type(self)),
            timeout=checked("timeout", timeout),
            disable_validation=disable_validation,
            verbose=verbose,
            resource_manager=checked("resource_manager", resource_manager) or ResourceManager(),
            num_concurrent_runs=checked("num_concurrent_runs", num_concurrent_runs),
            runtime=checked("runtime", runtime) or get_current_runtime(),
            name=checked("workflow_name", workflow_name),
            skip_graph_checks=check_graph_names(skip_graph_checks),
            given_serializer=checked("serializer", serializer),
            on_stall=checked("on_stall", self.__batonflow_on_stall__ if on_stall is None else on_stall),
            timeout_excludes_waiting=timeout_excludes_waiting,
            # An iterator can be read only once.
            types=tuple(checked("types", tuple(types) if isinstance(types, Iterator) else types)),
            version=checked("version", version),
            upcasters=dict(checked("upcasters", upcasters) or {}),
            idle_release=checked("idle_release", idle_release),
            store_streamed=store_streamed,
            debug=checked("debug", debug),
            on_abandon=checked("on_abandon", self.__batonflow_on_abandon__ if on_abandon is None else on_abandon),
        )
        options.keeper = None if store is None else open_keeper(store)
        options.turns = Turns(options)
        # Bypasses __setattr__ of subclasses; agents, for example, are pydantic models.
        object.__setattr__(self, "__batonflow__", options)
        _ = (options.steps.start_event_class, options.steps.stop_event_class)
        options.attach(workflows)

    def trace_tags(self) -> dict[str, Any]:
        """Return tags for the span of a run, as JSON values; subclasses override it."""
        return {}

    # --- steps --------------------------------------------------------------------------------------------------------

    @classmethod
    def add_step(cls, func: Any) -> None:
        """Add a decorated free function as a step of this class only.

        Raises:
            WorkflowValidationError: The function is not decorated, or a step with its name exists.
        """
        steps_of(cls).add(func)

    def _get_steps(self) -> dict[str, Any]:
        """Return the steps by name, methods bound to this workflow."""
        table = self.__batonflow__.steps.table
        return {name: spec.func if spec.is_free else spec.func.__get__(self) for name, spec in table.steps.items()}

    @shown
    def _step_functions(self) -> dict[str, Any]:
        """Return the free functions among the steps, by name."""
        return self.__batonflow__.steps.free

    @shown
    def step_table(self) -> StepTable:
        """The steps of this workflow's class for the engine."""
        return self.__batonflow__.steps.table

    @shown
    def start_event_class(self) -> type[StartEvent]:
        """The class of the start event."""
        return self.__batonflow__.steps.start_event_class

    @shown
    def stop_event_class(self) -> type[StopEvent]:
        """The class of the stop event."""
        return self.__batonflow__.steps.stop_event_class

    @shown
    def events(self) -> list[type[Event]]:
        """Return all event classes that a step accepts or returns."""
        return self.__batonflow__.steps.events

    @shown
    def entry_events(self) -> tuple[type[Event], ...]:
        """The events that start a run of this workflow as an attached workflow."""
        return self.__batonflow__.steps.entry_events

    @shown
    def run_state_type(self) -> type[BaseModel]:
        """The class of the key-value state: the most derived class of all ``Context[...]`` in steps.

        Raises:
            ValueError: The classes are not one line of inheritance, or the state has fields without defaults.
        """
        return self.__batonflow__.steps.state_type

    # --- options ------------------------------------------------------------------------------------------------------

    _timeout = option("timeout")
    # As in LlamaIndex, a later value has no effect; subclasses may use the attribute for their own option.
    _verbose = option("said_verbose")
    _disable_validation = option("disable_validation")
    _num_concurrent_runs = option("num_concurrent_runs")

    @shown
    def workflow_name(self) -> str:
        """The name given at construction, or module and class."""
        return self.__batonflow__.workflow_name

    @shown
    def runtime(self) -> BasicRuntime:
        """The runtime of the runs."""
        return self.__batonflow__.runtime

    @shown
    def serializer(self) -> BaseSerializer:
        """The serializer of snapshots, which knows the classes that the steps declare."""
        return self.__batonflow__.given_serializer or self.__batonflow__.serializer

    @shown
    def declared_types(self) -> list[type]:
        """The classes that snapshots may contain although they cannot be found by name."""
        return self.__batonflow__.declared_types

    @shown
    def run_resources(self) -> ResourceManager:
        """The manager of injected resources."""
        return self.__batonflow__.resource_manager

    @shown
    def run_store(self) -> Any:
        """The store of the runs."""
        return self.__batonflow__.store

    @shown
    def store_streamed(self) -> bool:
        """Tell whether the store keeps streamed events."""
        return self.__batonflow__.store_streamed

    @shown
    def version(self) -> str | None:
        """The version of this workflow's code."""
        return self.__batonflow__.version

    @shown
    def idle_release(self) -> float | None:
        """The seconds after which a waiting run is released from memory."""
        return self.__batonflow__.idle_release

    @shown
    def timeout_seconds(self) -> float | None:
        """The seconds for a run."""
        return self.__batonflow__.timeout

    @shown
    def skipped_graph_checks(self) -> frozenset[str]:
        """The skipped graph checks."""
        return self.__batonflow__.skip_graph_checks

    @shown
    def last_run_state(self) -> RunState | None:
        """The state of the run started last, for drawings of executions."""
        return self.__batonflow__.last_state

    # --- other workflows ----------------------------------------------------------------------------------------------

    def add_workflows(self, *, on_parent_stop: ParentStop = "finish", **workflows: "Workflow | type[Workflow]") -> None:
        """Attach workflows by name, for parameters of steps and for events that no step here accepts.

        Args:
            on_parent_stop: At the end of this workflow's run, ``"finish"`` or ``"cancel"`` child runs that an event
                started.
            **workflows: The workflows by name. Of a class an object is made without arguments; if no step of it takes
                a StartEvent, it starts on the events that its steps take and do not give.

        Raises:
            WorkflowValidationError: A name is used, a value is not a workflow, or ``on_parent_stop`` is unknown.

        Example:
            >>> shop.add_workflows(packing=Packing(), billing=Billing)
            >>> shop.run_sync(order="rope")
        """
        self.__batonflow__.attach(workflows, on_parent_stop)

    @shown
    def attached_workflows(self) -> "dict[str, Workflow]":
        """The attached workflows by name."""
        return self.__batonflow__.children

    # --- runs ---------------------------------------------------------------------------------------------------------

    def validate(self, *, validate_resource_configs: bool = True, validate_resources: bool = False) -> bool:
        """Check the steps, the events between them, and the resources; ``run`` does so once.

        Args:
            validate_resource_configs: Read all ``ResourceConfig`` files.
            validate_resources: Create all resources; not possible inside a running event loop.

        Returns:
            Whether the workflow asks people: it produces an InputRequiredEvent or accepts a HumanResponseEvent.

        Raises:
            WorkflowValidationError: A check failed; the message names the problem and its place.
        """
        return validate_workflow(
            self, validate_resource_configs=validate_resource_configs, validate_resources=validate_resources
        )

    def _validate(self) -> bool:
        """Call ``validate``, unless validation is disabled."""
        return not self.__batonflow__.disable_validation and validate_workflow(self)

    def run(
        self, ctx: Context[Any] | StartEvent | None = None, start_event: StartEvent | None = None, **kwargs: Any
    ) -> WorkflowHandler[ResultT]:
        """Start a run and return its handler at once.

        Args:
            ctx: A context with state for the run, or with a snapshot to continue. A StartEvent here is taken as
                ``start_event``.
            start_event: The start event; by default it is created from the keyword arguments.
            kwargs: The fields of the start event, and ``run_id``, ``stepwise`` and ``debug``.

        Raises:
            TypeError: ``ctx`` is not a Context, or ``run_id`` is not text.
            ValueError: ``run_id`` is empty, or ``start_event`` is not of the workflow's start event class.
            WorkflowRuntimeError: The start event cannot be created, no event loop is running (use ``run_sync``), or
                an attached workflow got its own id.
            WorkflowValidationError: The workflow is not valid.
            ContextStateError: The run of ``ctx`` still goes on.
            RuntimeError: A run with this id is not finished.

        Example:
            >>> handler = workflow.run(topic="tides", run_id="tides-1")
            >>> print(await handler)
        """
        run_id: str | None = kwargs.pop("run_id", None)
        stepwise: bool = kwargs.pop("stepwise", False)
        options = self.__batonflow__
        debug = take_debug(options.steps.start_event_class, kwargs) if "debug" in kwargs else None
        if isinstance(ctx, StartEvent):
            if start_event is not None:
                raise ValueError("run() was given two start events: give one of them")
            ctx, start_event = None, ctx
        check_context(ctx)
        check_run_id(run_id)
        if ctx is not None and ctx.run is not None and not ctx.run.ending.done:
            raise ContextStateError(f"The run of this context is already running (run {ctx.run.state.run_id!r})")
        resumes = ctx is not None and ctx.is_resumable
        if resumes and (kwargs or start_event is not None):
            unused = [*kwargs, *(["start_event"] if start_event is not None else [])]
            logger.warning(
                "The run of this context was interrupted and goes on where it was: %s of this call to run() is not "
                "used. Begin with another context, if that is not meant",
                ", ".join(unused),
            )
        event = None if resumes else _start_event(self, start_event, kwargs)
        check_once(self)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise NoRunningLoopError(
                f"{type(self).__name__}.run() needs a running event loop: call it from async code, or use run_sync()"
            ) from None
        parent = calling_step(self)
        if parent is not None and event is not None:
            family, name, item = parent
            if run_id is not None or stepwise or place_of_new_runs.get():
                given = "run_id=" if run_id is not None else "stepwise=" if stepwise else "enqueue(), and call run()"
                raise WorkflowRuntimeError(
                    f"run() inside a step of {family.run.workflow.__batonflow__.workflow_name} starts the attached "
                    f"workflow {name!r} as a part of that run, under an id made of its id: leave out {given}"
                )
            return self.__batonflow_handler__(family.call(self, name, item, event, ctx))
        keeper = options.keeper
        if keeper is None:
            run = new_run(self, ctx, run_id, stepwise=stepwise, debug=debug)
            handler = self.__batonflow_handler__(run)  # set before eager tasks can end the run
            if options.deps is not None and parts.dependencies.known_deps(run) is None:
                parts.dependencies.open_run(self, run, event)
            else:
                options.turns.launch(run, event)
        elif stepwise:
            raise WorkflowRuntimeError(
                "run(stepwise=True) hands its events to the caller and cannot be kept in a store"
            )
        else:
            known = None if run_id is None else keeper.live_run(self, run_id, event)
            run = known or new_run(self, ctx, run_id, debug=debug)
            handler = self.__batonflow_handler__(run)
            if known is None:
                keeper.begin(self, run, event)
        if run.variables.get(debugging):
            tell_run(handler)
        return handler

    def run_sync(self, *args: Any, **kwargs: Any) -> ResultT:
        """Run to the end and return the result. It works in synchronous code, notebooks and under a running loop.

        Ctrl-C cancels the run and raises KeyboardInterrupt.

        Args:
            args: The arguments of ``run``.
            kwargs: The keyword arguments of ``run``.

        Raises:
            RuntimeError: An asynchronous step called this for an attached workflow and would wait for
                its own event loop. Await ``run()`` there.

        Example:
            >>> print(workflow.run_sync(topic="tides"))
        """

        def begin() -> WorkflowHandler[ResultT]:
            handler = self.run(*args, **kwargs)
            if self.__batonflow__.keeper is None:  # no event can reach the run
                raise_on_stall(handler)
            return handler

        return run_on_background_loop(begin, beside=_say_when_asked, loop=_loop_of_parent(self))

    def _repr_html_(self) -> str:
        return workflow_svg(self)


Workflow.__batonflow_steps__ = ClassSteps(Workflow, ())


def _start_event(workflow: Workflow, given: StartEvent | None, kwargs: dict[str, Any]) -> StartEvent:
    if given is not None:
        if not isinstance(given, StartEvent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"start_event must be an instance of 'StartEvent', got {type(given).__name__}")
        if kwargs:
            logger.warning("run() was given a start_event: the arguments %s are ignored", ", ".join(kwargs))
        return given
    cls = workflow.__batonflow__.steps.start_event_class
    try:
        event = cls(**kwargs)
    except ValidationError as error:
        problems = values.in_words_with_hints(error, cls, kwargs)
        missing = [str(one["loc"][0]) for one in error.errors(include_url=False) if one["type"] == "missing"]
        remedy = f". Give run() the arguments {', '.join(f'{name}=...' for name in missing)}" if missing else ""
        raise WorkflowRuntimeError(
            f"Failed creating a start event of type {cls.__name__}: {problems}{remedy}"
        ) from error
    if (extra := event.__pydantic_extra__) and "checkpoint_callback" in extra:
        warn_of_checkpoints(type(workflow), extra)
    if extra and cls.__pydantic_fields__ and (said := values.close_to_fields(event)):
        logger.warning("run() keeps data beside the fields of the start event: %s", said)
    return event


def _say_when_asked(handler: WorkflowHandler[Any]) -> Coroutine[Any, Any, None]:
    return parts.inputs.say_when_asked(handler)


def _loop_of_parent(workflow: Workflow) -> asyncio.AbstractEventLoop | None:
    """Return the event loop of the run whose synchronous step starts an attached workflow."""
    parent = calling_step(workflow)
    if parent is None:
        return None
    run = parent[0].run
    if get_ident() == run.thread_id:
        raise RuntimeError(
            f"run_sync() of the attached workflow {parent[1]!r} was called on the event loop of the run that it would "
            "be a part of, and would wait for itself: await run() instead"
        )
    return run.loop
