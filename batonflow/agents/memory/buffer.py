"""The last messages of a conversation, up to a number of tokens."""

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar

from pydantic import Field
from typing_extensions import override

from batonflow.agents.memory.chat_store import BaseChatStore
from batonflow.agents.memory.store_memory import (
    DEFAULT_CHAT_STORE_KEY,
    BaseChatStoreMemory,
    limit_for,
    of_the_same_kind,
    opened,
)
from batonflow.agents.memory.tokens import Tokenizer
from batonflow.agents.memory.turns import Window, as_shown
from batonflow.llms import LLM, ChatMessage

__all__ = ["ChatMemoryBuffer"]

DEFAULT_TOKEN_LIMIT = 3000
FLUSHED_SHARE = 10


class ChatMemoryBuffer(BaseChatStoreMemory):
    """A memory that keeps every message and shows the newest ones that fit.

    Whole turns are left out: the shown part begins with a user's message, and has every call of a tool together
    with its results. The newest turn is shown whole, even if it alone is longer than the limit. When something must be
    left out, it is a tenth of the limit at least, so that requests begin alike for a while and the vendor's cache
    finds them.

    Args:
        token_limit: The most tokens to show.
        token_flush_size: The tokens to leave out at a time, at least; a tenth of the limit when left out.
        chat_store: The store of the messages: an object, a path or ``sqlite:///chats.db``; by default, in memory.
        chat_store_key: The key of the conversation in the store.
        tokenizer_fn: Splits a string into tokens; by default, tokens are estimated. Snapshots do not include it.

    Raises:
        ValueError: The limit is less than 1.

    Example:
        >>> memory = ChatMemoryBuffer.from_defaults(token_limit=4000)
        >>> answer = await agent.run("Hello", memory=memory)
    """

    asks_models: ClassVar[bool] = False

    token_limit: int = Field(default=DEFAULT_TOKEN_LIMIT, ge=1)
    token_flush_size: int | None = Field(default=None, ge=1)

    @override
    @classmethod
    def from_defaults(  # pyright: ignore[reportIncompatibleMethodOverride] - names what it takes
        cls,
        chat_history: Sequence[ChatMessage] | None = None,
        llm: LLM | None = None,
        chat_store: BaseChatStore | str | PathLike[str] | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        tokenizer_fn: Tokenizer | None = None,
        token_flush_size: int | None = None,
    ) -> "ChatMemoryBuffer":
        """Return a buffer with a limit. The default is three quarters of the model's window, else 3,000 tokens.

        Args:
            chat_history: Replaces the messages in the store.
            llm: Tells the size of the window.
            chat_store: As for the class.
            chat_store_key: As for the class.
            token_limit: The most tokens to show.
            tokenizer_fn: As for the class.
            token_flush_size: As for the class.

        Raises:
            ValueError: ``token_limit`` is less than 1.
        """
        memory = cls(
            token_limit=limit_for(token_limit, llm, DEFAULT_TOKEN_LIMIT),
            token_flush_size=token_flush_size,
            chat_store=opened(chat_store),
            chat_store_key=chat_store_key,
            tokenizer_fn=tokenizer_fn,
        )
        if chat_history is not None:
            memory.set(list(chat_history))
        return memory

    @override
    def new_conversation(self) -> "ChatMemoryBuffer | None":
        # A class derived from this one may be made in another way.
        return of_the_same_kind(self, "chat_store") if type(self) is ChatMemoryBuffer else None

    @override
    def get(self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        """The newest turns that fit.

        Args:
            input: Not used by this memory.
            initial_token_count: Tokens that are taken up already.
            kwargs: Not used by this memory.

        Raises:
            ValueError: ``initial_token_count`` is over the limit.
        """
        return self._shown(self.get_all(), initial_token_count)

    @override
    async def aget(self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        return self._shown(await self.aget_all(), initial_token_count)

    @cached_property
    def _window(self) -> Window:
        # No private attribute of pydantic's: reading one takes ten times as long.
        return Window()

    def _shown(self, messages: list[ChatMessage], taken: int) -> list[ChatMessage]:
        if taken > self.token_limit:
            raise ValueError(f"Initial token count exceeds token limit: {taken} of {self.token_limit} tokens are taken")
        flush = self.token_flush_size or self.token_limit // FLUSHED_SHARE
        return as_shown(messages[self._window.start(messages, self._size, self.token_limit - taken, flush) :])
