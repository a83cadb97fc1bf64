"""Who counts as a requester of a call: everybody with a part in what it follows from."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, interrupted
from tests.support.loops import soon
from tests.support.trust.broken import is_found_out
from understudy import (
    Agent,
    Runtime,
    ScriptedModel,
    ToolContext,
    UsageError,
    approve,
    call,
    edit,
    tool,
)
from understudy.actors import WaitRoute
from understudy.errors import VoteRefused
from understudy.middleware import SubAgent
from understudy.modes import Sequential
from understudy.tools import OutcomeUnknown, Unknown
from understudy.trust import Rules, approval, ask

PEOPLE = {"ann": ["finance"], "bob": ["finance"], "cy": ["finance"], "amy": []}
NEVER = approval({"finance": 2}, never=["requester"])
TWO = approval({"finance": 2})


class Desk:
    """An agent that waits for an answer from outside, and then refunds."""

    def __init__(self, asked: Any = NEVER, *, inside: bool = False) -> None:
        self.paid: list[int] = []
        self.tokens: list[str] = []
        self.waits = asyncio.Event()

        @tool
        async def ask_bank(ctx: ToolContext[Any]) -> str:
            """Ask."""
            self.tokens.append(await ctx.token("bank"))
            self.waits.set()
            return str(await ctx.wait_for("bank"))

        asking: Any = call("ask_bank", {})
        options: dict[str, Any] = {}
        if inside:
            clerk = Agent("clerk", by_turn(asking), tools=[ask_bank], description="Asks.")
            asking = call("task", {"task_name": "clerk", "instructions": "ask"})
            options = {"middleware": [SubAgent([clerk], general_purpose=False)]}
        self.agent = Agent(
            "desk",
            by_turn(asking, call("refund", {"amount": 7})),
            tools=[ask_bank, refunding(self.paid)],
            interrupt_on={"refund": {"approval": asked}},
            **options,
        )


def refunding(paid: list[int]) -> Any:
    @tool
    def refund(amount: int) -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    return refund


async def test_who_answers_a_wait_from_outside_has_asked_for_what_follows() -> None:
    """V2: the answer stands in the conversation."""
    for inside in (False, True):
        for how in ("resolve", "reject"):
            desk = Desk(inside=inside)
            async with Runtime([desk.agent], people=PEOPLE) as runtime:
                ref = runtime.spawn("desk", id="a")
                running = ref.run("go", by="amy")
                await soon(desk.waits.wait())
                answer = getattr(runtime, how)
                assert await soon(answer(desk.tokens[0], "refund 7", by="ann"))
                [request] = interrupted(await soon(running)).requests
                assert request.requesters == ("amy", "ann")
                page = await soon(ref.history())
                assert [each.who for each in page if each.what == "wait_over"] == ["ann"]
                with pytest.raises(VoteRefused, match="has asked for the call"):
                    await ref.resume(approve(by="ann"))
                await ref.resume(approve(by="bob"))
                completed(await ref.resume(approve(by="cy")))
            assert desk.paid == [7]


async def test_after_an_answer_by_nobody_it_is_not_known_who_has_asked() -> None:
    """V2: the holder of the token may be the voter."""
    desk = Desk()
    async with Runtime([desk.agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("go", by="amy")
        await soon(desk.waits.wait())
        with pytest.raises(UsageError, match=r"resolve\(by="):
            runtime.resolve(desk.tokens[0], "refund 7", by="system")
        await soon(runtime.resolve(desk.tokens[0], "refund 7"))
        await soon(running)
        with pytest.raises(VoteRefused, match="nobody knows who has asked"):
            await ref.resume(approve(by="bob"))
    assert desk.paid == []


async def test_a_route_of_waits_says_who_answers() -> None:
    """V2: a service that is known by a name is nobody who votes."""
    desk = Desk()
    async with Runtime([desk.agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("go", by="amy")
        await soon(desk.waits.wait())
        assert await _posted(WaitRoute(runtime, by="cy"), desk.tokens[0], b'"refund 7"') == 200
        [request] = interrupted(await soon(running)).requests
        assert request.requesters == ("amy", "cy")
        with pytest.raises(UsageError, match="WaitRoute"):
            WaitRoute(runtime, by="system")


async def _posted(route: WaitRoute, token: str, body: bytes) -> int:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": f"/{token}", "headers": headers}
    await soon(route(scope, receive, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize("by", ["ann", None])
async def test_who_settles_a_doubt_has_asked_for_what_follows_where_the_model_is_told(
    by: str | None,
) -> None:
    """V2: a call that waits for its check continues with what they say."""
    paid: list[int] = []
    checked = asyncio.Event()

    async def find(ctx: Any, arguments: dict[str, Any]) -> Unknown:
        checked.set()
        return Unknown()

    @tool(check=find, check_after=[0.001, 3600])
    def wire(amount: int) -> str:
        """Wire."""
        raise OutcomeUnknown("cut off")

    agent = Agent(
        "desk",
        by_turn(call("wire", {"amount": 7}), call("refund", {"amount": 7})),
        tools=[wire, refunding(paid)],
        interrupt_on={"refund": {"approval": NEVER}},
    )
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("go", by="amy")
        await soon(checked.wait())
        [doubt] = await soon(runtime.doubts())
        await soon(ref.settle(doubt.call_key, how="it failed: refund 7", by=by))
        [request] = interrupted(await soon(running)).requests
        assert request.requesters == (None if by is None else ("amy", "ann"))
    assert paid == []


async def test_who_settles_a_doubt_that_the_model_is_not_told_of_has_asked_for_nothing() -> None:
    """V2."""
    paid: list[int] = []

    @tool
    def wire(amount: int) -> str:
        """Wire."""
        raise OutcomeUnknown("cut off")

    turns = [call("wire", {"amount": 7}), "done", call("refund", {"amount": 7})]
    gates = {"refund": {"approval": NEVER}}
    agent = Agent("desk", by_turn(*turns), tools=[wire, refunding(paid)], interrupt_on=gates)
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("go", by="amy"))
        [doubt] = await soon(runtime.doubts())
        await soon(ref.settle(doubt.call_key, how="it was paid"))
        [request] = interrupted(await soon(ref.run("and now", by="amy"))).requests
        assert request.requesters == ("amy",)


async def test_who_steers_an_agent_of_a_workflow_has_asked() -> None:
    """V2: it takes the message from the inbox of the agent above."""
    paid: list[int] = []
    held = Held("one")
    gates = {"refund": {"approval": NEVER}}
    second = Agent(
        "second",
        ScriptedModel([call("refund", {"amount": 7}), "done"]),
        tools=[refunding(paid)],
        interrupt_on=gates,
    )
    first = Agent("first", ScriptedModel([held, "in haste"]))
    flow = Agent("flow", mode=Sequential([first, second]))
    async with Runtime([flow], people=PEOPLE) as runtime:
        ref = runtime.spawn("flow", id="a")
        running = ref.run("go", by="amy")
        await soon(held.entered.wait())
        await soon(ref.send("quickly", steer=True, by="ann"))
        held.release.set()
        [request] = interrupted(await soon(running)).requests
        assert request.requesters == ("amy", "ann")


def desk_of_two(*, never: bool, paid: list[Any]) -> Agent:
    @tool
    def account(name: str) -> str:
        """Say whose account the refund goes to."""
        paid.append(name)
        return "noted"

    calls = [call("account", {"name": "amy"}), call("refund", {"amount": 7})]
    gates: Any = {"account": True, "refund": {"approval": NEVER if never else TWO}}
    return Agent("desk", by_turn(calls), tools=[account, refunding(paid)], interrupt_on=gates)


@pytest.mark.parametrize("first", ["edit", "votes"])
async def test_who_edits_a_call_beside_it_has_asked_where_requesters_never_vote(first: str) -> None:
    """V2: what the call does may depend on what the other one has done."""
    paid: list[Any] = []
    async with Runtime([desk_of_two(never=True, paid=paid)], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        gate, voted = interrupted(await ref.run("go", by="amy")).requests
        edited = {gate: edit({"name": "ann"}, by="ann")}
        if first == "edit":
            await ref.resume(edited)
        await ref.resume({voted: approve(by="ann")})
        outcome = await ref.resume({voted: approve(by="bob")})
        if first == "votes":
            outcome = await ref.resume(edited)
        [again] = interrupted(outcome).requests
        assert again.requesters == ("amy", "ann")
        assert "ann had agreed, and may not vote any more" in again.asked_again
        [pending] = await runtime.pending()
        assert [each.person for each in pending.votes] == ["bob"]
        with pytest.raises(VoteRefused, match="has asked for the call"):
            await ref.resume(approve(by="ann"))
        assert 7 not in paid
        completed(await ref.resume(approve(by="cy")))
    assert 7 in paid


async def test_nobody_votes_where_nobody_knows_who_has_edited_a_call_beside_it() -> None:
    """V2."""
    paid: list[Any] = []
    async with Runtime([desk_of_two(never=True, paid=paid)], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        gate, voted = interrupted(await ref.run("go", by="amy")).requests
        for each in ({voted: approve(by="ann")}, {voted: approve(by="bob")}):
            await ref.resume(each)
        interrupted(await ref.resume({gate: edit({"name": "ann"})}))
        with pytest.raises(VoteRefused, match="nobody knows who has asked"):
            await ref.resume(approve(by="cy"))
    assert 7 not in paid


async def test_who_edits_a_call_beside_it_votes_where_requesters_may() -> None:
    """V2: they may have asked for it by any message, too."""
    paid: list[Any] = []
    async with Runtime([desk_of_two(never=False, paid=paid)], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        gate, voted = interrupted(await ref.run("go", by="ann")).requests
        await ref.resume({voted: approve(by="ann")})
        await ref.resume({voted: approve(by="bob")})
        completed(await ref.resume({gate: edit({"name": "ann"}, by="ann")}))
    assert 7 in paid


@pytest.mark.parametrize("by", ["ann", None, "zoe"])
async def test_who_has_edited_the_arguments_is_none_of_several_who_agree_to_them(
    by: str | None,
) -> None:
    """V2: else a person alone would have said what is done, and been one of two who agree."""
    paid: list[int] = []
    agent = Agent(
        "desk",
        by_turn(call("refund", {"amount": 7})),
        tools=[refunding(paid)],
        interrupt_on={"refund": True},
    )
    async with Runtime([agent], people=PEOPLE, rules=Rules(ask("refund", TWO))) as runtime:
        ref = runtime.spawn("desk", id="a")
        gate, _ = interrupted(await ref.run("go", by="amy")).requests
        asked = interrupted(await ref.resume({gate: edit({"amount": 900}, by=by)}))
        [several] = [each for each in asked.requests if each.approval is not None]
        if several.arguments != {"amount": 900}:  # asked anew once all have decided
            await ref.resume({several: approve(by="ann")})
            again = interrupted(await ref.resume({several: approve(by="bob")}))
            [several] = [each for each in again.requests if each.approval is not None]
        told = "has edited the arguments" if by == "ann" else "nobody knows who has edited"
        with pytest.raises(VoteRefused, match=told):
            await ref.resume({several: approve(by="ann")})
        assert paid == []


async def test_one_person_may_edit_and_agree_where_one_is_enough() -> None:
    """V2."""
    paid: list[int] = []
    one = approval({"finance": 1})
    agent = Agent(
        "desk",
        by_turn(call("refund", {"amount": 7})),
        tools=[refunding(paid)],
        interrupt_on={"refund": True},
    )
    async with Runtime([agent], people=PEOPLE, rules=Rules(ask("refund", one))) as runtime:
        ref = runtime.spawn("desk", id="a")
        gate, several = interrupted(await ref.run("go", by="amy")).requests
        await ref.resume({several: approve(by="ann")})
        [several] = [
            each
            for each in interrupted(
                await ref.resume({gate: edit({"amount": 9}, by="ann")})
            ).requests
            if each.approval is not None
        ]
        outcome = await ref.resume({several: approve(by="ann")})
        while not paid:
            [left] = interrupted(outcome).requests
            outcome = await ref.resume({left: approve(by="ann")})
    assert paid == [9]


CONTROLS = [
    (
        "an answer from outside has no author",
        test_who_answers_a_wait_from_outside_has_asked_for_what_follows,
    ),
    (
        "an answer from outside has no author",
        test_after_an_answer_by_nobody_it_is_not_known_who_has_asked,
    ),
    (
        "an answer from outside has no author",
        partial(test_who_settles_a_doubt_has_asked_for_what_follows_where_the_model_is_told, "ann"),
    ),
    (
        "who steers an agent of a workflow has not asked",
        test_who_steers_an_agent_of_a_workflow_has_asked,
    ),
    (
        "who edits a call beside it has not asked",
        partial(test_who_edits_a_call_beside_it_has_asked_where_requesters_never_vote, "edit"),
    ),
    (
        "who has edited the arguments is one of several who agree",
        partial(test_who_has_edited_the_arguments_is_none_of_several_who_agree_to_them, "ann"),
    ),
]


@pytest.mark.parametrize(("broken", "attack"), CONTROLS)
async def test_a_build_with_one_rule_left_out_is_found_out(broken: str, attack: Any) -> None:
    """V2: else the tests would prove nothing."""
    assert await is_found_out(broken, attack)
