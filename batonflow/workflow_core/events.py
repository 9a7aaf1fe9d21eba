"""Events: the data that steps receive, return and stream.

An event has three kinds of data, separated by name at creation: declared fields (validated), declared private
attributes (settable by name), and *dynamic* data for all other names. Dynamic data is stored in pydantic's extra
dict, so that the creation of most events runs no Python code.
"""

from collections.abc import Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast
from weakref import WeakKeyDictionary

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from batonflow import values
from batonflow.user_warnings import warn_user
from batonflow.values.exceptions import UnreconstructedException, dump_exception, load_exception
from batonflow.workflow_core.errors import NotInitializedError

__all__ = [
    "CollectionReleaseEvent",
    "DictLikeModel",
    "DictState",
    "Event",
    "EventType",
    "HumanResponseEvent",
    "IdleReleasedEvent",
    "InputRequiredEvent",
    "InternalDispatchEvent",
    "InternalEventsMissedEvent",
    "SerializableException",
    "StartEvent",
    "StepFailedEvent",
    "StepState",
    "StepStateChanged",
    "StopEvent",
    "StreamResetEvent",
    "UnhandledEvent",
    "UnreconstructedException",
    "WorkflowCancelledEvent",
    "WorkflowFailedEvent",
    "WorkflowIdleEvent",
    "WorkflowStalledEvent",
    "WorkflowTimedOutEvent",
    "check_public",
]

SerializableException = Annotated[
    Exception,
    BeforeValidator(load_exception),
    PlainSerializer(lambda value: dump_exception(value) if isinstance(value, BaseException) else value),
    WithJsonSchema({"type": "object", "properties": {"exception_type": {}, "exception_message": {}}}),
]
"""An exception field that is written as type name and message, and read back without calling anything else."""

_ToldException = Annotated[
    SerializableException,
    PlainSerializer(
        lambda value: dump_exception(value, attributes=False) if isinstance(value, BaseException) else value
    ),
]
"""Write an exception for readers outside of the program, without its attributes."""

_new = object.__new__

# The slots of a model, as functions: a lookup by name takes half as long again.
_put_values: Any = BaseModel.__dict__["__dict__"].__set__
_put_given: Any = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_put_extra: Any = BaseModel.__dict__["__pydantic_extra__"].__set__
_put_private: Any = BaseModel.__dict__["__pydantic_private__"].__set__

_SLOTS = frozenset({"__pydantic_extra__", "__pydantic_fields_set__", "__pydantic_private__"})
"""Are there as soon as pydantic's constructor was called."""

# The field names by class: all events that are created without validation share one set, which saves the garbage
# collector an object per event.
_given: dict[type[BaseModel], set[str]] = {}


class DictLikeModel(BaseModel):
    """A pydantic model with dynamic data and the methods of a dict; the base of events and ``DictState``.

    ``model["k"]``, ``in``, ``len``, iteration, ``get``, ``keys``, ``values``, ``items`` and ``to_dict`` use the
    dynamic data only, not declared fields. Attribute access uses both.
    """

    __batonflow_dynamic__: ClassVar[bool] = True
    """Models of the class hold dynamic data beside their fields."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002 - pydantic's signature
        """Unpack a given ``_data``, and move values to declared private attributes."""
        extra = self.__pydantic_extra__
        if not extra:
            return
        if "_data" in extra:
            data: Any = extra.pop("_data")
            if not isinstance(data, Mapping):
                raise ValueError(f"_data is a dict of dynamic data, not {type(data).__name__}")
            for name, value in cast("Mapping[str, Any]", data).items():
                extra.setdefault(name, value)
        private = self.__private_attributes__
        if private:
            for name in [name for name in extra if name in private]:
                setattr(self, name, extra.pop(name))
        if not _DICT_METHODS.isdisjoint(extra) and isinstance(self, Event):
            _warn_of_hidden(type(self), _DICT_METHODS.intersection(extra))

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped = handler(self)
        extra = self.__pydantic_extra__
        if extra:
            dumped["_data"] = {name: dumped.pop(name) for name in extra if name in dumped}
        return dumped

    @property
    def _data(self) -> dict[str, Any]:
        extra = self.__pydantic_extra__
        if extra is None:
            extra = {}
            object.__setattr__(self, "__pydantic_extra__", extra)
        return extra

    @_data.setter
    def _data(self, value: dict[str, Any]) -> None:
        object.__setattr__(self, "__pydantic_extra__", value)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            extra = self.__pydantic_extra__
            if extra is not None and name in extra:
                return extra[name]
            private = self.__pydantic_private__
            if private is not None and name in private:
                return private[name]
        elif name in _SLOTS:
            raise NotInitializedError(type(self), "the fields of the event")
        raise AttributeError(f"{type(self).__name__!r} has no field, private attribute or dynamic value {name!r}")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name in type(self).model_fields:
            yield name, getattr(self, name)

    def __getitem__(self, name: str) -> Any:
        return self._data[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._data[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[str]:  # type: ignore[override] - the contract iterates dynamic names
        return iter(self._data)

    def __bool__(self) -> bool:
        return True

    def get(self, name: str, default: Any = None) -> Any:
        """Return the dynamic value ``name``, or ``default``; declared fields are not included."""
        extra = self.__pydantic_extra__
        return default if extra is None else extra.get(name, default)

    def keys(self) -> KeysView[str]:
        """Return the dynamic names."""
        return self._data.keys()

    def values(self) -> ValuesView[Any]:
        """Return the dynamic values."""
        return self._data.values()

    def items(self) -> ItemsView[str, Any]:
        """Return the dynamic names with their values."""
        return self._data.items()

    def to_dict(self) -> dict[str, Any]:
        """Return the dict of dynamic data itself, not a copy."""
        extra = self.__pydantic_extra__
        return self._data if extra is None else extra


class DictState(DictLikeModel):
    """A state without declared fields: ``state["k"]`` and ``state.k`` are equivalent."""


class Event(DictLikeModel):
    """The base class of events. Subclasses declare fields; other arguments become dynamic data.

    Events are shared, not copied: two steps with the same instance see each other's changes.

    Example:
        >>> class Query(Event):
        ...     text: str
        >>> Query(text="tides", source="web").source
        'web'
    """

    @classmethod
    def made(cls, **fields: Any) -> Self:
        """Create an event from all of its fields without validation, for values that need no check.

        Args:
            fields: All declared fields by name. The class must not have private attributes.
        """
        event = _new(cls)
        # The same as in the constructor.
        _put_values(event, fields)
        given = _given.get(cls)
        if given is None:
            given = _given[cls] = set(cls.model_fields)
        _put_given(event, given)
        _put_extra(event, {})
        _put_private(event, None)
        return event

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            # The names of given values are shared; this event gets its own set with the new name.
            if name not in self.__pydantic_fields__:
                _own_names(self)
            super().__setattr__(name, value)

        @property
        def model_fields_set(self) -> set[str]:
            """The names of the given values."""
            _own_names(self)
            return self.__pydantic_fields_set__

        def __getstate__(self) -> dict[Any, Any]:
            _own_names(self)
            return super().__getstate__()


_DICT_METHODS = frozenset({"get", "items", "keys", "to_dict", "values"})

_warned_of: WeakKeyDictionary[type[Event], set[str]] = WeakKeyDictionary()


def _warn_of_hidden(cls: type[Event], names: Iterable[str]) -> None:
    """Warn once per class and name that the attribute is the method, not the value."""
    for name in sorted(names):
        warned = _warned_of.setdefault(cls, set())
        if name not in warned:
            warned.add(name)
            warn_user(
                f"{cls.__name__}.{name} is a method, and not the value that was given as {name}=. Read the value as "
                f"ev[{name!r}], or choose another name"
            )


def _warn_of_misspelt(event: Event, names: Iterable[str], open_name: str | None) -> None:
    """Warn once per class and name of dynamic data that resemble a field without a value."""
    cls = type(event)
    open_fields = [name for name in (*cls.model_fields, open_name) if name and name not in event.model_fields_set]
    warned = _warned_of.setdefault(cls, set())
    for name, meant in values.misspelt(names, open_fields).items():
        if name not in warned:
            warned.add(name)
            warn_user(f"{cls.__name__} has no field {name!r}, and keeps it as data. Did you mean {meant!r}?")


def _own_names(event: Event) -> None:
    """Give an event its own set of given names, if it shares one."""
    shared = _given.get(type(event))
    if shared is not None and getattr(event, "__pydantic_fields_set__", None) is shared:
        _put_given(event, set(shared))


EventType = type[Event]
"""The class of an event."""


def check_public(cls: type[Event], fields: Mapping[str, Any]) -> None:
    """Refuse external data for an event that name private attributes of its class.

    Raises:
        ValidationError: A name belongs to a private attribute, whose value would not be validated.
    """
    data = fields.get("_data")
    named = {*fields, *(cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else ())}
    problems = [
        InitErrorDetails(
            type=PydanticCustomError("private", "Private attributes cannot be given"), loc=(name,), input=None
        )
        for name in sorted(named & cls.__private_attributes__.keys())
    ]
    if problems:
        raise ValidationError.from_exception_data(cls.__name__, problems)


class StartEvent(Event):
    """The event that starts a run; ``workflow.run(**kwargs)`` creates it from the keyword arguments."""

    # The names of dynamic data that a class accepts in addition to the fields of the class or a subclass.
    __batonflow_takes__: ClassVar[Collection[str]] = ()

    if TYPE_CHECKING:  # tells type checkers that it accepts dynamic data

        def __init__(self, **data: Any) -> None: ...


class StopEvent(Event):
    """The event that ends a run with a result.

    Args:
        result: The result of ``await handler``. For a subclass, the event itself is the result.
        kwargs: Declared fields and dynamic data.
    """

    __batonflow_ends__: ClassVar[bool] = True
    """Models of the class carry a result that is not a field."""

    _result: Any = PrivateAttr(default=None)

    def __init__(self, /, result: Any = None, **kwargs: Any) -> None:
        if result is not None:
            kwargs["_result"] = result
        super().__init__(**kwargs)
        if self.__pydantic_extra__:
            _warn_of_misspelt(self, self.__pydantic_extra__, "result" if result is None else None)

    def _get_result(self) -> Any:
        return self._result

    @property
    def result(self) -> Any:
        """The result of the run."""
        return self._get_result()

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # pydantic allows one serializer in a class, so this one calls that of the base for dynamic data.
        dumped = DictLikeModel._dump(self, handler)  # pyright: ignore[reportPrivateUsage]
        if self._result is not None:
            dumped["result"] = self._result
        return dumped

    def __repr__(self) -> str:
        values: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        values.update(self._data)
        if self._result is not None and "result" not in values:
            values["result"] = self._result
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def __str__(self) -> str:
        result = self.result
        return repr(self) if result is None and type(self) is not StopEvent else str(result)


class WorkflowTimedOutEvent(StopEvent):
    """The last event of a run that took longer than its timeout (in seconds)."""

    timeout: float
    active_steps: list[str]


class WorkflowCancelledEvent(StopEvent):
    """The last event of a cancelled run, with the ``reason`` if one was given."""


class WorkflowFailedEvent(StopEvent):
    """The last event of a failed run."""

    step_name: str
    exception: _ToldException
    attempts: int | None = None
    elapsed_seconds: float | None = None


class IdleReleasedEvent(StopEvent):
    """The result of a run that was released while it waited; it is not streamed."""


class StepFailedEvent(Event):
    """The failure that a ``@catch_error`` handler receives; ``failed_at`` is in UTC."""

    step_name: str
    input_event: Any
    exception: SerializableException
    attempts: int
    elapsed_seconds: float
    failed_at: datetime


class InputRequiredEvent(Event):
    """A request for input from a person; it is streamed when a step returns it."""

    if TYPE_CHECKING:  # tells type checkers that it accepts dynamic data

        def __init__(self, **data: Any) -> None: ...


class HumanResponseEvent(Event):
    """The answer of a person; it comes from outside, so no step has to produce it."""

    if TYPE_CHECKING:  # tells type checkers that it accepts dynamic data

        def __init__(self, **data: Any) -> None: ...


class InternalDispatchEvent(Event):
    """The base class of the engine's events, for readers with ``expose_internal``."""


class StepState(Enum):
    """The state of an execution of a step."""

    PREPARING = "preparing"
    RUNNING = "running"
    NOT_RUNNING = "not_running"


class StepStateChanged(InternalDispatchEvent):
    """An execution of a step was queued, started or ended."""

    name: str
    step_state: StepState
    worker_id: str
    input_event_name: str
    output_event_name: str | None = None


class WorkflowIdleEvent(InternalDispatchEvent):
    """No work is queued or executing; the run waits for input."""


class WorkflowStalledEvent(InternalDispatchEvent):
    """The run is stalled; ``waiting_on`` names the events that its joins still wait for."""

    waiting_on: list[str]


class InternalEventsMissedEvent(InternalDispatchEvent):
    """The first ``count`` internal events are no longer available to this reader."""

    count: int


class StreamResetEvent(Event):
    """A run goes on in another process; unstored stream events from ``lost_from`` to ``lost_to`` are lost.

    Events of repeated steps are streamed again.
    """

    lost_from: int
    lost_to: int


class UnhandledEvent(InternalDispatchEvent):
    """No step accepted an event."""

    event_type: str
    qualified_name: str
    step_name: str | None = None
    idle: bool = False


class CollectionReleaseEvent(Event):
    """The trigger of a step that joins several events at once."""

    events: list[Any] = Field(default_factory=list)
    stream_id: str = ""
    binding_id: str = ""
