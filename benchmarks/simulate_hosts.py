"""Which part of a store gives way first, where many hosts share it: a model with measured numbers.

    python -m benchmarks.simulate_hosts postgresql://user@server/database
    python -m benchmarks.simulate_hosts postgresql://... --hosts 40 --decisions 100000
    python -m benchmarks.simulate_hosts postgresql://... --hosts 100 --agents 1e6 --every 5

It runs steps of agents and decisions of people, counts what each costs the server and the host,
measures what a commit and a NOTIFY cost, and multiplies. It does so in a database of its own on
that server, of which it alone counts, and drops it then: the user needs the right to create one.
What it does not model: the network, the size of caches, and what else the server does. Before
PostgreSQL 18 a server does not say which session writes how much of its log: then nothing else may
write meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from understudy import Agent, Completed, Interrupted, Runtime, ScriptedModel, approve, call, tool
from understudy.models import ScriptedRequest

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured on one server. Times are seconds, sizes are bytes."""

    commits: float
    """Transactions of one decision, with its message, its requests and its run."""
    busy: float
    """Seconds for which sessions of the server work on one decision, by their own account."""
    records: float
    record_bytes: float
    """What one record takes in its table, with its indexes."""
    agent_bytes: float
    """What one agent takes in the index of agents, with its indexes."""
    wal_bytes: float
    """What one decision writes into the log of the server."""
    notifying: float
    """One commit with a NOTIFY, where many sessions make such: a lock of the server lets one of
    them commit at a time."""
    plain: float
    """The same without a NOTIFY: those are written to the disk together."""
    notify_listener: float
    """What each further listening session adds to a NOTIFY, in seconds of a processor: each of them
    is woken by all that is said in its database."""
    connections: float
    """Of one host."""
    step_busy: float
    """As `busy`, of one step of an agent: a reply, a call of a tool, and its result."""
    step_wal_bytes: float
    step_records: float
    step_host: float
    """Seconds of a processor of the host for one step. Its model takes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a store is to carry."""

    hosts: int = 1000
    agents: float = 10_000_000
    decisions: float = 100_000
    """A minute."""
    every: float = math.inf
    """Seconds in which each agent makes a step."""
    wrong_host: float = 1.0
    """Which part of the decisions reaches a host that does not have the agent."""
    lease: float = 10.0
    sweep: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a server has. The defaults are those of a large one, of today."""

    cores: int = 64
    connections: int = 1000
    """Sessions that PostgreSQL serves well at once; each is a process."""
    log_bytes: float = 500e6
    """Of its log, a second."""
    disk_bytes: float = 10e12
    days: float = 30.0
    """How long records are kept before agents are compacted or deleted."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much of something is used."""

    what: str
    needed: float
    there: float
    unit: str
    remedy: str

    @property
    def part(self) -> float:
        """1 is all of it."""
        return self.needed / self.there


def loads(measured: Measured, scale: Scale, server: Server) -> list[Load]:
    """What is used, the tightest first."""
    each = scale.decisions / 60
    steps = scale.agents / scale.every
    listening = measured.notify_listener * scale.hosts
    # A host renews its lease three times within it, and looks for what is due.
    beats = scale.hosts * (3 / scale.lease + 1 / scale.sweep)
    per_commit = measured.busy / measured.commits
    found = [
        Load(
            "connections",
            scale.hosts * measured.connections,
            server.connections,
            "sessions",
            "fewer and larger hosts: one carries thousands of agents; then several databases",
        ),
        Load(
            "NOTIFY, one commit after the other",
            each * scale.wrong_host * measured.notifying,
            1.0,
            "s/s",
            "bring calls to the owner (a cluster, or sticky sessions); then several databases",
        ),
        Load(
            "processors",
            each * measured.busy
            + steps * measured.step_busy
            + beats * per_commit
            + each * scale.wrong_host * listening,
            server.cores,
            "cores",
            "a larger server; then several databases, by a hash of the agent's id",
        ),
        Load(
            "log of the server",
            each * measured.wal_bytes + steps * measured.step_wal_bytes,
            server.log_bytes,
            "bytes/s",
            "a faster disk; shorter tool results; then several databases",
        ),
        Load(
            "table of records",
            (each * measured.records + steps * measured.step_records)
            * (DAY * server.days * measured.record_bytes),
            server.disk_bytes,
            "bytes",
            "compact agents that rest, delete those that are done; a partition for each month",
        ),
        Load(
            "index of agents",
            scale.agents * measured.agent_bytes,
            server.disk_bytes,
            "bytes",
            "delete agents that are done",
        ),
        Load(
            "heartbeats and sweeps",
            beats * per_commit,
            server.cores,
            "cores",
            "a longer lease and sweep",
        ),
        Load(
            "steps of one host",
            steps / scale.hosts * measured.step_host,
            1.0,
            "cores",
            "more hosts: a process uses one core",
        ),
    ]
    return sorted(found, key=lambda load: -load.part)


# ------------------------------------------------------------------------- measuring


@tool
def refund(order_id: str) -> str:
    """Pay money back."""
    return f"refunded {order_id}"


def clerk(request: ScriptedRequest) -> Any:
    """Plays the model: it refunds, then reports."""
    asks = len(request.messages) % 4 == 1
    return call("refund", {"order_id": "17"}) if asks else "It is refunded."


def desk() -> Agent:
    return Agent("desk", ScriptedModel(clerk), tools=[refund], interrupt_on={"refund": True})


async def decide(runtime: Runtime, count: int) -> None:
    """Ask for so many refunds, and approve each."""
    for n in range(count):
        ref = runtime.spawn("desk", f"simulated-{n}")
        outcome = await ref.run("Refund order 17, please.")
        assert isinstance(outcome, Interrupted), outcome
        await ref.resume(outcome.decide(approve(by="ann")))


@tool
def look(order_id: str) -> str:
    """Look up an order."""
    return f"{order_id} is paid"


STEPS = 20
"""Of a run that is measured."""


def walker() -> Agent:
    def play(request: ScriptedRequest) -> Any:
        done = sum(message.kind == "response" for message in request.messages)
        return call("look", {"order_id": str(done)}) if done < STEPS - 1 else "All are paid."

    return Agent("walker", ScriptedModel(play), tools=[look])


async def walk(runtime: Runtime, agents: int, tag: str) -> None:
    """Have so many agents make `STEPS` steps each, all at once."""
    refs = [runtime.spawn("walker", f"{tag}-{n}") for n in range(agents)]
    for outcome in await asyncio.gather(*(ref.run("Are all paid?") for ref in refs)):
        assert isinstance(outcome, Completed), outcome


_COUNTS = (
    "SELECT d.xact_commit, d.active_time / 1000 FROM pg_stat_database d"
    " WHERE d.datname = current_database()"
)
_SIZE = "SELECT pg_total_relation_size('understudy.records'), count(*) FROM understudy.records"
_AGENTS = "SELECT pg_total_relation_size('understudy.agents'), count(*) FROM understudy.agents"
_OURS = (
    "FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name LIKE 'understudy %'"
)
_SESSIONS = f"SELECT count(*) {_OURS}"
_TELLS_LOG = "SELECT to_regproc('pg_stat_get_backend_wal') IS NOT NULL"
_LOG_OF_SESSIONS = f"SELECT sum((pg_stat_get_backend_wal(pid)).wal_bytes) {_OURS}"
_LOG_OF_ALL = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
_UNTOLD = 1.2
"""Seconds in which a session at rest has told the server what it did."""


def measure(url: str, decisions: int = 300, agents: int = 200) -> Measured:
    """Measure a server that has PostgreSQL 14 or newer, in a database of its own."""
    name = f"understudy_simulation_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            return _measure(_url_of(url, name), decisions, agents)
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _url_of(url: str, database: str) -> str:
    """The URL of another database of the same server."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{database}"))


def _measure(url: str, decisions: int, agents: int) -> Measured:
    with psycopg.connect(url, autocommit=True) as admin:
        decided, connections = asyncio.run(_decisions(url, admin, decisions))
        (record_bytes, records), (agent_bytes, rows) = (
            _row(admin, query) for query in (_SIZE, _AGENTS)
        )
        stepped = asyncio.run(_steps(url, admin, agents))
        steps, (_, more) = agents * STEPS, _row(admin, _SIZE)
        return Measured(
            commits=decided.commits / decisions,
            busy=decided.busy / decisions,
            wal_bytes=decided.wal_bytes / decisions,
            records=records / rows,
            record_bytes=record_bytes / records,
            agent_bytes=agent_bytes / rows,
            notifying=commit_seconds(url, "SELECT pg_notify('simulated', '1')"),
            plain=commit_seconds(url, "SELECT 1"),
            notify_listener=listener_seconds(url),
            connections=connections,
            step_busy=stepped.busy / steps,
            step_wal_bytes=stepped.wal_bytes / steps,
            step_records=(more - records) / (steps + STEPS),
            step_host=stepped.host / steps,
        )


@dataclass(slots=True)
class _Spent:
    """What was spent in this database, and by this process."""

    commits: float = 0.0
    busy: float = 0.0
    wal_bytes: float = 0.0
    host: float = 0.0


@asynccontextmanager
async def _counted(admin: psycopg.Connection[Any]) -> AsyncIterator[_Spent]:
    spent, (tells,) = _Spent(), _row(admin, _TELLS_LOG)
    log = _LOG_OF_SESSIONS if tells else _LOG_OF_ALL
    await asyncio.sleep(_UNTOLD)
    before = *_row(admin, _COUNTS), *_row(admin, log)
    host = time.process_time()
    yield spent
    spent.host = time.process_time() - host
    await asyncio.sleep(_UNTOLD)
    after = *_row(admin, _COUNTS), *_row(admin, log)
    spent.commits, spent.busy, spent.wal_bytes = (
        float(b) - float(a) for a, b in zip(before, after, strict=True)
    )


# It is measured what work costs, and not how long a disk takes: its commits do not wait for one.
async def _decisions(
    url: str, admin: psycopg.Connection[Any], decisions: int
) -> tuple[_Spent, float]:
    async with Runtime([desk()], store=url, durability="off") as runtime:
        await decide(runtime, 10)
        connections = float(_row(admin, _SESSIONS)[0])
        async with _counted(admin) as spent:
            await decide(runtime, decisions)
    return spent, connections


async def _steps(url: str, admin: psycopg.Connection[Any], agents: int) -> _Spent:
    async with Runtime([walker()], store=url, durability="off") as runtime:
        await walk(runtime, 1, "first")
        async with _counted(admin) as spent:
            await walk(runtime, agents, "measured")
    return spent


def commit_seconds(url: str, also: str, senders: int = 8, count: int = 40) -> float:
    """One commit of a row, where several sessions commit all the time; and each does this too."""
    schema = "understudy_simulation"
    with psycopg.connect(url, autocommit=True) as admin, ThreadPoolExecutor(senders) as pool:
        admin.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        admin.execute(f"CREATE TABLE IF NOT EXISTS {schema}.commits (n int)")
        together = threading.Barrier(senders + 1)

        def send() -> None:
            with psycopg.connect(url) as connection:
                together.wait(60)
                for n in range(count):
                    connection.execute(f"INSERT INTO {schema}.commits VALUES (%s)", [n])
                    connection.execute(also)
                    connection.commit()

        sending = [pool.submit(send) for _ in range(senders)]
        together.wait(60)
        start = time.perf_counter()
        for one in sending:
            one.result()
        seconds = (time.perf_counter() - start) / (senders * count)
        admin.execute(f"DROP SCHEMA {schema} CASCADE")
        return seconds


def listener_seconds(url: str, few: int = 2, many: int = 42, count: int = 100) -> float:
    """What a further listener costs at a NOTIFY that is not for it.

    At most: as if all processors of this machine were busy with it meanwhile.
    """
    slower = _notify(url, many, count) - _notify(url, few, count)
    return max(0.0, slower * (os.cpu_count() or 1) / (many - few))


def _notify(url: str, listeners: int, count: int) -> float:
    with ExitStack() as stack:
        for n in range(listeners):
            listening = stack.enter_context(psycopg.connect(url, autocommit=True))
            listening.execute(f'LISTEN "simulated_{n}"')
        hears = stack.enter_context(_hearing(url))
        sender = stack.enter_context(psycopg.connect(url, autocommit=True))
        sender.execute("SET synchronous_commit = off")  # the disk is not what is measured
        start = time.perf_counter()
        for n in range(count):
            sender.execute("SELECT pg_notify('simulated_heard', %s)", [str(n)])
        hears.wait(60)
        return (time.perf_counter() - start) / count


@contextmanager
def _hearing(url: str, last: str = "99") -> Iterator[threading.Event]:
    heard = threading.Event()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("LISTEN simulated_heard")

        def hear() -> None:
            for notify in connection.notifies(timeout=60):
                if notify.payload == last:
                    heard.set()
                    return

        thread = threading.Thread(target=hear)
        thread.start()
        try:
            yield heard
        finally:
            thread.join()


def _row(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None, "each of these queries has a row"
    return tuple(row)


def table(found: Sequence[Load]) -> Iterator[str]:
    """A line for each, as Markdown."""
    yield "| what | needed | there is | used | what to do then |"
    yield "|---|---|---|---|---|"
    for load in found:
        needed, there = f"{load.needed:,.3g} {load.unit}", f"{load.there:,.3g} {load.unit}"
        yield f"| {load.what} | {needed} | {there} | {load.part:.0%} | {load.remedy} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    for field in fields(Scale):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=float)
    arguments = vars(parser.parse_args())
    measured = measure(arguments.pop("url"))
    given = {name: value for name, value in arguments.items() if value is not None}
    scale = replace(Scale(), **given)
    print("Measured here:", measured, sep="\n")
    print("For", scale, sep="\n")
    for line in table(loads(measured, scale, Server())):
        print(line)


if __name__ == "__main__":
    main()
