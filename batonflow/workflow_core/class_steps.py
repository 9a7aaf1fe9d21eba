"""The steps of one workflow class, the events that begin and end its runs, and the class of its state."""

from collections.abc import Iterable
from inspect import iscoroutinefunction, isfunction, signature
from typing import Any

from pydantic import BaseModel

from batonflow.workflow_core.errors import WorkflowConfigurationError, WorkflowValidationError
from batonflow.workflow_core.events import Event, StartEvent, StopEvent
from batonflow.workflow_core.routing import StepTable
from batonflow.workflow_core.state_data import DictState

__all__ = ["ClassSteps", "steps_of"]


class ClassSteps:
    """The steps of a workflow class, kept apart from the class, as all names in there are the user's.

    Args:
        cls: The class.
        entry: Events that start a run of it when it is attached to another workflow.

    Raises:
        WorkflowValidationError: A step has the name of a method that the engine calls, or a method has the
            name of a hook and is not one.
    """

    __slots__ = ("_table", "cls", "entry", "free")

    def __init__(self, cls: type[Any], entry: Iterable[type[Event]]) -> None:
        self.cls = cls
        self.entry = tuple(entry)
        # Free functions belong to the one class they were added to; methods are inherited in the ordinary way.
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
        return steps_of, (self.cls,)  # copies of a workflow have the same class

    @property
    def table(self) -> StepTable:
        """The steps as the engine sees them."""
        table = self._table
        if table is None:
            table = self._table = StepTable(self.cls.__name__, self.functions())
        return table

    def functions(self) -> dict[str, Any]:
        """Step name -> function: methods in the order of their definition, base classes first, then free functions."""
        found: dict[str, Any] = {}
        for base in reversed(self.cls.__mro__):
            for name, value in vars(base).items():
                if hasattr(value, "_step_config") and callable(value):
                    found[name] = value
                elif name in found:
                    del found[name]
        return {**found, **self.free}

    def add(self, func: Any) -> None:
        """Make a decorated free function a step; see ``Workflow.add_step``."""
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
        """The class of the event that runs start with."""
        return self.table.once("start", self._find_start_event_class)

    def _find_start_event_class(self) -> type[StartEvent]:
        accepted = [cls for spec in self.table.steps.values() for cls in spec.config.accepted_events]
        if self.entry and not any(issubclass(cls, StartEvent) for cls in accepted):
            return StartEvent
        return self._the_one(StartEvent, accepted, "StartEvent must be received")

    @property
    def stop_event_class(self) -> type[StopEvent]:
        """The class of the event that ends runs."""
        returned = [cls for spec in self.table.steps.values() for cls in spec.config.return_types]
        return self._the_one(StopEvent, returned, "StopEvent must be returned")

    def _the_one(self, base: type[Event], classes: Iterable[type], sentence: str) -> Any:
        found = list(dict.fromkeys(cls for cls in classes if isinstance(cls, type) and issubclass(cls, base)))  # pyright: ignore[reportUnnecessaryIsInstance]
        name = self.cls.__name__
        if not found:
            remedy = (
                f"Annotate a parameter of a step with {base.__name__}"
                if base is StartEvent
                else f"Annotate the return type of a step with {base.__name__}"
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
        """Every event class that a step accepts or returns."""
        specs = self.table.steps.values()
        classes = [cls for spec in specs for cls in (*spec.config.accepted_events, *spec.config.return_types)]
        return list(dict.fromkeys(cls for cls in classes if issubclass(cls, Event)))

    @property
    def entry_events(self) -> tuple[type[Event], ...]:
        """Events that start a run when the workflow is attached to another."""
        start = self.start_event_class
        return self.entry or (() if start is StartEvent else (start,))

    @property
    def state_type(self) -> type[BaseModel]:
        """The class of the key-value state: the most derived class that a step asks for with ``Context[...]``.

        Raises:
            ValueError: The classes do not lie on one line of inheritance, or the state has fields without defaults.
        """
        return self.table.once("state", self._find_state_type)

    def _find_state_type(self) -> type[BaseModel]:
        found: type[BaseModel] = DictState
        for spec in self.table.steps.values():
            wanted = spec.config.context_state_type
            if wanted is None or found is wanted or (found is not DictState and issubclass(found, wanted)):
                continue
            if found is not DictState and not issubclass(wanted, found):
                raise ValueError(
                    f"Steps of {self.cls.__name__} ask for Context[{found.__name__}] and "
                    f"Context[{wanted.__name__}]: state "
                    "classes must have a compatible inheritance, one derived from the other"
                )
            found = wanted
        return found


def _check_hook(cls: type, name: str, gives: str) -> None:
    """Refuse a method that only happens to have the name of one that subclasses may override."""
    method: Any = vars(cls)[name]
    if not hasattr(method, "_step_config"):  # it is told of as a step, too
        fits = isfunction(method) and not iscoroutinefunction(method)
        if not fits or any(one.default is one.empty for one in list(signature(method).parameters.values())[1:]):
            raise WorkflowValidationError(
                f"{cls.__name__}.{name} is a method that takes no arguments and gives {gives}: call yours otherwise"
            )


def steps_of(cls: type[Any]) -> ClassSteps:
    """The steps of a class, also when it does not pass ``__init_subclass__`` on to ``Workflow``."""
    found: ClassSteps | None = vars(cls).get("__batonflow_steps__")
    if found is None:
        inherited: ClassSteps | None = getattr(cls, "__batonflow_steps__", None)
        found = cls.__batonflow_steps__ = ClassSteps(cls, () if inherited is None else inherited.entry)
    return found
