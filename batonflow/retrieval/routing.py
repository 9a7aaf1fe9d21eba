"""Routers: a selector chooses engines or retrievers for a question, and their results become one."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Self

from batonflow.llms import LLM
from batonflow.llms.prompts import PromptMixin
from batonflow.nodes import BaseQueryEngine, BaseRetriever, IndexNode, NodeWithScore, QueryBundle, Response
from batonflow.retrieval.query_runs import EngineWorkflow, QueryAsked, QueryPlanned, records_around, start_query
from batonflow.retrieval.requests import WithPrompt, all_of, given_llm, recording_requests
from batonflow.retrieval.selectors import BaseSelector, SelectorResult, SingleSelection, selector_for
from batonflow.retrieval.synthesizers import AnyResponse, BaseSynthesizer, TreeSummarize
from batonflow.tools import QueryEngineTool, RetrieverTool
from batonflow.workflow_core import Context, Event, StopEvent, WorkflowHandler, step

__all__ = ["RouterQueryEngine", "RouterRetriever", "ToolRetrieverRouterQueryEngine"]


class Routed(Event):
    """The engines that are chosen for a question."""

    query: QueryBundle
    chosen: SelectorResult


class PartAnswered(Event):
    """The answers of the chosen engines."""

    query: QueryBundle
    chosen: SelectorResult
    answers: list[Any]


class RouterWorkflow(EngineWorkflow):
    """The workflow of a ``RouterQueryEngine``."""

    @step
    async def select(self, ctx: Context[Any], ev: QueryAsked) -> Routed:
        """Choose engines."""
        with recording_requests(records_around.get() or ctx.once):
            chosen = await self.engine.selected(ev.query)
        ctx.write_event_to_stream(QueryPlanned(query=ev.query, plan=self.engine.names_of(chosen)))
        return Routed(query=ev.query, chosen=chosen)

    @step
    async def ask(self, ctx: Context[Any], ev: Routed) -> PartAnswered:
        """Ask the chosen engines, at once."""
        with recording_requests(records_around.get() or ctx.once):
            answers = await self.engine.answers_of(ev.query, ev.chosen)
        return PartAnswered(query=ev.query, chosen=ev.chosen, answers=answers)

    @step
    async def combine(self, ctx: Context[Any], ev: PartAnswered) -> StopEvent:
        """Make one answer."""
        with recording_requests(records_around.get() or ctx.once):
            return StopEvent(result=await self.engine.combined(ev.query, ev.chosen, ev.answers))


class RouterQueryEngine(BaseQueryEngine, WithPrompt):
    """Lets a selector choose among engines for each question.

    Args:
        selector: Chooses by the descriptions of the tools.
        query_engine_tools: The engines, with descriptions.
        llm: The model that joins several answers.
        summarizer: Joins several answers; by default ``TreeSummarize``.
        verbose: Accepted and kept.

    Example:
        >>> RouterQueryEngine.from_defaults([sea_tool, bread_tool], llm=llm).query("What are tides?")
    """

    def __init__(
        self,
        selector: BaseSelector,
        query_engine_tools: Sequence[QueryEngineTool],
        llm: LLM | str | None = None,
        summarizer: BaseSynthesizer | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__()
        self._selector, self._tools, self.verbose = selector, list(query_engine_tools), verbose
        self._summarizer = summarizer or TreeSummarize(given_llm(llm))
        self.workflow = RouterWorkflow(self)

    @classmethod
    def from_defaults(
        cls,
        query_engine_tools: Sequence[QueryEngineTool],
        llm: LLM | str | None = None,
        selector: BaseSelector | None = None,
        summarizer: BaseSynthesizer | None = None,
        select_multi: bool = False,
    ) -> Self:
        """Return a router whose selector fits the model."""
        return cls(selector or selector_for(llm, select_multi), query_engine_tools, llm, summarizer)

    def run(
        self, query: str | QueryBundle, *, run_id: str | None = None, store: str | PathLike[str] | Any = None
    ) -> WorkflowHandler[Any]:
        """Start a query and return its handler at once; see ``RetrieverQueryEngine.run``."""
        return start_query(self.workflow, query, run_id, store)

    async def selected(self, query: QueryBundle) -> SelectorResult:
        """Choose engines."""
        return await self._selector.aselect([one.metadata for one in self._tools], query)

    def names_of(self, chosen: SelectorResult) -> list[str]:
        """Return the names of chosen engines."""
        return [self._tools[at].metadata.get_name() for at in chosen.inds]

    async def answers_of(self, query: QueryBundle, chosen: SelectorResult) -> list[Any]:
        """Ask the chosen engines, at once."""
        return await all_of(self._tools[at].query_engine.aquery(query) for at in chosen.inds)

    async def combined(self, query: QueryBundle, chosen: SelectorResult, answers: Sequence[Any]) -> AnyResponse:
        """Return the only answer, or make one of several."""
        if len(answers) == 1:
            answer = answers[0]
            answer.metadata = {**(answer.metadata or {}), "selector_result": chosen}
            return answer
        sources: list[NodeWithScore] = [node for answer in answers for node in answer.source_nodes]
        text = await self._summarizer.aget_response(query.query_str, [str(answer) for answer in answers])
        return Response(str(text), sources, {"selector_result": chosen})

    async def _aquery(self, query_bundle: QueryBundle) -> AnyResponse:
        return await self.run(query_bundle)

    def _get_prompt_modules(self) -> dict[str, PromptMixin]:
        return {"selector": self._selector, "summarizer": self._summarizer}


class ToolRetrieverRouterQueryEngine(RouterQueryEngine):
    """Asks the engines that a retriever finds for a question, and makes one answer of theirs.

    Args:
        retriever: Finds tools, as ``ObjectIndex.as_retriever()`` does.
        llm: The model that joins several answers.
        summarizer: Joins several answers; by default ``TreeSummarize``.

    Example:
        >>> tools = ObjectIndex.from_objects([sea_tool, bread_tool])
        >>> ToolRetrieverRouterQueryEngine(tools.as_retriever(similarity_top_k=1), llm=llm).query("What are tides?")
    """

    def __init__(self, retriever: Any, llm: LLM | str | None = None, summarizer: BaseSynthesizer | None = None) -> None:
        super().__init__(BaseSelector(), [], llm, summarizer)
        self._retriever = retriever

    async def _tools_for(self, query: QueryBundle) -> dict[str, QueryEngineTool]:
        return {one.metadata.get_name(): one for one in await self._retriever.aretrieve(query)}

    async def selected(self, query: QueryBundle) -> SelectorResult:
        """Find engines; the reason of a choice is the name of its tool."""
        names = await self._tools_for(query)
        return SelectorResult(selections=[SingleSelection(index=at, reason=name) for at, name in enumerate(names)])

    def names_of(self, chosen: SelectorResult) -> list[str]:
        """Return the names of chosen engines."""
        return chosen.reasons

    async def answers_of(self, query: QueryBundle, chosen: SelectorResult) -> list[Any]:
        """Ask the chosen engines, at once."""
        tools = await self._tools_for(query)
        return await all_of(tools[name].query_engine.aquery(query) for name in chosen.reasons)

    async def combined(self, query: QueryBundle, chosen: SelectorResult, answers: Sequence[Any]) -> AnyResponse:
        """Return the only answer, or make one of several."""
        answer = await super().combined(query, chosen, answers) if answers else Response("Empty Response", [])
        answer.metadata = {**(answer.metadata or {}), "retrieved_tools": chosen.reasons}
        return answer


class RouterRetriever(BaseRetriever):
    """Lets a selector choose among retrievers for each question.

    Args:
        selector: Chooses by the descriptions of the tools.
        retriever_tools: The retrievers, with descriptions.
        llm: Accepted and kept; the selector has its own model.
        callback_manager: Accepted and kept; use instrumentation instead.
        object_map: Objects by the ids of index nodes.
        objects: Index nodes with objects.
        verbose: Accepted and kept.

    Example:
        >>> RouterRetriever.from_defaults([sea_tool, bread_tool], llm=llm).retrieve("What are tides?")
    """

    def __init__(
        self,
        selector: BaseSelector,
        retriever_tools: Sequence[RetrieverTool],
        llm: LLM | str | None = None,
        callback_manager: Any = None,
        object_map: Mapping[str, Any] | None = None,
        objects: Sequence[IndexNode] | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(callback_manager, object_map, objects, verbose)
        self._selector, self._tools, self.llm = selector, list(retriever_tools), llm

    @classmethod
    def from_defaults(
        cls,
        retriever_tools: Sequence[RetrieverTool],
        llm: LLM | str | None = None,
        selector: BaseSelector | None = None,
        select_multi: bool = False,
    ) -> Self:
        """Return a router whose selector fits the model."""
        return cls(selector or selector_for(llm, select_multi), retriever_tools, llm)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        chosen = await self._selector.aselect([one.metadata for one in self._tools], query_bundle)
        lists = await all_of(self._tools[at].retriever.aretrieve(query_bundle) for at in chosen.inds)
        found: dict[str, NodeWithScore] = {}
        for one in (one for nodes in lists for one in nodes):
            found.setdefault(one.node.id_, one)
        return list(found.values())
