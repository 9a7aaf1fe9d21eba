"""Protocols of code executors: limits, turns of a snippet, and errors.

::

    ExecutorError (ToolError)
    ├── SandboxUnavailableError           the machine has no sandbox; the message names packages to install
    ├── ExecutorStateError (RuntimeError) a session cannot do this in its present state
    └── SnapshotError (ValueError)        a snapshot cannot be restored
        ├── SnapshotSignatureError        ... it was altered, or signed with another key, or is of another run
        └── SnapshotMismatchError         ... a tool is missing, or the snippets took another course when they ran again

An error inside the code is not raised: it is a :class:`Failed` turn for the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from batonflow.tools.base import BaseTool
from batonflow.tools.schema import ToolError

__all__ = [
    "Calls",
    "Done",
    "Executor",
    "ExecutorError",
    "ExecutorStateError",
    "Failed",
    "FailureKind",
    "HostCall",
    "Limits",
    "Output",
    "Problem",
    "SandboxUnavailableError",
    "Session",
    "SnapshotError",
    "SnapshotMismatchError",
    "SnapshotSignatureError",
    "Turn",
    "Waiting",
]

FailureKind = Literal["syntax", "runtime", "limit", "crash", "interrupted"]


class ExecutorError(ToolError):
    """Code cannot be executed."""


class SandboxUnavailableError(ExecutorError):
    """The machine has no sandbox; the message gives the reason and a remedy."""


class ExecutorStateError(ExecutorError, RuntimeError):
    """A session cannot do this in its present state."""


class SnapshotError(ExecutorError, ValueError):
    """A snapshot cannot be restored."""


class SnapshotSignatureError(SnapshotError):
    """A snapshot was altered, signed with another key, or belongs to another run; nothing of it was loaded."""


class SnapshotMismatchError(SnapshotError):
    """A genuine snapshot does not fit this environment; the message names the difference."""


@dataclass(frozen=True)
class Limits:
    """Resource limits of the code.

    Args:
        seconds: Time limit of each snippet, without the time that it waits for answers to its calls.
        memory_mb: Memory of the session, in MiB.
        output_bytes: Printed text kept of each snippet, in bytes of UTF-8; the rest is dropped.
        calls: Largest number of tool calls of each snippet.

    Raises:
        ValueError: A limit is not positive.

    Example:
        >>> Limits(seconds=2.0, memory_mb=128).calls
        1000
    """

    seconds: float = 30.0
    memory_mb: int = 256
    output_bytes: int = 65_536
    calls: int = 1000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"Limits({name}={value!r}): must be more than 0")


@dataclass(frozen=True)
class HostCall:
    """A tool call that the code waits for.

    Args:
        id: ``run/snippet/call``: equal after a restore; a key for journals and for idempotency.
        tool: The tool's own name.
        arguments: Its arguments by name, JSON-able and not validated.
    """

    id: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Calls:
    """Turn in which the code has made calls; it continues when some are answered.

    Args:
        calls: The calls since the last turn, in the order in which the code made them.
    """

    calls: tuple[HostCall, ...]


@dataclass(frozen=True)
class Waiting:
    """Turn without new calls; the code continues when an open call is answered.

    Args:
        call_ids: The open calls.
    """

    call_ids: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """Turn at the end of the snippet. Open calls are no longer awaited.

    Args:
        output: The printed text.
        value: The value of its last expression, as JSON data; None if it ends with another statement.
    """

    output: str
    value: Any = None


@dataclass(frozen=True)
class Failed:
    """Turn of a snippet that failed. The next one can be started nevertheless.

    Args:
        kind: ``syntax`` (nothing ran), ``runtime`` (it raised), ``limit``, ``crash`` (the interpreter died) or
            ``interrupted``.
        text: The error and its place, for the model.
        session_lost: True if the variables are lost: the next snippet begins in an empty interpreter.
        output: The printed text.
    """

    kind: FailureKind
    text: str
    session_lost: bool = False
    output: str = ""


Turn = Calls | Waiting | Done | Failed


@dataclass(frozen=True)
class Problem:
    """A problem in a snippet, found without running it.

    Args:
        text: The problem, for the model.
        line: Its line, from 1; None for the whole snippet.
    """

    text: str
    line: int | None = None

    def __str__(self) -> str:
        return self.text if self.line is None else f"line {self.line}: {self.text}"


class Session(Protocol):
    """An interpreter for one run: snippets share their variables. One method is awaited at a time.

    Attributes:
        run_id: The run it belongs to.
        snippet: Number of the snippet that runs or ran last; the first is 1.
        code: Its text.
        made: Every call it has made, answered or not.
        pending: Calls without an answer; after a restore, the calls that the code waits for.
    """

    @property
    def run_id(self) -> str:
        """The run of the session."""
        ...

    @property
    def snippet(self) -> int:
        """Number of the current or last snippet."""
        ...

    @property
    def code(self) -> str:
        """Text of the current or last snippet."""
        ...

    @property
    def made(self) -> tuple[HostCall, ...]:
        """All calls of the snippet, in the order in which it made them."""
        ...

    @property
    def pending(self) -> tuple[HostCall, ...]:
        """Calls without an answer."""
        ...

    async def check(self, code: str) -> list[Problem]:
        """Return problems of ``code`` that can be found without running it."""
        ...

    async def start(self, code: str) -> Turn:
        """Run a snippet up to its first calls or its end.

        Raises:
            ExecutorStateError: Another snippet has not ended, or the session is closed.
        """
        ...

    async def answer(self, answers: Mapping[str, Any]) -> Turn:
        """Pass results of calls to the code, and let it continue.

        Args:
            answers: Values by call id, at least one. An exception is raised where the code awaits the call, as the
                nearest builtin type; other values are converted to JSON data.

        Raises:
            ExecutorStateError: No snippet is waiting, or a call with such an id is not pending.
        """
        ...

    async def snapshot(self, *, release: bool = True) -> bytes | None:
        """Return the signed snapshot for ``open(restore=...)``, or None if the session has no saveable form.

        Args:
            release: Free resources of a waiting session, such as its process. The session continues in both
                cases, with False more quickly.

        Raises:
            ExecutorStateError: The code is running.
        """
        ...

    def interrupt(self) -> None:
        """End the snippet: the present ``start`` or ``answer``, or else the next ``answer``, returns ``Failed``."""
        ...

    async def aclose(self) -> None:
        """Free all resources of the session; may be called again."""
        ...


@runtime_checkable
class Executor(Protocol):
    """A runner of code, with one session per run.

    Attributes:
        name: Its name in snapshots and in the prompt.
        durable: True if a snapshot holds the interpreter's state. Otherwise it holds the snippets and the answers,
            and restoring runs the snippets again.
        parallel: True if several calls can be open at once.
        full_python: True if all of Python works, including packages.
        hints: Abilities and limits of the code, for the prompt.
    """

    name: str
    durable: bool
    parallel: bool
    full_python: bool

    @property
    def hints(self) -> str:
        """Abilities and limits of the code, for the prompt."""
        ...

    async def open(
        self,
        tools: Sequence[BaseTool] = (),
        limits: Limits = ...,
        restore: bytes | None = None,
        *,
        run_id: str | None = None,
        key: bytes | None = None,
    ) -> Session:
        """Open a session.

        Args:
            tools: Tools for the code; the caller executes the calls and answers them.
            limits: Resource limits of the code. A restored session keeps its own.
            restore: A snapshot to continue from.
            run_id: The run of the session; generated by default. A snapshot of another run is refused.
            key: The signing key of snapshots if the executor has no key; by default a random key of this process.

        Raises:
            SnapshotSignatureError: The snapshot was not signed with this key for this run.
            SnapshotMismatchError: The snapshot needs a tool that is missing, or its snippets took another course
                when they ran again.
            SandboxUnavailableError: The sandbox does not start.
            ToolDefinitionError: Two tools would have the same name in the code.
        """
        ...


@dataclass
class Output:
    """The printed text of one snippet, up to a limit.

    Args:
        limit: Bytes kept.
    """

    limit: int
    parts: list[str] = field(default_factory=list[str])
    size: int = 0
    cut: bool = False

    def write(self, text: str) -> None:
        """Keep ``text``, as far as the limit allows."""
        data = text.encode("utf-8", "replace")
        room = self.limit - self.size
        if len(data) > room:
            self.cut = True
            data = data[:room]
        self.size += len(data)
        if data:
            self.parts.append(data.decode("utf-8", "ignore"))

    @property
    def text(self) -> str:
        """Return the kept text, with a note if some was dropped."""
        kept = "".join(self.parts)
        return f"{kept}\n[output cut at {self.limit} bytes]" if self.cut else kept
