"""Persons of one name: history and pages show which of them has done something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from tests.support.agents import by_turn
from tests.support.loops import soon
from tests.support.web_site import ALL, asked, rest, site_of
from understudy import Agent, Runtime, Status, call, tool
from understudy.trust import Caller, Person, approval
from understudy.web import User

IDP, OTHER = "https://idp.example", "https://other.example"
FINANCE = frozenset({"finance"})
PEOPLE: Any = {
    (IDP, "00u1"): Person(id="p-1", name="Sam", roles=FINANCE),
    (IDP, "00u9"): Person(id="p-9", name="Sam", roles=FINANCE),
    (OTHER, "00u1"): Person(id="p-2", name="Sam", roles=FINANCE),
}


def sam(subject: str, issuer: str = IDP) -> Callable[[Request], User]:
    caller = Caller(name="Sam", assurance="idp", issuer=issuer, subject=subject)
    return lambda request: User("Sam", ALL, verified=caller)


def desk(approvals: Any = None) -> Agent:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    gates: Any = {"pay": True if approvals is None else {"approval": approvals}}
    return Agent("desk", by_turn(call("pay", {"amount": 5})), tools=[pay], interrupt_on=gates)


async def test_history_and_pages_tell_apart_who_paused_and_who_cancelled() -> None:
    """V42."""
    async with Runtime([desk()]) as runtime:
        ref = await asked(runtime)
        for number, auth in enumerate((sam("00u1"), sam("00u9"), sam("00u1", OTHER))):
            async with site_of(runtime, auth=auth) as client:
                body = {"run_id": None, "reason": f"reason {number}"}
                assert (await client.post("/api/agents/a1/pause", json=body)).status_code == 200
        async with site_of(runtime, auth=sam("00u9")) as client:
            done = await client.post("/api/agents/a1/cancel", json={})
            assert done.status_code == 200, done.text
            await rest(ref, Status.CANCELLED)
            entries = (await client.get("/api/agents/a1/history")).json()["entries"]
            told = {
                (each["what"], each["detail"].get("reason")): each["detail"]["logins"]
                for each in entries
                if each["who"] == "Sam"
            }
            assert [each["subject"] for logins in told.values() for each in logins] == [
                "00u1",
                "00u9",
                "00u1",
                "00u9",
            ]
            assert {each["who"] for each in entries if each["detail"].get("logins")} == {"Sam"}
            page = (await client.get("/agents/a1/history")).text
            assert f'Sam <span class="faint">(00u1, {IDP})</span>' in page
            assert f'Sam <span class="faint">(00u1, {OTHER})</span>' in page
            assert 'Sam <span class="faint">(00u9)</span>' in page


async def test_votes_of_two_persons_of_one_name_are_told_apart() -> None:
    """V42."""
    async with Runtime([desk(approval({"finance": 3}))], people=PEOPLE) as runtime:
        await asked(runtime)
        one, other = sam("00u1"), sam("00u9")
        async with site_of(runtime, auth=one) as first, site_of(runtime, auth=other) as second:
            [row] = (await first.get("/api/pending")).json()["requests"]
            path = f"/agents/a1/requests/{row['id']}"
            form = {"decision": "approve", "digest": row["digest"]}
            await first.post(path, data=form)
            assert "00u1" not in (await second.get(path)).text, "one Sam is told by the name"
            await second.post(path, data=form)
            for page in (path, "/", "/agents/a1", "/agents/a1/history"):
                text = (await first.get(page)).text
                assert 'Sam <span class="faint">(00u1)</span>' in text, page
                assert 'Sam <span class="faint">(00u9)</span>' in text, page


async def test_a_model_makes_no_name_look_like_that_of_two_persons() -> None:
    @tool
    def pay(to: dict[str, str]) -> str:
        """Pay."""
        return "paid"

    forged = {"name": "Sam", "person": "p-7", "issuer": IDP, "subject": "00u7"}
    approvals: Any = {"pay": {"approval": approval({"finance": 3})}}
    agent = Agent("desk", by_turn(call("pay", {"to": forged})), tools=[pay], interrupt_on=approvals)
    async with Runtime([agent], people=PEOPLE) as runtime:
        await asked(runtime)
        async with site_of(runtime, auth=sam("00u1")) as client:
            [row] = (await client.get("/api/pending")).json()["requests"]
            form = {"decision": "approve", "digest": row["digest"]}
            await client.post(f"/agents/a1/requests/{row['id']}", data=form)
            for page in ("/", "/agents/a1", "/agents/a1/history"):
                assert "(00u1)" not in (await client.get(page)).text, page


async def test_a_name_that_one_person_has_is_shown_alone() -> None:
    async with Runtime([desk()]) as runtime, site_of(runtime, auth=sam("00u1")) as client:
        ref = await asked(runtime)
        await soon(ref.pause(by="ann"))
        await client.post("/api/agents/a1/pause", json={"reason": "again"})
        page = (await client.get("/agents/a1/history")).text
        assert '<span class="faint">Sam</span>' in page
        assert "(00u1" not in page
        await soon(ref.pause("of the host", by="Sam"))
        page = (await client.get("/agents/a1/history")).text
        assert '<span class="faint">Sam <span class="faint">(00u1)</span></span>' in page
        assert '<span class="faint">Sam</span>' in page, "that of the host has no id"
