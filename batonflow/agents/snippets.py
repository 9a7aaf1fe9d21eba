"""Snippets of an agent's code in the sandbox: one interpreter for each agent of a run.

State that survives a restart lies in three places. Between snippets the interpreter's snapshot lies in the state store.
Within a snippet every finished call lies with the step's delivery (``ctx.once``), written before the code learns of it.
And where a snippet stands still for calls, the snapshot of that moment lies in the state store too, if the executor can
write it: the snippet goes on from there. Otherwise it runs again from its beginning; either way, an earlier call
is answered with its earlier result.

A step that goes on in the middle does less than one that began, so that everything it writes or streams is inside calls
of ``ctx.once``, which have numbers of their own.
"""

import asyncio
import base64
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from batonflow.agents.arguments import digest_of
from batonflow.agents.events import ToolCall, ToolCallResult
from batonflow.agents.prompts import (
    CODE_NO_TEXT,
    CODE_NOT_AWAITED,
    CODE_NOT_RUN,
    CODE_NOTHING,
    CODE_OVER,
    CODE_VARIABLES_GONE,
)
from batonflow.llms.blocks import BaseContentBlock, in_words
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
    Turn,
    Waiting,
)
from batonflow.tools.code.history import error_outcome
from batonflow.tools.code.worker import exception_of, jsonable
from batonflow.workflow_core import Context, WorkflowRuntimeError

if TYPE_CHECKING:
    from batonflow.workflow_core.run import Run

__all__ = ["Interpreter", "drop", "interpreter", "run_snippet"]

STORED = "code_session"
"""The key of the state store for the snapshots, by agent."""

SUSPENDED = "code_suspended"
"""The key of the state store for the snapshots of snippets that wait for calls, by agent."""

# A snapshot of more bytes takes time to write: it is written where the snippet stands still for long.
_LARGE = 64 * 1024
# A snapshot of more bytes is too much for every place where a snippet stands still: it runs again from an earlier one.
_TOO_LARGE = 4 * 1024 * 1024
# Seconds after which a call counts as a long one; more where writing takes more, by this factor.
_LONG = 0.05
_SHARE = 10

CallTool = Callable[[AsyncBaseTool, ToolCall], Awaitable[tuple[ToolOutput, dict[str, Any]]]]
"""Checks the arguments, asks a person where approval is needed, and runs the tool."""


class Interpreter:
    """The session of one agent in one run, opened when it is needed."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lock = asyncio.Lock()

    async def aclose(self) -> None:
        """Release the resources of the session."""
        session, self.session = self.session, None
        if session is None:
            return
        try:
            await session.aclose()
        except asyncio.CancelledError:
            # The event loop is about to end, and no other task will close it.
            await session.aclose()
            raise


# Of the runs that are not over; a resumed run is another object with the same id.
_open: "WeakKeyDictionary[Run, dict[str, Interpreter]]" = WeakKeyDictionary()
_keepers: set[asyncio.Task[None]] = set()


def interpreter(ctx: Context[Any], agent: str) -> Interpreter:
    """The interpreter of an agent in the run that ``ctx`` belongs to.

    Raises:
        WorkflowRuntimeError: No run is under way.
    """
    run = ctx.run
    if run is None:
        raise WorkflowRuntimeError("code is executed inside a run only: use agent.run(...)")
    if run not in _open:
        _open[run] = {}
        # Tasks of event loops that were closed before can never end.
        _keepers.difference_update([task for task in _keepers if task.get_loop().is_closed()])
        keeper = asyncio.create_task(_close_with(run, _open[run]))
        _keepers.add(keeper)
        keeper.add_done_callback(_keepers.discard)
    return _open[run].setdefault(agent, Interpreter())


async def _close_with(run: "Run", opened: dict[str, Interpreter]) -> None:
    """Close the sessions of a run at its end, also when the event loop ends before it."""
    try:
        await run.ending.wait()
    finally:
        _open.pop(run, None)
        for one in opened.values():
            await one.aclose()


async def drop(ctx: Context[Any], agent: str) -> None:
    """Close the interpreter of an agent that has answered, and forget its variables."""
    if any([await _kept(ctx, path, agent) for path in (STORED, SUSPENDED)]):
        await ctx.once(f"code of {agent} dropped", _keep, ctx, agent, {STORED: None, SUSPENDED: None})
    run = ctx.run
    if run is not None and run in _open and agent in _open[run]:
        await _open[run][agent].aclose()


async def _kept(ctx: Context[Any], path: str, agent: str) -> dict[str, Any]:
    """Return the values of an agent in the state store for this run, empty without any."""
    records: Any = await ctx.store.get(path, default={})
    record: dict[str, Any] = records.get(agent, {})
    return record if record.get("run_id") == ctx.run_id else {}


async def _keep(ctx: Context[Any], agent: str, records: dict[str, dict[str, Any] | None]) -> None:
    """Put the values of an agent into the state store, by place; None removes one."""
    for path, record in records.items():
        stored: dict[str, dict[str, Any]] = await ctx.store.get(path, default={})
        others = {name: one for name, one in stored.items() if name != agent}
        if record is not None:
            await ctx.store.set(path, {**others, agent: {"run_id": ctx.run_id, **record}})
        elif agent in stored:
            await ctx.store.set(path, others)


async def run_snippet(
    ctx: Context[Any],
    code: str,
    *,
    agent: str,
    place: str,
    call_id: str,
    executor: Executor,
    limits: Limits,
    tools: Sequence[AsyncBaseTool],
    call_tool: CallTool,
) -> ToolOutput:
    """Run a snippet to its end, calling the tools that it calls.

    Args:
        ctx: The run's context, inside a step.
        code: The snippet.
        agent: The name of the agent.
        place: Names the snippet within the run, and with it its calls; the same after a restore.
        call_id: The model's id of the call that runs it.
        executor: Where it runs.
        limits: Limits for the code.
        tools: The tools that the code may call.
        call_tool: Makes its calls.

    Returns:
        The text for the model.
    """
    try:
        digest = hashlib.sha256(code.encode()).hexdigest()
    except UnicodeEncodeError as error:
        words = CODE_NO_TEXT.format(line=code.count("\n", 0, error.start) + 1, half=ascii(code[error.start]).strip("'"))
        return _output(code, words, is_error=True)
    turn: int = await ctx.store.get("num_iterations", default=0)
    key = f"{turn} {place} {call_id} {digest}"
    kept = interpreter(ctx, agent)
    async with kept.lock:
        record = await _kept(ctx, STORED, agent)
        if record.get("key") == key:
            # It had ended, only its result had not been delivered.
            return _output(code, record["told"], is_error=record["is_error"])
        suspended = await _kept(ctx, SUSPENDED, agent)
        if suspended.get("key") != key:
            suspended = {}
        elif kept.session is not None:
            await kept.aclose()  # stopped somewhere by an attempt that failed
        opening = _Opening(executor, tools, limits, f"{ctx.run_id}/{agent}")
        inside, gone = await opening.done(kept, code, record, suspended)
        assert kept.session is not None
        keeper = _Keeper(ctx, kept.session, agent, key, suspended.get("number", 0)) if executor.durable else None
        snippet = _Snippet(ctx, kept.session, place or str(turn), tools, call_tool, keeper)
        try:
            output = await _ran(kept.session, code, snippet, inside=inside)
        except ExecutorError:
            await kept.aclose()  # no longer of use; the next snippet opens another
            raise
        if gone:
            output.content = f"{CODE_VARIABLES_GONE}\n{output.content}"
        snapshot = await kept.session.snapshot()
        ended = {"key": key, "told": output.content, "is_error": output.is_error, "snapshot": _as_text(snapshot)}
        await ctx.once(f"code-{turn} ended", _keep, ctx, agent, {STORED: ended, SUSPENDED: None})
        return output


def _as_text(snapshot: bytes | None) -> str | None:
    return None if snapshot is None else base64.b64encode(snapshot).decode()


@dataclass(frozen=True)
class _Opening:
    """The way to open sessions of an agent."""

    executor: Executor
    tools: Sequence[AsyncBaseTool]
    limits: Limits
    run_id: str

    async def done(
        self, kept: Interpreter, code: str, record: dict[str, Any], suspended: dict[str, Any]
    ) -> tuple[bool, bool]:
        """Open the session unless it is open: in the middle of ``code``, or after the snippets before it.

        Returns:
            Whether it is in the middle, and whether variables of earlier snippets are gone.
        """
        if kept.session is not None:
            return False, False
        kept.session = await self._restored(suspended)
        if kept.session is not None:
            # The signature tells of which run it is, and this of which snippet.
            if kept.session.pending and kept.session.code == code:
                return True, False
            await kept.aclose()
        kept.session = await self._restored(record)
        if kept.session is not None:
            return False, False
        kept.session = await self.executor.open(self.tools, self.limits, run_id=self.run_id)
        return False, bool(record)

    async def _restored(self, record: dict[str, Any]) -> Session | None:
        if record.get("snapshot") is None:
            return None
        try:
            snapshot = base64.b64decode(record["snapshot"])
            return await self.executor.open(self.tools, self.limits, snapshot, run_id=self.run_id)
        except SnapshotError:
            return None


# The text that interpreters print for a coroutine that was not awaited.
_COROUTINE = re.compile(r"<coroutine (?:object|external_future)\b")


async def _ran(session: Session, code: str, snippet: "_Snippet", *, inside: bool) -> ToolOutput:
    if inside:
        ended = await snippet.run()
    else:
        problems = await session.check(code)
        if problems:
            return _output(code, CODE_NOT_RUN.format(problems="\n".join(map(str, problems))), is_error=True)
        ended = await snippet.run(code)
    lines = [ended.output.rstrip("\n")] if ended.output.strip() else []
    if isinstance(ended, Failed):
        lines.append(ended.text)
    elif ended.value is not None:
        lines.append(f"Value of the last expression: {ended.value!r}")
    if any(_COROUTINE.search(text) for text in lines):
        lines.append(CODE_NOT_AWAITED)
    return _output(code, "\n".join(lines) or CODE_NOTHING, is_error=isinstance(ended, Failed))


def _output(code: str, text: str, *, is_error: bool) -> ToolOutput:
    return ToolOutput(tool_name="execute", content=text, raw_input={"code": code}, raw_output=text, is_error=is_error)


class _Keeper:
    """A writer of snapshots of a snippet that waits, so that another process can go on from there.

    Args:
        ctx: The run's context, inside a step.
        session: Runs the snippet.
        agent: The name of the agent.
        key: Names the snippet.
        number: Of the place that was written last, counting from 1.
    """

    def __init__(self, ctx: Context[Any], session: Session, agent: str, key: str, number: int) -> None:
        self._ctx = ctx
        self._session = session
        self._agent = agent
        self._key = key
        self._number = number
        self._is_new = False
        self._is_large = False
        self.patience = _LONG

    async def stands_still(self) -> None:
        """The code has come to stand still: written at once, unless that took time before."""
        self._number += 1
        self._is_new = True
        if not self._is_large:
            await self._write(release=False)

    async def waits_for_long(self) -> None:
        """Use the time of calls that take longer than ``patience`` seconds, and free the worker for others."""
        await self._write(release=True)

    async def _write(self, *, release: bool) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        snapshot = await self._session.snapshot(release=release)
        if snapshot is not None and self._is_new:
            self._is_large = len(snapshot) > _LARGE
            if len(snapshot) <= _TOO_LARGE:
                written = {"key": self._key, "number": self._number, "snapshot": _as_text(snapshot)}
                await self._ctx.once(
                    f"code stood still {self._number}", _keep, self._ctx, self._agent, {SUSPENDED: written}
                )
        self._is_new = False
        self.patience = max(_LONG, _SHARE * (loop.time() - began))


class _Snippet:
    """A snippet that runs, and the calls it waits for."""

    def __init__(
        self,
        ctx: Context[Any],
        session: Session,
        place: str,
        tools: Sequence[AsyncBaseTool],
        call_tool: CallTool,
        keeper: _Keeper | None,
    ) -> None:
        self._ctx = ctx
        self._session = session
        # Several snippets of one answer may make the same call.
        self._prefix = f"code-{place.replace('/', '-')}"
        self._tools = {tool.metadata.get_name(): tool for tool in tools}
        self._call_tool = call_tool
        self._keeper = keeper
        self._names: dict[str, str] = {}
        self._seen = Counter[str]()
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def run(self, code: str | None = None) -> Done | Failed:
        """Run the snippet from turn to turn, and answer each call as soon as it is done.

        Args:
            code: The snippet; None for a session in the middle of one.
        """
        written = code is None
        try:
            if code is None:
                self._name(self._session.made)
                turn: Turn = Calls(self._session.pending)
            else:
                turn = await self._session.start(code)
            while isinstance(turn, Calls | Waiting):
                if isinstance(turn, Calls):
                    self._name(turn.calls)
                    for call in turn.calls:
                        self._running[call.id] = asyncio.create_task(self._answer(call))
                if self._keeper is not None and not written:
                    await self._keeper.stands_still()
                await self._wait()
                written = False
                turn = await self._session.answer(self._answers())
        finally:
            self._session.interrupt()  # where it was left in the middle; at its end that does nothing
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
        for call in self._session.made:
            if call.id in self._running and self._running[call.id].cancelled():
                await self._ctx.once(f"{self._names[call.id]} over", self._over, call)
        return turn

    async def _wait(self) -> None:
        """Until a call has ended."""
        running = self._running.values()
        if self._keeper is not None:
            patience = self._keeper.patience
            done, _ = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            await self._keeper.waits_for_long()
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)

    def _name(self, calls: Sequence[HostCall]) -> None:
        """Name calls by tool and arguments, not by time. A repeated snippet may get answers in another order."""
        for call in calls:
            if call.id not in self._names:
                digest = digest_of(call.tool, call.arguments)[:16]
                self._seen[digest] += 1
                self._names[call.id] = f"{self._prefix}-{digest}-{self._seen[digest]}"

    def _answers(self) -> dict[str, Any]:
        done = [one for one, task in self._running.items() if task.done()]
        tasks = {one: self._running.pop(one) for one in done}
        # A tool that cancels itself must not look as if the step had been cancelled.
        return {
            one: RuntimeError("the call was cancelled") if task.cancelled() else task.result()
            for one, task in tasks.items()
        }

    def _request(self, call: HostCall) -> ToolCall:
        return ToolCall(tool_name=call.tool, tool_kwargs=call.arguments, tool_id=self._names[call.id])

    async def _answer(self, call: HostCall) -> Any:
        """Return the answer for the code: the tool's value, or an exception to raise there."""
        # Written down before the code sees it.
        record: dict[str, Any] = await self._ctx.once(self._names[call.id], self._called, call)
        if record["error"] is None:
            return record["value"]
        return exception_of(*record["error"])

    async def _called(self, call: HostCall) -> dict[str, Any]:
        request, tool = self._request(call), self._tools[call.tool]
        self._ctx.write_event_to_stream(request)
        output, arguments = await self._call_tool(tool, request)
        value = jsonable(output.raw_output)
        if value is None and not isinstance(tool, FunctionTool):
            value = output.content
        if _is_shown(output.raw_output) or (value == "" and output.blocks):
            value = in_words(output.blocks)  # of pictures, which code cannot look at
        shown = ToolOutput(
            tool_name=output.tool_name,
            blocks=list(output.blocks),
            raw_input=output.raw_input,
            raw_output=value,
            is_error=output.is_error,
        )
        self._show(request, shown, arguments)
        return {"value": value, "error": _error(tool, output)}

    def _over(self, call: HostCall) -> None:
        """A call that the code did not wait for has a result all the same."""
        request = self._request(call)
        output = ToolOutput(tool_name=call.tool, content=CODE_OVER, raw_input=call.arguments, is_error=True)
        self._show(request, output)

    def _show(self, request: ToolCall, output: ToolOutput, arguments: dict[str, Any] | None = None) -> None:
        self._ctx.write_event_to_stream(
            ToolCallResult(
                tool_name=request.tool_name,
                tool_kwargs=request.tool_kwargs if arguments is None else arguments,
                tool_id=request.tool_id,
                tool_output=output,
                return_direct=False,
            )
        )


def _is_shown(value: Any) -> bool:
    """Return whether a value is made for models to look at."""
    values = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value]
    return bool(values) and all(isinstance(one, BaseContentBlock) for one in values)


def _error(tool: AsyncBaseTool, output: ToolOutput) -> list[str] | None:
    """Return the exception to raise in the code: the builtin type and its text."""
    if not output.is_error:
        return None
    if output.exception is not None:
        return error_outcome(output.exception)["error"]
    # Tools that a person denied have neither run nor raised.
    denied = may_need_approval(tool) and output.raw_output is None
    return ["PermissionError" if denied else "RuntimeError", output.content]
