"""How values become text in a snapshot, and values again.

Names of classes in a payload resolve only to classes that are loaded already, or were registered: nothing is imported
or called because a payload says so. And only what the serializer has marked itself is an object of a class again. Data
that look so, as arguments of tools may that a model thinks up, stay data: plain dicts with the names of marks are
written inside a mark of their own, and a model's mark says in which of its fields there are any.
"""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast, runtime_checkable

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, SchemaSerializer, from_json, to_json, to_jsonable_python

from batonflow.workflow_core.events import DictLikeModel, StopEvent
from batonflow.workflow_core.types import loaded_class, qualified_name

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreConfig

    from batonflow.workflow_core.context.pickle_serializer import PickleSerializer

    JsonPickleSerializer = PickleSerializer

__all__ = [
    "IS_DATA", "IS_PYDANTIC", "MARKED", "BaseSerializer", "JsonPickleSerializer", "JsonSerializer",
    "PickleSerializer", "as_json", "is_marked", "is_plain", "items_of", "read_json",
]  # fmt: skip

IS_PYDANTIC = "__is_pydantic"
"""Marks a model."""

IS_DATA = "__is_data"
"""Marks a plain dict that has the names of marks."""

MARKED = "marked"
"""Names the fields of a model, beside its mark, in which there are marks; True: they may be in all."""

_IS_COMPONENT = "__is_component"
_MARKS = frozenset({IS_PYDANTIC, _IS_COMPONENT, IS_DATA})

items_of: Any = getattr(dict, "items")  # noqa: B009 - its type is that of a dict of nothing known
"""The items of a dict of any class: what a class makes beside, when it is asked, are no data of it."""

_WAYS_TO_WRITE = ("ser_json_bytes", "ser_json_temporal", "ser_json_timedelta")
_SCALARS = frozenset({str, int, float, bool, type(None)})
_EARLIER_HOMES = {
    "workflows.": "workflow_core",
    "llama_index.core.workflow.": "workflow_core",
    "llama_index.core.agent.": "agents",
    "llama_index.core.base.llms.": "llms",
    "llama_index.core.llms.": "llms",
    "llama_index.core.memory.": "agents.memory",
    "llama_index.core.storage.chat_store.": "agents.memory",
    "llama_index.core.tools.": "tools",
    "llama_index.core.schema.": "tools",
}
"""Where classes of LlamaIndex are that payloads name, and which of our packages has what stands in their place."""


@runtime_checkable
class BaseSerializer(Protocol):
    """Writes a value as text and reads it back."""

    def serialize(self, value: Any) -> str:
        """The text for a value; raises ValueError or TypeError when there is none."""
        ...

    def deserialize(self, value: str) -> Any:
        """The value for a text."""
        ...


class JsonSerializer:
    """Writes plain data, pydantic models and components (``class_name`` and ``to_dict``) as JSON.

    Args:
        allowed_types: The classes, or their qualified names, that a payload may name. None: every class that is loaded.

    Example:
        >>> JsonSerializer().deserialize(JsonSerializer().serialize({"a": [1, 2]}))
        {'a': [1, 2]}
    """

    # Whether a subclass takes values, also plain ones, into its own hands.
    _writes_all: ClassVar[bool] = False
    _reads_all: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.serialize_value is not JsonSerializer.serialize_value:
            cls._written, cls._writes_all = cls.serialize_value, True
        if cls.deserialize_value is not JsonSerializer.deserialize_value:
            cls._read, cls._reads_all = cls.deserialize_value, True

    def __init__(self, *, allowed_types: Iterable[type | str] | None = None) -> None:
        self._allowed: set[str] | None = None
        self._known: dict[str, type] = {}
        if allowed_types is not None:
            self._allowed = set()
            for entry in allowed_types:
                name = entry if isinstance(entry, str) else qualified_name(entry)
                self._allowed.add(name)
                if isinstance(entry, type):
                    self._known[name] = entry

    def knowing(self, types: Iterable[type]) -> "JsonSerializer":
        """The same serializer, which also finds ``types``, for example those declared inside functions."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._known = {**{qualified_name(cls): cls for cls in types}, **self._known}
        return other

    def with_types(self, *classes: type) -> "JsonSerializer":
        """The same serializer, which also takes payloads that name these classes."""
        other = self.knowing(classes)
        if self._allowed is not None:
            other._allowed = {*self._allowed, *map(qualified_name, classes)}
        return other

    def serialize_value(self, value: Any) -> Any:
        """A value as data of JSON; subclasses that know more kinds of values override it.

        Args:
            value: The value; those inside dicts and lists come here, too. Of models, fields that say their type are
                written as pydantic writes them.

        Raises:
            ValueError: Something in the value is neither plain data nor a model.

        Example:
            >>> class WithSets(JsonSerializer):
            ...     def serialize_value(self, value):
            ...         return {"__set": list(value)} if isinstance(value, set) else super().serialize_value(value)
        """
        return JsonSerializer.encode(self, value)

    def deserialize_value(self, data: Any) -> Any:
        """The value of what ``serialize_value`` made of it.

        Args:
            data: The data; those inside dicts and lists come here, too.

        Raises:
            ValueError: The data name a class that may not be used.
        """
        return JsonSerializer._decode(self, data)

    def serialize(self, value: Any) -> str:
        """The JSON text of a value.

        Raises:
            ValueError: Something in the value is neither plain data nor a model.
        """
        try:
            plain = not self._writes_all and is_plain(value)
            return as_json(value if plain else self._written(value)).decode()
        except RecursionError:
            raise ValueError("It contains itself, or is nested too deeply for JSON") from None

    def deserialize(self, value: str) -> Any:
        """The value of a JSON text.

        Raises:
            ValueError: The text is no JSON, or names a class that may not be used.
        """
        read = read_json(value)
        # Wrapped values are marked by these keys; without them nothing needs to be looked at.
        return self._read(read) if self._reads_all or '"__is_' in value else read

    def encode(self, value: Any) -> Any:
        """A value as data of JSON in which everything that is not plain is marked with its class.

        Raises:
            ValueError: Something in the value is neither plain data nor a model.
        """
        kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType] - a cast costs as much as the look
        if kind in _SCALARS:
            return value
        form = _form_of(kind)
        if form is not None:
            return self._encode_model(value, form)
        if isinstance(value, dict):
            items = items_of(value)
            found = {key if isinstance(key, str) else _key(key): self._written(inner) for key, inner in items}
            if len(found) < len(items):
                raise ValueError("two keys of a dict are the same as text, as 1 and '1' are, and JSON has no others")
            return {IS_DATA: True, "value": found, "qualified_name": "dict"} if is_marked(found) else found
        if isinstance(value, list | tuple):
            return [self._written(inner) for inner in cast("list[Any]", value)]
        if hasattr(value, "class_name") and hasattr(value, "to_dict"):
            return {
                _IS_COMPONENT: True,
                "value": value.to_dict(),
                "qualified_name": qualified_name(kind),
            }
        if isinstance(value, str | int | float):  # enums and other kinds of plain values
            return from_json(to_json(cast("Any", value), inf_nan_mode="constants"))
        raise ValueError(f"{qualified_name(kind)} cannot be written as JSON")

    def digest_of_whole(self, value: Any) -> int | None:
        """Tells apart what memories hold, within this process; None for anything else.

        They may be conversations of thousands of messages: no data are made of them.

        Raises:
            ValueError: Something in it is neither plain data nor a model.
        """
        form = _form_of(cast("Any", type(value)))
        if form is None or not form.is_whole:
            return None
        try:
            return hash(form.serializer.to_json(value, fallback=self.encode))
        except PydanticSerializationError:  # a text in it, perhaps
            return hash(as_json(self.encode(value)))

    def _encode_model(self, model: Any, form: "_Form") -> dict[str, Any]:
        """The fields as pydantic writes them; values whose class the fields do not tell are marked."""
        marked: dict[str, Any] = {IS_PYDANTIC: True, "value": None, "qualified_name": form.name}

        def encode(value: Any) -> Any:
            marked[MARKED] = True  # nobody knows in which field
            return self._written(value)

        dump = model.model_dump
        if not form.dumps_itself:
            # Without the way there, as a conversation is hundreds of models; and exact in numbers.
            dump = partial(form.serializer.to_python, model)
        try:
            dumped: dict[str, Any] = dump(mode="json", exclude=form.untyped, fallback=encode)
        except (UnicodeEncodeError, PydanticSerializationError) as error:
            # A serializer of the class's own puts the name of the error into one of another kind.
            if "UnicodeEncodeError" not in f"{type(error).__name__} {error}":
                raise ValueError(f"{form.name}: {error}") from error
            dumped = self._as_data(dump(mode="python", exclude=form.untyped), encode)
        within: list[str] = []
        for name in form.untyped or ():
            dumped[name] = value = getattr(model, name)
            if not is_plain(value):
                dumped[name] = self._written(value)
                within.append(name)
        if form.has_data and (data := model.to_dict()):
            dumped["_data"] = dict(data)
            if not all(map(is_plain, data.values())):
                dumped["_data"] = {name: self._written(value) for name, value in data.items()}
                within.append("_data")
        if form.has_result and "result" in dumped:
            dumped["result"] = value = model.result
            if not is_plain(value):
                dumped["result"] = self._written(value)
                within.append("result")
        if within:
            marked.setdefault(MARKED, within)
        marked["value"] = dumped
        return marked

    def _as_data(self, value: Any, encode: Callable[[Any], Any]) -> Any:
        """A part of a dumped model as data of JSON."""
        if type(value) is str:
            return value
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value).items()
            return {key if isinstance(key, str) else _key(key): self._as_data(inner, encode) for key, inner in items}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._as_data(inner, encode) for inner in cast("list[Any]", value)]
        return to_jsonable_python(value, inf_nan_mode="constants", fallback=encode)

    def _decode(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self._read(inner) for inner in cast("list[Any]", data)]
        if not isinstance(data, dict):
            return data
        found = cast("dict[str, Any]", data)
        if is_marked(found):
            name, inner = str(found["qualified_name"]), found["value"]
            if found.get(IS_PYDANTIC) is True:
                return self._decode_model(self._resolve(name, BaseModel), inner, found.get(MARKED))
            if found.get(_IS_COMPONENT) is True:
                return self._resolve(name, object).from_dict(inner)
            if found.get(IS_DATA) is True and isinstance(inner, dict):
                found = cast("dict[str, Any]", inner)
        return {key: self._read(inner) for key, inner in found.items()}

    # The way of what is inside a value, which a subclass may have taken into its own hands.
    _written = encode
    _read = _decode

    def _decode_model(self, cls: type[BaseModel], written: Any, within: Any) -> BaseModel:
        """A model from its fields, of which those ``within`` hold marks."""
        if within is True or not isinstance(written, dict):
            return cls.model_validate(self._read(written), by_name=True, by_alias=True)
        fields = dict(cast("dict[str, Any]", written))
        if within is None:  # earlier payloads, and those of the other library, do not say where the marks are
            form = _form_of(cls)
            within = form.free if form is not None else ()
        for name in within:
            value = fields.get(name)
            if name == "_data" and isinstance(value, dict):  # its names are no marks
                items = cast("dict[str, Any]", value).items()
                fields[name] = {key: self._read(inner) for key, inner in items}
            elif name in fields:
                fields[name] = self._read(value)
        return cls.model_validate(fields, by_name=True, by_alias=True)

    def _resolve(self, name: str, base: type) -> Any:
        cls: Any = self._known.get(name)
        if cls is None:
            if self._allowed is not None and name not in self._allowed:
                raise ValueError(f"Refusing to import disallowed type {name}; add it to allowed_types")
            cls = loaded_class(name)
            ours = moved_class(name)
            # Where the other library is loaded too, the payload still means what stands in its place here.
            if ours is not None and not (isinstance(cls, type) and issubclass(cls, ours)):
                cls = ours
        if not isinstance(cls, type) or not issubclass(cls, base):
            raise ValueError(f"The payload names {name}, which is not a loaded class that a payload may name")
        if base is object and not (hasattr(cls, "class_name") and hasattr(cls, "from_dict")):
            raise ValueError(f"The payload names {name}, which is no component with class_name and from_dict")
        return cls


def moved_class(name: str) -> Any:
    """The class that stands here in the place of one of the library for which a payload was written, or None."""
    for home, package in _EARLIER_HOMES.items():
        if name.startswith(home):
            same_place = loaded_class(f"batonflow.{package}.{name.removeprefix(home)}")
            return same_place or loaded_class(f"batonflow.{package}.{name.rpartition('.')[2]}")
    return None


def _key(key: Any) -> str:
    if key is None or isinstance(key, bool | int | float):
        return next(iter(from_json(to_json({key: 0}))))
    raise ValueError(f"keys must be text or numbers, not {type(key).__name__}")


@dataclass(frozen=True, slots=True)
class _Form:
    """What there is to know of a class of models before one of it is written.

    Attributes:
        name: Its qualified name.
        untyped: The fields whose types say nothing about their values; None without one.
        has_data: Whether there may be dynamic data.
        has_result: Whether it ends runs, with a result that is no field.
        dumps_itself: Whether it has its own ``model_dump``.
        is_whole: Whether it is as a memory is, changed in place by methods of its own, and pydantic's JSON says all.
        free: Where values of any class may be: ``untyped``, dynamic data and a result.
        serializer: Pydantic's own, but for the numbers for which JSON proper has no name: these stay numbers.
    """

    name: str
    untyped: set[str] | None
    has_data: bool
    has_result: bool
    dumps_itself: bool
    is_whole: bool
    free: tuple[str, ...]
    serializer: SchemaSerializer


@cache
def _form_of(cls: type) -> _Form | None:
    """The form of a class, None of one that is no model."""
    if not issubclass(cls, BaseModel):
        return None
    fields = cls.model_fields
    types = {name: str(field.annotation) for name, field in fields.items() if not field.exclude}
    untyped = {name for name, text in types.items() if "Any" in text}
    has_data, dumps_itself = issubclass(cls, DictLikeModel), cls.model_dump is not BaseModel.model_dump
    has_result = issubclass(cls, StopEvent) and "result" not in fields
    return _Form(
        name=qualified_name(cls),
        untyped=untyped or None,
        has_data=has_data,
        has_result=has_result,
        dumps_itself=dumps_itself,
        is_whole=getattr(cls, "shared_in_drafts", False) and not (untyped or has_data or dumps_itself),
        free=(*untyped, *(["_data"] if has_data else []), *(["result"] if has_result else [])),
        serializer=_serializer_of(cls),
    )


def _serializer_of(cls: type[BaseModel]) -> SchemaSerializer:
    if not cls.__pydantic_complete__:
        cls.model_rebuild()
    config = {name: way for name, way in cls.model_config.items() if name in _WAYS_TO_WRITE}
    return SchemaSerializer(
        cls.__pydantic_core_schema__, cast("CoreConfig", {**config, "ser_json_inf_nan": "constants"})
    )


def as_json(data: Any, *, inf_nan_mode: Literal["constants", "null"] = "constants") -> bytes:
    """Data of JSON as text; halves of characters, as in names of files, for which UTF-8 has no form, with backslashes.

    Args:
        data: The data.
        inf_nan_mode: What becomes of the numbers that JSON has no name for.

    Raises:
        PydanticSerializationError: They are nested too deeply, or are no such data.
    """
    try:
        return to_json(data, inf_nan_mode=inf_nan_mode)
    except PydanticSerializationError:
        return to_json(_with_whole_characters(data), inf_nan_mode=inf_nan_mode)


def read_json(text: str | bytes) -> Any:
    """What ``as_json`` wrote, which may be nested more deeply than pydantic reads.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return from_json(text)
    except ValueError as error:
        if "recursion limit" not in str(error):
            raise
        return importlib.import_module("json").loads(text)  # hardly ever needed


def _with_whole_characters(data: Any) -> Any:
    """Data of JSON, with backslashes in texts and names where half a character stands."""
    if type(data) is str:
        return data if data.isascii() else data.encode(errors="backslashreplace").decode()
    if isinstance(data, dict):
        items = cast("dict[Any, Any]", data).items()
        return {_with_whole_characters(name): _with_whole_characters(value) for name, value in items}
    if isinstance(data, list | tuple):
        return [_with_whole_characters(inner) for inner in cast("list[Any]", data)]
    return data


def is_marked(data: dict[str, Any]) -> bool:
    """Whether a dict is an object of a class, as the serializer writes it, or looks so."""
    return "qualified_name" in data and "value" in data and not _MARKS.isdisjoint(data)


def is_plain(value: Any) -> bool:
    """Whether a value is plain JSON data that mean themselves; apart from marks only exact types are looked at."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _SCALARS:
        return True
    if kind is dict:
        if "qualified_name" in value and is_marked(value):
            return False
        for key, inner in value.items():
            if type(key) is not str or not (type(inner) in _SCALARS or is_plain(inner)):
                return False
        return True
    if kind is list:
        return all(type(inner) in _SCALARS or is_plain(inner) for inner in value)
    return False


def __getattr__(name: str) -> Any:
    # Pickle can run code, so its module is loaded only for those who ask for it by name.
    if name in ("PickleSerializer", "JsonPickleSerializer"):
        return importlib.import_module("batonflow.workflow_core.context.pickle_serializer").PickleSerializer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
