"""Snippets of an agent's code in the sandbox: one interpreter for each agent of a run, closed with the run.

What has to survive a restart is kept in two places. Between snippets the interpreter's snapshot lies in the state
store. Within a snippet every finished call lies with the step's delivery (``ctx.once``): when the step begins again,
the snippet runs again from its beginning, and what was called before is answered with what it gave then.
"""

import asyncio
import base64
import builtins
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from batonflow.agents.approvals import digest_of
from batonflow.agents.events import ToolCall, ToolCallResult
from batonflow.agents.prompts import CODE_NOT_RUN, CODE_NOTHING, CODE_OVER, CODE_VARIABLES_GONE
from batonflow.tools import AsyncBaseTool, FunctionTool, ToolOutput
from batonflow.tools.call import may_need_approval
from batonflow.tools.code import (
    Calls,
    Done,
    Executor,
    ExecutorError,
    Failed,
    HostCall,
    Limits,
    Session,
    SnapshotError,
    Waiting,
)
from batonflow.tools.code.history import error_outcome
from batonflow.tools.code.worker import jsonable
from batonflow.workflow_core import Context, WorkflowRuntimeError

if TYPE_CHECKING:
    from batonflow.workflow_core.engine.runner import Run

__all__ = ["Interpreter", "drop", "interpreter", "run_snippet"]

STORED = "code_session"
"""Where in the state store the snapshots lie, by agent."""

CallTool = Callable[[AsyncBaseTool, ToolCall], Awaitable[ToolOutput]]
"""Checks the arguments, asks a person where one must be asked, and runs the tool."""


class Interpreter:
    """The session of one agent in one run, opened when it is needed."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lock = asyncio.Lock()

    async def aclose(self) -> None:
        """Give back what the session holds."""
        session, self.session = self.session, None
        if session is None:
            return
        try:
            await session.aclose()
        except asyncio.CancelledError:
            # The event loop is about to end, and nobody else will do it.
            await session.aclose()
            raise


# Of the runs that are not over; a resumed run is another object with the same id.
_open: "WeakKeyDictionary[Run, dict[str, Interpreter]]" = WeakKeyDictionary()
_keepers: set[asyncio.Task[None]] = set()


def interpreter(ctx: Context[Any], agent: str) -> Interpreter:
    """The interpreter of an agent in the run that ``ctx`` belongs to.

    Raises:
        WorkflowRuntimeError: There is no run.
    """
    run = ctx.run
    if run is None:
        raise WorkflowRuntimeError("code is executed inside a run only: use agent.run(...)")
    if run not in _open:
        _open[run] = {}
        keeper = asyncio.create_task(_close_with(run, _open[run]))
        _keepers.add(keeper)
        keeper.add_done_callback(_keepers.discard)
    return _open[run].setdefault(agent, Interpreter())


async def _close_with(run: "Run", opened: dict[str, Interpreter]) -> None:
    """Close what a run leaves open, however it ends; also when the event loop ends before it."""
    try:
        await run.ending.wait()
    finally:
        _open.pop(run, None)
        for one in opened.values():
            await one.aclose()


async def drop(ctx: Context[Any], agent: str) -> None:
    """Close the interpreter of an agent that has answered, and forget its variables."""
    stored: Any = await ctx.store.get(STORED, default=None)
    if isinstance(stored, dict) and agent in stored:
        await ctx.store.set(STORED, {name: one for name, one in stored.items() if name != agent})  # pyright: ignore[reportUnknownVariableType]
    run = ctx.run
    if run is not None and run in _open and agent in _open[run]:
        await _open[run][agent].aclose()


async def run_snippet(
    ctx: Context[Any],
    code: str,
    *,
    agent: str,
    executor: Executor,
    limits: Limits,
    tools: Sequence[AsyncBaseTool],
    call_tool: CallTool,
) -> ToolOutput:
    """Run a snippet to its end, calling the tools that it calls.

    Args:
        ctx: The run's context, inside a step.
        code: The snippet.
        agent: Whose it is.
        executor: Where it runs.
        limits: What it may use.
        tools: What it may call.
        call_tool: Makes its calls.

    Returns:
        What the model is told.
    """
    turn: int = await ctx.store.get("num_iterations", default=0)
    key = f"{turn} {hashlib.sha256(code.encode()).hexdigest()}"
    kept = interpreter(ctx, agent)
    async with kept.lock:
        stored: dict[str, dict[str, Any]] = await ctx.store.get(STORED, default={})
        record = stored.get(agent, {})
        if record.get("run_id") != ctx.run_id:
            record = {}
        if record.get("key") == key and kept.session is None:
            # It had ended, only its result had not been delivered.
            return _output(code, record["told"], is_error=record["is_error"])
        gone = await _opened(ctx, kept, record, executor, limits, tools, agent)
        assert kept.session is not None
        try:
            output = await _ran(ctx, kept.session, code, turn, tools, call_tool)
        except ExecutorError:
            await kept.aclose()  # of no use any more; the next snippet opens another
            raise
        if gone:
            output.content = f"{CODE_VARIABLES_GONE}\n{output.content}"
        snapshot = await kept.session.snapshot()
        written = {
            "run_id": ctx.run_id,
            "key": key,
            "told": output.content,
            "is_error": output.is_error,
            "snapshot": None if snapshot is None else base64.b64encode(snapshot).decode(),
        }
        await ctx.store.set(STORED, {**stored, agent: written})
        return output


async def _opened(
    ctx: Context[Any],
    kept: Interpreter,
    record: dict[str, Any],
    executor: Executor,
    limits: Limits,
    tools: Sequence[AsyncBaseTool],
    agent: str,
) -> bool:
    """Open the session if it is not; whether variables of earlier snippets are gone."""
    if kept.session is not None:
        return False
    run_id = f"{ctx.run_id}/{agent}"
    if record.get("snapshot") is not None:
        try:
            restore = base64.b64decode(record["snapshot"])
            kept.session = await executor.open(tools, limits, restore, run_id=run_id)
        except SnapshotError:
            kept.session = None
    if kept.session is not None:
        return False
    kept.session = await executor.open(tools, limits, run_id=run_id)
    return bool(record)


async def _ran(
    ctx: Context[Any], session: Session, code: str, turn: int, tools: Sequence[AsyncBaseTool], call_tool: CallTool
) -> ToolOutput:
    problems = await session.check(code)
    if problems:
        return _output(code, CODE_NOT_RUN.format(problems="\n".join(map(str, problems))), is_error=True)
    ended = await _Snippet(ctx, session, turn, tools, call_tool).run(code)
    told = [ended.output.rstrip("\n")] if ended.output.strip() else []
    if isinstance(ended, Failed):
        told.append(ended.text)
    elif ended.value is not None:
        told.append(f"Value of the last expression: {ended.value!r}")
    return _output(code, "\n".join(told) or CODE_NOTHING, is_error=isinstance(ended, Failed))


def _output(code: str, told: str, *, is_error: bool) -> ToolOutput:
    return ToolOutput(tool_name="execute", content=told, raw_input={"code": code}, raw_output=told, is_error=is_error)


class _Snippet:
    """A snippet that runs, and the calls it waits for."""

    def __init__(
        self, ctx: Context[Any], session: Session, turn: int, tools: Sequence[AsyncBaseTool], call_tool: CallTool
    ) -> None:
        self._ctx = ctx
        self._session = session
        self._turn = turn
        self._tools = {tool.metadata.get_name(): tool for tool in tools}
        self._call_tool = call_tool
        self._seen = Counter[str]()
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def run(self, code: str) -> Done | Failed:
        """Go from turn to turn. Calls run at the same time, and each is answered as soon as it is done."""
        try:
            turn = await self._session.start(code)
            while isinstance(turn, Calls | Waiting):
                if isinstance(turn, Calls):
                    for call in turn.calls:
                        self._running[call.id] = asyncio.create_task(self._answer(call))
                await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
                turn = await self._session.answer(self._answers())
            return turn
        finally:
            self._session.interrupt()  # where it was left in the middle; at its end that does nothing
            left = list(self._running.values())
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _answers(self) -> dict[str, Any]:
        done = [one for one, task in self._running.items() if task.done()]
        tasks = {one: self._running.pop(one) for one in done}
        # A tool that cancels itself must not look as if the step had been cancelled.
        return {
            one: RuntimeError("the call was cancelled") if task.cancelled() else task.result()
            for one, task in tasks.items()
        }

    async def _answer(self, call: HostCall) -> Any:
        """What the code gets: the tool's value, or an exception that is raised there."""
        # Named by what is called and not by when: run again, the snippet may get its answers in another order.
        digest = digest_of(call.tool, call.arguments)[:16]
        self._seen[digest] += 1
        name = f"code-{self._turn}-{digest}-{self._seen[digest]}"
        request = ToolCall(tool_name=call.tool, tool_kwargs=call.arguments, tool_id=name)
        self._ctx.write_event_to_stream(request)
        tool = self._tools[call.tool]
        try:
            # Written down before the code sees it.
            record: dict[str, Any] = await self._ctx.once(name, self._called, tool, request)
        except asyncio.CancelledError:
            over = ToolOutput(tool_name=call.tool, content=CODE_OVER, raw_input=call.arguments, is_error=True)
            self._show(request, over)
            raise
        self._show(request, ToolOutput.model_validate(record["output"]))
        if record["error"] is None:
            return record["value"]
        kind, message = record["error"]
        return getattr(builtins, kind)(message)

    async def _called(self, tool: AsyncBaseTool, request: ToolCall) -> dict[str, Any]:
        output = await self._call_tool(tool, request)
        value = jsonable(output.raw_output)
        if value is None and not isinstance(tool, FunctionTool):
            value = output.content
        shown = ToolOutput(
            tool_name=output.tool_name,
            blocks=list(output.blocks),
            raw_input=output.raw_input,
            raw_output=value,
            is_error=output.is_error,
        )
        return {"output": shown, "value": value, "error": _error(tool, output)}

    def _show(self, request: ToolCall, output: ToolOutput) -> None:
        self._ctx.write_event_to_stream(
            ToolCallResult(
                tool_name=request.tool_name,
                tool_kwargs=request.tool_kwargs,
                tool_id=request.tool_id,
                tool_output=output,
                return_direct=False,
            )
        )


def _error(tool: AsyncBaseTool, output: ToolOutput) -> list[str] | None:
    """What is raised in the code: the builtin type and its text."""
    if not output.is_error:
        return None
    if output.exception is not None:
        return error_outcome(output.exception)["error"]
    # Tools that a person denied have neither run nor raised.
    denied = may_need_approval(tool) and output.raw_output is None
    return ["PermissionError" if denied else "RuntimeError", output.content]
