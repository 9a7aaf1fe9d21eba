"""Base classes of transformations, retrievers, postprocessors and query engines."""

from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from batonflow.bridge import wait_for_outcome
from batonflow.instrumentation import get_dispatcher
from batonflow.instrumentation.events.query import QueryEndEvent, QueryStartEvent
from batonflow.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from batonflow.nodes.component import BaseComponent
from batonflow.nodes.responses import AsyncStreamingResponse, PydanticResponse, Response, StreamingResponse
from batonflow.nodes.schema import BaseNode, IndexNode, NodeWithScore, QueryBundle, TextNode
from batonflow.threads import in_thread

__all__ = ["BaseNodePostprocessor", "BaseQueryEngine", "BaseRetriever", "CustomQueryEngine", "TransformComponent"]

T = TypeVar("T")

AnyResponse = Response | PydanticResponse | StreamingResponse | AsyncStreamingResponse

_dispatcher = get_dispatcher(__name__)


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    return cast("T", wait_for_outcome(coroutine))


class TransformComponent(BaseComponent):
    """A transformation of nodes, such as a parser. Subclasses write ``__call__``.

    Example:
        >>> class Lower(TransformComponent):
        ...     def __call__(self, nodes, **kwargs):
        ...         return [node.model_copy(update={"text": node.text.lower()}) for node in nodes]
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Return the transformed nodes."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__")

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Return the transformed nodes; the transformation runs in a thread."""
        return await in_thread(lambda: self(nodes, **kwargs))


class _WrittenOnce:
    """Base of classes whose subclasses write a synchronous or an asynchronous method; the other is derived.

    Attributes:
        _either: The names of both methods.
    """

    _either: ClassVar[tuple[str, str]]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if not any(cls._writes(name) for name in cls._either):
            raise TypeError(f"{cls.__name__} has no implementation: write {' or '.join(cls._either)}")
        return super().__new__(cls)

    @classmethod
    def _writes(cls, name: str) -> bool:
        return getattr(cls, name).__module__ != __name__


@contextmanager
def _reported(query: "str | QueryBundle") -> Generator[list[NodeWithScore]]:
    """Report a retrieval to listeners; fill the list with the results."""
    found: list[NodeWithScore] = []
    _dispatcher.event(RetrievalStartEvent(str_or_query_bundle=query))
    yield found
    _dispatcher.event(RetrievalEndEvent(str_or_query_bundle=query, nodes=found))


class BaseRetriever(_WrittenOnce):
    """Base class of retrievers. Subclasses write ``_retrieve`` or ``_aretrieve``.

    A node that is found twice appears once. An :class:`IndexNode` among the results is followed into its object: a
    node, a retriever or a query engine, whose answer becomes a node.

    Args:
        callback_manager: Accepted and kept; use instrumentation instead.
        object_map: Objects by the ids of index nodes.
        objects: Index nodes with objects.
        verbose: Kept for subclasses.

    Raises:
        TypeError: The subclass does not write one of them.

    Example:
        >>> class Notes(BaseRetriever):
        ...     async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        ...         return [NodeWithScore(node=TextNode(text=note)) for note in await search(query_bundle.query_str)]
    """

    _either: ClassVar[tuple[str, str]] = ("_retrieve", "_aretrieve")

    def __init__(
        self,
        callback_manager: Any = None,
        object_map: Mapping[str, Any] | None = None,
        objects: Sequence[IndexNode] | None = None,
        verbose: bool = False,
    ) -> None:
        self.callback_manager = callback_manager
        self.object_map = {**{one.index_id: one.obj for one in objects or ()}, **(object_map or {})}
        self._verbose = verbose

    @_dispatcher.span
    def retrieve(self, str_or_query_bundle: str | QueryBundle) -> list[NodeWithScore]:
        """Find nodes for a question."""
        with _reported(str_or_query_bundle) as found:
            bundle = QueryBundle.of(str_or_query_bundle)
            nodes = self._retrieve(bundle)
            if any(isinstance(one.node, IndexNode) for one in nodes):
                nodes = _run(self._followed(bundle, nodes))
            found.extend(_each_once(nodes))
        return found

    @_dispatcher.span
    async def aretrieve(self, str_or_query_bundle: str | QueryBundle) -> list[NodeWithScore]:
        """Find nodes asynchronously; a synchronous search runs in a thread."""
        with _reported(str_or_query_bundle) as found:
            bundle = QueryBundle.of(str_or_query_bundle)
            nodes = await self._aretrieve(bundle)
            if any(isinstance(one.node, IndexNode) for one in nodes):
                nodes = await self._followed(bundle, nodes)
            found.extend(_each_once(nodes))
        return found

    async def _followed(self, query: QueryBundle, nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        """Replace each index node by the results of its object."""
        found: list[NodeWithScore] = []
        for one in nodes:
            node = one.node
            known = isinstance(node, IndexNode)
            obj = (node.obj or getattr(self, "object_map", {}).get(node.index_id)) if known else None
            if obj is None:
                found.append(one)
            elif isinstance(obj, NodeWithScore):
                found.append(obj)
            elif isinstance(obj, BaseNode):
                found.append(NodeWithScore(node=obj, score=one.score))
            elif isinstance(obj, BaseRetriever):
                found += await obj.aretrieve(query)
            elif hasattr(obj, "aquery"):
                answer = await obj.aquery(query)
                found.append(NodeWithScore(node=TextNode(text=str(answer)), score=one.score))
            else:
                raise TypeError(
                    f"the object of index node {node.id_} is {obj!r}: give a node, a retriever or an engine"
                )
        return found

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _run(self._aretrieve(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await in_thread(self._retrieve, query_bundle)


def _each_once(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return the first of nodes with equal content and document."""
    found: dict[Any, NodeWithScore] = {}
    for one in nodes:
        found.setdefault((one.node.hash, one.node.ref_doc_id), one)
    return list(found.values())


class BaseNodePostprocessor(_WrittenOnce, BaseComponent):
    """Base class of postprocessors, which drop, order or change nodes.

    Subclasses write ``_postprocess_nodes`` or ``_apostprocess_nodes``. Settings are fields of a pydantic model.

    Raises:
        TypeError: The subclass does not write one of them.

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
            nodes: The results of the search.
            query_bundle: The question.
            query_str: The question as text.

        Raises:
            ValueError: ``query_bundle`` and ``query_str`` are both given.
        """
        return self._postprocess_nodes(nodes, _one_query(query_bundle, query_str))

    async def apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None, query_str: str | None = None
    ) -> list[NodeWithScore]:
        """Drop, order or change nodes asynchronously; a synchronous postprocessor runs in a thread."""
        return await self._apostprocess_nodes(nodes, _one_query(query_bundle, query_str))

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return _run(self._apostprocess_nodes(nodes, query_bundle))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await in_thread(self._postprocess_nodes, nodes, query_bundle)


def _one_query(bundle: QueryBundle | None, text: str | None) -> QueryBundle | None:
    if bundle is not None and text is not None:
        raise ValueError("Cannot specify both query_str and query_bundle")
    return bundle if text is None else QueryBundle(text)


class BaseQueryEngine(_WrittenOnce):
    """Base class of query engines. Subclasses write ``_query`` or ``_aquery``.

    Args:
        callback_manager: Accepted and kept; use instrumentation instead.

    Raises:
        TypeError: The subclass does not write one of them.

    Example:
        >>> class Tides(BaseQueryEngine):
        ...     async def _aquery(self, query_bundle: QueryBundle) -> Response:
        ...         return Response(await ask(query_bundle.query_str))
    """

    _either: ClassVar[tuple[str, str]] = ("_query", "_aquery")

    def __init__(self, callback_manager: Any = None) -> None:
        self.callback_manager = callback_manager

    @_dispatcher.span
    def query(self, str_or_query_bundle: str | QueryBundle) -> AnyResponse:
        """Answer a question."""
        _dispatcher.event(QueryStartEvent(query=str_or_query_bundle))
        answer = self._query(QueryBundle.of(str_or_query_bundle))
        _dispatcher.event(QueryEndEvent(query=str_or_query_bundle, response=answer))
        return answer

    @_dispatcher.span
    async def aquery(self, str_or_query_bundle: str | QueryBundle) -> AnyResponse:
        """Answer a question asynchronously; a synchronous engine runs in a thread."""
        _dispatcher.event(QueryStartEvent(query=str_or_query_bundle))
        answer = await self._aquery(QueryBundle.of(str_or_query_bundle))
        _dispatcher.event(QueryEndEvent(query=str_or_query_bundle, response=answer))
        return answer

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Find the nodes for a question."""
        raise NotImplementedError(f"{type(self).__name__} does not retrieve nodes apart: call query")

    def synthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> AnyResponse:
        """Make the answer from nodes."""
        raise NotImplementedError(f"{type(self).__name__} does not answer from nodes apart: call query")

    async def aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Find the nodes for a question."""
        raise NotImplementedError(f"{type(self).__name__} does not retrieve nodes apart: call aquery")

    async def asynthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> AnyResponse:
        """Make the answer from nodes."""
        raise NotImplementedError(f"{type(self).__name__} does not answer from nodes apart: call aquery")

    def _query(self, query_bundle: QueryBundle) -> AnyResponse:
        return _run(self._aquery(query_bundle))

    async def _aquery(self, query_bundle: QueryBundle) -> AnyResponse:
        return await in_thread(self._query, query_bundle)


class CustomQueryEngine(BaseComponent, BaseQueryEngine):
    """Base class of query engines with settings. Subclasses write ``custom_query`` or ``acustom_query``.

    Both return text or a :class:`Response`. Settings are fields of a pydantic model.

    Raises:
        TypeError: The subclass does not write one of them.

    Example:
        >>> class Tides(CustomQueryEngine):
        ...     port: str
        ...     async def acustom_query(self, query_str: str) -> str:
        ...         return f"High water at {self.port} is at {await ask(self.port)}."
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    _either: ClassVar[tuple[str, str]] = ("custom_query", "acustom_query")

    callback_manager: Any = Field(default=None, exclude=True)

    def __init__(self, **data: Any) -> None:
        BaseModel.__init__(self, **data)

    def custom_query(self, query_str: str) -> str | Response:
        """Answer a question."""
        return _run(self.acustom_query(query_str))

    async def acustom_query(self, query_str: str) -> str | Response:
        """Answer a question."""
        return await in_thread(self.custom_query, query_str)

    def _query(self, query_bundle: QueryBundle) -> AnyResponse:
        return _as_response(self.custom_query(query_bundle.query_str))

    async def _aquery(self, query_bundle: QueryBundle) -> AnyResponse:
        return _as_response(await self.acustom_query(query_bundle.query_str))


def _as_response(answer: str | Response) -> Response:
    return Response(answer) if isinstance(answer, str) else answer
