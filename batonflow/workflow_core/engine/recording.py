"""What the runner tells the journal: the outcome of attempts, and what the broker decided about them."""

from typing import Any

from batonflow.workflow_core.engine.commands import Answered, Command, Finish, GaveUp, Recovered
from batonflow.workflow_core.engine.ports import Recorder
from batonflow.workflow_core.engine.state import RETURNED, Causes
from batonflow.workflow_core.engine.ticks import StepFailed, StepReturned
from batonflow.workflow_core.errors import StoreError, WorkflowRuntimeError

__all__ = ["tell", "verdict", "was_returned", "written_down"]


def written_down(recorder: Recorder, tick: StepReturned | StepFailed) -> StepReturned | StepFailed:
    """Write down what an attempt did, before anybody acts on it; what cannot be written fails the attempt."""
    if isinstance(tick, StepReturned):
        try:
            problem = tick.item.spec.problem_with(tick.result)
            if problem is not None:
                raise WorkflowRuntimeError(problem)
            recorder.returned(tick.item, tick.result)
        except (StoreError, WorkflowRuntimeError) as error:
            tick = StepFailed(tick.item, error, tick.now)
        else:
            return tick
    recorder.failed(tick.item, tick.error)
    return tick


def tell(recorder: Recorder | None, command: Answered | GaveUp) -> None:
    """Tell the journal, if one listens, what became of a wait."""
    if recorder is None:
        return
    if isinstance(command, Answered):
        recorder.answered(command.waiter, command.answer, command.causes)
    else:
        recorder.gave_up(command.waiter)


def verdict(tick: StepReturned | StepFailed, commands: list[Command]) -> dict[str, Any] | None:
    """What became of a failed attempt's delivery."""
    if isinstance(tick, StepReturned):
        return None
    for command in commands:
        if type(command) is Finish:
            return {"then": "ended"}
        if type(command) is Recovered:
            handling = command.handling
            return {
                "then": "recovered",
                "step": handling.spec.name,
                "event": handling.event,
                "recoveries": handling.recoveries,
            }
    failures = tick.item.failures
    assert failures is not None
    return {
        "then": "retry",
        "due": tick.item.due,
        "first_attempt_at": failures.first_attempt_at,
        "last_failed_at": failures.last_failed_at,
    }


def was_returned(causes: Causes) -> bool:
    """Whether an event was a step's result; its record says already that nobody took it."""
    number = causes[0][1]
    return not isinstance(number, tuple) and number <= RETURNED
