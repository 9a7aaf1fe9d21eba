"""What programs that look things up subclass: nodes, retrievers, postprocessors and query engines.

There are no indexes and no vector stores here. A program brings the search; these classes give it the shape that
:class:`~batonflow.tools.RetrieverTool` and :class:`~batonflow.tools.QueryEngineTool` make tools of.
"""

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, ClassVar, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SerializeAsAny

from batonflow.instrumentation import get_dispatcher
from batonflow.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from batonflow.llms._bridge import run_sync
from batonflow.threads import in_thread

__all__ = [
    "BaseNodePostprocessor",
    "BaseRetriever",
    "CustomQueryEngine",
    "Document",
    "MetadataMode",
    "NodeWithScore",
    "QueryBundle",
    "Response",
    "TextNode",
]

_dispatcher = get_dispatcher(__name__)


class MetadataMode(StrEnum):
    """Who is to read a node: everybody, an embedding model, a language model, or nobody but the text is wanted."""

    ALL = "all"
    EMBED = "embed"
    LLM = "llm"
    NONE = "none"


class TextNode(BaseModel):
    r"""A piece of text with what is known about it.

    Args:
        text: The text.
        id_: Its id; made up by default.
        metadata: What is known about it.
        excluded_llm_metadata_keys: Keys that language models are not shown.
        excluded_embed_metadata_keys: Keys that embedding models are not shown.
        embedding: Its vector.
        metadata_template: One line of metadata: ``{key}`` and ``{value}``.
        metadata_separator: What stands between the lines.
        text_template: Both together: ``{metadata_str}`` and ``{content}``.

    Example:
        >>> TextNode(text="Tides follow the moon.", metadata={"page": 3}).get_content(MetadataMode.LLM)
        'page: 3\n\nTides follow the moon.'
    """

    model_config = ConfigDict(populate_by_name=True, validate_assignment=True)

    id_: str = Field(default_factory=lambda: str(uuid.uuid4()))
    text: str = ""
    metadata: dict[str, Any] = Field(
        default_factory=dict[str, Any], validation_alias=AliasChoices("metadata", "extra_info")
    )
    excluded_llm_metadata_keys: list[str] = Field(default_factory=list[str])
    excluded_embed_metadata_keys: list[str] = Field(default_factory=list[str])
    embedding: list[float] | None = None
    mimetype: str = "text/plain"
    start_char_idx: int | None = None
    end_char_idx: int | None = None
    metadata_template: str = "{key}: {value}"
    metadata_separator: str = "\n"
    text_template: str = "{metadata_str}\n\n{content}"

    @property
    def node_id(self) -> str:
        """The id."""
        return self.id_

    @property
    def hash(self) -> str:
        """The same for the same text and metadata."""
        return sha256(f"{self.text}{self.metadata}".encode("utf-8", "surrogatepass")).hexdigest()

    def get_content(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
        """The text, with the metadata that ``metadata_mode`` leaves before it."""
        shown = self.get_metadata_str(metadata_mode).strip()
        return self.text_template.format(metadata_str=shown, content=self.text).strip() if shown else self.text

    def get_text(self) -> str:
        """The text alone."""
        return self.text

    def set_content(self, value: str) -> None:
        """Replace the text."""
        self.text = value

    def get_metadata_str(self, mode: MetadataMode = MetadataMode.ALL) -> str:
        """The metadata as text, without what ``mode`` leaves out."""
        if mode == MetadataMode.NONE:
            return ""
        left_out = {
            MetadataMode.LLM: self.excluded_llm_metadata_keys,
            MetadataMode.EMBED: self.excluded_embed_metadata_keys,
        }
        hidden = left_out.get(mode, [])
        lines = (
            self.metadata_template.format(key=key, value=value)
            for key, value in self.metadata.items()
            if key not in hidden
        )
        return self.metadata_separator.join(lines)

    def get_embedding(self) -> list[float]:
        """The vector; ValueError when there is none."""
        if self.embedding is None:
            raise ValueError(f"node {self.id_} has no embedding: set one before it is asked for")
        return self.embedding


class Document(TextNode):
    """A whole text, before it is cut into nodes. Its id may also be given, and read, as ``doc_id``."""

    id_: str = Field(default_factory=lambda: str(uuid.uuid4()), validation_alias=AliasChoices("id_", "doc_id"))

    @property
    def doc_id(self) -> str:
        """The id."""
        return self.id_


class NodeWithScore(BaseModel):
    """A node that was found, and how well it fits.

    Args:
        node: The node.
        score: The higher the better; None where the search gives none.
    """

    node: SerializeAsAny[TextNode]
    score: float | None = None

    @property
    def node_id(self) -> str:
        """That of the node."""
        return self.node.id_

    @property
    def text(self) -> str:
        """That of the node."""
        return self.node.text

    @property
    def metadata(self) -> dict[str, Any]:
        """That of the node."""
        return self.node.metadata

    def get_content(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
        """That of the node."""
        return self.node.get_content(metadata_mode)

    def get_text(self) -> str:
        """That of the node."""
        return self.node.text

    def get_score(self, raise_error: bool = False) -> float:
        """The score, 0 when there is none, or a ValueError when ``raise_error``."""
        if self.score is None and raise_error:
            raise ValueError("Score not set.")
        return self.score or 0.0


@dataclass
class QueryBundle:
    """A question, in the forms that a search may need.

    Args:
        query_str: The question.
        image_path: A picture that belongs to it.
        custom_embedding_strs: What to embed in place of it.
        embedding: Its vector.
    """

    query_str: str
    image_path: str | None = None
    custom_embedding_strs: list[str] | None = None
    embedding: list[float] | None = None

    @property
    def embedding_strs(self) -> list[str]:
        """What to embed."""
        if self.custom_embedding_strs is not None:
            return self.custom_embedding_strs
        return [self.query_str] if self.query_str else []

    def __str__(self) -> str:
        return self.query_str

    @classmethod
    def of(cls, query: "str | QueryBundle") -> "QueryBundle":
        """``query`` as a bundle."""
        return query if isinstance(query, QueryBundle) else cls(query)


@dataclass
class Response:
    """What a query engine answers.

    Args:
        response: The answer.
        source_nodes: What it rests on.
        metadata: What else is known about it.
    """

    response: str | None
    source_nodes: list[NodeWithScore] = field(default_factory=list[NodeWithScore])
    metadata: dict[str, Any] | None = None

    def __str__(self) -> str:
        return self.response or "None"


class _WrittenOnce:
    """A class whose subclasses write one method, synchronous or asynchronous; the other is derived.

    Attributes:
        _either: The names of the two.
    """

    _either: ClassVar[tuple[str, str]]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if not any(cls._writes(name) for name in cls._either):
            raise TypeError(f"{cls.__name__} cannot do anything yet: write {' or '.join(cls._either)}")
        return super().__new__(cls)

    @classmethod
    def _writes(cls, name: str) -> bool:
        return getattr(cls, name).__module__ != __name__


@contextmanager
def _told(query: "str | QueryBundle") -> Generator[list[NodeWithScore]]:
    """Tell listeners of a retrieval; the list is to be filled with what was found."""
    found: list[NodeWithScore] = []
    _dispatcher.event(RetrievalStartEvent(str_or_query_bundle=query))
    yield found
    _dispatcher.event(RetrievalEndEvent(str_or_query_bundle=query, nodes=found))


class BaseRetriever(_WrittenOnce):
    """Something that finds nodes for a question. Subclasses write ``_retrieve`` or ``_aretrieve``.

    Args:
        callback_manager: Accepted and kept; use instrumentation instead.
        verbose: Kept for subclasses.

    Raises:
        TypeError: The subclass writes neither.

    Example:
        >>> class Notes(BaseRetriever):
        ...     async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        ...         return [NodeWithScore(node=TextNode(text=note)) for note in await search(query_bundle.query_str)]
    """

    _either: ClassVar[tuple[str, str]] = ("_retrieve", "_aretrieve")

    def __init__(self, callback_manager: Any = None, verbose: bool = False) -> None:
        self.callback_manager = callback_manager
        self._verbose = verbose

    @_dispatcher.span
    def retrieve(self, str_or_query_bundle: str | QueryBundle) -> list[NodeWithScore]:
        """Find nodes for a question."""
        with _told(str_or_query_bundle) as found:
            found.extend(self._retrieve(QueryBundle.of(str_or_query_bundle)))
        return found

    @_dispatcher.span
    async def aretrieve(self, str_or_query_bundle: str | QueryBundle) -> list[NodeWithScore]:
        """The same asynchronously; a synchronous search runs in a thread."""
        with _told(str_or_query_bundle) as found:
            found.extend(await self._aretrieve(QueryBundle.of(str_or_query_bundle)))
        return found

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Find nodes for a question."""
        return run_sync(self._aretrieve(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Find nodes for a question."""
        return await in_thread(self._retrieve, query_bundle)


class BaseNodePostprocessor(_WrittenOnce, BaseModel):
    """Something that drops, orders or changes nodes. Subclasses write ``_postprocess_nodes`` or its asynchronous form.

    Its settings are fields, as on any pydantic model.

    Raises:
        TypeError: The subclass writes neither.

    Example:
        >>> class Best(BaseNodePostprocessor):
        ...     limit: int = 3
        ...     def _postprocess_nodes(self, nodes, query_bundle=None):
        ...         return sorted(nodes, key=NodeWithScore.get_score, reverse=True)[: self.limit]
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    _either: ClassVar[tuple[str, str]] = ("_postprocess_nodes", "_apostprocess_nodes")

    callback_manager: Any = Field(default=None, exclude=True)

    def postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None, query_str: str | None = None
    ) -> list[NodeWithScore]:
        """Drop, order or change nodes.

        Args:
            nodes: What was found.
            query_bundle: For which question.
            query_str: The same as text.

        Raises:
            ValueError: Both are given.
        """
        return self._postprocess_nodes(nodes, _one_query(query_bundle, query_str))

    async def apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None, query_str: str | None = None
    ) -> list[NodeWithScore]:
        """The same asynchronously; a synchronous one runs in a thread."""
        return await self._apostprocess_nodes(nodes, _one_query(query_bundle, query_str))

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        """Drop, order or change nodes."""
        return run_sync(self._apostprocess_nodes(nodes, query_bundle))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        """Drop, order or change nodes."""
        return await in_thread(self._postprocess_nodes, nodes, query_bundle)


def _one_query(bundle: QueryBundle | None, text: str | None) -> QueryBundle | None:
    if bundle is not None and text is not None:
        raise ValueError("Cannot specify both query_str and query_bundle")
    return bundle if text is None else QueryBundle(text)


class CustomQueryEngine(_WrittenOnce, BaseModel):
    """Something that answers questions. Subclasses write ``custom_query`` or ``acustom_query``.

    Either gives text or a :class:`Response`. Its settings are fields, as on any pydantic model.

    Raises:
        TypeError: The subclass writes neither.

    Example:
        >>> class Tides(CustomQueryEngine):
        ...     port: str
        ...     async def acustom_query(self, query_str: str) -> str:
        ...         return f"High water at {self.port} is at {await ask(self.port)}."
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    _either: ClassVar[tuple[str, str]] = ("custom_query", "acustom_query")

    callback_manager: Any = Field(default=None, exclude=True)

    def query(self, str_or_query_bundle: str | QueryBundle) -> Response:
        """Answer a question."""
        return _as_response(self.custom_query(str(str_or_query_bundle)))

    async def aquery(self, str_or_query_bundle: str | QueryBundle) -> Response:
        """The same asynchronously; a synchronous one runs in a thread."""
        return _as_response(await self.acustom_query(str(str_or_query_bundle)))

    def custom_query(self, query_str: str) -> str | Response:
        """Answer a question."""
        return run_sync(self.acustom_query(query_str))

    async def acustom_query(self, query_str: str) -> str | Response:
        """Answer a question."""
        return await in_thread(self.custom_query, query_str)


def _as_response(answer: str | Response) -> Response:
    return Response(answer) if isinstance(answer, str) else answer
