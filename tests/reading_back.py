"""Reads back every record and snapshot that a test writes, and tells of those that come back as something else.

`pytest --read-back` turns this on. It looks at what `Codec` writes into records and `JsonSerializer` into snapshots:
the text is read at once, and the value compared with the one that was written.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from batonflow.durable.codec import Codec
from batonflow.values.names import NotWritable
from batonflow.values.serializers import JsonSerializer, as_json, read_json
from batonflow.values.unmarked import alike
from batonflow.workflow_core.errors import StoreError

__all__ = ["reading_back"]

# Classes that no module has are found by those that name them, as `Workflow(types=[...])` does.
_NOT_FOUND = ("<locals>", "disallowed type")


@contextmanager
def reading_back() -> Iterator[list[str]]:
    """The problems that were found, in the order in which they were."""
    problems: list[str] = []
    inside: list[bool] = []

    def compare(value: Any, write: Any, read: Any) -> Any:
        data = write()
        if inside or not _is_ours(write.args[0]):  # reading may write
            return data
        inside.append(True)
        try:
            back = read(data)
            if not alike(value, back) and not _same_text(write, back, data) and _is_text(value):
                problems.append(f"{value!r:.300} comes back as {back!r:.300}")
        except (StoreError, ValueError, TypeError) as error:
            if not any(text in str(error) for text in _NOT_FOUND):
                problems.append(f"{value!r:.300} cannot be read again: {error!s:.300}")
        finally:
            inside.clear()
        return data

    def _same_text(write: Any, back: Any, data: Any) -> bool:
        """Whether what came back would be written in the same way: memories, errors and the like have no equals."""
        with _without_error():
            again = write.func(write.args[0], back)
            return bool(again == data or _parsed(again) == _parsed(data))
        return False

    patched = [
        (Codec, "event", lambda self, data: self.read(read_json(as_json(data)))),
        (Codec, "value", lambda self, data: self.read(read_json(as_json(data)))),
        (JsonSerializer, "serialize", lambda self, text: self.deserialize(text)),
    ]
    originals = [(cls, name, getattr(cls, name)) for cls, name, _ in patched]
    for (cls, name, read), (_, _, original) in zip(patched, originals, strict=True):
        setattr(cls, name, _replaced(compare, original, read))
    try:
        yield problems
    finally:
        for cls, name, original in originals:
            setattr(cls, name, original)


def _parsed(data: Any) -> Any:
    """Data without the order of the names in them, which says nothing."""
    return read_json(data if isinstance(data, str) else as_json(data))


def _replaced(compare: Any, original: Any, read: Any) -> Any:
    def write(self: Any, value: Any, *place: Any) -> Any:
        return compare(value, functools.partial(original, self, value, *place), functools.partial(read, self))

    return write


def _is_ours(writer: Any) -> bool:
    """Whether the serializer is batonflow's: those that tests declare may be made to fail."""
    serializer = writer._serializer if isinstance(writer, Codec) else writer
    return type(serializer).__module__.startswith("batonflow.")


def _is_text(value: Any) -> bool:
    """Whether there are whole characters only: halves are written with backslashes."""
    return "\\ud" not in repr(value)


@contextmanager
def _without_error() -> Iterator[None]:
    try:
        yield
    except (NotWritable, StoreError, ValueError, TypeError):
        return
