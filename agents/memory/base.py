"""What every memory offers."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from batonflow.llms import ChatMessage

__all__ = ["BaseMemory"]


class BaseMemory(BaseModel, ABC):
    """A conversation that is kept. The async forms run the others in a thread unless a subclass has its own."""

    @classmethod
    @abstractmethod
    def from_defaults(cls, **kwargs: Any) -> "BaseMemory":
        """A memory with the defaults of its class."""

    @abstractmethod
    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002 - the contract's name
        """The messages to show to a model now."""

    @abstractmethod
    def get_all(self) -> list[ChatMessage]:
        """Every message that is kept."""

    @abstractmethod
    def put(self, message: ChatMessage) -> None:
        """Add a message."""

    @abstractmethod
    def set(self, messages: list[ChatMessage]) -> None:
        """Replace all messages."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything."""

    def put_messages(self, messages: Sequence[ChatMessage]) -> None:
        """Add messages in order."""
        for message in messages:
            self.put(message)

    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002 - the contract's name
        """Async form of ``get``."""
        return await asyncio.to_thread(self.get, input, **kwargs)

    async def aget_all(self) -> list[ChatMessage]:
        """Async form of ``get_all``."""
        return await asyncio.to_thread(self.get_all)

    async def aput(self, message: ChatMessage) -> None:
        """Async form of ``put``."""
        await asyncio.to_thread(self.put, message)

    async def aput_messages(self, messages: Sequence[ChatMessage]) -> None:
        """Async form of ``put_messages``."""
        for message in messages:
            await self.aput(message)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Async form of ``set``."""
        await asyncio.to_thread(self.set, messages)

    async def areset(self) -> None:
        """Async form of ``reset``."""
        await asyncio.to_thread(self.reset)
