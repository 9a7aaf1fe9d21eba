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
    """A run starts, or continues after a restore.

    Args:
        run_id: The run.
        workflow: Name of the workflow.
        path: The path of the run in its parent, ``""`` for a run without a parent.
        input_event: Class name of the start event, None for a resumed run.
        input_summary: The start event in at most 200 characters.
    """

    run_id: str
    workflow: str
    path: str = ""
    input_event: str | None = None
    input_summary: str = ""


class RunEndEvent(BaseEvent):
    """A run ended.

    Args:
        run_id: The run.
        workflow: Name of the workflow.
        path: The path of the run in its parent, ``""`` for a run without a parent.
        status: The outcome. ``interrupted``: it continues elsewhere or later; ``released``: it waits outside of memory.
        output: The result in at most 200 characters, empty unless completed.
        error: The text of the error, None without an error.
    """

    run_id: str
    workflow: str
    path: str = ""
    status: RunStatus = "completed"
    output: str = ""
    error: str | None = None


class StepStartEvent(BaseEvent):
    """An attempt of a step starts.

    Args:
        run_id: The run.
        step: Name of the step.
        path: The path of the run in its parent, ``""`` for a run without a parent.
        input_event: Class name of the event that the step received.
        input_summary: This event in at most 200 characters.
        attempt: 0 for the first attempt, 1 for the first retry.
    """

    run_id: str
    step: str
    path: str = ""
    input_event: str
    input_summary: str = ""
    attempt: int = 0


class StepEndEvent(BaseEvent):
    """An attempt of a step ended or was suspended.

    Args:
        run_id: The run.
        step: Name of the step.
        path: The path of the run in its parent, ``""`` for a run without a parent.
        input_event: Class name of the event that the step received.
        status: The outcome; ``waiting`` is a suspension.
        output: The result in at most 200 characters.
        error: The text of the error, None without an error.
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
    """The result of a step, under the name ``step.output`` that trace viewers know.

    Args:
        output: The returned event in at most 200 characters.
    """

    output: str

    @classmethod
    def class_name(cls) -> str:
        """Return ``step.output``."""
        return "step.output"


class WorkflowRunOutputEvent(BaseEvent):
    """The result of a run, under the name ``workflow.output`` that trace viewers know.

    Args:
        output: The stop event in at most 200 characters.
    """

    output: str

    @classmethod
    def class_name(cls) -> str:
        """Return ``workflow.output``."""
        return "workflow.output"
