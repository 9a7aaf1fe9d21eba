"""The interface of every memory."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel
from typing_extensions import override

from batonflow.llms import LLM, ChatMessage
from batonflow.llms._bridge import run_sync
from batonflow.threads import in_thread

__all__ = ["AsyncMemory", "BaseMemory"]


class BaseMemory(BaseModel, ABC):
    """The base class of memories. The async methods run the sync methods in a thread, unless a subclass overrides them.

    A memory is a pydantic model: its fields survive a snapshot of a run.

    Example:
        >>> memory = ChatMemoryBuffer.from_defaults(token_limit=4000)
        >>> answer = await agent.run("Hello", memory=memory)
    """

    # An editor of a run's state must not copy the memory that the program holds.
    shared_in_drafts: ClassVar[bool] = True
    # Whether reading may call a model, for example for a summary.
    asks_models: ClassVar[bool] = True

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return cls.__name__

    @classmethod
    @abstractmethod
    def from_defaults(cls, **kwargs: Any) -> "BaseMemory":
        """Return a memory with the defaults of its class."""

    @abstractmethod
    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002 - the contract's name
        """Return the messages for a model."""

    @abstractmethod
    def get_all(self) -> list[ChatMessage]:
        """Return all kept messages."""

    @abstractmethod
    def put(self, message: ChatMessage) -> None:
        """Add a message."""

    @abstractmethod
    def set(self, messages: list[ChatMessage]) -> None:
        """Replace all messages."""

    @abstractmethod
    def reset(self) -> None:
        """Delete all messages."""

    def put_messages(self, messages: Sequence[ChatMessage]) -> None:
        """Add messages in order."""
        for message in messages:
            self.put(message)

    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002 - the contract's name
        """Async form of ``get``."""
        return await in_thread(self.get, input, **kwargs)

    async def aget_all(self) -> list[ChatMessage]:
        """Async form of ``get_all``."""
        return await in_thread(self.get_all)

    async def aput(self, message: ChatMessage) -> None:
        """Async form of ``put``."""
        await in_thread(self.put, message)

    async def aput_messages(self, messages: Sequence[ChatMessage]) -> None:
        """Async form of ``put_messages``."""
        await in_thread(self.put_messages, messages)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Async form of ``set``."""
        await in_thread(self.set, messages)

    async def areset(self) -> None:
        """Async form of ``reset``."""
        await in_thread(self.reset)

    def attach_llm(self, llm: LLM) -> None:
        """Set the agent's model in a memory that has lost its own in a snapshot."""

    def new_conversation(self) -> "BaseMemory | None":
        """Return an empty memory of the same kind, for one agent in a team.

        Returns:
            The memory; None if the class does not support it.
        """
        return None

    async def with_knowledge(
        self,
        conversation: list[ChatMessage],
        input: str | None = None,  # noqa: A002, ARG002 - as for ``aget``
    ) -> list[ChatMessage]:
        """Return a conversation with the knowledge of this memory; unchanged for memories of messages only.

        Args:
            conversation: The messages.
            input: The user's question.
        """
        return conversation

    def to_string(self) -> str:
        """Return the memory as JSON text."""
        return self.model_dump_json()

    @classmethod
    def from_string(cls, json_str: str) -> Self:
        """Return the memory for a text of ``to_string``.

        Raises:
            ValidationError: The text is not a memory of this class.
        """
        return cls.model_validate_json(json_str)

    def to_dict(self) -> dict[str, Any]:
        """Return the memory as JSON data, with ``class_name``."""
        return {**self.model_dump(mode="json"), "class_name": self.class_name()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the memory for data of ``to_dict``.

        Raises:
            ValidationError: The data is not that of a memory of this class.
        """
        return cls.model_validate({name: value for name, value in data.items() if name != "class_name"})


class AsyncMemory(BaseMemory):
    """A memory with asynchronous methods; its sync methods run these, also under a running loop."""

    @abstractmethod
    @override
    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]: ...

    @abstractmethod
    @override
    async def aget_all(self) -> list[ChatMessage]: ...

    @abstractmethod
    @override
    async def aput_messages(self, messages: Sequence[ChatMessage]) -> None: ...

    @abstractmethod
    @override
    async def aset(self, messages: list[ChatMessage]) -> None: ...

    @abstractmethod
    @override
    async def areset(self) -> None: ...

    @override
    async def aput(self, message: ChatMessage) -> None:
        await self.aput_messages([message])

    @override
    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        return run_sync(self.aget(input, **kwargs))

    @override
    def get_all(self, **kwargs: Any) -> list[ChatMessage]:
        return run_sync(self.aget_all(**kwargs))

    @override
    def put(self, message: ChatMessage) -> None:
        run_sync(self.aput(message))

    @override
    def put_messages(self, messages: Sequence[ChatMessage]) -> None:
        run_sync(self.aput_messages(messages))

    @override
    def set(self, messages: list[ChatMessage]) -> None:
        run_sync(self.aset(messages))

    @override
    def reset(self, **kwargs: Any) -> None:
        run_sync(self.areset(**kwargs))
