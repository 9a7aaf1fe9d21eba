"""A team of three that is crashed: it searches, computes in code, and asks two people before it acts."""

from typing import Any

from batonflow.agents import AgentHandler, AgentWorkflow, CodeActAgent, FunctionAgent
from batonflow.durable.stores.memory import MemoryStore
from batonflow.llms import ScriptedLLM, ToolCallBlock
from batonflow.llms.stream import ChatRequest
from batonflow.tools import FunctionTool, tool
from batonflow.tools.code import MontyExecutor
from batonflow.workflow_core import Workflow, WorkflowHandler
from tests.promises.crash.programs import Program
from tests.promises.crash.world import Ledger

__all__ = ["TEAM"]


def call(call_id: str, name: str, **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=call_id, tool_name=name, tool_kwargs=arguments)


def finds(request: ChatRequest) -> Any:
    if request.messages[-1].role == "user":
        return call("r1", "search", topic="tides")
    return call("r2", "handoff", to_agent="coder", reason="there is something to compute")


def computes(request: ChatRequest) -> Any:
    said = "\n".join(str(message.content) for message in request.messages)
    if "sum is 5" not in said:
        return "<execute>\na = await double(n=1)\nb = await double(n=2)\nprint('sum is', a + b - 1)\n</execute>"
    return call("c1", "handoff", to_agent="writer", reason="it is computed")


def writes(request: ChatRequest) -> Any:
    told = [
        message.content for message in request.messages if message.additional_kwargs.get("tool_call_id") in ("w1", "w2")
    ]
    if not told:
        return ["Both at once.", call("w1", "publish", title="Tides"), call("w2", "mail", to="Ann")]
    return f"In all: {'; '.join(str(one).splitlines()[0] for one in told)}"


def make(store: MemoryStore, ledger: Ledger) -> Workflow:
    def search(topic: str) -> str:
        """Look something up."""
        ledger.note("search")
        return f"about {topic}"

    def double(n: int) -> int:
        """Twice a number."""
        ledger.note(f"double {n}")
        return 2 * n

    @tool(requires_approval=True)
    async def publish(title: str) -> str:
        """Publish an article."""
        ledger.note("publish")
        return f"published {title}"

    @tool(requires_approval=True)
    async def mail(to: str) -> str:
        """Send a letter."""
        ledger.note("mail")
        return f"mailed {to}"

    def asks(turn: Any) -> ScriptedLLM:
        return ScriptedLLM([turn] * 20)

    async def search_later(topic: str) -> str:
        """Look something up."""
        return search(topic)

    async def double_later(n: int) -> int:
        """Twice a number."""
        return double(n)

    researcher = FunctionAgent(
        name="researcher",
        description="Finds facts.",
        tools=[FunctionTool.from_defaults(async_fn=search_later, name="search")],
        llm=asks(finds),
    )
    coder = CodeActAgent(
        name="coder",
        description="Computes.",
        tools=[FunctionTool.from_defaults(async_fn=double_later, name="double")],
        llm=asks(computes),
        executor=MontyExecutor(),
    )
    writer = FunctionAgent(name="writer", description="Writes.", tools=[publish, mail], llm=asks(writes))
    return AgentWorkflow(agents=[researcher, coder, writer], root_agent="researcher", store=store, timeout=None)


async def approves(_: Workflow, handler: WorkflowHandler) -> Any:
    assert isinstance(handler, AgentHandler)
    async for request in handler.approvals():
        request.approve()
    return str(await handler)


TEAM = Program(
    "team",
    make,
    approves,
    {"user_msg": "Write about tides."},
    "In all: published Tides; mailed Ann",
    asks_before_repeating=True,
    real_time=True,
)
