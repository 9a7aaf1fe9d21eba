"""One call under way: what it tells the run whose step makes it, and what it asks a person there."""

import asyncio
import contextvars
import hashlib
import json
from collections import Counter
from typing import Any
from uuid import uuid4

from batonflow.llms._vendor import load
from batonflow.tools.mcp.arguments import problems_of
from batonflow.tools.mcp.events import (
    MCPElicitation,
    MCPElicitationResponse,
    MCPProgress,
    MCPToolChanged,
    MCPToolChangedResponse,
)
from batonflow.tools.mcp.pins import ToolChange
from batonflow.workflow_core.context import Context

__all__ = ["Call", "confirm_change"]


class Call:
    """A call under way.

    Args:
        server: Namespace of the server.
        tool: The tool's name, with its namespace.
        arguments: What is sent.
        ctx: Of the step that makes the call; None when there is none, and then nobody is told or asked.
        patience: Seconds that a person has to answer a question; None for ever.

    Attributes:
        refused: Whether the server did not take it, over HTTP.
    """

    def __init__(
        self, server: str, tool: str, arguments: dict[str, Any], ctx: Context[Any] | None, patience: float | None
    ) -> None:
        self.server = server
        self.tool = tool
        self.arguments = arguments
        self.ctx = ctx
        self.refused = False
        self._patience = patience
        self._clock: asyncio.Timeout | None = None
        self._left = 0.0
        self._asking: set[asyncio.Task[Any]] = set()
        self._asked: Counter[str] = Counter()
        # Questions come out of the connection's tasks; they are asked as the step that makes the call.
        self._context = contextvars.copy_context()

    @property
    def run(self) -> object:
        """Whose question it would be: the run's, or nobody's but this call's own."""
        return self if self.ctx is None else self.ctx.run_id

    def timed_by(self, clock: asyncio.Timeout) -> None:
        """Let ``clock`` stand still while a person is asked."""
        self._clock = clock

    async def progressed(self, progress: float, total: float | None, message: str | None) -> None:
        """The server says how far it is."""
        if self.ctx is not None:
            self.ctx.write_event_to_stream(MCPProgress(tool=self.tool, progress=progress, total=total, message=message))

    async def elicit(self, params: Any) -> Any:
        """The answer to a question of the server's, in the protocol's form.

        Without a step nobody can be asked, and the question is declined. A question that the call outlives is
        cancelled.
        """
        types = load("mcp.types", "mcp")
        if self.ctx is None:
            return types.ElicitResult(action="decline")
        task = asyncio.get_running_loop().create_task(self._answer(self.ctx, params), context=self._context)
        self._stop_clock()
        self._asking.add(task)
        try:
            # Not awaited itself: the end of the call cancels it, and must not cancel who asks.
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._asking.discard(task)
            self._start_clock()
        if task.cancelled():
            return types.ElicitResult(action="cancel")
        error = task.exception()
        if isinstance(error, TimeoutError):
            return types.ElicitResult(action="cancel")
        if error is not None:
            raise error
        answer = task.result()
        content = answer.content or {} if answer.action == "accept" and getattr(params, "mode", "") != "url" else None
        return types.ElicitResult(action=answer.action, content=content)

    def end(self) -> None:
        """The call is over; what is still asked is asked no more."""
        self._clock = None
        for task in self._asking:
            task.cancel()

    def _stop_clock(self) -> None:
        if self._clock is not None and not self._asking:
            due = self._clock.when()
            if due is not None:
                self._left = due - asyncio.get_running_loop().time()
                self._clock.reschedule(None)

    def _start_clock(self) -> None:
        if self._clock is not None and not self._asking and not self._clock.expired() and self._left > 0:
            self._clock.reschedule(asyncio.get_running_loop().time() + self._left)

    async def _answer(self, ctx: Context[Any], params: Any) -> MCPElicitationResponse:
        schema: dict[str, Any] | None = getattr(params, "requested_schema", None)
        url: str | None = getattr(params, "url", None)
        problem: str | None = None
        while True:
            asked = {"message": params.message, "schema": schema, "url": url}
            question = MCPElicitation(
                id=await self._id(ctx, asked),
                server=self.server,
                tool=self.tool,
                message=params.message,
                requested_schema=schema,
                url=url,
                problem=problem,
            )
            answer = await ctx.wait_for_event(
                MCPElicitationResponse,
                waiter_event=question,
                waiter_id=f"mcp:{question.id}",
                requirements={"id": question.id},
                timeout=self._patience,
            )
            if answer.action != "accept" or schema is None:
                return answer
            problem = "; ".join(problems_of(schema, answer.content or {})) or None
            if problem is None:
                return answer

    async def _id(self, ctx: Context[Any], asked: dict[str, Any]) -> str:
        """A name for a question; the same one when the step is repeated after a restore, and the call with it."""
        text = json.dumps([self.tool, self.arguments, asked], sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._asked[digest] += 1
        return await ctx.once(f"mcp:{digest}:{self._asked[digest]}", lambda: uuid4().hex)


async def confirm_change(
    ctx: Context[Any] | None, server: str, tool: str, change: ToolChange, patience: float | None
) -> bool:
    """Whether a person agrees that a tool is used although it changed; nobody does where there is nobody to ask."""
    if ctx is None:
        return False
    question = MCPToolChanged(
        id=await ctx.once(f"mcp:{tool}:{change.digest}", lambda: uuid4().hex),
        server=server,
        tool=tool,
        difference=change.difference,
        digest=change.digest,
    )
    try:
        answer = await ctx.wait_for_event(
            MCPToolChangedResponse,
            waiter_event=question,
            waiter_id=f"mcp:{question.id}",
            requirements={"id": question.id, "digest": question.digest},
            timeout=patience,
        )
    except TimeoutError:
        return False
    return answer.accepted
