"""The expense desk: its rules, its payments, and the pages of its people."""

from __future__ import annotations

from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from examples import expense_desk
from examples.expense_desk import RULES, TRIPS, desk_runtime, hand_in, make_app
from tests.support.agents import completed, interrupted
from understudy import DecisionError, approve, grant
from understudy.errors import VoteRefused
from understudy.testing import assert_asked, assert_denied, assert_unasked


def test_the_rules_say_what_the_desk_promises() -> None:
    trip = {"trip": "1", "employee": "cy"}
    assert_denied(RULES, "pay", {**trip, "amount": 5000.01}, by="never over 5,000")
    assert_asked(RULES, "pay", {**trip, "amount": 5000}, by="over 500: two of finance")
    assert_asked(RULES, "pay", {**trip, "amount": 500}, by="up to 500: one of finance")
    assert_asked(RULES, "pay", {**trip, "amount": 25.01}, by="up to 500: one of finance")
    assert_unasked(RULES, "pay", {**trip, "amount": 25})


async def test_two_of_finance_agree_to_a_large_payment_and_never_who_asks() -> None:
    async with desk_runtime() as runtime:
        await hand_in(runtime)
        waiting = {each.agent_id: each for each in await runtime.pending()}
        assert sorted(waiting) == ["trip-17", "trip-18", "trip-19"]  # 9,000 is denied, 18 paid
        large = runtime.get("trip-17")
        for name in ("cy", "dee"):
            with pytest.raises(VoteRefused):
                await large.resume(approve(by=name))
        await large.resume(approve(by="ann"))
        missing = {each.agent_id: each.missing for each in await runtime.pending()}
        assert missing["trip-17"] == "1 more of finance"
        paid = completed(await large.resume(approve(by="bob")))
        assert paid.text == "700.00 euros for trip 17 are on their way to cy"


async def test_one_of_finance_delegates_to_another_person_and_both_count_as_one() -> None:
    async with desk_runtime() as runtime:
        await hand_in(runtime)
        large = runtime.get("trip-17")
        tomorrow = await runtime.now() + timedelta(days=1)
        await runtime.delegate(
            from_="bob", to="dee", roles=["finance"], until=tomorrow, reason="on leave"
        )
        await large.resume(approve(by="dee"))
        with pytest.raises(VoteRefused, match="both count as one"):
            await large.resume(approve(by="bob"))
        completed(await large.resume(approve(by="ann")))
        [decided] = await large.decisions()
        assert decided.decision.by is not None
        assert decided.decision.by.startswith("Dee Arslan for Bob Lindqvist")


async def test_small_payments_may_be_approved_for_an_hour() -> None:
    async with desk_runtime() as runtime:
        await hand_in(runtime)
        small = runtime.get("trip-19")
        hour = grant(until=timedelta(hours=1), uses=10, match=["employee"], scope="agent")
        completed(await small.resume(approve(grant=hour, by="ann")))
        paid = completed(await small.run("Trip 21 was 30 euros.", by="cy"))
        assert paid.text == "30.00 euros for trip 21 are on their way to cy"
        interrupted(await small.run("Trip 22 was 600 euros.", by="cy"))  # two of finance, always
        with pytest.raises(DecisionError, match="1 hour"):
            await runtime.get("trip-18").resume(
                approve(grant=grant(until=timedelta(days=1), uses=10), by="ann")
            )


async def test_small_payments_are_made_without_asking_until_the_budget_of_the_day_ends() -> None:
    async with desk_runtime() as runtime:
        small = runtime.spawn("expenses", "taxis")
        for trip in range(8):
            completed(await small.run(f"Trip {trip} was 25 euros.", by="cy"))
        asked = interrupted(await small.run("Trip 9 was 25 euros.", by="cy"))
        assert [request.rule for request in asked.requests] == ["whatever no rule names (ask)"]
        model, payments = await runtime.budgets()
        assert payments.text == "200 EUR of 200 EUR used"
        assert (model.budget.name, model.is_low) == ("model", False)
        assert 0 < model.used < model.limit
        await runtime.raise_budget("small payments", 50, why="a fair", by="ann")
        completed(await small.resume(approve(by="bob")))
        completed(await small.run("Trip 10 was 25 euros.", by="cy"))


def test_each_person_has_pages_of_their_own() -> None:
    with TestClient(
        make_app(), base_url="http://127.0.0.1:8422", client=("127.0.0.1", 1)
    ) as client:
        start = client.get("/").text
        for name, person in expense_desk.PEOPLE.items():
            assert f'href="/{name}/"' in start
            page = client.get(f"/{name}/")
            assert page.status_code == 200
            assert f"Expenses · {person.shown_name}" in page.text
            assert all(trip in page.text for trip in list(TRIPS)[:3])
            budgets = client.get(f"/{name}/budgets").text
            assert "<strong>182 EUR</strong> left of 200 EUR" in budgets
            assert ("Raise it" in budgets) is (name == "ann")
            assert ("Freeze something" in client.get(f"/{name}/freezes").text) is (name == "ann")
        form = {"what": "tool", "name": "pay", "why": "an attack", "confirm": "yes"}
        same_site = {"sec-fetch-site": "same-origin"}
        assert client.post("/bob/freezes/freeze", data=form, headers=same_site).status_code == 403
        frozen = client.post("/ann/freezes/freeze", data=form, headers=same_site)
        assert "It is frozen, at each living host." in frozen.text
        assert "By ann: an attack" in client.get("/cy/freezes").text
