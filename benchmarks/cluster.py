"""What a cluster costs: a run and a decision at a runtime, at processes and at Ray, in one go.

python -m benchmarks.cluster postgresql://user@server/database
python -m benchmarks.cluster postgresql://user@server/database --ray
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from benchmarks.simulate_hosts import desk
from understudy import Agent, Interrupted, Runtime, approve
from understudy.cluster import Cluster

COUNT = 200


def make() -> list[Agent]:
    """The factory of the hosts."""
    return [desk()]


def decisions(runtime: Runtime, name: str, count: int) -> Iterator[tuple[float, float]]:
    """The seconds of a run until its request, and of the decision until the run's end."""
    for n in range(count):
        ref = runtime.spawn("desk", f"{name}-{n}")
        start = time.perf_counter()
        outcome = ref.run("Refund order 17, please.").get(timeout=60)
        asked = time.perf_counter()
        assert isinstance(outcome, Interrupted), outcome
        ref.resume(outcome.decide(approve(by="ann"))).get(timeout=60)
        yield asked - start, time.perf_counter() - asked


def measure(
    name: str, open_: Callable[[ExitStack], Runtime], count: int = COUNT
) -> dict[str, float]:
    """Seconds: to start; p50 of a run and of a decision."""
    with ExitStack() as stack:
        start = time.perf_counter()
        runtime = open_(stack)
        started = time.perf_counter() - start
        for _ in decisions(runtime, f"{name}-warm", 20):
            pass
        runs, decided = zip(*decisions(runtime, name, count), strict=True)
    return {
        "start": started,
        "run": statistics.median(runs),
        "decision": statistics.median(decided),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--ray", action="store_true", help="and Ray, which must be installed")
    parser.add_argument("--count", type=int, default=COUNT)
    arguments = parser.parse_args()
    factory = "benchmarks.cluster:make"
    url: str = arguments.url
    cases: dict[str, Callable[[ExitStack], Runtime]] = {
        "runtime": lambda stack: stack.enter_context(Runtime(make(), store=url)),
        "processes": lambda stack: stack.enter_context(Cluster(factory, 1, store=url)),
    }
    if arguments.ray:
        cases["ray"] = lambda stack: stack.enter_context(
            Cluster(factory, 1, store=url, engine="ray")
        )
    print("| | start, s | run, ms | decision, ms |")
    print("|---|---|---|---|")
    for name, open_ in cases.items():
        found = measure(f"{name}-{time.time_ns()}", open_, arguments.count)
        run, decision = found["run"] * 1000, found["decision"] * 1000
        print(f"| {name} | {found['start']:.2f} | {run:.1f} | {decision:.1f} |")


if __name__ == "__main__":
    main()
