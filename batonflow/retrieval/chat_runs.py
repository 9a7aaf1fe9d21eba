"""Runs of chat engines: prepare, answer, remember."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from pydantic import Field

from batonflow.llms import ChatMessage
from batonflow.nodes import NodeWithScore
from batonflow.retrieval.query_runs import AnswerDelta, EngineWorkflow, QueryAsked, noting_facts, records_around
from batonflow.retrieval.requests import Once, recording_requests
from batonflow.workflow_core import Context, Event, StopEvent, step

__all__ = ["ChatAnswer", "ChatAnswered", "ChatPrepared", "ChatRun", "ChatWorkflow", "run_here"]


@dataclass
class ChatAnswer:
    """An answer in a conversation.

    Args:
        response: The text.
        source_nodes: The passages.
        metadata: Further facts about the answer.
        sources: The outputs of tools, for programs of LlamaIndex; empty.
    """

    response: str
    source_nodes: list[NodeWithScore] = field(default_factory=list[NodeWithScore])
    metadata: dict[str, Any] | None = None
    sources: list[Any] = field(default_factory=list[Any])

    def __str__(self) -> str:
        return self.response


class ChatPrepared(Event):
    """The messages for the model, and the passages among them."""

    message: str
    messages: list[ChatMessage]
    nodes: list[NodeWithScore]
    facts: dict[str, list[Any]] = Field(default_factory=dict[str, list[Any]])


class ChatAnswered(Event):
    """The whole answer to a message."""

    message: str
    text: str
    nodes: list[NodeWithScore]
    metadata: dict[str, Any] | None = None


class ChatRun(NamedTuple):
    """The run around an engine: it gets events, and records calls."""

    tell: Callable[[Event], None]
    once: Once


run_here: ContextVar[ChatRun | None] = ContextVar("batonflow_chat_run", default=None)


class ChatWorkflow(EngineWorkflow):
    """The workflow of a chat engine, ``engine.workflow``, which can be drawn and served."""

    @step
    async def prepare(self, ctx: Context[Any], ev: QueryAsked) -> ChatPrepared | ChatAnswered:
        """Find passages for a message; an engine that asks a query engine has the answer at once."""
        message, outer = ev.query.query_str, records_around.get()
        token = run_here.set(ChatRun(ctx.write_event_to_stream, outer or ctx.once))
        make = partial(self._made, message)
        try:
            with recording_requests(outer or ctx.once):
                text, messages, nodes, facts = await (make() if outer is None else outer("prepared", make))
        finally:
            run_here.reset(token)
        if text is None:
            return ChatPrepared(message=message, messages=messages, nodes=nodes, facts=facts)
        ctx.write_event_to_stream(AnswerDelta(delta=text))
        return ChatAnswered(message=message, text=text, nodes=nodes, metadata=facts)

    async def _made(self, message: str) -> list[Any]:
        """Return the answer that is there at once, the messages for the model, the passages, and facts."""
        with noting_facts() as facts:
            if (own := await self.engine.own_answer(message)) is not None:
                return [own.response, [], own.source_nodes, own.metadata]
            return [None, *await self.engine.messages_for(message), facts]

    @step
    async def answer(self, ctx: Context[Any], ev: ChatPrepared) -> ChatAnswered:
        """Stream the answer of the model."""
        once, ask = records_around.get(), partial(self._streamed, ctx, ev)
        text: str = await (ask() if once is None else once("answer", ask))
        return ChatAnswered(message=ev.message, text=text, nodes=ev.nodes, metadata=ev.facts or None)

    async def _streamed(self, ctx: Context[Any], ev: ChatPrepared) -> str:
        text = ""
        async for delta in self.engine.deltas(ev.messages):
            text += delta
            ctx.write_event_to_stream(AnswerDelta(delta=delta))
        return text

    @step
    async def remember(self, ev: ChatAnswered) -> StopEvent:
        """Put both turns into the memory."""

        async def put() -> None:
            self.engine.remember(ev.message, ev.text)

        once = records_around.get()
        await (put() if once is None else once("remembered", put))
        return StopEvent(result=ChatAnswer(ev.text, ev.nodes, ev.metadata))
