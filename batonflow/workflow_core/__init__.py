"""The workflow engine: events, steps, context, runs. Import from here, or from the modules of each concept."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow._moved import module_at
from batonflow.resources import Resource, ResourceConfig, ResourceManager
from batonflow.values.serializers import JsonSerializer
from batonflow.values.types import RetryInfo
from batonflow.workflow_core.collect import All, Cardinality, Collect, Take
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.errors import (
    BatonflowError,
    ContextSerdeError,
    ContextStateError,
    DepsMissingError,
    InputClosedError,
    InputResponseError,
    ReplayIncompatible,
    RunInputMismatchError,
    RunInterruptedError,
    RunInUseError,
    RunLostError,
    StateOutsideContextWarning,
    StepCancelledError,
    StepTimeoutError,
    StoreCorruptedError,
    StoreError,
    UnknownOutcomeError,
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
    DictState,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    StreamResetEvent,
    UnhandledEvent,
    WorkflowCancelledEvent,
    WorkflowFailedEvent,
    WorkflowTimedOutEvent,
)
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.step import catch_error, step
from batonflow.workflow_core.stream import StreamItem
from batonflow.workflow_core.workflow import Workflow

if TYPE_CHECKING:
    from batonflow.durable.replay import ReplayedRun, RunDiff
    from batonflow.durable.store_protocol import RunInfo, RunStore
    from batonflow.durable.stores.memory import MemoryStore
    from batonflow.durable.stores.postgres import PostgresStore
    from batonflow.durable.stores.sqlite import SQLiteStore
    from batonflow.values import JsonPickleSerializer, PickleSerializer
    from batonflow.workflow_core.inputs import InputRequest
    from batonflow.workflow_core.map_results import MapError, Progress, StepProgress

__all__ = [
    "All",
    "BatonflowError",
    "Cardinality",
    "Collect",
    "Context",
    "ContextSerdeError",
    "ContextStateError",
    "DepsMissingError",
    "DictState",
    "Event",
    "HumanResponseEvent",
    "InputClosedError",
    "InputRequest",
    "InputRequiredEvent",
    "InputResponseError",
    "JsonPickleSerializer",
    "JsonSerializer",
    "MapError",
    "MemoryStore",
    "PickleSerializer",
    "PostgresStore",
    "Progress",
    "ReplayIncompatible",
    "ReplayedRun",
    "Resource",
    "ResourceConfig",
    "ResourceManager",
    "RetryInfo",
    "RunDiff",
    "RunInUseError",
    "RunInfo",
    "RunInputMismatchError",
    "RunInterruptedError",
    "RunLostError",
    "RunStore",
    "SQLiteStore",
    "StartEvent",
    "StateOutsideContextWarning",
    "StepCancelledError",
    "StepFailedEvent",
    "StepProgress",
    "StepTimeoutError",
    "StopEvent",
    "StoreCorruptedError",
    "StoreError",
    "StreamItem",
    "StreamResetEvent",
    "Take",
    "UnhandledEvent",
    "UnknownOutcomeError",
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


# Stores and their data are loaded at first use: most processes keep no runs.
_HOME_OF = {
    "InputRequest": "workflow_core.inputs",
    "JsonPickleSerializer": "values",
    "PickleSerializer": "values",
    "MapError": "workflow_core.map_results",
    "MemoryStore": "durable.stores.memory",
    "Progress": "workflow_core.map_results",
    "StepProgress": "workflow_core.map_results",
    "ReplayedRun": "durable.replay",
    "RunDiff": "durable.replay",
    "RunInfo": "durable.store_protocol",
    "RunStore": "durable.store_protocol",
    "SQLiteStore": "durable.stores.sqlite",
    "PostgresStore": "durable.stores.postgres",
}


def _load(name: str) -> Any:
    if name in _HOME_OF:
        value = globals()[name] = getattr(import_module(f"batonflow.{_HOME_OF[name]}"), name)
        return value
    return module_at(__name__, name)


if not TYPE_CHECKING:  # checkers would take every name
    __getattr__ = _load
