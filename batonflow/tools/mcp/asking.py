"""Calls in progress: their progress events, and the questions of servers to people."""

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
    """A call in progress.

    Args:
        server: Namespace of the server.
        tool: The tool's name, with its namespace.
        arguments: The arguments.
        ctx: The context of the calling step; None outside of steps, without progress and questions.
        patience: Seconds to answer a question; None for no limit.

    Attributes:
        context: The context variables of the calling step, in which questions are asked.
        refused: True if the server rejected the call over HTTP.
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
        # Questions arrive in the tasks of the connection, which have other context variables.
        self.context = contextvars.copy_context()

    @property
    def run(self) -> object:
        """Return the owner of the questions: the run, or this call outside of a run."""
        return self if self.ctx is None else self.ctx.run_id

    def timed_by(self, clock: asyncio.Timeout) -> None:
        """Pause ``clock`` while a question is open."""
        self._clock = clock

    async def progressed(self, progress: float, total: float | None, message: str | None) -> None:
        """Publish the progress that the server reports."""
        if self.ctx is not None:
            self.ctx.write_event_to_stream(MCPProgress(tool=self.tool, progress=progress, total=total, message=message))

    def question_begins(self, question: "Question") -> None:
        """Pause the call's timeout while a person answers a question."""
        if self._clock is not None and not self._questions:
            due = self._clock.when()
            if due is not None:
                self._left = due - asyncio.get_running_loop().time()
                self._clock.reschedule(None)
        self._questions.add(question)

    def question_ends(self, question: "Question") -> None:
        """Resume the timeout after a question."""
        self._questions.discard(question)
        if self._clock is not None and not self._questions and not self._clock.expired() and self._left > 0:
            self._clock.reschedule(asyncio.get_running_loop().time() + self._left)

    def end(self) -> None:
        """End the call and its questions."""
        self._clock = None
        for question in list(self._questions):
            question.leave(self)

    async def name_question(self, ctx: Context[Any], asked: dict[str, Any], name: str | None) -> str:
        """Return the name of a question. It stays the same when the step repeats its call after a restore.

        Args:
            ctx: The context of the step.
            asked: The question.
            name: The name that another call gave the question.
        """
        text = json.dumps([self.tool, self.arguments, asked], sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._asked[digest] += 1
        return await ctx.once(f"mcp:{digest}:{self._asked[digest]}", lambda: name or uuid4().hex)


class Question:
    """A question of a server to a person.

    The protocol does not always tell which of several calls asks. Then the latest call is taken, because calls usually
    ask early. If that call ends first, another one asks under the same name, until all of them have ended.

    Args:
        calls: The calls that may have asked, all of one run, in the order of their start.
        params: The question, in the protocol's form.
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
        """Wait for the answer, in the protocol's form.

        Without a step the question is declined. When all calls have ended, it is cancelled.
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
        """End a call, and the question with the last call."""
        if call in self._calls:
            self._calls.remove(call)
        # When one call of a step has asked the question, another call of that step can wait for the answer.
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
                self._task = task = asyncio.get_running_loop().create_task(
                    self._ask_until_answered(call, ctx), context=call.context
                )
                # Not awaited directly: the end of the call cancels that task, and must not cancel this one.
                await asyncio.wait({task})
                if not task.cancelled():
                    return None if isinstance(task.exception(), TimeoutError) else task.result()
                if call in self._calls:  # the step is over and cannot ask any more
                    self._calls.remove(call)
            return None
        finally:
            if self._task is not None:
                self._task.cancel()
            for call in everybody:
                call.question_ends(self)

    async def _ask_until_answered(self, call: Call, ctx: Context[Any]) -> MCPElicitationResponse:
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
    """Ask a person for consent to a changed tool; return False outside of steps."""
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
