"""Runs of chat engines: prepare, answer, remember."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, WithJsonSchema

from batonflow.llms import AgentChatResponse, ChatMessage
from batonflow.nodes import NodeWithScore, Response
from batonflow.retrieval.query_runs import AnswerDelta, EngineWorkflow, QueryAsked, noting_facts, records_around
from batonflow.retrieval.requests import Once, recording_requests
from batonflow.tools import ToolOutput
from batonflow.workflow_core import Context, Event, StopEvent, step

__all__ = ["SEARCHED", "ChatAnswer", "ChatAsked", "ChatWorkflow", "asked_by", "run_here"]

SEARCHED = "searched"
"""The fact about a retriever or an engine that was asked: its name and the arguments."""


class ChatAnswer(AgentChatResponse):
    """An answer in a conversation. ``sources`` has the output of the retriever or of the query engine."""

    @classmethod
    def of(cls, text: str, nodes: list[NodeWithScore], facts: Mapping[str, Any] | None) -> Self:
        """Return an answer. Its sources are made of ``SEARCHED`` among the facts; the others are its metadata."""
        metadata = {name: value for name, value in (facts or {}).items() if name != SEARCHED} or None
        sources: list[Any] = []
        for name, arguments in (facts or {}).get(SEARCHED, ()):
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
        facts = {**(self.metadata or {}), SEARCHED: [[one.tool_name, one.raw_input] for one in self.sources]}
        return {"response": self.response, "source_nodes": nodes, "facts": facts}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return an answer from data."""
        return cls.of(data["response"], [NodeWithScore(**one) for one in data["source_nodes"]], data["facts"])


class ChatAsked(QueryAsked):
    """A message to a chat engine, and the conversation before it."""

    chat_history: Annotated[
        list[ChatMessage], WithJsonSchema({"type": "array", "items": {"type": "object"}}, mode="validation")
    ] = Field(default_factory=list[ChatMessage])


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

asked_by: ContextVar[Any] = ContextVar("batonflow_chat_engine", default=None)
"""The engine whose own method has started a run. Other runs begin with the conversation in their start event."""


class ChatWorkflow(EngineWorkflow):
    """The workflow of a chat engine, ``engine.workflow``, which can be drawn and served."""

    @step
    async def prepare(self, ctx: Context[Any], ev: ChatAsked) -> ChatPrepared | ChatAnswered:
        """Find passages for a message; an engine that asks a query engine has the answer at once."""
        message, outer = ev.query.query_str, records_around.get()
        token = run_here.set(ChatRun(ctx.write_event_to_stream, outer or ctx.once))
        engine = self.engine if asked_by.get() is self.engine else self.engine.with_history(ev.chat_history)
        make = partial(self._made, engine, message)
        try:
            with recording_requests(outer or ctx.once):
                text, messages, nodes, facts = await (make() if outer is None else outer("prepared", make))
        finally:
            run_here.reset(token)
        if text is None:
            return ChatPrepared(message=message, messages=messages, nodes=nodes, facts=facts)
        ctx.write_event_to_stream(AnswerDelta(delta=text))
        return ChatAnswered(message=message, text=text, nodes=nodes, metadata=facts)

    async def _made(self, engine: Any, message: str) -> list[Any]:
        """Return the answer that is there at once, the messages for the model, the passages, and facts."""
        with noting_facts() as facts:
            if (own := await engine.own_answer(message)) is not None:
                return [own.response, [], own.source_nodes, own.metadata]
            return [None, *await engine.messages_for(message), facts]

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
        """Put both turns into the memory of the engine, if its own method has started the run."""

        async def put() -> None:
            self.engine.remember(ev.message, ev.text)

        once = records_around.get()
        if asked_by.get() is self.engine:
            await (put() if once is None else once("remembered", put))
        return StopEvent(result=ChatAnswer.of(ev.text, ev.nodes, ev.metadata))
