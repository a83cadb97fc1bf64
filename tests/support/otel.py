"""Providers of OpenTelemetry's SDK that keep their data. None of them is the global one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from understudy.telemetry import Telemetry


class Told:
    """What a program tells OpenTelemetry."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracer = self.tracers.get_tracer("application")
        self.telemetry = Telemetry(
            tracer_provider=self.tracers,
            meter_provider=self.meters,
            **{"gauge_seconds": 0.0001, **options},
        )

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Those that have ended, oldest first, of which the names begin so."""
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def metrics(self, name: str) -> list[Any]:
        """The points of a metric."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def number(self, name: str, **attributes: Any) -> float | None:
        """The value, or the count, of the points with these attributes; None without one.

        Of `tool="pay"` the attribute is the one whose name ends with `tool`, or `tool.name`.
        """
        found = [
            point
            for point in self.metrics(name)
            if all(
                any(
                    known.endswith((f".{key}", f".{key}.name")) and value == wanted
                    for known, value in point.attributes.items()
                )
                for key, wanted in attributes.items()
            )
        ]
        values = [getattr(point, "value", None) for point in found]
        counts = [getattr(point, "count", 0) for point in found]
        numbers = [v if v is not None else n for v, n in zip(values, counts, strict=True)]
        return sum(numbers) if numbers else None

    @contextmanager
    def caller(self, name: str) -> Iterator[ReadableSpan]:
        """As code of the application that has a span of its own."""
        with self.tracer.start_as_current_span(name) as span:
            assert isinstance(span, ReadableSpan)
            yield span


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def links_of(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
