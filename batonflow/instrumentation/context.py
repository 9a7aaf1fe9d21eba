"""Context of tracing: the active span's id, the active tags, and times and ids of events and spans.

Tasks and ``asyncio.to_thread`` inherit both. A plain ``threading.Thread`` does not: pass it
``contextvars.copy_context().run`` as its target to keep the parent.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import datetime
from typing import Any

from batonflow.clock import current_source

__all__ = [
    "active_instrument_tags", "active_span_id", "instrument_tags", "local_now", "model_caller", "model_calls",
    "new_id", "replace_call", "undo",
]  # fmt: skip

active_span_id: ContextVar[str | None] = ContextVar("active_span_id", default=None)
"""The id of the span that encloses the running code, or None."""

model_calls: ContextVar[Callable[[Any], None] | None] = ContextVar("batonflow_model_calls", default=None)
"""A function that records a call of a model for the running step. None if calls are not recorded."""

model_caller: ContextVar[tuple[str, str]] = ContextVar("batonflow_model_caller", default=("", ""))
"""The agent that asks models here, and the purpose of its calls; empty outside of agents."""

replace_call: ContextVar[Callable[..., Callable[..., Any]] | None] = ContextVar("batonflow_replace_call", default=None)
"""Returns a replacement for a function of ``ctx.once`` or ``ctx.effect``. None if each is called itself.

Its arguments are the run, the delivery, the key, the intent of an effect or None, and the function.
"""

# The default is None and not a dict: one dict shared by all contexts could be changed by accident.
_tags: ContextVar[Mapping[str, Any] | None] = ContextVar("instrument_tags", default=None)


class _ActiveTags:
    """Access to the active tags with the interface of a ``ContextVar``."""

    def get(self) -> dict[str, Any]:
        """Return a copy of the active tags."""
        return dict(_tags.get() or {})

    def set(self, tags: Mapping[str, Any]) -> Token[Mapping[str, Any] | None]:
        """Replace the active tags; return the token for :meth:`reset`."""
        return _tags.set(tags)

    def reset(self, token: Token[Mapping[str, Any] | None]) -> None:
        """Undo a :meth:`set`."""
        _tags.reset(token)


active_instrument_tags = _ActiveTags()
"""The active tags: ``active_instrument_tags.get()``."""


@contextmanager
def instrument_tags(new_tags: Mapping[str, Any]) -> Generator[None, None, None]:
    """Add tags to every span and event inside the block, in place of the outer block's tags.

    Args:
        new_tags: Names and values; the values should be JSON data, because exporters write them.

    Example:
        >>> with instrument_tags({"tenant": "acme"}):
        ...     dispatcher.event(MyEvent())
    """
    token = _tags.set(new_tags)
    try:
        yield
    finally:
        _tags.reset(token)


def undo(token: Token[Any]) -> None:
    """Restore the value that a variable had before ``token``."""
    try:
        token.var.reset(token)
    except ValueError:
        # The garbage collector closes an abandoned coroutine or generator in an unrelated context. The context of the
        # token is gone then, so there is nothing to restore.
        return


def local_now() -> datetime:
    """Return the local time without a zone: handlers written for LlamaIndex compare it with ``datetime.now()``."""
    return datetime.fromtimestamp(current_source().now())  # noqa: DTZ006


def new_id() -> str:
    """Return a new id for an event or a span."""
    return current_source().token(20)
