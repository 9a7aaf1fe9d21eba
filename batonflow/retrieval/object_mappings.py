"""Mappings between objects and the nodes by which they are found."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Self, TypeVar

from batonflow.nodes import BaseNode, TextNode
from batonflow.tools import BaseTool, QueryEngineTool

__all__ = [
    "BaseObjectNodeMapping",
    "FnNodeMapping",
    "SimpleObjectNodeMapping",
    "SimpleQueryToolNodeMapping",
    "SimpleToolNodeMapping",
    "mapping_of",
]

T = TypeVar("T")


class BaseObjectNodeMapping(Generic[T]):
    """The base class of mappings between objects and nodes. Subclasses write ``to_node``.

    Args:
        objs: The objects.

    Raises:
        ValueError: An object is of another kind.
    """

    def __init__(self, objs: Iterable[T] = ()) -> None:
        self._objs: dict[str, T] = {}
        for obj in objs:
            self.add_object(obj)

    @classmethod
    def from_objects(cls, objs: Iterable[T], *_: Any, **__: Any) -> Self:
        """Return a mapping of objects."""
        return cls(objs)

    @property
    def obj_node_mapping(self) -> dict[str, T]:
        """The objects by the ids of their nodes, or by their names."""
        return self._objs

    def validate_object(self, obj: T) -> None:
        """Refuse an object of another kind with a ValueError."""

    def add_object(self, obj: T) -> None:
        """Add an object; it replaces one with the same name."""
        self.validate_object(obj)
        self._objs[self._key(self.to_node(obj))] = obj

    def to_node(self, obj: T) -> TextNode:
        """Return a node with the text by which an object is found."""
        raise NotImplementedError(f"{type(self).__name__} has no to_node")

    def to_nodes(self, objs: Iterable[T]) -> list[TextNode]:
        """Return the nodes of objects."""
        return [self.to_node(obj) for obj in objs]

    def from_node(self, node: BaseNode) -> T:
        """Return the object of a node.

        Raises:
            KeyError: The mapping does not have it.
        """
        return self._objs[self._key(node)]

    def _key(self, node: BaseNode) -> str:
        return node.id_


class SimpleObjectNodeMapping(BaseObjectNodeMapping[Any]):
    """A mapping of any objects, which are found by ``str(object)``."""

    def to_node(self, obj: Any) -> TextNode:
        """Return a node with the text of an object."""
        return _node(str(obj))


class SimpleToolNodeMapping(BaseObjectNodeMapping[Any]):
    """A mapping of tools, which are found by their names and descriptions."""

    _kind: type[BaseTool] = BaseTool

    def validate_object(self, obj: Any) -> None:
        """Refuse an object that is not a tool."""
        if not isinstance(obj, self._kind):
            raise ValueError(f"Object must be of type {self._kind.__name__}, not {type(obj).__name__}")

    def to_node(self, obj: Any) -> TextNode:
        """Return a node with the name and the description of a tool."""
        name = obj.metadata.get_name()
        return _node(f"Tool name: {name}\nTool description: {obj.metadata.description}", name=name)

    def _key(self, node: BaseNode) -> str:
        return str(node.metadata["name"])


class SimpleQueryToolNodeMapping(SimpleToolNodeMapping):
    """A mapping of query engines as tools, which are found by their names and descriptions."""

    _kind = QueryEngineTool


class FnNodeMapping(BaseObjectNodeMapping[Any]):
    """A mapping by two functions.

    Args:
        from_node_fn: Returns the object of a node.
        to_node_fn: Returns the node of an object.
    """

    def __init__(self, from_node_fn: Callable[[BaseNode], Any], to_node_fn: Callable[[Any], TextNode]) -> None:
        self._from, self._to = from_node_fn, to_node_fn
        super().__init__()

    def add_object(self, obj: Any) -> None:
        """Do nothing, because the functions know the objects."""

    def to_node(self, obj: Any) -> TextNode:
        """Return the node of an object."""
        return self._to(obj)

    def from_node(self, node: BaseNode) -> Any:
        """Return the object of a node."""
        return self._from(node)


def _node(text: str, **hidden: str) -> TextNode:
    """Return a node whose id is the same in each process."""
    key = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
    names = list(hidden)
    return TextNode(
        text=text, id_=key, metadata=hidden, excluded_embed_metadata_keys=names, excluded_llm_metadata_keys=names
    )


def mapping_of(
    objects: Sequence[Any], from_node: Callable[[BaseNode], Any] | None, to_node: Callable[[Any], TextNode] | None
) -> BaseObjectNodeMapping[Any]:
    """Return the mapping that fits objects.

    Raises:
        ValueError: Only one of the functions is given.
    """
    if from_node is not None and to_node is not None:
        return FnNodeMapping(from_node, to_node)
    if from_node is not None or to_node is not None:
        raise ValueError("from_node_fn and to_node_fn must be given together")
    if objects and all(isinstance(one, BaseTool) for one in objects):
        return SimpleToolNodeMapping(objects)
    return SimpleObjectNodeMapping(objects)
