"""Spans of no length: what happens to a run when none of its attempts is under way."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode

from understudy.state.run_state import RunState
from understudy.telemetry import conventions as c
from understudy.telemetry.guarded import GuardedTracer
from understudy.telemetry.trace_context import parent_of


def moment(
    tracer: GuardedTracer,
    operation: str,
    run: RunState,
    *,
    trace: str | None,
    at: datetime | None = None,
    error: str | None = None,
    detail: str | None = None,
) -> None:
    """Report something that happened to a run, below its last attempt.

    Args:
        tracer: the tracer that makes the span.
        operation: what happened, in one word.
        run: the run.
        trace: the traceparent of its last attempt.
        at: the time; None = now.
        error: the type of the error, if it is an error.
        detail: the text of the error, if it may be reported.

    """
    attributes: dict[str, Any] = {
        c.OPERATION: operation,
        c.AGENT_NAME: run.agent,
        c.AGENT_ID: run.agent_id,
        c.CONVERSATION_ID: run.agent_id,
        c.RUN_ID: run.run_id,
        c.RUN_ATTEMPT: run.attempts,
    }
    if error is not None:
        attributes[c.ERROR_TYPE] = error
    when = time.time_ns() if at is None else nanoseconds(at)
    span = tracer.start_span(
        f"{operation} {run.agent}",
        context=parent_of(trace) or Context(),
        kind=SpanKind.INTERNAL,
        attributes=attributes,
        start_time=when,
    )
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, detail))
    span.end(when)


def nanoseconds(at: datetime) -> int:
    """A time in OpenTelemetry's unit."""
    return int(at.timestamp() * 1_000_000) * 1000
