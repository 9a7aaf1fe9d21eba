"""An agent on a leash: it may spend so much, writes to no strangers, and keeps one thing to itself."""

import asyncio

from models import model_or

from batonflow import FunctionAgent, ToolRetry, tool
from batonflow.agents import Block, Budget, Deny, ToolCall
from batonflow.llms import ChatMessage, tool_call
from batonflow.workflow_core import Context

LETTERS: list[str] = []


@tool
def look_up(harbour: str) -> str:
    """Look up when the next high water of a harbour is, and how high."""
    known = {"Brest": "18:40, 6.9 metres", "Emden": "20:05, 3.2 metres"}
    if harbour not in known:
        raise ToolRetry(f"there is no tide table for {harbour}")
    return known[harbour]


@tool(max_calls=2)
def write_letter(to: str, text: str) -> str:
    """Write a letter to somebody."""
    LETTERS.append(f"{to}: {text}")
    return f"sent to {to}"


def no_strangers(_: Context, call: ToolCall) -> Deny | None:
    if call.tool_name == "write_letter" and call.tool_kwargs.get("to") not in {"Ann", "Bob"}:
        return Deny("letters go to Ann and Bob only")
    return None


def no_secrets(_: Context, message: ChatMessage) -> Block | None:
    return Block("That stays between us.") if "treasure" in (message.content or "").lower() else None


async def main() -> None:
    llm = model_or(
        [tool_call("look_up", harbour="Brest"), tool_call("look_up", harbour="Atlantis")],
        [tool_call("write_letter", to=to, text="High water in Brest at 18:40.") for to in ("Ann", "Mallory")],
        tool_call("look_up", harbour="Emden"),
        "Ann knows about Brest. I could not look up Emden any more.",
    )
    agent = FunctionAgent(
        llm=llm,
        tools=[look_up, write_letter],
        before_tool=[no_strangers],
        input_guards=[no_secrets],
        output_guards=[no_secrets],
        budget=Budget(max_tokens=20_000, max_tool_calls=3, on_exceeded="answer"),
    )
    output = await agent.run("Tell Ann and Mallory when high water is in Brest, Atlantis and Emden.")
    for call in output.tool_calls:
        print(f"{call.tool_name} {call.tool_kwargs}: {call.tool_output.content}")
    print(output)
    print(LETTERS)
    print(await agent.run("Where is the treasure?"))


asyncio.run(main())
