"""Administration that persons must agree to before it is done.

Rules: V45.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.agents import FakeClock, by_turn
from tests.support.hosts import opened, stores
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from tests.support.trust.broken import is_found_out
from tests.support.web_site import client_of
from understudy import Agent, AgentRef, DecisionError, Runtime, UsageError, approve, edit, reject
from understudy.errors import ApprovalNeeded, PeopleUnavailable, VoteRefused
from understudy.login import User
from understudy.trust import Approval, Caller, Person, Rules, approval, deny
from understudy.web import ui

PEOPLE: dict[Any, Any] = {
    "ann": ["ops"],
    "bob": ["ops"],
    "cy": ["ops"],
    "eve": [],
    "robot": Person(id="robot", roles=frozenset({"ops"}), kind="service"),
}
TWO = approval({"ops": 2}, never=["requester"])
ONE = approval({"ops": 1}, never=["requester"])
VERBS = ("compact", "delegate", "delete", "export", "import", "recover", "retire_rules")


def desk() -> Agent:
    return Agent("desk", by_turn("Hello."))


def protecting(asked: Approval = ONE, **options: Any) -> Runtime:
    protect: Any = dict.fromkeys(VERBS, asked)
    return Runtime([desk()], **{"people": PEOPLE, "protect": protect, **options})


async def refused(asked: Awaitable[Any]) -> ApprovalNeeded:
    with pytest.raises(ApprovalNeeded) as raised:
        await asked
    return raised.value


async def there(runtime: Runtime, id: str = "a") -> AgentRef:
    ref = runtime.spawn("desk", id=id)
    await ref.run("hello", by="eve")
    return ref


async def test_what_is_protected_is_done_once_enough_persons_have_agreed() -> None:
    """V45."""
    async with protecting(TWO) as runtime:
        await there(runtime)
        needed = await refused(runtime.delete("a", by="ann"))
        assert (needed.verb, needed.missing) == ("delete", "2 more of ops")
        assert "delete agent 'a'" in str(needed)
        voted = await runtime.vote(needed.request_id, approve(by="bob"))
        assert [each.name for each in voted.votes] == ["bob"]
        again = await refused(runtime.delete("a", by="ann"))
        assert (again.request_id, again.missing) == (needed.request_id, "1 more of ops")
        await runtime.vote(needed.request_id, approve(by="cy"))
        assert await runtime.delete("a", by="ann")
        assert await runtime.administration() == []


ACTS: dict[str, Callable[[Runtime, AgentRef], Awaitable[Any]]] = {
    "compact": lambda runtime, ref: ref.compact(by="ann"),
    "delete": lambda runtime, ref: runtime.delete("a", by="ann"),
    "export": lambda runtime, ref: runtime.export("a", by="ann"),
    "import": lambda runtime, ref: runtime.import_({"format": 1}, "b", by="ann"),
    "recover": lambda runtime, ref: runtime.recover(by="ann"),
    "retire_rules": lambda runtime, ref: runtime.retire_rules(by="ann"),
    "delegate": lambda runtime, ref: runtime.delegate(
        from_="bob",
        to="eve",
        roles=["ops"],
        until=datetime(2999, 1, 1, tzinfo=UTC),
        reason="away",
        by="ann",
    ),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_each_of_them_is_protected_inside_of_the_process_too(verb: str) -> None:
    """V45."""
    assert set(ACTS) == set(VERBS)
    async with protecting() as runtime:
        ref = await there(runtime)
        needed = await refused(ACTS[verb](runtime, ref))
        assert needed.verb == verb
        await runtime.vote(needed.request_id, approve(by="cy"))
        if verb == "import":
            with pytest.raises(UsageError, match="export"):
                await ACTS[verb](runtime, ref)
        else:
            await ACTS[verb](runtime, ref)
        assert await runtime.administration() == []


async def test_without_a_name_nothing_protected_is_done() -> None:
    """V45."""
    async with protecting() as runtime:
        ref = await there(runtime)
        for asked in (ref.compact(), runtime.delete("a"), runtime.recover(), runtime.export("a")):
            with pytest.raises(UsageError, match="who wants it"):
                await asked
        with pytest.raises(UsageError, match="knows nobody"):
            await runtime.delete("a", by="mallory")
        assert await runtime.administration() == []


async def test_the_votes_are_for_one_person_one_verb_and_the_same_arguments() -> None:
    """V45."""
    async with protecting() as runtime:
        for id in ("a", "b"):
            await there(runtime, id)
        needed = await refused(runtime.delete("a", by="ann"))
        await runtime.vote(needed.request_id, approve(by="cy"))
        others = (
            runtime.delete("b", by="ann"),
            runtime.delete("a", by="bob"),
            runtime.compact("a", by="ann"),
            runtime.export("a", by="ann"),
        )
        for other in others:
            assert (await refused(other)).request_id != needed.request_id
        assert await runtime.delete("a", by="ann")


async def test_what_was_agreed_to_is_done_once() -> None:
    """V45: also where it is asked for twice at the same time."""
    async with protecting() as runtime:
        await there(runtime)
        needed = await refused(runtime.export("a", by="ann"))
        await runtime.vote(needed.request_id, approve(by="cy"))
        found = await asyncio.gather(
            *(runtime.export("a", by="ann") for _ in range(5)), return_exceptions=True
        )
        done = [each for each in found if isinstance(each, dict)]
        assert len(done) == 1
        others = [each for each in found if each is not done[0]]
        assert {type(each) for each in others} == {ApprovalNeeded}
        assert needed.request_id not in {each.request_id for each in others}  # type: ignore[union-attr]


async def test_the_same_asked_for_again_is_one_request() -> None:
    """V45."""
    async with protecting() as runtime:
        await there(runtime)
        asked = [refused(runtime.delete("a", by="ann")) for _ in range(5)]
        assert len({each.request_id for each in await asyncio.gather(*asked)}) == 1
        assert len(await runtime.administration()) == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ann", "has asked for the call"),
        ("eve", "none of the roles"),
        ("robot", "only persons vote"),
        ("mallory", "knows nobody"),
    ],
)
async def test_who_may_not_vote_on_it_is_refused(name: str, told: str) -> None:
    """V45."""
    async with protecting() as runtime:
        await there(runtime)
        needed = await refused(runtime.delete("a", by="ann"))
        with pytest.raises(VoteRefused, match=told):
            await runtime.vote(needed.request_id, approve(by=name))
        [found] = await runtime.administration()
        assert found.votes == ()


async def test_a_rejection_stands_and_the_same_is_not_done() -> None:
    """V45."""
    async with protecting() as runtime:
        await there(runtime)
        needed = await refused(runtime.delete("a", by="ann"))
        await runtime.vote(needed.request_id, reject("no", by="bob"))
        with pytest.raises(DecisionError, match="is rejected"):
            await runtime.vote(needed.request_id, approve(by="cy"))
        assert "it was rejected" in str(await refused(runtime.delete("a", by="ann")))


async def test_who_has_lost_their_role_before_it_is_done_has_not_agreed() -> None:
    """V45."""
    clock, roles = FakeClock(), {"ann": {"ops"}, "bob": {"ops"}}

    def who(caller: Caller) -> Person:
        return Person(id=caller.name, roles=frozenset(roles.get(caller.name, ())))

    async with protecting(clock=clock, people=who) as runtime:
        await there(runtime)
        needed = await refused(runtime.delete("a", by="ann"))
        await runtime.vote(needed.request_id, approve(by="bob"))
        roles["bob"] = set()
        clock.advance(61)
        assert (await refused(runtime.delete("a", by="ann"))).missing == "1 more of ops"


async def test_it_is_asked_for_and_done_within_its_time() -> None:
    """V45."""
    clock = FakeClock()
    asked = approval({"ops": 1}, within=600, use_within=60)
    async with protecting(asked, clock=clock) as runtime:
        await there(runtime)
        first = await refused(runtime.export("a", by="ann"))
        clock.advance(601)
        with pytest.raises(DecisionError, match="not pending"):
            await runtime.vote(first.request_id, approve(by="bob"))
        second = await refused(runtime.export("a", by="ann"))
        assert second.request_id != first.request_id
        await runtime.vote(second.request_id, approve(by="bob"))
        clock.advance(61)
        third = await refused(runtime.export("a", by="ann"))
        assert third.request_id != second.request_id
        await runtime.vote(third.request_id, approve(by="bob"))
        assert (await runtime.export("a", by="ann"))["agent_id"] == "a"


async def test_the_votes_outlive_the_process_and_the_stricter_of_then_and_now_counts(
    tmp_path: Any,
) -> None:
    """V45."""
    store = f"sqlite:///{tmp_path}/store.db"
    async with protecting(store=store) as runtime:
        await there(runtime)
        needed = await refused(runtime.delete("a", by="ann"))
        await runtime.vote(needed.request_id, approve(by="bob"))
    async with protecting(TWO, store=store) as runtime:
        assert (await refused(runtime.delete("a", by="ann"))).missing == "1 more of ops"
        await runtime.vote(needed.request_id, approve(by="cy"))
        assert await runtime.delete("a", by="ann")


async def test_ones_own_roles_one_gives_alone_and_a_delegate_votes_here_too() -> None:
    """V45."""
    async with protecting() as runtime:
        await there(runtime)
        ends = datetime.now(UTC) + timedelta(hours=1)
        await runtime.delegate(from_="bob", to="eve", roles=["ops"], until=ends, reason="away")
        needed = await refused(runtime.delete("a", by="ann"))
        found = await runtime.vote(needed.request_id, approve(by="eve"))
        assert found.votes[0].represents is not None
        assert await runtime.delete("a", by="ann")


async def test_while_people_cannot_be_asked_nothing_protected_is_done() -> None:
    """V45."""

    def away(caller: Caller) -> Person:
        raise ConnectionError("no directory")

    async with protecting(people=away) as runtime:
        runtime.spawn("desk", id="a")
        with pytest.raises(PeopleUnavailable):
            await runtime.delete("a", by="ann")


@pytest.mark.parametrize(
    ("protect", "told"),
    [
        ({"send": ONE}, "'send'"),
        ({"delete": {"ops": 1}}, "takes what approval"),
        ({"delete": approval({"ops": 1}, break_glass={"ops": 1})}, "break_glass"),
        (["delete"], "must be a mapping"),
    ],
)
def test_what_cannot_be_protected_so_is_refused(protect: Any, told: str) -> None:
    """V45."""
    with pytest.raises(UsageError, match=told):
        Runtime([desk()], people=PEOPLE, protect=protect)
    with pytest.raises(UsageError, match="needs people"):
        Runtime([desk()], protect={"delete": ONE})


async def test_a_vote_is_an_approval_or_a_rejection_by_a_name() -> None:
    """V45."""
    async with protecting() as runtime:
        await there(runtime)
        needed = await refused(runtime.delete("a", by="ann"))
        for decision in (edit({}, by="bob"), approve(always=True, by="bob")):
            with pytest.raises(DecisionError, match="takes approve"):
                await runtime.vote(needed.request_id, decision)
        with pytest.raises(UsageError, match="takes approve"):
            await runtime.vote(needed.request_id, approve())
        with pytest.raises(DecisionError, match="not pending"):
            await runtime.vote("q1", approve(by="bob"))


@pytest.mark.postgres
async def test_votes_at_another_host_count_and_it_is_done_once(hosts: Hosts) -> None:
    """V45."""
    here, other = stores(hosts, "here", "there")
    protect: Any = {"export": ONE}
    async with (
        opened(here, desk(), people=PEOPLE, protect=protect) as first,
        opened(other, desk(), people=PEOPLE, protect=protect) as second,
    ):
        await soon(first.spawn("desk", "a").run("go"))
        needed = await refused(soon(first.export("a", by="ann")))
        await soon(second.vote(needed.request_id, approve(by="bob")))
        found = await asyncio.gather(
            *(soon(each.export("a", by="ann")) for each in (first, second)), return_exceptions=True
        )
        assert sorted(isinstance(each, dict) for each in found) == [False, True]
        await until(lambda: first.trust.state.number == second.trust.state.number)


async def test_rules_that_hold_are_not_retired_by_one_person() -> None:
    """V45."""
    rules = Rules(deny("drop"), version=1)
    async with protecting(rules=rules) as runtime:
        needed = await refused(runtime.retire_rules(by="ann"))
        assert runtime.trust.state.rules is not None
        await runtime.vote(needed.request_id, approve(by="bob"))
        assert await runtime.retire_rules(by="ann")


# ------------------------------------------------------------------ pages, API and commands


def by_header(request: Any) -> User:
    return User(request.headers["x-user"], frozenset(request.headers["x-may"].split()))


def headers(name: str, may: str = "read decide act admin") -> dict[str, str]:
    return {"x-user": name, "x-may": may}


async def test_the_api_asks_votes_and_does_it() -> None:
    """V45."""
    async with protecting() as runtime:
        await there(runtime)
        async with client_of(ui(runtime, auth=by_header)) as client:
            body, ann = {"confirm": "a"}, headers("ann")
            asked = await client.request("DELETE", "/api/agents/a", json=body, headers=ann)
            assert (asked.status_code, asked.json()["error"]) == (409, "ApprovalNeeded")
            id = asked.json()["request_id"]
            own = await client.post(
                "/api/administration/vote", json={"request_id": id, "type": "approve"}, headers=ann
            )
            assert own.status_code == 403
            listed = await client.get("/api/administration", headers=headers("eve", "read"))
            assert [each["about"] for each in listed.json()["requests"]] == ["delete agent 'a'"]
            page = (await client.get("/administration", headers=headers("bob"))).text
            assert "Must agree: 1 of ops, never the requester; 1 more of ops is missing" in page
            form = {"id": id, "type": "approve"}
            voted = await client.post("/administration/do/vote", data=form, headers=headers("bob"))
            assert voted.headers["location"].endswith("?said=vote")
            page = (await client.get("/administration", headers=ann)).text
            assert "ann may do it now" in page
            done = await client.request("DELETE", "/api/agents/a", json=body, headers=ann)
            assert done.json() == {"id": "a", "deleted": True}
            evil = {**ann, "sec-fetch-site": "cross-site"}
            exported = await client.get("/api/agents/b/export", headers=evil)
            assert (exported.status_code, exported.json()["error"]) == (403, "CrossSite")
            assert await runtime.administration() == []
            exported = await client.get("/api/agents/b/export", headers=ann)
            assert exported.json()["error"] == "ApprovalNeeded"
            stale = {"request_id": id, "type": "approve"}
            late = await client.post("/api/administration/vote", json=stale, headers=headers("cy"))
            assert (late.status_code, late.json()["error"]) == (409, "Stale")


async def test_one_delegates_ones_own_roles_by_the_api_and_others_by_their_rights() -> None:
    """V44, V45."""
    async with protecting(TWO) as runtime, client_of(ui(runtime, auth=by_header)) as client:
        given = {
            "to": "eve",
            "roles": ["ops"],
            "until": "2999-01-01T00:00:00+00:00",
            "reason": "away",
        }

        async def posted(path: str, body: Any, name: str, may: str) -> Any:
            return await client.post(f"/api/{path}", json=body, headers=headers(name, may))

        made = await posted("delegations", given, "bob", "read decide")
        assert made.json()["giver"]["person"] == "bob"
        assert (await posted("delegations", given, "cy", "read act")).status_code == 403
        of_cy = {**given, "from_": "cy"}
        for may in ("read decide admin", "read decide impersonate"):
            assert (await posted("delegations", of_cy, "ann", may)).status_code == 403
        asked = await posted("delegations", of_cy, "ann", "read decide admin impersonate")
        assert asked.json()["error"] == "ApprovalNeeded"
        page = (await client.get("/administration", headers=headers("bob"))).text
        assert "eve for bob" in page
        assert "let 'eve' vote for 'cy' as ops" in page.replace("&#39;", "'")
        id = {"id": made.json()["id"]}
        assert (await posted("delegations/end", id, "cy", "read decide")).status_code == 403
        assert (await posted("delegations/end", id, "eve", "read decide")).json()["ended"]
        gone = await posted("delegations/end", id, "bob", "read decide")
        assert gone.status_code == 404
        form = {"to": "eve", "roles": "ops", "until": "2999-01-01T10:00", "reason": "away"}
        done = await client.post("/administration/do/delegate", data=form, headers=headers("cy"))
        assert done.headers["location"].endswith("?said=delegate")
        [left] = (await client.get("/api/delegations", headers=headers("bob"))).json()[
            "delegations"
        ]
        assert left["giver"]["person"] == "cy"


async def test_without_people_the_page_is_empty() -> None:
    async with Runtime([desk()]) as runtime, client_of(ui(runtime, auth=by_header)) as client:
        page = await client.get("/administration", headers=headers("ann"))
        assert (page.status_code, "Nobody votes for somebody else" in page.text) == (200, True)
        body = {"request_id": "q1", "type": "approve"}
        told = await client.post("/api/administration/vote", json=body, headers=headers("ann"))
        assert "no people are known" in told.json()["detail"]


CONTROLS: list[tuple[str, Any]] = [
    (
        "inside of the process nothing is protected",
        partial(test_each_of_them_is_protected_inside_of_the_process_too, "delete"),
    ),
    (
        "inside of the process nothing is protected",
        partial(test_each_of_them_is_protected_inside_of_the_process_too, "compact"),
    ),
    (
        "votes on administration are for any arguments",
        test_the_votes_are_for_one_person_one_verb_and_the_same_arguments,
    ),
    (
        "votes on administration are for anybody",
        test_the_votes_are_for_one_person_one_verb_and_the_same_arguments,
    ),
    ("what was agreed to is done again", test_what_was_agreed_to_is_done_once),
    (
        "who has lost their role had agreed to administration",
        test_who_has_lost_their_role_before_it_is_done_has_not_agreed,
    ),
]


@pytest.mark.parametrize(("broken", "attack"), CONTROLS)
async def test_a_build_with_one_rule_left_out_is_found_out(broken: str, attack: Any) -> None:
    """V45: else the attacks would prove nothing."""
    assert await is_found_out(broken, attack)
