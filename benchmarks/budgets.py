"""What a budget costs: 50 runs of three hosts on one PostgreSQL store, with and without one.

`python -m benchmarks.budgets [url]`; without a URL it starts a server of its own, as the tests do.

All runs spend of one budget, which is for the whole store and a day: so each reservation of each
host is of the same counter. `calls` counts the calls of the tool, `usd` the requests to the model,
and `both` has both budgets. The model answers at once, so that a step takes what the library and
the store take. The rounds alternate: what else the machine does is the same for all.

A ratio is that of the steps a second, by medians. Where others use the machine too, the processor
time of a step is surer: that of the hosts, and that of a server on the same machine.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no types
import psycopg
from pydantic_ai.messages import ModelResponse

from tests.support.postgres import Server
from understudy import Agent, Completed, Price, Runtime, ScriptedModel, call, tool
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend
from understudy.trust import Budget, calls, day, usd

HOSTS = 3
RUNS = 50
STEPS = 10
ROUNDS = 15
WARM = 2
_CALLS = Budget("calls", calls("look_up", 10**9), window=day())
_USD = Budget("usd", usd(10**8), window=day())
BUDGETS: Mapping[str, Sequence[Budget]] = {
    "none": [],
    "calls": [_CALLS],
    "usd": [_USD],
    "both": [_CALLS, _USD],
}
"""What is compared, by its name."""


@tool
async def look_up(order: int) -> str:
    return f"20 euros for {order}"


def reply(request: Any) -> Any:
    turn = sum(isinstance(each, ModelResponse) for each in request.messages)
    return call("look_up", {"order": turn}) if turn < STEPS - 1 else "Done."


def runtime(url: str, schema: str, host: str, kind: str) -> Runtime:
    desk = Agent(
        "desk",
        ScriptedModel(reply, name="m"),
        tools=[look_up],
        model_settings={"max_tokens": 100},
    )
    store = DatabaseStore(PostgresBackend(url, host=host, schema=f"{schema}_{kind}"))
    prices = {"m": Price(input=1, output=1)}
    return Runtime([desk], store=store, pricing=prices, budgets=BUDGETS[kind], sweep=None)


# ------------------------------------------------------------------------------ a host


async def serve(url: str, schema: str, host: str, kinds: Sequence[str]) -> None:
    """Run agents, as the lines of the standard input say: of which kind, and their ids."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        runtimes = {
            kind: await stack.enter_async_context(runtime(url, schema, host, kind))
            for kind in kinds
        }
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            kind, *ids = line.split()
            before = time.process_time()
            refs = [runtimes[kind].spawn("desk", id) for id in ids]
            outcomes = await asyncio.gather(*(ref.run("Hi.") for ref in refs))
            for outcome in outcomes:
                assert isinstance(outcome, Completed), outcome
            print(time.process_time() - before, flush=True)


@asynccontextmanager
async def hosts(
    url: str, schema: str, kinds: Sequence[str]
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Processes that `serve`."""
    started = []
    try:
        for number in range(HOSTS):
            host = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.budgets"),
                *("--host", url, schema, f"host{number}", *kinds),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            started.append(host)
            # The next one finds the tables made.
            assert await _line(host) == "ready"
        yield started
    finally:
        for host in started:
            assert host.stdin is not None
            host.stdin.close()
            await host.wait()


async def _line(host: asyncio.subprocess.Process) -> str:
    assert host.stdout is not None
    return (await host.stdout.readline()).decode().strip()


@dataclass(slots=True)
class Taken:
    """What the rounds of one kind have taken, in seconds."""

    rounds: list[float] = field(default_factory=list)
    hosts: float = 0.0
    """Of processors."""
    server: float = 0.0
    """Of processors; 0 where the server is on another machine."""


async def ran(
    started: Sequence[asyncio.subprocess.Process], kind: str, number: int, runs: int, taken: Taken
) -> None:
    """Have the hosts run so many agents."""
    before = time.perf_counter()
    for place, host in enumerate(started):
        ids = [f"r{number}n{run}" for run in range(place, runs, len(started))]
        assert host.stdin is not None
        host.stdin.write(f"{kind} {' '.join(ids)}\n".encode())
    busy = [float(await _line(host)) for host in started]
    taken.rounds.append(time.perf_counter() - before)
    taken.hosts += sum(busy)


def server_seconds(connection: psycopg.Connection[Any]) -> float:
    """Seconds of processors that the processes of the server have taken that there are now."""
    found = 0.0
    for (pid,) in connection.execute("SELECT pid FROM pg_stat_activity").fetchall():
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            found += times.user + times.system
    return found


# ------------------------------------------------------------------------------ what is measured


async def measure(
    url: str, schema: str, kinds: Sequence[str], *, runs: int = RUNS, rounds: int = ROUNDS
) -> dict[str, Taken]:
    """What the runs of each kind take."""
    taken = {kind: Taken() for kind in kinds}
    async with hosts(url, schema, kinds) as started:
        with psycopg.connect(url, autocommit=True) as connection:
            for number in range(WARM + rounds):
                for kind in kinds if number % 2 else reversed(kinds):
                    found = Taken() if number < WARM else taken[kind]
                    before = server_seconds(connection)
                    await ran(started, kind, number, runs, found)
                    found.server += server_seconds(connection) - before
    return taken


async def main(url: str) -> None:
    found = await measure(url, f"understudy_bench_{time.time_ns()}", list(BUDGETS))
    print(
        "| budgets | steps/s | ratio | processors of the hosts, µs a step | of the server | ratio |"
    )
    print("|---|---|---|---|---|---|")
    without = found["none"]
    for kind, taken in found.items():
        seconds, steps = statistics.median(taken.rounds), RUNS * STEPS
        hosts, server = (1e6 * each / steps / ROUNDS for each in (taken.hosts, taken.server))
        ratio = statistics.median(without.rounds) / seconds
        busy = (without.hosts + without.server) / (taken.hosts + taken.server)
        cells = f"{steps / seconds:.0f} | {ratio:.2f} | {hosts:.0f} | {server:.0f} | {busy:.2f}"
        print(f"| {kind} | {cells} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--host"]:
        asyncio.run(serve(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:]))
    elif len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        server = Server()
        try:
            asyncio.run(main(server.url))
        finally:
            server.remove()
