"""Votes by AG-UI and Vercel's stream: one that completes nothing leaves the interrupt open."""

from __future__ import annotations

from typing import Any

from tests.support.ag_ui_client import Client, answer, by_header, events_in, said, types
from tests.support.agents import by_turn
from tests.support.trust.broken import is_found_out
from understudy import Agent, Runtime, call, tool
from understudy.ag_ui import ag_ui, vercel
from understudy.trust import Approval, Budget, approval, sum_of

PEOPLE = {"ann": ["finance"], "bob": ["finance"], "cy": ["support"]}
APPROVED = {"approved": True}
TWO = approval({"finance": 2})


def desk(asked: Approval = TWO) -> tuple[Agent, list[int]]:
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Pay money back."""
        paid.append(amount)
        return "paid"

    gates = {"refund": {"approval": asked}}
    turns = [call("refund", {"amount": 7}), "Paid."]
    return Agent("desk", by_turn(*turns), tools=[refund], interrupt_on=gates), paid


def clients(make: Any, runtime: Runtime, *names: str) -> list[Client]:
    """Clients in one conversation, each of another user."""
    app = make(runtime, agent="desk", auth=by_header, agent_id=lambda user, thread: thread)
    return [Client(app, name) for name in names]


def about(interrupt: Any) -> tuple[str, str]:
    told = interrupt["metadata"]["understudy"]
    return told["mustAgree"], told["missing"]


async def test_a_vote_that_completes_nothing_leaves_the_interrupt_with_what_is_missing() -> None:
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        ann, bob, cy = clients(ag_ui, runtime, "ann", "bob", "cy")
        [first] = await ann.interrupts(said("go"))
        assert about(first) == ("2 of finance", "2 more of finance")
        [of_cy] = await cy.interrupts()
        said_before = of_cy["metadata"]["understudy"]["whyNoVote"]
        refused = (await cy.events(resume=[answer(first, APPROVED)]))[-1]
        assert (refused["type"], refused["code"]) == ("RUN_ERROR", "VoteRefused")
        assert "none of the roles that vote" in refused["message"]
        assert said_before in refused["message"]
        own = first["metadata"]["understudy"]
        assert (own["whyNoVote"], own["countsAs"], own["hasVoted"]) == (None, ["finance"], False)
        for _ in range(2):  # the same again is the same vote
            [still] = await ann.interrupts(resume=[answer(first, APPROVED)])
            assert still["id"] == first["id"]
            assert about(still) == ("2 of finance", "1 more of finance")
        assert still["metadata"]["understudy"]["hasVoted"] is True
        [shown] = await bob.interrupts()
        assert about(shown) == ("2 of finance", "1 more of finance")
        assert paid == []
        # A name in the body is nobody's: ann has voted, whatever she sends.
        forged = answer(first, {**APPROVED, "by": "bob"})
        assert (await ann.events(resume=[forged]))[-1]["code"] == "BadAnswer"
        events = await bob.events(resume=[answer(first, APPROVED)])
        assert types(events)[-1] == "RUN_FINISHED"
        assert events[-1]["outcome"]["type"] == "success"
        [decided] = await runtime.get("t1").decisions()
    assert paid == [7]
    votes = [(each.person, each.assurance) for each in decided.votes]
    assert votes == [("ann", "login"), ("bob", "login")]


async def test_a_vercel_client_is_asked_again_with_what_is_missing() -> None:
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        ann, bob = clients(vercel, runtime, "ann", "bob")

        async def sent(client: Client, *more: Any) -> list[dict[str, Any]]:
            user = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "go"}]}
            body = {"id": "t1", "messages": [user, *more], "trigger": "submit-message"}
            return events_in((await client.post(body)).text)

        def only(chunks: list[dict[str, Any]], type: str) -> dict[str, Any]:
            [found] = [chunk for chunk in chunks if chunk["type"] == type]
            return found

        asked = only(await sent(ann), "tool-approval-request")
        part = {
            "type": "tool-refund",
            "toolCallId": asked["toolCallId"],
            "state": "approval-responded",
            "input": {},
            "approval": {"id": asked["approvalId"], "approved": True},
        }
        answered = {"id": "a1", "role": "assistant", "parts": [part]}
        chunks = await sent(ann, answered)
        again = only(chunks, "tool-approval-request")
        assert again["approvalId"] == asked["approvalId"]
        told = only(chunks, "data-understudy-request")["data"]
        assert about(told) == ("2 of finance", "1 more of finance")
        assert [chunk for chunk in chunks if chunk["type"] == "error"] == []
        assert paid == []
        assert only(await sent(bob, answered), "tool-output-available")["output"] == "paid"
    assert paid == [7]


async def test_a_build_in_which_a_client_says_who_votes_is_found_out() -> None:
    """Else what is sent above would prove nothing."""
    attack = test_a_vote_that_completes_nothing_leaves_the_interrupt_with_what_is_missing
    assert await is_found_out("a client says who votes", attack)


async def test_a_client_sees_the_terms_and_breaks_the_glass_with_a_reason() -> None:
    agent, paid = desk(approval({"finance": 2}, use_after=60, break_glass={"oncall": 1}))
    async with Runtime([agent], people={**PEOPLE, "olga": ["oncall"]}) as runtime:
        ann, bob, olga = clients(ag_ui, runtime, "ann", "bob", "olga")
        [first] = await ann.interrupts(said("go"))
        told = first["metadata"]["understudy"]
        assert told["terms"][0] == "It starts 1 minute after enough have agreed."
        assert first["responseSchema"]["properties"]["breakGlass"] == {"type": "boolean"}
        await ann.interrupts(resume=[answer(first, APPROVED)])
        [still] = await bob.interrupts(resume=[answer(first, APPROVED)])
        told = still["metadata"]["understudy"]
        assert [vote["name"] for vote in told["votes"]] == ["ann", "bob"]
        assert (told["missing"], told["approvedAt"] is None) == ("", False)
        broken = {**APPROVED, "breakGlass": True}
        assert (await olga.events(resume=[answer(first, broken)]))[-1]["code"] == "DecisionError"
        assert paid == []
        events = await olga.events(resume=[answer(first, {**broken, "reason": "on fire"})])
        assert types(events)[-1] == "RUN_FINISHED"
        assert [each.note for each in await runtime.reviews()] == ["on fire"]
    assert paid == [7]


async def test_a_client_is_told_which_budget_has_no_room() -> None:
    """V61."""
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Pay money back."""
        paid.append(amount)
        return "paid"

    agent = Agent("desk", by_turn(call("refund", {"amount": 7}), "Paid."), tools=[refund])
    budget = Budget("refunds", sum_of("refund", "amount", 5), at_limit="ask")
    async with Runtime([agent], budgets=[budget]) as runtime:
        [ann] = clients(ag_ui, runtime, "ann")
        [asked] = await ann.interrupts(said("go"))
        told = asked["metadata"]["understudy"]
        assert (told["budget"], "rule" in told) == ("refunds", False)
        events = await ann.events(resume=[answer(asked, APPROVED)])
        assert types(events)[-1] == "RUN_FINISHED"
    assert paid == [7]
