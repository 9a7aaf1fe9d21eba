"""Memories: the conversation of an agent, kept between turns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow._moved import module_at
from batonflow.agents.memory.base import BaseMemory
from batonflow.agents.memory.buffer import ChatMemoryBuffer
from batonflow.agents.memory.chat_store import ArchivingChatStore, BaseChatStore, MessageStatus, SimpleChatStore
from batonflow.agents.memory.store_memory import BaseChatStoreMemory
from batonflow.agents.memory.tokens import count_tokens

if TYPE_CHECKING:
    from batonflow.agents.memory.blocks import BaseMemoryBlock, InsertMethod, StaticMemoryBlock
    from batonflow.agents.memory.fact_block import FactExtractionMemoryBlock
    from batonflow.agents.memory.memory import Memory
    from batonflow.agents.memory.named_store import chat_store_at as chat_store_at
    from batonflow.agents.memory.postgres_store import PostgresChatStore
    from batonflow.agents.memory.sqlite_store import SQLiteChatStore
    from batonflow.agents.memory.summary import ChatSummaryMemoryBuffer
    from batonflow.agents.memory.vector_block import VectorMemoryBlock

__all__ = [
    "ArchivingChatStore",
    "BaseChatStore",
    "BaseChatStoreMemory",
    "BaseMemory",
    "BaseMemoryBlock",
    "ChatMemoryBuffer",
    "ChatSummaryMemoryBuffer",
    "FactExtractionMemoryBlock",
    "InsertMethod",
    "Memory",
    "MessageStatus",
    "PostgresChatStore",
    "SQLiteChatStore",
    "SimpleChatStore",
    "StaticMemoryBlock",
    "VectorMemoryBlock",
    "count_tokens",
]

# Parts that most agents do not need are loaded at first use.
_LAZY = {
    "BaseMemoryBlock": "blocks",
    "ChatSummaryMemoryBuffer": "summary",
    "FactExtractionMemoryBlock": "fact_block",
    "InsertMethod": "blocks",
    "Memory": "memory",
    "PostgresChatStore": "postgres_store",
    "SQLiteChatStore": "sqlite_store",
    "StaticMemoryBlock": "blocks",
    "VectorMemoryBlock": "vector_block",
    "chat_store_at": "named_store",
}

_NOT_OFFERED = {
    "VectorMemory": "it is deprecated where it comes from. Use Memory with a VectorMemoryBlock",
    "SQLAlchemyChatStore": "SQLiteChatStore keeps messages in a file, PostgresChatStore in a database. "
    "For another one derive from BaseChatStore, "
    "or from ArchivingChatStore for Memory",
    "SimpleComposableMemory": "it is deprecated where it comes from. Use Memory with memory_blocks",
}


def _load(name: str) -> Any:
    if name in _LAZY:
        found = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
        return found
    if name in _NOT_OFFERED:
        raise ImportError(f"{name} is not offered: {_NOT_OFFERED[name]}", name=f"{__name__}.{name}")
    return module_at(__name__, name)


if not TYPE_CHECKING:  # checkers would take every name
    __getattr__ = _load
