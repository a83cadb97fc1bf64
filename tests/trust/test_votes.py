"""Calls to which several persons must agree, in a runtime."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import FakeClock, Held, by_turn, completed, interrupted
from tests.support.trust.broken import is_found_out
from understudy import (
    Agent,
    DecisionError,
    Runtime,
    UsageError,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.errors import PeopleUnavailable, VoteRefused
from understudy.trust import Caller, Person, approval

PEOPLE = {"ann": ["finance"], "bob": ["finance", "legal"], "cy": ["support"], "dan": ["finance"]}
TWO = approval({"finance": 2})


def desk(asked: Any = TWO, *before: str, **options: Any) -> tuple[Agent, list[int]]:
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    gates = {"refund": {"approval": asked, **options}}
    turns = [*before, call("refund", {"amount": 7})]
    return Agent("desk", by_turn(*turns), tools=[refund], interrupt_on=gates), paid


async def test_the_call_runs_once_enough_distinct_persons_have_approved_it() -> None:
    """V2."""
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = interrupted(await ref.run("go"))
        assert first.requests[0].allowed == ("approve", "reject")
        for _ in range(2):  # the same vote again is the same
            waiting = interrupted(await ref.resume(approve(by="ann")))
            assert waiting.requests == first.requests
        [pending] = await runtime.pending()
        assert [each.name for each in pending.votes] == ["ann"]
        assert pending.missing == "1 more of finance"
        assert paid == []
        completed(await ref.resume(approve(by="bob")))
        assert paid == [7]
        [decided] = await ref.decisions()
        assert decided.decision.by == "ann, bob"
        assert [each.person for each in decided.votes] == ["ann", "bob"]


async def test_one_rejection_of_who_might_approve_is_enough() -> None:
    """V2."""
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(approve(by="ann"))
        completed(await ref.resume(reject("too much", by="bob")))
        [decided] = await ref.decisions()
    assert (decided.decision.type, decided.decision.message) == ("reject", "too much")
    assert paid == []


async def test_a_person_may_change_their_vote_until_it_is_decided() -> None:
    """V2."""
    agent, paid = desk(approval({"finance": 2}, deny=2))
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(reject(by="ann"))
        await ref.resume(approve(by="ann"))
        completed(await ref.resume(approve(by="bob")))
    assert paid == [7]


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        (approve(), "nobody is named"),
        (approve(by="cy"), "'cy' has none of the roles that vote: finance"),
        (approve(by="eve"), "knows nobody by the name 'eve'"),
        (approve(by="Ann"), "knows nobody by the name 'Ann'"),
        (approve(by="robot"), "'robot' is a service, and only persons vote"),
    ],
)
async def test_who_may_not_vote_is_refused_and_nothing_is_recorded(
    decision: Any, told: str
) -> None:
    """V2."""
    agent, paid = desk(approval({"finance": 1}))
    robot = Person(id="robot", roles=frozenset({"finance"}), kind="service")
    async with Runtime([agent], people={**PEOPLE, "robot": robot}) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        with pytest.raises(VoteRefused, match=told) as raised:
            await ref.resume(decision)
        assert raised.value.person == (decision.by or "")
        [pending] = await runtime.pending()
        assert pending.votes == ()
    assert paid == []


@pytest.mark.parametrize("decision", [edit({"amount": 9}, by="ann"), respond("ok", by="ann")])
async def test_nobody_edits_or_answers_for_a_call_that_several_vote_on(decision: Any) -> None:
    """V2: what ann votes for is what bob votes for."""
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        with pytest.raises(DecisionError, match="does not allow"):
            await ref.resume(decision)
        with pytest.raises(DecisionError, match="no grant is offered"):
            await ref.resume(approve(always=True, by="ann"))
    assert paid == []


async def test_two_logins_of_one_person_are_one_vote() -> None:
    """V2."""
    ann = Person(id="1", name="Ann", roles=frozenset({"finance"}))
    agent, paid = desk()
    async with Runtime(
        [agent], people={"ann": ann, "ann@home": ann, "bob": ["finance"]}
    ) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        interrupted(await ref.resume(approve(by="ann")))
        interrupted(await ref.resume(approve(by="ann@home")))
        assert paid == []
        completed(await ref.resume(approve(by="bob")))
    assert paid == [7]


async def test_without_people_nobody_votes() -> None:
    """V2: also without a runtime, where there are no people."""
    agent, paid = desk()
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        with pytest.raises(VoteRefused, match=r"give Runtime\(people=...\)"):
            await ref.resume(approve(by="ann"))
    outcome = interrupted(await agent.execute("go"))
    with pytest.raises(VoteRefused, match=r"give Runtime\(people=...\)"):
        await agent.resume(outcome.state, approve(by="ann"))
    assert paid == []


async def test_votes_outlive_the_process(tmp_path: Path) -> None:
    """V2."""
    store = f"sqlite:///{tmp_path}/store.db"
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE, store=store) as runtime:
        await runtime.spawn("desk", id="a").run("go")
        await runtime.get("a").resume(approve(by="ann"))
    again, paid = desk()
    async with Runtime([again], people=PEOPLE, store=store) as runtime:
        [pending] = await runtime.pending()
        assert [each.name for each in pending.votes] == ["ann"]
        completed(await runtime.get("a").resume(approve(by="bob")))
    assert paid == [7]


@pytest.mark.parametrize("how", ["raises", "says nothing", "is wrong"])
async def test_where_people_cannot_be_asked_nobody_votes(how: str) -> None:
    """V3: it fails closed, and the request stays."""
    agent, paid = desk(approval({"finance": 1}))
    is_down = True

    async def who(caller: Caller) -> Any:
        if not is_down:
            return Person(id=caller.name, roles=frozenset({"finance"}))
        if how == "raises":
            raise ConnectionError("no directory")
        if how == "says nothing":
            raise TimeoutError
        return "ann"

    async with Runtime([agent], people=who) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        with pytest.raises(PeopleUnavailable, match="Vote again later"):
            await ref.resume(approve(by="ann"))
        assert paid == []
        is_down = False
        completed(await ref.resume(approve(by="ann")))
    assert paid == [7]


async def test_who_has_lost_their_role_before_the_call_starts_has_not_agreed() -> None:
    """V4: the votes that still count are kept."""
    agent, paid = desk()
    roles = {"ann": {"finance"}, "bob": {"finance"}, "dan": {"finance"}}
    asked: list[str] = []

    def who(caller: Caller) -> Person | None:
        asked.append(caller.name)
        if asked.count("ann") > 1:  # at the vote, then at the start of the call
            roles["ann"].clear()
        return Person(id=caller.name, roles=frozenset(roles[caller.name]))

    clock = FakeClock()
    async with Runtime([agent], people=who, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = interrupted(await ref.run("go"))
        await ref.resume(approve(by="ann"))
        clock.advance(61)  # until then an answer holds
        again = interrupted(await ref.resume(approve(by="bob")))
        assert again.requests[0].id != first.requests[0].id
        assert "ann had agreed, and may not vote any more" in again.requests[0].asked_again
        [pending] = await runtime.pending()
        assert [each.name for each in pending.votes] == ["bob"]
        assert paid == []
        completed(await ref.resume(approve(by="dan")))
    assert paid == [7]


def test_a_gate_that_could_not_be_voted_on_is_refused_when_the_agent_is_made() -> None:
    """V2."""
    with pytest.raises(UsageError, match="takes what approval"):
        desk({"finance": 2})
    with pytest.raises(UsageError, match="persons vote on the call as it is"):
        desk(allowed=["approve", "edit"])


@pytest.mark.parametrize(
    ("people", "told"),
    [
        (["ann"], "must be a mapping"),
        ({"ann": "finance"}, "must have roles as a list"),
        ({"": ["finance"]}, "a name"),
        ({"ann": Person(id="1"), "bob": Person(id="1", name="Bob")}, "two persons have the id '1'"),
    ],
)
def test_people_who_could_not_vote_are_refused_before_anything_runs(people: Any, told: str) -> None:
    """V3."""
    with pytest.raises(UsageError, match=told):
        Runtime([desk()[0]], people=people)


NOT_ASKER = approval({"finance": 1}, never=["requester"])


@pytest.mark.parametrize("how", ["run", "send"])
async def test_who_has_asked_for_a_call_does_not_vote_on_it(how: str) -> None:
    """V2: also by another login, and where others have asked for it, too."""
    ann = Person(id="1", name="Ann", roles=frozenset({"finance"}))
    people: dict[str, Any] = {"ann": ann, "ann@home": ann, "bob": ["finance"], "cy": []}
    agent, paid = desk(NOT_ASKER)
    async with Runtime([agent], people=people) as runtime:
        ref = runtime.spawn("desk", id="a")
        if how == "run":
            await ref.run("go", by="ann")
        elif how == "send":
            message = await ref.send("go", by="ann")
            await ref.outcome(message_id=message)
        for login in ("ann", "ann@home"):
            with pytest.raises(VoteRefused, match="has asked for the call"):
                await ref.resume(approve(by=login))
        assert paid == []
        completed(await ref.resume(approve(by="bob")))
    assert paid == [7]


async def test_who_has_steered_the_run_does_not_vote_on_its_calls() -> None:
    """V2."""
    held = Held()

    @tool
    async def look() -> str:
        """Look."""
        await held.wait()
        return "seen"

    @tool
    def refund() -> str:
        """Refund."""
        return "paid"

    model = by_turn(call("look", {}), call("refund", {}))
    gates = {"refund": {"approval": NOT_ASKER}}
    agent = Agent("desk", model, tools=[look, refund], interrupt_on=gates)
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("go", by="cy")
        await held.entered.wait()
        await ref.send("quickly", steer=True, by="ann")
        held.release.set()
        [request] = interrupted(await running).requests
        assert request.requesters == ("ann", "cy")
        with pytest.raises(VoteRefused, match="has asked for the call"):
            await ref.resume(approve(by="ann"))


@pytest.mark.parametrize("by", [[None], ["ann", None], [None, "ann"], ["stranger"]])
async def test_where_a_sender_is_not_known_nobody_votes(by: list[str | None]) -> None:
    """V2: the voter might be the requester."""
    agent, paid = desk(NOT_ASKER, *["hello"] * (len(by) - 1))
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        for name in by:
            await ref.run("go", by=name)
        with pytest.raises(VoteRefused, match="nobody knows who has asked for the call"):
            await ref.resume(approve(by="bob"))
    assert paid == []


async def test_a_plain_function_that_finds_people_does_not_hold_up_the_loop() -> None:
    """V3: it is called in a thread."""
    agent, paid = desk(approval({"finance": 1}))
    loop, called, answered = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def who(caller: Caller) -> Person | None:
        loop.call_soon_threadsafe(called.set)
        if not answered.wait(1.5):
            raise TimeoutError
        return Person(id=caller.name, roles=frozenset({"finance"}))

    async with Runtime([agent], people=who) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        voted = ref.resume(approve(by="ann"))
        await called.wait()
        answered.set()
        completed(await voted)
    assert paid == [7]


@pytest.mark.slow
async def test_a_plain_function_that_does_not_answer_in_two_seconds_lets_nobody_vote() -> None:
    """V3."""
    agent, paid = desk(approval({"finance": 1}))
    answered = threading.Event()

    def who(_: Caller) -> None:
        answered.wait(60)

    async with Runtime([agent], people=who) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        with pytest.raises(PeopleUnavailable, match="did not say within 2 s"):
            await ref.resume(approve(by="ann"))
        answered.set()
    assert paid == []


async def test_people_may_be_found_by_an_object_whose_call_is_async() -> None:
    """V3."""

    class Directory:
        async def __call__(self, caller: Caller) -> Person | None:
            return Person(id=caller.name, roles=frozenset({"finance"}))

    agent, paid = desk(approval({"finance": 1}))
    async with Runtime([agent], people=Directory()) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        completed(await ref.resume(approve(by="ann")))
    assert paid == [7]


CONTROLS: list[tuple[str, Any]] = [
    (
        "an equal vote is another one",
        test_the_call_runs_once_enough_distinct_persons_have_approved_it,
    ),
    ("one rejection is always enough", test_a_person_may_change_their_vote_until_it_is_decided),
    ("logins are counted, not persons", test_two_logins_of_one_person_are_one_vote),
    (
        "services vote",
        partial(
            test_who_may_not_vote_is_refused_and_nothing_is_recorded,
            approve(by="robot"),
            "'robot' is a service",
        ),
    ),
    (
        "an edit is a vote",
        partial(
            test_nobody_edits_or_answers_for_a_call_that_several_vote_on,
            edit({"amount": 9}, by="ann"),
        ),
    ),
    (
        "roles are not looked up again",
        test_who_has_lost_their_role_before_the_call_starts_has_not_agreed,
    ),
    ("who has asked may vote", partial(test_who_has_asked_for_a_call_does_not_vote_on_it, "run")),
    ("who steers has not asked", test_who_has_steered_the_run_does_not_vote_on_its_calls),
    (
        "who is not known has not asked",
        partial(test_where_a_sender_is_not_known_nobody_votes, [None]),
    ),
]


@pytest.mark.parametrize(("broken", "attack"), CONTROLS)
async def test_a_build_with_one_rule_left_out_is_found_out(broken: str, attack: Any) -> None:
    """Else the attack would prove nothing."""
    assert await is_found_out(broken, attack)
