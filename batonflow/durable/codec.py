"""Events and values in records: plain JSON where possible, else the text of the workflow's serializer.

An event is ``[class, values]`` or, if its values may contain marks of classes, ``[class, values,
where]``. ``where`` names the fields, is True for all fields, and 1 if they are not known. A value is ``[value]``, or
``[None, value]`` if it is marked. A serializer other than JSON writes both as text.
"""

from typing import Any, cast

from pydantic_core import PydanticSerializationError

from batonflow.durable.attempt_record import as_json
from batonflow.durable.parts.objects import PartObjects
from batonflow.durable.parts.writer import PartWriter, ShownParts
from batonflow.instrumentation.redaction import redacted
from batonflow.values.forms import Form, form_of
from batonflow.values.names import PRIVATE, NotWritable, payload_name, qualified_name
from batonflow.values.serializers import IS_PYDANTIC, MARKED, BaseSerializer, JsonSerializer, is_plain
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import Event, StopEvent
from batonflow.workflow_core.options import Options

__all__ = ["Codec"]

# Dynamic data with these names are written separately from the fields.
_RESERVED = frozenset({"_data", "result", PRIVATE})

_REMEDY = "keep it out of events and state, or make it a pydantic model or plain data"


class Codec:
    """The codec for the events and values of a run.

    Args:
        serializer: The serializer of the workflow; for JSON there is a fast path.
        parts: Writes long texts and the messages of conversations once; None to write them whole. They are whole
            with a serializer other than JSON, too.
        stored: The parts that the data to read refer to.
    """

    __slots__ = ("_parts", "_serializer", "_short", "_shown")

    def __init__(
        self, serializer: BaseSerializer, parts: PartWriter | None = None, stored: PartObjects | None = None
    ) -> None:
        self._parts = parts if type(serializer) is JsonSerializer else None
        if isinstance(serializer, JsonSerializer):
            refers = type(serializer) is JsonSerializer
            serializer = serializer.for_records(self._parts).reading(stored if refers else None)
        self._serializer = serializer
        self._short = serializer if type(serializer) is JsonSerializer else None
        # Writes events that are only streamed.
        self._shown = self._short
        if self._short is not None and self._parts is not None:
            self._shown = self._short.for_records(ShownParts(self._parts))

    @classmethod
    def of(cls, options: Options) -> "Codec":
        """Return the codec of a workflow for data without parts.

        Args:
            options: The options of the workflow.
        """
        if options.given_serializer is None and not options.types:  # one for all instances of the class
            return options.steps.table.once("codec", lambda: cls(options.serializer))
        return cls(options.serializer)

    @property
    def keeps_parts(self) -> bool:
        """Tell whether data may refer to parts."""
        return self._parts is not None

    def event(self, event: Event) -> Any:
        """Return an event as data.

        Raises:
            StoreError: A value in it cannot be written.
        """
        return self.lean(self.whole_event(event))

    def whole_event(self, event: Event, *, is_streamed: bool = False) -> Any:
        """Return an event as data with its long texts; ``lean`` makes of it the data for a record.

        Args:
            event: The event.
            is_streamed: Whether the data is only for readers of a stream.

        Raises:
            StoreError: A value in it cannot be written.
        """
        cls = type(event)
        try:
            if self._short is None:
                return self._serializer.serialize(event)
            name, fields, whole, form = _FACTS.get(cls) or _facts_about(cls)
            self._short.check_name(name)
            values = None if form is None else form.scalars_of(event)
            if values is not None:
                return [name, values]
            values = event.__dict__
            if not whole or len(values) != len(fields):  # some fields may be lazy, or stored separately
                values = {field: getattr(event, field) for field in fields}
            extra = event.__pydantic_extra__
            if extra:
                if form is not None and not (_RESERVED.isdisjoint(extra) and form.names.isdisjoint(extra)):
                    form = None
                values = {**values, **extra}
            if isinstance(event, StopEvent) and event.result is not None:
                values = {**values, "result": event.result}
            if is_plain(values) and form is not None and not form.apart(event):
                # A copy, because the original may change before it is written.
                return [name, dict(values)]
            short = self._shown if is_streamed and self._shown is not None else self._short
            return _as_parts(short.encode(event))
        except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
            raise _unrecorded(event, error) from error

    def value(self, value: Any, path: str = "") -> Any:
        """Return a value of the state, or a result of ``ctx.once``, as data.

        Args:
            value: The value.
            path: The place of the value, for the error.

        Raises:
            StoreError: The value cannot be written.
        """
        try:
            if self._short is None:
                return self._serializer.serialize(value)
            return self.lean(self._whole_value(value))
        except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
            raise _unrecorded(value, error, path) from error

    def _whole_value(self, value: Any) -> Any:
        assert self._short is not None
        return [value] if is_plain(value) else [None, self._short.encode(value)]

    def lean(self, data: Any) -> Any:
        """Return data with references to parts in the place of long texts and of conversations."""
        return data if self._parts is None else self._parts.lean(data)

    def shown_messages(self, messages: list[Any]) -> Any:
        """Return messages as data without secrets, for readers."""
        assert self._short is not None
        kept = self._short.list_in_parts(messages, grows=False)
        return self.lean(redacted([None, self._short.encode(messages) if kept is None else kept]))

    def digest(self, value: Any) -> int:
        """Return a digest of a value of the state, valid in this process.

        Raises:
            StoreError: The value cannot be written.
        """
        return hash(as_json(self.value(value)))

    def text(self, data: Any) -> str:
        """Return an event or value as text of the serializer, as in snapshots."""
        if isinstance(data, str):
            return data
        parts = cast("list[Any]", data)
        if isinstance(parts[0], str) and len(parts) > 1:
            marked = {IS_PYDANTIC: True, "value": parts[1], "qualified_name": parts[0]}
            if isinstance(parts[-1], bool | list):
                marked[MARKED] = parts[-1]
            return as_json(marked).decode()
        return as_json(parts[-1]).decode()

    def read(self, data: Any) -> Any:
        """Return the event or value for data.

        Raises:
            StoreError: The class is not loaded, or does not fit the data.
        """
        try:
            return self._serializer.deserialize(self.text(data))
        except Exception as error:  # validators of the program may raise any exception
            raise StoreError(f"A record cannot be read: {error}") from error

    def class_name(self, data: Any) -> str:
        """Return the class name of an event from data."""
        if not isinstance(data, str):
            return str(cast("list[Any]", data)[0])
        cls = type(cast("object", self._serializer.deserialize(data)))
        return payload_name(cls)


def _as_parts(marked: dict[str, Any]) -> list[Any]:
    """Return a model that the serializer has marked in the form of events in records."""
    return [marked["qualified_name"], marked["value"], marked.get(MARKED, 1)]


def _unrecorded(value: Any, error: Exception, path: str = "") -> StoreError:
    name = type(value).__name__
    who = name if isinstance(value, Event) else f"a {name}"
    problem = error if isinstance(error, NotWritable) else error.__cause__
    found = problem.inside(path) if path and isinstance(problem, NotWritable) else error
    return StoreError(f"{who} cannot be recorded: {found}; {_REMEDY}")


# By class: name, written fields, whether these are all fields, and form. The form is None for classes that write
# themselves.
_FACTS: dict[type, tuple[str, tuple[str, ...], bool, Form | None]] = {}


def _facts_about(cls: type[Event]) -> tuple[str, tuple[str, ...], bool, Form | None]:
    """Return the facts about a class of events. Keep them for its next event unless they may still change."""
    fields = tuple(name for name, field in cls.model_fields.items() if not field.exclude)
    decorators = cls.__pydantic_decorators__
    own_words = bool(decorators.field_serializers) or set(decorators.model_serializers) > {"_dump"}
    form = form_of(cls)
    is_settled = form is None or not form.tried_once
    if form is not None and (own_words or form.private or form.tried or form.tried_once or form.problem):
        form = None
    facts = qualified_name(cls) if form is None else form.name, fields, len(fields) == len(cls.model_fields), form
    if is_settled:
        _FACTS[cls] = facts
    return facts
