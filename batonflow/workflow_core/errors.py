"""The errors that are batonflow's own, under one root.

::

    BatonflowError
    ├── WorkflowValidationError            the workflow's steps or options do not fit together
    │   └── WorkflowConfigurationError     ... already seen when the workflow is built
    ├── WorkflowRuntimeError               a step or a caller did something a run cannot accept
    │   ├── NoRunningLoopError (RuntimeError)  run() was called outside an event loop
    │   ├── NotInitializedError (AttributeError)  a constructor did not call that of its base class
    │   ├── StepCancelledError             a step raised CancelledError by itself
    │   ├── UnknownOutcomeError            nobody knows whether an effect happened: its process ended in the middle
    │   └── WorkflowStalledError           a run that can no longer move (on_stall="raise")
    ├── WorkflowTimeoutError               a run took longer than its timeout
    ├── StepTimeoutError (TimeoutError)    an attempt of a step took longer than its timeout
    ├── WorkflowDone                       there is nothing left to do
    ├── WorkflowCancelledByUser            the run was cancelled through its handler
    ├── WorkflowStepDoesNotExistError      no step of that name
    ├── ContextSerdeError                  a snapshot cannot be written or read
    ├── ContextStateError                  a Context was used in a place where it cannot do that
    ├── InputClosedError (RuntimeError)    an answer to a question that is not open
    ├── InputResponseError (ValueError)    an answer that is not what the question asks for
    ├── ServerConfigurationError (ValueError)  a WorkflowServer would be open to others, or cannot be what it is asked
    ├── ServerRefusedError                 a WorkflowServer answered with an error
    ├── RemoteRunError                     a run on a WorkflowServer failed
    └── StoreError                         a run store refuses
        ├── ReplayIncompatible             code and records of a run do not fit any more
        ├── RunInputMismatchError          the run id was started before with other input
        ├── RunInterruptedError            a run of a store stopped in this process and can be resumed
        ├── RunInUseError (RuntimeError)   another live process drives the run
        ├── RunLostError                   another process has taken the run over
        └── StoreCorruptedError            what was stored is damaged

Under the same root stand the errors of models (``LLMError``), of tools (``ToolError``), of budgets
(``BudgetExceededError``) and of approvals (``ApprovalUsedError``): ``except BatonflowError`` catches them all. Where a
builtin type stands in parentheses, the error is one of those too.

Not under it: wrong arguments raise Python's own ``TypeError`` and ``ValueError``, a function called where it cannot
work ``RuntimeError``, as mistakes in a program do elsewhere. What users' steps, tools and hooks raise stays what it is.

Beside the tree stands one warning, ``StateOutsideContextWarning``, a ``UserWarning``.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

__all__ = [
    "BatonflowError",
    "ContextSerdeError",
    "ContextStateError",
    "InputClosedError",
    "InputResponseError",
    "NoRunningLoopError",
    "NotInitializedError",
    "RemoteRunError",
    "ReplayIncompatible",
    "RunInUseError",
    "RunInputMismatchError",
    "RunInterruptedError",
    "RunLostError",
    "ServerConfigurationError",
    "ServerRefusedError",
    "StateOutsideContextWarning",
    "StepCancelledError",
    "StepTimeoutError",
    "StoreCorruptedError",
    "StoreError",
    "UnknownOutcomeError",
    "WorkflowCancelledByUser",
    "WorkflowConfigurationError",
    "WorkflowDone",
    "WorkflowRuntimeError",
    "WorkflowStalledError",
    "WorkflowStepDoesNotExistError",
    "WorkflowTimeoutError",
    "WorkflowValidationError",
]


class BatonflowError(Exception):
    """The root of batonflow's own errors; wrong arguments raise Python's ``TypeError`` and ``ValueError`` instead."""

    # Attributes that records and snapshots keep beside the text, with their types; so an error comes back whole.
    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {}


class WorkflowValidationError(BatonflowError):
    """The steps or the options of a workflow do not fit together; the message names class, step, event and remedy."""


class WorkflowConfigurationError(WorkflowValidationError):
    """A workflow cannot even be built: no start step, no stop step, or several classes of either."""


class WorkflowRuntimeError(BatonflowError):
    """A step or a caller did something that a run cannot accept."""


class NotInitializedError(WorkflowRuntimeError, AttributeError):
    """A constructor did not call that of its base class.

    Args:
        cls: The class of the object.
        given: What the constructor of the base class takes.
    """

    def __init__(self, cls: type, given: str) -> None:
        at_fault = next(one for one in cls.__mro__ if "__init__" in vars(one))
        super().__init__(f"{at_fault.__name__}.__init__() did not call super().__init__(): call it first, with {given}")


class NoRunningLoopError(WorkflowRuntimeError, RuntimeError):
    """``run()`` was called outside a running event loop; ``run_sync()`` brings its own."""


class StepCancelledError(WorkflowRuntimeError):
    """A step raised ``CancelledError`` by itself; the cancellation is kept as ``__cause__``."""


class WorkflowStalledError(WorkflowRuntimeError):
    """Nothing runs, is queued, timed or awaited any more, and the workflow was built with ``on_stall="raise"``."""


class WorkflowTimeoutError(BatonflowError):
    """A run took longer than the workflow's ``timeout``."""


class StepTimeoutError(BatonflowError, TimeoutError):
    """One attempt of a step took longer than its ``@step(timeout=...)``; counts as a failure of that attempt."""


class WorkflowDone(BatonflowError):
    """There is nothing left to do."""


class WorkflowCancelledByUser(BatonflowError):
    """The run was cancelled with ``handler.cancel_run()``."""


class WorkflowStepDoesNotExistError(BatonflowError):
    """No step of that name exists in the workflow."""


class ContextSerdeError(BatonflowError):
    """A snapshot of a run cannot be written, or a payload is not one that can be read."""


class ContextStateError(BatonflowError):
    """A member of ``Context`` was used where it has no meaning: before a run, outside a step, or inside one."""


class UnknownOutcomeError(WorkflowRuntimeError):
    """An effect was begun by a process that ended before it could say how it went.

    Args:
        message: What is unknown.
        times: How often it was begun, by one such process after another.
    """

    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {"times": int}

    def __init__(self, message: str, times: int = 1) -> None:
        super().__init__(message)
        self.times = times


class InputClosedError(BatonflowError, RuntimeError):
    """A question to a person is closed: it has an answer already, or the run no longer waits for one."""


class InputResponseError(BatonflowError, ValueError):
    """An answer does not fit its question; the message names the event and its fields."""


class StateOutsideContextWarning(UserWarning):
    """A step changed an attribute of its workflow, or a copy of the state: nothing keeps that with the run."""


class StoreError(BatonflowError):
    """A run store refuses an operation."""


class RunInputMismatchError(StoreError):
    """A run id was used before with a different start event."""


class RunInUseError(StoreError, RuntimeError):
    """Another live process drives the run.

    Args:
        run_id: The run.
        owner: How the store names that process.
        since: When it took the run, in wall-clock seconds.
    """

    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {"owner": str, "since": float}

    def __init__(self, run_id: str, owner: str, since: float) -> None:
        super().__init__(
            f"Run {run_id!r} is driven by another process (owner {owner}) since "
            f"{datetime.fromtimestamp(since, UTC).isoformat(timespec='seconds')}: wait for it there, or read it from "
            "the store"
        )
        self.owner = owner
        self.since = since


class RunInterruptedError(StoreError):
    """A run that a store keeps stopped in this process before its end; it can be resumed."""


class RunLostError(StoreError):
    """Another process has taken the run over, as this one gave no sign of life for longer than its lease."""


class ReplayIncompatible(StoreError):
    """The code of a workflow does not fit the records of a run any more; the message names the step or class."""


class StoreCorruptedError(StoreError):
    """Stored data is damaged; the message names the file, or the run and its commit."""


class ServerConfigurationError(BatonflowError, ValueError):
    """The arguments of a WorkflowServer cannot hold; the message says what to change."""


class ServerRefusedError(BatonflowError):
    """A WorkflowServer answered with an error.

    Attributes:
        status_code: The HTTP status.
        detail: What the server said.
        path: What was asked for.
    """

    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {"status_code": int, "detail": Any, "path": str}

    def __init__(self, status_code: int, detail: object, path: str) -> None:
        super().__init__(f"The server answered {status_code} to {path}: {detail}")
        self.status_code = status_code
        self.detail = detail
        self.path = path


class RemoteRunError(BatonflowError):
    """A run on a WorkflowServer failed.

    Attributes:
        run_id: The run.
        error_type: Class of the error that ended it.
        message: Its text.
    """

    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {"run_id": str, "error_type": str, "message": str}

    def __init__(self, run_id: str, error_type: str, message: str) -> None:
        super().__init__(f"Run {run_id!r} failed with {error_type or 'an error'}: {message}")
        self.run_id = run_id
        self.error_type = error_type
        self.message = message
