"""What telemetry costs a step of an agent: off, on without an SDK, on with one.

`python -m benchmarks.telemetry` prints a table. A step is a model call and a tool call, with a fake
model and the store in memory. The three are measured by turns, in processor time of the whole
process, and each line is the median of its ratios to telemetry that is off.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from understudy import Agent, Completed, Runtime, ScriptedModel, call, tool
from understudy.telemetry import Telemetry

STEPS = 20
ROUNDS = 30


class Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@tool
async def look_up(order: str) -> str:
    """Look an order up."""
    return "20 euros"


def _agent() -> Agent:
    replies: list[Any] = [call("look_up", {"order": str(step)}) for step in range(STEPS)]
    return Agent("desk", ScriptedModel([*replies, "Done."] * 1000), tools=[look_up])


async def _seconds(runtime: Runtime, agent: str, id: str) -> float:
    ref = runtime.spawn(agent, id=id)
    since = time.process_time()
    outcome = await ref.run("Hi.")
    seconds = time.process_time() - since
    assert isinstance(outcome, Completed), outcome
    return seconds / (STEPS + 1)


async def measure(rounds: int = ROUNDS) -> dict[str, tuple[float, float]]:
    """By what is measured: seconds of a step, and the ratio to telemetry that is off."""
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    kinds: dict[str, Telemetry | None] = {
        "off": None,
        "off again": None,
        "on, without an SDK": Telemetry(),
        "on, with an SDK": Telemetry(tracer_provider=tracers, meter_provider=meters),
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    runtimes = {
        kind: Runtime([_agent()], telemetry=telemetry, idle_timeout=None)
        for kind, telemetry in kinds.items()
    }
    for runtime in runtimes.values():
        await runtime.__aenter__()
    try:
        for number in range(rounds + 3):
            for kind in list(kinds) if number % 2 else list(reversed(kinds)):
                seconds = await _seconds(runtimes[kind], "desk", f"a{number}")
                if number >= 3:  # the first ones warm up
                    found[kind].append(seconds)
    finally:
        for runtime in runtimes.values():
            await runtime.__aexit__(None, None, None)
        tracers.shutdown()
        meters.shutdown()
    off = found["off"]
    return {
        kind: (
            statistics.median(seconds),
            statistics.median(one / other for one, other in zip(seconds, off, strict=True)),
        )
        for kind, seconds in found.items()
    }


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    print(f"{'telemetry':<22} {'a step':>10} {'ratio':>7}")
    for kind, (seconds, ratio) in asyncio.run(measure(rounds)).items():
        print(f"{kind:<22} {seconds * 1e6:>7.0f} µs {ratio:>7.3f}")


if __name__ == "__main__":
    main()
