"""An agent that acts by code: one snippet asks for many things at once, and a person agrees to what it sends."""

import asyncio

from models import model_or

from batonflow import CodeActAgent, ToolCall, tool

HEIGHTS = {"Emden": 3.1, "Hamburg": 3.8, "Husum": 3.5, "Kiel": 0.2}


@tool
async def height(port: str) -> float:
    """The height of the next high water at a port, in metres."""
    return HEIGHTS[port]


@tool(requires_approval=True)
def warn(ports: list[str]) -> str:
    """Send a warning to the harbour masters of some ports."""
    return f"{len(ports)} warned"


llm = model_or(
    """I ask for all ports at once.
<execute>
import asyncio
ports = ["Emden", "Hamburg", "Husum", "Kiel"]
heights = dict(zip(ports, await asyncio.gather(*[height(port) for port in ports])))
high = sorted(port for port in ports if heights[port] > 3.3)
print(high)
</execute>""",
    "<execute>\nawait warn(high)\n</execute>",
    "I have warned Hamburg and Husum; elsewhere the water stays below 3.3 metres.",
)


async def main() -> None:
    agent = CodeActAgent(llm=llm, tools=[height, warn])
    handler = agent.run("Warn the ports of Emden, Hamburg, Husum and Kiel if the water rises above 3.3 metres there.")
    async for request in handler.approvals():
        print(f"{request.tool_name} {request.arguments['ports']}: yes")
        request.approve()
    output = await handler
    calls = [event.tool_name async for event in handler.stream_events() if isinstance(event, ToolCall)]
    print(f"{calls.count('execute')} snippets, {calls.count('height')} calls of height")
    for call in output.tool_calls:
        print(call.tool_output.content)
    print(output)


asyncio.run(main())
