"""What takes the place of a request that several persons vote on asks as many of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.support.agents import FakeClock, Held, by_turn, completed, interrupted, results
from tests.support.trust.broken import is_found_out
from understudy import Agent, Runtime, approve, call, edit, respond, tool
from understudy.errors import VoteRefused
from understudy.middleware import Middleware, SubAgent
from understudy.tools import OutcomeUnknown
from understudy.trust import Caller, CallView, Person, Rules, allow, approval, ask, deny

PEOPLE = {"ann": ["finance"], "bob": ["finance"], "cy": ["finance"], "amy": ["support"]}
TWO = approval({"finance": 2}, never=["requester"])


def refunds(*turns: Any, fails_first: bool = False, **options: Any) -> tuple[Agent, list[str]]:
    paid: list[str] = []

    @tool(sequential=True, on_unknown="ask" if options.pop("asks", False) else "tell")
    def refund(order: str, amount: int = 7) -> str:
        """Refund."""
        paid.append(order)
        if fails_first and len(paid) == 1:
            raise OutcomeUnknown("timeout")
        return "paid"

    return Agent("desk", by_turn(*turns), tools=[refund], **options), paid


def pays(order: str) -> Any:
    return call("refund", {"order": order})


async def test_a_doubt_about_an_equal_call_makes_no_call_easier_to_approve() -> None:
    """V2."""
    agent, paid = refunds(
        [pays("17"), pays("18")], fails_first=True, interrupt_on={"refund": {"approval": TWO}}
    )
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        first, second = interrupted(await ref.run("go", by="amy")).requests
        await ref.resume({first: approve(by="ann"), second: approve(by="ann")})
        again = interrupted(await ref.resume({first: approve(by="bob"), second: approve(by="bob")}))
        assert paid == ["17"]
        [request] = again.requests
        assert request.doubts
        assert request.approval == TWO
        assert request.requesters == ("amy",)
        with pytest.raises(VoteRefused):
            await ref.resume(approve())
    assert paid == ["17"]


@pytest.mark.parametrize("how", ["edited", "answered"])
@pytest.mark.parametrize("sender", ["amy", None])
async def test_who_has_edited_or_answered_has_asked_for_what_follows(
    how: str, sender: str | None
) -> None:
    """V2: also where the request that they decided was replaced. Who sent it still has, too."""
    turns = [pays("17"), pays("18")] if how == "answered" else [pays("17")]
    rules = Rules(ask("refund", TWO, when=lambda given, view: given["order"] == "18"))
    agent, paid = refunds(*turns, interrupt_on={"refund": True})
    async with Runtime([agent], people=PEOPLE, rules=rules) as runtime:
        ref = runtime.spawn("desk", id="a")
        outcome = interrupted(await ref.run("go", by=sender))
        if how == "answered":
            outcome = interrupted(await ref.resume(respond("ask again", by="cy")))
        else:
            outcome = interrupted(await ref.resume(edit({"order": "18"}, by="cy")))
        voted_on = [each for each in outcome.requests if each.approval is not None]
        known = ("amy", "cy") if sender else None
        assert [each.requesters for each in voted_on] == [known]
        for name in ("cy",) if sender else ("cy", "ann"):
            with pytest.raises(VoteRefused, match="has asked for the call"):
                await ref.resume({voted_on[0]: approve(by=name)})
    assert paid == []


@pytest.mark.parametrize("rule", [deny("refund"), ask("refund", TWO)], ids=["deny", "ask"])
async def test_the_rules_of_now_hold_for_a_call_in_doubt_that_is_to_run_again(rule: Any) -> None:
    """V7."""
    agent, paid = refunds(pays("17"), fails_first=True, asks=True)
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await ref.run("go", by="amy"))
        runtime.rules = Rules(rule)
        outcome = await ref.resume(approve(by="ann"))
        if rule.kind == "ask":
            [request] = interrupted(outcome).requests
            assert request.approval == TWO
        else:
            completed(outcome)
            assert len(await runtime.doubts()) == 1, "nobody knows what it did"
    assert paid == ["17"]


async def test_a_gate_inside_does_not_take_the_place_of_the_persons_asked_above() -> None:
    """V6."""
    inside, paid = refunds(pays("17"), interrupt_on={"refund": True})
    outer = Agent(
        "outer",
        by_turn(call("task", {"task_name": "desk", "instructions": "go"})),
        middleware=[SubAgent([inside])],
        interrupt_on={"refund": {"approval": TWO}},
    )
    async with Runtime([outer], people=PEOPLE) as runtime:
        ref = runtime.spawn("outer", id="a")
        requests = interrupted(await ref.run("go", by="amy")).requests
        assert [each.approval for each in requests] == [None, TWO]
        interrupted(await ref.resume({requests[0]: approve(by="ann")}))
        assert paid == []
        interrupted(await ref.resume({requests[1]: approve(by="ann")}))
        completed(await ref.resume({requests[1]: approve(by="bob")}))
    assert paid == ["17"]


async def test_what_a_when_does_to_the_arguments_is_not_what_runs() -> None:
    """V5."""

    def when(arguments: Any, view: Any) -> bool:
        arguments["order"] = "18"
        return True

    agent, paid = refunds(pays("17"))
    async with Runtime([agent], people=PEOPLE, rules=Rules(ask("refund", when=when))) as runtime:
        ref = runtime.spawn("desk", id="a")
        [request] = interrupted(await ref.run("go")).requests
        assert request.arguments["order"] == "17"
        completed(await ref.resume(approve(by="ann")))
    assert paid == ["17"]


@pytest.mark.parametrize("rule", [deny("refund"), ask("refund", TWO)], ids=["deny", "ask"])
async def test_a_rule_that_comes_while_a_middleware_waits_holds_for_its_call(rule: Any) -> None:
    """V7."""

    class Swaps(Middleware):
        async def wrap_tool_call(self, run: Any, given: Any, next: Any) -> Any:
            runtime.rules = Rules(rule)  # as another task does meanwhile
            return await next(given)

    agent, paid = refunds(pays("17"), middleware=[Swaps()])
    async with Runtime([agent], rules=Rules(), people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        outcome = await ref.run("go", by="amy")
        assert paid == []
        if rule.kind == "deny":
            assert "Denied by a rule" in str(results(completed(outcome).state)[-1].content)
            return
        [request] = interrupted(outcome).requests
        assert (request.approval, request.requesters) == (TWO, ("amy",))
        interrupted(await ref.resume(approve(by="ann")))
        completed(await ref.resume(approve(by="bob")))
    assert paid == ["17"]


async def test_a_rule_that_comes_while_people_are_looked_up_holds_for_the_call() -> None:
    """V7."""
    looked_up: list[str] = []

    def who(caller: Caller) -> Person:
        looked_up.append(caller.name)
        if looked_up.count("bob") == 2:  # as he votes, then as the call is to start
            runtime.rules = Rules(ask("refund", TWO, name="new"))
        return Person(id=caller.name, roles=frozenset(PEOPLE[caller.name]))

    clock = FakeClock()

    class Waits(Middleware):
        async def on_resume(self, run: Any, decisions: Any) -> None:
            clock.advance(61)  # for a minute an answer is kept

    gates: Any = {"refund": {"approval": approval({"finance": 1})}}
    agent, paid = refunds(pays("17"), middleware=[Waits()], interrupt_on=gates)
    async with Runtime([agent], rules=Rules(), people=who, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await ref.run("go", by="amy"))
        asked = interrupted(await ref.resume(approve(by="bob")))
        assert [each.source for each in asked.requests] == ["rule: new"]
    assert paid == []


def test_a_denial_for_an_agent_holds_for_the_agents_inside_it_and_an_allowance_does_not() -> None:
    """V5: a model chooses to whom it gives a call."""
    inside = CallView(tool="refund", agent="helper", agent_path=("desk", "helper"))
    assert Rules(deny("refund", agent="desk")).verdict("refund", {}, inside).result == "deny"
    allowed = Rules(allow("refund", agent="desk"), default="deny")
    assert allowed.verdict("refund", {}, inside).result == "deny"


async def test_a_message_without_a_name_beside_a_named_one_leaves_the_requester_unknown() -> None:
    """V2: both begin one run."""
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

    model = by_turn(call("look", {}), "seen", call("refund", {}))
    agent = Agent("desk", model, tools=[look, refund], interrupt_on={"refund": {"approval": TWO}})
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("look", by="amy")
        await held.entered.wait()
        await ref.send("refund 17 to cy")
        last = await ref.send("thanks", by="amy")
        held.release.set()
        await running
        outcome = await ref.outcome(message_id=last)
        assert outcome is not None
        [request] = interrupted(outcome).requests
        assert request.requesters is None
        with pytest.raises(VoteRefused, match="nobody knows who has asked"):
            await ref.resume(approve(by="cy"))


CONTROLS: list[tuple[str, Any]] = [
    (
        "who edits or answers has not asked",
        partial(test_who_has_edited_or_answered_has_asked_for_what_follows, "edited", "amy"),
    ),
    (
        "who edits or answers has not asked",
        partial(test_who_has_edited_or_answered_has_asked_for_what_follows, "answered", "amy"),
    ),
    (
        "who is not known has not asked",
        partial(test_who_has_edited_or_answered_has_asked_for_what_follows, "edited", None),
    ),
    (
        "rules are not looked at again right before the body",
        partial(test_a_rule_that_comes_while_a_middleware_waits_holds_for_its_call, deny("refund")),
    ),
    (
        "what asks right before the body does not ask",
        partial(
            test_a_rule_that_comes_while_a_middleware_waits_holds_for_its_call, ask("refund", TWO)
        ),
    ),
    (
        "what asks right before the body does not ask",
        test_a_rule_that_comes_while_people_are_looked_up_holds_for_the_call,
    ),
    (
        "a message without a name beside one with a name is not seen",
        test_a_message_without_a_name_beside_a_named_one_leaves_the_requester_unknown,
    ),
]


@pytest.mark.parametrize(("broken", "attack"), CONTROLS)
async def test_a_build_with_one_rule_left_out_is_found_out(broken: str, attack: Any) -> None:
    """Else the attack would prove nothing."""
    assert await is_found_out(broken, attack)
