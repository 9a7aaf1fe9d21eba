"""The program that runs code in a separate process; it uses only Python's standard library.

It reads orders from its standard input and writes turns to its standard output, one JSON object per line. The code
shares the process and could write there too: readers must not trust the output.
"""

import ast
import asyncio
import base64
import builtins
import contextlib
import inspect
import io
import json
import linecache
import math
import os
import random
import selectors
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from types import CodeType, FrameType
from typing import Any, cast

__all__ = ["LARGEST_VALUE", "TOO_LARGE", "exception_of", "jsonable"]

LARGEST_VALUE = 4 * 1024 * 1024
TOO_LARGE = "of {size} bytes; at most {most} can pass between code and tools: pass less, or in parts"
_DEEPEST = 60
_LONGEST_INT = 14_000
_TEXT_OF_OTHERS = 200
_LONGEST_ERROR = 8000
_CHUNK = 65536
_PR_SET_PDEATHSIG = 1


def jsonable(value: Any, depth: int = 0) -> Any:
    """Convert a value between the code and the tools to JSON data.

    Tuples, sets and other collections become lists, models and dataclasses dicts, dates ISO texts, time spans
    seconds, enums their values, arrays lists, bytes text (base64 if they are not UTF-8); Decimal, UUID, paths and
    numbers without a JSON form become their text, other objects their ``repr``, cut at 200 characters.
    """
    kind = cast("type[Any]", type(value))
    if value is None or kind is bool:
        return value
    if issubclass(kind, Enum):
        return jsonable(value.value, depth + 1)
    if issubclass(kind, str):
        return str.__str__(value).encode("utf-8", "replace").decode()
    if issubclass(kind, int):
        # Python refuses to write longer ones in decimal, and JSON has no other form.
        return int(value) if value.bit_length() < _LONGEST_INT else hex(value)
    if issubclass(kind, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth > _DEEPEST:
        return "..."
    if issubclass(kind, Mapping):
        return {_key(key): jsonable(one, depth + 1) for key, one in value.items()}
    if issubclass(kind, bytes | bytearray | memoryview):
        return _text(bytes(value))
    if issubclass(kind, set | frozenset):
        return sorted((jsonable(one, depth + 1) for one in value), key=repr)
    if issubclass(kind, list | tuple | deque | range):
        return [jsonable(one, depth + 1) for one in value]
    if issubclass(kind, date | time):
        return value.isoformat()
    if issubclass(kind, timedelta):
        return value.total_seconds()
    return _jsonable_object(value, kind, depth)


def _jsonable_object(value: Any, kind: type[Any], depth: int) -> Any:
    if kind.__name__ == "MontyClassProxy":
        return jsonable(value.attributes, depth + 1)
    if is_dataclass(kind):
        return {one.name: jsonable(getattr(value, one.name), depth + 1) for one in fields(kind)}
    # Models, tables and arrays are recognized by their methods: their packages need not be installed.
    for method, arguments in (("model_dump", {"mode": "json"}), ("to_dict", {"orient": "records"}), ("tolist", {})):
        if callable(getattr(kind, method, None)):
            with contextlib.suppress(Exception):
                return jsonable(getattr(value, method)(**arguments), depth + 1)
    if kind.__module__.partition(".")[0] in {"decimal", "uuid", "fractions", "pathlib"} or issubclass(kind, complex):
        return str(value)
    try:
        text = repr(value)
    except Exception as err:  # noqa: BLE001 - the value's own __repr__
        text = f"<{kind.__name__} with a repr that raised {type(err).__name__}>"
    return text if len(text) <= _TEXT_OF_OTHERS else f"{text[:_TEXT_OF_OTHERS]}..."


def _key(key: Any) -> str:
    plain = jsonable(key, _DEEPEST)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


class _Channel:
    """The lines from and to the host."""

    def __init__(self) -> None:
        # The usual descriptors are redirected, so that output of libraries cannot break a line.
        self._in, self._out = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.close(nothing)
        self._buffer = b""
        self._lines: deque[bytes] = deque()

    @property
    def descriptor(self) -> int:
        return self._in

    def send(self, **message: Any) -> None:
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        while data:
            data = data[os.write(self._out, data) :]

    def fill(self) -> None:
        """Read available lines; end the program when the host has gone."""
        data = os.read(self._in, _CHUNK)
        if not data:
            os._exit(0)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._lines += lines

    def received(self) -> Iterable[dict[str, Any]]:
        while self._lines:
            yield json.loads(self._lines.popleft())

    def wait(self) -> dict[str, Any]:
        while not self._lines:
            self.fill()
        message: dict[str, Any] = json.loads(self._lines.popleft())
        return message


class _Printed(io.TextIOBase):
    """``sys.stdout`` and ``sys.stderr`` of the code."""

    def __init__(self, channel: _Channel, limit: int) -> None:
        self._channel = channel
        self._limit = limit
        self._parts: list[str] = []
        self._held = 0
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        # The host cuts exactly; this limit only reduces the traffic.
        if self.size <= self._limit:
            self._parts.append(str(text)[: self._limit + 1])
            self._held += len(text)
            if self._held > _CHUNK // 4:
                self.flush()
        self.size += len(text)
        return len(text)

    def flush(self) -> None:
        if self._parts:
            text, self._parts, self._held = "".join(self._parts), [], 0
            self._channel.send(out=text)


class _Idle(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """Selector that reports an idle event loop, which is the end of a turn."""

    def __init__(self, idle: Callable[[], None]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout > 0:
            self._idle()
        return super().select(timeout)


class _Worker:
    """The interpreter: one namespace, one event loop, one snippet at a time."""

    def __init__(self) -> None:
        self.channel = _Channel()
        setup = self.channel.wait()
        self.printed = _Printed(self.channel, setup["output_bytes"])
        sys.stdout = sys.stderr = self.printed
        if setup["host"] is not None:
            _die_with(setup["host"])
        _limit_resources(setup)
        sys.path += setup["path"]
        random.seed(setup["seed"])
        self.globals: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        for name in setup["functions"]:
            self.globals[name] = self._function(name)
        self.loop = asyncio.SelectorEventLoop(_Idle(self._idle))
        self.loop.set_exception_handler(_ignore_unawaited)
        asyncio.set_event_loop(self.loop)
        self.loop.add_reader(self.channel.descriptor, self._readable)
        asyncio.run = self._run_in_loop
        self.snippet = 0
        self.open: dict[int, asyncio.Future[Any]] = {}
        self.unsent: list[dict[str, Any]] = []
        self.calls = 0
        self.turn_open = False
        self.interruptible = False
        signal.signal(signal.SIGINT, self._interrupted)

    def _function(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            message = {"name": name, "args": jsonable(args), "kwargs": jsonable(kwargs)}
            size = len(json.dumps(message))
            if size > LARGEST_VALUE:
                raise ValueError(f"arguments of {name}() {TOO_LARGE.format(size=size, most=LARGEST_VALUE)}")
            self.calls += 1
            number = self.calls
            self.unsent.append({"ref": number, **message})
            future = self.loop.create_future()
            self.open[number] = future
            return await future

        call.__name__ = call.__qualname__ = name
        return call

    def _run_in_loop(self, main: Any, *, debug: bool | None = None) -> Any:  # noqa: ARG002 - asyncio.run's signature
        if self.loop.is_running():
            if inspect.iscoroutine(main):
                main.close()
            raise RuntimeError("asyncio.run() cannot be called here: write `await main()` instead")
        return self.loop.run_until_complete(main)

    def _evaluated(self, code: CodeType) -> Any:
        value: Any = eval(code, self.globals)  # noqa: S307 - the purpose of this program
        return self.loop.run_until_complete(value) if code.co_flags & inspect.CO_COROUTINE else value

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        if self.interruptible:
            raise KeyboardInterrupt

    def _idle(self) -> None:
        if not self.turn_open or not (self.unsent or self.open):
            return
        self.turn_open = False
        self.printed.flush()
        calls, self.unsent = self.unsent, []
        self.channel.send(n=self.snippet, turn="calls", calls=calls)

    def _readable(self) -> None:
        self.channel.fill()
        for message in self.channel.received():
            if message["op"] != "answer" or message["n"] != self.snippet:
                continue
            self.turn_open = True
            for number, outcome in message["answers"]:
                future = self.open.pop(number, None)
                if future is None or future.done():
                    continue
                if "error" in outcome:
                    future.set_exception(exception_of(*outcome["error"]))
                else:
                    future.set_result(outcome["value"])

    def serve(self) -> None:
        self.channel.send(hello=sys.version_info[:3])
        while True:
            message = self.channel.wait()
            if message["op"] == "check":
                self.channel.send(turn="problems", **_problem(message["code"]))
            elif message["op"] == "run":
                self._start(message["n"], message["code"])

    def _start(self, number: int, code: str) -> None:
        self.snippet, self.calls, self.turn_open = number, 0, True
        self.printed.size = 0
        name = f"<snippet {number}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        try:
            try:
                compiled, last = _compiled(code, name)
            except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as err:
                turn: dict[str, Any] = {"turn": "failed", "kind": "syntax", "text": _error_text(err)}
            else:
                turn = self._execute(compiled, last)
        except KeyboardInterrupt:
            turn = {"turn": "failed", "kind": "interrupted", "text": "KeyboardInterrupt"}
        finally:
            self.interruptible = False
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.open, self.unsent, self.turn_open = {}, [], False
        self.printed.flush()
        self.channel.send(n=self.snippet, **turn)

    def _execute(self, body: CodeType, last: CodeType | None) -> dict[str, Any]:
        try:
            self.interruptible = True
            value = self._evaluated(body)
            if last is not None:
                value = self._evaluated(last)
            plain = jsonable(value)
            size = len(json.dumps(plain))
            if size > LARGEST_VALUE:
                plain = f"<{type(value).__name__} {TOO_LARGE.format(size=size, most=LARGEST_VALUE)}>"
        except KeyboardInterrupt:
            raise
        except BaseException as err:  # noqa: BLE001 - the model reads any exception of the code
            kind = "limit" if isinstance(err, MemoryError) else "runtime"
            return {"turn": "failed", "kind": kind, "text": _error_text(err)}
        finally:
            self.interruptible = False
        return {"turn": "done", "value": plain}


def _ignore_unawaited(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    del loop, context


def _compiled(code: str, name: str) -> tuple[CodeType, CodeType | None]:
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    body = compile(tree, name, "exec", flags=flags, dont_inherit=True)
    if not isinstance(last, ast.Expr):
        return body, None
    return body, compile(ast.Expression(last.value), name, "eval", flags=flags, dont_inherit=True)


def _problem(code: str) -> dict[str, Any]:
    try:
        _compiled(code, "<snippet>")
    except SyntaxError as err:
        return {"line": err.lineno, "text": f"{type(err).__name__}: {err.msg}"}
    except (ValueError, RecursionError, MemoryError, OverflowError) as err:
        return {"text": f"{type(err).__name__}: {err}"}
    return {}


def _error_text(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the frames of this program."""
    shown = traceback.TracebackException.from_exception(error, limit=-50)
    seen: set[int] = set()
    one: traceback.TracebackException | None = shown
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        # Frames before the snippet's first line belong to this program.
        first = next((n for n, frame in enumerate(one.stack) if frame.filename.startswith("<snippet ")), len(one.stack))
        one.stack[:] = [frame for frame in one.stack[first:] if frame.filename != __file__]
        one = one.__cause__ or one.__context__
    text = "".join(shown.format()).rstrip()
    if len(text) > _LONGEST_ERROR:
        text = f"{text[: _LONGEST_ERROR // 2]}\n...\n{text[-_LONGEST_ERROR // 2 :]}"
    return text


def exception_of(name: str, message: str) -> Exception:
    """Return the exception of an outcome, to be raised in the code."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):
            return kind(message)
    return RuntimeError(message)


def _die_with(host: int) -> None:
    """Let Linux end this process with its parent. A stopped process would not see the end of its input."""
    import ctypes  # noqa: PLC0415 - most workers never use it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != host:  # the parent has already ended
        os._exit(0)


def _limit_resources(setup: dict[str, Any]) -> None:
    try:
        import resource  # noqa: PLC0415 - missing on some systems
    except ImportError:
        return
    for name, most in setup["resources"].items():
        number = getattr(resource, name, None)
        if number is not None:
            # A system may refuse one of them; the others still count.
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(number, (most, most))


if __name__ == "__main__":
    _Worker().serve()
