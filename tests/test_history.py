"""What happened, for people: with times and durations, in pages that read like one list."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted
from understudy import Agent, Runtime, ScriptedModel, ToolContext, UsageError, approve, call
from understudy.actors import AgentRef, HistoryEntry
from understudy.errors import UnknownAgent
from understudy.history import history_of
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
    return list((await ref.history(**page)).entries)


def of_kind(found: list[HistoryEntry], what: str) -> HistoryEntry:
    (entry,) = [entry for entry in found if entry.what == what]
    return entry


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_a_history_says_what_when_who_and_how_long(store: str, tmp_path: Path) -> None:
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
            read: list[HistoryEntry] = []
            after: int | None = 0
            while after is not None:
                page = await ref.history(after=after, limit=limit)
                read += page.entries
                after = page.next
            assert read == list(whole.entries)


async def test_what_a_nested_agent_does_has_its_path_and_its_durations() -> None:
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


@pytest.mark.parametrize("page", [{"after": -1}, {"after": True}, {"limit": 0}, {"limit": 2.5}])
async def test_a_page_that_cannot_be_is_refused(page: Any) -> None:
    agent = Agent("desk", ScriptedModel(["done"]))
    async with Runtime([agent]) as runtime:
        with pytest.raises(UsageError, match=next(iter(page))):
            runtime.spawn(agent, "desk-1").history(**page)


def test_records_without_times_have_entries_whose_times_are_unknown() -> None:
    data = Path(__file__).parent / "data" / "v1" / "exports.json"
    exported = json.loads(data.read_text())["desk"]
    records: list[r.Record] = [record_from_dict(record) for record in exported["records"]]

    found = list(history_of(records, "desk", first_seq=exported["first_seq"]))

    started = [entry for entry in found if entry.what == "tool_started"]
    assert started
    assert all(entry.at is None and entry.seconds is None for entry in started)
    assert json.loads(json.dumps([entry.to_dict() for entry in found]))
