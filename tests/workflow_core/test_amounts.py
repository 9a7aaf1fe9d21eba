"""What says how long or how many."""

from fractions import Fraction
from typing import Any

import pytest

from batonflow.values.types import is_seconds, is_whole


@pytest.mark.parametrize("value", [0, 0.5, 3, float("inf"), Fraction(1, 2)])
def test_seconds_are_numbers_from_0_on(value: Any):
    assert is_seconds(value)


@pytest.mark.parametrize("value", [-0.1, float("nan"), True, "3", None])
def test_other_values_are_no_seconds(value: Any):
    assert not is_seconds(value)


def test_whole_numbers_have_a_least():
    assert is_whole(0)
    assert is_whole(1, least=1)
    assert not is_whole(0, least=1)
    assert not any(map(is_whole, (-1, 1.0, True, "3", None)))
