"""A call means the same at the owner of an agent and at any other host, which posts it there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from tests.support.agents import Held, completed, quarantined
from tests.support.hosts import Stopping, opened, pay, posts, stores
from tests.support.loops import never, soon, until
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Paused,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Stopped,
    call,
)
from understudy.models import ScriptedRequest

AGENT = "t"


class Pair(NamedTuple):
    """The host that owns the agent, and the one at which it is asked."""

    owner: Runtime
    asked: Runtime
    clock: SimulatedClock
    """Of both: what was sent first is judged by their clocks."""

    @property
    def ref(self) -> AgentRef:
        return self.asked.get(AGENT)


PairOf = Callable[[Callable[[], Agent]], Any]


@pytest.fixture(params=["at the owner", "elsewhere"])
def pair_of(request: pytest.FixtureRequest, hosts: Hosts) -> PairOf:
    """Opens two hosts with such an agent, which one of them has and keeps."""

    @asynccontextmanager
    async def pair(agent: Callable[[], Agent]) -> AsyncIterator[Pair]:
        here, there = stores(hosts, "here", "there")
        clock = SimulatedClock()
        async with (
            opened(here, agent(), clock=clock) as first,
            opened(there, agent(), clock=clock) as second,
        ):
            first.spawn("desk", AGENT)
            await soon(first.get(AGENT).compact())  # from now on it is in the store
            yield Pair(first, first if request.param == "at the owner" else second, clock)

    return pair


def bound(*replies: Any, **options: Any) -> Callable[[], Agent]:
    """An agent that no other host takes from its owner."""
    return lambda: Agent("desk", ScriptedModel(replies), movable=False, **options)


async def test_a_cancel_of_an_idle_agent_ends_the_pause_that_is_asked_of_it(
    pair_of: PairOf, ran: list[str]
) -> None:
    """J70: the next run is not paused by it."""
    async with pair_of(bound("first", call("pay"), "second", tools=[pay(ran)])) as pair:
        completed(await soon(pair.owner.get(AGENT).run("go")))
        await soon(pair.owner.get(AGENT).pause())
        assert await soon(pair.ref.cancel()) is None
        assert (await soon(pair.ref.state())).plans is None
        paused, cancelled = pair.ref.pause(), pair.ref.cancel()
        assert await soon(paused) is await soon(cancelled) is None
        assert completed(await soon(pair.ref.run("go on"))).text == "second"


@pytest.mark.quick
async def test_a_cancel_of_nothing_that_comes_late_leaves_the_run_of_then_alone(
    hosts: Hosts,
) -> None:
    """J70: it was for the pause that was asked for when it was made."""
    held = Held("second")
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "posted")
    agents = [bound("first", held)() for _ in "ab"]
    async with (
        opened(here, agents[0], sweep=None) as first,
        opened(there, agents[1], sweep=None) as second,
    ):
        ref = first.spawn("desk", AGENT)
        completed(await soon(ref.run("go")))
        await soon(ref.pause())
        cancelled = second.get(AGENT).cancel()
        await until(lambda: [kind for kind, _ in posts(hosts)] == ["cancel"])
        run = ref.run("go on")
        await soon(held.entered.wait())
        owner.released.set()
        assert await soon(cancelled) is None
        held.release.set()
        assert type(await soon(run)) is Paused, "the pause is for that run by now"


def ill() -> Agent:
    """An agent whose runs kill their tasks, and are quarantined."""
    return Agent("desk", ScriptedModel(lambda request: SystemExit("bang")), movable=False)


async def test_a_run_of_a_quarantined_agent_has_failed_though_it_is_cancelled_right_behind(
    pair_of: PairOf,
) -> None:
    """J70: what was there when it was asked for is its outcome."""
    async with pair_of(ill) as pair:
        first = quarantined(await soon(pair.owner.get(AGENT).run("go")))
        run, cancelled = pair.ref.run("again"), pair.ref.cancel()
        again = await soon(run)
        assert (quarantined(again).attempts, quarantined(again).cause) == (3, first.cause)
        assert again.state.status == "failed"
        assert type(await soon(cancelled)) is Stopped


async def test_two_cancels_of_a_quarantined_run_are_both_told_that_it_is_stopped(
    pair_of: PairOf,
) -> None:
    """J10, P7: the second one comes before the run is stopped."""
    async with pair_of(ill) as pair:
        quarantined(await soon(pair.owner.get(AGENT).run("go")))
        for cancelled in [pair.ref.cancel("one"), pair.ref.cancel("two")]:
            assert type(await soon(cancelled)) is Stopped
        assert (await soon(pair.ref.info())).status == "cancelled"


async def test_a_cancel_behind_several_runs_is_for_the_first_of_them(pair_of: PairOf) -> None:
    """J70: what comes behind that waits for its turn."""

    async def reply(request: ScriptedRequest) -> str:
        if request.prompt == "second":
            await never()
        return "done"

    def agent() -> Agent:
        return Agent("desk", ScriptedModel(reply), movable=False)

    async with pair_of(agent) as pair:
        completed(await soon(pair.owner.get(AGENT).run("go")))
        timed = pair.ref.send("later", at=pair.clock.now() + timedelta(days=1))
        second, third = pair.ref.run("second"), pair.ref.run("third")
        cancelled = await soon(pair.ref.cancel())
        stopped = await soon(second)
        assert type(stopped) is type(cancelled) is Stopped
        assert cancelled.run_id == stopped.run_id
        assert type(await soon(third)) is Completed
        await soon(timed)


async def test_the_state_of_an_outcome_has_the_status_that_follows_from_it(
    pair_of: PairOf, ran: list[str]
) -> None:
    """J70, A1: whoever tells it, and whenever: at its end, later, or after later runs."""
    held = Held()
    replies = ["first", call("pay"), held, RuntimeError("no"), "last"]
    async with pair_of(bound(*replies, tools=[pay(ran)], interrupt_on={"pay": True})) as pair:
        told = []
        for number in range(5):
            run = pair.ref.run("go", message_id=str(number))
            if number == 2:
                await soon(held.entered.wait())
                told.append((await soon(pair.ref.cancel())).state.status)
            told.append((await soon(run)).state.status)
            told.append((await soon(pair.ref.outcome())).state.status)
        assert told == [
            *["idle"] * 2,
            *["interrupted"] * 2,
            *["cancelled"] * 3,
            *["failed"] * 2,
            *["idle"] * 2,
        ]
        later = [await soon(pair.ref.outcome(message_id=str(number))) for number in range(5)]
        assert [outcome.state.status for outcome in later] == [
            "idle",  # a later message has withdrawn it
            "idle",
            "cancelled",
            "failed",
            "idle",
        ]
