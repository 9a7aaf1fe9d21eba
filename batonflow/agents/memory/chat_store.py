"""Chat stores: the interface for stores of messages, and a store in memory."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, Field
from typing_extensions import override

from batonflow.llms import ChatMessage
from batonflow.threads import in_thread

__all__ = ["ArchivingChatStore", "BaseChatStore", "MessageStatus", "SimpleChatStore", "TurnTaking"]


class TurnTaking:
    """A set of locks, one for the tasks of each event loop.

    Synchronous and asynchronous calls can use a memory from several loops, but an asyncio lock works in one loop only.

    Example:
        >>> async with turns.here():
        ...     await change()
    """

    def __init__(self) -> None:
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._guard = threading.Lock()

    def here(self) -> asyncio.Lock:
        """Return the lock of the running loop. Tasks get it in the order in which they asked for it."""
        loop = asyncio.get_running_loop()
        with self._guard:
            lock = self._locks.get(loop)
            if lock is None:
                open_ones = {one: held for one, held in self._locks.items() if not one.is_closed()}
                lock = asyncio.Lock()
                self._locks = {**open_ones, loop: lock}
            return lock

    # Locks are not part of an object's data: a copy has its own locks, and == ignores them.

    def __deepcopy__(self, memo: dict[int, Any]) -> "TurnTaking":
        return TurnTaking()

    def __reduce__(self) -> tuple[type["TurnTaking"], tuple[()]]:
        return TurnTaking, ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnTaking)

    __hash__ = None  # type: ignore[assignment] - all instances are equal


_T = TypeVar("_T")


class MessageStatus(str, Enum):  # noqa: UP042 - programs expect str(status) == "MessageStatus.ACTIVE"
    """The status of a message: part of the conversation that the model sees, or archived."""

    ACTIVE = "active"
    ARCHIVED = "archived"


class BaseChatStore(BaseModel, ABC):
    """A store of messages, which keeps each conversation under a key.

    Subclasses implement the abstract methods. The async methods run these in a thread, one at a time and in the order
    of the calls.

    Example:
        >>> store = SQLiteChatStore("chats.db")
        >>> memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="ann")
    """

    @cached_property
    def _turns(self) -> TurnTaking:
        # Created at first use, because stores that keep messages in memory never need it.
        return TurnTaking()

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return cls.__name__

    @abstractmethod
    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace the messages of a conversation."""

    @abstractmethod
    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages of a conversation, or an empty list for an unknown key."""

    @abstractmethod
    def add_message(self, key: str, message: ChatMessage) -> None:
        """Add a message at the end of a conversation."""

    @abstractmethod
    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete a conversation and return its messages; None for an unknown key."""

    @abstractmethod
    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete the message at a position and return it; None if no message is there."""

    @abstractmethod
    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Delete the newest message and return it; None for an empty conversation."""

    @abstractmethod
    def get_keys(self) -> list[str]:
        """Return the keys of all conversations."""

    def add_messages(self, key: str, messages: Sequence[ChatMessage]) -> None:
        """Add messages at the end of a conversation, in order."""
        for message in messages:
            self.add_message(key, message)

    def dump(self, key: str) -> dict[str, Any]:  # noqa: ARG002 - for stores that hold their messages themselves
        """Return the data to write into a snapshot of the memory that uses the conversation ``key``."""
        return self.model_dump(mode="json")

    async def _run(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Run a synchronous method in a thread, after earlier calls from this event loop."""
        async with self._turns.here():
            running = asyncio.ensure_future(in_thread(function, *arguments))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # A thread cannot be stopped. Keep the lock until it has ended, so that the next call waits.
                await asyncio.wait([running])
                if not running.cancelled():
                    running.exception()
                raise

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Async form of ``set_messages``."""
        await self._run(self.set_messages, key, messages)

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """Async form of ``get_messages``."""
        return await self._run(self.get_messages, key)

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        """Async form of ``add_message``."""
        await self._run(self.add_message, key, message)

    async def aadd_messages(self, key: str, messages: Sequence[ChatMessage]) -> None:
        """Async form of ``add_messages``."""
        await self._run(self.add_messages, key, messages)

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """Async form of ``delete_messages``."""
        return await self._run(self.delete_messages, key)

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Async form of ``delete_message``."""
        return await self._run(self.delete_message, key, idx)

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """Async form of ``delete_last_message``."""
        return await self._run(self.delete_last_message, key)

    async def aget_keys(self) -> list[str]:
        """Async form of ``get_keys``."""
        return await self._run(self.get_keys)


class ArchivingChatStore(BaseChatStore):
    """A chat store that separates active from archived messages, as :class:`Memory` requires.

    ``add_message``, ``delete_message`` and ``delete_last_message`` change only active messages. ``set_messages``
    deletes all messages of the conversation, and makes the new ones active.
    """

    @abstractmethod
    @override
    def get_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> list[ChatMessage]:
        """Return the messages of a conversation that have a status, oldest first; None returns all messages."""

    @abstractmethod
    @override
    def delete_messages(self, key: str, status: MessageStatus | None = None) -> list[ChatMessage] | None:
        """Delete the messages of a conversation that have a status, and return them; None deletes all messages."""

    @abstractmethod
    def archive_messages(self, key: str, choose: Callable[[list[ChatMessage]], int]) -> list[ChatMessage]:
        """Archive the oldest active messages.

        Reading, choosing and archiving happen atomically, so that two callers never get the same messages.

        Args:
            key: The conversation.
            choose: A function that takes the active messages and returns the number of messages to archive.

        Returns:
            The messages that this call archived.
        """

    @override
    async def aget_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> list[ChatMessage]:
        return await self._run(self.get_messages, key, status)

    @override
    async def adelete_messages(self, key: str, status: MessageStatus | None = None) -> list[ChatMessage] | None:
        return await self._run(self.delete_messages, key, status)

    async def aarchive_messages(self, key: str, choose: Callable[[list[ChatMessage]], int]) -> list[ChatMessage]:
        """Async form of ``archive_messages``."""
        return await self._run(self.archive_messages, key, choose)


class SimpleChatStore(ArchivingChatStore):
    """A chat store that keeps messages in memory; snapshots include them.

    Args:
        store: The active messages by key.
        archived: The archived messages by key; they are older than the active messages.

    Example:
        >>> store = SimpleChatStore()
        >>> store.add_message("ann", ChatMessage("Hello"))
    """

    store: dict[str, list[ChatMessage]] = Field(default_factory=dict[str, list[ChatMessage]])
    archived: dict[str, list[ChatMessage]] = Field(default_factory=dict[str, list[ChatMessage]])

    @override
    async def _run(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return function(*arguments)  # it never blocks, so it needs no thread

    @override
    def dump(self, key: str) -> dict[str, Any]:
        # Leave out the messages of other memories that share this store.
        return self.model_dump(mode="json", include={"store": {key}, "archived": {key}})

    @override
    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        self.archived.pop(key, None)
        self.store[key] = list(messages)

    @override
    async def aget_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> list[ChatMessage]:
        return self.get_messages(key, status)

    @override
    def get_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> list[ChatMessage]:
        if status == MessageStatus.ACTIVE:  # nearly always
            return list(self.store.get(key, ()))
        return [message for messages in self._with(status) for message in messages.get(key, ())]

    def _with(self, status: MessageStatus | None) -> list[dict[str, list[ChatMessage]]]:
        if status is None:
            return [self.archived, self.store]
        return [self.store] if status == MessageStatus.ACTIVE else [self.archived]

    @override
    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Add a message at the end, or insert it before the active message at ``idx``, like ``list.insert``."""
        messages = self.store.setdefault(key, [])
        messages.insert(len(messages) if idx is None else idx, message)

    @override
    async def async_add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        # Pass idx only if it is given, because a subclass may override add_message() without it.
        await self._run(self.add_message, key, message, *(() if idx is None else (idx,)))

    @override
    def delete_messages(self, key: str, status: MessageStatus | None = None) -> list[ChatMessage] | None:
        deleted = [message for messages in self._with(status) for message in messages.pop(key, ())]
        return deleted or None

    @override
    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        messages = self.store.get(key, [])
        return messages.pop(idx) if 0 <= idx < len(messages) else None

    @override
    def delete_last_message(self, key: str) -> ChatMessage | None:
        messages = self.store.get(key)
        return messages.pop() if messages else None

    @override
    def get_keys(self) -> list[str]:
        return list(dict.fromkeys([*self.archived, *self.store]))

    @override
    def archive_messages(self, key: str, choose: Callable[[list[ChatMessage]], int]) -> list[ChatMessage]:
        active = self.store.get(key, [])
        chosen = choose(list(active))
        moved = active[:chosen]
        if moved:
            self.archived.setdefault(key, []).extend(moved)
            del active[:chosen]  # in place, because another thread may append to it
        return moved

    def persist(self, persist_path: str = "chat_store.json") -> None:
        """Write all conversations to a JSON file; only the owner can read a new file.

        Raises:
            OSError: The file cannot be written.
        """
        with open(persist_path, "w", encoding="utf-8", opener=_privately) as file:
            file.write(self.model_dump_json())

    @classmethod
    def from_persist_path(cls, persist_path: str = "chat_store.json") -> Self:
        """Return the store that ``persist`` wrote, or an empty store if the file does not exist.

        Raises:
            ValidationError: The file does not contain a chat store.
        """
        path = Path(persist_path)
        return cls.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else cls()


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
