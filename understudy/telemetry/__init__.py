"""Spans and metrics of agents for OpenTelemetry: `Telemetry`, and a codec for the caller's trace.

`docs/telemetry.md` lists the spans and metrics.
"""

from understudy.telemetry.telemetry import Telemetry
from understudy.telemetry.trace_context import TraceContext

__all__ = ["Telemetry", "TraceContext"]
