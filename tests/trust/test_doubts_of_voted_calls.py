"""A call in doubt to which persons had agreed: who says what it did, and what follows from that."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

import pytest

from tests.support.agents import completed, interrupted
from tests.support.loops import soon
from tests.support.places import Place
from tests.support.trust.broken import is_found_out
from understudy import (
    Agent,
    AgentRef,
    Doubt,
    Request,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    ToolContext,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.errors import DecisionError, PeopleUnavailable, VoteRefused
from understudy.models import ScriptedRequest
from understudy.tools import Happened
from understudy.trust import Caller, Person, Rules, approval, ask
from understudy.web import User

TWO = approval({"approver": 2}, never=["requester"])
PEOPLE: dict[str, Any] = {
    "cy": [],
    "fin": ["approver"],
    "mia": ["approver"],
    "aud": [],
    "sync": Person(id="sync", kind="service"),
    "bot": Person(id="bot", kind="model"),
}
SAYS = {"it took effect": respond("paid"), "it took no effect": reject()}


class Bank:
    """A bank that answers the first payment with a broken connection."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.tokens: list[str] = []

    def desk(self, asked: Any = TWO, *, gate: bool = True, **options: Any) -> Agent:
        @tool(**options)
        async def pay(ctx: ToolContext, receipt: str) -> str:
            """Pay a receipt."""
            self.paid.append(receipt)
            self.tokens.append(await ctx.token("answer"))
            if len(self.paid) == 1:
                raise ConnectionResetError("the bank hung up")
            return "paid"

        def clerk(request: ScriptedRequest) -> Any:
            told = request.results[-1].model_response_str() if request.results else ""
            if not request.results or "make the call again" in told:
                return call("pay", {"receipt": "R1"})
            return told

        gates: dict[str, Any] = {"pay": {"approval": asked}} if gate else {}
        return Agent("desk", ScriptedModel(clerk), tools=[pay], interrupt_on=gates)


async def in_doubt(runtime: Runtime, id: str = "a") -> tuple[AgentRef, Request]:
    """An agent whose voted call is in doubt, and the request about that."""
    ref = runtime.spawn("desk", id=id)
    await soon(ref.run("Pay R1", by="cy"))
    await soon(ref.resume(approve(by="fin")))
    [doubt] = interrupted(await soon(ref.resume(approve(by="mia")))).requests
    assert doubt.kind == "doubt"
    return ref, doubt


@pytest.mark.parametrize("of", ["gate", "rule"])
@pytest.mark.parametrize("says", SAYS)
async def test_a_requester_does_not_say_what_a_voted_call_did(says: str, of: str) -> None:
    """V47: nor does a person who is not known, not named, or a model."""
    bank = Bank()
    rules = Rules(ask("pay", TWO)) if of == "rule" else None
    desk = bank.desk(gate=of == "gate")
    async with Runtime([desk], people=PEOPLE, rules=rules) as runtime:
        ref, doubt = await in_doubt(runtime)
        assert (doubt.call_approval, doubt.requesters) == (TWO, ("cy",))
        told = SAYS[says].to_dict()
        for by, why in (
            ("cy", "'cy' has asked for the call, and the requester must not say what it did"),
            ("eve", "knows nobody by the name 'eve'"),
            ("bot", "is a model"),
            (None, "is named"),
        ):
            with pytest.raises(VoteRefused, match=why):
                await soon(ref.resume({doubt.id: told | {"by": by}}))
            with pytest.raises(VoteRefused, match=why):
                await soon(ref.decide({doubt: told | {"by": by}}))
        with pytest.raises(DecisionError, match="does not allow 'approve'"):
            await soon(ref.resume({doubt: approve(by="mia")}))
        assert [each.id for each in (await soon(ref.state())).requests] == [doubt.id]
    assert bank.paid == ["R1"]


@pytest.mark.parametrize("by", ["aud", "fin", "sync"])
async def test_anybody_else_says_it_and_those_who_vote_again_see_who(by: str) -> None:
    """V47, V48: the call is made once more by new votes alone."""
    bank = Bank()
    async with Runtime([bank.desk()], people=PEOPLE) as runtime:
        ref, _ = await in_doubt(runtime)
        outcome = interrupted(await soon(ref.resume(reject("Look again.", by=by))))
        [again] = outcome.requests
        assert (again.kind, again.approval, again.doubts) == ("approval", TWO, ())
        [earlier] = again.earlier
        assert (earlier.outcome, earlier.found_by) == ("denied", by)
        assert "took no effect" in earlier.content
        assert "make the call again" in earlier.content
        assert "Look again." in earlier.content
        assert "Do not try the same call again" not in earlier.content
        await soon(ref.resume(approve(by="fin")))
        assert bank.paid == ["R1"], "one vote is not enough for it"
        assert completed(await soon(ref.resume(approve(by="mia")))).text == "paid"
    assert bank.paid == ["R1", "R1"]


async def test_where_one_person_approves_the_call_the_requester_may_answer_as_before() -> None:
    """V47: it is for `never` alone."""
    bank = Bank()
    async with Runtime([bank.desk(approval({"approver": 1}))], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("Pay R1", by="cy"))
        interrupted(await soon(ref.resume(approve(by="fin"))))
        assert completed(await soon(ref.resume(respond("paid", by="cy")))).text == "paid"


async def test_an_answer_needs_the_login_that_a_vote_needs() -> None:
    """V47: else a name that anybody writes would do."""
    bank = Bank()
    by_login = approval({"approver": 1}, never=["requester"], assurance="login")
    async with Runtime([bank.desk(by_login)], people=PEOPLE) as runtime:
        ref, fin = runtime.spawn("desk", id="a"), User("fin")
        await soon(ref.run("Pay R1", by="cy"))
        interrupted(await soon(fin.calling(ref).resume(approve(by=fin.by))))
        with pytest.raises(VoteRefused, match="must come by a login"):
            await soon(ref.resume(respond("paid", by="fin")))
        done = completed(await soon(fin.calling(ref).resume(respond("paid", by=fin.by))))
        assert done.text == "paid"


async def test_where_people_cannot_be_asked_nobody_says_it() -> None:
    """V47, V3."""
    bank, is_away = Bank(), False

    def people(caller: Caller) -> Person | None:
        if is_away:
            raise ConnectionError("the directory is away")
        found = PEOPLE.get(caller.name)
        return Person(id=caller.name, roles=frozenset(found)) if isinstance(found, list) else None

    clock = SimulatedClock()
    async with Runtime([bank.desk()], people=people, clock=clock) as runtime:
        ref, doubt = await in_doubt(runtime)
        is_away = True
        await soon(clock.advance(61))
        with pytest.raises(PeopleUnavailable, match="Answer again later"):
            await soon(ref.resume({doubt: reject(by="fin")}))


@pytest.mark.parametrize("happened", [True, False])
async def test_a_requester_does_not_settle_the_doubt_that_a_cancel_leaves(happened: bool) -> None:
    """V47: also if only the model was informed. Other persons do, and voters see it."""
    bank = Bank()
    async with Runtime([bank.desk()], people=PEOPLE) as runtime:
        ref, _ = await in_doubt(runtime)
        await soon(ref.cancel(by="cy"))
        [doubt] = await soon(runtime.doubts())

        def settle(by: str | None) -> Awaitable[None]:
            return soon(
                ref.settle(doubt.call_key, how="the bank says so", happened=happened, by=by)
            )

        for by, why in (("cy", "must not say what it did"), ("eve", "nobody"), (None, "named")):
            with pytest.raises(VoteRefused, match=why):
                await settle(by)
        assert await soon(runtime.doubts())
        await settle("aud")
        assert await soon(runtime.doubts()) == []
        [request] = interrupted(await soon(ref.run("Pay R1", by="cy"))).requests
        [earlier] = request.earlier
        assert earlier.found_by == "aud"
        assert earlier.found == ("" if happened else "it took no effect: ") + "the bank says so"
        state = (await soon(ref.state())).to_dict()
        assert next(iter(state["findings"].values()))["by"] == "aud"


@pytest.mark.parametrize("by", ["cy", "eve", None])
async def test_a_late_answer_settles_it_unless_a_requester_gives_it(by: str | None) -> None:
    """V47: the token is of the service that is waited for, which is no person."""
    bank = Bank()
    async with Runtime([bank.desk()], people=PEOPLE) as runtime:
        ref, _ = await in_doubt(runtime)
        await soon(ref.cancel(by="cy"))
        if by == "cy":
            with pytest.raises(VoteRefused, match="must not say what it did"):
                await soon(runtime.resolve(bank.tokens[0], "paid", by=by))
            assert await soon(runtime.doubts())
            return
        assert await soon(runtime.resolve(bank.tokens[0], "paid", by=by))
        assert await soon(runtime.doubts()) == []


async def test_a_check_says_what_a_voted_call_did_and_is_no_person() -> None:
    """V47."""
    bank = Bank()

    async def look(ctx: ToolContext, receipt: str) -> Happened:
        return Happened("paid")

    clock = SimulatedClock()
    async with Runtime([bank.desk(check=look)], people=PEOPLE, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("Pay R1", by="cy"))
        await soon(ref.resume(approve(by="fin")))
        [request] = (await soon(ref.state())).requests
        running = ref.resume({request: approve(by="mia")})
        doubts: list[Doubt] = []
        while not doubts:
            doubts = await soon(runtime.doubts())
        [doubt] = doubts
        with pytest.raises(VoteRefused, match="must not say what it did"):
            await soon(ref.settle(doubt.call_key, how="it failed", happened=False, by="cy"))
        await soon(clock.advance(61))
        assert completed(await soon(running)).text == "paid"


async def test_in_a_state_without_a_runtime_nobody_settles_it() -> None:
    """V47: nobody is known there."""
    bank = Bank()
    desk = bank.desk()
    async with Runtime([desk], people=PEOPLE) as runtime:
        ref, doubt = await in_doubt(runtime)
        waiting = await soon(ref.state())
        await soon(ref.cancel())
        state = await soon(ref.state())
    with pytest.raises(VoteRefused, match="at its runtime"):
        desk.settle(state, doubt.call_key, how="it failed", happened=False)
    with pytest.raises(VoteRefused, match="no people are known"):
        await desk.resume(waiting, {doubt: reject(by="aud")})


async def test_after_an_import_nobody_knows_who_has_asked_so_nobody_says_it(place: Place) -> None:
    """V47, V46: the author of the file says who has asked."""
    bank = Bank()
    async with Runtime([bank.desk()], people=PEOPLE) as runtime:
        ref, _ = await in_doubt(runtime)
        asked = await soon(runtime.export("a"))
        await soon(ref.cancel())
        told = await soon(runtime.export("a"))
    async with Runtime([bank.desk()], people=PEOPLE) as runtime:
        copy = await soon(runtime.import_(asked, "b"))
        await soon(runtime.recover())
        waiting = await soon(copy.outcome())
        assert waiting is not None
        [doubt] = interrupted(waiting).requests
        assert (doubt.kind, doubt.allowed) == ("doubt", ("respond", "reject"))
        with pytest.raises(VoteRefused, match="nobody knows who has asked"):
            await soon(copy.resume({doubt: reject(by="aud")}))
        other = await soon(runtime.import_(told, "c"))
        [key] = (await soon(other.state())).doubts_in_tree
        with pytest.raises(VoteRefused, match="nobody knows who has asked"):
            await soon(other.settle(key, how="it failed", happened=False, by="aud"))
    assert bank.paid == ["R1"]


CONTROLS = [
    partial(test_a_requester_does_not_say_what_a_voted_call_did, "it took no effect", "gate"),
    partial(test_a_requester_does_not_settle_the_doubt_that_a_cancel_leaves, happened=False),
    partial(test_a_late_answer_settles_it_unless_a_requester_gives_it, "cy"),
]


@pytest.mark.parametrize("attack", CONTROLS)
async def test_a_build_without_the_rule_is_found_out(attack: Any) -> None:
    """V47: else the tests would prove nothing."""
    assert await is_found_out("who has asked says what a call in doubt did", attack)
