"""Conditions on the metadata of nodes."""

from typing import Any

import pytest

from batonflow.retrieval.filters import FilterCondition, MetadataFilter, MetadataFilters

ROWS: list[dict[str, Any]] = [
    {"year": 2020, "author": "Ann", "tags": ["sea", "moon"]},
    {"year": 2024, "author": "Bob", "tags": []},
    {"author": None},
]


def matching(filters: MetadataFilters) -> list[int]:
    mask = filters.mask(lambda key: [row.get(key) for row in ROWS], len(ROWS))
    return [at for at, one in enumerate(mask) if one]


@pytest.mark.parametrize(
    ("operator", "key", "value", "found"),
    [
        ("==", "year", 2020, [0]),
        ("!=", "year", 2020, [1, 2]),
        (">", "year", 2020, [1]),
        ("<", "year", 2024, [0]),
        (">=", "year", 2020, [0, 1]),
        ("<=", "year", 2020, [0]),
        ("in", "author", ["Ann", "Cyd"], [0]),
        ("nin", "author", ["Ann"], [1, 2]),
        ("any", "tags", ["moon", "sun"], [0]),
        ("all", "tags", ["moon", "sea"], [0]),
        ("contains", "tags", "sea", [0]),
        ("text_match", "author", "An", [0]),
        ("text_match", "author", "an", []),
        ("text_match_insensitive", "author", "an", [0]),
        ("is_empty", "tags", None, [1, 2]),
    ],
)
def test_each_operator_compares_and_a_missing_value_meets_three(
    operator: Any, key: str, value: Any, found: list[int]
) -> None:
    assert matching(MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])) == found


def test_filters_are_joined_and_nested() -> None:
    ann, late = MetadataFilter(key="author", value="Ann"), MetadataFilter(key="year", value=2022, operator=">")  # type: ignore[arg-type]
    both = [ann, late]
    assert matching(MetadataFilters(filters=both)) == []
    assert matching(MetadataFilters(filters=both, condition=FilterCondition.OR)) == [0, 1]
    assert matching(MetadataFilters(filters=both, condition=FilterCondition.NOT)) == [2]
    inner = MetadataFilters(filters=both, condition=FilterCondition.OR)
    assert matching(MetadataFilters(filters=[inner, late])) == [1]
    assert matching(MetadataFilters(filters=[])) == [0, 1, 2]


def test_filters_are_made_of_data() -> None:
    assert matching(MetadataFilters.from_dict({"author": "Ann", "year": 2020})) == [0]
    assert matching(MetadataFilters.from_dicts([{"key": "year", "value": 2022, "operator": ">"}])) == [1]
    assert MetadataFilters.from_dict({"a": 1}).legacy_filters()[0].key == "a"
    with pytest.raises(ValueError, match="more than compare for equality"):
        MetadataFilters.from_dicts([{"key": "a", "value": 1, "operator": ">"}]).legacy_filters()


def test_values_that_cannot_be_compared_are_named() -> None:
    with pytest.raises(TypeError, match="the filter author > 3 does not fit the value 'Ann'"):
        matching(MetadataFilters.from_dicts([{"key": "author", "value": 3, "operator": ">"}]))
    with pytest.raises(TypeError, match="the filter author in needs a list, not 'Ann'"):
        matching(MetadataFilters.from_dicts([{"key": "author", "value": "Ann", "operator": "in"}]))
    with pytest.raises(ValueError, match="operator"):
        MetadataFilter(key="a", value=1, operator="~")  # type: ignore[arg-type]
