"""Stores of vectors: the queries that they answer, and the base class for stores of other makers."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from batonflow.nodes import BaseComponent, BaseNode, TextNode
from batonflow.nodes.schema import node_of
from batonflow.retrieval.filters import MetadataFilters
from batonflow.threads import in_thread

__all__ = [
    "BasePydanticVectorStore",
    "VectorStoreQuery",
    "VectorStoreQueryMode",
    "VectorStoreQueryResult",
    "best_and_different",
    "metadata_dict_to_node",
    "node_to_metadata_dict",
]

_FLAT = (str, int, float, bool, type(None))


class VectorStoreQueryMode(StrEnum):
    """The way in which a store answers a query."""

    DEFAULT = "default"
    SPARSE = "sparse"
    HYBRID = "hybrid"
    TEXT_SEARCH = "text_search"
    SEMANTIC_HYBRID = "semantic_hybrid"
    SVM = "svm"
    LOGISTIC_REGRESSION = "logistic_regression"
    LINEAR_REGRESSION = "linear_regression"
    MMR = "mmr"


@dataclass
class VectorStoreQuery:
    """A query for a store of vectors.

    Args:
        query_embedding: The vector of the question.
        similarity_top_k: The largest number of nodes.
        doc_ids: Only nodes of these documents.
        node_ids: Only these nodes.
        query_str: The question.
        output_fields: Fields to return, for stores that have such a choice.
        embedding_field: The field of the vectors, for stores with several.
        mode: The way of the search.
        alpha: The weight of vectors in a hybrid search, from 0 to 1.
        filters: Conditions on the metadata.
        mmr_threshold: The weight of relevance against difference, from 0 to 1.
        sparse_top_k: The number of nodes by words in a hybrid search.
        hybrid_top_k: The number of nodes of a hybrid search.
    """

    query_embedding: list[float] | None = None
    similarity_top_k: int = 1
    doc_ids: list[str] | None = None
    node_ids: list[str] | None = None
    query_str: str | None = None
    output_fields: list[str] | None = None
    embedding_field: str | None = None
    mode: VectorStoreQueryMode = VectorStoreQueryMode.DEFAULT
    alpha: float | None = None
    filters: MetadataFilters | None = None
    mmr_threshold: float | None = None
    sparse_top_k: int | None = None
    hybrid_top_k: int | None = None


@dataclass
class VectorStoreQueryResult:
    """The nodes that a store has found, with their similarities and ids."""

    nodes: Sequence[BaseNode] | None = None
    similarities: list[float] | None = None
    ids: list[str] | None = None


class BasePydanticVectorStore(BaseComponent, ABC):
    """The base class of stores of vectors. Asynchronous methods call the synchronous ones in a thread.

    Attributes:
        stores_text: Whether the store returns nodes, and not only ids.
        is_embedding_query: Whether it wants the vector of the question.
    """

    stores_text: bool = True
    is_embedding_query: bool = True

    @property
    @abstractmethod
    def client(self) -> Any:
        """The client of the database."""

    @abstractmethod
    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes with vectors, and return their ids."""

    @abstractmethod
    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""

    @abstractmethod
    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find nodes."""

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes with vectors, and return their ids."""
        return await in_thread(lambda: self.add(nodes, **kwargs))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        await in_thread(lambda: self.delete(ref_doc_id, **delete_kwargs))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find nodes."""
        return await in_thread(lambda: self.query(query, **kwargs))

    def persist(self, persist_path: str, fs: Any = None) -> None:
        """Write the store to a file; stores that are files already do nothing."""

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return nodes by their ids, or by conditions on their metadata."""
        raise NotImplementedError(f"{type(self).__name__} does not return nodes by id")

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> None:
        """Delete nodes by their ids, or by conditions on their metadata."""
        raise NotImplementedError(f"{type(self).__name__} does not delete nodes by id")


def best_and_different(
    query: Sequence[float], vectors: "np.ndarray[Any, Any]", top_k: int, threshold: float = 0.5
) -> list[tuple[int, float]]:
    """Choose vectors that are near a query and far from each other, by maximal marginal relevance.

    The method is that of Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking for Reordering Documents
    and Producing Summaries" (1998).

    Args:
        query: The vector of the question.
        vectors: Unit vectors, by rows.
        top_k: The largest number of vectors.
        threshold: The weight of nearness to the query, from 0 to 1.

    Returns:
        Rows with their scores, in the order of choice.

    Raises:
        ValueError: ``threshold`` is not between 0 and 1.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"mmr_threshold must be a number from 0 to 1, not {threshold}")
    asked = np.asarray(query, np.float32)
    near = vectors @ (asked / (float(np.linalg.norm(asked)) or 1.0))
    known = np.zeros(len(vectors), np.float32)  # the largest similarity to a chosen one
    left, chosen = np.ones(len(vectors), bool), list[tuple[int, float]]()
    while len(chosen) < min(top_k, len(vectors)):
        scores = np.where(left, threshold * near - (1 - threshold) * known, -np.inf)
        best = int(np.argmax(scores))
        chosen.append((best, float(scores[best])))
        left[best] = False
        similar = vectors @ vectors[best]
        known = similar if len(chosen) == 1 else np.maximum(known, similar)
    return chosen


def node_to_metadata_dict(
    node: BaseNode, remove_text: bool = False, text_field: str = "text", flat_metadata: bool = False
) -> dict[str, Any]:
    """Return a node as metadata, the form in which databases of vectors hold nodes.

    Args:
        node: The node.
        remove_text: Whether the database holds the text beside it.
        text_field: The name of the text in the data.
        flat_metadata: Whether the database refuses nested values.

    Raises:
        ValueError: There is a nested value, and ``flat_metadata`` is set.
    """
    metadata: dict[str, Any] = dict(node.metadata)
    if flat_metadata and (nested := [key for key, value in metadata.items() if not isinstance(value, _FLAT)]):
        raise ValueError(f"the metadata {nested[0]!r} has a nested value: write text, a number or None")
    content = node.model_dump(mode="json")
    if remove_text:
        content[text_field] = ""
    content["embedding"] = None
    metadata["_node_content"] = json.dumps(content)
    metadata["_node_type"] = node.class_name()
    # Three names, because databases that exist use one or another.
    for name in ("document_id", "doc_id", "ref_doc_id"):
        metadata[name] = node.ref_doc_id or "None"
    return metadata


def metadata_dict_to_node(metadata: Mapping[str, Any], text: str | None = None) -> BaseNode:
    """Return the node of metadata from ``node_to_metadata_dict``.

    Args:
        metadata: The metadata.
        text: The text, if the database holds it beside.

    Raises:
        ValueError: The metadata are not of a node.
    """
    content = metadata.get("_node_content")
    if content is None:
        raise ValueError("the metadata have no _node_content: they are not of a node")
    node = node_of({**json.loads(content), "class_name": metadata.get("_node_type", TextNode.class_name())})
    if text is not None:
        node.set_content(text)
    return node
