"""A key-value store in memory, which a file of JSON may hold."""

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

__all__ = ["SimpleKVStore"]

_COLLECTION = "data"

Value = dict[str, Any]


P = ParamSpec("P")
T = TypeVar("T")


def _asynchronous(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(*args, **kwargs)

    return call


class SimpleKVStore:
    """Values by key, in collections. It is a cache of an embedding model, or the content of a folder of LlamaIndex.

    Args:
        data: The values by collection and key.

    Example:
        >>> cache = SimpleKVStore()
        >>> model = CallableEmbedding(encode, embeddings_cache=cache)
        >>> cache.persist("cache.json")
    """

    def __init__(self, data: Mapping[str, Mapping[str, Value]] | None = None) -> None:
        self._data = {name: {key: dict(one) for key, one in values.items()} for name, values in (data or {}).items()}

    def put(self, key: str, val: Value, collection: str = _COLLECTION) -> None:
        """Store a value."""
        self._data.setdefault(collection, {})[key] = dict(val)

    def put_all(
        self,
        kv_pairs: Sequence[tuple[str, Value]],
        collection: str = _COLLECTION,
        batch_size: int = 1,  # noqa: ARG002 - programs give it
    ) -> None:
        """Store several values; ``batch_size`` has no effect."""
        for key, value in kv_pairs:
            self.put(key, value, collection)

    def get(self, key: str, collection: str = _COLLECTION) -> Value | None:
        """Return a copy of a value, or None."""
        found = self._data.get(collection, {}).get(key)
        return None if found is None else dict(found)

    def get_all(self, collection: str = _COLLECTION) -> dict[str, Value]:
        """Return copies of all values of a collection by key."""
        return {key: dict(value) for key, value in self._data.get(collection, {}).copy().items()}

    def delete(self, key: str, collection: str = _COLLECTION) -> bool:
        """Delete a value, and tell whether it was there."""
        return self._data.get(collection, {}).pop(key, None) is not None

    aput, aput_all = _asynchronous(put), _asynchronous(put_all)
    aget, aget_all = _asynchronous(get), _asynchronous(get_all)
    adelete = _asynchronous(delete)

    def to_dict(self) -> dict[str, dict[str, Value]]:
        """Return copies of all values by collection and key."""
        return {name: self.get_all(name) for name in self._data.copy()}

    @classmethod
    def from_dict(cls, save_dict: Mapping[str, Mapping[str, Value]]) -> Self:
        """Return a store of the values of ``to_dict``."""
        return cls(save_dict)

    def persist(self, persist_path: str | PathLike[str]) -> None:
        """Write all values into a file of JSON, which is replaced at once."""
        path = Path(persist_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(json.dumps(self.to_dict()), encoding="utf-8")
        partial.replace(path)

    @classmethod
    def from_persist_path(cls, persist_path: str | PathLike[str]) -> Self:
        """Return a store of the values of a file; see ``persist``.

        Raises:
            FileNotFoundError: The file does not exist.
            ValueError: The file is not JSON.
        """
        return cls.from_dict(json.loads(Path(persist_path).read_text(encoding="utf-8")))
