"""Answers of query engines: whole, streamed, or as an object."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Self, cast

from pydantic import BaseModel

from batonflow.nodes.schema import NodeWithScore

__all__ = ["AsyncStreamingResponse", "PydanticResponse", "Response", "StreamingResponse"]


class _Sources:
    source_nodes: list[NodeWithScore]
    metadata: dict[str, Any] | None

    def __post_init__(self) -> None:
        given: Any = self.source_nodes
        self.source_nodes = [] if given is None else given

    def get_formatted_sources(self, length: int = 100) -> str:
        """Return the sources as text, each cut at a number of characters."""
        texts = [(one.node.id_, one.node.get_content().strip()) for one in self.source_nodes]
        cut = [(node_id, text if len(text) <= length else f"{text[: length - 3]}...") for node_id, text in texts]
        return "\n\n".join(f"> Source (Doc id: {node_id}): {text}" for node_id, text in cut)


@dataclass
class Response(_Sources):
    """Answer of a query engine.

    Args:
        response: The answer.
        source_nodes: The nodes that support the answer.
        metadata: Further facts about the answer.
    """

    response: str | None
    source_nodes: list[NodeWithScore] = field(default_factory=list[NodeWithScore])
    metadata: dict[str, Any] | None = None

    def __str__(self) -> str:
        return self.response or "None"


@dataclass
class PydanticResponse(_Sources):
    """Answer of a query engine as an object, whose attributes it has.

    Args:
        response: The object.
        source_nodes: The nodes that support the answer.
        metadata: Further facts about the answer.
    """

    response: BaseModel | None
    source_nodes: list[NodeWithScore] = field(default_factory=list[NodeWithScore])
    metadata: dict[str, Any] | None = None

    def __str__(self) -> str:
        return "None" if self.response is None else self.response.model_dump_json()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in {"response", "to_dict"}:  # records would write the object alone
            raise AttributeError(name)
        return getattr(self.response, name)

    def get_response(self) -> Response:
        """Return the answer as text."""
        return Response(str(self), self.source_nodes, self.metadata)


class _RecordedStream(_Sources):
    """An answer in pieces, which records of runs hold once it is read."""

    response_txt: str | None = None

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in records."""
        return cls.__name__

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as data for records.

        Raises:
            ValueError: The answer has not been read to its end.
        """
        if self.response_txt is None:
            raise ValueError(f"a {type(self).__name__} can be recorded when it has been read: read it to its end")
        nodes = [one.model_dump(mode="json") for one in self.source_nodes]
        return {"response_txt": self.response_txt, "source_nodes": nodes, "metadata": self.metadata}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return an answer that has been read."""
        pieces: Any = _no_pieces() if cls is AsyncStreamingResponse else iter(())
        values = {**data, "source_nodes": [NodeWithScore(**one) for one in data["source_nodes"]]}
        return cast("Any", cls)(response_gen=pieces, **values)


@dataclass
class StreamingResponse(_RecordedStream):
    """Answer of a query engine in pieces. It is read once; afterwards the text is known.

    Args:
        response_gen: The pieces.
        source_nodes: The nodes that support the answer.
        metadata: Further facts about the answer.
        response_txt: The whole text, once it is read.
    """

    response_gen: Iterator[str]
    source_nodes: list[NodeWithScore] = field(default_factory=list[NodeWithScore])
    metadata: dict[str, Any] | None = None
    response_txt: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.response_gen = self._kept(self.response_gen)

    def _kept(self, pieces: Iterator[str]) -> Iterator[str]:
        found: list[str] = []
        for piece in pieces:
            found.append(piece)
            yield piece
        self.response_txt = "".join(found)

    def __str__(self) -> str:
        return str(self.get_response())

    def get_response(self) -> Response:
        """Read the rest of the answer, and return all of it."""
        if self.response_txt is None:
            for _ in self.response_gen:
                pass
        return Response(self.response_txt, self.source_nodes, self.metadata)

    def print_response_stream(self) -> None:
        """Print the pieces as they come."""
        if self.response_txt is not None:
            print(self.response_txt)
            return
        for piece in self.response_gen:
            print(piece, end="", flush=True)


@dataclass
class AsyncStreamingResponse(_RecordedStream):
    """Answer of a query engine in pieces, read asynchronously. Afterwards the text is known.

    Args:
        response_gen: The pieces.
        source_nodes: The nodes that support the answer.
        metadata: Further facts about the answer.
        response_txt: The whole text, once it is read.
    """

    response_gen: AsyncIterator[str]
    source_nodes: list[NodeWithScore] = field(default_factory=list[NodeWithScore])
    metadata: dict[str, Any] | None = None
    response_txt: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._read: list[str] = []

    async def async_response_gen(self) -> AsyncIterator[str]:
        """Yield the pieces; after the end, the text."""
        if self.response_txt is not None:
            yield self.response_txt
            return
        async for piece in self.response_gen:
            self._read.append(piece)
            yield piece
        self.response_txt = "".join(self._read)

    async def _adrain(self) -> None:
        async for _ in self.async_response_gen():
            pass

    async def aget_response(self) -> Response:
        """Read the rest of the answer, and return all of it."""
        await self._adrain()
        return Response(self.response_txt, self.source_nodes, self.metadata)

    async def get_response(self) -> Response:
        """Read the rest of the answer, and return all of it."""
        return await self.aget_response()

    async def aprint_response_stream(self) -> None:
        """Print the pieces as they come."""
        async for piece in self.async_response_gen():
            print(piece, end="", flush=True)

    def __str__(self) -> str:
        return self.response_txt or "".join(self._read)


async def _no_pieces() -> AsyncIterator[str]:
    for piece in ():
        yield piece
