"""The base class of memories that use a chat store, and the parts of a memory as data."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from os import PathLike
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, Field, field_serializer, field_validator, model_validator
from typing_extensions import override

from batonflow.agents import memory
from batonflow.agents.memory.base import BaseMemory
from batonflow.agents.memory.chat_store import ArchivingChatStore, BaseChatStore, SimpleChatStore
from batonflow.agents.memory.tokens import Tokenizer, count_tokens
from batonflow.agents.memory.turns import as_shown
from batonflow.llms import LLM, ChatMessage
from batonflow.values.names import InParts, loaded_class, qualified_name

__all__ = [
    "DEFAULT_CHAT_STORE_KEY",
    "BaseChatStoreMemory",
    "archiving",
    "dumped",
    "limit_for",
    "loaded",
    "of_the_same_kind",
    "opened",
    "store_in_parts",
]

_T = TypeVar("_T", bound=BaseModel)

CLASS = "class_name"


def dumped(part: BaseModel, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a part, with the name of its class added."""
    return {CLASS: qualified_name(type(part)), **data}


def loaded(base: type[_T], value: Any) -> Any:
    """Return the part that ``dumped`` wrote; other values are returned unchanged.

    Raises:
        ValueError: The data does not name a loaded subclass of ``base``. Only modules of batonflow are imported.
    """
    data: dict[str, Any] = dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else {}
    if CLASS not in data:
        return cast("Any", value)
    name = data.pop(CLASS)
    loaded_class(name)  # imports a module of batonflow, which then is among the subclasses
    known = _subclasses(base)
    # LlamaIndex writes the name of the class without its module.
    found = [cls for cls in known if qualified_name(cls) == name] or [cls for cls in known if _called(cls) == name]
    if not found:
        raise ValueError(f"The data names {name}, which is not a loaded {base.__name__}: import its module first")
    # A function may have created several classes with this name; use the newest.
    return found[-1].model_validate(data)


def of_the_same_kind(part: _T, *left_out: str, **other: Any) -> _T:
    """Return a new part with the same fields, but without ``left_out`` and with the values of ``other``."""
    kept = {name: getattr(part, name) for name in type(part).model_fields if name not in left_out}
    return type(part)(**{**kept, **other})


def opened(value: Any) -> Any:
    """Return the chat store for a store, its data, a path or a URL. None and ``"memory:"`` give one in memory.

    Raises:
        ValueError: The URL is of an unknown kind, or the data does not name a loaded store.
    """
    if value is None or value == "memory:":
        return SimpleChatStore()
    if isinstance(value, str | PathLike):
        return memory.chat_store_at(cast("str | PathLike[str]", value))
    return loaded(BaseChatStore, value)


def archiving(value: Any) -> ArchivingChatStore:
    """Return the chat store for a value as ``opened`` does, and check that it can archive messages.

    Raises:
        ValueError: The store cannot archive messages, or the value does not describe a store.
    """
    store = opened(value)
    if not isinstance(store, ArchivingChatStore):
        raise ValueError(
            f"Memory needs a chat store that can archive messages, and {type(store).__name__} cannot: give a path, a "
            "SQLiteChatStore or a SimpleChatStore, or derive your store from ArchivingChatStore"
        )
    return store


def _called(cls: Any) -> Any:
    return cls.class_name() if hasattr(cls, "class_name") else cls.__name__


def _subclasses(base: type[_T]) -> list[type[_T]]:
    found: list[type[_T]] = []
    for cls in base.__subclasses__():
        found += [cls, *_subclasses(cls)]
    return found


def _store_in_parts(key_of: Callable[[Any], str], memory: Any, keep: Callable[..., Any]) -> dict[str, Any] | None:
    """Return the data of a memory's SimpleChatStore, with its messages written by ``keep``; None for other stores."""
    store = memory.chat_store
    if type(store) is not SimpleChatStore:
        return None
    key = key_of(memory)
    written: dict[str, Any] = {}
    for name, messages in (("store", store.store), ("archived", store.archived)):
        kept = keep(messages[key], grows=True) if key in messages else None
        if key in messages and kept is None:
            return None
        written[name] = {} if kept is None else {key: kept}
    return dumped(store, written)


def store_in_parts(key: str) -> InParts:
    """Return the declaration of a ``chat_store`` field, so that records write each of its messages once.

    Args:
        key: The name of the field that holds the key of the conversation.
    """
    return InParts(ChatMessage, partial(_store_in_parts, attrgetter(key)), owns=True)


DEFAULT_CHAT_STORE_KEY = "chat_history"
SHARE_OF_CONTEXT = 0.75


class BaseChatStoreMemory(BaseMemory):
    """A memory that keeps its messages in a chat store and shows all of them to the model.

    Args:
        chat_store: The store of the messages: an object, a path or ``sqlite:///chats.db``; by default, in memory.
        chat_store_key: The key of the conversation in the store.
        tokenizer_fn: Splits a string into tokens; by default, tokens are estimated. Snapshots do not include it.
    """

    __batonflow_parts__: ClassVar[Mapping[str, InParts]] = {"chat_store": store_in_parts("chat_store_key")}

    chat_store: BaseChatStore = Field(default_factory=SimpleChatStore)
    chat_store_key: str = DEFAULT_CHAT_STORE_KEY
    tokenizer_fn: Tokenizer | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_days(cls, data: Any) -> Any:
        # Early versions of LlamaIndex wrote the messages directly into the data of the memory.
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
    def _dump_store(self, chat_store: BaseChatStore) -> dict[str, Any]:
        return dumped(chat_store, chat_store.dump(self.chat_store_key))

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
    """Return the messages after a type check, because other values would fail only in the next run."""
    if isinstance(messages, ChatMessage):
        raise TypeError("put_messages() takes a list of ChatMessage; use put() for a single message")
    for message in messages:
        one: Any = message
        if not isinstance(one, ChatMessage):
            raise TypeError(f"a memory keeps ChatMessage objects, not {one!r:.100}: use ChatMessage(text, role=...)")
    return messages


def limit_for(token_limit: int | None, llm: LLM | None, otherwise: int) -> int:
    """Return the given limit, or three quarters of the model's context window, or ``otherwise`` without a model.

    Raises:
        ValueError: The limit is less than 1.
    """
    if token_limit is None:
        token_limit = int(SHARE_OF_CONTEXT * llm.metadata.context_window) if llm is not None else otherwise
    if token_limit < 1:
        raise ValueError(f"token_limit must be at least 1, got {token_limit}")
    return token_limit
