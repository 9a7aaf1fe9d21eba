"""``@step`` and ``@catch_error``, which read the signature of a step once.

The result is a :class:`StepConfig`, an attribute of the decorated function itself, which can still be
called.
"""

import inspect
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, cast, get_args, get_origin, overload

from batonflow.resources import Resource, ResourceConfig, ResourceDefinition, may_be_left_out
from batonflow.retrying import RetryPolicy, next_delay
from batonflow.values.types import is_context_class, is_seconds, is_whole, without_alias
from batonflow.workflow_core.collect import All, Cardinality, Collect, Take
from batonflow.workflow_core.errors import WorkflowValidationError
from batonflow.workflow_core.events import Event, StepFailedEvent

__all__ = [
    "CatchErrorConfig",
    "ChildSlot",
    "EventSlot",
    "RetryPolicy",
    "StepConfig",
    "StepFunction",
    "StepGraphCheck",
    "WorkflowGraphCheck",
    "catch_error",
    "next_delay",
    "step",
]

StepGraphCheck = Literal["reachability", "dead_end"]
"""Graph checks that a single step can be left out of."""

WorkflowGraphCheck = Literal["reachability", "terminal_event", "dead_end"]
"""Graph checks that a workflow can switch off."""

FuncT = TypeVar("FuncT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class EventSlot:
    """A parameter that receives one event: its name and the classes it accepts."""

    name: str
    types: tuple[type[Event], ...]


@dataclass(frozen=True, slots=True)
class ChildSlot:
    """A parameter that receives an attached workflow: its name, its class and whether it has a default."""

    name: str
    workflow_class: type
    has_default: bool


@dataclass(frozen=True, slots=True)
class CatchErrorConfig:
    """The steps of a ``@catch_error`` handler: the named steps, or all with None."""

    for_steps: tuple[str, ...] | None
    max_recoveries: int


@dataclass(frozen=True)
class StepConfig:
    """The facts about a step for the engine and the checks, read from its signature at decoration.

    Attributes:
        accepted_events: All event classes that the step accepts.
        event_name: The name of the (first) event parameter.
        return_types: All declared return classes, including ``NoneType``; for ``list[E]`` its members.
        slots: The parameters for single events; several form a join.
        collect: The rule of the list parameter, if the step accepts ``list[E]``.
        list_return_types: The members of a ``list[E]`` return annotation; if not empty, the step fans out.
        bare_return: Whether a single event may be returned.
        by_position: Whether all parameters can be passed by position.
    """

    accepted_events: list[type[Event]]
    event_name: str
    return_types: list[type]
    context_parameter: str | None
    context_state_type: type | None
    resources: list[ResourceDefinition]
    slots: tuple[EventSlot, ...]
    collect: Cardinality | None
    list_return_types: tuple[type[Event], ...]
    bare_return: bool
    children: tuple[ChildSlot, ...]
    parameters: tuple[str, ...]
    by_position: bool
    is_async: bool
    is_free: bool
    num_workers: int = 4
    retry_policy: RetryPolicy | None = None
    skip_graph_checks: tuple[StepGraphCheck, ...] = ()
    accept_event_subclasses: bool = False
    timeout: float | None = None
    replaces: str | None = None
    catch_error: CatchErrorConfig | None = None


class StepFunction(Protocol):
    """A decorated step: the function with the facts of its signature."""

    _step_config: StepConfig
    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        ...


@overload
def step(func: FuncT, /) -> FuncT: ...
@overload
def step(
    *,
    workflow: type | None = None,
    num_workers: int = 4,
    retry_policy: RetryPolicy | None = None,
    skip_graph_checks: list[StepGraphCheck] | None = None,
    accept_event_subclasses: bool = False,
    timeout: float | None = None,
    replaces: str | None = None,
) -> Callable[[FuncT], FuncT]: ...
def step(
    func: Callable[..., Any] | None = None,
    /,
    *,
    workflow: Any = None,
    num_workers: int = 4,
    retry_policy: RetryPolicy | None = None,
    skip_graph_checks: list[StepGraphCheck] | None = None,
    accept_event_subclasses: bool = False,
    timeout: float | None = None,
    replaces: str | None = None,
) -> Any:
    """Declare a method or a free function as a step of a workflow.

    Args:
        func: The function, if the decorator is used without parentheses.
        workflow: The workflow class of a free function.
        num_workers: The number of concurrent executions of the step.
        retry_policy: The policy after exceptions; see ``batonflow.workflow_core.retry_policy``.
        skip_graph_checks: The graph checks that skip this step: ``"reachability"``, ``"dead_end"``.
        accept_event_subclasses: Accept subclasses of the annotated events; by default the type must match exactly.
        timeout: Seconds for one attempt, not counting waits; a longer attempt fails with ``StepTimeoutError``.
        replaces: The name of an inherited step that this step replaces.

    Raises:
        WorkflowValidationError: The signature does not fit a step, or an option has a wrong value; the message names
            the remedy.

    Example:
        >>> class Hello(Workflow):
        ...     @step
        ...     async def greet(self, ev: StartEvent) -> StopEvent:
        ...         return StopEvent(result="hello")
    """
    if not is_whole(num_workers, least=1):
        raise WorkflowValidationError(f"num_workers must be an integer greater than 0, got {num_workers!r}")
    if timeout is not None and not (is_seconds(timeout) and timeout > 0):
        raise WorkflowValidationError(f"timeout of a step must be greater than 0 seconds, got {timeout!r}")
    given: Any = retry_policy
    if given is not None and (isinstance(given, type) or not isinstance(given, RetryPolicy)):
        raise WorkflowValidationError(
            f"retry_policy of a step takes a policy as retry_policy(stop=stop_after_attempt(3)) gives it, got {given!r}"
        )
    skipped = _names("skip_graph_checks", skip_graph_checks)
    unknown = [name for name in skipped if name not in get_args(StepGraphCheck)]
    if unknown:
        raise WorkflowValidationError(
            f"skip_graph_checks of a step names no check with {', '.join(map(repr, unknown))}; "
            f"there are {', '.join(get_args(StepGraphCheck))}"
        )
    caller_locals = _enclosing_locals(inspect.currentframe())

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        config = replace(
            _read_signature(function, caller_locals),
            num_workers=num_workers,
            retry_policy=retry_policy,
            skip_graph_checks=skipped,
            accept_event_subclasses=accept_event_subclasses,
            timeout=timeout,
            replaces=replaces,
        )
        _attach(function, config, workflow)
        return function

    return decorate if func is None else decorate(func)


@overload
def catch_error(func: FuncT, /) -> FuncT: ...
@overload
def catch_error(*, for_steps: list[str] | None = None, max_recoveries: int = 1) -> Callable[[FuncT], FuncT]: ...
def catch_error(
    func: Callable[..., Any] | None = None, /, *, for_steps: list[str] | None = None, max_recoveries: int = 1
) -> Any:
    """Declare a method as the handler of failed steps. It runs after their last retry, so that the run does not fail.

    Args:
        func: The function, if the decorator is used without parentheses.
        for_steps: The names of the steps; None for all steps without another handler.
        max_recoveries: The number of times it may run for one lineage of events before the run fails.

    Raises:
        WorkflowValidationError: The function does not accept exactly ``StepFailedEvent``, or an option is wrong.

    Example:
        >>> class Careful(Workflow):
        ...     @catch_error(for_steps=["fetch"])
        ...     async def give_up(self, ev: StepFailedEvent) -> StopEvent:
        ...         return StopEvent(result=f"gave up: {ev.exception}")
    """
    if not is_whole(max_recoveries, least=1):
        raise WorkflowValidationError(f"max_recoveries must be an integer greater than 0, got {max_recoveries!r}")
    handled = CatchErrorConfig(None if for_steps is None else _names("for_steps", for_steps), max_recoveries)
    caller_locals = _enclosing_locals(inspect.currentframe())

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        config = replace(_read_signature(function, caller_locals), num_workers=1, catch_error=handled)
        if config.accepted_events != [StepFailedEvent] or config.collect is not None:
            accepted = ", ".join(cls.__name__ for cls in config.accepted_events)
            raise WorkflowValidationError(
                f"@catch_error handler {function.__qualname__} must accept StepFailedEvent and nothing else, it "
                f"accepts {accepted}"
            )
        _attach(function, config, None)
        return function

    return decorate if func is None else decorate(func)


def _names(option: str, given: Any) -> tuple[str, ...]:
    """Return the names in a list, or a single name as a list."""
    # A string is one name, not a collection of letters.
    several: Any = () if given is None else (given,) if isinstance(given, str) else given
    if not isinstance(several, Iterable) or not all(isinstance(one, str) for one in cast("Iterable[Any]", several)):
        raise WorkflowValidationError(f"{option} takes a list of names, got {given!r}")
    return tuple(cast("Iterable[str]", several))


def _attach(function: Callable[..., Any], config: StepConfig, workflow: Any) -> None:
    if config.is_free and workflow is None and config.catch_error is None:
        name = function.__name__
        raise WorkflowValidationError(
            f"{name} is a free function, not a method: say which workflow it belongs to with @step(workflow=...)"
        )
    cast("Any", function)._step_config = config
    if workflow is not None:
        workflow.add_step(function)


def _enclosing_locals(frame: types.FrameType | None) -> dict[str, Any]:
    """Return the local names around a function, which annotations may use in addition to globals."""
    found: dict[str, Any] = {}
    frame = frame.f_back if frame is not None else None
    module_globals = frame.f_globals if frame else None
    while frame is not None and frame.f_globals is module_globals and frame.f_locals is not module_globals:
        for name, value in frame.f_locals.items():
            found.setdefault(name, value)
        frame = frame.f_back
    return found


def _type_hints(function: Callable[..., Any], names: dict[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, localns=names, include_extras=True)
    except NameError as error:
        raise WorkflowValidationError(
            f"Cannot resolve the annotations of step {function.__qualname__}: {error}. "
            "Import or define the name before the step, outside `if TYPE_CHECKING:`"
        ) from error


def _is_event(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Event)


def _members(annotation: Any) -> list[Any]:
    """Return the members of a union, or the annotation itself; ``Annotated`` is unwrapped."""
    annotation = without_alias(annotation)
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    return [annotation]


def _list_members(annotation: Any) -> list[Any] | None:
    """Return the event classes in ``list[A | B]``, also with ``| None``; None for other annotations."""
    parts = [part for part in _members(annotation) if part is not type(None)]
    if len(parts) != 1 or get_origin(parts[0]) is not list:
        return None
    members = [member for arg in get_args(parts[0]) for member in _members(arg)]
    return members if members and all(_is_event(member) for member in members) else None


def _as_context(annotation: Any) -> Any:
    """Return the Context class of an annotation, also with ``| None``; None for other annotations."""
    parts = [part for part in _members(annotation) if part is not type(None)]
    is_one = len(parts) == 1 and is_context_class(get_origin(parts[0]) or parts[0])
    return parts[0] if is_one else None


def _says_what_it_gets(annotation: Any) -> bool:
    """Tell whether an annotation is an event, a list of events, the Context or a resource."""
    if get_origin(annotation) is Annotated or _as_context(annotation) is not None:
        return True
    return _list_members(annotation) is not None or any(_is_event(part) for part in _members(annotation))


def _read_signature(function: Callable[..., Any], names: dict[str, Any]) -> StepConfig:
    if inspect.isasyncgenfunction(function):
        raise WorkflowValidationError(_async_iterator_text(function))
    hints = _type_hints(function, names)
    parameters = _Parameters(function, hints, names)
    bare, listed = _read_return(function, hints)
    return StepConfig(
        accepted_events=parameters.accepted(),
        event_name=parameters.event_name(),
        return_types=[*bare, *listed],
        context_parameter=parameters.context,
        context_state_type=parameters.state_type,
        resources=parameters.resources,
        slots=tuple(parameters.slots),
        collect=parameters.cardinality,
        list_return_types=tuple(listed),
        bare_return=any(_is_event(cls) for cls in bare) or not listed,
        children=tuple(parameters.children),
        parameters=tuple(parameters.order),
        by_position=parameters.by_position,
        is_async=inspect.iscoroutinefunction(function),
        is_free=_is_free(function),
    )


def _is_free(function: Callable[..., Any]) -> bool:
    qualname = function.__qualname__
    return "." not in qualname or qualname.rpartition(".")[0].endswith("<locals>")


class _Parameters:
    """The parameters of a step, sorted into event slots, list slot, context, resources and attached workflows."""

    def __init__(self, function: Callable[..., Any], hints: dict[str, Any], names: dict[str, Any]) -> None:
        self.function = function
        self.names = names
        self.slots: list[EventSlot] = []
        self.lists: list[EventSlot] = []
        self.cardinality: Cardinality | None = None
        self.context: str | None = None
        self.state_type: type | None = None
        self.resources: list[ResourceDefinition] = []
        self.children: list[ChildSlot] = []
        self.order: list[str] = []
        self.by_position = True
        parameters = list(inspect.signature(function).parameters.items())
        # The first parameter of a method is the workflow, with any name and annotation.
        if parameters and not _is_free(function) and not _says_what_it_gets(hints.get(parameters[0][0])):
            del parameters[0]
        for name, parameter in parameters:
            if name in ("self", "cls"):
                continue
            self.order.append(name)
            if name in hints:
                self._sort(name, hints[name], parameter)
            self.by_position = self.by_position and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        self._check()
        wrapped = hasattr(function, "__wrapped__")  # a wrapper may pass further arguments
        for name, parameter in parameters if not wrapped else ():
            self._check_given(name, parameter)

    def _sort(self, name: str, annotation: Any, parameter: inspect.Parameter) -> None:
        marks: tuple[Any, ...] = ()
        annotation = without_alias(annotation)
        if get_origin(annotation) is Annotated:
            inner, *extras = get_args(annotation)
            marks = tuple(extras)
            for mark in marks:
                if isinstance(mark, Resource):
                    mark.set_localns(self.names)
                if isinstance(mark, Resource | ResourceConfig):
                    self.resources.append(ResourceDefinition(name=name, descriptor=mark, type_annotation=inner))
                    return
        context = _as_context(annotation)
        if context is not None:
            self.context = name
            args = get_args(context)
            # Any is a class from Python 3.11 on.
            self.state_type = args[0] if args and isinstance(args[0], type) and args[0] is not Any else None
            return
        collect = next((mark for mark in marks if isinstance(mark, Collect) or mark is Collect), None)
        members = _list_members(annotation)
        if members is not None:
            rule = collect.cardinality if isinstance(collect, Collect) else Collect().cardinality
            if not isinstance(rule, All | Take):
                raise self._problem(f" parameter {name!r}: unknown cardinality {rule!r}; use All() or Take(n)")
            self.lists.append(EventSlot(name, tuple(members)))
            self.cardinality = rule
            return
        if collect is not None:
            raise self._problem(
                f" parameter {name!r}: Collect applies only to collection fan-in parameters, list[SomeEvent]"
            )
        parts = [part for part in _members(annotation) if part is not type(None)]
        if parts and all(_is_event(part) for part in parts):
            self.slots.append(EventSlot(name, tuple(parts)))
        elif len(parts) == 1 and getattr(parts[0], "__batonflow_workflow__", False):
            has_default = parameter.default is not inspect.Parameter.empty
            self.children.append(ChildSlot(name, parts[0], has_default))

    def _problem(self, text: str) -> WorkflowValidationError:
        return WorkflowValidationError(f"Step {self.function.__qualname__}{text}")

    def _check(self) -> None:
        if len(self.lists) > 1:
            raise self._problem(" may have at most one list[E] parameter")
        if self.lists and self.slots:
            raise self._problem(": a list[E] parameter cannot be combined with other event parameters")
        if not self.lists and not self.slots:
            raise WorkflowValidationError(
                "Step signature must have at least one parameter annotated as type Event: "
                f"{self.function.__qualname__} lacks it"
            )
        for slot in self.slots:
            if len(slot.types) > 1 and len(self.slots) > 1:
                raise self._problem(f": in a join each parameter takes a single event type, {slot.name!r} has a union")

    def _check_given(self, name: str, parameter: inspect.Parameter) -> None:
        """Refuse a parameter that would get no argument, or cannot be passed by name."""
        slots = (*self.slots, *self.lists, *self.resources, *self.children)
        given = name == self.context or any(name == one.name for one in slots)
        if given and parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            remedy = "take out the / behind it" if parameter.kind is parameter.POSITIONAL_ONLY else "take out the *"
            raise self._problem(f": parameter {name!r} is passed by its name: {remedy}")
        if not given and not may_be_left_out(parameter) and name not in ("self", "cls"):
            raise self._problem(
                f": nothing can be passed for {name!r}. Annotate it as an event, Context, an attached workflow or "
                "Annotated[..., Resource(...)], or give it a default"
            )

    def accepted(self) -> list[type[Event]]:
        return list(dict.fromkeys(cls for slot in [*self.lists, *self.slots] for cls in slot.types))

    def event_name(self) -> str:
        return [*self.lists, *self.slots][0].name


def _async_iterator_text(function: Callable[..., Any]) -> str:
    return (
        f"Async-iterator fan-out is not supported: step {function.__qualname__} must return list[E], "
        "or send events one by one with ctx.send_event"
    )


def _read_return(function: Callable[..., Any], hints: dict[str, Any]) -> tuple[list[type], list[type[Event]]]:
    """Return the declared classes: single events (including ``NoneType``), and the members of lists."""
    if "return" not in hints:
        raise WorkflowValidationError(
            f"Return types of workflows step functions must be annotated with their type: {function.__qualname__} has "
            "no annotation"
        )
    bare: list[type] = []
    listed: list[type[Event]] = []
    for member in _members(hints["return"]):
        origin = get_origin(member)
        if origin in (AsyncIterator, AsyncGenerator):
            raise WorkflowValidationError(_async_iterator_text(function))
        if origin is list:
            listed.extend(part for arg in get_args(member) for part in _members(arg) if _is_event(part))
        elif isinstance(member, type):
            bare.append(member)
    return bare, listed
