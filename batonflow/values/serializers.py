"""Serializers: values as text in snapshots, and back.

Names of classes in a payload resolve only to classes that are loaded or registered; a payload cannot import modules or
call functions. Only data that the serializer has marked become objects of a class again. Data that merely look like
marks, such as tool arguments made up by a model, stay data: a plain dict with the keys of a mark is written inside a
mark of its own, and the mark of a model names the fields that contain marks.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast, runtime_checkable

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from batonflow import values as _values
from batonflow.values.names import (
    IS_COMPONENT,
    IS_DATA,
    IS_PYDANTIC,
    IS_VALUE,
    MARKED,
    PRIVATE,
    REFERENCE,
    REFERENCE_MARK,
    SCALARS,
    NotWritable,
    is_marked,
    is_plain,
    items_of,
    loaded_class,
    named_class,
    names_of,
    qualified_name,
)

if TYPE_CHECKING:
    from batonflow.values.forms import Form
    from batonflow.values.names import InParts

__all__ = [
    "IS_DATA", "IS_PYDANTIC", "MARKED", "BaseSerializer", "JsonSerializer", "PartKeeper", "PartSource",
    "as_json", "is_marked", "is_plain", "items_of", "read_json",
]  # fmt: skip

# Checking up to this many values one by one is as fast as checking them as a list.
_FEW = 2

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
"""Modules of LlamaIndex in payloads, and the packages here with the classes in their place."""


@runtime_checkable
class BaseSerializer(Protocol):
    """Writes a value as text and reads it back."""

    def serialize(self, value: Any) -> str:
        """Return the text of a value; raise ValueError or TypeError if it cannot be written."""
        ...

    def deserialize(self, value: str) -> Any:
        """Return the value of a text."""
        ...


class PartKeeper(Protocol):
    """Keeps the items of lists as parts, which records refer to."""

    def keep(
        self, values: Sequence[Any], encode: Callable[[Any], Any], *, grows: bool, name: str = "", marked: bool = False
    ) -> Any:
        """Return the reference to a list; None if its items cannot be parts.

        Args:
            values: The items.
            encode: Returns an item as data; None if it cannot be a part.
            grows: Whether further items will be added to the list.
            name: The name of the class that marks the items; empty to leave them as ``encode`` returns them.
            marked: Whether ``encode`` returns data with marks.
        """
        ...


class PartSource(Protocol):
    """The parts that references in a record stand for; ``durable.parts`` describes their forms."""

    def data(self, number: int) -> Any:
        """Return a part as data, in which there may be references."""
        ...

    def expanded(self, data: Any) -> Any:
        """Return data with the parts in the place of references."""
        ...

    def numbers(self, items: list[Any]) -> list[int]:
        """Return the numbers of the parts that are the items of a list."""
        ...

    def items(self, items: list[Any], cls: type, make: Callable[[Any], Any], *, owns: bool) -> list[Any]:
        """Return the items of a list as objects. A message of the state is the same object in events.

        Args:
            items: The items, as they stand in the reference.
            cls: The class of the items.
            make: Makes an object of the data of a part, in which there are no references.
            owns: Whether the list belongs to the state; no two of these lists share an object.
        """
        ...


class JsonSerializer:
    """Writes plain data, pydantic models and components (``class_name`` and ``to_dict``) as JSON.

    Args:
        allowed_types: The classes, or their qualified names, that a payload may name; None for all loaded classes.

    Example:
        >>> JsonSerializer().deserialize(JsonSerializer().serialize({"a": [1, 2]}))
        {'a': [1, 2]}
    """

    # Whether a subclass overrides the writing or reading of values, including plain ones.
    _writes_all: ClassVar[bool] = False
    _reads_all: ClassVar[bool] = False
    # Whether other processes read the text.
    _leaves: bool = False
    # Keeps the items of some lists as parts that records refer to.
    _parts: "PartKeeper | None" = None
    # Has the parts that a record refers to.
    _stored: "PartSource | None" = None

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
        """Return a copy that also finds ``types``, such as classes declared inside functions."""
        other = self._copy()
        other._known = {**{name: cls for cls in types for name in names_of(cls)}, **self._known}
        return other

    def _copy(self) -> "JsonSerializer":
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def with_types(self, *classes: type) -> "JsonSerializer":
        """Return a copy that also accepts payloads with these classes."""
        other = self.knowing(classes)
        if self._allowed is not None:
            other._allowed = {*self._allowed, *map(qualified_name, classes)}
        return other

    def for_records(self, parts: "PartKeeper | None" = None) -> "JsonSerializer":
        """Return a copy that refuses to write classes that another process could not find.

        Args:
            parts: Keeps the messages of conversations, which are then written as references.
        """
        other = self._copy()
        other._leaves = True
        other._parts = parts
        return other

    def reading(self, stored: "PartSource | None") -> "JsonSerializer":
        """Return a copy that reads data with references to parts."""
        other = self._copy()
        other._stored = stored
        return other

    def check_name(self, name: str) -> None:
        """Refuse the name of a class that a reader could not find.

        Raises:
            NotWritable: The class is declared inside a function and is not registered.
        """
        if "<locals>" in name and self._leaves:
            for part in re.split(r"[\[\], ]+", name):
                if "<locals>" in part and part not in self._known:
                    raise NotWritable(
                        f"{part} is declared inside a function, where it cannot be found again: declare it at the top "
                        f"of its module, or name it in Workflow(types=[{part.rpartition('.')[2]}])"
                    )

    def serialize_value(self, value: Any) -> Any:
        """Return a value as JSON data. Subclasses override it to support more types.

        Args:
            value: The value. It is also called for values inside dicts and lists, but not for fields of models with a
                declared type, which pydantic writes.

        Raises:
            ValueError: Something in the value is neither plain data nor a model.

        Example:
            >>> class WithSets(JsonSerializer):
            ...     def serialize_value(self, value):
            ...         return {"__set": list(value)} if isinstance(value, set) else super().serialize_value(value)
        """
        return JsonSerializer.encode(self, value)

    def deserialize_value(self, data: Any) -> Any:
        """Read a value that ``serialize_value`` wrote.

        Args:
            data: The data. It is also called for data inside dicts and lists.

        Raises:
            ValueError: The data names a class that may not be used.
        """
        return JsonSerializer._decode(self, data)

    def serialize(self, value: Any) -> str:
        """Return the JSON text of a value.

        Raises:
            ValueError: Something in the value is neither plain data nor a model.
        """
        try:
            plain = not self._writes_all and is_plain(value)
            return as_json(value if plain else self._written(value)).decode()
        except NotWritable as error:
            raise ValueError(str(error)) from error
        except RecursionError:
            raise ValueError("It contains itself, or is nested too deeply for JSON") from None

    def deserialize(self, value: str) -> Any:
        """Return the value of a JSON text.

        Raises:
            ValueError: The text is not JSON, or names a class that may not be used.
        """
        read = read_json(value)
        # All marks have such keys; a text without them holds plain data.
        has_marks = '"__is_' in value or (self._stored is not None and REFERENCE_MARK in value)
        return self._read(read) if self._reads_all or has_marks else read

    def encode(self, value: Any) -> Any:
        """Return a value as JSON data. All values other than plain data are marked with their class.

        Raises:
            ValueError: Something in the value is neither plain data nor a model.
        """
        kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType] - a cast costs as much as the look
        if kind in SCALARS:
            return value
        if kind is dict:
            return self._encode_dict(cast("dict[Any, Any]", value))
        if kind is list:
            return self._encode_list(cast("list[Any]", value))
        form = _values.form_of(kind)
        if form is not None:
            return self._encode_model(value, form)
        if isinstance(value, dict) and _values.is_ours(kind):  # batonflow's own subclasses count as plain dicts
            return self._encode_dict({**cast("dict[Any, Any]", value)})
        if isinstance(value, list) and _values.is_ours(kind):
            return self._encode_list(_plain_list(value))
        if not isinstance(value, Enum | dict | list) and hasattr(value, "class_name") and hasattr(value, "to_dict"):
            self.check_name(name := qualified_name(kind))
            return {IS_COMPONENT: True, "value": value.to_dict(), "qualified_name": name}
        marked = _values.value_as_data(value, self._written)
        if marked is not None:
            self.check_name(marked["qualified_name"])
            return marked
        if isinstance(value, str | int | float):  # subclasses of scalars
            return from_json(to_json(cast("Any", value), inf_nan_mode="constants"))
        raise NotWritable(f"{qualified_name(kind)} cannot be written as JSON")

    def _encode_dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        items = items_of(value)
        if not all(type(key) is str or (isinstance(key, str) and not isinstance(key, Enum)) for key in value):
            return _values.dict_as_data(value, self._written)
        found: dict[str, Any] = {}
        key = ""
        try:
            for key, inner in items:
                found[key] = self._written(inner)
        except NotWritable as error:
            raise error.inside(key) from error
        return {IS_DATA: True, "value": found, "qualified_name": "dict"} if is_marked(found) else found

    def _encode_list(self, value: list[Any]) -> Any:
        if value and (kept := self.list_in_parts(value)) is not None:
            return kept
        found: list[Any] = []
        if len(value) > _FEW and not self._writes_all and len(set(map(type, value))) == 1:
            form = _values.form_of(cast("Any", type(value[0])))
            # Fast path for conversations with hundreds of messages.
            if form is not None and form.all_come_back(value):
                self.check_name(form.name)
                short = self._encode_short
                return [short(one, form) or self._encode_model(one, form) for one in value]
        try:
            for inner in value:
                found.append(self._written(inner))  # noqa: PERF401 - the error says at which place
        except NotWritable as error:
            raise error.inside(len(found)) from error
        return found

    def _encode_model(self, model: Any, form: "Form", *, tried: bool = False) -> dict[str, Any]:
        """Write the fields as pydantic does, and mark values of classes that the fields do not declare.

        Args:
            model: The model.
            form: The form of its class.
            tried: Whether it was checked that the model can be read again.
        """
        if form.problem is not None:
            raise NotWritable(form.problem)
        if self._parts is not None and (form.tried or form.tried_once):  # reading it is tried, which needs all of it
            return self.for_records()._encode_model(model, form, tried=tried)
        self.check_name(form.name)
        scalars = None if form.is_root else form.scalars_of(model)
        if scalars is not None:
            return {IS_PYDANTIC: True, "value": scalars, "qualified_name": form.name}
        marked: dict[str, Any] = {IS_PYDANTIC: True, "value": None, "qualified_name": form.name}
        kept = self._in_parts(self._parts, model, form) if self._parts is not None and form.in_parts else {}
        apart = form.apart(model, kept)
        if form.has_data and model.__pydantic_extra__ and not form.names.isdisjoint(model.__pydantic_extra__):
            # Dynamic data with the name of a field: pydantic would write only one of the two.
            apart += [name for name in model.__pydantic_extra__ if name in form.names and name not in apart]
        if form.is_short and not (apart or kept) and (short := self._encode_short(model, form)) is not None:
            return short
        if form.is_root and apart:
            form.accept("root", model.root)
            return {**marked, "value": self._written(model.root), MARKED: True}

        def encode(value: Any) -> Any:
            marked[MARKED] = True  # the fallback does not know the name of the field
            return self._written(value)

        dumped = self._dumped(model, form, [*apart, *kept] if kept else apart, encode)
        if kept:
            dumped.update(kept)
        within = self._add_apart(model, form, apart, cast("Any", dumped)) if isinstance(dumped, dict) else []
        if within:
            marked.setdefault(MARKED, within)
        marked["value"] = dumped
        if (form.tried or form.tried_once) and not tried:
            self._try_reading(model, form, marked)
        return marked

    def _in_parts(self, parts: "PartKeeper", model: Any, form: "Form") -> dict[str, Any]:
        """Return the fields that are written as references."""

        def keep(values: list[Any], *, grows: bool = False) -> Any:
            return parts.keep(values, self._unmarked, grows=grows) if values else []

        written = {name: field.write(model, keep) for name, field in form.in_parts.items()}
        return {name: value for name, value in written.items() if value is not None}

    def list_in_parts(self, values: list[Any], *, grows: bool = True) -> Any:
        """Return the reference to a list of messages or results. None for other lists, and if nothing keeps parts.

        Args:
            values: The list.
            grows: Whether further items will be added to the list.
        """
        parts = self._parts
        if parts is None:
            return None
        cls = cast("Any", type(values[0]))
        form = _values.form_of(cls)
        if form is None or not form.is_part:
            return None
        if all(type(one) is cls for one in values):
            self.check_name(form.name)
            kept = parts.keep(values, self._unmarked_any, grows=grows, name=form.name)
            if kept is not None:
                return kept
        if not all(_is_part(cast("Any", type(one))) for one in values):
            return None
        return parts.keep(values, self._written, grows=grows, marked=True)

    def _unmarked(self, item: Any) -> Any:
        """Return a message of batonflow's own class as data without marks; None if there are marks in it."""
        return self._unmarked_any(item) if _values.is_ours(type(item)) else None

    def _unmarked_any(self, item: Any) -> Any:
        form = _values.form_of(cast("Any", type(item)))
        if form is None or not form.is_part:
            return None
        try:
            marked = self._encode_model(item, form)
        except NotWritable:  # the whole list may be written in another way
            return None
        return None if MARKED in marked else marked["value"]

    def _encode_short(self, model: Any, form: "Form") -> dict[str, Any] | None:
        """Write a model without marked fields; return None if it needs marks."""
        beside: dict[str, Any] = {}
        for name in form.beside or ():
            value = getattr(model, name)
            if name not in (form.untyped or ()):  # the serializer of the field writes dicts of any class alike
                value = _own_items(value)
            beside[name] = value
            if (value or type(value) is not dict) and not is_plain(value):
                return None
        try:
            dumped = form.serializer.to_python(model, mode="json", exclude=form.beside)
        except (UnicodeEncodeError, PydanticSerializationError):
            return None
        dumped.update(beside)
        return {IS_PYDANTIC: True, "value": dumped, "qualified_name": form.name}

    def _dumped(self, model: Any, form: "Form", apart: list[str], encode: Callable[[Any], Any]) -> Any:
        """Return pydantic's data of a model, without the fields that are written separately."""
        exclude = form.untyped
        extra = model.__pydantic_extra__ if form.has_data and not form.has_own_words else None
        if apart or form.computed or extra:
            exclude = {*(exclude or ()), *apart, *form.computed, *(extra or ())}
        if form.has_result and not is_plain(model.result):
            model = model.model_copy()
            model._result = None  # written separately
        dump = model.model_dump
        if not form.dumps_itself:
            # Faster than ``model_dump``, and exact for NaN and infinity.
            dump = partial(form.serializer.to_python, model)
        try:
            return dump(mode="json", exclude=exclude, fallback=encode)
        except NotWritable as error:
            raise error.inside(form.cls.__name__) from error
        except (UnicodeEncodeError, PydanticSerializationError) as error:
            # A serializer of the class may have replaced the error by one of another class.
            if "UnicodeEncodeError" not in f"{type(error).__name__} {error}":
                raise NotWritable(str(error), (form.cls.__name__,)) from error
            return self._as_data(dump(mode="python", exclude=exclude), encode)

    def _add_apart(self, model: Any, form: "Form", apart: list[str], dumped: dict[str, Any]) -> list[str]:
        """Add the data that pydantic leaves out, and name the fields with marks."""
        within: list[str] = []

        def add(name: str, value: Any) -> None:
            dumped[name] = value
            if not is_plain(value):
                within.append(name)
                try:
                    dumped[name] = self._written(value)
                except NotWritable as error:
                    raise error.inside(name).inside(form.cls.__name__) from error

        for name in form.untyped or ():
            add(name, getattr(model, name))
        for name in apart:
            value = _plain_list(getattr(model, name))
            add(name, value)
            form.accept(name, value)
        if form.has_data and (data := model.to_dict()):
            dumped["_data"] = dict(data)
            if not all(map(is_plain, data.values())):
                dumped["_data"] = self._encode_named(data, form.cls)
                within.append("_data")
        if form.has_result and model._result is not None:
            add("result", model.result)
        if form.private and (private := form.private_of(model)):
            dumped[PRIVATE] = self._encode_named(private, form.cls)
            within.append(PRIVATE)
        return within

    def _encode_named(self, values: dict[str, Any], cls: type) -> dict[str, Any]:
        """Write values under names that are data."""
        name, found = "", dict[str, Any]()
        try:
            for name, value in values.items():
                found[name] = self._written(value)
        except NotWritable as error:
            raise error.inside(name).inside(cls.__name__) from error
        return found

    def _try_reading(self, model: Any, form: "Form", marked: dict[str, Any]) -> None:
        """Refuse a model that code of the program changes when it is read.

        Raises:
            NotWritable: The model is changed, or reading it fails.
        """
        try:
            back = self.knowing([form.cls])._decode(read_json(as_json(marked)))
            same = _values.alike(back, model) or as_json(self._encode_model(back, form, tried=True)) == as_json(marked)
        except Exception as error:  # code of the program's own may raise anything
            raise NotWritable(
                f"it could not be read again: {error}. Let its validators and __init__ take the output of "
                "its serializers",
                (form.cls.__name__,),
            ) from error
        if not same:
            raise NotWritable(
                "it would be another one when it is read again: let its validators leave a checked value unchanged, "
                "and its serializers write the value that was read",
                (form.cls.__name__,),
            )
        form.tried_once = False

    def _as_data(self, value: Any, encode: Callable[[Any], Any]) -> Any:
        """Return a part of a dumped model as JSON data."""
        if type(value) is str:
            return value
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value).items()
            return {str(key): self._as_data(inner, encode) for key, inner in items}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._as_data(inner, encode) for inner in cast("list[Any]", value)]
        return to_jsonable_python(value, inf_nan_mode="constants", fallback=encode)

    def _decode(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self._read(inner) for inner in cast("list[Any]", data)]
        if not isinstance(data, dict):
            return data
        found = cast("dict[str, Any]", data)
        if self._stored is not None and len(found) == 1 and REFERENCE in found:
            return self._referred(self._stored, found[REFERENCE])
        if is_marked(found):
            name, inner = str(found["qualified_name"]), found["value"]
            if found.get(IS_PYDANTIC) is True:
                return self._decode_model(self._resolve(name, _is_model), inner, found.get(MARKED))
            if found.get(IS_COMPONENT) is True:
                return self._resolve(name, _is_component).from_dict(inner)
            if found.get(IS_VALUE) is True:
                return _values.value_of(name, inner, self._read, partial(self._resolve, fits=_is_named))
            if found.get(IS_DATA) is True and isinstance(inner, dict):
                found = cast("dict[str, Any]", inner)
        return {key: self._read(inner) for key, inner in found.items()}

    def _referred(self, stored: "PartSource", reference: Any) -> Any:
        """Return the value that a reference stands for."""
        if isinstance(reference, int):
            return self._read(stored.data(reference))
        if isinstance(reference, list):
            return [self._read(stored.data(number)) for number in stored.numbers(cast("list[Any]", reference))]
        if "items" in reference:
            cls = self._resolve(reference["of"], _is_model)
            items = reference["items"][REFERENCE] if isinstance(reference["items"], dict) else reference["items"]
            return stored.items(items, cls, partial(self._part, cls), owns=True)
        return {key: self._read(inner) for key, inner in reference["data"].items()}

    def _with_items(self, stored: "PartSource", data: Any, field: "InParts") -> Any:
        """Return a field with objects in the place of references to lists."""
        if isinstance(data, list):
            return [self._with_items(stored, inner, field) for inner in cast("list[Any]", data)]
        if not isinstance(data, dict):
            return data
        found = cast("dict[str, Any]", data)
        if len(found) > 1 or REFERENCE not in found:
            return {name: self._with_items(stored, inner, field) for name, inner in found.items()}
        if isinstance(found[REFERENCE], list):
            return stored.items(found[REFERENCE], field.items, partial(self._part, field.items), owns=field.owns)
        return stored.expanded(found)

    def _part(self, cls: type[BaseModel], data: dict[str, Any]) -> Any:
        """Read an item of a list from its part, which no longer has references."""
        return self.reading(None)._read(data) if is_marked(data) else self._decode_model(cls, data, (), is_whole=True)

    # Writes and reads inner values; a subclass may replace them.
    _written = encode
    _read = _decode

    def _decode_model(self, cls: type[BaseModel], written: Any, within: Any, *, is_whole: bool = False) -> BaseModel:
        """Read a model from its fields; the fields ``within`` hold marks. A whole model has no references."""
        if not isinstance(written, dict):
            return cls.model_validate(self._read(written), by_name=True, by_alias=True)
        fields = dict(cast("dict[str, Any]", written))
        form = _values.form_of(cls)
        if (stored := self._stored) is not None and not is_whole:
            if form is not None and form.is_root:
                root = self._read(fields) if within is True else stored.expanded(fields)
                return cls.model_validate(root, by_name=True, by_alias=True)
            fields = dict(_unescaped(fields))
        private = fields.pop(PRIVATE, None) if PRIVATE in fields else None
        if within is None:  # payloads of earlier versions and of LlamaIndex do not name the fields with marks
            within = form.free if form is not None else ()
        if stored is not None and not is_whole and within is not True:
            in_parts: Mapping[str, InParts] = {} if form is None else form.in_parts
            # Fields with marks are read below; reading resolves their references.
            for name, value in fields.items():
                if name not in within:
                    field = in_parts.get(name)
                    fields[name] = stored.expanded(value) if field is None else self._with_items(stored, value, field)
        if within is True:
            fields = self._read(fields) if stored is None else self._decode_named(fields)
        else:
            self._decode_fields(fields, within)
        model = cls.model_validate(fields, by_name=True, by_alias=True)
        for name, value in self._decode_named(private or {}).items():
            if name in cls.__private_attributes__:
                setattr(model, name, value)
        return model

    def _decode_named(self, values: dict[str, Any]) -> dict[str, Any]:
        """Read values under names that are data."""
        return {name: self._read(value) for name, value in values.items()}

    def _decode_fields(self, fields: dict[str, Any], within: Any) -> None:
        for name in within:
            value = fields.get(name)
            if name == "_data" and isinstance(value, dict):  # its keys are data, not marks
                named = cast("dict[str, Any]", value)
                fields[name] = self._decode_named(named if self._stored is None else _unescaped(named))
            elif name in fields:
                fields[name] = self._read(value)

    def _resolve(self, name: str, fits: Callable[[Any], bool]) -> Any:
        cls = self._class_of(name)
        if not isinstance(cls, type) or not fits(cls):
            raise ValueError(f"The payload names {name}, which is not a loaded class that a payload may name")
        return cls

    def _class_of(self, name: str) -> Any:
        cls: Any = self._known.get(name)
        if cls is not None:
            return cls
        if "[" in name:
            return named_class(name, self._argument)
        if self._allowed is not None and name not in self._allowed:
            raise ValueError(f"Refusing to import disallowed type {name}; add it to allowed_types")
        cls = loaded_class(name)
        ours = moved_class(name)
        # Use the class of batonflow even if LlamaIndex is loaded.
        if ours is not None and not (isinstance(cls, type) and issubclass(cls, ours)):
            cls = ours
        return cls

    def _argument(self, name: str) -> Any:
        """Return the class of a generic model or of one of its arguments."""
        return _values.built_in(name) or self._resolve(name, _is_named)


def _unescaped(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a model or the data of an event, which are not a reference."""
    return fields[REFERENCE]["data"] if len(fields) == 1 and REFERENCE in fields else fields


def _plain_list(value: Any) -> Any:
    """Return a list of a subclass of batonflow's own as a plain list; return other values unchanged."""
    kind = cast("Any", type(value))
    return [*value] if kind is not list and issubclass(kind, list) and _values.is_ours(kind) else value


def _own_items(value: Any) -> Any:
    """Return a dict of a subclass as a dict, without entries made on demand. Return other values unchanged."""
    kind = cast("Any", type(value))
    return value if kind is dict or not issubclass(kind, dict) else dict(items_of(value))


def _is_part(cls: Any) -> bool:
    form = _values.form_of(cls)
    return form is not None and form.is_part


def _is_model(cls: Any) -> bool:
    return issubclass(cls, BaseModel)


def _is_named(cls: Any) -> bool:
    return _is_model(cls) or _values.has_mark(cls)


def _is_component(cls: Any) -> bool:
    return hasattr(cls, "class_name") and hasattr(cls, "from_dict")


def moved_class(name: str) -> Any:
    """Return the class that replaces a class of LlamaIndex, or None."""
    for home, package in _EARLIER_HOMES.items():
        if name.startswith(home):
            same_place = loaded_class(f"batonflow.{package}.{name.removeprefix(home)}")
            return same_place or loaded_class(f"batonflow.{package}.{name.rpartition('.')[2]}")
    return None


def as_json(data: Any, *, inf_nan_mode: Literal["constants", "null"] = "constants") -> bytes:
    """Return JSON data as text. Lone surrogates, as in some file names, are written with backslashes.

    Args:
        data: The data.
        inf_nan_mode: The form of NaN and infinity.

    Raises:
        PydanticSerializationError: The data is nested too deeply, or is not JSON data.
    """
    try:
        return to_json(data, inf_nan_mode=inf_nan_mode)
    except PydanticSerializationError:
        return to_json(_with_whole_characters(data), inf_nan_mode=inf_nan_mode)


def read_json(text: str | bytes) -> Any:
    """Read JSON of ``as_json``, also if it is nested more deeply than pydantic reads.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        return from_json(text)
    except ValueError as error:
        if "recursion limit" not in str(error):
            raise
        return importlib.import_module("json").loads(text)  # rarely needed


def _with_whole_characters(data: Any) -> Any:
    """Return JSON data with backslashes in place of lone surrogates."""
    if type(data) is str:
        return data if data.isascii() else data.encode(errors="backslashreplace").decode()
    if isinstance(data, dict):
        items = cast("dict[Any, Any]", data).items()
        return {_with_whole_characters(name): _with_whole_characters(value) for name, value in items}
    if isinstance(data, list | tuple):
        return [_with_whole_characters(inner) for inner in cast("list[Any]", data)]
    return data
