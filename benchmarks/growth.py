"""What a run costs while the store grows: `python -m benchmarks.growth [--url postgresql://...]`.

Each run asks for an approval, gets it, calls a tool and ends. It is measured in a store with few
agents and in one with many, which all wait for a person. Times are those of the processor, in the
process of the runtime; a PostgreSQL server has its own. PostgreSQL takes part where its URL is
given: in a schema of its own, which is dropped again.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence

from benchmarks.lists import databases, drop
from benchmarks.machine import machine_line
from benchmarks.simulate_hosts import desk
from understudy import Completed, Interrupted, Runtime, approve
from understudy.journal import Store

__all__ = ["approved", "main", "measure"]

AGENTS = (1_000, 50_000)
REPEATS = 5
WHATS = OPEN, ALONE, TOGETHER = "open, and the first list", "a run alone", "a run beside others"


async def measure(store: Store, runs: int) -> dict[str, float]:
    """Milliseconds: to open the store, and of a run, the fewest of five repeats."""
    found: dict[str, float] = {}
    start = time.process_time()
    async with Runtime([desk()], store=store) as runtime:
        await runtime.pending(limit=1)
        found[OPEN] = (time.process_time() - start) * 1e3

        await approved(runtime, "first")
        alone, together = [], []
        for repeat in range(REPEATS):
            start = time.process_time()
            for number in range(runs):
                await approved(runtime, f"alone-{repeat}-{number}")
            alone.append((time.process_time() - start) / runs * 1e3)
            start = time.process_time()
            await asyncio.gather(
                *(approved(runtime, f"together-{repeat}-{n}") for n in range(4 * runs))
            )
            together.append((time.process_time() - start) / (4 * runs) * 1e3)
        found[ALONE] = min(alone)
        found[TOGETHER] = min(together)
    return found


async def approved(runtime: Runtime, id: str) -> None:
    """One run of a new agent, which asks for an approval and gets it."""
    ref = runtime.spawn("desk", id)
    outcome = await ref.run("Refund order 17, please.")
    assert isinstance(outcome, Interrupted), outcome
    outcome = await ref.resume(outcome.decide(approve(by="ann")))
    assert isinstance(outcome, Completed), outcome


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=AGENTS)
    parser.add_argument("--runs", type=int, default=50, help="one after the other, each time")
    parser.add_argument("--url", help="of a PostgreSQL database")
    options = parser.parse_args(given)
    print(f"Machine: {machine_line()}.\n")
    print("| store | agents in it | " + " | ".join(f"{what}, ms" for what in WHATS) + " |")
    print("|" + "---|" * (2 + len(WHATS)))
    for agents in options.agents:
        with tempfile.TemporaryDirectory() as folder:
            for name, store in databases(agents, folder, options.url, expires=False):
                found = asyncio.run(measure(store, options.runs))
                cells = [name, f"{agents:,}", *(f"{found[what]:.2f}" for what in WHATS)]
                print("| " + " | ".join(cells) + " |", flush=True)
        if options.url is not None:
            drop(options.url)


if __name__ == "__main__":
    main()
