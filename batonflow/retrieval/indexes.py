"""Indexes: lists, vectors and words, tables of keywords, and an empty one."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from batonflow.llms import LLM
from batonflow.llms._bridge import run_sync
from batonflow.llms.prompts import BasePromptTemplate
from batonflow.nodes import BaseNode, BaseRetriever
from batonflow.retrieval import retrievers
from batonflow.retrieval.embeddings import BaseEmbedding, default_embed_model, resolve_embed_model
from batonflow.retrieval.index import BaseIndex, IndexStruct, logger
from batonflow.retrieval.index_engines import of_mode
from batonflow.retrieval.keywords import keywords_in_answer, rake_keywords, simple_extract_keywords
from batonflow.retrieval.prompts import EXTRACT_KEYWORDS
from batonflow.retrieval.query_engine import RetrieverQueryEngine
from batonflow.retrieval.requests import given_llm, predict, required_llm
from batonflow.retrieval.storage import StorageContext
from batonflow.retrieval.summaries import DocumentSummaryIndex
from batonflow.retrieval.tree import TreeIndex
from batonflow.retrieval.vectors import BasePydanticVectorStore
from batonflow.threads import in_thread

__all__ = [
    "INDEXES",
    "EmptyIndex",
    "KeywordTableIndex",
    "ListIndex",
    "RAKEKeywordTableIndex",
    "SimpleKeywordTableIndex",
    "SummaryIndex",
    "VectorStoreIndex",
]


class SummaryIndex(BaseIndex):
    """A list of nodes. The model gets all of them.

    Example:
        >>> SummaryIndex(nodes).as_query_engine(response_mode="tree_summarize").query("What is it about?")
    """

    index_type: ClassVar[str] = "list"

    def as_retriever(self, retriever_mode: str = "default", **kwargs: Any) -> BaseRetriever:
        """Return a retriever: ``default`` (all nodes), ``embedding`` or ``llm``.

        Raises:
            ValueError: The mode is unknown.
        """
        modes = {
            "default": retrievers.SummaryIndexRetriever,
            "embedding": retrievers.SummaryIndexEmbeddingRetriever,
            "llm": retrievers.SummaryIndexLLMRetriever,
        }
        return of_mode(modes, retriever_mode)(self, **kwargs)


ListIndex = SummaryIndex


class EmptyIndex(BaseIndex):
    """An index without nodes: the model answers alone."""

    index_type: ClassVar[str] = "empty"

    def __init__(self, index_struct: IndexStruct | None = None, **kwargs: Any) -> None:
        super().__init__(nodes=[] if index_struct is None else None, index_struct=index_struct, **kwargs)

    def as_retriever(self, **kwargs: Any) -> BaseRetriever:
        """Return a retriever that finds nothing."""
        return retrievers.SummaryIndexRetriever(self, **kwargs)

    def as_query_engine(self, llm: LLM | str | None = None, **kwargs: Any) -> RetrieverQueryEngine:
        """Return an engine that asks the model alone."""
        if (mode := kwargs.setdefault("response_mode", "generation")) != "generation":
            raise ValueError(f"an empty index answers with response_mode='generation', not {mode!r}")
        return super().as_query_engine(llm, **kwargs)


class VectorStoreIndex(BaseIndex):
    """An index that finds nodes by the similarity of vectors, and by words.

    Without an embedding model it finds nodes by words alone, with BM25.

    Args:
        nodes: The nodes. Those with a vector keep it.
        use_async: Accepted and kept.
        store_nodes_override: Accepted and kept; nodes are always stored.
        embed_model: The embedding model; by default that of ``Settings``.
        insert_batch_size: So many nodes are written in one transaction.
        kwargs: See ``BaseIndex``.

    Raises:
        NodeStoreError: An index that exists was made with another model.

    Example:
        >>> index = VectorStoreIndex.from_documents([Document(text="Tides follow the moon.")])
        >>> index.as_retriever(similarity_top_k=1).retrieve("What moves the tides?")
    """

    index_type: ClassVar[str] = "vector_store"

    def __init__(
        self,
        nodes: Sequence[BaseNode] | None = None,
        use_async: bool = False,
        store_nodes_override: bool = False,
        embed_model: BaseEmbedding | str | None = None,
        insert_batch_size: int = 2048,
        **kwargs: Any,
    ) -> None:
        self.embed_model = default_embed_model() if embed_model is None else resolve_embed_model(embed_model)
        self._use_async, self._store_nodes_override = use_async, store_nodes_override
        self._batch = insert_batch_size
        super().__init__(nodes, **kwargs)
        if self.embed_model.is_lexical and nodes:
            logger.info("no embedding model is set: searching by words")

    @classmethod
    def from_vector_store(
        cls, vector_store: BasePydanticVectorStore, embed_model: BaseEmbedding | str | None = None, **kwargs: Any
    ) -> "VectorStoreIndex":
        """Return an index over a store of vectors that has nodes already.

        Raises:
            ValueError: The store does not hold the texts.
        """
        if not vector_store.stores_text:
            raise ValueError("Cannot initialize from a vector store that does not store text.")
        storage = StorageContext.from_defaults(vector_store=vector_store)
        return cls([], embed_model=embed_model, storage_context=storage, **kwargs)

    @property
    def model_key(self) -> str:
        """The name under which the vectors of this index are stored; empty for an index by words alone."""
        return self.embed_model.name_in_stores

    @property
    def vector_store(self) -> BasePydanticVectorStore:
        """The store of vectors."""
        return self._storage_context.vector_store

    def _data(self) -> dict[str, Any]:
        return {"embed_model": self.model_key}

    def _check(self, data: Mapping[str, Any]) -> None:
        self._check_model(data, self.model_key)

    def _add(self, nodes: Sequence[BaseNode]) -> None:
        for begin in range(0, len(nodes), self._batch):
            self._add_batch(nodes[begin : begin + self._batch])

    def _add_batch(self, nodes: Sequence[BaseNode]) -> None:
        key, foreign = self.model_key, self._storage_context.foreign_vectors
        if missing := self._without_vectors(nodes):
            texts = [node.get_content(retrievers.EMBED) for node in missing]
            for node, vector in zip(missing, self.embed_model.get_text_embedding_batch(texts), strict=True):
                node.embedding = vector
        if foreign is not None:
            foreign.add(list(nodes))
        with self._store.writing():
            numbers = self._store.add_nodes(nodes, model=key if foreign is None else "")
            self._store.add_members(self._struct.number, numbers)

    async def prepare(self, nodes: Sequence[BaseNode]) -> None:
        """Embed the nodes without a vector."""
        if missing := await in_thread(self._without_vectors, nodes):
            await self.embed_model.acall(missing)

    def _without_vectors(self, nodes: Sequence[BaseNode]) -> list[BaseNode]:
        """Return the nodes that need a vector."""
        key = self.model_key
        missing = [node for node in nodes if node.embedding is None] if key else []
        if not missing or self._storage_context.foreign_vectors is not None:
            return missing
        stored = self._store.hashes(ids=[node.id_ for node in missing])
        known = [node for node in missing if stored.get(node.id_) == node.hash]
        numbers = {node.id_: self._store.numbers_of([node.id_])[0] for node in known}
        without = self._store.without_vectors(key, list(numbers.values()))
        return [node for node in missing if node.id_ not in numbers or numbers[node.id_] in without]

    def _remove(self, numbers: Sequence[int]) -> None:
        if (foreign := self._storage_context.foreign_vectors) is not None:
            for doc in {node.ref_doc_id for node in self._store.nodes_at(numbers)} - {None}:
                foreign.delete(str(doc))
        super()._remove(numbers)

    def as_retriever(self, **kwargs: Any) -> "retrievers.VectorIndexRetriever":
        """Return a retriever; see ``VectorIndexRetriever``."""
        return retrievers.VectorIndexRetriever(self, object_map=self._object_map, **kwargs)


class SimpleKeywordTableIndex(BaseIndex):
    """A table of keywords, taken from the texts by their words.

    Args:
        nodes: The nodes.
        llm: The model that extracts keywords, for the index that asks one.
        keyword_extract_template: The prompt for it.
        max_keywords_per_chunk: The largest number of keywords of a node.
        kwargs: See ``BaseIndex``.
    """

    index_type: ClassVar[str] = "simple_keyword_table"
    default_mode: ClassVar[str] = "simple"

    def __init__(
        self,
        nodes: Sequence[BaseNode] | None = None,
        llm: LLM | str | None = None,
        keyword_extract_template: BasePromptTemplate | None = None,
        max_keywords_per_chunk: int = 10,
        **kwargs: Any,
    ) -> None:
        self.llm = given_llm(llm)
        self.max_keywords_per_chunk = max_keywords_per_chunk
        self.keyword_extract_template = keyword_extract_template or EXTRACT_KEYWORDS
        super().__init__(nodes, **kwargs)

    def _extract(self, text: str) -> set[str]:
        return simple_extract_keywords(text, self.max_keywords_per_chunk)

    def _add(self, nodes: Sequence[BaseNode]) -> None:
        found = [self._extract(node.get_content(retrievers.LLM_MODE)) for node in nodes]
        with self._store.writing():
            numbers = self._store.add_nodes(nodes)
            self._store.remove_members(self._struct.number, numbers)  # with the keywords of former versions
            self._store.add_members(self._struct.number, numbers)
            pairs = [(word, n) for n, words in zip(numbers, found, strict=True) for word in words]
            self._store.add_keywords(self._struct.number, pairs)

    def as_retriever(self, retriever_mode: str | None = None, **kwargs: Any) -> BaseRetriever:
        """Return a retriever: ``default`` (a model extracts keywords of the question), ``simple`` or ``rake``.

        Raises:
            ValueError: The mode is unknown.
        """
        modes = {
            "default": retrievers.KeywordTableGPTRetriever,
            "simple": retrievers.KeywordTableSimpleRetriever,
            "rake": retrievers.KeywordTableRAKERetriever,
        }
        return of_mode(modes, retriever_mode or self.default_mode)(self, **kwargs)


class RAKEKeywordTableIndex(SimpleKeywordTableIndex):
    """A table of keywords, taken from the texts by RAKE; see ``rake_keywords``."""

    index_type: ClassVar[str] = "rake_keyword_table"
    default_mode: ClassVar[str] = "rake"

    def _extract(self, text: str) -> set[str]:
        return rake_keywords(text, self.max_keywords_per_chunk)


class KeywordTableIndex(SimpleKeywordTableIndex):
    """A table of keywords, taken from the texts by a model."""

    index_type: ClassVar[str] = "keyword_table"
    writes_at_once: ClassVar[bool] = False
    default_mode: ClassVar[str] = "default"

    def _extract(self, text: str) -> set[str]:
        prompt, llm = self.keyword_extract_template, required_llm(self.llm, self)
        answer = run_sync(predict(llm, prompt, text=text, max_keywords=self.max_keywords_per_chunk))
        return keywords_in_answer(answer)


INDEXES: dict[str, type[BaseIndex]] = {
    cls.index_type: cls
    for cls in (
        SummaryIndex,
        EmptyIndex,
        VectorStoreIndex,
        SimpleKeywordTableIndex,
        RAKEKeywordTableIndex,
        KeywordTableIndex,
        TreeIndex,
        DocumentSummaryIndex,
    )
}
"""The classes of indexes by their kind in stores."""
