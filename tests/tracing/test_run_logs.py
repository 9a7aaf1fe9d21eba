"""Records of runs: INFO for the life of a run, DEBUG for its steps, WARNING for retries, with their fields."""

import logging
from typing import Any

import pytest

from batonflow.agents import FunctionAgent
from batonflow.durable.stores.memory import MemoryStore
from batonflow.instrumentation.logs import FIELDS
from batonflow.llms import ScriptedLLM
from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed


def said(caplog: pytest.LogCaptureFixture, *levels: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno in levels]


class Greet(Workflow):
    @step
    async def greet(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="hello")


class Asks(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(
            result=(await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent())).response
        )


class Flaky(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
    async def fetch(self, ev: StartEvent) -> StopEvent:
        raise ConnectionError("reset")


async def test_at_default_settings_a_run_that_goes_well_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    await Greet().run()
    assert caplog.records == []


async def test_the_life_of_a_run(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batonflow")
    store = MemoryStore()
    handler = Asks(store=store).run(run_id="r1")
    await anext(aiter(handler.inputs()))
    await handler.cancel_run()
    handler = Asks(store=MemoryStore()).run(run_id="r2")
    await anext(aiter(handler.inputs()))
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    assert await handler == "yes"
    assert said(caplog, logging.INFO) == [
        "run r1 of Asks began with StartEvent",
        "step ask of Asks, run r1 waits",
        "run r1 of Asks was cancelled",
        "run r2 of Asks began with StartEvent",
        "step ask of Asks, run r2 waits",
        "run r2 of Asks ended with StopEvent",
    ]


async def test_a_run_that_is_taken_up(caplog: pytest.LogCaptureFixture) -> None:
    handler = Asks().run(run_id="r1")
    await anext(aiter(handler.inputs()))
    payload = handler.ctx.to_dict()
    await handler.cancel_run()
    caplog.set_level(logging.INFO, "batonflow")
    flow = Asks()
    handler = flow.run(ctx=Context.from_dict(flow, payload))
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    await handler
    assert said(caplog, logging.INFO)[0] == "run r1 of Asks was taken up"


async def test_steps_are_told_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "batonflow")
    await Greet().run(run_id="r1")
    assert said(caplog, logging.DEBUG) == [
        "step greet of Greet, run r1 began with StartEvent()",
        "step greet of Greet, run r1 ended with StopEvent(result='hello')",
    ]
    about: Any = caplog.records[1]
    assert [getattr(about, name) for name in FIELDS] == ["r1", f"{__name__}.Greet", "greet", "", "", 1, ""]


async def test_a_retry_is_a_warning_at_default_settings(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConnectionError):
        await Flaky().run(run_id="r1")
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("batonflow.workflow", logging.WARNING)
    assert record.getMessage() == (
        f"{__name__}.Flaky (run r1): step fetch failed at attempt 1 and runs again in 0 seconds: "
        "ConnectionError('reset')"
    )


async def test_a_failure_that_is_awaited_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise WorkflowRuntimeError("no")

    caplog.set_level(logging.INFO, "batonflow")
    with pytest.raises(WorkflowRuntimeError):
        await Fails().run(run_id="r1")
    assert said(caplog, logging.ERROR) == []
    assert said(caplog, logging.INFO)[-1] == "run r1 of Fails failed with WorkflowRuntimeError('no')"


async def test_an_interrupted_run_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    class Waits(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(StopEvent, timeout=None)
            return StopEvent()

    caplog.set_level(logging.INFO, "batonflow")
    handler = Waits(store=MemoryStore()).run(run_id="r1")
    await handler.started()
    await handler.interrupt()
    assert said(caplog, logging.INFO)[-1] == "run r1 of Waits was interrupted, and can be resumed"


async def test_an_agent_names_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "batonflow.agent")
    await FunctionAgent(name="clerk", llm=ScriptedLLM(["hello"])).run("Hi.", run_id="r1")
    (record,) = [record for record in caplog.records if record.name == "batonflow.agent"]
    about: Any = record
    assert record.getMessage() == "agent clerk, run r1 calls its model with 1 messages and 0 tools"
    assert (about.run_id, about.step, about.agent, about.tool) == ("r1", "run_agent_step", "clerk", "")
