"""Events about runs of workflows and their steps."""

from typing import Literal

from batonflow.instrumentation.events.base import BaseEvent

__all__ = [
    "RunEndEvent",
    "RunStartEvent",
    "RunStatus",
    "StepEndEvent",
    "StepStartEvent",
    "WorkflowRunOutputEvent",
    "WorkflowStepOutputEvent",
]

RunStatus = Literal["completed", "failed", "cancelled", "timed_out", "interrupted", "released"]
StepStatus = Literal["completed", "failed", "cancelled", "waiting"]


class RunStartEvent(BaseEvent):
    """A run begins or, after a restore, goes on.

    Args:
        run_id: The run.
        workflow: Name of the workflow.
        path: Where the run hangs in its parent, ``""`` for a run of its own.
        input_event: Class name of the start event, None for a resumed run.
        input_summary: The start event in at most 200 characters.
    """

    run_id: str
    workflow: str
    path: str = ""
    input_event: str | None = None
    input_summary: str = ""


class RunEndEvent(BaseEvent):
    """A run is over.

    Args:
        run_id: The run.
        workflow: Name of the workflow.
        path: Where the run hangs in its parent, ``""`` for a run of its own.
        status: How it ended. ``interrupted``: it goes on elsewhere or later; ``released``: it waits outside of memory.
        output: The result in at most 200 characters, empty unless completed.
        error: The text of the error, None when there was none.
    """

    run_id: str
    workflow: str
    path: str = ""
    status: RunStatus = "completed"
    output: str = ""
    error: str | None = None


class StepStartEvent(BaseEvent):
    """An attempt of a step begins.

    Args:
        run_id: The run.
        step: Name of the step.
        path: Where the run hangs in its parent, ``""`` for a run of its own.
        input_event: Class name of the event the step got.
        input_summary: That event in at most 200 characters.
        attempt: 0 for the first attempt, 1 for the first retry.
    """

    run_id: str
    step: str
    path: str = ""
    input_event: str
    input_summary: str = ""
    attempt: int = 0


class StepEndEvent(BaseEvent):
    """An attempt of a step is over, or suspended.

    Args:
        run_id: The run.
        step: Name of the step.
        path: Where the run hangs in its parent, ``""`` for a run of its own.
        input_event: Class name of the event the step got.
        status: How it ended; ``waiting`` is a suspension.
        output: What it returned in at most 200 characters.
        error: The text of the error, None when there was none.
        attempt: 0 for the first attempt, 1 for the first retry.
    """

    run_id: str
    step: str
    path: str = ""
    input_event: str
    status: StepStatus = "completed"
    output: str = ""
    error: str | None = None
    attempt: int = 0


class WorkflowStepOutputEvent(BaseEvent):
    """What a step returned, under the name ``step.output`` that trace viewers know.

    Args:
        output: The returned event in at most 200 characters.
    """

    output: str

    @classmethod
    def class_name(cls) -> str:
        """``step.output``."""
        return "step.output"


class WorkflowRunOutputEvent(BaseEvent):
    """What a run returned, under the name ``workflow.output`` that trace viewers know.

    Args:
        output: The stop event in at most 200 characters.
    """

    output: str

    @classmethod
    def class_name(cls) -> str:
        """``workflow.output``."""
        return "workflow.output"
