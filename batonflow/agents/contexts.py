"""What an agent's step of thinking needs of a context, and a context that is enough for it outside a run."""

from dataclasses import dataclass, field
from typing import Any

# The one of typing_extensions looks at an object without reading its properties, on every Python: to read some of a
# context's within a step is warned about.
from typing_extensions import Protocol, runtime_checkable

from batonflow.workflow_core.context import DictState, InMemoryStateStore

__all__ = ["AgentContext", "SimpleAgentContext"]


@runtime_checkable
class AgentContext(Protocol):
    """The part of a ``Context`` that ``take_step`` of an agent may rely on; ``isinstance`` can be asked.

    Example:
        >>> isinstance(SimpleAgentContext(), AgentContext)
        True
    """

    @property
    def store(self) -> InMemoryStateStore[Any]:
        """The key-value state."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether there is a run, which somebody may be streaming."""
        ...

    def write_event_to_stream(self, ev: Any) -> None:
        """Show an event to whoever streams the run."""
        ...


def _empty() -> InMemoryStateStore[DictState]:
    return InMemoryStateStore(DictState())


@dataclass(frozen=True)
class SimpleAgentContext:
    """A context without a run: it keeps state, and what is streamed goes nowhere.

    Args:
        store: The key-value state, empty at first.
        is_running: Whether there is a run; there is none.

    Example:
        >>> ctx = SimpleAgentContext()
        >>> output = await agent.take_step(ctx, [ChatMessage("What is 2 + 40?")], tools, memory)
    """

    store: InMemoryStateStore[Any] = field(default_factory=_empty)
    is_running: bool = False

    def write_event_to_stream(self, ev: Any) -> None:
        """Nobody streams: nothing happens."""
