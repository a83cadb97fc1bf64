"""Grants on the pages and in the API: what is offered, chosen, shown and revoked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.agents import by_turn
from tests.support.loops import soon
from tests.support.web_site import asked, logged_in, only_request, rest, site_of
from understudy import Agent, Runtime, approve, call, grant, tool
from understudy.actors import Status
from understudy.trust import approval, offer

DAY = offer(for_at_most=24 * 3_600, uses=5, free=["amount"], scope="agent")
PEOPLE = {"ann": ["finance"], "bob": ["finance"]}


def desk(gate: Any) -> tuple[Agent, list[tuple[str, int]]]:
    """An agent that pays twice in a run, and once in a later one; and what it has paid."""
    paid: list[tuple[str, int]] = []

    @tool
    async def pay(customer: str, amount: int) -> str:
        """Pay."""
        paid.append((customer, amount))
        return "paid"

    turns = [call("pay", {"customer": "ann", "amount": n}) for n in (5, 6)]
    model = by_turn(*turns, "over", *turns)
    return Agent("desk", model, tools=[pay], interrupt_on={"pay": gate}), paid


async def test_the_form_offers_what_the_request_offers_and_takes_what_is_chosen() -> None:
    """V20, V21: also without a script, and no more than is offered."""
    agent, paid = desk({"grant": DAY})
    async with Runtime([agent]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            assert row["offer"] == DAY.to_dict()
            page = f"/agents/a1/requests/{row['id']}"
            shown = (await client.get(page)).text
            assert '<option value="3600">this and later calls, for 1 hour</option>' in shown
            assert 'value="604800"' not in shown, "a week is more than a day"
            assert "until revoked" not in shown
            assert '<input type="hidden" name="match" value="customer">' in shown
            assert 'name="match" value="amount" checked' in shown
            form = {
                "decision": "approve",
                "digest": row["digest"],
                "grant": "3600",
                "named": "yes",
                "match": "customer",
                "uses": "6",
                "scope": "agent",
            }
            beyond = await client.post(page, data=form)
            assert (beyond.status_code, "give at most uses=5" in beyond.text) == (422, True)
            assert 'value="3600" selected' in beyond.text
            assert paid == []
            assert (await client.post(page, data={**form, "uses": "2"})).status_code == 303
            await rest(ref)
            assert paid == [("ann", 5), ("ann", 6)]
            (granted,) = (await client.get("/api/agents/a1")).json()["grants"]
            assert (granted["left"], granted["arguments"], granted["by"]) == (
                1,
                {"customer": "ann"},
                "ann",
            )
            about = (await client.get("/agents/a1")).text
            assert "1 of 2 uses left" in about
            assert "a grant</a> of ann" in about
            rows = (await client.get("/api/agents/a1/decisions")).json()["decisions"]
            assert [each["decision"].get("by_grant") for each in rows] == [row["id"], None]
            assert "by a grant" in (await client.get("/agents/a1/decisions")).text
            by_grant = f"/agents/a1/requests/{rows[0]['request_id']}"
            assert "ann approved it by a grant" in (await client.get(by_grant)).text
            sent = await client.post("/agents/a1/do/revoke", data={"grant_id": granted["id"]})
            assert sent.status_code == 303
            await soon(ref.run("again"))
            await rest(ref, Status.INTERRUPTED)
            entries = (await client.get("/api/agents/a1/history")).json()["entries"]
            (revoked,) = [each for each in entries if each["what"] == "revoked"]
            assert (revoked["who"], revoked["detail"]) == ("ann", {"grant_id": row["id"]})


@pytest.mark.parametrize("chosen", [{}, {"uses": "2", "match": "customer", "named": "yes"}])
async def test_a_form_that_names_no_time_decides_for_this_call_alone(
    chosen: Mapping[str, str],
) -> None:
    agent, paid = desk(True)
    async with Runtime([agent]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            page = f"/agents/a1/requests/{row['id']}"
            assert "until revoked" in (await client.get(page)).text
            form = {"decision": "approve", "digest": row["digest"], **chosen}
            assert (await client.post(page, data=form)).status_code == 303
            await rest(ref, Status.INTERRUPTED)
            assert (await client.get("/api/agents/a1")).json()["grants"] == []
    assert paid == [("ann", 5)]


@pytest.mark.parametrize(
    ("chosen", "status"),
    [({"grant": "never"}, 400), ({"grant": "nan"}, 422), ({"grant": "60", "uses": "two"}, 422)],
)
async def test_a_form_that_makes_no_sense_is_refused(chosen: Any, status: int) -> None:
    agent, paid = desk(True)
    async with Runtime([agent]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            form = {"decision": "approve", "digest": row["digest"], **chosen}
            answer = await client.post(f"/agents/a1/requests/{row['id']}", data=form)
            assert answer.status_code == status
    assert paid == []


async def test_the_api_takes_terms_and_refuses_what_is_none() -> None:
    """V20."""
    agent, paid = desk({"grant": DAY})
    async with Runtime([agent]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)

            async def decide(**terms: Any) -> int:
                body = {
                    "decisions": {row["id"]: {"type": "approve", "grant": terms}},
                    "expect": {row["id"]: row["digest"]},
                }
                return (await client.post("/api/agents/a1/decisions", json=body)).status_code

            assert await decide(hours=1) == 400
            assert await decide(seconds=60) == 422
            assert await decide(seconds=60, uses=5, match=["amount"]) == 422
            assert paid == []
            assert await decide(seconds=60, uses=5, match=["customer"]) == 200
            await rest(ref)
    assert len(paid) == 2


async def test_the_page_says_what_others_have_agreed_to() -> None:
    """V20."""
    agent, paid = desk({"approval": approval({"finance": 2}), "grant": DAY})
    async with Runtime([agent], people=PEOPLE) as runtime:
        ref = await asked(runtime)
        terms = grant(until=3_600, uses=2, match=["customer"])
        await soon(ref.resume(approve(grant=terms, by="ann")))
        async with site_of(runtime, auth=logged_in("bob")) as client:
            row = await only_request(client)
            shown = (await client.get(f"/agents/a1/requests/{row['id']}")).text
            assert "ann also agrees to later calls for 1 hour, 2 uses" in shown
            assert "Also for later calls for 1 hour, 2 uses, with the same customer" in shown
            body = {
                "decisions": {row["id"]: {"type": "approve", "grant": row["votes"][0]["grant"]}},
                "expect": {row["id"]: row["digest"]},
            }
            assert (await client.post("/api/agents/a1/decisions", json=body)).status_code == 200
            await rest(ref)
    assert len(paid) == 2
