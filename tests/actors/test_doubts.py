"""The list of what is in doubt: what people are asked about, and what only a model was told of.

Rules: J4.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted, results
from tests.support.loops import soon
from tests.support.places import NewStore
from understudy import (
    Agent,
    AgentRef,
    Doubt,
    Interrupted,
    Observer,
    Outcome,
    Runtime,
    SimulatedClock,
    Status,
    Stopped,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.errors import UsageError
from understudy.journal import DatabaseStore, MemoryStore
from understudy.middleware import HumanInTheLoop, SubAgent
from understudy.tools import Tool

DAY = 24 * 3600.0
WEEK = 7 * DAY


class Bank:
    """A bank of which nobody knows whether it has paid."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers = False

    def agent(
        self,
        name: str = "desk",
        *,
        gated: bool = False,
        turns: Sequence[Any] = (),
        also: Sequence[Tool[Any]] = (),
    ) -> Agent:
        """It pays once in each run, unless it is told what to do in its turns."""

        @tool
        def pay(amount: int) -> str:
            """Pay an amount."""
            self.asked.append(amount)
            if self.answers:
                return "paid"
            raise ConnectionError("the line is dead")

        return Agent(
            name,
            by_turn(*(turns or [call("pay", {"amount": 5}), "I do not know."] * 9)),
            description="pays",
            tools=[pay, *also],
            middleware=[HumanInTheLoop({"pay": True})] if gated else [],
        )


@pytest.fixture
def bank() -> Bank:
    return Bank()


async def in_doubt(runtime: Runtime, *ids: str, agent: str = "desk") -> None:
    """Agents with a payment in doubt of which only their models are told."""
    for id in ids:
        completed(await soon(runtime.spawn(agent, id).run("Pay.")))


async def asked(runtime: Runtime, id: str, agent: str = "gated") -> Interrupted:
    """An agent that asks a person what its payment did."""
    ref = runtime.spawn(agent, id)
    return interrupted(await soon(ref.resume(decided(await soon(ref.run("Pay.")), approve()))))


def decided(outcome: Outcome, decision: Any) -> Any:
    return interrupted(outcome).decide(decision)


def ids(doubts: list[Doubt]) -> list[str]:
    return [doubt.agent_id for doubt in doubts]


# ------------------------------------------------------------------------ the list


async def test_a_doubt_that_the_model_was_told_of_is_listed_until_it_is_settled(
    bank: Bank, clock: SimulatedClock, new_store: NewStore
) -> None:
    async with Runtime([bank.agent()], store=new_store(), clock=clock) as runtime:
        began = clock.now()
        await in_doubt(runtime, "a")
        (doubt,) = await soon(runtime.doubts())
        run_id = completed(await outcome_of(runtime.get("a"))).run_id
    assert doubt == Doubt(
        agent_id="a",
        agent="desk",
        made_by="desk",
        run_id=run_id,
        call_key=f"{run_id}.0.0",
        tool_call_id=doubt.tool_call_id,
        tool_name="pay",
        arguments={"amount": 5},
        reason=doubt.reason,
        since=began,
        ends_at=began + timedelta(days=7),
        request_id=None,
    )
    assert not doubt.is_asked

    async with Runtime([bank.agent()], store=new_store(), clock=clock) as runtime:
        assert await soon(runtime.doubts()) == [doubt]
        await soon(runtime.get("a").settle(doubt.call_key, how="the bank says it has paid"))
        assert await soon(runtime.doubts()) == []
        (entry,) = [
            e for e in (await soon(runtime.get("a").history())).entries if e.what == "settled"
        ]
    assert entry.detail == {"how": "the bank says it has paid"}


async def outcome_of(ref: AgentRef) -> Outcome:
    outcome = await soon(ref.outcome())
    assert outcome is not None
    return outcome


async def test_a_doubt_that_a_person_is_asked_about_is_listed_with_its_request(
    bank: Bank, clock: SimulatedClock, new_store: NewStore
) -> None:
    """It is one request in the inbox, and one doubt in the list."""
    agents = [bank.agent("gated", gated=True), bank.agent()]
    async with Runtime(agents, store=new_store(), clock=clock) as runtime:
        outcome = await asked(runtime, "a")
        await in_doubt(runtime, "b")
        doubts = await soon(runtime.doubts())
        assert [(doubt.agent_id, doubt.request_id) for doubt in doubts] == [
            ("a", outcome.requests[0].id),
            ("b", None),
        ]
        (request,) = outcome.requests
        about = doubts[0]
        assert (about.call_key, about.arguments, about.run_id, about.since, about.ends_at) == (
            request.call_key,
            request.arguments,
            request.run_id,
            request.created_at,
            None,
        )
        assert about.is_asked
        assert about.reason == request.payload["reason"]
        assert [each.request.id for each in await soon(runtime.pending())] == [request.id]
        with pytest.raises(UsageError, match=f"answer request '{request.id}' by resume"):
            await soon(runtime.get("a").settle(about.call_key, how="it was paid"))
        with pytest.raises(UsageError, match=f"answer request '{request.id}' by resume"):
            agents[0].settle(outcome.state, about.call_key, how="it was paid")

        completed(await soon(runtime.get("a").resume(outcome.decide(respond("paid")))))
        assert ids(await soon(runtime.doubts())) == ["b"]
        assert await soon(runtime.pending()) == []


async def test_what_was_asked_and_is_withdrawn_is_a_doubt_of_which_the_model_is_told(
    bank: Bank, new_store: NewStore
) -> None:
    turns = [call("pay", {"amount": 5}), "Never mind."]
    agent = bank.agent("gated", gated=True, turns=turns)
    async with Runtime([agent], store=new_store()) as runtime:
        await asked(runtime, "a")
        completed(await soon(runtime.get("a").run("Something else.")))
        (doubt,) = await soon(runtime.doubts())
    assert (doubt.agent_id, doubt.request_id, doubt.arguments) == ("a", None, {"amount": 5})
    assert doubt.ends_at == doubt.since + timedelta(days=7)


async def test_a_call_that_a_cancel_cut_off_is_listed(new_store: NewStore) -> None:
    begun = asyncio.Event()

    @tool
    async def pay(amount: int) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "paid"

    agent = Agent("desk", by_turn(call("pay", {"amount": 5})), tools=[pay])
    async with Runtime([agent], store=new_store()) as runtime:
        ref = runtime.spawn("desk", "a")
        outcome = ref.run("Pay.")
        await soon(begun.wait())
        await soon(ref.cancel("enough"))
        assert isinstance(await soon(outcome), Stopped)
        (doubt,) = await soon(runtime.doubts())
    assert (doubt.tool_name, doubt.arguments, doubt.made_by) == ("pay", {"amount": 5}, "desk")


async def test_a_doubt_of_an_agent_inside_says_who_made_the_call(
    bank: Bank, new_store: NewStore
) -> None:
    """Also once that agent is over, and its doubt is of the agent above."""
    child = bank.agent("payer")
    turns = [call("task", {"task_name": "payer", "instructions": "Pay 5."}), "I do not know."]
    boss = Agent("boss", by_turn(*turns), middleware=[SubAgent([child])])
    async with Runtime([boss], store=new_store()) as runtime:
        await in_doubt(runtime, "a", agent="boss")
        (doubt,) = await soon(runtime.doubts())
        assert (doubt.agent_id, doubt.agent, doubt.made_by) == ("a", "boss", "payer")
        outcome = completed(await outcome_of(runtime.get("a")))
        assert doubt.run_id.startswith(f"{outcome.run_id}.0.0")
        await soon(runtime.get("a").settle(doubt.call_key, how="it has not paid"))
        assert await soon(runtime.doubts()) == []


async def test_a_doubt_is_listed_while_its_agent_runs(bank: Bank, new_store: NewStore) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def look() -> str:
        begun.set()
        await may_end.wait()
        return "seen"

    turns = [call("pay", {"amount": 5}), "I do not know.", call("look"), "Seen."]
    agent = bank.agent(turns=turns, also=[look])
    async with Runtime([agent], store=new_store()) as runtime:
        await in_doubt(runtime, "a")
        (before,) = await soon(runtime.doubts())
        outcome = runtime.get("a").run("Look.")
        await soon(begun.wait())
        assert await soon(runtime.doubts()) == [before]
        may_end.set()
        completed(await soon(outcome))
        assert await soon(runtime.doubts()) == [before]


@pytest.mark.quick
async def test_doubts_are_listed_in_pages_by_tool_agent_and_order(
    bank: Bank, clock: SimulatedClock, new_store: NewStore
) -> None:
    store = new_store()
    async with Runtime([bank.agent()], store=store, clock=clock, doubt_ends=3 * DAY) as runtime:
        await in_doubt(runtime, "late")
    agents = [bank.agent(), bank.agent("other"), bank.agent("gated", gated=True)]
    async with Runtime(agents, store=new_store(), clock=clock, doubt_ends=DAY) as runtime:
        await asked(runtime, "never")
        await soon(clock.advance(60))
        await in_doubt(runtime, "soon")
        await soon(clock.advance(60))
        await in_doubt(runtime, "other", agent="other")
        first = await soon(runtime.doubts(limit=3))
        rest = await soon(runtime.doubts(limit=3, after=first.after))
        assert [ids(first), ids(rest), rest.after] == [["late", "never", "soon"], ["other"], None]
        expiring = [doubt.agent_id async for doubt in runtime.doubts(order="expiring", limit=1)]
        assert expiring == ["soon", "other", "late", "never"]
        assert ids(await soon(runtime.doubts(agent="other"))) == ["other"]
        assert len(await soon(runtime.doubts(tool="pay"))) == 4
        assert await soon(runtime.doubts(tool="play")) == []
        for listing in (runtime.pending, runtime.waiting):
            with pytest.raises(UsageError, match="cursor of 'doubts'"):
                listing(after=first.after)
        with pytest.raises(UsageError, match="`order` must be"):
            runtime.doubts(order="newest")  # type: ignore[arg-type]


async def test_a_damaged_row_of_a_doubt_hides_no_other(
    bank: Bank, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    async with Runtime([bank.agent()], store=f"sqlite:///{path}") as runtime:
        await in_doubt(runtime, "a", "b", "c", "d")
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE asks SET payload = x'ff' WHERE no = 2")
            other.execute("UPDATE asks SET version = 9 WHERE no = 3")
        found = [doubt async for doubt in runtime.doubts(limit=1)]
    assert ids(found) == ["a", "d"]
    for id in ("b", "c"):
        assert f"a doubt of agent '{id}' is left out" in caplog.text


async def test_an_observer_lists_doubts(bank: Bank, new_store: NewStore) -> None:
    store = new_store()
    if isinstance(store, MemoryStore):
        return  # nobody looks beside the runtime
    async with Runtime([bank.agent()], store=store) as runtime:
        await in_doubt(runtime, "a")
        found = await soon(runtime.doubts())
        other = new_store()
        assert isinstance(other, DatabaseStore)
        async with Observer(other) as observer:
            assert await soon(observer.doubts()) == found


async def test_doubts_outlive_compaction_and_go_with_an_import(
    bank: Bank, new_store: NewStore
) -> None:
    async with Runtime([bank.agent()], store=new_store()) as runtime:
        await in_doubt(runtime, "a")
        (doubt,) = await soon(runtime.doubts())
        await soon(runtime.compact("a"))
        assert await soon(runtime.doubts()) == [doubt]
        data = await soon(runtime.export("a"))
        await soon(runtime.import_(data, id="b"))
        assert ids(await soon(runtime.doubts())) == ["a", "b"]
        await soon(runtime.delete("a"))
        assert ids(await soon(runtime.doubts())) == ["b"]


# ------------------------------------------------------------------------- its end


async def test_a_doubt_ends_a_week_later_and_holds_no_other_call(
    bank: Bank, clock: SimulatedClock, new_store: NewStore
) -> None:
    async with Runtime([bank.agent()], store=new_store(), clock=clock) as runtime:
        await in_doubt(runtime, "a")
        ref = runtime.get("a")
        held = interrupted(await soon(ref.run("Pay again.")))
        assert [doubt.arguments for doubt in held.requests[0].doubts] == [{"amount": 5}]
        completed(await soon(ref.resume(held.decide(reject()))))
        (doubt,) = await soon(runtime.doubts())
        assert (await soon(ref.info())).due == doubt.ends_at

        await soon(clock.advance(WEEK - 1))
        assert await soon(runtime.doubts()) == [doubt]
        await soon(clock.advance(1))
        assert await soon(runtime.doubts()) == []
        assert (await soon(ref.state())).doubts == {}
        assert (await soon(ref.info())).due is None
        ended = [e for e in (await soon(ref.history())).entries if e.call_key == doubt.call_key]
        assert (ended[-1].what, ended[-1].at) == ("doubt_ended", doubt.ends_at)
        assert not any(entry.what == "settled" for entry in ended)

        bank.answers = True
        completed(await soon(ref.run("Pay now.")))
        assert bank.asked == [5, 5]
        with pytest.raises(UsageError, match="no doubt about call"):
            await soon(ref.settle(doubt.call_key, how="too late"))


async def test_a_doubt_ends_while_no_agent_is_in_memory_and_at_the_next_runtime(
    bank: Bank, clock: SimulatedClock, new_store: NewStore
) -> None:
    async with Runtime([bank.agent()], store=new_store(), clock=clock) as runtime:
        await in_doubt(runtime, "a", "b")
        await soon(runtime.get("a").stop(block=False))
        assert runtime.get("a").status() is Status.PASSIVE
        await soon(clock.advance(DAY))
    await soon(clock.advance(WEEK))
    async with Runtime([bank.agent()], store=new_store(), clock=clock) as runtime:
        await soon(clock.advance(1))
        assert await soon(runtime.doubts()) == []
        for id in ("a", "b"):
            whats = [entry.what for entry in (await soon(runtime.get(id).history())).entries]
            assert whats.count("doubt_ended") == 1


async def test_a_doubt_that_a_person_is_asked_about_does_not_end(
    bank: Bank, clock: SimulatedClock, new_store: NewStore
) -> None:
    agent = bank.agent("gated", gated=True)
    async with Runtime([agent], store=new_store(), clock=clock, doubt_ends=60) as runtime:
        outcome = await asked(runtime, "a")
        await soon(clock.advance(10 * WEEK))
        assert ids(await soon(runtime.doubts())) == ["a"]
        completed(await soon(runtime.get("a").resume(outcome.decide(respond("paid")))))


async def test_a_doubt_may_have_no_end(
    bank: Bank, clock: SimulatedClock, new_store: NewStore
) -> None:
    async with Runtime([bank.agent()], store=new_store(), clock=clock, doubt_ends=None) as runtime:
        await in_doubt(runtime, "a")
        await soon(clock.advance(1000 * WEEK))
        (doubt,) = await soon(runtime.doubts())
        assert doubt.ends_at is None
        assert (await soon(runtime.get("a").info())).due is None


@pytest.mark.parametrize("wrong", [-1, "a week", float("inf"), True, 1e300])
def test_the_time_of_its_end_must_be_one(wrong: Any) -> None:
    with pytest.raises(UsageError, match="`doubt_ends` must be seconds"):
        Runtime(doubt_ends=wrong)


async def test_a_doubt_ends_while_a_run_of_its_agent_is_under_way(
    bank: Bank, clock: SimulatedClock, new_store: NewStore
) -> None:
    """The end is a fact of the agent, and no run of it is touched."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def look() -> str:
        begun.set()
        await may_end.wait()
        return "seen"

    turns = [call("pay", {"amount": 5}), "I do not know.", call("look"), "Seen."]
    agent = bank.agent(turns=turns, also=[look])
    async with Runtime([agent], store=new_store(), clock=clock) as runtime:
        await in_doubt(runtime, "a")
        outcome = runtime.get("a").run("Look.")
        await soon(begun.wait())
        await soon(clock.advance(WEEK))
        assert (await soon(runtime.get("a").state())).doubts == {}
        assert await soon(runtime.doubts()) == []
        may_end.set()
        assert completed(await soon(outcome)).text == "Seen."


async def test_the_doubts_of_agents_inside_end_as_those_of_the_agent(
    clock: SimulatedClock, bank: Bank, new_store: NewStore
) -> None:
    """Here while the agent inside waits for a person, and has its own doubt."""

    @tool(ask=True)
    def refund() -> str:
        return "refunded"

    turns = [call("pay", {"amount": 5}), call("refund", {}), "Done."]
    child = bank.agent("payer", turns=turns, also=[refund])
    turns = [call("task", {"task_name": "payer", "instructions": "Pay 5."}), "Done."]
    boss = Agent("boss", by_turn(*turns), middleware=[SubAgent([child])])
    async with Runtime([boss], store=new_store(), clock=clock) as runtime:
        ref = runtime.spawn("boss", "a")
        outcome = interrupted(await soon(ref.run("Pay.")))
        (doubt,) = await soon(runtime.doubts())
        assert (doubt.made_by, doubt.agent) == ("payer", "boss")
        await soon(clock.advance(WEEK))
        assert await soon(runtime.doubts()) == []
        assert ref.status() is Status.INTERRUPTED
        last = (await soon(ref.history())).entries[-1]
        assert (last.what, last.agent_path) == ("doubt_ended", ("boss", "payer"))
        completed(await soon(ref.resume(outcome.decide(approve()))))
        assert results(completed(await outcome_of(ref)).state)


async def test_without_a_runtime_an_old_doubt_holds_no_call(
    bank: Bank, clock: SimulatedClock
) -> None:
    agent = bank.agent()
    first = completed(await agent.execute("Pay.", clock=clock))
    held = interrupted(await agent.execute("Pay.", state=first.state, clock=clock))
    assert held.requests[0].doubts
    await soon(clock.advance(WEEK))
    bank.answers = True
    outcome = completed(await agent.execute("Pay.", state=first.state, clock=clock))
    assert (outcome.state.doubts, bank.asked) == ({}, [5, 5])


@pytest.mark.parametrize("end", ["cancel", "new message"])
async def test_a_doubt_outlives_the_run_in_which_a_person_is_asked_about_it(end: str) -> None:
    """J4: whoever ends the run has not said what the call did."""
    bank = Bank()
    async with Runtime([bank.agent(gated=True)]) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("go"))
        asked = interrupted(await soon(ref.resume(approve())))
        assert [each.kind for each in asked.requests] == ["doubt"]
        if end == "cancel":
            await soon(ref.cancel())
        else:
            await soon(ref.run("never mind"))
        [doubt] = await soon(runtime.doubts())
        assert (doubt.state, doubt.call_key) == ("told", asked.requests[0].call_key)
