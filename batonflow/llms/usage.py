"""Tokens, and what they cost."""

import threading
from contextvars import ContextVar, Token
from functools import cache
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict

from batonflow.llms._vendor import load

__all__ = [
    "Usage",
    "UsageTotals",
    "begin_counting",
    "counting_here",
    "end_counting",
    "price",
    "prices_available",
    "record_usage",
    "track_usage",
]

# How the price list calls the vendors that we call otherwise.
_PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "deepseek": "deepseek"}


class Usage(BaseModel):
    """Tokens that one request or several took, all vendors' counts brought to one meaning.

    Args:
        input_tokens: Everything the model read, what came from the cache and what was put there included.
        output_tokens: Everything it wrote, thoughts included.
        cached_tokens: The part of the input that came from the vendor's cache.
        cache_write_tokens: The part of the input that was put there.
        reasoning_tokens: The part of the output that was thought.
        cost: US dollars; None when unknown (the extra ``prices`` is not installed, or nobody knows the model's price).

    Example:
        >>> (Usage(input_tokens=10, output_tokens=5) + Usage(input_tokens=1)).total_tokens
        16
    """

    model_config = ConfigDict(frozen=True)

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        # A sum with a part whose price nobody knows has no known price; a part without tokens has nothing to pay for.
        priced = [one for one in (self, other) if one.total_tokens or one.cost is not None]
        costs = [one.cost for one in priced if one.cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=sum(costs) if costs and len(costs) == len(priced) else None,
        )


@cache
def prices_available() -> bool:
    """Whether the extra ``prices`` is installed."""
    return find_spec("genai_prices") is not None


def price(usage: Usage, model: str, vendor: str | None = None) -> float | None:
    """What ``usage`` costs by the price list that comes with the package ``genai-prices``.

    Args:
        usage: The tokens of one request; prices may depend on how long it was, so sums are not priced but added up.
        model: The model's name, as the vendor has it.
        vendor: ``"openai"``, ``"anthropic"``, ``"deepseek"``; others are looked up by the model's name alone.

    Returns:
        US dollars, or None when nobody knows.

    Raises:
        MissingDependencyError: The extra ``prices`` is not installed.

    Example:
        >>> price(Usage(input_tokens=1_000_000), "gpt-5.6", "openai")
    """
    prices: Any = load("genai_prices", "prices")
    counted = prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        found = prices.calc_price(counted, model_ref=model, provider_id=_PROVIDERS.get(vendor or ""))
    except LookupError:
        return None
    return float(found.total_price)


_NOTHING = Usage()

# Synchronous calls answer on the bridge's thread.
_adding = threading.Lock()


class UsageTotals:
    """What the models asked inside a :func:`track_usage` block have taken so far.

    Attributes:
        usage: All of it.
        by_model: The same by the model that answered.
        by_spender: The same by the ``spender`` of the innermost block; under None when there is none.
        requests: How many answers that is.
    """

    __slots__ = ("by_model", "by_spender", "requests", "usage")

    def __init__(self) -> None:
        self.usage = _NOTHING
        self.by_model: dict[str, Usage] = {}
        self.by_spender: dict[str | None, Usage] = {}
        self.requests = 0

    def add(self, usage: Usage, model: str, spender: str | None = None) -> None:
        """Count one answer."""
        with _adding:
            self.usage += usage
            self.by_model[model] = self.by_model.get(model, _NOTHING) + usage
            self.by_spender[spender] = self.by_spender.get(spender, _NOTHING) + usage
            self.requests += 1


_Counting = tuple[tuple[UsageTotals, ...], str | None]

# Where answers are counted, the outermost block first, and on whose behalf.
_counting: ContextVar[_Counting] = ContextVar("batonflow_usage", default=((), None))


def counting_here() -> tuple[UsageTotals, ...]:
    """Where an answer that comes here is counted: what :func:`track_usage` counts in, the outermost block first."""
    return _counting.get()[0]


def begin_counting(
    totals: UsageTotals, spender: str | None = None, instead_of: UsageTotals | None = None
) -> Token[_Counting]:
    """Count in ``totals`` too, until :func:`end_counting` is given what this returns.

    Args:
        totals: Where to count.
        spender: On whose behalf models are asked; None leaves that to who counts around.
        instead_of: What somebody around counts in, and does not meanwhile.
    """
    around, earlier = _counting.get()
    if instead_of is not None:
        around = tuple(one for one in around if one is not instead_of)
    return _counting.set(((*around, totals), earlier if spender is None else spender))


def end_counting(token: Token[_Counting]) -> None:
    """Count as before :func:`begin_counting`."""
    _counting.reset(token)


class track_usage:  # noqa: N801 - used like a function
    """Add up what models take inside the block, in tasks and runs started there too. Blocks may lie in one another.

    Counted are whole answers of every model whose adapter is written with ``_stream``, as all of ours are.

    Args:
        spender: On whose behalf models are asked inside the block; None leaves that to the block around.
        instead_of: What a block around counts in, and does not while this one does.

    Example:
        >>> with track_usage() as totals:
        ...     print(agent.run_sync("What is 2 + 40?"))
        >>> print(totals.usage.total_tokens, totals.usage.cost)
    """

    __slots__ = ("_instead_of", "_token", "spender")

    _token: Token[_Counting]

    def __init__(self, spender: str | None = None, *, instead_of: UsageTotals | None = None) -> None:
        self.spender = spender
        self._instead_of = instead_of

    def __enter__(self) -> UsageTotals:
        totals = UsageTotals()
        self._token = begin_counting(totals, self.spender, self._instead_of)
        return totals

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end_counting(self._token)


def record_usage(usage: Usage, model: str) -> None:
    """Count an answer where :func:`track_usage` is at work."""
    counting, spender = _counting.get()
    for totals in counting:
        totals.add(usage, model, spender)
