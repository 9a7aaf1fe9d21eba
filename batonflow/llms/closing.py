"""Ends what is iterated when whoever iterates leaves."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

__all__ = ["closed_after"]

_T = TypeVar("_T")


@asynccontextmanager
async def closed_after(items: AsyncIterator[_T]) -> AsyncGenerator[AsyncIterator[_T], None]:
    """Close ``items`` at the end of the block, so that a connection behind it is closed then and not some time later.

    Not every override of a streaming method returns a real generator; what it returns need not be closable.
    """
    try:
        yield items
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
