"""Before a rolling deploy a runtime gives its agents up in order, and takes none any more."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.agents import Held, completed, desk, interrupted
from tests.support.hosts import deaf_to, may_be_taken, opened
from tests.support.loops import soon, until
from tests.support.places import NewStore
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    Fenced,
    Runtime,
    RuntimeStopped,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    UnfitHost,
    UsageError,
    WouldDeadlock,
    approve,
    call,
    tool,
)
from understudy.journal.database_store import DatabaseStore


def at_work(held: Held, *before: Any) -> Agent:
    """After these replies it calls a tool that works until `held` is released."""

    @tool
    async def work() -> str:
        await held.wait()
        return "worked"

    return desk(*before, call("work", {}), "done", tools=[work])


CUT_EAR = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
JOIN hosts h ON a.query = format('LISTEN "%%s"', h.channel) WHERE h.name = %s"""


async def at_rest(hosts: Hosts) -> None:
    """Until nothing of the one agent goes on any more."""
    await hosts.found("SELECT 1 FROM agents WHERE index_status = 'rest'")


async def test_a_drained_runtime_has_no_agent_and_takes_none(new_store: NewStore) -> None:
    """J53: those at rest are passive at once, and a call is an error that says why."""
    async with opened(new_store(), desk("a", "b", "c")) as runtime:
        refs = [runtime.spawn("desk", f"t{n}") for n in range(3)]
        for ref in refs:
            completed(await soon(ref.run("go")))
        assert (runtime.status().draining, runtime.status().ready) == (False, True)
        assert await soon(runtime.drain()) is True
        assert (runtime.status().draining, runtime.status().ready) == (True, False)
        assert runtime.status().running == 0
        assert [info.is_active for info in await soon(runtime.agents())] == [False] * 3
        for ask in (refs[0].run("more"), runtime.spawn("desk", "new").run("go"), refs[1].send("x")):
            with pytest.raises(UnfitHost, match="being drained") as refused:
                await soon(ask)
            assert refused.value.draining
        assert await soon(runtime.drain()) is True
    async with opened(new_store(), desk("a", "b", "c")) as other:
        assert completed(await soon(other.get("t0").run("more"))).text == "b"


@pytest.mark.quick
async def test_a_run_is_halted_at_its_next_step_and_goes_on_elsewhere(hosts: Hosts) -> None:
    """J53: no call is cut off, none is made twice, and nothing is in doubt."""
    ran: list[str] = []
    held = Held("done")

    @tool
    async def work(part: int) -> str:
        ran.append(f"begins {part}")
        if part == 1:
            await held.wait()
        ran.append(f"ends {part}")
        return "worked"

    def agent() -> Agent:
        turns = [call("work", {"part": 1}), call("work", {"part": 2}), "done"]
        return desk(*turns, tools=[work])

    async with (
        opened(DatabaseStore(hosts.new("old")), agent(), any_host=False) as old,
        opened(DatabaseStore(hosts.new("new")), agent()) as new,
    ):
        run = old.spawn("desk", "t").run("go")
        await until(lambda: ran == ["begins 1"])
        drained = old.drain()
        again = old.drain()
        assert await soon(old.drain(timeout=0.01)) is False, "the call goes on"
        assert ran == ["begins 1"]
        held.release.set()
        assert await soon(drained) is True
        assert await soon(again) is True
        with pytest.raises(Fenced, match="drained"):
            await soon(run)
        (ref,) = await soon(new.recover())
        outcome = await soon(ref.outcome())
        assert outcome is not None
        assert completed(outcome).text == "done"
        assert not outcome.state.doubts
    assert ran == ["begins 1", "ends 1", "begins 2", "ends 2"]


async def test_a_run_goes_on_at_another_host_at_once_and_its_caller_gets_the_outcome(
    hosts: Hosts,
) -> None:
    """J53: nobody recovers it, and no sweep is waited for."""
    ran: list[str] = []
    held = Held("done")

    @tool
    async def work(part: int) -> str:
        ran.append(f"begins {part}")
        if part == 1:
            await held.wait()
        return "worked"

    def agent() -> Agent:
        turns = [call("work", {"part": 1}), call("work", {"part": 2}), "done"]
        return desk(*turns, tools=[work])

    async with (
        opened(DatabaseStore(hosts.new("old")), agent()) as old,
        opened(DatabaseStore(hosts.new("new")), agent()) as new,
    ):
        run = old.spawn("desk", "t").run("go")
        silent = old.spawn("desk", "silent")
        await until(lambda: ran == ["begins 1"])
        await soon(silent.send("go"))
        await until(lambda: ran == ["begins 1"] * 2)
        drained = old.drain()
        assert await soon(old.drain(timeout=0.01)) is False
        held.release.set()
        assert await soon(drained) is True
        assert completed(await soon(run)).text == "done"
        async with asyncio.timeout(60):
            while (await new.agents(prefix="silent"))[0].status is not Status.IDLE:
                await asyncio.to_thread(time.sleep, 0.01)  # nobody asks for it, only the store
        # What is asked here is answered there.
        assert completed(await soon(old.get("t").run("more"))).text == "done"
        assert completed(await soon(old.spawn("desk", "u").run("go"))).text == "done"
        assert [info.host for info in await soon(old.agents())] == ["new"] * 3
    assert sorted(ran) == ["begins 1"] * 3 + ["begins 2"] * 3


def work_of(held: dict[str, Held]) -> Agent:
    """Its tool works until that of its agent is released."""

    @tool
    async def work(ctx: ToolContext) -> str:
        await held[ctx.agent_id].wait()
        return "worked"

    return desk(call("work", {}), "done", tools=[work])


async def at_rest_elsewhere(hosts: Hosts, host: str, id: str) -> None:
    """Until the run of this agent has ended at that host."""
    await hosts.found(
        "SELECT 1 FROM agents a JOIN hosts h ON h.id = a.owner"
        f" WHERE a.agent_id = '{id}' AND h.name = '{host}' AND a.status = 'idle'"
    )


async def test_a_run_goes_on_elsewhere_while_another_one_keeps_the_drain_waiting(
    hosts: Hosts,
) -> None:
    """J53: a long step holds up its own agent alone."""
    held = {"long": Held("done"), "short": Held("done")}
    async with (
        opened(DatabaseStore(hosts.new("old")), work_of(held)) as old,
        opened(DatabaseStore(hosts.new("new")), work_of(held)),
    ):
        for id in held:
            await soon(old.spawn("desk", id).send("go"))
            await soon(held[id].entered.wait())
        drained = old.drain()
        assert await soon(old.drain(timeout=0.01)) is False
        held["short"].release.set()
        await at_rest_elsewhere(hosts, "new", "short")
        # The run may end there before its agent has left the memory of this host.
        await until(lambda: old.status().running == 1)
        held["long"].release.set()
        assert await soon(drained) is True
        await at_rest_elsewhere(hosts, "new", "long")


async def test_what_ends_its_step_after_the_time_of_a_drain_goes_on_elsewhere_too(
    hosts: Hosts,
) -> None:
    """J53: the draining goes on, though nobody waits for it."""
    held = {"t": Held("done")}
    async with (
        opened(DatabaseStore(hosts.new("old")), work_of(held)) as old,
        opened(DatabaseStore(hosts.new("new")), work_of(held)),
    ):
        await soon(old.spawn("desk", "t").send("go"))
        await soon(held["t"].entered.wait())
        assert await soon(old.drain(timeout=0.01)) is False
        held["t"].release.set()
        await at_rest_elsewhere(hosts, "new", "t")
        assert await soon(old.drain()) is True


async def test_a_run_that_is_given_to_a_host_with_a_stale_copy_goes_on_there(hosts: Hosts) -> None:
    """J53: the copy is of no use, and must not keep the host from going on with the run."""
    held = Held("done")

    stale = DatabaseStore(hosts.new("stale"))
    deaf_to(stale, "taken")
    async with (
        opened(stale, at_work(held, "first")) as first,
        opened(DatabaseStore(hosts.new("drained")), at_work(held, "first")) as second,
    ):
        completed(await soon(first.spawn("desk", "t").run("go")))
        await may_be_taken(hosts)  # else the message is posted to the first one, which runs it
        await soon(second.get("t").send("more"))
        await soon(held.entered.wait())
        drained = second.drain()
        assert await soon(second.drain(timeout=0.01)) is False
        held.release.set()
        assert await soon(drained)
        # Nobody asks for it, only the store.
        await at_rest(hosts)
        (info,) = await soon(second.agents())
        assert (info.host, info.status) == ("stale", Status.IDLE)


async def test_a_host_that_hears_again_goes_on_with_what_it_was_given_meanwhile(
    hosts: Hosts,
) -> None:
    """J53: it was not told, and does not wait for a sweep to find that out."""
    held = Held("done")

    deaf = DatabaseStore(hosts.new("deaf"))
    deaf_to(deaf, "given")
    async with (
        opened(deaf, at_work(held), sweep=1000) as first,
        opened(DatabaseStore(hosts.new("drained")), at_work(held)) as second,
    ):
        await soon(second.spawn("desk", "t").send("go"))
        await soon(held.entered.wait())
        drained = second.drain()
        assert await soon(second.drain(timeout=0.01)) is False
        held.release.set()
        assert await soon(drained)
        (info,) = await soon(first.agents())
        assert (info.host, info.status) == ("deaf", Status.RUNNING)
        assert hosts.sql(CUT_EAR, "deaf") == [(True,)]
        await at_rest(hosts)


async def test_a_run_that_a_host_leaves_goes_on_elsewhere_without_a_sweep(hosts: Hosts) -> None:
    """J10: who leaves says so to the others, and the run of nobody's caller does not wait."""
    held = Held("done")

    @tool(idempotent=True)
    async def work() -> str:
        await held.wait()
        return "worked"

    def agent() -> Agent:
        return desk(call("work", {}), "done", tools=[work])

    async with opened(DatabaseStore(hosts.new("stays")), agent(), sweep=1000) as stays:
        async with opened(DatabaseStore(hosts.new("leaves")), agent(), sweep=1000) as leaves:
            await soon(leaves.spawn("desk", "t").send("go"))
            await soon(held.entered.wait())
        held.release.set()
        await at_rest(hosts)
        (info,) = await soon(stays.agents())
        assert (info.host, info.status) == ("stays", Status.IDLE)


async def test_a_run_that_no_host_may_run_goes_on_at_the_first_one_that_may(hosts: Hosts) -> None:
    """J10: nobody could be told of it; who starts looks, and waits for no sweep."""
    held = Held("done")

    @tool(idempotent=True)
    async def work() -> str:
        await held.wait()
        return "worked"

    def host(name: str, *labels: str) -> Runtime:
        agent = desk(call("work", {}), "done", tools=[work], needs={"gpu"})
        return opened(DatabaseStore(hosts.new(name)), agent, labels=labels, sweep=1000)

    async with host("lacks it"):
        async with host("had it", "gpu") as first:
            await soon(first.spawn("desk", "t").send("go"))
            await soon(held.entered.wait())
        held.release.set()
        async with host("has it", "gpu") as second:
            await at_rest(hosts)
            (info,) = await soon(second.agents())
            assert (info.host, info.status) == ("has it", Status.IDLE)


async def test_what_is_due_at_a_host_that_leaves_comes_at_another_one(hosts: Hosts) -> None:
    """J10: no other host has read that it is due."""
    async with opened(DatabaseStore(hosts.new("stays")), desk("done"), sweep=1000) as stays:
        clock = SimulatedClock(datetime.now(UTC))  # it does not come there, however long it takes
        store = DatabaseStore(hosts.new("leaves"))
        async with opened(store, desk("done"), sweep=1000, clock=clock) as leaves:
            soon_due = clock.now() + timedelta(milliseconds=1)
            await soon(leaves.spawn("desk", "t").send("later", message_id="m", at=soon_due))
        await hosts.found("SELECT 1 FROM records WHERE kind = 'run_ended'")
        await at_rest(hosts)
        (info,) = await soon(stays.agents())
        assert (info.host, info.status) == ("stays", Status.IDLE)


async def test_two_hosts_that_are_drained_give_no_agent_to_each_other(hosts: Hosts) -> None:
    """J53."""
    async with (
        opened(DatabaseStore(hosts.new("old")), desk("a", "b")) as old,
        opened(DatabaseStore(hosts.new("new")), desk("a", "b")) as new,
    ):
        completed(await soon(old.spawn("desk", "t").run("go")))
        assert await soon(new.drain()) is True
        assert await soon(old.drain()) is True
        for runtime in (old, new):
            with pytest.raises(UnfitHost, match="being drained"):
                await soon(runtime.get("t").run("more"))


async def test_a_run_that_waits_for_a_person_is_answered_elsewhere(hosts: Hosts) -> None:
    """J53."""

    @tool
    async def pay() -> str:
        return "paid"

    def agent() -> Agent:
        return desk(call("pay"), "done", tools=[pay], interrupt_on={"pay": True})

    async with (
        opened(DatabaseStore(hosts.new("old")), agent()) as old,
        opened(DatabaseStore(hosts.new("new")), agent()) as new,
    ):
        asked = interrupted(await soon(old.spawn("desk", "t").run("go")))
        assert await soon(old.drain()) is True
        outcome = await soon(new.get("t").resume(asked.decide(approve())))
        assert completed(outcome).text == "done"
    assert hosts.sql("SELECT count(*) FROM hosts") == [(0,)]


async def test_an_agent_that_is_being_activated_is_passivated_too(new_store: NewStore) -> None:
    """J53."""
    held = Held("done")
    async with opened(new_store(), Agent("desk", ScriptedModel([held]))) as runtime:
        ref = runtime.spawn("desk", "t")
        sent = ref.send("go")
        drained = runtime.drain()
        held.release.set()
        assert await soon(drained) is True
        assert runtime.status().running == 0
        with pytest.raises(UnfitHost):
            await soon(ref.send("more"))
        with suppress(UnfitHost):  # or it was in time
            await soon(sent)


async def test_a_drain_ends_by_the_end_of_its_runtime(new_store: NewStore) -> None:
    """J53: what has not come to its next step is cut off there, as without a drain."""
    held = Held("late")
    async with opened(new_store(), Agent("desk", ScriptedModel([held]))) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        drained = runtime.drain()
        assert await soon(runtime.drain(timeout=0.01)) is False
    with pytest.raises(RuntimeStopped):
        await soon(run)
    with pytest.raises(UsageError, match="stopped"):
        await soon(drained)
    with pytest.raises(UsageError, match="stopped"):
        runtime.drain()


async def test_a_run_cannot_drain_its_runtime(new_store: NewStore) -> None:
    """J53: it would wait for itself."""
    raised: list[BaseException] = []

    @tool
    async def drain() -> str:
        try:
            runtime.drain()
        except WouldDeadlock as error:
            raised.append(error)
        return "tried"

    async with opened(new_store(), desk(call("drain"), "done", tools=[drain])) as runtime:
        completed(await soon(runtime.spawn("desk", "t").run("go")))
    assert len(raised) == 1


@pytest.mark.parametrize("timeout", [0, -1, "1", float("nan"), True])
async def test_a_timeout_of_a_drain_is_seconds(timeout: Any) -> None:
    async with Runtime() as runtime:
        with pytest.raises(UsageError, match="`timeout`"):
            runtime.drain(timeout)
        assert not runtime.status().draining


def test_a_drain_needs_a_runtime_that_runs() -> None:
    with pytest.raises(UsageError, match="not open"):
        Runtime().drain()


def test_a_runtime_with_a_thread_is_drained_too() -> None:
    with Runtime([desk("ok")]) as runtime:
        assert completed(runtime.spawn("desk", "t").run("go").get(timeout=60)).text == "ok"
        assert runtime.drain(timeout=60).get(timeout=60) is True
