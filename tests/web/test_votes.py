"""Votes by the pages and the API: who must agree, who has, what is missing, and who may not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.support.agents import by_turn, until_status
from tests.support.loops import soon
from tests.support.web_site import asked, logged_in, only_request, rest, site_of
from understudy import Agent, Runtime, Status, approve, call, tool
from understudy.trust import Caller, Person, Rules, approval, ask

PEOPLE = {"ann": ["finance"], "bob": ["finance", "legal"], "cy": ["support"]}
TWO = approval({"finance": 2})


def desk(asks: Any = TWO) -> tuple[Agent, list[int]]:
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Pay money back."""
        paid.append(amount)
        return "paid"

    turns = [call("refund", {"amount": 7})]
    gates = {"refund": {"approval": asks}}
    return Agent("desk", by_turn(*turns), tools=[refund], interrupt_on=gates), paid


@asynccontextmanager
async def clients(runtime: Runtime, *names: str) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client of the pages for each who is logged in."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(site_of(runtime, auth=logged_in(name)))
            for name in names
        ]


async def vote(
    client: httpx.AsyncClient, row: dict[str, Any], type: str = "approve", **more: Any
) -> httpx.Response:
    body = {"decisions": {row["id"]: {"type": type, **more}}, "expect": {row["id"]: row["digest"]}}
    return await client.post(f"/api/agents/{row['agent_id']}/decisions", json=body)


async def test_a_vote_that_completes_nothing_is_answered_by_what_is_missing() -> None:
    agent, paid = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = await asked(runtime)
        async with clients(runtime, "ann", "bob") as (ann, bob):
            row = await only_request(ann)
            assert (row["must_agree"], row["missing"]) == ("2 of finance", "2 more of finance")
            for _ in range(2):  # the same again is the same vote
                done = (await vote(ann, row)).json()
                assert done["recorded"] == [row["id"]]
                assert done["open"] == {row["id"]: "1 more of finance is missing"}
            row = await only_request(bob)
            assert [each["name"] for each in row["votes"]] == ["ann"]
            assert row["missing"] == "1 more of finance"
            assert paid == []
            assert (await vote(bob, row)).json()["open"] == {}
            await rest(ref)
        [decided] = await ref.decisions()
    assert paid == [7]
    assert {each.assurance for each in decided.votes} == {"login"}


async def test_who_may_not_vote_is_refused_with_the_reason_and_is_no_conflict() -> None:
    agent, _ = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        await asked(runtime)
        async with clients(runtime, "cy") as (cy,):
            row = await only_request(cy)
            refused = await vote(cy, row)
            assert (refused.status_code, refused.json()["error"]) == (403, "VoteRefused")
            assert "'cy' has none of the roles that vote: finance" in refused.json()["detail"]
            page = (await cy.get(f"/agents/a1/requests/{row['id']}")).text
            assert "You may not vote on this: &#39;cy&#39; has none of the roles" in page
            assert 'value="approve"' not in page
            form = {"decision": "approve", "digest": row["digest"]}
            sent = await cy.post(f"/agents/a1/requests/{row['id']}", data=form)
            assert sent.status_code == 403
            assert "none of the roles" in sent.text
            assert (await only_request(cy))["votes"] == []


async def test_where_people_cannot_be_asked_the_answer_says_that_it_is_not_now() -> None:
    def down(caller: Caller) -> Person:
        raise ConnectionError("no directory")

    agent, _ = desk()
    async with Runtime([agent], people=down) as runtime:
        await asked(runtime)
        async with clients(runtime, "ann") as (ann,):
            row = await only_request(ann)
            refused = await vote(ann, row)
            assert (refused.status_code, refused.json()["error"]) == (503, "PeopleUnavailable")
            page = (await ann.get(f"/agents/a1/requests/{row['id']}")).text
            assert "no directory" in page
            assert 'value="approve"' not in page


async def test_the_page_says_who_must_agree_who_voted_and_what_is_missing() -> None:
    agent, _ = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = await asked(runtime)
        async with clients(runtime, "ann", "bob") as (ann, bob):
            row = await only_request(ann)
            path = f"/agents/a1/requests/{row['id']}"
            before = (await ann.get(path)).text
            assert "<strong>Must agree:</strong> 2 of finance" in before
            assert "2 more of finance is missing." in before
            assert "later calls" not in before  # no grant is offered
            form = {"decision": "approve", "digest": row["digest"], "note": "as agreed"}
            await ann.post(path, data=form)
            after = (await ann.get(path)).text
            assert "You have voted; 1 more of finance is missing." in after
            theirs = (await bob.get(path)).text
            assert "You have voted" not in theirs
            assert "approved</span> ann" in theirs
            assert "as agreed" in theirs
            assert 'value="approve"' in theirs
            assert "2 of finance must agree: ann voted, 1 more of finance is" in (
                (await bob.get("/")).text
            )
            assert "approved</span> ann" in (await bob.get("/agents/a1")).text
            await vote(bob, row)
            await rest(ref)
            for shown in (path, "/agents/a1/decisions"):
                text = (await bob.get(shown)).text
                assert "approved</span> ann" in text, shown
                assert "approved</span> bob" in text, shown
            [told] = (await bob.get("/api/agents/a1/decisions")).json()["decisions"]
            assert [each["name"] for each in told["votes"]] == ["ann", "bob"]


@pytest.mark.parametrize(
    ("asks", "is_alone"),
    [(TWO, True), (approval(any_of=[{"finance": 2}, {"legal": 1}]), False)],
)
async def test_a_request_that_no_person_can_approve_alone_is_not_decided_with_others(
    asks: Any, is_alone: bool
) -> None:
    agent, paid = desk(asks)
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = await asked(runtime)
        async with clients(runtime, "bob") as (bob,):
            row = await only_request(bob)
            assert ('name="chosen"' in (await bob.get("/")).text) is not is_alone
            chosen = {"chosen": f"a1/{row['id']}/{row['digest']}"}
            shown = (await bob.post("/bulk", data=chosen)).text
            assert ("left out: several persons must agree to it" in shown) is is_alone
            named = {"agent_id": "a1", "request_id": row["id"], "digest": row["digest"]}
            body = {"decision": {"type": "approve"}, "requests": [named]}
            [result] = (await bob.post("/api/bulk", json=body)).json()["results"]
            assert result["ok"] is not is_alone
            if is_alone:
                assert result["error"] == "SeveralVote"
                assert "vote on this one by itself" in result["detail"]
                assert (await only_request(bob))["votes"] == []
            else:
                await rest(ref)
    assert paid == ([] if is_alone else [7])


async def test_no_body_of_a_request_says_who_votes_or_who_vouches_for_them() -> None:
    agent, _ = desk()
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = await asked(runtime)
        async with clients(runtime, "ann") as (ann,):
            row = await only_request(ann)
            for more in ({"by": "bob"}, {"assurance": "idp"}):
                assert (await vote(ann, row, **more)).status_code == 400, more
            assert (await only_request(ann))["votes"] == []
            await vote(ann, row)
            await soon(ref.resume(approve(by="bob")))
        [decided] = await ref.decisions()
    votes = [(each.person, each.assurance) for each in decided.votes]
    assert votes == [("ann", "login"), ("bob", "host")]


async def test_the_request_of_a_rule_shows_the_rule_and_what_the_call_is_about() -> None:
    agent, _ = desk()
    rules = Rules(ask("refund", TWO, name="two of finance"))
    async with Runtime([agent], people=PEOPLE, rules=rules) as runtime:
        await asked(runtime)
        async with clients(runtime, "ann") as (ann,):
            rows = (await ann.get("/api/pending")).json()["requests"]
            assert sorted(each["rule"] for each in rows) == ["", "two of finance"]
            assert {each["summary"] for each in rows} == {"amount=7"}
            assert "rule “two of finance”" in (await ann.get("/")).text
            of_rule = next(each for each in rows if each["rule"])
            page = await ann.get(f"/agents/{of_rule['agent_id']}/requests/{of_rule['id']}")
            assert "Asked by the rule</strong> “two of finance”" in page.text


GLASS = approval({"finance": 2}, use_after=3600, break_glass={"oncall": 1})
WITH_ONCALL = {**PEOPLE, "olga": ["oncall"]}
WHY = "the account is on fire"


async def test_the_pages_say_when_a_call_starts_to_which_enough_have_agreed() -> None:
    agent, paid = desk(GLASS)
    async with Runtime([agent], people=WITH_ONCALL) as runtime:
        await asked(runtime)
        async with clients(runtime, "ann", "bob") as (ann, bob):
            row = await only_request(ann)
            assert row["terms"] == [
                "It starts 1 hour after enough have agreed.",
                "In an emergency 1 of oncall may break the glass, with a reason.",
            ]
            await vote(ann, row)
            done = (await vote(bob, row)).json()
            row = await only_request(ann)
            assert (row["missing"], row["next_due"]) == ("", row["approved_at"])
            started = f"enough have agreed, it starts at {row['approved_at']}"
            assert done["open"] == {row["id"]: started}
            page = (await ann.get(f"/agents/a1/requests/{row['id']}")).text
            assert "Agreed: it starts <time" in page
            assert "It starts 1 hour after enough have agreed." in page
            assert "Break the glass" not in page
            assert "enough have agreed, it starts <time" in (await ann.get("/")).text
    assert paid == []


async def test_the_glass_is_broken_and_reviewed_by_the_pages() -> None:
    agent, paid = desk(GLASS)
    async with Runtime([agent], people=WITH_ONCALL) as runtime:
        ref = await asked(runtime)
        async with clients(runtime, "olga", "ann") as (olga, ann):
            row = await only_request(olga)
            path = f"/agents/a1/requests/{row['id']}"
            page = (await olga.get(path)).text
            assert "You may not vote on this" in page
            assert 'value="break_glass"' in page
            form = {"decision": "break_glass", "digest": row["digest"]}
            told = await olga.post(path, data=form)
            assert (told.status_code, paid) == (422, [])
            assert "must say why" in told.text
            assert 'id="glass" open' in told.text
            refused = await ann.post(path, data={**form, "note": WHY})
            assert (refused.status_code, paid) == (403, [])
            await olga.post(path, data={**form, "note": WHY})
            await rest(ref)
            assert paid == [7]
            assert "olga broke the glass and approved it alone." in (await ann.get(path)).text
            for shown in (path, "/agents/a1", "/agents/a1/decisions", "/reviews"):
                text = (await ann.get(shown)).text
                assert WHY in text, shown
                assert "olga" in text, shown
            [review] = (await ann.get("/api/reviews")).json()["reviews"]
            close = {"review_id": review["id"], "back": "reviews"}
            assert review["why_not_close"] is None
            [of_olga] = (await olga.get("/api/reviews")).json()["reviews"]
            for shown in ("/", "/agents/a1", "/reviews"):
                assert "Close the review" in (await ann.get(shown)).text, shown
                text = (await olga.get(shown)).text
                assert f"You may not close this review: {of_olga['why_not_close']}." in text, shown
                assert "Close the review" not in text, shown
            own = await olga.post("/agents/a1/do/close_review", data=close)
            assert "who broke the glass does not review it" in own.text
            closed = await ann.post("/agents/a1/do/close_review", data={**close, "note": "fine"})
            assert closed.headers["location"].endswith("/reviews?said=close_review")
            assert (await ann.get("/api/reviews")).json()["reviews"] == []
            assert "Nothing is to be reviewed" in (await ann.get("/reviews")).text
            found = (await ann.get("/agents/a1/history")).text
            assert "glass broken" in found
            assert "review closed" in found


async def test_a_login_that_is_too_weak_or_of_an_unknown_time_is_told_what_to_do() -> None:
    for asks, remedy in (
        (approval({"finance": 1}, assurance="idp"), "log in by it, and vote by the pages"),
        (approval({"finance": 1}, max_auth_age=60), "log in by an identity provider"),
    ):
        agent, paid = desk(asks)
        async with Runtime([agent], people=PEOPLE) as runtime:
            await asked(runtime)
            async with clients(runtime, "ann") as (ann,):
                row = await only_request(ann)
                assert remedy in (await ann.get(f"/agents/a1/requests/{row['id']}")).text
                refused = await vote(ann, row)
                assert (refused.status_code, refused.json()["error"]) == (403, "VoteRefused")
        assert paid == []


async def test_a_login_is_enough_where_a_login_must_vouch() -> None:
    agent, paid = desk(approval({"finance": 1}, assurance="login"))
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = await asked(runtime)
        async with clients(runtime, "ann") as (ann,):
            await vote(ann, await only_request(ann))
            await rest(ref)
    assert paid == [7]


async def test_who_has_asked_by_a_login_is_looked_up_as_that_login() -> None:
    """V35: `people` tells a name of the host from a login of the same name."""

    def who(caller: Caller) -> Person | None:
        if caller.assurance == "host":  # a customer of the shop
            return Person(id=f"customer-{caller.name}")
        return Person(id=f"employee-{caller.name}", roles=frozenset({"finance"}))

    agent, paid = desk(approval({"finance": 1}, never=["requester"]))
    async with Runtime([agent], people=who) as runtime:
        runtime.spawn("desk", id="a1")
        async with clients(runtime, "ann", "bob") as (ann, bob):
            await ann.post("/api/agents/a1/messages", json={"text": "go"})
            ref = runtime.get("a1")
            await until_status(ref, Status.INTERRUPTED)
            row = await only_request(ann)
            assert row["requesters"] == ["employee-ann"]
            refused = await vote(ann, row)
            assert (refused.status_code, paid) == (403, [])
            assert "has asked for the call" in refused.json()["detail"]
            await vote(bob, row)
            await rest(ref)
    assert paid == [7]
