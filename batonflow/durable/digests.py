"""Digests of the input of runs, which compare the inputs for a run id across processes."""

import hashlib
import json
from functools import cache, lru_cache
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from batonflow.durable.codec import Codec
from batonflow.values.names import qualified_name
from batonflow.workflow_core.events import Event

__all__ = ["digest_of", "digest_of_start"]


def digest_of(encoded: Any) -> str:
    """Return a digest of data that does not depend on the order of keys."""
    text = json.dumps(encoded, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def digest_of_start(codec: Codec, event: Event) -> str:
    """Return a digest of a start event that is equal in all processes. The order of sets does not matter.

    Raises:
        StoreError: The event cannot be written.
    """
    encoded = codec.event(event)
    is_plain = isinstance(encoded, list) and len(cast("list[Any]", encoded)) == _LENGTH_WHEN_PLAIN
    return digest_of(encoded if is_plain else _in_order(codec, event))


_LENGTH_WHEN_PLAIN = 2


def _in_order(codec: Codec, value: Any) -> Any:
    if type(value) is str or value is None:  # the common case
        return value
    if isinstance(value, BaseModel):
        name, fields = _named(type(value))
        values = {**{field: getattr(value, field) for field in fields}, **(value.__pydantic_extra__ or {})}
        return [name, _in_order(codec, values)]
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {
            _quoted(key) if type(key) is str else json.dumps(_in_order(codec, key)): _in_order(codec, inner)
            for key, inner in items
        }
    if isinstance(value, list | tuple):
        return [_in_order(codec, inner) for inner in cast("list[Any]", value)]
    if isinstance(value, set | frozenset):
        members = cast("set[Any]", value)
        return sorted(json.dumps(_in_order(codec, inner), sort_keys=True) for inner in members)
    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except (PydanticSerializationError, UnicodeDecodeError):  # for bytes that are not text
        return codec.value(value)


@cache
def _named(cls: type[BaseModel]) -> tuple[str, list[str]]:
    """Return the name of a class of models and the names of its written fields."""
    return qualified_name(cls), [name for name, field in cls.model_fields.items() if not field.exclude]


_quoted = lru_cache(maxsize=1024)(json.dumps)
