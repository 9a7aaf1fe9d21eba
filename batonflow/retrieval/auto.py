"""A retriever for which a model writes the query: its words, its filters and the number of nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from batonflow.instrumentation.logs import logger_named
from batonflow.llms import LLM
from batonflow.llms._bridge import run_sync
from batonflow.llms.errors import NoToolCallError, StructuredOutputError
from batonflow.llms.prompts import PromptTemplate, PromptType
from batonflow.nodes import BaseRetriever, IndexNode, NodeWithScore, QueryBundle
from batonflow.retrieval.filters import MetadataFilter, MetadataFilters, checked_filters, checked_number
from batonflow.retrieval.indexes import VectorStoreIndex
from batonflow.retrieval.prompts import VECTOR_STORE_QUERY
from batonflow.retrieval.query_runs import note_fact
from batonflow.retrieval.requests import WithPrompt, given_llm, required_llm, structured
from batonflow.retrieval.storage import SimpleVectorStore
from batonflow.retrieval.vectors import VectorStoreQueryMode
from batonflow.threads import in_thread

__all__ = ["MetadataInfo", "VectorIndexAutoRetriever", "VectorStoreInfo", "VectorStoreQuerySpec"]

SPECS = "retrieval_specs"
"""The key of the chosen queries in the metadata of an answer."""

logger = logger_named("batonflow.retrieval")


class MetadataInfo(BaseModel):
    """A key of the metadata, for the model that writes filters.

    Args:
        name: The key.
        type: The type of its values, such as ``str`` or ``int``.
        description: Its meaning, best with the possible values.
    """

    name: str
    type: str
    description: str


class VectorStoreInfo(BaseModel):
    """The content of an index, for the model that writes queries.

    Args:
        metadata_info: The keys of the metadata that filters may use.
        content_info: The subject of the nodes.
    """

    metadata_info: list[MetadataInfo]
    content_info: str


class VectorStoreQuerySpec(BaseModel):
    """A query that a model has written."""

    query: str = Field(description="the words to search for; empty if the filters alone say it")
    filters: list[MetadataFilter] = Field(
        default_factory=list[MetadataFilter], description="conditions on the metadata, which all have to be met"
    )
    top_k: int | None = Field(default=None, ge=1, description="the number of passages, if the question asks for one")


class VectorIndexAutoRetriever(BaseRetriever, WithPrompt):
    """Lets a model write the query for an index: its words, its filters and the number of nodes.

    Filters on keys that ``vector_store_info`` does not name are left out and logged. The metadata of an answer list the
    queries under ``retrieval_specs``. If the model writes no valid query, the question itself is used.

    Args:
        index: The index.
        vector_store_info: The content of the index.
        llm: The model; by default that of ``Settings``.
        prompt_template_str: The prompt, with ``schema_str``, ``info_str`` and ``query_str``.
        max_top_k: The largest number of nodes that the model may ask for.
        similarity_top_k: The largest number of nodes.
        empty_query_top_k: The largest number of nodes for filters without words; None for ``similarity_top_k``.
        vector_store_query_mode: See ``VectorIndexRetriever``.
        default_empty_query_vector: The vector for filters without words. Without it the first nodes that meet the
            filters are found.
        callback_manager: Accepted and kept; use instrumentation instead.
        verbose: Accepted and kept.
        extra_filters: Conditions that always hold, whatever the model writes.
        object_map: Objects by the ids of index nodes.
        objects: Index nodes with objects.
        kwargs: Further arguments of the retriever of the index.

    Example:
        >>> year = MetadataInfo(name="year", type="int", description="The year of the report.")
        >>> info = VectorStoreInfo(content_info="Reports about the sea.", metadata_info=[year])
        >>> VectorIndexAutoRetriever(index, info, llm=llm).retrieve("What did the reports of 2020 say about tides?")
    """

    _prompt_name = "prompt"

    def __init__(
        self,
        index: VectorStoreIndex,
        vector_store_info: VectorStoreInfo,
        llm: LLM | str | None = None,
        prompt_template_str: str | None = None,
        max_top_k: int = 10,
        similarity_top_k: int = 2,
        empty_query_top_k: int | None = 10,
        vector_store_query_mode: VectorStoreQueryMode | str = VectorStoreQueryMode.DEFAULT,
        default_empty_query_vector: list[float] | None = None,
        callback_manager: Any = None,
        verbose: bool = False,
        extra_filters: MetadataFilters | None = None,
        object_map: Mapping[str, Any] | None = None,
        objects: Sequence[IndexNode] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(callback_manager, object_map, objects, verbose)
        self._index, self._info, self._llm = index, vector_store_info, given_llm(llm)
        self._prompt = VECTOR_STORE_QUERY
        if prompt_template_str is not None:
            self._prompt = PromptTemplate(prompt_template_str, prompt_type=PromptType.VECTOR_STORE_QUERY)
        self._most, self._top_k_without_words = max_top_k, empty_query_top_k
        self._top_k = checked_number("similarity_top_k", similarity_top_k)
        self._vector_without_words, self._extra = default_empty_query_vector, checked_filters(extra_filters)
        self._kwargs = {"vector_store_query_mode": vector_store_query_mode, **kwargs}

    def generate_retrieval_spec(self, query_bundle: QueryBundle, **_: Any) -> VectorStoreQuerySpec:
        """Return the query that the model writes for a question."""
        return run_sync(self.agenerate_retrieval_spec(query_bundle))

    async def agenerate_retrieval_spec(self, query_bundle: QueryBundle, **_: Any) -> VectorStoreQuerySpec:
        """Return the query that the model writes for a question."""
        values = {
            "schema_str": VectorStoreQuerySpec.model_json_schema(),
            "info_str": self._info.model_dump_json(indent=1),
            "query_str": query_bundle.query_str,
        }
        try:
            spec = await structured(required_llm(self._llm, self), VectorStoreQuerySpec, self._prompt, **values)
        except (StructuredOutputError, NoToolCallError) as error:
            logger.warning("the model wrote no valid query, so the question is used: %s", error)
            return VectorStoreQuerySpec(query=query_bundle.query_str)
        named = {one.name for one in self._info.metadata_info}
        for one in spec.filters:
            if one.key not in named:
                logger.warning("the filter %s %s %r is left out: no such key", one.key, one.operator, one.value)
        return spec.model_copy(update={"filters": [one for one in spec.filters if one.key in named]})

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        spec = await self.agenerate_retrieval_spec(query_bundle)
        note_fact(SPECS, spec.model_dump(mode="json"))
        top_k = self._top_k if spec.query or self._top_k_without_words is None else self._top_k_without_words
        top_k = top_k if spec.top_k is None else min(spec.top_k, self._most, top_k)
        given = [*spec.filters, *([] if self._extra is None else [self._extra])]
        filters = MetadataFilters(filters=given) if given else None
        if not spec.query and self._vector_without_words is None:
            return await in_thread(self._first, filters, top_k)
        retriever = self._index.as_retriever(similarity_top_k=top_k, filters=filters, **self._kwargs)
        vector = None if spec.query else self._vector_without_words
        return await retriever.aretrieve(QueryBundle(spec.query, embedding=vector))

    def _first(self, filters: MetadataFilters | None, top_k: int) -> list[NodeWithScore]:
        """Return the first nodes that meet the filters."""
        storage, index = self._index.storage_context, self._index
        own = SimpleVectorStore(storage.store, index.model_key, index.index_struct.number)
        nodes = (storage.foreign_vectors or own).get_nodes(filters=filters)
        return [NodeWithScore(node=node) for node in nodes[:top_k]]
