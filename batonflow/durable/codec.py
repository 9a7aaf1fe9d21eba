"""Events and values in records: plain JSON where possible, else the text of the workflow's serializer.

An event is ``[class, values]`` or, when something in its values may be marked with its class, ``[class, values,
where]``; ``where`` names the fields, is True for all, and 1 when nobody has noted it. A value is ``[value]``, or
``[None, value]`` when it is marked. With a serializer other than JSON both are its text.
"""

from typing import Any, cast

from pydantic_core import PydanticSerializationError

from batonflow.durable.attempt_record import as_json
from batonflow.values.forms import Form, form_of
from batonflow.values.names import PRIVATE, NotWritable, payload_name, qualified_name
from batonflow.values.serializers import (
    IS_PYDANTIC,
    MARKED,
    BaseSerializer,
    JsonSerializer,
    is_plain,
    read_json,
)
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import Event, StopEvent

__all__ = ["Codec"]

# Dynamic data of these names stand apart from the fields.
_RESERVED = frozenset({"_data", "result", PRIVATE})

_REMEDY = "keep it out of events and state, or make it a pydantic model or plain data"


class Codec:
    """Writes and reads the events and values of a run.

    Args:
        serializer: The workflow's; JSON has a short way of its own.
    """

    __slots__ = ("_known", "_serializer", "_short")

    def __init__(self, serializer: BaseSerializer) -> None:
        if isinstance(serializer, JsonSerializer):
            serializer = serializer.for_records()
        self._serializer = serializer
        self._short = serializer if type(serializer) is JsonSerializer else None
        # For each class: its name, the written fields, whether these are all fields, and its form; without a form
        # where it has its own way.
        self._known: dict[type, tuple[str, tuple[str, ...], bool, Form | None]] = {}

    def event(self, event: Event) -> Any:
        """An event as data.

        Raises:
            StoreError: Something in it cannot be written.
        """
        cls = type(event)
        try:
            known = self._known.get(cls)
            if known is None:
                known = _facts_about(cls)
                if self._short is not None:
                    self._short.check_name(known[0])
                self._known[cls] = known
            name, fields, whole, form = known
            if self._short is None:
                return self._serializer.serialize(event)
            values = None if form is None else form.scalars_of(event)
            if values is not None:
                return [name, values]
            values = event.__dict__
            if not whole or len(values) != len(fields):  # a class may keep some fields apart, or make them when asked
                values = {field: getattr(event, field) for field in fields}
            extra = event.__pydantic_extra__
            if extra:
                if form is not None and not (_RESERVED.isdisjoint(extra) and form.names.isdisjoint(extra)):
                    form = None
                values = {**values, **extra}
            if isinstance(event, StopEvent) and event.result is not None:
                values = {**values, "result": event.result}
            if is_plain(values) and form is not None and not form.apart(event):
                # A copy, as it may be changed before it is written.
                return [name, dict(values)]
            return _as_parts(self._short.encode(event))
        except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
            raise _unrecorded(event, error) from error

    def value(self, value: Any, path: str = "") -> Any:
        """A value of the state, or the result of ``ctx.once``, as data.

        Args:
            value: The value.
            path: Where it stands, for the error.

        Raises:
            StoreError: It cannot be written.
        """
        try:
            if self._short is None:
                return self._serializer.serialize(value)
            return [value] if is_plain(value) else [None, self._short.encode(value)]
        except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
            raise _unrecorded(value, error, path) from error

    def digest(self, value: Any) -> int:
        """Tells apart values of the state, within this process.

        Raises:
            StoreError: The value cannot be written.
        """
        if self._short is not None:
            try:
                found = self._short.digest_of_whole(value)
            except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
                raise _unrecorded(value, error) from error
            if found is not None:
                return found
        return hash(as_json(self.value(value)))

    def text(self, data: Any) -> str:
        """An event or value in the words of the serializer, as snapshots keep it."""
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
        """The event or value that such data stand for.

        Raises:
            StoreError: They are of a class that is not loaded, or do not fit it any more.
        """
        try:
            return self._serializer.deserialize(self.text(data))
        except Exception as error:  # validators of the program's own classes may raise anything
            raise StoreError(f"A record cannot be read: {error}") from error

    def event_of_text(self, text: str) -> Any:
        """An event as data, from a snapshot's text."""
        if self._short is None:
            return text
        return _as_parts(read_json(text))

    def value_of_text(self, text: str) -> Any:
        """A value as data, from a snapshot's text."""
        return text if self._short is None else [None, read_json(text)]

    def class_name(self, data: Any) -> str:
        """The class of an event given as data."""
        if not isinstance(data, str):
            return str(cast("list[Any]", data)[0])
        cls = type(cast("object", self._serializer.deserialize(data)))
        return payload_name(cls)


def _as_parts(marked: dict[str, Any]) -> list[Any]:
    """A model that the serializer has marked, as an event stands in a record."""
    return [marked["qualified_name"], marked["value"], marked.get(MARKED, 1)]


def _unrecorded(value: Any, error: Exception, path: str = "") -> StoreError:
    name = type(value).__name__
    who = name if isinstance(value, Event) else f"a {name}"
    problem = error if isinstance(error, NotWritable) else error.__cause__
    found = problem.inside(path) if path and isinstance(problem, NotWritable) else error
    return StoreError(f"{who} cannot be recorded: {found}; {_REMEDY}")


def _facts_about(cls: type[Event]) -> tuple[str, tuple[str, ...], bool, Form | None]:
    fields = tuple(name for name, field in cls.model_fields.items() if not field.exclude)
    decorators = cls.__pydantic_decorators__
    own_words = bool(decorators.field_serializers) or set(decorators.model_serializers) > {"_dump"}
    form = form_of(cls)
    if form is not None and (own_words or form.private or form.tried or form.tried_once or form.problem):
        form = None
    return qualified_name(cls) if form is None else form.name, fields, len(fields) == len(cls.model_fields), form
