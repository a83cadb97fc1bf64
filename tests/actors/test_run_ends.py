"""A run ends at the time of day that its caller gave it; and a pause is kept until it is taken."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, interrupted, results, until_status
from tests.support.left_out import LeftOut
from tests.support.loops import never, soon
from tests.support.plans import DAY, HOUR, Desk, kinds, later, left_after, outcome_of
from understudy import (
    Agent,
    Interrupt,
    Outcome,
    Paused,
    Runtime,
    SimulatedClock,
    Status,
    Stopped,
    StopReason,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.errors import DecisionError
from understudy.journal import MemoryStore
from understudy.middleware import HumanInTheLoop, SubAgent
from understudy.state import fold
from understudy.state import records as r


def ended_in_time(outcome: Outcome | None) -> Stopped:
    assert isinstance(outcome, Stopped), outcome
    (signal,) = outcome.signals
    assert (signal.reason, signal.source) == (StopReason.TIME_LIMIT, "ends_at")
    return outcome


async def test_a_run_that_waits_for_a_person_ends_at_its_time_while_the_agent_is_passive(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    """J27."""
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Please refund.", ends_at=later(clock, HOUR))))
        assert (await soon(ref.state())).next_due == later(clock, HOUR)
        await soon(ref.stop(block=False))
        await soon(clock.advance(HOUR - 1))
        assert ref.status() is Status.PASSIVE
        await soon(clock.advance(1))
        stopped = ended_in_time(await outcome_of(ref))
        assert "2030-01-01T13:00:00+00:00" in stopped.explain()
        assert (await soon(ref.state())).next_due is None
        with pytest.raises(DecisionError):
            await soon(ref.resume({asked.requests[0].id: approve()}))
    assert desk.refunded == 0


@pytest.mark.slow
async def test_a_run_that_does_not_know_when_it_ends_is_noticed(
    left_out: LeftOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J27."""
    inner = fold._APPLY[r.RunStarted]
    await left_out(
        lambda: monkeypatch.setitem(
            fold._APPLY,
            r.RunStarted,
            lambda state, record: inner(state, replace(record, ends_at=None)),
        ),
        lambda _: test_a_run_that_waits_for_a_person_ends_at_its_time_while_the_agent_is_passive(
            Desk(), SimulatedClock(), "memory:"
        ),
    )


async def test_a_run_whose_time_is_over_after_a_restart_is_stopped(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    """J27."""
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await soon(ref.run("Please refund.", ends_at=later(clock, HOUR))))
    again = SimulatedClock(later(clock, DAY))
    async with Runtime([desk.agent()], store=store, clock=again) as runtime:
        await soon(again.advance(1))
        ended_in_time(await outcome_of(runtime.get("a")))


@pytest.mark.parametrize("seconds", [0, -DAY])
async def test_a_time_that_has_passed_stops_the_run_before_any_model_call(
    desk: Desk, clock: SimulatedClock, seconds: float
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        ended_in_time(await soon(ref.run("Go.", ends_at=later(clock, seconds))))
    ended_in_time(await desk.agent().execute("Go.", ends_at=later(clock, seconds), clock=clock))
    assert desk.told == []


async def test_a_run_that_is_answered_in_time_goes_on(desk: Desk, clock: SimulatedClock) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Please refund.", ends_at=later(clock, HOUR))))
        await soon(clock.advance(HOUR - 1))
        completed(await soon(ref.resume({asked.requests[0].id: approve()})))
        await soon(clock.advance(DAY))
        completed(await outcome_of(ref))


async def test_a_call_under_way_is_cut_off_when_the_time_comes() -> None:
    @tool
    async def work() -> str:
        await never()
        return "never"

    agent = Agent("desk", by_turn(call("work")), tools=[work])
    ends_at = datetime.now(timezone.utc) + timedelta(seconds=0.05)
    ended_in_time(await soon(agent.execute("Go.", ends_at=ends_at)))
    async with Runtime([agent]) as runtime:
        ends_at = datetime.now(timezone.utc) + timedelta(seconds=0.05)
        ended_in_time(await soon(runtime.spawn(agent, id="a").run("Go.", ends_at=ends_at)))


@pytest.mark.slow
async def test_a_clock_that_is_set_forward_ends_a_call_under_way(clock: SimulatedClock) -> None:
    held = Held()

    @tool
    async def work() -> str:
        await held.wait()
        return "never"

    agent = Agent("desk", by_turn(call("work")), tools=[work])
    async with Runtime([agent], clock=clock) as runtime:
        running = runtime.spawn(agent, id="a").run("Go.", ends_at=later(clock, DAY))
        await soon(held.entered.wait())
        await soon(clock.advance(DAY))
        ended_in_time(await soon(running))


async def test_the_end_holds_for_an_agent_that_waits_inside(
    desk: Desk, clock: SimulatedClock
) -> None:
    inner = desk.agent(description="about refunds")
    boss = Agent(
        "boss",
        by_turn(call("task", {"task_name": "desk", "instructions": "refund"}), "done"),
        middleware=[SubAgent(agents=[inner], general_purpose=False)],
    )
    async with Runtime([boss], clock=clock) as runtime:
        ref = runtime.spawn("boss", id="a")
        interrupted(await soon(ref.run("Go.", ends_at=later(clock, HOUR))))
        await soon(ref.stop(block=False))
        await soon(clock.advance(HOUR))
        ended_in_time(await outcome_of(ref))
    assert desk.refunded == 0


async def test_what_comes_first_counts(clock: SimulatedClock) -> None:
    @tool
    async def refund() -> str:
        return "refunded"

    gate = HumanInTheLoop({"refund": True}, expires_after=HOUR)
    agent = Agent("desk", by_turn(call("refund"), "Not then."), tools=[refund], middleware=[gate])
    async with Runtime([agent], clock=clock) as runtime:
        early, late = runtime.spawn("desk", id="early"), runtime.spawn("desk", id="late")
        interrupted(await soon(early.run("Go.", ends_at=later(clock, HOUR / 2))))
        interrupted(await soon(late.run("Go.", ends_at=later(clock, 2 * HOUR))))
        await soon(clock.advance(DAY))
        ended_in_time(await outcome_of(early))
        assert completed(await outcome_of(late)).text == "Not then."


async def test_every_prefix_of_the_records_ends_at_the_same_time(clock: SimulatedClock) -> None:
    desk, store = Desk(), MemoryStore()
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await soon(ref.run("Please refund.", ends_at=later(clock, HOUR))))
        await soon(clock.advance(HOUR))
        ended_in_time(await outcome_of(ref))
    loaded = await store.load("a")
    assert loaded is not None
    first = [record.kind for record in loaded.records].index("run_started")
    for cut in range(first + 1, len(loaded.records) + 1):
        left, again = await left_after(loaded.records[:cut]), SimulatedClock(clock.now())
        async with Runtime([desk.agent()], store=left, clock=again) as runtime:
            await soon(again.advance(1))
            ended_in_time(await outcome_of(runtime.get("a")))
            assert (await kinds(runtime)).count("run_ended") == 1


# ------------------------------------------------------------------------- pauses


async def test_a_pause_of_an_idle_agent_survives_a_restart(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    """J27."""
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("First.")))
        await soon(ref.pause("a person looks"))
        assert ref.status() is Status.IDLE
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.get("a")
        paused = await soon(ref.run("Second."))
        assert isinstance(paused, Paused)
        assert paused.reason == "a person looks"
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.get("a")
        await soon(ref.unpause())
        completed(await outcome_of(ref))
        completed(await soon(ref.run("Third.")))
    assert desk.told == [["First."], ["Second."], ["Third."]]


async def test_a_pause_in_the_middle_of_a_run_survives_a_crash(clock: SimulatedClock) -> None:
    """The host goes away after the pause is requested and before the next reply."""
    desk, store, held = Desk(), MemoryStore(), Held()
    desk.on_run = lambda _texts: held.wait()
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("Go.")
        await soon(held.entered.wait())
        await soon(ref.pause("look"))
        loaded = await store.load("a")
        assert loaded is not None
        left = await left_after(loaded.records)
        held.release.set()
        assert isinstance(await soon(running), Paused)
    async with Runtime([desk.agent()], store=left, clock=clock) as runtime:
        (ref,) = await soon(runtime.recover())
        await until_status(ref, Status.PAUSED)


@pytest.mark.slow
async def test_a_pause_that_is_not_kept_is_noticed(
    left_out: LeftOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J27."""
    await left_out(
        lambda: monkeypatch.setitem(fold._APPLY, r.PauseRequested, lambda *_: None),
        lambda _: test_a_pause_in_the_middle_of_a_run_survives_a_crash(SimulatedClock()),
    )


@pytest.mark.parametrize("how", ["unpause", "cancel"])
async def test_a_pause_that_has_not_come_is_taken_back(
    desk: Desk, clock: SimulatedClock, tmp_path: Path, how: str
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.pause())
        await soon(ref.pause())
        assert (await kinds(runtime)).count("pause_requested") == 1
        await soon(getattr(ref, how)())
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        completed(await soon(runtime.get("a").run("Go.")))


async def test_a_request_stays_listed_and_expires_while_a_pause_holds_the_run(
    clock: SimulatedClock, store: str
) -> None:
    """A sleep beside it is over: what may go on by that does not, and the person is asked still."""

    @tool
    async def nap(ctx: ToolContext) -> str:
        """Sleep."""
        await ctx.sleep("nap", HOUR)
        return "slept"

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        if ctx.resume_value is None:
            raise Interrupt("Which?", remind_after=2 * HOUR, expires_after=4 * HOUR)
        return "answered"

    agent = Agent("desk", by_turn([call("nap"), call("ask")], "Done."), tools=[nap, ask])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await soon(ref.run("Go.")))
        await soon(ref.pause("look"))
        await soon(clock.advance(HOUR))  # the nap is over
        for _ in ("in memory", "passive"):
            if ref.status() is not Status.PASSIVE:
                await until_status(ref, Status.INTERRUPTED)
            assert (await soon(runtime.count()))[Status.INTERRUPTED] == 1
            await soon(clock.advance(HOUR))
            (pending,) = await soon(runtime.pending())
            assert pending.reminders == 1
            await soon(ref.stop(block=False))
        assert results(await soon(ref.state())) == []
        await soon(clock.advance(HOUR))
        assert await soon(runtime.pending()) == []
        assert isinstance(await outcome_of(ref), Paused)
        assert (await soon(runtime.count()))[Status.PAUSED] == 1
        await soon(ref.unpause())
        first, second = results(completed(await outcome_of(ref)).state)
        assert (first.content, second.outcome) == ("slept", "denied")


async def test_what_is_answered_one_by_one_during_a_pause_is_held_once_all_is_answered(
    clock: SimulatedClock, store: str
) -> None:
    @tool
    def refund(order: str) -> str:
        """Pay money back."""
        refunded.append(order)
        return "refunded"

    refunded: list[str] = []
    calls = [call("refund", {"order": "1"}), call("refund", {"order": "2"})]
    gate = HumanInTheLoop({"refund": True}, expires_after=HOUR)
    agent = Agent("desk", by_turn(calls, "Done."), tools=[refund], middleware=[gate])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        one, two = interrupted(await soon(ref.run("Go."))).requests
        await soon(ref.pause("look"))
        left = interrupted(await soon(ref.resume({one.id: approve()})))
        assert [request.id for request in left.requests] == [two.id]
        assert ref.status() is Status.INTERRUPTED
        assert [pending.request.id for pending in await soon(runtime.pending())] == [two.id]
        assert isinstance(await soon(ref.resume({two.id: approve()})), Paused)
        assert refunded == []
        await soon(ref.unpause())
        completed(await outcome_of(ref))
        assert sorted(refunded) == ["1", "2"]


async def test_the_history_tells_of_a_requested_pause(desk: Desk, clock: SimulatedClock) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.pause("look"))
        await soon(ref.unpause())
        found: list[Any] = [
            entry.detail["reason"]
            for entry in (await soon(ref.history())).entries
            if entry.what == "pause_requested"
        ]
    assert found == ["look", None]
