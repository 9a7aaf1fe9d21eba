"""A retriever that asks several retrievers, also with further questions, and joins their results."""

from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, pstdev
from typing import Any

from batonflow.llms import LLM
from batonflow.llms.prompts import BasePromptTemplate, PromptTemplate
from batonflow.nodes import BaseRetriever, NodeWithScore, QueryBundle
from batonflow.retrieval.filters import checked_number
from batonflow.retrieval.requests import all_of, given_llm, predict, required_llm

__all__ = ["FUSION_MODES", "QueryFusionRetriever"]

_MORE_QUESTIONS = PromptTemplate(
    "Write {num_queries} further questions with which passages for this question can be found, one in each line.\n"
    "Question: {query}\nQuestions:\n"
)
_RANK = 60


class FUSION_MODES(StrEnum):  # noqa: N801 - the name that programs know
    """The way in which scores are joined."""

    SIMPLE = "simple"
    RECIPROCAL_RANK = "reciprocal_rerank"
    RELATIVE_SCORE = "relative_score"
    DIST_BASED_SCORE = "dist_based_score"


class QueryFusionRetriever(BaseRetriever):
    """Asks several retrievers, also with further questions that a model writes, and joins their results.

    Reciprocal ranks are joined as by Cormack and others, "Reciprocal Rank Fusion outperforms Condorcet and individual
    Rank Learning Methods" (2009).

    Args:
        retrievers: The retrievers.
        llm: The model that writes questions; by default that of ``Settings``.
        query_gen_prompt: The prompt, with ``num_queries`` and ``query``.
        mode: ``simple`` (the best score), ``reciprocal_rerank``, ``relative_score`` or ``dist_based_score``.
        similarity_top_k: The largest number of nodes.
        num_queries: The number of questions, with the given one; 1 asks no model.
        use_async: Accepted and kept; retrievers are asked at once.
        retriever_weights: The weights of the retrievers, for the last two modes.

    Example:
        >>> QueryFusionRetriever([words, vectors], num_queries=1, mode="reciprocal_rerank").retrieve("tides")
    """

    def __init__(
        self,
        retrievers: Sequence[BaseRetriever],
        llm: LLM | str | None = None,
        query_gen_prompt: BasePromptTemplate | str | None = None,
        mode: FUSION_MODES | str = FUSION_MODES.SIMPLE,
        similarity_top_k: int = 2,
        num_queries: int = 4,
        use_async: bool = True,
        retriever_weights: Sequence[float] | None = None,
        callback_manager: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(callback_manager, verbose=verbose)
        prompt = PromptTemplate(query_gen_prompt) if isinstance(query_gen_prompt, str) else query_gen_prompt
        self._retrievers, self._llm, self._prompt = list(retrievers), given_llm(llm), prompt or _MORE_QUESTIONS
        self.mode, self.num_queries = FUSION_MODES(mode), num_queries
        self.similarity_top_k = checked_number("similarity_top_k", similarity_top_k)
        self.use_async = use_async
        weights = list(retriever_weights or [1.0] * len(self._retrievers))
        self._weights = [one / sum(weights) for one in weights]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        queries = [query_bundle, *await self._more(query_bundle.query_str)]
        asked = [(query, at) for query in queries for at in range(len(self._retrievers))]
        lists = await all_of(self._retrievers[at].aretrieve(query) for query, at in asked)
        scored: list[list[tuple[NodeWithScore, float]]] = []
        for (_, at), nodes in zip(asked, lists, strict=True):
            share = self._weights[at] / len(queries)
            scored.append(list(zip(nodes, self._scores(nodes, share), strict=True)))
        return self._joined(scored)

    async def _more(self, query: str) -> list[QueryBundle]:
        if self.num_queries <= 1:
            return []
        llm = required_llm(self._llm, self)
        answer = await predict(llm, self._prompt, num_queries=self.num_queries - 1, query=query)
        lines = [line.strip() for line in answer.split("\n") if line.strip()]
        return [QueryBundle(line) for line in lines[: self.num_queries - 1]]

    def _scores(self, nodes: Sequence[NodeWithScore], share: float) -> list[float]:
        """Return the scores of one list, in a form in which lists can be joined."""
        scores = [one.score or 0.0 for one in nodes]
        if self.mode is FUSION_MODES.SIMPLE or not scores:
            return scores
        if self.mode is FUSION_MODES.RECIPROCAL_RANK:
            order = sorted(range(len(scores)), key=lambda at: -scores[at])
            ranks = {at: rank for rank, at in enumerate(order)}
            return [1 / (_RANK + ranks[at]) for at in range(len(scores))]
        low, high = min(scores), max(scores)
        if self.mode is FUSION_MODES.DIST_BASED_SCORE:
            mean, spread = fmean(scores), pstdev(scores)
            low, high = mean - 3 * spread, mean + 3 * spread
        if high == low:
            return [share if high > 0 else 0.0] * len(scores)
        return [share * (one - low) / (high - low) for one in scores]

    def _joined(self, lists: Sequence[Sequence[tuple[NodeWithScore, float]]]) -> list[NodeWithScore]:
        first: dict[str, NodeWithScore] = {}
        total: dict[str, float] = {}
        for found in lists:
            for one, score in found:
                key = one.node.hash
                first.setdefault(key, one)
                known = total.get(key)
                if known is None or self.mode is not FUSION_MODES.SIMPLE:
                    total[key] = (known or 0.0) + score
                else:
                    total[key] = max(known, score)
        best = sorted(total, key=lambda key: -total[key])[: self.similarity_top_k]
        return [NodeWithScore(node=first[key].node, score=total[key]) for key in best]
