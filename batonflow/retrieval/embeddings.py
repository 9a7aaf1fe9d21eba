"""Embedding models: functions of programs, servers with OpenAI's protocol, and two that need no model."""

import asyncio
import hashlib
import json
import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, ClassVar, cast

import numpy as np
from pydantic import ConfigDict, Field, PrivateAttr, SecretStr

from batonflow.instrumentation import get_dispatcher
from batonflow.instrumentation.events.embedding import EmbeddingEndEvent, EmbeddingStartEvent
from batonflow.llms import Settings, Usage
from batonflow.llms._bridge import run_sync
from batonflow.llms._vendor import Clients, aload
from batonflow.llms.limits import RateLimits
from batonflow.llms.usage import record_usage
from batonflow.nodes import BaseNode, MetadataMode, TransformComponent
from batonflow.retrieval.words import words_of
from batonflow.threads import in_thread

__all__ = [
    "BaseEmbedding",
    "CallableEmbedding",
    "MockEmbedding",
    "OpenAIEmbedding",
    "SimilarityMode",
    "WordsEmbedding",
    "default_embed_model",
    "resolve_embed_model",
]
_TESTING = "IS_TESTING"
_DEFAULT_BATCH = 10
_OF_REQUESTS = {"embed_batch_size", "num_workers", "limits"}
"""Fields that do not change vectors."""

_dispatcher = get_dispatcher(__name__)
_CHARACTERS_OF_TOKEN = 4
logger = logging.getLogger("batonflow.retrieval")

Vector = list[float]


class SimilarityMode(StrEnum):
    """A measure of the similarity of two vectors."""

    DEFAULT = "cosine"
    DOT_PRODUCT = "dot_product"
    EUCLIDEAN = "euclidean"


def _mean(vectors: list[Vector]) -> Vector:
    return cast("Vector", np.mean(np.asarray(vectors), axis=0).tolist())


class BaseEmbedding(TransformComponent):
    """The base class of embedding models.

    Subclasses write ``_get_query_embedding`` and ``_get_text_embedding``, or their asynchronous forms, or
    ``_aget_text_embeddings`` alone.

    Args:
        model_name: The name of the model.
        embed_batch_size: So many texts go into one request.
        num_workers: So many requests are sent at once.
        embeddings_cache: A key-value store with ``get(key)`` and ``put(key, value)``, or a dict.

    Example:
        >>> class Ours(BaseEmbedding):
        ...     async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        ...         return await ask_our_server(texts)
    """

    _class_name: ClassVar[str] = "BaseEmbedding"
    is_lexical: ClassVar[bool] = False

    model_name: str = "unknown"
    embed_batch_size: int = Field(default=_DEFAULT_BATCH, ge=1, le=2048)
    num_workers: int | None = None
    embeddings_cache: Any = Field(default=None, exclude=True)
    callback_manager: Any = Field(default=None, exclude=True)

    @property
    def name_in_stores(self) -> str:
        """The name under which stores hold its vectors; empty for a model whose vectors are not stored."""
        return "" if self.is_lexical else f"{type(self).__name__} {self.model_name}"

    # --- for subclasses -----------------------------------------------------------------------------------------------

    def _get_text_embedding(self, text: str) -> Vector:
        return run_sync(self._aget_text_embedding(text))

    async def _aget_text_embedding(self, text: str) -> Vector:
        if self._writes("_get_text_embedding"):
            return await in_thread(self._get_text_embedding, text)
        if self._writes("_aget_text_embeddings"):
            return (await self._aget_text_embeddings([text]))[0]
        raise NotImplementedError(f"{type(self).__name__} does not embed texts: write _get_text_embedding")

    def _get_text_embeddings(self, texts: list[str]) -> list[Vector]:
        if self._writes("_get_text_embedding"):
            return [self._get_text_embedding(text) for text in texts]
        return run_sync(self._aget_text_embeddings(texts))

    async def _aget_text_embeddings(self, texts: list[str]) -> list[Vector]:
        if self._writes("_get_text_embeddings"):
            return await in_thread(self._get_text_embeddings, texts)
        if self._writes("_aget_text_embedding"):
            return list(await asyncio.gather(*map(self._aget_text_embedding, texts)))
        return await in_thread(self._get_text_embeddings, texts)

    def _get_query_embedding(self, query: str) -> Vector:
        return run_sync(self._aget_query_embedding(query))

    async def _aget_query_embedding(self, query: str) -> Vector:
        if self._writes("_get_query_embedding"):
            return await in_thread(self._get_query_embedding, query)
        return await self._aget_text_embedding(query)

    def _writes(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(BaseEmbedding, name)

    # --- for programs -------------------------------------------------------------------------------------------------

    def get_query_embedding(self, query: str) -> Vector:
        """Return the vector of a question."""
        return self._cached([query], lambda texts: [self._get_query_embedding(texts[0])], "query")[0]

    async def aget_query_embedding(self, query: str) -> Vector:
        """Return the vector of a question."""
        if self.embeddings_cache is not None:
            return await in_thread(self.get_query_embedding, query)
        _dispatcher.event(EmbeddingStartEvent(model_dict=self._described()))
        vector = await self._aget_query_embedding(query)
        _dispatcher.event(EmbeddingEndEvent(chunks=[query], embeddings=[vector]))
        return vector

    def get_agg_embedding_from_queries(
        self, queries: list[str], agg_fn: Callable[[list[Vector]], Vector] | None = None
    ) -> Vector:
        """Return one vector of several questions; by default the mean."""
        return (agg_fn or _mean)([self.get_query_embedding(one) for one in queries])

    async def aget_agg_embedding_from_queries(
        self, queries: list[str], agg_fn: Callable[[list[Vector]], Vector] | None = None
    ) -> Vector:
        """Return one vector of several questions; by default the mean."""
        return (agg_fn or _mean)([await self.aget_query_embedding(one) for one in queries])

    def get_text_embedding(self, text: str) -> Vector:
        """Return the vector of a text."""
        return self._cached([text], lambda texts: [self._get_text_embedding(texts[0])])[0]

    async def aget_text_embedding(self, text: str) -> Vector:
        """Return the vector of a text."""
        return (await self.aget_text_embedding_batch([text]))[0]

    def get_text_embedding_batch(self, texts: Sequence[str], show_progress: bool = False, **_: Any) -> list[Vector]:
        """Return the vectors of texts, in their order."""
        del show_progress  # a program listens to the events
        return [vector for batch in self._batches(texts) for vector in self._cached(batch, self._get_text_embeddings)]

    async def aget_text_embedding_batch(
        self, texts: Sequence[str], show_progress: bool = False, **_: Any
    ) -> list[Vector]:
        """Return the vectors of texts, in their order; ``num_workers`` batches are sent at once."""
        del show_progress
        free = asyncio.Semaphore(self.num_workers or 1)

        async def embed(batch: list[str]) -> list[Vector]:
            async with free:
                if self.embeddings_cache is not None:
                    return await in_thread(self._cached, batch, self._get_text_embeddings)
                _dispatcher.event(EmbeddingStartEvent(model_dict=self._described()))
                vectors = _each(await self._aget_text_embeddings(batch), batch, self)
                _dispatcher.event(EmbeddingEndEvent(chunks=batch, embeddings=vectors))
                return vectors

        found = await asyncio.gather(*map(embed, self._batches(texts)))
        return [vector for batch in found for vector in batch]

    def similarity(
        self, embedding1: Sequence[float], embedding2: Sequence[float], mode: SimilarityMode | str = "cosine"
    ) -> float:
        """Return the similarity of two vectors; a larger one is better."""
        one, other = np.asarray(embedding1, np.float64), np.asarray(embedding2, np.float64)
        mode = SimilarityMode(mode)
        if mode is SimilarityMode.EUCLIDEAN:
            return -float(np.linalg.norm(one - other))
        product = float(one @ other)
        if mode is SimilarityMode.DOT_PRODUCT:
            return product
        length = float(np.linalg.norm(one) * np.linalg.norm(other))
        return product / length if length else 0.0

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Set the vectors of nodes."""
        texts = [node.get_content(MetadataMode.EMBED) for node in nodes]
        for node, vector in zip(nodes, self.get_text_embedding_batch(texts, **kwargs), strict=True):
            node.embedding = vector
        return nodes

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Set the vectors of nodes."""
        texts = [node.get_content(MetadataMode.EMBED) for node in nodes]
        for node, vector in zip(nodes, await self.aget_text_embedding_batch(texts, **kwargs), strict=True):
            node.embedding = vector
        return nodes

    def _batches(self, texts: Sequence[str]) -> list[list[str]]:
        size = self.embed_batch_size
        return [list(texts[begin : begin + size]) for begin in range(0, len(texts), size)]

    def _described(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"api_key"})

    def _cached(self, texts: list[str], embed: Callable[[list[str]], list[Vector]], kind: str = "text") -> list[Vector]:
        """Return vectors from the cache, and those of the other texts from the model."""
        cache: Any = self.embeddings_cache
        keys: list[str] = [] if cache is None else [self._key(kind, text) for text in texts]
        known: dict[str, Any] = {} if cache is None else {key: cache.get(key) for key in keys}
        missing = [text for at, text in enumerate(texts) if not keys or known[keys[at]] is None]
        made: list[Vector] = []
        if missing:
            _dispatcher.event(EmbeddingStartEvent(model_dict=self._described()))
            made = _each(embed(missing), missing, self)
            _dispatcher.event(EmbeddingEndEvent(chunks=missing, embeddings=made))
        new = iter(made)
        found: list[Vector] = []
        for at in range(len(texts)):
            kept = known[keys[at]] if keys else None
            vector: Vector = kept["vector"] if kept is not None else next(new)
            if cache is not None and kept is None:
                put = getattr(cache, "put", None) or cache.__setitem__
                put(keys[at], {"vector": vector})
            found.append(vector)
        return found

    def _key(self, kind: str, text: str) -> str:
        model = {name: value for name, value in self._described().items() if name not in _OF_REQUESTS}
        told = json.dumps([kind, model, text], sort_keys=True, default=str)
        return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()


def _each(vectors: list[Vector], texts: Sequence[str], model: BaseEmbedding) -> list[Vector]:
    """Return vectors if there is one for each text.

    Raises:
        ValueError: There are more or fewer.
    """
    if len(vectors) != len(texts):
        raise ValueError(f"{type(model).__name__} gave {len(vectors)} vectors for {len(texts)} texts")
    return vectors


class MockEmbedding(BaseEmbedding):
    """Gives the same vector for every text.

    Args:
        embed_dim: The length of the vector.
    """

    _class_name: ClassVar[str] = "MockEmbedding"
    embed_dim: int

    def __init__(self, embed_dim: int, **data: Any) -> None:
        given: dict[str, Any] = {"embed_dim": embed_dim, **data}
        super().__init__(**given)

    def _get_text_embedding(self, text: str) -> Vector:
        del text  # all have the same vector
        return [0.5] * self.embed_dim


class WordsEmbedding(BaseEmbedding):
    """Gives vectors of hashed words. It has no weights and needs no network.

    An index with this model stores no vectors, and finds nodes by words with BM25, which is better.

    Args:
        dim: The length of the vectors.
    """

    _class_name: ClassVar[str] = "WordsEmbedding"
    is_lexical: ClassVar[bool] = True

    model_name: str = "words"
    dim: int = Field(default=1024, ge=1)

    def _get_text_embedding(self, text: str) -> Vector:
        vector = np.zeros(self.dim)
        for word, times in Counter(words_of(text)).items():
            place = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
            vector[place % self.dim] += (1 if place >> 63 else -1) * (1 + math.log(times))
        return cast("Vector", (vector / (np.linalg.norm(vector) or 1.0)).tolist())

    def _get_query_embedding(self, query: str) -> Vector:
        return self._get_text_embedding(query)


class CallableEmbedding(BaseEmbedding):
    """Wraps a function of another library, such as ``SentenceTransformer(...).encode``.

    Args:
        fn: Returns the vectors of a list of texts.
        query_fn: Returns the vectors of a list of questions; by default ``fn``.
        model_name: The name of the model, by which indexes know it.

    Example:
        >>> CallableEmbedding(model.encode, model_name="all-MiniLM-L6-v2")
    """

    _class_name: ClassVar[str] = "CallableEmbedding"
    _fn: Callable[[list[str]], Any] = PrivateAttr()
    _query_fn: Callable[[list[str]], Any] = PrivateAttr()

    def __init__(
        self, fn: Callable[[list[str]], Any], query_fn: Callable[[list[str]], Any] | None = None, **data: Any
    ) -> None:
        super().__init__(**data)
        self._fn, self._query_fn = fn, query_fn or fn

    def _get_text_embeddings(self, texts: list[str]) -> list[Vector]:
        return [[float(number) for number in vector] for vector in self._fn(texts)]

    def _get_text_embedding(self, text: str) -> Vector:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> Vector:
        [vector] = self._query_fn([query])
        return [float(number) for number in vector]


class OpenAIEmbedding(BaseEmbedding):
    """An embedding model of OpenAI, or of a server with its protocol. It needs ``pip install 'batonflow[openai]'``.

    Args:
        model: The name of the model.
        base_url: The address of the server; by default OpenAI's.
        api_key: The key; by default ``OPENAI_API_KEY``.
        dimensions: The length of the vectors, for models that have a choice.
        embed_batch_size: So many texts go into one request.
        limits: ``RateLimits``, also those of models. The tokens of a request are estimated before it.

    Example:
        >>> limits = RateLimits(requests_per_minute=500, tokens_per_minute=1_000_000)
        >>> Settings.embed_model = OpenAIEmbedding("text-embedding-3-small", limits=limits)
    """

    _class_name: ClassVar[str] = "OpenAIEmbedding"

    model_config = ConfigDict(arbitrary_types_allowed=True)

    embed_batch_size: int = Field(default=100, ge=1, le=2048)
    base_url: str | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True)
    dimensions: int | None = None
    limits: RateLimits | None = Field(default=None, exclude=True, repr=False)

    _clients: Clients = PrivateAttr(default_factory=Clients)

    def __init__(self, model: str = "text-embedding-3-small", **data: Any) -> None:
        given: dict[str, Any] = {"model_name": model, **data}
        super().__init__(**given)

    async def _client(self) -> Any:
        key = None if self.api_key is None else self.api_key.get_secret_value()
        sdk = await aload("openai", "openai")
        return sdk.AsyncOpenAI(api_key=key, base_url=self.base_url)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[Vector]:
        reserved, used = sum(map(len, texts)) // _CHARACTERS_OF_TOKEN, None
        if self.limits is not None:
            await self.limits.acquire(reserved)
        try:
            client = await self._clients.get(self._client, owned=True)
            options = {} if self.dimensions is None else {"dimensions": self.dimensions}
            answer = await client.embeddings.create(
                input=texts, model=self.model_name, encoding_format="float", **options
            )
            if (usage := getattr(answer, "usage", None)) is not None:
                used = usage.prompt_tokens
                record_usage(Usage(input_tokens=used), self.model_name)
        finally:
            if self.limits is not None:
                self.limits.release(reserved, used)
        return [one.embedding for one in sorted(answer.data, key=lambda one: one.index)]

    async def _aget_text_embedding(self, text: str) -> Vector:
        return (await self._aget_text_embeddings([text]))[0]


def default_embed_model() -> BaseEmbedding:
    """Return the embedding model of ``Settings``; by default one by words."""
    given: Any = Settings.embed_model
    return WordsEmbedding() if given is None else resolve_embed_model(given)


def resolve_embed_model(embed_model: Any) -> BaseEmbedding:
    """Return an embedding model.

    Args:
        embed_model: A model; ``"openai:NAME"``; ``"default"``, the model of ``Settings``; or None for one that gives
            the same vector for every text.

    Raises:
        ValueError: The name is unknown.
    """
    if isinstance(embed_model, BaseEmbedding):
        return embed_model
    if embed_model is None:
        logger.warning("embeddings are switched off: every text has the same vector")
        return MockEmbedding(embed_dim=1)
    if embed_model == "default":
        return MockEmbedding(embed_dim=8) if os.environ.get(_TESTING) else default_embed_model()
    if isinstance(embed_model, str) and embed_model.startswith("openai:"):
        return OpenAIEmbedding(embed_model.removeprefix("openai:"))
    raise ValueError(f"{embed_model!r} is not an embedding model: give a model, or a name such as 'openai:NAME'")
