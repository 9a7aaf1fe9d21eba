"""The base of memories over a chat store."""

from collections.abc import Sequence
from typing import Any, cast

from pydantic import Field, FieldSerializationInfo, field_serializer, field_validator, model_validator
from typing_extensions import override

from batonflow.agents.memory.base import BaseMemory
from batonflow.agents.memory.chat_store import BaseChatStore, SimpleChatStore, dump_of
from batonflow.agents.memory.components import dumped, opened
from batonflow.agents.memory.tokens import Tokenizer, count_tokens
from batonflow.agents.memory.turns import as_shown
from batonflow.llms import LLM, ChatMessage

__all__ = ["DEFAULT_CHAT_STORE_KEY", "BaseChatStoreMemory", "limit_for"]

DEFAULT_CHAT_STORE_KEY = "chat_history"
SHARE_OF_CONTEXT = 0.75


class BaseChatStoreMemory(BaseMemory):
    """A memory with its messages in a chat store, which shows all of them.

    Args:
        chat_store: Where they lie: a store, a path or ``sqlite:///chats.db``; in memory when left out.
        chat_store_key: Which of the store's conversations this is.
        tokenizer_fn: Splits a text into tokens; without it their number is estimated. It is not written into snapshots.
    """

    chat_store: BaseChatStore = Field(default_factory=SimpleChatStore)
    chat_store_key: str = DEFAULT_CHAT_STORE_KEY
    tokenizer_fn: Tokenizer | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_days(cls, data: Any) -> Any:
        # Data of early versions of LlamaIndex has the messages themselves.
        if isinstance(data, dict) and "chat_history" in data and "chat_store" not in data:
            fields: dict[str, Any] = dict(cast("dict[str, Any]", data))
            key = fields.get("chat_store_key", DEFAULT_CHAT_STORE_KEY)
            return {
                **fields,
                "chat_store": {"class_name": "SimpleChatStore", "store": {key: fields.pop("chat_history")}},
            }
        return cast("Any", data)

    @field_validator("chat_store", mode="before")
    @classmethod
    def _open_store(cls, value: Any) -> Any:
        return opened(value)

    @field_serializer("chat_store")
    def _dump_store(self, chat_store: BaseChatStore, info: FieldSerializationInfo) -> dict[str, Any]:
        return dumped(chat_store, dump_of(chat_store, self.chat_store_key, info))

    def _size(self, message: ChatMessage) -> int:
        return count_tokens(message, self.tokenizer_fn)

    @override
    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        return as_shown(self.get_all())

    @override
    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        return as_shown(await self.aget_all())

    @override
    def get_all(self) -> list[ChatMessage]:
        return self.chat_store.get_messages(self.chat_store_key)

    @override
    async def aget_all(self) -> list[ChatMessage]:
        return await self.chat_store.aget_messages(self.chat_store_key)

    @override
    def put(self, message: ChatMessage) -> None:
        self.chat_store.add_message(self.chat_store_key, *_checked([message]))

    @override
    async def aput(self, message: ChatMessage) -> None:
        await self.chat_store.async_add_message(self.chat_store_key, *_checked([message]))

    @override
    def put_messages(self, messages: Sequence[ChatMessage]) -> None:
        self.chat_store.add_messages(self.chat_store_key, _checked(messages))

    @override
    async def aput_messages(self, messages: Sequence[ChatMessage]) -> None:
        await self.chat_store.aadd_messages(self.chat_store_key, _checked(messages))

    @override
    def set(self, messages: list[ChatMessage]) -> None:
        self.chat_store.set_messages(self.chat_store_key, messages)

    @override
    async def aset(self, messages: list[ChatMessage]) -> None:
        await self.chat_store.aset_messages(self.chat_store_key, messages)

    @override
    def reset(self) -> None:
        self.chat_store.delete_messages(self.chat_store_key)

    @override
    async def areset(self) -> None:
        await self.chat_store.adelete_messages(self.chat_store_key)


def _checked(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return the messages, if all are messages: other values would fail in the next run."""
    if isinstance(messages, ChatMessage):
        raise TypeError("put_messages takes a list of ChatMessage: put() takes one")
    for message in messages:
        one: Any = message
        if not isinstance(one, ChatMessage):
            raise TypeError(f"a memory keeps ChatMessage, not {one!r:.100}: write ChatMessage(text, role=...)")
    return messages


def limit_for(token_limit: int | None, llm: LLM | None, otherwise: int) -> int:
    """The limit given, else three quarters of the model's window, else ``otherwise``.

    Raises:
        ValueError: The limit is less than 1.
    """
    if token_limit is None:
        token_limit = int(SHARE_OF_CONTEXT * llm.metadata.context_window) if llm is not None else otherwise
    if token_limit < 1:
        raise ValueError(f"token_limit must be at least 1, got {token_limit}")
    return token_limit
