"""Every error batonflow raises, under one root.

::

    BatonflowError
    ├── WorkflowValidationError            the workflow's steps or options do not fit together
    │   └── WorkflowConfigurationError     ... already seen when the workflow is built
    ├── WorkflowRuntimeError               a step or a caller did something a run cannot accept
    │   ├── NoRunningLoopError (RuntimeError)  run() was called outside an event loop
    │   ├── StepCancelledError             a step raised CancelledError by itself
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
    └── StoreError                         a run store refuses
        └── RunInputMismatchError          the run id was started before with other input

``except BatonflowError`` catches them all. Where a builtin type stands in parentheses, the error is one of those too.
"""

__all__ = [
    "BatonflowError",
    "ContextSerdeError",
    "ContextStateError",
    "InputClosedError",
    "InputResponseError",
    "NoRunningLoopError",
    "RunInputMismatchError",
    "StepCancelledError",
    "StepTimeoutError",
    "StoreError",
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
    """The root of every error raised by batonflow."""


class WorkflowValidationError(BatonflowError):
    """The steps or the options of a workflow do not fit together; the message names class, step, event and remedy."""


class WorkflowConfigurationError(WorkflowValidationError):
    """A workflow cannot even be built: no start step, no stop step, or several classes of either."""


class WorkflowRuntimeError(BatonflowError):
    """A step or a caller did something that a run cannot accept."""


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


class InputClosedError(BatonflowError, RuntimeError):
    """A question to a person was answered before, or nobody waits for the answer any more."""


class InputResponseError(BatonflowError, ValueError):
    """An answer to a question is not what is awaited; the message names the event and its fields."""


class StoreError(BatonflowError):
    """A run store refuses what was asked of it."""


class RunInputMismatchError(StoreError):
    """A run id was used before with a different start event."""
