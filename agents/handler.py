"""AgentHandler: what a caller holds of an agent's run."""

from collections.abc import AsyncGenerator

from batonflow.agents.events import AgentStream
from batonflow.workflow_core import WorkflowHandler

__all__ = ["AgentHandler"]


class AgentHandler(WorkflowHandler):
    """A run of an agent or of a team: a :class:`WorkflowHandler` that knows what agents stream.

    Example:
        >>> handler = agent.run("What is 2 + 40?")
        >>> async for text in handler.stream_text():
        ...     print(text, end="", flush=True)
        >>> output = await handler
    """

    __slots__ = ()

    async def stream_text(self) -> AsyncGenerator[str, None]:
        """What the models say, piece by piece, from the beginning of the run; thoughts and tool calls are left out.

        Any number of readers, independent of ``stream_events``. Errors of the run are raised by awaiting the handler.
        """
        async for item in self.subscribe():
            if isinstance(item.event, AgentStream) and item.event.delta:
                yield item.event.delta
