"""Records of runs in ``logging``: INFO for the life of a run, DEBUG for its steps."""

import logging
from functools import partial
from typing import Any

from batonflow.instrumentation.logs import logger_named
from batonflow.tracing.summary import summarize
from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.errors import RunInterruptedError
from batonflow.workflow_core.events import Event, WorkflowCancelledEvent
from batonflow.workflow_core.run import Run, fields_of

__all__ = ["RunLogs"]

logger = logger_named("batonflow.workflow")


class RunLogs:
    """Observer that logs the life of a run and its steps."""

    def run_started(self, run: Run, event: Event | None) -> None:
        """Log that a run began, or was taken up."""
        if event is None:
            _log(run, logging.INFO, "%s was taken up", _run(run))
        else:
            _log(run, logging.INFO, "%s began with %s", _run(run), type(event).__name__)

    def step_started(self, run: Run, item: WorkItem) -> None:
        """Log the start of an attempt."""
        _log(run, logging.DEBUG, "%s began with %s", _step(run, item), summarize(item.event), item=item)

    def step_ended(self, run: Run, item: WorkItem, result: Any, error: BaseException | None) -> None:
        """Log the end of an attempt, or its wait."""
        if item.away:
            _log(run, logging.INFO, "%s waits", _step(run, item), item=item)
        elif error is not None:
            _log(run, logging.DEBUG, "%s failed with %r", _step(run, item), error, item=item)
        else:
            told = "no result" if result is None else summarize(result)
            _log(run, logging.DEBUG, "%s ended with %s", _step(run, item), told, item=item)

    def run_ended(self, run: Run, event: Event, error: BaseException | None) -> None:
        """Log the end of a run; the caller gets its error, so the record has no traceback."""
        if isinstance(event, WorkflowCancelledEvent):
            _log(run, logging.INFO, "%s was cancelled", _run(run))
        elif isinstance(error, RunInterruptedError):
            _log(run, logging.INFO, "%s was interrupted, and can be resumed", _run(run))
        elif error is not None:
            _log(run, logging.INFO, "%s failed with %r", _run(run), error)
        else:
            _log(run, logging.INFO, "%s ended with %s", _run(run), type(event).__name__)

    def run_left(self, run: Run) -> None:
        """Log that a run waits outside of memory."""
        _log(run, logging.INFO, "%s waits outside of memory", _run(run))


def _run(run: Run) -> str:
    return f"run {run.state.run_id} of {type(run.workflow).__name__}"


def _step(run: Run, item: WorkItem) -> str:
    return f"step {item.spec.name} of {type(run.workflow).__name__}, run {run.state.run_id}"


def _log(run: Run, level: int, text: str, *values: Any, item: WorkItem | None = None) -> None:
    # The variables of the run know whether it is debugged; code outside of its steps starts and ends it.
    run.variables.run(partial(logger.log, level, text, *values, extra=fields_of(run, item)))
