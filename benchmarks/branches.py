"""What a branch of `Parallel` costs, beside an agent alone: `python -m benchmarks.branches`.

All models answer at once, so it is the library's own time: CPU time of this process, the least of
several repeats, which take turns. "run 2" has the conversation of the first one before it: a branch
is sent what all others have said. `--durable` keeps the runs in SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from benchmarks.machine import machine_line
from understudy import Agent, Runtime
from understudy.modes import Parallel

__all__ = ["main"]

RUNS = 3


class Ready(Model):
    """Answers at once."""

    model_name = system = "ready"

    async def request(self, messages: list[ModelMessage], *_: Any) -> ModelResponse:
        return ModelResponse([TextPart("Done.")], usage=RequestUsage(input_tokens=1))


def flow_of(count: int, contents: str) -> Agent:
    """A workflow of so many agents, of which each is asked once."""
    options: dict[str, Any] = {"include_contents": contents}
    agents = [Agent(f"b{index}", Ready(), **options) for index in range(count)]
    return Agent("flow", mode=Parallel(agents))


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def cost_of_runs(agent: Agent, count: int, folder: Path | None) -> list[float]:
    """Seconds of CPU time for each of so many agents, in run after run of one conversation."""
    if folder is None:
        state = None

        async def run() -> None:
            nonlocal state
            state = (await agent.execute("Go.", state=state)).state

        return await _measured(run, count)
    async with Runtime([agent], store=f"sqlite:///{folder / 'branches.db'}") as runtime:
        ref = runtime.spawn(agent.name, id=f"{agent.name}-{count}")
        return await _measured(lambda: ref.run("Go."), count)


async def _measured(run: Callable[[], Awaitable[object]], count: int) -> list[float]:
    found = []
    for _ in range(RUNS):
        before = cpu()
        await run()
        found.append((cpu() - before) / count)
    return found


async def measure(counts: list[int], repeats: int, *, durable: bool) -> dict[str, list[float]]:
    """By what was run, the CPU time of an agent in each run of the conversation."""
    cases: dict[str, tuple[Agent, int]] = {"an agent alone": (Agent("alone", Ready()), 1)}
    for count in counts:
        cases[f"one of {count:,}"] = flow_of(count, "default"), count
    for count in counts:
        cases[f'one of {count:,}, include_contents="none"'] = flow_of(count, "none"), count
    best: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, (agent, count) in cases.items():
            for _ in range(1 if count > 1 or durable else 100):
                with tempfile.TemporaryDirectory() as folder:
                    found = await cost_of_runs(agent, count, Path(folder) if durable else None)
                known = best.setdefault(name, found)
                best[name] = [min(pair) for pair in zip(known, found, strict=True)]
    return best


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.branches", description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 100, 400, 1000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--durable", action="store_true")
    given = parser.parse_args(arguments)
    best = asyncio.run(measure(given.counts, given.repeats, durable=given.durable))
    alone = min(best["an agent alone"])
    print(f"{machine_line()}; CPU time in µs, and as a multiple of an agent alone\n")
    heads = "".join(f"{f'run {number + 1}':>16}" for number in range(RUNS))
    print(f"{'':<44}{heads}")
    for name, seconds in best.items():
        row = "".join(f"{f'{1e6 * each:,.0f} ({each / alone:.2f} x)':>16}" for each in seconds)
        print(f"{name:<44}{row}")


if __name__ == "__main__":
    main()
