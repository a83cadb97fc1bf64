"""Decisions that hold for later calls: what may be granted, for which calls, and how often."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import FakeClock, Held, by_turn, completed, interrupted, results
from tests.support.loops import soon
from tests.support.plans import outcome_of
from understudy import (
    Agent,
    Decision,
    DecisionError,
    Interrupted,
    Runtime,
    SimulatedClock,
    UsageError,
    approve,
    call,
    grant,
    reject,
    respond,
    tool,
)
from understudy.events import GrantUsed, RunFinished
from understudy.middleware import Middleware, SubAgent
from understudy.tools import OutcomeUnknown
from understudy.trust import GrantTerms, Rules, approval, ask, deny, offer

PEOPLE = {"ann": ["finance"], "bob": ["finance"], "cy": ["support"]}


def pays(customer: str = "ann", amount: int = 5) -> Any:
    return call("pay", {"customer": customer, "amount": amount})


def paying(
    *turns: Any, gate: Any = True, extra: Any = None, **options: Any
) -> tuple[Agent, list[tuple[str, int]]]:
    """An agent that pays, and what it has paid; an amount of 0 has no known outcome."""
    paid: list[tuple[str, int]] = []

    @tool(on_unknown="tell", sequential=True)
    async def pay(customer: str, amount: int) -> str:
        """Pay."""
        paid.append((customer, amount))
        if not amount:
            raise OutcomeUnknown("timeout")
        return "paid"

    others = extra or {}
    gates = {} if gate is None else {"pay": gate}
    gates |= {each.name: asked for each, asked in others.items()}
    tools = [pay, *others]
    return Agent("desk", by_turn(*turns), tools=tools, interrupt_on=gates, **options), paid


@pytest.mark.parametrize(
    ("terms", "covered"),
    [
        (grant(), [("ann", 5)]),
        (grant(match=["customer"]), [("ann", 5), ("ann", 6)]),
        (grant(match=["amount"]), [("ann", 5), ("bob", 5)]),
        (grant(match=[]), [("ann", 5), ("ann", 6), ("bob", 5)]),
    ],
    ids=str,
)
async def test_a_grant_covers_calls_with_equal_arguments(terms: GrantTerms, covered: Any) -> None:
    """V21."""
    later = [pays("ann", 5), pays("ann", 6), pays("bob", 5)]
    agent, paid = paying(pays(), *later)
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        outcome: Any = await ref.run("go")
        outcome = await ref.resume(approve(grant=terms, by="ann"))
        asked = 0
        while not paid[3:] and hasattr(outcome, "requests"):
            asked += 1
            outcome = await ref.resume(outcome.decide(reject()))
        assert paid[1:] == covered
        assert asked == 3 - len(covered)
        granted = [each for each in await ref.decisions() if each.decision.by_grant is not None]
        used: list[Any] = []
        async for each in ref.events():
            if isinstance(each.event, GrantUsed):
                used.append(each.event)
            elif isinstance(each.event, RunFinished):
                break
        assert [(each.by, each.request.arguments["customer"]) for each in used] == [
            ("ann", customer) for customer, _ in covered
        ]
        assert [each.decision.by for each in granted] == ["ann"] * len(covered)


async def test_a_grant_holds_in_its_run_or_in_all_runs_of_its_agent() -> None:
    """V21, V23."""
    for scope, holds in (("run", False), ("agent", True)):
        agent, paid = paying(pays(), "over", pays())
        async with Runtime([agent]) as runtime:
            ref = runtime.spawn("desk", id="a")
            await ref.run("go")
            terms = grant(scope=scope)  # type: ignore[arg-type]
            done = completed(await ref.resume(approve(grant=terms)))
            assert bool(done.state.grants) is holds
            outcome = await ref.run("again")
            assert (len(paid) == 2) is holds
            assert hasattr(outcome, "requests") is not holds


async def test_a_grant_ends_at_its_time_and_after_its_uses() -> None:
    """V22, V23."""
    clock = FakeClock()
    agent, paid = paying(*[pays()] * 3)
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        outcome = interrupted(await ref.resume(approve(grant=grant(uses=1))))
        assert len(paid) == 2
        assert outcome.state.grants == {}
    agent, paid = paying(pays(), "over", pays(), "over", pays())
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        terms = grant(until=timedelta(hours=1), scope="agent")
        done = completed(await ref.resume(approve(grant=terms)))
        (granted,) = done.state.grants.values()
        assert granted.until == clock.now() + timedelta(hours=1)
        clock.advance(3_599)
        completed(await ref.run("again"))
        clock.advance(1)
        assert interrupted(await ref.run("once more")).state.grants == {}
    assert len(paid) == 2


async def test_a_standing_denial_counts_more_than_a_grant_that_allows() -> None:
    """V21."""
    agent, paid = paying(pays("ann", 5), pays("bob", 5), pays("bob", 6), pays("ann", 6))
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(approve(grant=grant(match=["amount"])))  # also lets bob's 5 through
        assert paid == [("ann", 5), ("bob", 5)]
        done = await ref.resume(reject("not to bob", always=True, by="cy"))
        # Now all are denied, and nobody is asked: the first grant is about fewer calls.
        parts = results(completed(done).state)
        assert [part.outcome for part in parts] == ["success", "success", "denied", "denied"]
        assert "not to bob" in str(parts[-1].content)
        (by_grant,) = [d.decision for d in (await ref.decisions())[-1:]]
        assert (by_grant.type, by_grant.by, by_grant.by_grant is not None) == (
            "reject",
            "cy",
            True,
        )
    assert len(paid) == 2


HOUR = offer(for_at_most=3_600, uses=5, free=["amount"])


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        (grant(uses=1), "for at most 1 hour, .*got no end: give at most until=3600"),
        (grant(until=3_601, uses=1), "got 1 hour 1 second"),
        (grant(until=60), "at most 5 uses.*got any number of uses: give at most uses=5"),
        (grant(until=60, uses=6), "got 6 uses"),
        (grant(until=60, uses=1, match=["amount"]), "`match` lacks 'customer'"),
        (grant(until=60, uses=1, match=["who"]), "names 'who'; the arguments are amount, customer"),
        (grant(until=60, uses=1, scope="agent"), "in this run; got one in all runs"),
        (grant(until=datetime(2029, 1, 1, tzinfo=timezone.utc), uses=1), "is over"),
        (grant(until=datetime(2030, 1, 1, 13, 1, tzinfo=timezone.utc), uses=1), "got 1 hour 1 min"),
        (None, "a grant is offered"),
    ],
)
async def test_a_grant_beyond_the_cap_is_an_error_that_names_it_and_nothing_is_recorded(
    terms: GrantTerms | None, told: str
) -> None:
    """V20: never a clamp."""
    agent, paid = paying(pays(), gate={"grant": HOUR})
    async with Runtime([agent], clock=FakeClock()) as runtime:
        ref = runtime.spawn("desk", id="a")
        [request] = interrupted(await ref.run("go")).requests
        assert request.offer == HOUR
        decision = approve(always=True) if terms is None else approve(grant=terms)
        with pytest.raises(DecisionError, match=told):
            await ref.resume(decision)
        assert await ref.decisions() == []
        assert paid == []
        within = grant(until=3_600, uses=5, match=["customer"])
        completed(await ref.resume(approve(grant=within)))


@pytest.mark.parametrize("how", ["gate", "rule", "several", "question", "answer", "twice"])
async def test_where_no_grant_is_offered_none_is_taken(how: str) -> None:
    """V20."""
    gate: Any = {"gate": {"grant": False}, "several": {"approval": approval({"finance": 1})}}
    agent, paid = paying(pays(), gate=None if how == "rule" else gate.get(how, True))
    rules = Rules(ask("pay")) if how == "rule" else None
    async with Runtime([agent], rules=rules, people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        [request] = interrupted(await ref.run("go")).requests
        if how in ("gate", "rule", "several"):
            assert request.offer is None
        given: Any = {"type": "approve", "by": "ann", "grant": {}}
        if how == "answer":
            given = Decision(type="respond", value=1, grant=grant())
        if how == "twice":
            given |= {"always": True}
        if how == "question":
            given = Decision(type="approve", by_grant="x")
        with pytest.raises(DecisionError, match="grant"):
            await ref.resume({request.id: given})
    assert paid == []


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: grant(until=0), "above 0 seconds"),
        (lambda: grant(until="1h"), "must be seconds"),  # type: ignore[arg-type]
        (lambda: grant(until=datetime(2030, 1, 1)), "must have a time zone"),
        (lambda: grant(uses=0), "must be a number from 1 on"),
        (lambda: grant(uses=True), "must be a number from 1 on"),
        (lambda: grant(match="customer"), "must be a list of names"),
        (lambda: grant(match=[1]), "must be text"),  # type: ignore[list-item]
        (lambda: grant(scope="session"), 'must be "run" or "agent"'),  # type: ignore[arg-type]
        (lambda: offer(for_at_most=-1), "must be seconds"),
        (lambda: offer(uses=0), "must be a number from 1 on"),
        (lambda: offer(free="amount"), 'must be a list of names, or "any"'),
        (lambda: offer(scope="all"), 'must be "run" or "agent"'),  # type: ignore[arg-type]
        (lambda: ask("pay", grant="1h"), r"must be True, False, or offer"),  # type: ignore[arg-type]
        (lambda: paying(gate={"grant": 3_600}), r"must be True, False, or offer"),
    ],
)
def test_terms_that_could_not_hold_are_refused_where_they_are_made(make: Any, told: str) -> None:
    """V20."""
    with pytest.raises(UsageError, match=told):
        make()
    with pytest.raises(DecisionError, match="not both"):
        approve(always=True, grant=grant())


def test_terms_from_outside_are_read_and_checked() -> None:
    """V20."""
    given = {"type": "approve", "grant": {"seconds": 60, "match": ["a"], "scope": "agent"}}
    assert Decision.from_dict(given).grant == grant(until=60, match=["a"], scope="agent")
    assert Decision.from_dict(approve(always=True).to_dict()) == approve(always=True)
    assert Decision.from_dict({"type": "reject", "always": True}) == reject(always=True)
    for bad in ({"uses": "many"}, {"hours": 1}, "an hour"):
        with pytest.raises(DecisionError):
            Decision.from_dict({"type": "approve", "grant": bad})


VOTED = {"approval": approval({"finance": 2}), "grant": offer(for_at_most=3_600, free="any")}


@pytest.mark.parametrize("second", [3_600, 60, None])
async def test_votes_are_a_grant_where_all_want_the_same_terms(second: int | None) -> None:
    """V20: else the decision is for this call alone."""
    agent, paid = paying(pays(), pays(), gate=VOTED)
    terms = None if second is None else grant(until=second)
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(approve(grant=grant(until=3_600), by="ann"))
        [pending] = await runtime.pending()
        assert [each.grant for each in pending.votes] == [grant(until=3_600)]
        outcome = await ref.resume(approve(grant=terms, by="bob"))
        is_granted = second == 3_600
        assert len(paid) == 1 + is_granted
        assert hasattr(outcome, "requests") is not is_granted
    last = outcome.state.decisions[-1].decision
    assert last.by == "ann, bob"
    assert (last.by_grant is not None) is is_granted


async def test_another_vote_of_a_person_may_have_other_terms() -> None:
    """V20: equal terms are the same vote again, others are another one."""
    agent, paid = paying(pays(), pays(), gate=VOTED)
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        for seconds in (60, 60, 120):
            await ref.resume(approve(grant=grant(until=seconds), by="ann"))
        [pending] = await runtime.pending()
        assert [each.grant for each in pending.votes] == [grant(until=60), grant(until=120)]
        completed(await ref.resume(approve(grant=grant(until=120), by="bob")))
    assert len(paid) == 2


async def test_grants_and_their_uses_outlive_the_process_and_a_compaction(tmp_path: Path) -> None:
    """V22."""
    store = f"sqlite:///{tmp_path}/store.db"
    turns = [pays(), "over", pays(), "over", pays()]
    agent, paid = paying(*turns)
    async with Runtime([agent], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(approve(grant=grant(uses=2, scope="agent")))
    for left in (1, 0):
        agent, paid = paying(*turns)
        async with Runtime([agent], store=store) as runtime:
            ref = runtime.get("a")
            await ref.compact()
            completed(await ref.run("again"))
            assert len(paid) == 1
            assert [each.left for each in (await ref.state()).grants.values()] == [1] * left


async def test_a_run_that_continues_after_a_failure_asks_about_what_a_grant_had_let_through() -> (
    None
):
    """V22: the call had not begun, so its use is given back."""
    fails = [True]

    class Fails(Middleware):
        async def wrap_tool_call(self, run: Any, given: Any, next: Any) -> Any:
            if fails and given.arguments["amount"] == 6:
                fails.clear()
                raise OSError("no network")
            return await next(given)

    agent, paid = paying(pays(), [pays("ann", 6), pays("ann", 7)], middleware=[Fails()])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        terms = grant(uses=5, match=[], scope="agent")
        failed = await ref.resume(approve(grant=terms))
        assert type(failed).__name__ == "Failed"
        assert await left_of(ref) == 5
        [again] = interrupted(await ref.retry()).requests
        assert again.asked_again
        assert again.arguments["amount"] == 7
    assert paid == [("ann", 5)]


class Never(Middleware):
    """Raises before the first call that it is to stop."""

    def __init__(self, amount: int) -> None:
        self._amount = amount

    async def wrap_tool_call(self, run: Any, given: Any, next: Any) -> Any:
        if given.arguments["amount"] == self._amount:
            raise OSError("no network")
        return await next(given)


async def left_of(ref: Any) -> int | None:
    (granted,) = (await ref.state()).grants.values()
    left: int | None = granted.left
    return left


async def test_a_use_is_given_back_where_the_body_was_never_entered() -> None:
    """V22: by a denial right before the start, and by a run that is cancelled while it waits."""
    agent, paid = paying(pays(), pays("ann", 9), pays("ann", 8), gate={"grant": True})
    terms = grant(uses=2, match=[], scope="agent")
    rules = Rules(ask("pay", name="large", when=lambda given, view: given["amount"] > 5))
    async with Runtime([agent], rules=rules) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        waiting = interrupted(await ref.resume(approve(grant=terms)))
        assert [each.source for each in waiting.requests] == ["rule: large"]
        assert await left_of(ref) == 1, "the gate's request took a use"
        runtime.rules = Rules(deny("pay", when=lambda given, view: given["amount"] == 9))
        await ref.resume(approve())
        assert paid == [("ann", 5), ("ann", 8)]
        assert await left_of(ref) == 1
    agent, paid = paying(pays(), pays("ann", 9))
    async with Runtime([agent], rules=rules) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        interrupted(await ref.resume(approve(grant=terms)))
        assert await left_of(ref) == 1
        await ref.cancel()
        assert await left_of(ref) == 2
    assert paid == [("ann", 5)]


async def test_a_use_of_a_call_that_was_entered_is_not_given_back() -> None:
    """V22: nor where it failed."""
    agent, paid = paying(pays(), pays("ann", 9), pays("ann", 8), middleware=[Never(99)])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(approve(grant=grant(uses=3, match=[], scope="agent")))
        assert await left_of(ref) == 1
    assert len(paid) == 3


@pytest.mark.parametrize("happened", [False, True])
async def test_a_use_of_a_call_in_doubt_is_given_back_where_it_is_known_to_have_done_nothing(
    happened: bool,
) -> None:
    """V22."""
    agent, paid = paying(pays(), pays("ann", 0))
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        terms = grant(uses=2, match=[], scope="agent")
        done = completed(await ref.resume(approve(grant=terms)))
        assert await left_of(ref) == 1
        (key,) = done.state.doubts_in_tree
        await ref.settle(key, how="looked", happened=happened)
        assert await left_of(ref) == (1 if happened else 2)
    assert len(paid) == 2


async def test_a_use_is_counted_for_a_call_of_an_agent_inside() -> None:
    """V21, V22: in all runs of the outermost agent, and for no agent at another place."""
    paid: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "paid"

    def clerk(name: str) -> Agent:
        return Agent(name, by_turn(call("pay", {})), tools=[pay], interrupt_on={"pay": True})

    def task(name: str) -> Any:
        return call("task", {"task_name": name, "instructions": "pay"})

    boss = Agent(
        "boss",
        by_turn(task("one"), "over", task("one"), task("two")),
        middleware=[SubAgent([clerk("one"), clerk("two")], general_purpose=False)],
    )
    async with Runtime([boss]) as runtime:
        ref = runtime.spawn("boss", id="a")
        [request] = interrupted(await ref.run("go")).requests
        await ref.resume(approve(grant=grant(uses=5, scope="agent")))
        outcome = interrupted(await ref.run("again"))
        assert [each.agent_path for each in outcome.requests] == [("boss", "two")]
        assert len(paid) == 2
        assert await left_of(ref) == 4
        await ref.revoke(request.id, by="ann")
        assert (await ref.state()).grants == {}


async def test_a_grant_is_not_applied_to_a_call_that_a_person_was_asked_about_again() -> None:
    """V21: nor is the answer to that lost for later calls."""
    held = Held()

    class Holds(Middleware):
        async def wrap_tool_call(self, run: Any, given: Any, next: Any) -> Any:
            if given.arguments["amount"] == 6 and not held.release.is_set():
                await held.wait()
            return await next(given)

    agent, paid = paying(pays(), pays("ann", 6), pays("ann", 7), middleware=[Holds()])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        [first] = interrupted(await ref.run("go")).requests
        running = ref.resume(approve(grant=grant(match=[], scope="agent")))
        await held.entered.wait()
        await ref.revoke(first.id)
        held.release.set()
        [again] = interrupted(await running).requests
        assert again.asked_again == "The grant by which it was decided does not hold any more."
        completed(await ref.resume(approve(grant=grant(match=[]))))
    assert paid == [("ann", 5), ("ann", 6), ("ann", 7)]


async def test_a_grant_of_an_approval_holds_while_its_voters_might_agree_to_the_call() -> None:
    """V23: not where one of them has asked for the call, and not where a sender is not known."""
    one = approval({"finance": 1}, never=["requester"])
    for by, holds in (("cy", True), ("ann", False), (None, False)):
        agent, paid = paying(pays(), "over", pays(), gate={"approval": one, "grant": True})
        async with Runtime([agent], people=PEOPLE) as runtime:
            ref = runtime.spawn("desk", id="a")
            await ref.run("go", by="cy")
            await ref.resume(approve(grant=grant(scope="agent"), by="ann"))
            await ref.run("again", by=by)
        assert (len(paid) == 2) is holds, by


@pytest.mark.parametrize("given", [{"grant": grant()}, {"always": True}], ids=["terms", "always"])
async def test_a_decision_that_breaks_the_glass_is_no_grant(given: Any) -> None:
    """V20."""
    asked = approval({"finance": 2}, break_glass={"support": 1})
    agent, paid = paying(pays(), pays(), gate={"approval": asked, "grant": True})
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go", by="ann")
        with pytest.raises(DecisionError, match="lets only this call run"):
            await ref.resume(approve(break_glass=True, note="fire", by="cy", **given))
        assert paid == []
        await ref.resume(approve(grant=grant(), by="ann"))  # nor does the vote of another person
        after = interrupted(await ref.resume(approve(break_glass=True, note="fire", by="cy")))
        assert after.state.grants == {}
    assert len(paid) == 1


async def test_a_grant_of_a_call_that_cools_off_begins_when_that_is_over() -> None:
    """V20, V23: and the time in which a call must start is not for later calls."""
    clock = SimulatedClock()
    asked = approval({"finance": 1}, use_after=3_600, use_within=60)
    agent, paid = paying(pays(), "over", pays(), gate={"approval": asked, "grant": True})
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("go", by="cy"))
        await soon(ref.resume(approve(grant=grant(until=600, scope="agent"), by="ann")))
        assert (await ref.state()).grants == {}
        await soon(clock.advance(3_600))
        done = completed(await outcome_of(ref))
        [granted] = done.state.grants.values()
        assert granted.until == clock.now() + timedelta(seconds=600)
        await soon(clock.advance(599))
        completed(await soon(ref.run("again", by="cy")))
    assert len(paid) == 2


@pytest.mark.parametrize("when", ["before the call", "before its body"])
async def test_a_grant_ends_with_the_delegation_by_which_it_was_given(when: str) -> None:
    """V23, V44."""
    held = Held()

    class Holds(Middleware):
        async def wrap_tool_call(self, run: Any, given: Any, next: Any) -> Any:
            if given.arguments["amount"] == 6:
                await held.wait()
            return await next(given)

    gate = {"approval": approval({"finance": 1}), "grant": True}
    turns = (pays(), "over", pays("ann", 6))
    agent, paid = paying(*turns, gate=gate, middleware=[Holds()])
    async with Runtime([agent], people=PEOPLE) as runtime:
        ends = datetime.now(UTC) + timedelta(hours=2)
        given: dict[str, Any] = {
            "from_": "ann",
            "to": "cy",
            "roles": ["finance"],
            "until": ends,
            "reason": "away",
        }
        made = await runtime.delegate(**given)
        ref = runtime.spawn("desk", id="a")
        await ref.run("go", by="bob")
        terms = grant(match=["customer"], scope="agent")
        completed(await ref.resume(approve(grant=terms, by="cy")))
        if when == "before the call":
            await runtime.end_delegation(made.id)
        running = ref.run("again", by="bob")
        if when == "before its body":
            await soon(held.entered.wait())
            await runtime.end_delegation(made.id)
            held.release.set()
        [request] = interrupted(await soon(running)).requests
        assert paid == [("ann", 5)]
        held.release.set()
        completed(await soon(ref.resume({request: approve(by="ann")})))
    assert paid == [("ann", 5), ("ann", 6)]


@pytest.mark.parametrize("asked", [None, approval({"finance": 1})], ids=["anybody", "finance"])
async def test_a_gate_that_offers_another_grant_today_asks_before_the_call_starts(
    asked: Any, tmp_path: Path
) -> None:
    """V23, V37: also about a call that a grant has let through, and that has not started."""

    @tool
    def ship() -> str:
        """Ship."""
        return "shipped"

    async def asks_today(offered: Any) -> tuple[bool, int]:
        store = f"sqlite:///{tmp_path}/{offered is True}.db"
        then = {"grant": True} if asked is None else {"grant": True, "approval": asked}
        turns = (pays(), [pays(), call("ship", {})])
        agent, _ = paying(*turns, gate=then, extra={ship: True})
        async with Runtime([agent], people=PEOPLE, store=store) as runtime:
            ref = runtime.spawn("desk", id="a")
            await ref.run("go", by="cy")
            interrupted(await ref.resume(approve(grant=grant(), by="ann")))
        agent, paid = paying(*turns, gate={**then, "grant": offered}, extra={ship: True})
        async with Runtime([agent], people=PEOPLE, store=store) as runtime:
            [pending] = await runtime.pending()
            ref = runtime.get("a")
            outcome = await soon(ref.resume({pending.request: approve(by="cy")}))
            if not isinstance(outcome, Interrupted):
                return False, len(paid)
            assert paid == []
            [request] = outcome.requests
            assert request.tool_name == "pay"
            completed(await soon(ref.resume({request: approve(by="ann")})))
            return True, len(paid)

    assert await asks_today(True) == (False, 1)
    assert await asks_today(offer(uses=1)) == (True, 1)


async def test_a_person_asked_beside_a_doubt_decides_for_that_call_alone() -> None:
    """V21."""
    agent, paid = paying([pays("ann", 0), pays("ann", 6)], pays("ann", 7), gate=True)
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        one, two = interrupted(await ref.run("go")).requests
        await ref.resume({one: approve(grant=grant(match=[])), two: approve()})
        [beside] = (await ref.state()).requests
        assert beside.doubts
        await ref.resume({beside: respond("done by hand")})
    assert ("ann", 7) not in paid


async def test_an_agent_has_at_most_a_hundred_grants() -> None:
    """V20."""
    agent, _ = paying(*[pays("ann", amount) for amount in range(1, 103)], max_runs=200)
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        for _ in range(100):
            await ref.resume(approve(grant=grant()))
        with pytest.raises(DecisionError, match="at most 100 are allowed: revoke some"):
            await ref.resume(approve(grant=grant()))
        await ref.revoke(next(iter((await ref.state()).grants)))
        await ref.resume(approve(grant=grant()))


@pytest.mark.slow
async def test_votes_that_cool_off_bring_no_more_grants_than_an_agent_may_have() -> None:
    """V20: there was room for each when it was voted on. The last call runs, and is no grant."""
    clock = SimulatedClock()
    gate = {"approval": approval({"finance": 1}, use_after=60), "grant": True}
    agent, paid = paying([pays("ann", amount) for amount in range(1, 102)], gate=gate)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        for request in interrupted(await soon(ref.run("go", by="cy"))).requests:
            vote = approve(grant=grant(scope="agent"), by="ann")
            await soon(ref.decide({request: vote}))
        await soon(clock.advance(60))
        done = completed(await outcome_of(ref))
        assert len(done.state.grants) == 100
    assert len(paid) == 101
