"""Conditions on the metadata of nodes."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from operator import index
from typing import Any, Self, SupportsIndex, cast

from pydantic import BaseModel, Field

__all__ = [
    "ExactMatchFilter",
    "FilterCondition",
    "FilterOperator",
    "MetadataFilter",
    "MetadataFilters",
    "checked_filters",
    "checked_number",
]


class FilterOperator(StrEnum):
    """A comparison of a value in the metadata with the value of a filter."""

    EQ = "=="
    GT = ">"
    LT = "<"
    NE = "!="
    GTE = ">="
    LTE = "<="
    IN = "in"
    NIN = "nin"
    ANY = "any"
    ALL = "all"
    TEXT_MATCH = "text_match"
    TEXT_MATCH_INSENSITIVE = "text_match_insensitive"
    CONTAINS = "contains"
    IS_EMPTY = "is_empty"


class FilterCondition(StrEnum):
    """The way in which several filters are joined."""

    AND = "and"
    OR = "or"
    NOT = "not"


_LISTS = {FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL}
_COMPARED: dict[FilterOperator, Callable[[Any, Any], bool]] = {
    FilterOperator.EQ: lambda found, value: found == value,
    FilterOperator.NE: lambda found, value: found != value,
    FilterOperator.GT: lambda found, value: found > value,
    FilterOperator.LT: lambda found, value: found < value,
    FilterOperator.GTE: lambda found, value: found >= value,
    FilterOperator.LTE: lambda found, value: found <= value,
    FilterOperator.IN: lambda found, value: found in value,
    FilterOperator.NIN: lambda found, value: found not in value,
    FilterOperator.ANY: lambda found, value: any(one in value for one in _items(found)),
    FilterOperator.ALL: lambda found, value: all(one in _items(found) for one in value),
    FilterOperator.TEXT_MATCH: lambda found, value: value in found,
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda found, value: value.lower() in found.lower(),
    FilterOperator.CONTAINS: lambda found, value: value in _items(found),
}
_OF_MISSING = {FilterOperator.NE, FilterOperator.NIN, FilterOperator.IS_EMPTY}


def _items(found: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", found) if isinstance(found, list | tuple) else [found]


class MetadataFilter(BaseModel):
    """A condition on one key of the metadata.

    Args:
        key: The key.
        value: The value to compare with.
        operator: The comparison.

    Raises:
        TypeError: The operator needs a list, or the values cannot be compared.

    Example:
        >>> MetadataFilter(key="year", value=2020, operator=">=")
    """

    key: str
    value: Any = None
    operator: FilterOperator = FilterOperator.EQ

    def matches(self, found: Any) -> bool:
        """Tell whether a value of the metadata meets the condition; None stands for a missing one."""
        operator, value = self.operator, self.value
        if found is None or operator is FilterOperator.IS_EMPTY:
            return operator in _OF_MISSING and (found in (None, "", []) or operator is not FilterOperator.IS_EMPTY)
        if operator in _LISTS and not isinstance(value, list | tuple | set):
            raise TypeError(f"the filter {self.key} {operator} needs a list, not {value!r}")
        try:
            return _COMPARED[operator](found, value)
        except (TypeError, AttributeError):
            raise TypeError(f"the filter {self.key} {operator} {value!r} does not fit the value {found!r}") from None


ExactMatchFilter = MetadataFilter


class MetadataFilters(BaseModel):
    """Several conditions.

    Args:
        filters: Filters, and further groups of filters.
        condition: How they are joined: and, or; not is true if no filter is.

    Example:
        >>> MetadataFilters(filters=[MetadataFilter(key="year", value=2020), MetadataFilter(key="author", value="Ann")])
    """

    filters: Sequence["MetadataFilter | MetadataFilters"] = Field(default_factory=list[Any])
    condition: FilterCondition | None = FilterCondition.AND

    @classmethod
    def from_dict(cls, filter_dict: Mapping[str, Any]) -> Self:
        """Return filters that compare for equality."""
        return cls(filters=[MetadataFilter(key=key, value=value) for key, value in filter_dict.items()])

    @classmethod
    def from_dicts(
        cls, filter_dicts: Sequence[Mapping[str, Any]], condition: FilterCondition | None = FilterCondition.AND
    ) -> Self:
        """Return filters of dicts with ``key``, ``value`` and ``operator``."""
        return cls(filters=[MetadataFilter(**one) for one in filter_dicts], condition=condition)

    def legacy_filters(self) -> list[MetadataFilter]:
        """Return the filters if all of them compare for equality.

        Raises:
            ValueError: They do not.
        """
        found = [one for one in self.filters if isinstance(one, MetadataFilter)]
        if len(found) != len(self.filters) or any(one.operator is not FilterOperator.EQ for one in found):
            raise ValueError("these filters do more than compare for equality")
        return found

    def keys(self) -> set[str]:
        """Return the keys of all filters."""
        return {key for one in self.filters for key in ([one.key] if isinstance(one, MetadataFilter) else one.keys())}

    def mask(self, column: Callable[[str], Sequence[Any]], size: int) -> list[bool]:
        """Tell for each node whether it meets the conditions.

        Args:
            column: Returns the values of a key for all nodes.
            size: The number of nodes.
        """
        masks = [
            list(map(one.matches, column(one.key))) if isinstance(one, MetadataFilter) else one.mask(column, size)
            for one in self.filters
        ]
        if not masks:
            return [True] * size
        if self.condition is FilterCondition.NOT:
            return [not any(values) for values in zip(*masks, strict=True)]
        join = any if self.condition is FilterCondition.OR else all
        return [join(values) for values in zip(*masks, strict=True)] if len(masks) > 1 else masks[0]


def checked_filters(filters: Any) -> MetadataFilters | None:
    """Return the filters of a search; raise TypeError if they are not ``MetadataFilters``."""
    if filters is None or isinstance(filters, MetadataFilters):
        return filters
    way = "MetadataFilters.from_dict(filters)" if isinstance(filters, Mapping) else "MetadataFilters(filters=[...])"
    raise TypeError(f"filters={filters!r} are not MetadataFilters: write {way}")


def checked_number(name: str, value: Any) -> int:
    """Return a number of results; raise TypeError or ValueError if it is not a whole number from 1."""
    if not isinstance(value, SupportsIndex):
        raise TypeError(f"{name}={value!r} is not a whole number: give 1 or more")
    if index(value) < 1:
        raise ValueError(f"{name}={value!r} finds nothing: give 1 or more")
    return index(value)
