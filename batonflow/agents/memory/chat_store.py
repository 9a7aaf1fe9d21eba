"""Chat stores: the interface of stores of messages, and the store in memory."""

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
    """A lock for the tasks of each event loop.

    A memory is used from several loops where synchronous calls are made beside asynchronous ones, and a lock of asyncio
    belongs to one.

    Example:
        >>> async with turns.here():
        ...     await change()
    """

    def __init__(self) -> None:
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._guard = threading.Lock()

    def here(self) -> asyncio.Lock:
        """Return the lock of the running loop; it wakes waiting tasks in the order of their arrival."""
        loop = asyncio.get_running_loop()
        with self._guard:
            lock = self._locks.get(loop)
            if lock is None:
                open_ones = {one: held for one, held in self._locks.items() if not one.is_closed()}
                lock = asyncio.Lock()
                self._locks = {**open_ones, loop: lock}
            return lock

    # Locks are not part of an object's data: copies have their own, and == leaves them out.

    def __deepcopy__(self, memo: dict[int, Any]) -> "TurnTaking":
        return TurnTaking()

    def __reduce__(self) -> tuple[type["TurnTaking"], tuple[()]]:
        return TurnTaking, ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnTaking)

    __hash__ = None  # type: ignore[assignment] - equal to all others


_T = TypeVar("_T")


class MessageStatus(str, Enum):  # noqa: UP042 - str(status) is "MessageStatus.ACTIVE" for the programs this must run
    """The status of a message: in the conversation for the model, or archived."""

    ACTIVE = "active"
    ARCHIVED = "archived"


class BaseChatStore(BaseModel, ABC):
    """Messages of several conversations, each under a key.

    A store of your own writes the abstract methods. The async forms run them in a thread, one at a time and in the
    order of the calls.

    Example:
        >>> store = SQLiteChatStore("chats.db")
        >>> memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="ann")
    """

    @cached_property
    def _turns(self) -> TurnTaking:
        # No private attribute of pydantic's: stores that keep messages themselves take no turns.
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
        """Return the messages of a conversation; an empty list for an unknown key."""

    @abstractmethod
    def add_message(self, key: str, message: ChatMessage) -> None:
        """Add a message at the end."""

    @abstractmethod
    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete a conversation and return it; None when there is no such key."""

    @abstractmethod
    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete the message at a position and return it, or None."""

    @abstractmethod
    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Delete the newest message and return it, or None."""

    @abstractmethod
    def get_keys(self) -> list[str]:
        """The keys of all conversations."""

    def add_messages(self, key: str, messages: Sequence[ChatMessage]) -> None:
        """Add messages at the end, in order."""
        for message in messages:
            self.add_message(key, message)

    def dump(self, key: str) -> dict[str, Any]:  # noqa: ARG002 - for stores that hold their messages themselves
        """Return the data of the conversation ``key`` for the dump of a memory."""
        return self.model_dump(mode="json")

    async def _run(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call a synchronous method for an async one."""
        async with self._turns.here():
            running = asyncio.ensure_future(in_thread(function, *arguments))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # A thread cannot be stopped, so the next task waits until it has ended.
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
    """A chat store that tells active messages from archived ones, as :class:`Memory` needs it.

    ``set_messages``, ``add_message``, ``delete_message`` and ``delete_last_message`` are about active messages.
    """

    @abstractmethod
    @override
    def get_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> list[ChatMessage]:
        """Return the messages of a conversation, oldest first; for None of every status."""

    @abstractmethod
    @override
    def delete_messages(self, key: str, status: MessageStatus | None = None) -> list[ChatMessage] | None:
        """Delete messages of a conversation and return them, or None."""

    @abstractmethod
    def archive_messages(self, key: str, choose: Callable[[list[ChatMessage]], int]) -> list[ChatMessage]:
        """Archive the oldest active messages.

        Reading, choosing and archiving are one action, so that two callers never get the same messages.

        Args:
            key: The conversation.
            choose: Is given the active messages and returns how many of them to archive.

        Returns:
            The messages that are archived now.
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
    """A chat store that keeps messages in this object; they go with it into snapshots, and end with it.

    Args:
        store: The active messages by key.
        archived: The archived messages by key, which all come before the active ones.

    Example:
        >>> store = SimpleChatStore()
        >>> store.add_message("ann", ChatMessage("Hello"))
    """

    store: dict[str, list[ChatMessage]] = Field(default_factory=dict[str, list[ChatMessage]])
    archived: dict[str, list[ChatMessage]] = Field(default_factory=dict[str, list[ChatMessage]])

    @override
    async def _run(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return function(*arguments)  # nothing here waits for anything, so no thread is needed

    @override
    def dump(self, key: str) -> dict[str, Any]:
        # The dump of a memory has no messages of other memories in the same store.
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
        """Add a message at the end, or before the active one at the position ``idx``, as lists insert."""
        messages = self.store.setdefault(key, [])
        messages.insert(len(messages) if idx is None else idx, message)

    @override
    async def async_add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        # A class derived from this one may add at the end only.
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
            del active[:chosen]  # in place, as a synchronous call in another thread may add to it
        return moved

    def persist(self, persist_path: str = "chat_store.json") -> None:
        """Write all conversations into a JSON file; a new one can be read by its owner only.

        Raises:
            OSError: The file cannot be written.
        """
        with open(persist_path, "w", encoding="utf-8", opener=_privately) as file:
            file.write(self.model_dump_json())

    @classmethod
    def from_persist_path(cls, persist_path: str = "chat_store.json") -> Self:
        """The store of ``persist``; an empty one when there is no file.

        Raises:
            ValidationError: The file holds something else.
        """
        path = Path(persist_path)
        return cls.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else cls()


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
