"""Executors: sandboxes that run a model's code turn by turn. A run can be saved between turns."""

from batonflow.tools.code.base import (
    Calls,
    Done,
    Executor,
    ExecutorError,
    ExecutorStateError,
    Failed,
    FailureKind,
    HostCall,
    Limits,
    Problem,
    SandboxUnavailableError,
    Session,
    SnapshotError,
    SnapshotMismatchError,
    SnapshotSignatureError,
    Turn,
    Waiting,
)
from batonflow.tools.code.bubblewrap import BubblewrapExecutor
from batonflow.tools.code.default import default_executor
from batonflow.tools.code.functions import declarations
from batonflow.tools.code.monty import MontyExecutor
from batonflow.tools.code.signing import key_beside
from batonflow.tools.code.unsafe import UnsafeLocalExecutor

__all__ = [
    "BubblewrapExecutor",
    "Calls",
    "Done",
    "Executor",
    "ExecutorError",
    "ExecutorStateError",
    "Failed",
    "FailureKind",
    "HostCall",
    "Limits",
    "MontyExecutor",
    "Problem",
    "SandboxUnavailableError",
    "Session",
    "SnapshotError",
    "SnapshotMismatchError",
    "SnapshotSignatureError",
    "Turn",
    "UnsafeLocalExecutor",
    "Waiting",
    "declarations",
    "default_executor",
    "key_beside",
]
