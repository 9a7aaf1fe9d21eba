"""Agent runs with random tools, approvals, interrupts, cancels and restores; each must end with the right answer.

A seed draws a plan: calls of synchronous and asynchronous tools, some with approvals, in some turns, for one agent or a
team of two. The model follows the plan by counting the results in the conversation, so it continues it after every
interruption. Between two interruptions a run goes on for a random while. It is taken up by a new agent: from its
snapshot after a cancel, or from its store after an interrupt.
"""

import asyncio
import json
import random
import time
import traceback
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import PrivateAttr

from batonflow.agents import AgentWorkflow, ApprovalRequest, FunctionAgent
from batonflow.llms import FunctionCallingLLM, LLMMetadata
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, TextDelta, ToolCallDelta
from batonflow.tools import tool
from batonflow.workflow_core import Context, MemoryStore, WorkflowHandler
from batonflow.workflow_core.errors import RunInterruptedError, WorkflowCancelledByUser

__all__ = ["FuzzTally", "soak_fuzz"]

SECONDS_TO_END = 60.0
"""A run that has not ended by then counts as hung."""

MOST_PAUSE = 0.004


@dataclass(slots=True)
class FuzzTally:
    """What a number of runs gave."""

    runs: int = 0
    interruptions: int = 0
    calls: int = 0
    answers: int = 0
    hung: int = 0
    wrong: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: "FuzzTally") -> None:
        self.runs += other.runs
        self.interruptions += other.interruptions
        self.calls += other.calls
        self.answers += other.answers
        self.hung += other.hung
        self.wrong += other.wrong
        self.failures += other.failures


TOOLS = ("plain", "threaded", "slow", "asks", "asks_threaded", "counts")


@dataclass(slots=True)
class Plan:
    """What a model does in one run: the calls of each turn, as tool and number."""

    seed: int
    turns: list[list[tuple[str, int]]]
    is_team: bool
    is_stored: bool
    interruptions: int

    @property
    def numbers(self) -> list[int]:
        return [number for turn in self.turns for _, number in turn]

    @property
    def answer(self) -> str:
        return f"The sum is {sum(2 * number for number in self.numbers)}."


def draw(seed: int) -> Plan:
    """Draw the plan of a seed."""
    dice = random.Random(seed)
    turns = [
        [(dice.choice(TOOLS), dice.randrange(1000)) for _ in range(dice.choice((1, 1, 2, 3, 5)))]
        for _ in range(dice.randrange(2, 7))
    ]
    return Plan(seed, turns, dice.random() < 0.4, dice.random() < 0.6, dice.randrange(4, 12))


class Planned(FunctionCallingLLM):
    """Follows a plan by the number of results in the conversation."""

    _plan: Plan = PrivateAttr()

    @classmethod
    def of(cls, plan: Plan) -> "Planned":
        made = cls()
        made._plan = plan
        return made

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="planned", is_chat_model=True, is_function_calling_model=True)

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        results = [message.content or "" for message in request.messages if message.role == "tool"]
        results = [text for text in results if text.startswith("twice ")]
        done = 0
        for turn in self._plan.turns:
            if done == len(results):
                for index, (name, number) in enumerate(turn):
                    yield ToolCallDelta(
                        index=index, id=f"c{done + index}", name=name, arguments=json.dumps({"number": number})
                    )
                yield Finish(reason="tool_calls")
                return
            done += len(turn)
        yield TextDelta(text=f"The sum is {sum(int(text.split()[-1]) for text in results)}.")
        yield Finish()


def made_agent(plan: Plan, store: MemoryStore | None) -> Any:
    """Make the agent or team of a plan, as a new process would."""

    @tool(idempotent=True)
    async def plain(number: int) -> str:
        """Double a number."""
        return f"twice {2 * number}"

    @tool(idempotent=True)
    def threaded(number: int) -> str:
        """Double a number in a thread."""
        return f"twice {2 * number}"

    @tool(idempotent=True)
    async def slow(number: int) -> str:
        """Double a number after a while."""
        await asyncio.sleep(0.002)
        return f"twice {2 * number}"

    @tool(idempotent=True, requires_approval=True)
    async def asks(number: int) -> str:
        """Double a number when a person agrees."""
        return f"twice {2 * number}"

    @tool(idempotent=True, requires_approval=True)
    def asks_threaded(number: int) -> str:
        """Double a number in a thread when a person agrees."""
        time.sleep(0.001)
        return f"twice {2 * number}"

    @tool(idempotent=True)
    def counts(ctx: Context, number: int) -> str:
        """Double a number and count it in the state."""
        with ctx.store.edit_state_sync() as state:
            state["counted"] = sorted({*state.get("counted", []), number})
        return f"twice {2 * number}"

    tools = [plain, threaded, slow, asks, asks_threaded, counts]
    worker = FunctionAgent(
        name="worker", description="Doubles.", llm=Planned.of(plan), tools=tools, timeout=None, store=store
    )
    if not plan.is_team:
        return worker
    other = FunctionAgent(name="other", description="Idles.", llm=Planned.of(plan), tools=[plain], timeout=None)
    return AgentWorkflow(agents=[worker, other], root_agent="worker", timeout=None, store=store)


async def _answer(handler: WorkflowHandler, dice: random.Random, tally: FuzzTally) -> None:
    """Answer what the run asks, in one of the ways."""
    if dice.random() < 0.5:
        request: ApprovalRequest
        async for request in handler.approvals():  # type: ignore[attr-defined]
            await asyncio.sleep(dice.random() * MOST_PAUSE / 4)
            if any(asked.event.id == request.id for asked in handler.open_inputs()):
                request.approve()
                tally.answers += 1
        return
    async for asked in handler.inputs():
        await asyncio.sleep(dice.random() * MOST_PAUSE / 4)
        if asked.is_open:
            asked.respond(approved=True)
            tally.answers += 1


async def _one(plan: Plan, tally: FuzzTally) -> str:
    """Play a plan to its end; returns the answer."""
    dice = random.Random(plan.seed + 1)
    store = MemoryStore() if plan.is_stored else None
    agent = made_agent(plan, store)
    left = plan.interruptions
    handler = agent.run("Double the numbers.", max_iterations=50, **({"run_id": "r"} if plan.is_stored else {}))
    while True:
        answering = asyncio.create_task(_answer(handler, dice, tally))
        ended = asyncio.ensure_future(handler.stop_event_result())
        pause = dice.random() * MOST_PAUSE if left else None
        try:
            await asyncio.wait({ended}, timeout=pause)
        finally:
            if not ended.done():
                left -= 1
                tally.interruptions += 1
                await (handler.interrupt() if plan.is_stored else handler.cancel_run())
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
        try:
            await ended
            return str(await handler)
        except (RunInterruptedError, WorkflowCancelledByUser):
            pass
        payload = None if plan.is_stored else json.loads(json.dumps(handler.ctx.to_dict()))
        agent = made_agent(plan, None if store is None else MemoryStore(beside=store))
        handler = agent.resume("r") if payload is None else agent.run(ctx=Context.from_dict(agent, payload))


def soak_fuzz(_: str, seeds: Sequence[int]) -> FuzzTally:
    """Play the plan of each seed, and keep what went wrong."""
    tally = FuzzTally()
    for seed in seeds:
        plan = draw(seed)
        tally.runs += 1
        tally.calls += len(plan.numbers)
        try:
            found = asyncio.run(asyncio.wait_for(_one(plan, tally), SECONDS_TO_END))
        except TimeoutError:
            tally.hung += 1
            tally.failures.append(f"fuzz, seed {seed}: hung")
        except Exception as error:  # noqa: BLE001 - whatever a run raises is a failure of it
            tally.wrong += 1
            tally.failures.append(f"fuzz, seed {seed}\n{''.join(traceback.format_exception(error))}")
        else:
            if found != plan.answer:
                tally.wrong += 1
                tally.failures.append(f"fuzz, seed {seed}: {found!r}, expected {plan.answer!r}")
    return tally
