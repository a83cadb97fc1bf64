"""`Meters`: the instruments of the metrics, each made when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry.metrics import CallbackOptions, Observation

from understudy.telemetry.conventions import (
    LONG_SECONDS,
    REQUEST_WAIT,
    RUN_DURATION,
    SECONDS,
    Metric,
)
from understudy.telemetry.guarded import Guarded, failed

Observe = Callable[[], Iterable[Observation]]


class Meters:
    """Records metrics. Nothing here raises."""

    def __init__(self, meter: Guarded) -> None:
        self._meter = meter
        self._made: dict[str, Any] = {}

    def add(self, metric: Metric, value: float, attributes: Mapping[str, Any]) -> None:
        """Add a value to a counter."""
        found = self._made.get(metric.name)
        if found is None:
            found = self._made[metric.name] = self._meter.create_counter(
                metric.name, unit=metric.unit, description=metric.description
            )
        found.add(value, attributes)

    def record(self, metric: Metric, value: float, attributes: Mapping[str, Any]) -> None:
        """Add a value to a histogram."""
        found = self._made.get(metric.name)
        if found is None:
            bounds = LONG_SECONDS if metric in (REQUEST_WAIT, RUN_DURATION) else SECONDS
            found = self._made[metric.name] = self._meter.create_histogram(
                metric.name,
                unit=metric.unit,
                description=metric.description,
                explicit_bucket_boundaries_advisory=bounds,
            )
        found.record(value, attributes)

    def observe(self, metric: Metric, read: Observe) -> None:
        """Read a gauge by this function, in the thread that collects."""

        def callback(_: CallbackOptions) -> Iterable[Observation]:
            try:
                return list(read())
            except Exception:
                failed(f"reading {metric.name}")
                return []

        self._meter.create_observable_gauge(
            metric.name,
            callbacks=[callback],
            unit=metric.unit,
            description=metric.description,
        )
