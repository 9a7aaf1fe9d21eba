"""Transformations of questions: an invented answer to search with, and simpler questions."""

from typing import Any

from batonflow.llms import LLM
from batonflow.llms._bridge import run_sync
from batonflow.llms.prompts import BasePromptTemplate, PromptTemplate
from batonflow.nodes import QueryBundle
from batonflow.retrieval.prompts import DECOMPOSE_QUESTION
from batonflow.retrieval.requests import WithPrompt, given_llm, predict, required_llm
from batonflow.threads import in_thread

__all__ = [
    "BaseQueryTransform",
    "DecomposeQueryTransform",
    "HyDEQueryTransform",
    "IdentityQueryTransform",
    "StepDecomposeQueryTransform",
    "transformed_query",
]

_INVENT_ANSWER = PromptTemplate(
    "Write a passage that answers the question, as it might stand in a handbook.\nQuestion: {context_str}\nPassage: "
)


async def transformed_query(transform: Any, metadata: dict[str, Any] | None, query: QueryBundle) -> QueryBundle:
    """Return the question that a transformation makes; one without ``arun`` runs in a thread."""
    if hasattr(transform, "arun"):
        return await transform.arun(query, metadata=metadata)
    return await in_thread(lambda: transform.run(query, metadata=metadata))


class BaseQueryTransform(WithPrompt):
    """The base class of transformations of questions. Subclasses write ``_arun``."""

    def run(self, query_bundle_or_str: str | QueryBundle, metadata: dict[str, Any] | None = None) -> QueryBundle:
        """Return another question.

        Args:
            query_bundle_or_str: The question.
            metadata: Further data for the transformation.
        """
        return run_sync(self.arun(query_bundle_or_str, metadata))

    async def arun(self, query_bundle_or_str: str | QueryBundle, metadata: dict[str, Any] | None = None) -> QueryBundle:
        """Return another question; see ``run``."""
        return await self._arun(QueryBundle.of(query_bundle_or_str), metadata or {})

    async def _arun(self, query_bundle: QueryBundle, metadata: dict[str, Any]) -> QueryBundle:
        raise NotImplementedError(f"{type(self).__name__} has no _arun")

    def __call__(self, query_bundle_or_str: str | QueryBundle, metadata: dict[str, Any] | None = None) -> QueryBundle:
        """Return another question; see ``run``."""
        return self.run(query_bundle_or_str, metadata)


class IdentityQueryTransform(BaseQueryTransform):
    """Leaves a question as it is."""

    async def _arun(self, query_bundle: QueryBundle, metadata: dict[str, Any]) -> QueryBundle:
        del metadata
        return query_bundle


class HyDEQueryTransform(BaseQueryTransform):
    """Searches with an answer that a model invents.

    The method is that of Gao and others, "Precise Zero-Shot Dense Retrieval without Relevance Labels" (2022).

    Args:
        llm: The model; by default that of ``Settings``.
        hyde_prompt: The prompt, with ``context_str`` for the question.
        include_original: Whether to search with the question, too.
    """

    _prompt_name = "hyde_prompt"

    def __init__(
        self, llm: LLM | str | None = None, hyde_prompt: BasePromptTemplate | None = None, include_original: bool = True
    ) -> None:
        self._llm, self._prompt, self._include_original = (
            given_llm(llm),
            hyde_prompt or _INVENT_ANSWER,
            include_original,
        )

    async def _arun(self, query_bundle: QueryBundle, metadata: dict[str, Any]) -> QueryBundle:
        del metadata
        question = query_bundle.query_str
        invented = await predict(required_llm(self._llm, self), self._prompt, context_str=question)
        texts = [invented, *(query_bundle.embedding_strs if self._include_original else ())]
        return QueryBundle(question, custom_embedding_strs=texts)


class StepDecomposeQueryTransform(BaseQueryTransform):
    """Makes the next simple question towards the answer of a harder one.

    The data for it are ``index_summary`` and ``prev_reasoning``.

    Args:
        llm: The model; by default that of ``Settings``.
        step_decompose_query_prompt: The prompt, with ``context_str``, ``query_str`` and ``prev_reasoning``.
        verbose: Accepted and kept.
    """

    _prompt_name = "step_decompose_query_prompt"

    def __init__(
        self,
        llm: LLM | str | None = None,
        step_decompose_query_prompt: BasePromptTemplate | None = None,
        verbose: bool = False,
    ) -> None:
        self._llm, self._prompt = given_llm(llm), step_decompose_query_prompt or DECOMPOSE_QUESTION
        self.verbose = verbose

    async def _arun(self, query_bundle: QueryBundle, metadata: dict[str, Any]) -> QueryBundle:
        values = {
            "context_str": metadata.get("index_summary", "the passages"),
            "query_str": query_bundle.query_str,
            "prev_reasoning": metadata.get("prev_reasoning") or "None",
        }
        question = await predict(required_llm(self._llm, self), self._prompt, **values)
        return QueryBundle(question.strip(), custom_embedding_strs=query_bundle.custom_embedding_strs)


class DecomposeQueryTransform(StepDecomposeQueryTransform):
    """Makes a simpler question that one source of knowledge can answer."""

    _prompt_name = "decompose_query_prompt"
