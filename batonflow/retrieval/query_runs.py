"""Runs of query engines: their events, and their place in a step of another run."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, WithJsonSchema

from batonflow.nodes import BaseRetriever, NodeWithScore, QueryBundle
from batonflow.retrieval.requests import Once
from batonflow.workflow_core import Event, StartEvent, Workflow, WorkflowHandler
from batonflow.workflow_core.context.once import name_of_call, run_once
from batonflow.workflow_core.engine.state import WorkItem, current_item

__all__ = [
    "AnswerDelta",
    "Cited",
    "EngineWorkflow",
    "Postprocessed",
    "QueryAsked",
    "QueryPlanned",
    "Retrieved",
    "note_fact",
    "noting_facts",
    "records_around",
    "searched",
    "start_query",
]


records_around: ContextVar[Once | None] = ContextVar("batonflow_query_records", default=None)
"""Records the calls of a query in the step around it. At a restore, its run does not know the query's workflow."""


_facts: ContextVar[dict[str, list[Any]] | None] = ContextVar("batonflow_query_facts", default=None)


@contextmanager
def noting_facts() -> Generator[dict[str, list[Any]]]:
    """Collect the facts that retrievers note in the block, for the metadata of the answer."""
    facts: dict[str, list[Any]] = {}
    token = _facts.set(facts)
    try:
        yield facts
    finally:
        _facts.reset(token)


def note_fact(name: str, value: Any) -> None:
    """Note a fact about a retrieval. It has to be JSON, because records of runs hold it."""
    if (facts := _facts.get()) is not None:
        facts.setdefault(name, []).append(value)


async def searched(retriever: BaseRetriever, query: QueryBundle) -> list[Any]:
    """Return the nodes for a question, and the facts about the search."""
    with noting_facts() as facts:
        return [await retriever.aretrieve(query), facts]


class EngineWorkflow(Workflow[Any]):
    """The base class of workflows of engines, ``engine.workflow``, which can be drawn and served.

    Args:
        engine: The engine.
        **options: The options of the workflow.
    """

    def __init__(self, engine: Any, **options: Any) -> None:
        defaults: dict[str, Any] = {"timeout": None, "on_abandon": "stop"}
        super().__init__(**{**defaults, **options})
        self.engine = engine


class QueryAsked(StartEvent):
    """A question to a query engine, as a bundle or as text."""

    field_of_words: ClassVar[str] = "query"
    """The field for words without a key on a command line."""
    query: Annotated[
        QueryBundle,
        BeforeValidator(lambda query: QueryBundle(query) if isinstance(query, str) else query),
        WithJsonSchema({"type": "string", "title": "Query"}, mode="validation"),  # a person gives a text
    ]


class QueryPlanned(Event):
    """The plan for a question: sub-questions, the next question, or the names of the chosen engines."""

    query: QueryBundle
    plan: list[str]


class Retrieved(Event):
    """The nodes that a retriever has found, and facts about the search for the metadata of the answer."""

    query: QueryBundle
    nodes: list[NodeWithScore]
    facts: dict[str, list[Any]] = Field(default_factory=dict[str, list[Any]])


class Postprocessed(Event):
    """The nodes after all postprocessors, from which the answer is made."""

    query: QueryBundle
    nodes: list[NodeWithScore]
    facts: dict[str, list[Any]] = Field(default_factory=dict[str, list[Any]])


class Cited(Event):
    """The checked citations of an answer, as in ``response.metadata["citations"]``."""

    citations: list[Any]


class AnswerDelta(Event):
    """A piece of a streamed answer."""

    delta: str

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """Return an event with the content of several pieces of an answer, for records."""
        return cls(delta="".join(piece.delta for piece in pieces))

    def sizes(self) -> tuple[int]:
        """Return the number of new characters."""
        return (len(self.delta),)

    def without(self, text: int) -> Self:
        """Return the event without the first characters, which a reader already has."""
        return self.model_copy(update={"delta": self.delta[text:]})


def start_query(
    flow: Workflow[Any], query: str | QueryBundle, run_id: str | None, store: str | PathLike[str] | Any
) -> WorkflowHandler[Any]:
    """Start the run of a query engine's workflow. In a step of another run, it is a child run of that run."""
    item, recorded = current_item.get(), None
    if store is not None:
        flow = flow.with_store(store)
    elif run_id is None and item is not None and item.run is not None:
        run, family = item.run, item.run.family
        name = None if family is None else family.name_of(flow)
        # The step may have called from a thread, under another loop. An attached workflow has records of its own.
        if name not in run.workflow.__batonflow__.children and run.loop is asyncio.get_running_loop():
            if name is None:
                run.attach(f"query_{len(family.attached()) + 1 if family is not None else 1}", flow)
            recorded = _records_of(run, item)
    token = records_around.set(recorded)
    try:
        return flow.run(flow.start_event_class(query=query), run_id=run_id)
    finally:
        records_around.reset(token)


def _records_of(run: Any, item: WorkItem) -> Once:
    """Return the ``once`` of a step for the calls of a query that it makes."""
    name, outer = name_of_call(item, "query", ""), records_around.get()

    def once(key: str, call: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        key = f"{name}: {key}"
        return run_once(run, item, key, call, ()) if outer is None else outer(key, call)

    return once
