"""An agent with two middlewares, an approval and a long result; its process ends between any two records of a turn."""

import json
from typing import Any

from batonflow.agents import AgentHandler, FunctionAgent, Middleware
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ChatMessage, ScriptedLLM, TextBlock, ToolCallBlock
from batonflow.llms.stream import ChatRequest
from batonflow.tools import FunctionTool, tool
from batonflow.workflow_core import Context, Workflow, WorkflowHandler
from tests.promises.crash.programs import Program
from tests.promises.crash.world import Ledger

__all__ = ["GUARDED"]

PIN = "4711"
LONG = 400
"""Characters of a long result; the model is shown fewer."""


class Redact(Middleware):
    """Hides a PIN from models and from results; a tool gets the real one."""

    async def before_run(self, ctx: Context[Any], message: ChatMessage) -> ChatMessage:
        return ChatMessage((message.content or "").replace(PIN, "[pin]"))

    async def around_tool(self, ctx: Context[Any], request: Any, call_next: Any) -> Any:
        given = json.loads(json.dumps(request.arguments).replace("[pin]", PIN))
        output = await call_next(request.with_(arguments=given))
        return output.model_copy(update={"blocks": [TextBlock(text=output.content.replace(PIN, "[pin]"))]})


class Count(Middleware):
    """Counts the answers of the model, and makes a ticket for each call, once."""

    async def around_model(self, ctx: Context[Any], request: Any, call_next: Any) -> Any:
        output = await call_next(request)
        await ctx.store.set("middleware.answers", await ctx.store.get("middleware.answers", default=0) + 1)
        return output

    async def around_tool(self, ctx: Context[Any], request: Any, call_next: Any) -> Any:
        ticket = await ctx.once("ticket", self.ticket, request.call.tool_id)
        await ctx.store.set(f"middleware.tickets.{request.call.tool_id}", ticket)
        return await call_next(request)

    async def ticket(self, call_id: str) -> str:
        return f"ticket {call_id}"

    async def after_run(self, ctx: Context[Any], output: Any) -> Any:
        kept = await ctx.store.get("middleware")
        tickets = ", ".join(sorted(kept["tickets"].values()))
        said = f"{output.response.content}; {kept['answers']} answers, {tickets}"
        return output.model_copy(update={"response": ChatMessage(said)})


def says(request: ChatRequest) -> Any:
    results = {
        message.additional_kwargs.get("tool_call_id"): str(message.content)
        for message in request.messages
        if message.role == "tool"
    }
    assert PIN not in str([message.content for message in request.messages])
    match len(results):
        case 0:
            return ["Both.", _call("c1", "read_all"), _call("c2", "pay", pin="[pin]")]
        case _:
            assert len(results["c1"]) < LONG
            return f"paid: {results['c2']}"


def _call(call_id: str, name: str, **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=call_id, tool_name=name, tool_kwargs=arguments)


def make(store: MemoryStore, ledger: Ledger) -> Workflow:
    async def read_all() -> str:
        """Read everything."""
        ledger.note("read")
        return "x" * LONG

    @tool(requires_approval=True)
    async def pay(pin: str) -> str:
        """Pay with a PIN."""
        ledger.note(f"pay {pin}")
        return f"with {pin}"

    return FunctionAgent(
        llm=ScriptedLLM([says] * 20),
        tools=[FunctionTool.from_defaults(async_fn=read_all), pay],
        middleware=[Redact(), Count()],
        max_result_chars=100,
        store=store,
        timeout=None,
    )


async def approves(_: Workflow, handler: WorkflowHandler) -> Any:
    assert isinstance(handler, AgentHandler)
    async for request in handler.approvals():
        request.approve()
    return str(await handler)


GUARDED = Program(
    "guarded",
    make,
    approves,
    {"user_msg": f"Pay, the PIN is {PIN}."},
    "paid: with [pin]; 2 answers, ticket c1, ticket c2",
    asks_before_repeating=True,
)
