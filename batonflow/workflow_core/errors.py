"""The errors of batonflow, with one root class.

::

    BatonflowError
    ├── WorkflowValidationError            the workflow's steps or options do not fit together
    │   └── WorkflowConfigurationError     ... and it is seen when the workflow is built
    ├── WorkflowRuntimeError               a step or a caller did something that a run does not allow
    │   ├── NoRunningLoopError (RuntimeError)  run() was called outside an event loop
    │   ├── NotInitializedError (AttributeError)  a constructor did not call super().__init__()
    │   ├── StepCancelledError             a step raised CancelledError by itself
    │   ├── UnknownOutcomeError            a process ended in the middle of an effect
    │   └── WorkflowStalledError           a run has nothing left to do (on_stall="raise")
    ├── WorkflowTimeoutError               a run took longer than its timeout
    ├── StepTimeoutError (TimeoutError)    an attempt of a step took longer than its timeout
    ├── WorkflowDone                       a stepwise run has nothing left to do
    ├── WorkflowCancelledByUser            the run was cancelled through its handler
    ├── WorkflowStepDoesNotExistError      the workflow has no step of that name
    ├── ContextSerdeError                  a snapshot cannot be written or read
    ├── ContextStateError                  a member of Context was used in the wrong place
    ├── DepsMissingError (RuntimeError)    a run was started without its dependencies
    ├── InputClosedError (RuntimeError)    an answer was given to a question that is not open
    ├── InputResponseError (ValueError)    an answer does not fit its question
    ├── ServerConfigurationError (ValueError)  the arguments of a WorkflowServer contradict each other or are unsafe
    ├── ServerRefusedError                 a WorkflowServer answered with an error
    ├── RemoteRunError                     a run on a WorkflowServer failed
    └── StoreError                         a run store refuses an operation
        ├── ReplayIncompatible             the code no longer fits the records of a run
        ├── RunInputMismatchError          the run id was used before with different input
        ├── RunInterruptedError            a stored run stopped in this process and can be resumed
        ├── RunInUseError (RuntimeError)   another live process drives the run
        ├── RunLostError                   another process has taken over the run
        └── StoreCorruptedError            stored data is damaged

The errors of models (``LLMError``), of tools (``ToolError``), of budgets
(``BudgetExceededError``) and of approvals (``ApprovalUsedError``) have the same root: ``except BatonflowError``
catches them all. A class in parentheses is a second base class.

Mistakes in a program raise Python's own errors. Wrong arguments raise ``TypeError`` or ``ValueError``; a call in the
wrong place raises ``RuntimeError``. Exceptions from users' steps, tools and hooks are not wrapped.

There is one warning, ``StateOutsideContextWarning``, a subclass of ``UserWarning``.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

__all__ = [
    "BatonflowError",
    "ContextSerdeError",
    "ContextStateError",
    "DepsMissingError",
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
    """The root of batonflow's errors; wrong arguments raise ``TypeError`` or ``ValueError`` instead."""

    # The attributes, by name and type, that records and snapshots keep in addition to the message.
    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, vars(self))


def _restored(cls: type[BatonflowError], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> BatonflowError:
    """Create an unpickled error without calling ``__init__``, whose parameters may differ from ``args``."""
    error = cls.__new__(cls, *args)
    error.args = args
    vars(error).update(attributes)
    return error


class WorkflowValidationError(BatonflowError):
    """The steps or options of a workflow do not fit together. The message names the class, step, event and remedy."""


class WorkflowConfigurationError(WorkflowValidationError):
    """A workflow cannot be built: it has no start or stop event, or several classes of either."""


class WorkflowRuntimeError(BatonflowError):
    """A step or a caller did something that a run does not allow."""


class NotInitializedError(WorkflowRuntimeError, AttributeError):
    """A constructor did not call the constructor of its base class.

    Args:
        cls: The class of the object.
        given: A description of the values that the base class sets.
    """

    def __init__(self, cls: type, given: str) -> None:
        at_fault = next(one for one in cls.__mro__ if "__init__" in vars(one))
        super().__init__(f"{at_fault.__name__}.__init__() did not call super().__init__(): call it first, with {given}")


class DepsMissingError(BatonflowError, RuntimeError):
    """A run was started without the dependencies that it needs; no step has run."""


class NoRunningLoopError(WorkflowRuntimeError, RuntimeError):
    """``run()`` was called outside of a running event loop; ``run_sync()`` has its own loop."""


class StepCancelledError(WorkflowRuntimeError):
    """A step raised ``CancelledError`` by itself; the cancellation is kept as ``__cause__``."""


class WorkflowStalledError(WorkflowRuntimeError):
    """A run has stalled: no work is running, queued, scheduled or awaited. Raised with ``on_stall="raise"``."""


class WorkflowTimeoutError(BatonflowError):
    """A run took longer than the workflow's ``timeout``."""


class StepTimeoutError(BatonflowError, TimeoutError):
    """An attempt of a step took longer than its ``@step(timeout=...)``; it counts as a failed attempt."""


class WorkflowDone(BatonflowError):
    """A stepwise run has nothing left to do."""


class WorkflowCancelledByUser(BatonflowError):
    """The run was cancelled with ``handler.cancel_run()``."""


class WorkflowStepDoesNotExistError(BatonflowError):
    """No step of that name exists in the workflow."""


class ContextSerdeError(BatonflowError):
    """A snapshot cannot be written, or a payload cannot be read as a snapshot."""


class ContextStateError(BatonflowError):
    """A member of ``Context`` was used at a wrong place: before a run, outside or inside a step."""


class UnknownOutcomeError(WorkflowRuntimeError):
    """A process started an effect and ended before it recorded the outcome.

    Args:
        message: A description of the effect.
        times: The number of processes that started it.
    """

    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {"times": int}

    def __init__(self, message: str, times: int = 1) -> None:
        super().__init__(message)
        self.times = times


class InputClosedError(BatonflowError, RuntimeError):
    """A question to a person is closed. It has an answer already, or the run no longer waits for one."""


class InputResponseError(BatonflowError, ValueError):
    """An answer does not fit its question; the message names the event and its fields."""


class StateOutsideContextWarning(UserWarning):
    """A step changed an attribute of its workflow, or a copy of the state. Neither is part of the run."""


class StoreError(BatonflowError):
    """A run store refuses an operation."""


class RunInputMismatchError(StoreError):
    """A run id was used before with a different start event."""


class RunInUseError(StoreError, RuntimeError):
    """Another live process drives the run.

    Args:
        run_id: The run.
        owner: The name of the other process in the store.
        since: The time at which it claimed the run, in wall-clock seconds.
    """

    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {"owner": str, "since": float}

    def __init__(self, run_id: str, owner: str, since: float) -> None:
        super().__init__(
            f"Run {run_id!r} has been driven by another process (owner {owner}) since "
            f"{datetime.fromtimestamp(since, UTC).isoformat(timespec='seconds')}: wait for it there, or read "
            f"its records with await store.replay({run_id!r})"
        )
        self.owner = owner
        self.since = since


class RunInterruptedError(StoreError):
    """A stored run stopped in this process before its end; it can be resumed."""


class RunLostError(StoreError):
    """Another process has taken over the run, because this process did not renew its lease."""


class ReplayIncompatible(StoreError):
    """The code of a workflow no longer fits the records of a run. The message names the step or class."""


class StoreCorruptedError(StoreError):
    """Stored data is damaged; the message names the file, or the run and its commit."""


class ServerConfigurationError(BatonflowError, ValueError):
    """The arguments of a WorkflowServer are unsafe or contradict each other; the message names the remedy."""


class ServerRefusedError(BatonflowError):
    """A WorkflowServer answered with an error.

    Attributes:
        status_code: The HTTP status.
        detail: The detail of the error, from the body of the response.
        path: The requested path.
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
        error_type: The class of the error that ended it.
        message: The text of the error.
    """

    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {"run_id": str, "error_type": str, "message": str}

    def __init__(self, run_id: str, error_type: str, message: str) -> None:
        super().__init__(f"Run {run_id!r} failed with {error_type or 'an error'}: {message}")
        self.run_id = run_id
        self.error_type = error_type
        self.message = message
