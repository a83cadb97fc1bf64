"""What the pages and the API say of a vote before it is cast is what becomes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from tests.support.agents import by_turn
from tests.support.loops import soon
from tests.support.web_site import ALL, client_of, only_request
from understudy import Agent, Runtime, approve, call, tool
from understudy.trust import Approval, Caller, Person, approval
from understudy.web import User, ui

IDP = "https://idp.example"
FINANCE = frozenset({"finance"})
LOGINS = {
    "ann": Person(id="ann", name="Ann", roles=FINANCE),
    "bob": Person(id="bob", name="Bob", roles=FINANCE),
    "cy": Person(id="cy", name="Cy", roles=FINANCE),
    "dee": Person(id="dee", name="Dee"),
    "eve": Person(id="eve", name="Eve"),
    "robot": Person(id="robot", name="Robot", roles=FINANCE, kind="service"),
    "olga": Person(id="olga", name="Olga", roles=frozenset({"oncall"})),
}
PEOPLE: Any = {**LOGINS, **{(IDP, name): person for name, person in LOGINS.items()}}
HOUR = timedelta(hours=1)


def by_login(name: str) -> Callable[[Request], User]:
    return lambda request: User(name, ALL)


def by_provider(name: str, age: timedelta | None) -> Callable[[Request], User]:
    """A login of an identity provider, so old at each request; None: nobody knows its age."""

    def who(request: Request) -> User:
        at = None if age is None else datetime.now(UTC) - age
        caller = Caller(name=name, assurance="idp", issuer=IDP, subject=name, auth_at=at)
        return User(name, ALL, verified=caller)

    return who


@dataclass
class Site:
    runtime: Runtime
    stack: AsyncExitStack

    async def client(self, auth: Callable[[Request], User]) -> httpx.AsyncClient:
        return await self.stack.enter_async_context(client_of(ui(self.runtime, auth=auth)))


@asynccontextmanager
async def waiting(asked: Approval, people: Any = PEOPLE) -> AsyncIterator[Site]:
    """A request by cy, on which ann has voted. Bob lets dee vote for him for an hour."""

    @tool
    def refund(amount: int) -> str:
        """Pay money back."""
        return "paid"

    turns = [call("refund", {"amount": 7}), "Done."]
    gates: Any = {"refund": {"approval": asked}}
    agent = Agent("desk", by_turn(*turns), tools=[refund], interrupt_on=gates)
    async with Runtime([agent], people=people) as runtime, AsyncExitStack() as stack:
        ref = runtime.spawn("desk", id="a1")
        await soon(ref.run("go", by="cy"))
        if people is not None:
            until = await soon(runtime.now()) + HOUR
            await soon(
                runtime.delegate(
                    from_="bob", to="dee", roles=["finance"], until=until, reason="away"
                )
            )
            if asked.assurance == "host" and asked.max_auth_age is None:
                await soon(ref.resume(approve(by="ann")))
        yield Site(runtime, stack)


THREE = approval({"finance": 3}, never=["requester"], break_glass={"oncall": 1})
VOUCHED = approval({"finance": 1}, max_auth_age=60)
BY_PROVIDER = approval({"finance": 1}, assurance="idp")
OLD, NEW = by_provider("ann", HOUR), by_provider("ann", timedelta(seconds=1))
UNKNOWN = by_provider("ann", None)


@pytest.mark.parametrize(
    ("asked", "auth", "why"),
    [
        (THREE, by_login("ann"), None),
        (THREE, by_login("bob"), None),
        (THREE, by_login("dee"), None),
        (THREE, by_login("cy"), "'cy' has asked for the call"),
        (THREE, by_login("eve"), "'eve' has none of the roles that vote: finance"),
        (THREE, by_login("robot"), "'robot' is a service, and only persons vote"),
        (THREE, by_login("nobody-known"), "knows nobody by the name"),
        (THREE, by_login("olga"), "'olga' has none of the roles"),
        (VOUCHED, NEW, None),
        (VOUCHED, OLD, "log in again"),
        (VOUCHED, UNKNOWN, "log in by an identity provider"),
        (BY_PROVIDER, NEW, None),
        (BY_PROVIDER, by_login("ann"), "log in by it"),
    ],
)
async def test_what_is_said_before_a_vote_is_what_becomes_of_it(
    asked: Approval, auth: Callable[[Request], User], why: str | None
) -> None:
    """V39."""
    async with waiting(asked) as site:
        client = await site.client(auth)
        row = await only_request(client)
        path = f"/agents/a1/requests/{row['id']}"
        one = (await client.get(f"/api{path}")).json()
        standing = {name: row[name] for name in ("why_no_vote", "counts_as", "votes_for")}
        assert {name: one[name] for name in standing} == standing
        assert row["needs_login"] is (why is not None and "log in" in why)
        for page in ("/", path):
            text = (await client.get(page)).text
            assert ("You may not vote on this" in text) is (why is not None), page
            assert ("ote counts" in text or "You have voted" in text) is (why is None), page
            if why is not None:
                assert why.replace("'", "&#39;") in text, page
        body = {"decisions": {row["id"]: {"type": "approve"}}, "expect": {row["id"]: row["digest"]}}
        voted = await client.post("/api/agents/a1/decisions", json=body)
    if why is None:
        assert (row["why_no_vote"], row["counts_as"], voted.status_code) == (None, ["finance"], 200)
    else:
        assert why in row["why_no_vote"]
        assert row["counts_as"] == []
        assert (voted.status_code, voted.json()["error"]) == (403, "VoteRefused")
        assert row["why_no_vote"] in voted.json()["detail"]


async def test_who_votes_for_another_one_is_told_for_whom_and_until_when() -> None:
    """V39."""
    async with waiting(THREE) as site:
        dee, bob = await site.client(by_login("dee")), await site.client(by_login("bob"))
        row = await only_request(dee)
        [given] = await soon(site.runtime.delegations())
        until = given.said.until
        assert row["votes_for"] == {"person": "bob", "name": "Bob", "until": until.isoformat()}
        assert (await only_request(bob))["votes_for"] is None
        path = f"/agents/a1/requests/{row['id']}"
        for page in ("/", path):
            text = (await dee.get(page)).text
            assert "Your vote counts for <strong>Bob</strong>, as finance, until" in text, page
            assert f"{until:%H:%M} UTC" in text, page
        assert "neither of you votes a second time" in (await dee.get(path)).text
        form = {"decision": "approve", "digest": row["digest"]}
        assert (await dee.post(path, data=form)).status_code == 303
        assert "You have voted; your vote counts for <strong>Bob</strong>" in (
            (await dee.get("/")).text
        )
        # Both count as one: now bob may not.
        row = await only_request(bob)
        assert "Dee has voted for" in row["why_no_vote"]
        await soon(site.runtime.end_delegation(given.id, by="bob"))
        assert (await only_request(bob))["why_no_vote"] is None
        assert "none of the roles" in (await only_request(dee))["why_no_vote"]


async def test_a_page_says_until_when_a_login_is_new_enough() -> None:
    async with waiting(VOUCHED) as site:
        client = await site.client(NEW)
        row = await only_request(client)
        left = datetime.fromisoformat(row["login_until"]) - datetime.now(UTC)
        assert timedelta() < left <= timedelta(minutes=1)
        path = f"/agents/a1/requests/{row['id']}"
        assert "Your login counts until <time" in (await client.get(path)).text
        assert (await only_request(await site.client(OLD)))["login_until"] is None


async def test_who_may_break_the_glass_is_told_so_in_the_list() -> None:
    async with waiting(THREE) as site:
        olga = await site.client(by_login("olga"))
        assert (await only_request(olga))["may_break_glass"] is True
        assert "You may break the glass." in (await olga.get("/")).text


async def test_where_no_people_are_known_the_list_says_why_nobody_votes() -> None:
    async with waiting(THREE, None) as site:
        row = await only_request(await site.client(by_login("ann")))
        assert row["why_no_vote"] == "no people are known here: give Runtime(people=...)"


async def test_many_at_once_say_for_whom_each_vote_is_and_leave_out_what_the_user_may_not() -> None:
    """V39."""
    alone = approval({"finance": 1}, never=["requester"], assurance="login")
    async with waiting(alone) as site:
        dee, cy = await site.client(by_login("dee")), await site.client(by_login("cy"))
        row = await only_request(dee)
        chosen = {"chosen": f"a1/{row['id']}/{row['digest']}"}
        assert 'name="chosen"' in (await dee.get("/")).text
        shown = (await dee.post("/bulk", data=chosen)).text
        assert "Your vote counts for <strong>Bob</strong>" in shown
        assert 'value="approve"' in shown
        assert 'name="chosen"' not in (await cy.get("/")).text
        shown = (await cy.post("/bulk", data=chosen)).text
        assert "left out: you may not vote on it: &#39;cy&#39; has asked for the call" in shown
        assert 'value="approve"' not in shown
