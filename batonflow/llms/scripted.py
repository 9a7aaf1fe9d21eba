"""ScriptedLLM: a model with scripted answers, for tests, demos and documentation."""

import asyncio
import inspect
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

from pydantic import PrivateAttr

from batonflow.clock import current_source
from batonflow.llms.answer import incomplete
from batonflow.llms.blocks import TextBlock, ThinkingBlock, ToolCallBlock
from batonflow.llms.errors import LLMConfigurationError, RateLimitError, ScriptExhaustedError
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.messages import ChatMessage, LLMMetadata
from batonflow.llms.stream import BlockDone, ChatRequest, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import ToolSelection, tool_selections
from batonflow.llms.usage import Usage

__all__ = ["Faults", "ScriptedLLM", "Turn", "tool_call"]

_TOKEN = re.compile(r"\s*\S+|\s+$")
_ARGUMENT_PIECE = 16

Part = str | ToolCallBlock | ToolSelection | TextBlock | ThinkingBlock
Answer = Part | ChatMessage | BaseException | type[BaseException] | Sequence[Part]
Turn = Answer | Callable[[ChatRequest], Answer | Awaitable[Answer]]
"""One answer: text, a tool call, a list of both, or a message. Or an exception, or a function of the request."""


def tool_call(name: str, /, **arguments: Any) -> ToolCallBlock:
    """Return a tool call as a turn, or as a part of a turn.

    Args:
        name: The name of the tool.
        **arguments: The arguments, as JSON data.

    Example:
        >>> ScriptedLLM([tool_call("add", a=2, b=40), "It is 42."])
    """
    return ToolCallBlock(tool_name=name, tool_kwargs=arguments)


@dataclass(frozen=True)
class Faults:
    """Random faults of a :class:`ScriptedLLM`; the same seed makes the same faults.

    A turn with a fault stays in the script, and the next request gets it whole. A program that handles the faults
    therefore ends as it does without them.

    Args:
        seed: The seed of the random numbers.
        rate_limited: The share of requests refused with ``RateLimitError``, between 0 and 1.
        cut: The share of responses that break off, with ``IncompleteResponseError``.
        malformed: The share of responses with tool calls in which the first call has invalid JSON arguments.
        duplicate_ids: The share of responses in which all tool calls have the same id; these turns are used up.
        slow: The maximum of seconds per chunk, added to the model's ``delay``.

    Example:
        >>> llm = ScriptedLLM(["Hello."], faults=Faults(seed=7, rate_limited=0.2, cut=0.2))
    """

    seed: int = 0
    rate_limited: float = 0.0
    cut: float = 0.0
    malformed: float = 0.0
    duplicate_ids: float = 0.0
    slow: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rate_limited", "cut", "malformed", "duplicate_ids"):
            part = getattr(self, name)
            if not 0 <= part <= 1:
                raise LLMConfigurationError(f"Faults.{name} is {part}: it is a part of all, between 0 and 1")


_NONE = Faults()


class ScriptedLLM(FunctionCallingLLM):
    """Answer each request with the next turn of a script, streamed word by word.

    Args:
        turns: The script. A function, sync or async, is called with the request and returns the turn.
        model: The name of the model.
        delay: Seconds before each chunk, to make streaming visible.
        context_window: Tokens, for memories.
        faults: Random faults.

    Attributes:
        requests: All requests so far, in order.

    Raises:
        ScriptExhaustedError: There are more requests than turns.

    Example:
        >>> llm = ScriptedLLM([tool_call("add", a=2, b=40), "It is 42."])
        >>> llm.chat([ChatMessage("What is 2 + 40?")])
    """

    model: str = "scripted"
    delay: float = 0.0
    context_window: int = 128_000

    faults: Faults | None = None

    _turns: list[Turn] = PrivateAttr(default_factory=list[Turn])
    _begun: int = PrivateAttr(default=0)
    # Turns that a fault has broken, and that the next request gets again.
    _again: list[int] = PrivateAttr(default_factory=list[int])
    _dice: Random = PrivateAttr(default_factory=Random)
    _requests: list[ChatRequest] = PrivateAttr(default_factory=list[ChatRequest])
    # A conversation that continues in another process keeps the calls of this one, so ids must differ.
    _mark: str = PrivateAttr(default_factory=lambda: current_source().token(6))

    def __init__(
        self,
        turns: Iterable[Turn] = (),
        *,
        model: str = "scripted",
        delay: float = 0.0,
        context_window: int = 128_000,
        faults: Faults | None = None,
        **data: Any,
    ) -> None:
        data.update(model=model, delay=delay, context_window=context_window, faults=faults)
        super().__init__(**data)
        if isinstance(turns, str):
            raise TypeError("turns is a list of turns; for a script of one answer write ScriptedLLM([answer])")
        self._turns = list(turns)
        if faults is not None:
            self._dice.seed(faults.seed)

    @property
    def requests(self) -> list[ChatRequest]:
        """All requests so far, in order."""
        return self._requests

    @property
    def remaining(self) -> int:
        """The number of turns that are left."""
        return max(0, len(self._turns) - self._begun) + len(self._again)

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of a function calling chat model."""
        return LLMMetadata(
            model_name=self.model,
            context_window=self.context_window,
            is_chat_model=True,
            is_function_calling_model=True,
        )

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        # The caller may append to its list of messages later.
        self._requests.append(request.model_copy(update={"messages": list(request.messages)}))
        faults = self.faults or _NONE
        if self._befalls(faults.rate_limited):
            raise RateLimitError("a fault of the script", status_code=429, vendor="scripted", model=self.model)
        number = self._again.pop(0) if self._again else self._next()
        if number >= len(self._turns):
            raise self._exhausted(request)
        parts = _parts(await _answer_of(self._turns[number], request))
        events = list(self._events(number, parts))
        if self._befalls(faults.duplicate_ids):
            events = _with_one_id(events)
        cut = False
        if self._befalls(faults.malformed) and any(isinstance(event, ToolCallDelta) for event in events):
            self._again.append(number)
            events = _malformed(events)
        elif self._befalls(faults.cut):
            self._again.append(number)
            cut, events = True, events[: int(self._dice.random() * len(events))]
        for event in events:
            seconds = self.delay + (self._dice.random() * faults.slow if faults.slow else 0.0)
            if seconds:
                await asyncio.sleep(seconds)
            yield event
        if cut:
            raise incomplete(bool(events), "scripted", self.model)
        yield self._finish(request, events)

    def _next(self) -> int:
        self._begun += 1
        return self._begun - 1

    def _befalls(self, part: float) -> bool:
        return part > 0 and self._dice.random() < part

    def _finish(self, request: ChatRequest, events: Sequence[StreamEvent]) -> Finish:
        texts = [block.text for message in request.messages for block in message.blocks if isinstance(block, TextBlock)]
        read = sum(map(len, map(str.split, texts)))
        called = ToolCallDelta in map(type, events)
        return Finish(
            reason="tool_calls" if called else "stop",
            usage=Usage(input_tokens=read, output_tokens=len(events)),
            model=self.model,
            vendor="scripted",
        )

    def _events(self, turn: int, parts: Sequence[Part]) -> "Iterable[StreamEvent]":
        index = 0
        for part in parts:
            if isinstance(part, str | TextBlock):
                text = part if isinstance(part, str) else part.text
                for piece in _TOKEN.findall(text):
                    yield TextDelta(text=piece)
            elif isinstance(part, ThinkingBlock):
                for piece in _TOKEN.findall(part.content or ""):
                    yield ThinkingDelta(text=piece)
                yield BlockDone(block=part)
            else:
                yield from _call_events(part, index, f"call_{self._mark}_{turn + 1}_{index + 1}")
                index += 1

    def _exhausted(self, request: ChatRequest) -> ScriptExhaustedError:
        last = request.messages[-1] if request.messages else None
        return ScriptExhaustedError(
            f"The script has {len(self._turns)} turn{'' if len(self._turns) == 1 else 's'}, and this is request "
            f"{len(self._requests)}. The request ends with the message {str(last)[:200]!r}. Add a turn, or find the "
            "cause of the extra request",
            vendor="scripted",
            model=self.model,
        )


async def _answer_of(turn: Any, request: ChatRequest) -> Any:
    """Return the answer of a turn to ``request``; raise a turn that is an exception."""
    answer: Any = turn
    if callable(answer) and not isinstance(answer, type):
        answer = answer(request)
        if inspect.isawaitable(answer):
            answer = await answer
    if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
        raise answer
    return cast("Any", answer)


def _with_one_id(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    ids = [event.id for event in events if isinstance(event, ToolCallDelta) and event.id]
    return [replace(event, id=ids[0]) if isinstance(event, ToolCallDelta) and event.id else event for event in events]


def _malformed(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    """Yield the events with the arguments of the first call broken."""
    broken: list[StreamEvent] = []
    for event in events:
        if not isinstance(event, ToolCallDelta) or event.index != 0:
            broken.append(event)
        elif event.name is not None:
            broken.append(replace(event, arguments='{"broken": '))
    return broken


def _parts(answer: Any) -> list[Part]:
    if isinstance(answer, ChatMessage):
        calls = tool_selections(answer)
        blocks = [block for block in answer.blocks if not isinstance(block, ToolCallBlock)]
        return [*cast("list[Part]", blocks), *calls]
    if isinstance(answer, list | tuple):
        return [part for inner in cast("Sequence[Any]", answer) for part in _parts(inner)]
    if isinstance(answer, str | ToolCallBlock | ToolSelection | TextBlock | ThinkingBlock):
        return [answer]
    raise TypeError(
        f"{answer!r} is not a turn of a script: use text, tool_call(...), a list of both, a ChatMessage, an exception, "
        "or a function that returns one"
    )


def _call_events(call: ToolCallBlock | ToolSelection, index: int, default_id: str) -> "Iterable[StreamEvent]":
    call_id = call.tool_id if isinstance(call, ToolSelection) else call.tool_call_id
    kwargs = call.tool_kwargs
    text = kwargs if isinstance(kwargs, str) else json.dumps(kwargs)
    yield ToolCallDelta(index=index, id=call_id or default_id, name=call.tool_name)
    for start in range(0, len(text), _ARGUMENT_PIECE):
        yield ToolCallDelta(index=index, arguments=text[start : start + _ARGUMENT_PIECE])
