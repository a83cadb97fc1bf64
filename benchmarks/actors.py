"""What actors cost: `python -m benchmarks.actors`, or `make bench-actors`.

Each case has a process of its own, and only one runs at a time. The rival of a case, Pykka's
`ThreadingActor` or our own `Agent.execute`, runs in the same process, so ratios are of one run.
Times are the wall clock's: threads and loops wait for each other here.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pykka
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings

from benchmarks.adapter import PROMPT
from benchmarks.fake_model import Fake
from benchmarks.machine import ROOT, machine_line
from understudy import Agent, AgentRef, Completed, LoopActor, Runtime
from understudy.actors import LoopThread, loop_for_start
from understudy.models import ScriptedModel

__all__ = ["CASES", "SIZES", "rows"]

Numbers = dict[str, float]
SIZES = {"few": 5_000, "many": 100_000, "threads": 500, "asks": 5_000, "tells": 100_000}
SIZES |= {"agents": 100, "steps": 10, "idle": 1_000, "repeats": 5}


class Loop(LoopActor):
    def on_receive(self, message: Any) -> Any:
        return message


class Thread(pykka.ThreadingActor):
    def on_receive(self, message: Any) -> Any:
        return message


class StreamingFake(Fake):
    """A runtime tells events, so it asks for a stream: this one brings the reply in one piece."""

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        given = await self.request(messages, model_settings, model_request_parameters)
        model = ScriptedModel([given], delta_size=1000)
        async with model.request_stream(messages, None, model_request_parameters) as stream:
            yield stream


def _rss() -> int:
    """Bytes of this process in memory."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


# --------------------------------------------------------------------------- actors


def _started(count: int) -> Numbers:
    """Microseconds and memory of an actor that was started, on_start included."""

    async def main() -> Numbers:
        gc.collect()
        rss, begin = _rss(), perf_counter()
        refs = [Loop.start() for _ in range(count)]
        called = perf_counter() - begin
        await refs[-1].ask("all before it have started", block=False)
        seconds = perf_counter() - begin
        kilobytes = (_rss() - rss) / count / 1024
        for ref in refs:
            ref.stop(block=False)
        await refs[-1].stop(block=False)
        return {
            "start_us": seconds / count * 1e6,
            "call_us": called / count * 1e6,
            "rss_kb": kilobytes,
            "seconds": seconds,
        }

    return asyncio.run(main())


def _traced(count: int) -> float:
    """KB of a started actor, by tracemalloc."""

    async def main() -> float:
        await Loop.start().stop(block=False)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        refs = [Loop.start() for _ in range(count)]
        await refs[-1].ask("started", block=False)
        gc.collect()
        kilobytes = (tracemalloc.get_traced_memory()[0] - before) / count / 1024
        tracemalloc.stop()
        for ref in refs:
            ref.stop(block=False)
        await refs[-1].stop(block=False)
        return kilobytes

    return asyncio.run(main())


def case_start(sizes: dict[str, int]) -> Numbers:
    """Start few actors and, as the rival, threads."""
    _started(100)
    found = [_started(sizes["few"]) for _ in range(sizes["repeats"])]
    numbers = {key: median(f[key] for f in found) for key in ("start_us", "call_us")}
    numbers["rss_kb"] = found[0]["rss_kb"]  # the later ones get the memory of the first
    numbers["traced_kb"] = _traced(sizes["few"])
    gc.collect()
    rss, begin = _rss(), perf_counter()
    threads = [Thread.start() for _ in range(sizes["threads"])]
    threads[-1].ask("started")
    numbers["rival_us"] = (perf_counter() - begin) / len(threads) * 1e6
    numbers["rival_kb"] = (_rss() - rss) / len(threads) / 1024
    pykka.ActorRegistry.stop_all()
    return numbers


def case_many(sizes: dict[str, int]) -> Numbers:
    """So many idle actors in one process."""
    return _started(sizes["many"])


def case_messages(sizes: dict[str, int]) -> Numbers:
    """Asks from another thread and on the loop, and tells, beside a thread actor."""
    thread = LoopThread()
    token = loop_for_start.set(thread.start())
    try:
        ours = Loop.start()
    finally:
        loop_for_start.reset(token)
    rival = Thread.start()
    found = {
        "ask_us": _each([_asked(ours, sizes), _asked(ours, sizes)]),
        "rival_ask_us": _each([_asked(rival, sizes), _asked(rival, sizes)]),
        "tells_per_s": _told(ours, sizes),
        "rival_tells_per_s": _told(rival, sizes),
    }
    ours.stop()
    rival.stop()
    thread.stop()

    async def on_the_loop() -> Numbers:
        ref = Loop.start()
        await ref.ask(0, block=False)
        begin = perf_counter()
        for _ in range(sizes["asks"]):
            await ref.ask(0, block=False)
        ask = (perf_counter() - begin) / sizes["asks"] * 1e6
        begin = perf_counter()
        for _ in range(sizes["tells"]):
            ref.tell(0)
        await ref.ask(0, block=False)
        tells = sizes["tells"] / (perf_counter() - begin)
        await ref.stop(block=False)
        return {"loop_ask_us": ask, "loop_tells_per_s": tells}

    return found | asyncio.run(on_the_loop())


def _each(values: Sequence[float]) -> float:
    return min(values)


def _asked(ref: pykka.ActorRef[Any], sizes: dict[str, int]) -> float:
    ref.ask(0)
    begin = perf_counter()
    for _ in range(sizes["asks"]):
        ref.ask(0)
    return (perf_counter() - begin) / sizes["asks"] * 1e6


def _told(ref: pykka.ActorRef[Any], sizes: dict[str, int]) -> float:
    begin = perf_counter()
    for _ in range(sizes["tells"]):
        ref.tell(0)
    ref.ask(0)
    return sizes["tells"] / (perf_counter() - begin)


# --------------------------------------------------------------------------- agents


def _agent(steps: int) -> Agent:
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    return Agent("bench", StreamingFake(steps), tools=[add], max_runs=10**6)


def case_agents(sizes: dict[str, int]) -> Numbers:
    """So many agents together: each by `ref.run`, and each by `Agent.execute`."""
    agent, count = _agent(sizes["steps"]), sizes["agents"]

    async def executed() -> float:
        gc.collect()
        begin = perf_counter()
        outcomes = await asyncio.gather(*(agent.execute(PROMPT) for _ in range(count)))
        seconds = perf_counter() - begin
        assert all(isinstance(outcome, Completed) for outcome in outcomes)
        return count * sizes["steps"] / seconds

    async def streamed() -> float:
        async def drain() -> None:
            async for _ in agent.stream(PROMPT):
                pass

        gc.collect()
        begin = perf_counter()
        await asyncio.gather(*(drain() for _ in range(count)))
        return count * sizes["steps"] / (perf_counter() - begin)

    async def run() -> tuple[float, float]:
        async with Runtime([agent]) as runtime:
            gc.collect()
            begin = perf_counter()
            refs = [runtime.spawn("bench") for _ in range(count)]
            spawned = perf_counter()
            for future in [ref.run(PROMPT) for ref in refs]:
                assert isinstance(await future, Completed)
            return count * sizes["steps"] / (perf_counter() - begin), (spawned - begin) / count

    async def main() -> Numbers:
        await run()
        await executed()
        rounds = range(sizes["repeats"])
        found = [(await run(), await executed(), await streamed()) for _ in rounds]
        return {
            "steps_per_s": median(ours[0] for ours, _, _ in found),
            "spawn_us": median(ours[1] for ours, _, _ in found) * 1e6,
            "execute_steps_per_s": median(rival for _, rival, _ in found),
            "stream_steps_per_s": median(rival for _, _, rival in found),
        }

    return asyncio.run(main())


async def _idle(runtime: Runtime, count: int) -> list[AgentRef]:
    """So many agents, each with four messages: a question, a call, its result, the answer."""
    refs = [runtime.spawn("bench") for _ in range(count)]
    for future in [ref.run(PROMPT) for ref in refs]:
        await future
    return refs


def case_memory(sizes: dict[str, int]) -> Numbers:
    """Memory of an idle agent, awake and passive; by tracemalloc, and awake by RSS too."""
    count = sizes["idle"]

    async def by_rss() -> float:
        async with Runtime([_agent(2)], idle_timeout=None) as runtime:
            await _idle(runtime, 10)
            gc.collect()
            before = _rss()
            await _idle(runtime, count)
            gc.collect()
            return (_rss() - before) / count / 1024

    async def traced() -> Numbers:
        async with Runtime([_agent(2)], idle_timeout=None) as runtime:
            await _idle(runtime, 10)
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            refs = await _idle(runtime, count)
            gc.collect()
            awake = tracemalloc.get_traced_memory()[0] - before
            for future in [ref.stop(block=False) for ref in refs]:
                await future
            while runtime.status().agents > 10:  # noqa: ASYNC110  # nobody tells when all lie
                await asyncio.sleep(0.01)
            del refs, future
            gc.collect()
            passive = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            return {"awake_kb": awake / count / 1024, "passive_kb": passive / count / 1024}

    rss = asyncio.run(by_rss())
    return {"awake_rss_kb": rss, **asyncio.run(traced())}


CASES: dict[str, Callable[[dict[str, int]], Numbers]] = {
    "start": case_start,
    "many": case_many,
    "messages": case_messages,
    "agents": case_agents,
    "memory": case_memory,
}


# ---------------------------------------------------------------------------- table


def rows(found: dict[str, Numbers]) -> Iterator[str]:
    """The Markdown table of what was measured."""
    start, many, messages = found["start"], found["many"], found["messages"]
    agents, memory = found["agents"], found["memory"]
    yield "| what | ours | rival in the same run | ratio | budget | met |"
    yield "|---|---|---|---|---|---|"
    yield _row("start an actor, µs", start["start_us"], start["rival_us"], 20)
    yield _row("an idle actor, KB (traced)", start["traced_kb"], start["rival_kb"], 3)
    yield _row("an idle actor, KB (RSS)", start["rss_kb"], start["rival_kb"], 3)
    yield _row("start one of 100,000 actors, µs", many["start_us"], None, 20)
    yield _row("100,000 idle actors, KB each (RSS)", many["rss_kb"], None, 3)
    yield _row("100,000 actors started, s", many["seconds"], None, None)
    yield _row("ask from another thread, µs", messages["ask_us"], messages["rival_ask_us"], None)
    yield _row("ask on the loop, µs", messages["loop_ask_us"], messages["rival_ask_us"], None)
    rival = messages["rival_tells_per_s"]
    yield _row("tells a second from another thread", messages["tells_per_s"], rival, None)
    yield _row("tells a second on the loop", messages["loop_tells_per_s"], rival, None)
    ours, execute = agents["steps_per_s"], agents["execute_steps_per_s"]
    yield _row("agents together by `ref.run`, steps/s (rival: `execute`)", ours, execute, None)
    stream = agents["stream_steps_per_s"]
    yield _row("agents together by `ref.run`, steps/s (rival: `stream`)", ours, stream, None)
    yield _row("`Runtime.spawn`, µs", agents["spawn_us"], None, None)
    yield _row("an idle agent with 4 messages, KB (traced)", memory["awake_kb"], None, 6)
    yield _row("an idle agent with 4 messages, KB (RSS)", memory["awake_rss_kb"], None, 6)
    yield _row("the same passive, KB (the memory store is in it)", memory["passive_kb"], None, None)


def _row(what: str, ours: float, rival: float | None, budget: float | None) -> str:
    shown = "-" if rival is None else f"{rival:,.1f}"
    ratio = "-" if not rival else f"{ours / rival:.2f} ×"
    must = "-" if budget is None else f"≤ {budget:g}"
    met = "-" if budget is None else "yes" if ours <= budget else "**no**"
    return f"| {what} | {ours:,.1f} | {shown} | {ratio} | {must} | {met} |"


def _in_process(case: str) -> Numbers:
    command = [sys.executable, "-m", "benchmarks.actors", case]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            numbers: Numbers = json.loads(line.removeprefix("RESULT "))
            return numbers
    raise SystemExit(f"case {case!r} failed:\n{done.stderr[-2000:]}")


def main(given: Sequence[str] | None = None) -> None:
    """Measure one case here, or all of them in processes of their own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="?", choices=CASES)
    case = parser.parse_args(given).case
    if case is not None:
        print("RESULT " + json.dumps(CASES[case](SIZES)), flush=True)
        return
    print(machine_line() + "\n")
    print("\n".join(rows({name: _in_process(name) for name in CASES})))


if __name__ == "__main__":
    main()
