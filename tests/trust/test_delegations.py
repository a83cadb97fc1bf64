"""Delegations: a person votes for another one, until a time, and both count as one.

Rules: V44.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.agents import FakeClock, Held, by_turn, completed, interrupted
from tests.support.hosts import opened, stores
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from tests.support.trust.broken import is_found_out
from understudy import Agent, Runtime, UsageError, approve, call, reject, tool
from understudy.errors import PeopleUnavailable, VoteRefused
from understudy.middleware import Middleware
from understudy.trust import Caller, Person, approval

FINANCE = approval({"finance": 1})
TWO = approval({"finance": 2})
NOT_ASKER = approval({"finance": 1}, never=["requester"])
ROBOT = Person(id="robot", roles=frozenset({"finance"}), kind="service")
PEOPLE: dict[Any, Any] = {
    "ann": ["finance", "legal"],
    "bob": ["support"],
    "cy": ["finance"],
    "dan": [],
    "robot": ROBOT,
}


def desk(asks: Any = FINANCE, **options: Any) -> tuple[Agent, list[int]]:
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    gates: Any = {"refund": {"approval": asks}}
    turns = [call("refund", {"amount": 7}), "Paid."]
    return Agent("desk", by_turn(*turns), tools=[refund], interrupt_on=gates, **options), paid


def terms(runtime: Runtime, **more: Any) -> dict[str, Any]:
    ends = datetime.now(UTC) + timedelta(hours=2)
    given = {"from_": "ann", "to": "bob", "roles": ["finance"], "until": ends, "reason": "away"}
    return {**given, **more}


async def test_who_has_been_given_a_role_votes_for_the_other_and_it_is_said() -> None:
    """V44."""
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        with pytest.raises(VoteRefused, match="none of the roles"):
            await ref.resume(approve(by="bob"))
        made = await runtime.delegate(**terms(runtime))
        assert [each.id for each in await runtime.delegations()] == [made.id]
        completed(await ref.resume(approve(by="bob")))
        [decided] = await ref.decisions()
        [vote] = decided.votes
    assert paid == [7]
    assert vote.represents is not None
    assert (vote.person, vote.represents.person, vote.roles) == ("bob", "ann", ("finance",))
    ends = made.said.until
    assert decided.decision.by == f"bob for ann until {ends:%Y-%m-%d %H:%M} UTC"


@pytest.mark.parametrize("first", ["bob", "ann"])
async def test_the_vote_for_another_one_uses_up_both(first: str) -> None:
    """V44: two of finance are not ann and who votes for ann."""
    agent, paid = desk(TWO)
    second = {"ann": "bob", "bob": "ann"}[first]
    async with Runtime([agent], people=PEOPLE) as runtime:
        await runtime.delegate(**terms(runtime))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        interrupted(await ref.resume(approve(by=first)))
        told = {"bob": "is cast already", "ann": "bob has voted for 'ann'"}[second]
        with pytest.raises(VoteRefused, match=told):
            await ref.resume(approve(by=second))
        assert paid == []
        completed(await ref.resume(approve(by="cy")))
    assert paid == [7]


async def test_two_who_vote_for_the_same_person_are_one() -> None:
    """V44."""
    agent, paid = desk(TWO)
    async with Runtime([agent], people=PEOPLE) as runtime:
        for to in ("bob", "dan"):
            await runtime.delegate(**terms(runtime, to=to))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(approve(by="bob"))
        with pytest.raises(VoteRefused, match="the vote of ann"):
            await ref.resume(approve(by="dan"))
    assert paid == []


async def test_after_its_end_the_person_votes_and_who_had_voted_for_them_does_not_count() -> None:
    """V44."""
    agent, paid = desk(TWO)
    async with Runtime([agent], people=PEOPLE) as runtime:
        made = await runtime.delegate(**terms(runtime))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(approve(by="bob"))
        assert await runtime.end_delegation(made.id, by="ann")
        assert not await runtime.end_delegation(made.id)
        assert await runtime.delegations() == []
        interrupted(await ref.resume(approve(by="ann")))  # hers alone
        [pending] = await runtime.pending()
        assert pending.missing == "1 more of finance"
        assert paid == []
        completed(await ref.resume(approve(by="cy")))
    assert paid == [7]


@pytest.mark.parametrize("how", ["ended", "expired", "role lost"])
async def test_right_before_the_call_starts_the_delegation_is_looked_at_again(how: str) -> None:
    """V44."""
    agent, paid = desk(TWO)
    clock = FakeClock()
    roles = {"ann": {"finance"}, "bob": set(), "cy": {"finance"}, "dan": {"finance"}}

    def who(caller: Caller) -> Person:
        return Person(id=caller.name, roles=frozenset(roles[caller.name]))

    async with Runtime([agent], people=who, clock=clock) as runtime:
        ends = clock.now() + timedelta(seconds=90)
        made = await runtime.delegate(**terms(runtime, until=ends))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(approve(by="bob"))
        if how == "ended":
            await runtime.end_delegation(made.id)
        elif how == "expired":
            clock.advance(91)
        else:
            roles["ann"] = set()
            clock.advance(61)  # until then an answer of the application holds
        [request] = interrupted(await ref.resume(approve(by="cy"))).requests
        assert "bob for ann" in request.asked_again
        [pending] = await runtime.pending()
        assert [each.person for each in pending.votes] == ["cy"]
        assert paid == []
        completed(await ref.resume(approve(by="dan")))
    assert paid == [7]


@pytest.mark.parametrize("asker", ["ann", "bob"])
async def test_it_is_no_way_around_who_has_asked(asker: str) -> None:
    """V44: neither who gives nor who gets may have asked."""
    agent, paid = desk(NOT_ASKER)
    async with Runtime([agent], people=PEOPLE) as runtime:
        await runtime.delegate(**terms(runtime))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go", by=asker)
        with pytest.raises(VoteRefused, match="has asked for the call"):
            await ref.resume(approve(by="bob"))
    assert paid == []


async def test_what_was_delegated_is_not_delegated_on() -> None:
    """V44."""
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        await runtime.delegate(**terms(runtime))
        with pytest.raises(UsageError, match="cannot be delegated further"):
            await runtime.delegate(**terms(runtime, from_="bob", to="dan"))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        with pytest.raises(VoteRefused, match="none of the roles"):
            await ref.resume(approve(by="dan"))
    assert paid == []


async def test_who_has_the_role_themselves_votes_for_nobody_else() -> None:
    """V44."""
    agent, paid = desk(TWO)
    async with Runtime([agent], people=PEOPLE) as runtime:
        await runtime.delegate(**terms(runtime, to="cy"))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        interrupted(await ref.resume(approve(by="cy")))
        completed(await ref.resume(approve(by="ann")))
    assert paid == [7]


async def test_the_glass_is_not_broken_by_a_delegation() -> None:
    """V44."""
    agent, paid = desk(approval({"finance": 2}, break_glass={"legal": 1}))
    async with Runtime([agent], people=PEOPLE) as runtime:
        await runtime.delegate(**terms(runtime, roles=["legal", "finance"]))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        with pytest.raises(VoteRefused, match="does not have the role that may break the glass"):
            await ref.resume(approve(by="bob", break_glass=True, note="now"))
    assert paid == []


async def test_a_veto_for_another_one_counts_as_theirs() -> None:
    """V44."""
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        await runtime.delegate(**terms(runtime))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        completed(await ref.resume(reject("no", by="bob")))
        [decided] = await ref.decisions()
    assert (decided.decision.type, paid) == ("reject", [])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"from_": "eve"}, "`people` knows nobody by 'eve'"),
    ({"to": "eve"}, "`people` knows nobody by 'eve'"),
    ({"to": "robot"}, "is a service, and only persons vote"),
    ({"from_": "robot"}, "is a service, and only persons vote"),
    ({"to": "ann"}, "are one person"),
    ({"roles": ["ceo"]}, "does not have the role 'ceo'"),
    ({"roles": []}, "must not be empty"),
    ({"roles": "finance"}, "must be a list of roles"),
    ({"until": datetime(2020, 1, 1, tzinfo=UTC)}, "must be in the future"),
    ({"until": datetime(2999, 1, 1)}, "time zone"),
    ({"reason": " "}, "must say why"),
    ({"reason": "x" * 1001}, "must say why"),
    ({"by": "\u0430nn"}, "looks like another letter"),
    ({"to": 7}, "name of a login"),
    ({"to": ("a", "b", "c")}, "name of a login"),
]


@pytest.mark.parametrize(("given", "told"), WRONG)
async def test_what_cannot_be_delegated_is_refused_and_nothing_is_added(
    given: dict[str, Any], told: str
) -> None:
    """V44."""
    agent, _ = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        with pytest.raises(UsageError, match=told):
            await runtime.delegate(**terms(runtime, **given))
        assert await runtime.delegations() == []


async def test_without_people_nothing_is_delegated() -> None:
    agent, _ = desk()
    async with Runtime([agent]) as runtime:
        with pytest.raises(UsageError, match="no people are known"):
            await runtime.delegate(**terms(runtime))

    def away(caller: Caller) -> Person:
        raise ConnectionError("no directory")

    async with Runtime([agent], people=away) as runtime:
        with pytest.raises(PeopleUnavailable, match="no directory"):
            await runtime.delegate(**terms(runtime))


class Waits(Middleware):
    """Holds a call in its middle, before its body."""

    def __init__(self, held: Held) -> None:
        self._held = held

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        await self._held.wait()
        return await next(call)


async def test_a_delegation_that_ends_right_before_the_body_is_entered_counts_not() -> None:
    """V44: those who agreed were looked up by then."""
    held = Held()
    agent, paid = desk(middleware=[Waits(held)])
    async with Runtime([agent], people=PEOPLE) as runtime:
        made = await runtime.delegate(**terms(runtime))
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        running = ref.resume(approve(by="bob"))
        await soon(held.entered.wait())
        await runtime.end_delegation(made.id)
        held.release.set()
        [request] = interrupted(await soon(running)).requests
        assert "that delegation has ended" in request.asked_again
        with pytest.raises(VoteRefused):
            await ref.resume(approve(by="bob"))
        assert paid == []
        completed(await soon(ref.resume(approve(by="ann"))))
    assert paid == [7]


@pytest.mark.postgres
async def test_it_holds_at_all_hosts_of_the_store_and_so_does_its_end(hosts: Hosts) -> None:
    """V44."""
    here, there = stores(hosts, "here", "there")
    first, paid = desk(TWO, movable=False)
    second, _ = desk(TWO, movable=False)
    async with (
        opened(here, first, people=PEOPLE) as owner,
        opened(there, second, people=PEOPLE) as other,
    ):
        ref = owner.spawn("desk", id="a")
        await soon(ref.run("go"))
        made = await soon(other.delegate(**terms(other)))
        await until(lambda: owner.trust.state.number == 1)
        await soon(ref.resume(approve(by="bob")))
        [pending] = await soon(owner.pending())
        assert [each.person for each in pending.votes] == ["bob"]
        await soon(other.end_delegation(made.id))
        await until(lambda: owner.trust.state.number == 2)
        again = interrupted(await soon(ref.resume(approve(by="cy"))))
        assert "bob for ann" in again.requests[0].asked_again
    assert paid == []


CONTROLS: list[tuple[str, Any]] = [
    (
        "who votes for another one does not use them up",
        partial(test_the_vote_for_another_one_uses_up_both, "bob"),
    ),
    (
        "who votes for another one does not use them up",
        partial(test_the_vote_for_another_one_uses_up_both, "ann"),
    ),
    (
        "who votes for another one does not use them up",
        test_two_who_vote_for_the_same_person_are_one,
    ),
    (
        "a delegation holds after its end",
        partial(test_right_before_the_call_starts_the_delegation_is_looked_at_again, "ended"),
    ),
    (
        "a delegation holds after its end",
        partial(test_right_before_the_call_starts_the_delegation_is_looked_at_again, "expired"),
    ),
    (
        "a delegation gives what its giver has no more",
        partial(test_right_before_the_call_starts_the_delegation_is_looked_at_again, "role lost"),
    ),
    (
        "who votes for who has asked has not asked",
        partial(test_it_is_no_way_around_who_has_asked, "ann"),
    ),
    (
        "who votes for who has asked has not asked",
        partial(test_it_is_no_way_around_who_has_asked, "bob"),
    ),
    ("what was delegated is delegated on", test_what_was_delegated_is_not_delegated_on),
    (
        "a delegation is not looked at right before the body",
        test_a_delegation_that_ends_right_before_the_body_is_entered_counts_not,
    ),
]


@pytest.mark.parametrize(("broken", "attack"), CONTROLS)
async def test_a_build_with_one_rule_left_out_is_found_out(broken: str, attack: Any) -> None:
    """V44: else the attacks would prove nothing."""
    assert await is_found_out(broken, attack)
