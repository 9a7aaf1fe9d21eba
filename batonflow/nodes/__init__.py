"""Nodes of text and their bases: documents, passages, search results, retrievers, postprocessors and query engines.

Programs bring their own search in the base classes. ``batonflow.retrieval`` has parsers, indexes and engines.
"""

from batonflow.nodes.bases import (
    BaseNodePostprocessor,
    BaseQueryEngine,
    BaseRetriever,
    CustomQueryEngine,
    TransformComponent,
)
from batonflow.nodes.component import BaseComponent
from batonflow.nodes.responses import AsyncStreamingResponse, PydanticResponse, Response, StreamingResponse
from batonflow.nodes.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    ObjectType,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)

__all__ = [
    "AsyncStreamingResponse",
    "BaseComponent",
    "BaseNode",
    "BaseNodePostprocessor",
    "BaseQueryEngine",
    "BaseRetriever",
    "CustomQueryEngine",
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
    "PydanticResponse",
    "QueryBundle",
    "RelatedNodeInfo",
    "Response",
    "StreamingResponse",
    "TextNode",
    "TransformComponent",
]
