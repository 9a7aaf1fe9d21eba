"""The values of a run's state as records have them, and whether somebody has changed one in place."""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from batonflow.durable.attempt_record import as_json
from batonflow.durable.codec import Codec
from batonflow.workflow_core.context.state_data import declared_as_json
from batonflow.workflow_core.context.state_store import IMMUTABLE, StateCell
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import DictLikeModel

__all__ = ["MISSING", "StateValues"]

MISSING: Any = object()
"""Stands for what is not there."""


class StateValues:
    """What the state holds.

    Steps are given lists, dicts and models themselves, not copies, and may change them without a word. So it is noted
    what a value was when somebody was given it, and looked for differences when that one is done.

    Args:
        codec: Writes values.
    """

    __slots__ = ("_cell", "_codec", "_digests")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._cell: StateCell | None = None
        # Of what a value was when it was noted, by key.
        self._digests: dict[str, int] = {}

    def watch(self, cell: StateCell) -> None:
        """Look at the values of this state."""
        self._cell = cell

    def as_data(self, path: str, value: Any) -> Any:
        """A value as records have it; one that only the declaration of the state tells how to write is written so.

        Raises:
            StoreError: It cannot be written.
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
        """The value of a key, or the mark for nothing there."""
        return MISSING if self._cell is None else _value(self._cell.state, key)

    def note(self, key: str, value: Any) -> None:
        """Somebody is given a value; what it was when somebody was given it before is known still."""
        if key not in self._digests:
            self._digests[key] = self._digest(key, value)

    def note_written(self, key: str, value: Any, data: Any) -> None:
        """A value that a step has set was written down as ``data``: that is what the next one is given.

        Where somebody was given it in between, it is known what it was then. Memories have digests of their own kind,
        made when somebody is given one.
        """
        if key not in self._digests and type(value) not in IMMUTABLE and not hasattr(value, "shared_in_drafts"):
            self._digests[key] = hash(as_json(data))

    def forget(self, key: str) -> None:
        """The key has another value now."""
        self._digests.pop(key, None)

    def changed(self, keys: Iterable[str]) -> Iterator[str]:
        """Those of the keys whose values are not what they were when they were noted."""
        return (key for key, _, _ in self._differing(keys))

    def note_changes(self, keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """The same, with what they are now; from here on that is known of them."""
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
