"""ScriptedLLM: a model that says what it is told to, for tests, demos and documentation."""

import asyncio
import inspect
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from pydantic import PrivateAttr

from batonflow.llms.blocks import TextBlock, ThinkingBlock, ToolCallBlock
from batonflow.llms.errors import ScriptExhaustedError
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.messages import ChatMessage, LLMMetadata
from batonflow.llms.stream import BlockDone, ChatRequest, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import ToolSelection, tool_selections
from batonflow.llms.usage import Usage

__all__ = ["ScriptedLLM", "Turn", "tool_call"]

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


class ScriptedLLM(FunctionCallingLLM):
    """Answers request after request with the next turn of a script, streamed word by word like a real model.

    Args:
        turns: The script. A function is called with the request, also asynchronously, and returns the turn.
        model: The name under which it appears.
        delay: Seconds before each piece of an answer, to watch it stream.
        context_window: Tokens, for memories that look at it.

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

    _turns: list[Turn] = PrivateAttr(default_factory=list[Turn])
    _requests: list[ChatRequest] = PrivateAttr(default_factory=list[ChatRequest])

    def __init__(
        self,
        turns: Iterable[Turn] = (),
        *,
        model: str = "scripted",
        delay: float = 0.0,
        context_window: int = 128_000,
        **data: Any,
    ) -> None:
        data.update(model=model, delay=delay, context_window=context_window)
        super().__init__(**data)
        if isinstance(turns, str):
            raise TypeError("turns is a list of turns; for a script of one answer write ScriptedLLM([answer])")
        self._turns = list(turns)

    @property
    def requests(self) -> list[ChatRequest]:
        """Every request so far, in order."""
        return self._requests

    @property
    def remaining(self) -> int:
        """How many turns the script still has."""
        return max(0, len(self._turns) - len(self._requests))

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
        number = len(self._requests)
        # The request's messages belong to the caller, who goes on adding to them.
        self._requests.append(request.model_copy(update={"messages": list(request.messages)}))
        if number >= len(self._turns):
            raise self._exhausted(number, request)
        answer: Any = self._turns[number]
        if callable(answer) and not isinstance(answer, type):
            answer = answer(request)
            if inspect.isawaitable(answer):
                answer = await answer
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        written, calls = 0, 0
        for event in self._events(number, _parts(answer)):
            if self.delay:
                await asyncio.sleep(self.delay)
            written += 1
            calls += isinstance(event, ToolCallDelta)
            yield event
        read = sum(len((message.content or "").split()) for message in request.messages)
        yield Finish(
            reason="tool_calls" if calls else "stop",
            usage=Usage(input_tokens=read, output_tokens=written),
            model=self.model,
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
                yield from _call_events(part, index, f"call_{turn + 1}_{index + 1}")
                index += 1

    def _exhausted(self, number: int, request: ChatRequest) -> ScriptExhaustedError:
        last = request.messages[-1] if request.messages else None
        return ScriptExhaustedError(
            f"the script of {self.model!r} has {len(self._turns)} turns and this is request {number + 1}; it ends with "
            f"the message {str(last)[:200]!r}. Add a turn, or look why the model is asked once more",
            vendor="scripted",
            model=self.model,
        )


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
