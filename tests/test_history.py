"""What happened, for people: with times and durations, in pages that read like one list (J19)."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import (
    agent_of_two_sleepers,
    by_turn,
    completed,
    interrupted,
    until_status,
)
from tests.support.loops import soon
from understudy import (
    Agent,
    Observer,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    UsageError,
    approve,
    call,
)
from understudy.actors import AgentRef, HistoryEntry
from understudy.errors import UnknownAgent
from understudy.history import history_of
from understudy.journal import Loaded, MemoryStore
from understudy.state import records as r
from understudy.state.records import record_from_dict

START = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


class Clock:
    """Moves only when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


async def entries(ref: AgentRef, **page: Any) -> list[HistoryEntry]:
    return list(await ref.history(**page))


def of_kind(found: list[HistoryEntry], what: str) -> HistoryEntry:
    (entry,) = [entry for entry in found if entry.what == what]
    return entry


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_a_history_says_what_when_who_and_how_long(store: str, tmp_path: Path) -> None:
    """J19."""
    clock = Clock()

    def pay(amount: int) -> str:
        clock.seconds += 3
        return f"paid {amount}"

    model = by_turn(call("pay", {"amount": 5}), "done")
    agent = Agent("desk", model, tools=[pay], interrupt_on={"pay": True})
    place = f"sqlite:///{tmp_path / 'store'}" if store == "sqlite" else store
    async with Runtime([agent], store=place, clock=clock) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        asked = interrupted(await ref.run("pay 5"))
        clock.seconds += 3600
        await ref.resume(asked.decide(approve(by="ada")))
        found = await entries(ref)

    assert [entry.what for entry in found if entry.what != "status"] == [
        "run_started",
        "attempt_started",
        "reply",
        "request",
        "decision",
        "attempt_started",
        "tool_started",
        "tool_ended",
        "reply",
        "run_ended",
    ]
    decision = of_kind(found, "decision")
    assert (decision.who, decision.seconds, decision.at) == ("ada", 3600, clock.now() - 3 * SECOND)
    paid = of_kind(found, "tool_ended")
    assert (paid.tool_name, paid.seconds, paid.detail["text"]) == ("pay", 3, "paid 5")
    assert of_kind(found, "run_ended").seconds == 3603
    assert {entry.run_id for entry in found if entry.what != "status"} == {found[1].run_id}
    assert json.loads(json.dumps([entry.to_dict() for entry in found]))


SECOND = timedelta(seconds=1)


async def test_pages_read_like_one_list_and_keep_the_entries_of_a_record_together() -> None:
    def ask(number: int) -> str:
        return str(number)

    calls = [call("ask", {"number": number}) for number in range(5)]
    agent = Agent("desk", by_turn(calls, "done"), tools=[ask], interrupt_on={"ask": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        interrupted(await ref.run("go"))
        whole = await ref.history(limit=1000)
        assert whole.next is None
        for limit in (1, 2, 3, 7):
            assert await pages(ref, limit) == list(whole.entries)


class Counts(MemoryStore):
    """Counts the records that are read, and brings never all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []
        self.read = 0

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        assert after, "all of them are read"
        return await super().load(agent_id, after)

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        self.limits.append(limit)
        found = await super().load_part(agent_id, after, limit)
        self.read += 0 if found is None else len(found.records)
        return found


async def pages(ref: AgentRef, limit: int, after: int | None = 0) -> list[HistoryEntry]:
    """All entries behind a number, page by page."""
    found: list[HistoryEntry] = []
    while after is not None:
        page = await ref.history(after=after, limit=limit)
        found += page.entries
        after = page.next
    return found


async def test_each_page_reads_its_own_records_however_many_were_before() -> None:
    store = Counts()
    agent = Agent("desk", ScriptedModel(lambda _: "done"))
    async with Runtime([agent], store=store) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        for _ in range(60):
            completed(await ref.run("go"))
        await ref.stop(block=False)
        whole = await entries(ref, limit=1_000)
        store.read = 0
        assert await pages(ref, 100) == whole
        assert store.read < 2 * whole[-1].seq
        store.read = 0
        assert await entries(ref, after=whole[-1].seq) == []
        completed(await ref.run("go"))
        await ref.stop(block=False)
        newest = await entries(ref, after=whole[-1].seq)
        assert store.read < 20
        assert newest[-2].what == "run_ended"
        assert newest == (await entries(ref, limit=1_000))[len(whole) :]


async def test_a_page_behind_another_one_is_of_the_agent_as_it_is_now(tmp_path: Path) -> None:
    agent = Agent("desk", by_turn("one", "two", "three", "four"))
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([agent], store=store) as runtime, Observer(store) as observer:
        ref = runtime.spawn(agent, "desk-1")
        await ref.run("go")
        page = await ref.history(limit=3)
        assert page.next is not None
        await ref.compact()
        await ref.run("go")
        await ref.stop(block=False)
        behind = await entries(ref, after=page.next)
        assert behind[0].what == "compacted"
        assert behind == list((await observer.history("desk-1", after=page.next)).entries)
        await runtime.delete("desk-1")
        again = runtime.spawn(agent, "desk-1")
        await again.run("go")
        await again.stop(block=False)
        behind = await entries(again, after=page.next)
        assert behind == [each for each in await entries(again) if each.seq > page.next]


async def test_pages_back_from_the_newest_read_like_one_list_and_never_all_records() -> None:
    def ask(number: int) -> str:
        return str(number)

    calls = [call("ask", {"number": number}) for number in range(5)]
    agent = Agent("desk", by_turn(calls, "done"), tools=[ask], interrupt_on={"ask": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        asked = interrupted(await ref.run("go"))
        completed(await ref.resume(asked.decide(*[approve()] * 5)))
        whole = await ref.history(limit=1000)
        for limit in (1, 2, 3, 7, 1000):
            read: list[HistoryEntry] = []
            before: int | None = 1 << 40
            while before is not None:
                page = await ref.history(before=before, limit=limit)
                assert len({entry.seq for entry in page.entries}) <= limit
                read[:0] = page.entries
                before = page.next
            assert [(e.seq, e.what) for e in read] == [(e.seq, e.what) for e in whole.entries]
        assert read == list(whole.entries)


async def test_a_page_back_reads_twice_its_records_and_no_more() -> None:
    store = Counts()
    agent = Agent("desk", by_turn("one", "two", "three", "four"))
    async with Runtime([agent], store=store) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        for _ in range(4):
            completed(await ref.run("go"))
        newest = await ref.history(before=1 << 40, limit=4)
        assert (await ref.history(before=newest.next, limit=4)).next is not None
        assert store.limits == [8, 8]
        # What began in the records before the page has its run and its duration.
        (ended,) = (entry for entry in newest.entries if entry.what == "run_ended")
        assert ended.run_id is not None
        assert ended.seconds is not None


async def test_a_page_back_of_a_compacted_agent_begins_with_its_snapshot() -> None:
    agent = Agent("desk", by_turn("one", "two"))
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        await ref.run("go")
        await ref.compact()
        await ref.run("go")
        page = await ref.history(before=1 << 40)
        assert (page.entries[0].what, page.next) == ("compacted", None)
        assert page == await ref.history()
        early = await ref.history(before=page.entries[0].seq)
        assert (early.entries, early.next) == ((), None)


async def test_a_compaction_keeps_since_when_a_run_goes_on_and_a_request_waits() -> None:
    clock = Clock()

    def pay() -> str:
        return "paid"

    agent = Agent("desk", by_turn(call("pay", {}), "done"), tools=[pay], interrupt_on={"pay": True})
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        asked = interrupted(await ref.run("go"))
        clock.seconds += 60
        await ref.compact()
        clock.seconds += 40
        completed(await ref.resume(asked.decide(approve(by="ann"))))
        found = await entries(ref)
    assert found[0].what == "compacted"
    assert of_kind(found, "decision").seconds == 100
    assert of_kind(found, "run_ended").seconds == 100


async def runs_of_sleepers(*, compacted: bool) -> tuple[str, list[HistoryEntry]]:
    """The id of the outer run, and the entries of that and of those inside it."""
    clock = SimulatedClock()
    async with Runtime([agent_of_two_sleepers()], clock=clock) as runtime:
        ref = runtime.spawn("desk", "desk-1")
        outcome = ref.run("go")
        await until_status(ref, Status.WAITING)
        if compacted:
            await soon(ref.compact())
        await soon(clock.advance(10))
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(10))
        run_id = completed(await soon(outcome)).run_id
        found = await entries(ref, limit=1_000)
    own = {"status", "compacted", "agent_created"}
    return run_id, [entry for entry in found if entry.what not in own]


@pytest.mark.parametrize("compacted", [False, True])
async def test_agents_of_one_name_that_run_at_once_are_told_apart(compacted: bool) -> None:
    run_id, found = await runs_of_sleepers(compacted=compacted)
    inner = [entry for entry in found if entry.agent_path == ("desk", "sleeper")]
    for number in range(2):
        own = [entry for entry in inner if entry.run_id == f"{run_id}.0.{number}"]
        assert [entry.what for entry in own][-1] == "run_ended"
        assert own[-1].seconds == 10 * (number + 1)
    assert {entry.run_id for entry in inner} == {f"{run_id}.0.0", f"{run_id}.0.1"}
    assert {entry.run_id for entry in found if entry not in inner} == {run_id}


async def test_what_took_how_long_is_unknown_where_the_clock_was_set_back() -> None:
    clock = Clock()

    def look() -> str:
        clock.seconds -= 3600
        return "seen"

    agent = Agent("desk", ScriptedModel([call("look"), "done"]), tools=[look])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        completed(await ref.run("go"))
        found = await entries(ref)
    assert of_kind(found, "tool_ended").seconds is None
    assert of_kind(found, "run_ended").seconds is None


async def test_what_a_nested_agent_does_has_its_path_and_its_durations() -> None:
    """J19."""
    clock = Clock()

    def look() -> str:
        clock.seconds += 2
        return "seen"

    helper = Agent("helper", ScriptedModel([call("look"), "it is red"]), tools=[look])

    async def consult(ctx: ToolContext) -> str:
        return completed(await ctx.run_agent(helper, "look")).text

    agent = Agent("desk", ScriptedModel([call("consult"), "done"]), tools=[consult])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        completed(await ref.run("go"))
        found = await entries(ref)

    inner = [entry for entry in found if entry.agent_path == ("desk", "helper")]
    assert of_kind(inner, "tool_ended").seconds == 2
    assert of_kind(inner, "run_ended").detail["text"] == "it is red"
    assert all(entry.at is not None for entry in found)


async def test_reading_a_history_activates_nothing(tmp_path: Path) -> None:
    agent = Agent("desk", ScriptedModel(["done"]))
    place = f"sqlite:///{tmp_path / 'store'}"
    async with Runtime([agent], store=place) as runtime:
        await runtime.spawn(agent, "desk-1").run("go")
    async with Runtime([agent], store=place) as runtime:
        assert await entries(runtime.get("desk-1"))
        assert runtime.status().agents == 0
        with pytest.raises(UnknownAgent):
            await runtime.get("nobody").history()


@pytest.mark.parametrize(
    "page",
    [
        {"after": -1},
        {"after": True},
        {"limit": 0},
        {"limit": 2.5},
        {"before": 0},
        {"before": "9"},
        {"before": 9, "after": 3},
    ],
)
async def test_a_page_that_cannot_be_is_refused(page: Any) -> None:
    agent = Agent("desk", ScriptedModel(["done"]))
    async with Runtime([agent]) as runtime:
        with pytest.raises(UsageError, match=next(iter(page))):
            runtime.spawn(agent, "desk-1").history(**page)


def test_records_without_times_have_entries_whose_times_are_unknown() -> None:
    """J19."""
    data = Path(__file__).parent / "data" / "v1" / "exports.json"
    exported = json.loads(data.read_text())["without_times"]
    records: list[r.Record] = [record_from_dict(record) for record in exported["records"]]

    found = list(history_of(records, "desk", first_seq=exported["first_seq"]))

    started = [entry for entry in found if entry.what == "tool_started"]
    assert started
    assert all(entry.at is None and entry.seconds is None for entry in started)
    assert json.loads(json.dumps([entry.to_dict() for entry in found]))
