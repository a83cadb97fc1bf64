"""What a branch of `Parallel` costs, beside an agent alone: `python -m benchmarks.branches`.

All models answer at once, so it is the library's own time: CPU time of this process, the least of
several repeats, which take turns. "run 2" has the conversation of the first one before it: a branch
is sent what all others have said. `--durable` keeps the runs in SQLite. `--tools` lets each branch
call a tool before it answers. `--trees` runs trees of sub-agents instead, in which each agent has
five others do a task: their cost is a multiple of that in the smallest tree.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from benchmarks.machine import machine_line
from understudy import Agent, Runtime
from understudy.middleware import SubAgent
from understudy.modes import Parallel

__all__ = ["main"]

RUNS = 3
FAN = 5


class Ready(Model):
    """Answers at once."""

    model_name = system = "ready"

    async def request(self, messages: list[ModelMessage], *_: Any) -> ModelResponse:
        return ModelResponse([TextPart("Done.")], usage=RequestUsage(input_tokens=1))


class Calling(Model):
    """Calls tools at once, and then answers. All that runs beside it begins before it goes on."""

    model_name = system = "calling"

    def __init__(self, tool_name: str, arguments: list[dict[str, Any]]) -> None:
        super().__init__()
        self._tool_name, self._arguments = tool_name, arguments
        self._count = 0

    async def request(self, messages: list[ModelMessage], *_: Any) -> ModelResponse:
        await asyncio.sleep(0)
        usage = RequestUsage(input_tokens=1)
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse([TextPart("Done.")], usage=usage)
        self._count += 1
        calls = [
            ToolCallPart(self._tool_name, arguments, f"{id(self)}-{self._count}-{index}")
            for index, arguments in enumerate(self._arguments)
        ]
        return ModelResponse(calls, usage=usage)


async def look(what: str) -> str:
    """Look something up."""
    await asyncio.sleep(0)
    return what


def agent_of(name: str, tools: bool, **options: Any) -> Agent:
    """An agent that is asked once; with tools, it calls one before it answers."""
    if not tools:
        return Agent(name, Ready(), **options)
    return Agent(name, Calling("look", [{"what": "it"}]), tools=[look], **options)


def flow_of(count: int, contents: str, *, tools: bool = False) -> Agent:
    """A workflow of so many agents, of which each does its part once."""
    options: dict[str, Any] = {"include_contents": contents}
    agents = [agent_of(f"b{index}", tools, **options) for index in range(count)]
    return Agent("flow", mode=Parallel(agents))


def tree_of(depth: int, name: str = "a") -> Agent:
    """An agent that has `FAN` others do a task, each of which does the same, so deep."""
    if not depth:
        return Agent(name, Ready(), description="Does a task.")
    kids = [tree_of(depth - 1, f"{name}_{index}") for index in range(FAN)]
    tasks = [{"task_name": kid.name, "instructions": "Do."} for kid in kids]
    return Agent(
        name,
        Calling("task", tasks),
        description="Has others do a task.",
        middleware=[SubAgent(kids, general_purpose=False)],
    )


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
        before = time.process_time()
        await run()
        found.append((time.process_time() - before) / count)
    return found


def cases_of(counts: list[int], *, tools: bool) -> dict[str, tuple[Agent, int]]:
    """By its name, what is run, and how many agents that are."""
    cases: dict[str, tuple[Agent, int]] = {"an agent alone": (agent_of("alone", tools), 1)}
    for contents, note in (("default", ""), ("none", ', include_contents="none"')):
        for count in counts:
            cases[f"one of {count:,}{note}"] = flow_of(count, contents, tools=tools), count
    return cases


def trees() -> dict[str, tuple[Agent, int]]:
    """As `cases_of`, of trees; the smallest one is the first."""
    sizes = {depth: sum(FAN**level for level in range(depth + 1)) for depth in range(1, 5)}
    return {f"one of a tree of {size}": (tree_of(depth), size) for depth, size in sizes.items()}


async def measure(
    cases: dict[str, tuple[Agent, int]], repeats: int, *, durable: bool
) -> dict[str, list[float]]:
    """By what was run, the CPU time of an agent in each run of the conversation."""
    best: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, (agent, count) in cases.items():
            found = []  # of one agent as many as of a workflow: the least of them would flatter it
            for _ in range(1 if count > 1 or durable else 100):
                with tempfile.TemporaryDirectory() as folder:
                    found.append(
                        await cost_of_runs(agent, count, Path(folder) if durable else None)
                    )
            means = [sum(runs) / len(found) for runs in zip(*found, strict=True)]
            known = best.setdefault(name, means)
            best[name] = [min(pair) for pair in zip(known, means, strict=True)]
    return best


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.branches", description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 100, 400, 1000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--tools", action="store_true")
    parser.add_argument("--trees", action="store_true")
    given = parser.parse_args(arguments)
    cases = trees() if given.trees else cases_of(given.counts, tools=given.tools)
    best = asyncio.run(measure(cases, given.repeats, durable=given.durable))
    first = next(iter(best))
    alone = min(best[first])
    print(f"{machine_line()}; CPU time in µs of an agent, and as a multiple of {first}\n")
    heads = "".join(f"{f'run {number + 1}':>16}" for number in range(RUNS))
    print(f"{'':<44}{heads}")
    for name, seconds in best.items():
        row = "".join(f"{f'{1e6 * each:,.0f} ({each / alone:.2f} x)':>16}" for each in seconds)
        print(f"{name:<44}{row}")


if __name__ == "__main__":
    main()
