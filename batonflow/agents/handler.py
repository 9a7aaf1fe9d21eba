"""AgentHandler: the handler of an agent's run."""

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel

from batonflow import agents as kinds
from batonflow.agents.approvals import ApprovalRequest, answer, open_approvals
from batonflow.agents.events import AgentOutput, AgentResult, AgentStream
from batonflow.workflow_core import WorkflowHandler
from batonflow.workflow_core.stream import StreamReader
from batonflow.workflow_core.typed import OutT

__all__ = ["AgentHandler"]

StateT = TypeVar("StateT", bound=BaseModel)

# After all events: a reader that starts here gets only the end.
_END = 2**62


class AgentHandler(WorkflowHandler[AgentResult[OutT]], Generic[OutT]):
    """The handler of a run of an agent or team: a :class:`WorkflowHandler` with text and approvals.

    Example:
        >>> handler = agent.run("What is 2 + 40?")
        >>> async for text in handler.stream_text():
        ...     print(text, end="", flush=True)
        >>> output = await handler
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, AgentResult[OutT]]:
        result = yield from super().__await__()
        # A subclass of the user may end its run with another result.
        if isinstance(result, AgentOutput):  # pyright: ignore[reportUnnecessaryIsInstance]
            result.declare(self.workflow.__batonflow_team__.declared)
            result.keep_seconds(self._run.state.elapsed)
        return result

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        event = self.get_stop_event()
        result = getattr(event, "result", event)
        return kinds.handler_bundle(self, result if isinstance(result, AgentOutput) else None)

    async def state(self, cls: type[StateT]) -> StateT:
        """Return the typed state of the run.

        Args:
            cls: Its class, as in ``FunctionAgent(state=Case)``.

        Raises:
            TypeError: The run has a state of another class.

        Example:
            >>> case = await handler.state(Case)
        """
        return kinds.state_of(await self.ctx.store.get("state", default=None), cls)

    async def stream_text(self) -> AsyncGenerator[str, None]:
        """Yield the text of the models, piece by piece, from the beginning of the run.

        Thoughts, tool calls and the text of agents that are called as tools are left out. An answer that is not
        streamed is only in the output: from a direct tool, from a guard, or from an agent with ``streaming=False``.
        There may be any number of readers, independent of ``stream_events``. Awaiting the handler raises the errors of
        the run.
        """
        workflow: Any = self.workflow
        async for item in self.subscribe():
            if isinstance(item.event, AgentStream) and item.event.delta and workflow.speaks_in(item.path):
                yield item.event.delta

    async def approvals(self) -> AsyncGenerator[ApprovalRequest, None]:
        """Yield the tool calls that wait for a person. The open ones come first, then later ones, until the run ends.

        There may be any number of readers. The run waits for an answer.

        Example:
            >>> async for request in handler.approvals():
            ...     request.approve()
        """
        run = self.ctx.run
        assert run is not None
        async with aclosing(open_approvals(run).read(self._over())) as requests:
            async for request in requests:
                yield ApprovalRequest(request, self.ctx)

    async def _over(self) -> None:
        reader = cast("StreamReader", self.subscribe(after=_END))
        reader.follows = False  # it reads in a task of its own, which a break cancels too
        async for _ in reader:
            pass

    def approve(self, request_id: str, arguments: dict[str, Any] | None = None) -> None:
        """Let the tool of an open request run; see ``ApprovalRequest.approve``.

        Raises:
            ApprovalUsedError: The request is not open.
        """
        answer(self.ctx, request_id, approved=True, arguments=arguments)

    def deny(self, request_id: str, reason: str = "") -> None:
        """Deny an open request; see ``ApprovalRequest.deny``.

        Raises:
            ApprovalUsedError: The request is not open.
        """
        answer(self.ctx, request_id, approved=False, reason=reason)
