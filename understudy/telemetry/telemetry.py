"""`Telemetry`: the option `Runtime(telemetry=...)`, which reports to OpenTelemetry what agents
do.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Literal, get_args

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider, get_meter_provider
from opentelemetry.trace import (
    NoOpTracerProvider,
    ProxyTracerProvider,
    TracerProvider,
    get_tracer_provider,
)
from pydantic_ai.models.instrumented import InstrumentationSettings

from understudy._base.context_codecs import ContextCodec
from understudy._base.json_values import checked_flag, checked_seconds, shown
from understudy.actors.agent.services import RuntimeServices, RuntimeTelemetry
from understudy.errors import UsageError
from understudy.journal.database_store import DatabaseStore
from understudy.run.account import Shortage
from understudy.telemetry.conventions import (
    BUDGET,
    BUDGET_REFUSALS,
    COMMIT_DURATION,
    ERROR_TYPE,
    SCOPE,
)
from understudy.telemetry.gauges import Gauges
from understudy.telemetry.guarded import Guarded, GuardedTracer, GuardedTracerProvider, guarded
from understudy.telemetry.meters import Meters
from understudy.telemetry.run_spans import RunSpans
from understudy.telemetry.trace_context import TraceContext

logger: logging.Logger = logging.getLogger(__name__)

Version = Literal[5, 6]


class Telemetry(RuntimeTelemetry):
    """Makes spans and metrics of agents, by the API of OpenTelemetry.

    One object serves any number of runtimes, and `Agent.execute(telemetry=...)`. Set up the SDK of
    OpenTelemetry before a runtime is opened: without an SDK nothing is measured.

    Args:
        tracer_provider: the provider of the tracers; by default the global provider.
        meter_provider: the provider of the meters; by default the global provider.
        content: whether prompts, replies, arguments, results and the names of persons who
            decide are included. By default they are not.
        version: the version of Pydantic AI's format for messages, if `content` is true.
        continue_trace: True = all attempts of a run are in the trace of its first attempt, for
            backends that do not show links. By default each attempt is in a trace of its own,
            or in the caller's trace, with a link to the attempt before it.
        gauge_seconds: the number of seconds for which gauges repeat what they read from the
            store.

    Raises:
        UsageError: if an argument has a wrong type.

    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
        version: Version = 5,
        continue_trace: bool = False,
        gauge_seconds: float = 15.0,
    ) -> None:
        if tracer_provider is not None and not isinstance(tracer_provider, TracerProvider):
            raise UsageError(
                f"`tracer_provider` must be a TracerProvider, got {shown(tracer_provider)}"
            )
        if meter_provider is not None and not isinstance(meter_provider, MeterProvider):
            raise UsageError(
                f"`meter_provider` must be a MeterProvider, got {shown(meter_provider)}"
            )
        for name, flag in (("content", content), ("continue_trace", continue_trace)):
            checked_flag(flag, what=f"`{name}`")
        if isinstance(version, bool) or version not in get_args(Version):
            raise UsageError(f"`version` must be one of {get_args(Version)}, got {shown(version)}")
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider
        self._content = content
        self._version: Version = version
        self._continue_trace = continue_trace
        self._gauge_seconds = checked_seconds(gauge_seconds, what="`gauge_seconds`")
        self._codec = TraceContext()
        self._lock = threading.Lock()
        self._parts: _Parts | None = None

    def __repr__(self) -> str:
        return f"Telemetry(content={self._content}, continue_trace={self._continue_trace})"

    @property
    def codec(self) -> ContextCodec:
        """The codec that carries the caller's span to the run of its message."""
        return self._codec

    def instrument(self) -> RunSpans | None:
        """Return the observer of runs; None without an SDK."""
        return self._watching(None)

    def watch(self, services: RuntimeServices[Any, Any]) -> RunSpans | None:
        """Measure a runtime that opens; None without an SDK. Only `Runtime` calls it."""
        return guarded("opening a runtime", None, self._watch, services)

    def leave(self, services: RuntimeServices[Any, Any]) -> None:
        """Stop measuring a runtime that closes. Only `Runtime` calls it."""
        if self._parts is not None:
            self._parts.gauges.remove(services)

    def _watch(self, services: RuntimeServices[Any, Any]) -> RunSpans | None:
        found = self._watching(services.host)
        parts = self._parts
        if found is None or parts is None:
            logger.info(
                "telemetry is asked for, and no SDK of OpenTelemetry is set up: nothing is measured"
            )
            return None
        parts.gauges.add(services)
        if services.budgets is not None:
            services.budgets.on_refused = parts.refused
        if isinstance(services.store, DatabaseStore):
            services.store.tell_commits(parts.committed)
        return found

    def _watching(self, host: str | None) -> RunSpans | None:
        with self._lock:
            if self._parts is None:
                self._parts = guarded("setting up", None, self._made)
            parts = self._parts
        if parts is None:
            return None
        return RunSpans(
            parts.tracer,
            parts.meters,
            parts.models,
            content=self._content,
            continue_trace=self._continue_trace,
            host=host,
        )

    def _made(self) -> _Parts | None:
        tracers = self._tracer_provider or get_tracer_provider()
        meters = self._meter_provider or get_meter_provider()
        if not (_makes_spans(tracers) or _makes_metrics(meters)):
            return None
        return _Parts(
            GuardedTracerProvider(tracers),
            Guarded(meters, "a meter"),
            (InstrumentationSettings if self._content else _WithoutMessages)(
                tracer_provider=GuardedTracerProvider(tracers),
                meter_provider=Guarded(meters, "a meter"),  # type: ignore[arg-type]  # it is like one
                include_content=self._content,
                include_binary_content=self._content,
                include_model_request_parameters=self._content,
                version=self._version,
            ),
            gauge_seconds=self._gauge_seconds,
        )


class _WithoutMessages(InstrumentationSettings):
    """Report no messages, because Pydantic AI would report the form of each message without its
    text.

    That takes time for each message of the conversation in each model call
    (test_without_content_no_text_of_anybody_is_told).
    """

    def handle_messages(self, *args: Any, **kwargs: Any) -> None:
        pass


class _Parts:
    """The parts that everything watched by one `Telemetry` shares."""

    def __init__(
        self,
        tracers: GuardedTracerProvider,
        meters: Guarded,
        models: InstrumentationSettings,
        *,
        gauge_seconds: float,
    ) -> None:
        tracer = tracers.get_tracer(SCOPE)
        assert isinstance(tracer, GuardedTracer), "its provider makes no other"
        self.tracer: GuardedTracer = tracer
        self.models = models
        self.meters: Meters = Meters(meters.get_meter(SCOPE))
        self.gauges: Gauges = Gauges(self.meters, every=gauge_seconds)

    def committed(self, seconds: float, error: Exception | None) -> None:
        """Note that a store has committed. Called in the thread of its committer."""
        attributes = {} if error is None else {ERROR_TYPE: type(error).__name__}
        self.meters.record(COMMIT_DURATION, seconds, attributes)

    def refused(self, short: Shortage) -> None:
        """Note that a budget has no room for a call, or for a request to a model."""
        self.meters.add(BUDGET_REFUSALS, 1, {BUDGET: short.budget.name})


def _makes_spans(provider: TracerProvider) -> bool:
    return not isinstance(provider, (ProxyTracerProvider, NoOpTracerProvider))


def _makes_metrics(provider: MeterProvider) -> bool:
    # The proxy for a provider that is set later is no public class of the API.
    is_proxy = type(provider).__module__.startswith("opentelemetry.metrics")
    return not (is_proxy or isinstance(provider, NoOpMeterProvider))
