"""Parts of a memory as data: chat stores and blocks, with the names of their classes."""

from os import PathLike
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from batonflow.agents import memory
from batonflow.agents.memory.chat_store import ArchivingChatStore, BaseChatStore, SimpleChatStore
from batonflow.values.names import loaded_class, qualified_name

__all__ = ["archiving", "dumped", "loaded", "of_the_same_kind", "opened"]

_T = TypeVar("_T", bound=BaseModel)

CLASS = "class_name"


def dumped(part: BaseModel, data: dict[str, Any]) -> dict[str, Any]:
    """``data`` of a part together with the name of its class."""
    return {CLASS: qualified_name(type(part)), **data}


def loaded(base: type[_T], value: Any) -> Any:
    """The part that ``dumped`` wrote; any other value as it is.

    Raises:
        ValueError: The name is not that of a subclass of ``base`` that is loaded; nothing is imported for it.
    """
    data: dict[str, Any] = dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else {}
    if CLASS not in data:
        return cast("Any", value)
    name = data.pop(CLASS)
    loaded_class(name)  # a module of ours may be one that is loaded when it is named
    known = _subclasses(base)
    # LlamaIndex writes the class's own name, without its module.
    found = [cls for cls in known if qualified_name(cls) == name] or [cls for cls in known if _called(cls) == name]
    if not found:
        raise ValueError(f"The data name {name}, which is no {base.__name__} that is loaded: import its module first")
    # Of several classes that a function made under one name, the newest.
    return found[-1].model_validate(data)


def of_the_same_kind(part: _T, *left_out: str, **other: Any) -> _T:
    """Return another part with the same fields, except for ``left_out`` ones and other values."""
    kept = {name: getattr(part, name) for name in type(part).model_fields if name not in left_out}
    return type(part)(**{**kept, **other})


def opened(value: Any) -> Any:
    """Return a chat store for a store, its data, a path or an address; None and ``"memory:"`` keep in memory.

    Raises:
        ValueError: The address is not SQLite's, or the data name no loaded store.
    """
    if value is None or value == "memory:":
        return SimpleChatStore()
    if isinstance(value, str | PathLike):
        return memory.SQLiteChatStore(cast("str | PathLike[str]", value))
    return loaded(BaseChatStore, value)


def archiving(value: Any) -> ArchivingChatStore:
    """The chat store that is meant, which must be able to archive.

    Raises:
        ValueError: It is not, or no store is meant at all.
    """
    store = opened(value)
    if not isinstance(store, ArchivingChatStore):
        raise ValueError(
            f"Memory needs a chat store that can archive messages, and {type(store).__name__} cannot: give a path, a "
            "SQLiteChatStore or a SimpleChatStore, or derive yours from ArchivingChatStore"
        )
    return store


def _called(cls: Any) -> Any:
    return cls.class_name() if hasattr(cls, "class_name") else cls.__name__


def _subclasses(base: type[_T]) -> list[type[_T]]:
    found: list[type[_T]] = []
    for cls in base.__subclasses__():
        found += [cls, *_subclasses(cls)]
    return found
