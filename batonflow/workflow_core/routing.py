"""Routing: the steps of a workflow class and the routes of events, built once per class.

Routes are found by exact event type. The route of an undeclared type is computed once and kept.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from inspect import iscoroutinefunction, isfunction, signature
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from batonflow.workflow_core.collect import Take
from batonflow.workflow_core.errors import WorkflowConfigurationError, WorkflowValidationError
from batonflow.workflow_core.events import (
    DictState,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
)
from batonflow.workflow_core.step import StepConfig

__all__ = [
    "ClassSteps", "Level", "Route", "StepSpec", "StepTable", "attached_object", "steps_of", "steps_to_make",
]  # fmt: skip

T = TypeVar("T")

Level = tuple[str, ...]
"""The fan-out steps with open streams around an event, outermost first."""

_MAX_DEPTH = 8
_MAX_LEVELS = 64


class StepSpec:
    """A step for the engine: the function with the facts of its signature."""

    __slots__ = (
        "children", "config", "context_name", "fans_out", "func", "handler", "has_collection", "is_async", "is_free",
        "may_be_bare", "name", "num_workers", "plan", "resources", "retry_policy", "slots", "take", "timeout", "wide",
    )  # fmt: skip

    def __init__(self, name: str, func: Callable[..., Any], config: StepConfig, handler: str | None) -> None:
        self.name = name
        self.func = func
        self.config = config
        self.handler = handler
        self.num_workers = config.num_workers
        self.retry_policy = config.retry_policy
        self.is_async = config.is_async
        self.is_free = config.is_free
        self.context_name = config.context_parameter
        self.resources = config.resources
        self.children = config.children
        self.slots = config.slots
        self.take = config.collect.n if isinstance(config.collect, Take) else 0
        self.timeout = config.timeout
        self.wide = config.accept_event_subclasses
        self.has_collection = config.collect is not None
        self.fans_out = bool(config.list_return_types)
        # Whether the step may return a single event.
        self.may_be_bare = config.bare_return
        self.plan = self._calling_plan()

    def _calling_plan(self) -> str:
        """Return the form of the call: the event alone, context and event, or arguments by name.

        Nearly all steps are asynchronous methods that take a single event, alone or after the context: ``event method``
        and ``method``.
        """
        config = self.config
        if config.children or config.resources or len(config.slots) > 1 or not config.by_position:
            return "names"
        is_usual = config.is_async and not config.is_free and config.collect is None
        if config.parameters == (config.event_name,):
            return "event method" if is_usual else "event"
        if config.parameters == (config.context_parameter, config.event_name):
            return "method" if is_usual else "context, event"
        return "names"

    def matches(self, event_type: type[Event], accepted: Iterable[type[Event]]) -> bool:
        """Tell whether an event type matches one of ``accepted``, the types of a parameter."""
        return issubclass(event_type, tuple(accepted)) if self.wide else event_type in accepted

    def problem_with(self, result: Any) -> str | None:
        """Describe the error in a result of the step; None if it fits the declaration."""
        if result is None or (isinstance(result, Event) and self.may_be_bare):
            return None
        if not isinstance(result, list):
            if isinstance(result, Event):
                return (
                    f"Step function {self.name} returned a bare {type(result).__name__}, but declares only list[...]: "
                    "return a list, or add the bare event to the return annotation"
                )
            return f"Step function {self.name} returned {type(result).__name__} instead of an Event instance."
        if not self.fans_out:
            return (
                f"Step function {self.name} returned list instead of an Event instance. "
                "Annotate the return type as list[SomeEvent] to fan out"
            )
        for index, member in enumerate(cast("list[Any]", result)):
            if not isinstance(member, Event):
                return (
                    f"Step function {self.name} returned a list whose member {index} is {type(member).__name__} "
                    "instead of an Event instance."
                )
        return None

    def __repr__(self) -> str:
        return f"<step {self.name}>"


class Route:
    """The route of an event type: steps with a single event, joins with their slots, and collectors."""

    __slots__ = ("accepted", "collects", "is_input_required", "joins", "singles", "takes_human")

    def __init__(self, event_type: type[Event], specs: Iterable[StepSpec]) -> None:
        singles: list[StepSpec] = []
        joins: list[tuple[StepSpec, tuple[int, ...]]] = []
        collects: list[StepSpec] = []
        for spec in specs:
            if not spec.matches(event_type, spec.config.accepted_events):
                continue
            if spec.config.collect is not None:
                collects.append(spec)
            elif len(spec.slots) == 1:
                singles.append(spec)
            else:
                fitting = [i for i, slot in enumerate(spec.slots) if spec.matches(event_type, slot.types)]
                joins.append((spec, tuple(fitting)))
        self.singles = tuple(singles)
        self.joins = tuple(joins)
        self.collects = tuple(collects)
        # Whether a step accepts the event.
        self.accepted = bool(singles or joins or collects)
        self.is_input_required = issubclass(event_type, InputRequiredEvent)
        self.takes_human = self.accepted and issubclass(event_type, HumanResponseEvent)


class _Routes(dict[type[Event], Route]):
    """The routes of all types looked up so far."""

    def __init__(self, specs: Sequence[StepSpec]) -> None:
        super().__init__()
        self._specs = specs

    def __missing__(self, event_type: type[Event]) -> Route:
        route = self[event_type] = Route(event_type, self._specs)
        return route


class StepTable:
    """The steps of a workflow class, in the order of definition."""

    def __init__(self, class_name: str, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.class_name = class_name
        configs: dict[str, StepConfig] = {name: getattr(func, "_step_config") for name, func in functions.items()}  # noqa: B009
        replaced = {config.replaces for config in configs.values()}
        self.unknown_replaced = {
            name: config.replaces
            for name, config in configs.items()
            if config.replaces is not None and config.replaces not in configs
        }
        configs = {name: config for name, config in configs.items() if name not in replaced}
        self.handlers = {name: config.catch_error for name, config in configs.items() if config.catch_error is not None}
        self.steps = {
            name: StepSpec(name, functions[name], config, self._handler_of(name)) for name, config in configs.items()
        }
        # Only the engine starts handlers; a StepFailedEvent sent by a step does not.
        self.routes = _Routes([spec for spec in self.steps.values() if spec.name not in self.handlers])
        self._levels: dict[type[Event], set[Level]] | None = None
        self._bound: dict[str, tuple[StepSpec, ...]] = {}
        self._facts: dict[str, Any] = {}
        # The event classes that steps take, and all classes that steps declare to return.
        self.accepted = list(dict.fromkeys(cls for spec in self.steps.values() for cls in spec.config.accepted_events))
        self.returned = list(dict.fromkeys(cls for spec in self.steps.values() for cls in spec.config.return_types))
        self.human_events = tuple(cls for cls in self.accepted if issubclass(cls, HumanResponseEvent))
        self.accepts_human = bool(self.human_events)

    def once(self, key: str, find: Callable[[], T]) -> T:
        """Return ``find(steps)``; compute it once."""
        if key not in self._facts:
            self._facts[key] = find()
        return self._facts[key]

    def route(self, event_type: type[Event]) -> Route:
        """Return the route for events of exactly this type."""
        return self.routes[event_type]

    def _handler_of(self, step: str) -> str | None:
        """Return the ``@catch_error`` handler of a step: one that names it, or the general one; None for handlers."""
        if step in self.handlers:
            return None
        for name, config in self.handlers.items():
            if config.for_steps is not None and step in config.for_steps:
                return name
        return next((name for name, config in self.handlers.items() if config.for_steps is None), None)

    def bound_collectors(self, producer: str) -> tuple[StepSpec, ...]:
        """Return the steps that collect from streams of ``producer``, according to the declared types."""
        if producer not in self._bound:
            self._bound[producer] = tuple(
                spec
                for spec in self.steps.values()
                if spec.config.collect is not None
                and any(
                    level and level[-1] == producer
                    for cls, levels in self.levels().items()
                    if spec.matches(cls, spec.config.accepted_events)
                    for level in levels
                )
            )
        return self._bound[producer]

    def levels(self) -> dict[type[Event], set[Level]]:
        """Return the open streams in which each event type can occur, according to the declared types."""
        if self._levels is None:
            self._levels = self._find_levels()
        return self._levels

    def _find_levels(self) -> dict[type[Event], set[Level]]:
        found: dict[type[Event], set[Level]] = {}
        # Shallow levels first, so that the bounds only cut off repetitions.
        queue: deque[tuple[type[Event], Level]] = deque((cls, ()) for cls in self._entry_types())
        while queue:
            event_type, level = queue.popleft()
            seen = found.setdefault(event_type, set())
            # Fan-outs that feed each other nest without end; these bounds contain all combinations of types.
            if level in seen or len(level) > _MAX_DEPTH or len(seen) >= _MAX_LEVELS:
                continue
            seen.add(level)
            for spec in self.steps.values():
                if not spec.matches(event_type, spec.config.accepted_events):
                    continue
                if spec.config.collect is None:
                    inside = level
                elif level:
                    inside = level[:-1]
                else:
                    continue
                queue.extend(_results(spec, inside))
                if spec.handler is not None:
                    queue.extend(_results(self.steps[spec.handler], inside))
        return found

    def _entry_types(self) -> list[type[Event]]:
        """Return the types that come from outside: start events, answers, and types that no step returns."""
        return [
            cls
            for cls in self.accepted
            # Handlers start on the level of the failed step, see _find_levels.
            if cls is not StepFailedEvent
            and (cls not in self.returned or issubclass(cls, HumanResponseEvent | StartEvent))
        ]


def _results(spec: StepSpec, level: Level) -> Iterable[tuple[type[Event], Level]]:
    """Return the declared results of a step on a level, with the levels of these results."""
    listed = spec.config.list_return_types
    bare = spec.config.return_types[: len(spec.config.return_types) - len(listed)]
    for cls in listed:
        yield cls, (*level, spec.name)
    for cls in bare:
        if issubclass(cls, Event):
            yield cls, level


class ClassSteps:
    """The steps of a workflow class, stored outside of the class, where all names belong to the user.

    Args:
        cls: The class.
        entry: The events that start a run of it as an attached workflow.

    Raises:
        WorkflowValidationError: A step has the name of a method that the engine calls, or a method with the
            name of a hook does not fit the hook.
    """

    __slots__ = ("_table", "cls", "entry", "free")

    def __init__(self, cls: type[Any], entry: Iterable[type[Event]]) -> None:
        self.cls = cls
        self.entry = tuple(entry)
        # Free functions belong to one class; methods are inherited.
        self.free: dict[str, Any] = {}
        self._table: StepTable | None = None
        if "trace_tags" in vars(cls):
            _check_hook(cls, "trace_tags", "a dict of tags for the span of a run")
        for name in cls.__batonflow_called__:
            if hasattr(getattr(cls, name, None), "_step_config"):
                raise WorkflowValidationError(
                    f"{cls.__name__} has a step called {name}, which hides {cls.__name__}.{name}(): call the step "
                    "otherwise"
                )

    def __reduce__(self) -> Any:
        # Copies of a workflow share the class.
        return (_attached_steps, (self.cls,)) if self is not steps_of(self.cls) else (steps_of, (self.cls,))

    @property
    def given_from_outside(self) -> tuple[type[Event], ...]:
        """The events that a step takes and no step gives, without answers of people and failures."""
        others = (StartEvent, StopEvent, HumanResponseEvent, StepFailedEvent)
        table = self.table
        return tuple(cls for cls in table.accepted if cls not in table.returned and not issubclass(cls, others))

    @property
    def table(self) -> StepTable:
        """The steps for the engine."""
        table = self._table
        if table is None:
            table = self._table = StepTable(self.cls.__name__, self.functions())
        return table

    def functions(self) -> dict[str, Any]:
        """Return the functions by step name: methods of base classes first, then free functions."""
        found: dict[str, Any] = {}
        for base in reversed(self.cls.__mro__):
            for name, value in vars(base).items():
                if hasattr(value, "_step_config") and callable(value):
                    found[name] = value
                elif name in found:
                    del found[name]
        return {**found, **self.free}

    def add(self, func: Any) -> None:
        """Add a decorated free function as a step; see ``Workflow.add_step``."""
        name = func.__name__
        if not hasattr(func, "_step_config"):
            raise WorkflowValidationError(f"Step function {name} is missing the `@step` decorator")
        if name in self.functions():
            raise WorkflowValidationError(
                f"A step {name} is already part of this workflow, {self.cls.__name__}: rename one of them"
            )
        self.free[name] = func
        self._table = None

    @property
    def start_event_class(self) -> type[StartEvent]:
        """The class of the start event."""
        return self.table.once("start", self._find_start_event_class)

    def _find_start_event_class(self) -> type[StartEvent]:
        if self.entry and not any(issubclass(cls, StartEvent) for cls in self.table.accepted):
            return StartEvent
        return self._the_one(StartEvent, self.table.accepted, "StartEvent must be received", "a parameter")

    @property
    def stop_event_class(self) -> type[StopEvent]:
        """The class of the stop event."""
        return self._the_one(StopEvent, self.table.returned, "StopEvent must be returned", "the return type")

    def _the_one(self, base: type[Event], classes: Iterable[type], sentence: str, place: str) -> Any:
        found = [cls for cls in classes if issubclass(cls, base)]
        name = self.cls.__name__
        if not found:
            remedy = f"Annotate {place} of a step with {base.__name__}"
            if base is StartEvent and (entry := [cls.__name__ for cls in self.given_from_outside]):
                remedy += (
                    f". To start it by an event of another workflow, attach the class, add_workflows(...={name}), or "
                    f"declare class {name}(Workflow, entry=[{', '.join(entry)}])"
                )
            if not self.table.steps:
                remedy = f"{name} has no steps: decorate its methods with @step"
            raise WorkflowConfigurationError(
                f"At least one Event of type {sentence} by any step. (workflow {name}) {remedy}"
            )
        if len(found) > 1:
            names = ", ".join(sorted(cls.__name__ for cls in found))
            raise WorkflowConfigurationError(
                f"Only one type of {base.__name__} is allowed per workflow, found {len(found)}: {names} (workflow "
                f"{name})"
            )
        return found[0]

    @property
    def events(self) -> list[type[Event]]:
        """Return all event classes that a step accepts or returns."""
        classes = dict.fromkeys((*self.table.accepted, *self.table.returned))
        return [cls for cls in classes if issubclass(cls, Event)]

    @property
    def entry_events(self) -> tuple[type[Event], ...]:
        """Return the events that start a run of the attached workflow."""
        start = self.start_event_class
        return self.entry or (() if start is StartEvent else (start,))

    @property
    def state_type(self) -> type[BaseModel]:
        """The class of the key-value state: the most derived class of all ``Context[...]`` in steps.

        Raises:
            ValueError: The classes are not one line of inheritance, or the state has fields without defaults.
        """
        return self.table.once("state", self._find_state_type)

    def _find_state_type(self) -> type[BaseModel]:
        found: type[BaseModel] = DictState
        for spec in self.table.steps.values():
            wanted = None if hasattr(self.cls, "__batonflow_view__") else spec.config.context_state_type
            if wanted is None or found is wanted or (found is not DictState and issubclass(found, wanted)):
                continue
            if found is not DictState and not issubclass(wanted, found):
                raise ValueError(
                    f"Steps of {self.cls.__name__} ask for Context[{found.__name__}] and Context[{wanted.__name__}]: "
                    "state classes must have a compatible inheritance, one derived from the other"
                )
            found = wanted
        return found


def _check_hook(cls: type, name: str, gives: str) -> None:
    """Refuse a method with the name of a hook that does not fit the hook."""
    method: Any = vars(cls)[name]
    if not hasattr(method, "_step_config"):  # the name is also checked as that of a step
        fits = isfunction(method) and not iscoroutinefunction(method)
        if not fits or any(one.default is one.empty for one in list(signature(method).parameters.values())[1:]):
            raise WorkflowValidationError(
                f"{cls.__name__}.{name} is a method that takes no arguments and gives {gives}: call yours otherwise"
            )


_attaching: ContextVar[ClassSteps | None] = ContextVar("batonflow_attaching", default=None)
"""The steps of the class that is being attached, which events of its parent may start."""


def attached_object(cls: type[T]) -> T:
    """Return an object of a workflow class for its parent. Without a step for a start event, other events start it."""
    before = _attaching.set(_attached_steps(cls))
    try:
        return cls()
    except TypeError as error:
        raise WorkflowValidationError(
            f"{cls.__name__} was attached as a class and cannot be made without arguments: attach an object of it "
            f"({error})"
        ) from error
    finally:
        _attaching.reset(before)


def _attached_steps(cls: type[Any]) -> ClassSteps:
    steps = steps_of(cls)
    if steps.entry or any(issubclass(one, StartEvent) for one in steps.table.accepted):
        return steps
    attached = ClassSteps(cls, steps.given_from_outside)
    attached.free = steps.free
    return attached


def steps_to_make(cls: type[Any]) -> ClassSteps:
    """Return the steps for a new object of a class."""
    attaching = _attaching.get()
    return attaching if attaching is not None and attaching.cls is cls else steps_of(cls)


def steps_of(cls: type[Any]) -> ClassSteps:
    """Return the steps of a class, even if it does not call ``__init_subclass__`` of ``Workflow``."""
    found: ClassSteps | None = vars(cls).get("__batonflow_steps__")
    if found is None:
        inherited: ClassSteps | None = getattr(cls, "__batonflow_steps__", None)
        found = cls.__batonflow_steps__ = ClassSteps(cls, () if inherited is None else inherited.entry)
    return found
