"""OpenTelemetry: runs, steps, agents, model calls and tool calls as spans, and metrics of models and runs.

It uses the dispatcher, and needs ``pip install 'batonflow[otel]'``. Exports begin with :func:`instrument`, and only
this module loads OpenTelemetry.
"""

import asyncio
import inspect
import json
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Any, cast

from pydantic import ConfigDict, PrivateAttr

from batonflow.durable.traces import ABANDONED
from batonflow.instrumentation import BaseEvent, BaseEventHandler, BaseSpan, BaseSpanHandler
from batonflow.instrumentation.context import active_span_id
from batonflow.instrumentation.dispatcher import get_dispatcher
from batonflow.instrumentation.events.fleet import QueueCountEvent
from batonflow.instrumentation.events.run import RunEndEvent, RunStartEvent, StepEndEvent, StepStartEvent
from batonflow.instrumentation.redaction import redacted
from batonflow.lazy import how_to_install
from batonflow.llms import genai
from batonflow.tracing.observer import CLAIM_DELAY, EARLIER_TRACE, RUN_INPUT, STEP_INPUT
from batonflow.workflow_core.errors import RunInterruptedError, WorkflowCancelledByUser

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as missing:
    raise ImportError(
        f"Tracing with OpenTelemetry needs the package {missing.name}: {how_to_install('otel')}"
    ) from missing

__all__ = ["Instrumentation", "instrument"]

SCOPE = "batonflow"
VERSION: str = sys.modules["batonflow"].__version__  # loaded, because it contains this package

RUN_ID = "batonflow.run.id"
RUN_PATH = "batonflow.run.path"
RUN_STATUS = "batonflow.run.status"
STEP = "batonflow.step.name"
STEP_INPUT_TYPE = "batonflow.step.input"
STEP_ATTEMPT = "batonflow.step.attempt"
STEP_STATUS = "batonflow.step.status"
CANCELLED = "batonflow.cancelled"
WAIT = "batonflow.wait"
LINK = "batonflow.link"
CHAIN = "openinference.span.kind"
"""OpenInference's kind of spans that are not models, tools or agents."""

TOKENS = "gen_ai.client.token.usage"
DURATION = "gen_ai.client.operation.duration"
FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - the name of an attribute
COST = "batonflow.cost"
RUN_DURATION = "batonflow.workflow.duration"
DELAY = "batonflow.claim.delay"
QUEUE_RUNS = "batonflow.queue.runs"
QUEUE_OLDEST = "batonflow.queue.oldest"
QUEUE = "batonflow.queue.name"
QUEUE_VERSION = "batonflow.queue.version"
QUEUE_STATE = "batonflow.queue.state"

_CARRIER = "otel"
_BEGUN = "batonflow"
_TOKEN_BOUNDS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
_SECOND_BOUNDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_OF_LLAMAINDEX = "llamaindex."
# Tags that become other attributes, or that are internal.
_LEFT_OUT = frozenset({"model", EARLIER_TRACE, CLAIM_DELAY})

_propagator = TraceContextTextMapPropagator()

# The innermost span that is current in OpenTelemetry.
_current: ContextVar[str | None] = ContextVar("batonflow_otel_current", default=None)


def instrument(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None, *, content: bool = False
) -> "Instrumentation":
    """Send spans and metrics of all later runs to OpenTelemetry.

    The current span at the start of a run, such as the span of an HTTP request, is the parent of the run's span.
    Inside of steps, tools and agents their own spans are current, and become the parents of other spans there. A
    resumed run has its own span, with a link to the previous one.

    Args:
        tracer_provider: Receives the spans; the global provider by default.
        meter_provider: Receives the metrics; the global provider by default.
        content: Include messages, arguments and results in spans, without likely secrets.

    Returns:
        The object that ends the instrumentation.

    Example:
        >>> tracing = instrument(content=True)
        >>> tracing.uninstrument()
    """
    return Instrumentation(
        trace.get_tracer(SCOPE, VERSION, tracer_provider=tracer_provider, schema_url=genai.SCHEMA_URL),
        metrics.get_meter(SCOPE, VERSION, meter_provider=meter_provider, schema_url=genai.SCHEMA_URL),
        content=content,
    )


class Instrumentation:
    """The instrumentation that :func:`instrument` has installed.

    Args:
        tracer: Makes the spans.
        meter: Makes the metrics.
        content: Include messages, arguments and results in spans.
    """

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, *, content: bool) -> None:
        self._content = content
        self._spans = _Spans()
        self._spans.begin(tracer, _Measures(meter), content=content)
        self._events = _Events()
        self._events.begin(self._spans, content=content)
        if content:
            genai.want_content(self)
        root = get_dispatcher()
        root.add_span_handler(self._spans)
        root.add_event_handler(self._events)

    def uninstrument(self) -> None:
        """Stop sending, and end open spans. Further calls have no effect."""
        root = get_dispatcher()
        root.span_handlers = [one for one in root.span_handlers if one is not self._spans]
        root.event_handlers = [one for one in root.event_handlers if one is not self._events]
        genai.unwant_content(self)
        self._spans.close()


class _Span(BaseSpan):
    """A span of the dispatcher with its span of OpenTelemetry.

    Args:
        kind: ``"run"``, ``"step"``, an operation of the conventions, or empty.
        otel: The span.
        context: The context with this span as the current one.
        before: The token to restore the earlier context, if this span is current.
        began: Monotonic time of the start.
        status: The status that events have reported.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: str
    otel: Span
    context: Context
    before: tuple[Context, str | None] | None = None
    began: float
    status: str = ""


class _Measures:
    """The metrics."""

    def __init__(self, meter: metrics.Meter) -> None:
        self.tokens = meter.create_histogram(
            TOKENS, "{token}", "Tokens of a request", explicit_bucket_boundaries_advisory=_TOKEN_BOUNDS
        )
        self.duration = meter.create_histogram(
            DURATION, "s", "Duration of a request", explicit_bucket_boundaries_advisory=_SECOND_BOUNDS
        )
        self.first_chunk = meter.create_histogram(
            FIRST_CHUNK, "s", "Time to the first piece of an answer", explicit_bucket_boundaries_advisory=_SECOND_BOUNDS
        )
        self.runs = meter.create_histogram(
            RUN_DURATION, "s", "Duration of a run in this process", explicit_bucket_boundaries_advisory=_SECOND_BOUNDS
        )
        self.cost = meter.create_counter(COST, "{USD}", "Cost of requests in US dollars, if prices are known")
        self.delay = meter.create_histogram(
            DELAY, "s", "Time for which a run was ready", explicit_bucket_boundaries_advisory=_SECOND_BOUNDS
        )
        self._queue_runs = meter.create_gauge(QUEUE_RUNS, "{run}", "Unfinished runs of a queue")
        self._queue_oldest = meter.create_gauge(QUEUE_OLDEST, "s", "Longest time since which a run is ready")

    def queue(self, counted: QueueCountEvent) -> None:
        """Record the unfinished runs of a queue, a workflow and a version."""
        about = {QUEUE: counted.queue, genai.WORKFLOW_NAME: counted.workflow, QUEUE_VERSION: counted.version}
        for state, number in counted.counts.items():
            self._queue_runs.set(number, {**about, QUEUE_STATE: state})
        self._queue_oldest.set(counted.oldest, about)

    def request(self, tags: Mapping[str, Any], seconds: float) -> None:
        """Record the end of a request to a model."""
        names = (genai.OPERATION, genai.PROVIDER, genai.REQUEST_MODEL, genai.RESPONSE_MODEL)
        about = {name: str(tags[name]) for name in names if tags.get(name) is not None}
        failed = {genai.ERROR_TYPE: str(tags[genai.ERROR_TYPE])} if genai.ERROR_TYPE in tags else {}
        self.duration.record(seconds, {**about, **failed})
        for name, kind in ((genai.INPUT_TOKENS, "input"), (genai.OUTPUT_TOKENS, "output")):
            if tags.get(name) is not None:
                self.tokens.record(tags[name], {**about, TOKEN_TYPE: kind})
        if tags.get(genai.TIME_TO_FIRST_CHUNK) is not None:
            self.first_chunk.record(tags[genai.TIME_TO_FIRST_CHUNK], about)
        if tags.get(genai.COST) is not None:
            self.cost.add(tags[genai.COST], about)


class _Spans(BaseSpanHandler[_Span]):
    """Creator of an OpenTelemetry span for each span of the dispatcher."""

    hears_arguments = False  # arguments and results are content

    _tracer: trace.Tracer = PrivateAttr()
    _measures: _Measures = PrivateAttr()
    _content: bool = PrivateAttr(default=False)

    def begin(self, tracer: trace.Tracer, measures: _Measures, *, content: bool) -> None:
        """Set the receivers of spans and metrics."""
        self._tracer, self._measures, self._content = tracer, measures, content

    def count(self, counted: QueueCountEvent) -> None:
        """Record the unfinished runs of a queue."""
        self._measures.queue(counted)

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,  # noqa: ARG002 - arguments of a call are content
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> _Span:
        """Begin a span below the enclosing one."""
        tags = dict(tags or {})
        kind = _kind(tags)
        if kind == "run":
            _send_abandoned(
                self._tracer, tags, {**_attributes(tags, content=False), **_run_attributes(kind, id_, instance, tags)}
            )
            if CLAIM_DELAY in tags:
                self._measures.delay.record(tags[CLAIM_DELAY], {genai.WORKFLOW_NAME: _workflow_name(instance)})
        around = self._context_for(parent_span_id)
        span = self._tracer.start_span(
            _span_name(kind, id_, instance, tags),
            context=around,
            kind=SpanKind.CLIENT if kind == "chat" else SpanKind.INTERNAL,
            attributes={**_attributes(tags, content=self._content), **_run_attributes(kind, id_, instance, tags)},
            links=_links(tags),
        )
        made = _Span(
            id_=id_,
            parent_id=parent_span_id,
            tags=tags,
            kind=kind,
            otel=span,
            context=trace.set_span_in_context(span, around),
            began=time.perf_counter(),
        )
        if kind in _CURRENT:
            made.before = otel_context.get_current(), _current.get()
            otel_context.attach(made.context)
            _current.set(id_)
        return made

    def _context_for(self, parent_id: str | None) -> Context:
        here = otel_context.get_current()
        if parent_id is None or _current.get() == parent_id:
            return here  # other spans may lie between it and its parent
        parent = self.open_spans.get(parent_id)
        return here if parent is None else parent.context

    def prepare_to_exit_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,  # noqa: ARG002
        instance: Any = None,  # noqa: ARG002
        result: Any = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> _Span | None:
        """End a span."""
        span = self.open_spans.get(id_)
        if span is not None:
            if genai.ERROR_TYPE in span.tags:  # a tool that reports its failure to the model
                error = getattr(result, "exception", None)
                if isinstance(error, BaseException):
                    _record_failure(span, error)
                else:
                    span.otel.set_status(Status(StatusCode.ERROR, str(span.tags[genai.ERROR_TYPE])))
            self._end(span)
        return span

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,  # noqa: ARG002
        instance: Any = None,  # noqa: ARG002
        err: BaseException | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> _Span | None:
        """End a span with an error or a cancellation."""
        span = self.open_spans.get(id_)
        if span is None:
            return None
        if isinstance(err, _CANCELLED):
            span.tags.pop(genai.ERROR_TYPE, None)
            span.otel.set_attribute(CANCELLED, True)
            span.status = span.status or "cancelled"
        elif err is not None:
            _record_failure(span, err)
        self._end(span)
        return span

    def _end(self, span: _Span) -> None:
        span.otel.set_attributes(_attributes(span.tags, content=self._content))
        seconds = time.perf_counter() - span.began
        if span.kind == "chat":
            self._measures.request(span.tags, seconds)
        elif span.kind == "run":
            about = {genai.WORKFLOW_NAME: str(span.tags.get(_NAME, "")), RUN_STATUS: span.status}
            self._measures.runs.record(seconds, about)
        elif span.kind == "step" and not span.status:
            span.otel.set_attribute(STEP_STATUS, "cancelled")  # it ended with its run
        span.otel.end()
        if span.before is not None and _current.get() == span.id_:
            before, current = span.before
            otel_context.attach(before)
            _current.set(current)

    # --- traces that go from process to process -----------------------------------------------------------------------

    def capture_propagation_context(self) -> dict[str, Any]:
        """Return the active span as a W3C trace context."""
        span = self.open_spans.get(active_span_id.get() or "")
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, span.context if span is not None else None)
        if span is not None and span.kind == "run" and (begun := _span_origin(span.otel)):
            carrier[_BEGUN] = begun  # for the process that resumes the run, if this process cannot end the span
        return {_CARRIER: carrier} if carrier else {}

    def restore_propagation_context(self, context: dict[str, Any]) -> None:
        """Put later spans below a span of another process."""
        carrier = context.get(_CARRIER)
        if carrier:
            otel_context.attach(_propagator.extract(carrier))

    def close(self) -> None:
        """End open spans."""
        with self.lock:
            left, self.open_spans = list(self.open_spans.values()), {}
        for span in left:
            self._end(span)


class _Events(BaseEventHandler):
    """Handler that adds data of events to their spans."""

    hears_pieces = False

    _spans: _Spans = PrivateAttr()
    _content: bool = PrivateAttr(default=False)

    def begin(self, spans: _Spans, *, content: bool) -> None:
        """Set the owner of the spans."""
        self._spans, self._content = spans, content

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:  # noqa: ARG002
        """Handle an event."""
        if isinstance(event, QueueCountEvent):
            self._spans.count(event)
            return
        span = self._spans.open_spans.get(event.span_id or "")
        if span is None:
            return
        match event:
            case RunStartEvent():
                span.tags[_NAME] = span.tags.get(genai.WORKFLOW_NAME) or event.workflow
                span.otel.set_attributes({RUN_PATH: event.path} if event.path else {})
            case RunEndEvent():
                span.status = event.status
                span.otel.set_attribute(RUN_STATUS, event.status)
            case StepStartEvent():
                told = {STEP: event.step, STEP_INPUT_TYPE: event.input_event, STEP_ATTEMPT: event.attempt}
                span.otel.set_attributes(told)
            case StepEndEvent():
                span.status = event.status
                span.otel.set_attribute(STEP_STATUS, event.status)
                if event.status == "waiting":
                    span.otel.add_event(WAIT)
            case _ if not type(event).__module__.startswith("batonflow."):
                span.otel.add_event(event.class_name(), self._event_fields(event))
            case _:
                return  # models, tools and agents report this in tags

    def _event_fields(self, event: BaseEvent) -> dict[str, Any]:
        if not self._content:
            return {}
        own = [name for name in type(event).model_fields if name not in BaseEvent.model_fields]
        return {name: _attribute_value(redacted(getattr(event, name))) for name in own}


def _record_failure(span: _Span, error: BaseException) -> None:
    name, text = type(error).__name__, str(redacted(str(error)))
    span.tags[genai.ERROR_TYPE] = name
    stack = "".join(traceback.format_exception(error))
    told = {"type": name, "message": text, "stacktrace": str(redacted(stack))}
    span.otel.add_event("exception", {f"exception.{part}": value for part, value in told.items()})
    span.otel.set_status(Status(StatusCode.ERROR, f"{name}: {text}"))


_CANCELLED = (asyncio.CancelledError, GeneratorExit, WorkflowCancelledByUser, RunInterruptedError)

_NAME = f"{_OF_LLAMAINDEX}workflow_name"

# These spans open and close inside their own code, so they can be the current spans of nested code.
_CURRENT = frozenset({"step", "turn", "invoke_agent", "execute_tool"})


def _kind(tags: Mapping[str, Any]) -> str:
    if RUN_INPUT in tags:
        return "run"
    if STEP_INPUT in tags:
        return "step"
    return str(tags.get(genai.OPERATION) or ("turn" if genai.TURN in tags else ""))


def _span_name(kind: str, span_id: str, instance: Any, tags: Mapping[str, Any]) -> str:
    own = span_id.rpartition("-")[0]
    if kind == "turn":
        return f"turn {tags[genai.TURN]}"
    if kind == "step":
        return f"step {own.rpartition('.')[2]}"
    operation = str(tags.get(genai.OPERATION) or ("invoke_workflow" if kind == "run" else ""))
    names = {
        "chat": tags.get(genai.REQUEST_MODEL),
        "execute_tool": tags.get(genai.TOOL_NAME),
        "invoke_agent": tags.get(genai.AGENT_NAME),
        "invoke_workflow": tags.get(genai.WORKFLOW_NAME) or _workflow_name(instance),
    }
    return f"{operation} {names.get(operation) or ''}".strip() if operation else own


def _workflow_name(instance: Any) -> str:
    options = getattr(instance, "__batonflow__", None)
    return "" if options is None else options.workflow_name


def _run_attributes(kind: str, span_id: str, instance: Any, tags: Mapping[str, Any]) -> dict[str, Any]:
    if kind not in {"run", "step"}:
        return {}
    told: dict[str, Any] = {RUN_ID: str(tags.get(f"{_OF_LLAMAINDEX}run_id", ""))}
    if kind == "step":
        return {**told, STEP: span_id.rpartition("-")[0].rpartition(".")[2], CHAIN: "CHAIN"}
    if tags.get(genai.OPERATION, "invoke_workflow") == "invoke_workflow":
        name = tags.get(genai.WORKFLOW_NAME) or _workflow_name(instance)
        told |= {genai.OPERATION: "invoke_workflow", genai.WORKFLOW_NAME: str(name), CHAIN: "CHAIN"}
    return told


def _attributes(tags: Mapping[str, Any], *, content: bool) -> dict[str, Any]:
    """Return tags as attributes, without content and without tags that have other attributes."""
    return {
        name: _attribute_value(value)
        for name, value in tags.items()
        if value is not None
        and name not in _LEFT_OUT
        and not name.startswith(_OF_LLAMAINDEX)
        and (content or name not in genai.CONTENT)
    }


def _attribute_value(value: Any) -> Any:
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Sequence) and all(isinstance(one, str) for one in cast("Sequence[Any]", value)):
        return list(cast("Sequence[str]", value))
    return json.dumps(redacted(value), default=repr)


def _links(tags: Mapping[str, Any]) -> list[Link]:
    earlier = tags.get(EARLIER_TRACE)
    carrier = cast("Mapping[str, Any]", earlier).get(_CARRIER) if isinstance(earlier, Mapping) else None
    if not carrier:
        return []
    there = trace.get_current_span(_propagator.extract(carrier, Context())).get_span_context()
    resumes = _BEGUN in carrier  # otherwise it is the trace in which the run was enqueued
    return [Link(there, {LINK: "resumes" if resumes else "enqueued"})] if there.is_valid else []


def _span_origin(span: Span) -> str:
    """Return parent, start and name of a span, to send it again; empty without an SDK."""
    start: int | None = getattr(span, "start_time", None)
    if start is None:
        return ""
    parent: Any = getattr(span, "parent", None)
    return f"{0 if parent is None else parent.span_id:016x} {start} {getattr(span, 'name', '')}"


def _send_abandoned(tracer: trace.Tracer, tags: Mapping[str, Any], attributes: dict[str, Any]) -> None:
    """Send the span of a killed run: its nested spans were sent and would lack their parent."""
    earlier: Any = tags.get(EARLIER_TRACE)
    processor, resource = getattr(tracer, "span_processor", None), getattr(tracer, "resource", None)
    if not isinstance(earlier, Mapping) or ABANDONED not in earlier or processor is None:
        return
    told = cast("Mapping[str, Any]", earlier)
    carrier: Mapping[str, str] = told.get(_CARRIER) or {}
    there = trace.get_current_span(_propagator.extract(carrier, Context())).get_span_context()
    parent_id, _, rest = carrier.get(_BEGUN, "").partition(" ")
    start, _, name = rest.partition(" ")
    if not there.is_valid or not start.isdigit():
        return
    own = trace.SpanContext(there.trace_id, there.span_id, is_remote=False, trace_flags=there.trace_flags)
    above = trace.SpanContext(there.trace_id, int(parent_id, 16), is_remote=True, trace_flags=there.trace_flags)
    processor.on_end(
        import_module("opentelemetry.sdk.trace").ReadableSpan(
            name=name,
            context=own,
            parent=above if above.is_valid else None,
            resource=resource,
            attributes={**attributes, RUN_STATUS: ABANDONED},
            status=Status(StatusCode.ERROR, "The process ended"),
            start_time=int(start),
            end_time=max(int(start), int(told[ABANDONED] * 1e9)),
            instrumentation_scope=getattr(tracer, "_instrumentation_scope", None),
        )
    )
