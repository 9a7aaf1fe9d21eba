"""Sessions that run code in a separate CPython process, connected by pipes."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from batonflow.tools.code import worker
from batonflow.tools.code.base import Limits, Problem, SandboxUnavailableError
from batonflow.tools.code.history import Outcome
from batonflow.tools.code.session import BaseExecutor, BaseSession, Broke, Effect, Ended, Pending, RawCall, Setup, Step

__all__ = ["PYTHON_HINTS", "WORKER", "Launch", "ProcessExecutor"]

WORKER = Path(worker.__file__)
PYTHON_HINTS = """\
Variables, functions and imports stay from one snippet to the next. The value of the last expression is the result; \
print() shows more.
Tools are async functions: `x = await tool(a, b=1)`, at the top level too. Several at a time: \
`a, b = await asyncio.gather(tool(1), tool(2))` after `import asyncio`. A tool that fails raises where it is awaited; \
try/except works."""

_MB = 2**20
# Memory of the interpreter itself; the limit applies to the whole address space.
_INTERPRETER_MB = 128
_LARGEST_FILE = 32 * _MB
_MOST_FILES = 64
# A backstop if the host is stopped; otherwise the host's own clock decides.
_PROCESSOR_SECONDS = 3600
_LONGEST_LINE = 4 * worker.LARGEST_VALUE
_TO_START = 30.0
_TO_STOP = 0.5
_DIED = "the interpreter died: the code ended its process, crashed it, or used up a resource"


@dataclass
class Launch:
    """A command that starts the worker.

    Args:
        command: Program and arguments.
        env: Its whole environment.
        path: Folders that the code can import from besides the standard library.
        pass_fds: Descriptors it inherits.
        started: Called once it runs; returns the number of the process to stop and to continue, if not its own.
        close: Called after the start, successful or not.
        help: The hint for a worker that does not start.
        dies_with_host: True if the worker itself must ensure that it ends with this process.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    path: Sequence[str] = ()
    pass_fds: Sequence[int] = ()
    started: Callable[[], int | None] = lambda: None
    close: Callable[[], None] = lambda: None
    help: str = ""
    dies_with_host: bool = False


class ProcessExecutor(BaseExecutor):
    """Base of executors with a separate process."""

    durable = False
    full_python = True

    @property
    def version(self) -> str:
        """The version of Python."""
        return ".".join(map(str, sys.version_info[:3]))

    @abstractmethod
    def launch(self) -> Launch:
        """Return the command for one session."""

    def _session(self, setup: Setup) -> BaseSession:
        return _ProcessSession(setup, self.launch)


@dataclass
class _Signals:
    """Sender of signals to a process, never to a later process with the same number."""

    number: int
    descriptor: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.descriptor = os.pidfd_open(self.number)

    def send(self, which: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, which)
            else:
                os.kill(self.number, which)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class _Pipes(asyncio.subprocess.SubprocessStreamProtocol):
    """Protocol that reports the end of the process, even if other processes still hold its pipes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_LONGEST_LINE, loop=loop)
        self.ended = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.ended.set()


class _Process(asyncio.subprocess.Process):
    """A process that leaves no resources behind."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport, pipes, loop)
        self._pipes_of = transport, pipes

    @classmethod
    async def started(cls, *command: str, **options: Any) -> "_Process":
        """Start it with pipes for input, output and errors; options are those of ``subprocess.Popen``."""
        loop = asyncio.get_running_loop()
        return cls(*await loop.subprocess_exec(lambda: _Pipes(loop), *command, **options), loop)

    async def gone(self) -> None:
        """Wait until a killed process has ended and its pipes are closed.

        Cancellation does not interrupt this: at the end of the event loop nothing else would close the pipes.
        """
        transport, pipes = self._pipes_of
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                await pipes.ended.wait()
                if self.stdin is not None and self.stdin.transport.get_write_buffer_size():
                    self.stdin.transport.abort()  # unwritten input would hold it open
                # Not earlier: closing would reap the process and hide its end from waiting tasks.
                transport.close()
                await self.wait()
                await asyncio.sleep(0)
                break
            except asyncio.CancelledError as err:
                cancelled = err
        if cancelled is not None:
            raise cancelled


class _ProcessSession(BaseSession):
    def __init__(self, setup: Setup, command: Callable[[], Launch]) -> None:
        super().__init__(setup)
        self._command = command
        self._process: _Process | None = None
        self._signals: _Signals | None = None

    async def launch(self) -> None:
        launch = self._command()
        try:
            try:
                self._process = await _Process.started(
                    *launch.command, env=dict(launch.env), pass_fds=tuple(launch.pass_fds), start_new_session=True
                )
            except OSError as err:
                raise SandboxUnavailableError(f"{launch.command[0]} does not start: {err}. {launch.help}") from err
            await self._greet(launch)
        except BaseException:
            await self._kill()
            raise
        finally:
            launch.close()

    async def _greet(self, launch: Launch) -> None:
        assert self._process is not None
        setup = {
            "functions": list(self._setup.functions),
            "path": list(launch.path),
            "seed": self._setup.seed,
            "output_bytes": self._limits.output_bytes,
            "resources": _resources(self._limits),
            "host": os.getpid() if launch.dies_with_host else None,
        }
        try:
            async with asyncio.timeout(_TO_START):
                with contextlib.suppress(ConnectionError):
                    await self._send(setup)
                hello = await self._next_message()
        except TimeoutError:
            hello = None
        if hello is None or "hello" not in hello:
            said = await self._last_words()
            await self._kill()
            raise SandboxUnavailableError(
                f"{launch.command[0]} did not start the interpreter: {said or 'it said nothing'}. {launch.help}"
            )
        self._signals = _Signals(launch.started() or self._process.pid)
        self._pause()

    async def _last_words(self) -> str:
        assert self._process is not None
        assert self._process.stderr is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return (await self._process.stderr.read(2000)).decode("utf-8", "replace").strip()
        return ""

    # Running

    async def _ready(self) -> None:
        if self._process is None:
            await self.launch()

    async def _begin(self, code: str) -> Step:
        return await self._ask({"op": "run", "n": self._snippet, "code": code})

    async def _deliver(self, outcomes: Sequence[tuple[int, Outcome]]) -> Step:
        return await self._ask({"op": "answer", "n": self._snippet, "answers": list(outcomes)})

    async def _ask(self, message: dict[str, Any]) -> Step:
        try:
            self._go_on()
            await self._send(message)
        except ConnectionError:
            return Broke("crash", _DIED, await self._lost())
        return await self._step()

    async def _step(self) -> Step:
        """Read up to the end of the turn. The code can also write to this pipe, so every message is checked."""
        while (message := await self._next_message()) is not None:
            if isinstance(message.get("out"), str):
                self._output.write(message["out"])
            elif message.get("n") == self._snippet and "turn" in message:
                step = _step_of(message)
                if step is None:
                    break
                self._pause()
                return step
        return Broke("crash", _DIED, await self._lost())

    async def _next_message(self) -> dict[str, Any] | None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
            message = json.loads(line)
        except (ValueError, RecursionError):
            # Also for a line over the limit.
            return None
        return cast("dict[str, Any]", message) if isinstance(message, dict) else None

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def _problems(self, code: str) -> list[Problem]:
        await self._ready()
        try:
            self._go_on()
            async with asyncio.timeout(self._limits.seconds):
                await self._send({"op": "check", "code": code})
                while (message := await self._next_message()) is not None:
                    if message.get("turn") == "problems":
                        self._pause()
                        text, line = message.get("text"), message.get("line")
                        return [] if text is None else [Problem(_text(text), line if isinstance(line, int) else None)]
        except (ConnectionError, TimeoutError):
            pass
        self._settle(Broke("crash", "", await self._lost()))
        return [Problem("compiling the code ended the interpreter, and all variables are lost")]

    # Stopping

    def _pause(self) -> None:
        # Between turns nothing runs, including threads that the code has left behind.
        if self._signals is not None and hasattr(signal, "SIGSTOP"):
            self._signals.send(signal.SIGSTOP)

    def _go_on(self) -> None:
        if self._signals is not None and hasattr(signal, "SIGCONT"):
            self._signals.send(signal.SIGCONT)

    async def _lost(self) -> Effect:
        await self._kill()
        return "lost"

    async def _halt(self, work: "asyncio.Future[Any] | None") -> Broke | Ended:
        if self._process is None:
            return Broke("interrupted", "interrupted", "lost")
        reading = asyncio.ensure_future(self._step()) if work is None else work
        try:
            if self._signals is not None:
                self._go_on()
                self._signals.send(signal.SIGINT)
                await asyncio.wait({reading}, timeout=_TO_STOP)
            if reading.done() and not reading.cancelled():
                step: object = reading.result()
                if isinstance(step, Ended):
                    return step
                if isinstance(step, Broke):
                    return Broke("interrupted", "interrupted", "half" if step.effect == "kept" else step.effect)
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
        return Broke("interrupted", "interrupted", await self._lost())

    async def _kill(self) -> None:
        process, self._process = self._process, None
        signals, self._signals = self._signals, None
        if signals is not None:
            signals.send(signal.SIGKILL)
            signals.close()
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # Processes that the code has started belong to the group, unless they have left it.
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        await process.gone()

    async def _release(self) -> None:
        await self._kill()


def _step_of(message: Mapping[str, Any]) -> Step | None:
    """Return the step that a message describes, or None for an invalid message."""
    turn = message["turn"]
    if turn == "done":
        return Ended(message.get("value"))
    if turn == "failed" and message.get("kind") in ("syntax", "runtime", "limit", "interrupted"):
        return Broke(message["kind"], _text(message.get("text")))
    if turn != "calls" or not isinstance(message.get("calls"), list):
        return None
    calls: list[RawCall] = []
    for one in cast("list[object]", message["calls"]):
        if not isinstance(one, dict):
            return None
        call = cast("dict[str, Any]", one)
        ref, name, args, kwargs = (call.get(key) for key in ("ref", "name", "args", "kwargs"))
        if not (isinstance(ref, int) and isinstance(name, str) and isinstance(args, list) and isinstance(kwargs, dict)):
            return None
        calls.append(RawCall(ref, name, cast("list[Any]", args), cast("dict[str, Any]", kwargs)))
    return Pending(calls)


def _text(value: object) -> str:
    """Return a text that can be encoded."""
    return str(value).encode("utf-8", "replace").decode()


def _resources(limits: Limits) -> dict[str, int]:
    return {
        "RLIMIT_AS": (limits.memory_mb + _INTERPRETER_MB) * _MB,
        "RLIMIT_CPU": max(_PROCESSOR_SECONDS, int(100 * limits.seconds)),
        "RLIMIT_FSIZE": _LARGEST_FILE,
        "RLIMIT_NOFILE": _MOST_FILES,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
