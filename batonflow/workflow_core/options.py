"""The options of a workflow instance and its data between runs, separate from the user's attributes.

The engine, stores, the server and agents read all data of a workflow from
``workflow.__batonflow__``, because all other names of an instance may belong to the user.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast, get_args

from batonflow.resources import ResourceManager
from batonflow.runtime import BasicRuntime
from batonflow.values.names import qualified_name
from batonflow.values.serializers import BaseSerializer, JsonSerializer
from batonflow.values.types import is_seconds, is_whole
from batonflow.workflow_core.errors import NotInitializedError, WorkflowRuntimeError, WorkflowValidationError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.routing import ClassSteps, StepTable, attached_object
from batonflow.workflow_core.step import WorkflowGraphCheck

__all__ = [
    "AnyWorkflow",
    "NotInitialized",
    "Options",
    "ParentStop",
    "RunQueue",
    "Upcaster",
    "check_graph_names",
    "checked",
    "is_workflow",
    "option",
    "shown",
]

GRAPH_CHECKS: frozenset[str] = frozenset(get_args(WorkflowGraphCheck))

ParentStop = Literal["finish", "cancel"]

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Translates a record that an earlier version of a workflow's code wrote."""

T = TypeVar("T")


class AnyWorkflow(Protocol):
    """The interface of a workflow for its runs: only its options belong to the engine."""

    @property
    def __batonflow__(self) -> "Options": ...


class RunQueue(Protocol):
    """The active and the waiting runs of a workflow."""

    def launch(self, run: Any, event: Event | None, step: str | None = None, causes: Any = ()) -> None:
        """Begin a run now, or at its turn."""
        ...

    def check(self, run: Any) -> None:
        """Warn of a run that may wait for ever."""
        ...

    def ended(self, run: Any) -> None:
        """Forget a finished run, and let waiting runs begin."""
        ...

    @property
    def active(self) -> int:
        """The number of active runs."""
        ...

    @property
    def pending(self) -> int:
        """The number of runs that wait for their turn."""
        ...


def check_graph_names(names: Iterable[str] | None) -> frozenset[str]:
    """Return the names of graph checks to skip as a set.

    Raises:
        WorkflowValidationError: A check with this name does not exist.
    """
    # A string is one name, not a collection of letters.
    several: Any = () if names is None else [names] if isinstance(names, str) else names
    given: list[Any] = [*several] if isinstance(several, Iterable) else [several]
    unknown = sorted((name for name in given if name not in [*GRAPH_CHECKS]), key=str)
    if unknown:
        raise WorkflowValidationError(
            f"Unknown graph check names in skip_graph_checks: {', '.join(map(repr, unknown))}; "
            f"there are {', '.join(sorted(GRAPH_CHECKS))}"
        )
    return frozenset(given)


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _one_of(*choices: str) -> Callable[[Any], bool]:
    return lambda value: value in choices


def _an(cls: type) -> Callable[[Any], bool]:
    # A class also has the methods of its instances.
    return lambda value: isinstance(value, cls) and not isinstance(value, type)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _by_text(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, cast("Mapping[Any, Any]", value)))


def _classes(value: Any) -> bool:
    # A class may be iterable itself, for example an enum.
    several = isinstance(value, Iterable) and not isinstance(value, type)
    return several and all(isinstance(one, type) for one in cast("Iterable[Any]", value))


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "debug": (_or_none(_an(bool)), "must be True, False, or None for the variable BATONFLOW_DEBUG"),
    "timeout": (_or_none(is_seconds), "must be a number of seconds, or None to wait without limit"),
    "resource_manager": (_or_none(_an(ResourceManager)), "must be a ResourceManager(), or None for a new one"),
    "num_concurrent_runs": (_or_none(partial(is_whole, least=1)), "must be an integer greater than 0"),
    "runtime": (_or_none(_an(BasicRuntime)), "must be a runtime such as BasicRuntime(), or None for the default"),
    "workflow_name": (_or_none(_is_text), 'must be a text such as "orders"'),
    "serializer": (
        _or_none(_an(BaseSerializer)),
        "must be an object with serialize(value) and deserialize(text), or None for JSON",
    ),
    "on_stall": (_or_none(_one_of("warn", "raise", "wait")), 'must be "warn", "raise" or "wait"'),
    "on_abandon": (_one_of("stop", "continue"), 'must be "stop" or "continue"'),
    "types": (_classes, "must be a list of classes, such as [Note]"),
    "workflows": (_or_none(_by_text), 'must be a dict of names with workflows, such as {"child": Child()}'),
    "version": (_or_none(_is_text), 'must be a text such as "2"'),
    "upcasters": (
        _or_none(lambda value: _by_text(value) and all(map(callable, value.values()))),
        'must be a dict of versions with functions, such as {"1": from_version_1}',
    ),
    "idle_release": (_or_none(is_seconds), "must be a number of seconds, 0 or more"),
    "on_parent_stop": (_one_of("finish", "cancel"), 'must be "finish" or "cancel"'),
}

_ANYTHING: tuple[Callable[[Any], bool], str] = (lambda value: True, "")  # noqa: ARG005 - as of `verbose`: true or not


def is_workflow(value: object) -> bool:
    """Tell whether a value is a workflow instance, not a class."""
    return getattr(type(value), "__batonflow_workflow__", False)


def checked(name: str, value: T) -> T:
    """Return the value of an option.

    Raises:
        WorkflowValidationError: The value is not allowed; the message names the option, its type, and the value.
    """
    fits, says = _RULES.get(name, _ANYTHING)
    if not fits(value):
        raise WorkflowValidationError(f"{name} {says}; got {value!r}")
    return value


@dataclass(slots=True, eq=False)
class Options:
    """The options of a workflow: the steps of its class, then options that ``Workflow`` has checked."""

    steps: ClassSteps
    timeout: float | None
    disable_validation: bool
    verbose: bool
    resource_manager: ResourceManager
    num_concurrent_runs: int | None
    runtime: BasicRuntime
    name: str | None
    skip_graph_checks: frozenset[str]
    given_serializer: BaseSerializer | None
    on_stall: Literal["warn", "raise", "wait"] | None
    timeout_excludes_waiting: bool | None
    types: tuple[type, ...]
    version: str | None
    upcasters: Mapping[str, Upcaster]
    idle_release: float | None
    store_streamed: bool
    on_abandon: Literal["stop", "continue"]
    debug: bool | None = None
    keeper: Any = None
    deps: Any = None
    sessions: Any = None
    turns: RunQueue = field(init=False)
    said_verbose: bool = field(init=False)
    children: dict[str, Any] = field(default_factory=dict[str, Any])
    on_parent_stop: dict[str, ParentStop] = field(default_factory=dict[str, ParentStop])
    validated: StepTable | None = None
    last_state: Any = None

    def __post_init__(self) -> None:
        self.said_verbose = self.verbose
        if self.debug is None and os.environ.get("BATONFLOW_DEBUG", "0") not in ("", "0"):
            self.debug = True

    @property
    def store(self) -> Any:
        """The store of the runs; None without a store."""
        return None if self.keeper is None else self.keeper.store

    @property
    def excludes_waiting(self) -> bool:
        """Tell whether waiting for a person uses up no time; by default if the runs are stored."""
        given = self.timeout_excludes_waiting
        return self.keeper is not None if given is None else given

    def attach(self, workflows: "Mapping[str, Any] | None", on_parent_stop: ParentStop = "finish") -> None:
        """Attach workflows by name; see ``Workflow.add_workflows``.

        Raises:
            WorkflowValidationError: A name is already used, or a value is not a workflow.
        """
        checked("on_parent_stop", on_parent_stop)
        for name, workflow in (checked("workflows", workflows) or {}).items():
            given: Any = workflow
            if isinstance(given, type) and getattr(given, "__batonflow_workflow__", False):
                given = attached_object(cast("type[Any]", given))
            if not is_workflow(given):
                got = given.__name__ if isinstance(given, type) else type(given).__name__
                raise WorkflowValidationError(f"add_workflows({name}=...) takes a workflow or its class, got {got}")
            if self.children.get(name, given) is not given:
                said = (
                    f"A workflow named {name!r} is already attached to {self.steps.cls.__name__}: choose another name"
                )
                raise WorkflowValidationError(said)
            self.children[name] = given
            self.on_parent_stop[name] = on_parent_stop
        self.validated = None

    def when_parent_stops(self, name: str) -> ParentStop:
        """Return the policy for child runs that an event started, when this workflow stops."""
        return self.on_parent_stop.get(name, "finish")

    # --- derived values -----------------------------------------------------------------------------------------------

    @property
    def workflow_name(self) -> str:
        """The name given at construction, or module and class."""
        cls = self.steps.cls
        return self.name or qualified_name(cls)

    @property
    def declared_types(self) -> list[type]:
        """The classes that snapshots may contain although they cannot be found by name."""
        return [*self.steps.events, self.steps.state_type, *self.types]

    @property
    def serializer(self) -> BaseSerializer:
        """The serializer of snapshots, which knows the classes that the steps declare."""
        if self.given_serializer is None and not self.types:  # one for all instances of the class
            return self.steps.table.once("serializer", lambda: JsonSerializer().knowing(self.declared_types))
        given = self.given_serializer or JsonSerializer()
        return given.knowing(self.declared_types) if isinstance(given, JsonSerializer) else given

    def upcaster(self, version: str | None) -> Upcaster | None:
        """Return the translation of records from a version of the workflow; None if it is not needed."""
        return self.upcasters.get(version or "") if version != self.version else None

    def check_target(self, event: Event, step: str) -> None:
        """Raise ``WorkflowRuntimeError`` unless a step of this name accepts the event."""
        table = self.steps.table
        spec = table.steps.get(step)
        if spec is None:
            raise WorkflowRuntimeError(
                f"Step {step} does not exist in {self.steps.cls.__name__}; its steps are {', '.join(table.steps)}"
            )
        route = table.route(type(event))
        if spec not in [*route.singles, *(spec for spec, _ in route.joins), *route.collects]:
            raise WorkflowRuntimeError(f"Step {step} does not accept event of type {type(event)}")


class NotInitialized:
    """The placeholder for the options of a workflow until its constructor sets them."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, workflow: Any, owner: type) -> Any:
        if workflow is None:
            raise AttributeError(f"{owner.__name__}.{self._name} is there on instances only")
        base = next(cls for cls in owner.__mro__ if cls.__module__.startswith("batonflow."))
        raise NotInitializedError(owner, f"the options of {base.__name__}")


class shown(Generic[T]):  # noqa: N801 - stands where `property` would
    """A property that an attribute of the same name hides, on an instance or in a class."""

    def __init__(self, get: Callable[[Any], T]) -> None:
        self._get = get
        self.__doc__ = get.__doc__
        self._name = get.__name__

    def __get__(self, workflow: Any, owner: type) -> T:
        if workflow is None:
            # Otherwise pydantic would use it as the default of a field with this name.
            raise AttributeError(f"{owner.__name__}.{self._name} is there on instances only")
        return self._get(workflow)

    if TYPE_CHECKING:  # an attribute hides it

        def __set__(self, workflow: Any, value: Any) -> None: ...


class option:  # noqa: N801 - stands where `property` would
    """An option as the attribute that programs of LlamaIndex read and set.

    A new value applies to runs that begin afterwards. Before ``Workflow.__init__`` it is a plain attribute,
    which the option then replaces.
    """

    def __init__(self, name: str) -> None:
        self._option = name

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, workflow: Any, owner: type) -> Any:
        if workflow is None:
            return self
        attributes: dict[str, Any] = workflow.__dict__
        options: Options | None = attributes.get("__batonflow__")
        if options is not None:
            return getattr(options, self._option)
        if self._name not in attributes:
            raise AttributeError(f"{owner.__name__} has no {self._name} before Workflow.__init__()")
        return attributes[self._name]

    def __set__(self, workflow: Any, value: Any) -> None:
        attributes: dict[str, Any] = workflow.__dict__
        options: Options | None = attributes.get("__batonflow__")
        if options is None:
            attributes[self._name] = value
        else:
            try:
                setattr(options, self._option, checked(self._option, value))
            except WorkflowValidationError as error:
                raise WorkflowValidationError(
                    f"{type(workflow).__name__}.{self._name} is the option {self._option}, {error}: call an attribute "
                    "of your own otherwise"
                ) from None
