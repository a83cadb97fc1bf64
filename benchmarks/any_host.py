"""What a call at another host costs, beside one at the owner: two hosts on one PostgreSQL store.

A decision, a run, and a look at what an agent has done.

`python -m benchmarks.any_host [url]`; without a URL it starts a server of its own, as the tests do.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.postgres import Server
from understudy import (
    Agent,
    Completed,
    Interrupted,
    Runtime,
    ScriptedModel,
    approve,
    call,
    tool,
)
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend

DECISIONS = 100
LOOKS = 200
AGENTS = 50
CALLERS = 8
ROUNDS = 5
RUNS = 200


def desk() -> Agent:
    """Each run asks for one approval, or makes one call, and ends."""

    @tool
    async def pay() -> str:
        return "paid"

    @tool
    async def look() -> str:
        return "seen"

    def reply(request: Any) -> Any:
        if request.messages[-1].parts[-1].part_kind == "user-prompt":
            return call("pay" if request.prompt == "ask" else "look")
        return "done"

    return Agent("desk", ScriptedModel(reply), tools=[pay, look], interrupt_on={"pay": True})


async def decision(asked_at: Runtime, answered_at: Runtime, agent_id: str) -> float:
    """Seconds from a decision to the outcome of its run."""
    outcome = await asked_at.spawn("desk", agent_id).run("ask")
    assert isinstance(outcome, Interrupted)
    decided = outcome.decide(approve())
    await asyncio.sleep(0.02)  # a person is slower: the agent has come to rest
    before = time.perf_counter()
    await answered_at.get(agent_id).resume(decided)
    return time.perf_counter() - before


async def looks(owner: Runtime, other: Runtime) -> None:
    """Print how long each look takes, at both hosts, in turns."""
    asked = await owner.spawn("desk", "looked at").run("look")
    assert isinstance(asked, Completed)
    here, there = owner.get("looked at"), other.get("looked at")
    of: dict[str, Callable[[], Awaitable[object]]] = {
        "state() at the owner": here.state,
        "state() at the other host": there.state,
        "outcome() at the owner": here.outcome,
        "outcome() at the other host": there.outcome,
        "info() at the owner": here.info,
        "info() at the other host": there.info,
    }
    taken: dict[str, list[float]] = {name: [] for name in of}
    for _ in range(LOOKS):
        for name, look in of.items():
            before = time.perf_counter()
            await look()
            taken[name].append(time.perf_counter() - before)
    for name, seconds in taken.items():
        print(f"{name}: p50 {1000 * statistics.median(seconds):.1f} ms")


async def throughput(hosts: list[Runtime], seed: int, *, at_random: bool) -> float:
    """Runs a second of callers who call their agents at random hosts, or always at one."""
    rng, left = random.Random(seed), iter(range(RUNS))

    async def caller() -> None:
        for number in left:
            agent = number % AGENTS
            host = rng.choice(hosts) if at_random else hosts[agent % len(hosts)]
            await host.spawn("desk", f"r{at_random}{agent}").run("look")

    before = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return RUNS / (time.perf_counter() - before)


async def main(url: str) -> None:
    schema = f"understudy_bench_{time.time_ns()}"
    stores = [DatabaseStore(PostgresBackend(url, host=name, schema=schema)) for name in "ab"]
    async with (
        Runtime([desk()], store=stores[0]) as first,
        Runtime([desk()], store=stores[1]) as second,
    ):
        # In turn: what else the machine does is the same for both.
        taken: dict[str, list[float]] = {"owner": [], "other host": []}
        for number in range(DECISIONS):
            for name, answered_at in (("owner", first), ("other host", second)):
                taken[name].append(await decision(first, answered_at, f"{name} {number % 10}"))
        medians = []
        for name, seconds in taken.items():
            seconds.sort()
            medians.append(statistics.median(seconds))
            late = seconds[int(len(seconds) * 0.99)]
            print(
                f"decision at the {name}: p50 {1000 * medians[-1]:.1f} ms, p99 {1000 * late:.1f} ms"
            )
        print(f"p50 at the other host, to that at the owner: {medians[1] / medians[0]:.2f}")
        await looks(first, second)
        hosts, own, other = [first, second], list[float](), list[float]()
        for seed in range(ROUNDS):
            own.append(await throughput(hosts, seed, at_random=False))
            other.append(await throughput(hosts, seed, at_random=True))
        a, b = statistics.median(own), statistics.median(other)
        print(f"own agents {a:.0f} runs/s, random hosts {b:.0f} runs/s: {b / a:.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        server = Server()
        try:
            asyncio.run(main(server.url))
        finally:
            server.remove()
