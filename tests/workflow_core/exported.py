"""Spans and metrics as an exporter of OpenTelemetry gets them."""

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batonflow.tracing.otel import Instrumentation, instrument

__all__ = ["Exported"]


class Exported:
    """Spans and metrics that were exported."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader])

    def instrument(self, **options: Any) -> Instrumentation:
        return instrument(self.tracers, self.meters, **options)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._spans.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def parent(self, span: ReadableSpan) -> str:
        """Name of the span around another one, empty for a root."""
        above = span.parent
        return "" if above is None else next(one.name for one in self.spans if one.context.span_id == above.span_id)

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        resources = () if data is None else data.resource_metrics
        metrics = [metric for one in resources for scope in one.scope_metrics for metric in scope.metrics]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()
