"""Events that dispatchers report: the base class, and the events of spans, runs and steps.

Events of models, tools, agents and retrieval are in the submodules ``llm``, ``tool``, ``agent`` and ``retrieval``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow.instrumentation.events.base import BaseEvent, ExceptionEvent, SpanCancelledEvent, SpanDropEvent

if TYPE_CHECKING:
    from batonflow.instrumentation.events import agent as agent
    from batonflow.instrumentation.events import llm as llm
    from batonflow.instrumentation.events import retrieval as retrieval
    from batonflow.instrumentation.events import run as run
    from batonflow.instrumentation.events import tool as tool
    from batonflow.instrumentation.events.run import (
        RunEndEvent,
        RunStartEvent,
        StepEndEvent,
        StepStartEvent,
        WorkflowRunOutputEvent,
        WorkflowStepOutputEvent,
    )

__all__ = [
    "BaseEvent",
    "ExceptionEvent",
    "RunEndEvent",
    "RunStartEvent",
    "SpanCancelledEvent",
    "SpanDropEvent",
    "StepEndEvent",
    "StepStartEvent",
    "WorkflowRunOutputEvent",
    "WorkflowStepOutputEvent",
]

_MODULES = frozenset({"agent", "llm", "retrieval", "run", "tool"})


def __getattr__(name: str) -> Any:
    # A process without handlers never loads the event classes.
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in __all__:
        return getattr(import_module(f"{__name__}.run"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
