"""The last messages of a conversation, up to a number of tokens."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field, PrivateAttr
from typing_extensions import override

from batonflow.agents.memory.base import BaseMemory
from batonflow.llms import LLM, ChatMessage, MessageRole

__all__ = ["ChatMemoryBuffer"]

DEFAULT_TOKEN_LIMIT = 3000
SHARE_OF_CONTEXT = 0.75
CHARACTERS_PER_TOKEN = 4


class ChatMemoryBuffer(BaseMemory):
    """Keeps every message and shows the newest ones that fit.

    What is shown never begins with an assistant or a tool message, so that no call is parted from its results.

    Args:
        token_limit: The most tokens to show.
        messages: What to begin with.

    Example:
        >>> memory = ChatMemoryBuffer.from_defaults(token_limit=4000)
        >>> answer = await agent.run("Hello", memory=memory)
    """

    token_limit: int = Field(default=DEFAULT_TOKEN_LIMIT, ge=1)
    messages: list[ChatMessage] = Field(default_factory=list[ChatMessage])
    _split: Callable[[str], Sequence[Any]] | None = PrivateAttr(default=None)

    @classmethod
    def from_defaults(
        cls,
        chat_history: Sequence[ChatMessage] | None = None,
        llm: LLM | None = None,
        token_limit: int | None = None,
        tokenizer_fn: Callable[[str], Sequence[Any]] | None = None,
        **kwargs: Any,
    ) -> "ChatMemoryBuffer":
        """A buffer with a limit: the one given, else three quarters of the model's window, else 3,000 tokens.

        Args:
            chat_history: Messages to begin with.
            llm: Tells the size of the window.
            token_limit: The most tokens to show.
            tokenizer_fn: Splits a text into tokens; without it their number is estimated.
            kwargs: Other fields.

        Raises:
            ValueError: ``token_limit`` is less than 1.
        """
        if token_limit is None:
            token_limit = (
                int(SHARE_OF_CONTEXT * llm.metadata.context_window) if llm is not None else DEFAULT_TOKEN_LIMIT
            )
        if token_limit < 1:
            raise ValueError(f"token_limit must be at least 1, got {token_limit}")
        memory = cls(token_limit=token_limit, messages=list(chat_history or ()), **kwargs)
        memory._split = tokenizer_fn
        return memory

    def _count(self, text: str) -> int:
        """Tokens of a text; about, as exact counts would need a tokenizer and its download."""
        return len(self._split(text)) if self._split is not None else -(-len(text) // CHARACTERS_PER_TOKEN)

    def _tokens(self, message: ChatMessage) -> int:
        calls = message.additional_kwargs.get("tool_calls")
        text = message.content or ""
        return self._count(text if not calls else f"{text} {calls}")

    def get(
        self,
        input: str | None = None,  # noqa: A002, ARG002 - the contract's
        initial_token_count: int = 0,
        **kwargs: Any,  # noqa: ARG002 - the contract's
    ) -> list[ChatMessage]:
        """The newest messages that fit.

        Args:
            input: Not used by this memory.
            initial_token_count: Tokens that are taken up already.
            kwargs: Not used by this memory.

        Raises:
            ValueError: ``initial_token_count`` is over the limit.
        """
        if initial_token_count > self.token_limit:
            raise ValueError(
                f"Initial token count {initial_token_count} exceeds the limit of {self.token_limit} tokens"
            )
        room = self.token_limit - initial_token_count
        first = len(self.messages)
        while first > 0 and (room := room - self._tokens(self.messages[first - 1])) >= 0:
            first -= 1
        if first == 0:
            return list(self.messages)
        shown = self.messages[first:]
        while shown and shown[0].role in (MessageRole.ASSISTANT, MessageRole.TOOL):
            shown = shown[1:]
        return shown or self.messages[-1:]

    @override
    def get_all(self) -> list[ChatMessage]:
        return list(self.messages)

    @override
    def put(self, message: ChatMessage) -> None:
        self.messages.append(message)

    @override
    def set(self, messages: list[ChatMessage]) -> None:
        self.messages = list(messages)

    @override
    def reset(self) -> None:
        self.messages = []

    # Nothing here waits for anything, so the async forms need no thread.

    @override
    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        return self.get(input, **kwargs)

    @override
    async def aget_all(self) -> list[ChatMessage]:
        return self.get_all()

    @override
    async def aput(self, message: ChatMessage) -> None:
        self.put(message)

    @override
    async def aset(self, messages: list[ChatMessage]) -> None:
        self.set(messages)

    @override
    async def areset(self) -> None:
        self.reset()

    def to_string(self) -> str:
        """The memory as JSON text."""
        return self.model_dump_json()

    @classmethod
    def from_string(cls, text: str) -> "ChatMemoryBuffer":
        """The memory of ``to_string``."""
        return cls.from_dict(json.loads(text))

    def to_dict(self) -> dict[str, Any]:
        """The memory as data."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ChatMemoryBuffer":
        """The memory of ``to_dict``."""
        return cls.model_validate(data)
