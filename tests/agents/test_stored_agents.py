"""Agents whose runs a store keeps: what they spent is counted once, wherever a run goes on."""

import asyncio
import json
from typing import Any

import pytest

from batonflow.agents import Budget, FunctionAgent, Middleware, ToolCall
from batonflow.agents.memory import ChatMemoryBuffer, SimpleChatStore
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ChatMessage, ScriptedLLM, ToolCallBlock
from batonflow.tools import ToolOutput, tool
from batonflow.workflow_core import Context, JsonSerializer


def call(name: str, **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=f"call {name}", tool_name=name, tool_kwargs=arguments)


@tool(idempotent=True)
async def look(topic: str) -> str:
    """Look something up."""
    return f"about {topic}"


def told(name: str, words: str, **arguments: Any) -> ScriptedLLM:
    """A model that calls a tool once, and then says something."""

    def turn(request: Any) -> Any:
        asked = any(message.role == "tool" for message in request.messages)
        return words if asked else call(name, **arguments)

    return ScriptedLLM([turn] * 100)


def boss(store: MemoryStore, **options: Any) -> FunctionAgent:
    """An agent that asks another one, which looks something up."""
    helper = FunctionAgent(
        name="helper", description="Knows.", llm=told("look", "It is high.", topic="t"), tools=[look]
    )
    return FunctionAgent(
        name="boss", llm=told("helper", "High.", input="How high?"), tools=[helper.as_tool()], store=store, **options
    )


async def test_what_an_agent_behind_a_tool_took_is_counted_wherever_the_run_goes_on() -> None:
    store = MemoryStore()
    agent = boss(store)
    spent = (await agent.run("How high is the tide?", run_id="r")).usage
    info = await store.info("r")
    assert info is not None
    assert spent is not None
    for at in range(1, info.seq):
        assert (await agent.fork("r", at)).usage == spent, at


async def test_calls_count_in_the_budget_wherever_the_run_goes_on() -> None:
    def turn(request: Any) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        return call("look", topic=str(done)) if done < 3 else "Done."

    store = MemoryStore()
    limit = Budget(max_tool_calls=2, on_exceeded="answer")
    agent = FunctionAgent(name="a", llm=ScriptedLLM([turn] * 200), tools=[look], store=store, budget=limit)
    calls = [str(one.tool_output.content) for one in (await agent.run("Go", run_id="r")).tool_calls]
    info = await store.info("r")
    assert info is not None
    for at in range(1, info.seq):
        output = await agent.fork("r", at)
        assert [str(one.tool_output.content) for one in output.tool_calls] == calls, at


LIKE_AN_OBJECT = {"__is_pydantic": True, "qualified_name": "batonflow.llms.messages.ChatMessage", "value": {"a": 1}}


@pytest.mark.parametrize("name", ["batonflow.llms.messages.ChatMessage", "nowhere.Lost"])
async def test_arguments_and_results_that_look_like_written_objects_stay_data_wherever_the_run_goes_on(
    name: str,
) -> None:
    given = {**LIKE_AN_OBJECT, "qualified_name": name}
    seen: list[Any] = []

    @tool(idempotent=True)
    async def keep(ctx: Context[Any], data: dict[str, Any]) -> dict[str, Any]:
        """Keep data."""
        seen.append(data)
        await ctx.store.set("kept", data)
        return {"kept": data}

    store = MemoryStore()
    agent = FunctionAgent(name="a", llm=told("keep", "Kept.", data=given), tools=[keep], store=store)
    handler = agent.run("Go", run_id="r")
    await handler
    info = await store.info("r")
    assert info is not None
    for at in range(1, info.seq):
        branch = agent.fork("r", at)
        output = await branch
        assert output.tool_calls[0].tool_kwargs == {"data": given}, at
        assert output.tool_calls[0].tool_output.raw_output == {"kept": given}, at
        assert await branch.ctx.store.get("kept") == given, at
        restored = Context.from_dict(agent, json.loads(json.dumps(branch.ctx.to_dict())))
        assert await restored.store.get("kept") == given
        calls = [
            block.tool_kwargs
            for one in await (await restored.store.get("memory")).aget_all()
            for block in one.blocks
            if block.block_type == "tool_call"
        ]
        assert calls == [{"data": given}]
    assert seen
    assert all(one == given for one in seen)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("base.llms.types.ChatMessage", {"role": "user", "blocks": []}, ChatMessage),
        ("agent.workflow.workflow_events.ToolCall", {"tool_name": "a", "tool_kwargs": {}, "tool_id": "1"}, ToolCall),
        ("tools.types.ToolOutput", {"tool_name": "a", "raw_input": {}, "raw_output": 1}, ToolOutput),
        ("memory.chat_memory_buffer.ChatMemoryBuffer", {"token_limit": 7}, ChatMemoryBuffer),
        ("storage.chat_store.simple_chat_store.SimpleChatStore", {"store": {}}, SimpleChatStore),
    ],
)
def test_what_llamaindex_wrote_of_an_agent_is_read_as_what_stands_in_its_place(
    name: str, value: dict[str, Any], expected: type
) -> None:
    marked = {"__is_pydantic": True, "value": value, "qualified_name": f"llama_index.core.{name}"}
    assert type(JsonSerializer().deserialize(json.dumps(marked))) is expected


class LooksUp(Middleware):
    """A middleware with one lookup before each run, a gate behind it, and notes of the question."""

    def __init__(self) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def before_run(self, ctx: Context[Any], message: ChatMessage) -> None:
        await ctx.once("looked up", int)
        self.begun.set()
        await self.gate.wait()
        for number in range(12):
            await ctx.store.set(f"note {number}", message.content)


@pytest.mark.parametrize("before", [{}, {"budget": Budget(max_tokens=10_000)}, {"instructions": "Be short."}])
async def test_an_interrupted_beginning_makes_the_same_writes_again(before: dict[str, Any]) -> None:
    def agent() -> FunctionAgent:
        return FunctionAgent(llm=ScriptedLLM(["Hello."] * 5), middleware=[middleware], store=store)

    store, middleware = MemoryStore(), LooksUp()
    first = agent()
    ctx = Context(first)
    middleware.gate.set()
    await first.run("one", ctx=ctx, **before)
    middleware.gate.clear()
    middleware.begun.clear()
    handler = first.run("two", ctx=ctx, run_id="r")
    await middleware.begun.wait()
    await handler.interrupt()
    middleware.gate.set()
    await agent().resume("r")
    state = (await store.replay("r")).state_at(10**6)
    assert [state.get(f"note {number}") for number in range(12)] == ["two"] * 12
    assert state["user_msg_str"] == "two"
