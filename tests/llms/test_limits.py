"""RateLimitedLLM: what waits, for how long, and in which order. The clock is a virtual one."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from batonflow.clock import current_source
from batonflow.llms import (
    LLM,
    ChatMessage,
    LLMConfigurationError,
    LLMMetadata,
    RateLimitedLLM,
    RateLimitError,
    RateLimits,
    ScriptedLLM,
    Usage,
)
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, TextDelta, estimated_tokens
from batonflow.testing import run_virtual

ASK = [ChatMessage("Hello?")]


class Slow(LLM):
    """Takes so many seconds and tokens, and remembers when it was asked what."""

    seconds: float = 0.0
    tokens: int = 10
    max_tokens: int | None = None
    asked: list[tuple[float, str]] = []
    running: int = 0
    most: int = 0

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="slow")

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        self.asked.append((round(current_source().monotonic(), 3), request.messages[-1].content or ""))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
            yield TextDelta(text="Yes.")
            yield Finish(usage=Usage(input_tokens=self.tokens))
        finally:
            self.running -= 1


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def run(self: Any) -> None:
        run_virtual(test(self))

    return run


async def ask(llm: LLM, *texts: str) -> None:
    await asyncio.gather(*(llm.achat([ChatMessage(text)]) for text in texts))


def moments(slow: Slow) -> list[float]:
    first = slow.asked[0][0]
    return [round(moment - first, 1) for moment, _ in slow.asked]


class TestLimits:
    @virtually
    async def test_requests_beyond_the_allowance_of_a_minute_come_as_it_refills(self) -> None:
        slow = Slow()
        await ask(RateLimitedLLM(slow, requests_per_minute=3), *"abcde")
        assert moments(slow) == [0, 0, 0, 20, 40]

    @virtually
    async def test_in_the_order_in_which_they_came(self) -> None:
        slow = Slow(seconds=1)
        await ask(RateLimitedLLM(slow, max_concurrency=1), *"abcdef")
        assert [text for _, text in slow.asked] == list("abcdef")

    @virtually
    async def test_no_more_at_a_time_than_allowed(self) -> None:
        slow = Slow(seconds=1)
        await ask(RateLimitedLLM(slow, max_concurrency=2), *"abcde")
        assert (slow.most, moments(slow)) == (2, [0, 0, 1, 1, 2])

    @virtually
    async def test_tokens_are_reserved_by_estimate_and_settled_by_usage(self) -> None:
        # Each reserves 600 and turns out to take 100: at the second request 500 of the 600 are back already.
        slow = Slow(tokens=100, max_tokens=599)
        llm = RateLimitedLLM(slow, tokens_per_minute=600)
        for text in "abc":
            await ask(llm, f"{text}   ")
        assert moments(slow) == [0, 10, 20]

    @virtually
    async def test_a_request_larger_than_the_allowance_goes_when_all_of_it_is_there(self) -> None:
        slow = Slow(tokens=1000, max_tokens=5000)
        llm = RateLimitedLLM(slow, tokens_per_minute=1000)
        await ask(llm, "a")
        await ask(llm, "b")
        assert moments(slow) == [0, 60]

    @virtually
    async def test_models_can_share_an_allowance(self) -> None:
        first, second = Slow(), Slow()
        limits = RateLimits(requests_per_minute=1)
        await asyncio.gather(
            ask(RateLimitedLLM(first, limits=limits), "a"), ask(RateLimitedLLM(second, limits=limits), "b")
        )
        assert second.asked[0][0] - first.asked[0][0] == pytest.approx(60, abs=0.01)

    @virtually
    async def test_those_in_line_heed_what_the_vendor_asked_of_another(self) -> None:
        class Busy(Slow):
            async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
                if not self.asked:
                    self.asked.append((round(current_source().monotonic(), 3), ""))
                    raise RateLimitError("slow down", retry_after=7)
                async for event in super()._stream(request):
                    yield event

        busy = Busy()
        llm = RateLimitedLLM(busy, max_concurrency=1)
        first, second = await asyncio.gather(llm.achat(ASK), llm.achat(ASK), return_exceptions=True)
        assert isinstance(first, RateLimitError)
        assert not isinstance(second, BaseException)
        assert moments(busy) == [0, 7]


class TestLeaving:
    @virtually
    async def test_who_gives_up_in_line_holds_nobody_up(self) -> None:
        slow = Slow(seconds=1)
        llm = RateLimitedLLM(slow, max_concurrency=1)
        tasks = [asyncio.create_task(llm.achat([ChatMessage(text)])) for text in "abc"]
        await asyncio.sleep(0.5)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert ([text for _, text in slow.asked], moments(slow)) == (["a", "c"], [0, 1])

    @pytest.mark.parametrize("turns", range(6))
    async def test_a_cancel_is_kept_in_the_turn_in_which_the_line_moves(self, turns: int) -> None:
        limits = RateLimits(requests_per_minute=1)
        await limits.acquire(0)
        waiting = asyncio.create_task(limits.acquire(0))
        await asyncio.sleep(0)
        limits.release(0, None)
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    @virtually
    async def test_who_stops_listening_makes_room(self) -> None:
        slow = Slow()
        llm = RateLimitedLLM(slow, max_concurrency=1)
        stream = await llm.astream_chat(ASK)
        await anext(stream)
        await stream.aclose()
        await asyncio.wait_for(llm.achat(ASK), timeout=30)

    @virtually
    async def test_a_failure_makes_room_too(self) -> None:
        llm = RateLimitedLLM(ScriptedLLM([ValueError("no"), "Yes."]), max_concurrency=1)
        with pytest.raises(ValueError, match="no"):
            await llm.achat(ASK)
        assert (await asyncio.wait_for(llm.achat(ASK), timeout=30)).message.content == "Yes."


def test_loops_in_several_threads_share_the_line() -> None:
    slow = Slow(seconds=0.01)
    llm = RateLimitedLLM(slow, max_concurrency=1)
    threads = [threading.Thread(target=asyncio.run, args=(ask(llm, *"ab"),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(slow.asked), slow.most) == (6, 1)


class TestMistakes:
    @pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute", "max_concurrency"])
    def test_a_limit_is_above_zero(self, limit: str) -> None:
        with pytest.raises(LLMConfigurationError, match=f"{limit} is 0"):
            RateLimitedLLM(Slow(), **{limit: 0})

    def test_own_limits_or_shared_ones(self) -> None:
        with pytest.raises(LLMConfigurationError, match="not both"):
            RateLimitedLLM(Slow(), requests_per_minute=1, limits=RateLimits(requests_per_minute=1))


def test_the_estimate_counts_four_characters_a_token_and_the_answer() -> None:
    request = ChatRequest(messages=[ChatMessage("x" * 400)])
    assert estimated_tokens(request) == 100 + 1024
    assert estimated_tokens(request, max_tokens=50) == 150
    assert estimated_tokens(request.model_copy(update={"options": {"max_tokens": 7}}), max_tokens=50) == 107
