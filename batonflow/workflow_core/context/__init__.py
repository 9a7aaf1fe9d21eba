"""The context of a step, its key-value state, and snapshots of both."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow._moved import module_at

if TYPE_CHECKING:
    from batonflow.values import BaseSerializer, JsonPickleSerializer, JsonSerializer, PickleSerializer
    from batonflow.values.types import RetryInfo
    from batonflow.workflow_core.context.context import Context, RunContext
    from batonflow.workflow_core.context.state_store import InMemoryStateStore, StateStore
    from batonflow.workflow_core.events import DictState

__all__ = [
    "BaseSerializer",
    "Context",
    "DictState",
    "InMemoryStateStore",
    "JsonPickleSerializer",
    "JsonSerializer",
    "PickleSerializer",
    "RetryInfo",
    "RunContext",
    "StateStore",
]

_HOMES = {
    "BaseSerializer": "batonflow.values.serializers",
    "Context": "batonflow.workflow_core.context.context",
    "DictState": "batonflow.workflow_core.events",
    "InMemoryStateStore": "batonflow.workflow_core.context.state_store",
    "JsonPickleSerializer": "batonflow.values",
    "JsonSerializer": "batonflow.values.serializers",
    "PickleSerializer": "batonflow.values",
    "RetryInfo": "batonflow.values.types",
    "RunContext": "batonflow.workflow_core.context.context",
    "StateStore": "batonflow.workflow_core.context.state_store",
}

_PARTS = {
    "child_runs": "batonflow.workflow_core.child_runs",
    "collecting": "batonflow.workflow_core.context.collecting",
    "dependencies": "batonflow.workflow_core.dependencies",
    "inputs": "batonflow.workflow_core.inputs",
    "once": "batonflow.workflow_core.context.once",
    "questions": "batonflow.workflow_core.questions",
    "state_lock": "batonflow.state_lock",
}
"""Parts of a run that most runs do not need."""


def __getattr__(name: str) -> Any:
    # The engine lies between the modules of this package, so each module is loaded at first use.
    if name in _PARTS:
        part = globals()[name] = import_module(_PARTS[name])
        return part
    if name not in _HOMES:
        return module_at(__name__, name)
    return getattr(import_module(_HOMES[name]), name)
