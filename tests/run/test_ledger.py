"""The ledger: when a fact is reported to those who listen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from understudy import AgentState
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
