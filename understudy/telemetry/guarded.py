"""OpenTelemetry as the library calls it: its errors are logged once, and not raised.

The API promises that its implementations do not raise. Span processors, samplers and providers of
an application may raise nevertheless, which must not affect an agent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanContext,
    Tracer,
    TracerProvider,
    use_span,
)

logger: logging.Logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

extra_attributes: ContextVar[Mapping[str, str]] = ContextVar("extra_attributes")
"""Attributes of the spans that Pydantic AI begins: it knows no agent here."""

_logged: set[str] = set()
"""The names of what has failed before: each may be called a thousand times a second."""


def failed(what: str) -> None:
    """Log the exception that is handled now, the first time in this process."""
    if what not in _logged:
        _logged.add(what)
        logger.exception("telemetry: %s raised; this is logged once, and the agents continue", what)


def guarded(
    what: str, default: T, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """The result of the function, or the default if it raises."""
    try:
        return function(*args, **kwargs)
    except Exception:
        failed(what)
        return default


class GuardedSpan(Span):
    """A span that raises nothing. It passes on attributes beyond the API."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._context = guarded("a span", INVALID_SPAN.get_span_context(), span.get_span_context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._span, name)

    def get_span_context(self) -> SpanContext:
        return self._context

    def is_recording(self) -> bool:
        return guarded("a span", False, self._span.is_recording)

    def end(self, end_time: int | None = None) -> None:
        guarded("the end of a span", None, self._span.end, end_time)

    def set_attributes(self, attributes: Any) -> None:
        guarded("a span", None, self._span.set_attributes, attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        guarded("a span", None, self._span.set_attribute, key, value)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        guarded("a span", None, self._span.add_event, name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        guarded("a span", None, self._span.add_link, context, attributes)

    def update_name(self, name: str) -> None:
        guarded("a span", None, self._span.update_name, name)

    def set_status(self, status: Any, description: str | None = None) -> None:
        guarded("a span", None, self._span.set_status, status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Any = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        guarded(
            "a span", None, self._span.record_exception, exception, attributes, timestamp, escaped
        )


class GuardedTracer(Tracer):
    """A tracer that raises nothing."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Span:
        extra = extra_attributes.get(None)
        if extra:
            kwargs["attributes"] = {**(kwargs.get("attributes") or {}), **extra}
        try:
            return GuardedSpan(self._tracer.start_span(name, *args, **kwargs))
        except Exception:
            failed("the start of a span")
            return INVALID_SPAN

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # the API says what the decorator returns
        self,
        name: str,
        *args: Any,
        end_on_exit: bool = True,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        **kwargs: Any,
    ) -> Iterator[Span]:
        span = self.start_span(name, *args, **kwargs)
        with use_span(
            span,
            end_on_exit=end_on_exit,
            record_exception=record_exception,
            set_status_on_exception=set_status_on_exception,
        ):
            yield span


class GuardedTracerProvider(TracerProvider):
    """A provider of tracers that raise nothing."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        found = guarded("the tracer provider", None, self._provider.get_tracer, *args, **kwargs)
        return GuardedTracer(_NO_TRACER if found is None else found)


class _NoTracer(Tracer):
    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Span:
        return INVALID_SPAN

    def start_as_current_span(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return use_span(INVALID_SPAN, end_on_exit=False)


_NO_TRACER = _NoTracer()


class Guarded:
    """Any other object of the API, such as a meter, whose methods raise nothing.

    A method that would raise returns None. The results of `create_...` and `get_...` are guarded
    too, and never None.
    """

    def __init__(self, inner: object, what: str) -> None:
        self._inner = inner
        self._what = what

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        makes = name.startswith(("create_", "get_"))

        def call(*args: Any, **kwargs: Any) -> Any:
            inner = self._inner
            method = None if inner is None else getattr(inner, name)
            value = None if method is None else guarded(self._what, None, method, *args, **kwargs)
            return Guarded(value, self._what) if makes else value

        return call
