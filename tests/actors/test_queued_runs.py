"""A `run` that waits for its turn is a recorded message: it outlives its process and its host."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Held, completed, interrupted, quarantined
from tests.support.held_commits import HeldAppends
from tests.support.hosts import Stopping, opened, stores
from tests.support.loops import soon, until
from tests.support.plans import DAY, HOUR, Desk, later, left_after, outcome_of
from tests.support.postgres import Hosts
from tests.support.programs import PIPE, started
from understudy import (
    Agent,
    AgentRef,
    Outcome,
    Paused,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    ToolContext,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.actors import Future
from understudy.errors import NotInterrupted, Quarantined, UnknownMessage
from understudy.journal import MemoryStore, replay
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import HumanInTheLoop, Middleware, Run
from understudy.models import ScriptedRequest
from understudy.state import records as r


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def desk() -> Desk:
    return Desk()


class Queue:
    """A desk whose first run waits in its model call until it is released, and may fail then."""

    def __init__(self, desk: Desk, fails: Exception | None = None) -> None:
        self.held, self.fails = Held(), fails
        desk.on_run = self._first

    async def begins(self, ref: AgentRef) -> Future[Outcome]:
        """Start the first run, and wait until it is in its model call."""
        first: Future[Outcome] = ref.run("First.")
        await soon(self.held.entered.wait())
        return first

    async def _first(self, texts: list[str]) -> None:
        if texts == ["First."]:
            await self.held.wait()
            if self.fails is not None:
                raise self.fails


async def records_of(store: MemoryStore, id: str = "a") -> list[r.Record]:
    loaded = await store.load(id)
    assert loaded is not None
    return list(loaded.records)


# ------------------------------------------------------------------- it is recorded


async def test_a_queued_run_begins_in_the_next_process_at_whatever_record_its_own_one_ended(
    desk: Desk,
) -> None:
    """A2: who asks by its id gets its outcome, and nothing is run twice."""
    queue, store = Queue(desk), MemoryStore()
    async with Runtime([desk.agent()], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        second = ref.run("Second.")
        assert [each.message_id for each in await soon(ref.queue())] == [second.message_id]
        queue.held.release.set()
        completed(await soon(first))
        outcome = completed(await soon(second))
    records = await records_of(store)
    queued = next(n for n, each in enumerate(records) if isinstance(each, r.MessageQueued))
    for cut in range(queued + 1, len(records) + 1):
        again = Desk()
        left = await left_after(records[:cut])
        async with Runtime([again.agent()], store=left) as runtime:
            await soon(runtime.recover())
            ref = runtime.get("a")
            there = await soon(ref.outcome(message_id=second.message_id))
            assert there is not None
            assert completed(there).text == outcome.text
            assert there.run_id == outcome.run_id, "the run has the id of its message"
            taken = [each for each in await records_of(left) if isinstance(each, r.RunStarted)]
            assert len(taken) == 2
            assert again.told.count(["Second."]) <= 1


async def test_a_run_on_a_free_agent_is_in_its_first_record_alone(desk: Desk) -> None:
    store = MemoryStore()
    async with Runtime([desk.agent()], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        future = ref.run("First.")
        outcome = completed(await soon(future))
        assert future.message_id.endswith(outcome.run_id)
        state = await soon(ref.state())
        assert (state.message_ids, state.queue) == ({}, {})
    records = await records_of(store)
    assert not [each for each in records if isinstance(each, r.MessageQueued)]
    (started,) = [each for each in records if isinstance(each, r.RunStarted)]
    assert started.message_ids == ()


async def test_the_id_of_a_message_is_there_before_anything_is_recorded(desk: Desk) -> None:
    with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        assert ref.run("One.", message_id="mine").message_id == "mine"
        future = ref.run("Two.")
        assert future.message_id
        outcome = completed(future.get(timeout=60))
        there = ref.outcome(message_id=future.message_id).get(timeout=60)
        assert there is not None
        assert there.run_id == outcome.run_id


async def test_the_outcome_of_each_run_is_asked_for_by_the_id_that_its_future_had(
    desk: Desk,
) -> None:
    """Of the last run, of earlier ones, and by the next process."""
    store = MemoryStore()
    async with Runtime([desk.agent()], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        futures = [ref.run(f"Number {number}.") for number in range(3)]
        outcomes = [completed(await soon(future)) for future in futures]
        for future, outcome in zip(futures, outcomes, strict=True):
            there = await soon(ref.outcome(message_id=future.message_id))
            assert there is not None
            assert there.run_id == outcome.run_id
    async with Runtime([desk.agent()], store=store) as runtime:
        ref = runtime.get("a")
        for future, outcome in zip(futures, outcomes, strict=True):
            there = await soon(ref.outcome(message_id=future.message_id))
            assert there is not None
            assert there.run_id == outcome.run_id
        with pytest.raises(UnknownMessage):
            await soon(ref.outcome(message_id="run/never"))
        assert not await soon(ref.cancel_message(futures[0].message_id))


async def test_an_id_that_the_runtime_has_made_is_not_sent_again(desk: Desk) -> None:
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        future = ref.run("One.")
        completed(await soon(future))
        for again in (ref.run, ref.send):
            with pytest.raises(UsageError, match="an id of your own"):
                again("One.", message_id=future.message_id)
    assert desk.told == [["One."]]


# ------------------------------------------------------------------- its turn


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_a_queued_run_begins_after_a_run_that_failed_or_was_cancelled(
    desk: Desk, how: str
) -> None:
    """A2: with the messages that were sent before it, in one turn. They begin no run alone."""
    queue = Queue(desk, ConnectionError("no answer"))
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        await soon(ref.send("Sent."))
        second = ref.run("Second.")
        await soon(ref.send("Sent later."))
        if how == "cancelled":
            assert isinstance(await soon(ref.cancel()), Stopped)
        queue.held.release.set()
        await soon(first)
        completed(await soon(second))
        completed(await outcome_of(ref))
    assert desk.told == [["First."], ["Sent.", "Second."], ["Sent later."]]


async def test_a_sent_message_waits_after_a_failure_until_a_run_is_asked_for(desk: Desk) -> None:
    queue = Queue(desk, ConnectionError("no answer"))
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        await soon(ref.send("Sent.", message_id="m"))
        queue.held.release.set()
        await soon(first)
        assert [each.choices for each in await soon(ref.queue())] == [None]
        assert ref.status() is Status.FAILED
        # By its id it is asked for as a run
        completed(await soon(ref.run("Sent.", message_id="m")))
    assert desk.told == [["First."], ["Sent."]]


async def test_two_runs_that_wait_are_never_one(desk: Desk) -> None:
    queue = Queue(desk)
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        await soon(ref.send("Before both."))
        two, three = ref.run("Two."), ref.run("Three.", max_runs=1)
        queued = await soon(ref.queue())
        assert [each.choices is None for each in queued] == [True, False, False]
        assert queued[2].choices is not None
        assert queued[2].choices.max_runs == 1
        queue.held.release.set()
        outcomes = [completed(await soon(each)) for each in (first, two, three)]
    assert len({each.run_id for each in outcomes}) == 3
    assert desk.told == [["First."], ["Before both.", "Two."], ["Three."]]


async def test_a_queued_run_is_judged_once_by_whether_a_person_is_asked(desk: Desk) -> None:
    """Nobody was asked when it was accepted: it waits behind the person who is asked since."""
    queue = Queue(desk)
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        asking = ref.run("A refund.")
        behind = ref.run("Behind.", if_interrupted="error")
        queue.held.release.set()
        completed(await soon(first))
        asked = interrupted(await soon(asking))
        with pytest.raises(NotInterrupted):
            await soon(ref.run("Now.", if_interrupted="error"))
        assert len(await soon(ref.queue())) == 1
        completed(await soon(ref.resume(asked.decide(approve()))))
        completed(await soon(behind))
    assert desk.told[-1] == ["Behind."]


async def test_a_sent_message_that_is_asked_for_as_a_run_withdraws_only_what_its_caller_wants(
    desk: Desk,
) -> None:
    """A2: `if_interrupted="error"` holds for it too."""
    queue = Queue(desk)
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        asking = ref.run("A refund.")
        await soon(ref.send("Sent.", message_id="m"))
        queue.held.release.set()
        completed(await soon(first))
        asked = interrupted(await soon(asking))
        with pytest.raises(NotInterrupted):
            await soon(ref.run("Sent.", message_id="m", if_interrupted="error"))
        assert (await soon(ref.state())).requests == asked.requests
        completed(await soon(ref.run("Sent.", message_id="m")))
    assert desk.told[-1] == ["Sent."]


@pytest.mark.parametrize("down", [False, True])
async def test_a_time_that_ends_a_run_may_pass_while_that_waits_for_its_turn(
    desk: Desk, clock: SimulatedClock, down: bool
) -> None:
    """It is stopped before its first model call, also where the host was down at that time."""
    queue, store = Queue(desk), MemoryStore()
    async with Runtime([desk.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        second = ref.run("Second.", ends_at=later(clock, HOUR))
        await soon(ref.queue())
        records = await records_of(store)
        if not down:
            await soon(clock.advance(DAY))
        queue.held.release.set()
        completed(await soon(first))
        if not down:
            assert isinstance(await soon(second), Stopped)
            assert desk.told == [["First."]]
    if down:
        again, next_day = Desk(), SimulatedClock(later(clock, DAY))
        left = await left_after(records)
        async with Runtime([again.agent()], store=left, clock=next_day) as runtime:
            await soon(runtime.recover())
            outcome = await soon(runtime.get("a").outcome(message_id=second.message_id))
            assert isinstance(outcome, Stopped)
        assert ["Second."] not in again.told


async def test_what_was_sent_before_a_run_whose_time_has_passed_is_answered(
    desk: Desk, clock: SimulatedClock
) -> None:
    """A2: no model answers in that run."""
    queue = Queue(desk)
    async with Runtime([desk.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        await soon(ref.send("Sent.", message_id="sent"))
        second, third = ref.run("Second.", ends_at=later(clock, HOUR)), ref.run("Third.")
        sent = ref.outcome(message_id="sent")
        await soon(ref.queue())
        await soon(clock.advance(DAY))
        queue.held.release.set()
        completed(await soon(first))
        assert isinstance(await soon(second), Stopped)
        outcome = await soon(sent)
        assert outcome is not None
        assert completed(outcome).run_id == completed(await soon(third)).run_id
    assert desk.told == [["First."], ["Sent.", "Third."]]


async def test_a_message_that_steers_is_no_run_with_other_options(desk: Desk) -> None:
    """It would lose them: the run that is open takes it."""
    queue = Queue(desk)
    async with Runtime([desk.agent()]) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        await soon(ref.send("Hurry.", steer=True, message_id="hurry"))
        with pytest.raises(UsageError, match="'hurry' steers the run of agent 'a' that is open"):
            await soon(ref.run("Hurry.", max_runs=1, message_id="hurry"))
        same = ref.run("Hurry.", message_id="hurry")
        queue.held.release.set()
        assert completed(await soon(same)).run_id == completed(await soon(first)).run_id


async def test_a_cancelled_queued_run_does_not_begin_in_the_next_process(desk: Desk) -> None:
    queue, store = Queue(desk), MemoryStore()
    async with Runtime([desk.agent()], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        second = ref.run("Second.")
        assert await soon(ref.cancel_message(second.message_id))
        with pytest.raises(UnknownMessage, match="is cancelled"):
            await soon(second)
        records = await records_of(store)
        queue.held.release.set()
        completed(await soon(first))
    again = Desk()
    async with Runtime([again.agent()], store=await left_after(records)) as runtime:
        await soon(runtime.recover())
        completed(await outcome_of(runtime.get("a")))
    assert again.told == [["First."]]


class SlowEnd(Middleware):
    """Its hook at the end of a run does not return until it is released."""

    def __init__(self) -> None:
        self.held = Held()

    async def on_run_end(self, _run: Run, outcome: Any) -> None:
        if isinstance(outcome, Stopped):
            await self.held.wait()


async def test_a_queued_run_that_is_cancelled_while_it_begins_does_not_begin_anew() -> None:
    """The host goes away while the hooks of the run run that it withdraws."""
    desk, slow, store = Desk(), SlowEnd(), MemoryStore()
    queue = Queue(desk)
    gate = HumanInTheLoop({"refund": True})
    plain = desk.agent()
    agent = Agent(
        "desk",
        plain.definition.model,
        tools=list(plain.definition.tools.values()),
        middleware=[gate, slow],
    )
    async with Runtime([agent], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        asking, second = ref.run("A refund."), ref.run("Second.")
        queue.held.release.set()
        completed(await soon(first))
        interrupted(await soon(asking))
        third = ref.run("Third.")  # the second one takes its turn, and withdraws what asks
        await soon(slow.held.entered.wait())
        cancelled = ref.cancel()
        assert len(await soon(ref.queue())) == 1
        records = await records_of(store)
        slow.held.release.set()
        assert isinstance(await soon(second), Stopped)
        assert isinstance(await soon(cancelled), Stopped)
        completed(await soon(third))
    again = Desk()
    async with Runtime([again.agent()], store=await left_after(records)) as runtime:
        await soon(runtime.recover())
        ref = runtime.get("a")
        interrupted(await outcome_of(ref))
        completed(await soon(ref.run("Fourth.")))
        completed(await outcome_of(ref, third.message_id))
    assert again.told == [["Third."], ["Fourth."]]


# ------------------------------------------------------------------- options, and refusals


async def test_options_are_checked_before_a_run_is_recorded(desk: Desk) -> None:
    """R8: at an agent that was spawned, and at one that is known by its id alone."""
    queue, store = Queue(desk), MemoryStore()
    async with Runtime([desk.agent()], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        with pytest.raises(UsageError, match="has no such tool"):
            ref.run("Second.", until_tool="nothing")
        before = len(await records_of(store))
        queue.held.release.set()
        completed(await soon(first))
    async with Runtime([desk.agent()], store=store) as runtime:
        with pytest.raises(UsageError, match="has no such tool"):
            await soon(runtime.get("a").run("Second.", until_tool="nothing"))
    kinds = [each.kind for each in (await records_of(store))[before:]]
    assert "message_queued" not in kinds
    assert desk.told == [["First."]]


def looking(*tools: Any) -> Agent:
    return Agent("desk", ScriptedModel(lambda _: "done"), tools=list(tools))


@tool
def look() -> str:
    """Look something up."""
    return "seen"


async def left_with_two_runs() -> tuple[MemoryStore, str, str]:
    """What a host leaves that goes away while two runs wait; the first one is until a tool."""
    desk = Desk()
    queue, store = Queue(desk), MemoryStore()
    desk_agent = desk.agent()
    agent = Agent("desk", desk_agent.definition.model, tools=[look])
    async with Runtime([agent], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        ref.run("First.")
        await soon(queue.held.entered.wait())
        second, third = ref.run("Second.", until_tool="look"), ref.run("Third.")
        assert len(await soon(ref.queue())) == 2
        records = await records_of(store)
        queue.held.release.set()
        await soon(third)
    return await left_after(records), second.message_id, third.message_id


async def test_a_queued_run_that_fits_its_agent_no_more_is_refused_and_the_next_one_begins() -> (
    None
):
    """R8, A2: that is recorded. It is no attempt, and nothing is quarantined."""
    left, second, third = await left_with_two_runs()
    async with Runtime([looking()], store=left) as runtime:
        await soon(runtime.recover())
        ref = runtime.get("a")
        completed(await outcome_of(ref, third))
        for _ in range(2):
            with pytest.raises(UsageError, match="has no such tool"):
                await soon(ref.outcome(message_id=second))
        page = await soon(ref.history(limit=1000))
        (refused,) = [each for each in page.entries if each.what == "message_refused"]
        assert refused.detail["message_id"] == second
        assert await soon(ref.queue()) == []
        state = await soon(ref.state())
        assert list(state.refused) == [second]
    async with Runtime([looking()], store=left) as runtime:
        with pytest.raises(UsageError, match="has no such tool"):
            await soon(runtime.get("a").outcome(message_id=second))
        exported = await soon(runtime.export("a"))
    async with Runtime([looking()], store=MemoryStore()) as runtime:
        await soon(runtime.import_(exported))
        with pytest.raises(UsageError, match="has no such tool"):
            await soon(runtime.get("a").outcome(message_id=second))


async def test_a_queued_run_whose_deps_cannot_be_made_is_refused_and_the_next_one_begins() -> None:
    held, made = Held(), []

    async def reply(request: Any) -> Any:
        if [str(part.content) for part in request.messages[-1].parts] == ["First."]:
            await held.wait()
        return "done"

    def deps_for(_id: str) -> str:
        made.append(1)
        if len(made) == 2:
            raise LookupError("no such customer")
        return "deps"

    async with Runtime([Agent("desk", ScriptedModel(reply))], deps_for=deps_for) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = ref.run("First.")
        await soon(held.entered.wait())
        second, third = ref.run("Second."), ref.run("Third.")
        await soon(ref.queue())
        held.release.set()
        completed(await soon(first))
        with pytest.raises(Exception, match="no such customer"):
            await soon(second)
        completed(await soon(third))
        with pytest.raises(Exception, match="no such customer"):
            await soon(ref.outcome(message_id=second.message_id))
        assert ref.status() is Status.IDLE


def deps_that_fail(*numbers: int) -> Callable[[str], str]:
    """Deps that cannot be made at these calls, of which the first has the number 1."""
    made = itertools.count(1)

    def deps_for(_id: str) -> str:
        if next(made) in numbers:
            raise LookupError("no such customer")
        return "deps"

    return deps_for


async def test_a_run_behind_a_run_that_cannot_begin_begins(desk: Desk) -> None:
    """Also where the first one came to a free agent, and so was not in the queue."""
    async with Runtime([desk.agent()], deps_for=deps_that_fail(1)) as runtime:
        ref = runtime.spawn("desk", id="a")
        first, second = ref.run("First."), ref.run("Second.")
        with pytest.raises(LookupError):
            await soon(first)
        completed(await soon(second))
    assert desk.told == [["Second."]]


async def test_a_run_behind_an_occurrence_that_cannot_begin_begins_before_it(desk: Desk) -> None:
    async with Runtime([desk.agent()], deps_for=deps_that_fail(1)) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(runtime.schedule(ref, "s", cron="0 0 1 1 *", input="Scheduled."))
        triggered, run = runtime.schedules(ref).trigger("s"), ref.run("Run.")
        await soon(triggered)
        completed(await soon(run))
        completed(await outcome_of(ref))
    assert desk.told == [["Run."], ["Scheduled."]]


async def test_who_waits_for_a_sent_message_is_not_told_that_the_run_of_its_turn_is_refused(
    desk: Desk,
) -> None:
    """It begins without that run, and who waits for it gets its own outcome."""
    queue = Queue(desk)
    async with Runtime([desk.agent()], deps_for=deps_that_fail(2)) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = await queue.begins(ref)
        await soon(ref.send("Sent.", message_id="sent"))
        second = ref.run("Second.")
        sent = ref.outcome(message_id="sent")
        await soon(ref.queue())
        queue.held.release.set()
        completed(await soon(first))
        with pytest.raises(LookupError):
            await soon(second)
        there = await soon(sent)
        assert there is not None
        completed(there)
    assert desk.told == [["First."], ["Sent."]]


async def test_an_agent_is_not_seen_idle_between_runs_where_one_of_them_is_refused(
    desk: Desk,
) -> None:
    queue, store = Queue(desk), MemoryStore()
    async with Runtime([desk.agent()], deps_for=deps_that_fail(2), store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        ref.run("First.")
        await soon(queue.held.entered.wait())
        ref.run("Second.")
        third = ref.run("Third.")
        await soon(ref.queue())
        queue.held.release.set()
        completed(await soon(third))
    noted = map(r.status_in, await records_of(store))
    assert [status for status in noted if status is not None] == ["running", "idle"]


async def test_who_asks_for_a_run_that_lacks_its_deps_while_another_one_withdraws_it_is_told(
    desk: Desk,
) -> None:
    queue, store = Queue(desk), MemoryStore()
    async with Runtime([desk.agent()], deps_for=deps_that_fail(), store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = ref.run("First.")
        await soon(queue.held.entered.wait())
        records = await records_of(store)
        queue.held.release.set()
        await soon(first)
    left = await left_after(records)
    async with Runtime([desk.agent()], store=left, deps_for=deps_that_fail(1)) as runtime:
        await soon(runtime.recover())
        ref = runtime.get("a")
        assert isinstance(await outcome_of(ref, first.message_id), Paused)
        second, asked = ref.run("Second."), ref.outcome(message_id=first.message_id)
        completed(await soon(second))
        assert isinstance(await soon(asked), Stopped)


async def test_who_asks_for_a_run_whose_records_are_compacted_away_is_not_told_that_it_is_unknown(
    desk: Desk,
) -> None:
    """To be told that it is unknown means that nothing has run."""
    store = MemoryStore()
    async with Runtime([desk.agent()], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        futures = [ref.run("First."), ref.run("Second.", message_id="mine"), ref.run("Third.")]
        for future in futures:
            completed(await soon(future))
        await soon(ref.compact())
        completed(await outcome_of(ref, futures[2].message_id))
        for in_memory in (False, True):
            if in_memory:
                completed(await soon(ref.run("Fourth.")))
            for future in futures[:2]:
                with pytest.raises(UsageError, match="compacted away") as told:
                    await soon(ref.outcome(message_id=future.message_id))
                assert not isinstance(told.value, UnknownMessage)
                assert not await soon(ref.cancel_message(future.message_id))


@pytest.mark.postgres
@pytest.mark.parametrize("message_id", [None, "mine"])
async def test_a_queued_run_that_is_cancelled_is_not_begun_by_a_call_that_is_made_anew(
    hosts: Hosts, desk: Desk, message_id: str | None
) -> None:
    """J70: its host has lost the agent, does not know it yet, and another one has cancelled it."""
    queue, stores_ = Queue(desk), stores(hosts, "a", "b")
    async with (
        opened(stores_[0], desk.agent()) as first,
        opened(stores_[1], desk.agent()) as second,
    ):
        ref = first.spawn("desk", id="a")
        running = await queue.begins(ref)
        queued = ref.run("Second.", message_id=message_id)
        await soon(ref.queue())
        hosts.sql("UPDATE agents SET owner = NULL WHERE agent_id = 'a'")
        assert await soon(second.get("a").cancel_message(queued.message_id))
        queue.held.release.set()
        completed(await soon(running))
        with pytest.raises(UnknownMessage, match="cancelled"):
            await soon(queued)
    assert ["Second."] not in desk.told


@pytest.mark.postgres
async def test_a_run_that_is_lost_as_its_agent_leaves_memory_is_made_again(
    hosts: Hosts, clock: SimulatedClock
) -> None:
    """J70: its message was not recorded yet, and another host takes the agent, which is at rest."""

    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("nap", HOUR)
        return "slept"

    def reply(request: ScriptedRequest) -> Any:
        last = request.messages[-1].parts[-1]
        begins = last.part_kind == "user-prompt" and last.content == "Nap."
        return call("nap", {}) if begins else "done"

    agent, held = Agent("desk", ScriptedModel(reply), tools=[nap]), HeldAppends(hosts.new("first"))
    async with (
        opened(DatabaseStore(held), agent, clock=clock) as first,
        opened(DatabaseStore(hosts.new("second")), agent, clock=clock) as second,
    ):
        ref = first.spawn("desk", id="a")
        sleeps = ref.run("Nap.")
        await hosts.found("SELECT 1 FROM agents WHERE status = 'waiting' AND takeable")
        with held.held():
            lost, left = ref.run("Mine."), ref.stop(block=False)
            await held.reached()
            other = second.spawn("desk", id="a").run("Other.")
            await hosts.found(
                "SELECT 1 FROM agents JOIN hosts ON hosts.id = owner WHERE hosts.name = 'second'"
            )
        await soon(left)
        await soon(clock.advance(HOUR))
        for future in (sleeps, other, lost):
            completed(await soon(future))
        assert await outcome_of(second.get("a"), lost.message_id) is not None


@pytest.mark.postgres
async def test_a_run_on_its_way_to_another_host_is_not_unknown(hosts: Hosts, desk: Desk) -> None:
    """To be told that it is unknown means that nothing has run, nor will."""
    queue = Queue(desk)
    here, there = stores(hosts, "here", "there")
    async with opened(here, desk.agent()) as first, opened(there, desk.agent()) as second:
        running = first.spawn("desk", id="a").run("First.")
        await soon(queue.held.entered.wait())
        ref = second.get("a")
        queued = ref.run("Second.")
        asked = ref.outcome(message_id=queued.message_id)
        sent = ref.send("Sent.", message_id="sent")
        asked_of_sent = ref.outcome(message_id="sent")
        assert await soon(sent) == "sent"
        queue.held.release.set()
        completed(await soon(running))
        outcome = completed(await soon(queued))
        there_is = await soon(asked)
        assert there_is is not None
        assert there_is.run_id == outcome.run_id
        assert await soon(asked_of_sent) is not None
        with pytest.raises(UnknownMessage):
            await soon(ref.outcome(message_id="never"))


@pytest.mark.postgres
async def test_a_message_that_arrives_at_another_host_during_a_look_is_not_unknown(
    hosts: Hosts, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J70: the look has read the store before, and the call is answered before the look ends."""
    queue = Queue(desk)
    here, there = stores(hosts, "here", "there")
    async with opened(here, desk.agent()) as first, opened(there, desk.agent()) as second:
        running = await queue.begins(first.spawn("desk", id="a"))
        post = Stopping(there, "post")
        loads, read, released = there.load_latest, asyncio.Event(), asyncio.Event()

        async def load_latest(agent_id: str) -> Any:
            found = await loads(agent_id)
            if post.reached.is_set():
                read.set()
                await released.wait()
            return found

        ref = second.get("a")
        sent = ref.send("Sent.", message_id="sent")
        await soon(post.reached.wait())
        monkeypatch.setattr(there, "load_latest", load_latest)
        asked = ref.outcome(message_id="sent")
        await soon(read.wait())
        post.released.set()
        assert await soon(sent) == "sent"
        released.set()
        queue.held.release.set()
        completed(await soon(running))
        assert await soon(asked) is not None


@pytest.mark.postgres
async def test_who_waits_for_a_queued_run_at_another_host_is_told_that_it_is_cancelled(
    hosts: Hosts, desk: Desk
) -> None:
    queue = Queue(desk)
    here, there = stores(hosts, "here", "there")
    async with opened(here, desk.agent()) as first, opened(there, desk.agent()) as second:
        ref = first.spawn("desk", id="a")
        running = await queue.begins(ref)
        queued = second.get("a").run("Second.")
        asked = second.get("a").outcome(message_id=queued.message_id)
        async with asyncio.timeout(60):
            while not await ref.queue():
                pass
        assert await soon(ref.cancel_message(queued.message_id))
        for waiting in (queued, asked):
            with pytest.raises(UnknownMessage, match="cancelled"):
                await soon(waiting)
        queue.held.release.set()
        completed(await soon(running))


@pytest.mark.postgres
async def test_a_run_that_begins_between_two_looks_at_the_store_has_its_outcome(
    hosts: Hosts, desk: Desk
) -> None:
    """Between the look at the agent's state and the one at its records."""
    queue = Queue(desk)
    here, there = stores(hosts, "here", "there")
    async with opened(here, desk.agent()) as first, opened(there, desk.agent()) as second:
        ref = first.spawn("desk", id="a")
        completed(await soon(ref.run("Zero.")))
        latest = there.load_latest
        before = [await there.load_latest("a")]
        run = ref.run("First.")
        await soon(queue.held.entered.wait())
        async with asyncio.timeout(60):
            while (await soon(first.export("a")))["records"][-1]["kind"] != "attempt":
                pass

        async def load_latest(agent_id: str) -> Any:
            return before.pop() if before else await latest(agent_id)

        there.load_latest = load_latest  # type: ignore[method-assign]
        asked = second.get("a").outcome(message_id=run.message_id)
        await until(lambda: not before)
        for _ in range(20):  # by then it would have been told what is wrong
            await soon(second.get("a").info())
        queue.held.release.set()
        outcome, there_is = completed(await soon(run)), await soon(asked)
        assert there_is is not None
        assert there_is.run_id == outcome.run_id


async def test_a_quarantined_agent_refuses_the_runs_that_wait_and_keeps_what_was_sent() -> None:
    """J10: who waits is told, and what is told to have failed does not begin later."""
    held, told, sick = Held(), [], [1, 1, 1]

    async def reply(request: Any) -> Any:
        told.append([str(part.content) for part in request.messages[-1].parts])
        await held.wait()
        if sick:
            sick.pop()
            raise SystemExit("killed")
        return "done"

    store = MemoryStore()
    async with Runtime([Agent("desk", ScriptedModel(reply))], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = ref.run("First.")
        await soon(held.entered.wait())
        await soon(ref.send("Sent."))
        second = ref.run("Second.")
        await soon(ref.queue())
        held.release.set()
        quarantined(await soon(first))
        quarantined(await soon(second))
        assert [each.choices for each in await soon(ref.queue())] == [None]
        with pytest.raises(Quarantined):
            await soon(ref.outcome(message_id=second.message_id))
        completed(await soon(ref.retry()))
        completed(await outcome_of(ref))
    assert told[-1] == ["Sent."]
    assert ["Second."] not in told


async def test_the_errors_of_the_last_refused_runs_are_kept_and_no_more() -> None:
    store = MemoryStore()
    async with Runtime([looking()], store=store) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("Go.")))
    records = await records_of(store)
    error = UsageError("no").to_dict()
    at = next(each.at for each in records if isinstance(each, r.RunStarted))
    refused = [
        r.MessageRefused(message_id=f"m{number}", error=error, at=at) for number in range(150)
    ]
    state = replay([*records, *refused])
    assert list(state.refused) == [f"m{number}" for number in range(50, 150)]


KILLED = """
import asyncio, sys
from understudy import Agent, Runtime, ScriptedModel

async def first(_request):
    await asyncio.Event().wait()  # until this process is killed

with Runtime([Agent("desk", ScriptedModel([first]))], store=sys.argv[1]) as runtime:
    ref = runtime.spawn("desk", id="a")
    run = ref.run("First.")
    queued = [ref.run("Second."), ref.run("Third.", message_id="mine")]
    assert len(ref.queue().get(timeout=60)) == 2
    print(*[each.message_id for each in queued], flush=True)
    run.get()
"""


@pytest.mark.slow
async def test_queued_runs_of_a_killed_process_are_run_once_by_the_next_one(tmp_path: Path) -> None:
    """A2: `kill -9`, and a store in a file."""
    store, told = f"sqlite:///{tmp_path / 'store.db'}", list[str]()
    with started("-c", KILLED, store, stdout=PIPE) as child:
        try:
            assert child.stdout is not None
            ids = (await asyncio.to_thread(child.stdout.readline)).split()
        finally:
            child.kill()

    def reply(request: ScriptedRequest) -> str:
        told.append(str(request.prompt))
        return f"done with {request.prompt}"

    async with Runtime([Agent("desk", ScriptedModel(reply))], store=store) as runtime:
        ref = runtime.get("a")
        second, third = [completed(await outcome_of(ref, id)) for id in ids]
        assert (second.text, third.text) == ("done with Second.", "done with Third.")
        assert completed(await soon(ref.run("Third.", message_id="mine"))).run_id == third.run_id
    assert told == ["First.", "Second.", "Third."]
