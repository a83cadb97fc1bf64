"""What the next runtime does with a store in which runs were cut off (J20)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.agents import Held, by_turn
from tests.support.held_commits import turns
from tests.support.loops import soon, until
from tests.support.places import SqlitePlace
from understudy import Agent, Completed, Runtime, ScriptedModel, Status, call, tool
from understudy.actors import RuntimeStopped
from understudy.errors import StoreUnavailable
from understudy.journal import DatabaseStore, MemoryStore
from understudy.journal.backend import Backend
from understudy.models import ScriptedRequest
from understudy.testing import FaultyBackend


def agent_called(name: str) -> Agent:
    return Agent(name, ScriptedModel(["done"]))


async def cut_off_run(store: MemoryStore) -> None:
    """Leave an agent of the definition 'clerk' behind, in the middle of its first model call."""
    asked = asyncio.Event()

    async def never(request: object) -> str:
        asked.set()
        return await asyncio.Future()

    async with Runtime([Agent("clerk", ScriptedModel(never))], store=store, stop_timeout=0) as old:
        run = old.spawn("clerk", id="a").run("go")
        await asked.wait()
    with pytest.raises(Exception, match="its runtime has stopped"):
        await run


async def test_recovery_tells_which_agent_it_has_no_definition_for_and_leaves_it_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    await cut_off_run(store)
    async with Runtime([agent_called("other")], store=store) as runtime:
        (ref,) = recovery = await runtime.recover()
        assert list(recovery.waiting) == ["a"]
        with pytest.raises(Exception, match="No agent is named 'clerk'; there are: 'other'"):
            await ref.outcome()
        assert await soon(recovery.settled) is recovery
        assert recovery.waiting == {}
        assert "No agent is named 'clerk'" in str(recovery.left["a"])
    assert "agent 'a' was not recovered: No agent is named 'clerk'" in caplog.text
    async with Runtime([agent_called("clerk")], store=store) as runtime:
        (ref,) = await runtime.recover()
        assert isinstance(await ref.outcome(), Completed)


async def test_a_recovery_tells_what_it_does_not_continue_whenever_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """J20: also where the activation for one before it is just failing."""
    store = MemoryStore()
    await cut_off_run(store)
    async with Runtime([agent_called("other")], store=store, sweep=None) as runtime:
        for later in range(20):
            first = runtime.recover()
            for _ in range(later):
                await asyncio.sleep(0)
            second = runtime.recover()
            for recovering in (first, second):
                recovery = await soon((await recovering).settled)
                assert list(recovery.left) == ["a"], later
    assert "which was recovered" not in caplog.text


async def test_two_recoveries_at_once_are_both_told_when_a_run_gets_further() -> None:
    store, clerks = MemoryStore(), Clerks()
    await Clerks().cut_off(store, "a")
    async with Runtime([clerks.agent()], store=store, sweep=None) as runtime:
        recoveries = [await runtime.recover() for _ in range(2)]
        await clerks.have_begun("a")
        clerks.go_on["a"].set()
        for recovery in recoveries:
            assert (await soon(recovery.settled)).left == {}
        clerks.end.set()
        assert isinstance(await soon(runtime.get("a").outcome()), Completed)


class Outage:
    """An agent in whose second call the store goes away, for longer than it is waited for."""

    def __init__(self, folder: Path) -> None:
        self.place = SqlitePlace(folder)
        self.held = Held()

        @tool(idempotent=True)
        async def note(part: int) -> str:
            if part == 2:
                await self.held.wait()
            return "noted"

        turns = [call("note", {"part": 1}), call("note", {"part": 2}), "done"]
        self.agent = Agent("desk", by_turn(*turns), tools=[note])

    async def cut_off(self) -> None:
        """Leave the agent behind in its second call."""
        async with Runtime([self.agent], store=self.place.store(), stop_timeout=0) as runtime:
            runtime.spawn("desk", "a").run("go")
            await soon(self.held.entered.wait())
        self.held.entered.clear()

    def runtime(self, backend: FaultyBackend) -> Runtime:
        store = DatabaseStore(cast("Backend", backend), patience=0.01)
        return Runtime([self.agent], store=store, stop_timeout=0)


async def test_an_agent_that_had_got_further_goes_on_when_the_store_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """J10."""
    outage = Outage(tmp_path)
    await outage.cut_off()
    backend = FaultyBackend(outage.place.backend())
    async with outage.runtime(backend) as runtime:
        (ref,) = await soon(runtime.recover())
        await soon(outage.held.entered.wait())
        backend.fail("begin", times=1_000_000)
        outage.held.release.set()
        await until(lambda: "agent 'a' is not recovered yet: The store cannot be" in caplog.text)
        assert ref.status() is Status.PASSIVE
        backend.mend()
        await until(lambda: ref.status() is Status.IDLE)
        assert isinstance(await soon(ref.outcome()), Completed)


async def test_an_agent_goes_on_though_the_lease_was_lost_while_it_was_recovered(
    tmp_path: Path,
) -> None:
    """J6, J10: this runtime claims it again, as no other one has."""
    outage = Outage(tmp_path)
    await outage.cut_off()
    backend = FaultyBackend(outage.place.backend())
    backend.lease = 0.1
    async with outage.runtime(backend) as runtime:
        (ref,) = await soon(runtime.recover())
        await soon(outage.held.entered.wait())
        outage.held.entered.clear()
        backend.lease_lost = True
        await soon(outage.held.entered.wait())
        outage.held.release.set()
        await until(lambda: ref.status() is Status.IDLE)
        assert isinstance(await soon(ref.outcome()), Completed)


async def test_a_runtime_that_stops_tells_whom_its_recovery_has_left(tmp_path: Path) -> None:
    """J10: and it does not wait for the store."""
    outage = Outage(tmp_path)
    await outage.cut_off()
    backend = FaultyBackend(outage.place.backend())
    async with outage.runtime(backend) as runtime:
        backend.fail("claim", times=1_000_000)
        recovery = await soon(runtime.recover())
        await until(lambda: isinstance(recovery.waiting["a"], StoreUnavailable))
        assert not recovery.settled.done()
    assert await soon(recovery.settled) is recovery
    assert recovery.waiting == {}
    assert [type(error) for error in recovery.left.values()] == [RuntimeStopped]
    assert [ref.id for ref in recovery] == ["a"]


async def test_a_recovery_whose_list_cannot_be_read_is_an_error_and_continues_nothing(
    tmp_path: Path,
) -> None:
    """J10."""
    outage = Outage(tmp_path)
    await outage.cut_off()
    backend = FaultyBackend(outage.place.backend())
    async with outage.runtime(backend) as runtime:
        backend.fail("agents", times=1_000_000)
        with pytest.raises(StoreUnavailable):
            await soon(runtime.recover())
        assert runtime.status().agents == 0
        backend.mend()
        recovery = await soon(runtime.recover())
        outage.held.release.set()
        assert isinstance(await soon(recovery[0].outcome()), Completed)


class Clerks:
    """A definition whose runs say which of them have begun, and go on when they are told."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go_on: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.end = asyncio.Event()

    def agent(self) -> Agent:
        async def reply(request: ScriptedRequest) -> Any:
            if len(request.messages) > 1:
                await self.end.wait()
                return "done"
            id = str(request.prompt)
            self.begun.append(id)
            await self.go_on[id].wait()
            return call("look")

        return Agent("clerk", ScriptedModel(reply), tools=[look])

    async def have_begun(self, *ids: str) -> None:
        """Return when these have begun, in this order, and no other one does."""
        await until(lambda: len(self.begun) >= len(ids))
        await turns()
        assert self.begun == list(ids)

    async def cut_off(self, store: MemoryStore, *ids: str) -> None:
        """Begin or continue these runs, and end the runtime in their first model call."""
        async with Runtime([self.agent()], store=store, stop_timeout=0) as runtime:
            known = [info.id for info in await runtime.agents()]
            for id in ids:
                if id in known:
                    runtime.get(id).outcome()
                else:
                    runtime.spawn("clerk", id=id).run(id)
            await until(lambda: set(self.begun) == set(ids))


@tool
async def look() -> str:
    return "seen"


async def test_recover_continues_so_many_runs_at_a_time_until_each_gets_further() -> None:
    """J10: one that ends its process takes few others with it."""
    store, clerks = MemoryStore(), Clerks()
    await Clerks().cut_off(store, "a", "b", "c")
    async with Runtime([clerks.agent()], store=store) as runtime:
        refs = await runtime.recover(at_once=1)
        await clerks.have_begun("a")
        clerks.go_on["a"].set()
        await clerks.have_begun("a", "b")
        clerks.go_on["b"].set()
        await clerks.have_begun("a", "b", "c")
        clerks.go_on["c"].set()
        clerks.end.set()
        for ref in refs:
            assert isinstance(await soon(ref.outcome()), Completed)


async def test_recover_continues_runs_without_progress_last_and_one_by_one() -> None:
    """J10."""
    store, clerks = MemoryStore(), Clerks()
    await Clerks().cut_off(store, "a", "b")
    await Clerks().cut_off(store, "a", "b", "z")
    async with Runtime([clerks.agent()], store=store) as runtime:
        refs = await runtime.recover()
        assert [ref.id for ref in refs] == ["z", "a", "b"]
        await clerks.have_begun("z")
        clerks.go_on["z"].set()
        await clerks.have_begun("z", "a")
        clerks.go_on["a"].set()
        await clerks.have_begun("z", "a", "b")
        clerks.go_on["b"].set()
        clerks.end.set()
        for ref in refs:
            assert isinstance(await soon(ref.outcome()), Completed)


async def test_who_recovers_many_agents_begins_with_as_many_as_may_run() -> None:
    """J20: so no turn of the loop begins thousands: others would wait for it."""
    store, asked = MemoryStore(), 0

    async def never(request: object) -> str:
        nonlocal asked
        asked += 1
        return await asyncio.Future()

    clerk = Agent("clerk", ScriptedModel(never))
    async with Runtime([clerk], store=store, stop_timeout=0) as old:
        runs = [old.spawn("clerk", id=f"a{number:02}").run("go") for number in range(40)]
        await until(lambda: asked == 40)
    for run in runs:
        with pytest.raises(Exception, match="its runtime has stopped"):
            await run
    release, asked = asyncio.Event(), 0

    async def held(request: object) -> str:
        nonlocal asked
        asked += 1
        await release.wait()
        return "done"

    def following() -> int:
        return sum(task.get_name().startswith("recovering a") for task in asyncio.all_tasks())

    async with Runtime([Agent("clerk", ScriptedModel(held))], store=store, sweep=None) as runtime:
        recovery = await runtime.recover(at_once=4)
        assert len(recovery.waiting) == 40
        await until(lambda: asked == 4)
        for _ in range(100):
            await asyncio.sleep(0)
            assert following() <= 4
        assert asked == 4
        release.set()
        assert await soon(recovery.settled) is recovery
        assert recovery.left == {}
        assert asked == 40
