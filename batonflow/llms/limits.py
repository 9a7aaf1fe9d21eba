"""RateLimitedLLM: a limit on requests, tokens and concurrency."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pydantic import Field

from batonflow.clock import current_source
from batonflow.llms.base import LLM
from batonflow.llms.errors import LLMConfigurationError, RateLimitError
from batonflow.llms.function_calling import WrappedLLM
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, estimated_tokens

__all__ = ["RateLimitedLLM", "RateLimits"]

_MINUTE = 60.0


class _Bucket:
    """An allowance that refills at a steady rate."""

    def __init__(self, per_minute: float, now: float) -> None:
        self.size = per_minute
        self._rate = per_minute / _MINUTE
        self._level = per_minute
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until ``amount`` is available."""
        self._level = min(self.size, self._level + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (min(amount, self.size) - self._level) / self._rate)

    def take(self, amount: float) -> None:
        """Take ``amount``; a negative amount puts it back. A level below zero delays later requests."""
        self._level -= amount


class _Waiter:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._loop.call_soon_threadsafe(self._woken.set)

    async def woken(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()


class RateLimits:
    """Limits that one or several models share, first come, first served; they work across event loops.

    Args:
        requests_per_minute: None for no limit.
        tokens_per_minute: Input and output; an estimate is reserved before a request, and corrected by its usage.
        max_concurrency: Requests at the same time.

    Raises:
        LLMConfigurationError: A limit is not above zero.

    Example:
        >>> limits = RateLimits(requests_per_minute=500, tokens_per_minute=200_000)
        >>> fast, smart = RateLimitedLLM(a, limits=limits), RateLimitedLLM(b, limits=limits)
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        max_concurrency: int | None = None,
    ) -> None:
        given = {
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
            "max_concurrency": max_concurrency,
        }
        for name, value in given.items():
            if value is not None and value <= 0:
                raise LLMConfigurationError(f"{name} is {value}; expected a number above zero, or None for no limit")
        now = current_source().monotonic()
        self._requests = None if requests_per_minute is None else _Bucket(requests_per_minute, now)
        self._tokens = None if tokens_per_minute is None else _Bucket(tokens_per_minute, now)
        self._max_concurrency = max_concurrency
        self._running = 0
        self._paused_until = now
        self._lock = threading.Lock()
        self._queue: deque[_Waiter] = deque()

    async def acquire(self, tokens: int) -> None:
        """Wait until a request of about ``tokens`` tokens is allowed."""
        me = _Waiter(asyncio.get_running_loop())
        with self._lock:
            self._queue.append(me)
        try:
            while (seconds := self._seconds(me, tokens)) != 0:
                await me.woken(seconds)
        finally:
            with self._lock:
                self._queue.remove(me)
                self._wake()

    def _seconds(self, me: _Waiter, tokens: int) -> float | None:
        """Return the seconds to wait, None to wait for a wake-up; 0 takes the allowance."""
        now = current_source().monotonic()
        with self._lock:
            if self._queue[0] is not me or (
                self._max_concurrency is not None and self._running >= self._max_concurrency
            ):
                return None
            seconds = max(
                self._paused_until - now,
                self._requests.wait(1, now) if self._requests is not None else 0.0,
                self._tokens.wait(tokens, now) if self._tokens is not None else 0.0,
            )
            if seconds > 0:
                return seconds
            if self._requests is not None:
                self._requests.take(1)
            if self._tokens is not None:
                self._tokens.take(tokens)
            self._running += 1
            return 0

    def release(self, reserved: int, used: int | None) -> None:
        """End a request.

        Args:
            reserved: The tokens that were reserved.
            used: The tokens that were used; None keeps the reservation.
        """
        with self._lock:
            self._running -= 1
            if self._tokens is not None and used is not None:
                self._tokens.take(used - reserved)
            self._wake()

    def pause(self, seconds: float) -> None:
        """Start no request for ``seconds``, as the vendor asks."""
        with self._lock:
            self._paused_until = max(self._paused_until, current_source().monotonic() + seconds)

    def _wake(self) -> None:
        if self._queue:
            self._queue[0].wake()


class RateLimitedLLM(WrappedLLM):
    """Limit the requests to a model; further requests wait in line.

    A ``RateLimitError`` with ``retry_after`` also delays the waiting requests. The request that received it fails after
    the SDK's own retries.

    Args:
        llm: The model.
        requests_per_minute: None for no limit.
        tokens_per_minute: Input and output together; None for no limit.
        max_concurrency: Requests at the same time; None for no limit.
        limits: Limits shared with other models, in place of the three above.

    Raises:
        LLMConfigurationError: Both ``limits`` and a single limit, or a limit that is not above zero.

    Example:
        >>> llm = RateLimitedLLM(OpenAI("gpt-5.6"), requests_per_minute=60, max_concurrency=4)
        >>> print(llm.complete("Say hello."))
    """

    limits: Any = Field(default=None, exclude=True, repr=False)

    def __init__(
        self,
        llm: LLM,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        max_concurrency: int | None = None,
        limits: RateLimits | None = None,
        **data: Any,
    ) -> None:
        own_limits = (requests_per_minute, tokens_per_minute, max_concurrency)
        if limits is not None and any(value is not None for value in own_limits):
            raise LLMConfigurationError("pass either limits=... or single limits to RateLimitedLLM, not both")
        data["limits"] = RateLimits(*own_limits) if limits is None else limits
        super().__init__(llm, **data)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        limits: RateLimits = self.limits
        reserved, used = estimated_tokens(request, getattr(self.llm, "max_tokens", None)), None
        await limits.acquire(reserved)
        try:
            async with aclosing(self.llm._stream(request)) as events:
                async for event in events:
                    if isinstance(event, Finish) and event.usage is not None:
                        used = event.usage.total_tokens
                    yield event
        except RateLimitError as err:
            if err.retry_after:
                limits.pause(err.retry_after)
            raise
        finally:
            limits.release(reserved, used)
