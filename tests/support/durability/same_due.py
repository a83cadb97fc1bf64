"""The story of two hosts that both see what is due: each has read the agents, and none claimed one.

The test lets the claims of one host pass before those of the other, and holds what it writes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Literal

import pytest

from tests.support.agents import by_turn, until_status
from tests.support.durability.broken_hosts import replaced
from tests.support.loops import SECONDS, soon
from tests.support.plans import HOUR
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    call,
    tool,
)
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres import sql, writer
from understudy.journal.shared import Taken
from understudy.middleware import HumanInTheLoop

__all__ = ["BROKEN", "FACTS", "ORDERS", "Order", "same_due"]

FACTS = {
    "sleep": "point_answered",
    "expiry": "decided",
    "reminder": "reminded",
    "occurrence": "occurred",
    "message": "message_due",
}
"""By agent: the record of what becomes due at one o'clock."""
RUNS = {"sleep", "expiry", "occurrence", "message"}
"""The agents whose runs end by it."""
Order = Literal["behind", "beside", "instead"]
ORDERS: tuple[Order, ...] = ("behind", "beside", "instead")
"""The second host claims when the first has recorded what is due, and released the agents; while
the first one owns them; or after the end of the first one's lease, before that one has recorded."""


class _Store(DatabaseStore):
    """Of one host: its claims and what it writes wait for the test."""

    def __init__(self, hosts: Hosts, name: str) -> None:
        backend = hosts.new(name, lease=600.0)  # no heartbeat comes meanwhile
        super().__init__(backend)
        self.came: set[str] = set()
        """The agents that it was about to claim."""
        self.all_came = asyncio.Event()
        self.may_claim = asyncio.Event()
        self.claimed: set[str] = set()
        self.all_claimed = asyncio.Event()
        self.may_write = threading.Event()
        for name in ("append_all", "commit_all"):
            replaced(backend, name, self._held(getattr(backend, name)))
        assert self.shared is not None
        self._take = self.shared.take
        replaced(self.shared, "take", self._claimed)

    def _held(self, write: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def writes(batches: Any) -> Any:
            assert self.may_write.wait(SECONDS), "the test holds what is written for ever"
            return write(batches)

        return writes

    async def _claimed(self, agent_id: str, *given: Any, **options: Any) -> Taken | None:
        self.came.add(agent_id)
        if self.came == FACTS.keys():
            self.all_came.set()
        await soon(self.may_claim.wait())
        taken = await self._take(agent_id, *given, **options)
        self.claimed.add(agent_id)
        if self.claimed == FACTS.keys():
            self.all_claimed.set()
        return taken


def _agents(calls: Counter[str]) -> list[Agent]:
    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("nap", HOUR)
        return "rested"

    @tool
    async def refund() -> str:
        calls["refunded"] += 1
        return "refunded"

    def asks(name: str, **timing: Any) -> Agent:
        gate = HumanInTheLoop({"refund": True}, **timing)
        return Agent(name, by_turn(call("refund", {}), "Done."), tools=[refund], middleware=[gate])

    def counts(name: str) -> Agent:
        def reply(_: Any) -> str:
            calls[name] += 1
            return "Done."

        return Agent(name, ScriptedModel(reply))

    return [
        Agent("sleep", by_turn(call("nap", {}), "Done."), tools=[nap]),
        asks("expiry", expires_after=HOUR),
        asks("reminder", remind_after=HOUR),
        counts("occurrence"),
        counts("message"),
    ]


async def same_due(hosts: Hosts, order: Order) -> list[str]:
    """Two hosts, whose clocks both come to one o'clock.

    Returns:
        What is lost, and what happened twice.

    """
    calls: Counter[str] = Counter()
    clock, other = SimulatedClock(), SimulatedClock()
    async with Runtime(
        _agents(calls), store=DatabaseStore(hosts.new("maker")), clock=clock, sweep=None
    ) as maker:
        await _plan(maker, clock)
    here, there = _Store(hosts, "here"), _Store(hosts, "there")
    async with AsyncExitStack() as opened:
        first = Runtime(_agents(calls), store=here, clock=clock, sweep=None)
        second = Runtime(_agents(calls), store=there, clock=other, sweep=None)
        for runtime in (first, second):
            await opened.enter_async_context(runtime)
        at_first, at_second = clock.advance(HOUR), other.advance(HOUR)
        for store in (here, there):
            await soon(store.all_came.wait())
        here.may_claim.set()
        await soon(here.all_claimed.wait())
        there.may_write.set()
        if order == "behind":
            here.may_write.set()
            await soon(at_first)
            await _end_runs(first)
            for name in FACTS:
                await soon(first.get(name).stop(block=False))
        elif order == "instead":
            hosts.end_lease("here")
        there.may_claim.set()
        await soon(at_second)
        if order == "instead":
            await _end_runs(second)
        here.may_write.set()
        await soon(at_first)
        if order == "beside":
            await _end_runs(first)
    return _violations(hosts, calls)


async def _plan(runtime: Runtime, clock: SimulatedClock) -> None:
    """Each agent is due in an hour."""
    for name in FACTS:
        ref = runtime.spawn(name, id=name)
        if name == "occurrence":
            await soon(runtime.schedule(ref, "daily", cron="0 13 * * *", input="Report."))
        elif name == "message":
            await soon(ref.send("Later.", at=clock.now() + timedelta(seconds=HOUR)))
        else:
            await soon(ref.send("Go."))
            await until_status(ref, Status.WAITING, Status.INTERRUPTED)


async def _end_runs(runtime: Runtime) -> None:
    for name in RUNS:
        await soon(runtime.get(name).outcome())


def _violations(hosts: Hosts, calls: Counter[str]) -> list[str]:
    rows = hosts.sql(
        "SELECT a.agent_id, r.kind, count(*) FROM records r JOIN agents a ON a.key = r.agent"
        " GROUP BY a.agent_id, r.kind"
    )
    found = {(str(name), str(kind)): count for name, kind, count in rows}
    wanted = dict.fromkeys(FACTS.items(), 1)
    wanted |= {(name, "run_ended"): 1 for name in RUNS}
    wrong = [
        f"{kind} of {name} is recorded {found.get((name, kind), 0)} times"
        for (name, kind), count in wanted.items()
        if found.get((name, kind), 0) != count
    ]
    if calls != {"occurrence": 1, "message": 1}:
        wrong.append(f"the models and the tool were called so often: {dict(calls)}")
    return wrong


def _look_before_the_claim(patch: pytest.MonkeyPatch, hosts: Hosts) -> None:
    """A host records from what it read before its claim, although others wrote since."""
    del hosts
    read: dict[tuple[int, str], Any] = {}
    inner = DatabaseStore.load_latest

    async def load_once(store: DatabaseStore, agent_id: str) -> Any:
        place = id(store), agent_id
        if place not in read:
            read[place] = await inner(store, agent_id)
        return read[place]

    patch.setattr(DatabaseStore, "load_latest", load_once)


def _write_without_a_fence(patch: pytest.MonkeyPatch, hosts: Hosts) -> None:
    """An earlier owner of an agent may write on, also if somebody else has written."""
    begin, end = "AND a.owner = %(owner)b", "    RETURNING"
    before, found, rest = sql.ADD.partition(begin)
    assert found, "the statement that adds does not compare the owner any more"
    _, found, after = rest.partition(end)
    assert found, "the statement that adds does not tell what was added any more"
    patch.setattr(sql, "ADD", before + end + after)
    patch.setattr(writer, "refusal", lambda *_, **__: None)
    hosts.open("maker of tables")
    hosts.sql("ALTER TABLE records DROP CONSTRAINT records_pkey")


BROKEN: dict[str, tuple[Order, Callable[[pytest.MonkeyPatch, Hosts], None]]] = {
    "J21: what is due is judged before the claim": ("behind", _look_before_the_claim),
    "J6: a host that has lost its agents writes on": ("instead", _write_without_a_fence),
}
"""Each broken build, by what is wrong with it, and the order that finds it."""
