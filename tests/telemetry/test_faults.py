"""What goes wrong in OpenTelemetry: agents do not notice (O4)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.metrics import MeterProvider as MeterProviderApi
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import Tracer
from opentelemetry.trace import TracerProvider as TracerProviderApi

from tests.support.agents import by_turn, completed, interrupted
from tests.support.loops import soon
from tests.support.otel import Told
from understudy import Agent, Runtime, UsageError, approve, call, tool
from understudy.telemetry import Telemetry


@tool(ask=True)
def pay(order: str) -> str:
    """Pay it."""
    return "paid"


def desk() -> Agent:
    return Agent("desk", by_turn(call("pay", {"order": "17"}), "Done."), tools=[pay])


async def works(telemetry: Telemetry, **options: Any) -> None:
    """A run with a wait in it goes as it should."""
    async with Runtime([desk()], telemetry=telemetry, **options) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))
        assert completed(await soon(ref.resume(asked.decide(approve())))).text == "Done."


class Raises(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("on_start")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("on_end")


class RaisesAtEnd(Raises):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        pass


class RaisingSampler(Sampler):
    def should_sample(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("sampler")

    def get_description(self) -> str:
        return "raises"


class RaisingProvider(TracerProviderApi):
    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        raise RuntimeError("provider")


class RaisingMeters(MeterProviderApi):
    def get_meter(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("meter provider")


class RaisingExporter(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise RuntimeError("exporter")


def with_processor(processor: SpanProcessor) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


@pytest.mark.parametrize(
    "tracers",
    [
        with_processor(Raises()),
        with_processor(RaisesAtEnd()),
        with_processor(SimpleSpanProcessor(RaisingExporter())),
        TracerProvider(sampler=RaisingSampler(), shutdown_on_exit=False),
        RaisingProvider(),
    ],
    ids=["processor", "end", "exporter", "sampler", "provider"],
)
async def test_what_raises_below_the_api_changes_no_run(tracers: TracerProviderApi) -> None:
    """O4."""
    await works(Telemetry(tracer_provider=tracers, meter_provider=RaisingMeters()))


async def test_what_raises_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O4."""
    monkeypatch.setattr("understudy.telemetry.guarded._logged", set())
    await works(Telemetry(tracer_provider=with_processor(Raises())))

    logged = [entry for entry in caplog.records if entry.name == "understudy.telemetry.guarded"]
    assert [entry.getMessage().split(";")[0] for entry in logged] == [
        "telemetry: the start of a span raised"
    ]
    assert {entry.levelno for entry in logged} == {logging.ERROR}


class Hangs(SpanExporter):
    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        self.release.wait()
        return SpanExportResult.SUCCESS


async def test_an_exporter_that_hangs_holds_up_neither_runs_nor_the_end() -> None:
    """O4."""
    exporter = Hangs()
    batches = BatchSpanProcessor(exporter, max_queue_size=2, max_export_batch_size=1)
    tracers = with_processor(batches)
    try:
        await works(Telemetry(tracer_provider=tracers))
        assert exporter.entered.is_set() or exporter.entered.wait(timeout=60)
        await works(Telemetry(tracer_provider=tracers))
    finally:
        exporter.release.set()
        tracers.shutdown()


async def test_telemetry_may_be_shut_down_first() -> None:
    told = Told()
    async with Runtime([desk()], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))
        told.tracers.shutdown()
        told.meters.shutdown()
        assert completed(await soon(ref.resume(asked.decide(approve())))).text == "Done."


async def test_without_an_sdk_nothing_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    assert telemetry.instrument() is None
    with caplog.at_level(logging.INFO, logger="understudy.telemetry"):
        await works(telemetry)

    (entry,) = [entry for entry in caplog.records if entry.name.startswith("understudy.telemetry")]
    assert "no SDK of OpenTelemetry is set up" in entry.getMessage()


async def test_of_a_run_that_was_not_told_of_no_span_is_kept() -> None:
    outcome = interrupted(await desk().execute("Hi.", telemetry=Telemetry()))

    assert outcome.state.to_dict()["run"]["trace"] is None


@pytest.mark.parametrize("given", [True, "otlp", Telemetry, object()])
async def test_what_is_no_telemetry_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"`telemetry` must be a Telemetry of understudy"):
        Runtime([], telemetry=given)
    with pytest.raises(UsageError, match=r"`telemetry` must be a Telemetry of understudy"):
        await desk().execute("Hi.", telemetry=given)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"tracer_provider": "otlp"}, "`tracer_provider` must be a TracerProvider, got 'otlp'"),
        ({"meter_provider": 3}, "`meter_provider` must be a MeterProvider, got 3"),
        ({"content": "no"}, "`content` must be True or False, got 'no'"),
        ({"continue_trace": 1}, "`continue_trace` must be True or False, got 1"),
        ({"version": 4}, r"`version` must be one of \(5, 6\), got 4"),
        ({"version": True}, r"`version` must be one of \(5, 6\), got True"),
        ({"version": []}, r"`version` must be one of \(5, 6\), got \[\]"),
        ({"gauge_seconds": 0}, "`gauge_seconds` must be"),
    ],
)
def test_a_wrong_option_is_refused(options: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Telemetry(**options)
