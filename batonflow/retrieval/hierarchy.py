"""Parser that splits documents into nodes of several sizes, each a part of a larger one."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import Field, SerializeAsAny, model_validator

from batonflow.nodes import BaseNode, NodeRelationship, TextNode
from batonflow.nodes.schema import document_of
from batonflow.retrieval.splitters import NodeParser, SentenceSplitter
from batonflow.threads import in_thread

__all__ = ["HierarchicalNodeParser", "get_child_nodes", "get_deeper_nodes", "get_leaf_nodes", "get_root_nodes"]

_SIZES = (2048, 512, 128)


class HierarchicalNodeParser(NodeParser):
    """Splits documents into large nodes, these into smaller ones, and so on. Related nodes are parents and children.

    All nodes of a document are returned, the largest first. See ``AutoMergingRetriever``.

    Args:
        chunk_sizes: The sizes in tokens, the largest first; by default 2048, 512 and 128.
        chunk_overlap: The tokens that a node repeats of the one before.
        node_parser_ids: The names of parsers in place of sizes, from that for the largest nodes.
        node_parser_map: Parsers by name.

    Raises:
        ValueError: Sizes and names are both given, or a name without a parser.

    Example:
        >>> nodes = HierarchicalNodeParser.from_defaults(chunk_sizes=[512, 128]).get_nodes_from_documents(documents)
        >>> leaves = get_leaf_nodes(nodes)
    """

    _class_name: ClassVar[str] = "HierarchicalNodeParser"
    chunk_sizes: list[int] | None = None
    chunk_overlap: int = Field(default=20, ge=0)
    node_parser_ids: list[str] = Field(default_factory=list[str])
    node_parser_map: dict[str, SerializeAsAny[NodeParser]] = Field(default_factory=dict[str, Any])

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.node_parser_ids:
            self.chunk_sizes = self.chunk_sizes or list(_SIZES)
            common = {"include_metadata": self.include_metadata, "include_prev_next_rel": self.include_prev_next_rel}
            self.node_parser_map = {
                f"chunk_size_{size}": SentenceSplitter(size, min(self.chunk_overlap, size), **common)
                for size in self.chunk_sizes
            }
            self.node_parser_ids = list(self.node_parser_map)
        if missing := [one for one in self.node_parser_ids if one not in self.node_parser_map]:
            raise ValueError(f"Must specify node_parser_map if using node_parser_ids: it has no {', '.join(missing)}")
        return self

    @classmethod
    def from_defaults(
        cls,
        chunk_sizes: Sequence[int] | None = None,
        chunk_overlap: int = 20,
        node_parser_ids: Sequence[str] | None = None,
        node_parser_map: Mapping[str, NodeParser] | None = None,
        **options: Any,
    ) -> Self:
        """Return a parser; see the class."""
        if node_parser_ids is not None and chunk_sizes is not None:
            raise ValueError("Cannot specify both node_parser_ids and chunk_sizes.")
        return cls(
            chunk_sizes=None if chunk_sizes is None else list(chunk_sizes),
            chunk_overlap=chunk_overlap,
            node_parser_ids=list(node_parser_ids or ()),
            node_parser_map=dict(node_parser_map or {}),
            **options,
        )

    def get_nodes_from_documents(
        self, documents: Sequence[Any], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        """Return the nodes of documents."""
        del show_progress
        given = {one.id_: one for one in map(document_of, documents)}
        return [node for document in given.values() for node in self._below([document], 0, **kwargs)]

    async def aget_nodes_from_documents(
        self, documents: Sequence[Any], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        """Return the nodes of documents, in a thread."""
        return await in_thread(lambda: self.get_nodes_from_documents(documents, show_progress, **kwargs))

    def _below(self, nodes: Sequence[BaseNode], level: int, **kwargs: Any) -> list[BaseNode]:
        """Return the parts of nodes, and below them their parts."""
        parser, found = self.node_parser_map[self.node_parser_ids[level]], list[BaseNode]()
        for node in nodes:
            parts = parser.get_nodes_from_documents([node], **kwargs)
            if level:
                _relate(node, parts)
            found += parts
        return found + self._below(found, level + 1, **kwargs) if level + 1 < len(self.node_parser_ids) else found


def _relate(node: BaseNode, parts: Sequence[BaseNode]) -> None:
    """Make nodes the children of a node, with their places in its document."""
    parent = {NodeRelationship.PARENT: node.as_related_node_info()}
    first = node.start_char_idx if isinstance(node, TextNode) else None
    for one in parts:
        one.relationships = {**one.relationships, **parent}
        if isinstance(one, TextNode) and one.start_char_idx is not None and one.end_char_idx is not None:
            one.start_char_idx = None if first is None else first + one.start_char_idx
            one.end_char_idx = None if first is None else first + one.end_char_idx
    children = {NodeRelationship.CHILD: [one.as_related_node_info() for one in parts]}
    node.relationships = {**node.relationships, **children}


def get_leaf_nodes(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """Return the nodes without children."""
    return [node for node in nodes if NodeRelationship.CHILD not in node.relationships]


def get_root_nodes(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """Return the nodes without a parent."""
    return [node for node in nodes if NodeRelationship.PARENT not in node.relationships]


def get_child_nodes(nodes: Sequence[BaseNode], all_nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """Return the children of nodes.

    Args:
        nodes: The parents.
        all_nodes: The nodes among which the children are.
    """
    wanted = {one.node_id for node in nodes for one in node.child_nodes or ()}
    return [node for node in all_nodes if node.id_ in wanted]


def get_deeper_nodes(nodes: Sequence[BaseNode], depth: int = 1) -> list[BaseNode]:
    """Return the nodes that are so many levels below the roots.

    Args:
        nodes: All nodes.
        depth: The number of levels.

    Raises:
        ValueError: The depth is negative, or all nodes have parents.
    """
    if depth < 0:
        raise ValueError("Depth cannot be a negative number!")
    found = get_root_nodes(nodes)
    if not found:
        raise ValueError("There is no root nodes in given nodes!")
    for _ in range(depth):
        found = get_child_nodes(found, nodes)
    return found
