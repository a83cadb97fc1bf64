"""Reminders, escalations and expiries come by themselves, whether the agent is in memory or not.

Rules: I14, I15.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.agents import FakeClock, by_turn, completed, interrupted, results, until_status
from tests.support.loops import soon, until
from tests.support.plans import DAY, HOUR, outcome_of
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    Interrupt,
    NotInterrupted,
    Run,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    StopReason,
    ToolContext,
    approve,
    call,
    events,
    reject,
    tool,
)
from understudy.actors import Subscription, due_clock
from understudy.errors import DecisionError, RequestExpired, UsageError
from understudy.journal import FoldedAgent, MemoryStore, StoredAgent, replay
from understudy.journal.database_store import DatabaseStore
from understudy.journal.sqlite import SqliteBackend
from understudy.middleware import HumanInTheLoop, Middleware, SubAgent
from understudy.models import ScriptedRequest
from understudy.modes import Parallel


class Shop:
    """One agent whose refunds need a person, and what was refunded."""

    def __init__(self) -> None:
        self.refunded: list[str] = []

    def agent(self, and_also: Sequence[Middleware] = (), **options: Any) -> Agent:
        @tool
        async def refund(order: str) -> str:
            """Pay money back."""
            self.refunded.append(order)
            return "refunded"

        timing = {
            "remind_after": [HOUR, 2 * HOUR],
            "escalate_after": {4 * HOUR: "the head of sales"},
            "expires_after": DAY,
            **options,
        }
        gate = HumanInTheLoop({"refund": True}, **timing)
        model = by_turn(call("refund", {"order": "17"}), "Done.")
        return Agent(
            "desk",
            model,
            description="about refunds",
            tools=[refund],
            middleware=[gate, *and_also],
        )


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def asked(runtime: Runtime, id: str = "a") -> AgentRef:
    """An agent that waits for a person."""
    ref = runtime.spawn("desk", id=id)
    interrupted(await soon(ref.run("Refund 17.")))
    return ref


async def test_a_request_reminds_escalates_and_is_rejected_in_the_end(
    shop: Shop, clock: SimulatedClock, store: str
) -> None:
    """I15."""
    async with Runtime([shop.agent()], store=store, clock=clock) as runtime:
        ref = await asked(runtime)
        subscription = ref.events()
        (pending,) = await runtime.pending()
        assert (pending.reminders, pending.escalated_to) == (0, ())
        assert pending.next_due == clock.now() + timedelta(hours=1)

        await soon(clock.advance(1.5 * HOUR))
        (pending,) = await runtime.pending()
        assert pending.reminders == 1
        assert pending.next_due == pending.request.created_at + timedelta(hours=2)

        await soon(clock.advance(3 * HOUR))
        (pending,) = await runtime.pending()
        assert (pending.reminders, pending.escalated_to) == (2, ("the head of sales",))
        assert ref.status() is Status.INTERRUPTED

        await soon(clock.advance(DAY))
        outcome = completed(await outcome_of(ref))
        assert await runtime.pending() == []
        subscription.close()
        told = [e.event async for e in subscription]
        found = {entry.what: entry for entry in (await ref.history()).entries}

    assert found["reminded"].detail["number"] == 2
    assert found["escalated"].who == "the head of sales"
    assert shop.refunded == []
    assert [part.outcome for part in results(outcome.state)] == ["denied"]
    (line,) = outcome.state.decisions
    assert (line.decision.type, line.decision.origin) == ("reject", "expiry")
    start = line.request.created_at
    assert line.at == start + timedelta(days=1)
    reminders = [e for e in told if isinstance(e, events.RequestReminder)]
    assert [(e.number, e.at) for e in reminders] == [
        (1, start + timedelta(hours=1)),
        (2, start + timedelta(hours=2)),
    ]
    (escalated,) = [e for e in told if isinstance(e, events.RequestEscalated)]
    assert (escalated.audience, escalated.at) == ("the head of sales", start + timedelta(hours=4))
    assert {e.request_id for e in reminders} == {escalated.request_id} == {line.request.id}


async def test_an_expiry_may_stop_the_run(shop: Shop, clock: SimulatedClock, store: str) -> None:
    async with Runtime([shop.agent(on_expiry="stop")], store=store, clock=clock) as runtime:
        ref = await asked(runtime)
        (pending,) = await runtime.pending()
        await soon(clock.advance(2 * DAY))
        outcome = await outcome_of(ref)
        assert isinstance(outcome, Stopped)
        signal = outcome.signals.highest
        assert signal is not None
        assert (signal.reason, signal.source) == (StopReason.TIME_LIMIT, "expiry")
        assert signal.context["request_id"] == pending.request.id
        assert shop.refunded == []
        with pytest.raises(DecisionError):
            await soon(ref.resume({pending.request.id: approve()}))
        assert ref.status() is Status.IDLE


async def test_a_passive_agent_is_activated_by_what_is_due(
    shop: Shop, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([shop.agent()], store=store, clock=clock) as runtime:
        ref = await asked(runtime)
        await soon(ref.compact())
        await soon(clock.advance(1.5 * HOUR))
        assert [p.reminders for p in await runtime.pending()] == [1]
        await soon(ref.compact())
        await soon(clock.advance(DAY))
        completed(await outcome_of(ref))


async def test_what_is_overdue_at_the_start_is_told_at_once(shop: Shop, tmp_path: Path) -> None:
    """J21."""
    store, clock = f"sqlite:///{tmp_path / 'store.db'}", SimulatedClock()
    async with Runtime([shop.agent()], store=store, clock=clock) as runtime:
        await asked(runtime)
    later = SimulatedClock(clock.now() + timedelta(days=3))
    async with Runtime([shop.agent()], store=store, clock=later) as runtime:
        ref = runtime.get("a")
        await until_status(ref, Status.IDLE)
        outcome = completed(await outcome_of(ref))
    (line,) = outcome.state.decisions
    assert (line.decision.origin, line.at) == ("expiry", later.now())
    assert shop.refunded == []


async def test_of_several_reminders_that_are_overdue_one_is_given(
    shop: Shop, tmp_path: Path
) -> None:
    """I15."""
    store, clock = f"sqlite:///{tmp_path / 'store.db'}", SimulatedClock()
    async with Runtime([shop.agent()], store=store, clock=clock) as runtime:
        await asked(runtime)
    later = SimulatedClock(clock.now() + timedelta(hours=5))
    async with Runtime([shop.agent()], store=store, clock=later) as runtime:
        await soon(later.advance(1))
        (pending,) = await runtime.pending()
        assert (pending.reminders, pending.escalated_to) == (2, ("the head of sales",))
        records = [record["kind"] for record in (await runtime.export("a"))["records"]]
    assert records.count("reminded") == 1
    assert records.count("escalated") == 1


async def test_a_decision_that_is_recorded_before_the_expiry_counts(
    shop: Shop, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([shop.agent()], store=store, clock=clock) as runtime:
        ref = await asked(runtime)
        (pending,) = await runtime.pending()
        await soon(clock.advance(DAY - 1))
        completed(await soon(ref.resume({pending.request.id: approve(by="ann")})))
        await soon(clock.advance(DAY))
        outcome = completed(await outcome_of(ref))
    assert shop.refunded == ["17"]
    assert [line.decision.by for line in outcome.state.decisions] == ["ann"]


@pytest.mark.parametrize("late", [approve(), reject("too late")])
async def test_a_late_decision_is_refused(shop: Shop, clock: SimulatedClock, late: Any) -> None:
    async with Runtime([shop.agent()], clock=clock) as runtime:
        ref = await asked(runtime)
        (pending,) = await runtime.pending()
        await soon(clock.advance(DAY))
        completed(await outcome_of(ref))
        with pytest.raises(RequestExpired, match="counts as rejected") as raised:
            await soon(ref.resume({pending.request.id: late}))
        assert raised.value.request_id == pending.request.id
    assert shop.refunded == []


async def test_a_request_without_times_waits_for_ever(
    shop: Shop, clock: SimulatedClock, store: str
) -> None:
    agent = shop.agent(remind_after=(), escalate_after=None, expires_after=None)
    async with Runtime([agent], store=store, clock=clock) as runtime:
        await asked(runtime)
        await soon(clock.advance(1000 * DAY))
        (pending,) = await runtime.pending()
        assert (pending.reminders, pending.next_due) == (0, None)


async def test_a_question_of_a_tool_has_times_of_its_own(clock: SimulatedClock) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        raise Interrupt("Which?", remind_after=60, expires_after=120, on_expiry="stop")

    async with Runtime([Agent("desk", by_turn(call("ask")), tools=[ask])], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await soon(ref.run("go")))
        await soon(clock.advance(61))
        assert [p.reminders for p in await runtime.pending()] == [1]
        await soon(clock.advance(60))
        assert isinstance(await outcome_of(ref), Stopped)


async def test_a_thread_advances_the_clock_as_well(shop: Shop, clock: SimulatedClock) -> None:
    def use() -> None:
        with Runtime([shop.agent()], clock=clock) as runtime:
            ref = runtime.spawn("desk", id="a")
            interrupted(ref.run("Refund 17.").get(timeout=60))
            clock.advance(2 * DAY).get(timeout=60)
            outcome = ref.outcome().get(timeout=60)
            assert outcome is not None
            completed(outcome)

    await asyncio.to_thread(use)


@pytest.mark.slow
async def test_a_clock_that_is_set_forward_is_noticed(shop: Shop) -> None:
    clock = FakeClock()
    async with Runtime([shop.agent()], clock=clock) as runtime:
        ref = await asked(runtime)
        clock.advance(-DAY)
        clock.advance(3 * DAY)
        await until_status(ref, Status.IDLE)
        completed(await outcome_of(ref))


async def test_a_clock_that_is_set_back_repeats_nothing(shop: Shop, clock: SimulatedClock) -> None:
    async with Runtime([shop.agent()], clock=clock) as runtime:
        await asked(runtime)
        await soon(clock.advance(1.5 * HOUR))
        clock._now -= timedelta(hours=1)
        await soon(clock.advance(0.9 * HOUR))
        records = [record["kind"] for record in (await runtime.export("a"))["records"]]
    assert records.count("reminded") == 1


@pytest.mark.slow
async def test_dues_come_in_order_also_where_they_are_overdue(tmp_path: Path) -> None:
    clock, order = SimulatedClock(), list[str]()
    shop, store = Shop(), f"sqlite:///{tmp_path / 'store.db'}"

    class Order(Middleware):
        async def on_resume(self, run: Run, decisions: Any) -> None:
            order.append(run.agent_id)

    names = [f"{n * 37 % 100:03}" for n in range(100)]
    options: dict[str, Any] = {"store": store, "durability": "off"}
    async with Runtime([shop.agent(and_also=[Order()])], clock=clock, **options) as runtime:
        for name in names:
            await asked(runtime, name)
            await soon(clock.advance(1))
    later = SimulatedClock(clock.now() + timedelta(days=2))
    async with Runtime([shop.agent(and_also=[Order()])], clock=later, **options) as runtime:
        await soon(later.advance(1))
        for name in names:
            completed(await outcome_of(runtime.get(name)))
    groups = [order[n : n + 32] for n in range(0, 100, 32)]
    assert [sorted(group) for group in groups] == [
        sorted(names[n : n + 32]) for n in range(0, 100, 32)
    ]


async def test_a_message_withdraws_the_request_and_nothing_is_due(
    shop: Shop, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([shop.agent()], store=store, clock=clock) as runtime:
        ref = await asked(runtime)
        completed(await soon(ref.run("Forget it.")))
        await soon(clock.advance(2 * DAY))
        state = await soon(ref.state())
        assert state.decisions == []
        assert state.next_due is None


async def test_the_agent_can_be_answered_while_it_is_reminded(
    shop: Shop, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([shop.agent()], store=store, clock=clock) as runtime:
        ref = await asked(runtime)
        (pending,) = await runtime.pending()
        advanced = clock.advance(1.5 * HOUR)
        outcome = await soon(ref.resume({pending.request.id: approve()}))
        await soon(advanced)
        completed(outcome)
        with pytest.raises(NotInterrupted):
            await soon(ref.resume({pending.request.id: reject()}))
    assert shop.refunded == ["17"]


# ------------------------------------------------------------------ agents inside an agent


def nested(shop: Shop, **options: Any) -> Agent:
    """An agent whose sub-agent refunds."""
    inner = shop.agent(**options)
    model = by_turn(call("task", {"task_name": "desk", "instructions": "go"}), "All done.")
    middleware = [SubAgent(agents=[inner], general_purpose=False)]
    return Agent("boss", model, middleware=middleware)


@pytest.mark.parametrize("how", ["reject", "stop"])
async def test_a_request_of_a_sub_agent_is_due_as_well(
    shop: Shop, clock: SimulatedClock, store: str, how: str
) -> None:
    async with Runtime([nested(shop, on_expiry=how)], store=store, clock=clock) as runtime:
        ref = runtime.spawn("boss", id="a")
        interrupted(await soon(ref.run("go")))
        await soon(ref.stop(block=False))
        await soon(clock.advance(4.5 * HOUR))
        (pending,) = await runtime.pending()
        assert (pending.reminders, len(pending.escalated_to)) == (2, 1)
        assert pending.request.agent_path == ("boss", "desk")
        await soon(ref.stop(block=False))
        await soon(clock.advance(DAY))
        outcome = await outcome_of(ref)
    assert shop.refunded == []
    if how == "stop":
        assert isinstance(outcome, Stopped)
    else:
        assert completed(outcome).text == "All done."


@pytest.mark.parametrize("how", ["reject", "stop"])
async def test_requests_of_the_agents_of_a_workflow_are_due_side_by_side(
    shop: Shop, clock: SimulatedClock, how: str
) -> None:
    first = shop.agent(expires_after=5 * HOUR, on_expiry=how)
    second = Agent(
        "other",
        by_turn(call("refund", {"order": "18"}), "Done, too."),
        tools=list(first.definition.tools.values()),
        middleware=[HumanInTheLoop({"refund": True}, remind_after=3 * HOUR)],
    )
    team = Agent("team", mode=Parallel([first, second]))
    async with Runtime([team], clock=clock) as runtime:
        ref = runtime.spawn("team", id="a")
        interrupted(await soon(ref.run("go")))
        await soon(clock.advance(4.5 * HOUR))
        told = {p.request.agent_path[-1]: p.reminders for p in await runtime.pending()}
        assert told == {"desk": 2, "other": 1}
        await soon(clock.advance(HOUR))
        if how == "stop":
            assert isinstance(await outcome_of(ref), Stopped)
            assert await runtime.pending() == []
            return
        await until_status(ref, Status.INTERRUPTED)
        (pending,) = await runtime.pending()
        assert pending.request.agent_path[-1] == "other"
        completed(await soon(ref.resume({pending.request.id: approve()})))
    assert shop.refunded == ["18"]


# ------------------------------------------------------------------ crashes, and other hosts


@pytest.mark.parametrize("how", ["reject", "stop"])
async def test_every_prefix_of_the_records_comes_to_the_same_end(how: str) -> None:
    """J21: a host that goes away after any record, and another one that goes on days later."""
    shop, clock, store = Shop(), SimulatedClock(), MemoryStore()
    async with Runtime([shop.agent(on_expiry=how)], store=store, clock=clock) as runtime:
        ref = await asked(runtime)
        await soon(clock.advance(2 * DAY))
        end = await outcome_of(ref)
    loaded = await store.load("a")
    assert loaded is not None
    kinds = [record.kind for record in loaded.records]
    assert (kinds.count("reminded"), kinds.count("escalated")) == (2, 1)
    first = next(n for n, record in enumerate(loaded.records) if record.kind == "run_started")

    for cut in range(first + 1, len(kinds) + 1):
        left = MemoryStore()
        owned = await left.claim("a", "desk")
        assert owned is not None
        left.journal(owned, FoldedAgent(replay(loaded.records[:cut]))).append(loaded.records[:cut])
        await left.release(owned)
        again = SimulatedClock(clock.now())
        async with Runtime([shop.agent(on_expiry=how)], store=left, clock=again) as runtime:
            await soon(again.advance(1))
            for ref in await runtime.recover():
                await soon(ref.outcome())
            await soon(again.advance(2 * DAY))
            outcome = await outcome_of(runtime.get("a"))
        records = await left.load("a")
        assert records is not None
        found = [record.kind for record in records.records]
        assert type(outcome) is type(end), (cut, found)
        assert outcome.explain() == end.explain()
        assert [d.decision for d in outcome.state.decisions] == [
            d.decision for d in end.state.decisions
        ]
        assert found.count("escalated") <= 1
        assert found.count("reminded") <= 2
    assert shop.refunded == []


@pytest.mark.quick
async def test_two_hosts_that_see_the_same_due_record_it_once(hosts: Hosts) -> None:
    """J21."""
    shop, clock, other = Shop(), SimulatedClock(), SimulatedClock()
    here = DatabaseStore(hosts.new("here"))
    async with Runtime([shop.agent()], store=here, clock=clock, sweep=None) as first:
        ref = await asked(first)
        await soon(ref.stop(block=False))
        there = DatabaseStore(hosts.new("there"))
        async with Runtime([shop.agent()], store=there, clock=other, sweep=None) as second:
            await soon(asyncio.gather(clock.advance(1.5 * HOUR), other.advance(1.5 * HOUR)))
            exported = await soon(second.export("a"))
            kinds = [record["kind"] for record in exported["records"]]
            assert kinds.count("reminded") == 1
            owners = [info.host for info in await soon(first.agents())]
            assert owners in (["here"], ["there"])
    assert shop.refunded == []


async def test_an_agent_that_does_not_answer_keeps_no_other_waiting(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, held, asked_for = FakeClock(), asyncio.Event(), asyncio.Event()
    monkeypatch.setattr("understudy._base.clock_waits.RECHECK", 0.01)
    for name, seconds in (("GROUP_SECONDS", 0.01), ("PATIENCE", 600.0)):
        assert hasattr(due_clock, name)
        monkeypatch.setattr(due_clock, name, seconds)
    starts: list[str] = []

    class Slow(Middleware):
        async def on_start(self, actor: Any) -> None:
            starts.append(actor.id)
            if starts.count("slow") == 2:
                asked_for.set()
                await held.wait()

    async with Runtime([shop.agent(and_also=[Slow()])], clock=clock, sweep=None) as runtime:
        slow = await asked(runtime, "slow")
        await soon(slow.stop(block=False))
        clock.advance(1)
        quick = await asked(runtime, "quick")
        told = quick.events()
        clock.advance(HOUR - 1)
        await soon(asked_for.wait())
        clock.advance(1)
        async with asyncio.timeout(60):
            async for event in told:
                if isinstance(event.event, events.RequestReminder):
                    break
        told.close()
        held.set()
        await soon(slow.state())


async def test_an_agent_that_cannot_be_told_is_tried_again_and_logged_once(
    shop: Shop,
    clock: SimulatedClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(due_clock, "LONGEST_BACKOFF", 0.01)
    starts: list[str] = []

    class Broken(Middleware):
        async def on_start(self, actor: Any) -> None:
            starts.append(actor.id)
            if len(starts) == 2:
                raise RuntimeError("not yet")

    async with Runtime([shop.agent(and_also=[Broken()])], clock=clock) as runtime:
        ref = await asked(runtime)
        await soon(ref.stop(block=False))
        await soon(clock.advance(2 * DAY))
        assert "agent 'a' is due, and could not be told" in caplog.text
        assert shop.refunded == []
        await until_status(ref, Status.IDLE)
    assert caplog.text.count("could not be told") == 1


async def test_hosts_of_one_database_take_the_time_of_its_server(
    shop: Shop, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is an hour behind is not late for what is due."""
    slow = time.time
    monkeypatch.setattr(time, "time", lambda: slow() - HOUR)
    backend = hosts.new("slow")
    async with Runtime([shop.agent()], store=DatabaseStore(backend)) as runtime:
        assert 0.9 * HOUR < backend.time_offset < 1.1 * HOUR
        ref = await asked(runtime)
        (pending,) = await runtime.pending()
        ahead = pending.request.created_at.timestamp() - slow()
        assert 0.9 * HOUR < ahead < 1.1 * HOUR, "the machine's own clock is right in this test"
        await soon(ref.resume({pending.request.id: reject()}))


async def test_a_host_whose_clock_is_wrong_is_right_from_the_first_answer_of_a_slow_server(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, steady, seconds = time.time, time.clock_gettime, itertools.count(0, 5)
    monkeypatch.setattr(time, "time", lambda: slow() - HOUR)
    with monkeypatch.context() as patch:  # each look at the clock is 5 s later
        patch.setattr(time, "clock_gettime", lambda clock: steady(clock) + next(seconds))
        backend = hosts.open("slow")
    first = backend.time_offset
    assert 0.9 * HOUR < first < 1.1 * HOUR
    with monkeypatch.context() as patch:
        patch.setattr(time, "clock_gettime", lambda clock: steady(clock) + next(seconds))
        backend.renew()
    assert backend.time_offset == pytest.approx(first, abs=1), "a later one must be prompt"


async def test_a_host_whose_clock_is_right_keeps_it_however_late_the_server_answers(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else hosts with clocks that agree differ by half of how long each answer took."""
    steady, asked = time.clock_gettime, itertools.chain([-HOUR], itertools.repeat(0))
    with monkeypatch.context() as patch:  # it asks an hour before it has the answer
        patch.setattr(time, "clock_gettime", lambda clock: steady(clock) + next(asked))
        backend = hosts.open("right")
    assert backend.time_offset == pytest.approx(0, abs=60)


async def test_the_time_of_a_server_is_that_of_its_fastest_answers(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J21: when a slow one looked at its clock is not known."""
    steady, seconds = time.clock_gettime, iter([0.0])
    backend = hosts.open("slow")
    first = backend.time_offset
    # Each look at the clock but the first one is 0.9 s later: so much later comes the answer.
    monkeypatch.setattr(time, "clock_gettime", lambda clock: steady(clock) + next(seconds, 0.9))
    backend.renew()
    assert backend.time_offset - 0.9 == pytest.approx(first, abs=0.05)


async def test_a_machine_whose_clock_is_set_is_right_before_the_next_heartbeat(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, right = hosts.open("set"), time.time
    for change in (HOUR, -HOUR):
        monkeypatch.setattr(time, "time", lambda ahead=change: right() + ahead)
        assert time.time() + backend.time_offset == pytest.approx(right(), abs=60)


async def test_a_simulated_clock_counts_hours_also_where_the_clocks_are_changed() -> None:
    start = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    clock = SimulatedClock(start)
    await soon(clock.advance(24 * 3600))
    assert (clock.now() - start.astimezone(timezone.utc)).total_seconds() == 24 * 3600
    with pytest.raises(UsageError, match="beyond the calendar"):
        clock.advance(1e300)


async def test_a_clock_that_raises_is_logged_once_until_it_tells_the_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("understudy._base.clock_waits.RECHECK", 0.01)

    class Stopped(FakeClock):
        raises = 0

        def now(self) -> datetime:
            if self.raises:
                self.raises -= 1
                raise ValueError("stopped")
            return super().now()

    clock = Stopped()
    async with Runtime([shop.agent()], clock=clock) as runtime:
        ref = await asked(runtime)
        subscription = ref.events()
        for time in (1, 2):
            clock.raises = 5
            await soon(until(lambda: clock.raises == 0))
            assert caplog.text.count("the clock raised") == time
            clock.advance(HOUR)
            await soon(reminded(subscription))
        assert ref.status() is Status.INTERRUPTED


async def reminded(subscription: Subscription) -> None:
    async for event in subscription:
        if isinstance(event.event, events.RequestReminder):
            return


async def test_of_many_agents_that_are_due_each_is_told_however_few_are_known_at_once(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    clock = SimulatedClock()
    async with Runtime([shop.agent()], store=store, clock=clock) as runtime:
        for id in "abcde":
            await asked(runtime, id)
            await soon(clock.advance(60))
    monkeypatch.setattr("understudy.actors.due_clock.MOST", 2)
    async with Runtime([shop.agent()], store=store, clock=clock) as runtime:
        await soon(clock.advance(1.5 * HOUR))
        assert [p.reminders for p in await runtime.pending()] == [1] * 5
        await soon(clock.advance(2 * DAY))
        assert await runtime.pending() == []


class HeldReads(DatabaseStore):
    """A store that is slow to say what is due, from the second time on that it is asked.

    The first answer is waited for by who opens the runtime.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(SqliteBackend(str(path), host="held"))
        self.times = 0
        self.is_asked, self.may_read = asyncio.Event(), asyncio.Event()
        self.is_read, self.may_answer = asyncio.Event(), asyncio.Event()
        self.has_answered = asyncio.Event()

    async def due(self, until: datetime) -> AsyncIterator[StoredAgent]:
        self.times += 1
        if self.times > 1:
            self.is_asked.set()
            await self.may_read.wait()
        found = [agent async for agent in super().due(until)]
        if self.times > 1:
            self.is_read.set()
            await self.may_answer.wait()
        try:
            for agent in found:
                yield agent
        finally:
            if self.times > 1:
                self.has_answered.set()


@pytest.mark.parametrize("is_later", [False, True])
async def test_what_becomes_due_while_the_index_is_read_is_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_later: bool
) -> None:
    monkeypatch.setattr("understudy.actors.due_clock.MOST", 2)
    clock, path = SimulatedClock(), tmp_path / "store.db"
    desk = Agent("desk", ScriptedModel(lambda request: f"Done: {request.prompt}"))
    days = {id: clock.now() + timedelta(days=day) for id, day in (("a", 1), ("b", 2), ("c", 9))}
    async with Runtime([desk], store=f"sqlite:///{path}", clock=clock) as runtime:
        messages = {
            id: await soon(runtime.spawn("desk", id=id).send("x", at=days[id])) for id in days
        }
    store = HeldReads(path)
    async with Runtime([desk], store=store, clock=clock) as runtime:
        await soon(store.is_asked.wait())
        ref = runtime.get("a")
        if is_later:  # what is due later than in two days was not read the first time
            for id in "ab":
                await soon(runtime.get(id).cancel_message(messages[id]))
        store.may_read.set()
        await soon(store.is_read.wait())
        hours = 5 * 24 if is_later else 1
        await soon(ref.send("hello", at=clock.now() + timedelta(hours=hours)))
        await soon(ref.stop(block=False))
        store.may_answer.set()
        await soon(store.has_answered.wait())
        await soon(clock.advance(hours * HOUR))
        assert completed(await outcome_of(ref)).text == "Done: hello"


async def test_more_overdue_agents_than_are_known_at_once_are_all_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, store, said = FakeClock(), f"sqlite:///{tmp_path / 'store.db'}", list[str]()

    def answer(request: ScriptedRequest) -> str:
        said.append(request.prompt)
        return "Done."

    desk = Agent("desk", ScriptedModel(answer))
    async with Runtime([desk], store=store, clock=clock) as runtime:
        for id in "abcdefgh":
            clock.advance(1)
            at = clock.now() + timedelta(seconds=HOUR)
            await soon(runtime.spawn("desk", id=id).send(id, at=at))
    clock.advance(DAY)
    # None of those that are told together has answered when it is looked for the next ones.
    for name, value in (("MOST", 3), ("AT_ONCE", 2), ("GROUP_SECONDS", 0.0)):
        monkeypatch.setattr(f"understudy.actors.due_clock.{name}", value)
    async with Runtime([desk], store=store, clock=clock, sweep=None):
        await soon(until(lambda: len(said) == 8))
    assert sorted(said) == list("abcdefgh")
