"""Runtimes that share a store: an agent is one runtime's at a time, and is given up in order.

Rules: J20.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.support.agents import (
    Held,
    by_turn,
    completed,
    desk,
    interrupted,
    results,
)
from tests.support.hosts import host, opened, pay
from tests.support.loops import never, soon, until
from tests.support.places import SqlitePlace
from tests.support.postgres import Hosts, Server
from understudy import (
    Agent,
    AgentState,
    ScriptedModel,
    Status,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.errors import Fenced, OwnedElsewhere, StoreInUse, StoreUnavailable
from understudy.journal import FoldedAgent
from understudy.journal.backend import Backend
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend
from understudy.testing import FaultyBackend


@pytest.fixture
def server_hosts(postgres_server: Server) -> Iterator[Hosts]:
    """On a server that the test may stop."""
    opened = Hosts(postgres_server.url)
    yield opened
    opened.close()


@pytest.mark.slow
async def test_an_agent_of_another_runtime_is_refused_by_that_ones_name_until_it_lies_down(
    hosts: Hosts,
) -> None:
    """J6: it is free as soon as `stop` has answered."""
    turns = tuple("abcdefgh")
    async with (
        opened(host(hosts, "first"), desk(*turns), any_host=False) as first,
        opened(host(hosts, "second"), desk(*turns), any_host=False) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        assert completed(await soon(here.run("go"))).text == "a"
        for ask in (there.run("go"), there.send("go"), second.delete("t")):
            with pytest.raises(OwnedElsewhere, match="'first'") as refused:
                await soon(ask)
            assert refused.value.host == "first"
        assert [info.host for info in await soon(second.agents())] == ["first"]
        assert completed(await soon(here.run("go"))).text == "b", "it is not disturbed"
        for text in "cdef":
            assert await soon(here.stop(block=False)) is True
            assert completed(await soon(there.run("go"))).text == text
            here, there = there, here


async def test_recover_leaves_the_agents_of_a_living_runtime_alone(hosts: Hosts) -> None:
    """J6, J11."""
    held = Held("done")

    async with (
        opened(host(hosts, "first"), Agent("desk", ScriptedModel([held]))) as first,
        opened(host(hosts, "second"), desk("never")) as second,
    ):
        run = first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        await soon(first.get("t").send("later"))
        assert await soon(second.recover()) == []
        held.release.set()
        assert completed(await soon(run)).text == "done"


@pytest.mark.quick
async def test_a_runtime_that_was_taken_over_writes_nothing_more(
    hosts: Hosts, ran: list[str]
) -> None:
    """J7, J8: whoever waits there gets Fenced; the new owner's agent is not disturbed."""
    held = Held()

    @tool
    async def slow() -> str:
        ran.append("slow")
        await held.wait()
        return "late"

    def agent() -> Agent:
        return desk(call("slow"), "went on", "again", tools=[slow])

    async with (
        opened(host(hosts, "first"), agent(), any_host=False) as first,
        opened(host(hosts, "second"), agent(), any_host=False) as second,
    ):
        ref = first.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        hosts.end_lease("first")
        (there,) = await soon(second.recover())
        outcome = await soon(there.outcome())
        assert outcome is not None
        done = completed(outcome)
        assert [part.outcome for part in results(done.state)] == ["interrupted"]
        held.release.set()
        with pytest.raises(Fenced):
            await soon(run)
        assert len((await soon(second.export("t")))["records"]) > 0
        with pytest.raises((Fenced, OwnedElsewhere)):
            await soon(ref.run("hello"))
        assert completed(await soon(there.run("hello"))).text == "again"
        assert ran == ["slow"]


@pytest.mark.slow
async def test_a_lost_lease_stops_all_agents_in_order_and_they_are_claimed_again_when_spoken_to(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J6, J8: whoever waits gets Fenced, nobody is restarted, no tool is entered meanwhile."""
    held = Held("never said")

    backend = FaultyBackend(sqlite.backend())
    backend.lease = 4.0  # long enough for a busy machine; it is renewed each second
    agent = Agent("desk", ScriptedModel(_replies(held)), tools=[pay(ran)])
    async with opened(DatabaseStore(backend), agent) as runtime:
        rests = [runtime.spawn("desk", f"rest{n}") for n in range(20)]
        for ref in rests:
            completed(await soon(ref.run("hello")))
        busy = [runtime.spawn("desk", f"busy{n}") for n in range(20)]
        runs = [ref.run("wait") for ref in busy]
        behind = [ref.run("next") for ref in busy]
        await soon(held.entered.wait())
        backend.lease_lost = True
        for future in (*runs, *behind):
            with pytest.raises(Fenced, match="lease has ended"):
                await soon(future)
        for ref in (*rests, *busy):
            await soon(ref.stop(block=False))
            assert ref.status() is Status.PASSIVE
        held.release.set()
        assert await asyncio.to_thread(backend.renewed.wait, 60)
        for ref in rests:
            assert completed(await soon(ref.run("pay"))).text == "ok"
        assert ran == ["pay"] * 20
        refs = await soon(runtime.recover())
        assert {ref.id for ref in refs} == {ref.id for ref in busy}
        for ref in refs:
            outcome = await soon(ref.outcome())
            assert outcome is not None
            assert completed(outcome).text == "ok"
        for ref in busy:
            assert completed(await soon(ref.run("hello"))).text == "ok"
        assert runtime.tree().restarts == 0


def _replies(held: Held) -> Any:
    def reply(request: Any) -> Any:
        if request.prompt == "wait" and not held.release.is_set():
            return held(request)
        last = request.messages[-1].parts[-1]
        asked = request.prompt == "pay" and last.part_kind == "user-prompt"
        return call("pay") if asked else "ok"

    return reply


async def test_a_second_runtime_on_one_sqlite_file_is_told_who_has_it(sqlite: SqlitePlace) -> None:
    """And it is free when that one has stopped, or could not begin."""
    async with opened(sqlite.store(), desk("one")):
        with pytest.raises(StoreInUse, match="here"):
            async with opened(sqlite.store()):
                raise AssertionError("it must not begin")
    async with opened(sqlite.store(), desk("one")) as runtime:
        assert await soon(runtime.agents()) == []


@pytest.mark.slow
async def test_a_server_that_stops_for_a_moment_is_waited_for(
    server_hosts: Hosts, postgres_server: Server, ran: list[str]
) -> None:
    """J16: runs wait and go on, nothing is lost or made twice."""
    agent = desk([call("pay"), call("pay")], call("pay"), "done", tools=[pay(ran)])
    gated = Agent("asks", by_turn(call("pay"), "ok"), tools=[pay(ran)], interrupt_on={"pay": True})
    async with opened(host(server_hosts, "first"), agent, gated) as runtime:
        asked = interrupted(await soon(runtime.spawn("asks", "u").run("go")))
        await asyncio.to_thread(postgres_server.crash)
        run = runtime.spawn("desk", "t").run("go")
        resumed = runtime.get("u").resume(asked.decide(approve()))
        await asyncio.to_thread(postgres_server.start)
        async with asyncio.timeout(60):
            assert completed(await run).text == "done"
            assert completed(await resumed).text == "ok"
        assert ran == ["pay"] * 4


@pytest.mark.slow
async def test_a_server_that_stays_away_is_told_and_the_agent_goes_on_when_it_is_back(
    server_hosts: Hosts, postgres_server: Server, ran: list[str]
) -> None:
    """J16: after `patience` seconds; the run stands in the store until it is recovered."""
    held = Held()

    @tool(idempotent=True)
    async def slow() -> str:
        ran.append("slow")
        await held.wait()
        return "slow"

    store = DatabaseStore(server_hosts.new("first", patience=1.0), patience=0.1)
    async with opened(store, desk(call("slow"), "done", tools=[slow])) as runtime:
        ref = runtime.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        await asyncio.to_thread(postgres_server.crash)
        try:
            held.release.set()
            async with asyncio.timeout(60):
                with pytest.raises((StoreUnavailable, Fenced)):
                    await run
                with pytest.raises((StoreUnavailable, Fenced)):
                    await ref.run("hello?")
        finally:
            await asyncio.to_thread(postgres_server.start)
        async with asyncio.timeout(60):
            (found,) = await runtime.recover()
            outcome = await found.outcome()
        assert outcome is not None
        assert completed(outcome).text == "done"
        assert ran == ["slow", "slow"]


CUT_OFF = 20
"""Agents that one recovery continues."""


@pytest.mark.slow
async def test_a_recovery_in_whose_middle_the_server_stops_goes_on_when_it_is_back(
    server_hosts: Hosts, postgres_server: Server
) -> None:
    """J10, J16, J20: also those that had got further, and whose store was away for too long."""
    cut_off, waiting, crashed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    entered: list[str] = []

    @tool(idempotent=True)
    async def note(context: ToolContext, part: int) -> str:
        if not cut_off.is_set():
            entered.append(context.agent_id)
            if len(entered) == CUT_OFF:
                waiting.set()
            await never()
        if part == 2 and not crashed.is_set():
            entered.append(context.agent_id)
            if len(entered) == CUT_OFF + 8:
                await asyncio.to_thread(postgres_server.crash)
                crashed.set()
            await crashed.wait()
        return "noted"

    turns = [call("note", {"part": 1}), call("note", {"part": 2}), "done"]
    async with opened(host(server_hosts, "first"), desk(*turns, tools=[note])) as first:
        for number in range(CUT_OFF):
            first.spawn("desk", f"t{number}").run("go")
        await soon(waiting.wait())
    cut_off.set()
    store = DatabaseStore(server_hosts.new("second", patience=1.0), patience=0.1)
    async with opened(store, desk(*turns, tools=[note])) as second:
        recovery = await soon(second.recover(at_once=4))
        assert len(recovery) == CUT_OFF
        try:
            await soon(crashed.wait())
            stranded = second.get(entered[CUT_OFF])
            await until(lambda: stranded.status() is Status.PASSIVE)  # it is cut off
        finally:
            await asyncio.to_thread(postgres_server.start)
        assert (await soon(recovery.settled)) is recovery
        await until(lambda: all(ref.status() is Status.IDLE for ref in recovery))
        assert (recovery.waiting, recovery.left) == ({}, {})
        for ref in recovery:
            outcome = await soon(ref.outcome())
            assert outcome is not None
            assert completed(outcome).text == "done"


async def test_a_recovery_names_the_agents_that_another_runtime_has(hosts: Hosts) -> None:
    """J6, J10."""
    held = Held()

    @tool
    async def wait() -> str:
        await held.wait()
        return "waited"

    agent = desk(call("wait"), "done", tools=[wait])
    async with (
        opened(host(hosts, "first"), agent) as first,
        opened(host(hosts, "second"), agent) as second,
    ):
        run = first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        recovery = await soon(second.recover())
        assert recovery == []
        assert {id: str(error) for id, error in recovery.left.items()} == {
            "t": "Agent 't' is owned by 'first': send to it there, or wait until that runtime "
            "stops or its lease ends"
        }
        assert await soon(recovery.settled) is recovery
        held.release.set()
        completed(await soon(run))


AGENTS = 50


def payers(ran: list[str], outage: asyncio.Event) -> Agent:
    """Each run makes three rounds of two calls; a call that is cut off is in doubt.

    From half of the first calls on they end when the outage has begun.
    """

    @tool
    async def pay(context: ToolContext) -> str:
        ran.append(context.call_key)
        if len(ran) > AGENTS:
            await outage.wait()
        return "paid"

    return desk(*[[call("pay"), call("pay")]] * 3, "done", tools=[pay])


def doubts(state: AgentState) -> int:
    return len(state.doubts) + sum(part.outcome == "interrupted" for part in results(state))


OUTAGES = [(5, 2), (20, 2), (60, 2), (1, 10), (20, 10), (60, 10)]
"""The seconds of an outage, and those of the lease."""


@pytest.mark.parametrize(
    ("seconds", "lease"),
    [
        pytest.param(1, 2, marks=pytest.mark.slow),
        *(pytest.param(*n, marks=[pytest.mark.slow, pytest.mark.faults]) for n in OUTAGES),
    ],
)
async def test_an_owner_goes_on_after_an_outage_that_is_longer_than_its_lease(
    server_hosts: Hosts, postgres_server: Server, ran: list[str], seconds: int, lease: int
) -> None:
    """J6, J8, J16: no other host has claimed anything meanwhile, so nothing is in doubt."""
    store = DatabaseStore(server_hosts.new("first", lease=lease), patience=max(30.0, 2 * seconds))
    outage = asyncio.Event()
    async with opened(store, payers(ran, outage)) as runtime:
        runs = [runtime.spawn("desk", id=f"t{n}").run("go") for n in range(AGENTS)]
        await until(lambda: len(ran) > AGENTS)
        await asyncio.to_thread(postgres_server.crash)
        outage.set()
        try:
            await asyncio.sleep(seconds)  # the outage itself
            behind = [runtime.spawn("desk", id=f"new{n}").run("go") for n in range(3)]
        finally:
            await asyncio.to_thread(postgres_server.start)
        async with asyncio.timeout(60):
            outcomes = [completed(await run) for run in (*runs, *behind)]
    assert [doubts(outcome.state) for outcome in outcomes] == [0] * (AGENTS + 3)
    assert len(ran) == (AGENTS + 3) * 6


async def test_a_loop_that_is_blocked_for_longer_than_the_lease_leaves_nothing_in_doubt(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J8: the calls that are next wait for the renewal, which the blocked loop has held up."""

    @tool
    async def block() -> str:
        time.sleep(0.15)  # noqa: ASYNC251  # the block itself
        return "blocked"

    backend = FaultyBackend(sqlite.backend())
    backend.lease = 0.1
    agent = desk([call("block"), call("pay"), call("pay")], "done", tools=[block, pay(ran)])
    async with opened(DatabaseStore(backend), agent) as runtime:
        outcome = completed(await soon(runtime.spawn("desk", "t").run("go")))
    assert doubts(outcome.state) == 0
    assert ran == ["pay", "pay"]


class Away:
    """A database that this host alone cannot reach for a while."""

    keeps = ()  # what else it has by `__getattr__` no class of it defines

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend
        self.away = False

    def __getattr__(self, name: str) -> Any:
        given = getattr(self._backend, name)
        if not callable(given) or name in ("rollback", "close"):
            return given

        def called(*args: Any, **options: Any) -> Any:
            if self.away:
                raise StoreUnavailable(cause="the test says so")
            return given(*args, **options)

        return called


async def test_an_owner_is_fenced_after_an_outage_in_which_another_host_took_over(
    hosts: Hosts, ran: list[str]
) -> None:
    """J6, J8: it enters no tool any more, and what it waits to record is refused."""
    held = Held()

    @tool
    async def slow() -> str:
        ran.append("slow")
        await held.wait()
        return "late"

    def agent() -> Agent:
        return desk(call("slow"), call("slow"), "done", tools=[slow])

    backend = Away(hosts.new("first", lease=0.5))
    async with (
        opened(DatabaseStore(cast("Backend", backend)), agent(), any_host=False) as first,
        opened(host(hosts, "second"), desk("mine"), any_host=False) as second,
    ):
        run = first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        backend.away = True
        held.release.set()
        while True:  # until the lease has ended, by the clock of the database
            try:
                await soon(second.get("t").cancel("taken over"))
            except OwnedElsewhere:
                continue
            break
        backend.away = False
        with pytest.raises(Fenced):
            await soon(run)
        assert ran == ["slow"]


async def test_what_was_claimed_under_a_lease_that_ended_meanwhile_is_lost(
    sqlite: SqlitePlace,
) -> None:
    """J8: also between the claim and the first record."""
    backend = FaultyBackend(sqlite.backend())
    backend.lease = 1.0
    store = DatabaseStore(backend)
    await store.open(lambda: None)
    try:
        owned = await store.claim("t", "desk")
        assert owned is not None
        backend.lease_lost = True
        assert await asyncio.to_thread(backend.renewed.wait, 60)
        journal = store.journal(owned, FoldedAgent(AgentState()))
        with pytest.raises(Fenced):
            journal.check_owner()
    finally:
        await store.close()
