"""Whether data is what an SDK's types say, to the letter."""

from collections.abc import Collection
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

from tests.llms.wire.chunking import encoded

__all__ = ["check"]


def check(kind: Any, data: Any, *, extras: Collection[str] = ()) -> None:
    """Fail unless ``data`` is of the type ``kind`` of an SDK and has no field that the type has not.

    The SDKs themselves take anything: a field that is missing is None to them, one too many is kept.

    Args:
        kind: A model, or a union of models.
        data: What JSON gives.
        extras: Names of fields that servers send though the types do not have them.

    Raises:
        ValidationError: Something is missing or of another type.
        AssertionError: Something is too much; the message says where it is.
    """
    _no_extras(_adapter(kind).validate_json(encoded(data), strict=True), "", frozenset(extras))


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _no_extras(value: Any, place: str, extras: frozenset[str]) -> None:
    if isinstance(value, BaseModel):
        unknown = set(value.model_extra or ()) - extras
        assert not unknown, f"{type(value).__name__} at {place or 'the top'} has no field {sorted(unknown)}"
        for name in type(value).model_fields:
            _no_extras(getattr(value, name), f"{place}.{name}", extras)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            _no_extras(one, f"{place}[{number}]", extras)
