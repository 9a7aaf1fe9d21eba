"""Agents and teams as tools of other agents: a question goes in, the answer comes out."""

from typing import TYPE_CHECKING, Any

from batonflow.agents.calling import LEDGER, spent_earlier
from batonflow.agents.events import AgentOutput
from batonflow.agents.prompts import AGENT_AS_TOOL
from batonflow.tools import FunctionTool, ToolMetadata, ToolOutput
from batonflow.tools.base import DefaultToolFnSchema

if TYPE_CHECKING:
    from batonflow.agents.loop import AgentLoop

__all__ = ["AgentTool", "run_within"]


async def run_within(agent: Any, *args: Any, **options: Any) -> AgentOutput:
    """Run an agent or a team inside a step of another one, on its account.

    Args:
        agent: Who works.
        args: As for ``run``.
        options: As for ``run``.
    """
    handler = agent.run(*args, **options)
    store = handler.ctx.store
    # Empty but for a run that goes on after an interruption: nobody has counted that here.
    spent_earlier(await store.get("usage", default=None) or {}, await store.get(LEDGER, default=None) or {})
    return await handler


class AgentTool(FunctionTool):
    """A tool behind which an agent or a team works, in a run of its own that does not see the caller's conversation.

    The run belongs to the caller's: its events are in the caller's stream, it is cancelled with it, people are asked
    through it, and what it spends counts there too.

    Args:
        agent: Who works.
        name: What models call it.
        description: What models read of it.
    """

    def __init__(self, agent: "AgentLoop", name: str, description: str) -> None:
        async def ask(input: str) -> ToolOutput:  # noqa: A002 - the name that models know from other tools
            output = await run_within(agent, input)
            return ToolOutput(
                tool_name=name, content=str(output) or "(no text)", raw_input={"input": input}, raw_output=str(output)
            )

        metadata = ToolMetadata(
            description=AGENT_AS_TOOL.format(description=description), name=name, fn_schema=DefaultToolFnSchema
        )
        super().__init__(async_fn=ask, metadata=metadata)
        self.agent = agent
