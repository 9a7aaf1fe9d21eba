"""Parser that cuts texts where their subject changes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, SerializeAsAny, field_validator

from batonflow.llms._bridge import run_sync
from batonflow.nodes import BaseNode
from batonflow.retrieval.embeddings import BaseEmbedding, default_embed_model, resolve_embed_model
from batonflow.retrieval.splitters import NodeParser, split_sentences

__all__ = ["SemanticSplitterNodeParser"]


class SemanticSplitterNodeParser(NodeParser):
    """Cuts between neighbouring sentences whose vectors are farthest from each other.

    Args:
        embed_model: The embedding model.
        buffer_size: The number of sentences before and after one whose text is embedded with it.
        breakpoint_percentile_threshold: A cut is where the distance is above this percentile of all distances.
        sentence_splitter: Splits a text into sentences.

    Example:
        >>> SemanticSplitterNodeParser(embed_model=model).get_nodes_from_documents(documents)
    """

    _class_name: ClassVar[str] = "SemanticSplitterNodeParser"
    embed_model: SerializeAsAny[BaseEmbedding]
    buffer_size: int = Field(default=1, ge=1)
    breakpoint_percentile_threshold: float = Field(default=95, ge=0, le=100)
    sentence_splitter: Any = Field(default=split_sentences, exclude=True)

    @field_validator("embed_model", mode="before")
    @classmethod
    def _resolved(cls, value: Any) -> Any:
        return resolve_embed_model(value) if isinstance(value, str) else value

    @classmethod
    def from_defaults(cls, embed_model: BaseEmbedding | str | None = None, **options: Any) -> Self:
        """Return a parser; the embedding model is by default that of ``Settings``."""
        model = default_embed_model() if embed_model is None else resolve_embed_model(embed_model)
        return cls(embed_model=model, **options)

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        return run_sync(self._aparse_nodes(nodes, show_progress, **kwargs))

    async def _aparse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **_: Any) -> list[BaseNode]:
        del show_progress
        return [made for node in nodes for made in self._nodes_of(await self._pieces(node.get_content()), node)]

    async def _pieces(self, text: str) -> list[str]:
        sentences: list[str] = [one for one in self.sentence_splitter(text) if one.strip()]
        if len(sentences) < 2:
            return sentences
        around = self.buffer_size
        groups = ["".join(sentences[max(0, at - around) : at + around + 1]) for at in range(len(sentences))]
        vectors = await self.embed_model.aget_text_embedding_batch(groups)
        distances = [1 - self.embed_model.similarity(one, other) for one, other in pairwise(vectors)]
        cuts = np.flatnonzero(np.array(distances) > np.percentile(distances, self.breakpoint_percentile_threshold))
        edges: list[int] = [0, *(cuts + 1).tolist(), len(sentences)]
        return ["".join(sentences[begin:end]) for begin, end in pairwise(edges)]
