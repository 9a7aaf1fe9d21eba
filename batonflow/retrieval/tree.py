"""A tree of summaries over nodes, and the retrievers of its roots and leaves."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from batonflow.llms import LLM
from batonflow.llms._bridge import run_sync
from batonflow.llms.prompts import BasePromptTemplate
from batonflow.nodes import BaseNode, BaseRetriever, MetadataMode, NodeWithScore, QueryBundle, TextNode
from batonflow.retrieval.embeddings import BaseEmbedding, default_embed_model
from batonflow.retrieval.index import BaseIndex, logger
from batonflow.retrieval.prompt_helper import PromptHelper
from batonflow.retrieval.prompts import INSERT_INTO_TREE, SELECT_FROM_TREE, SELECT_MULTIPLE, SUMMARIZE
from batonflow.retrieval.requests import all_of, given_llm, predict, required_llm
from batonflow.threads import in_thread

__all__ = [
    "TreeAllLeafRetriever",
    "TreeIndex",
    "TreeRootRetriever",
    "TreeSelectLeafEmbeddingRetriever",
    "TreeSelectLeafRetriever",
]

_LLM = MetadataMode.LLM


class TreeIndex(BaseIndex):
    """A tree whose leaves are the nodes. Each inner node is a summary of those below it.

    Args:
        nodes: The leaves.
        llm: The model that writes summaries; by default that of ``Settings``.
        summary_template: The prompt for a summary.
        insert_prompt: The prompt for the place of a new node.
        num_children: The largest number of nodes below one; 2 or more.
        build_tree: Whether to write summaries. Without them only all leaves can be retrieved.
        use_async: Accepted and kept; summaries of one level are written at once.
        kwargs: See ``BaseIndex``.

    Raises:
        ValueError: ``num_children`` is less than 2.
    """

    index_type: ClassVar[str] = "tree"
    writes_at_once: ClassVar[bool] = False

    def __init__(
        self,
        nodes: Sequence[BaseNode] | None = None,
        llm: LLM | str | None = None,
        summary_template: BasePromptTemplate | None = None,
        insert_prompt: BasePromptTemplate | None = None,
        num_children: int = 10,
        build_tree: bool = True,
        use_async: bool = False,
        **kwargs: Any,
    ) -> None:
        if num_children < 2:
            raise ValueError("Invalid number of children: num_children must be 2 or more")
        self.num_children, self.use_async = num_children, use_async
        self.summary_template = summary_template or SUMMARIZE
        self.insert_prompt = insert_prompt or INSERT_INTO_TREE
        self._llm = given_llm(llm)
        self._builds = build_tree
        super().__init__(nodes, **kwargs)

    @property
    def llm(self) -> LLM:
        """The model that writes summaries."""
        return required_llm(self._llm, self)

    def level(self, parent: int | None) -> list[tuple[int, BaseNode]]:
        """Return the nodes below a node, with their numbers; the roots for None."""
        numbers = self._store.children(self.index_struct.number, parent)
        return list(zip(numbers, self._store.nodes_at(numbers), strict=True))

    def _add(self, nodes: Sequence[BaseNode]) -> None:
        if not self._store.members(self.index_struct.number):
            run_sync(self._build(nodes))
            return
        for node in nodes:
            run_sync(self._insert(node))

    async def _build(self, nodes: Sequence[BaseNode]) -> None:
        level: list[BaseNode] = list(nodes)
        levels: list[tuple[list[BaseNode], list[list[BaseNode]]]] = []
        while self._builds and len(level) > self.num_children:
            groups = [level[begin : begin + self.num_children] for begin in range(0, len(level), self.num_children)]
            summaries = await all_of(self._summary(group) for group in groups)
            level = [TextNode(text=text) for text in summaries]
            levels.append((level, groups))
        await in_thread(self._write, list(nodes), levels)

    def _write(self, leaves: list[BaseNode], levels: list[tuple[list[BaseNode], list[list[BaseNode]]]]) -> None:
        store, number = self._store, self.index_struct.number
        with store.writing():
            known = dict(zip((node.id_ for node in leaves), store.add_nodes(leaves), strict=True))
            store.add_members(number, list(known.values()))
            for parents, groups in levels:
                for parent, group in zip(parents, groups, strict=True):
                    [n] = store.add_nodes([parent], with_words=False)
                    known[parent.id_] = n
                    store.add_members(number, [n])
                    store.set_parent(number, [known[node.id_] for node in group], n)

    async def _summary(self, group: Sequence[BaseNode]) -> str:
        helper = PromptHelper.from_llm_metadata(self.llm.metadata)
        texts = helper.truncate(self.summary_template, [node.get_content(_LLM) for node in group])
        return await predict(self.llm, self.summary_template, context_str="\n\n".join(texts))

    async def _insert(self, node: BaseNode) -> None:
        """Put a node below the summary that fits it. A full place is divided, with a summary for each half."""
        store, number, parent = self._store, self.index_struct.number, None
        path: list[int] = []
        while (inner := [one for one in self.level(parent) if self.level(one[0])]) and self._builds:
            listed = _numbered([one for _, one in inner])
            values = {"num_chunks": len(inner), "context_list": listed, "new_chunk_text": node.get_content(_LLM)}
            chosen = _number_in(await predict(self.llm, self.insert_prompt, **values), len(inner))
            parent = inner[(chosen or 1) - 1][0]
            path.append(parent)
        [n] = store.add_nodes([node])
        store.add_members(number, [n], parent)
        if self._builds and len(below := self.level(parent)) > self.num_children:
            half = len(below) // 2
            for part in (below[:half], below[half:]):
                summary = TextNode(text=await self._summary([one for _, one in part]))
                [made] = store.add_nodes([summary], with_words=False)
                store.add_members(number, [made], parent)
                store.set_parent(number, [one for one, _ in part], made)

    def _remove(self, numbers: Sequence[int]) -> None:
        """Remove nodes, and the summaries that have nothing below them any more."""
        tree = self.index_struct.number
        with self._store.writing():
            while numbers:
                above = self._store.parents(tree, numbers)
                super()._remove(numbers)
                numbers = [n for n in above if not self._store.children(tree, n)]

    def as_retriever(
        self, retriever_mode: str = "select_leaf", embed_model: BaseEmbedding | None = None, **kwargs: Any
    ) -> BaseRetriever:
        """Return a retriever: ``select_leaf``, ``select_leaf_embedding``, ``all_leaf`` or ``root``.

        Raises:
            ValueError: The mode is unknown, or needs summaries that were not written.
        """
        if retriever_mode != "all_leaf" and not self._builds:
            raise ValueError(f"the mode {retriever_mode!r} needs summaries: make the index with build_tree=True")
        if retriever_mode == "select_leaf_embedding":
            return TreeSelectLeafEmbeddingRetriever(self, embed_model=embed_model, **kwargs)
        if (cls := _MODES.get(retriever_mode)) is None:
            raise ValueError(f"Unknown retriever mode: {retriever_mode}; the modes are {', '.join(_MODES)}")
        return cls(self, **kwargs)


class TreeRootRetriever(BaseRetriever):
    """Returns the roots of a tree."""

    def __init__(self, index: TreeIndex, callback_manager: Any = None, verbose: bool = False, **_: Any) -> None:
        super().__init__(callback_manager, verbose=verbose)
        self._index = index

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        del query_bundle  # all roots are returned
        return [NodeWithScore(node=node) for _, node in self._index.level(None)]


class TreeAllLeafRetriever(TreeRootRetriever):
    """Returns all leaves of a tree, in their order."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        del query_bundle  # all leaves are returned
        return [NodeWithScore(node=node) for node in self._leaves(None)]

    def _leaves(self, parent: int | None) -> list[BaseNode]:
        found: list[BaseNode] = []
        for number, node in self._index.level(parent):
            found += self._leaves(number) or [node]
        return found


class TreeSelectLeafRetriever(TreeRootRetriever):
    """Goes down a tree: at each level a model chooses the summaries that fit the question.

    Args:
        index: The tree.
        query_template: The prompt for one summary.
        query_template_multiple: The prompt for several.
        child_branch_factor: The number of summaries to choose at each level.
        kwargs: See ``BaseRetriever``.
    """

    def __init__(
        self,
        index: TreeIndex,
        query_template: BasePromptTemplate | None = None,
        query_template_multiple: BasePromptTemplate | None = None,
        child_branch_factor: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(index, **kwargs)
        self._one, self._several = query_template or SELECT_FROM_TREE, query_template_multiple or SELECT_MULTIPLE
        self._branches = child_branch_factor

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run_sync(self._aretrieve(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        level, found = await in_thread(self._index.level, None), list[NodeWithScore]()
        while level:
            chosen = await self._chosen(query_bundle, [node for _, node in level])
            below: list[tuple[int, BaseNode]] = []
            for at, score in chosen:
                number, node = level[at]
                children = await in_thread(self._index.level, number)
                below += children
                if not children:
                    found.append(NodeWithScore(node=node, score=score))
            level = below
        return found

    async def _chosen(self, query: QueryBundle, nodes: Sequence[BaseNode]) -> list[tuple[int, float | None]]:
        """Return the places of the nodes to follow, with scores."""
        if len(nodes) <= self._branches:
            return [(at, None) for at in range(len(nodes))]
        values: dict[str, Any] = {"num_chunks": len(nodes), "context_list": _numbered(nodes)}
        if self._branches == 1:
            answer = await predict(self._index.llm, self._one, query_str=query.query_str, **values)
        else:
            values["branching_factor"] = self._branches
            answer = await predict(self._index.llm, self._several, query_str=query.query_str, **values)
        numbers = [int(one) for one in re.findall(r"\d+", answer.rpartition("ANSWER:")[2])]
        chosen = [one - 1 for one in dict.fromkeys(numbers) if 1 <= one <= len(nodes)][: self._branches]
        if not chosen:
            logger.warning("the answer %r names no summary from 1 to %d: the first is taken", answer, len(nodes))
        return [(at, None) for at in chosen or [0]]


class TreeSelectLeafEmbeddingRetriever(TreeSelectLeafRetriever):
    """Goes down a tree: at each level the summaries that are nearest to the question are followed.

    Args:
        index: The tree.
        embed_model: The embedding model; by default that of ``Settings``.
        kwargs: See ``TreeSelectLeafRetriever``.
    """

    def __init__(self, index: TreeIndex, embed_model: BaseEmbedding | None = None, **kwargs: Any) -> None:
        super().__init__(index, **kwargs)
        self._embed_model = embed_model or default_embed_model()

    async def _chosen(self, query: QueryBundle, nodes: Sequence[BaseNode]) -> list[tuple[int, float | None]]:
        model = self._embed_model
        if query.embedding is None:
            query.embedding = await model.aget_agg_embedding_from_queries(query.embedding_strs)
        vectors = await model.aget_text_embedding_batch([node.get_content(MetadataMode.EMBED) for node in nodes])
        scores = [model.similarity(query.embedding, vector) for vector in vectors]
        best = sorted(range(len(nodes)), key=lambda at: -scores[at])[: self._branches]
        return [(at, scores[at]) for at in best]


_MODES: Mapping[str, type[TreeRootRetriever]] = {
    "select_leaf": TreeSelectLeafRetriever,
    "select_leaf_embedding": TreeSelectLeafEmbeddingRetriever,
    "all_leaf": TreeAllLeafRetriever,
    "root": TreeRootRetriever,
}


def _numbered(nodes: Sequence[BaseNode]) -> str:
    return "\n\n".join(f"({number}) {node.get_content(_LLM)}" for number, node in enumerate(nodes, 1))


def _number_in(answer: str, most: int) -> int | None:
    """Return the first number of an answer if it is one of the choices."""
    found = re.search(r"\d+", answer)
    return int(found.group()) if found and 1 <= int(found.group()) <= most else None
