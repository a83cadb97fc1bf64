"""An agent runs by itself at the times of its schedules: each once, in a run of its own (J26)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import FakeClock, Held, completed, interrupted
from tests.support.loops import soon, until
from tests.support.plans import DAY, HOUR, Desk, kinds, later, left_after, occurrences, outcome_of
from tests.support.postgres import Hosts
from understudy import (
    AgentRef,
    Failed,
    Runtime,
    SimulatedClock,
    Status,
    UnknownAgent,
    UsageError,
    approve,
)
from understudy.actors import AgentEvent, Schedule
from understudy.errors import RecordRefused
from understudy.events import ScheduleOccurred
from understudy.journal import DatabaseStore, MemoryStore
from understudy.journal.codec import MAX_RECORD_BYTES

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
"""A Tuesday; where a `SimulatedClock` begins."""
EACH_DAY: dict[str, Any] = {"cron": "0 9 * * *", "input": "Report."}


async def scheduled(runtime: Runtime, **options: Any) -> AgentRef:
    ref = runtime.spawn("desk", id="a")
    await soon(runtime.schedule(ref, "daily", **{**EACH_DAY, **options}))
    return ref


async def one(runtime: Runtime) -> Schedule:
    """The only schedule of the agent."""
    (schedule,) = await soon(runtime.schedules("a").list())
    return schedule


async def days(clock: SimulatedClock, ref: AgentRef, count: int) -> None:
    """So many days, and each run to its end."""
    for _ in range(count):
        await soon(clock.advance(DAY))
        await outcome_of(ref)


def day(number: int, hour: int = 9) -> str:
    return datetime(2030, 1, number, hour, tzinfo=timezone.utc).isoformat()


# ------------------------------------------------------------------------- as it should be


async def test_each_time_of_a_schedule_is_a_run_of_its_own(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    """J26."""
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime, name="The daily report")
        schedule = await one(runtime)
        assert (schedule.name, schedule.timezone) == ("The daily report", "UTC")
        assert schedule.next_due == datetime(2030, 1, 2, 9, tzinfo=timezone.utc)
        await soon(ref.stop(block=False))
        await days(clock, ref, 3)
        schedule = await one(runtime)
        assert schedule.next_due == datetime(2030, 1, 5, 9, tzinfo=timezone.utc)
        assert schedule.latest is not None
        assert schedule.latest.due.isoformat() == day(4)
        assert await occurrences(ref) == [(day(2), None), (day(3), None), (day(4), None)]
        state = await soon(ref.state())
        assert state.message_ids == {}, "what has come is no set that grows"
        assert state.run is not None
        assert state.run.occurrence == schedule.latest
    assert desk.told == [["Report."]] * 3


async def test_an_agent_that_was_never_run_is_scheduled_by_its_id(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        runtime.spawn("desk", id="a")
        await soon(runtime.schedule("a", "daily", **EACH_DAY))
        await days(clock, runtime.get("a"), 1)
        with pytest.raises(UnknownAgent):
            await soon(runtime.schedule("nobody", "daily", **EACH_DAY))
    assert desk.told == [["Report."]]


async def test_an_occurrence_is_not_merged_with_queued_messages(
    desk: Desk, clock: SimulatedClock
) -> None:
    held = Held()
    desk.on_run = lambda _texts: held.wait()
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime)
        running = ref.run("First.")
        await soon(held.entered.wait())
        await soon(ref.send("Second."))
        await soon(clock.advance(DAY))
        await soon(ref.send("Third."))
        fourth = ref.run("Fourth.")
        held.release.set()
        completed(await soon(running))
        completed(await soon(fourth))
        assert await occurrences(ref) == [(day(2), None)]
    assert desk.told[0] == ["First."]
    assert ["Report."] in desk.told
    assert [text for texts in desk.told for text in texts if text != "Report."] == [
        "First.",
        "Second.",
        "Third.",
        "Fourth.",
    ]


async def test_an_occurrence_waits_for_a_person_and_withdraws_nothing(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime, overlap="queue")
        asked = interrupted(await soon(ref.run("Please refund.")))
        await soon(clock.advance(2 * DAY))
        assert ref.status() is Status.INTERRUPTED
        assert [p.request.id for p in await soon(runtime.pending())] == [asked.requests[0].id]
        assert len((await soon(ref.state())).queue) == 2
        completed(await soon(ref.resume({asked.requests[0].id: approve()})))
        await until(lambda: len(desk.told) == 3)
        completed(await outcome_of(ref))
    assert desk.told == [["Please refund."], ["Report."], ["Report."]]
    assert desk.refunded == 1


async def test_what_a_person_sends_goes_before_the_occurrences_that_wait_for_that_person(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime, overlap="queue")
        interrupted(await soon(ref.run("Please refund.")))
        await soon(clock.advance(2 * DAY))
        completed(await soon(ref.run("Forget it.")))
        await until(lambda: len(desk.told) == 4)
        completed(await outcome_of(ref))
    assert desk.told == [["Please refund."], ["Forget it."], ["Report."], ["Report."]]


async def test_a_run_that_failed_or_was_cancelled_stops_no_later_occurrence(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"

    async def fail(_texts: list[str]) -> None:
        raise RuntimeError("no")

    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime)
        desk.on_run = fail
        await soon(clock.advance(DAY))
        assert isinstance(await outcome_of(ref), Failed)
        held = Held()
        desk.on_run = lambda _texts: held.wait()
        await soon(clock.advance(DAY))
        await soon(held.entered.wait())
        await soon(ref.cancel())
        desk.on_run = None
    again = SimulatedClock(clock.now())
    async with Runtime([desk.agent()], store=store, clock=again) as runtime:
        await days(again, runtime.get("a"), 1)
        completed(await outcome_of(runtime.get("a")))
    assert desk.told == [["Report."]] * 3


async def test_subscribers_and_the_history_are_told_of_each_occurrence(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime)
        subscription, told = ref.events(), list[AgentEvent]()
        await days(clock, ref, 1)
        async for event in subscription:
            told.append(event)
            if isinstance(event.event, ScheduleOccurred):
                break
        subscription.close()
        (entry,) = [e for e in (await soon(ref.history())).entries if e.what == "occurrence"]
        started = [e for e in (await soon(ref.history())).entries if e.what == "run_started"]
    occurred = told[-1].event
    assert isinstance(occurred, ScheduleOccurred)
    assert (occurred.schedule_id, occurred.due.isoformat(), occurred.skipped) == (
        "daily",
        day(2),
        None,
    )
    assert told[-1].seq == entry.seq
    assert started[0].detail["occurrence"]["due"] == day(2)


async def test_daylight_saving_moves_a_schedule_and_brings_it_once(desk: Desk) -> None:
    clock = SimulatedClock(datetime(2026, 3, 27, 12, tzinfo=timezone.utc))
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime, cron="30 2 * * *", timezone="Europe/Berlin")
        await days(clock, ref, 3)
        found = [due for due, _ in await occurrences(ref)]
    assert found == [
        "2026-03-28T01:30:00+00:00",
        "2026-03-29T01:00:00+00:00",
        "2026-03-30T00:30:00+00:00",
    ]


# ------------------------------------------------------------------------- missed


async def stopped_for(
    seconds: float, clock: SimulatedClock, store: str, desk: Desk, **options: Any
) -> tuple[list[tuple[str, str | None]], list[str | None]]:
    """The occurrences after no runtime was there for a while, and which since when together."""
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime, **options)
    again = SimulatedClock(later(clock, seconds))
    async with Runtime([desk.agent()], store=store, clock=again) as runtime:
        ref = runtime.get("a")
        await soon(again.advance(1))
        await outcome_of_all(ref)
        entries = (await soon(ref.history(limit=10_000))).entries
        since = [entry.detail["since"] for entry in entries if entry.what == "occurrence"]
        found = await occurrences(ref)
        await days(again, ref, 1)
        assert len(await occurrences(ref)) == len(found) + 1, "it goes on"
    return found, since


async def outcome_of_all(ref: AgentRef) -> None:
    """Wait until nothing is queued, and no run is open."""
    async with asyncio.timeout(60):
        while True:
            await ref.outcome()
            state = await ref.state()
            if not state.queue and (state.run is None or state.run.over):
                return


async def test_missed_one_runs_the_last_of_them(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    found, since = await stopped_for(10 * DAY, clock, store, desk, missed="one")
    assert found == [(day(10), "missed"), (day(11), None)]
    assert since == [day(2), None]
    assert len(desk.told) == 2


async def test_missed_skip_runs_none_of_them(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    found, since = await stopped_for(10 * DAY, clock, store, desk, missed="skip")
    assert found == [(day(11), "missed")]
    assert since == [day(2)]
    assert len(desk.told) == 1


async def test_missed_skip_still_runs_what_is_only_a_minute_late(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    late = 21 * HOUR + 9 * DAY + 58
    found, since = await stopped_for(late, clock, store, desk, missed="skip")
    assert found == [(day(10), "missed"), (day(11), None)]
    assert since == [day(2), None]
    assert len(desk.told) == 2


async def test_missed_all_runs_each_of_them(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    found, _ = await stopped_for(5 * DAY, clock, store, desk, missed="all", overlap="queue")
    assert found == [(day(number), None) for number in range(2, 7)]
    assert desk.told == [["Report."]] * 6


async def test_missed_all_runs_the_last_hundred(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        await scheduled(runtime, cron="* * * * *", missed="all", overlap="queue")
    again = SimulatedClock(later(clock, 365 * DAY))
    async with Runtime([desk.agent()], store=store, clock=again) as runtime:
        ref = runtime.get("a")
        await soon(again.advance(1))
        await outcome_of_all(ref)
        found = await occurrences(ref)
    assert [skipped for _, skipped in found] == ["missed", *[None] * 100]
    assert found[-1][0] == datetime(2031, 1, 1, 12, tzinfo=timezone.utc).isoformat()
    assert len(desk.told) == 100


# ------------------------------------------------------------------------- overlap


async def test_overlap_skip_leaves_out_what_comes_while_the_one_before_runs(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    held = Held()
    desk.on_run = lambda _texts: held.wait()
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime)
        await soon(clock.advance(DAY))
        await soon(held.entered.wait())
        await soon(clock.advance(2 * DAY))
        latest = (await one(runtime)).latest
        assert latest is not None
        assert latest.skipped == "overlap"
        held.release.set()
        completed(await outcome_of(ref))
        await days(clock, ref, 1)
        found = await occurrences(ref)
    assert [skipped for _, skipped in found] == [None, "overlap", "overlap", None]
    assert len(desk.told) == 2


async def test_overlap_skip_leaves_out_what_comes_while_the_one_before_waits_for_its_run(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime)
        interrupted(await soon(ref.run("Please refund.")))
        await soon(clock.advance(3 * DAY))
        assert [skipped for _, skipped in await occurrences(ref)] == [None, "overlap", "overlap"]


async def test_overlap_queue_lets_a_bounded_number_wait(
    desk: Desk, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.actors.agent.planner.MAX_WAITING", 3)
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime, overlap="queue")
        interrupted(await soon(ref.run("Please refund.")))
        await soon(clock.advance(5 * DAY))
        found = [skipped for _, skipped in await occurrences(ref)]
    assert found == [None, None, None, "full", "full"]


async def test_schedules_of_one_agent_do_not_overlap_each_other(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime)
        await soon(runtime.schedule(ref, "other", cron="0 9 * * *", input="Other."))
        await soon(clock.advance(DAY))
        await outcome_of_all(ref)
    assert sorted(desk.told) == [["Other."], ["Report."]]


# ------------------------------------------------------------------------- changing them


async def test_a_paused_schedule_does_not_occur_until_it_is_resumed(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        await scheduled(runtime, missed="all", overlap="queue")
        assert (await soon(runtime.schedules("a").pause("daily"))).paused
        assert (await soon(runtime.schedules("a").pause("daily"))).paused
    again = SimulatedClock(clock.now())
    async with Runtime([desk.agent()], store=store, clock=again) as runtime:
        ref = runtime.get("a")
        await soon(again.advance(3 * DAY))
        assert (await soon(ref.state())).next_due is None
        resumed = await soon(runtime.schedules(ref).resume("daily"))
        assert resumed.next_due is not None
        assert resumed.next_due.isoformat() == day(5)
        assert await soon(runtime.schedules(ref).resume("daily")) == resumed
        await days(again, ref, 1)
        assert await occurrences(ref) == [(day(5), None)]
    assert desk.told == [["Report."]]


async def test_a_schedule_that_is_resumed_after_the_clock_was_set_back_repeats_nothing(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    store, before = f"sqlite:///{tmp_path / 'store.db'}", SimulatedClock(clock.now())
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime)
        await days(clock, ref, 1)
        assert await occurrences(ref) == [(day(2), None)]
    async with Runtime([desk.agent()], store=store, clock=before) as runtime:
        await soon(runtime.schedules("a").pause("daily"))
        resumed = await soon(runtime.schedules("a").resume("daily"))
        await soon(runtime.schedules("a").remove("daily"))
        await scheduled(runtime)
        again = await one(runtime)
    assert resumed.next_due is not None
    assert resumed.next_due.isoformat() == day(3)
    assert again.next_due is not None
    assert again.next_due.isoformat() == day(2)


async def test_what_is_overdue_comes_in_the_order_of_its_times(
    desk: Desk, clock: SimulatedClock, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        each: dict[str, Any] = {"missed": "all", "overlap": "queue"}
        await soon(runtime.schedule(ref, "late", cron="0 10 * * *", input="late", **each))
        await soon(runtime.schedule(ref, "early", cron="0 8 * * *", input="early", **each))
        await soon(ref.send("between", at=datetime(2030, 1, 3, 9, tzinfo=timezone.utc)))
    again = SimulatedClock(later(clock, 2 * DAY))
    async with Runtime([desk.agent()], store=store, clock=again) as runtime:
        ref = runtime.get("a")
        await soon(again.advance(1))
        await outcome_of_all(ref)
    assert desk.told == [["early"], ["late"], ["early"], ["between"], ["late"]]


async def test_a_schedule_is_triggered_also_while_it_is_paused(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime)
        schedules = runtime.schedules(ref)
        before = (await one(runtime)).next_due
        await soon(schedules.pause("daily"))
        occurrence = await soon(schedules.trigger("daily"))
        assert (occurrence.due, occurrence.triggered, occurrence.skipped) == (NOON, True, None)
        completed(await outcome_of(ref))
        assert (await one(runtime)).next_due == before
    assert desk.told == [["Report."]]


async def test_a_trigger_keeps_to_the_overlap_of_its_schedule(
    desk: Desk, clock: SimulatedClock
) -> None:
    held = Held()
    desk.on_run = lambda _texts: held.wait()
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime)
        await soon(runtime.schedule(ref, "each", **EACH_DAY, overlap="queue"))
        schedules = runtime.schedules(ref)
        found = [await soon(schedules.trigger("daily")) for _ in range(2)]
        assert [occurrence.skipped for occurrence in found] == [None, "overlap"]
        found = [await soon(schedules.trigger("each")) for _ in range(2)]
        assert [occurrence.skipped for occurrence in found] == [None, None]
        held.release.set()
        await outcome_of_all(ref)
    assert len(desk.told) == 3, "two triggers at the same moment are two occurrences"


async def test_a_removed_schedule_is_gone_with_what_waits_of_it(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime)
        asked = interrupted(await soon(ref.run("Please refund.")))
        await soon(clock.advance(DAY))
        await soon(runtime.schedules(ref).remove("daily"))
        state = await soon(ref.state())
        assert (state.queue, state.plans) == ({}, None)
        completed(await soon(ref.resume({asked.requests[0].id: approve()})))
        await soon(clock.advance(3 * DAY))
        assert await soon(runtime.schedules(ref).list()) == []
    assert desk.told == [["Please refund."]]


async def test_the_same_schedule_again_changes_nothing(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime)
        await days(clock, ref, 1)
        await soon(runtime.schedules(ref).pause("daily"))
        before, count = await one(runtime), len(await kinds(runtime))
        await soon(clock.advance(HOUR))
        again = await soon(runtime.schedule(ref, "daily", **{**EACH_DAY, "cron": "0 9  * * *"}))
        assert again == before
        assert len(await kinds(runtime)) == count


async def test_another_schedule_of_the_same_id_takes_its_place(
    desk: Desk, clock: SimulatedClock
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime)
        first = await one(runtime)
        await soon(clock.advance(HOUR))
        second = await soon(runtime.schedule(ref, "daily", **{**EACH_DAY, "input": "Another."}))
        assert second.created_at == first.created_at
        assert second.next_due == first.next_due
        third = await soon(runtime.schedule(ref, "daily", cron="0 15 * * *", input="Another."))
        assert third.next_due == datetime(2030, 1, 1, 15, tzinfo=timezone.utc)
        await soon(clock.advance(3 * HOUR))
        completed(await outcome_of(ref))
        assert await one(runtime) != third
    assert desk.told == [["Another."]]


@pytest.mark.parametrize("how", ["pause", "resume", "trigger", "remove"])
async def test_a_schedule_that_there_is_not_cannot_be_changed(
    desk: Desk, clock: SimulatedClock, how: str
) -> None:
    async with Runtime([desk.agent()], clock=clock) as runtime:
        await scheduled(runtime)
        with pytest.raises(UsageError, match="no schedule 'other'; there are: 'daily'"):
            await soon(getattr(runtime.schedules("a"), how)("other"))
        wrong_ids: list[Any] = [[], 5, None, ""]
        for wrong in wrong_ids:
            with pytest.raises(UsageError, match="The `id` of a schedule must be text"):
                getattr(runtime.schedules("a"), how)(wrong)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"cron": "0 0 30 2 *"}, "never comes true"),
        ({"cron": "never"}, "five fields"),
        ({"cron": float("nan")}, "`cron`"),
        ({"timezone": "Mars/Olympus"}, "no time zone 'Mars/Olympus'"),
        ({"timezone": "localtime"}, "no time zone 'localtime'"),  # another one on each machine
        ({"timezone": "right/UTC"}, "no time zone 'right/UTC'"),  # it counts leap seconds
        ({"input": ""}, "input is empty"),
        ({"input": 5}, "The input must be"),
        ({"missed": "some"}, "`missed` must be one of 'skip', 'one', 'all'"),
        ({"overlap": None}, "`overlap` must be one of 'skip', 'queue'"),
        ({"missed": "all"}, "give overlap='queue'"),
        ({"name": ""}, "`name`"),
        ({"id": ""}, "`id` of a schedule"),
        ({"id": 5}, "`id` of a schedule"),
        ({"agent": 5}, "`agent` must be a ref or the id"),
        ({"agent": ""}, "id"),
    ],
)
async def test_a_wrong_schedule_is_refused_at_once(
    desk: Desk, options: dict[str, Any], match: str
) -> None:
    async with Runtime([desk.agent()]) as runtime:
        given = {"agent": runtime.spawn("desk", id="a"), "id": "daily", **EACH_DAY, **options}
        with pytest.raises(UsageError, match=match):
            runtime.schedule(**given)


async def test_an_agent_has_a_bounded_number_of_schedules(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.actors.agent.planner.MAX_SCHEDULES", 3)
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        for number in range(3):
            await soon(runtime.schedule(ref, f"{number}", **EACH_DAY))
        with pytest.raises(UsageError, match="3 schedules already"):
            await soon(runtime.schedule(ref, "3", **EACH_DAY))
        await soon(runtime.schedule(ref, "0", cron="1 1 * * *", input="Another."))


# ------------------------------------------------------------------------- copies, crashes, hosts


async def test_the_schedules_of_an_imported_agent_are_paused(
    desk: Desk, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime)
        await soon(ref.compact())
        copy = await soon(runtime.import_(await soon(runtime.export("a")), "b"))
        (schedule,) = await soon(runtime.schedules(copy).list())
        assert schedule.paused
        await days(clock, ref, 1)
        assert await occurrences(copy) == []
        await soon(runtime.schedules(copy).resume("daily"))
        await days(clock, copy, 1)
        assert await occurrences(copy) == [(day(3), None)]
        assert not (await one(runtime)).paused


async def test_the_schedules_of_a_restored_copy_are_paused(desk: Desk, tmp_path: Path) -> None:
    original, copy, clock = tmp_path / "store.db", tmp_path / "copy.db", SimulatedClock()
    async with Runtime([desk.agent()], store=f"sqlite:///{original}", clock=clock) as runtime:
        await scheduled(runtime)
    copy.write_bytes(original.read_bytes())
    async with Runtime([desk.agent()], store=f"sqlite:///{original}", clock=clock) as runtime:
        await days(clock, runtime.get("a"), 1)
    original.write_bytes(copy.read_bytes())  # the backup takes the place of what came after it
    async with Runtime([desk.agent()], store=f"sqlite:///{original}", clock=clock) as runtime:
        assert (await one(runtime)).paused
        await soon(clock.advance(3 * DAY))
    assert desk.told == [["Report."]]


@pytest.mark.parametrize("missed", ["one", "all"])
async def test_every_prefix_of_the_records_brings_each_occurrence_once(
    clock: SimulatedClock, missed: str
) -> None:
    """A host that goes away after any record, and another one that goes on some days later."""
    desk, store = Desk(), MemoryStore()
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = await scheduled(runtime, missed=missed, overlap="queue")
        await days(clock, ref, 2)
    loaded = await store.load("a")
    assert loaded is not None
    assert [record.kind for record in loaded.records].count("occurred") == 2
    for cut in range(1, len(loaded.records) + 1):
        left, again = await left_after(loaded.records[:cut]), SimulatedClock(later(clock, 2 * DAY))
        async with Runtime([desk.agent()], store=left, clock=again) as runtime:
            await soon(again.advance(1))
            await soon(runtime.recover())
            ref = runtime.get("a")
            await outcome_of_all(ref)
            found, ended = await occurrences(ref), (await kinds(runtime)).count("run_ended")
        times = [due for due, _ in found]
        run = [due for due, skipped in found if skipped is None]
        assert times == sorted(set(times)), (cut, found)
        assert times[-1] == day(5)
        assert ended == len(run), (cut, found)
        if missed == "all":
            assert run == [day(number) for number in range(2, 6)]


@pytest.mark.quick
async def test_two_hosts_that_see_one_occurrence_run_it_once(hosts: Hosts) -> None:
    """J26."""
    desk, clock, other = Desk(), SimulatedClock(), SimulatedClock()
    here = DatabaseStore(hosts.new("here"))
    async with Runtime([desk.agent()], store=here, clock=clock, sweep=None) as first:
        ref = await scheduled(first)
        await soon(ref.stop(block=False))
        there = DatabaseStore(hosts.new("there"))
        async with Runtime([desk.agent()], store=there, clock=other, sweep=None) as second:
            for number in range(1, 4):
                await soon(asyncio.gather(clock.advance(DAY), other.advance(DAY)))
                await until(lambda number=number: len(desk.told) == number)  # type: ignore[misc]
            assert (await kinds(second)).count("occurred") == 3
    assert desk.told == [["Report."]] * 3


async def test_a_host_without_the_library_leaves_the_schedule_as_it_is(
    desk: Desk,
    clock: SimulatedClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        await scheduled(runtime)
    with monkeypatch.context() as patched:
        patched.setitem(__import__("sys").modules, "cronsim", None)
        async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
            await soon(clock.advance(DAY))
            assert "pip install 'understudy[schedules]'" in caplog.text
            completed(await soon(runtime.get("a").run("Anything else.")))
            assert (await one(runtime)).latest is None
    again = SimulatedClock(clock.now())
    async with Runtime([desk.agent()], store=store, clock=again) as runtime:
        await soon(again.advance(1))
        await until(lambda: desk.told[-1] == ["Report."])


async def test_occurrences_come_on_time_while_the_clock_is_suspended(desk: Desk) -> None:
    clock = SimulatedClock()
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime, cron="0 * * * *", missed="one")
        clock._now += timedelta(days=1)
        await soon(clock.advance(1))
        await outcome_of_all(ref)
        found = await occurrences(ref)
    assert [skipped for _, skipped in found] == ["missed", None]


async def test_a_schedule_whose_runs_could_not_be_recorded_is_refused(
    desk: Desk, tmp_path: Path
) -> None:
    """A record of it fits, and that of the message of its run would not."""
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk.agent()], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        options = {**EACH_DAY, "input": "x" * (MAX_RECORD_BYTES - 900)}
        with pytest.raises(RecordRefused):
            await soon(runtime.schedule(ref, "daily", **options))
        assert await soon(runtime.schedules(ref).list()) == []


async def test_a_schedule_that_says_something_else_keeps_the_time_that_has_passed_unnoticed(
    desk: Desk,
) -> None:
    clock = FakeClock()  # nobody is told that it goes on
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = await scheduled(runtime)
        due = (await one(runtime)).next_due
        assert due is not None
        clock.advance((due - clock.now()).total_seconds() + 10)
        changed = await soon(
            runtime.schedule(ref, "daily", **{**EACH_DAY, "input": "Report more."})
        )
        assert changed.next_due == due
