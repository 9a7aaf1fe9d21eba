"""A team with a gate: one agent finds facts, another writes, and nothing is published before a person agrees."""

import asyncio

from tides import llm, search

from batonflow import AgentWorkflow, FunctionAgent, tool


@tool(requires_approval=True)
def publish(title: str, body: str) -> str:
    """Publish the article."""
    return f"{title!r}, {len(body.split())} words"


researcher = FunctionAgent(
    name="researcher", description="Finds facts.", tools=[search], can_handoff_to=["writer"], llm=llm
)
writer = FunctionAgent(name="writer", description="Writes and publishes.", tools=[publish], llm=llm)
team = AgentWorkflow(agents=[researcher, writer], root_agent="researcher", store="runs.db")


async def main() -> None:
    handler = team.run("Write about tides.", run_id="tides-1")  # the same id after a crash: carries on
    async for request in handler.approvals():
        request.approve()  # or request.deny("why")
    print(await handler)


asyncio.run(main())
