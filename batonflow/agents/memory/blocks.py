"""Memory blocks: knowledge of a memory in addition to the conversation."""

from abc import abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator
from typing_extensions import override

from batonflow.llms import ChatMessage, ContentBlock, TextBlock

__all__ = ["BaseMemoryBlock", "BlockContent", "InsertMethod", "StaticMemoryBlock"]

BlockContent = str | list[ContentBlock] | list[ChatMessage]
"""The content of a block: text or blocks for its own section, or messages for the beginning."""

T = TypeVar("T", str, list[ContentBlock], list[ChatMessage])


class InsertMethod(Enum):
    """The place of the content of memory blocks in a conversation."""

    SYSTEM = "system"
    USER = "user"


class BaseMemoryBlock(BaseModel, Generic[T]):
    """Knowledge in addition to the conversation, which models get with it.

    A subclass implements ``_aget`` and ``_aput``, and ``atruncate`` if it can be shortened. It is a pydantic
    model, so its fields survive a snapshot of a run.

    Args:
        name: The heading of its section; unique within a memory.
        description: The purpose of the block.
        priority: 0 is never truncated; otherwise, lower priorities are cut first.
        accept_short_term_memory: Whether the block gets the messages that leave the conversation.

    Example:
        >>> class Mood(BaseMemoryBlock[str]):
        ...     async def _aget(self, messages=None, **block_kwargs): return "The user is in a good mood."
        ...     async def _aput(self, messages): pass
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str
    description: str | None = None
    priority: int = 0
    accept_short_term_memory: bool = True

    @abstractmethod
    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> T:
        """Return the content for a conversation with these messages."""

    @abstractmethod
    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Learn from messages."""

    async def aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> T:
        """Return the content for a conversation.

        Args:
            messages: The conversation for the model.
            block_kwargs: ``session_id``, and further arguments of ``Memory.aget``.
        """
        return await self._aget(messages, **block_kwargs)

    async def aput(
        self, messages: list[ChatMessage], from_short_term_memory: bool = False, session_id: str | None = None
    ) -> None:
        """Learn from messages.

        Args:
            messages: The messages.
            from_short_term_memory: Whether the messages have left the conversation.
            session_id: The id of the conversation, which is put into their ``additional_kwargs``.
        """
        if from_short_term_memory and not self.accept_short_term_memory:
            return
        if session_id is not None:
            messages = [_of_session(message, session_id) for message in messages]
        await self._aput(messages)

    async def atruncate(self, content: T, tokens_to_truncate: int) -> T | None:  # noqa: ARG002 - for subclasses
        """Return a shorter form of ``content``; None, the default, omits the block.

        Args:
            content: The result of ``aget``.
            tokens_to_truncate: The number of tokens to remove.
        """
        return None


class StaticMemoryBlock(BaseMemoryBlock[list[ContentBlock]]):
    """A block that always shows the same content.

    Args:
        static_content: A text, or blocks.

    Example:
        >>> StaticMemoryBlock(name="user", static_content="The user's name is Ann.")
    """

    name: str = "StaticContent"
    static_content: list[ContentBlock]

    @field_validator("static_content", mode="before")
    @classmethod
    def _as_blocks(cls, value: Any) -> Any:
        return [TextBlock(text=value)] if isinstance(value, str) else value

    @override
    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> list[ContentBlock]:
        return self.static_content

    @override
    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Do nothing, because the content is constant."""


def _of_session(message: ChatMessage, session_id: str) -> ChatMessage:
    # A copy, because the message itself is kept and sent to models.
    return message.model_copy(update={"additional_kwargs": message.additional_kwargs | {"session_id": session_id}})
