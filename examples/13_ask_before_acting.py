"""A dangerous tool that asks a person first: it waits inside its run, and the answer comes through the handler."""

import asyncio

from models import model_or

from batonflow import Context, FunctionAgent, HumanResponseEvent, InputRequiredEvent
from batonflow.llms import tool_call


async def delete_archive(ctx: Context, year: int) -> str:
    """Delete the archive of a year.

    Args:
        year: The year.
    """
    question = InputRequiredEvent(prefix=f"Really delete the archive of {year}? ", user_name="Ann")
    answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=question, requirements={"user_name": "Ann"})
    return f"deleted {year}" if answer.response == "yes" else f"kept {year}, {answer.user_name} said {answer.response}"


async def main() -> None:
    llm = model_or(tool_call("delete_archive", year=1999), "The archive of 1999 is still there.")
    handler = FunctionAgent(llm=llm, tools=[delete_archive]).run("Clean up 1999.")
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            print(event.prefix)
            handler.ctx.send_event(HumanResponseEvent(response="yes", user_name="Bob"))  # not the one who is asked
            handler.ctx.send_event(HumanResponseEvent(response="no", user_name=event.user_name))
    output = await handler
    print(output.tool_calls[0].tool_output.content)
    print(output)


asyncio.run(main())
