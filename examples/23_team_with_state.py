"""A team that works on shared state: a researcher takes notes there, a writer turns them into a report."""

import asyncio

from models import model_or

from batonflow import AgentWorkflow, Context, FunctionAgent, ToolRetry
from batonflow.llms import tool_call


async def record_note(ctx: Context, title: str, note: str) -> str:
    """Write a note down for everybody.

    Args:
        title: What it is about.
        note: The note.
    """
    async with ctx.store.edit_state() as run:
        run["state"]["notes"][title] = note
    return "Noted."


async def write_report(ctx: Context, text: str) -> str:
    """Write the report; it needs notes first."""
    async with ctx.store.edit_state() as run:
        if not run["state"]["notes"]:
            raise ToolRetry("there are no notes yet: ask the researcher")
        run["state"]["report"] = text
    return "The report is written."


llm = model_or(
    tool_call("handoff", to_agent="writer", reason="it sounds like writing"),
    tool_call("write_report", text="Tides are interesting."),
    tool_call("handoff", to_agent="researcher", reason="there are no notes yet"),
    tool_call("record_note", title="tides", note="High water comes twice a day, drawn by the moon."),
    tool_call("handoff", to_agent="writer", reason="the notes are there"),
    tool_call("write_report", text="High water comes twice a day. The moon draws it."),
    "The report on tides is done.",
)
team = AgentWorkflow(
    agents=[
        FunctionAgent(name="researcher", description="Finds facts and notes them.", tools=[record_note], llm=llm),
        FunctionAgent(name="writer", description="Writes reports from notes.", tools=[write_report], llm=llm),
    ],
    root_agent="researcher",
    initial_state={"notes": {}, "report": ""},
    max_handoffs=6,
)


async def main() -> None:
    handler = team.run("Write a report on tides.")
    output = await handler
    for call in output.tool_calls:
        print(f"{call.tool_name}: {call.tool_output.content.splitlines()[0]}")
    print(output)
    state = await handler.ctx.store.get("state")
    print(state["notes"], state["report"], sep="\n")


asyncio.run(main())
