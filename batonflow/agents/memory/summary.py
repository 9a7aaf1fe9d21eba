"""A memory with a summary of the turns that do not fit."""

from collections.abc import Sequence
from itertools import accumulate
from os import PathLike
from typing import Any

from pydantic import Field, PrivateAttr, field_serializer
from typing_extensions import override

from batonflow.agents.memory.chat_store import BaseChatStore, TurnTaking
from batonflow.agents.memory.store_memory import (
    DEFAULT_CHAT_STORE_KEY,
    BaseChatStoreMemory,
    limit_for,
    of_the_same_kind,
    opened,
)
from batonflow.agents.memory.tokens import Tokenizer, count_tokens
from batonflow.agents.memory.turns import as_shown, cuts, next_start, transcript_of
from batonflow.llms import LLM, ChatMessage, MessageRole
from batonflow.llms._bridge import run_sync
from batonflow.llms.settings import llm_from
from batonflow.user_warnings import warn_user

__all__ = ["SUMMARIZE_PROMPT", "ChatSummaryMemoryBuffer"]

DEFAULT_TOKEN_LIMIT = 2000
FLUSHED_SHARE = 4
"""The part of the limit that is summed up at a time. It is larger than in the plain buffer, as it costs a request."""

SUMMARIZE_PROMPT = (
    "You keep the notes of a conversation between a user and an assistant, of which the assistant is soon going to see "
    "only the newest part. Write down in a few sentences what it must know of the rest: who the user is and wants, "
    "what was found out with names, numbers and places, what was decided, and what is still open. Take over from the "
    "notes so far whatever still matters. Say nothing that was not said. Begin with 'Earlier in this conversation:'."
)

_TASK = (
    "Notes so far:\n{notes}\n\nWhat was said since then:\n{transcript}\n\n"
    "Write the new notes, in at most {words} words."
)
_NO_NOTES = "(none)"
_SHARE_OF_SUMMARY = 4
_WORDS_PER_TOKEN = 0.75
_LEAST_WORDS = 20


class ChatSummaryMemoryBuffer(BaseChatStoreMemory):
    """A memory that shows the newest messages that fit, after a summary of the others.

    The summary is a system message. It is made anew from the one before and the turns that fall out now, a quarter of
    the limit at least; in between the beginning of the conversation stays the same. Without a model the others are
    left out. Whole turns are left out, as in :class:`ChatMemoryBuffer`.

    Args:
        token_limit: The most tokens to show, the summary included.
        token_flush_size: The tokens to leave out at a time, at least; a quarter of the limit when left out.
        count_initial_tokens: Whether ``initial_token_count`` of ``get`` counts.
        llm: Writes the summaries: a model, or its name such as ``"openai:gpt-5.6"``. Snapshots hold a name, and no
            model: an agent lends its own to a memory that comes back without.
        summarize_prompt: The instructions for the model.
        summary: The summary so far.
        summarized: How many messages it covers.
        hidden: How many messages are left out.
        summarizes: Whether there is, or was before a snapshot, a model.
        chat_store: As for :class:`ChatMemoryBuffer`.
        chat_store_key: As for :class:`ChatMemoryBuffer`.
        tokenizer_fn: As for :class:`ChatMemoryBuffer`.

    Example:
        >>> memory = ChatSummaryMemoryBuffer.from_defaults(llm="openai:gpt-5.6", token_limit=4000)
        >>> answer = await agent.run("Hello", memory=memory)
    """

    token_limit: int = Field(default=DEFAULT_TOKEN_LIMIT, ge=1)
    token_flush_size: int | None = Field(default=None, ge=1)
    count_initial_tokens: bool = False
    llm: LLM | str | None = None
    summarize_prompt: str = SUMMARIZE_PROMPT
    summary: str | None = None
    summarized: int = 0
    hidden: int = 0
    summarizes: bool = False

    _turns: TurnTaking = PrivateAttr(default_factory=TurnTaking)
    _named: LLM | None = PrivateAttr(default=None)
    _token_count: int = PrivateAttr(default=0)

    @field_serializer("llm")
    def _dump_llm(self, llm: LLM | str | None) -> str | None:
        return llm if isinstance(llm, str) else None

    def model_post_init(self, context: Any, /) -> None:
        """Note that there is a model."""
        super().model_post_init(context)
        self.summarizes = self.summarizes or self.llm is not None

    @override
    @classmethod
    def from_defaults(  # pyright: ignore[reportIncompatibleMethodOverride] - names what it takes
        cls,
        chat_history: Sequence[ChatMessage] | None = None,
        llm: LLM | str | None = None,
        chat_store: BaseChatStore | str | PathLike[str] | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        tokenizer_fn: Tokenizer | None = None,
        summarize_prompt: str | None = None,
        count_initial_tokens: bool = False,
        token_flush_size: int | None = None,
    ) -> "ChatSummaryMemoryBuffer":
        """Return a buffer with a limit. The default is three quarters of the model's window, else 2,000 tokens.

        Args:
            chat_history: Replaces the messages in the store.
            llm: As for the class.
            chat_store: As for the class.
            chat_store_key: As for the class.
            token_limit: The most tokens to show.
            tokenizer_fn: As for the class.
            summarize_prompt: As for the class.
            count_initial_tokens: As for the class.
            token_flush_size: As for the class.

        Raises:
            ValueError: ``token_limit`` is less than 1.
        """
        sized = llm_from(llm) if isinstance(llm, str) and token_limit is None else llm
        memory = cls(
            token_limit=limit_for(token_limit, sized if isinstance(sized, LLM) else None, DEFAULT_TOKEN_LIMIT),
            token_flush_size=token_flush_size,
            count_initial_tokens=count_initial_tokens,
            llm=llm,
            summarize_prompt=summarize_prompt or SUMMARIZE_PROMPT,
            chat_store=opened(chat_store),
            chat_store_key=chat_store_key,
            tokenizer_fn=tokenizer_fn,
        )
        if chat_history is not None:
            memory.set(list(chat_history))
        return memory

    @override
    def new_conversation(self) -> "ChatSummaryMemoryBuffer | None":
        if type(self) is not ChatSummaryMemoryBuffer:
            return None
        return of_the_same_kind(self, "chat_store", "summary", "summarized", "hidden")

    @override
    def attach_llm(self, llm: LLM) -> None:
        if self.summarizes and self.llm is None:
            self.llm = llm

    @override
    def get(self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        """The summary, if there is one, and the newest turns that fit with it.

        Args:
            input: Not used by this memory.
            initial_token_count: Tokens that are taken up already.
            kwargs: Not used by this memory.

        Raises:
            ValueError: ``initial_token_count`` counts and is over the limit.
            LLMError: The model failed; everything is as before, and the next call tries again.
        """
        return run_sync(self.aget(input, initial_token_count, **kwargs))

    @override
    async def aget(self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        taken = initial_token_count if self.count_initial_tokens else 0
        if taken > self.token_limit:
            raise ValueError(f"Initial token count exceeds token limit: {taken} of {self.token_limit} tokens are taken")
        async with self._turns.here():
            messages = await self.aget_all()
            if len(messages) < self.hidden:  # another program has emptied the store
                self._forget()
            tokens = [self._size(message) for message in messages]
            await self._make_room(messages, tokens, self.token_limit - taken)
            summary = [] if self.summary is None else [ChatMessage(self.summary, role=MessageRole.SYSTEM)]
            self._token_count = taken + sum(tokens[self.hidden :]) + self._size_of_summary()
            return [*summary, *as_shown(messages[self.hidden :])]

    def get_token_count(self) -> int:
        """Return the tokens of the messages shown last."""
        return self._token_count

    def _size_of_summary(self) -> int:
        return count_tokens(self.summary or "", self.tokenizer_fn)

    async def _make_room(self, messages: list[ChatMessage], tokens: list[int], room: int) -> None:
        sizes = [0, *accumulate(tokens)]
        flush = self.token_flush_size or self.token_limit // FLUSHED_SHARE
        start = next_start(sizes, cuts(messages), self.hidden, len(messages), room - self._size_of_summary(), flush)
        if start == self.hidden:
            return
        llm = self._model()
        if llm is not None:
            self.summary = await self._summarize(llm, messages[self.summarized : start])
            self.summarized = start
        elif self.summarizes:
            warn_user(
                "The ChatSummaryMemoryBuffer came from a snapshot, which holds no model, and leaves messages out "
                'without a summary: set memory.llm, or give the model by name, for example llm="openai:gpt-5.6"'
            )
        self.hidden = start

    def _model(self) -> LLM | None:
        if isinstance(self.llm, str):
            self._named = self._named or llm_from(self.llm)
            return self._named
        return self.llm

    async def _summarize(self, llm: LLM, messages: list[ChatMessage]) -> str:
        words = max(_LEAST_WORDS, int(self.token_limit / _SHARE_OF_SUMMARY * _WORDS_PER_TOKEN))
        task = _TASK.format(notes=self.summary or _NO_NOTES, transcript=transcript_of(messages), words=words)
        response = await llm.achat([ChatMessage(self.summarize_prompt, role=MessageRole.SYSTEM), ChatMessage(task)])
        return response.message.content or self.summary or ""

    @override
    def set(self, messages: list[ChatMessage]) -> None:
        super().set(messages)
        self._forget()

    @override
    async def aset(self, messages: list[ChatMessage]) -> None:
        async with self._turns.here():
            await super().aset(messages)
            self._forget()

    @override
    def reset(self) -> None:
        super().reset()
        self._forget()

    @override
    async def areset(self) -> None:
        async with self._turns.here():
            await super().areset()
            self._forget()

    def _forget(self) -> None:
        self.summary, self.summarized, self.hidden, self._token_count = None, 0, 0, 0
