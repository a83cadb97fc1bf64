"""Grants and doubts of agents inside other ones are ended while those are open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted
from tests.support.loops import never, soon
from understudy import (
    Agent,
    Interrupted,
    Outcome,
    Runtime,
    ScriptedModel,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.middleware import SubAgent
from understudy.modes import Sequential


@tool
async def mail(to: str) -> str:
    return f"mailed {to}"


@tool
async def look() -> str:
    return "seen"


def inside(how: str, *turns: Any, tools: Sequence[Any], gates: Sequence[str]) -> Agent:
    """An agent `top`, and two levels below it one that says its turns, in two runs."""
    gated = dict.fromkeys(gates, True)
    inner = Agent("a", ScriptedModel([*turns, "done"] * 2), tools=tools, interrupt_on=gated)
    for name in ("rounds", "top"):
        if how == "workflow":
            inner = Agent(name, mode=Sequential([inner]))
        else:
            task = call("task", {"task_name": inner.name, "instructions": "do it"})
            below = SubAgent(agents=[inner], general_purpose=False)
            inner = Agent(name, by_turn(task), middleware=[below])
    return inner


def nested(how: str) -> Agent:
    """The inner agent mails, looks and mails."""
    turns = [call("mail", {"to": "ann"}), call("look"), call("mail", {"to": "bob"})]
    return inside(how, *turns, tools=[mail, look], gates=["mail", "look"])


@pytest.mark.parametrize("how", ["workflow", "sub-agent"])
@pytest.mark.parametrize("as_actor", [False, True], ids=["state", "actor"])
async def test_a_grant_of_an_agent_that_runs_inside_another_one_is_revoked_at_once(
    how: str, as_actor: bool
) -> None:
    """I3: while that agent and those around it are open."""
    top = nested(how)
    async with Runtime([top]) as runtime:
        ref = runtime.spawn("top", "t")
        if as_actor:
            first = interrupted(await soon(ref.run("go")))
            second = interrupted(await soon(ref.resume(first.decide(approve(always=True)))))
        else:
            first = interrupted(await top.execute("go"))
            answers = first.decide(approve(always=True))
            second = interrupted(await top.resume(first.state, answers))
        assert [each.tool_name for each in second.requests] == ["look"]
        (name,) = second.state.grants
        if as_actor:
            with pytest.raises(UsageError, match=f"'none'; there are: {name!r}"):
                await soon(ref.revoke("none"))
            await soon(ref.revoke(name))
            with pytest.raises(UsageError, match="there are: none"):
                await soon(ref.revoke(name))
            third = interrupted(await soon(ref.resume(second.decide(approve()))))
        else:
            with pytest.raises(UsageError, match=f"'none'; there are: {name!r}"):
                top.revoke(second.state, "none")
            state = top.revoke(second.state, name)
            with pytest.raises(UsageError, match="there are: none"):
                top.revoke(state, name)
            third = interrupted(await top.resume(state, second.decide(approve())))
        assert [each.arguments for each in third.requests] == [{"to": "bob"}]


async def test_a_grant_of_an_earlier_run_is_revoked_where_it_is_followed_now() -> None:
    """I3: a grant of an agent of a workflow holds in all runs."""
    top = nested("workflow")
    outcome: Outcome = await top.execute("go")
    while isinstance(outcome, Interrupted):
        always = outcome.requests[0].tool_name == "mail"
        outcome = await top.resume(outcome.state, outcome.decide(approve(always=always)))
    (name,) = outcome.state.grants
    second = interrupted(await top.execute("again", state=outcome.state))
    assert [each.tool_name for each in second.requests] == ["look"]
    third = interrupted(await top.resume(top.revoke(second.state, name), second.decide(approve())))
    assert [each.arguments for each in third.requests] == [{"to": "bob"}]


@pytest.mark.parametrize("how", ["workflow", "sub-agent"])
@pytest.mark.parametrize("as_actor", [False, True], ids=["state", "actor"])
async def test_a_doubt_of_an_agent_that_runs_inside_another_one_is_settled_at_once(
    how: str, as_actor: bool
) -> None:
    """J4: then the next call of that tool needs no person."""
    ran: list[int] = []

    @tool(timeout=0.01, on_unknown="tell")
    async def pay() -> str:
        ran.append(1)
        if len(ran) == 1:
            await never()
        return "paid"

    top = inside(how, call("pay"), call("look"), call("pay"), tools=[pay, look], gates=["look"])
    async with Runtime([top]) as runtime:
        ref = runtime.spawn("top", "t")
        first = interrupted(await (ref.run("go") if as_actor else top.execute("go")))
        assert first.state.doubts == {}
        (key,) = first.state.doubts_in_tree
        if as_actor:
            with pytest.raises(UsageError, match=f"there are: {key!r}"):
                await soon(ref.settle("other", how="looked"))
            await soon(ref.settle(key, how="looked"))
            done = completed(await soon(ref.resume(first.decide(approve()))))
        else:
            with pytest.raises(UsageError, match=f"in doubt are: {key!r}"):
                top.settle(first.state, "other", how="looked")
            state = top.settle(first.state, key, how="looked")
            done = completed(await top.resume(state, first.decide(approve())))
        assert done.state.doubts_in_tree == {}
        assert len(ran) == 2
