"""An index of objects, such as tools, which are found by their texts."""

import json
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeVar

from batonflow.instrumentation.logs import logger_named
from batonflow.nodes import BaseNode, BaseNodePostprocessor, BaseRetriever, NodeWithScore, QueryBundle, TextNode
from batonflow.retrieval.index import BaseIndex
from batonflow.retrieval.indexes import VectorStoreIndex
from batonflow.retrieval.loading import load_index_from_storage
from batonflow.retrieval.object_mappings import BaseObjectNodeMapping, SimpleObjectNodeMapping, mapping_of
from batonflow.retrieval.storage import StorageContext
from batonflow.user_warnings import warn_user

__all__ = ["ObjectIndex", "ObjectRetriever"]

logger = logger_named("batonflow.retrieval")

T = TypeVar("T")

_FILE = "object_node_mapping.json"


class ObjectRetriever(Generic[T]):
    """Finds objects. Agents take it as ``tool_retriever`` if the objects are tools.

    Args:
        retriever: Finds nodes.
        object_node_mapping: The objects of nodes. A node without an object is logged and left out.
        node_postprocessors: Drop, order or change nodes.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        object_node_mapping: BaseObjectNodeMapping[T],
        node_postprocessors: Sequence[BaseNodePostprocessor] | None = None,
    ) -> None:
        self.retriever, self.object_node_mapping = retriever, object_node_mapping
        self.node_postprocessors = list(node_postprocessors or ())

    def retrieve(self, str_or_query_bundle: str | QueryBundle) -> list[T]:
        """Find objects."""
        query = QueryBundle.of(str_or_query_bundle)
        nodes = self.retriever.retrieve(query)
        for one in self.node_postprocessors:
            nodes = one.postprocess_nodes(nodes, query_bundle=query)
        return self._objects(nodes)

    async def aretrieve(self, str_or_query_bundle: str | QueryBundle) -> list[T]:
        """Find objects."""
        query = QueryBundle.of(str_or_query_bundle)
        nodes = await self.retriever.aretrieve(query)
        for one in self.node_postprocessors:
            nodes = await one.apostprocess_nodes(nodes, query_bundle=query)
        return self._objects(nodes)

    def _objects(self, nodes: Sequence[NodeWithScore]) -> list[T]:
        found: dict[int, T] = {}
        for one in nodes:
            try:
                obj = self.object_node_mapping.from_node(one.node)
            except KeyError:
                logger.warning("the object of node %s is left out: the mapping does not have it", one.node.id_)
            else:
                found.setdefault(id(obj), obj)
        return list(found.values())


class ObjectIndex(Generic[T]):
    """An index of objects.

    Args:
        index: The index of their nodes.
        object_node_mapping: The objects of nodes.

    Example:
        >>> tools = ObjectIndex.from_objects(two_hundred_tools)
        >>> FunctionAgent(llm=llm, tool_retriever=tools.as_retriever(similarity_top_k=5))
    """

    def __init__(self, index: BaseIndex, object_node_mapping: BaseObjectNodeMapping[T]) -> None:
        self.index, self.object_node_mapping = index, object_node_mapping

    @classmethod
    def from_objects(
        cls,
        objects: Sequence[Any],
        object_mapping: BaseObjectNodeMapping[Any] | None = None,
        from_node_fn: Callable[[BaseNode], Any] | None = None,
        to_node_fn: Callable[[Any], TextNode] | None = None,
        index_cls: type[BaseIndex] = VectorStoreIndex,
        **index_kwargs: Any,
    ) -> "ObjectIndex[Any]":
        """Return an index of objects.

        Args:
            objects: The objects.
            object_mapping: The mapping; by default one for tools if all are tools, else by their texts.
            from_node_fn: Returns the object of a node, in place of a mapping.
            to_node_fn: Returns the node of an object, in place of a mapping.
            index_cls: The class of the index.
            index_kwargs: Arguments of the index.

        Raises:
            ValueError: Only one of the functions is given.
        """
        mapping = object_mapping or mapping_of(objects, from_node_fn, to_node_fn)
        return ObjectIndex(index_cls(mapping.to_nodes(objects), **index_kwargs), mapping)

    def insert_object(self, obj: T) -> None:
        """Add an object."""
        self.object_node_mapping.add_object(obj)
        self.index.insert_nodes([self.object_node_mapping.to_node(obj)])

    def as_retriever(
        self, node_postprocessors: Sequence[BaseNodePostprocessor] | None = None, **kwargs: Any
    ) -> ObjectRetriever[T]:
        """Return a retriever of objects; the arguments are those of ``index.as_retriever``."""
        return ObjectRetriever(self.index.as_retriever(**kwargs), self.object_node_mapping, node_postprocessors)

    def as_node_retriever(self, **kwargs: Any) -> BaseRetriever:
        """Return a retriever of the nodes of objects."""
        return self.index.as_retriever(**kwargs)

    def persist(self, persist_dir: str | PathLike[str] = "./storage") -> None:
        """Write the index into a folder, and the objects if they are JSON. Otherwise a warning is logged."""
        self.index.storage_context.persist(persist_dir)
        try:
            if type(self.object_node_mapping) is not SimpleObjectNodeMapping:
                raise TypeError("objects of this mapping are not JSON")
            told = json.dumps(list(self.object_node_mapping.obj_node_mapping.values()), ensure_ascii=False)
            (Path(persist_dir) / _FILE).write_text(told, "utf-8")
        except TypeError:
            text = "Unable to persist ObjectNodeMapping: give object_node_mapping= to from_persist_dir"
            warn_user(text, UserWarning)

    @classmethod
    def from_persist_dir(
        cls,
        persist_dir: str | PathLike[str] = "./storage",
        object_node_mapping: BaseObjectNodeMapping[Any] | None = None,
        **index_kwargs: Any,
    ) -> "ObjectIndex[Any]":
        """Return the index of a folder.

        Args:
            persist_dir: The folder.
            object_node_mapping: The objects; not needed if they are JSON.
            index_kwargs: Arguments of ``load_index_from_storage``.

        Raises:
            ValueError: The folder has no objects, and they are not given.
        """
        index = load_index_from_storage(StorageContext.from_defaults(persist_dir=persist_dir), **index_kwargs)
        file = Path(persist_dir) / _FILE
        if object_node_mapping is None and not file.exists():
            raise ValueError(f"{file.parent} has no objects: give object_node_mapping=")
        return ObjectIndex(index, object_node_mapping or SimpleObjectNodeMapping(json.loads(file.read_text("utf-8"))))
