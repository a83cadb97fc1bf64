"""What people write beside a request: others see it, it refuses nothing and wakes nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn
from tests.support.hosts import opened, stores
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from tests.support.web_site import Done, asked, desk, refund
from understudy import (
    Agent,
    DecisionError,
    Observer,
    Runtime,
    SimulatedClock,
    UnknownAgent,
    UsageError,
    approve,
    call,
    reject,
    tool,
)
from understudy.actors import PendingRequest
from understudy.approvals import Caller
from understudy.journal import DatabaseStore
from understudy.middleware import HumanInTheLoop
from understudy.testing import FaultyBackend
from understudy.trust import approval

HOUR = timedelta(hours=1)
KINDS = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Of each kind."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return stores(request.getfixturevalue("hosts"), "here")[0]


def payer(**gate: Any) -> Agent:
    """An agent that asks for two refunds at once."""

    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    turns = by_turn([call("pay", {"amount": 1}), call("pay", {"amount": 2})], "done")
    gates = HumanInTheLoop({"pay": gate.pop("rule", True)}, **gate)
    return Agent("payer", turns, tools=[pay], middleware=[gates])


@asynccontextmanager
async def two_requests(
    store: Any, clock: SimulatedClock, **gate: Any
) -> AsyncIterator[tuple[Runtime, PendingRequest, PendingRequest]]:
    people: Any = {"ann": ["ops"], "bob": ["ops"]} if "rule" in gate else None
    runtime = Runtime([payer(**gate)], store=store, clock=clock, people=people, sweep=None)
    async with runtime:
        await asked(runtime, "payer", "p")
        one, two = await soon(runtime.pending())
        yield runtime, one, two


def ids(found: Any) -> list[str]:
    return [each.request.id for each in found]


async def test_a_claim_ends_by_its_time_by_release_and_is_taken_over(
    store: Any, clock: SimulatedClock
) -> None:
    """I30."""
    async with two_requests(store, clock) as (runtime, one, _):
        of = one.agent_id, one.request.id
        found = await soon(runtime.take(*of, by="ann"))
        assert found.claim is not None
        assert (found.claim.by, found.claim.over) == ("ann", None)
        assert found.claim.until == await soon(runtime.now()) + HOUR
        found = await soon(runtime.take(*of, release=True, by="bob"))
        assert found.claim is not None, "who does not have it cannot release it"
        found = await soon(runtime.take(*of, by="bob"))
        assert found.claim is not None
        assert (found.claim.by, found.claim.over) == ("bob", "ann")
        assert found.to_dict(["ann"])["was_yours"]
        assert found.to_dict(["bob"])["is_yours"]
        [listed, _] = await soon(runtime.pending())
        assert listed.notes.claim == found.claim
        await soon(clock.advance(3600))
        assert (await soon(runtime.notes(*of))).claim is None
        later = await soon(runtime.now()) + 2 * HOUR
        found = await soon(runtime.take(*of, until=later, by="ann"))
        assert found.claim is not None
        assert (found.claim.until, found.claim.over) == (later, None), "nobody had it any more"
        assert (await soon(runtime.take(*of, release=True, by="ann"))).claim is None


async def test_a_claim_never_refuses_a_decision(store: Any, clock: SimulatedClock) -> None:
    """I30."""
    async with two_requests(store, clock) as (runtime, one, two):
        ref = runtime.get("p")
        for each, decision in ((one, approve(by="bob")), (two, reject(by="bob"))):
            of = each.agent_id, each.request.id
            await soon(runtime.take(*of, by="ann"))
            await soon(runtime.assign(*of, to="ann", by="ann"))
            later = await soon(runtime.now()) + HOUR
            await soon(runtime.snooze(*of, until=later, by="bob"))
            await soon(ref.decide({each.request: decision}))
        await soon(ref.outcome())
        made = await soon(ref.decisions())
        assert [each.decision.by for each in made] == ["bob", "bob"]


async def test_what_is_written_beside_a_request_activates_no_agent_and_writes_no_record(
    store: Any, clock: SimulatedClock
) -> None:
    """I31: and no agent learns of it, not even by its exported records."""
    async with two_requests(store, clock) as (runtime, one, _):
        ref, of = runtime.get("p"), (one.agent_id, one.request.id)
        await ref.stop(block=False)
        before = await soon(runtime.export("p"))
        later = await soon(runtime.now()) + HOUR
        await soon(runtime.take(*of, by="ann"))
        await soon(runtime.comment(*of, "Who is that?", by="ann"))
        await soon(runtime.snooze(*of, until=later, by="ann"))
        await soon(runtime.assign(*of, to="bob", by="ann"))
        assert len(await soon(runtime.pending(viewer="bob", mine=True))) == 1
        [info] = await soon(runtime.agents())
        assert not info.is_active
        assert await soon(runtime.export("p")) == before


async def test_comments_are_read_after_the_decision_and_go_a_stated_time_later(
    store: Any, clock: SimulatedClock
) -> None:
    """I31."""
    async with two_requests(store, clock) as (runtime, one, two):
        of, ref = (one.agent_id, one.request.id), runtime.get("p")
        await soon(runtime.comment(*of, " Who is that? ", by="ann"))
        await soon(ref.resume({one.request: approve(), two.request: approve()}))
        found = await soon(runtime.comment(*of, "It was me.", by="bob"))
        assert [(each.by, each.text) for each in found.comments] == [
            ("ann", "Who is that?"),
            ("bob", "It was me."),
        ]
        with pytest.raises(DecisionError, match="does not wait for a person"):
            await soon(runtime.take(*of, by="ann"))
        kept = runtime._agent_host.services.store
        for days, left in ((0, 2), (1, 2), (30, 2), (32, 0)):
            passed = (await soon(runtime.now()) - found.comments[1].at).total_seconds()
            await soon(clock.advance(days * 86_400 - passed + 1))
            await kept.sweep_notes(await soon(runtime.now()))
            assert len((await soon(runtime.notes(*of))).comments) == left, days


async def test_what_is_snoozed_is_hidden_from_one_person_until_its_time(
    store: Any, clock: SimulatedClock
) -> None:
    async with two_requests(store, clock) as (runtime, one, two):
        of = one.agent_id, one.request.id
        later = await soon(runtime.now()) + HOUR
        await soon(runtime.snooze(*of, until=later, by="ann"))
        both = [one.request.id, two.request.id]
        assert ids(await soon(runtime.pending(viewer="ann"))) == both[1:]
        assert ids(await soon(runtime.pending(viewer="ann", snoozed=True))) == both
        assert ids(await soon(runtime.pending(viewer="bob"))) == both
        assert ids(await soon(runtime.pending())) == both
        await soon(runtime.snooze(*of, until=None, by="ann"))
        assert ids(await soon(runtime.pending(viewer="ann"))) == both
        await soon(runtime.snooze(*of, until=later, by="ann"))
        await soon(clock.advance(3600))
        assert ids(await soon(runtime.pending(viewer="ann"))) == both


async def test_what_expires_within_the_hour_is_shown_though_it_is_snoozed(
    store: Any, clock: SimulatedClock
) -> None:
    async with two_requests(store, clock, expires_after=3 * 3600) as (runtime, one, two):
        of = one.agent_id, one.request.id
        later = await soon(runtime.now()) + 5 * HOUR
        await soon(runtime.snooze(*of, until=later, by="ann"))
        assert ids(await soon(runtime.pending(viewer="ann"))) == [two.request.id]
        await soon(clock.advance(2 * 3600))
        assert len(await soon(runtime.pending(viewer="ann"))) == 2


async def test_lists_have_what_is_mine_and_what_nobody_has(
    store: Any, clock: SimulatedClock
) -> None:
    async with two_requests(store, clock) as (runtime, one, two):
        first, second = ((each.agent_id, each.request.id) for each in (one, two))
        await soon(runtime.take(*first, by="ann"))
        await soon(runtime.assign(*second, to="bob", by="ann"))

        async def listed(**of: Any) -> list[str]:
            return ids(await soon(runtime.pending(**of)))

        assert await listed(viewer="ann", mine=True) == [first[1]]
        assert await listed(viewer="bob", mine=True) == [second[1]]
        assert await listed(viewer="cy", mine=True) == []
        assert await listed(unassigned=True) == []
        await soon(clock.advance(3600))
        assert await listed(unassigned=True) == [first[1]]
        await soon(runtime.assign(*second, to=None, by="bob"))
        assert await listed(unassigned=True) == [first[1], second[1]]
        assert await listed(viewer="bob", mine=True) == []


async def test_a_request_on_which_persons_vote_keeps_its_notes_with_each_vote(
    store: Any, clock: SimulatedClock
) -> None:
    """Its row in the index of asks is another one with each vote."""
    rule = {"approval": approval({"ops": 2})}
    async with two_requests(store, clock, rule=rule) as (runtime, one, _):
        of = one.agent_id, one.request.id
        await soon(runtime.assign(*of, to="bob", by="ann"))
        await soon(runtime.get("p").decide({one.request: approve(by="ann")}))
        found = await soon(runtime.pending(viewer="bob", mine=True))
        assert ids(found) == [one.request.id]
        assert len(found[0].votes) == 1
        assert found[0].notes.assignment is not None
        with pytest.raises(UsageError, match="`people` knows nobody by 'eve'"):
            await soon(runtime.assign(*of, to="eve", by="ann"))


async def test_two_persons_of_one_name_are_told_apart(store: Any, clock: SimulatedClock) -> None:
    one_ann, other_ann = (
        Caller(name="ann", assurance="idp", issuer="https://idp.example", subject=subject)
        for subject in ("1", "2")
    )
    async with two_requests(store, clock) as (runtime, one, _):
        of = one.agent_id, one.request.id
        await soon(runtime._asked_by(one_ann).take(*of, by="ann"))
        assert len(await soon(runtime.pending(viewer=one_ann, mine=True))) == 1
        assert await soon(runtime.pending(viewer=other_ann, mine=True)) == []
        found = await soon(runtime._asked_by(other_ann).take(*of, by="ann"))
        assert found.claim is not None
        assert found.claim.over is not None, "it is another person"


async def test_an_agent_that_is_deleted_takes_its_notes_with_it(
    store: Any, clock: SimulatedClock
) -> None:
    async with two_requests(store, clock) as (runtime, one, _):
        of = one.agent_id, one.request.id
        await soon(runtime.comment(*of, "Who is that?", by="ann"))
        await soon(runtime.delete("p"))
        assert (await soon(runtime.notes(*of))).comments == ()
        with pytest.raises(UnknownAgent):
            await soon(runtime.comment(*of, "And now?", by="ann"))


@pytest.mark.parametrize(
    ("verb", "given", "problem"),
    [
        ("take", {"until": "soon"}, "must be a datetime"),
        ("take", {"until": -HOUR}, "must be within the next 30 days"),
        ("take", {"until": timedelta(days=31)}, "must be within the next 30 days"),
        ("take", {"until": HOUR, "release": True}, "leave `until` out"),
        ("take", {"by": None}, "must be the name of a person, got None"),
        ("take", {"by": "nobody"}, "the library uses this name itself"),
        ("comment", {"text": " "}, "1 to 4000 characters"),
        ("comment", {"text": "x" * 4001}, "1 to 4000 characters"),
        ("comment", {"text": 7}, "must be"),
        ("snooze", {"until": -HOUR}, "must be within the next 30 days"),
        ("assign", {"to": 7}, "must be the name of a login"),
        ("assign", {"to": "a\tb"}, "holds a tab"),
    ],
)
async def test_a_wrong_argument_is_refused_before_anything_is_written(
    verb: str, given: dict[str, Any], problem: str, clock: SimulatedClock
) -> None:
    async with two_requests("memory:", clock) as (runtime, one, _):
        until = given.get("until")
        if isinstance(until, timedelta):
            given = {**given, "until": await soon(runtime.now()) + until}
        with pytest.raises(UsageError, match=problem):
            await soon(
                getattr(runtime, verb)(one.agent_id, one.request.id, **{"by": "ann", **given})
            )
        assert (await soon(runtime.notes(one.agent_id, one.request.id))).count == 0


async def test_an_id_that_no_request_has_is_refused_in_each_store(
    store: Any, clock: SimulatedClock
) -> None:
    """PostgreSQL keeps no NUL: by the pages it was told as a store that does not answer."""
    async with two_requests(store, clock) as (runtime, one, _):
        of = one.agent_id, "a\0b"
        with pytest.raises(UsageError, match="without NUL"):
            await soon(runtime.notes(*of))
        with pytest.raises(UsageError, match="without NUL"):
            await soon(runtime.take(*of, by="ann"))
        with pytest.raises(UsageError, match="without NUL"):
            await soon(runtime.comment(*of, "Look.", by="ann"))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"mine": True}, "give viewer="),
        ({"viewer": 7}, "must be the name of a login"),
        ({"unassigned": "yes"}, r"pending\(unassigned=...\) must be"),
    ],
)
async def test_a_wrong_filter_is_refused(
    given: dict[str, Any], problem: str, clock: SimulatedClock
) -> None:
    async with two_requests("memory:", clock) as (runtime, _, _):
        with pytest.raises(UsageError, match=problem):
            runtime.pending(**given)


async def test_where_nothing_is_written_beside_requests_nothing_more_is_read(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    """Who uses none of it makes no statement more."""
    from tests.support.places import SqlitePlace

    backend = FaultyBackend(SqlitePlace(tmp_path).backend())
    async with two_requests(DatabaseStore(backend), clock) as (runtime, one, _):
        backend.fail("notes", times=None)
        backend.fail("sweep_notes", times=None)
        assert len(await soon(runtime.pending(viewer="ann"))) == 2
        assert not backend.mend()
        await soon(runtime.comment(one.agent_id, one.request.id, "Why?", by="ann"))
        backend.fail("notes", times=2, at=2)
        assert (await soon(runtime.pending()))[0].notes.comment_count == 1
        assert not backend.mend(), "one statement is enough for a page"


async def test_a_request_that_is_not_asked_for_a_while_has_not_ended(
    store: Any, clock: SimulatedClock
) -> None:
    """Another call of its reply may run for hours: then it is not in the index of asks."""
    async with two_requests(store, clock) as (runtime, one, _):
        of, kept = (one.agent_id, one.request.id), runtime._agent_host.services.store
        await soon(runtime.take(*of, until=await soon(runtime.now()) + 20 * HOUR, by="ann"))
        await soon(clock.advance(3 * 3600))
        await kept.sweep_notes(await soon(runtime.now()))
        assert len(await soon(runtime.pending(viewer="ann", mine=True))) == 1


async def test_an_observer_reads_it_and_lists_by_it(tmp_path: Path, clock: SimulatedClock) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with two_requests(url, clock) as (runtime, one, _), Observer(url) as observer:
        await soon(runtime.comment(one.agent_id, one.request.id, "Why?", by="ann"))
        await soon(runtime.assign(one.agent_id, one.request.id, to="bob", by="ann"))
        found = await soon(observer.notes(one.agent_id, one.request.id))
        assert [each.text for each in found.comments] == ["Why?"]
        listed = await soon(observer.pending(viewer="bob", mine=True))
        assert ids(listed) == [one.request.id]


# --------------------------------------------------------------------------- who looks


async def test_who_looks_is_in_memory_and_ends_with_the_page() -> None:
    async with Runtime([desk(Done(), refund())]) as runtime:
        heard: list[tuple[str, str]] = []
        stop = runtime.presence.listen(lambda *about: heard.append(about))
        ann, bob = Caller(name="ann"), Caller(name="bob")
        leave = runtime.presence.look("a", "q", ann)
        again = runtime.presence.look("a", "q", ann)
        runtime.presence.look("a", "other", bob)
        assert runtime.presence.looking("a", "q") == ["ann"]
        assert runtime.presence.looking("a", "q", but=ann) == []
        leave()
        assert runtime.presence.looking("a", "q") == ["ann"], "a second page is open"
        again()
        assert runtime.presence.looking("a", "q") == []
        await until(lambda: len(heard) == 5)
        stop()
        runtime.presence.tell("a", "q")
        await asyncio.sleep(0)
        assert len(heard) == 5


@pytest.mark.postgres
async def test_hosts_tell_each_other_who_looks_and_what_is_written(hosts: Hosts) -> None:
    here, there = stores(hosts, "here", "there")
    agent = desk(Done(), refund())
    async with opened(here, agent) as one, opened(there, agent) as other:
        heard: list[tuple[str, str]] = []
        stop = other.presence.listen(lambda *about: heard.append(about))
        leave = one.presence.look("a1", "q", Caller(name="ann"))
        await until(lambda: other.presence.looking("a1", "q") == ["ann"])
        leave()
        await until(lambda: other.presence.looking("a1", "q") == [])
        await asked(one)
        [pending] = await soon(one.pending())
        heard.clear()
        await soon(one.take("a1", pending.request.id, by="ann"))
        await until(lambda: ("a1", pending.request.id) in heard)
        found = await soon(other.take("a1", pending.request.id, by="bob"))
        assert found.claim is not None
        assert (found.claim.by, found.claim.over) == ("bob", "ann")
        stop()
