"""RecordingLLM and ReplayLLM: recorded responses for tests and demos without key and network."""

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from pydantic import PrivateAttr, TypeAdapter, ValidationError

from batonflow.llms import errors
from batonflow.llms.base import LLM
from batonflow.llms.blocks import sendable
from batonflow.llms.differences import renumbered, request_differences
from batonflow.llms.errors import LLMConfigurationError, LLMError, ReplayMissError
from batonflow.llms.function_calling import FunctionCallingLLM, WrappedLLM
from batonflow.llms.messages import LLMMetadata
from batonflow.llms.stream import ChatRequest, StreamEvent
from batonflow.threads import in_thread

__all__ = ["RecordingLLM", "ReplayLLM", "error_from", "normalised"]

_FORMAT = 1
_EVENTS: TypeAdapter[list[StreamEvent]] = TypeAdapter(list[StreamEvent])
_SHOWN_DIFFERENCES = 5
_SHOWN_LINES = 40
_SHOWN_LENGTH = 200

# Options of the transport, which are not part of the request; headers may contain keys.
_UNRECORDED = ("extra_headers", "extra_query", "timeout")


def normalised(request: ChatRequest) -> dict[str, Any]:
    """Return a request as data for comparison, with call ids numbered in their order.

    Vendors make new ids for each response.
    """
    options = {name: value for name, value in request.options.items() if name not in _UNRECORDED}
    plain = request.model_copy(update={"options": options}).model_dump(mode="json", exclude_none=True)
    ids: dict[str, str] = {}
    return cast("dict[str, Any]", renumbered(plain, ids))


def _key(request: Mapping[str, Any]) -> str:
    text = json.dumps(request, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(sendable(text).encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LLMConfigurationError(
            f"there is no recording {path}; make one with RecordingLLM(llm, {str(path)!r})"
        ) from None
    except ValueError as err:
        raise LLMConfigurationError(f"{path} is not a recording: {err}") from err
    if not isinstance(found, dict) or cast("dict[str, Any]", found).get("format") != _FORMAT:
        raise LLMConfigurationError(f"{path} is not a recording of format {_FORMAT}; record it again")
    return cast("dict[str, Any]", found)


class RecordingLLM(WrappedLLM):
    """Record the responses of a model, including errors, for a :class:`ReplayLLM`.

    The file is replaced atomically after every response, so it is complete at any time. It contains requests and
    responses, but no keys and no headers.

    Args:
        llm: The model.
        path: The file.
        keep: Whether to add to the file; otherwise it is overwritten.

    Raises:
        LLMConfigurationError: ``keep`` is set, and the file is not a recording.

    Example:
        >>> llm = RecordingLLM(OpenAI("gpt-5.6"), "tests/answers.json")
        >>> print(llm.complete("Say hello."))
    """

    path: Path
    keep: bool = False

    _written: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, llm: LLM, path: str | os.PathLike[str], *, keep: bool = False, **data: Any) -> None:
        super().__init__(llm, path=Path(path), keep=keep, **data)
        if keep and self.path.exists():
            self._written = _read(self.path)
            return
        self._written = {
            "format": _FORMAT,
            "metadata": llm.metadata.model_dump(mode="json"),
            "native_output_schema": llm.native_output_schema,
            "exchanges": {},
        }

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        asked, answered = normalised(request), list[StreamEvent]()
        try:
            async with aclosing(self.llm._stream(request)) as events:
                async for event in events:
                    answered.append(event)
                    if event.kind == "finish":
                        # Written before the last event is yielded, because the consumer may stop there.
                        await self._record(asked, answered)
                    yield event
        except LLMError as err:
            await self._record(asked, answered, err)
            raise

    async def _record(self, asked: dict[str, Any], answered: list[StreamEvent], err: LLMError | None = None) -> None:
        entry: dict[str, Any] = {"events": _EVENTS.dump_python(answered, mode="json", exclude_none=True)}
        if err is not None:
            entry["error"] = _dumped(err)
        await in_thread(self._write, asked, entry)

    def _write(self, asked: dict[str, Any], entry: dict[str, Any]) -> None:
        with self._lock:
            exchange = self._written["exchanges"].setdefault(_key(asked), {"request": asked, "answers": []})
            exchange["answers"].append(entry)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            text = sendable(json.dumps(self._written, indent=1, ensure_ascii=False))
            beside.write_text(f"{text}\n", encoding="utf-8")
            beside.replace(self.path)


def _dumped(err: LLMError) -> dict[str, Any]:
    details = {
        name: getattr(err, name) for name in ("status_code", "request_id", "retry_after", "vendor", "model", "shown")
    }
    return {"type": type(err).__name__, "text": str(err), **details}


def _loaded(dumped: Mapping[str, Any]) -> LLMError:
    kind = getattr(errors, str(dumped["type"]), LLMError)
    err = kind.__new__(kind) if isinstance(kind, type) and issubclass(kind, LLMError) else LLMError()
    # The text contains vendor and status already, so it does not go through the constructor.
    err.args = (dumped["text"],)
    for name in ("status_code", "request_id", "retry_after", "vendor", "model", "shown"):
        setattr(err, name, dumped.get(name))
    return err


def error_from(text: str) -> LLMError:
    """Return the error of a recorded call.

    Args:
        text: Its class and text, as in ``ModelCall.error``.
    """
    name, _, words = text.partition(": ")
    return _loaded({"type": name, "text": words or text})


class ReplayLLM(FunctionCallingLLM):
    """Answer from a recording. A request that was recorded several times gets its responses in order.

    Args:
        path: The file of a :class:`RecordingLLM`.
        delay: Seconds before each chunk, to make streaming visible.

    Raises:
        LLMConfigurationError: The file does not exist or is not a recording.
        ReplayMissError: The file does not contain the request; the message has the difference to the nearest one.

    Example:
        >>> llm = ReplayLLM("tests/answers.json")
        >>> print(llm.complete("Say hello."))
    """

    path: Path
    delay: float = 0.0

    _recording: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])
    _asked: dict[str, int] = PrivateAttr(default_factory=dict[str, int])

    def __init__(self, path: str | os.PathLike[str], *, delay: float = 0.0, **data: Any) -> None:
        data.update(path=Path(path), delay=delay)
        super().__init__(**data)
        self._recording = _read(self.path)

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of the recorded model."""
        return LLMMetadata.model_validate(self._recording["metadata"])

    @property
    def native_output_schema(self) -> bool:
        """Return whether the recorded model enforces a JSON schema."""
        return bool(self._recording["native_output_schema"])

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        asked = normalised(request)
        key = _key(asked)
        exchange = self._recording["exchanges"].get(key)
        if exchange is None:
            raise self._miss(asked)
        number = self._asked.get(key, 0)
        self._asked[key] = number + 1
        answer = exchange["answers"][number % len(exchange["answers"])]
        try:
            events = _EVENTS.validate_python(answer["events"])
        except ValidationError as err:
            raise LLMConfigurationError(f"{self.path} holds an answer that cannot be read: {err}") from err
        for event in events:
            if self.delay:
                await asyncio.sleep(self.delay)
            yield event
        if "error" in answer:
            raise _loaded(answer["error"])

    def _miss(self, asked: dict[str, Any]) -> ReplayMissError:
        recorded = [exchange["request"] for exchange in self._recording["exchanges"].values()]
        found = min((request_differences(_as_call(one), _as_call(asked)) for one in recorded), key=len, default=None)
        if found is None:
            return ReplayMissError(f"{self.path} is empty; record it again", vendor="replay")
        shown = found[:_SHOWN_DIFFERENCES]
        named = ", ".join(one.where for one in shown) or "its other settings"
        more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
        lines = [line for one in shown for line in one.lines("recorded", "asked")][:_SHOWN_LINES]
        lines = [line if len(line) <= _SHOWN_LENGTH else f"{line[:_SHOWN_LENGTH]}…" for line in lines]
        return ReplayMissError(
            f"{self.path} does not hold this request; it differs from the nearest of {len(recorded)} in {named}{more}. "
            "Record it again with RecordingLLM, or undo the change\n" + "\n".join(lines),
            vendor="replay",
            model=self.metadata.model_name,
        )


def _as_call(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a normalised request in the form of ``differences.comparable``."""
    settings = ("tool_choice", "parallel_tool_calls", "output_schema")
    options = {**request["options"], **{name: request[name] for name in settings if name in request}}
    return {"messages": request["messages"], "tool_specs": request["tools"], "options": options}
