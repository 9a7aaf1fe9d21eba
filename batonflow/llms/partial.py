"""Answers in JSON while they arrive, and afterwards: the object so far, and the objects in a text."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from types import UnionType
from typing import Annotated, Any, Self, Union, cast, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import AliasChoices, BaseModel, ConfigDict, RootModel, create_model
from pydantic_core import from_json

from batonflow.llms.json_text import read_object

__all__ = ["GrowingObject", "PartialModel", "objects_in", "partial_of"]

# Up to this many characters an object is read at every piece.
_SHORT = 4096
_MOST_STARTS = 200
# Reading what is only nearly JSON takes its time.
_MOST_REPAIRS = 8

# Models break lines inside of strings.
_decoder = json.JSONDecoder(strict=False)
_LIKE_JSON = re.compile(r"\{\s*[\"']")
_EMPTY = re.compile(r"\{\s*\}")
_NUMBER = "0123456789.eE+-"


class PartialModel(BaseModel):
    """What of an instance has arrived: fields that have not are None, and nothing is validated yet.

    Objects inside are partial models too; dates, enums and the like are still as JSON has them, and the last text is
    the part of it that is there.
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=(), arbitrary_types_allowed=True)


@dataclass(frozen=True)
class _Shape:
    """What an annotation says of JSON: which models its objects are, and what its objects and lists hold."""

    models: tuple[type[BaseModel], ...] = ()
    values: "_Shape | None" = None
    items: "_Shape | None" = None

    def __or__(self, other: "_Shape") -> "_Shape":
        items = self.items | other.items if self.items and other.items else self.items or other.items
        return _Shape(self.models + other.models, self.values or other.values, items)

    def read(self, value: Any) -> Any:
        """``value`` with the objects in it as partial models."""
        if isinstance(value, dict):
            given = cast("dict[str, Any]", value)
            if len(self.models) == 1:
                return partial_of(self.models[0], given)
            if self.models:
                # Which of them it will be is not known yet.
                return PartialModel.model_construct(**given)
            return {key: self.values.read(one) for key, one in given.items()} if self.values else given
        if isinstance(value, list):
            parts = cast("list[Any]", value)
            return [self.items.read(one) for one in parts] if self.items else parts
        return value


def _shape(annotation: Any, inside: frozenset[Any] = frozenset()) -> _Shape:
    named = _named(annotation)
    if named is not None:
        # What names itself ends here: how deep it goes is not known.
        return _Shape() if annotation in inside else _shape(named, inside | {annotation})
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _Shape(models=(annotation,))
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(args[0], inside)
    if origin in {Union, UnionType}:
        together = _Shape()
        for one in args:
            together |= _shape(one, inside)
        return together
    if isinstance(origin, type) and args:
        if issubclass(origin, Mapping):
            return _Shape(values=_shape(args[1], inside))
        if issubclass(origin, Collection):
            return _Shape(items=_shape(args[0], inside))
    return _Shape()


def _named(annotation: Any) -> Any:
    """What an alias of a type, or a root model, is another name of; None for everything else."""
    if isinstance(annotation, type):
        return annotation.model_fields["root"].annotation if issubclass(annotation, RootModel) else None
    return getattr(annotation, "__value__", None)


@dataclass(frozen=True)
class _Sketch:
    made: type[PartialModel]
    fields: dict[str, str]
    shapes: dict[str, _Shape]


_sketches: WeakKeyDictionary[type[BaseModel], _Sketch] = WeakKeyDictionary()


def _sketch(cls: type[BaseModel]) -> _Sketch:
    known = _sketches.get(cls)
    if known is None:
        fields: dict[str, str] = {}
        for name, field in cls.model_fields.items():
            alias = field.validation_alias
            keys = alias.choices if isinstance(alias, AliasChoices) else [alias]
            fields.update({key: name for key in (*keys, name) if isinstance(key, str)})
        made = create_model(
            f"Partial{cls.__name__}",
            __base__=PartialModel,
            **cast("dict[str, Any]", dict.fromkeys(cls.model_fields, (Any, None))),
        )
        shapes = {name: _shape(field.annotation) for name, field in cls.model_fields.items()}
        known = _sketches[cls] = _Sketch(made, fields, shapes)
    return known


def partial_of(cls: type[BaseModel], value: dict[str, Any]) -> PartialModel:
    """The part of an instance of ``cls`` that is in ``value``.

    Args:
        cls: What it will be.
        value: JSON so far, by the names that the schema has.

    Example:
        >>> partial_of(Song, {"title": "Yes"}).length is None
        True
    """
    sketch = _sketch(cls)
    values: dict[str, Any] = {}
    for key, one in value.items():
        name = sketch.fields.get(key)
        if name is not None:
            values[name] = sketch.shapes[name].read(one)
        elif cls.model_config.get("extra") == "allow":
            values[key] = one
    return sketch.made.model_construct(set(values), **values)


class GrowingObject:
    """A JSON object whose text is arriving, perhaps with words before and behind it."""

    def __init__(self) -> None:
        self._text = StringIO()
        self._size = 0
        self._read_at = 0
        self._start = 0
        self._value: dict[str, Any] = {}

    def add(self, piece: str) -> Self:
        """Take the next piece of the text."""
        self._text.write(piece)
        self._size += len(piece)
        return self

    def news(self) -> dict[str, Any] | None:
        """The object so far if it shows more than it did the last time, else None.

        A long text is read whenever it has grown by a sixty-fourth: at every piece it would take time with the square
        of the length.
        """
        if self._size == self._read_at or (self._size > _SHORT and self._size * 64 < self._read_at * 65):
            return None
        self._read_at = self._size
        value = self._read(self._text.getvalue())
        if not value or value == self._value:
            return None
        self._value = value
        return value

    def _read(self, text: str) -> dict[str, Any] | None:
        # The last number may go on; what stands after a colon, a comma or a bracket in a text is only late.
        before = text.rstrip(_NUMBER)
        if before.rstrip()[-1:] in {":", ",", "["}:
            text = before
        for _ in range(_MOST_STARTS):
            self._start = text.find("{", self._start)
            if self._start < 0:
                self._start = len(text)
                return None
            try:
                value = from_json(text[self._start :], allow_partial="trailing-strings")
            except ValueError:
                if self._value:
                    # What began well is the object, also when it goes on badly.
                    return None
            else:
                if value or not _EMPTY.match(text, self._start):
                    return cast("dict[str, Any]", value)
            self._start += 1
        return None


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    r"""The JSON objects in a text, whatever stands before, between and behind them; also such as are nearly JSON.

    Example:
        >>> list(objects_in('Sure! ```json\n{"a": 1}\n``` I hope {this} helps.'))
        [{'a': 1}]
    """
    start, repairs = -1, 0
    for _ in range(_MOST_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            return
        try:
            value, end = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            repairs += 1
            if repairs <= _MOST_REPAIRS:
                yield from _nearly(text[start:])
            if _LIKE_JSON.match(text, start):
                # Objects inside of a broken one are not the answer, and where it ends is not known.
                return
            start = max(start, text.find("}", start))
        else:
            yield cast("dict[str, Any]", value)
            start = end - 1


def _nearly(text: str) -> list[dict[str, Any]]:
    try:
        return [read_object(text)]
    except ValueError:
        return []
