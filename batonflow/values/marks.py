"""Marks: names in JSON data for the classes of values."""

from typing import Any

__all__ = [
    "IS_COMPONENT", "IS_DATA", "IS_PYDANTIC", "IS_VALUE", "MARKED", "PRIVATE", "SCALARS", "NotWritable", "is_marked",
    "is_plain", "items_of",
]  # fmt: skip

IS_PYDANTIC = "__is_pydantic"
"""Marks a model."""

IS_COMPONENT = "__is_component"
"""Marks an object with ``class_name`` and ``to_dict``."""

IS_DATA = "__is_data"
"""Marks a plain dict that has the names of marks."""

IS_VALUE = "__is_value"
"""Marks a value of a type that JSON lacks, such as a datetime, a set or a dataclass."""

MARKED = "marked"
"""Names the fields of a model, beside its mark, in which there are marks; True: they may be in all."""

PRIVATE = "__private"
"""Names the private attributes among the fields of a model."""

SCALARS = frozenset({str, int, float, bool, type(None)})

_MARKS = frozenset({IS_PYDANTIC, IS_COMPONENT, IS_DATA, IS_VALUE})

items_of: Any = getattr(dict, "items")  # noqa: B009 - its type is that of a dict of nothing known
"""Return the items of a dict of any class, without values that a class computes on access."""


class NotWritable(ValueError):
    """A value has no form that can be read again.

    Args:
        problem: The value, and the remedy.
        path: Keys, indexes and names of fields that lead to the value.
    """

    def __init__(self, problem: str, path: tuple[Any, ...] = ()) -> None:
        super().__init__(problem, path)
        self.problem = problem
        self.path = path

    def inside(self, key: Any) -> "NotWritable":
        """The same error, seen from the container that holds the value under ``key``."""
        return NotWritable(self.problem, (key, *self.path))

    def __str__(self) -> str:
        where = ".".join(str(key) for key in self.path)
        return f"{where}: {self.problem}" if where else self.problem


def is_marked(data: dict[str, Any]) -> bool:
    """Tell whether a dict is an object of a class, as the serializer writes it, or looks so."""
    return "qualified_name" in data and "value" in data and not _MARKS.isdisjoint(data)


def is_plain(value: Any) -> bool:
    """Tell whether a value is plain JSON data that mean themselves; apart from marks only exact types are looked at."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in SCALARS:
        return True
    if kind is dict:
        if "qualified_name" in value and is_marked(value):
            return False
        for key, inner in value.items():
            if type(key) is not str or not (type(inner) in SCALARS or is_plain(inner)):
                return False
        return True
    if kind is list:
        return all(type(inner) in SCALARS or is_plain(inner) for inner in value)
    return False
