"""Token usage and its cost."""

import math
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from batonflow.llms._vendor import load
from batonflow.llms.errors import LLMConfigurationError

__all__ = [
    "CostOf",
    "Price",
    "Priced",
    "Usage",
    "UsageTotals",
    "begin_counting",
    "counting_here",
    "end_counting",
    "price",
    "prices_available",
    "record_usage",
    "track_usage",
    "with_cost",
]

# The names of vendors in the price list, where they differ.
_PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "deepseek": "deepseek"}


class Usage(BaseModel):
    """The tokens of one or several requests, with the same meaning for all vendors.

    Args:
        input_tokens: All input tokens, including tokens read from and written to the cache.
        output_tokens: All output tokens, including thinking.
        cached_tokens: The input tokens read from the vendor's cache.
        cache_write_tokens: The input tokens written to the cache.
        reasoning_tokens: The output tokens of thinking.
        cost: US dollars by ``LLM.cost_of``; None when the price of the model is unknown.

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
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        # A sum with an unknown price is unknown; a part without tokens costs nothing.
        cost = None
        if self.cost is not None and other.cost is not None:
            cost = self.cost + other.cost
        elif self.cost is None and not self.total_tokens:
            cost = other.cost
        elif other.cost is None and not other.total_tokens:
            cost = self.cost
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=cost,
        )


@dataclass(frozen=True)
class Price:
    """The price of a model in US dollars.

    Args:
        input: Dollars for ``per`` input tokens.
        output: Dollars for ``per`` output tokens, thinking included.
        cached: Dollars for ``per`` input tokens read from the vendor's cache; as ``input`` when left out.
        cache_write: Dollars for ``per`` input tokens written to the cache; as ``input`` when left out.
        per: The number of tokens that the prices are for.

    Raises:
        ValueError: A price is negative or not finite, or ``per`` is not positive.

    Example:
        >>> llm = OpenAILike("qwen3", base_url=url, price=Price(0.40, 1.20, cached=0.10))
        >>> llm.cost_of(Usage(input_tokens=1_000_000))
        0.4
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    per: int = 1_000_000

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "cache_write"):
            dollars = getattr(self, name)
            if dollars is not None and not (math.isfinite(dollars) and dollars >= 0):
                raise ValueError(f"Price.{name} is {dollars}: give US dollars for {self.per} tokens, 0 or more")
        if self.per <= 0:
            raise ValueError(f"Price.per is {self.per}: give the number of tokens that the prices are for")

    def of(self, usage: Usage) -> float:
        """Return the cost of ``usage`` in US dollars."""
        cached = self.input if self.cached is None else self.cached
        cache_write = self.input if self.cache_write is None else self.cache_write
        fresh = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens)
        total = fresh * self.input + usage.output_tokens * self.output
        total += usage.cached_tokens * cached + usage.cache_write_tokens * cache_write
        return total / self.per


class Priced(BaseModel):
    """The part of a model that knows its price.

    Args:
        price: The price in US dollars: a :class:`Price`, or a function of the usage of one request.
    """

    price: Price | Callable[[Usage], float] | None = Field(
        default=None, repr=False, exclude_if=lambda price: not isinstance(price, Price)
    )

    def cost_of(self, usage: Usage) -> float | None:
        """Return the cost of a request in US dollars, None when the price is unknown.

        ``response.usage.cost``, budgets, spans and the page use this method.

        Args:
            usage: The tokens of one request. Prices may depend on its length, so pass single requests, not sums.

        Example:
            >>> ScriptedLLM(["Hello."], price=Price(2, 8)).cost_of(Usage(output_tokens=500_000))
            4.0
        """
        if self.price is None or isinstance(self.price, Price):
            return None if self.price is None else self.price.of(usage)
        dollars: Any = self.price(usage)
        if not isinstance(dollars, int | float | None) or (dollars is not None and not 0 <= dollars < math.inf):
            raise LLMConfigurationError(
                f"price of {type(self).__name__} is a function of the usage that returns US dollars, 0 or more, or "
                f"None; it returned {dollars!r}"
            )
        return dollars


@cache
def prices_available() -> bool:
    """Return whether the extra ``prices`` is installed."""
    return find_spec("genai_prices") is not None


def price(usage: Usage, model: str, vendor: str | None = None, *, base_url: str | None = None) -> float | None:
    """Return the cost of ``usage`` by the price list of the package ``genai-prices``.

    Args:
        usage: The tokens of one request. Prices may depend on its length, so pass single requests, not sums.
        model: The vendor's name of the model.
        vendor: ``"openai"``, ``"anthropic"``, ``"deepseek"``; others are looked up by the name of the model only.
        base_url: The address of the server, in place of ``vendor``. The list has prices for addresses of vendors only.

    Returns:
        US dollars, or None when the price is unknown.

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
    provider = {"provider_api_url": base_url} if base_url else {"provider_id": _PROVIDERS.get(vendor or "")}
    try:
        found = prices.calc_price(counted, model_ref=model, **provider)
    except LookupError:
        return None
    return float(found.total_price)


CostOf = Callable[[Usage], float | None]


def with_cost(usage: Usage, cost_of: CostOf | None) -> Usage:
    """Return ``usage`` with a cost; unchanged if it has one, or if the price is unknown."""
    cost = None if usage.cost is not None or cost_of is None else cost_of(usage)
    return usage if cost is None else usage.model_copy(update={"cost": cost})


_NOTHING = Usage()

# Synchronous calls run in the thread of the background loop.
_adding = threading.Lock()


class UsageTotals:
    """The usage of the requests made inside a :func:`track_usage` block.

    Attributes:
        usage: The sum.
        by_model: The sums by model.
        by_spender: The sums by the ``spender`` of the innermost block, None without one.
        requests: The number of responses.
    """

    __slots__ = ("by_model", "by_spender", "requests", "usage")

    def __init__(self) -> None:
        self.usage = _NOTHING
        self.by_model: dict[str, Usage] = {}
        self.by_spender: dict[str | None, Usage] = {}
        self.requests = 0

    def add(self, usage: Usage, model: str, spender: str | None = None) -> None:
        """Add the usage of a response."""
        with _adding:
            self.requests += 1
            self.usage = usage if self.requests == 1 else self.usage + usage
            self.by_model[model] = self.by_model[model] + usage if model in self.by_model else usage
            self.by_spender[spender] = self.by_spender[spender] + usage if spender in self.by_spender else usage


_Counting = tuple[tuple[UsageTotals, ...], str | None]

# The totals to add to, the outermost block first, and the spender.
_counting: ContextVar[_Counting] = ContextVar("batonflow_usage", default=((), None))


def counting_here() -> tuple[UsageTotals, ...]:
    """Return the totals that a response received here is added to, the outermost block first."""
    return _counting.get()[0]


def begin_counting(
    totals: UsageTotals, spender: str | None = None, instead_of: UsageTotals | None = None
) -> Token[_Counting]:
    """Add usage to ``totals`` too, until :func:`end_counting` receives the returned token.

    Args:
        totals: The totals.
        spender: The spender of the requests; None keeps the spender of the enclosing block.
        instead_of: Totals of an enclosing block that pause meanwhile.
    """
    around, earlier = _counting.get()
    if instead_of is not None:
        around = tuple(one for one in around if one is not instead_of)
    return _counting.set(((*around, totals), earlier if spender is None else spender))


def end_counting(token: Token[_Counting]) -> None:
    """Undo :func:`begin_counting`."""
    _counting.reset(token)


class track_usage:  # noqa: N801 - used like a function
    """Add up the usage inside the block, including tasks and runs started there. Blocks can be nested.

    Only whole responses of models with a ``_stream`` of their own count, which all models of this package have.

    Args:
        spender: The spender of the requests; None keeps the spender of the enclosing block.
        instead_of: Totals of an enclosing block that pause meanwhile.

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
    """Add the usage of a response to the totals of :func:`track_usage`."""
    counting, spender = _counting.get()
    for totals in counting:
        totals.add(usage, model, spender)
