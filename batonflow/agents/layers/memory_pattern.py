"""The memory of a run, made after the pattern that its agent was given."""

from typing import Any, cast

from batonflow.agents.memory import BaseMemory
from batonflow.agents.memory.chat_store import SimpleChatStore

__all__ = ["fresh_memory", "knowledge_of", "memory_like", "pattern_of"]

_APART = {"chat_store", "session_id"}


def pattern_of(agent: Any) -> BaseMemory | None:
    """Return the memory that is the pattern of an agent's runs and sessions."""
    found = getattr(agent, "memory", None)  # a subclass may have a field of its own with this name
    return found if isinstance(found, BaseMemory) else None


def fresh_memory(agent: Any) -> BaseMemory | None:
    """Return an empty memory like the pattern; None without one."""
    pattern = pattern_of(agent)
    return None if pattern is None else memory_like(pattern)


def memory_like(pattern: BaseMemory, known: dict[str, Any] | None = None, session: str | None = None) -> BaseMemory:
    """Return a memory without messages like the pattern.

    Args:
        pattern: The pattern.
        known: The knowledge of the memory, from ``knowledge_of``; that of the pattern when left out.
        session: The name of the session.
    """
    fields = type(pattern).model_fields
    data = knowledge_of(pattern) if known is None else dict(known)
    if "chat_store" in fields:
        data["chat_store"] = SimpleChatStore()
    if "session_id" in fields and session is not None:
        data["session_id"] = session
    made: Any = type(pattern).model_validate(data)
    _share(made, pattern)
    blocks = {block.name: block for block in getattr(pattern, "memory_blocks", ())}
    for block in getattr(made, "memory_blocks", ()):
        if block.name in blocks:
            _share(block, blocks[block.name])
    return made


def _share(made: Any, pattern: Any) -> None:
    """Give a memory or block the parts of the pattern that are not data, such as its model."""
    for name, field in cast("dict[str, Any]", pattern.__class__.model_fields).items():
        if field.exclude and getattr(pattern, name, None) is not None:
            setattr(made, name, getattr(pattern, name))


def knowledge_of(memory: BaseMemory) -> dict[str, Any]:
    """Return a memory as data, without its messages."""
    return memory.model_dump(mode="json", exclude=_APART)
