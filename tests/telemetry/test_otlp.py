"""Reports reach a server by OpenTelemetry's own exporter, as its protocol says (O5)."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.support.agents import by_turn, completed, interrupted
from understudy import Agent, Runtime, approve, call, tool
from understudy.telemetry import Telemetry, conventions


class Collector(ThreadingHTTPServer):
    """Keeps the bodies that were posted, by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: dict[str, list[bytes]] = {}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:  # the name that the base class calls
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.setdefault(self.path, []).append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@tool(ask=True)
def pay(order: str) -> str:
    """Pay it."""
    return "paid"


def test_a_collector_gets_the_spans_and_metrics_of_a_run(collector: Collector) -> None:
    url = f"http://127.0.0.1:{collector.server_port}"
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/traces")))
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(f"{url}/metrics"), export_interval_millis=3_600_000
    )
    meters = MeterProvider([reader], shutdown_on_exit=False)
    agent = Agent("desk", by_turn(call("pay", {"order": "17"}), "Done."), tools=[pay])
    telemetry = Telemetry(tracer_provider=tracers, meter_provider=meters)
    with Runtime([agent], telemetry=telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(ref.run("Hi.").get(timeout=60))
        completed(ref.resume(asked.decide(approve())).get(timeout=60))
        assert meters.force_flush(30_000)
    tracers.shutdown()
    meters.shutdown()

    spans = [
        span
        for body in collector.bodies["/traces"]
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    attempts = [span for span in spans if span.name == "invoke_agent desk"]
    assert [link.span_id for link in attempts[1].links] == [attempts[0].span_id]
    (wait,) = [span for span in spans if span.name == "wait_for_person pay"]
    assert wait.parent_span_id == attempts[0].span_id
    names = {
        metric.name
        for body in collector.bodies["/metrics"]
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert {conventions.REQUEST_WAIT.name, conventions.OLDEST_REQUEST.name} <= names
