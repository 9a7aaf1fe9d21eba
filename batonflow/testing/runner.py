"""Run a workflow and collect its stream."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from batonflow.instrumentation.logs import debugging
from batonflow.workflow_core.context import Context
from batonflow.workflow_core.events import Event, StartEvent
from batonflow.workflow_core.handler import WorkflowHandler, raise_on_stall
from batonflow.workflow_core.workflow import Workflow

__all__ = ["WorkflowTestResult", "WorkflowTestRunner"]


@dataclass(slots=True)
class WorkflowTestResult:
    """Outcome of a run.

    Attributes:
        collected: The streamed events, in order.
        event_types: Number of events of each class.
        result: The result of the run.
        ctx: The run's context, for its state.
    """

    collected: list[Event] = field(default_factory=list[Event])
    event_types: dict[type[Event], int] = field(default_factory=dict[type[Event], int])
    result: Any = None
    ctx: Context[Any] | None = None


class WorkflowTestRunner:
    """Runner of a workflow that collects its events. Its runs are debugged: a bug in a tool fails them.

    Args:
        workflow: The workflow to run.

    Example:
        >>> outcome = await WorkflowTestRunner(Hello()).run(StartEvent(name="Ann"))
        >>> assert outcome.event_types[StopEvent] == 1
    """

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow

    async def run(
        self,
        start_event: StartEvent | None = None,
        ctx: Context[Any] | None = None,
        expose_internal: bool = True,
        exclude_events: Iterable[type[Event]] | None = None,
    ) -> WorkflowTestResult:
        """Run the workflow once.

        Args:
            start_event: The event to start with, a plain StartEvent by default.
            ctx: A context to start with.
            expose_internal: Also collect the engine's internal events.
            exclude_events: Classes to leave out, exactly these.

        Raises:
            BaseException: Any error of the run.
        """
        left_out = set(exclude_events or ())
        handler = self._started(ctx, start_event or StartEvent())
        raise_on_stall(handler)
        streamed = handler.stream_events(expose_internal=expose_internal)
        collected = [event async for event in streamed if type(event) not in left_out]
        result = await handler
        return WorkflowTestResult(collected, dict(Counter(type(event) for event in collected)), result, handler.ctx)

    def _started(self, ctx: Context[Any] | None, event: StartEvent) -> WorkflowHandler:
        token = debugging.set(True)
        try:
            return self._workflow.run(ctx=ctx, start_event=event)
        finally:
            debugging.reset(token)
