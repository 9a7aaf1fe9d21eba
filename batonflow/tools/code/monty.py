"""Code in Monty: an interpreter of a Python subset in a separate process, with a saveable state."""

import asyncio
import builtins
import re
import time
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from batonflow.llms._vendor import load
from batonflow.tools.code.base import Problem
from batonflow.tools.code.history import Outcome
from batonflow.tools.code.monty_check import names_in, problems_of
from batonflow.tools.code.monty_pool import monty_pool
from batonflow.tools.code.session import BaseExecutor, BaseSession, Broke, Effect, Ended, Pending, RawCall, Setup, Step

__all__ = ["MontyExecutor"]

_HINTS = """\
The code runs in a sandbox with a subset of Python. Variables and functions stay from one snippet to the next. \
The value of the last expression is the result; print() shows more.
Tools are async functions: `x = await tool(a, b=1)`. Several at a time: \
`a, b = await asyncio.gather(tool(1), tool(2))` after `import asyncio`. Await them in loops and comprehensions, not \
inside map(), sorted(key=...) or other builtins. A tool that fails raises where it is awaited; try/except works.
There are no files, no network, no environment and no other packages. Modules there are: asyncio (run, gather, sleep), \
base64, bisect, collections, copy, csv, dataclasses, datetime, decimal, functools, hashlib, itertools, json, math, \
random, re, sys, time, typing.
Not supported: class inheritance (so no own exception classes, Enum, ABC), super(), @property, @classmethod, \
@staticmethod, yield, async with, async for, del, except*, str.translate; bound methods as values \
(write `xs.append(1)`, not `add = xs.append`); asyncio.create_task, wait_for, Queue, return_exceptions=.
Instead of statistics write sum(xs) / len(xs) and the like."""

# The interpreter's own messages about missing features do not tell a model what to do instead.
_ADVICE = {
    "No module named 'statistics'": "write the formula: sum(xs) / len(xs), sorted(xs)[len(xs) // 2]",
    "No module named 'numpy'": "use lists, comprehensions and math",
    "No module named 'pandas'": "use lists of dicts",
    "No module named 'requests'": "there is no network; only the tools reach outside",
    "No module named 'string'": "write the characters out",
    "No module named 'io'": "join strings",
    "No module named 'uuid'": "use random or hashlib",
    "class inheritance": "use a class without bases, a dataclass, or a dict",
    "yield expressions": "build and return a list",
    "cannot suspend in this": "call tools in a comprehension or a loop instead",
    "object can't be awaited": "only calls of tools and of async functions are awaited",
    "return_exceptions": "wrap each call in an async function with try/except",
}
_INTERNAL = "RuntimeError: Internal error in monty"
_LONGEST_ERROR = 8000
_MOST_CLOCK_READINGS = 2000
_NOT_SUSPENDED = "RuntimeError: the code awaits a call of an earlier snippet: make the call again"
_FILE = re.compile(r'File "(?:<python-input-(\d+)>|main\.py)"')


class MontyExecutor(BaseExecutor):
    """Executor with pydantic-monty, the default: no files, no network, no host objects, and durable.

    Args:
        key: The signing key of snapshots, 16 bytes or more; see
            :func:`~batonflow.tools.code.signing.key_beside`.

    Raises:
        MissingDependencyError: pydantic-monty is not installed.

    Example:
        >>> session = await MontyExecutor().open()
        >>> await session.start("sum(range(10))")
        Done(output='', value=45)
    """

    name = "monty"
    durable = True
    full_python = False

    def __init__(self, key: bytes | None = None) -> None:
        super().__init__(key)
        self._module = load("pydantic_monty", "code")

    @property
    def hints(self) -> str:
        """Abilities and limits of the code, for the prompt."""
        return _HINTS

    @property
    def version(self) -> str:
        """The version of pydantic-monty."""
        return str(self._module.__version__)

    def _session(self, setup: Setup) -> BaseSession:
        return _MontySession(setup, self._module)


class _MontySession(BaseSession):
    # The interpreter enforces its limit itself; it is stopped from outside if the code keeps the host busy.
    _grace = 0.5

    def __init__(self, setup: Setup, module: Any) -> None:
        super().__init__(setup)
        self._monty = module
        self._pool: Any = None
        self._checkout: Any = None
        self._worker: Any = None
        # State between snippets, for the next worker and for undoing a snippet.
        self._base: bytes | None = None
        # State in the middle of a snippet, while no worker is kept for it.
        self._parked: bytes | None = None
        self._waiting: Any = None
        self._sleeps: dict[int, float] = {}
        self._known: set[str] = set()
        # Snippet numbers in the interpreter's own count, which is part of its state.
        self._feeds: list[int] = []
        self._base_feeds = 0

    async def launch(self) -> None:
        self._pool = await monty_pool(self._monty)

    async def _problems(self, code: str) -> list[Problem]:
        return await problems_of(self._monty, self._pool, code, self._setup.functions, self._known)

    # Running

    async def _ready(self) -> None:
        """Workers start within a millisecond, so they are taken only when needed."""

    async def _begin(self, code: str) -> Step:
        self._sleeps = {}
        self._known |= names_in(code)
        try:
            worker = await self._worker_with(self._base)
            self._base = await worker.dump()
        except self._monty.MontyError as err:
            # Undo is impossible: the effects of the previous snippet are lost as well.
            await self._leave()
            self._base, self._feeds = None, []
            return Broke("crash", f"the interpreter died between two snippets: {err}", "lost")
        self._base_feeds = len(self._feeds)
        self._feeds.append(self._snippet)
        return await self._drive(worker.feed_start(code, print_callback=self._printer()))

    async def _deliver(self, outcomes: Sequence[tuple[int, Outcome]]) -> Step:
        if self._parked is not None:
            try:
                worker = await self._worker_with(None)
                self._waiting = await worker.load_snapshot(self._parked, print_callback=self._printer())
            except self._monty.MontyError as err:
                return await self._broken(err)
            self._parked = None
        now = time.monotonic()
        results: dict[int, Any] = {number: _settled(outcome) for number, outcome in outcomes}
        results |= {number: {"return_value": None} for number in self._due(now)}
        waiting, self._waiting = self._waiting, None
        return await self._drive(waiting.resume(results))

    def _due(self, now: float) -> list[int]:
        due = [number for number, until in self._sleeps.items() if until <= now]
        for number in due:
            del self._sleeps[number]
        return due

    def _printer(self) -> Any:
        # Called from another thread, with this snippet's own output, which later snippets do not share.
        output = self._output

        def printed(stream: str, text: str) -> None:  # noqa: ARG001 - the callback's signature
            output.write(text)

        return printed

    async def _drive(self, step: Awaitable[Any]) -> Step:
        calls: list[RawCall] = []
        monty = self._monty
        try:
            while True:
                at = await step
                if isinstance(at, monty.MontyComplete):
                    return Ended(at.output)
                if isinstance(at, monty.AsyncNameLookupSnapshot):
                    step = self._looked_up(at)
                elif isinstance(at, monty.AsyncFunctionSnapshot):
                    step = await self._called(at, calls)
                elif not at.pending_call_ids:
                    return Broke("runtime", _NOT_SUSPENDED, await self._undo())
                elif set(at.pending_call_ids) <= set(self._sleeps):
                    step = await self._slept(at)
                else:
                    self._waiting = at
                    return Pending(calls)
        except monty.MontyError as err:
            return await self._broken(err)
        except (TypeError, ValueError) as err:
            # The interpreter rejects the value, and would otherwise wait for it for ever.
            return Broke("runtime", f"{type(err).__name__}: {err}", await self._undo())

    async def _slept(self, at: Any) -> Awaitable[Any]:
        first = min(self._sleeps.values())
        await asyncio.sleep(max(0.0, first - time.monotonic()))
        due = self._due(max(first, time.monotonic()))
        return at.resume({number: {"return_value": None} for number in due})

    def _looked_up(self, at: Any) -> Awaitable[Any]:
        if at.object_id is None and at.variable_name in self._setup.functions:
            return at.resume(value=_stand_in(at.variable_name))
        return at.resume()

    async def _called(self, at: Any, calls: list[RawCall]) -> Awaitable[Any]:
        name = str(at.function_name)
        if at.is_os_function:
            return await self._os_call(at, name)
        if name not in self._setup.functions or at.object_id is not None:
            # Raised at the call, as Python does.
            return at.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        calls.append(RawCall(at.call_id, name, at.args, at.kwargs))
        return at.resume({"future": ...})

    async def _os_call(self, at: Any, name: str) -> Awaitable[Any]:
        if name in {"datetime.now", "date.today", "time.time"}:
            if len(self._record.clock) >= _MOST_CLOCK_READINGS:
                message = f"the clock was read more than {_MOST_CLOCK_READINGS} times in one snippet"
                return at.resume({"exc_type": "RuntimeError", "message": message})
            return at.resume({"return_value": _moment(name, at.args, self.now())})
        if name in {"system.sleep", "time.sleep"}:
            await asyncio.sleep(max(0.0, float(at.args[0])))
            return at.resume({"return_value": None})
        if name in {"system.async_sleep", "asyncio.sleep"}:
            self._sleeps[at.call_id] = time.monotonic() + max(0.0, float(at.args[0]))
            return at.resume({"future": ...})
        return at.resume_not_handled()

    async def _broken(self, err: Any) -> Broke:
        monty = self._monty
        if isinstance(err, monty.MontyCrashedError):
            return Broke("crash", f"the interpreter died: {err}", await self._undo())
        if not isinstance(err, monty.MontyRuntimeError | monty.MontySyntaxError):
            return Broke("runtime", str(err), await self._undo())
        text = err.display()
        cause = err.exception()
        over = isinstance(cause, TimeoutError | MemoryError) and "limit exceeded" in str(cause)
        if over or "exceeded its memory limit" in text:
            what = self._too_long if isinstance(cause, TimeoutError) else self._too_much
            return Broke("limit", what, await self._undo())
        if text.startswith(_INTERNAL):
            return Broke("crash", text, await self._undo())
        frames = err.traceback()
        unread = isinstance(cause, NotImplementedError) and bool(frames) and frames[-1].function_name is None
        kind = "syntax" if unread or isinstance(err, monty.MontySyntaxError) else "runtime"
        return Broke(kind, _advised(_FILE.sub(self._file, text)))

    def _file(self, match: re.Match[str]) -> str:
        feed = int(match[1]) if match[1] else -1
        number = self._feeds[feed] if feed < len(self._feeds) else self._snippet
        return f'File "<snippet {number}>"'

    @property
    def _too_much(self) -> str:
        return f"MemoryError: the session needs more than {self._limits.memory_mb} MB"

    # Workers

    async def _worker_with(self, base: bytes | None) -> Any:
        if self._worker is None:
            checkout = self._pool.checkout(
                script_name="main.py",
                limits={
                    "max_feed_duration_secs": self._limits.seconds,
                    "max_memory": self._limits.memory_mb * 2**20,
                    "max_suspensions": 2**31,
                },
                # Clock readings are recorded, so that a snippet that runs again reads the same ones.
                os_policy={"datetime": "call_host", "random_start": {"seed": self._setup.seed}},
            )
            self._worker = await checkout.__aenter__()
            self._checkout = checkout
            if base is not None:
                await self._worker.load_session(base)
        return self._worker

    async def _leave(self) -> None:
        checkout, self._checkout, self._worker, self._waiting = self._checkout, None, None, None
        if checkout is not None:
            await checkout.__aexit__(None, None, None)

    async def _undo(self) -> Effect:
        """Give up the worker: the next snippet begins with the state before this one."""
        self._parked = None
        del self._feeds[self._base_feeds :]
        await self._leave()
        return "undone"

    async def _halt(self, work: "asyncio.Future[Any] | None") -> Broke:
        if work is not None and not work.done():
            work.cancel()
            await asyncio.wait({work})
        return Broke("interrupted", "interrupted", await self._undo())

    async def _release(self) -> None:
        await self._undo()
        self._base = None

    # Snapshots

    async def _state(self, *, release: bool) -> tuple[dict[str, Any], list[bytes]] | None:
        now = time.monotonic()
        state: dict[str, Any] = {
            "sleeps": {str(number): until - now for number, until in self._sleeps.items()},
            "known": sorted(self._known),
            "feeds": self._feeds,
            "base_feeds": self._base_feeds,
        }
        suspended = self._parked
        try:
            if self._open and suspended is None:
                suspended = self._waiting.dump()
                if release:
                    self._parked = suspended
                    await self._leave()
            elif not self._open and self._worker is not None:
                self._base = await self._worker.dump()
                self._base_feeds = state["base_feeds"] = len(self._feeds)
        except self._monty.MontyError:
            # The interpreter has died; the history can still be saved.
            return None
        if self._open:
            return state | {"suspended": True}, [self._base or b"", suspended or b""]
        return state | {"suspended": False}, [self._base or b"", b""]

    async def _load(self, state: dict[str, Any], blobs: list[bytes]) -> bool:
        base, parked = blobs
        try:
            # Loaded at once, so that an unreadable state is found here and not in the middle of a turn.
            if base:
                await self._worker_with(base)
                await self._leave()
            if state["suspended"]:
                worker = await self._worker_with(None)
                self._waiting = await worker.load_snapshot(parked, print_callback=self._printer())
                await self._leave()
        except (self._monty.MontyError, RuntimeError, ValueError):
            await self._leave()
            return False
        now = time.monotonic()
        self._sleeps = {int(number): now + left for number, left in state["sleeps"].items()}
        self._known = set(state["known"])
        self._feeds, self._base_feeds = state["feeds"], state["base_feeds"]
        self._base = base or None
        self._parked = parked or None
        return True


def _stand_in(name: str) -> Any:
    """Placeholder for a tool that is named and not called: only its name crosses."""

    def function() -> None:
        """Never called."""

    function.__name__ = name
    return function


def _settled(outcome: Outcome) -> dict[str, Any]:
    if "error" in outcome:
        name, message = outcome["error"]
        kinds: Sequence[type[Any]] = getattr(builtins, name, RuntimeError).__mro__
        known = next((kind.__name__ for kind in kinds if kind.__name__ in _RAISABLE), "RuntimeError")
        return {"exc_type": known, "message": message}
    return {"return_value": outcome["value"]}


_RAISABLE = {
    "ArithmeticError", "AssertionError", "AttributeError", "FileExistsError", "FileNotFoundError", "ImportError",
    "IndexError", "IsADirectoryError", "KeyError", "LookupError", "MemoryError", "ModuleNotFoundError", "NameError",
    "NotADirectoryError", "NotImplementedError", "OSError", "OverflowError", "PermissionError", "RecursionError",
    "RuntimeError", "SyntaxError", "TimeoutError", "TypeError", "UnboundLocalError", "ValueError",
    "ZeroDivisionError",
}  # fmt: skip


def _moment(name: str, args: Sequence[Any], moment: float) -> Any:
    if name == "time.time":
        return moment
    zone = args[0] if args else None
    if name == "datetime.now" and zone is not None:
        return datetime.fromtimestamp(moment, UTC).astimezone(zone)
    # Local time in the sandbox is UTC.
    local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=moment)).replace(tzinfo=None)
    return local.date() if name == "date.today" else local


def _advised(text: str) -> str:
    advice = [said for sign, said in _ADVICE.items() if sign in text]
    if len(text) > _LONGEST_ERROR:
        text = f"{text[: _LONGEST_ERROR // 2]}\n...\n{text[-_LONGEST_ERROR // 2 :]}"
    return "\n".join([text, *(f"Hint: {one}." for one in advice)])
