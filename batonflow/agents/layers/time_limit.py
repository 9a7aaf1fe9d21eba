"""The time of budgets around something that is awaited."""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar, cast

from batonflow.agents.budget import Limits

__all__ = ["within_time"]

T = TypeVar("T")


async def within_time(running: Awaitable[T], limits: Limits | None) -> T:
    """Await ``running``, and give it up when the time of the budgets is over.

    Args:
        running: A coroutine or future.
        limits: The budgets that hold; None without budgets.

    Raises:
        BudgetExceededError: The time was over before the result.
    """
    if limits is None:
        return await running
    try:
        limits.check_time()
    except BaseException:
        if inspect.iscoroutine(running):
            running.close()
        elif isinstance(running, asyncio.Future):
            cast("asyncio.Future[Any]", running).cancel()
        raise
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)

    def set_clock() -> None:
        left = limits.seconds_left()
        if not limit.expired():
            limit.reschedule(None if left is None else loop.time() + left)

    try:
        async with limit:
            with limits.watched(set_clock):
                set_clock()
                return await running
    except TimeoutError:
        if limit.expired():
            raise limits.out_of_time() from None
        raise
