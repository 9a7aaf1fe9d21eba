"""Tools that take a while: one says how far it has come, one is tried again without ordering twice."""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass

from models import model_or

from batonflow import FunctionAgent, retry_policy, tool
from batonflow.llms import tool_call
from batonflow.tools import run_tool
from batonflow.workflow_core.retry_policy import stop_after_attempt, wait_none

ORDERS: dict[str, str] = {}


@dataclass
class Station:
    name: str
    depth: float


@tool
def deepest(stations: list[Station]) -> Generator[str, None, str]:
    """Find out which of some stations lies deepest, in metres."""
    found = stations[0]
    for number, station in enumerate(stations, start=1):
        yield f"{number} of {len(stations)}: {station.name}"
        found = max(found, station, key=lambda one: one.depth)
    return f"{found.name}, {found.depth:.1f} metres"


@tool(timeout=0.2, retry=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
async def order(item: str, idempotency_key: str) -> str:
    """Order something for the ship."""
    known = idempotency_key in ORDERS
    ORDERS[idempotency_key] = item
    if not known:
        await asyncio.sleep(60)  # the shop has the order, but its answer is lost on the way
    return f"{item} ordered, {len(ORDERS)} order in all"


async def main() -> None:
    stations = [{"name": "Emden", "depth": 8.5}, {"name": "Husum", "depth": "5"}, {"name": "Kiel", "depth": 11}]
    output = await run_tool(deepest, {"stations": stations}, report=print)
    print(f"{deepest.metadata.name}: {output.content}")
    output = await run_tool(order, {"item": "rope"}, idempotency_key="voyage-7/1")
    print(f"order: {output.content}")
    llm = model_or(tool_call("deepest", stations=stations), "Kiel lies deepest.")
    agent = FunctionAgent(llm=llm, tools=[deepest])
    answer = await agent.run(f"Which of these stations lies deepest? {stations}")
    print(answer.tool_calls[0].tool_output.content)
    print(answer)


asyncio.run(main())
