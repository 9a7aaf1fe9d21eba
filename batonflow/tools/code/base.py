"""What an executor of code is: limits, the turns a snippet takes, and the errors.

::

    ExecutorError (ToolError)
    ├── SandboxUnavailableError           there is no sandbox here; the message says what to install
    ├── ExecutorStateError (RuntimeError) a session was asked for what it cannot do now
    └── SnapshotError (ValueError)        a snapshot cannot be restored
        ├── SnapshotSignatureError        ... it was altered, or signed with another key, or is of another run
        └── SnapshotMismatchError         ... a tool is missing, or running the snippets again took another course

What goes wrong inside the code is no exception here: it is a :class:`Failed` turn, to be shown to the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from batonflow.tools.base import BaseTool
from batonflow.tools.errors import ToolError

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
    """There is no sandbox on this machine; the message says why and what to install."""


class ExecutorStateError(ExecutorError, RuntimeError):
    """A session was asked for something it cannot do in its present state."""


class SnapshotError(ExecutorError, ValueError):
    """A snapshot cannot be restored."""


class SnapshotSignatureError(SnapshotError):
    """A snapshot was altered, was signed with another key, or belongs to another run; nothing of it was loaded."""


class SnapshotMismatchError(SnapshotError):
    """A snapshot is genuine and still cannot go on here; the message says what differs."""


@dataclass(frozen=True)
class Limits:
    """What the code may use.

    Args:
        seconds: Time each snippet may run, not counting the time it waits for answers to its calls.
        memory_mb: Memory of the session, in MiB.
        output_bytes: Printed text kept of each snippet, in bytes of UTF-8; what is beyond it is dropped.
        calls: Tool calls each snippet may make.

    Raises:
        ValueError: One of them is not positive.

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
    """A call of a tool that the code waits for.

    Args:
        id: ``run/snippet/call``: the same again when the run is restored; a key for journals and for idempotency.
        tool: The tool's own name.
        arguments: Its arguments by name, JSON-able and not validated.
    """

    id: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Calls:
    """The code has made calls and goes on when some are answered.

    Args:
        calls: Those made since the last turn, in the order in which the code made them.
    """

    calls: tuple[HostCall, ...]


@dataclass(frozen=True)
class Waiting:
    """The code has made no further call; it goes on when one of those still open is answered.

    Args:
        call_ids: The open ones.
    """

    call_ids: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """The snippet has ended. Calls still open at that time are no longer waited for.

    Args:
        output: What it printed.
        value: The value of its last expression, JSON-able; None when it ends in something else.
    """

    output: str
    value: Any = None


@dataclass(frozen=True)
class Failed:
    """The snippet did not come to its end. The next one can be started all the same.

    Args:
        kind: ``syntax`` (nothing ran), ``runtime`` (it raised), ``limit``, ``crash`` (the interpreter died) or
            ``interrupted``.
        text: What happened and where, for the model.
        session_lost: Whether the variables are gone: the next snippet meets an empty interpreter.
        output: What it had printed.
    """

    kind: FailureKind
    text: str
    session_lost: bool = False
    output: str = ""


Turn = Calls | Waiting | Done | Failed


@dataclass(frozen=True)
class Problem:
    """Something in a snippet that would not work, found without running it.

    Args:
        text: What is wrong, for the model.
        line: Where, from 1; None when it concerns the whole.
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
        pending: Calls that are not answered yet; after a restore, those the code waits for.
    """

    @property
    def run_id(self) -> str:
        """The run it belongs to."""
        ...

    @property
    def snippet(self) -> int:
        """Number of the snippet that runs or ran last."""
        ...

    @property
    def code(self) -> str:
        """Text of that snippet."""
        ...

    @property
    def made(self) -> tuple[HostCall, ...]:
        """Every call of that snippet, answered or not, in the order in which it made them."""
        ...

    @property
    def pending(self) -> tuple[HostCall, ...]:
        """Calls that are not answered yet."""
        ...

    async def check(self, code: str) -> list[Problem]:
        """Problems of ``code`` that can be seen without running it; an empty list when there are none."""
        ...

    async def start(self, code: str) -> Turn:
        """Run a snippet up to its first calls or its end.

        Raises:
            ExecutorStateError: Another snippet is not at its end yet, or the session is closed.
        """
        ...

    async def answer(self, answers: Mapping[str, Any]) -> Turn:
        """Give results of calls to the code and let it go on.

        Args:
            answers: By call id, at least one. An exception is raised where the code awaits the call, as the nearest
                builtin type; every other value is made JSON-able.

        Raises:
            ExecutorStateError: No snippet is waiting, or an id is not among the pending ones.
        """
        ...

    async def snapshot(self, *, release: bool = True) -> bytes | None:
        """The session in bytes, signed, for ``open(restore=...)``; None when it cannot be told in bytes.

        Args:
            release: Whether a session that waits for answers gives back what it does not need meanwhile, as its
                process. It goes on with either; with False more quickly.

        Raises:
            ExecutorStateError: The code is running at this moment.
        """
        ...

    def interrupt(self) -> None:
        """End the snippet: the ``start`` or ``answer`` under way, or else the next ``answer``, gives ``Failed``."""
        ...

    async def aclose(self) -> None:
        """Give back everything the session holds; may be called again."""
        ...


@runtime_checkable
class Executor(Protocol):
    """Something that runs code, one session per run.

    Attributes:
        name: What it is called in snapshots and in the prompt.
        durable: Whether a snapshot holds the interpreter's state itself. When not, it holds the snippets and the
            answers, and restoring runs the snippets again.
        parallel: Whether several calls can be open at once.
        full_python: Whether everything of Python works, packages included.
        hints: What the code can and cannot do, for the prompt.
    """

    name: str
    durable: bool
    parallel: bool
    full_python: bool

    @property
    def hints(self) -> str:
        """What the code can and cannot do, for the prompt."""
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
            tools: What the code may call; they are called by whoever answers, never here.
            limits: What the code may use. A restored session keeps its own.
            restore: A snapshot to go on from.
            run_id: The run the session belongs to; made up by default. A snapshot of another run is refused.
            key: What snapshots are signed with, when the executor was given none; by default a key that this
                process made up.

        Raises:
            SnapshotSignatureError: The snapshot is not one that this key signed for this run.
            SnapshotMismatchError: The snapshot needs a tool that is not given, or its snippets, run again, took
                another course.
            SandboxUnavailableError: The sandbox does not start here.
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
        """Keep ``text``, or what of it still fits."""
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
        """What was kept, with a note when that is not all."""
        kept = "".join(self.parts)
        return f"{kept}\n[output cut at {self.limit} bytes]" if self.cut else kept
