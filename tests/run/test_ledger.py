"""The ledger: when a fact is reported to those who listen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from understudy import AgentState
from understudy.events import TextDelta
from understudy.run.ledger import Ledger
from understudy.state.records import Record, ValuesMerged


class SlowJournal:
    """Makes durable, when it is let, what was appended until it was asked to."""

    def __init__(self) -> None:
        self.appended = self.flushed = 0
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    def append(self, records: Sequence[Record]) -> None:
        self.appended += len(records)

    @property
    def has_unflushed(self) -> bool:
        return self.flushed < self.appended

    async def durable(self) -> None:
        until = self.appended
        self.asked.set()
        await self.may.wait()
        self.flushed = until


async def test_a_fact_recorded_while_others_become_durable_is_not_reported_with_them() -> None:
    journal, reported = SlowJournal(), list[int]()
    ledger = Ledger(AgentState(), journal, on_fact=lambda number, record: reported.append(number))
    ledger.record(ValuesMerged(delta={"a": 1}, source="test"))
    flushing = asyncio.ensure_future(ledger.durable())
    await journal.asked.wait()
    ledger.record(ValuesMerged(delta={"b": 2}, source="test"))
    journal.may.set()
    await flushing
    assert reported == [1]
    assert journal.has_unflushed
    await ledger.durable()
    assert reported == [1, 2]


async def test_an_event_without_a_record_waits_for_the_records_before_it() -> None:
    journal, heard = SlowJournal(), list[object]()

    def delta(n: int) -> TextDelta:
        return TextDelta(agent_path=("a",), turn=0, attempt=1, n=n, text="x")

    ledger = Ledger(
        AgentState(),
        journal,
        listener=heard.append,
        on_fact=lambda number, record: heard.append(number),
    )
    ledger.emit(delta(0))
    assert heard == [delta(0)]
    ledger.record(ValuesMerged(delta={"a": 1}, source="test"))
    flushing = asyncio.ensure_future(ledger.durable())
    await journal.asked.wait()
    await asyncio.to_thread(ledger.emit, delta(1))
    ledger.record(ValuesMerged(delta={"b": 2}, source="test"))
    ledger.emit(delta(2))
    assert heard == [delta(0)]
    journal.may.set()
    await flushing
    assert heard == [delta(0), 1, delta(1)]
    await ledger.durable()
    assert heard == [delta(0), 1, delta(1), 2, delta(2)]
