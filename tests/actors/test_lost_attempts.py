"""Attempts that are no crash: a lease was lost and the runtime lived, or it stopped in order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.agents import Held, completed, quarantined
from tests.support.loops import soon, until
from tests.support.places import Place
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    Run,
    Runtime,
    ScriptedModel,
)
from understudy.errors import Fenced
from understudy.journal import DatabaseStore, LostAttempt, MemoryStore, Owned
from understudy.modes import AgentExecution


class Chain:
    """Runtimes that take one agent over from each other, each in the middle of a model call."""

    def __init__(self, hosts: Hosts, stack: AsyncExitStack) -> None:
        self._hosts = hosts
        self._stack = stack
        self._answers: list[asyncio.Event] = []
        self._entered = asyncio.Event()
        self._runs: list[Any] = []
        self.refs: list[AgentRef] = []

    async def _reply(self, _: Any) -> str:
        answer = asyncio.Event()
        self._answers.append(answer)
        self._entered.set()
        await answer.wait()
        return "done"

    async def next(self) -> AgentRef:
        """Another runtime takes the agent over; its ref there."""
        number = len(self.refs)
        agent = Agent("desk", ScriptedModel(self._reply))
        store = DatabaseStore(self._hosts.new(f"host{number}"))
        runtime = await self._stack.enter_async_context(
            Runtime([agent], store=store, stop_timeout=0.001, any_host=False)
        )
        self._entered.clear()
        if number == 0:
            self.refs.append(runtime.spawn("desk", "t"))
            self._runs.append(self.refs[0].run("go"))
        else:
            self._hosts.end_lease(f"host{number - 1}")
            # Not by `recover` or `outcome`: they go on after it was fenced, and take it back.
            self.refs.append(runtime.get("t"))
            self._runs.append(self.refs[number].run("later"))  # its run goes on first
        return self.refs[number]

    async def enter(self) -> AgentRef:
        """The same, and it is in the middle of its model call."""
        ref = await self.next()
        await soon(self._entered.wait())
        return ref

    async def fence_the_one_before(self) -> None:
        """Its model answers, so it writes, and learns that it has lost the agent."""
        waiting = self._runs[-2]
        self._answers[-2].set()
        with pytest.raises(Fenced):
            await soon(waiting)
        await until(lambda: len(self.noted()) == len(self.refs) - 1)

    def noted(self) -> list[int]:
        rows = self._hosts.sql("SELECT unnest(numbers) FROM lost_attempts")
        return [number for (number,) in rows if isinstance(number, int)]

    def answer(self) -> None:
        self._answers[-1].set()


async def test_an_attempt_that_a_takeover_cut_off_in_a_living_runtime_is_no_crash(
    hosts: Hosts,
) -> None:
    """J6, J10."""
    async with AsyncExitStack() as stack:
        chain = Chain(hosts, stack)
        await chain.enter()
        for _ in range(5):
            ref = await chain.enter()
            await chain.fence_the_one_before()
        waiting = ref.outcome()
        chain.answer()
        outcome = await soon(waiting)
        assert outcome is not None
        assert completed(outcome).text == "done"
        assert chain.noted() == [1, 2, 3, 4, 5]


async def test_an_attempt_counts_as_a_crash_until_its_runtime_has_said_that_it_lives(
    hosts: Hosts,
) -> None:
    """J10: nobody can tell a runtime that is suspended from one that died."""
    async with AsyncExitStack() as stack:
        chain = Chain(hosts, stack)
        for _ in range(3):
            await chain.enter()
        assert quarantined(await soon((await chain.next()).outcome())).attempts == 3
        chain.answer()


async def test_a_run_whose_runtimes_lose_their_leases_again_and_again_is_quarantined_later(
    hosts: Hosts,
) -> None:
    """J10: it may be what they lose them by."""
    async with AsyncExitStack() as stack:
        chain = Chain(hosts, stack)
        await chain.enter()
        for _ in range(9):
            await chain.enter()
            await chain.fence_the_one_before()
        assert quarantined(await soon((await chain.next()).outcome())).attempts == 10
        chain.answer()


class Noting(MemoryStore):
    """Says what it was told of attempts that were cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[LostAttempt | None] = []

    async def release(self, owned: Owned, lost: LostAttempt | None = None) -> bool:
        self.lost.append(lost)
        return await super().release(owned, lost)


async def test_a_takeover_that_a_message_finds_out_during_a_run_is_said_as_well() -> None:
    """J10: the run is cut off then, before it has learned of it itself."""
    store, held = Noting(), Held("never said")
    async with Runtime([Agent("desk", ScriptedModel(held))], store=store) as runtime:
        ref = runtime.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        await store.claim("t", "desk")  # as another runtime would
        with pytest.raises(Fenced):
            await soon(ref.send("more"))
        with pytest.raises(Fenced):
            await soon(run)
        await until(lambda: bool(store.lost))
    (lost,) = store.lost
    assert lost is not None
    assert lost.number == 1


async def test_a_run_that_was_over_before_the_takeover_has_lost_no_attempt() -> None:
    store = Noting()
    async with Runtime([Agent("desk", ScriptedModel(["done"]))], store=store) as runtime:
        ref = runtime.spawn("desk", "t")
        completed(await soon(ref.run("go")))
        await store.claim("t", "desk")
        with pytest.raises(Fenced):
            await soon(ref.send("more"))
        await until(lambda: bool(store.lost))
    assert store.lost == [None]


@pytest.mark.quick
async def test_attempts_that_were_stopped_in_order_are_no_crashes(place: Place) -> None:
    """J10: whoever stops an agent again and again before it gets further harms no run."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def look(_: Run) -> None:
        entered.set()
        await go_on.wait()

    mode = AgentExecution().inserting(before="call_llm", step=look)
    agent = Agent("desk", ScriptedModel(lambda _: "done"), mode=mode)
    async with Runtime([agent], store=place.store()) as runtime:
        ref = runtime.spawn("desk", "t")
        for number in range(5):
            await soon(ref.send(f"message {number}"))
            await soon(entered.wait())
            stopped = ref.stop(block=False)
            await soon(ref.state())  # so it knows that it is to stop
            go_on.set()
            assert await soon(stopped)
            entered.clear()
            go_on.clear()
        go_on.set()
        outcome = await soon(ref.outcome())
    assert outcome is not None
    assert completed(outcome).text == "done"
