"""Spans and metrics of agents for OpenTelemetry: `Telemetry`, and what carries the caller's trace.

`docs/telemetry.md` says which spans and metrics there are.
"""

from understudy.telemetry.telemetry import Telemetry
from understudy.telemetry.trace_context import TraceContext

__all__ = ["Telemetry", "TraceContext"]
