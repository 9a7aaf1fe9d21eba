"""ScriptedLLM: a model that says what it is told to, for tests, demos and documentation."""

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
"""One answer: text, a tool call, a list of both, a message, an exception to raise, or a function of the request."""


def tool_call(name: str, /, **arguments: Any) -> ToolCallBlock:
    """A turn, or a part of one, that calls a tool.

    Args:
        name: The tool.
        **arguments: Its arguments, JSON-able.

    Example:
        >>> ScriptedLLM([tool_call("add", a=2, b=40), "It is 42."])
    """
    return ToolCallBlock(tool_name=name, tool_kwargs=arguments)


@dataclass(frozen=True)
class Faults:
    """What goes wrong with a :class:`ScriptedLLM`, and how often; the same seed makes the same faults.

    A turn that goes wrong stays in the script: asked again, the model gives it whole. A program that survives the
    faults therefore ends as it does without them.

    Args:
        seed: Of the dice.
        rate_limited: The part of requests refused with ``RateLimitError``, between 0 and 1.
        cut: The part of answers that break off, with ``IncompleteResponseError``.
        malformed: The part of answers with tool calls whose first call has arguments that are no JSON.
        duplicate_ids: The part of answers whose tool calls all have the same id; these count as given.
        slow: Seconds that a piece of an answer takes at most, beside the model's ``delay``.

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
    """Answers request after request with the next turn of a script, streamed word by word like a real model.

    Args:
        turns: The script. A function is called with the request, also asynchronously, and returns the turn.
        model: The name under which it appears.
        delay: Seconds before each piece of an answer, to watch it stream.
        context_window: Tokens, for memories that look at it.
        faults: What goes wrong, and how often.

    Attributes:
        requests: Every request so far, in order.

    Raises:
        ScriptExhaustedError: Asked more often than there are turns.

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
    # Turns that went wrong by a fault and are to be given once more.
    _again: list[int] = PrivateAttr(default_factory=list[int])
    _dice: Random = PrivateAttr(default_factory=Random)
    _requests: list[ChatRequest] = PrivateAttr(default_factory=list[ChatRequest])
    # A conversation that goes on in another process keeps the calls of this one: ids must differ.
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
        """Every request so far, in order."""
        return self._requests

    @property
    def remaining(self) -> int:
        """How many turns the script still has."""
        return max(0, len(self._turns) - self._begun) + len(self._again)

    @property
    def metadata(self) -> LLMMetadata:
        """A function calling chat model."""
        return LLMMetadata(
            model_name=self.model,
            context_window=self.context_window,
            is_chat_model=True,
            is_function_calling_model=True,
        )

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        # The request's messages belong to the caller, who goes on adding to them.
        self._requests.append(request.model_copy(update={"messages": list(request.messages)}))
        faults = self.faults or _NONE
        if self._befalls(faults.rate_limited):
            raise RateLimitError("a fault of the script", status_code=429, vendor="scripted", model=self.model)
        number = self._again.pop(0) if self._again else self._next()
        if number >= len(self._turns):
            raise self._exhausted(request)
        parts = _parts(await _said(self._turns[number], request))
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
        read = sum(len((message.content or "").split()) for message in request.messages)
        called = any(isinstance(event, ToolCallDelta) for event in events)
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
            f"the script of {self.model!r} has {len(self._turns)} turns and this is request {len(self._requests)}; it "
            f"ends with the message {str(last)[:200]!r}. Add a turn, or look why the model is asked once more",
            vendor="scripted",
            model=self.model,
        )


async def _said(turn: Any, request: ChatRequest) -> Any:
    """What a turn of the script says to ``request``; a turn that is an exception is raised."""
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
    """The same with the first call's arguments broken."""
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
        f"{answer!r} is no turn of a script: give text, tool_call(...), a list of both, a ChatMessage, an exception, "
        "or a function that returns one"
    )


def _call_events(call: ToolCallBlock | ToolSelection, index: int, default_id: str) -> "Iterable[StreamEvent]":
    call_id = call.tool_id if isinstance(call, ToolSelection) else call.tool_call_id
    kwargs = call.tool_kwargs
    text = kwargs if isinstance(kwargs, str) else json.dumps(kwargs)
    yield ToolCallDelta(index=index, id=call_id or default_id, name=call.tool_name)
    for start in range(0, len(text), _ARGUMENT_PIECE):
        yield ToolCallDelta(index=index, arguments=text[start : start + _ARGUMENT_PIECE])
