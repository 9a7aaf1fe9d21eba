"""Memory: a conversation with memory blocks, which take over its older part."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from itertools import accumulate
from os import PathLike
from typing import Any, ClassVar, cast
from uuid import uuid4

from pydantic import Field, PrivateAttr, SkipValidation, field_serializer, field_validator, model_validator
from typing_extensions import override

from batonflow.agents import memory as memory_parts
from batonflow.agents.memory.base import AsyncMemory
from batonflow.agents.memory.blocks import BaseMemoryBlock, BlockContent, InsertMethod
from batonflow.agents.memory.chat_store import (
    ArchivingChatStore,
    BaseChatStore,
    MessageStatus,
    SimpleChatStore,
    TurnTaking,
)
from batonflow.agents.memory.insertion import MEMORY_BLOCKS_TEMPLATE, PLACE, inserted
from batonflow.agents.memory.store_memory import archiving, dumped, loaded, store_in_parts
from batonflow.agents.memory.table_store import DEFAULT_TABLE
from batonflow.agents.memory.tokens import Content, MediaTokens, Tokenizer, count_tokens
from batonflow.agents.memory.turns import as_shown, cuts, is_question, next_start, without_orphans
from batonflow.llms import ChatMessage
from batonflow.values.names import InParts

__all__ = ["Memory"]

DEFAULT_TOKEN_LIMIT = 30_000
FLUSHED_SHARE = 10


class Memory(AsyncMemory):
    """A memory that shows the newest part of a conversation and its blocks. The older part goes to the blocks.

    When the conversation outgrows its share of the limit, its oldest turns are archived, ``token_flush_size`` tokens at
    least, and given to the blocks. Turns stay whole, calls of tools together with their results, and the newest turn is
    always shown. Archived messages are kept and not shown. Tasks that put messages at the same time take turns.

    Args:
        token_limit: The tokens to show, the blocks' included.
        token_flush_size: The tokens to archive at a time, at least; a tenth of the limit when left out or above it.
        chat_history_token_ratio: The conversation's share of the limit.
        memory_blocks: The memory blocks.
        memory_blocks_template: The text around the blocks' sections; has ``{memory_blocks}``.
        insert_method: Whether the sections go into the system message or into the newest user message.
        image_token_size_estimate: The size of a picture, in tokens; likewise the next three.
        audio_token_size_estimate: A sound.
        video_token_size_estimate: A film.
        document_token_size_estimate: A document.
        tokenizer_fn: Splits a string into tokens; by default, tokens are estimated. Snapshots do not include it.
        chat_store: The store of the messages: an object, a path or ``sqlite:///chats.db``; by default, in memory.
        session_id: The key of the conversation in the store; by default, a new key.

    Raises:
        ValueError: A limit below 1, two blocks of one name, a template without its placeholder, or a chat store that
            cannot archive.

    Example:
        >>> memory = Memory.from_defaults(session_id="ann", chat_store="chats.db")
        >>> answer = await agent.run("Hello", memory=memory)
    """

    __batonflow_parts__: ClassVar[Mapping[str, InParts]] = {"chat_store": store_in_parts("session_id")}

    token_limit: int = Field(default=DEFAULT_TOKEN_LIMIT, ge=1)
    token_flush_size: int = 0
    chat_history_token_ratio: float = Field(default=0.7, gt=0, le=1)
    # Their classes are the caller's own, with parameters of their own: nothing is to be made of them.
    memory_blocks: SkipValidation[list[BaseMemoryBlock[Any]]] = Field(default_factory=list[BaseMemoryBlock[Any]])
    memory_blocks_template: str = MEMORY_BLOCKS_TEMPLATE
    insert_method: InsertMethod = InsertMethod.SYSTEM
    image_token_size_estimate: int = 256
    audio_token_size_estimate: int = 256
    video_token_size_estimate: int = 256
    document_token_size_estimate: int = 2048
    tokenizer_fn: Tokenizer | None = Field(default=None, exclude=True)
    session_id: str = Field(default_factory=lambda: str(uuid4()))
    chat_store: ArchivingChatStore = Field(default_factory=SimpleChatStore)

    _turns: TurnTaking = PrivateAttr(default_factory=TurnTaking)

    @field_validator("memory_blocks", mode="before")
    @classmethod
    def _load_blocks(cls, value: Any) -> list[BaseMemoryBlock[Any]]:
        base = cast("type[BaseMemoryBlock[Any]]", BaseMemoryBlock)
        blocks = [loaded(base, one) for one in cast("Sequence[Any]", value or ())]
        for block in blocks:
            if not isinstance(block, BaseMemoryBlock):
                raise ValueError(f"memory_blocks takes memory blocks, got {type(block).__name__}")
        names = [cast("BaseMemoryBlock[Any]", block).name for block in blocks]
        doubled = [name for name in names if names.count(name) > 1]
        if doubled:
            raise ValueError(f"All memory blocks must have unique names: {doubled[0]!r} is there twice")
        return blocks

    @field_validator("chat_store", mode="before")
    @classmethod
    def _open_store(cls, value: Any) -> Any:
        return archiving(value)

    @field_validator("memory_blocks_template")
    @classmethod
    def _has_place(cls, value: str) -> str:
        if PLACE not in value:
            raise ValueError(f"memory_blocks_template must contain {PLACE}, where the blocks' sections go")
        return value

    @model_validator(mode="after")
    def _flush_size(self) -> "Memory":
        if not 1 <= self.token_flush_size <= self.token_limit:
            self.token_flush_size = max(1, self.token_limit // FLUSHED_SHARE)
        return self

    @field_serializer("memory_blocks")
    def _dump_blocks(self, blocks: list[BaseMemoryBlock[Any]]) -> list[dict[str, Any]]:
        return [dumped(block, block.model_dump(mode="json")) for block in blocks]

    @field_serializer("chat_store")
    def _dump_store(self, chat_store: ArchivingChatStore) -> dict[str, Any]:
        return dumped(chat_store, chat_store.dump(self.session_id))

    @override
    @classmethod
    def from_defaults(  # pyright: ignore[reportIncompatibleMethodOverride] - names what it takes
        cls,
        session_id: str | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        token_limit: int = DEFAULT_TOKEN_LIMIT,
        memory_blocks: Sequence[BaseMemoryBlock[Any]] | None = None,
        tokenizer_fn: Tokenizer | None = None,
        chat_history_token_ratio: float = 0.7,
        token_flush_size: int | None = None,
        memory_blocks_template: str = MEMORY_BLOCKS_TEMPLATE,
        insert_method: InsertMethod = InsertMethod.SYSTEM,
        image_token_size_estimate: int = 256,
        audio_token_size_estimate: int = 256,
        video_token_size_estimate: int = 256,
        chat_store: ArchivingChatStore | str | PathLike[str] | None = None,
        table_name: str = DEFAULT_TABLE,
        async_database_uri: str | None = None,
        db_schema: str | None = None,
    ) -> "Memory":
        """A memory; arguments that the class has too mean the same here.

        ``chat_history`` replaces the messages in the store. ``async_database_uri``, for example
        ``sqlite+aiosqlite:///chats.db``, is another way to give the file or the database (``postgresql://user@host/database``);
        ``table_name`` is the table in it, and ``db_schema`` the schema. SQLite has no schemas: there it is put before
        the table's name.

        Raises:
            ValueError: As for the class; or a URL of another kind, or a table beside a chat store.
        """
        store: ArchivingChatStore | str | PathLike[str] | None = chat_store
        if store is None and async_database_uri is not None and not async_database_uri.endswith((":memory:", "://")):
            store = async_database_uri
        if isinstance(store, str | PathLike) and store != "memory:":
            store = memory_parts.chat_store_at(store, table_name, db_schema)
        elif (db_schema or table_name != DEFAULT_TABLE) and isinstance(store, BaseChatStore):
            given = f"db_schema={db_schema!r}" if db_schema else f"table_name={table_name!r}"
            raise ValueError(f"{given} is for a file: the chat store that is given knows its own table")
        memory = cls(
            session_id=session_id or str(uuid4()),
            token_limit=token_limit,
            token_flush_size=token_flush_size or 0,
            chat_history_token_ratio=chat_history_token_ratio,
            memory_blocks=list(memory_blocks or ()),
            memory_blocks_template=memory_blocks_template,
            insert_method=insert_method,
            image_token_size_estimate=image_token_size_estimate,
            audio_token_size_estimate=audio_token_size_estimate,
            video_token_size_estimate=video_token_size_estimate,
            tokenizer_fn=tokenizer_fn,
            chat_store=archiving(store),
        )
        if chat_history is not None:
            memory.chat_store.set_messages(memory.session_id, list(chat_history))
        return memory

    # There is no ``new_conversation``: its blocks would not learn the messages that fall out of its window.

    @override
    async def with_knowledge(self, conversation: list[ChatMessage], input: str | None = None) -> list[ChatMessage]:
        # How long it may be is for its own memory to say.
        room = int(self.token_limit * self.chat_history_token_ratio)
        return await self._with_blocks(conversation, input, {}, room)

    async def _with_blocks(
        self,
        conversation: list[ChatMessage],
        asked: str | ChatMessage | None,
        options: dict[str, Any],
        most: int | None,
    ) -> list[ChatMessage]:
        contents = await self._contents(conversation, asked, options)
        shown = sum(self._tokens(message) for message in conversation)
        contents = await self._cut_to_size(contents, shown if most is None else min(shown, most))
        named = [(block.name, contents[block.name]) for block in self.memory_blocks if block.name in contents]
        return as_shown(inserted(conversation, named, self.memory_blocks_template, self.insert_method))

    # --- the conversation ---------------------------------------------------------------------------------------------

    @override
    async def aput_messages(self, messages: Sequence[ChatMessage]) -> None:
        async with self._turns.here():
            await self.chat_store.aadd_messages(self.session_id, messages)
            await self._flush()

    @override
    async def aset(self, messages: list[ChatMessage]) -> None:
        async with self._turns.here():
            await self.chat_store.aset_messages(self.session_id, messages)
            await self._flush()

    @override
    async def aget_all(self, status: MessageStatus | None = None) -> list[ChatMessage]:
        """Return every kept message, or only the messages of a status."""
        return await self.chat_store.aget_messages(self.session_id, status)

    @override
    async def areset(self, status: MessageStatus | None = None) -> None:
        """Forget every message, or only the messages of a status; the blocks keep their knowledge."""
        async with self._turns.here():
            await self.chat_store.adelete_messages(self.session_id, status)

    def _tokens(self, content: Content) -> int:
        media = MediaTokens(
            image=self.image_token_size_estimate,
            audio=self.audio_token_size_estimate,
            video=self.video_token_size_estimate,
            document=self.document_token_size_estimate,
        )
        return count_tokens(content, self.tokenizer_fn, media)

    def _outgrown(self, messages: list[ChatMessage]) -> int:
        """Return the number of the oldest messages that do not fit."""
        sizes = [0, *accumulate(self._tokens(message) for message in messages)]
        room = int(self.token_limit * self.chat_history_token_ratio)
        if sizes[-1] <= room:
            return 0
        return next_start(sizes, cuts(messages), 0, len(messages), room, self.token_flush_size)

    async def _flush(self) -> None:
        """Archive the messages that do not fit and give them to the blocks; the caller holds the turn."""
        outgrown = await self.chat_store.aarchive_messages(self.session_id, self._outgrown)
        if outgrown:
            await _all(
                [
                    block.aput(list(outgrown), from_short_term_memory=True, session_id=self.session_id)
                    for block in self.memory_blocks
                ]
            )

    # --- what is shown ------------------------------------------------------------------------------------------------

    @override
    async def aget(self, input: str | ChatMessage | None = None, **kwargs: Any) -> list[ChatMessage]:
        """Return the newest part of the conversation, with the knowledge of the blocks.

        Args:
            input: The user's question, for blocks that search.
            kwargs: Handed to the blocks.

        Raises:
            ValueError: A block gave something else than text, blocks or messages.
        """
        return await self._with_blocks(await self._conversation(), input, kwargs, None)

    async def _conversation(self) -> list[ChatMessage]:
        active = await self.aget_all(MessageStatus.ACTIVE)
        if self._outgrown(active):  # put there by a memory with more room
            async with self._turns.here():
                await self._flush()
            active = await self.aget_all(MessageStatus.ACTIVE)
        whole = without_orphans(active)
        # The call of a result was archived before the result came; without an archive the conversation stays as it is.
        if len(whole) < len(active) and await self.aget_all(MessageStatus.ARCHIVED):
            return whole
        return active

    async def _contents(
        self, conversation: list[ChatMessage], asked: str | ChatMessage | None, options: dict[str, Any]
    ) -> dict[str, BlockContent]:
        messages = list(conversation)
        question = ChatMessage(asked) if isinstance(asked, str) else asked
        # An agent asks with the message that it has put before; blocks are to see it once.
        asked_last = next((message for message in reversed(messages) if is_question(message)), None)
        if question is not None and (asked_last is None or asked_last.content != question.content):
            messages.append(question)
        options = {"session_id": self.session_id, **options}
        found = await _all([block.aget(list(messages), **options) for block in self.memory_blocks])
        contents: dict[str, BlockContent] = {}
        for block, content in zip(self.memory_blocks, found, strict=True):
            if content and not isinstance(content, str | list):
                raise ValueError(
                    f"Memory block {block.name} gave a {type(content).__name__}: give text, a list of blocks or a list "
                    "of messages"
                )
            if content:
                contents[block.name] = content
        return contents

    async def _cut_to_size(self, contents: dict[str, BlockContent], shown: int) -> dict[str, BlockContent]:
        """Shorten the content of blocks: first by ``atruncate``, then leave blocks out; lower priorities first."""
        tokens = {name: self._tokens(content) for name, content in contents.items()}
        excess = shown + sum(tokens.values()) - self.token_limit
        if excess <= 0:
            return contents
        # Cutting a little more with every message would change the cached beginning each time: cut messages that are
        # too much before the next flush.
        conversation = int(self.token_limit * self.chat_history_token_ratio)
        at_most = conversation + sum(tokens.values()) - self.token_limit
        excess = max(excess, min(at_most, -(-excess // self.token_flush_size) * self.token_flush_size))
        by_priority = sorted((block for block in self.memory_blocks if block.priority), key=lambda one: one.priority)
        kept = dict(contents)
        for block in by_priority:
            if excess > 0 and block.name in kept:
                shorter = await block.atruncate(kept[block.name], excess)
                excess -= tokens[block.name]
                tokens[block.name] = self._tokens(shorter) if shorter else 0
                excess += tokens[block.name]
                if shorter:
                    kept[block.name] = shorter
                else:
                    del kept[block.name]
        for block in by_priority:
            if excess > 0 and kept.pop(block.name, None) is not None:
                excess -= tokens[block.name]
        return kept


async def _all(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return the results of calls that run at the same time; raise an error when all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
