"""Calls under way: what they tell the runs whose steps make them, and what they ask people there."""

import asyncio
import contextvars
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
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

__all__ = ["Call", "Question", "confirm_change"]


class Call:
    """A call under way.

    Args:
        server: Namespace of the server.
        tool: The tool's name, with its namespace.
        arguments: What is sent.
        ctx: Of the step that makes the call; None when there is none, and then nobody is told or asked.
        patience: Seconds that a person has to answer a question; None for ever.

    Attributes:
        context: The context variables of the step that makes the call.
        refused: Whether the server did not take it, over HTTP.
    """

    def __init__(
        self, server: str, tool: str, arguments: dict[str, Any], ctx: Context[Any] | None, patience: float | None
    ) -> None:
        self.server = server
        self.tool = tool
        self.arguments = arguments
        self.ctx = ctx
        self.patience = patience
        self.refused = False
        self._clock: asyncio.Timeout | None = None
        self._left = 0.0
        self._questions: set[Question] = set()
        self._asked: Counter[str] = Counter()
        # Questions come out of the connection's tasks; they are asked as the step that makes the call.
        self.context = contextvars.copy_context()

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

    def question_begins(self, question: "Question") -> None:
        """A person is asked something that this call may have asked; its time stands still."""
        if self._clock is not None and not self._questions:
            due = self._clock.when()
            if due is not None:
                self._left = due - asyncio.get_running_loop().time()
                self._clock.reschedule(None)
        self._questions.add(question)

    def question_ends(self, question: "Question") -> None:
        """That is over; its time goes on."""
        self._questions.discard(question)
        if self._clock is not None and not self._questions and not self._clock.expired() and self._left > 0:
            self._clock.reschedule(asyncio.get_running_loop().time() + self._left)

    def end(self) -> None:
        """The call is over; it asks nothing any more."""
        self._clock = None
        for question in list(self._questions):
            question.leave(self)

    async def name_question(self, ctx: Context[Any], asked: dict[str, Any], name: str | None) -> str:
        """A name for a question; the same one when the step is repeated after a restore, and the call with it.

        Args:
            ctx: Of the step.
            asked: What is asked.
            name: The one it has from another call already.
        """
        text = json.dumps([self.tool, self.arguments, asked], sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._asked[digest] += 1
        return await ctx.once(f"mcp:{digest}:{self._asked[digest]}", lambda: name or uuid4().hex)


class Question:
    """A question of a server's to a person.

    The wire may leave open which of several calls asks. Then the question is put by the step of the one that was begun
    last, as calls ask early, and by that of another one when this one ends first: it stays open as long as any of them
    is under way, and under the same name.

    Args:
        calls: Those that may have asked, all of one run, in the order in which they were begun.
        params: What is asked, in the protocol's form.
    """

    def __init__(self, calls: Sequence[Call], params: Any) -> None:
        self._calls = list(calls)
        self._params = params
        self._ctx: Context[Any] | None = None
        self._task: asyncio.Task[MCPElicitationResponse] | None = None
        self._name: str | None = None
        self._due = 0.0
        self._problem: str | None = None

    async def answer(self) -> Any:
        """The answer, in the protocol's form.

        Without a step nobody can be asked, and the question is declined. A question that its calls outlive is
        cancelled.
        """
        types = load("mcp.types", "mcp")
        if self._calls[-1].ctx is None:
            return types.ElicitResult(action="decline")
        answer = await self._answered()
        if answer is None:
            return types.ElicitResult(action="cancel")
        has_content = answer.action == "accept" and getattr(self._params, "mode", "") != "url"
        return types.ElicitResult(action=answer.action, content=answer.content or {} if has_content else None)

    def leave(self, call: Call) -> None:
        """A call is over, and with it the question if it was the last one."""
        if call in self._calls:
            self._calls.remove(call)
        # Where one call of a step has put the question, another one of that step can wait for the answer.
        if self._task is not None and all(one.ctx is not self._ctx for one in self._calls):
            self._task.cancel()

    async def _answered(self) -> MCPElicitationResponse | None:
        everybody = list(self._calls)
        for call in everybody:
            call.question_begins(self)
        try:
            while self._calls:
                call = self._calls[-1]
                self._ctx = ctx = call.ctx
                assert ctx is not None
                self._task = task = asyncio.get_running_loop().create_task(self._put(call, ctx), context=call.context)
                # Not awaited itself: the end of the call cancels it, and must not cancel who asks.
                await asyncio.wait({task})
                if not task.cancelled():
                    return None if isinstance(task.exception(), TimeoutError) else task.result()
                if call in self._calls:  # its step is over, and nobody can be asked there any more
                    self._calls.remove(call)
            return None
        finally:
            if self._task is not None:
                self._task.cancel()
            for call in everybody:
                call.question_ends(self)

    async def _put(self, call: Call, ctx: Context[Any]) -> MCPElicitationResponse:
        """Ask by the step of a call, until an answer fits."""
        schema: dict[str, Any] | None = getattr(self._params, "requested_schema", None)
        url: str | None = getattr(self._params, "url", None)
        asked = {"message": self._params.message, "schema": schema, "url": url}
        now = asyncio.get_running_loop().time
        while True:
            if self._name is None and call.patience is not None:
                self._due = now() + call.patience
            self._name = await call.name_question(ctx, asked, self._name)
            tools = list(dict.fromkeys(one.tool for one in self._calls))
            question = MCPElicitation(
                id=self._name,
                server=call.server,
                tool=tools[0] if len(tools) == 1 else None,
                tools=tools,
                message=self._params.message,
                requested_schema=schema,
                url=url,
                problem=self._problem,
            )
            answer = await ctx.wait_for_event(
                MCPElicitationResponse,
                waiter_event=question,
                waiter_id=f"mcp:{question.id}",
                requirements={"id": question.id},
                timeout=None if call.patience is None else max(0.0, self._due - now()),
            )
            if answer.action != "accept" or schema is None:
                return answer
            self._problem = "; ".join(problems_of(schema, answer.content or {})) or None
            if self._problem is None:
                return answer
            self._name = None


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
