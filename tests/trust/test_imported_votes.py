"""Files carry no authority: what they say of votes, and of who has asked, counts for nothing.

Rules: V46.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted
from tests.support.plans import outcome_of
from tests.support.trust.broken import is_found_out
from understudy import Agent, Runtime, approve, call, tool
from understudy.errors import VoteRefused
from understudy.trust import approval

PEOPLE = {"ann": ["finance"], "bob": ["finance"], "cy": ["finance"], "eve": []}


def desk(asked: Any) -> tuple[Agent, list[int]]:
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    gates: Any = {"refund": {"approval": asked}}
    turns = [call("refund", {"amount": 7}), "Paid."]
    return Agent("desk", by_turn(*turns), tools=[refund], interrupt_on=gates), paid


@pytest.mark.parametrize("by", [None, "eve"])
@pytest.mark.parametrize("id", ["a", "b"])
async def test_votes_of_a_file_count_toward_no_request(id: str, by: str | None) -> None:
    """V46: also under the id of the agent that was there, in the same store."""
    agent, paid = desk(approval({"finance": 2}))
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go")
        await ref.resume(approve(by="ann"))
        data = await runtime.export("a")
        assert '"voted"' in json.dumps(data)
        if id == "a":
            await runtime.delete("a")
        imported = await runtime.import_(data, id, by=by)
        interrupted(await outcome_of(imported))  # the run goes on, and asks
        [request] = [each for each in await runtime.pending() if each.agent_id == id]
        assert (request.votes, request.missing) == ((), "2 more of finance")
        interrupted(await imported.resume(approve(by="bob")))
        assert paid == []
        completed(await imported.resume(approve(by="cy")))
        decided = (await imported.decisions())[-1]
        assert [each.person for each in decided.votes] == ["bob", "cy"]
    assert paid == [7]


async def test_nobody_votes_where_a_file_says_who_has_asked() -> None:
    """V46: the author of the file may have put another name there."""
    agent, paid = desk(approval({"finance": 1}, never=["requester"]))
    async with Runtime([agent], people=PEOPLE) as runtime:
        await runtime.spawn("desk", id="a").run("go", by="ann")
        data = json.loads(json.dumps(await runtime.export("a")).replace('"ann"', '"eve"'))
        await runtime.delete("a")
        imported = await runtime.import_(data, by="eve")
        interrupted(await outcome_of(imported))
        [pending] = await runtime.pending()
        assert pending.request.requesters is None
        for name in ("ann", "bob"):
            with pytest.raises(VoteRefused, match="nobody knows who has asked"):
                await imported.resume(approve(by=name))
    assert paid == []


CONTROLS: list[tuple[str, Any]] = [
    ("an import keeps its votes", partial(test_votes_of_a_file_count_toward_no_request, "a", None)),
    (
        "an import keeps its votes",
        partial(test_votes_of_a_file_count_toward_no_request, "b", "eve"),
    ),
    ("the names in an import are believed", test_nobody_votes_where_a_file_says_who_has_asked),
]


@pytest.mark.parametrize(("broken", "attack"), CONTROLS)
async def test_a_build_with_one_rule_left_out_is_found_out(broken: str, attack: Any) -> None:
    """V46: else the attacks would prove nothing."""
    assert await is_found_out(broken, attack)
