"""Usage: how tokens and costs add up, what a price is, and who counts."""

import asyncio
import sys
from typing import Any

import pytest

from batonflow.llms import (
    ChatMessage,
    FallbackLLM,
    LLMConfigurationError,
    MissingDependencyError,
    OpenAI,
    Price,
    RateLimitedLLM,
    ScriptedLLM,
    Usage,
    price,
    track_usage,
)
from batonflow.llms.usage import prices_available

ASK = [ChatMessage("one two three")]


class TestSums:
    def test_all_counts_add_up(self) -> None:
        one = Usage(input_tokens=5, output_tokens=4, cached_tokens=3, cache_write_tokens=2, reasoning_tokens=1)
        assert one + one == Usage(
            input_tokens=10, output_tokens=8, cached_tokens=6, cache_write_tokens=4, reasoning_tokens=2
        )
        assert one.total_tokens == 9

    @pytest.mark.parametrize(
        ("parts", "cost"),
        [
            ([], None),
            ([Usage(input_tokens=1, cost=0.5), Usage(input_tokens=1, cost=0.25)], 0.75),
            ([Usage(input_tokens=1, cost=0.5), Usage(input_tokens=1)], None),
            ([Usage(input_tokens=1), Usage(input_tokens=1, cost=0.5)], None),
            ([Usage(), Usage(input_tokens=1, cost=0.5)], 0.5),
            ([Usage(input_tokens=1, cost=0.0), Usage(input_tokens=1, cost=0.0)], 0.0),
        ],
        ids=["nothing", "all known", "one unknown", "the first unknown", "one without tokens", "free"],
    )
    def test_a_cost_is_known_when_that_of_every_part_is(self, parts: list[Usage], cost: float | None) -> None:
        assert sum(parts, Usage()).cost == cost


class TestPrices:
    def test_cached_input_costs_less_and_is_part_of_the_input(self) -> None:
        fresh = price(Usage(input_tokens=1_000_000), "claude-sonnet-5", "anthropic")
        cached = price(Usage(input_tokens=1_000_000, cached_tokens=900_000), "claude-sonnet-5", "anthropic")
        assert fresh is not None
        assert cached is not None
        assert 0 < cached < fresh / 2

    def test_output_costs_too(self) -> None:
        read, both = (price(Usage(input_tokens=10**6, output_tokens=out), "gpt-5.6", "openai") for out in (0, 10**6))
        assert read is not None
        assert both is not None
        assert both > read > 0

    def test_nobody_knows_the_price_of_a_model_nobody_knows(self) -> None:
        assert price(Usage(input_tokens=1), "no-such-model-at-all") is None
        assert price(Usage(input_tokens=1), "no-such-model-at-all", "openai") is None

    def test_without_the_extra_there_are_no_prices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "genai_prices", None)
        with pytest.raises(MissingDependencyError, match=r"pip install .*\[prices\]"):
            price(Usage(input_tokens=1), "gpt-5.6")

    def test_the_extra_is_installed_here(self) -> None:
        assert prices_available()


class TestTracking:
    async def test_answers_inside_the_block_are_counted_by_model(self) -> None:
        first, second = ScriptedLLM(["a b", "c"], model="first"), ScriptedLLM(["d"], model="second")
        with track_usage() as totals:
            await first.achat(ASK)
            await first.achat(ASK)
            await second.achat(ASK)
        await ScriptedLLM(["outside"]).achat(ASK)
        assert totals.requests == 3
        assert totals.usage == Usage(input_tokens=9, output_tokens=4)
        assert {name: one.output_tokens for name, one in totals.by_model.items()} == {"first": 3, "second": 1}

    async def test_blocks_lie_in_one_another_and_reach_into_tasks(self) -> None:
        llm = ScriptedLLM(["a"] * 5)
        with track_usage() as outer:
            await llm.achat(ASK)
            with track_usage() as inner:
                await asyncio.gather(*(llm.achat(ASK) for _ in range(3)))
            await llm.achat(ASK)
        assert (outer.requests, inner.requests) == (5, 3)

    async def test_what_runs_beside_the_block_is_not_counted(self) -> None:
        async def tracked(llm: Any) -> int:
            with track_usage() as totals:
                await llm.achat(ASK)
                await asyncio.sleep(0)
            return totals.requests

        assert await asyncio.gather(*(tracked(ScriptedLLM(["a"])) for _ in range(3))) == [1, 1, 1]

    def test_synchronous_calls_are_counted(self) -> None:
        with track_usage() as totals:
            ScriptedLLM(["a"]).complete("Say a.")
        assert totals.requests == 1

    async def test_an_answer_counts_once_however_many_models_stand_in_front(self) -> None:
        with track_usage() as totals:
            await FallbackLLM([FallbackLLM([ScriptedLLM(["a"])])]).achat(ASK)
        assert totals.requests == 1


class TestPriceOfAModel:
    def test_tokens_of_the_cache_have_prices_of_their_own(self) -> None:
        usage = Usage(input_tokens=1_000, cached_tokens=600, cache_write_tokens=100, output_tokens=50)
        assert Price(10, 100, cached=1, cache_write=12, per=1_000).of(usage) == pytest.approx(3 + 0.6 + 1.2 + 5)
        assert Price(10, 100, per=1_000).of(usage) == pytest.approx(10 + 5)

    @pytest.mark.parametrize("values", [{"input": -1}, {"output": float("nan")}, {"cached": float("inf")}, {"per": 0}])
    def test_a_price_is_a_finite_number_for_some_tokens(self, values: dict[str, Any]) -> None:
        name = next(iter(values))
        with pytest.raises(ValueError, match=rf"Price\.{name} is"):
            Price(**{"input": 1, "output": 1, **values})

    def test_a_function_of_the_usage_is_a_price(self) -> None:
        llm = ScriptedLLM(["one two"], price=lambda usage: usage.output_tokens * 0.5)
        usage = llm.chat(ASK).usage
        assert usage is not None
        assert usage.cost == 1.0

    def test_it_is_in_the_answer_of_a_model_behind_others(self) -> None:
        priced = ScriptedLLM(["one two"], price=Price(0, 1, per=1))
        with track_usage() as totals:
            RateLimitedLLM(FallbackLLM([priced])).chat(ASK)
        assert totals.usage.cost == 2

    def test_it_survives_a_dump_of_the_model_and_a_function_is_left_out(self) -> None:
        assert ScriptedLLM(price=Price(1, 2)).model_dump()["price"] == {
            "input": 1, "output": 2, "cached": None, "cache_write": None, "per": 1_000_000
        }  # fmt: skip
        assert "price" not in ScriptedLLM(price=lambda usage: 0.0).model_dump()

    @pytest.mark.parametrize(
        ("base_url", "known"),
        [
            (None, True),
            ("https://api.openai.com/v1", True),
            ("https://openai-proxy.example/v1", False),
            ("http://127.0.0.1:8000/openai", False),
        ],
    )
    def test_the_price_list_holds_at_the_address_of_a_vendor(self, base_url: str | None, known: bool) -> None:
        llm = OpenAI("gpt-4o", api_key="x", base_url=base_url)
        assert (llm.cost_of(Usage(input_tokens=1_000)) is not None) == known

    def test_a_price_of_its_own_comes_before_the_list(self) -> None:
        llm = OpenAI("gpt-4o", api_key="x", price=Price(1, 1, per=1))
        assert llm.cost_of(Usage(input_tokens=7)) == 7

    @pytest.mark.parametrize("dollars", [-1.0, float("nan"), float("inf"), "1"])
    def test_a_function_returns_dollars(self, dollars: Any) -> None:
        with pytest.raises(LLMConfigurationError, match=r"price of ScriptedLLM is a function .* it returned"):
            ScriptedLLM(["a"], price=lambda usage: dollars).chat(ASK)

    def test_the_price_of_a_fallback_replaces_those_of_its_members(self) -> None:
        llm = FallbackLLM([FallbackLLM([ScriptedLLM(["one two"], price=Price(0, 1, per=1))])], price=Price(0, 9, per=1))
        usage = llm.chat(ASK).usage
        assert usage is not None
        assert usage.cost == 18
