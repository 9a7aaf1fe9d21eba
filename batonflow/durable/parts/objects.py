"""The messages of a recorded run as objects. Each message is made once, as it was in the run."""

from collections.abc import Callable
from typing import Any

from batonflow.durable.parts.references import Item, PartReader, occurrences
from batonflow.values.serializers import is_marked, read_json

__all__ = ["PartObjects"]


class PartObjects:
    """Resolves references to values; see ``PartSource``.

    Args:
        reader: The parts.

    Attributes:
        made: The objects so far, by the number of their part and the number of earlier items of a list that are equal.
    """

    def __init__(self, reader: PartReader) -> None:
        self.reader = reader
        self.made: dict[tuple[int, int], Any] = {}
        # The objects in lists of the state, no two of which share an object.
        self._owned: set[int] = set()

    def data(self, number: int) -> Any:
        """See ``PartSource.data``."""
        return read_json(self.reader.stored(number))

    def expanded(self, data: Any) -> Any:
        """See ``PartSource.expanded``."""
        return self.reader.expanded(data)

    def numbers(self, items: list[Item]) -> list[int]:
        """See ``PartSource.numbers``."""
        return self.reader.numbers(items)

    def items(self, items: list[Item], cls: type, make: Callable[[Any], Any], *, owns: bool) -> list[Any]:
        """See ``PartSource.items``."""
        numbers = self.reader.numbers(items)
        if not hasattr(cls, "__batonflow_watch__"):
            return [make(self.reader.new_value(number)) for number in numbers]
        found: list[Any] = []
        for key in occurrences(numbers):
            one = self.made.get(key)
            if type(one) is not cls or (owns and id(one) in self._owned):
                data = self.reader.new_value(key[0])
                one = make(data)
                if not is_marked(data):  # the writer compares the data of those with marks
                    self.made.setdefault(key, one)
            if owns:
                self._owned.add(id(one))
            found.append(one)
        return found
