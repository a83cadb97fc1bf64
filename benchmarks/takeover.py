"""How long a run stands still when its host is gone: two hosts on one PostgreSQL store.

`python -m benchmarks.takeover [url]`; without a URL it starts a server of its own, as the tests do.

A host is killed in the middle of a tool, and another one of its machine sees at its next heartbeat,
a quarter of the lease, that the process is gone; or the host is started again. Or it is stopped by
SIGSTOP, which to the others is a machine that is lost: they wait for its lease to end. Measured is
the time from the signal to the outcome of the run.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
import time
from contextlib import AsyncExitStack

from tests.support.postgres import Server
from understudy import Agent, Completed, Runtime, ScriptedModel, call, tool
from understudy.journal.contracts import LEASE
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend

ROUNDS = 5


def desk(*, ends: bool) -> Agent:
    """Its tool ends at once, or never."""

    @tool(idempotent=True)
    async def work() -> str:
        if not ends:
            print("works", flush=True)
            await asyncio.Event().wait()
        return "worked"

    return Agent("desk", ScriptedModel([call("work"), "done"]), tools=[work])


def runtime(url: str, schema: str, lease: float, name: str, *, ends: bool) -> Runtime:
    store = DatabaseStore(PostgresBackend(url, host=name, schema=schema, lease=lease))
    return Runtime([desk(ends=ends)], store=store)


async def own(url: str, schema: str, lease: str, name: str, agent_id: str) -> None:
    """Run the agent until this process is ended from outside."""
    async with runtime(url, schema, float(lease), name, ends=False) as host:
        await host.spawn("desk", agent_id).run("go")


async def left(url: str, schema: str, by: str, *, again: bool, lease: float = LEASE) -> float:
    """Seconds from the signal to the outcome: at another host, or at the same one started again."""
    agent_id = f"desk {time.time_ns()}"
    name = f"owner of {agent_id}"
    other = runtime(url, schema, lease, name if again else f"not the {name}", ends=True)
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.takeover"),
        *("--own", url, schema, str(lease), name, agent_id),
        stdout=asyncio.subprocess.PIPE,
    )
    assert owner.stdout is not None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(ended, owner)
        assert await owner.stdout.readline() == b"works\n"
        if not again:
            await stack.enter_async_context(other)
        before = time.perf_counter()
        owner.send_signal(signal.Signals[by])  # Windows has none of them
        if again:
            await owner.wait()
            await stack.enter_async_context(other)
        outcome = await other.get(agent_id).outcome()
        passed = time.perf_counter() - before
        assert isinstance(outcome, Completed), outcome
        return passed


async def ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def main(url: str) -> None:
    schema = f"understudy_bench_{time.time_ns()}"
    for what, by, again in (
        ("killed, another host of its machine goes on", "SIGKILL", False),
        ("killed, and started again", "SIGKILL", True),
        (f"suspended, its lease of {LEASE:g} s ends", "SIGSTOP", False),
    ):
        taken = [await left(url, schema, by, again=again) for _ in range(ROUNDS)]
        print(f"{what}: p50 {statistics.median(taken):.2f} s, worst {max(taken):.2f} s of {ROUNDS}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--own"]:
        asyncio.run(own(*sys.argv[2:]))
    elif len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        server = Server()
        try:
            asyncio.run(main(server.url))
        finally:
            server.remove()
