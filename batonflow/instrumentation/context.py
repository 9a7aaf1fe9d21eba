"""What travels with the running code: the id of the enclosing span, and the tags it is given.

Both are context variables, so tasks and ``asyncio.to_thread`` inherit them. A plain ``threading.Thread`` does not; give
it ``contextvars.copy_context().run`` as its target to keep the parent.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any

__all__ = ["active_instrument_tags", "active_span_id", "instrument_tags", "undo"]

active_span_id: ContextVar[str | None] = ContextVar("active_span_id", default=None)
"""The id of the span that encloses the running code, or None."""

# None rather than an empty dict as the default: one dict shared by every context could be changed by accident.
_tags: ContextVar[Mapping[str, Any] | None] = ContextVar("instrument_tags", default=None)


class _ActiveTags:
    """Read access to the active tags with the shape of a ``ContextVar``."""

    def get(self) -> dict[str, Any]:
        """A copy of the tags that spans and events made here and now receive."""
        return dict(_tags.get() or {})

    def set(self, tags: Mapping[str, Any]) -> Token[Mapping[str, Any] | None]:
        """Replace the tags of the running context; returns the token for :meth:`reset`."""
        return _tags.set(tags)

    def reset(self, token: Token[Mapping[str, Any] | None]) -> None:
        """Undo one :meth:`set`."""
        _tags.reset(token)


active_instrument_tags = _ActiveTags()
"""The tags in force: ``active_instrument_tags.get()``."""


@contextmanager
def instrument_tags(new_tags: Mapping[str, Any]) -> Generator[None, None, None]:
    """Give every span and event made inside the block these tags (in place of those of an outer block).

    Args:
        new_tags: Names and values; values should be JSON-able, because exporters write them.

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
    """Give a variable the value that it had before ``token``."""
    try:
        token.var.reset(token)
    except ValueError:
        # The garbage collector closes an abandoned coroutine or generator in whatever context it happens to run; the
        # context that the token belongs to is gone, so there is nothing left to restore.
        return
