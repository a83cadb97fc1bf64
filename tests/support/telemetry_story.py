"""The trace of `docs/telemetry.md`: one run, two processes, a `kill -9` and a person between them.

`python -m tests.support.telemetry_story` plays it, and prints what the two processes have exported.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from tests.support.agents import FakeClock, by_turn, completed, interrupted
from understudy import Agent, Runtime, approve, call, tool
from understudy.telemetry import Telemetry

ROOT = Path(__file__).parents[2]
NAME = "tests.support.telemetry_story"
Span = dict[str, Any]


def _play(folder: Path, process: int) -> None:
    """What one process does. The first one kills itself while a person is asked."""

    def line(span: ReadableSpan) -> str:
        return json.dumps({**json.loads(span.to_json()), "process": process}) + "\n"

    with (folder / "spans.jsonl").open("a", encoding="utf-8") as out:
        tracers = TracerProvider()
        tracers.add_span_processor(
            SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=line))
        )
        tracer = tracers.get_tracer("shop")

        @tool
        def look_up(order: str) -> str:
            """Look an order up."""
            with tracer.start_as_current_span("SELECT orders"):
                return "20 euros, paid"

        @tool(ask=True)
        def refund(order: str) -> str:
            """Pay money back."""
            with tracer.start_as_current_span("POST /refunds"):
                return "refunded"

        order = {"order": "17"}
        agent = Agent(
            "desk",
            by_turn(call("look_up", order), call("refund", order), "It is refunded."),
            tools=[look_up, refund],
        )
        clock = FakeClock()
        clock.time += timedelta(days=3 * (process - 1))
        store = f"sqlite:///{folder / 'agents.db'}"
        telemetry = Telemetry(tracer_provider=tracers)
        with Runtime([agent], store=store, clock=clock, telemetry=telemetry) as runtime:
            if process == 1:
                with tracer.start_as_current_span("POST /chat"):
                    ref = runtime.spawn("desk", id="desk-17")
                    interrupted(ref.run("I want my money back.").get(timeout=60))
                os.kill(os.getpid(), signal.SIGKILL)
            ref = runtime.get("desk-17")
            (pending,) = runtime.pending().get(timeout=60)
            with tracer.start_as_current_span("POST /approvals"):
                decided = {pending.request.id: approve(by="ann")}
                completed(ref.resume(decided).get(timeout=60))


def played() -> list[Span]:
    """The spans of both processes, as they were exported."""
    with tempfile.TemporaryDirectory() as folder:
        for process, code in ((1, -signal.SIGKILL), (2, 0)):
            done = subprocess.run(
                [sys.executable, "-m", NAME, folder, str(process)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                timeout=120,
            )
            assert done.returncode == code, f"process {process} ended with {done.returncode}"
        exported = (Path(folder) / "spans.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in exported.splitlines()]


def as_text(spans: list[Span]) -> str:
    """The spans as a tree for each trace, with names in the place of ids."""
    spans = sorted(spans, key=lambda span: (span["process"], span["start_time"]))
    traces = list(
        dict.fromkeys(span["context"]["trace_id"] for span in spans if not span["parent_id"])
    )
    letters = dict(zip(traces, "AB", strict=True))
    by_id = {span["context"]["span_id"]: span for span in spans}
    lines: list[str] = []
    for trace in traces:
        lines += ["", f"trace {letters[trace]}"] if lines else [f"trace {letters[trace]}"]
        inside = [span for span in spans if span["context"]["trace_id"] == trace]
        roots = [span for span in inside if span["parent_id"] is None]
        lines += _tree(roots, inside, "", letters, by_id)
    return "\n".join(lines) + "\n"


def _tree(
    level: list[Span], spans: list[Span], indent: str, letters: dict[str, str], by_id: Any
) -> Iterator[str]:
    for place, span in enumerate(level):
        is_last = place == len(level) - 1
        branch = "└── " if is_last else "├── "
        name = f"{indent}{branch}{span['name']}"
        yield f"{name:<42} {_about(span, letters, by_id)}".rstrip()
        below = [other for other in spans if other["parent_id"] == span["context"]["span_id"]]
        yield from _tree(below, spans, indent + ("    " if is_last else "│   "), letters, by_id)


def _about(span: Span, letters: dict[str, str], by_id: dict[str, Span]) -> str:
    attributes, facts = span["attributes"], [f"process {span['process']}"]
    if "understudy.run.attempt" in attributes:
        facts.append(f"attempt {attributes['understudy.run.attempt']}")
    for name in ("understudy.outcome", "understudy.decision"):
        facts += [attributes[name]] if name in attributes else []
    if span["name"].startswith("wait_for_person"):
        facts.append(_days(span))
    for link in span["links"]:
        other = by_id[link["context"]["span_id"]]
        facts.append(
            f"{link['attributes']['understudy.link']}: {other['name']} in trace "
            f"{letters[link['context']['trace_id']]}"
        )
    return ", ".join(facts)


def _days(span: Span) -> str:
    start, end = (datetime.fromisoformat(span[key]) for key in ("start_time", "end_time"))
    return f"{(end - start) / timedelta(days=1):g} days"


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _play(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        sys.stdout.write(as_text(played()))
