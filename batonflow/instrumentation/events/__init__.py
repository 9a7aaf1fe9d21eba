"""What dispatchers report: the base class, and the events of spans, runs and steps.

Events of models, tools, agents and retrieval are in the submodules ``llm``, ``tool``, ``agent`` and ``retrieval``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow.instrumentation.events.base import BaseEvent

if TYPE_CHECKING:
    from batonflow.instrumentation.events.run import (
        RunEndEvent,
        RunStartEvent,
        StepEndEvent,
        StepStartEvent,
        WorkflowRunOutputEvent,
        WorkflowStepOutputEvent,
    )
    from batonflow.instrumentation.events.span import SpanCancelledEvent, SpanDropEvent

__all__ = [
    "BaseEvent",
    "RunEndEvent",
    "RunStartEvent",
    "SpanCancelledEvent",
    "SpanDropEvent",
    "StepEndEvent",
    "StepStartEvent",
    "WorkflowRunOutputEvent",
    "WorkflowStepOutputEvent",
]


def __getattr__(name: str) -> Any:
    # Nobody needs the events of runs and spans before there is somebody to tell.
    if name in __all__:
        module = "span" if name.startswith("Span") else "run"
        found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
