"""Nodes and documents, search results and questions."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, SerializeAsAny, field_serializer, model_validator

from batonflow.nodes.base_node import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    hash_of,
    shown,
)
from batonflow.nodes.component import BaseComponent

__all__ = [
    "BaseNode",
    "Document",
    "ImageDocument",
    "ImageNode",
    "IndexNode",
    "MediaResource",
    "MetadataMode",
    "Node",
    "NodeRelationship",
    "NodeWithScore",
    "ObjectType",
    "QueryBundle",
    "RelatedNodeInfo",
    "TextNode",
]

_EMPTY = "<empty_string>"
"""The sign of an empty text in hashes."""


class MediaResource(BaseModel):
    """The content of a node: a text, or data with a place and a media type.

    Args:
        text: The text.
        data: The data, in base64.
        path: The place of a file. It is not read.
        url: An address. It is not fetched.
        mimetype: The media type.
        embeddings: Vectors by kind.
    """

    text: str | None = None
    data: bytes | None = None
    path: Path | None = None
    url: str | None = None
    mimetype: str | None = None
    embeddings: dict[str, Any] | None = None

    @property
    def hash(self) -> str:
        """The hash of the content; empty without content."""
        text = _EMPTY if self.text == "" else self.text
        found = [str(one) for one in (text, self.data, self.path, self.url) if one]
        return hash_of("".join(found)) if found else ""


class TextNode(BaseNode):
    r"""A piece of text with metadata.

    Args:
        text: The text.
        start_char_idx: The place of its first character in the document.
        end_char_idx: The place behind its last character.
        text_template: Metadata and text: ``{metadata_str}`` and ``{content}``.

    Example:
        >>> TextNode(text="Tides follow the moon.", metadata={"page": 3}).get_content(MetadataMode.LLM)
        'page: 3\n\nTides follow the moon.'
    """

    _class_name: ClassVar[str] = "TextNode"
    text: str = ""
    mimetype: str = "text/plain"
    start_char_idx: int | None = None
    end_char_idx: int | None = None
    text_template: str = "{metadata_str}\n\n{content}"

    def __init__(self, text: str | None = None, /, **data: Any) -> None:
        super().__init__(**({} if text is None else {"text": text}), **data)

    def get_content(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
        """Return the text, preceded by the metadata for ``metadata_mode``."""
        shown = self.get_metadata_str(metadata_mode).strip()
        return self.text_template.format(metadata_str=shown, content=self.text).strip() if shown else self.text

    def get_text(self) -> str:
        """Return the text without metadata."""
        return self.text

    def set_content(self, value: str) -> None:
        """Replace the text."""
        self.text = value

    @property
    def node_info(self) -> dict[str, Any]:
        """The place of the text in its document."""
        return {"start": self.start_char_idx, "end": self.end_char_idx}

    def get_node_info(self) -> dict[str, Any]:
        """Return the place of the text in its document."""
        return self.node_info


class IndexNode(TextNode):
    """A text that stands for an index, a retriever, an engine or another node.

    Args:
        index_id: The id of the object.
        obj: The object. Only a node is written with the data.
    """

    _class_name: ClassVar[str] = "IndexNode"
    _type: ClassVar[ObjectType] = ObjectType.INDEX
    index_id: str
    obj: Any = None

    @field_serializer("obj")
    def _write_obj(self, obj: Any) -> Any:
        return obj.model_dump(mode="json") if isinstance(obj, BaseNode) else None

    @model_validator(mode="before")
    @classmethod
    def _read_obj(cls, data: Any) -> Any:
        return _with_node(data, "obj")

    @classmethod
    def from_text_node(cls, node: TextNode, index_id: str) -> Self:
        """Return an index node with the content of a text node."""
        fields = {name: getattr(node, name) for name in TextNode.model_fields}
        return cls(**fields, index_id=index_id)


class Node(BaseNode):
    """A node with resources.

    Args:
        text_resource: The text.
        image_resource: A picture.
        audio_resource: Sound.
        video_resource: A film.
        text_template: Metadata and text: ``{metadata_str}`` and ``{content}``.
    """

    _class_name: ClassVar[str] = "Node"
    _type: ClassVar[ObjectType] = ObjectType.MULTIMODAL
    text_resource: MediaResource | None = None
    image_resource: MediaResource | None = None
    audio_resource: MediaResource | None = None
    video_resource: MediaResource | None = None
    text_template: str = "{metadata_str}\n\n{content}"

    @property
    def hash(self) -> str:
        """The hash of content and metadata."""
        resources = (self.audio_resource, self.image_resource, self.text_resource, self.video_resource)
        shown = self.get_metadata_str()
        # Stores of LlamaIndex have the same hashes, so that a refresh finds documents unchanged there.
        return hash_of("-".join([*filter(None, [shown]), *(one.hash for one in resources if one is not None)]))

    @property
    def text(self) -> str:
        """The text."""
        return (self.text_resource and self.text_resource.text) or ""

    def get_text(self) -> str:
        """Return the text without metadata."""
        return self.text

    def get_content(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
        """Return the text, preceded by the metadata for ``metadata_mode``."""
        shown = self.get_metadata_str(metadata_mode).strip()
        return self.text_template.format(metadata_str=shown, content=self.text).strip() if shown else self.text

    def set_content(self, value: str) -> None:
        """Replace the text."""
        self.text_resource = MediaResource(text=value)


class Document(Node):
    """A whole text before it is split into nodes; its id is also called ``doc_id``.

    Example:
        >>> Document(text="Tides follow the moon.", metadata={"page": 3})
    """

    _class_name: ClassVar[str] = "Document"
    _type: ClassVar[ObjectType] = ObjectType.DOCUMENT

    def __init__(self, text: str | None = None, /, **data: Any) -> None:
        given = data.pop("text", text)
        if "doc_id" in data:
            data["id_"] = data.pop("doc_id")
        if given is not None and data.get("text_resource") is None:
            data["text_resource"] = MediaResource(text=given)
        super().__init__(**data)

    @property
    def doc_id(self) -> str:
        """The id."""
        return self.id_

    @doc_id.setter
    def doc_id(self, value: str) -> None:
        self.id_ = value

    def get_doc_id(self) -> str:
        """Return the id."""
        return self.id_

    def __str__(self) -> str:
        return f"Doc ID: {self.id_}\n{shown(self.get_content())}"

    @classmethod
    def example(cls) -> Self:
        """Return a small document."""
        return cls(
            text="The tide comes in and goes out twice a day. It follows the moon, and a little the sun.",
            metadata={"title": "Tides", "language": "en"},
        )

    @classmethod
    def from_langchain_format(cls, doc: Any) -> Self:
        """Return a document of an object with ``page_content`` and ``metadata``."""
        return cls(text=doc.page_content, metadata=dict(doc.metadata or {}))

    def to_langchain_format(self) -> Any:
        """Return a document of LangChain, which must be installed."""
        theirs: Any = import_module("langchain_core.documents").Document
        return theirs(page_content=self.text, metadata=self.metadata)


class ImageNode(TextNode):
    """A picture as data, beside a text. It is not fetched.

    Args:
        image: The picture, in base64.
        image_path: The place of a file.
        image_url: An address.
        image_mimetype: The media type.
    """

    _class_name: ClassVar[str] = "ImageNode"
    _type: ClassVar[ObjectType] = ObjectType.IMAGE
    image: str | None = None
    image_path: str | None = None
    image_url: str | None = None
    image_mimetype: str | None = None


class ImageDocument(ImageNode):
    """A whole picture with a text."""

    _class_name: ClassVar[str] = "ImageDocument"


class NodeWithScore(BaseComponent):
    """A search result: a node with its score.

    Args:
        node: The node.
        score: A higher score is better; None for a search without scores.
    """

    _class_name: ClassVar[str] = "NodeWithScore"
    node: SerializeAsAny[BaseNode]
    score: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_node(cls, data: Any) -> Any:
        return _with_node(data, "node")

    @property
    def node_id(self) -> str:
        """The id of the node."""
        return self.node.id_

    @property
    def id_(self) -> str:
        """The id of the node."""
        return self.node.id_

    @property
    def text(self) -> str:
        """The text of the node."""
        return self.get_text()

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the node."""
        return self.node.metadata

    @property
    def embedding(self) -> list[float] | None:
        """The vector of the node."""
        return self.node.embedding

    def get_text(self) -> str:
        """Return the text of the node; raise ValueError if it is not a node of text."""
        if not isinstance(self.node, TextNode | Node):
            raise ValueError(f"node {self.node.id_} is not a node of text")
        return self.node.get_text()

    def get_content(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
        """Return the content of the node."""
        return self.node.get_content(metadata_mode)

    def get_embedding(self) -> list[float]:
        """Return the vector of the node; raise ValueError if it is missing."""
        return self.node.get_embedding()

    def get_score(self, raise_error: bool = False) -> float:
        """Return the score, or 0 if it is missing; raise ValueError instead with ``raise_error``."""
        if self.score is None and raise_error:
            raise ValueError("Score not set.")
        return self.score or 0.0

    def __str__(self) -> str:
        return f"{self.node}\nScore: {'None' if self.score is None else f'{self.score: 0.3f}'}\n"


@dataclass
class QueryBundle:
    """A question in the forms that a search may need.

    Args:
        query_str: The question.
        image_path: A picture that belongs to it.
        custom_embedding_strs: Texts to embed instead of the question.
        embedding: Its vector.
    """

    query_str: str
    image_path: str | None = None
    custom_embedding_strs: list[str] | None = None
    embedding: list[float] | None = None

    @property
    def embedding_strs(self) -> list[str]:
        """The texts to embed."""
        if self.custom_embedding_strs is not None:
            return self.custom_embedding_strs
        return [self.query_str] if self.query_str else []

    def __str__(self) -> str:
        return self.query_str

    @classmethod
    def of(cls, query: "str | QueryBundle") -> "QueryBundle":
        """Return ``query`` as a bundle."""
        return query if isinstance(query, QueryBundle) else cls(query)


_KINDS: dict[str, type[BaseNode]] = {
    cls.class_name(): cls for cls in (TextNode, IndexNode, Node, Document, ImageNode, ImageDocument)
}


def _with_node(data: Any, name: str) -> Any:
    """Return the data of a model with a node in the place of its data."""
    if not isinstance(data, dict) or name not in data:
        return cast("Any", data)
    fields = cast("dict[str, Any]", data)
    return {**fields, name: node_of(fields[name])}


def document_of(value: Any) -> BaseNode:
    """Return a node as ``node_of`` does.

    Raises:
        TypeError: The value is not a document.
    """
    node = node_of(value)
    if not isinstance(node, BaseNode):
        raise TypeError(f"{value!r} is not a document: write Document(text=...)")
    return node


def node_of(value: Any) -> Any:
    """Return the node of data with a ``class_name``, or of an object with ``page_content``; other values stay."""
    if isinstance(value, Mapping):
        data = dict(cast("Mapping[str, Any]", value))
        kind = _KINDS.get(data.pop("class_name", ""), TextNode)
        return kind(**data)
    if not isinstance(value, BaseNode) and hasattr(value, "page_content"):
        return Document.from_langchain_format(value)
    return value
