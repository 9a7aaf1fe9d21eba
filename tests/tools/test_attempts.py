"""Time limits, retries and idempotency keys: how many attempts a call takes, and what each of them is given."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from pydantic import Field

from batonflow.clock import current_source
from batonflow.testing import run_virtual
from batonflow.tools import (
    FunctionTool,
    ToolArgumentsError,
    ToolError,
    ToolOutput,
    ToolTimeoutError,
    create_schema_from_function,
    run_tool,
    tool,
)
from batonflow.workflow_core.context import Context
from batonflow.workflow_core.errors import BatonflowError
from batonflow.workflow_core.retry_policy import (
    retry_if_exception_type,
    retry_policy,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential,
    wait_fixed,
    wait_none,
    wait_random,
)

THREE = retry_policy(wait=wait_none(), stop=stop_after_attempt(3))


class Flaky:
    """Fails so many times, then works; keeps the virtual second of every attempt."""

    def __init__(self, failures: int, error: type[Exception] = ConnectionError) -> None:
        self.failures = failures
        self.error = error
        self.times: list[float] = []

    async def fetch(self, page: str) -> str:
        """Fetch a page."""
        self.times.append(current_source().monotonic())
        if len(self.times) <= self.failures:
            raise self.error(f"failure {len(self.times)}")
        return f"the text of {page}"


def virtually(call: Coroutine[Any, Any, Any], seed: int = 0) -> Any:
    """The outcome under a clock that jumps to the next timer."""
    return run_virtual(call, seed=seed)


class TestTimeout:
    def test_the_model_is_told_in_words(self) -> None:
        @tool(timeout=30)
        async def ponder(question: str) -> str:
            await asyncio.sleep(3600)
            return "42"

        output = virtually(run_tool(ponder, {"question": "why?"}))
        assert output.is_error
        assert output.content == (
            "Tool 'ponder' gave no result within 30 seconds and was given up. Its effects are unknown."
        )
        assert isinstance(output.exception, ToolTimeoutError)
        assert isinstance(output.exception, BatonflowError)
        assert isinstance(output.exception, TimeoutError)
        assert isinstance(output.exception, ToolError)

    def test_what_is_in_time_is_left_alone(self) -> None:
        @tool(timeout=30)
        async def ponder() -> str:
            await asyncio.sleep(29)
            return "42"

        assert virtually(run_tool(ponder, {})).content == "42"

    def test_a_timeout_of_the_body_s_own_keeps_its_words(self) -> None:
        @tool(timeout=30)
        async def ask() -> None:
            raise TimeoutError("the server did not answer")

        output = virtually(run_tool(ask, {}))
        assert output.content == "the server did not answer"
        assert not isinstance(output.exception, ToolTimeoutError)

    def test_an_asynchronous_body_is_cancelled_and_may_clean_up(self) -> None:
        left: list[str] = []

        @tool(timeout=1)
        async def hold() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                left.append("closed")

        assert virtually(run_tool(hold, {})).is_error
        assert left == ["closed"]

    @pytest.mark.parametrize("stubborn", ["returns", "raises"])
    def test_what_a_cancelled_body_still_says_is_discarded(self, stubborn: str) -> None:
        @tool(timeout=1)
        async def hold() -> str:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if stubborn == "raises":
                    raise ValueError("interrupted") from None
            return "late"

        assert isinstance(virtually(run_tool(hold, {})).exception, ToolTimeoutError)

    async def test_a_synchronous_body_goes_on_and_its_late_result_is_discarded(self) -> None:
        gate, ended = threading.Event(), threading.Event()

        @tool(timeout=0.3)  # the thread has begun by then, on a busy machine too
        def block() -> str:
            gate.wait(30)
            ended.set()
            return "late"

        output = await run_tool(block, {})
        assert isinstance(output.exception, ToolTimeoutError)
        assert not ended.is_set()
        gate.set()
        assert await asyncio.to_thread(ended.wait, 30)

    def test_each_attempt_has_the_whole_time(self) -> None:
        attempts: list[int] = []

        @tool(timeout=10, retry=THREE)
        async def slow_at_first() -> str:
            attempts.append(1)
            await asyncio.sleep(15 if len(attempts) < 3 else 9)
            return f"attempt {len(attempts)}"

        assert virtually(run_tool(slow_at_first, {})).content == "attempt 3"

    async def test_a_cancellation_from_outside_stays_one(self) -> None:
        started = asyncio.Event()

        @tool(timeout=60, retry=THREE)
        async def forever() -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(run_tool(forever, {}))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def test_it_is_no_business_of_calls_by_hand(self) -> None:
        @tool(timeout=1)
        async def nap() -> str:
            await asyncio.sleep(60)
            return "rested"

        assert virtually(nap.acall()).content == "rested"


class TestRetry:
    def made(self, flaky: Flaky, **policy: Any) -> FunctionTool:
        return tool(**policy)(flaky.fetch)

    def test_a_failure_is_followed_by_the_waits_of_the_policy(self) -> None:
        flaky = Flaky(failures=3)
        fetch = self.made(flaky, retry=retry_policy(wait=wait_exponential(), stop=stop_after_attempt(5)))
        output = virtually(run_tool(fetch, {"page": "tides"}))
        assert (output.content, output.is_error) == ("the text of tides", False)
        assert flaky.times == [0, 1, 3, 7]

    def test_the_model_reads_the_last_failure(self) -> None:
        flaky = Flaky(failures=9)
        output = virtually(run_tool(self.made(flaky, retry=THREE), {"page": "tides"}))
        assert (output.content, output.is_error, len(flaky.times)) == ("failure 3", True, 3)
        assert isinstance(output.exception, ConnectionError)

    def test_the_policy_chooses_the_errors(self) -> None:
        only_lost = retry_policy(retry=retry_if_exception_type(ConnectionError), wait=wait_none())
        flaky = Flaky(failures=9, error=KeyError)
        assert virtually(run_tool(self.made(flaky, retry=only_lost), {"page": "tides"})).is_error
        assert len(flaky.times) == 1

    def test_the_policy_knows_how_long_it_has_taken(self) -> None:
        flaky = Flaky(failures=99)
        patient = retry_policy(wait=wait_fixed(10), stop=stop_before_delay(35))
        assert virtually(run_tool(self.made(flaky, retry=patient), {"page": "tides"})).is_error
        assert flaky.times == [0, 10, 20, 30]

    def test_a_policy_without_seed_is_asked_without(self) -> None:
        class Twice:
            def next(self, elapsed_time: float, attempts: int, error: Exception) -> float | None:
                return 0 if attempts < 2 else None

        flaky = Flaky(failures=1)
        assert not virtually(run_tool(self.made(flaky, retry=Twice()), {"page": "tides"})).is_error

    def test_a_policy_that_fails_is_an_error_output(self) -> None:
        class Broken:
            def next(self, elapsed_time: float, attempts: int, error: Exception) -> float | None:
                raise LookupError("no such setting")

        output = virtually(run_tool(self.made(Flaky(failures=1), retry=Broken()), {"page": "tides"}))
        assert (output.content, output.is_error) == ("no such setting", True)

    def test_jitter_is_the_same_for_the_same_key_and_differs_between_calls(self) -> None:
        jittered = retry_policy(wait=wait_random(0, 100), stop=stop_after_attempt(2))

        def waited(key: str | None, seed: int) -> float:
            flaky = Flaky(failures=1)
            virtually(run_tool(self.made(flaky, retry=jittered), {"page": "tides"}, idempotency_key=key), seed)
            return flaky.times[1]

        assert waited("run/1/0", seed=1) == waited("run/1/0", seed=2)
        assert waited("run/1/0", seed=1) != waited("run/1/1", seed=1)
        assert waited(None, seed=1) != waited(None, seed=2)

    def test_arguments_that_do_not_fit_are_final(self) -> None:
        flaky = Flaky(failures=0)
        output = virtually(run_tool(self.made(flaky, retry=THREE), {"pages": "tides"}))
        assert isinstance(output.exception, ToolArgumentsError)
        assert flaky.times == []

    def test_arguments_that_the_body_refuses_are_final(self) -> None:
        flaky = Flaky(failures=9, error=ToolArgumentsError)
        assert virtually(run_tool(self.made(flaky, retry=THREE), {"page": "tides"})).content == "failure 1"
        assert len(flaky.times) == 1

    def test_a_missing_approval_is_final(self) -> None:
        asked: list[Any] = []
        flaky = Flaky(failures=0)
        fetch = self.made(flaky, retry=THREE, requires_approval=lambda arguments: asked.append(arguments) or True)
        assert virtually(run_tool(fetch, {"page": "tides"})).is_error
        assert (len(asked), flaky.times) == (1, [])

    def test_a_missing_context_is_final(self) -> None:
        @tool(retry=retry_policy(wait=wait_fixed(60)))
        async def note(ctx: Context, text: str) -> str:
            return text

        async def taken() -> tuple[str, float]:
            output = await run_tool(note, {"text": "x"})
            return output.content, current_source().monotonic()

        assert virtually(taken()) == ("Context is required for this tool", 0)

    async def test_control_flow_is_no_failure(self) -> None:
        class Suspend(BaseException):
            pass

        entered: list[int] = []

        @tool(retry=THREE)
        async def suspend() -> None:
            entered.append(1)
            raise Suspend

        with pytest.raises(Suspend):
            await run_tool(suspend, {})
        assert entered == [1]

    def test_every_attempt_gets_what_the_model_sent(self) -> None:
        seen: list[Any] = []

        @tool(retry=THREE)
        async def sort(names: list[str], rest: Any) -> str:
            seen.append((list(names), dict(rest)))
            names.clear()
            rest.clear()
            raise OSError("no disk")

        output = virtually(run_tool(sort, {"names": ["b", "a"], "rest": {"deep": 1}}))
        assert output.content == "no disk"
        assert seen == [(["b", "a"], {"deep": 1})] * 3

    def test_an_output_that_says_error_is_the_tool_s_last_word(self) -> None:
        calls: list[int] = []

        @tool(retry=THREE)
        async def shut() -> ToolOutput:
            calls.append(1)
            return ToolOutput(tool_name="shut", content="closed on Sundays", is_error=True)

        assert virtually(run_tool(shut, {})).content == "closed on Sundays"
        assert calls == [1]


class TestIdempotencyKey:
    def test_the_model_does_not_see_it(self) -> None:
        def pay(amount: int, idempotency_key: str) -> str:
            """Pay."""
            return f"{amount} {idempotency_key}"

        made = FunctionTool.from_defaults(pay)
        assert made.takes_idempotency_key
        assert list(made.metadata.get_parameters_dict()["properties"]) == ["amount"]
        assert made.metadata.description == "pay(amount: int) -> str\nPay."
        assert list(create_schema_from_function("pay", pay).model_fields) == ["amount"]

    async def test_the_caller_gives_it_and_it_is_no_argument(self) -> None:
        @tool
        def pay(amount: int, idempotency_key: str) -> str:
            return f"{amount} {idempotency_key}"

        output = await run_tool(pay, {"amount": "5"}, idempotency_key="run-1/2/0")
        assert output.content == "5 run-1/2/0"
        assert output.raw_input["kwargs"] == {"amount": 5}

    def test_it_is_the_same_for_every_attempt(self) -> None:
        keys: list[str] = []

        @tool(retry=THREE)
        async def pay(idempotency_key: str) -> None:
            keys.append(idempotency_key)
            raise ConnectionError

        virtually(run_tool(pay, {}, idempotency_key="run-1/2/0"))
        assert keys == ["run-1/2/0"] * 3

    async def test_a_tool_that_does_not_want_one_is_not_given_one(self) -> None:
        @tool
        def loose(**rest: Any) -> str:
            return str(rest)

        assert not loose.takes_idempotency_key
        assert (await run_tool(loose, {"a": 1}, idempotency_key="k")).content == "{'a': 1}"

    @pytest.mark.parametrize("takes_any", [False, True])
    async def test_a_model_cannot_send_it(self, takes_any: bool) -> None:
        def pay(amount: int, idempotency_key: str = "none") -> str:
            return idempotency_key

        def pay_any(amount: int, idempotency_key: str = "none", **rest: Any) -> str:
            return idempotency_key

        made = FunctionTool.from_defaults(pay_any if takes_any else pay)
        output = await run_tool(made, {"amount": 1, "idempotency_key": "forged"}, idempotency_key="real")
        assert "idempotency_key: no such argument (known: amount)" in output.content

    async def test_without_one_a_call_is_refused_and_says_how_to_give_it(self) -> None:
        @tool
        def pay(amount: int, idempotency_key: str) -> str:
            return idempotency_key

        with pytest.raises(ToolArgumentsError, match=r"'pay' needs an idempotency key.*run_tool\(tool, arguments"):
            pay.call(amount=5)
        with pytest.raises(ToolArgumentsError, match="needs an idempotency key"):
            await pay.acall(amount=5)
        assert "needs an idempotency key" in (await run_tool(pay, {"amount": 5})).content
        assert pay.call(amount=5, idempotency_key="k").content == "k"
        assert pay.call(5, "by position").content == "by position"

    async def test_a_default_makes_it_optional(self) -> None:
        @tool
        def pay(idempotency_key: str | None = None) -> str:
            return str(idempotency_key)

        @tool
        def pay_with_field(idempotency_key: str = Field(default="from the field")) -> str:
            return idempotency_key

        assert (await run_tool(pay, {})).content == "None"
        assert (await run_tool(pay_with_field, {})).content == "from the field"
        assert (await run_tool(pay, {}, idempotency_key="k")).content == "k"

    async def test_partial_params_come_first(self) -> None:
        @tool(partial_params={"idempotency_key": "fixed"})
        def pay(idempotency_key: str) -> str:
            return idempotency_key

        assert (await run_tool(pay, {}, idempotency_key="k")).content == "fixed"
        assert pay.call().content == "fixed"
