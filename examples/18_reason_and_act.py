"""An agent whose model writes its actions as text: thoughts stream apart from the answer."""

import asyncio

from models import model_or

from batonflow import AgentStream, ReActAgent, ToolRetry


def height(hour: int) -> float:
    """Height of the water in metres at an hour of the day."""
    heights = {6: 5.7, 12: 0.9, 18: 5.5}
    if hour not in heights:
        raise ToolRetry("heights are known at 6, 12 and 18")
    return heights[hour]


async def main() -> None:
    llm = model_or(
        'Thought: I need the height at six.\nAction: height\nAction Input: {"hour": 6}',
        'Thought: And at seven, perhaps.\nAction: height\nAction Input: {"hour": 7}',
        "Thought: There is none for seven; six will do.\nAnswer: At six the water stands at 5.7 metres.",
    )
    handler = ReActAgent(llm=llm, tools=[height]).run("How high is the water in the morning?")
    thoughts = ""
    async for event in handler.stream_events():
        if isinstance(event, AgentStream):
            thoughts += event.thinking_delta or ""
    print(thoughts.count("Thought:"), "thoughts,", len((await handler).tool_calls), "actions")
    print(await handler)


asyncio.run(main())
