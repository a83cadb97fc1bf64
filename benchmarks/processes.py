"""What a run costs where several processes of one machine share a PostgreSQL store.

`python -m benchmarks.processes [url] [--processes 1 2 4] [--runs 300] [--users 50] [--rows]`

Each run asks six times for a reply, calls five tools, and waits once for a person. Each of its two
requests comes to a process by chance, as behind a load balancer. The cost is the CPU of all of our
processes, without what they take to start; `--rows` also measures without the sockets between them.
Without a URL a server is started, as the tests do.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import sys
import time
from typing import Any

import psycopg
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from tests.support.postgres import Server
from understudy import Agent, Completed, Interrupted, Runtime, approve, tool
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend

DELAY = 0.02
"""Seconds that the model takes for a reply."""
CALLS = ("look", "look", "pay", "look", "look", None)


class _Played(Model):
    model_name = "played"
    system = "played"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        await asyncio.sleep(DELAY)
        number = sum(each.kind == "response" for each in messages)
        name = CALLS[number]
        part: Any = TextPart("done")
        if name is not None:
            part = ToolCallPart(name, f'{{"order": "o{number}"}}', tool_call_id=f"c{number}")
        usage = RequestUsage(input_tokens=1, output_tokens=1)
        return ModelResponse(parts=[part], usage=usage, model_name="played")


def desk() -> Agent:
    """The agent that is measured."""

    @tool
    async def look(order: str) -> dict[str, Any]:
        """Look up an order."""
        return {"order": order, "item": "kettle", "price": 20}

    @tool(idempotent=True)
    async def pay(order: str) -> str:
        """Pay money back."""
        return f"paid {order}"

    instructions = "You help customers of a shop."
    return Agent("desk", _Played(), instructions, tools=[look, pay], interrupt_on={"pay": True})


# ------------------------------------------------------------------- a process


async def work(url: str, schema: str, *, has_peers: bool) -> None:
    """Do what comes by the standard input, a line each, until it ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    backend = PostgresBackend(url, host=str(os.getpid()), schema=schema)
    runtime = Runtime([desk()], store=DatabaseStore(backend))
    runtime._agent_host.has_peers = has_peers  # no option: it is only to be measured without
    tasks = set[asyncio.Task[None]]()

    async def do(number: int, agent_id: str, request_id: str | None) -> None:
        if request_id is None:
            outcome = await runtime.spawn("desk", agent_id).run("Refund my order, please.")
            assert isinstance(outcome, Interrupted), outcome
            answer = outcome.requests[0].id
        else:
            ended = await runtime.get(agent_id).resume({request_id: approve(by="ann")})
            assert isinstance(ended, Completed), ended
            answer = ended.text
        print(json.dumps([number, answer]), flush=True)

    async with runtime:
        print(json.dumps([0, "ready"]), flush=True)
        while line := await lines.readline():
            number, *asked = json.loads(line)
            if not asked:
                print(json.dumps([number, time.process_time()]), flush=True)
                continue
            task = asyncio.create_task(do(number, *asked))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


# ------------------------------------------------------------------- who loads them


class _Worker:
    """One process, and what is asked of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.create_task(self._read())
        self.ready = self._expect(0)

    def _expect(self, number: int) -> asyncio.Future[Any]:
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        return future

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            number, answer = json.loads(line)
            self._answers.pop(number).set_result(answer)
        for future in self._answers.values():
            future.set_exception(RuntimeError("a process has ended"))

    def ask(self, number: int, *asked: Any) -> asyncio.Future[Any]:
        """The answer to what is asked."""
        assert self._process.stdin is not None
        future = self._expect(number)
        self._process.stdin.write(json.dumps([number, *asked]).encode() + b"\n")
        return future

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading


async def measure(
    url: str, schema: str, processes: int, *, runs: int, users: int, has_peers: bool = True
) -> dict[str, float]:
    """What a run costs: `cpu` and `seconds` in milliseconds, `commits`, and `wal` in bytes."""
    command = [sys.executable, "-m", "benchmarks.processes", url, "--work", schema]
    command += [] if has_peers else ["--rows"]
    workers = [
        _Worker(
            await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
        )
        for _ in range(processes)
    ]
    try:
        await asyncio.gather(*(each.ready for each in workers))
        numbers, rng = itertools.count(1), random.Random(7)
        tag = time.time_ns()

        async def load(count: int, what: str) -> None:
            left = iter(range(count))

            async def user() -> None:
                for each in left:
                    id = f"{tag}-{what}-{each}"
                    asked = await rng.choice(workers).ask(next(numbers), id, None)
                    await rng.choice(workers).ask(next(numbers), id, asked)

            await asyncio.gather(*(user() for _ in range(users)))

        async def cpu() -> float:
            used: list[float] = await asyncio.gather(*(w.ask(next(numbers)) for w in workers))
            return sum(used)

        await load(2 * users, "warm")
        await asyncio.sleep(6 if processes > 1 else 0)  # by then each has seen the others
        await load(users, "warmer")
        before, there, started = await cpu(), _counts(url), time.perf_counter()
        await load(runs, "run")
        took = time.perf_counter() - started
        after, then = await cpu(), _counts(url)
        return {
            "cpu": 1000 * (after - before) / runs,
            "seconds": 1000 * took / runs,
            "commits": (then[0] - there[0]) / runs,
            "wal": (then[1] - there[1]) / runs,
        }
    finally:
        await asyncio.gather(*(each.end() for each in workers))


def _counts(url: str) -> tuple[int, int]:
    """The transactions of the database, and the bytes of its log."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        row = connection.execute(
            "SELECT sum(xact_commit)::bigint, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
            " FROM pg_stat_database"
        ).fetchone()
    assert row is not None
    return row


async def main(url: str, arguments: argparse.Namespace) -> None:
    print("| processes | calls by | CPU a run, ms | to one | commits a run | WAL a run, KB |")
    print("|---|---|---|---|---|---|")
    first = 0.0
    for processes, has_peers in itertools.product(arguments.processes, (True, False)):
        if not has_peers and (processes == 1 or not arguments.rows):
            continue
        found = [
            await measure(
                url,
                f"understudy_bench_{time.time_ns()}",
                processes,
                runs=arguments.runs,
                users=arguments.users,
                has_peers=has_peers,
            )
            for _ in range(arguments.rounds)
        ]
        best = min(found, key=lambda each: each["cpu"])
        first = first or best["cpu"]
        by = "-" if processes == 1 else "socket" if has_peers else "rows"
        print(
            f"| {processes} | {by} | {best['cpu']:.2f} | {best['cpu'] / first:.2f} | "
            f"{best['commits']:.2f} | {best['wal'] / 1000:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What a run costs in several processes.")
    parser.add_argument("url", nargs="?")
    parser.add_argument("--processes", nargs="*", type=int, default=[1, 2, 4])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(given.url, given.work, has_peers=not given.rows))
    elif given.url:
        asyncio.run(main(given.url, given))
    else:
        server = Server()
        try:
            asyncio.run(main(server.url, given))
        finally:
            server.remove()
