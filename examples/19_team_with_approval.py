"""A team: one agent finds facts, another writes and publishes, and a person agrees before anything is published."""

import asyncio

from models import model_or

from batonflow import AgentWorkflow, FunctionAgent, tool
from batonflow.llms import tool_call

FACTS = {"tides": "The moon pulls the sea; high water comes twice a day."}


def search(topic: str) -> str:
    """Look up facts about a topic."""
    return FACTS[topic]


@tool(requires_approval=True)
def publish(title: str, body: str) -> str:
    """Publish the article."""
    return f"published {title!r} with {len(body.split())} words"


researcher = FunctionAgent(
    name="researcher",
    description="Finds facts.",
    tools=[search],
    can_handoff_to=["writer"],
    llm=model_or(
        tool_call("search", topic="tide"),
        tool_call("search", topic="tides"),
        tool_call("handoff", to_agent="writer", reason="the facts are there"),
    ),
)
writer = FunctionAgent(
    name="writer",
    description="Writes and publishes.",
    tools=[publish],
    llm=model_or(
        tool_call("publish", title="Tides!!!", body="High water comes twice a day."),
        tool_call("publish", title="Tides", body="The moon pulls the sea; high water comes twice a day."),
        "The article about tides is out.",
    ),
)
team = AgentWorkflow(agents=[researcher, writer], root_agent="researcher")


async def main() -> None:
    handler = team.run("Write about tides.")
    async for request in handler.approvals():
        print(f"{request.agent} wants {request.tool_name}: {request.arguments['title']}")
        if "!" in request.arguments["title"]:
            request.deny("no exclamation marks")
        else:
            request.approve()
    output = await handler
    for call in output.tool_calls:
        print(f"{call.tool_name}: {call.tool_output.content}")
    print(output)


asyncio.run(main())
