"""Which part of a store gives way first, where many hosts share it: a model with measured numbers.

    python -m benchmarks.simulate_hosts postgresql://user@server/database
    python -m benchmarks.simulate_hosts postgresql://... --hosts 40 --decisions 100000

It runs some decisions of people on that database, counts what each costs the server, measures what
a commit and a NOTIFY cost, and multiplies. It writes into a schema of its own, and drops nothing of
others. What it does not model: the network, the size of caches, and what else the server does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import psycopg

from understudy import Agent, Interrupted, Runtime, ScriptedModel, approve, call, tool
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a store is to carry."""

    hosts: int = 1000
    agents: int = 10_000_000
    decisions: float = 100_000
    """A minute."""
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
            each * measured.busy + beats * per_commit + each * scale.wrong_host * listening,
            server.cores,
            "cores",
            "a larger server; then several databases, by a hash of the agent's id",
        ),
        Load(
            "log of the server",
            each * measured.wal_bytes,
            server.log_bytes,
            "bytes/s",
            "a faster disk; shorter tool results",
        ),
        Load(
            "table of records",
            each * DAY * server.days * measured.records * measured.record_bytes,
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


_COUNTS = (
    "SELECT d.xact_commit, d.active_time / 1000, pg_current_wal_lsn() - '0/0'::pg_lsn"
    " FROM pg_stat_database d WHERE d.datname = current_database()"
)
_SIZE = "SELECT pg_total_relation_size('understudy.records'), count(*) FROM understudy.records"
_AGENTS = "SELECT pg_total_relation_size('understudy.agents'), count(*) FROM understudy.agents"


_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'understudy %'"


def measure(url: str, decisions: int = 300) -> Measured:
    """Measure a server that has PostgreSQL 14 or newer. Its store is written to."""
    with psycopg.connect(url, autocommit=True) as admin:
        counts, connections = asyncio.run(_decisions(url, admin, decisions))
        sizes = [_row(admin, query) for query in (_SIZE, _AGENTS)]
        (record_bytes, records), (agent_bytes, agents) = sizes
        return Measured(
            commits=counts[0] / decisions,
            busy=counts[1] / decisions,
            wal_bytes=counts[2] / decisions,
            records=records / agents,
            record_bytes=record_bytes / records,
            agent_bytes=agent_bytes / agents,
            notifying=commit_seconds(url, "SELECT pg_notify('simulated', '1')"),
            plain=commit_seconds(url, "SELECT 1"),
            notify_listener=listener_seconds(url),
            connections=connections,
        )


async def _decisions(
    url: str, admin: psycopg.Connection[Any], decisions: int
) -> tuple[list[float], float]:
    async with Runtime([desk()], store=url) as runtime:
        await decide(runtime, 10)
        connections = float(_row(admin, _SESSIONS)[0])
        before = _row(admin, _COUNTS)
        await decide(runtime, decisions)
    # Sessions tell the server what they did when they end.
    after = _row(admin, _COUNTS)
    return [float(b) - float(a) for a, b in zip(before, after, strict=True)], connections


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
