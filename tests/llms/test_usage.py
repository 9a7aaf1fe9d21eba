"""Usage: how tokens and costs add up, what a price is, and who counts."""

import asyncio
import sys
from typing import Any

import pytest

from batonflow.llms import (
    ChatMessage,
    FallbackLLM,
    MissingDependencyError,
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
