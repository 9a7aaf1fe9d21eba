"""Retrievers of indexes, and the retriever by words."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np

from batonflow.llms import LLM
from batonflow.llms._bridge import run_sync
from batonflow.llms.prompts import BasePromptTemplate
from batonflow.nodes import BaseNode, BaseRetriever, MetadataMode, NodeWithScore, QueryBundle
from batonflow.retrieval.embeddings import BaseEmbedding, default_embed_model
from batonflow.retrieval.filters import MetadataFilters, checked_filters, checked_number
from batonflow.retrieval.index import IndexStruct
from batonflow.retrieval.keywords import keywords_in_answer, rake_keywords, simple_extract_keywords
from batonflow.retrieval.prompts import CHOOSE_PASSAGES, EXTRACT_QUERY_KEYWORDS
from batonflow.retrieval.requests import given_llm, predict, required_llm
from batonflow.retrieval.rerank import LLMRerank
from batonflow.retrieval.storage import SimpleDocumentStore, SimpleVectorStore, StorageContext
from batonflow.retrieval.vectors import VectorStoreQuery, VectorStoreQueryMode, VectorStoreQueryResult
from batonflow.threads import in_thread

__all__ = [
    "BM25Retriever",
    "KeywordTableGPTRetriever",
    "KeywordTableRAKERetriever",
    "KeywordTableSimpleRetriever",
    "SummaryIndexEmbeddingRetriever",
    "SummaryIndexLLMRetriever",
    "SummaryIndexRetriever",
    "VectorIndexRetriever",
    "WordsRetriever",
]


class _Index(Protocol):
    """The part of an index that retrievers read."""

    @property
    def index_struct(self) -> IndexStruct: ...
    @property
    def docstore(self) -> SimpleDocumentStore: ...
    @property
    def storage_context(self) -> StorageContext: ...


class _VectorIndex(_Index, Protocol):
    embed_model: BaseEmbedding

    @property
    def model_key(self) -> str: ...


class _KeywordIndex(_Index, Protocol):
    llm: LLM | None


EMBED, LLM_MODE = MetadataMode.EMBED, MetadataMode.LLM
_ASK_WORDS = {VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE}


class VectorIndexRetriever(BaseRetriever):
    """Finds nodes of a vector index.

    Args:
        index: The index.
        similarity_top_k: The largest number of nodes.
        vector_store_query_mode: ``default``, ``mmr``, ``text_search``, ``sparse`` or ``hybrid``.
        filters: Conditions on the metadata.
        alpha: The weight of vectors in a hybrid search, from 0 to 1.
        node_ids: Only these nodes.
        doc_ids: Only nodes of these documents.
        sparse_top_k: The largest number of nodes of a search by words.
        hybrid_top_k: The largest number of nodes of a hybrid search.
        embed_model: The embedding model; by default that of the index.
        vector_store_kwargs: ``mmr_threshold``, and arguments for a store of another maker.
        callback_manager: Accepted and kept; use instrumentation instead.
        object_map: Objects by the ids of index nodes.
        verbose: Accepted and kept.

    Raises:
        ValueError: The mode is unknown, or a number is less than 1.
        TypeError: A number or the filters have another type.
    """

    def __init__(
        self,
        index: _VectorIndex,
        similarity_top_k: int = 2,
        vector_store_query_mode: VectorStoreQueryMode | str = VectorStoreQueryMode.DEFAULT,
        filters: MetadataFilters | None = None,
        alpha: float | None = None,
        node_ids: list[str] | None = None,
        doc_ids: list[str] | None = None,
        sparse_top_k: int | None = None,
        hybrid_top_k: int | None = None,
        embed_model: BaseEmbedding | None = None,
        vector_store_kwargs: Mapping[str, Any] | None = None,
        callback_manager: Any = None,
        object_map: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(callback_manager, object_map, verbose=verbose)
        self._index = index
        self._embed_model = embed_model or index.embed_model
        self.similarity_top_k = checked_number("similarity_top_k", similarity_top_k)
        self._fields: dict[str, Any] = {
            "mode": VectorStoreQueryMode(vector_store_query_mode),
            "filters": checked_filters(filters),
            "alpha": alpha,
            "node_ids": node_ids,
            "doc_ids": doc_ids,
            "sparse_top_k": None if sparse_top_k is None else checked_number("sparse_top_k", sparse_top_k),
            "hybrid_top_k": None if hybrid_top_k is None else checked_number("hybrid_top_k", hybrid_top_k),
        }
        self._kwargs = dict(vector_store_kwargs or {})
        if "mmr_threshold" in self._kwargs:
            self._fields["mmr_threshold"] = self._kwargs.pop("mmr_threshold")
        storage = index.storage_context
        own = SimpleVectorStore(storage.store, index.model_key, index.index_struct.number)
        self._store = storage.foreign_vectors or own
        self._is_ours = self._store is own

    @property
    def _needs_vector(self) -> bool:
        if self._is_ours and (self._fields["mode"] in _ASK_WORDS or self._embed_model.is_lexical):
            return False
        return self._store.is_embedding_query

    def _query(self, bundle: QueryBundle) -> VectorStoreQuery:
        if self._needs_vector and bundle.embedding is None:
            raise ValueError("the question is empty: an index with vectors needs a text to embed")
        fields = dict(self._fields)
        if self._is_ours and self._embed_model.is_lexical:
            fields["mode"] = VectorStoreQueryMode.TEXT_SEARCH
        vector = bundle.embedding if self._needs_vector else None
        top_k = self.similarity_top_k
        return VectorStoreQuery(vector, similarity_top_k=top_k, query_str=bundle.query_str, **fields)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._needs_vector and query_bundle.embedding is None and query_bundle.embedding_strs:
            texts = query_bundle.embedding_strs
            query_bundle.embedding = self._embed_model.get_agg_embedding_from_queries(texts)
        return self._scored(self._store.query(self._query(query_bundle), **self._kwargs))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._needs_vector and query_bundle.embedding is None and query_bundle.embedding_strs:
            texts = query_bundle.embedding_strs
            query_bundle.embedding = await self._embed_model.aget_agg_embedding_from_queries(texts)
        return self._scored(await self._store.aquery(self._query(query_bundle), **self._kwargs))

    def _scored(self, found: VectorStoreQueryResult) -> list[NodeWithScore]:
        nodes = found.nodes
        if nodes is None:  # the store knows only ids
            nodes = self._index.docstore.get_nodes(found.ids or [])
        scores = found.similarities or [None] * len(nodes)
        return [NodeWithScore(node=node, score=score) for node, score in zip(nodes, scores, strict=True)]


_OF_WORDS = {"stemmer", "language", "tokenizer", "token_pattern", "skip_stemming", "verbose"}


class WordsRetriever(BaseRetriever):
    """Finds nodes by words, with BM25. It needs no model.

    Args:
        storage: The nodes.
        similarity_top_k: The largest number of nodes.
        index: The number of the index whose nodes are searched; None for all nodes.
        filters: Conditions on the metadata.

    Example:
        >>> WordsRetriever.from_defaults(nodes=nodes, similarity_top_k=3).retrieve("What moves the sea?")
    """

    def __init__(
        self,
        storage: StorageContext,
        similarity_top_k: int = 2,
        index: int | None = None,
        filters: MetadataFilters | None = None,
    ) -> None:
        super().__init__()
        self.similarity_top_k = checked_number("similarity_top_k", similarity_top_k)
        self._store, self._number, self._filters = storage.store, index, checked_filters(filters)

    @classmethod
    def from_defaults(
        cls,
        index: Any = None,
        nodes: Sequence[BaseNode] | None = None,
        docstore: SimpleDocumentStore | None = None,
        similarity_top_k: int = 2,
        filters: MetadataFilters | None = None,
        **of_words: Any,
    ) -> Self:
        """Return a retriever over an index, nodes, or a store of documents.

        Stemmers and tokenizers of other programs have no effect: all texts have the words of their store.

        Raises:
            TypeError: An argument is unknown.
            ValueError: Not exactly one of them is given.
        """
        if sum(one is not None for one in (index, nodes, docstore)) != 1:
            raise ValueError("Please pass exactly one of index, nodes, or docstore.")
        if unknown := of_words.keys() - _OF_WORDS:
            raise TypeError(f"from_defaults() of BM25Retriever does not have an argument {min(unknown)!r}")
        if index is not None:
            return cls(index.storage_context, similarity_top_k, index.index_struct.number, filters)
        storage = StorageContext(docstore.store if docstore is not None else None)
        storage.store.add_nodes(nodes or [])
        return cls(storage, similarity_top_k, filters=filters)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        with self._store.reading():
            allowed = self._store.mask(index=self._number, filters=self._filters)
            found = self._store.by_words(query_bundle.query_str, self.similarity_top_k, allowed)
        return [NodeWithScore(node=one.node, score=one.score) for one in found]


BM25Retriever = WordsRetriever


class SummaryIndexRetriever(BaseRetriever):
    """Returns all nodes of an index, in their order."""

    def __init__(self, index: Any, callback_manager: Any = None, verbose: bool = False, **_: Any) -> None:
        super().__init__(callback_manager, verbose=verbose)
        self._index = index

    def _nodes(self) -> list[BaseNode]:
        store = self._index.storage_context.store
        return store.nodes_at(store.members(self._index.index_struct.number))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        del query_bundle  # all nodes are returned
        return [NodeWithScore(node=node) for node in self._nodes()]


class SummaryIndexEmbeddingRetriever(SummaryIndexRetriever):
    """Returns the nodes of a list whose vectors are nearest to that of the question.

    Args:
        index: The index.
        embed_model: The embedding model; by default that of ``Settings``.
        similarity_top_k: The largest number of nodes.
        kwargs: See ``BaseRetriever``.
    """

    def __init__(
        self, index: _Index, embed_model: BaseEmbedding | None = None, similarity_top_k: int | None = 1, **kwargs: Any
    ) -> None:
        super().__init__(index, **kwargs)
        self._embed_model = embed_model or default_embed_model()
        self._top_k = None if similarity_top_k is None else checked_number("similarity_top_k", similarity_top_k)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes, model = self._nodes(), self._embed_model
        asked = query_bundle.embedding or model.get_agg_embedding_from_queries(query_bundle.embedding_strs)
        missing = [node for node in nodes if node.embedding is None]
        texts = [node.get_content(EMBED) for node in missing]
        for node, vector in zip(missing, model.get_text_embedding_batch(texts), strict=True):
            node.embedding = vector
        scores = np.array([model.similarity(asked, node.get_embedding()) for node in nodes])
        best: list[int] = np.argsort(-scores, kind="stable")[: self._top_k].tolist()
        return [NodeWithScore(node=nodes[at], score=float(scores[at])) for at in best]


class SummaryIndexLLMRetriever(SummaryIndexRetriever):
    """Returns the nodes of a list that a model chooses.

    Args:
        index: The index.
        llm: The model; by default that of ``Settings``.
        choice_select_prompt: The prompt.
        choice_batch_size: The number of nodes in one request.
        kwargs: See ``BaseRetriever``.
    """

    def __init__(
        self,
        index: Any,
        llm: LLM | None = None,
        choice_select_prompt: BasePromptTemplate | None = None,
        choice_batch_size: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(index, **kwargs)
        prompt = choice_select_prompt or CHOOSE_PASSAGES
        self._chooser = LLMRerank(
            llm=llm, choice_select_prompt=prompt, choice_batch_size=choice_batch_size, top_n=10**9
        )

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = [NodeWithScore(node=node) for node in await in_thread(self._nodes)]
        return await self._chooser.apostprocess_nodes(nodes, query_bundle)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run_sync(self._aretrieve(query_bundle))


class KeywordTableSimpleRetriever(BaseRetriever):
    """Finds nodes of a table by the keywords of the question; those with most of them come first.

    Args:
        index: The index.
        llm: The model that extracts keywords, for the retriever that asks one.
        query_keyword_extract_template: The prompt for it.
        max_keywords_per_query: The largest number of keywords.
        num_chunks_per_query: The largest number of nodes.
        kwargs: See ``BaseRetriever``.
    """

    def __init__(
        self,
        index: _KeywordIndex,
        llm: LLM | None = None,
        query_keyword_extract_template: BasePromptTemplate | None = None,
        max_keywords_per_query: int = 10,
        num_chunks_per_query: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._index = index
        self._llm = llm if llm is not None else index.llm
        self._template = query_keyword_extract_template or EXTRACT_QUERY_KEYWORDS
        self._most_keywords, self._most_nodes = max_keywords_per_query, num_chunks_per_query

    def _keywords(self, query: str) -> set[str]:
        return simple_extract_keywords(query, self._most_keywords)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._with(self._keywords(query_bundle.query_str))

    def _with(self, words: set[str]) -> list[NodeWithScore]:
        store = self._index.storage_context.store
        numbers = store.nodes_with(self._index.index_struct.number, sorted(words))
        return [NodeWithScore(node=node) for node in store.nodes_at(numbers[: self._most_nodes])]


class KeywordTableRAKERetriever(KeywordTableSimpleRetriever):
    """Finds nodes of a table by the phrases of the question, from RAKE."""

    def _keywords(self, query: str) -> set[str]:
        return rake_keywords(query, self._most_keywords)


class KeywordTableGPTRetriever(KeywordTableSimpleRetriever):
    """Finds nodes of a table by keywords that a model writes for the question."""

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        llm = required_llm(given_llm(self._llm), self)
        values = {"max_keywords": self._most_keywords, "question": query_bundle.query_str}
        answer = await predict(llm, self._template, **values)
        return await in_thread(self._with, keywords_in_answer(answer))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run_sync(self._aretrieve(query_bundle))
