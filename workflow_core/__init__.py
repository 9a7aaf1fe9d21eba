"""The workflow engine: events, steps, context, runs. Import from here, or from the modules of each concept."""

from typing import TYPE_CHECKING, Any

from batonflow.workflow_core import context as _context
from batonflow.workflow_core.collect import All, Cardinality, Collect, Take
from batonflow.workflow_core.context import Context, DictState, JsonSerializer, RetryInfo
from batonflow.workflow_core.decorators import catch_error, step
from batonflow.workflow_core.errors import (
    BatonflowError,
    ContextSerdeError,
    ContextStateError,
    InputClosedError,
    InputResponseError,
    StepCancelledError,
    StepTimeoutError,
    WorkflowCancelledByUser,
    WorkflowConfigurationError,
    WorkflowDone,
    WorkflowRuntimeError,
    WorkflowStalledError,
    WorkflowStepDoesNotExistError,
    WorkflowTimeoutError,
    WorkflowValidationError,
)
from batonflow.workflow_core.events import (
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    UnhandledEvent,
    WorkflowCancelledEvent,
    WorkflowFailedEvent,
    WorkflowTimedOutEvent,
)
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.inputs import InputRequest
from batonflow.workflow_core.resource import Resource, ResourceConfig, ResourceManager
from batonflow.workflow_core.stream import StreamItem
from batonflow.workflow_core.workflow import Workflow

if TYPE_CHECKING:
    from batonflow.workflow_core.context import JsonPickleSerializer, PickleSerializer

__all__ = [
    "All",
    "BatonflowError",
    "Cardinality",
    "Collect",
    "Context",
    "ContextSerdeError",
    "ContextStateError",
    "DictState",
    "Event",
    "HumanResponseEvent",
    "InputClosedError",
    "InputRequest",
    "InputRequiredEvent",
    "InputResponseError",
    "JsonPickleSerializer",
    "JsonSerializer",
    "PickleSerializer",
    "Resource",
    "ResourceConfig",
    "ResourceManager",
    "RetryInfo",
    "StartEvent",
    "StepCancelledError",
    "StepFailedEvent",
    "StepTimeoutError",
    "StopEvent",
    "StreamItem",
    "Take",
    "UnhandledEvent",
    "Workflow",
    "WorkflowCancelledByUser",
    "WorkflowCancelledEvent",
    "WorkflowConfigurationError",
    "WorkflowDone",
    "WorkflowFailedEvent",
    "WorkflowHandler",
    "WorkflowRuntimeError",
    "WorkflowStalledError",
    "WorkflowStepDoesNotExistError",
    "WorkflowTimedOutEvent",
    "WorkflowTimeoutError",
    "WorkflowValidationError",
    "catch_error",
    "step",
]


def __getattr__(name: str) -> Any:
    # The pickle serializer is loaded only when asked for by name.
    if name in ("PickleSerializer", "JsonPickleSerializer"):
        return getattr(_context, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
