"""Stories about the terms of an approval, and builds of the library that get one of them wrong.

A story says what is wrong, or nothing. Each build must be found out by its story.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.agents import by_turn, interrupted
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentRef,
    Runtime,
    SimulatedClock,
    approve,
    call,
    interrupts,
    reject,
    tool,
)
from understudy.agent import decisions
from understudy.errors import UnderstudyError
from understudy.modes.steps import check_interrupts
from understudy.modes.steps.tool_call import votes
from understudy.state.reviews import Review
from understudy.trust import Approval, approval

PEOPLE = {"ann": ["finance"], "bob": ["finance"], "dan": ["finance"], "olga": ["oncall"]}
HOUR = 3600.0
COOLS = approval({"finance": 2}, use_after=HOUR)
SOON = approval({"finance": 1}, use_within=HOUR)
GLASS = approval({"finance": 2}, never=["requester"], break_glass={"oncall": 1})
Story = Callable[[Path], Awaitable[str]]


class Desk:
    """A runtime whose agent asks about a refund, by this approval, and about a shipment."""

    def __init__(self, asked: Approval, store: str = "memory:") -> None:
        self.paid: list[int] = []

        @tool
        def refund(amount: int) -> str:
            """Refund."""
            self.paid.append(amount)
            return "paid"

        @tool
        def ship() -> str:
            """Ship."""
            return "shipped"

        gates: dict[str, Any] = {"refund": {"approval": asked}, "ship": True}
        turns = [[call("refund", {"amount": 7}), call("ship", {})], "Done."]
        agent = Agent("desk", by_turn(*turns), tools=[refund, ship], interrupt_on=gates)
        self.clock = SimulatedClock()
        self.runtime = Runtime([agent], people=PEOPLE, clock=self.clock, store=store)

    async def asks(self, by: str = "ann") -> AgentRef:
        """Its agent, which waits for persons. Anybody has let it ship."""
        ref = self.runtime.spawn("desk", id="a")
        requests = interrupted(await soon(ref.run("go", by=by))).requests
        await soon(ref.decide({requests[1]: approve(by="ann")}))
        return ref

    async def votes(self, *given: Any) -> None:
        """Each of these on the request of the refund, as far as it is taken."""
        for each in given:
            [pending] = [r for r in await self.runtime.pending() if r.request.tool_name == "refund"]
            with suppress(UnderstudyError):
                await soon(self.runtime.get("a").decide({pending.request: each}))


async def veto(_: Path) -> str:
    """A rejection after enough have agreed, and before the call starts."""
    desk = Desk(COOLS)
    async with desk.runtime:
        await desk.asks()
        await desk.votes(approve(by="ann"), approve(by="bob"), reject(by="dan"))
        await soon(desk.clock.advance(2 * HOUR))
    return "it ran in spite of a veto" if desk.paid else ""


async def late(_: Path) -> str:
    """A call that is approved in time, and could start only long after it."""
    desk = Desk(SOON)
    async with desk.runtime:
        ref = desk.runtime.spawn("desk", id="a")
        refund, ship = interrupted(await soon(ref.run("go"))).requests
        await soon(ref.decide({refund: approve(by="ann")}))
        await soon(desk.clock.advance(2 * HOUR))
        await soon(ref.resume({ship: approve(by="ann")}))
    return "it ran too late" if desk.paid else ""


async def without_a_note(_: Path) -> str:
    """Somebody breaks the glass, and does not say why."""
    desk = Desk(GLASS)
    async with desk.runtime:
        await desk.asks()
        await desk.votes(approve(break_glass=True, by="olga"))
    return "the glass was broken without a reason" if desk.paid else ""


async def by_the_requester(_: Path) -> str:
    """Who has asked for the call breaks the glass."""
    desk = Desk(GLASS)
    async with desk.runtime:
        ref = await desk.asks(by="olga")
        await desk.votes(approve(break_glass=True, note="why", by="olga"))
        taken = [each for each in await ref.decisions() if each.decision.break_glass]
    return "the requester broke the glass" if taken or desk.paid else ""


async def own_review(_: Path) -> str:
    """Who broke the glass closes the review."""
    desk = Desk(GLASS)
    async with desk.runtime:
        ref = await desk.asks()
        await desk.votes(approve(break_glass=True, note="why", by="olga"))
        [review] = await desk.runtime.reviews()
        with suppress(UnderstudyError):
            await soon(ref.close_review(review.id, by="olga"))
        open_reviews = await desk.runtime.reviews()
    return "" if open_reviews else "the review was closed by who broke the glass"


async def deploy(folder: Path) -> str:
    """A call is approved, and the gate of today asks more persons."""
    store = f"sqlite:///{folder}/store.db"
    before = Desk(SOON, store)
    async with before.runtime:
        ref = before.runtime.spawn("desk", id="a")
        refund, _ = interrupted(await soon(ref.run("go"))).requests
        await soon(ref.decide({refund: approve(by="ann")}))
    today = Desk(approval({"finance": 2}), store)
    async with today.runtime:
        [ship] = await today.runtime.pending()
        await soon(today.runtime.get("a").resume({ship.request: approve(by="ann")}))
    return "one person was enough where two are asked today" if today.paid else ""


STORIES: tuple[Story, ...] = (veto, late, without_a_note, by_the_requester, own_review, deploy)


def _veto_is_late(patch: Any) -> None:
    def _too_late(request: Any, cast: Any, vote: Any) -> bool:
        return interrupts.approved_at(request, cast) is not None

    patch.setattr(decisions, "_too_late", _too_late)


def _never_too_late(patch: Any) -> None:
    patch.setattr(votes, "_is_too_late", lambda run, request, asked: False)


def _no_reason(patch: Any) -> None:
    patch.setattr(interrupts, "_check_glass", lambda request, decision, where: None)


def _requester_may(patch: Any) -> None:
    inner = decisions.why_no_voter

    @functools.wraps(inner)
    def why_no_voter(request: Any, *rest: Any, break_glass: bool = False) -> str | None:
        request = replace(request, requesters=()) if break_glass else request
        return inner(request, *rest, break_glass=break_glass)

    patch.setattr(decisions, "why_no_voter", why_no_voter)


def _own_review(patch: Any) -> None:
    patch.setattr(Review, "why_not_by", lambda self, person: None)


def _gate_of_then(patch: Any) -> None:
    patch.setattr(check_interrupts, "_may_be_asked_more", lambda call: False)


BROKEN: dict[str, tuple[Story, Callable[[Any], None]]] = {
    "a veto is ignored once enough have agreed": (veto, _veto_is_late),
    "a call starts however late": (late, _never_too_late),
    "the glass is broken without a reason": (without_a_note, _no_reason),
    "who has asked breaks the glass": (by_the_requester, _requester_may),
    "who broke the glass reviews it": (own_review, _own_review),
    "the gate of then is enough": (deploy, _gate_of_then),
}
"""Each broken build, by what is wrong with it: the story that finds it out, and how it is made."""
