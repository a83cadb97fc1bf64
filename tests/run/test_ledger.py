"""The ledger: when a fact is reported to those who listen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.loops import soon
from understudy import Agent, AgentState, ScriptedModel, ToolContext, call, tool
from understudy.errors import Fenced, JournalFailed, RecordRefused
from understudy.events import Event, TextDelta
from understudy.journal import MemoryJournal
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


class FailsOnce(MemoryJournal):
    """Raises an error at one call of one of its methods, and works before and after."""

    def __init__(self, method: str, error: Exception) -> None:
        super().__init__()
        self.method, self.error = method, error
        self.due = False

    def _fail_if_due(self, method: str) -> None:
        if self.due and method == self.method:
            self.due = False
            raise self.error

    def append(self, records: Sequence[Record]) -> None:
        self._fail_if_due("append")
        super().append(records)

    @property
    def has_unflushed(self) -> bool:
        return True

    async def durable(self) -> None:
        self._fail_if_due("durable")

    def check_owner(self) -> None:
        self._fail_if_due("check_owner")


FENCED = Fenced(agent_id="a", why="the test says so")
VALUES = ValuesMerged(delta={"a": 1}, source="test")


async def use(ledger: Ledger) -> None:
    ledger.check_owner()
    ledger.record(VALUES)
    await ledger.durable()


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("append", FENCED),
        ("durable", FENCED),
        ("check_owner", FENCED),
        ("append", OSError("no disk")),
        ("durable", OSError("no disk")),
    ],
)
async def test_a_journal_that_has_failed_gets_nothing_more(method: str, error: Exception) -> None:
    """J16: what it has stays a prefix of what was recorded."""
    journal = FailsOnce(method, error)
    ledger = Ledger(AgentState(), journal)
    ledger.record(VALUES)
    journal.due = True
    with pytest.raises(JournalFailed) as first:
        await use(ledger)
    kept = list(journal.records)
    with pytest.raises(JournalFailed) as second:
        ledger.record(VALUES)
    with pytest.raises(JournalFailed) as third:
        await ledger.durable()
    assert first.value is second.value is third.value
    assert journal.records == kept


async def test_a_record_that_is_refused_fails_alone() -> None:
    """J16."""
    journal = FailsOnce("append", RecordRefused(kind="values_merged", why="the test says so"))
    ledger = Ledger(AgentState(), journal)
    journal.due = True
    with pytest.raises(RecordRefused):
        ledger.record(VALUES)
    ledger.record(VALUES)
    await ledger.durable()
    assert journal.records == [VALUES]


@pytest.mark.parametrize("method", ["append", "check_owner"])
async def test_nothing_is_recorded_after_the_journal_has_failed_whoever_catches_it(
    method: str,
) -> None:
    """J8, J16: here a tool catches the failure of the agent that it runs."""
    journal, ran = FailsOnce(method, FENCED), list[str]()

    @tool
    async def act() -> str:
        ran.append("act")
        return "acted"

    def due(_: object) -> Any:
        journal.due = True
        return call("act")

    helper = Agent("helper", ScriptedModel([due, "done"]), tools=[act])

    @tool
    async def delegate(ctx: ToolContext) -> str:
        try:
            await ctx.run_agent(helper, "act")
        except Exception:
            return "never mind"
        return "done"

    model = ScriptedModel([call("delegate"), "done"])
    agent = Agent("a", model, tools=[delegate])
    with pytest.raises(Fenced):
        await soon(agent.execute("go", journal=journal))
    assert ran == []
    assert len(model.requests) == 1


async def test_an_event_without_a_record_waits_for_the_records_before_it() -> None:
    """A6."""
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


class NotifyListener:
    """An audience that listens, or does not."""

    listens = False

    def is_listening(self) -> bool:
        return self.listens

    def emit(self, event: Event) -> None:
        raise AssertionError(event)

    def emit_record(self, seq: int, record: Record) -> None:
        raise AssertionError(record)


async def test_no_event_need_be_made_while_the_audience_does_not_listen() -> None:
    ear = NotifyListener()
    ledger = Ledger(AgentState(), audience=ear)
    assert not ledger.observed
    ear.listens = True
    assert ledger.observed
