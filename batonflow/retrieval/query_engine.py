"""Query engines that are workflows: retrieve, postprocess, synthesize. A stored query continues after a crash."""

from collections.abc import Coroutine, Sequence
from functools import partial
from os import PathLike
from typing import Any, Self

from batonflow.llms import LLM
from batonflow.llms._bridge import run_sync
from batonflow.llms.prompts import PromptMixin
from batonflow.nodes import (
    AsyncStreamingResponse,
    BaseNodePostprocessor,
    BaseQueryEngine,
    BaseRetriever,
    NodeWithScore,
    QueryBundle,
    Response,
)
from batonflow.retrieval.query_runs import (
    AnswerDelta,
    Cited,
    EngineWorkflow,
    Postprocessed,
    QueryAsked,
    Retrieved,
    noting_facts,
    records_around,
    searched,
    start_query,
)
from batonflow.retrieval.requests import WithPrompt, recording_requests
from batonflow.retrieval.synthesizers import AnyResponse, BaseSynthesizer, get_response_synthesizer
from batonflow.retrieval.transforms import transformed_query
from batonflow.threads import in_thread
from batonflow.workflow_core import Context, StopEvent, WorkflowHandler, step

__all__ = ["QueryWorkflow", "RetrieverQueryEngine", "TransformQueryEngine"]


class QueryWorkflow(EngineWorkflow):
    """The workflow of a query engine."""

    @step
    async def retrieve(self, ctx: Context[Any], ev: QueryAsked) -> Retrieved | StopEvent:
        """Find nodes; an engine with a ``_query`` or ``_aquery`` of its own answers at once."""
        once = records_around.get()
        with recording_requests(once or ctx.once):
            if (own := self.engine.own_answer(ev.query)) is not None:
                return StopEvent(result=await own)
            search = partial(searched, self.engine.retriever, ev.query)
            nodes, facts = await (search() if once is None else once("nodes and facts", search))
        found = Retrieved(query=ev.query, nodes=nodes, facts=facts)
        ctx.write_event_to_stream(found)
        return found

    @step
    async def postprocess(self, ctx: Context[Any], ev: Retrieved) -> Postprocessed:
        """Pass the nodes through the postprocessors."""
        with recording_requests(records_around.get() or ctx.once):
            nodes = await self.engine.postprocess(ev.query, ev.nodes)
        left = Postprocessed(query=ev.query, nodes=nodes, facts=ev.facts)
        ctx.write_event_to_stream(left)
        return left

    @step
    async def synthesize(self, ctx: Context[Any], ev: Postprocessed) -> StopEvent:
        """Make the answer, and stream it if the synthesizer does."""
        with recording_requests(records_around.get() or ctx.once):
            response = await self.engine.asynthesize(ev.query, ev.nodes)
            if isinstance(response, AsyncStreamingResponse):
                text = ""
                async for delta in response.async_response_gen():
                    text += delta
                    ctx.write_event_to_stream(AnswerDelta(delta=delta))
                response = Response(text, source_nodes=response.source_nodes, metadata=response.metadata)
        response = _with_facts(response, ev.facts)
        if citations := (response.metadata or {}).get("citations"):
            ctx.write_event_to_stream(Cited(citations=citations))
        return StopEvent(result=response)


class RetrieverQueryEngine(BaseQueryEngine, WithPrompt):
    """Answers questions from the nodes of a retriever.

    Args:
        retriever: Finds the nodes.
        response_synthesizer: Makes the answer; by default one of mode ``compact``.
        node_postprocessors: Drop, order or change the nodes.
        callback_manager: Accepted and kept; use instrumentation instead.

    Example:
        >>> engine = RetrieverQueryEngine.from_args(index.as_retriever(similarity_top_k=3), llm=llm)
        >>> print(engine.query("What moves the sea?"))
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        response_synthesizer: BaseSynthesizer | None = None,
        node_postprocessors: Sequence[BaseNodePostprocessor] | None = None,
        callback_manager: Any = None,
    ) -> None:
        super().__init__(callback_manager)
        self._retriever = retriever
        self._response_synthesizer = response_synthesizer or get_response_synthesizer()
        self._node_postprocessors = list(node_postprocessors or ())
        self.workflow = QueryWorkflow(self)

    @classmethod
    def from_args(
        cls,
        retriever: BaseRetriever,
        llm: LLM | str | None = None,
        response_synthesizer: BaseSynthesizer | None = None,
        node_postprocessors: Sequence[BaseNodePostprocessor] | None = None,
        callback_manager: Any = None,
        **options: Any,
    ) -> Self:
        """Return an engine; ``llm`` and ``options`` (``response_mode``, ...) go to ``get_response_synthesizer``."""
        made = response_synthesizer or get_response_synthesizer(llm, **options)
        return cls(retriever, made, node_postprocessors, callback_manager)

    def with_retriever(self, retriever: BaseRetriever) -> "RetrieverQueryEngine":
        """Return an engine with another retriever."""
        return type(self)(retriever, self._response_synthesizer, self._node_postprocessors, self.callback_manager)

    @property
    def retriever(self) -> BaseRetriever:
        """The retriever."""
        return self._retriever

    def own_answer(self, query_bundle: QueryBundle) -> Coroutine[Any, Any, Any] | None:
        """Call the ``_query`` or ``_aquery`` of a subclass; None if it writes neither."""
        cls, ours = type(self), RetrieverQueryEngine
        if cls._aquery is not ours._aquery:
            return self._aquery(query_bundle)
        return in_thread(self._query, query_bundle) if cls._query is not ours._query else None

    def run(
        self, query: str | QueryBundle, *, run_id: str | None = None, store: str | PathLike[str] | Any = None
    ) -> WorkflowHandler[Any]:
        """Start a query and return its handler at once. In a step of another run, the query is a part of that run.

        Args:
            query: The question.
            run_id: The id of the run. With a store, a second call with it continues the run or returns its result.
            store: The store of the run, as for ``Workflow(store=...)``.

        Example:
            >>> handler = engine.run("What moves the sea?", run_id="sea-1", store="runs.db")
            >>> async for event in handler.stream_events():
            ...     print(event)
            >>> print(await handler)
        """
        return start_query(self.workflow, query, run_id, store)

    def _get_prompt_modules(self) -> dict[str, PromptMixin]:
        return {"response_synthesizer": self._response_synthesizer}

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Find nodes and pass them through the postprocessors."""
        nodes = self._retriever.retrieve(query_bundle)
        for one in self._node_postprocessors:
            nodes = one.postprocess_nodes(nodes, query_bundle=query_bundle)
        return nodes

    async def aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Find nodes and pass them through the postprocessors."""
        return await self.postprocess(query_bundle, await self._retriever.aretrieve(query_bundle))

    async def postprocess(self, query_bundle: QueryBundle, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        """Pass nodes through the postprocessors."""
        for one in self._node_postprocessors:
            nodes = await one.apostprocess_nodes(nodes, query_bundle=query_bundle)
        return nodes

    def synthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> AnyResponse:
        """Make the answer from nodes."""
        return self._response_synthesizer.synthesize(query_bundle, nodes, additional_source_nodes)

    async def asynthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> AnyResponse:
        """Make the answer from nodes."""
        return await self._response_synthesizer.asynthesize(query_bundle, nodes, additional_source_nodes)

    def _query(self, query_bundle: QueryBundle) -> AnyResponse:
        with noting_facts() as facts:
            nodes = self.retrieve(query_bundle)
        return _with_facts(self.synthesize(query_bundle, nodes), facts)

    async def _aquery(self, query_bundle: QueryBundle) -> AnyResponse:
        # The caller reads a stream itself. An override that calls this method is the whole workflow already.
        is_override = type(self)._aquery is not RetrieverQueryEngine._aquery
        if is_override or getattr(self._response_synthesizer, "is_streaming", False):
            with noting_facts() as facts:
                nodes = await self.aretrieve(query_bundle)
            return _with_facts(await self.asynthesize(query_bundle, nodes), facts)
        return await self.run(query_bundle)


def _with_facts(response: AnyResponse, facts: dict[str, list[Any]]) -> AnyResponse:
    if facts:
        response.metadata = {**(response.metadata or {}), **facts}
    return response


class TransformQueryEngine(BaseQueryEngine):
    """Changes the question before another engine answers it.

    Args:
        query_engine: The engine.
        query_transform: Its ``arun(bundle, metadata=...)`` or ``run`` returns the new query.
        transform_metadata: Data for the transformation.
        callback_manager: Accepted and kept; use instrumentation instead.
    """

    def __init__(
        self,
        query_engine: BaseQueryEngine,
        query_transform: Any,
        transform_metadata: dict[str, Any] | None = None,
        callback_manager: Any = None,
    ) -> None:
        super().__init__(callback_manager)
        self._query_engine = query_engine
        self._transformed = partial(transformed_query, query_transform, transform_metadata)

    def _query(self, query_bundle: QueryBundle) -> Any:
        return self._query_engine.query(run_sync(self._transformed(query_bundle)))

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        return await self._query_engine.aquery(await self._transformed(query_bundle))
