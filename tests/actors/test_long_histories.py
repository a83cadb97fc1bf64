"""Long histories are read, folded and written in parts: what happens between two of them (A13)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pytest

from tests.support.agents import by_turn
from tests.support.loops import soon
from tests.support.places import SqlitePlace
from understudy import Agent, AgentRef, Interrupted, Runtime, Stopped, call, tool
from understudy.actors.agent.events import EventLog, OnEventsRead, StoredEvents, agent_events_of
from understudy.display import Display
from understudy.errors import UnknownAgent
from understudy.events import TextDelta
from understudy.journal import Loaded, MemoryStore, Store
from understudy.journal.parts import PART
from understudy.journal.snapshots import parts_of, snapshot_of
from understudy.state import records as r
from understudy.state.fold import replay

STEPS = 200
"""Steps of a run: more records than are read at once, and more messages than are one piece."""


@tool
async def note(what: str) -> str:
    return f"noted {what}"


@tool
async def pay(amount: int) -> str:
    return f"paid {amount}"


def desk(*last: Any) -> Agent:
    turns = [call("note", {"what": f"thing {number}"}) for number in range(STEPS)]
    model = by_turn(*turns, *(last or ("done",)))
    return Agent("desk", model, tools=[note, pay], interrupt_on={"pay": True}, max_runs=10 * STEPS)


class Between(MemoryStore):
    """Does something once between two parts that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.once: Callable[[], Awaitable[object]] | None = None
        self.parts = 0

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        once, self.parts = self.once, self.parts + 1
        if after and once is not None:
            self.once = None
            await once()
        return await super().load_part(agent_id, after, limit)


async def long(runtime: Runtime, *last: Any) -> AgentRef:
    ref = runtime.spawn("desk", id="a")
    await soon(ref.run("go"))
    return ref


async def made_anew(runtime: Runtime) -> None:
    await runtime.delete("a")
    await long(runtime)


def texts(update: Any) -> list[str]:
    return [row.text for row in update.rows]


async def test_a_long_history_is_read_in_parts_and_is_the_same() -> None:
    store = Between()
    async with Runtime([desk()], store=store) as runtime:
        ref = await long(runtime)
        loaded = await store.load("a")
        assert loaded is not None
        assert len(loaded.records) > PART
        whole = Display("desk")
        for seq, record in enumerate(loaded.records, loaded.first_seq):
            whole.record(seq, record)
        store.parts = 0
        assert await soon(ref.display()) == whole.update()
        assert store.parts > 1
        exported = await soon(runtime.export("a"))
        assert exported["records"] == [r.record_to_dict(record) for record in loaded.records]


@pytest.mark.parametrize("asked", ["display", "export"])
async def test_what_is_compacted_while_it_is_read_in_parts_is_read_anew(asked: str) -> None:
    """A13."""
    store = Between()
    async with Runtime([desk()], store=store) as runtime:
        ref = await long(runtime)
        before = texts(await soon(ref.display()))
        store.once = ref.compact
        if asked == "export":
            exported = await soon(runtime.export("a"))
            assert exported["first_seq"] > PART
            assert exported["records"][0]["kind"] == "snapshot"
        else:
            assert texts(await soon(ref.display())) == before
        assert store.once is None


@pytest.mark.parametrize("asked", ["display", "export"])
async def test_an_agent_that_is_made_anew_while_it_is_read_in_parts_is_read_anew(
    asked: str,
) -> None:
    store = Between()
    async with Runtime([desk()], store=store) as runtime:
        ref = await long(runtime)
        store.once = partial(made_anew, runtime)
        if asked == "export":
            assert (await soon(runtime.export("a")))["incarnation"] == 2
        else:
            assert texts(await soon(ref.display())).count("done") == 1
        assert store.once is None


async def test_an_agent_that_is_deleted_while_it_is_read_in_parts_is_unknown() -> None:
    store = Between()
    async with Runtime([desk()], store=store) as runtime:
        ref = await long(runtime)
        store.once = lambda: runtime.delete("a")
        with pytest.raises(UnknownAgent):
            await soon(ref.display())


async def test_records_that_come_while_the_past_is_read_come_behind_it_once() -> None:
    store = Between()
    async with Runtime([desk()], store=store) as runtime:
        ref = await long(runtime)
        store.once = lambda: ref.run("again")
        events, seen = ref.events(), list[tuple[int, int]]()

        async def read() -> None:
            async for event in events:
                if event.seq is not None:
                    seen.append((event.seq, event.part))
                if len(seen) > 1 and seen[-1][0] >= last:
                    return

        last = (await soon(ref.info())).last_seq + 3
        await soon(read())
        events.close()
        assert store.once is None
        assert [seq for seq, _ in seen] == sorted(seq for seq, _ in seen)
        assert len(seen) == len(set(seen))


async def test_who_reads_the_past_of_an_agent_that_is_made_anew_gets_none_of_the_new() -> None:
    store = Between()
    async with Runtime([desk()], store=store) as runtime:
        ref = await long(runtime)
        store.once = partial(made_anew, runtime)
        events = ref.events()
        seen = [event.seq async for event in events]  # it ends with the agent
        assert store.once is None
        assert max(seq or 0 for seq in seen) <= PART


LIVE = TextDelta(agent_path=("desk",), run_id="r", turn=1, attempt=1, part=0, n=0, text="live")


class Reads:
    """What a subscription reads of a store, answered by the test."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._reads: list[OnEventsRead] = []

    def read(self, after: int, on_read: OnEventsRead) -> None:
        self.asked.append(after)
        self._reads.append(on_read)

    def answer(self, first: int, last: int, *, more: bool = False) -> None:
        """The records from `first` to `last` are stored."""
        found = [
            event
            for seq in range(first, last + 1)
            for event in agent_events_of(seq, r.StatusNoted(status="idle"), "a", ("desk",))
        ]
        self._reads.pop(0)(StoredEvents(found, last, 1, more=more))


async def test_live_text_stays_behind_a_past_that_is_read_in_parts() -> None:
    log, reads = EventLog("a", threading.Lock()), Reads()
    events = log.subscribe(0, reads.read, loop=asyncio.get_running_loop())
    log.emit(LIVE)
    reads.answer(1, 2, more=True)
    reads.answer(3, 4, more=True)
    log.emit_record(6, r.StatusNoted(status="running"), ("desk",))
    reads.answer(5, 6)
    events.close()
    assert reads.asked == [0, 2, 4]
    assert [event.seq async for event in events] == [1, 2, 3, 4, 5, None, 6]


async def test_live_text_stays_behind_a_record_that_is_stored_during_a_read() -> None:
    """J35: a read that began before has not seen it, and what it lacks is no gap of the store."""
    log, reads = EventLog("a", threading.Lock()), Reads()
    events = log.subscribe(0, reads.read, loop=asyncio.get_running_loop())
    reads.answer(1, 2)
    log.catch_up(3)
    log.emit(LIVE, 4)
    reads.answer(3, 2)  # the store had nothing new yet
    reads.answer(3, 4)
    events.close()
    assert reads.asked == [0, 2, 2]
    assert [event.seq async for event in events] == [1, 2, 3, 4, None]


async def test_live_text_behind_a_record_that_the_store_lacks_is_told() -> None:
    log, reads = EventLog("a", threading.Lock()), Reads()
    events = log.subscribe(0, reads.read, loop=asyncio.get_running_loop())
    reads.answer(1, 2)
    log.emit(LIVE, 4)
    reads.answer(3, 2)
    events.close()
    assert reads.asked == [0, 2]
    assert [event.seq async for event in events] == [1, 2, None]


async def test_others_have_their_turn_while_a_long_history_is_read(sqlite: SqlitePlace) -> None:
    async with Runtime([desk()], store=sqlite.store()) as runtime:
        ref = await long(runtime)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "display": ref.display,
            "export": lambda: runtime.export("a"),
            "compact": ref.compact,
        }
        for name, asked in calls.items():
            going, rounds = asyncio.ensure_future(asked()), 0
            while not going.done():
                await asyncio.sleep(0)
                rounds += 1
            assert rounds >= 2 * STEPS // 100, name


async def test_a_cancel_while_a_long_conversation_is_read_ends_the_run(
    sqlite: SqlitePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A13."""
    from understudy.models.messages import Messages

    reading = asyncio.Event()
    whole = Messages.reading

    def reads(messages: Messages) -> Any:
        reading.set()
        yield from whole(messages)

    store: Store = sqlite.store()
    async with Runtime([desk()], store=store, idle_timeout=None) as runtime:
        await long(runtime)
    async with Runtime([desk()], store=sqlite.store(), idle_timeout=None) as runtime:
        ref = runtime.get("a")
        monkeypatch.setattr(Messages, "reading", reads)
        run = ref.run("again")
        await soon(reading.wait())
        await soon(ref.cancel())
        outcome = await soon(run)
        assert isinstance(outcome, Stopped)
        assert len(outcome.state.messages) >= 2 * STEPS


async def test_a_snapshot_of_a_long_conversation_is_in_records_of_so_many_messages(
    sqlite: SqlitePlace,
) -> None:
    store = sqlite.store()
    async with Runtime([desk(call("pay", {"amount": 5}))], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        assert isinstance(await soon(ref.run("go")), Interrupted)
        before = await soon(ref.state())
        await soon(ref.compact())
        loaded = await store.load("a")
        assert loaded is not None
        first, *parts = loaded.records
        assert isinstance(first, r.Snapshot)
        assert (first.following, first.state["messages"]) == (len(before.messages), [])
        counts = [len(each.messages) for each in parts if isinstance(each, r.SnapshotMessages)]
        assert len(counts) == len(parts) > 2
        assert max(counts) <= 100
        assert loaded.folded() == before
        assert replay(loaded.records) == before


async def test_a_snapshot_in_several_records_has_the_rows_of_one() -> None:
    async with Runtime([desk(call("pay", {"amount": 5}))]) as runtime:
        ref = runtime.spawn("desk", id="a")
        state = (await soon(ref.run("go"))).state
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    whole, parted = Display("desk"), Display("desk")
    whole.record(1, r.Snapshot(state=state.to_dict(), at=at))
    records: list[r.Record] = [snapshot_of(state, at=at, by=None), *parts_of(state.messages, at)]
    for seq, record in enumerate(records, 1):
        parted.record(seq, record)
    shown = [(row.id, row.kind, row.state, row.text, row.detail) for row in whole.rows]
    assert [(row.id, row.kind, row.state, row.text, row.detail) for row in parted.rows] == shown
    assert any(row.kind == "request" for row in parted.rows)
