"""What is measured of agents, for batonflow and for LlamaIndex alike: a model without latency, tools that do nothing.

Every program checks its own outcome and returns the CPU seconds of one unit.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from measuring import Program, Watch, per_unit

PEER = os.environ.get("BENCHMARK_LIBRARY") == "workflows"

if PEER:
    from llama_index.core.agent.workflow import AgentStream, AgentWorkflow, FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, ChatResponse, ToolCallBlock
    from llama_index.core.llms.mock import MockFunctionCallingLLM
    from pydantic import PrivateAttr
else:
    from fake_model import model as fake_model

    from batonflow.agents import AgentStream, AgentWorkflow, FunctionAgent, Middleware
    from batonflow.llms import ChatMessage

__all__ = ["PROGRAMS"]

PROGRAMS: dict[str, Program] = {}

Plan = Callable[[Sequence[Any]], AsyncIterator[tuple[str, Any]]]
"""What a model says to a conversation: ("delta", text) and ("calls", [(id, name, arguments), ...])."""

if PEER:

    class PlannedModel(MockFunctionCallingLLM):
        """Says what a plan says, as models of LlamaIndex do: every response holds the whole answer so far."""

        _plan: Any = PrivateAttr()

        async def astream_chat(self, messages: Any, **options: Any) -> Any:
            async def responses() -> Any:
                text = ""
                async for kind, value in self._plan(messages):
                    if kind == "delta":
                        text += value
                        yield ChatResponse(message=ChatMessage(role="assistant", content=text), delta=value)
                        continue
                    blocks = [ToolCallBlock(tool_call_id=i, tool_name=n, tool_kwargs=a) for i, n, a in value]
                    yield ChatResponse(message=ChatMessage(role="assistant", blocks=blocks))

            return responses()

    def fake_model(plan: Plan) -> Any:
        made = PlannedModel()
        made._plan = plan
        return made


async def add(x: int) -> int:
    """Add one."""
    return x + 1


def program(name: str) -> Callable[[Program], Program]:
    def register(function: Program) -> Program:
        PROGRAMS[name] = function
        return function

    return register


def calling(turns: int, width: int = 1) -> Plan:
    """Calls the tool in so many answers, so many times in each, then says that it is done."""
    left = [turns]

    async def plan(messages: Sequence[Any]) -> AsyncIterator[tuple[str, Any]]:
        if left[0] == 0:
            yield "delta", "done"
            return
        left[0] -= 1
        yield "calls", [(f"c{left[0]}-{number}", "add", {"x": 1}) for number in range(width)]

    return plan


def agent(
    plan: Plan, tools: Sequence[Any] = (add,), name: str = "Agent", description: str = "An agent", **options: Any
) -> Any:
    return FunctionAgent(name=name, description=description, llm=fake_model(plan), tools=list(tools), **options)


def said_before(messages: int) -> list[ChatMessage]:
    return [ChatMessage(role=("user", "assistant")[number % 2], content="hello " * 20) for number in range(messages)]


async def timed(flow: Any, units: int, **options: Any) -> dict[str, float]:
    await agent(calling(2)).run(user_msg="go")
    with Watch() as watch:
        assert str(await flow.run(user_msg="go", max_iterations=units + 5, **options)) == "done"
    return per_unit(watch, units)


@program("tool turn")
async def tool_turn(units: int) -> dict[str, float]:
    """An answer of the model that calls a tool, and the tool."""
    return await timed(agent(calling(units)), units)


if not PEER:

    class Empty(Middleware[Any]):
        """Acts at no point."""

    class PassingOn(Middleware[Any]):
        """Wraps every answer and every call, and changes neither."""

        async def around_model(self, ctx: Any, request: Any, call_next: Any) -> Any:
            return await call_next(request)

        async def around_tool(self, ctx: Any, request: Any, call_next: Any) -> Any:
            return await call_next(request)

    @program("tool turn, three empty middlewares")
    async def empty_middleware(units: int) -> dict[str, float]:
        """The same with middleware that acts at no point."""
        return await timed(agent(calling(units), middleware=[Empty(), Empty(), Empty()]), units)

    @program("tool turn, three passing middlewares")
    async def passing_middleware(units: int) -> dict[str, float]:
        """The same with middleware that only passes on."""
        return await timed(agent(calling(units), middleware=[PassingOn(), PassingOn(), PassingOn()]), units)


@program("tool turn after 1,000 messages")
async def long_conversation(units: int) -> dict[str, float]:
    """The same when much has been said before."""
    return await timed(agent(calling(units)), units, chat_history=said_before(1000))


@program("tool turn behind messages")
async def turns_behind(messages: int) -> dict[str, float]:
    """A turn among twenty, with so many messages before them."""
    return await timed(agent(calling(20)), 20, chat_history=said_before(messages))


@program("tool called in parallel")
async def parallel_tools(units: int) -> dict[str, float]:
    """One of many calls in one answer."""
    return await timed(agent(calling(1, width=units)), units)


@program("two-turn run")
async def concurrent_runs(units: int) -> dict[str, float]:
    """A run with one call of a tool, among many at a time."""

    async def plan(messages: Sequence[Any]) -> AsyncIterator[tuple[str, Any]]:
        if messages[-1].role == "tool":
            yield "delta", "done"
        else:
            yield "calls", [("c", "add", {"x": 1})]

    flow = agent(plan)
    await flow.run(user_msg="go")
    with Watch() as watch:
        answers = await asyncio.gather(*(flow.run(user_msg="go") for _ in range(units)))
    assert [str(answer) for answer in answers] == ["done"] * units
    return per_unit(watch, units)


@program("streamed piece of an answer")
async def streamed_pieces(units: int) -> dict[str, float]:
    """A piece of text from the model to a reader of the stream."""

    async def plan(messages: Sequence[Any]) -> AsyncIterator[tuple[str, Any]]:
        for number in range(units):
            yield "delta", "tide "
            if number % 10 == 9:
                await asyncio.sleep(0)

    flow = agent(plan)
    read = 0
    with Watch() as watch:
        handler = flow.run(user_msg="go")
        async for event in handler.stream_events():
            read += isinstance(event, AgentStream)
        answer = str(await handler)
    assert (read, len(answer.strip())) == (units, 5 * units - 1)
    return per_unit(watch, units)


@program("handoff")
async def handoffs(units: int) -> dict[str, float]:
    """From agent to agent in a team of five."""
    left = [units]

    def passing(to_agent: str) -> Plan:
        async def plan(messages: Sequence[Any]) -> AsyncIterator[tuple[str, Any]]:
            if left[0] == 0:
                yield "delta", "done"
                return
            left[0] -= 1
            yield "calls", [(f"h{left[0]}", "handoff", {"to_agent": to_agent, "reason": "your turn"})]

        return plan

    members = [agent(passing(f"g{(i + 1) % 5}"), (), name=f"g{i}", description=f"Agent {i}") for i in range(5)]
    return await timed(AgentWorkflow(agents=members, root_agent="g0"), units)
