"""Retrievers over retrievers: they follow index nodes, merge parts into wholes, or change the question."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any

from batonflow.llms._bridge import run_sync
from batonflow.nodes import BaseNode, BaseQueryEngine, BaseRetriever, IndexNode, NodeWithScore, QueryBundle, TextNode
from batonflow.retrieval.storage import StorageContext
from batonflow.retrieval.transforms import transformed_query
from batonflow.threads import in_thread

__all__ = ["AutoMergingRetriever", "RecursiveRetriever", "TransformRetriever"]

_ANSWERED = "Query: {query_str}\nResponse: {response}"


class RecursiveRetriever(BaseRetriever):
    """Follows index nodes by their ids, from a first retriever to others, to query engines and to nodes.

    Each id is followed once for a question, so that index nodes may point at each other.

    Args:
        root_id: The id of the first retriever.
        retriever_dict: Retrievers by id.
        query_engine_dict: Query engines by id. An answer becomes a node.
        node_dict: Nodes by id.
        query_response_tmpl: The text of an answer, with ``query_str`` and ``response``.
        callback_manager: Accepted and kept; use instrumentation instead.
        verbose: Accepted and kept.

    Raises:
        ValueError: The first retriever is missing, an id stands for two objects, or an index node has an unknown id.

    Example:
        >>> RecursiveRetriever("pages", {"pages": pages, "tides": tides}).retrieve("What moves the sea?")
    """

    def __init__(
        self,
        root_id: str,
        retriever_dict: Mapping[str, BaseRetriever],
        query_engine_dict: Mapping[str, BaseQueryEngine] | None = None,
        node_dict: Mapping[str, BaseNode] | None = None,
        callback_manager: Any = None,
        query_response_tmpl: str | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(callback_manager, verbose=verbose)
        if root_id not in retriever_dict:
            raise ValueError(f"Root id {root_id} not in retriever_dict, it must be a retriever.")
        given: list[Mapping[str, Any]] = [retriever_dict, query_engine_dict or {}, node_dict or {}]
        self._root, self._by_id = root_id, {key: one for each in given for key, one in each.items()}
        if len(self._by_id) < sum(map(len, given)):
            raise ValueError("retriever_dict, query_engine_dict and node_dict must not have overlapping keys")
        self._template = query_response_tmpl or _ANSWERED

    def retrieve_all(self, query_bundle: QueryBundle) -> tuple[list[NodeWithScore], list[NodeWithScore]]:
        """Return the nodes for a question, and the sources of the answers among them."""
        sources: list[NodeWithScore] = []
        return run_sync(self._followed_from(query_bundle, self._root, None, {self._root}, sources)), sources

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._followed_from(query_bundle, self._root, None, {self._root}, [])

    async def _followed_from(
        self, query: QueryBundle, key: str, score: float | None, seen: set[str], sources: list[NodeWithScore]
    ) -> list[NodeWithScore]:
        """Return the nodes of the object with an id; ``score`` is that of the index node."""
        obj = self._by_id.get(key)
        if isinstance(obj, BaseNode):
            return [NodeWithScore(node=obj, score=score)]
        if isinstance(obj, BaseRetriever):
            found: list[NodeWithScore] = []
            for one in await obj.aretrieve(query):
                node = one.node
                if not isinstance(node, IndexNode):
                    found.append(one)
                elif node.index_id not in seen:
                    seen.add(node.index_id)
                    found += await self._followed_from(query, node.index_id, one.score, seen, sources)
            return found
        if obj is None:
            known = ", ".join(self._by_id)
            raise ValueError(f"Query id {key} not found in the dicts of the retriever; they have {known}")
        answer: Any = await obj.aquery(query)
        sources += answer.source_nodes
        text = self._template.format(query_str=query.query_str, response=answer)
        return [NodeWithScore(node=TextNode(text=text), score=score)]


class AutoMergingRetriever(BaseRetriever):
    """Replaces parts by the whole if most of its parts are found, as long as this changes something.

    The nodes are those of a ``HierarchicalNodeParser``: the index has the leaves, and the store all of them. A node
    that lies alone between two neighbours is added.

    Args:
        vector_retriever: Finds leaves.
        storage_context: Its docstore has all nodes.
        simple_ratio_thresh: A parent takes the place of its children if more than this share of them is found.
        verbose: Accepted and kept.
        callback_manager: Accepted and kept; use instrumentation instead.
        object_map: Objects by the ids of index nodes.
        objects: Index nodes with objects.

    Raises:
        ValueError: The docstore does not have the parent of a node.

    Example:
        >>> nodes = HierarchicalNodeParser.from_defaults().get_nodes_from_documents(documents)
        >>> storage.docstore.add_documents(nodes)
        >>> leaves = VectorStoreIndex(get_leaf_nodes(nodes), storage_context=storage)
        >>> AutoMergingRetriever(leaves.as_retriever(similarity_top_k=6), storage).retrieve("What moves the sea?")
    """

    def __init__(
        self,
        vector_retriever: BaseRetriever,
        storage_context: StorageContext,
        simple_ratio_thresh: float = 0.5,
        verbose: bool = False,
        callback_manager: Any = None,
        object_map: Mapping[str, Any] | None = None,
        objects: Sequence[IndexNode] | None = None,
    ) -> None:
        super().__init__(callback_manager, object_map, objects, verbose)
        self._retriever, self._docstore = vector_retriever, storage_context.docstore
        self._threshold = simple_ratio_thresh

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await in_thread(self._merged_all, await self._retriever.aretrieve(query_bundle))

    def _merged_all(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        while (after := self._merged(self._filled(nodes))) != nodes:
            nodes = after
        return sorted(nodes, key=NodeWithScore.get_score, reverse=True)

    def _filled(self, nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        """Add the nodes that lie alone between two nodes which follow each other."""
        known = {one.node.id_ for one in nodes}
        found = list(nodes[:1])
        for one, other in pairwise(nodes):
            after, before = one.node.next_node, other.node.prev_node
            if after is not None and before is not None and after.node_id == before.node_id not in known:
                known.add(after.node_id)
                score = fmean((one.get_score(), other.get_score()))
                found.append(NodeWithScore(node=self._stored(after.node_id), score=score))
            found.append(other)
        return found

    def _merged(self, nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        """Replace the children of a parent by it where enough of them are there."""
        parts: dict[str, list[NodeWithScore]] = {}
        for one in nodes:
            if (parent := one.node.parent_node) is not None:
                parts.setdefault(parent.node_id, []).append(one)
        known = {one.node.id_ for one in nodes}
        gone: set[str] = set()
        found: list[NodeWithScore] = []
        for key, children in parts.items():
            parent = self._stored(key)
            if len(children) > self._threshold * len(parent.child_nodes or children):
                gone.update(one.node.id_ for one in children)
                if key not in known:
                    found.append(NodeWithScore(node=parent, score=fmean(map(NodeWithScore.get_score, children))))
        return [*(one for one in nodes if one.node.id_ not in gone), *found]

    def _stored(self, node_id: str) -> BaseNode:
        node = self._docstore.get_node(node_id, raise_error=False)
        if node is None:
            raise ValueError(f"node {node_id} is not in the docstore: add all nodes with docstore.add_documents(nodes)")
        return node


class TransformRetriever(BaseRetriever):
    """Changes the question before another retriever gets it.

    Args:
        retriever: The retriever.
        query_transform: Its ``arun(bundle, metadata=...)`` or ``run`` returns the new question.
        transform_metadata: Data for the transformation.
        callback_manager: Accepted and kept; use instrumentation instead.
        object_map: Objects by the ids of index nodes.
        objects: Index nodes with objects.
        verbose: Accepted and kept.

    Example:
        >>> TransformRetriever(index.as_retriever(), HyDEQueryTransform(llm)).retrieve("What moves the sea?")
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        query_transform: Any,
        transform_metadata: dict[str, Any] | None = None,
        verbose: bool = False,
        callback_manager: Any = None,
        object_map: Mapping[str, Any] | None = None,
        objects: Sequence[IndexNode] | None = None,
    ) -> None:
        super().__init__(callback_manager, object_map, objects, verbose)
        self._retriever = retriever
        self._transformed = partial(transformed_query, query_transform, transform_metadata)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._retriever.aretrieve(await self._transformed(query_bundle))
