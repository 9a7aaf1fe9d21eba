"""JSON as models write it: objects in a text, objects still arriving, and JSON with common mistakes."""

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

__all__ = ["ArrivingObject", "PartialModel", "objects_in", "partial_of", "read_object"]

_decoder = json.JSONDecoder()

# Every branch that starts also ends, at the latest at the end of the text, and nothing is scanned twice. The time is
# therefore linear for any text.
_SKIPPED = r"//[^\n]*+|\#[^\n]*+|/\*.*?(?:\*/|\Z)"
_TOKEN = re.compile(
    rf"""
      (?P<string> "(?:[^"\\]++|\\.)*+"?+ | '(?:[^'\\]++|\\.)*+'?+ )
    | (?P<quoted> [\u201c\u201d\uff02](?:[^\u201c\u201d\uff02\\]++|\\.)*+[\u201c\u201d\uff02]?+
                | [\u2018\u2019](?:[^\u2018\u2019\\]++|\\.)*+[\u2018\u2019]?+ )
    | (?P<wide> [\uff1a\uff0c] )
    | (?P<skipped> {_SKIPPED} | ,(?=(?:\s++|{_SKIPPED})*+[}}\]]) )
    | (?P<number> \d[\w.]*+ )
    | (?P<word> [^\W\d]\w*+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_CONSTANTS = {
    "True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null",
    "nan": "NaN", "NaN": "NaN", "inf": "Infinity", "Infinity": "Infinity",
}  # fmt: skip

# Chinese punctuation: quotes, colon and comma.
_QUOTES = "\u201c\u201d\uff02\u2018\u2019"
_WIDE = {"\uff1a": ":", "\uff0c": ","}

_ESCAPE = re.compile(
    r"\\(?:x(?P<two>[0-9a-fA-F]{2})|u(?P<four>[0-9a-fA-F]{4})|U(?P<eight>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|(?P<one>.))",
    re.DOTALL,
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}

_OUTER_APOSTROPHE = re.compile(r"(?<!\w)'|'(?!\w)")
_PAIR = re.compile(r'"([^"]++)"\s*+:\s*+"([^"]*+)"')
_PAIRS = re.compile(rf"\{{(?:[\s,]*+{_PAIR.pattern})++[\s,]*+\}}")


def read_object(text: str) -> dict[str, Any]:
    """Return the JSON object at the first brace of ``text``; the text around it is ignored.

    Common mistakes are corrected: Python's quotes and constants, Chinese quotes and colons, comments, extra commas,
    names without quotes, single backslashes. As a last resort an object of texts is built from its pairs. No part of an
    object is ever dropped.

    Raises:
        ValueError: There is no object, or it cannot be read.

    Example:
        >>> read_object("the input: {'a': 1, 'ready': True,}")
        {'a': 1, 'ready': True}
    """
    start = text.find("{")
    if start < 0:
        raise ValueError("there is no JSON object")
    strict = _decoded(text, start)
    if strict is not None:
        return strict
    written = text[start:]
    loose = _decoded(_TOKEN.sub(_as_json, written))
    return _pairs(written) if loose is None else loose


def _decoded(text: str, start: int = 0) -> dict[str, Any] | None:
    try:
        value, _ = _decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value)


def _as_json(found: re.Match[str]) -> str:
    token = found[0]
    if found["word"]:
        return _CONSTANTS.get(token) or json.dumps(token)
    if found["skipped"]:
        return ""
    if found["wide"]:
        return _WIDE[token]
    if found["quoted"]:
        return json.dumps(_unescaped(token[1:-1])) if len(token) > 1 and token[-1] in _QUOTES else token
    closed = found["string"] and len(token) > 1 and token[-1] == token[0]
    return json.dumps(_unescaped(token[1:-1])) if closed else token


def _unescaped(text: str) -> str:
    known = all(found["one"] is None or found["one"] in _ESCAPED for found in _ESCAPE.finditer(text))

    def character(found: re.Match[str]) -> str:
        one = found["one"]
        if one is not None:
            return _ESCAPED[one] if known or one in "\"'\\" else found[0]
        # A single backslash that is not an escape, as in C:\new\data, shows that the others are literal too.
        return chr(int(found["two"] or found["four"] or found["eight"], 16)) if known else found[0]

    return _ESCAPE.sub(character, text)


def _pairs(text: str) -> dict[str, Any]:
    """Return the object from its ``"key": "text"`` pairs; ValueError when it contains anything else."""
    whole = _PAIRS.match(_OUTER_APOSTROPHE.sub('"', text))
    if whole is None:
        raise ValueError("the JSON object cannot be read")
    return dict(_PAIR.findall(whole[0]))


# An object of up to this length is parsed at every delta.
_SHORT = 4096
_MOST_STARTS = 200
# Reading JSON with mistakes is slow.
_MOST_REPAIRS = 8

# Models write line breaks inside strings.
_lenient_decoder = json.JSONDecoder(strict=False)
_LIKE_JSON = re.compile(r"\{\s*[\"']")
_EMPTY = re.compile(r"\{\s*\}")
_NUMBER = "0123456789.eE+-"


class PartialModel(BaseModel):
    """The received part of an instance, not validated: missing fields are None.

    Nested objects are partial models too. Dates, enums and the like are still in their JSON form, and the last text may
    be incomplete.
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=(), arbitrary_types_allowed=True)


@dataclass(frozen=True)
class _Shape:
    """The JSON shape of an annotation: the models of its objects, and its inner shapes."""

    models: tuple[type[BaseModel], ...] = ()
    values: "_Shape | None" = None
    items: "_Shape | None" = None

    def __or__(self, other: "_Shape") -> "_Shape":
        items = self.items | other.items if self.items and other.items else self.items or other.items
        return _Shape(self.models + other.models, self.values or other.values, items)

    def read(self, value: Any) -> Any:
        """Return ``value`` with its objects as partial models."""
        if isinstance(value, dict):
            given = cast("dict[str, Any]", value)
            if len(self.models) == 1:
                return partial_of(self.models[0], given)
            if self.models:
                # The text does not show yet which model it will be.
                return PartialModel.model_construct(**given)
            return {key: self.values.read(one) for key, one in given.items()} if self.values else given
        if isinstance(value, list):
            parts = cast("list[Any]", value)
            return [self.items.read(one) for one in parts] if self.items else parts
        return value


def _shape(annotation: Any, inside: frozenset[Any] = frozenset()) -> _Shape:
    named = _named(annotation)
    if named is not None:
        # A recursive type ends here, because its depth is not known.
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
    """Return the annotation behind a type alias or a root model, None for everything else."""
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
    """Return a partial instance of ``cls`` from the JSON object so far.

    Args:
        cls: The class of the complete instance.
        value: The JSON object, with the names of the schema.

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


class ArrivingObject:
    """A JSON object that arrives as text, with or without text around it."""

    def __init__(self) -> None:
        self._text = StringIO()
        self._size = 0
        self._read_at = 0
        self._start = 0
        self._value: dict[str, Any] = {}

    def add(self, piece: str) -> Self:
        """Add the next piece of the text."""
        self._text.write(piece)
        self._size += len(piece)
        return self

    def next_value(self) -> dict[str, Any] | None:
        """Return the object so far if it has grown since the last call, else None.

        A long text is parsed only after it has grown by a sixty-fourth, because parsing it at every piece would take
        quadratic time.
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
        # The last number may continue. After a colon, a comma or a bracket the number is only late.
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
                    # An object that started well is kept, even if its continuation is broken.
                    return None
            else:
                if value or not _EMPTY.match(text, self._start):
                    return cast("dict[str, Any]", value)
            self._start += 1
        return None


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    r"""Yield the JSON objects in a text, including objects with common mistakes.

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
            value, end = _lenient_decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            repairs += 1
            if repairs <= _MOST_REPAIRS:
                yield from _nearly(text[start:])
            if _LIKE_JSON.match(text, start):
                # Objects inside a broken object are not the answer, and its end is not known.
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
