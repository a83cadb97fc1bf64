"""One feed over all agents of a store: no gap and no duplicate, whoever writes and whenever."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted
from tests.support.batches import claim, commit, record
from tests.support.left_out import LeftOut
from tests.support.loops import soon, until
from tests.support.places import NewStore
from tests.support.plain_store import PlainStore
from tests.support.postgres import Hosts, Server
from understudy import (
    Agent,
    Halt,
    Observer,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    UnderstudyError,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.actors import Feed, FeedEvent, FeedOptions
from understudy.actors.hosts import live_events
from understudy.errors import StoreBroken
from understudy.journal import DatabaseStore, IndexEntry, IndexStatus, MemoryStore, agent_journal
from understudy.journal.backend import Backend
from understudy.journal.chunks import Chunks
from understudy.journal.codec import EncodedRecord, encode
from understudy.journal.contracts import Batch, FeedRow, Owned
from understudy.journal.feed import FeedKey, FeedPage, feed_row
from understudy.journal.shared import Hint, Sent, hint_of
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.middleware import Haltable, HumanInTheLoop
from understudy.state.records import InterruptsChecked, StatusNoted
from understudy.testing import FaultyBackend


@tool
def refund(order: str) -> str:
    """Pay money back."""
    return "refunded"


def desk(**options: Any) -> Agent:
    gate = HumanInTheLoop({"refund": True}, **options)
    model = by_turn(call("refund", {"order": "17"}), "Done.")
    return Agent("desk", model, tools=[refund], middleware=[gate])


def talker() -> Agent:
    return Agent("talker", ScriptedModel(lambda _: "hello"))


async def first(feed: Feed, count: int) -> list[FeedEvent]:
    """The next events."""
    found: list[FeedEvent] = []
    async with asyncio.timeout(60):
        async for event in feed:
            found.append(event)
            if len(found) == count:
                break
    return found


def told(events: list[FeedEvent]) -> list[tuple[str, str]]:
    """Who, and what."""
    return [
        (event.agent_id, getattr(event.event, "status", None) or event.event.kind)
        for event in events
    ]


async def until_deleted(feed: Feed) -> list[FeedEvent]:
    """All events up to the first deletion."""
    found: list[FeedEvent] = []
    async with asyncio.timeout(60):
        async for event in feed:
            found.append(event)
            if event.event.kind == "agent_deleted":
                break
    return found


def kinds(events: list[FeedEvent]) -> list[str]:
    names = []
    for event in events:
        status = getattr(event.event, "status", None)
        names.append(event.event.kind if status is None else status.value)
    return names


@pytest.mark.quick
async def test_the_feed_tells_of_statuses_requests_ends_and_deletions(new_store: NewStore) -> None:
    """J31."""
    clock = SimulatedClock()
    agent = desk(remind_after=60, escalate_after={120: "ann"})
    async with Runtime([agent], store=new_store(), clock=clock, feed=True) as runtime:
        feed = runtime.events()
        await soon(feed.position())
        ref = runtime.spawn("desk", "a")
        asked = interrupted(await soon(ref.run("Go.")))
        await soon(clock.advance(150))
        completed(await soon(ref.resume(asked.decide(approve(by="bob")))))
        await soon(ref.stop(block=False))
        await soon(runtime.delete("a"))
        events = await until_deleted(feed)
    assert kinds(events) == [
        *("running", "request_made", "interrupted", "request_reminder", "request_escalated"),
        *("request_decided", "running", "run_finished", "idle", "agent_deleted"),
    ]
    assert {event.agent_id for event in events} == {"a"}
    assert {event.agent for event in events} == {"desk"}
    found = {event.event.kind: event.event for event in events}
    made, decided, ended = (
        found[kind] for kind in ("request_made", "request_decided", "run_finished")
    )
    assert made.request == asked.requests[0]  # type: ignore[union-attr]
    assert decided.request_id == made.request.id  # type: ignore[union-attr]
    assert (decided.decision, decided.by) == ("approve", "bob")  # type: ignore[union-attr]
    assert (ended.outcome, ended.text) == ("completed", "Done.")  # type: ignore[union-attr]
    assert all(isinstance(event.at, datetime) for event in events)
    seqs = [event.seq for event in events[:-1] if event.seq is not None]
    assert len(seqs) == len(events) - 1
    assert seqs == sorted(seqs)
    assert events[-1].seq is None


async def test_a_feed_goes_on_behind_any_of_its_cursors(new_store: NewStore) -> None:
    """J31: also between two events of one record, and after a restart."""
    calls = [call("refund", {"order": str(n)}) for n in range(3)]
    agents = [Agent("desk", by_turn(calls, "Done."), tools=[refund], interrupt_on={"refund": True})]
    async with Runtime(agents, store=new_store(), feed=True) as runtime:
        for id in ("a", "b"):
            await soon(runtime.spawn("desk", id).run("Go."))
            await soon(runtime.get(id).stop(block=False))
        await soon(runtime.delete("a"))
        events = await until_deleted(runtime.events(start="oldest"))
        assert kinds(events).count("request_made") == 6
    store = new_store()
    async with Runtime(agents, store=store) as runtime:
        for n, event in enumerate(events[:-1], 1):
            rest = await until_deleted(runtime.events(after=event.cursor))
            assert rest == events[n:], "nothing is missing, nothing comes twice"


async def test_what_is_in_the_feed_until_now_ends(new_store: NewStore) -> None:
    async with Runtime([talker()], store=new_store(), feed=True) as runtime:
        ref = runtime.spawn("talker", id="a1")
        assert [event async for event in runtime.events(start="oldest").until_now()] == []
        await soon(ref.run("hi"))

        async def until_now(after: str | None = None) -> list[FeedEvent]:
            feed = runtime.events(after=after, start="oldest")
            return [event async for event in feed.until_now()]

        await soon(runtime.delete("a1"))
        events = await until_deleted(runtime.events(start="oldest"))
        assert await soon(until_now()) == events
        assert await soon(until_now(events[0].cursor)) == events[1:]
        assert await soon(until_now(events[-1].cursor)) == []


async def test_a_deletion_has_the_time_of_the_clock_of_its_runtime(new_store: NewStore) -> None:
    clock = SimulatedClock()
    async with Runtime([talker()], store=new_store(), clock=clock, feed=True) as runtime:
        await soon(runtime.spawn("talker", id="a1").run("hi"))
        await soon(runtime.delete("a1"))
        events = await until_deleted(runtime.events(start="oldest"))
    assert {event.at for event in events} == {clock.now()}


async def test_a_loop_until_now_ends_behind_what_is_there_when_it_begins(
    new_store: NewStore,
) -> None:
    async with Runtime([talker()], store=new_store(), feed=True) as runtime:
        feed = runtime.events()
        await soon(feed.position())
        until_now = feed.until_now()
        for id in ("a1", "a2"):
            await soon(runtime.spawn("talker", id=id).run("hi"))
            await soon(runtime.delete(id))
            events = [event async for event in until_now]
            assert {event.agent_id for event in events} == {id}
            assert events[-1].event.kind == "agent_deleted"
            assert await asyncio.to_thread(list, until_now) == []


class TellsNothing(MemoryStore):
    """A store in which the rows of calls that a grant has decided cannot be read."""

    async def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        page = await super().read_feed(after, limit)
        if page is None:
            return None
        damaged = EncodedRecord("interrupts_checked", 1, b"{")
        rows = []
        for row in page.rows:
            told = row.record()
            is_silent = isinstance(told, InterruptsChecked) and told.decided
            rows.append(replace(row, kept=damaged) if is_silent else row)
        return replace(page, rows=rows)


@pytest.mark.slow
async def test_a_loop_until_now_goes_on_behind_rows_that_tell_nothing() -> None:
    @tool
    async def look() -> str:
        return "nothing"

    model = by_turn(*[call("look", {}) for _ in range(510)])
    gate = HumanInTheLoop({"look": True})
    agent = Agent("desk", model, tools=[look], middleware=[gate], max_runs=600)
    async with Runtime([agent], feed=True, store=TellsNothing()) as runtime:
        ref = runtime.spawn("desk", id="a1")
        asked = interrupted(await soon(ref.run("Go.")))
        completed(await soon(ref.resume(asked.decide(approve(always=True)))))
        decided = (await first(runtime.events(start="oldest"), 5))[-1]
        feed = runtime.events(after=decided.cursor).until_now()
        events = [event async for event in feed]
        again = runtime.events(after=decided.cursor).until_now()
        assert await asyncio.to_thread(list, again) == events
    assert kinds([decided, *events]) == ["running", "run_finished", "idle"]


async def test_a_feed_begins_now_and_wakes_for_what_is_written_here(new_store: NewStore) -> None:
    async with Runtime([talker()], store=new_store(), feed=True) as runtime:
        await soon(runtime.spawn("talker", "before").run("Go."))
        await soon(runtime.get("before").stop(block=False))
        feed = runtime.events()
        await soon(feed.position())
        waiting = asyncio.ensure_future(first(feed, 3))
        await asyncio.sleep(0)
        await soon(runtime.spawn("talker", "after").run("Go."))
        events = await soon(waiting)
    assert told(events)[:1] == [("after", events[0].event.status)]  # type: ignore[union-attr]
    assert {event.agent_id for event in events} == {"after"}


class ReadsSlowly(MemoryStore):
    """What follows the end of the feed can be written before a reader hears that it is the end."""

    def __init__(self) -> None:
        super().__init__()
        self.has_read = threading.Event()
        self.may_say_so = threading.Event()

    async def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        page = await super().read_feed(after, limit)
        if limit > 0:
            self.has_read.set()
            await asyncio.to_thread(self.may_say_so.wait, 60)
        return page


async def test_what_is_written_while_a_feed_is_read_wakes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.actors.reads.feed.LONGEST_WAIT", 3600.0)
    store = ReadsSlowly()
    async with Runtime([talker()], store=store, feed=True) as runtime:
        waiting = asyncio.ensure_future(first(runtime.events(), 1))
        await soon(asyncio.to_thread(store.has_read.wait, 60))
        await soon(runtime.spawn("talker", "a").run("Go."))
        store.may_say_so.set()
        events = await soon(waiting)
    assert [event.agent_id for event in events] == ["a"]


def test_a_thread_follows_the_feed_until_the_runtime_stops(new_store: NewStore) -> None:
    found: list[FeedEvent] = []
    seen = threading.Event()

    def follow(feed: Feed) -> None:
        for event in feed:
            found.append(event)
            if len(found) == 3:
                seen.set()

    with Runtime([talker()], store=new_store(), feed=True) as runtime:
        feed = runtime.events()
        feed.position().get(timeout=60)
        thread = threading.Thread(target=follow, args=(feed,))
        thread.start()
        runtime.spawn("talker", "a").run("Go.").get(timeout=60)
        assert seen.wait(timeout=60)
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert kinds(found) == ["running", "run_finished", "idle"]


async def test_a_halt_is_told_as_the_request_that_it_makes(new_store: NewStore) -> None:
    @tool
    def stop_all() -> str:
        raise Halt("no further")

    agent = Agent("a", by_turn(call("stop_all")), tools=[stop_all], middleware=[Haltable()])
    async with Runtime([agent], store=new_store(), feed=True) as runtime:
        await soon(runtime.spawn("a", "x").run("Go."))
        events = await first(runtime.events(start="oldest"), 3)
    assert kinds(events) == ["running", "request_made", "interrupted"]


async def test_a_new_message_withdraws_requests_in_the_feed(new_store: NewStore) -> None:
    async with Runtime([desk()], store=new_store(), feed=True) as runtime:
        ref = runtime.spawn("desk", "a")
        asked = interrupted(await soon(ref.run("Go.")))
        await soon(ref.run("Never mind."))
        events = await first(runtime.events(start="oldest"), 6)
    (withdrawn,) = [e.event for e in events if e.event.kind == "requests_withdrawn"]
    assert withdrawn.request_ids == (asked.requests[0].id,)


# ------------------------------------------------------------------------- retention


async def test_who_comes_too_late_is_told_of_a_gap_once(new_store: NewStore) -> None:
    """J31."""
    clock = SimulatedClock()
    options = FeedOptions(seconds=100, events=3)
    store: Any = new_store()
    async with Runtime([talker()], store=store, clock=clock, feed=options) as runtime:
        feed = runtime.events()
        position = await soon(feed.position())
        for id in "abc":
            await soon(runtime.spawn("talker", id).run("Go."))
            await soon(runtime.get(id).stop(block=False))
        await store.trim_feed(options.before(clock.now()), options.events)
        late = await first(runtime.events(after=position), 6)
        assert kinds(late) == ["gap", "run_finished", "idle", "running", "run_finished", "idle"]
        assert (late[0].agent_id, late[0].seq, late[0].at) == ("", None, None)
        again = await first(runtime.events(after=late[0].cursor), 5)
        assert again == late[1:]
        oldest = await first(runtime.events(start="oldest"), 5)
        assert oldest == again
        await soon(clock.advance(200))
        await soon(runtime.get("a").run("Again."))
        await soon(runtime.get("a").stop(block=False))
        await store.trim_feed(options.before(clock.now()), options.events)
        later = await first(runtime.events(after=oldest[-1].cursor), 3)
        assert kinds(later) == ["running", "run_finished", "idle"]
        later = await first(runtime.events(after=oldest[0].cursor), 4)
        assert kinds(later) == ["gap", "running", "run_finished", "idle"]


async def test_a_sweep_removes_what_the_feed_need_not_keep(new_store: NewStore) -> None:
    options = FeedOptions(events=2)
    async with Runtime([talker()], store=new_store(), feed=options, sweep=0.02) as runtime:
        position = await soon(runtime.events().position())
        for id in "abc":
            await soon(runtime.spawn("talker", id).run("Go."))
        while True:
            (event,) = await first(runtime.events(after=position), 1)
            if event.event.kind == "gap":
                break


async def test_a_feed_that_is_off_writes_nothing_and_says_so(tmp_path: Path) -> None:
    """J31: so nobody notices that its table is gone."""
    backend = SqliteBackend(str(tmp_path / "store.db"), durability="off", host="here")
    async with Runtime([desk()], store=DatabaseStore(backend)) as runtime:
        with closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
            other.execute("DROP TABLE feed")
        asked = interrupted(await soon(runtime.spawn("desk", "a").run("Go.")))
        completed(await soon(runtime.get("a").resume(asked.decide(approve()))))
        assert await soon(runtime.delete("a"))


async def test_a_feed_that_is_turned_off_and_on_again_is_another_one(new_store: NewStore) -> None:
    async with Runtime([talker()], store=new_store(), feed=True) as runtime:
        await soon(runtime.spawn("talker", "a").run("Go."))
        (event,) = await first(runtime.events(start="oldest"), 1)
    async with Runtime([talker()], store=new_store(), feed=False) as runtime:
        with pytest.raises(UsageError, match=r"Runtime\(feed=True\)"):
            await first(runtime.events(), 1)
    async with Runtime([talker()], store=new_store(), feed=True) as runtime:
        await soon(runtime.spawn("talker", "a").run("Again."))
        events = await first(runtime.events(after=event.cursor), 2)
        assert kinds(events) == ["gap", "running"]


async def test_a_cursor_from_behind_an_older_copy_of_the_file_gets_a_gap(tmp_path: Path) -> None:
    """J31: its number is given again, to what happens after the copy."""
    file, kept = tmp_path / "store.db", tmp_path / "kept.db"

    async def played(*ids: str, after: str | None = None) -> list[FeedEvent]:
        async with Runtime([talker()], store=f"sqlite:///{file}", feed=True) as runtime:
            for id in ids:
                completed(await soon(runtime.spawn("talker", id).run("Go.")))
        async with Runtime([talker()], store=f"sqlite:///{file}", feed=True) as runtime:
            feed = runtime.events(after=after, start="oldest")
            return [event async for event in feed.until_now()]

    await played("before")
    shutil.copy(file, kept)
    *_, last = await played("lost", "lost, too")
    shutil.copy(kept, file)
    found = await played("new", after=last.cursor)
    assert kinds(found)[0] == "gap"
    assert [event.agent_id for event in found if event.event.kind == "run_finished"] == [
        "before",
        "new",
    ]
    assert await played(after=found[-1].cursor) == []


def forget_watermark(file: Path) -> None:
    file.with_name(f"{file.name}.lock").unlink()


async def test_a_copy_of_the_file_without_its_watermark_gets_a_gap_too(tmp_path: Path) -> None:
    """J31: nobody can know that it is older, but what the cursor is of is not in it."""
    file, kept = tmp_path / "store.db", tmp_path / "kept.db"

    async def played(*ids: str, after: str | None = None) -> list[FeedEvent]:
        async with Runtime([talker()], store=f"sqlite:///{file}", feed=True) as runtime:
            for id in ids:
                completed(await soon(runtime.spawn("talker", id).run("Go.")))
                await soon(runtime.get(id).stop(block=False))
            feed = runtime.events(after=after, start="oldest")
            return [event async for event in feed.until_now()]

    await played("before")
    shutil.copy(file, kept)
    lost = await played("lost", "lost, too")
    shutil.copy(kept, file)
    forget_watermark(file)
    kept_ones = [event for event in lost if event.agent_id == "before"]
    for event in lost[len(kept_ones) :]:
        found = await played("new", after=event.cursor)
        assert kinds(found)[:4] == ["gap", *kinds(kept_ones)]
        assert {each.agent_id for each in found} == {"", "before", "new"}
    found = await played(after=kept_ones[-1].cursor)
    assert {each.agent_id for each in found} == {"new"}, "what is there still is no gap"


@pytest.mark.faults
async def test_a_cursor_from_behind_a_restored_copy_of_a_server_gets_a_gap() -> None:
    """J31: so does a feed that was being followed. A standby that lags and takes over is alike."""
    server = Server()
    hosts = Hosts(server.url)
    try:
        await restored(server, hosts)
        hosts.close()
    finally:
        server.remove()


async def restored(server: Server, hosts: Hosts) -> None:
    async def play(runtime: Runtime, *ids: str) -> None:
        for id in ids:
            completed(await soon(runtime.spawn("talker", id).run("Go.")))
            await soon(runtime.get(id).stop(block=False))

    async with Runtime([talker()], store=DatabaseStore(hosts.new()), feed=True) as runtime:
        await play(runtime, "before")
        kept = await first(runtime.events(start="oldest"), 3)
    copy = server.copy()
    async with (
        Runtime([talker()], store=DatabaseStore(hosts.new()), feed=True) as runtime,
        Observer(DatabaseStore(hosts.new("looks"))) as observer,
    ):
        followed = observer.events(after=kept[-1].cursor)
        await play(runtime, "lost", "lost, too", "lost at last")
        lost = await first(followed, 9)
        position = await soon(runtime.events().position())
    async with Observer(DatabaseStore(hosts.new("looks"))) as observer:
        followed = observer.events(after=lost[-1].cursor)
        await soon(followed.position())
        server.restore(copy)
        async with Runtime([talker()], store=DatabaseStore(hosts.new()), feed=True) as runtime:
            for n, cursor in enumerate([event.cursor for event in lost] + [position]):
                await play(runtime, f"new{n}")
                found = await first(runtime.events(after=cursor), 4 + 3 * (n + 1))
                assert kinds(found)[:4] == ["gap", *kinds(kept)]
                ids = {event.agent_id for event in found}
                assert ids == {"", "before", *(f"new{each}" for each in range(n + 1))}
            found = await first(runtime.events(after=kept[-1].cursor), 3)
            assert {event.agent_id for event in found} == {"new0"}, "nothing before it is lost"
        assert kinds(await first(followed, 4)) == ["gap", *kinds(kept)]


# ----------------------------------------------------------------------- crash, hosts


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 12))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_after_a_crash_at_any_commit_the_feed_tells_what_is_recorded(
    tmp_path: Path, at: int, after: bool
) -> None:
    """J31: the rows are in the transactions of their records."""
    path = str(tmp_path / "store.db")
    backend = FaultyBackend(SqliteBackend(path, durability="off", host="here"))
    with suppress(UnderstudyError):
        async with Runtime([desk()], store=DatabaseStore(backend), feed=True) as runtime:
            backend.fail(
                "commit",
                at=at,
                times=10**6,
                after=after,
                fault=lambda: StoreBroken(cause="cut off", remedy="none", is_final=True),
            )
            ref = runtime.spawn("desk", "a")
            asked = interrupted(await soon(ref.run("Go.")))
            completed(await soon(ref.resume(asked.decide(approve()))))
            await soon(ref.stop(block=False))
    store = DatabaseStore(SqliteBackend(path, durability="off", host="here"))
    await store.open(lambda: None)
    loaded = await store.load("a")
    page = await store.read_feed((0, 0), 100)
    await store.close()
    records = () if loaded is None else loaded.records
    rows = (feed_row("desk", n, r, encode(r)) for n, r in enumerate(records, 1))
    wanted = [row.seq for row in rows if row is not None]
    assert page is not None
    assert [row.seq for row in page.rows] == wanted


@pytest.mark.slow
async def test_a_decision_that_the_feed_leaves_out_is_noticed(
    left_out: LeftOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J31."""

    def row(agent: str, seq: int, record: Any, encoded: Any) -> Any:
        return None if record.kind == "decided" else feed_row(agent, seq, record, encoded)

    await left_out(
        lambda: monkeypatch.setattr(agent_journal, "feed_row", row),
        lambda folder: test_after_a_crash_at_any_commit_the_feed_tells_what_is_recorded(
            folder, 13, True
        ),
    )


def status(backend: Backend, owned: Owned, first_seq: int) -> Batch:
    """A batch whose one record the feed tells."""
    noted = StatusNoted(status="running")
    row = feed_row("support", first_seq, noted, encode(noted))
    assert isinstance(row, FeedRow)
    return Batch(
        agent_id=owned.agent_id,
        incarnation=owned.incarnation,
        epoch=owned.epoch,
        first_seq=first_seq,
        records=(record("x"),),
        entry=IndexEntry(IndexStatus.OPEN),
        feed=(row,),
    )


def read_on(backend: Backend, key: FeedKey) -> tuple[list[tuple[str, int | None]], FeedKey]:
    page = backend.read_feed(key, 1000)
    assert page is not None
    last = page.rows[-1].key if page.rows else key
    return [(row.agent_id, row.seq) for row in page.rows], last


@pytest.mark.quick
def test_commits_out_of_order_leave_no_gap_and_no_duplicate(hosts: Hosts) -> None:
    """J31: the transaction that began first, and got the first number, is committed last."""
    slow, fast, reader = (hosts.open(name) for name in ("slow", "fast", "reader"))
    with commit(slow):
        slow.turn_feed(True)
    a, b = claim(slow, "a"), claim(fast, "b")
    begun = reader.read_feed(None, 0)
    assert begun is not None
    slow.begin()
    slow.append(status(slow, a, 1))
    for seq in (1, 2):
        with commit(fast):
            fast.append(status(fast, b, seq))
    early, place = read_on(reader, begun.end)
    assert early == [], "what is committed later would come before them"
    slow.append(status(slow, a, 2))
    slow.commit()
    with commit(fast):
        fast.append(status(fast, b, 3))
    found, place = read_on(reader, place)
    assert found == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)]
    assert read_on(reader, place) == ([], place)


def test_a_feed_that_is_turned_on_once_more_loses_nothing_of_who_writes_meanwhile(
    hosts: Hosts,
) -> None:
    """J31: a row of a later transaction is not one of another server."""
    slow, fast, reader = (hosts.open(name) for name in ("slow", "fast", "reader"))
    with commit(slow):
        slow.turn_feed(True)
    begun = reader.read_feed(None, 0)
    assert begun is not None
    b = claim(fast, "b")
    with commit(slow):
        slow.claim("a", "support")  # its transaction has its number
        with commit(fast):
            fast.append(status(fast, b, 1))
        slow.turn_feed(True)
    found, _ = read_on(reader, begun.end)
    assert found == [("b", 1)]
    now = reader.read_feed(None, 0)
    assert now is not None
    assert now.feed == begun.feed


async def test_a_feed_from_a_dump_of_a_server_that_had_got_further_begins_anew(
    hosts: Hosts,
) -> None:
    """J31: what it kept comes before all that happens now, and what was removed does not."""
    async with Runtime([talker()], store=DatabaseStore(hosts.new()), feed=True) as runtime:
        await soon(runtime.spawn("talker", "a").run("Go."))
        await soon(runtime.get("a").stop(block=False))
        (*_, last) = await first(runtime.events(start="oldest"), 3)
    hosts.sql("UPDATE feed SET xid = xid + 1000000")
    hosts.sql("UPDATE feed_state SET floor_xid = 900000, floor = 1")
    async with Runtime([talker()], store=DatabaseStore(hosts.new()), feed=True) as runtime:
        await soon(runtime.events().position())
        await soon(runtime.get("a").run("Again."))
        found = await first(runtime.events(after=last.cursor), 4)
    assert kinds(found) == ["gap", "running", "run_finished", "idle"]


@pytest.mark.slow
def test_many_writers_and_a_reader_at_once_leave_no_gap_and_no_duplicate(hosts: Hosts) -> None:
    """J31."""
    writers = [hosts.open(f"w{n}") for n in range(3)]
    reader = hosts.open("reader")
    with commit(writers[0]):
        writers[0].turn_feed(True)
    begun = reader.read_feed(None, 0)
    assert begun is not None

    def write(backend: Any, name: str) -> None:
        owned = [claim(backend, f"{name}{n}") for n in range(3)]
        for seq in range(1, 60):
            backend.begin()
            for each in owned:
                backend.append(status(backend, each, seq))
            (backend.rollback if seq % 10 == 9 else backend.commit)()
            if seq % 10 == 9:
                with commit(backend):
                    for each in owned:
                        backend.append(status(backend, each, seq))

    threads = [
        threading.Thread(target=write, args=(backend, f"w{n}-"))
        for n, backend in enumerate(writers)
    ]
    for thread in threads:
        thread.start()
    found: list[tuple[str, int | None]] = []
    place = begun.end
    while any(thread.is_alive() for thread in threads):
        rows, place = read_on(reader, place)
        found += rows
    rows, _ = read_on(reader, place)
    found += rows
    assert len(found) == len(set(found)) == 3 * 3 * 59
    for agent_id in {agent_id for agent_id, _ in found}:
        assert [seq for each, seq in found if each == agent_id] == list(range(1, 60))


@pytest.mark.postgres
async def test_two_hosts_see_one_feed(hosts: Hosts) -> None:
    """J31."""
    stores = [DatabaseStore(hosts.new(name)) for name in ("first", "second")]
    async with (
        Runtime([talker()], store=stores[0], feed=True) as one,
        Runtime([talker()], store=stores[1]) as two,
    ):
        feeds = [runtime.events() for runtime in (one, two)]
        for feed in feeds:
            await soon(feed.position())
        for n, runtime in enumerate((one, two, one, two)):
            await soon(runtime.spawn("talker", f"{n}").run("Go."))
            await soon(runtime.get(f"{n}").stop(block=False))
        seen = [await first(feed, 12) for feed in feeds]
    assert seen[0] == seen[1]
    assert {event.agent_id for event in seen[0]} == set("0123")


# ------------------------------------------------------------------ hints of other hosts


@pytest.fixture
def never_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes from another host comes by a hint."""
    monkeypatch.setattr("understudy.actors.reads.feed.POLL", 3600.0)


def sent_by(store: DatabaseStore) -> list[tuple[float, Hint]]:
    """What a host sends to others, in no commit, and when."""
    found: list[tuple[float, Hint]] = []
    shared: Any = store.shared
    send = shared.send

    async def noted(sent: list[Sent]) -> None:
        now = asyncio.get_running_loop().time()
        found.extend((now, hint) for each in sent if (hint := hint_of(each.text)) is not None)
        await send(sent)

    shared.send = noted
    return found


def two_stores(hosts: Hosts) -> tuple[DatabaseStore, DatabaseStore]:
    first, second = (DatabaseStore(hosts.new(name)) for name in ("first", "second"))
    return first, second


@pytest.mark.usefixtures("never_polls")
@pytest.mark.quick
async def test_what_another_host_commits_is_told_of(hosts: Hosts) -> None:
    """J31."""
    stores = two_stores(hosts)
    async with (
        Runtime([talker()], store=stores[0], feed=True) as one,
        Runtime([talker()], store=stores[1]) as two,
    ):
        feed = two.events()
        await soon(feed.position())
        for _ in range(3):
            await soon(one.spawn("talker", "a").run("Go."))
            assert kinds(await first(feed, 3)) == ["running", "run_finished", "idle"]
        await soon(one.delete("a"))
        assert kinds(await first(feed, 1)) == ["agent_deleted"]


@pytest.mark.usefixtures("never_polls")
async def test_what_happens_before_a_host_hears_that_the_feed_is_followed_is_told_of(
    hosts: Hosts,
) -> None:
    """J31."""
    stores = two_stores(hosts)
    shared: Any = stores[1].shared
    send, follows, may_say_so = shared.send, asyncio.Event(), asyncio.Event()

    async def late(sent: list[Sent]) -> None:
        follows.set()
        await may_say_so.wait()
        await send(sent)

    shared.send = late
    async with (
        Runtime([talker()], store=stores[0], feed=True) as one,
        Runtime([talker()], store=stores[1]) as two,
    ):
        waiting = asyncio.ensure_future(first(two.events(), 3))
        await soon(follows.wait())
        await soon(one.spawn("talker", "a").run("Go."))
        await soon(one.get("a").stop(block=False))
        may_say_so.set()
        assert kinds(await soon(waiting)) == ["running", "run_finished", "idle"]


async def test_nothing_is_sent_where_nobody_follows_the_feed_elsewhere(hosts: Hosts) -> None:
    """J31."""
    stores = two_stores(hosts)
    sent = [sent_by(store) for store in stores]
    async with (
        Runtime([talker()], store=stores[0], feed=True) as one,
        Runtime([talker()], store=stores[1]) as two,
    ):
        await soon(two.spawn("talker", "a").run("Go."))
        await soon(two.get("a").stop(block=False))
        assert sent == [[], []]
        feed = one.events()
        await soon(feed.position())
        await soon(one.spawn("talker", "b").run("Go."))
        await soon(one.get("b").stop(block=False))
        await soon(one.delete("b"))
        assert {event.agent_id for event in await until_deleted(feed)} >= {"b"}
    assert sent[1] == []
    assert {hint.kind for _, hint in sent[0]} <= {"follow_feed"}


@pytest.mark.slow
@pytest.mark.usefixtures("never_polls")
async def test_hosts_with_much_to_tell_are_asked_to_tell_it_less_often(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J31."""
    monkeypatch.setattr(live_events, "PAUSE", 0.01)
    monkeypatch.setattr(live_events, "RENEWAL", 0.1)
    monkeypatch.setattr(live_events, "MOST_HINTS", 0.001)
    stores = two_stores(hosts)
    sent = [sent_by(store) for store in stores]
    async with (
        Runtime([talker()], store=stores[0], feed=True) as one,
        Runtime([talker()], store=stores[1]) as two,
    ):

        async def follow() -> None:
            async for _ in two.events():
                pass

        def wanted() -> list[float]:
            chunks = Chunks()
            return [chunks.add(hint) for _, hint in sent[1]]

        def last_pause() -> float:
            told_at = [at for at, _ in sent[0]][-3:]
            return min((later - earlier for earlier, later in pairwise(told_at)), default=0)

        following = asyncio.ensure_future(follow())
        async with asyncio.timeout(60):
            while 0.1 not in wanted() or last_pause() < 0.099:
                await one.spawn("talker", "a").run("Go.")
        following.cancel()
    assert wanted()[0] == 0.01


async def test_only_commits_that_the_feed_tells_are_told_of(new_store: NewStore) -> None:
    """J31: a step that tells nothing wakes nobody, and no host hears of it."""

    @tool
    async def look() -> str:
        return "nothing"

    agent = Agent("desk", by_turn(*[call("look")] * 20, "Done."), tools=[look])
    store: Any = new_store()
    if isinstance(store, MemoryStore):
        pytest.skip("it has no commits")
    async with Runtime([agent], store=store, feed=True) as runtime:
        completed(await soon(runtime.spawn("desk", "a").run("Go.")))
        events = await first(runtime.events(start="oldest"), 3)
        assert kinds(events) == ["running", "run_finished", "idle"]
        assert store.feed_hint.count <= 3


@pytest.mark.usefixtures("never_polls")
async def test_what_an_open_transaction_holds_up_comes_soon_after_its_end(hosts: Hosts) -> None:
    """J31: its end is told by nobody."""
    store, slow, fast = DatabaseStore(hosts.new("here")), hosts.open("slow"), hosts.open("fast")
    read, held_up = store.read_feed, list[bool]()

    async def noted(after: FeedKey | None, limit: int) -> FeedPage | None:
        page = await read(after, limit)
        assert page is not None
        held_up.append(page.is_held_up)
        return page

    store.read_feed = noted  # type: ignore[misc, method-assign]  # it tells what it has read
    async with Runtime([talker()], store=store, feed=True) as runtime:
        a, b = claim(slow, "a"), claim(fast, "b")
        waiting = asyncio.ensure_future(first(runtime.events(), 1))
        await until(lambda: store.feed_hint.is_awaited)
        slow.begin()
        slow.append(status(slow, a, 1))
        with commit(fast):
            fast.append(status(fast, b, 1))
        store.feed_hint.give()
        await until(lambda: held_up[-2:] == [True, True] and store.feed_hint.is_awaited)
        assert not waiting.done()
        slow.rollback()
        (event,) = await soon(waiting)
        assert event.agent_id == "b"


async def test_a_host_that_hears_no_other_follows_the_feed_by_looks(hosts: Hosts) -> None:
    """J31."""
    stores = two_stores(hosts)
    sent = [sent_by(store) for store in stores]
    async with (
        Runtime([talker()], store=stores[0], feed=True) as one,
        Runtime([talker()], store=stores[1], any_host=False) as two,
    ):
        feed = two.events()
        await soon(feed.position())
        await soon(one.spawn("talker", "a").run("Go."))
        assert kinds(await first(feed, 3)) == ["running", "run_finished", "idle"]
    assert sent == [[], []]


async def test_an_observer_follows_the_feed(new_store: NewStore) -> None:
    store = new_store()
    if isinstance(store, MemoryStore):
        pytest.skip("no other process can have it")
    other: Any = new_store()
    async with Runtime([talker()], store=store, feed=True) as runtime, Observer(other) as observer:
        feed = observer.events()
        await soon(feed.position())
        await soon(runtime.spawn("talker", "a").run("Go."))
        assert kinds(await first(feed, 3)) == ["running", "run_finished", "idle"]


# -------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Runtime(feed=5), "`feed`"),  # type: ignore[call-overload]
        (lambda: Runtime(feed="on"), "`feed`"),  # type: ignore[call-overload]
        (lambda: FeedOptions(seconds=0), "seconds"),
        (lambda: FeedOptions(seconds=float("nan")), "seconds"),
        (lambda: FeedOptions(events=0), "events"),
        (lambda: FeedOptions(events=True), "events"),
        (lambda: FeedOptions(events=1.5), "events"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_of_a_feed_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()


async def test_wrong_arguments_of_events_are_refused_at_once() -> None:
    async with Runtime([talker()], feed=True) as runtime:
        await soon(runtime.spawn("talker", "a").run("Go."))
        await soon(runtime.spawn("talker", "b").run("Go."))
        foreign = (await soon(runtime.agents(limit=1))).after
        for arguments in ({"after": foreign}, {"after": "x"}, {"after": 5}, {"start": "later"}):
            with pytest.raises(UsageError, match=r"`after`|`start`"):
                runtime.events(**arguments)


def test_a_store_without_a_feed_is_refused() -> None:
    with pytest.raises(UsageError, match="keeps no feed"):
        Runtime(store=PlainStore(), feed=True)


def test_options_reach_back_as_far_as_time_does() -> None:
    now = SimulatedClock().now()
    assert FeedOptions(seconds=10).before(now) == now - timedelta(seconds=10)
    assert FeedOptions(seconds=1e12).before(now) < now - timedelta(days=1000)


async def test_who_begins_another_loop_over_a_feed_goes_on_behind_the_last_event(
    new_store: NewStore,
) -> None:
    """J31: nothing comes twice."""
    async with Runtime([desk()], store=new_store(), feed=True) as runtime:
        feed = runtime.events()
        await soon(feed.position())
        await soon(runtime.spawn("desk", "a").run("Go."))
        await soon(runtime.get("a").state())
        found = [event for _ in range(3) for event in await first(feed, 1)]
    assert len({event.cursor for event in found}) == 3
