"""LLMRerank and StructuredLLMRerank: a model chooses and orders passages."""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, Field, PrivateAttr

from batonflow.instrumentation import get_dispatcher
from batonflow.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from batonflow.llms import LLM
from batonflow.llms.errors import LLMError
from batonflow.llms.prompts import BasePromptTemplate, PromptMixin
from batonflow.nodes import BaseNode, BaseNodePostprocessor, MetadataMode, NodeWithScore, QueryBundle
from batonflow.retrieval.postprocessors import required_query
from batonflow.retrieval.prompts import CHOOSE_PASSAGES, marked_passages
from batonflow.retrieval.requests import all_of, given_llm, predict, required_llm, structured

__all__ = ["DocumentRelevanceList", "DocumentWithRelevance", "LLMRerank", "StructuredLLMRerank", "parse_choices"]

_dispatcher = get_dispatcher(__name__)
_logger = logging.getLogger(__name__)

_LINE = re.compile(
    r"[\W_]*(?P<word>[^\W\d]+)?\W{0,3}(?P<number>\d+)\W{0,6}(?:[^\W\d]+\s*[:\uff1a=]?\s*)?(?P<relevance>\d+(?:\.\d+)?)?"
)


def parse_choices(answer: str, num_choices: int) -> tuple[list[int], list[float]] | None:
    """Read lines such as ``Doc: 2, Relevance: 9``; None if the answer has no such line.

    Numbers above ``num_choices`` and repeated numbers are left out. A line without a relevance counts 1.
    """
    lines = [found for line in answer.splitlines() if (found := _LINE.match(line))]
    named = [one for one in lines if one["relevance"] or (one["word"] or "").lower() in ("doc", "document", "passage")]
    chosen: dict[int, float] = {}
    for one in named:
        if 1 <= int(one["number"]) <= num_choices:
            chosen.setdefault(int(one["number"]), float(one["relevance"] or 1.0))
    return (list(chosen), list(chosen.values())) if named else None


class LLMRerank(BaseNodePostprocessor, PromptMixin):
    """Let a model choose and order nodes by their relevance to the question.

    The nodes of a batch whose answer cannot be read come after the others, in their order.

    Args:
        llm: A model or its name; by default ``Settings.llm``.
        choice_select_prompt: The prompt, with ``{context_str}`` and ``{query_str}``.
        choice_batch_size: The number of nodes in one request; requests are sent at once.
        format_node_batch_fn: Returns the nodes of a batch as text, in place of numbered passages.
        parse_choice_select_answer_fn: Returns numbers and relevances of an answer for a number of nodes.
        top_n: The number of nodes to keep.

    Example:
        >>> LLMRerank(llm=llm, top_n=3).postprocess_nodes(nodes, query_str="What moves the sea?")
    """

    llm: Any = Field(default=None, exclude=True)
    choice_select_prompt: BasePromptTemplate = CHOOSE_PASSAGES
    choice_batch_size: int = Field(default=10, ge=1)
    top_n: int = 10

    _format: Callable[[list[BaseNode]], str] | None = PrivateAttr(None)
    _parse: Callable[[str, int], tuple[Sequence[int], Sequence[float]]] | None = PrivateAttr(None)

    def __init__(
        self,
        llm: LLM | str | None = None,
        choice_select_prompt: BasePromptTemplate | None = None,
        choice_batch_size: int = 10,
        format_node_batch_fn: Callable[[list[BaseNode]], str] | None = None,
        parse_choice_select_answer_fn: Callable[[str, int], tuple[Sequence[int], Sequence[float]]] | None = None,
        top_n: int = 10,
        **data: Any,
    ) -> None:
        data.update(llm=given_llm(llm), choice_batch_size=choice_batch_size, top_n=top_n)
        data.update(choice_select_prompt=choice_select_prompt or CHOOSE_PASSAGES)
        super().__init__(**data)
        self._format = format_node_batch_fn
        self._parse = parse_choice_select_answer_fn

    def _get_prompts(self) -> dict[str, BasePromptTemplate]:
        return {"choice_select_prompt": self.choice_select_prompt}

    def _update_prompts(self, prompts_dict: dict[str, BasePromptTemplate]) -> None:
        self.choice_select_prompt = prompts_dict.get("choice_select_prompt", self.choice_select_prompt)

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query, llm = required_query(query_bundle), required_llm(self.llm, self)
        if not nodes:
            return []
        if _dispatcher.enabled:
            name = llm.metadata.model_name
            _dispatcher.event(ReRankStartEvent(query=query, nodes=nodes, top_n=self.top_n, model_name=name))
        size = self.choice_batch_size
        batches = [nodes[begin : begin + size] for begin in range(0, len(nodes), size)]
        answers = await all_of(self._choices(llm, query.query_str, batch) for batch in batches)
        ranked: list[NodeWithScore] = []
        unread: list[NodeWithScore] = []
        for batch, chosen in zip(batches, answers, strict=True):
            if chosen is None:
                unread += batch
            else:
                ranked += [
                    NodeWithScore(node=batch[number - 1].node, score=relevance)
                    for number, relevance in zip(*chosen, strict=False)
                    if 1 <= number <= len(batch)
                ]
        ranked.sort(key=lambda found: -(found.score or 0.0))
        best = [*ranked, *unread][: self.top_n]
        if _dispatcher.enabled:
            _dispatcher.event(ReRankEndEvent(nodes=best))
        return best

    async def _choices(
        self, llm: LLM, query: str, batch: list[NodeWithScore]
    ) -> tuple[Sequence[int], Sequence[float]] | None:
        answer = await predict(llm, self.choice_select_prompt, context_str=self._context(batch), query_str=query)
        return (self._parse or parse_choices)(answer, len(batch))

    def _context(self, batch: list[NodeWithScore]) -> str:
        if self._format is not None:
            return self._format([found.node for found in batch])
        return "\n".join(marked_passages([found.node.get_content(metadata_mode=MetadataMode.LLM) for found in batch]))


class DocumentWithRelevance(BaseModel):
    """A chosen passage."""

    document_number: int = Field(description="The number of the passage")
    relevance: float = Field(description="How much the passage helps, from 1 to 10")


class DocumentRelevanceList(BaseModel):
    """The chosen passages, the best one first."""

    documents: list[DocumentWithRelevance] = Field(description="The passages that help to answer the question")


class StructuredLLMRerank(LLMRerank):
    """``LLMRerank`` with structured answers.

    Args:
        raise_on_structured_prediction_failure: Raise if an answer does not fit; otherwise its nodes keep their order.
        **data: The arguments of ``LLMRerank``.
    """

    raise_on_structured_prediction_failure: bool = True

    _answers: ClassVar[type[DocumentRelevanceList]] = DocumentRelevanceList

    async def _choices(
        self, llm: LLM, query: str, batch: list[NodeWithScore]
    ) -> tuple[Sequence[int], Sequence[float]] | None:
        values = {"context_str": self._context(batch), "query_str": query}
        try:
            found = await structured(llm, self._answers, self.choice_select_prompt, **values)
        except (LLMError, ValueError) as error:
            if self.raise_on_structured_prediction_failure:
                raise
            _logger.warning(
                "A structured answer of %s does not fit, and its nodes keep their order: %s",
                llm.metadata.model_name,
                error,
            )
            return None
        return [one.document_number for one in found.documents], [one.relevance for one in found.documents]
