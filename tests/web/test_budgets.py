"""The page of budgets: what is used of them, and who adds something to them."""

from __future__ import annotations

from typing import Any

from tests.support.agents import Held, by_turn, completed, interrupted
from tests.support.loops import soon
from tests.support.web_site import ALL, HOSTILE, logged_in, only_request, site_of
from understudy import Agent, Runtime, approve, call, tool
from understudy.trust import Budget, Rules, allow, calls, day, last, sum_of

RAISER = logged_in("ann")
READER = logged_in("eve", ALL - {"budget"})
FORM = {"name": "refunds", "key": "", "amount": "20", "why": "a recall", "confirm": "yes"}


def desk(*amounts: float, held: Held | None = None, name: str = "desk") -> Agent:
    """An agent that refunds these amounts, a turn each; the last one is held if that is given."""

    @tool
    async def refund(amount: float) -> str:
        """Pay money back."""
        if held is not None and amount == amounts[-1]:
            await held.wait()
        return "paid"

    turns = [call("refund", {"amount": amount}) for amount in amounts]
    return Agent(name, by_turn(*turns, "Done."), tools=[refund])


def refunds(limit: float = 200, **options: Any) -> Budget:
    measure = sum_of("refund", "amount", limit, currency="EUR")
    return Budget("refunds", measure, **{"window": day("Europe/Berlin"), **options})


async def test_the_page_says_what_is_used_reserved_and_left() -> None:
    held = Held()
    async with Runtime([desk(100, 30, held=held)], budgets=[refunds()]) as runtime:
        running = runtime.spawn("desk", id="a").run("go")
        await soon(held.entered.wait())
        async with site_of(runtime, auth=READER) as client:
            page = (await client.get("/budgets")).text
            for text in (
                "<strong>70 EUR</strong> left of 200 EUR",
                "Counts amount of refund: 200 EUR a day in Europe/Berlin.",
                "100 EUR spent",
                "30 EUR reserved</li>",
                'aria-label="130 EUR of 200 EUR used (30 EUR reserved)"',
                'fill="url(#striped)" x="50.0%" width="15.0%"',
                "begins anew <time",
                "At the limit a run stops.",
            ):
                assert text in page, text
            assert 'url(#dotted)" width="14' not in page
            assert "Raise it" not in page, "that is for those with the right `budget`"
            assert '<a href="/budgets">Budgets</a>' in (await client.get("/")).text
            about = (await client.get("/agents/a")).text
            assert "30 EUR of refunds reserved" in about
            held.release.set()
            completed(await soon(running))
            about = (await client.get("/agents/a")).text
            assert "reserved" not in about


async def test_who_may_raises_a_budget_after_a_confirmation_and_the_page_says_why() -> None:
    """V66."""
    async with (
        Runtime([desk(100)], budgets=[refunds()]) as runtime,
        site_of(runtime, auth=RAISER) as client,
    ):
        assert "Raise it" in (await client.get("/budgets")).text
        sent = await client.post("/budgets/raise", data={**FORM, "confirm": ""})
        assert (sent.status_code, "Confirm that more may be spent" in sent.text) == (400, True)
        for field, value, problem in (
            ("why", " ", "Say why"),
            ("amount", "much", "its `amount` is no number"),
            ("amount", "-5", "is negative"),
            ("name", "others", "There is no budget &#39;others&#39;"),
            ("key", "agent=a", "it takes no key"),
        ):
            sent = await client.post("/budgets/raise", data={**FORM, field: value})
            assert sent.status_code == 400, (field, sent.text)
            assert problem in sent.text
        [use] = await soon(runtime.budgets())
        assert use.limit == 200
        sent = await client.post("/budgets/raise", data=FORM)
        assert sent.headers["location"].endswith("/budgets?said=raise_budget")
        page = (await client.get("/budgets?said=raise_budget")).text
        assert "The budget is raised." in page
        assert "<strong>220 EUR</strong> left of 220 EUR" in page
        assert "ann added 20 EUR" in page
        assert "a recall" in page


async def test_nobody_else_raises_a_budget() -> None:
    """V66: not without the right, not from another site, and not where the pages only show."""
    body = {name: FORM[name] for name in ("name", "amount", "why")}
    async with Runtime([desk(100)], budgets=[refunds()]) as runtime:
        for options in ({"auth": READER}, {"auth": RAISER, "read_only": True}):
            async with site_of(runtime, **options) as client:
                assert (await client.post("/budgets/raise", data=FORM)).status_code == 403
                refused = await client.post("/api/budgets/raise", json=body)
                assert (refused.status_code, refused.json()["error"]) == (403, "NotAllowed")
        async with site_of(runtime, auth=RAISER) as client:
            headers = {"sec-fetch-site": "cross-site", "origin": "https://evil.example"}
            for path, sent in (
                ("/budgets/raise", {"data": FORM}),
                ("/api/budgets/raise", {"json": body}),
            ):
                refused = await client.post(path, headers=headers, **sent)  # type: ignore[arg-type]
                assert refused.status_code == 403, path
        [use] = await soon(runtime.budgets())
        assert use.raised == ()


async def test_a_budget_that_is_counted_apart_is_raised_for_one_key() -> None:
    """V66."""
    agents, budgets = [desk(100, 90)], [refunds(per="agent")]
    async with (
        Runtime(agents, budgets=budgets) as runtime,
        site_of(runtime, auth=RAISER) as client,
    ):
        assert "Nothing is spent yet" in (await client.get("/budgets")).text
        await soon(runtime.spawn("desk", id="a").run("go"))
        for key in ("", "a", "tool=a", ", agent=a"):
            sent = await client.post("/budgets/raise", data={**FORM, "key": key})
            assert (sent.status_code, "is counted for each agent" in sent.text) == (400, True), key
        sent = await client.post("/budgets/raise", data={**FORM, "key": "agent=a"})
        assert sent.status_code == 303
        found = (await client.get("/api/budgets")).json()
        [row] = found["budgets"]
        assert (row["key"], row["limit"], row["left"], found["left_off"]) == (
            "agent=a",
            "220",
            "30",
            0,
        )
        assert row["raised"][0]["text"] == "20 EUR"


async def test_of_those_counted_apart_the_ones_that_used_most_are_shown_first() -> None:
    agents = [desk(100), desk(150, name="other")]
    async with (
        Runtime(agents, budgets=[refunds(per="agent")]) as runtime,
        site_of(runtime) as client,
    ):
        for name in ("desk", "other"):
            await soon(runtime.spawn(name, id=f"{name}-1").run("go"))
        found = (await client.get("/api/budgets?limit=1")).json()
        assert [row["key"] for row in found["budgets"]] == ["agent=other-1"]
        assert found["left_off"] == 1


async def test_a_budget_that_ends_soon_is_said_on_each_page_until_it_is_raised() -> None:
    """V66."""
    async with (
        Runtime([desk(170)], budgets=[refunds(window=last(hours=24))]) as runtime,
        site_of(runtime, auth=RAISER) as client,
    ):
        assert "1 low" not in (await client.get("/agents")).text
        await soon(runtime.spawn("desk").run("go"))
        assert '<span class="tag warn">1 low</span>' in (await client.get("/agents")).text
        page = (await client.get("/budgets")).text
        assert '<span class="tag warn">ends soon</span>' in page
        assert "the last hours count" in page
        await client.post("/budgets/raise", data={**FORM, "amount": "100"})
        page = (await client.get("/budgets")).text
        assert "ends soon" not in page
        assert "1 low" not in page


async def test_the_bar_of_a_budget_that_was_passed_shows_where_its_limit_is() -> None:
    budget = refunds(at_limit="ask")
    async with Runtime([desk(150, 250)], budgets=[budget]) as runtime, site_of(runtime) as client:
        ref = runtime.spawn("desk")
        interrupted(await soon(ref.run("go")))
        completed(await soon(ref.resume(approve())))
        page = (await client.get("/budgets")).text
        assert '<span class="tag bad">used up</span>' in page
        assert '<rect class="limit" x="50.0%"' in page
        assert "<strong>0 EUR</strong> left of 200 EUR" in page
        assert "At the limit a person is asked." in page


async def test_a_request_of_a_budget_names_it_in_the_inbox_and_on_its_page() -> None:
    """V61."""
    budget = refunds(at_limit="ask")
    async with Runtime([desk(250)], budgets=[budget]) as runtime, site_of(runtime) as client:
        interrupted(await soon(runtime.spawn("desk", id="a").run("go")))
        asked = await only_request(client)
        assert (asked["budget"], asked["rule"]) == ("refunds", "")
        assert "no room in the budget “refunds”" in (await client.get("/")).text
        page = (await client.get(f"/agents/a/requests/{asked['id']}")).text
        assert "<strong>No room in the budget</strong> “refunds”" in page
        assert "The budget &#39;refunds&#39; (200 EUR a day in Europe/Berlin) has 200 EUR" in page


async def test_a_run_that_a_budget_has_stopped_says_so_on_the_page_of_its_agent() -> None:
    async with Runtime([desk(250)], budgets=[refunds()]) as runtime, site_of(runtime) as client:
        await soon(runtime.spawn("desk", id="a").run("go"))
        page = (await client.get("/agents/a")).text
        assert "The budget &#39;refunds&#39; (200 EUR a day in Europe/Berlin) has 200 EUR" in page


async def test_the_budget_of_a_rule_is_shown_with_what_it_is_for() -> None:
    rules = Rules(allow("refund", within=Budget("small", calls("refund", 3))), default="ask")
    async with Runtime([desk(1)], rules=rules) as runtime, site_of(runtime) as client:
        completed(await soon(runtime.spawn("desk").run("go")))
        [row] = (await client.get("/api/budgets")).json()["budgets"]
        assert (row["at_limit"], row["used"], row["unit"]) == (None, "1", "calls")
        page = (await client.get("/budgets")).text
        assert "At the limit the rule lets no call run by itself" in page
        assert "counts for ever" in page


async def test_texts_of_others_are_shown_as_text() -> None:
    budget = refunds(per="agent")
    async with (
        Runtime([desk(250)], budgets=[budget]) as runtime,
        site_of(runtime, auth=RAISER) as client,
    ):
        await soon(runtime.raise_budget("refunds", 5, key="agent=a", why=HOSTILE, by="eve"))
        page = (await client.get("/budgets")).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page


async def test_without_budgets_no_page_leads_there() -> None:
    async with Runtime([desk(1)]) as runtime, site_of(runtime) as client:
        assert "/budgets" not in (await client.get("/")).text
        assert "This runtime has no budgets." in (await client.get("/budgets")).text
        assert (await client.get("/api/budgets")).json() == {"budgets": [], "left_off": 0}
        body = {"name": "x", "amount": 5, "why": "more"}
        refused = await client.post("/api/budgets/raise", json=body)
        assert (refused.status_code, refused.json()["error"]) == (400, "UsageError")
        assert "this runtime has no budgets" in refused.json()["detail"]
