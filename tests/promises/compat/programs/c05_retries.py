import asyncio
import time
from datetime import timedelta
from workflows import Context, Workflow, catch_error, step
from workflows.events import Event, StartEvent, StepFailedEvent, StopEvent
from workflows.retry_policy import (
    ConstantDelayRetryPolicy, ExponentialBackoffRetryPolicy, RetryPolicy, retry_all, retry_always, retry_any,
    retry_if_exception, retry_if_exception_cause_type, retry_if_exception_message, retry_if_exception_type,
    retry_if_not_exception_message, retry_if_not_exception_type, retry_never, retry_policy, retry_unless_exception_type,
    stop_after_attempt, stop_after_delay, stop_all, stop_any, stop_before_delay, stop_never, wait_chain, wait_combine,
    wait_exponential, wait_exponential_jitter, wait_fixed, wait_full_jitter, wait_incrementing, wait_none, wait_random,
    wait_random_exponential,
)
from show import errors, fails, title, warned


def delays(policy, error=None, count=6, elapsed=0.0, seed=None):
    """What the policy says for the 1st to the count-th failure."""
    out = []
    for attempts in range(1, count + 1):
        delay = policy.next(elapsed, attempts, error or ValueError("x"), seed=seed)
        out.append(None if delay is None else round(delay, 6))
    return out

def retries(predicate, *raised):
    policy = retry_policy(retry=predicate, wait=wait_none(), stop=stop_never())
    return [policy.next(0.0, 1, error) is not None for error in raised]

title("defaults")
print(delays(retry_policy()))
print(isinstance(retry_policy(), RetryPolicy))

title("waits")
never = stop_never()
for wait in (
    wait_fixed(1.5), wait_fixed(timedelta(seconds=2)), wait_none(), wait_exponential(), wait_exponential(multiplier=0.5, exp_base=3, max=10, min=1),
    wait_incrementing(), wait_incrementing(start=1, increment=2, max=6), wait_chain(wait_fixed(1), wait_fixed(2), wait_fixed(5)),
    wait_fixed(1) + wait_incrementing(start=0, increment=1), wait_combine(wait_fixed(1), wait_fixed(2), wait_none()),
    sum([wait_fixed(1), wait_fixed(2)]),
):
    print(delays(retry_policy(wait=wait, stop=never)))
errors(lambda: wait_chain(), "at least one")

title("jitter stays in its bounds and repeats with its seed")
for wait, low, high in (
    (wait_random(min=1, max=2), 1, 2), (wait_exponential_jitter(initial=1, max=8, jitter=1), 1, 9),
    (wait_random_exponential(multiplier=1, max=8), 0, 8), (wait_full_jitter(multiplier=1, max=8), 0, 8),
):
    policy = retry_policy(wait=wait, stop=never)
    one, two, other = (delays(policy, count=8, seed=seed) for seed in (1, 1, 2))
    print(all(low <= d <= high for d in one), one == two, one != other)

title("stops")
print(delays(retry_policy(wait=wait_fixed(1), stop=stop_after_attempt(3))))
policy = retry_policy(wait=wait_fixed(1), stop=stop_after_delay(5))
print([policy.next(e, 1, ValueError()) for e in (0.0, 4.9, 5.0, 6.0)])
policy = retry_policy(wait=wait_fixed(1), stop=stop_before_delay(5))
print([policy.next(e, 1, ValueError()) for e in (0.0, 3.9, 4.0, 4.5)])
print(delays(retry_policy(wait=wait_none(), stop=stop_after_attempt(2) | stop_after_delay(10))))
print(delays(retry_policy(wait=wait_none(), stop=stop_after_attempt(2) & stop_after_delay(10)), elapsed=11.0))
print(delays(retry_policy(wait=wait_none(), stop=stop_any(stop_after_attempt(4), stop_after_attempt(2)))))
print(delays(retry_policy(wait=wait_none(), stop=stop_all(stop_after_attempt(4), stop_after_attempt(2)))))

title("predicates")
caused = RuntimeError("outer")
caused.__cause__ = KeyError("inner")
raised = (ValueError("bad 42"), KeyError("k"), OSError("connection reset"), caused)
for predicate in (
    retry_if_exception(lambda error: "4" in str(error)), retry_if_exception_type(), retry_if_exception_type(ValueError),
    retry_if_exception_type((ValueError, OSError)), retry_if_not_exception_type(ValueError), retry_unless_exception_type(ValueError),
    retry_if_exception_message(message="bad 42"), retry_if_exception_message(match=r"\d+$"), retry_if_exception_message(match="reset"),
    retry_if_not_exception_message(message="bad 42"), retry_if_not_exception_message(match="^bad"),
    retry_if_exception_cause_type(KeyError), retry_if_exception_cause_type((OSError, ValueError)),
    retry_any(retry_if_exception_type(KeyError), retry_if_exception_type(OSError)),
    retry_all(retry_if_exception_type(Exception), retry_if_not_exception_type(KeyError)),
    retry_if_exception_type(ValueError) | retry_if_exception_type(KeyError),
    retry_if_exception_type(Exception) & retry_if_exception_message(match="bad"), retry_always(), retry_never(),
):
    print(retries(predicate, *raised))
errors(lambda: retry_if_exception_message())
errors(lambda: retry_if_exception_message(message="a", match="b"))

title("old factories")
old = warned(lambda: ConstantDelayRetryPolicy(maximum_attempts=3, delay=2), DeprecationWarning)
print(delays(old))
old = warned(lambda: ExponentialBackoffRetryPolicy(maximum_attempts=5, initial_delay=1, multiplier=2, max_delay=3, jitter=False), DeprecationWarning)
print(delays(old))

title("in a run")
class Flaky(Workflow):
    def __init__(self, policy, failures, error=ValueError):
        super().__init__(timeout=5)
        self.failures, self.error = failures, error
        Flaky.policy = policy
        self.infos = []
    @step(retry_policy=retry_policy(retry=retry_if_exception_type(ValueError), wait=wait_fixed(0.02), stop=stop_after_attempt(4)))
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        info = ctx.retry_info()
        self.infos.append((info.retry_number, repr(info.last_exception), info.last_failed_at is not None, info.elapsed_seconds > 0.015))
        if len(self.infos) <= self.failures:
            raise self.error(f"failure {len(self.infos)}")
        return StopEvent(result=len(self.infos))
async def flaky():
    for failures, error in ((0, ValueError), (2, ValueError), (9, ValueError), (9, KeyError)):
        workflow = Flaky(None, failures, error)
        await fails(workflow.run())
        print(workflow.infos)
    started = time.monotonic()
    await Flaky(None, 3).run()
    print(time.monotonic() - started >= 0.06)
asyncio.run(flaky())

title("a policy of one's own, without a seed; a retry frees the worker; sends are not taken back")
class Mine:
    def next(self, elapsed_time, attempts, error):
        return 0.05 if attempts < 3 else None
class Item(Event):
    n: int
class Own(Workflow):
    order: list = []
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Item | None:
        for n in (1, 2, 3):
            ctx.send_event(Item(n=n))
    @step(retry_policy=Mine(), num_workers=1)
    async def work(self, ctx: Context, ev: Item) -> StopEvent | None:
        retry = ctx.retry_info().retry_number
        self.order.append((ev.n, retry))
        ctx.write_event_to_stream(Item(n=100 * retry + ev.n))
        if ev.n == 1 and retry < 2:
            raise ValueError("again")
        if len(self.order) == 5:
            return StopEvent(result=self.order)
async def own():
    handler = Own(timeout=5).run()
    numbers = [e.n async for e in handler.stream_events() if isinstance(e, Item)]
    print(await handler, numbers)
asyncio.run(own())

title("after the last retry the handler is asked")
class Handled(Workflow):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def start(self, ev: StartEvent) -> StopEvent:
        raise ValueError("x")
    @catch_error
    async def handler(self, ctx: Context, ev: StepFailedEvent) -> StopEvent:
        return StopEvent(result=(ev.attempts, ctx.retry_info().retry_number))
async def handled():
    print(await Handled().run())
asyncio.run(handled())
