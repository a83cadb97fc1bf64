"""A deploy with a gate that asks more persons: the stricter of then and now counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted
from tests.support.loops import soon
from understudy import Agent, Request, Runtime, approve, call, edit, tool
from understudy.middleware import Middleware, ToolCall
from understudy.trust import Approval, Rules, approval, ask

PEOPLE = {
    "ann": ["finance"],
    "bob": ["finance", "legal"],
    "cy": ["support"],
    "dan": ["finance"],
}
ONE, TWO = approval({"finance": 1}), approval({"finance": 2})
LEGAL = approval({"legal": 1})


def desk(
    asked: Approval | bool | None, *, middleware: Sequence[Any] = (), **options: Any
) -> tuple[Agent, list[int]]:
    """A desk of two calls: refund, with this gate, and ship, which anybody lets run."""
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    @tool
    def ship() -> str:
        """Ship."""
        return "shipped"

    gates: dict[str, Any] = {"ship": True}
    if asked is True:
        gates["refund"] = True
    elif asked:
        gates["refund"] = {"approval": asked, **options}
    turns = [[call("refund", {"amount": 7}), call("ship", {})], "Done."]
    tools, own = [refund, ship], list(middleware)
    agent = Agent("desk", by_turn(*turns), tools=tools, interrupt_on=gates, middleware=own)
    return agent, paid


async def deployed(
    tmp_path: Path, then: Any, now: Any, *votes: Any, ship: bool = True, **options: Any
) -> tuple[Runtime, list[int]]:
    """The runtime of today, where the gate of then was answered so."""
    store = f"sqlite:///{tmp_path}/store.db"
    agent, _ = desk(then)
    async with Runtime([agent], people=PEOPLE, store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        requests = interrupted(await soon(ref.run("go", by="cy"))).requests
        for vote in votes:
            await soon(ref.decide({requests[0]: vote}))
    agent, paid = desk(now, **options)
    return Runtime([agent], people=PEOPLE, store=store), paid


async def let_ship(runtime: Runtime) -> Any:
    """Let the other call run, so that those that are approved start."""
    [ship] = [each for each in await runtime.pending() if each.request.tool_name == "ship"]
    return await soon(runtime.get("a").resume({ship.request: approve(by="cy")}))


@pytest.mark.parametrize("then", [True, ONE])
async def test_a_gate_that_asks_more_persons_today_is_asked_before_the_call_starts(
    then: Any, tmp_path: Path
) -> None:
    """V37: also about a call that was approved by what was asked then."""
    today, paid = await deployed(tmp_path, then, TWO, approve(by="ann"))
    async with today as runtime:
        again = interrupted(await let_ship(runtime))
        [request] = again.requests
        assert request.approval == TWO
        assert request.asked_again.startswith("More is asked now than")
        assert paid == []
        ref = runtime.get("a")
        if then is True:  # that was no vote
            interrupted(await soon(ref.resume(approve(by="ann"))))
        assert paid == []
        completed(await soon(ref.resume(approve(by="dan"))))
    assert paid == [7]


async def test_votes_that_meet_both_are_enough(tmp_path: Path) -> None:
    """V37: bob has the role that the gate of today asks."""
    today, paid = await deployed(tmp_path, TWO, LEGAL, approve(by="ann"), approve(by="bob"))
    async with today as runtime:
        completed(await let_ship(runtime))
    assert paid == [7]


async def test_votes_that_meet_one_alone_are_not_enough(tmp_path: Path) -> None:
    """V37: what was asked then is asked still."""
    today, paid = await deployed(tmp_path, TWO, LEGAL, approve(by="ann"), approve(by="dan"))
    async with today as runtime:
        interrupted(await let_ship(runtime))
        [pending] = await runtime.pending()
        assert (pending.missing, len(pending.votes)) == ("1 more of legal", 2)
        completed(await soon(runtime.get("a").resume(approve(by="bob"))))
    assert paid == [7]


@pytest.mark.parametrize("now", [ONE, True, None])
async def test_a_gate_that_asks_less_today_takes_nothing_back(now: Any, tmp_path: Path) -> None:
    """V37."""
    today, paid = await deployed(tmp_path, TWO, now, approve(by="ann"))
    async with today as runtime:
        [request] = interrupted(await let_ship(runtime)).requests
        assert (request.approval, request.asked_again) == (TWO, "")
        completed(await soon(runtime.get("a").resume(approve(by="bob"))))
    assert paid == [7]


async def test_a_request_that_waits_is_replaced_and_keeps_its_votes(tmp_path: Path) -> None:
    """V37."""
    three = approval({"finance": 3})
    today, paid = await deployed(tmp_path, TWO, three, approve(by="ann"))
    async with today as runtime:
        [request] = interrupted(await let_ship(runtime)).requests
        [pending] = await runtime.pending()
        assert (request.approval, pending.missing) == (three, "2 more of finance")
        ref = runtime.get("a")
        interrupted(await soon(ref.resume(approve(by="bob"))))
        assert paid == []
        completed(await soon(ref.resume(approve(by="dan"))))
    assert paid == [7]


async def test_a_gate_that_does_not_ask_about_this_call_today_asks_nothing(tmp_path: Path) -> None:
    """V37: its `when` says so."""
    today, paid = await deployed(
        tmp_path, ONE, TWO, approve(by="ann"), when=lambda given, ctx: given["amount"] > 100
    )
    async with today as runtime:
        completed(await let_ship(runtime))
    assert paid == [7]


async def test_what_a_person_has_edited_is_what_more_persons_are_asked_about(
    tmp_path: Path,
) -> None:
    """V37."""
    today, paid = await deployed(tmp_path, True, TWO, edit({"amount": 5}, by="cy"))
    async with today as runtime:
        [request] = interrupted(await let_ship(runtime)).requests
        assert (request.approval, request.arguments) == (TWO, {"amount": 5})
        ref = runtime.get("a")
        await soon(ref.resume(approve(by="ann")))
        completed(await soon(ref.resume(approve(by="bob"))))
    assert paid == [5]


class Own(Middleware):
    """A gate of the application."""

    def __init__(self, asked: Approval | None) -> None:
        self.asked = asked

    async def check_tool_calls(self, run: Any, calls: Sequence[ToolCall]) -> Sequence[Request]:
        refunds = [each for each in calls if each.tool.name == "refund"]
        several: Any = ("approve", "reject")
        if self.asked is None:
            return [each.request() for each in refunds]
        return [each.request(approval=self.asked, allowed=several) for each in refunds]


@pytest.mark.parametrize(("then", "now"), [(ONE, TWO), (None, TWO), (TWO, ONE)])
async def test_a_middleware_of_the_application_that_asks_more_persons_today_asks_them(
    then: Approval | None, now: Approval, tmp_path: Path
) -> None:
    """V37: as the gates of the library."""
    store = f"sqlite:///{tmp_path}/store.db"
    agent, _ = desk(None, middleware=[Own(then)])
    async with Runtime([agent], people=PEOPLE, store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        [refund] = [
            each
            for each in interrupted(await soon(ref.run("go", by="cy"))).requests
            if each.tool_name == "refund"
        ]
        await soon(ref.decide({refund: approve(by="ann")}))
    agent, paid = desk(None, middleware=[Own(now)])
    async with Runtime([agent], people=PEOPLE, store=store) as runtime:
        [request] = interrupted(await let_ship(runtime)).requests
        assert request.approval == TWO
        assert paid == []
        [pending] = await runtime.pending()
        assert len(pending.votes) == (0 if then is None else 1), "a plain decision is no vote"
        outcome = await soon(runtime.get("a").resume(approve(by="bob")))
        if then is None:
            outcome = await soon(runtime.get("a").resume(approve(by="ann")))
        completed(outcome)
    assert paid == [7]


async def test_a_rule_that_asks_more_persons_now_keeps_the_votes_that_count() -> None:
    """V37: as a gate."""
    agent, paid = desk(None)
    async with Runtime(
        [agent], people=PEOPLE, rules=Rules(ask("refund", ONE, name="r"))
    ) as runtime:
        ref = runtime.spawn("desk", id="a")
        requests = interrupted(await soon(ref.run("go", by="cy"))).requests
        [refund] = [each for each in requests if each.tool_name == "refund"]
        interrupted(await soon(ref.resume({refund: approve(by="ann")})))
        runtime.rules = Rules(ask("refund", TWO, name="r"))
        [again] = interrupted(await let_ship(runtime)).requests
        [pending] = await runtime.pending()
        assert (again.approval, pending.missing) == (TWO, "1 more of finance")
        completed(await soon(ref.resume(approve(by="bob"))))
    assert paid == [7]
