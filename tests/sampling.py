"""Tests that try some of their cases, and in ``make soak`` all of them."""

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["sampled"]


def sampled(cases: Iterable[Any], every: int, *, begin: int = 0) -> list[Any]:
    """Return the cases of a test; ``make test`` tries every n-th, from number ``begin`` on."""
    soak = pytest.mark.soak(only=True)
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if number % every == begin else soak)
        for number, case in enumerate(cases)
    ]
