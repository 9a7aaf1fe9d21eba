"""Base of all sessions: numbers of calls, limits, history and snapshots."""

import asyncio
import hashlib
import json
import secrets
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from batonflow.tools.base import BaseTool
from batonflow.tools.code.base import (
    Calls,
    Done,
    ExecutorStateError,
    Failed,
    FailureKind,
    HostCall,
    Limits,
    Output,
    Problem,
    Session,
    SnapshotMismatchError,
    SnapshotSignatureError,
    Turn,
    Waiting,
)
from batonflow.tools.code.functions import CodeFunction, code_functions
from batonflow.tools.code.history import LONGEST, Outcome, Ran, Snippet, as_json, error_outcome
from batonflow.tools.code.signing import check_key, process_key, sign, verify
from batonflow.tools.code.worker import LARGEST_VALUE, TOO_LARGE, jsonable

__all__ = ["BaseExecutor", "BaseSession", "Broke", "Effect", "Ended", "Pending", "RawCall", "Setup", "Step"]

LONGEST_CODE = 1024 * 1024

Effect = Literal["kept", "half", "undone", "lost"]
"""State of a session after a failure. In order: all effects of the snippet; all of them, but not exactly repeatable,
because it was stopped; the state before the snippet; no state."""


@dataclass(frozen=True)
class RawCall:
    """A call as the interpreter reports it."""

    ref: int
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Pending:
    """The code waits until calls are answered; ``calls`` are the new ones."""

    calls: Sequence[RawCall]


@dataclass(frozen=True)
class Ended:
    """The snippet ended with a value."""

    value: Any


@dataclass(frozen=True)
class Broke:
    """The snippet failed."""

    kind: FailureKind
    text: str
    effect: Effect = "kept"


Step = Pending | Ended | Broke


@dataclass(frozen=True)
class Setup:
    """Arguments of a new session."""

    executor: str
    version: str
    functions: dict[str, CodeFunction]
    limits: Limits
    run_id: str
    key: bytes
    seed: str


class BaseSession(ABC):
    """Base of sessions; subclasses interpret the code."""

    # Seconds until a snippet is stopped from outside if the interpreter has not stopped it itself.
    _grace = 0.0

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._limits = setup.limits
        self._snippet = 0
        self._open: dict[str, Ran] = {}
        self._output = Output(setup.limits.output_bytes)
        self._seconds_left = 0.0
        # None if the history cannot be repeated: a snippet was stopped at an unknown point.
        self._history: list[Snippet] | None = []
        self._record = Snippet("")
        self._clock: deque[float] = deque()
        self._work: asyncio.Future[Any] | None = None
        self._stop: asyncio.Future[None] | None = None
        self._resting = asyncio.Event()
        self._resting.set()
        self._cut_off = False
        self._closed = False

    # Methods of subclasses

    @abstractmethod
    async def launch(self) -> None:
        """Start an interpreter."""

    @abstractmethod
    async def _ready(self) -> None:
        """Replace a lost interpreter; the snippet's time does not include this."""

    @abstractmethod
    async def _begin(self, code: str) -> Step:
        """Run a snippet until it waits or ends."""

    @abstractmethod
    async def _deliver(self, outcomes: Sequence[tuple[int, Outcome]]) -> Step:
        """Answer calls, by the interpreter's own numbers, and run until the code waits or ends."""

    @abstractmethod
    async def _halt(self, work: "asyncio.Future[Any] | None") -> Broke | Ended:
        """Stop the running or waiting code, and return the remaining state."""

    @abstractmethod
    async def _problems(self, code: str) -> list[Problem]:
        """See :meth:`check`."""

    @abstractmethod
    async def _release(self) -> None:
        """Free the interpreter."""

    async def _state(self, *, release: bool) -> tuple[dict[str, Any], list[bytes]] | None:
        """Return the interpreter's state, or None if it cannot be saved; see :meth:`snapshot`."""
        del release
        return None

    async def _load(self, state: dict[str, Any], blobs: list[bytes]) -> bool:
        """Load a state of :meth:`_state`; return False if it is not readable any more."""
        del state, blobs
        return False

    # The protocol

    @property
    def run_id(self) -> str:
        """The run of the session."""
        return self._setup.run_id

    @property
    def snippet(self) -> int:
        """Number of the current or last snippet."""
        return self._snippet

    @property
    def code(self) -> str:
        """Text of the current or last snippet."""
        return self._record.code

    @property
    def made(self) -> tuple[HostCall, ...]:
        """All calls of the snippet, in the order in which it made them."""
        return tuple(self._host_call(ran) for ran in self._record.calls)

    @property
    def pending(self) -> tuple[HostCall, ...]:
        """Calls without an answer."""
        return tuple(self._host_call(ran) for ran in self._open.values())

    async def check(self, code: str) -> list[Problem]:
        """See :class:`~batonflow.tools.code.base.Session`."""
        self._require_rest()
        if self._cut_off:
            self._settle(await self._halt(None))
        if len(code) > LONGEST_CODE:
            return [Problem(f"the code has {len(code)} characters; at most {LONGEST_CODE} are run")]
        self._resting.clear()
        self._work = asyncio.ensure_future(self._problems(code))
        try:
            return await self._work
        finally:
            self._work = None
            self._resting.set()

    async def start(self, code: str) -> Turn:
        """See :class:`~batonflow.tools.code.base.Session`."""
        self._require_rest()
        if self._cut_off:
            self._settle(await self._halt(None))
        await self._ready()
        self._snippet += 1
        self._open = {}
        self._output = Output(self._limits.output_bytes)
        self._seconds_left = self._limits.seconds
        self._record = Snippet(code)
        if len(code) > LONGEST_CODE:
            text = f"SyntaxError: the code has {len(code)} characters; at most {LONGEST_CODE} are run"
            return Failed("syntax", text)
        if self._history is not None:
            self._history.append(self._record)
        return await self._turn(self._advance(self._begin(code)))

    async def answer(self, answers: Mapping[str, Any]) -> Turn:
        """See :class:`~batonflow.tools.code.base.Session`."""
        self._require_use()
        if self._cut_off:
            return self._ended(self._settle(await self._halt(None)), "interrupted", "interrupted")
        unknown = [one for one in answers if one not in self._open]
        if unknown or not answers:
            known = ", ".join(self._open) or "none"
            raise ExecutorStateError(
                f"answer({', '.join(map(str, unknown)) or 'nothing'}): give answers of pending calls ({known})"
            )
        return await self._resume([(self._open[one].number, _outcome(value)) for one, value in answers.items()])

    async def snapshot(self, *, release: bool = True) -> bytes | None:
        """See :class:`~batonflow.tools.code.base.Session`."""
        self._require_use()
        history = None if self._history is None else as_json(self._history, running=self._record)
        if history is not None and len(history) > LONGEST:
            history = None
        state, blobs = await self._state(release=release) or (None, [])
        if state is None and history is None:
            return None
        setup = self._setup
        told_last = history is not None and bool(self._history) and self._history[-1] is self._record
        header = {
            "executor": setup.executor,
            "version": setup.version,
            "run_id": setup.run_id,
            "snippet": self._snippet,
            "tools": {name: one.tool_name for name, one in setup.functions.items()},
            "limits": asdict(self._limits),
            "seed": setup.seed,
            "open": [ran.number for ran in self._open.values()],
            "seconds_left": self._seconds_left,
            "output": ["".join(self._output.parts), self._output.cut],
            "cut_off": self._cut_off,
            "record": None if told_last else self._record.to_dict(),
            "state": state,
        }
        blobs = [b"" if history is None else history.encode(), *blobs]
        header["blobs"] = [len(one) for one in blobs]
        head = json.dumps(header).encode()
        return sign(setup.key, b"".join([len(head).to_bytes(8, "big"), head, *blobs]))

    def interrupt(self) -> None:
        """See :class:`~batonflow.tools.code.base.Session`. From another thread: ``loop.call_soon_threadsafe``."""
        if self._stop is not None:
            if not self._stop.done():
                self._stop.set_result(None)
        elif self._open:
            self._cut_off = True

    async def aclose(self) -> None:
        """See :class:`~batonflow.tools.code.base.Session`."""
        self._closed = True
        self._open = {}
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(None)
        await self._resting.wait()
        await self._release()

    # Turns

    def _require_use(self) -> None:
        if self._closed:
            raise ExecutorStateError(f"the session of run {self.run_id!r} is closed: open another")
        if self._work is not None:
            raise ExecutorStateError(f"the code of run {self.run_id!r} is running: await its turn first")

    def _require_rest(self) -> None:
        self._require_use()
        if self._open and not self._cut_off:
            raise ExecutorStateError(
                f"snippet {self._snippet} of run {self.run_id!r} waits for {', '.join(self._open)}: answer or interrupt"
            )

    def _host_call(self, ran: Ran) -> HostCall:
        function = self._setup.functions[ran.function]
        return HostCall(f"{self.run_id}/{self._snippet}/{ran.number}", function.tool_name, ran.arguments)

    async def _resume(self, outcomes: list[tuple[int, Outcome]]) -> Turn:
        by_number = {ran.number: (one, ran.ref) for one, ran in self._open.items()}
        refs: list[tuple[int, Outcome]] = []
        for number, outcome in outcomes:
            one, ref = by_number[number]
            del self._open[one]
            refs.append((ref, outcome))
        self._record.answers.append(outcomes)
        return await self._turn(self._advance(self._deliver(refs)))

    async def _advance(self, begun: Coroutine[Any, Any, Step]) -> Turn | Ended | Broke:
        """Continue until calls are needed or the snippet ends; invalid calls are answered here."""
        step = await begun
        made: list[HostCall] = []
        while isinstance(step, Pending):
            refused: list[tuple[int, Outcome]] = []
            for raw in step.calls:
                if len(self._record.calls) >= self._limits.calls:
                    stopped = await self._halt(None)
                    text = f"the snippet made more than {self._limits.calls} tool calls"
                    return Broke("limit", text, stopped.effect if isinstance(stopped, Broke) else "half")
                outcome = self._admit(raw, made)
                if outcome is not None:
                    refused.append((raw.ref, outcome))
            if not refused:
                return Calls(tuple(made)) if made else Waiting(tuple(self._open))
            step = await self._deliver(refused)
        return step

    def _admit(self, raw: RawCall, made: list[HostCall]) -> Outcome | None:
        function = self._setup.functions.get(raw.name)
        if function is None:
            return error_outcome(NameError(f"name {raw.name!r} is not defined"))
        try:
            arguments = jsonable(function.bind(raw.args, raw.kwargs))
        except TypeError as err:
            return error_outcome(err)
        size = len(json.dumps(arguments))
        if size > LARGEST_VALUE:
            too_large = TOO_LARGE.format(size=size, most=LARGEST_VALUE)
            return error_outcome(ValueError(f"arguments of {raw.name}() {too_large}"))
        ran = Ran(len(self._record.calls) + 1, raw.ref, raw.name, arguments)
        self._record.calls.append(ran)
        call = self._host_call(ran)
        self._open[call.id] = ran
        made.append(call)
        return None

    async def _turn(self, work: Coroutine[Any, Any, Turn | Ended | Broke]) -> Turn:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._work = asyncio.ensure_future(work)
        self._stop = loop.create_future()
        self._resting.clear()
        try:
            await asyncio.wait(
                {self._work, self._stop},
                timeout=max(self._seconds_left, 0) + self._grace,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if self._work.done():
                return self._ended(self._settle(self._work.result()))
            kind: FailureKind = "interrupted" if self._stop.done() else "limit"
            text = "interrupted" if kind == "interrupted" else self._too_long
            return self._ended(self._settle(await self._halt(self._work)), kind, text)
        except asyncio.CancelledError:
            self._settle(await self._halt(self._work))
            raise
        finally:
            self._seconds_left -= loop.time() - began
            self._work = self._stop = None
            self._resting.set()

    @property
    def _too_long(self) -> str:
        return f"TimeoutError: the snippet ran for more than {self._limits.seconds:g} seconds"

    def _settle(self, outcome: Turn | Ended | Broke) -> Turn | Ended | Broke:
        if isinstance(outcome, Calls | Waiting):
            return outcome
        self._open = {}
        self._cut_off = False
        if isinstance(outcome, Broke):
            if outcome.effect == "half":
                self._history = None
            elif outcome.effect == "lost":
                self._history = []
            elif outcome.effect == "undone" and self._history:
                self._history.pop()
        return outcome

    def _ended(self, outcome: Turn | Ended | Broke, kind: FailureKind | None = None, text: str = "") -> Turn:
        if isinstance(outcome, Ended):
            return Done(self._output.text, _fitting(outcome.value))
        if isinstance(outcome, Broke):
            notes = {
                "undone": "The changes of the snippet are undone; earlier variables are unchanged.",
                "lost": "The interpreter had to be stopped: all variables are lost.",
                "half": "The snippet was stopped; its changes so far remain.",
            }
            said = [text or outcome.text, notes.get(outcome.effect, "")]
            return Failed(
                kind or outcome.kind, "\n".join(filter(None, said)), outcome.effect == "lost", self._output.text
            )
        return outcome

    def now(self) -> float:
        """Seconds since 1970, recorded for a repetition of the snippet."""
        moment = self._clock.popleft() if self._clock else time.time()
        self._record.clock.append(moment)
        return moment

    # Going on from a snapshot

    async def restore(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        """Restore the session of a snapshot.

        Raises:
            SnapshotMismatchError: The snippets must run again, and cannot or took another course.
        """
        told, *blobs = blobs
        history = [Snippet.from_dict(one) for one in json.loads(told)] if told else None
        state: dict[str, Any] | None = header["state"] if header["version"] == self._setup.version else None
        if state is not None and await self._load(state, blobs):
            self._history = history
            # The record of a running snippet is the last one of the history and grows there.
            record = history[-1] if history and header["record"] is None else Snippet.from_dict(header["record"])
            self._record = record
            self._snippet = header["snippet"]
            self._open = {
                f"{self.run_id}/{self._snippet}/{ran.number}": ran
                for ran in record.calls
                if ran.number in header["open"]
            }
        else:
            await self._repeat(header, history)
        text, cut = header["output"]
        # In place, because the interpreter may already be writing to it.
        self._output.parts[:] = [text]
        self._output.size, self._output.cut = len(text.encode()), cut
        self._seconds_left = header["seconds_left"]
        self._cut_off = header["cut_off"]

    async def _repeat(self, header: dict[str, Any], past: list[Snippet] | None) -> None:
        if past is None:
            raise SnapshotMismatchError(
                f"the snapshot is of {header['executor']} {header['version']}, this is {self._setup.version}, and its "
                "snippets were not kept: use the version that wrote it, or open a new session"
            )
        # Snippets without effects are not in the history; their numbers are used nevertheless.
        self._snippet = header["snippet"] - len(past)
        waiting = set(header["open"])
        for number, one in enumerate(past, start=1):
            self._clock = deque(one.clock)
            turn = await self.start(one.code)
            for batch in one.answers:
                if not isinstance(turn, Calls | Waiting) or any(
                    ran not in {known.number for known in self._open.values()} for ran, _ in batch
                ):
                    raise self._other_course(header)
                turn = await self._resume(batch)
            self._clock.clear()
            expected = waiting if number == len(past) else set[int]()
            calls = [(ran.number, ran.function, ran.arguments) for ran in self._record.calls]
            if {ran.number for ran in self._open.values()} != expected or calls != [
                (ran.number, ran.function, ran.arguments) for ran in one.calls
            ]:
                raise self._other_course(header)
        if not past:
            self._snippet = header["snippet"]

    def _other_course(self, header: dict[str, Any]) -> SnapshotMismatchError:
        return SnapshotMismatchError(
            f"snippet {self._snippet} of run {self.run_id!r} was run again (it was recorded by {header['executor']} "
            f"{header['version']}, this is {self._setup.version}) and made other calls than recorded"
        )


class BaseExecutor(ABC):
    """Base of all executors: check snapshots before their content is used, and open sessions.

    Args:
        key: The signing key of snapshots, 16 bytes or more.
    """

    name: str
    durable: bool
    parallel: bool = True
    full_python: bool

    def __init__(self, key: bytes | None = None) -> None:
        self._key = None if key is None else check_key(key)

    @property
    @abstractmethod
    def hints(self) -> str:
        """Abilities and limits of the code, for the prompt."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The interpreter's version: states of other versions are not read; their snippets run again."""

    @abstractmethod
    def _session(self, setup: Setup) -> BaseSession:
        """Return a session without an interpreter."""

    async def open(
        self,
        tools: Sequence[BaseTool] = (),
        limits: Limits | None = None,
        restore: bytes | None = None,
        *,
        run_id: str | None = None,
        key: bytes | None = None,
    ) -> Session:
        """Open a session; see :class:`~batonflow.tools.code.base.Executor`.

        Example:
            >>> session = await MontyExecutor().open([add], Limits(seconds=5.0))
            >>> turn = await session.start("await add(1, 2)")
        """
        chosen = self._key or (process_key() if key is None else check_key(key))
        setup = Setup(
            executor=self.name,
            version=self.version,
            functions=code_functions(tools),
            limits=limits or Limits(),
            run_id=run_id or secrets.token_hex(8),
            key=chosen,
            # Derived from the run: the first snippet of a run has no snapshot that could hold the seed.
            seed=secrets.token_hex(16) if run_id is None else hashlib.sha256(run_id.encode()).hexdigest()[:32],
        )
        header: dict[str, Any] | None = None
        blobs: list[bytes] = []
        if restore is not None:
            header, blobs = _unpacked(verify(chosen, restore))
            setup = _as_written(setup, header, run_id)
        session = self._session(setup)
        try:
            await session.launch()
            if header is not None:
                await session.restore(header, blobs)
        except BaseException:
            await session.aclose()
            raise
        return session


def _unpacked(content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    length = int.from_bytes(content[:8], "big")
    header = json.loads(content[8 : 8 + length])
    at = 8 + length
    blobs: list[bytes] = []
    for size in header["blobs"]:
        blobs.append(content[at : at + size])
        at += size
    return header, blobs


def _as_written(setup: Setup, header: dict[str, Any], run_id: str | None) -> Setup:
    if run_id is not None and run_id != header["run_id"]:
        raise SnapshotSignatureError(f"the snapshot belongs to run {header['run_id']!r}, not to {run_id!r}")
    if header["executor"] != setup.executor:
        raise SnapshotMismatchError(
            f"the snapshot is of the executor {header['executor']!r}, this is {setup.executor!r}"
        )
    there = {name: one.tool_name for name, one in setup.functions.items()}
    missing = [tool for name, tool in header["tools"].items() if there.get(name) != tool]
    if missing:
        raise SnapshotMismatchError(
            f"the snapshot of run {header['run_id']!r} needs the tools {', '.join(missing)}: give them to open()"
        )
    return replace(setup, limits=Limits(**header["limits"]), run_id=header["run_id"], seed=header["seed"])


def _outcome(value: Any) -> Outcome:
    if isinstance(value, BaseException):
        return error_outcome(value)
    plain = jsonable(value)
    size = len(json.dumps(plain))
    if size > LARGEST_VALUE:
        return error_outcome(ValueError(f"result {TOO_LARGE.format(size=size, most=LARGEST_VALUE)}"))
    return {"value": plain}


def _fitting(value: Any) -> Any:
    plain = jsonable(value)
    size = len(json.dumps(plain))
    return plain if size <= LARGEST_VALUE else f"<value {TOO_LARGE.format(size=size, most=LARGEST_VALUE)}>"
