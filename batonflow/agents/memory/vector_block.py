"""VectorMemoryBlock: messages that have left a conversation, found again by their similarity to its newest ones."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import Field, field_serializer, field_validator
from typing_extensions import override

from batonflow.agents.memory.blocks import BaseMemoryBlock
from batonflow.agents.memory.store_memory import dumped, loaded
from batonflow.llms import ChatMessage, TextBlock
from batonflow.llms.prompts import BasePromptTemplate, PromptTemplate
from batonflow.nodes import BaseComponent, BaseNodePostprocessor, NodeWithScore, TextNode
from batonflow.retrieval import (
    BaseEmbedding,
    BasePydanticVectorStore,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    SimpleVectorStore,
    VectorStoreQuery,
    VectorStoreQueryMode,
    resolve_embed_model,
)
from batonflow.retrieval.embeddings import default_embed_model

__all__ = ["VectorMemoryBlock"]

_SESSION = "session_id"


class VectorMemoryBlock(BaseMemoryBlock[str]):
    """A block that keeps old messages in a store of vectors, and shows the nearest ones.

    The newest messages are the question. A conversation finds its own messages only. A snapshot holds the path of a
    store in a file, and the name of the embedding model, which has to be in ``Settings`` again. A store in memory
    cannot go into snapshots.

    Args:
        name: The heading of its section.
        vector_store: A store that holds texts.
        embed_model: The embedding model; by default that of ``Settings``. Without one messages are found by words.
        similarity_top_k: The largest number of results, each with the messages that left the conversation together.
        retrieval_context_window: So many of the newest messages are the question.
        format_template: The text around the results, with ``{text}``.
        node_postprocessors: Drop, order or change the results.
        query_kwargs: Further arguments of ``VectorStoreQuery``, such as ``mode`` and ``filters``.

    Raises:
        ValueError: The store does not hold texts.

    Example:
        >>> store = SimpleVectorStore(NodeStore("memory.db"))
        >>> memory = Memory.from_defaults(memory_blocks=[VectorMemoryBlock(vector_store=store)])
    """

    name: str = "RetrievedMessages"
    vector_store: BasePydanticVectorStore
    embed_model: BaseEmbedding = Field(default_factory=default_embed_model)
    similarity_top_k: int = Field(default=2, ge=1)
    retrieval_context_window: int = Field(default=5, ge=1)
    format_template: BasePromptTemplate = PromptTemplate("{text}")
    node_postprocessors: list[BaseNodePostprocessor] = Field(default_factory=list[BaseNodePostprocessor])
    query_kwargs: dict[str, Any] = Field(default_factory=dict[str, Any])

    @field_validator("vector_store", mode="before")
    @classmethod
    def _holds_texts(cls, value: Any) -> Any:
        data = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        store: Any = SimpleVectorStore.at(**data["at"]) if "at" in data else loaded(BasePydanticVectorStore, value)
        if not getattr(store, "stores_text", False):
            raise ValueError("vector_store must store text to be used as a retrieval memory block")
        return store

    @field_validator("embed_model", mode="before")
    @classmethod
    def _of_settings(cls, value: Any) -> Any:
        data = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if "name" not in data:
            return resolve_embed_model(value) if isinstance(value, str) else cast("Any", value)
        model, name = default_embed_model(), data["name"]
        if model.name_in_stores != name:
            raise ValueError(f"the memory block was made with {name or 'words alone'}: set Settings.embed_model to it")
        return model

    @field_validator("format_template", mode="before")
    @classmethod
    def _as_template(cls, value: Any) -> Any:
        return PromptTemplate(value) if isinstance(value, str) else value

    @field_validator("node_postprocessors", mode="before")
    @classmethod
    def _load_postprocessors(cls, value: Any) -> list[Any]:
        return [loaded(BaseNodePostprocessor, one) for one in cast("Sequence[Any]", value or ())]

    @field_validator("query_kwargs", mode="before")
    @classmethod
    def _load_filters(cls, value: Any) -> dict[str, Any]:
        given = dict(cast("Mapping[str, Any]", value))
        if isinstance(given.get("filters"), dict):
            given["filters"] = MetadataFilters.model_validate(given["filters"])
        return given

    @field_serializer("vector_store")
    def _dump_store(self, store: BasePydanticVectorStore) -> dict[str, Any]:
        if isinstance(store, SimpleVectorStore):
            return {"at": store.place()}
        return _dumped(store)

    @field_serializer("embed_model")
    def _dump_model(self, model: BaseEmbedding) -> dict[str, Any]:
        return {"name": model.name_in_stores}

    @field_serializer("format_template")
    def _dump_template(self, template: BasePromptTemplate) -> str:
        return template.get_template()

    @field_serializer("node_postprocessors")
    def _dump_postprocessors(self, postprocessors: list[BaseNodePostprocessor]) -> list[dict[str, Any]]:
        return [_dumped(one) for one in postprocessors]

    @override
    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        newest = (messages or [])[-self.retrieval_context_window :]
        text = "\n".join(filter(None, map(_text_of, newest)))
        if not text:
            return ""
        query = await self._query(text, block_kwargs.get(_SESSION))
        found = await self.vector_store.aquery(query)
        scores: Sequence[float | None] = found.similarities or [None] * len(found.nodes or ())
        nodes = [NodeWithScore(node=node, score=score) for node, score in zip(found.nodes or (), scores, strict=True)]
        for one in self.node_postprocessors:
            nodes = await one.apostprocess_nodes(nodes, query_str=text)
        told = "\n\n".join(one.node.get_content() for one in nodes)
        return self.format_template.format(text=told) if told else ""

    async def _query(self, text: str, session_id: str | None) -> VectorStoreQuery:
        options: dict[str, Any] = {"similarity_top_k": self.similarity_top_k, **self.query_kwargs}
        operator = FilterOperator.IS_EMPTY if session_id is None else FilterOperator.EQ
        of_session = MetadataFilter(key=_SESSION, value=session_id, operator=operator)
        further = options.pop("filters", None)
        filters = MetadataFilters(filters=[of_session, *([] if further is None else [further])])
        query = VectorStoreQuery(query_str=text, filters=filters, **options)
        if self._by_words:
            query.mode = VectorStoreQueryMode.TEXT_SEARCH
        else:
            query.query_embedding = await self.embed_model.aget_query_embedding(text)
        return query

    @property
    def _by_words(self) -> bool:
        return self.embed_model.is_lexical and isinstance(self.vector_store, SimpleVectorStore)

    @override
    async def _aput(self, messages: list[ChatMessage]) -> None:
        by_session: dict[str | None, list[str]] = {}
        for message in messages:
            if text := _text_of(message):
                told = text.replace("<message", "(message").replace("</message", "(/message")
                lines = by_session.setdefault(message.additional_kwargs.get(_SESSION), [])
                lines.append(f"<message role='{message.role.value}'>{told}</message>")
        for session, lines in by_session.items():
            node = TextNode(
                text="\n".join(lines),
                metadata={_SESSION: session},
                excluded_embed_metadata_keys=[_SESSION],
                excluded_llm_metadata_keys=[_SESSION],
            )
            if not self._by_words:
                node.embedding = await self.embed_model.aget_text_embedding(node.text)
            await self.vector_store.async_add([node])


def _dumped(part: BaseComponent) -> dict[str, Any]:
    # Components write a short name of their class, which several classes have.
    return dumped(part, {name: value for name, value in part.model_dump(mode="json").items() if name != "class_name"})


def _text_of(message: ChatMessage) -> str:
    return "".join(block.text for block in message.blocks if isinstance(block, TextBlock))
