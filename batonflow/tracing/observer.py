"""Observers of runs: spans for tracing, and verbose output. Without observers a step costs one truth test."""

import logging
from inspect import BoundArguments, Parameter, Signature
from types import MethodType
from typing import Any, cast

from batonflow.instrumentation import active_instrument_tags, active_span_id, get_dispatcher, instrument_tags
from batonflow.instrumentation.events.base import BaseEvent
from batonflow.instrumentation.events.run import (
    RunEndEvent,
    RunStartEvent,
    RunStatus,
    StepEndEvent,
    StepStartEvent,
    WorkflowRunOutputEvent,
    WorkflowStepOutputEvent,
)
from batonflow.instrumentation.logs import fit_to_show, logger_named
from batonflow.instrumentation.traced import named
from batonflow.llms import genai
from batonflow.tracing import run_logs
from batonflow.tracing.failures import note_failure
from batonflow.tracing.summary import summarize
from batonflow.workflow_core.engine.attempts import events_and_context
from batonflow.workflow_core.engine.ports import Observer
from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.errors import RunInterruptedError
from batonflow.workflow_core.events import Event, WorkflowCancelledEvent
from batonflow.workflow_core.run import Run

__all__ = ["CLAIM_DELAY", "EARLIER_TRACE", "RUN_ID", "RUN_INPUT", "STEP_INPUT", "note_failure", "observer_for"]

RUN_ID = "llamaindex.run_id"
"""Tag of spans of runs and steps, and of all events inside them."""

RUN_INPUT = "llamaindex.start_event"
"""Tag of spans of runs."""

STEP_INPUT = "llamaindex.step.input_event"
"""Tag of spans of steps."""

EARLIER_TRACE = "batonflow.earlier_trace"
"""Tag of a resumed run: data that handlers captured in the previous process of the run."""

CLAIM_DELAY = "batonflow.claim_delay"
"""Tag of a run that this process has claimed: the seconds for which it was ready."""

dispatcher = get_dispatcher("batonflow.workflow_core.observers")
verbose_logger = logger_named("workflows.verbose")


# The parameters of Workflow.run, even if a subclass changes them.
_OF_RUN = Signature([
    Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, default=None),
    Parameter("start_event", Parameter.POSITIONAL_OR_KEYWORD, default=None),
    Parameter("kwargs", Parameter.VAR_KEYWORD),
])  # fmt: skip


def observer_for(*, verbose: bool) -> Observer | None:
    """Return the observers of a new run, or None."""
    listening: list[Any] = []
    if dispatcher.enabled:
        listening.append(_Spans())
    if verbose:
        listening.append(_Verbose())
    if run_logs.logger.isEnabledFor(logging.INFO):
        listening.append(run_logs.RunLogs())
    if not listening:
        return None
    return listening[0] if len(listening) == 1 else _Several(*listening)


class _Several:
    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def run_started(self, run: Run, event: Event | None) -> None:
        for observer in self._observers:
            observer.run_started(run, event)

    def step_started(self, run: Run, item: WorkItem) -> None:
        for observer in self._observers:
            observer.step_started(run, item)

    def step_ended(self, run: Run, item: WorkItem, result: Any, error: BaseException | None) -> None:
        for observer in self._observers:
            observer.step_ended(run, item, result, error)

    def run_ended(self, run: Run, event: Event, error: BaseException | None) -> None:
        for observer in self._observers:
            observer.run_ended(run, event, error)

    def run_left(self, run: Run) -> None:
        for observer in self._observers:
            observer.run_left(run)


class _Verbose:
    """Observer that prints or logs one line for each start and end of a step."""

    def _print(self, line: str) -> None:
        line = fit_to_show(line)
        if verbose_logger.isEnabledFor(logging.INFO):
            verbose_logger.info(line)
        else:
            print(line)

    def run_started(self, run: Run, event: Event | None) -> None:
        pass

    def step_started(self, run: Run, item: WorkItem) -> None:
        self._print(f"[{item.spec.name}:{item.worker}] started from {type(item.event).__name__}")

    def step_ended(self, run: Run, item: WorkItem, result: Any, error: BaseException | None) -> None:
        what = (
            f"failed with {error!r}"
            if error is not None
            else f"complete with {'no result' if result is None else summarize(result)}"
        )
        self._print(f"[{item.spec.name}:{item.worker}] {what}")

    def run_ended(self, run: Run, event: Event, error: BaseException | None) -> None:
        self._print(f"[result] {error!r}" if error is not None else f"[result] {summarize(event)}")

    def run_left(self, run: Run) -> None:
        pass


class _Spans:
    """Observer with a span for the run and for each attempt of a step."""

    def __init__(self) -> None:
        self._run_span = ""
        self._run_arguments: BoundArguments | None = None
        self._tags: dict[str, Any] = {}
        self._parent: str | None = None
        self._steps: dict[int, tuple[str, BoundArguments | None]] = {}

    def run_started(self, run: Run, event: Event | None) -> None:
        cls = type(run.workflow).__name__
        self._parent = active_span_id.get()
        tags = {
            RUN_ID: run.state.run_id,
            RUN_INPUT: summarize(event),
            genai.CONVERSATION_ID: run.state.run_id,
            **cast("Any", type(run.workflow)).trace_tags(run.workflow),
        }
        # The trace of the previous process, for exporters that support links.
        earlier = run.drive.earlier_trace if run.drive is not None else None
        if earlier is not None:
            tags[EARLIER_TRACE] = earlier
        if run.drive is not None and run.drive.claim_delay is not None:
            tags[CLAIM_DELAY] = run.drive.claim_delay
        arguments = self._run_arguments = _OF_RUN.bind(start_event=event) if dispatcher.tells_arguments else None
        self._run_span = dispatcher.open_span(
            f"{cls}.run", instance=run.workflow, bound_args=arguments, tags=tags, parent_id=self._parent
        )
        # Steps run in copies of the run's variables, so this span becomes the parent of their spans.
        run.variables.run(active_span_id.set, self._run_span)
        own = {RUN_ID: run.state.run_id, genai.CONVERSATION_ID: run.state.run_id}
        self._tags = {**run.variables.run(active_instrument_tags.get), **own}
        run.variables.run(active_instrument_tags.set, self._tags)
        if run.drive is not None:
            run.drive.trace = run.variables.run(dispatcher.carrier) or None
        self._report(
            RunStartEvent(
                span_id=self._run_span,
                run_id=run.state.run_id,
                workflow=run.workflow.__batonflow__.workflow_name,
                path=run.path,
                input_event=type(event).__name__ if event is not None else None,
                input_summary=summarize(event),
            )
        )

    def step_started(self, run: Run, item: WorkItem) -> None:
        event = item.event
        tags = {
            RUN_ID: run.state.run_id,
            STEP_INPUT: type(event).__name__,
            "llamaindex.step.input_summary": summarize(event),
        }
        name = f"{type(run.workflow).__name__}.{item.spec.name}"
        arguments = _arguments(run, item) if dispatcher.tells_arguments else None
        span = dispatcher.open_span(
            name, instance=run.workflow, bound_args=arguments, tags=tags, parent_id=self._run_span
        )
        self._steps[item.id] = span, arguments
        active_span_id.set(span)
        dispatcher.event(
            StepStartEvent(
                span_id=span,
                run_id=run.state.run_id,
                step=item.spec.name,
                path=run.path,
                input_event=type(event).__name__,
                input_summary=summarize(event),
                attempt=item.failures.count if item.failures is not None else 0,
            )
        )

    def step_ended(self, run: Run, item: WorkItem, result: Any, error: BaseException | None) -> None:
        span, arguments = self._steps.pop(item.id, (None, None))
        if span is None:
            return
        active_span_id.set(self._run_span)
        dispatcher.event(
            StepEndEvent(
                span_id=span,
                run_id=run.state.run_id,
                step=item.spec.name,
                path=run.path,
                input_event=type(item.event).__name__,
                status="failed" if error is not None else "waiting" if item.away else "completed",
                output="" if error is not None or item.away else summarize(result),
                error=None if error is None else f"{type(error).__name__}: {error}",
                attempt=item.failures.count if item.failures is not None else 0,
            )
        )
        if item.away:
            dispatcher.close_span(span, instance=run.workflow, bound_args=arguments)
        elif error is None:
            dispatcher.event(WorkflowStepOutputEvent(span_id=span, output=summarize(result)))
            dispatcher.close_span(span, result, run.workflow, arguments)
        else:
            dispatcher.fail_span(span, error, run.workflow, arguments)

    def run_ended(self, run: Run, event: Event, error: BaseException | None) -> None:
        self._close_steps(run)
        status: RunStatus = "completed" if error is None else "failed"
        if isinstance(event, WorkflowCancelledEvent):
            status = "cancelled"
        elif isinstance(error, RunInterruptedError):
            status = "interrupted"
        self._report(
            RunEndEvent(
                span_id=self._run_span,
                run_id=run.state.run_id,
                workflow=run.workflow.__batonflow__.workflow_name,
                path=run.path,
                status=status,
                output="" if status == "interrupted" else summarize(event),
                error=None if error is None else f"{type(error).__name__}: {error}",
            )
        )
        if error is None:
            self._report(WorkflowRunOutputEvent(span_id=self._run_span, output=summarize(event)))
        if error is None or status != "failed":
            dispatcher.close_span(self._run_span, event, run.workflow, self._run_arguments)
        else:
            dispatcher.fail_span(self._run_span, error, run.workflow, self._run_arguments)

    def run_left(self, run: Run) -> None:
        self._close_steps(run)
        self._report(
            RunEndEvent(
                span_id=self._run_span,
                run_id=run.state.run_id,
                workflow=run.workflow.__batonflow__.workflow_name,
                path=run.path,
                status="released",
            )
        )
        dispatcher.close_span(self._run_span, instance=run.workflow, bound_args=self._run_arguments)

    def _report(self, event: BaseEvent) -> None:
        """Report an event of the run with its own tags. A step of another run may have caused it."""
        with instrument_tags(self._tags):
            dispatcher.event(event)

    def _close_steps(self, run: Run) -> None:
        """Steps that are still running end with the run, without a failure of their own."""
        for span, arguments in self._steps.values():
            dispatcher.close_span(span, instance=run.workflow, bound_args=arguments)
        self._steps.clear()


def _arguments(run: Run, item: WorkItem) -> BoundArguments:
    """Return the inputs of a step; injected resources are created later, inside its span."""
    spec = item.spec
    method = spec.func if spec.is_free else MethodType(spec.func, run.workflow)
    return named(method, events_and_context(run, item))
