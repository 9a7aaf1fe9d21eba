"""What a step sees: the context, its key-value state, and how both are written down."""

from typing import TYPE_CHECKING, Any

from batonflow.values import serializers as _serializers
from batonflow.values.serializers import BaseSerializer, JsonSerializer
from batonflow.workflow_core.context.context import Context, RetryInfo
from batonflow.workflow_core.context.state_store import DictState, InMemoryStateStore, StateStore

if TYPE_CHECKING:
    from batonflow.values.serializers import JsonPickleSerializer, PickleSerializer

__all__ = [
    "BaseSerializer",
    "Context",
    "DictState",
    "InMemoryStateStore",
    "JsonPickleSerializer",
    "JsonSerializer",
    "PickleSerializer",
    "RetryInfo",
    "StateStore",
]


def __getattr__(name: str) -> Any:
    return getattr(_serializers, name)
