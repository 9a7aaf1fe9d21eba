"""Retry policies, composed and of one's own, as a type checker in strict mode sees them."""

from datetime import timedelta
from typing import assert_type

from batonflow.workflow_core import Workflow, step
from batonflow.workflow_core.events import StartEvent, StopEvent
from batonflow.workflow_core.retry_policy import (
    RetryPolicy,
    retry_all,
    retry_any,
    retry_if_exception,
    retry_if_exception_message,
    retry_if_exception_type,
    retry_policy,
    stop_after_attempt,
    stop_after_delay,
    stop_any,
    stop_never,
    wait_chain,
    wait_combine,
    wait_exponential,
    wait_fixed,
    wait_random,
)


class OnceMore:
    """The smallest policy: structural typing is enough."""

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        return 0.1 if attempts == 1 else None


def about_disks(error: BaseException) -> bool:
    return "disk" in str(error)


def odd(attempts: int, *, seed: int | None = None) -> float:
    return attempts % 2


plain: RetryPolicy = OnceMore()
composed = retry_policy(
    retry=(retry_if_exception_type((OSError, TimeoutError)) | retry_if_exception(about_disks))
    & retry_if_exception_message(match="full"),
    wait=wait_exponential(max=timedelta(seconds=10)) + wait_random(0, 0.5) + odd,
    stop=stop_after_attempt(5) | stop_after_delay(60),
)
assert_type(composed, RetryPolicy)
assert_type(composed.next(0.0, 1, OSError()), float | None)
assert_type(retry_if_exception_type() | about_disks, retry_any)
assert_type(retry_if_exception_type() & about_disks, retry_all)
assert_type(wait_fixed(1) + wait_fixed(2), wait_combine)
assert_type(stop_never() | stop_after_attempt(2), stop_any)


class Fetch(Workflow):
    @step(retry_policy=composed)
    async def fetch(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="fetched")


class FetchAgain(Workflow):
    @step(retry_policy=retry_policy(wait=wait_chain(wait_fixed(1), wait_fixed(5)), stop=stop_never()))
    async def fetch(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="fetched")


@step(workflow=FetchAgain, retry_policy=plain)
async def log(ev: StartEvent) -> None:
    print(ev)
