"""The rules of a store on the page of administration: listed, and retired after a confirmation."""

from __future__ import annotations

import platform
from typing import Any

import pytest

from tests.support.agents import by_turn
from tests.support.loops import soon
from tests.support.web_site import logged_in, site_of
from understudy import Agent, Runtime, approve, tool
from understudy.errors import ApprovalNeeded, UsageError
from understudy.trust import Rules, approval, ask, deny

PEOPLE: Any = {"ann": ["ops"], "bob": ["ops"], "fred": ["finance"], "fay": ["finance"]}
TWO_RULES = (
    deny(
        "refund", name="never over 1,000", when=lambda arguments, view: arguments["amount"] > 1000
    ),
    ask("refund", approval({"finance": 2}), name="two of finance", agent="desk"),
)
ADMIN = logged_in("ann")
READER = logged_in("eve", frozenset({"read", "decide", "act"}))


@tool
def refund(amount: int) -> str:
    """Pay money back."""
    return "paid"


def runtime_of(version: int | None = 7, **options: Any) -> Runtime:
    return Runtime(
        [Agent("desk", by_turn("Hello."), tools=[refund])],
        rules=Rules(*TWO_RULES, version=version),
        **{"people": PEOPLE, **options},
    )


async def test_the_page_lists_versions_with_fingerprint_host_and_rules() -> None:
    async with runtime_of() as runtime:
        await runtime.set_rules(Rules(*TWO_RULES[:1], version=8))
        async with site_of(runtime, auth=READER) as client:
            found = (await client.get("/api/rules")).json()
            assert (found["holds"], found["here"], found["retired"]) == (8, 8, 0)
            new, old = found["versions"]
            assert (new["version"], old["version"]) == (8, 7)
            assert new["fingerprint"] != old["fingerprint"]
            assert {new["host"], old["host"]} == {platform.node()}
            assert [each["name"] for each in old["rules"]] == ["never over 1,000", "two of finance"]
            page = (await client.get("/administration")).text
            for text in (
                'Version 8 <span class="tag good">holds</span> <span class="tag">at this host',
                'Version 7 <span class="tag">replaced</span>',
                f"Registered by host {platform.node()}",
                new["fingerprint"][:12],
                old["fingerprint"][:12],
                "never over 1,000",
                "2 of finance",
            ):
                assert text in page, text
            assert "Retire the rules" not in page, "that is for those with the right admin"


async def test_rules_are_retired_by_those_with_the_right_after_they_typed_the_version() -> None:
    async with runtime_of() as runtime:
        async with site_of(runtime, auth=READER) as client:
            refused = await client.post("/api/rules/retire", json={"version": 7})
            assert (refused.status_code, refused.json()["error"]) == (403, "NotAllowed")
            form = {"version": "7", "confirm": "7"}
            sent = await client.post("/administration/do/retire_rules", data=form)
            assert sent.status_code == 403
        async with site_of(runtime, auth=ADMIN) as client:
            assert "Retire version 7" in (await client.get("/administration")).text
            for confirm, version, status in (("", 7, 400), ("8", 7, 400), ("6", 6, 409)):
                form = {"version": str(version), "confirm": confirm}
                sent = await client.post("/administration/do/retire_rules", data=form)
                assert sent.status_code == status, (confirm, version)
            stale = await client.post("/api/rules/retire", json={"version": 6})
            assert (stale.status_code, stale.json()["error"]) == (409, "Stale")
            assert "rules version 7 hold now" in stale.json()["detail"]
            assert runtime.trust.state.rules is not None
            form = {"version": "7", "confirm": "7"}
            sent = await client.post("/administration/do/retire_rules", data=form)
            assert sent.headers["location"].endswith("/administration?said=retire_rules")
            assert runtime.trust.state.rules is None
            page = (await client.get("/administration?said=retire_rules")).text
            assert "The rules are retired." in page
            assert "No rules hold: they were retired." in page
            assert 'Version 7 <span class="tag">retired</span>' in page
            assert "Retire version" not in page
            again = await client.post("/api/rules/retire", json={"version": 7})
            assert "no rules hold now" in again.json()["detail"]


async def test_where_it_is_protected_persons_agree_first() -> None:
    """V45."""
    protect: Any = {"retire_rules": approval({"ops": 1}, never=["requester"])}
    async with runtime_of(protect=protect) as runtime:
        form = {"version": "7", "confirm": "7"}
        async with (
            site_of(runtime, auth=ADMIN) as ann,
            site_of(runtime, auth=logged_in("bob")) as bob,
        ):
            sent = await ann.post("/administration/do/retire_rules", data=form)
            assert sent.status_code == 409
            assert '<a href="/administration">Administration</a>' in sent.text
            [asked] = (await ann.get("/api/administration")).json()["requests"]
            assert asked["about"] == "retire the rules of version 7"
            assert "'ann' has asked" in asked["why_no_vote"]
            page = (await ann.get("/administration")).text
            assert "You may not vote on this: &#39;ann&#39; has asked" in page
            assert 'value="approve"' not in page
            page = (await bob.get("/administration")).text
            assert "Your vote counts, as ops." in page
            vote = {"id": asked["id"], "type": "approve", "note": "as agreed"}
            assert (await bob.post("/administration/do/vote", data=vote)).status_code == 303
            assert "as agreed" in (await ann.get("/administration")).text
            sent = await ann.post("/administration/do/retire_rules", data=form)
            assert sent.status_code == 303
    assert runtime.trust.state.rules is None


async def test_votes_to_retire_rules_do_not_retire_newer_ones() -> None:
    """V45: they are for the rules that were shown."""
    protect: Any = {"retire_rules": approval({"ops": 1}, never=["requester"])}
    async with runtime_of(protect=protect) as runtime:
        with pytest.raises(ApprovalNeeded) as needed:
            await soon(runtime.retire_rules(by="ann"))
        await soon(runtime.vote(needed.value.request_id, approve(by="bob")))
        await soon(runtime.set_rules(Rules(*TWO_RULES, version=8)))
        with pytest.raises(UsageError, match="rules version 8 hold now"):
            await soon(runtime.retire_rules(version=7, by="ann"))
        with pytest.raises(ApprovalNeeded, match="version 8"):
            await soon(runtime.retire_rules(by="ann"))
        assert runtime.trust.state.rules is not None


async def test_a_version_is_a_number() -> None:
    async with runtime_of() as runtime:
        for given in ("7", True):
            with pytest.raises(UsageError, match="must be a number"):
                runtime.retire_rules(version=given)  # type: ignore[arg-type]


async def test_without_rules_with_a_version_the_page_says_so() -> None:
    async with runtime_of(version=None) as runtime, site_of(runtime) as client:
        page = (await client.get("/administration")).text
        assert "No rules with a version are registered." in page
    async with Runtime([Agent("desk", by_turn("Hello."))]) as runtime, site_of(runtime) as client:
        assert "/administration" not in (await client.get("/")).text


async def test_who_neither_gives_nor_gets_a_delegation_is_not_offered_to_end_it() -> None:
    """V44."""
    people: Any = {**PEOPLE, "cy": [], "dee": []}
    async with runtime_of(people=people) as runtime:
        async with site_of(runtime, auth=logged_in("ann")) as ann:
            form = {"to": "cy", "roles": "ops", "until": "2999-01-01T10:00", "reason": "away"}
            page = (await ann.get("/administration")).text
            assert 'name="roles" value="ops" checked' in page
            assert '<option value="cy"></option>' in page
            assert '<option value="ann">' not in page
            sent = await ann.post("/administration/do/delegate", data=form)
            assert sent.headers["location"].endswith("?said=delegate")
        for name, may in (("ann", True), ("cy", True), ("dee", False)):
            auth = logged_in(name, frozenset({"read", "decide"}))
            async with site_of(runtime, auth=auth) as client:
                [row] = (await client.get("/api/delegations")).json()["delegations"]
                assert row["may_end"] is may, name
                page = (await client.get("/administration")).text
                assert ("End it" in page) is may, name
                if name != "ann":
                    assert "You have no role of your own" in page
