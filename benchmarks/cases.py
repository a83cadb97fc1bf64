"""What is measured, in a process of its own: `python -m benchmarks.cases NAME CASE ...`.

Time is the processor's, not the wall clock's. A run here waits for nothing, so on an idle machine
both should agree; on a busy one this leaves out the turns that the neighbours had, though not what
they did to the caches. A rival that does wait, for a thread of its own say, looks faster by it.

A run is timed in two ways. *Warm*: one after the other, as a process does that is busy. *Cold*:
right after a full collection, which empties the caches of the processor, as a process does that a
slow model kept waiting. Cold, a short run takes up to 2.5 times as long, of whatever framework.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Any

from benchmarks.adapter import Adapter
from benchmarks.ours import BareLoop, Understudy
from benchmarks.rivals import RIVALS

__all__ = ["ADAPTERS", "CASES", "STEPS", "measure"]

_ALL: tuple[type[Adapter], ...] = (Understudy, BareLoop, *RIVALS)
ADAPTERS = {adapter.name: adapter for adapter in _ALL}
STEPS = (10, 50, 200)
OUR_STEPS = (*STEPS, 1000)
EARLY, LATE = (10, 20), (500, 1000)
"""Two lengths of run each; the step between them is what one costs early and late in a run."""
TOGETHER, TOGETHER_STEPS = 100, 10


async def timed(adapter: Adapter, steps: int, *, cold: bool = False) -> float:
    """Microseconds of one run; checks that the tool ran as often as it must."""
    if cold:
        gc.collect()
    before, start = adapter.tool_calls, process_time()
    await adapter.run(steps)
    passed = process_time() - start
    _check_calls(adapter, adapter.tool_calls - before, steps - 1)
    return passed * 1e6


async def repeated(sample: Callable[[], Awaitable[float]], runs: int, seconds: float) -> float:
    """The median of up to `runs` samples, and of 3 at least where `seconds` are over before."""
    values: list[float] = []
    end = perf_counter() + seconds
    while len(values) < min(3, runs) or (len(values) < runs and perf_counter() < end):
        values.append(await sample())
    return median(values)


async def case_run(adapter: Adapter, steps: Sequence[int], runs: int, seconds: float) -> Any:
    """Microseconds of a step, by length of run, warm and cold; of the fake model alone; of building
    an agent.
    """
    await _warmed(adapter, steps)
    result: dict[str, Any] = {"steps": {}, "cold": {}}
    for count in steps:
        gc.collect()
        await adapter.run(count)
        whole = await repeated(partial(timed, adapter, count), runs, seconds)
        result["steps"][str(count)] = whole / count
        whole = await repeated(partial(timed, adapter, count, cold=True), runs, seconds / 2)
        result["cold"][str(count)] = whole / count
    result["answer"] = _each(adapter.answer, 1000)
    result["build"] = _each(lambda: adapter.build(10), 20)
    return result


async def case_growth(adapter: Adapter, steps: Sequence[int], runs: int, seconds: float) -> Any:
    """Microseconds of one more step early and late in a run, the lengths taken in turns."""
    lengths = (*EARLY, *LATE)
    await _warmed(adapter, lengths)
    values: dict[int, list[float]] = {n: [] for n in lengths}
    gc.collect()
    end = perf_counter() + 2 * seconds
    while len(values[EARLY[0]]) < runs and (len(values[EARLY[0]]) < 3 or perf_counter() < end):
        for n in LATE:
            values[n].append(await timed(adapter, n))
        for n in EARLY * 10:  # the difference of two short runs is small: more of them
            values[n].append(await timed(adapter, n))
    middle = {n: median(values[n]) for n in lengths}
    return {
        "early": (middle[EARLY[1]] - middle[EARLY[0]]) / (EARLY[1] - EARLY[0]),
        "late": (middle[LATE[1]] - middle[LATE[0]]) / (LATE[1] - LATE[0]),
    }


async def case_concurrent(adapter: Adapter, steps: Sequence[int], runs: int, seconds: float) -> Any:
    """Steps a second of 100 runs together, 10 steps each, on one event loop."""
    await _warmed(adapter, [TOGETHER_STEPS])

    async def sample() -> float:
        before, start = adapter.tool_calls, process_time()
        await asyncio.gather(*(adapter.run(TOGETHER_STEPS) for _ in range(TOGETHER)))
        passed = process_time() - start
        _check_calls(adapter, adapter.tool_calls - before, TOGETHER * (TOGETHER_STEPS - 1))
        return TOGETHER * TOGETHER_STEPS / passed

    gc.collect()
    return {"steps_per_second": await repeated(sample, min(runs, 5), seconds)}


async def _warmed(adapter: Adapter, steps: Sequence[int]) -> None:
    for count in steps:  # each length has an agent of its own, with caches of its own
        await adapter.run(count)


def _check_calls(adapter: Adapter, were: int, due: int) -> None:
    if were != due:
        raise AssertionError(f"{adapter.name} called the tool {were} times instead of {due}")


def _each(function: Callable[[], object], times: int) -> float:
    function()
    start = process_time()
    for _ in range(times):
        function()
    return (process_time() - start) / times * 1e6


CASES: dict[str, Callable[[Adapter, Sequence[int], int, float], Awaitable[Any]]] = {
    "run": case_run,
    "growth": case_growth,
    "concurrent": case_concurrent,
}


def measure(name: str, case: str, steps: Sequence[int], runs: int, seconds: float) -> Any:
    """The numbers of one case of one framework, in this process."""

    async def main() -> Any:
        return await CASES[case](ADAPTERS[name](), steps, runs, seconds)

    return asyncio.run(main())


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=ADAPTERS)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--steps", type=int, nargs="*", default=STEPS)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    try:
        result = measure(given.name, given.case, given.steps, given.runs, given.seconds)
    except ImportError as error:
        result = {"missing": str(error)}
    print("RESULT " + json.dumps(result), flush=True)
    os._exit(0)  # some frameworks leave threads behind


if __name__ == "__main__":
    _main()
