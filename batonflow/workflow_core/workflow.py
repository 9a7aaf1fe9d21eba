"""Workflow: the class that users subclass. It gathers the steps, checks them, and starts runs."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from os import PathLike
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ValidationError

from batonflow import values
from batonflow.bridge import run_on_background_loop
from batonflow.instrumentation.logs import logger_named
from batonflow.resources import ResourceManager
from batonflow.values.serializers import BaseSerializer
from batonflow.workflow_core import context as parts
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.engine.ports import RunStoreLike, open_keeper, workflow_svg
from batonflow.workflow_core.engine.state import RunState
from batonflow.workflow_core.errors import ContextStateError, NoRunningLoopError, WorkflowRuntimeError
from batonflow.workflow_core.events import Event, StartEvent, StopEvent
from batonflow.workflow_core.handler import WorkflowHandler
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
from batonflow.workflow_core.plugins import BasicRuntime, get_current_runtime
from batonflow.workflow_core.routing import ClassSteps, StepTable, steps_of
from batonflow.workflow_core.runs import new_run
from batonflow.workflow_core.step import WorkflowGraphCheck
from batonflow.workflow_core.stored_runs import StoredRuns, check_context, check_run_id
from batonflow.workflow_core.turns import Turns
from batonflow.workflow_core.validation.tree import calling_step
from batonflow.workflow_core.validation.validate import check_once, validate_workflow

__all__ = ["Workflow"]

logger = logger_named("batonflow.workflow_core")


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
        WorkflowConfigurationError: There is no step for a start event, no step that returns a stop event, or several of
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
    if not TYPE_CHECKING:
        __batonflow__ = NotInitialized()
    # Whether effects of a run are known to others by its id, so that a copy of it must not have another one.
    __batonflow_id_matters__: ClassVar[bool] = False
    __batonflow_handler__: ClassVar[type[WorkflowHandler]] = WorkflowHandler
    __batonflow_steps__: ClassVar[ClassSteps]
    # Methods that the engine calls by name; steps must have other names.
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
        on_stall: Literal["warn", "raise"] = "warn",
        timeout_excludes_waiting: bool = False,
        store: str | PathLike[str] | RunStoreLike | None = None,
        types: Iterable[type] = (),
        workflows: "Mapping[str, Workflow] | None" = None,
        version: str | None = None,
        upcasters: Mapping[str, Upcaster] | None = None,
        idle_release: float | None = None,
        store_streamed: bool = True,
    ) -> None:
        options = Options(
            steps_of(type(self)),
            timeout=checked("timeout", timeout),
            disable_validation=disable_validation,
            verbose=verbose,
            resource_manager=checked("resource_manager", resource_manager) or ResourceManager(),
            num_concurrent_runs=checked("num_concurrent_runs", num_concurrent_runs),
            runtime=checked("runtime", runtime) or get_current_runtime(),
            name=checked("workflow_name", workflow_name),
            skip_graph_checks=check_graph_names(skip_graph_checks),
            given_serializer=checked("serializer", serializer),
            on_stall=checked("on_stall", on_stall),
            timeout_excludes_waiting=timeout_excludes_waiting,
            # An iterator is read once, before its items are checked.
            types=tuple(checked("types", tuple(types) if isinstance(types, Iterator) else types)),
            version=checked("version", version),
            upcasters=dict(checked("upcasters", upcasters) or {}),
            idle_release=checked("idle_release", idle_release),
            store_streamed=store_streamed,
        )
        options.keeper = None if store is None else open_keeper(store)
        options.turns = Turns(options)
        # Set past any __setattr__ of the subclass: agents, for one, are pydantic models too.
        object.__setattr__(self, "__batonflow__", options)
        _ = (options.steps.start_event_class, options.steps.stop_event_class)
        options.attach(workflows)

    def trace_tags(self) -> dict[str, Any]:
        """Return tags for the span of a run, as values of JSON; subclasses override it."""
        return {}

    # --- steps --------------------------------------------------------------------------------------------------------

    @classmethod
    def add_step(cls, func: Any) -> None:
        """Make a decorated free function a step of this class (and of no other).

        Raises:
            WorkflowValidationError: The function is not decorated, or a step of its name is there already.
        """
        steps_of(cls).add(func)

    def _get_steps(self) -> dict[str, Any]:
        """Step name -> step, bound to this workflow where it is a method."""
        table = self.__batonflow__.steps.table
        return {name: spec.func if spec.is_free else spec.func.__get__(self) for name, spec in table.steps.items()}

    @shown
    def _step_functions(self) -> dict[str, Any]:
        """Step name -> free function that was made a step."""
        return self.__batonflow__.steps.free

    @shown
    def step_table(self) -> StepTable:
        """The steps of this workflow's class as the engine sees them."""
        return self.__batonflow__.steps.table

    @shown
    def start_event_class(self) -> type[StartEvent]:
        """The class of the event that ``run`` starts with."""
        return self.__batonflow__.steps.start_event_class

    @shown
    def stop_event_class(self) -> type[StopEvent]:
        """The class of the event that ends a run."""
        return self.__batonflow__.steps.stop_event_class

    @shown
    def events(self) -> list[type[Event]]:
        """Every event class that a step accepts or returns."""
        return self.__batonflow__.steps.events

    @shown
    def entry_events(self) -> tuple[type[Event], ...]:
        """Events that start a run of this workflow when it is attached to another."""
        return self.__batonflow__.steps.entry_events

    @shown
    def run_state_type(self) -> type[BaseModel]:
        """The class of the key-value state: the most derived class that a step asks for with ``Context[...]``.

        Raises:
            ValueError: The classes do not lie on one line of inheritance, or the state has fields without defaults.
        """
        return self.__batonflow__.steps.state_type

    # --- options ------------------------------------------------------------------------------------------------------

    _timeout = option("timeout")
    # A later value changes nothing, as in LlamaIndex: subclasses may keep an option of their own there.
    _verbose = option("said_verbose")
    _disable_validation = option("disable_validation")
    _num_concurrent_runs = option("num_concurrent_runs")

    @shown
    def workflow_name(self) -> str:
        """The name given at construction, else module and class."""
        return self.__batonflow__.workflow_name

    @shown
    def runtime(self) -> BasicRuntime:
        """The runtime of the runs."""
        return self.__batonflow__.runtime

    @shown
    def serializer(self) -> BaseSerializer:
        """Writes and reads snapshots; knows the classes that the steps declare."""
        return self.__batonflow__.given_serializer or self.__batonflow__.serializer

    @shown
    def declared_types(self) -> list[type]:
        """The classes that snapshots of this workflow may hold besides classes found by their name."""
        return self.__batonflow__.declared_types

    @shown
    def run_resources(self) -> ResourceManager:
        """Keeps the injected resources."""
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
        """Names the version of this workflow's code."""
        return self.__batonflow__.version

    @shown
    def idle_release(self) -> float | None:
        """After how many seconds a run that only waits leaves memory."""
        return self.__batonflow__.idle_release

    @shown
    def timeout_seconds(self) -> float | None:
        """The seconds that a run may take."""
        return self.__batonflow__.timeout

    @shown
    def skipped_graph_checks(self) -> frozenset[str]:
        """Graph checks that are left out."""
        return self.__batonflow__.skip_graph_checks

    @shown
    def last_run_state(self) -> RunState | None:
        """The state of the run started last, for drawings of executions."""
        return self.__batonflow__.last_state

    # --- other workflows ----------------------------------------------------------------------------------------------

    def add_workflows(self, *, on_parent_stop: ParentStop = "finish", **workflows: "Workflow") -> None:
        """Attach workflows by name: steps can ask for them, and events that no step here takes go to them.

        Args:
            on_parent_stop: When this workflow's run stops, let runs that an event started ``"finish"``, or ``"cancel"``
                them.
            **workflows: Name -> workflow.

        Raises:
            WorkflowValidationError: A name is taken, a value is not a workflow, or ``on_parent_stop`` is unknown.

        Example:
            >>> shop.add_workflows(packing=Packing(), billing=Billing())
            >>> shop.run_sync(order="rope")
        """
        self.__batonflow__.attach(workflows, on_parent_stop)

    @shown
    def attached_workflows(self) -> "dict[str, Workflow]":
        """Name -> attached workflow."""
        return self.__batonflow__.children

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

    def _validate(self) -> bool:
        """``validate``, unless validation is left out."""
        return not self.__batonflow__.disable_validation and validate_workflow(self)

    def run(
        self, ctx: "Context[Any] | None" = None, start_event: StartEvent | None = None, **kwargs: Any
    ) -> WorkflowHandler:
        """Start a run and return its handler at once.

        Args:
            ctx: Carries state into the run, or a snapshot to go on with.
            start_event: The event to start with; else one is built from the keyword arguments.
            kwargs: Fields of the start event; and ``run_id``, ``stepwise``.

        Raises:
            TypeError: ``ctx`` is not a Context, or ``run_id`` is not text.
            ValueError: ``run_id`` is empty, or ``start_event`` is not what the workflow starts with.
            WorkflowRuntimeError: The start event cannot be built, or no event loop is running (use ``run_sync``); or
                an attached workflow was given an id of its own.
            WorkflowValidationError: The workflow is not sound.
            ContextStateError: The run of ``ctx`` still goes on.
            RuntimeError: A run of this id is not over yet.

        Example:
            >>> handler = workflow.run(topic="tides", run_id="tides-1")
            >>> print(await handler)
        """
        run_id: str | None = kwargs.pop("run_id", None)
        stepwise: bool = kwargs.pop("stepwise", False)
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
        options = self.__batonflow__
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
            if run_id is not None or stepwise:
                given = "run_id=" if run_id is not None else "stepwise="
                raise WorkflowRuntimeError(
                    f"run() inside a step of {family.run.workflow.__batonflow__.workflow_name} starts the attached "
                    f"workflow {name!r} as a part of that run, under an id made of its id: leave out {given}"
                )
            return self.__batonflow_handler__(family.call(self, name, item, event, ctx))
        keeper = options.keeper
        if keeper is None:
            run = new_run(self, ctx, run_id, stepwise=stepwise)
            handler = self.__batonflow_handler__(run)  # before eager tasks end the run, so that its result is awaited
            options.turns.launch(run, event)
        elif stepwise:
            raise WorkflowRuntimeError(
                "run(stepwise=True) hands its events to the caller and cannot be kept in a store"
            )
        else:
            known = None if run_id is None else keeper.live_run(self, run_id, event)
            run = known or new_run(self, ctx, run_id)
            handler = self.__batonflow_handler__(run)
            if known is None:
                keeper.begin(self, run, event)
        return handler

    def run_sync(self, *args: Any, **kwargs: Any) -> Any:
        """Run to the end and return the result; from plain code, a notebook, or under a running event loop.

        Ctrl-C cancels the run and raises KeyboardInterrupt.

        Args:
            args: As for ``run``.
            kwargs: As for ``run``.

        Raises:
            RuntimeError: An asynchronous step called this for a workflow that is attached to its own: it would wait for
                its own event loop. Await ``run()`` there.

        Example:
            >>> print(workflow.run_sync(topic="tides"))
        """
        return run_on_background_loop(
            lambda: self.run(*args, **kwargs), beside=_say_when_asked, loop=_loop_of_parent(self)
        )

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
    if event.__pydantic_extra__ and cls.__pydantic_fields__ and (said := values.close_to_fields(event)):
        logger.warning("run() keeps data beside the fields of the start event: %s", said)
    return event


def _say_when_asked(handler: WorkflowHandler) -> Coroutine[Any, Any, None]:
    return parts.inputs.say_when_asked(handler)


def _loop_of_parent(workflow: Workflow) -> asyncio.AbstractEventLoop | None:
    """The event loop of the run that a synchronous step starts an attached workflow in."""
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
