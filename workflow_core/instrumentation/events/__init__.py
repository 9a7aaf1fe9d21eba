"""What dispatchers report: the base class, and the events of spans, runs and steps.

Events of models, tools, agents and retrieval are in the submodules ``llm``, ``tool``, ``agent`` and ``retrieval``.
"""

from batonflow.workflow_core.instrumentation.events.base import BaseEvent
from batonflow.workflow_core.instrumentation.events.run import (
    RunEndEvent,
    RunStartEvent,
    StepEndEvent,
    StepStartEvent,
    WorkflowRunOutputEvent,
    WorkflowStepOutputEvent,
)
from batonflow.workflow_core.instrumentation.events.span import SpanCancelledEvent, SpanDropEvent

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
