"""Votes by the tools that an MCP server has for the agents of a runtime."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastmcp.client import Client
from fastmcp.client.transports import StreamableHttpTransport
from starlette.requests import Request

from tests.support.agents import by_turn, completed, interrupted
from tests.support.plans import outcome_of
from tests.support.trust.broken import is_found_out
from tests.support.web_server import served
from understudy import Agent, Runtime, call, tool
from understudy.login import User
from understudy.mcp.agents_server import agents_app
from understudy.trust import approval

MAY: Any = frozenset({"read", "decide"})


def who(request: Request) -> User:
    """A login: who has the name as a token is it."""
    return User(request.headers["authorization"].removeprefix("Bearer "), MAY)


@pytest.mark.slow
async def test_a_vote_that_completes_nothing_says_what_is_missing() -> None:
    paid: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    gates = {"pay": {"approval": approval({"finance": 2})}}
    desk = Agent("desk", by_turn(call("pay", {"amount": 3})), tools=[pay], interrupt_on=gates)
    people = {"ann": ["finance"], "bob": ["finance"], "cy": ["support"]}
    with Runtime([desk], people=people) as runtime:
        app = agents_app(lambda: runtime, auth=who, decisions=True)
        with served(app) as url:

            async def sent(name: str, tool: str, **arguments: Any) -> tuple[bool, str]:
                headers = {"authorization": f"Bearer {name}"}
                transport = StreamableHttpTransport(f"{url}/mcp", headers=headers)
                async with Client(transport) as client:
                    found = await client.call_tool(tool, arguments, raise_on_error=False)
                    return found.is_error, found.content[0].text

            [request] = interrupted(await runtime.spawn("desk", id="a").run("go")).requests
            vote = {
                "agent_id": "a",
                "request_id": request.id,
                "digest": request.digest,
                "decision": "approve",
            }
            [row] = json.loads((await sent("cy", "list_pending"))[1])["requests"]
            said_before = row["why_no_vote"]
            is_error, told = await sent("cy", "decide", **vote)
            assert is_error
            assert "VoteRefused" in told
            assert "none of the roles that vote" in told
            assert said_before in told
            # A name of the client's own is nobody's: the login says who votes.
            is_error, told = await sent("ann", "decide", **vote, by="bob")
            assert not is_error
            assert json.loads(told) == {
                "recorded": request.id,
                "by": "ann",
                "open": "1 more of finance is missing",
            }
            [row] = json.loads((await sent("bob", "list_pending"))[1])["requests"]
            assert [each["name"] for each in row["votes"]] == ["ann"]
            assert row["missing"] == "1 more of finance"
            assert (row["why_no_vote"], row["counts_as"]) == (None, ["finance"])
            assert paid == []
            _, told = await sent("bob", "decide", **vote)
            assert "open" not in json.loads(told)
            outcome = completed(await outcome_of(runtime.get("a")))
    assert paid == [3]
    assert {each.assurance for each in outcome.state.decisions[0].votes} == {"login"}


@pytest.mark.slow
async def test_a_build_in_which_a_login_counts_as_the_program_is_found_out() -> None:
    """Else what is called above would prove nothing."""
    attack = test_a_vote_that_completes_nothing_says_what_is_missing
    assert await is_found_out("a login counts as the program", attack)
