"""Tokens and costs of the calls of models, as the records of runs have them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Spending", "spending_of"]


@dataclass(frozen=True, slots=True)
class Spending:
    """The sums of some calls.

    Attributes:
        calls: The number of calls with a usage.
        input_tokens: The tokens that the models read.
        output_tokens: The tokens that they wrote.
        cost: US dollars; None if no price is known.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: "Spending") -> "Spending":
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Spending(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            sum(costs) if costs else None,
        )


def spending_of(calls: Iterable[Mapping[str, Any]]) -> Spending:
    """Return the sums of calls.

    Args:
        calls: The data of calls, see ``ModelCall.as_data``.
    """
    found = Spending()
    for call in calls:
        usage: Mapping[str, Any] = call.get("usage") or {}
        if usage:
            cost = usage.get("cost")
            known = isinstance(cost, int | float) and math.isfinite(cost)
            read, written = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
            found += Spending(1, read, written, cost if known else None)
    return found
