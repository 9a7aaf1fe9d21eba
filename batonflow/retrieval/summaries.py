"""An index of summaries of documents, and the retrievers that choose documents by them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from batonflow.llms import LLM
from batonflow.llms._bridge import run_sync
from batonflow.llms.prompts import BasePromptTemplate
from batonflow.nodes import (
    BaseNode,
    BaseRetriever,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    TextNode,
)
from batonflow.nodes.schema import RelatedNodeInfo
from batonflow.retrieval.embeddings import BaseEmbedding, default_embed_model, resolve_embed_model
from batonflow.retrieval.filters import checked_number
from batonflow.retrieval.index import BaseIndex
from batonflow.retrieval.index_engines import of_mode
from batonflow.retrieval.requests import all_of, given_llm
from batonflow.retrieval.rerank import LLMRerank
from batonflow.retrieval.storage import SimpleVectorStore
from batonflow.retrieval.synthesizers import BaseSynthesizer, TreeSummarize
from batonflow.retrieval.vectors import BasePydanticVectorStore, VectorStoreQuery, VectorStoreQueryMode
from batonflow.threads import in_thread

__all__ = ["DocumentSummaryIndex", "DocumentSummaryIndexEmbeddingRetriever", "DocumentSummaryIndexLLMRetriever"]

_QUESTION = "Say what the text is about, and which questions it answers."


class DocumentSummaryIndex(BaseIndex):
    """Finds documents by summaries that a model writes, and gives all their nodes.

    Args:
        nodes: The nodes of documents.
        llm: The model that writes summaries; by default that of ``Settings``.
        embed_model: The embedding model of the summaries; by default that of ``Settings``.
        response_synthesizer: Writes a summary of nodes; by default ``TreeSummarize``.
        summary_query: The question whose answer is the summary.
        embed_summaries: Whether the mode ``embedding`` is wanted.
        kwargs: See ``BaseIndex``.

    Raises:
        ValueError: A node does not belong to a document.
        NodeStoreError: An index that exists was made with another embedding model.

    Example:
        >>> index = DocumentSummaryIndex.from_documents(documents, llm=llm)
        >>> index.get_document_summary("tides")
    """

    index_type: ClassVar[str] = "document_summary"
    writes_at_once: ClassVar[bool] = False

    def __init__(
        self,
        nodes: Sequence[BaseNode] | None = None,
        llm: LLM | str | None = None,
        embed_model: BaseEmbedding | str | None = None,
        response_synthesizer: BaseSynthesizer | None = None,
        summary_query: str = _QUESTION,
        embed_summaries: bool = True,
        **kwargs: Any,
    ) -> None:
        self.llm = given_llm(llm)
        self.embed_model = default_embed_model() if embed_model is None else resolve_embed_model(embed_model)
        self._synthesizer = response_synthesizer or TreeSummarize(self.llm)
        self._question, self._embeds = summary_query, embed_summaries
        super().__init__(nodes, **kwargs)

    def _data(self) -> dict[str, Any]:
        return {"embed_model": self.embed_model.name_in_stores, "embeds": self._embeds}

    def _check(self, data: Mapping[str, Any]) -> None:
        self._embeds = bool(data.get("embeds"))
        if self._embeds:
            self._check_model(data, self.embed_model.name_in_stores)

    @property
    def vector_store(self) -> BasePydanticVectorStore:
        """The store of the vectors of summaries."""
        own = SimpleVectorStore(self._store, self.embed_model.name_in_stores, self._struct.number)
        return self._storage_context.foreign_vectors or own

    def _add(self, nodes: Sequence[BaseNode]) -> None:
        by_document: dict[str, list[BaseNode]] = {}
        for node in nodes:
            if node.ref_doc_id is None:
                raise ValueError(f"ref_doc_id of node {node.id_} cannot be None: a summary is of a document")
            by_document.setdefault(node.ref_doc_id, []).append(node)
        summaries = run_sync(all_of(self._summary(group) for group in by_document.values()))
        model, foreign = self.embed_model, self._storage_context.foreign_vectors
        if self._embeds and (foreign is not None or not model.is_lexical):
            vectors = model.get_text_embedding_batch([one.get_content(MetadataMode.EMBED) for one in summaries])
            for one, vector in zip(summaries, vectors, strict=True):
                one.embedding = vector
            if foreign is not None:
                foreign.add([_of_document(one, doc) for one, doc in zip(summaries, by_document, strict=True)])
        store, number = self._store, self._struct.number
        with store.writing():
            for summary, group in zip(summaries, by_document.values(), strict=True):
                key = model.name_in_stores if foreign is None else ""
                parents = store.add_nodes([summary], model=key, with_words=model.is_lexical)
                store.add_members(number, parents)
                store.add_members(number, store.add_nodes(group), parents[0])
            self._drop_empty()

    async def _summary(self, nodes: Sequence[BaseNode]) -> BaseNode:
        answer = await self._synthesizer.asynthesize(self._question, [NodeWithScore(node=node) for node in nodes])
        first = nodes[0]
        return TextNode(
            text=str(answer),
            metadata=first.metadata,
            excluded_embed_metadata_keys=first.excluded_embed_metadata_keys,
            excluded_llm_metadata_keys=first.excluded_llm_metadata_keys,
        )

    def _remove(self, numbers: Sequence[int]) -> None:
        store, foreign = self._store, self._storage_context.foreign_vectors
        documents = {str(node.ref_doc_id) for node in store.nodes_at(numbers)}
        with store.writing():
            super()._remove(numbers)
            self._drop_empty()
        for doc in documents:
            if foreign is not None and not store.parents(self._struct.number, store.numbers_of_document(doc)):
                foreign.delete(doc)

    def _drop_empty(self) -> None:
        """Delete the summaries without nodes."""
        store, number = self._store, self._struct.number
        store.delete_nodes([one for one in store.children(number, None) if not store.children(number, one)])

    def summaries(self) -> list[BaseNode]:
        """Return the summaries."""
        return self._store.nodes_at(self._store.children(self._struct.number, None))

    def nodes_below(self, summary_id: str) -> list[BaseNode]:
        """Return the nodes that a summary is about."""
        [summary] = self._store.numbers_of([summary_id])
        return self._store.nodes_at(self._store.children(self._struct.number, summary))

    def get_document_summary(self, doc_id: str) -> str:
        """Return the summary of a document.

        Raises:
            ValueError: The document is not in the index.
        """
        store = self._store
        above = store.parents(self._struct.number, store.numbers_of_document(doc_id))
        if not above:
            raise ValueError(f"doc_id {doc_id} not in index")
        return store.nodes_at([max(above)])[0].get_content()

    def as_retriever(self, retriever_mode: str = "embedding", **kwargs: Any) -> BaseRetriever:
        """Return a retriever: ``embedding`` or ``llm``. Both give all nodes of the documents that they choose.

        Raises:
            ValueError: The mode is unknown, or needs vectors that were not made.
        """
        modes = {"embedding": DocumentSummaryIndexEmbeddingRetriever, "llm": DocumentSummaryIndexLLMRetriever}
        cls = of_mode(modes, retriever_mode)
        if retriever_mode == "embedding" and not self._embeds:
            raise ValueError("Cannot use embedding retriever if embed_summaries is False")
        return cls(self, object_map=self._object_map, **kwargs)


def _of_document(summary: BaseNode, doc: str) -> BaseNode:
    """Return a summary by whose document a store of another maker can delete it."""
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc)}
    return summary.model_copy(update={"relationships": source})


class DocumentSummaryIndexEmbeddingRetriever(BaseRetriever):
    """Gives the nodes of the documents whose summaries are nearest to the question.

    Args:
        index: The index.
        similarity_top_k: The largest number of documents.
        embed_model: The embedding model; by default that of the index.
        kwargs: See ``BaseRetriever``.
    """

    def __init__(
        self,
        index: DocumentSummaryIndex,
        similarity_top_k: int = 1,
        embed_model: BaseEmbedding | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._top_k = checked_number("similarity_top_k", similarity_top_k)
        self._index, self._model = index, embed_model or index.embed_model

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        store = self._index.vector_store
        query = VectorStoreQuery(query_bundle.embedding, self._top_k, query_str=query_bundle.query_str)
        if isinstance(store, SimpleVectorStore):  # it holds other nodes, too
            query.node_ids = [one.id_ for one in await in_thread(self._index.summaries)]
        if self._model.is_lexical and isinstance(store, SimpleVectorStore):
            query.mode = VectorStoreQueryMode.TEXT_SEARCH
        elif query.query_embedding is None:
            query.query_embedding = await self._model.aget_agg_embedding_from_queries(query_bundle.embedding_strs)
        found = await store.aquery(query)
        ids = found.ids if found.ids is not None else [node.id_ for node in found.nodes or ()]
        scores: Sequence[float | None] = found.similarities or [None] * len(ids)
        return await in_thread(_below, self._index, ids, scores)


class DocumentSummaryIndexLLMRetriever(BaseRetriever):
    """Gives the nodes of the documents whose summaries a model chooses.

    Args:
        index: The index.
        choice_select_prompt: The prompt.
        choice_batch_size: The number of summaries in one request.
        choice_top_k: The largest number of documents.
        format_node_batch_fn: See ``LLMRerank``.
        parse_choice_select_answer_fn: See ``LLMRerank``.
        llm: The model; by default that of the index.
        kwargs: See ``BaseRetriever``.
    """

    def __init__(
        self,
        index: DocumentSummaryIndex,
        choice_select_prompt: BasePromptTemplate | None = None,
        choice_batch_size: int = 10,
        choice_top_k: int = 1,
        format_node_batch_fn: Any = None,
        parse_choice_select_answer_fn: Any = None,
        llm: LLM | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._index = index
        self._chooser = LLMRerank(
            given_llm(llm) if llm is not None else index.llm,
            choice_select_prompt,
            choice_batch_size,
            format_node_batch_fn,
            parse_choice_select_answer_fn,
            top_n=checked_number("choice_top_k", choice_top_k),
        )

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        summaries = [NodeWithScore(node=node) for node in await in_thread(self._index.summaries)]
        chosen = await self._chooser.apostprocess_nodes(summaries, query_bundle)
        return await in_thread(_below, self._index, [one.node.id_ for one in chosen], [one.score for one in chosen])


def _below(
    index: DocumentSummaryIndex, summary_ids: Sequence[str], scores: Sequence[float | None]
) -> list[NodeWithScore]:
    """Return the nodes of summaries, each with the score of its summary."""
    pairs = zip(summary_ids, scores, strict=True)
    return [NodeWithScore(node=node, score=score) for one, score in pairs for node in index.nodes_below(one)]
