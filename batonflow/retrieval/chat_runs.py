"""Runs of chat engines: prepare, answer, remember."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Self

from pydantic import Field

from batonflow.llms import AgentChatResponse, ChatMessage
from batonflow.nodes import NodeWithScore, Response
from batonflow.retrieval.query_runs import AnswerDelta, EngineWorkflow, QueryAsked, noting_facts, records_around
from batonflow.retrieval.requests import Once, recording_requests
from batonflow.tools import ToolOutput
from batonflow.workflow_core import Context, Event, StopEvent, step

__all__ = [
    "SEARCHED",
    "ChatAnswer",
    "ChatAnswered",
    "ChatAsked",
    "ChatPrepared",
    "ChatRun",
    "ChatWorkflow",
    "asked_by",
    "run_here",
]

SEARCHED = "searched"
"""The fact that a retriever or an engine was asked: its name, and the arguments. It becomes a source of the answer."""


class ChatAnswer(AgentChatResponse):
    """An answer in a conversation, with the output of the retriever or of the query engine in ``sources``."""

    @classmethod
    def of(
        cls, text: str, nodes: list[NodeWithScore], metadata: dict[str, Any] | None, searched: Sequence[Any]
    ) -> Self:
        """Return an answer with its sources.

        Args:
            text: The text.
            nodes: The passages.
            metadata: Further facts about the answer.
            searched: The names of what was asked, with the arguments.
        """
        sources: list[Any] = []
        for name, arguments in searched:
            output: Any = nodes if name == "retriever" else Response(text, nodes, metadata)
            sources.append(ToolOutput(name, str(output), raw_input=arguments, raw_output=output))
        return cls(text, sources, nodes, metadata=metadata)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in records."""
        return cls.__name__

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as data for records, each passage once."""
        nodes = [one.model_dump(mode="json") for one in self.source_nodes]
        searched = [[one.tool_name, one.raw_input] for one in self.sources]
        return {"response": self.response, "source_nodes": nodes, "metadata": self.metadata, "searched": searched}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return an answer from data."""
        nodes = [NodeWithScore(**one) for one in data["source_nodes"]]
        return cls.of(data["response"], nodes, data["metadata"], data["searched"])


class ChatAsked(QueryAsked):
    """A message to a chat engine, and the conversation before it if the engine does not remember it."""

    chat_history: list[ChatMessage] = Field(default_factory=list[ChatMessage])


class ChatPrepared(Event):
    """The messages for the model, and the passages among them."""

    message: str
    messages: list[ChatMessage]
    nodes: list[NodeWithScore]
    facts: dict[str, list[Any]] = Field(default_factory=dict[str, list[Any]])
    searched: list[Any] = Field(default_factory=list[Any])


class ChatAnswered(Event):
    """The whole answer to a message."""

    message: str
    text: str
    nodes: list[NodeWithScore]
    metadata: dict[str, Any] | None = None
    searched: list[Any] = Field(default_factory=list[Any])


class ChatRun(NamedTuple):
    """The run around an engine: it gets events, and records calls."""

    tell: Callable[[Event], None]
    once: Once


run_here: ContextVar[ChatRun | None] = ContextVar("batonflow_chat_run", default=None)

asked_by: ContextVar[Any] = ContextVar("batonflow_chat_engine", default=None)
"""The engine whose own methods have started a run. Only such runs see its memory."""


class ChatWorkflow(EngineWorkflow):
    """The workflow of a chat engine, ``engine.workflow``, which can be drawn and served.

    A run that does not come from a method of the engine begins with the conversation in its start event.
    """

    @step
    async def prepare(self, ctx: Context[Any], ev: ChatAsked) -> ChatPrepared | ChatAnswered:
        """Find passages for a message; an engine that asks a query engine has the answer at once."""
        message, outer = ev.query.query_str, records_around.get()
        token = run_here.set(ChatRun(ctx.write_event_to_stream, outer or ctx.once))
        make, is_own = partial(self._made, message), asked_by.get() is self.engine
        try:
            with (
                recording_requests(outer or ctx.once),
                nullcontext() if is_own else self.engine.remembering(ev.chat_history),
            ):
                text, messages, nodes, facts, searched = await (make() if outer is None else outer("prepared", make))
        finally:
            run_here.reset(token)
        if text is None:
            return ChatPrepared(message=message, messages=messages, nodes=nodes, facts=facts, searched=searched)
        ctx.write_event_to_stream(AnswerDelta(delta=text))
        return ChatAnswered(message=message, text=text, nodes=nodes, metadata=facts, searched=searched)

    async def _made(self, message: str) -> list[Any]:
        """Return the answer that is there at once, the messages for the model, the passages, facts, and searches."""
        with noting_facts() as facts:
            own = await self.engine.own_answer(message)
            found = await self.engine.messages_for(message) if own is None else ()
        searched = facts.pop(SEARCHED, [])
        if own is not None:
            return [own.response, [], own.source_nodes, own.metadata, searched]
        return [None, *found, facts, searched]

    @step
    async def answer(self, ctx: Context[Any], ev: ChatPrepared) -> ChatAnswered:
        """Stream the answer of the model."""
        once, ask = records_around.get(), partial(self._streamed, ctx, ev)
        text: str = await (ask() if once is None else once("answer", ask))
        return ChatAnswered(
            message=ev.message, text=text, nodes=ev.nodes, metadata=ev.facts or None, searched=ev.searched
        )

    async def _streamed(self, ctx: Context[Any], ev: ChatPrepared) -> str:
        text = ""
        async for delta in self.engine.deltas(ev.messages):
            text += delta
            ctx.write_event_to_stream(AnswerDelta(delta=delta))
        return text

    @step
    async def remember(self, ev: ChatAnswered) -> StopEvent:
        """Put both turns into the memory of the engine, if its own method has started the run."""

        async def put() -> None:
            self.engine.remember(ev.message, ev.text)

        once = records_around.get()
        if asked_by.get() is self.engine:
            await (put() if once is None else once("remembered", put))
        return StopEvent(result=ChatAnswer.of(ev.text, ev.nodes, ev.metadata, ev.searched))
