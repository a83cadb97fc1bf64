"""The parent of a trace as W3C's text, which a message carries and an attempt keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from understudy.telemetry.conventions import LINK
from understudy.telemetry.guarded import failed, guarded

TRACEPARENT = "traceparent"
_MAX_STATE = 1024
"""The maximum characters of a tracestate; a longer one is left out, as W3C allows."""
_W3C = TraceContextTextMapPropagator()


class TraceContext:
    """A codec of `Runtime(context=[...])` that carries the caller's span to the run of its message.

    A runtime with `telemetry=` already has it. Use it in programs that call agents elsewhere, for
    example through a `Cluster`, or whose agents have no telemetry of their own. Without a span it
    carries nothing. A value that is not a traceparent is ignored.
    """

    name: str = TRACEPARENT
    """The name of the codec."""

    def __repr__(self) -> str:
        return "TraceContext()"

    def capture(self) -> str | None:
        """Return the current span as `traceparent`, then a space and `tracestate` if there
        is one.
        """
        return guarded("the current span", None, _captured)

    @contextmanager
    def apply(self, value: str) -> Iterator[None]:
        """Make the span the parent of the spans that begin in this block."""
        found = parent_of(value)
        if found is None:
            yield
            return
        token = otel_context.attach(found)
        try:
            yield
        finally:
            otel_context.detach(token)


def _captured() -> str | None:
    if not get_current_span().get_span_context().is_valid:
        return None
    return _text(otel_context.get_current())


def _text(context: Context) -> str | None:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context=context)
    parent, state = carrier.get(TRACEPARENT), carrier.get("tracestate", "")
    if parent is None or not state or len(state) > _MAX_STATE:
        return parent
    return f"{parent} {state}"


def parent_of(text: object) -> Context | None:
    """A context in which the span of this text is current; None if the text is no traceparent."""
    try:
        if not isinstance(text, str):
            return None
        parent, _, state = text.partition(" ")
        found = _W3C.extract({TRACEPARENT: parent, "tracestate": state}, context=Context())
        return found if get_current_span(found).get_span_context().is_valid else None
    except Exception:
        failed("reading a traceparent")
        return None


def link_to(text: object, kind: str) -> list[Link]:
    """A link to the span of this text; empty if the text is no traceparent."""
    found = parent_of(text)
    if found is None:
        return []
    return [Link(get_current_span(found).get_span_context(), {LINK: kind})]


def traceparent_of(span: SpanContext) -> str | None:
    """The traceparent of the span; None if the span is invalid."""
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
