"""A server with an agent that asks before it acts, and a client that follows the run and answers for the person."""

import asyncio
import socket
from pathlib import Path

from models import model_or

from batonflow import FunctionAgent, tool
from batonflow.llms import tool_call
from batonflow.server import WorkflowServer
from batonflow.server.client import WorkflowClient

LOG = Path("harbour.log")


@tool(requires_approval=True)
def open_lock(number: int, minutes: int) -> str:
    """Open a lock of the harbour."""
    with LOG.open("a") as log:
        log.write(f"lock {number} open for {minutes} minutes\n")
    return f"lock {number} closes in {minutes} minutes"


def make_server() -> WorkflowServer:
    llm = model_or(
        ["The barge waits at lock 2.", tool_call("open_lock", number=2, minutes=60)],
        lambda request: f"Done: {request.messages[-1].content}.",
    )
    agent = FunctionAgent(name="harbour", description="Opens locks.", tools=[open_lock], llm=llm)
    server = WorkflowServer(store="runs.db")
    server.add_workflow("harbour", agent)
    return server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def main() -> None:
    port = free_port()
    serving = asyncio.create_task(make_server().serve(port=port))
    async with WorkflowClient(f"http://127.0.0.1:{port}") as client:
        await client.ready()
        run = await client.start("harbour", {"user_msg": "A barge wants to pass."})
        async for event in client.stream(run.run_id):
            if event.type == "ApprovalRequired":
                # Nobody has to be there while it waits: the run stands in the store, whatever becomes of this process.
                [request] = await client.pending(run.run_id)
                print(f"{event.value['agent']} wants {event.value['tool_name']}({event.value['arguments']})")
                await client.approve(run.run_id, request.id, arguments={"number": 2, "minutes": 20})
            elif event.type == "ToolCallResult":
                print("tool:", event.value["tool_output"]["blocks"][0]["text"])
        result = await client.result(run.run_id)
    print("answer:", result["response"]["blocks"][0]["text"])
    serving.cancel()


asyncio.run(main())
print("log:", LOG.read_text().strip())
