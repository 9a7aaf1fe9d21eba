"""Failures of steps in words: a note on each exception that leaves a step."""

from batonflow.values.exceptions import RunNote
from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.run import Run

__all__ = ["note_failure"]

_BEGINNING = "in step "


def note_failure(run: Run, item: WorkItem, error: BaseException, about: str = "") -> None:
    """Add a note to an exception that leaves a step. An inner step's note is kept instead.

    Args:
        run: The run.
        item: The delivery.
        error: The exception.
        about: Words about the tool or the model, for the end of the note.
    """
    if not any(note.startswith(_BEGINNING) for note in getattr(error, "__notes__", ())):
        error.add_note(RunNote(f"{_BEGINNING}{_attempt(run, item)}{about}"))


def _attempt(run: Run, item: WorkItem) -> str:
    number, most = 1 if item.failures is None else item.failures.count + 1, _most_attempts(item)
    words = f", attempt {number}{f' of {most}' if most else ''}" if most or number > 1 else ""
    return f"{item.spec.name} of {type(run.workflow).__name__}, run {run.state.run_id}{words}"


def _most_attempts(item: WorkItem) -> int | None:
    """Return the number of attempts that the retry policy of a step permits, if the policy counts them."""
    return getattr(getattr(item.spec.retry_policy, "stop", None), "max_attempt_number", None)
