"""A message with a time is queued when that comes, whether the agent is in memory or not (J25)."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Held, completed, interrupted, told_by_users
from tests.support.hosts import deaf_to
from tests.support.loops import soon, until
from tests.support.plans import DAY, HOUR, Desk, kinds, later, left_after, outcome_of
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.journal import DatabaseStore, MemoryStore
from understudy.state.records import Attempt, Quarantined


async def test_a_message_with_a_time_wakes_a_passive_agent(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        message_id = await soon(ref.send("Later.", at=later(clock, HOUR)))
        state = await soon(ref.state())
        assert state.plans is not None
        assert list(state.plans.timed) == [message_id]
        assert state.queue == {}
        assert state.next_due == later(clock, HOUR)
        await soon(ref.stop(block=False))
        await soon(clock.advance(HOUR - 1))
        assert ref.status() is Status.PASSIVE
        await soon(clock.advance(1))
        completed(await outcome_of(ref))
        state = await soon(ref.state())
        assert (state.plans, state.next_due) == (None, None)
    assert desk.told == [["Later."]]


async def test_a_message_with_a_time_survives_a_restart(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    """J25."""
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        await soon(runtime.spawn("desk", id="a").send("Later.", at=later(clock, HOUR)))
    restarted = SimulatedClock(later(clock, 2 * HOUR))
    async with Runtime([desk.agent()], store=store, clock=restarted) as runtime:
        await soon(restarted.advance(1))
        completed(await outcome_of(runtime.get("a")))
    assert desk.told == [["Later."]]


@pytest.mark.parametrize("seconds", [0, -1, -DAY])
async def test_a_time_that_has_passed_is_now(
    desk: Desk, clock: SimulatedClock, seconds: float
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("At once.", at=later(clock, seconds)))
        completed(await outcome_of(ref))
    assert desk.told == [["At once."]]


async def test_messages_come_in_the_order_of_their_times(desk: Desk, clock: SimulatedClock) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        for hours in (3, 1, 2):
            await soon(ref.send(f"{hours}", at=later(clock, hours * HOUR)))
        await soon(clock.advance(1.5 * HOUR))
        completed(await outcome_of(ref))
        await soon(ref.stop(block=False))
        clock._now += timedelta(seconds=2 * HOUR)  # the machine was suspended
        await soon(clock.advance(1))
        completed(await outcome_of(ref))
    assert desk.told == [["1"], ["2", "3"]]


@pytest.mark.parametrize("timed", [True, False])
async def test_a_message_is_cancelled_by_its_id(
    desk: Desk, clock: SimulatedClock, store: str, timed: bool
) -> None:
    """J25."""
    held = Held()
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        desk.on_run = lambda _texts: held.wait()
        running = ref.run("First.")
        await soon(held.entered.wait())
        at = later(clock, HOUR) if timed else None
        await soon(ref.send("Never.", at=at, message_id="m"))
        assert await soon(ref.cancel_message("m")) is True
        assert await soon(ref.cancel_message("m")) is False
        held.release.set()
        completed(await soon(running))
        await soon(clock.advance(DAY))
        state = await soon(ref.state())
        assert (state.queue, state.plans, state.message_ids) == ({}, None, {})
        await soon(ref.send("The id is free again.", message_id="m"))
        completed(await outcome_of(ref))
        assert await soon(ref.cancel_message("m")) is False, "a run has taken it"
    assert desk.told == [["First."], ["The id is free again."]]


async def test_a_queued_run_is_cancelled_by_its_id(desk: Desk) -> None:
    held = Held()
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        desk.on_run = lambda _texts: held.wait()
        first = ref.run("First.", message_id="one")
        await soon(held.entered.wait())
        await soon(ref.send("Beside."))
        second = ref.run("Second.", message_id="two")
        same = ref.run("Second.", message_id="two")
        third = ref.run("Third.", message_id="three")
        assert await soon(ref.cancel_message("two"))
        for future in (second, same):
            with pytest.raises(UsageError, match="'two' is cancelled"):
                await soon(future)
        assert not await soon(ref.cancel_message("two"))
        assert not await soon(ref.cancel_message("one"))
        again = ref.run("Again.", message_id="two")
        held.release.set()
        for future in (first, third, again):
            completed(await soon(future))
    assert desk.told == [["First."], ["Beside.", "Third."], ["Again."]]


async def test_who_waits_for_the_run_of_a_message_learns_that_it_is_cancelled(
    desk: Desk, clock: SimulatedClock
) -> None:
    held = Held()
    desk.on_run = lambda _texts: held.wait()
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("First.")
        await soon(held.entered.wait())
        await soon(ref.send("Second.", message_id="m"))
        waiting = ref.run("Second.", message_id="m")
        await soon(ref.cancel_message("m"))
        held.release.set()
        completed(await soon(running))
        with pytest.raises(UsageError, match="'m' is cancelled"):
            await soon(waiting)
    assert desk.told == [["First."]]


async def test_who_waits_for_the_run_of_a_message_that_steered_gets_that_run(
    clock: SimulatedClock,
) -> None:
    held = Held()

    @tool
    async def look() -> str:
        await held.wait()
        return "seen"

    agent = Agent("desk", ScriptedModel([call("look"), "Both done."]), tools=[look])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("First.")
        await soon(held.entered.wait())
        await soon(ref.send("Second.", message_id="m", steer=True))
        waiting = ref.run("Second.", message_id="m")
        held.release.set()
        first, second = await soon(running), await soon(waiting)
        assert first.run_id == second.run_id


async def test_a_run_does_not_take_the_message_before_its_time(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Later.", at=later(clock, HOUR), message_id="m"))
        with pytest.raises(UsageError, match="'m' waits for its time"):
            await soon(ref.run("Later.", message_id="m"))
        completed(await soon(ref.run("Now.")))
        await soon(clock.advance(HOUR))
        completed(await outcome_of(ref))
    assert desk.told == [["Now."], ["Later."]]


async def test_a_message_of_a_known_id_is_not_queued_again(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        for _ in range(2):
            await soon(ref.send("Later.", at=later(clock, HOUR), message_id="m"))
        assert (await kinds(runtime)).count("message_queued") == 1
        await soon(clock.advance(HOUR))
        completed(await outcome_of(ref))
        await soon(ref.send("Later.", at=later(clock, HOUR), message_id="m"))
        await soon(clock.advance(DAY))
    assert desk.told == [["Later."]]


async def test_a_message_whose_time_comes_withdraws_no_request(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Later.", at=later(clock, HOUR)))
        asked = interrupted(await soon(ref.run("Please refund.")))
        await soon(ref.stop(block=False))
        await soon(clock.advance(DAY))
        (pending,) = await soon(runtime.pending())
        assert pending.request.id == asked.requests[0].id
        state = await soon(ref.state())
        assert [queued.due is not None for queued in state.queue.values()] == [True]
        completed(await soon(ref.resume({pending.request.id: approve()})))
        await until(lambda: len(desk.told) == 2)
        completed(await outcome_of(ref))
    assert desk.told == [["Please refund."], ["Later."]]
    assert desk.refunded == 1


async def test_what_a_person_sends_withdraws_a_request_with_what_has_come(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Later.", at=later(clock, HOUR)))
        interrupted(await soon(ref.run("Please refund.")))
        await soon(clock.advance(HOUR))
        completed(await soon(ref.run("Forget it.")))
    assert desk.told == [["Please refund."], ["Later.", "Forget it."]]


async def test_a_message_comes_in_the_middle_of_a_run_and_steers_it(clock: SimulatedClock) -> None:
    held, seen = Held(), list[Any]()

    @tool
    async def look() -> str:
        await held.wait()
        return "seen"

    def reply(request: Any) -> Any:
        seen.append(told_by_users(request))
        return call("look") if len(seen) == 1 else "done"

    async with Runtime([Agent("desk", ScriptedModel(reply), tools=[look])], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("Go.")
        await soon(held.entered.wait())
        await soon(ref.send("Also this.", at=later(clock, HOUR), steer=True))
        await soon(clock.advance(HOUR))
        held.release.set()
        completed(await soon(running))
    assert "Also this." in seen[1]


async def test_an_agent_wakes_itself_more_often_than_it_may_at_once(clock: SimulatedClock) -> None:
    """Runs that an agent starts by messages to itself are bounded; time between them is not."""
    runs: list[datetime] = []

    @tool
    async def again(ctx: ToolContext) -> str:
        runs.append(clock.now())
        await runtime.get("a").send("Go.", at=later(clock, HOUR))
        return "ok"

    def reply(request: Any) -> Any:
        return call("again") if request.messages[-1].parts[0].part_kind == "user-prompt" else "ok"

    agent = Agent("desk", ScriptedModel(reply), tools=[again])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("Go.")))
        for _ in range(12):
            await soon(clock.advance(HOUR))
            completed(await outcome_of(ref))
    assert len(runs) == 13


async def test_a_quarantined_agent_gets_its_messages_when_it_is_released(
    clock: SimulatedClock,
) -> None:
    desk, store = Desk(), MemoryStore()
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Later.", at=later(clock, HOUR)))
        asked = interrupted(await soon(ref.run("Please refund.")))
    loaded = await store.load("a")
    assert loaded is not None

    left = await left_after(
        [*loaded.records, *(Attempt(number=n) for n in (2, 3, 4)), Quarantined(cause="killed")]
    )
    again = SimulatedClock(clock.now())
    async with Runtime([desk.agent()], store=left, clock=again) as runtime:
        ref = runtime.get("a")
        await soon(again.advance(DAY))
        assert (await soon(ref.state())).next_due is None
        assert "message_due" not in await kinds(runtime)
        interrupted(await soon(ref.retry()))
        await soon(again.advance(1))
        completed(await soon(ref.resume({asked.requests[0].id: approve()})))
        await until(lambda: desk.told[-1] == ["Later."])
        completed(await outcome_of(ref))


async def test_only_so_many_messages_wait_for_their_times(
    clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.actors.agent.planner.MAX_TIMED", 3)
    desk = Desk()
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        for number in range(3):
            await soon(ref.send(f"{number}", at=later(clock, HOUR)))
        with pytest.raises(UsageError, match="3 messages of this agent wait"):
            await soon(ref.send("3", at=later(clock, HOUR)))
        await soon(ref.send("at once"))
        completed(await outcome_of(ref))


@pytest.mark.parametrize(
    "at", [datetime(2030, 1, 1), "2030-01-01", 1.5, float("nan"), datetime.max], ids=repr
)
async def test_what_is_no_point_in_time_is_refused(desk: Desk, at: Any) -> None:
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        with pytest.raises(UsageError, match=r"send\(at=\.\.\.\).*time zone"):
            ref.send("Later.", at=at)
        with pytest.raises(UsageError, match=r"`ends_at`.*time zone"):
            ref.run("Go.", ends_at=at)
        with pytest.raises(UsageError, match="message_id"):
            ref.cancel_message(3)  # type: ignore[arg-type]


async def test_a_time_that_utc_cannot_hold_is_refused(desk: Desk) -> None:
    far = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
    async with Runtime([desk.agent()]) as runtime:
        with pytest.raises(UsageError, match="outside the calendar"):
            runtime.spawn("desk", id="a").send("Later.", at=far)


async def test_messages_go_along_with_an_export_and_a_compaction(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Later.", at=later(clock, HOUR)))
        await soon(ref.compact())
        copy = await soon(runtime.import_(await soon(runtime.export("a")), "b"))
        await soon(clock.advance(HOUR))
        completed(await outcome_of(ref))
        completed(await outcome_of(copy))
    assert desk.told == [["Later."], ["Later."]]


async def test_every_prefix_of_the_records_brings_the_message_once(clock: SimulatedClock) -> None:
    desk, store = Desk(), MemoryStore()
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Later.", at=later(clock, HOUR), message_id="m"))
        await soon(clock.advance(HOUR))
        completed(await outcome_of(ref))
    loaded = await store.load("a")
    assert loaded is not None
    for cut in range(1, len(loaded.records) + 1):
        left, again = await left_after(loaded.records[:cut]), SimulatedClock(clock.now())
        async with Runtime([desk.agent()], store=left, clock=again) as runtime:
            await soon(again.advance(1))
            await soon(runtime.recover())
            completed(await outcome_of(runtime.get("a")))
            found = await kinds(runtime)
        assert found.count("message_due") == found.count("run_ended") == 1, (cut, found)


@pytest.mark.quick
async def test_two_hosts_that_see_one_message_due_queue_it_once(hosts: Hosts) -> None:
    """J25."""
    desk, clock, other = Desk(), SimulatedClock(), SimulatedClock()
    here = DatabaseStore(hosts.new("here"))
    async with Runtime([desk.agent()], store=here, clock=clock, sweep=None) as first:
        ref = first.spawn("desk", id="a")
        await soon(ref.send("Later.", at=later(clock, HOUR)))
        await soon(ref.stop(block=False))
        there = DatabaseStore(hosts.new("there"))
        async with Runtime([desk.agent()], store=there, clock=other, sweep=None) as second:
            await soon(asyncio.gather(clock.advance(HOUR), other.advance(HOUR)))
            await until(lambda: desk.told == [["Later."]])
            assert (await kinds(second)).count("message_due") == 1
    assert desk.told == [["Later."]]


async def test_a_host_whose_agent_is_taken_as_it_is_due_reports_no_trouble(
    hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    """A10: the host that has it now queues the message; this one has lost nothing."""
    desk, clock, other = Desk(), SimulatedClock(), SimulatedClock()
    here, there = DatabaseStore(hosts.new("here")), DatabaseStore(hosts.new("there"))
    deaf_to(here, "taken")
    async with (
        Runtime([desk.agent()], store=here, clock=clock, sweep=None) as first,
        Runtime([desk.agent()], store=there, clock=other, sweep=None) as second,
    ):
        await soon(first.spawn("desk", id="a").send("Later.", at=later(clock, HOUR)))
        completed(await soon(second.get("a").run("Now.")))
        await soon(clock.advance(HOUR))
        assert desk.told == [["Now."]]
        await soon(other.advance(HOUR))
        await until(lambda: len(desk.told) == 2)
    troubles = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert [text for text in troubles if "fsync" not in text] == []
