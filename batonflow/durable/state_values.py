"""Detection of values of a state that were changed in place."""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from batonflow.durable.attempt_record import as_json
from batonflow.durable.codec import Codec
from batonflow.values.state_data import declared_as_json
from batonflow.workflow_core.context.state_store import IMMUTABLE, StateCell
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import DictLikeModel

__all__ = ["MISSING", "StateValues"]

MISSING: Any = object()
"""Stands for a missing value."""


class StateValues:
    """Return the value of a state key.

    Steps get lists, dicts and models themselves, not copies, and may change them in place. The form of a value is noted
    when a step gets it, and compared when the step ends.

    Args:
        codec: The codec of values.
    """

    __slots__ = ("_cell", "_codec", "_digests")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._cell: StateCell | None = None
        # The noted forms of values, by key.
        self._digests: dict[str, int] = {}

    def watch(self, cell: StateCell) -> None:
        """Watch the values of a state."""
        self._cell = cell

    def as_data(self, path: str, value: Any) -> Any:
        """Return a value as data for records, by the declaration of the state where it is needed.

        Raises:
            StoreError: The value cannot be written.
        """
        try:
            return self._codec.value(value, path)
        except StoreError:
            if self._cell is None or value is MISSING:
                raise
            try:
                return self._codec.value(declared_as_json(self._cell.state, path, value))
            except ValueError:
                pass
            raise

    def current(self, key: str) -> Any:
        """Return the value of a key, or the mark for a missing one."""
        return MISSING if self._cell is None else _value(self._cell.state, key)

    def note(self, key: str, value: Any) -> None:
        """Note a value that a step gets; the first noted form is kept."""
        if key not in self._digests:
            self._digests[key] = self._digest(key, value)

    def note_written(self, key: str, value: Any, data: Any) -> None:
        """Note that a value was recorded as ``data``, for the next comparison. A form noted since then stays.

        The form of a memory is noted when a step gets it, because its own methods change it in the meantime.
        """
        if key not in self._digests and type(value) not in IMMUTABLE and not hasattr(value, "shared_in_drafts"):
            self._digests[key] = hash(as_json(data))

    def forget(self, key: str) -> None:
        """Forget the noted form of a key with a new value."""
        self._digests.pop(key, None)

    def changed(self, keys: Iterable[str]) -> Iterator[str]:
        """Return the keys with values that differ from their noted form."""
        return (key for key, _, _ in self._differing(keys))

    def note_changes(self, keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Return changed keys with their present values, and note these."""
        for key, value, digest in self._differing(keys):
            self._digests[key] = digest
            yield key, value

    def _differing(self, keys: Iterable[str]) -> Iterator[tuple[str, Any, int]]:
        for key in keys:
            value = self.current(key)
            if value is not MISSING and (digest := self._digest(key, value)) != self._digests.get(key):
                yield key, value, digest

    def _digest(self, key: str, value: Any) -> int:
        try:
            return self._codec.digest(value)
        except StoreError:
            pass
        try:
            return hash(as_json(self.as_data(key, value)))
        except StoreError:
            return 0


def _value(state: BaseModel, key: str) -> Any:
    if key in type(state).model_fields or key in type(state).__private_attributes__:
        return getattr(state, key, MISSING)
    return state.to_dict().get(key, MISSING) if isinstance(state, DictLikeModel) else MISSING
