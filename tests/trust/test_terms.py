"""The terms of an approval: times, breaking the glass, who vouches for a vote."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import (
    FakeClock,
    by_turn,
    completed,
    interrupted,
    results,
    until_status,
)
from tests.support.loops import soon
from tests.support.plans import HOUR, outcome_of
from understudy import (
    Agent,
    AgentRef,
    DecisionError,
    Runtime,
    SimulatedClock,
    Status,
    Stopped,
    ToolContext,
    UsageError,
    approve,
    call,
    events,
    reject,
    tool,
)
from understudy.errors import AlreadyDecided, RequestExpired, VoteRefused
from understudy.middleware import SubAgent
from understudy.trust import Approval, Caller, Person, Rules, approval, ask

PEOPLE = {
    "ann": ["finance"],
    "bob": ["finance", "legal"],
    "cy": ["support"],
    "dan": ["finance"],
    "olga": ["oncall"],
}


def desk(asked: Approval | None, *before: Any, **options: Any) -> tuple[Agent, list[int]]:
    """An agent whose refunds need this approval, and what it has paid."""
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    gates = {} if asked is None else {"refund": {"approval": asked, **options}}
    turns = [*before, call("refund", {"amount": 7}), "Done."]
    return Agent("desk", by_turn(*turns), tools=[refund], interrupt_on=gates), paid


async def begun(runtime: Runtime, by: str = "cy") -> AgentRef:
    ref = runtime.spawn("desk", id="a")
    interrupted(await soon(ref.run("go", by=by)))
    return ref


# --------------------------------------------------------------------------- within


@pytest.mark.parametrize("how", ["gate", "rule"])
async def test_a_request_that_nobody_answers_within_its_time_is_rejected(
    how: str, clock: SimulatedClock
) -> None:
    """V30: also where a rule asks."""
    asked = approval({"finance": 2}, within=timedelta(hours=1))
    agent, paid = desk(asked if how == "gate" else None)
    rules = Rules(ask("refund", asked)) if how == "rule" else None
    async with Runtime([agent], people=PEOPLE, rules=rules, clock=clock) as runtime:
        ref = await begun(runtime)
        [pending] = await runtime.pending()
        assert pending.request.expires_at == clock.now() + timedelta(hours=1)
        interrupted(await soon(ref.resume(approve(by="ann"))))
        await soon(clock.advance(HOUR))
        outcome = completed(await outcome_of(ref))
        [decided] = await ref.decisions()
    assert (decided.decision.type, decided.decision.origin) == ("reject", "expiry")
    assert [part.outcome for part in results(outcome.state)] == ["denied"]
    assert paid == []


@pytest.mark.parametrize(("gate", "asked", "earlier"), [(60, 120, 60), (120, 60, 60)])
async def test_of_the_times_of_a_gate_and_its_approval_the_earlier_counts(
    gate: int, asked: int, earlier: int, clock: SimulatedClock
) -> None:
    """V30."""
    agent, _ = desk(approval({"finance": 2}, within=asked), expires_after=gate)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        await begun(runtime)
        [pending] = await runtime.pending()
        assert pending.request.expires_at == clock.now() + timedelta(seconds=earlier)


def test_a_reminder_after_the_time_to_answer_is_refused() -> None:
    """V30."""
    with pytest.raises(UsageError, match="must be below `expires_after`, 60 seconds"):
        desk(approval({"finance": 2}, within=60), remind_after=120)


async def test_a_gate_may_stop_the_run_where_its_approval_says_the_time(
    clock: SimulatedClock,
) -> None:
    """V30."""
    agent, _ = desk(approval({"finance": 2}, within=60), on_expiry="stop")
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        await soon(clock.advance(61))
        assert isinstance(await outcome_of(ref), Stopped)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"within": 0}, r"approval\(within=...\) must be seconds above 0"),
        ({"use_after": "1h"}, r"approval\(use_after=...\) must be seconds above 0"),
        ({"use_within": -1}, r"approval\(use_within=...\) must be seconds above 0"),
        ({"max_auth_age": True}, r"approval\(max_auth_age=...\) must be seconds above 0"),
        ({"break_glass": {"oncall": 2}}, "one role with the number 1"),
        ({"break_glass": {"oncall": 1, "ceo": 1}}, "one role with the number 1"),
        ({"break_glass": ["oncall"]}, "takes roles with numbers"),
        ({"assurance": "idq"}, "must be 'host', 'login', 'idp', got 'idq'"),
    ],
)
def test_terms_that_are_not_possible_are_refused_at_once(options: Any, told: str) -> None:
    """V30."""
    with pytest.raises(UsageError, match=told):
        approval({"finance": 2}, **options)


# ------------------------------------------------------------------------- use_after

COOLS = approval({"finance": 2}, use_after=HOUR)


async def agreed(ref: AgentRef) -> None:
    interrupted(await soon(ref.resume(approve(by="ann"))))
    interrupted(await soon(ref.resume(approve(by="bob"))))


async def test_a_call_starts_only_after_enough_have_agreed_for_so_long(
    clock: SimulatedClock, store: str
) -> None:
    """V31: whether its agent is in memory or not."""
    agent, paid = desk(COOLS)
    async with Runtime([agent], people=PEOPLE, clock=clock, store=store) as runtime:
        ref = await begun(runtime)
        await agreed(ref)
        [pending] = await runtime.pending()
        starts = clock.now() + timedelta(hours=1)
        assert (pending.missing, pending.approved_at, pending.next_due) == ("", starts, starts)
        await soon(ref.compact())
        await soon(clock.advance(HOUR - 1))
        assert paid == []
        await soon(clock.advance(1))
        completed(await outcome_of(ref))
        [decided] = await ref.decisions()
    assert paid == [7]
    assert (decided.decision.type, decided.decision.by, decided.at) == (
        "approve",
        "ann, bob",
        starts,
    )


async def test_a_veto_counts_until_the_call_starts(clock: SimulatedClock) -> None:
    """V31."""
    agent, paid = desk(COOLS)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        await agreed(ref)
        await soon(clock.advance(HOUR / 2))
        completed(await soon(ref.resume(reject("no", by="dan"))))
        await soon(clock.advance(HOUR))
        [decided] = await ref.decisions()
    assert decided.decision.type == "reject"
    assert paid == []


async def test_the_time_begins_again_where_too_few_agreed_in_between(clock: SimulatedClock) -> None:
    """V31: with the vote that completes them again."""
    agent, paid = desk(approval({"finance": 2}, use_after=HOUR, deny=2))
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        await agreed(ref)
        await soon(clock.advance(HOUR / 2))
        interrupted(await soon(ref.resume(reject(by="bob"))))
        await soon(clock.advance(HOUR))
        [pending] = await runtime.pending()
        assert (pending.approved_at, pending.missing) == (None, "1 more of finance")
        interrupted(await soon(ref.resume(approve(by="dan"))))
        await soon(clock.advance(HOUR - 1))
        assert paid == []
        await soon(clock.advance(1))
        completed(await outcome_of(ref))
    assert paid == [7]


async def test_a_further_vote_does_not_put_the_start_off(clock: SimulatedClock) -> None:
    """V31."""
    agent, paid = desk(COOLS)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        await agreed(ref)
        await soon(clock.advance(HOUR - 1))
        interrupted(await soon(ref.resume(approve(by="dan"))))
        await soon(clock.advance(1))
        completed(await outcome_of(ref))
    assert paid == [7]


async def test_what_enough_have_agreed_to_does_not_expire_and_nobody_is_reminded(
    clock: SimulatedClock,
) -> None:
    """V31: a veto counts all the same; too few votes let it expire."""
    asked = approval({"finance": 2}, within=HOUR, use_after=2 * HOUR, deny=2)
    agent, paid = desk(asked, remind_after=HOUR / 2)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        await agreed(ref)
        await soon(clock.advance(1.5 * HOUR))
        [pending] = await runtime.pending()
        assert pending.reminders == 0
        await soon(ref.resume(reject(by="bob")))
        outcome = completed(await outcome_of(ref))
        [decided] = await ref.decisions()
        assert decided.decision.origin == "expiry"
        assert [part.outcome for part in results(outcome.state)] == ["denied"]
    assert paid == []


async def test_a_call_that_is_due_while_no_process_runs_starts_with_the_next(
    tmp_path: Path,
) -> None:
    """V31: once."""
    store, clock = f"sqlite:///{tmp_path}/store.db", SimulatedClock()
    agent, paid = desk(COOLS)
    async with Runtime([agent], people=PEOPLE, store=store, clock=clock) as runtime:
        await agreed(await begun(runtime))
    later = SimulatedClock(clock.now() + timedelta(hours=2))
    again, paid = desk(COOLS)
    async with Runtime([again], people=PEOPLE, store=store, clock=later) as runtime:
        ref = runtime.get("a")
        await until_status(ref, Status.IDLE)
        completed(await outcome_of(ref))
        [decided] = await ref.decisions()
    assert decided.at == later.now()
    assert paid == [7]


async def test_a_veto_after_its_time_is_too_late() -> None:
    """V31: an announced approval is not undone, though the clock has not reached the agent."""
    agent, paid = desk(COOLS)
    clock = FakeClock()
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        await agreed(ref)
        clock.advance(2 * HOUR)
        with pytest.raises(AlreadyDecided):
            await soon(ref.resume(reject(by="dan")))
        completed(await soon(ref.resume(approve(by="dan"))))
    assert paid == [7]


# ------------------------------------------------------------------------ use_within


def two_calls(asked: Approval) -> tuple[Agent, list[str]]:
    done: list[str] = []

    @tool
    def refund() -> str:
        """Refund."""
        done.append("refund")
        return "paid"

    @tool
    def ship() -> str:
        """Ship."""
        done.append("ship")
        return "shipped"

    gates: Any = {"refund": {"approval": asked}, "ship": True}
    turns = [[call("refund", {}), call("ship", {})], "Done."]
    return Agent("desk", by_turn(*turns), tools=[refund, ship], interrupt_on=gates), done


async def test_a_call_that_starts_too_late_is_asked_anew_without_the_old_votes(
    clock: SimulatedClock,
) -> None:
    """V32."""
    agent, done = two_calls(approval({"finance": 1}, use_within=HOUR))
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        refund, ship = interrupted(await soon(ref.run("go"))).requests
        interrupted(await soon(ref.resume({refund: approve(by="ann")})))
        await soon(clock.advance(HOUR + 1))
        again = interrupted(await soon(ref.resume({ship: approve(by="cy")})))
        [pending] = await runtime.pending()
        assert pending.votes == ()
        assert "did not start within 1 hour" in again.requests[0].asked_again
        assert done == ["ship"]
        completed(await soon(ref.resume(approve(by="ann"))))
    assert done == ["ship", "refund"]


async def test_a_call_that_starts_in_time_runs(clock: SimulatedClock) -> None:
    """V32."""
    agent, done = two_calls(approval({"finance": 1}, use_within=HOUR))
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        refund, ship = interrupted(await soon(ref.run("go"))).requests
        interrupted(await soon(ref.resume({refund: approve(by="ann")})))
        await soon(clock.advance(HOUR))
        completed(await soon(ref.resume({ship: approve(by="cy")})))
    assert sorted(done) == ["refund", "ship"]


async def test_the_time_to_start_is_counted_from_the_decision_not_from_the_votes(
    clock: SimulatedClock,
) -> None:
    """V32."""
    agent, paid = desk(approval({"finance": 1}, use_after=2 * HOUR, use_within=HOUR))
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        interrupted(await soon(ref.resume(approve(by="ann"))))
        await soon(clock.advance(2 * HOUR))
        completed(await outcome_of(ref))
    assert paid == [7]


async def test_a_call_that_has_begun_in_time_continues_later(clock: SimulatedClock) -> None:
    """V32: it sleeps in its body."""
    done: list[str] = []

    @tool
    async def refund(ctx: ToolContext) -> str:
        """Refund."""
        await ctx.sleep("a while", 3 * HOUR)
        done.append("paid")
        return "paid"

    gates = {"refund": {"approval": approval({"finance": 1}, use_within=HOUR)}}
    agent = Agent("desk", by_turn(call("refund", {}), "Done."), tools=[refund], interrupt_on=gates)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        [pending] = await runtime.pending()
        await soon(ref.decide({pending.request: approve(by="ann")}))
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(3 * HOUR))
        completed(await outcome_of(ref))
    assert done == ["paid"]


async def test_an_expired_request_takes_no_vote() -> None:
    """V30."""
    clock = FakeClock()
    agent, _ = desk(approval({"finance": 2}, within=60))
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        [pending] = await runtime.pending()
        clock.advance(61)
        with pytest.raises(RequestExpired):
            await soon(ref.resume({pending.request: approve(by="ann")}))


# ---------------------------------------------------------------------- break the glass

GLASS = approval({"finance": 2}, use_after=HOUR, break_glass={"oncall": 1})
WHY = "the customer's account is on fire"


def break_glass(by: str) -> Any:
    return approve(break_glass=True, note=WHY, by=by)


async def broken(runtime: Runtime) -> AgentRef:
    """An agent whose call olga alone has let run."""
    ref = await begun(runtime)
    completed(await soon(ref.resume(break_glass("olga"))))
    return ref


async def test_one_person_of_the_role_may_let_a_call_run_at_once(
    clock: SimulatedClock, store: str
) -> None:
    """V33: it is recorded, notified to all, and stays to be reviewed."""
    agent, paid = desk(GLASS)
    async with Runtime([agent], people=PEOPLE, clock=clock, store=store) as runtime:
        ref = await begun(runtime)
        subscription = ref.events()
        completed(await soon(ref.resume(break_glass("olga"))))
        assert paid == [7], "at once"
        [decided] = await ref.decisions()
        assert (decided.decision.break_glass, decided.decision.note) == (True, WHY)
        assert (decided.decision.by, decided.votes[0].break_glass) == ("olga", True)
        subscription.close()
        told = [e.event async for e in subscription]
        [event] = [e for e in told if isinstance(e, events.GlassBroken)]
        assert (event.review.roles, event.review.by) == (("finance",), "olga")
        [review] = await runtime.reviews()
        assert (review.agent_id, review.tool_name, review.note) == ("a", "refund", WHY)
        assert review.must_agree == "2 of finance"
        found = {entry.what: entry for entry in (await ref.history()).entries}
        assert (found["glass_broken"].who, found["glass_broken"].detail["note"]) == ("olga", WHY)


@pytest.mark.parametrize("who", ["ann", "cy", "eve"])
async def test_nobody_without_the_role_breaks_the_glass(who: str, clock: SimulatedClock) -> None:
    """V33: nor does the role alone make a vote."""
    agent, paid = desk(GLASS)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        with pytest.raises(VoteRefused):
            await soon(ref.resume(break_glass(who)))
        with pytest.raises(VoteRefused, match="they may break the glass"):
            await soon(ref.resume(approve(by="olga")))
        with pytest.raises(VoteRefused):
            await soon(ref.resume(reject(by="olga")))
        [pending] = await runtime.pending()
        assert pending.votes == ()
    assert paid == []


@pytest.mark.parametrize("note", [None, "", "  "])
async def test_who_breaks_the_glass_says_why(note: str | None, clock: SimulatedClock) -> None:
    """V33."""
    agent, paid = desk(GLASS)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        with pytest.raises(DecisionError, match="must say why"):
            await soon(ref.resume(approve(break_glass=True, note=note, by="olga")))
        assert await runtime.reviews() == []
    assert paid == []


async def test_a_glass_that_is_not_there_is_not_broken(clock: SimulatedClock) -> None:
    """V33."""
    agent, paid = desk(approval({"oncall": 1}))
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        with pytest.raises(DecisionError, match="nobody may break the glass here"):
            await soon(ref.resume(break_glass("olga")))
        [pending] = await runtime.pending()
        plain = {"type": "reject", "break_glass": True, "by": "olga"}
        with pytest.raises(DecisionError, match="goes with approve only"):
            await soon(ref.resume({pending.request.id: plain}))
    assert paid == []


async def test_who_has_asked_for_a_call_does_not_break_its_glass(clock: SimulatedClock) -> None:
    """V33."""
    asked = approval({"finance": 2}, never=["requester"], break_glass={"oncall": 1})
    agent, paid = desk(asked)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime, by="olga")
        with pytest.raises(VoteRefused, match="has asked for the call"):
            await soon(ref.resume(break_glass("olga")))
    assert paid == []


async def test_a_role_that_is_gone_before_the_start_breaks_no_glass(clock: SimulatedClock) -> None:
    """V33: as of any vote."""
    asked: list[str] = []

    def who(caller: Caller) -> Person | None:
        asked.append(caller.name)
        is_gone = asked.count("olga") > 1
        return Person(id=caller.name, roles=frozenset(() if is_gone else {"oncall"}))

    agent, done = two_calls(GLASS)
    async with Runtime([agent], people=who, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        refund, ship = interrupted(await soon(ref.run("go"))).requests
        interrupted(await soon(ref.resume({refund: break_glass("olga")})))
        await soon(clock.advance(61))
        interrupted(await soon(ref.resume({ship: approve(by="cy")})))
    assert done == ["ship"]


async def test_somebody_else_closes_the_review_and_nobody_twice(
    clock: SimulatedClock, store: str
) -> None:
    """V34: it does not hold the run, and outlives compaction and passivation."""
    agent, _ = desk(GLASS)
    async with Runtime([agent], people=PEOPLE, clock=clock, store=store) as runtime:
        ref = await broken(runtime)
        await soon(ref.compact())
        await soon(ref.stop(block=False))
        [review] = await runtime.reviews()
        for refused in ("olga", "eve", None):
            with pytest.raises(VoteRefused):
                await soon(ref.close_review(review.id, by=refused))
        with pytest.raises(UsageError, match="no open review 'x'"):
            await soon(ref.close_review("x", by="ann"))
        subscription = ref.events()
        await soon(ref.close_review(review.id, by="ann", note="fine"))
        subscription.close()
        closed = [e.event async for e in subscription if isinstance(e.event, events.ReviewClosed)]
        assert [(each.review_id, each.by, each.note) for each in closed] == [
            (review.id, "ann", "fine")
        ]
        assert await runtime.reviews() == []
        with pytest.raises(UsageError, match="no open review"):
            await soon(ref.close_review(review.id, by="bob"))


async def test_another_login_of_who_broke_the_glass_does_not_close_the_review(
    clock: SimulatedClock,
) -> None:
    """V34."""
    olga = Person(id="1", name="Olga", roles=frozenset({"oncall"}))
    people: Any = {**PEOPLE, "olga": olga, "olga@home": olga}
    agent, _ = desk(GLASS)
    async with Runtime([agent], people=people, clock=clock) as runtime:
        ref = await broken(runtime)
        [review] = await runtime.reviews()
        with pytest.raises(VoteRefused, match="who broke the glass does not review it"):
            await soon(ref.close_review(review.id, by="olga@home"))


async def test_an_open_review_goes_with_an_export(clock: SimulatedClock) -> None:
    """V34."""
    agent, _ = desk(GLASS)
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        await broken(runtime)
        file = await soon(runtime.export("a"))
        await soon(runtime.import_(file, "b"))
        assert sorted(each.agent_id for each in await runtime.reviews()) == ["a", "b"]


async def test_a_call_of_an_agent_inside_is_reviewed_with_the_agent_around_it(
    clock: SimulatedClock,
) -> None:
    """V34: also when the agent inside is gone."""
    inside, paid = desk(GLASS)
    task = call("task", {"task_name": "desk", "instructions": "go"})
    outer = Agent("outer", by_turn(task, "Done."), middleware=[SubAgent([inside])])
    async with Runtime([outer], people=PEOPLE, clock=clock) as runtime:
        ref = runtime.spawn("outer", id="a")
        interrupted(await soon(ref.run("go")))
        completed(await soon(ref.resume(break_glass("olga"))))
        [review] = await runtime.reviews()
        assert (review.agent_id, review.agent_path) == ("a", ("outer", "desk"))
        await soon(ref.close_review(review.id, by="ann"))
        assert await runtime.reviews() == []
    assert paid == [7]


# ------------------------------------------------------------------- who vouches for it


async def test_a_vote_that_the_host_vouches_for_is_refused_where_a_login_must(
    clock: SimulatedClock,
) -> None:
    """V35."""
    agent, paid = desk(approval({"finance": 1}, assurance="login"))
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        with pytest.raises(VoteRefused, match="vote by the pages"):
            await soon(ref.resume(approve(by="ann")))
    assert paid == []


async def test_where_nobody_knows_when_who_votes_has_logged_in_they_do_not_vote(
    clock: SimulatedClock,
) -> None:
    """V35."""
    agent, paid = desk(approval({"finance": 1}, max_auth_age=900))
    async with Runtime([agent], people=PEOPLE, clock=clock) as runtime:
        ref = await begun(runtime)
        with pytest.raises(VoteRefused, match="15 minutes, and the time of this login is not"):
            await soon(ref.resume(approve(by="ann")))
    assert paid == []


# ----------------------------------------------------------------------- others hear of it


async def test_who_follows_an_agent_or_all_of_them_hears_of_each_vote(
    clock: SimulatedClock,
) -> None:
    """V36."""
    agent, _ = desk(approval({"finance": 2}, use_after=HOUR))
    async with Runtime([agent], people=PEOPLE, clock=clock, feed=True) as runtime:
        ref = await begun(runtime)
        subscription = ref.events()
        await agreed(ref)
        subscription.close()
        votes = [e.event async for e in subscription if isinstance(e.event, events.Voted)]
        assert [(each.vote.name, each.missing, each.approved_at) for each in votes] == [
            ("ann", "1 more of finance", None),
            ("bob", "", clock.now() + timedelta(hours=1)),
        ]
        feed = runtime.events(start="oldest").until_now()
        of_all = [e.event async for e in feed if isinstance(e.event, events.Voted)]
        assert of_all == votes
