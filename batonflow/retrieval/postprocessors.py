"""Postprocessors: drop, order, extend or change the nodes that a search has found."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from batonflow.llms import Settings
from batonflow.llms.prompts import BasePromptTemplate
from batonflow.nodes import BaseNode, BaseNodePostprocessor, MetadataMode, NodeWithScore, QueryBundle
from batonflow.retrieval.prompts import NEIGHBOURS, marked_passages
from batonflow.retrieval.requests import all_of, given_llm, predict, required_llm
from batonflow.retrieval.splitters import split_sentences

__all__ = [
    "AutoPrevNextNodePostprocessor", "EmbeddingRecencyPostprocessor", "FixedRecencyPostprocessor",
    "KeywordNodePostprocessor", "LongContextReorder", "MetadataReplacementPostProcessor",
    "PrevNextNodePostprocessor", "SentenceEmbeddingOptimizer", "SimilarityPostprocessor",
    "TimeWeightedPostprocessor", "required_query",
]  # fmt: skip

_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_DATES = ("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%B %d, %Y", "%d %B %Y", "%b %d, %Y", "%d %b %Y")


def required_query(query_bundle: QueryBundle | None) -> QueryBundle:
    """Return the query of a postprocessor that needs one.

    Raises:
        ValueError: There is no query.
    """
    if query_bundle is None:
        raise ValueError("Missing query bundle: pass query_bundle= or query_str=")
    return query_bundle


def _embed_model() -> Any:
    return getattr(Settings, "embed_model", None)


def _changed(found: NodeWithScore, text: str) -> NodeWithScore:
    """Return the node with another text; the node itself may belong to an index."""
    node = found.node.model_copy()
    node.set_content(text)
    return NodeWithScore(node=node, score=found.score)


class _Unasked(BaseNodePostprocessor):
    """A postprocessor that works without a query."""

    def _postprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,  # noqa: ARG002
    ) -> list[NodeWithScore]:
        return self._without_query(nodes)

    def _without_query(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        raise NotImplementedError


class SimilarityPostprocessor(_Unasked):
    """Keep nodes with a score of at least ``similarity_cutoff``; nodes without a score are left out."""

    similarity_cutoff: float = 0.0

    def _without_query(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        return [found for found in nodes if found.score is not None and found.score >= self.similarity_cutoff]


class KeywordNodePostprocessor(_Unasked):
    """Keep nodes with a required keyword and without an excluded one: whole words, or parts of CJK text."""

    required_keywords: list[str] = Field(default_factory=list[str])
    exclude_keywords: list[str] = Field(default_factory=list[str])
    lang: str = "en"

    def _without_query(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        return [
            found
            for found in nodes
            if (not self.required_keywords or _has_any(found.node, self.required_keywords))
            and not _has_any(found.node, self.exclude_keywords)
        ]


def _has_any(node: BaseNode, keywords: Sequence[str]) -> bool:
    text = node.get_content()
    return any(
        word in text if _CJK.search(word) else re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) for word in keywords
    )


class _Neighbours(BaseNodePostprocessor):
    docstore: Any = Field(exclude=True)
    num_nodes: int = Field(default=1, ge=0)

    def _extended(self, nodes: list[NodeWithScore], modes: Sequence[str]) -> list[NodeWithScore]:
        known = {found.node.node_id: found for found in nodes}
        for found, mode in zip(nodes, modes, strict=True):
            for side in ("previous", "next"):
                for node in self._beside(found.node, side) if mode in (side, "both") else ():
                    known.setdefault(node.node_id, NodeWithScore(node=node))
        return _in_document_order(list(known.values()))

    def _beside(self, node: BaseNode, side: str) -> Iterator[BaseNode]:
        for _ in range(self.num_nodes):
            if (related := node.next_node if side == "next" else node.prev_node) is None:
                return
            node = self.docstore.get_node(related.node_id)
            yield node


class PrevNextNodePostprocessor(_Neighbours, _Unasked):
    """Add the neighbours of nodes in their documents. Each node comes once, in the order of its document."""

    mode: Literal["next", "previous", "both"] = "next"

    def _without_query(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        return self._extended(nodes, [self.mode] * len(nodes))


def _in_document_order(nodes: list[NodeWithScore]) -> list[NodeWithScore]:
    """Order nodes within their documents by their links, and separate chains by their places in the text."""
    by_id = {found.node.node_id: found for found in nodes}
    chains: dict[str, list[list[NodeWithScore]]] = {}
    for found in nodes:
        of_document = chains.setdefault(found.node.ref_doc_id or found.node.node_id, [])
        before = found.node.prev_node
        if before is None or before.node_id not in by_id:
            chain = [found]
            while (after := chain[-1].node.next_node) is not None and after.node_id in by_id:
                chain.append(by_id[after.node_id])
            of_document.append(chain)
    for of_document in chains.values():
        of_document.sort(key=lambda chain: getattr(chain[0].node, "start_char_idx", None) or 0)
    return [found for of_document in chains.values() for chain in of_document for found in chain]


class AutoPrevNextNodePostprocessor(_Neighbours):
    """Add neighbours where a model answers PREVIOUS or NEXT; one request for each node, at once."""

    llm: Any = Field(default=None, exclude=True)
    infer_prev_next_tmpl: BasePromptTemplate = NEIGHBOURS

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query, llm = required_query(query_bundle), required_llm(given_llm(self.llm), self)
        contents = [found.node.get_content(metadata_mode=MetadataMode.LLM) for found in nodes]
        answers = await all_of(
            predict(llm, self.infer_prev_next_tmpl, context_str=text, query_str=query.query_str)
            for text in (marked_passages([content])[0] for content in contents)
        )
        found = (re.search(r"\b(previous|next|none)\b", answer.lower()) for answer in answers)
        return self._extended(nodes, ["none" if one is None else one[1] for one in found])


def _date_of(found: NodeWithScore, key: str) -> float:
    """Return a date of the metadata in seconds; nodes without one are the oldest.

    Raises:
        ValueError: The date cannot be read.
    """
    value = found.node.metadata.get(key)
    if value is None or isinstance(value, int | float):
        return float("-inf") if value is None else float(value)
    date = value if isinstance(value, datetime) else _read_date(str(value).strip())
    if date is None:
        raise ValueError(f"{key} of node {found.node.node_id} is not a date: {value!r}; write it as 2026-01-31")
    return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()


def _read_date(text: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    for form in _DATES:
        with suppress(ValueError):
            return datetime.strptime(text, form).replace(tzinfo=UTC)
    return None


class FixedRecencyPostprocessor(_Unasked):
    """Keep the ``top_k`` newest nodes by the date in their metadata."""

    top_k: int = 1
    date_key: str = "date"

    def _without_query(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        return sorted(nodes, key=lambda found: -_date_of(found, self.date_key))[: self.top_k]


class EmbeddingRecencyPostprocessor(_Unasked):
    """Order nodes from new to old, and leave out near copies of newer ones."""

    embed_model: Any = Field(default_factory=_embed_model, exclude=True)
    date_key: str = "date"
    similarity_cutoff: float = 0.7

    def _without_query(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        newest = sorted(nodes, key=lambda found: -_date_of(found, self.date_key))
        texts = [found.node.get_content(metadata_mode=MetadataMode.EMBED) for found in newest]
        kept: list[tuple[NodeWithScore, list[float]]] = []
        for found, vector in zip(newest, self.embed_model.get_text_embedding_batch(texts), strict=True):
            if all(self.embed_model.similarity(vector, newer) <= self.similarity_cutoff for _, newer in kept):
                kept.append((found, vector))
        return [found for found, _ in kept]


class TimeWeightedPostprocessor(_Unasked):
    """Prefer nodes that were used lately: the score plus ``(1 - time_decay) ** hours`` since the last use.

    Args:
        time_decay: The share that an hour takes away.
        last_accessed_key: The key of the time of the last use in the metadata.
        time_access_refresh: Note the use of the nodes that are kept.
        now: The time in seconds; by default that of the clock.
        top_k: The number of nodes to keep.
    """

    time_decay: float = 0.99
    last_accessed_key: str = "__last_accessed__"
    time_access_refresh: bool = True
    now: float | None = None
    top_k: int = 1

    def _without_query(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        now, key = time.time() if self.now is None else self.now, self.last_accessed_key
        hours = [max(0.0, now - found.node.metadata.get(key, now)) / 3600 for found in nodes]
        weights = [(one.score or 0.0) + (1 - self.time_decay) ** past for one, past in zip(nodes, hours, strict=True)]
        weighted = [NodeWithScore(node=one.node, score=score) for one, score in zip(nodes, weights, strict=True)]
        best = sorted(weighted, key=lambda found: -(found.score or 0.0))[: self.top_k]
        if self.time_access_refresh:
            for found in best:
                found.node.metadata[key] = now
        return best


class MetadataReplacementPostProcessor(_Unasked):
    """Replace the text of nodes by an entry of their metadata, such as the window around a sentence."""

    target_metadata_key: str

    def __init__(self, target_metadata_key: str, **data: Any) -> None:
        data.update(target_metadata_key=target_metadata_key)
        super().__init__(**data)

    def _without_query(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        key = self.target_metadata_key
        return [
            _changed(found, str(found.node.metadata[key])) if key in found.node.metadata else found for found in nodes
        ]


class LongContextReorder(_Unasked):
    """Put the best nodes at the begin and the end of the context, where models read most carefully."""

    def _without_query(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        worst_first = sorted(nodes, key=lambda found: found.score or 0.0)
        return [*worst_first[::2][::-1], *worst_first[1::2]]


class SentenceEmbeddingOptimizer(BaseNodePostprocessor):
    """Keep the sentences of nodes that are similar to the question. Nodes without such a sentence are left out.

    Args:
        embed_model: The embedding model; by default ``Settings.embed_model``.
        percentile_cutoff: The share of the sentences to keep, the most similar ones.
        threshold_cutoff: The least similarity of a sentence.
        tokenizer_fn: Splits text into sentences.
        context_before: The number of sentences to keep before a kept one.
        context_after: The number of sentences to keep after a kept one.
    """

    embed_model: Any = Field(default_factory=_embed_model, exclude=True)
    percentile_cutoff: float | None = None
    threshold_cutoff: float | None = None
    tokenizer_fn: Callable[[str], list[str]] = Field(default=split_sentences, exclude=True)
    context_before: int = Field(default=1, ge=0)
    context_after: int = Field(default=1, ge=0)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = required_query(query_bundle)
        if query.embedding is None:
            query.embedding = self.embed_model.get_agg_embedding_from_queries(query.embedding_strs)
        texts = [(found, self._similar_part(found.node.get_content(), query.embedding)) for found in nodes]
        return [_changed(found, text) for found, text in texts if text]

    def _similar_part(self, text: str, asked: Any) -> str:
        sentences = self.tokenizer_fn(text)
        vectors = self.embed_model.get_text_embedding_batch(sentences)
        scores = [self.embed_model.similarity(asked, vector) for vector in vectors]
        best = sorted(range(len(sentences)), key=lambda index: -scores[index])
        if self.percentile_cutoff is not None:
            best = best[: int(len(sentences) * self.percentile_cutoff)]
        if self.threshold_cutoff is not None:
            best = [index for index in best if scores[index] >= self.threshold_cutoff]
        kept = {
            near
            for index in best
            for near in range(index - self.context_before, index + self.context_after + 1)
            if 0 <= near < len(sentences)
        }
        return " ".join(sentences[index].strip() for index in sorted(kept))
