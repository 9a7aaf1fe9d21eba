"""Gates: whoever answers for what models cost is asked before a request is sent, and told what it took."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from batonflow.llms.messages import ChatResponse
from batonflow.llms.stream import ChatRequest

__all__ = ["Gate", "Settle", "behind", "gates"]

Settle = Callable[[ChatResponse | None], None]
"""Is told the last piece of the answer, None when none came."""

Gate = Callable[[Any, ChatRequest], Settle]
"""Gets the model and the request, and raises when the request may not be sent."""

_gates: ContextVar[tuple[Gate, ...]] = ContextVar("batonflow_gates", default=())


def gates() -> tuple[Gate, ...]:
    """The gates in front of a request that is made here, the outermost first."""
    return _gates.get()


@contextmanager
def behind(*added: Gate, instead: bool = False) -> Generator[None, None, None]:
    """Put gates in front of every model that is asked inside the block, in tasks and runs started there too.

    Counted are models whose adapter is written with ``_stream``, as all of ours are.

    Args:
        added: The gates.
        instead: Whether those around the block stand open.
    """
    token = _gates.set(added if instead else (*_gates.get(), *added))
    try:
        yield
    finally:
        _gates.reset(token)
