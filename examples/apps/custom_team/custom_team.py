"""A clerk that hides personal data from its model, and a cashier that only says which tools it would run."""

import asyncio
import os
import re
import sys
from typing import Any

from batonflow import (
    AgentInput,
    AgentSetup,
    AgentWorkflow,
    ChatMessage,
    Context,
    FunctionAgent,
    ScriptedLLM,
    ToolCall,
    ToolCallResult,
    step,
)
from batonflow.llms import LLM, TextBlock, llm_from, tool_call
from batonflow.llms.scripted import Turn
from batonflow.llms.stream import ChatRequest
from batonflow.tools import ToolOutput, tool

PERSONAL = re.compile(r"\b(?:\d[ -]?){13,16}\b|\b[\w.+-]+@[\w-]+\.[\w.]+\b")
CHANGES = frozenset({"refund"})


class Redacting(FunctionAgent):
    """Replaces card numbers and mail addresses in all texts for the model; the memory keeps them."""

    @step
    async def setup_agent(self, ctx: Context[Any], ev: AgentInput) -> AgentSetup:
        setup = await super().setup_agent(ctx, ev)
        shown = [redacted(message) for message in setup.input]
        return AgentSetup(input=shown, current_agent_name=setup.current_agent_name)


class DryRun(FunctionAgent):
    """Runs tools that only look something up; of the others it says what it would run."""

    @step
    async def call_tool(self, ctx: Context[Any], ev: ToolCall) -> ToolCallResult:
        if ev.tool_name not in CHANGES:
            return await super().call_tool(ctx, ev)
        given = ", ".join(f"{name}={value!r}" for name, value in ev.tool_kwargs.items())
        words = f"dry run: {ev.tool_name}({given})"
        output = ToolOutput(tool_name=ev.tool_name, content=words, raw_input=ev.tool_kwargs, raw_output=words)
        result = ToolCallResult(
            tool_name=ev.tool_name,
            tool_kwargs=ev.tool_kwargs,
            tool_id=ev.tool_id,
            tool_output=output,
            return_direct=False,
        )
        ctx.write_event_to_stream(result)
        return result


def redacted(message: ChatMessage) -> ChatMessage:
    """The message without personal data."""
    blocks = [
        TextBlock(text=PERSONAL.sub("[hidden]", block.text)) if isinstance(block, TextBlock) else block
        for block in message.blocks
    ]
    return message.model_copy(update={"blocks": blocks})


class Shop:
    """Orders and payments; the cashier's tools work on it."""

    def __init__(self) -> None:
        self.prices = {"A-17": 40}
        self.refunded: dict[str, int] = {}

    def price(self, order: str) -> str:
        """Look up the price of an order."""
        return f"{self.prices[order]} euros"

    def refund(self, order: str, amount: int) -> str:
        """Pay money back to the customer."""
        self.refunded[order] = amount
        return f"refunded {amount} euros for {order}"


def build(
    shop: Shop, *, live: bool = False, clerk_llm: LLM | None = None, cashier_llm: LLM | None = None
) -> AgentWorkflow:
    """The team. ``live`` lets the cashier run all tools."""
    clerk = Redacting(
        name="clerk",
        description="Talks with customers.",
        system_prompt="Hand payments over to the cashier. Never ask for card numbers.",
        llm=clerk_llm or model(CLERK),
    )
    kind = FunctionAgent if live else DryRun
    cashier = kind(
        name="cashier",
        description="Looks up prices and refunds money.",
        llm=cashier_llm or model(CASHIER),
        tools=[tool(shop.price), tool(shop.refund)],
    )
    return AgentWorkflow(agents=[clerk, cashier], root_agent="clerk")


def told(request: ChatRequest) -> str:
    """The last answer of the cashier's script."""
    return f"Done: {request.messages[-1].content}"


CLERK: list[Turn] = [tool_call("handoff", to_agent="cashier", reason="a refund is due")]
CASHIER: list[Turn] = [tool_call("price", order="A-17"), tool_call("refund", order="A-17", amount=40), told]


def model(script: list[Turn]) -> LLM:
    """A real model where one is named, else one that follows a script."""
    named = os.environ.get("BATONFLOW_MODEL") or ("openai:gpt-5.6" if os.environ.get("OPENAI_API_KEY") else None)
    return llm_from(named) if named else ScriptedLLM(script)


async def main(*arguments: str) -> None:
    team = build(Shop(), live="--live" in arguments)
    print(await team.run("Order A-17 is broken. My card is 4000 1234 5678 9010, my mail ann@example.com."))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
