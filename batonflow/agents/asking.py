"""Reading of models' answers for agents: each piece is streamed, and the whole answer is returned."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any

from batonflow.agents.events import AgentOutput, AgentStream, TextSoFar
from batonflow.agents.prompts import CALL_DECLINED, CALL_NOT_WHOLE, PAUSED_TOO_OFTEN
from batonflow.instrumentation.logs import logger_named
from batonflow.llms import LLM, ChatMessage, ChatResponse, MessageRole, TextBlock, ToolCallBlock
from batonflow.llms.answer import Answer, incomplete
from batonflow.llms.blocks import ContentBlock
from batonflow.llms.stream import Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import ToolSelection
from batonflow.workflow_core import Context, WorkflowRuntimeError
from batonflow.workflow_core.engine.state import current_item

if TYPE_CHECKING:
    from batonflow.agents.middleware import ModelRequest

__all__ = [
    "NOT_WHOLE",
    "PAUSED",
    "request_here",
    "streamed",
    "streamed_events",
    "turn_here",
    "turn_shown",
    "unpaused",
    "whole",
    "whole_answer",
    "with_reason",
    "without_prompt",
]

PAUSED = "pause"
"""The reason of an answer that wants to be asked for further."""

_MOST_PARTS = 20

NOT_WHOLE = ("length", "refusal", "content_filter")
"""The reasons of answers that are not whole."""

logger = logger_named("batonflow.agent")

request_here: "ContextVar[ModelRequest | None]" = ContextVar("batonflow_request", default=None)
"""The request of a middleware around this code, where ``the_llm()`` and ``request_options()`` look."""

turn_here: "ContextVar[list[ChatMessage] | None]" = ContextVar("batonflow_turn", default=None)
"""The messages of the turn as a middleware has changed them; None if it has not."""


def turn_shown(turn: list[ChatMessage]) -> list[ChatMessage]:
    """Return the messages of a turn as a middleware has changed them for the model."""
    changed = turn_here.get()
    return turn if changed is None else changed


def without_prompt(messages: list[ChatMessage], prompt: str | None) -> list[ChatMessage]:
    """Return the messages without the system prompt, for agents that have it in a prompt of their own.

    Args:
        messages: The messages; instructions after the prompt stay.
        prompt: The system prompt of the agent.
    """
    if not prompt or not messages or messages[0].role != MessageRole.SYSTEM:
        return messages
    first, *rest = messages[0].blocks or [None]
    if first != TextBlock(text=prompt):
        return messages
    return [ChatMessage(rest, role=MessageRole.SYSTEM), *messages[1:]] if rest else messages[1:]


_Write = Callable[[str, str | None, Any], None]
"""A function that streams a piece: the new text, the new thinking, and the vendor's object."""

_SHOW = Context[Any].write_event_to_stream


class _Pieces:
    """The pieces of one answer, as origin of their places in a stream.

    A stream keeps all of its events for later readers. Texts and numbers take a fifth of the memory of events, and
    the garbage collector does not look at them.

    Args:
        answer: The answer.
        agent: The name of the agent.
        origin: The step, the path and the delivery.
    """

    __slots__ = ("_agent", "_answer", "_marks", "_origin", "_parts")

    def __init__(self, answer: Answer, agent: str, origin: tuple[str, str, int]) -> None:
        self._answer, self._agent, self._origin = answer, agent, origin
        self._marks: list[int] = []
        # A text, or a tuple with thinking and the vendor's object.
        self._parts: list[str | tuple[str, str | None, Any]] = []

    def __iter__(self) -> Iterator[str | int]:
        return iter(self._origin)

    def __call__(self, number: int) -> AgentStream:
        """Return the event of a piece; each reader gets one of its own."""
        part, mark = self._parts[number], self._marks[number]
        if isinstance(part, str):
            return AgentStream.of_piece(self._answer, mark, self._agent, part)
        return AgentStream.of_piece(self._answer, mark, self._agent, *part)

    def add(self, text: str, thinking: str | None, raw: Any) -> int:
        """Keep a piece and return its number."""
        marks = self._marks
        self._parts.append(text if thinking is None and raw is None else (text, thinking, raw))
        marks.append(self._answer.mark())
        return len(marks) - 1


def _writer_of(ctx: Context[Any], answer: Answer, agent: str) -> _Write:
    """Return the function that streams the pieces of an answer, each after the answer has grown by it.

    Args:
        ctx: The run's context, inside a step.
        answer: The answer.
        agent: The name of the agent.
    """

    def at_once(text: str, thinking: str | None, raw: Any) -> None:
        ctx.write_event_to_stream(AgentStream.of_piece(answer, answer.mark(), agent, text, thinking, raw))

    item, run = current_item.get(), getattr(ctx, "run", None)
    # A run with a store or with child runs needs the events themselves, and so does a context of another class.
    if run is None or item is None or item.writer is None or item.context is not ctx:
        return at_once
    if type(ctx).write_event_to_stream is not _SHOW:
        return at_once
    publish, now, origin, thread = item.writer
    pieces, ending = _Pieces(answer, agent, origin), run.ending

    def write(text: str, thinking: str | None, raw: Any) -> None:
        # As Context.write_event_to_stream.
        if item.writer is None or get_ident() != thread:
            at_once(text, thinking, raw)
            return
        if ending.over:
            return
        progress = item.progress or item.make_progress()
        numbers = progress if progress.once_calls is None else progress.here()
        numbers.streamed = number = numbers.streamed + 1
        if number > numbers.skip_streamed:
            publish(pieces.add(text, thinking, raw), now(), pieces)

    return write


async def streamed(
    ctx: Context[Any],
    chunks: AsyncIterator[ChatResponse],
    agent: str,
    calls: Callable[[ChatResponse], Sequence[ToolSelection]] | None = None,
) -> ChatResponse:
    """Stream the pieces of an answer as :class:`AgentStream` events, and return the whole answer.

    Args:
        ctx: The run's context, inside a step.
        chunks: The pieces of ``astream_chat``.
        agent: The name of the agent.
        calls: Returns the complete tool calls so far; by default those of the message.
    """
    last: ChatResponse | None = None
    show = ctx.write_event_to_stream
    pieces: list[str] = []
    so_far = TextSoFar()
    try:
        async for last in chunks:
            # The terminal mark of an adapter's answer contains nothing new, unless it
            # completes calls.
            if last.stop_reason is not None and pieces and not last.delta and not _brings_calls(last):
                continue
            show(AgentStream.of(last, agent, calls, so_far))
            pieces.append(last.delta or "")
    finally:
        # The same as closed_after, which would cost a generator for each answer.
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    return whole(last, pieces)


async def streamed_events(
    ctx: Context[Any], events: AsyncGenerator[StreamEvent, None], agent: str, llm: LLM
) -> ChatResponse:
    """Stream the events of a model's answer, without a response for each of them; return the whole answer.

    Args:
        ctx: The run's context, inside a step.
        events: The events of the model's adapter.
        agent: The name of the agent.
        llm: The model.

    Raises:
        IncompleteResponseError: The events end without :class:`Finish`.
    """
    answer, show, shown = Answer(), ctx.write_event_to_stream, False
    write: _Write | None = None
    model = llm.metadata.model_name
    try:
        async for event in events:
            if type(event) is TextDelta:
                answer.text(event)
                write = write or _writer_of(ctx, answer, agent)
                write(event.text, None, event.raw)
            elif isinstance(event, Finish):
                last = answer.finished(event, model, llm.cost_of)
                if not shown or answer.settled_late:
                    show(AgentStream.of(last, agent))
                return last
            elif type(event) is ToolCallDelta:
                answer.call(event)
                if shown:
                    write = write or _writer_of(ctx, answer, agent)
                    write("", None, event.raw)
                else:  # the only piece of most answers with calls
                    show(AgentStream.of_piece(answer, answer.mark(), agent, "", None, event.raw))
            elif type(event) is ThinkingDelta:
                write = write or _writer_of(ctx, answer, agent)
                write("", event.text, event.raw)
            else:
                response = answer.add(event)
                if response is None:
                    continue
                show(AgentStream.of(response, agent))
            shown = True
    finally:
        await events.aclose()
    raise incomplete(answer.has_content(), llm.class_name(), model)


def whole_answer(llm: Any, *, with_tools: bool = False) -> dict[str, Any]:
    """Return the option that requests an answer in one piece; empty for models without the option.

    Args:
        llm: The model.
        with_tools: Whether ``achat_with_tools`` is called, not ``achat``.
    """
    knows = "takes_stream_option_with_tools" if with_tools else "takes_stream_option"
    return {"stream": False} if getattr(llm, knows, False) is True else {}


async def unpaused(
    response: ChatResponse, ask: Callable[[ChatMessage], Awaitable[ChatResponse]], agent: str
) -> ChatResponse:
    """Return an answer with the parts after its pauses, as from vendors with slow tools.

    Args:
        response: Its first part.
        ask: Requests the next part, after the text so far.
        agent: The name of the agent.

    Returns:
        The last part, with the blocks of all parts in its message.

    Raises:
        WorkflowRuntimeError: The answer pauses too often.
    """
    said, parts = response.message, 1
    while response.stop_reason == PAUSED and not _has_calls(response):
        if parts == _MOST_PARTS:
            raise WorkflowRuntimeError(PAUSED_TOO_OFTEN.format(name=agent, times=parts))
        response, parts = await ask(said), parts + 1
        more = response.message
        kwargs = said.additional_kwargs | more.additional_kwargs
        said = ChatMessage(_joined(said.blocks, more.blocks), role=MessageRole.ASSISTANT, additional_kwargs=kwargs)
        response = response.model_copy(update={"message": said})
    return response


def _joined(before: Sequence[ContentBlock], after: Sequence[ContentBlock]) -> list[ContentBlock]:
    """Join the blocks of two parts of an answer. A text on both sides of a pause becomes one block."""
    last, first = before[-1:], after[:1]
    if last and first and isinstance(last[0], TextBlock) and isinstance(first[0], TextBlock):
        return [*before[:-1], TextBlock(text=last[0].text + first[0].text), *after[1:]]
    return [*before, *after]


def whole(last: ChatResponse | None, pieces: Sequence[str]) -> ChatResponse:
    """Return the whole answer, also of models that return only pieces.

    Args:
        last: The last response of a stream, or None; an empty message is filled.
        pieces: The new text of each response.
    """
    if last is None:
        return ChatResponse(message=ChatMessage("", role=MessageRole.ASSISTANT))
    if any(pieces) and not _has_calls(last):
        message = last.message
        if not message.content and not message.additional_kwargs:
            last.message = ChatMessage("".join(pieces), role=MessageRole.ASSISTANT)
    return last


def _brings_calls(last: ChatResponse) -> bool:
    """Return whether the last piece may contain new calls."""
    source: Any = last.source
    if type(source) is not Answer:
        return _has_calls(last)
    # Models that wrap others may parse calls from the text.
    found = sum(isinstance(block, ToolCallBlock) for block in last.message.blocks)
    return source.settled_late or found != source.number_of_calls()


def _has_calls(last: ChatResponse) -> bool:
    return any(isinstance(block, ToolCallBlock) for block in last.message.blocks)


def with_reason(output: AgentOutput, reason: str | None) -> AgentOutput:
    """Return the output of an answer; an incomplete answer gets the reason, and its doubtful calls are refused.

    Args:
        output: The output; it is changed.
        reason: The reason why the model stopped.
    """
    if reason not in NOT_WHOLE:
        return output
    data, calls = output.to_dict(), output.tool_calls
    data["stop_reason"] = reason
    if calls and reason == "length":  # the last call was cut
        data["refused_calls"] = {calls[-1].tool_id: CALL_NOT_WHOLE}
    elif calls:
        # By id, because a subclass may add calls.
        data["refused_calls"] = {call.tool_id: CALL_DECLINED.format(reason=reason) for call in calls}
    logger.warning("Agent %s: an answer of the model is not whole (%s)", output.current_agent_name, reason)
    return output
