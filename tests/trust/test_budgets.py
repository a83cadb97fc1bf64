"""Budgets: what calls may spend is reserved before they start, and settled by what they spent."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, NativeToolCallPart, TextPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.usage import RequestUsage
from tenacity import AsyncRetrying, stop_after_attempt

from tests.support.agents import (
    Held,
    by_turn,
    completed,
    interrupted,
    results,
    until_status,
)
from tests.support.freezes import runs
from tests.support.loops import soon, until
from tests.support.places import Place
from understudy import (
    Agent,
    Failed,
    Price,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    ToolContext,
    UsageError,
    approve,
    call,
    edit,
    reject,
    tool,
)
from understudy.actors import BudgetUse
from understudy.journal import MemoryStore
from understudy.middleware import Middleware, SubAgent
from understudy.stopping import StopReason
from understudy.tools import OutcomeUnknown
from understudy.trust import (
    Budget,
    Rules,
    allow,
    approval,
    ask,
    calls,
    day,
    last,
    month,
    sum_of,
    tokens,
    usd,
    week,
)

PRICES = {"m": Price(input=1, output=1)}


def refunds(*turns: Any, **options: Any) -> tuple[Agent, list[Any]]:
    """An agent that refunds these amounts, a turn each; a list is a turn of several calls."""
    paid: list[Any] = []

    @tool
    async def refund(amount: float, currency: str = "EUR") -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    def calls_of(turn: Any) -> Any:
        each = turn if isinstance(turn, list) else [turn]
        made = [call("refund", a if isinstance(a, dict) else {"amount": a}) for a in each]
        return made if isinstance(turn, list) else made[0]

    model = by_turn(*map(calls_of, turns))
    return Agent("desk", model, tools=[refund], **options), paid


def euros(limit: Any, **options: Any) -> Budget:
    return Budget("refunds", sum_of("refund", "amount", limit, currency="EUR"), **options)


def stopped(outcome: Any) -> Stopped:
    assert isinstance(outcome, Stopped), outcome
    return outcome


async def used(runtime: Runtime, name: str = "refunds") -> BudgetUse:
    (found,) = [each for each in await runtime.budgets() if each.budget.name == name]
    return found


def amounts(use: BudgetUse) -> list[Any]:
    """What is used of a budget, and what of it is reserved."""
    return [use.used, use.reserved]


async def outcome_of(runtime: Runtime, id: str) -> Any:
    return await soon(runtime.get(id).outcome())


# ------------------------------------------------------------------------------ at the limit


async def test_a_run_stops_before_the_call_for_which_a_budget_has_no_room(place: Place) -> None:
    """V60."""
    agent, paid = refunds(100, 80, 50)
    async with Runtime([agent], store=place.store(), budgets=[euros(200)]) as runtime:
        outcome = stopped(await soon(runtime.spawn("desk", id="a").run("go")))
        assert paid == [100, 80]
        signal = outcome.signals.first
        assert signal is not None
        assert signal.reason is StopReason.BUDGET
        assert signal.message == (
            "The budget 'refunds' (200 EUR) has 20 EUR left, and 50 EUR would be needed"
        )
        assert "Not run: the budget 'refunds'" in str(results(outcome.state)[-1].content)
        found = await used(runtime)
        assert [*amounts(found), found.left] == [180, 0, 20]
        assert found.text == "180 EUR of 200 EUR used"
        assert found.is_low


async def test_of_the_calls_of_one_reply_no_more_start_than_there_is_room_for() -> None:
    """V60: in their order; those behind the first without room do not start."""
    agent, paid = refunds([60, 60, 60, 60, 10])
    async with Runtime([agent], budgets=[euros(200)]) as runtime:
        stopped(await soon(runtime.spawn("desk").run("go")))
        assert sorted(paid) == [60, 60, 60]
        assert (await used(runtime)).used == 180


async def test_runs_at_the_same_time_never_spend_more_than_there_is() -> None:
    """V60."""
    agent, paid = refunds(30)
    async with Runtime([agent], budgets=[euros(200)]) as runtime:
        refs = [runtime.spawn("desk") for _ in range(12)]
        await asyncio.gather(*[ref.run("go") for ref in refs])
        assert len(paid) == 6
        assert (await used(runtime)).used == 180


async def test_a_person_may_let_a_call_spend_beyond_a_budget(place: Place) -> None:
    """V61: it counts all the same."""
    agent, paid = refunds(150, 100, 10)
    budget = euros(200, at_limit="ask")
    async with Runtime([agent], store=place.store(), budgets=[budget]) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("go")))
        (request,) = asked.requests
        assert request.budget == "refunds"
        assert request.display == (
            "The budget 'refunds' (200 EUR) has 50 EUR left, and 100 EUR would be needed."
        )
        assert paid == [150]
        beyond = interrupted(await soon(ref.resume(approve())))
        assert paid == [150, 100]
        assert (await used(runtime)).used == 250
        assert "has 0 EUR left" in str(beyond.requests[0].display)
        completed(await soon(ref.resume(reject())))
        assert paid == [150, 100]
        assert (await used(runtime)).used == 250


async def test_a_person_may_edit_a_call_so_that_there_is_room(place: Place) -> None:
    """V61."""
    agent, paid = refunds(150, 100)
    budget = euros(200, at_limit="ask")
    async with Runtime([agent], store=place.store(), budgets=[budget]) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await soon(ref.run("go")))
        completed(await soon(ref.resume(edit({"amount": 20}))))
        assert paid == [150, 20]
        assert (await used(runtime)).used == 170


async def test_several_persons_may_have_to_agree_beyond_a_budget() -> None:
    """V61."""
    agent, paid = refunds(300)
    budget = euros(200, at_limit="ask", approval=approval({"finance": 2}))
    people = {"ann": ["finance"], "bob": ["finance"]}
    async with Runtime([agent], budgets=[budget], people=people) as runtime:
        ref = runtime.spawn("desk")
        interrupted(await soon(ref.run("go")))
        interrupted(await soon(ref.resume(approve(by="ann"))))
        assert paid == []
        completed(await soon(ref.resume(approve(by="bob"))))
        assert paid == [300]


# ------------------------------------------------------------------------------ what counts


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"amount": -5}, "its `amount` is negative: -5"),
        ({"amount": 10**12}, "its `amount` is a billion or more"),
        ({"amount": 5, "currency": "USD"}, "its `currency` is 'USD', and the budget is in EUR"),
    ],
    ids=str,
)
async def test_a_call_does_not_run_whose_amount_a_budget_cannot_count(
    arguments: dict[str, Any], why: str
) -> None:
    """V62: the run continues."""
    agent, paid = refunds(arguments, 7)
    budget = Budget(
        "refunds", sum_of("refund", "amount", 200, currency="EUR", currency_in="currency")
    )
    async with Runtime([agent], budgets=[budget]) as runtime:
        outcome = completed(await soon(runtime.spawn("desk").run("go")))
        assert paid == [7]
        assert why in str(results(outcome.state)[0].content)
        assert (await used(runtime)).used == 7


@pytest.mark.parametrize("amount", ["NaN", "-inf", "12 EUR", "", "1e99", "0x10"])
async def test_a_text_that_is_no_amount_does_not_run(amount: str) -> None:
    """V62."""
    paid: list[str] = []

    @tool
    async def refund(amount: str) -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    turns = [call("refund", {"amount": amount}), call("refund", {"amount": "12.50"})]
    agent = Agent("desk", by_turn(*turns), tools=[refund])
    async with Runtime([agent], budgets=[euros(200)]) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        assert paid == ["12.50"]
        assert (await used(runtime)).used == Decimal("12.5")


async def test_ten_calls_of_one_reply_do_not_all_see_the_same_room() -> None:
    """V63: a rule that allows within a budget."""
    agent, paid = refunds([30] * 10)
    rules = Rules(allow("refund", within=euros(100)), default="ask")
    async with Runtime([agent], rules=rules) as runtime:
        ref = runtime.spawn("desk")
        asked = interrupted(await soon(ref.run("go")))
        assert len(asked.requests) == 7
        outcome = await soon(ref.resume(asked.decide(*[reject()] * 7)))
        completed(outcome)
        assert paid == [30, 30, 30]
        assert (await used(runtime)).used == 90


async def test_two_hundred_a_day_run_without_asking_and_the_rest_is_asked(place: Place) -> None:
    """V63."""
    agent, paid = refunds(150, 100, 40)
    rules = Rules(allow("refund", within=euros(200, window=day())), default="ask")
    async with Runtime([agent], store=place.store(), rules=rules) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("go")))
        assert paid == [150]
        assert [each.rule for each in asked.requests] == ["whatever no rule names (ask)"]
        completed(await soon(ref.resume(approve())))
        assert paid == [150, 100, 40], "what a person has approved does not count there"
        assert (await used(runtime)).used == 190


async def test_what_is_reserved_while_a_gate_asks_is_given_back_if_the_call_is_rejected() -> None:
    """V63."""
    agent, paid = refunds(150, interrupt_on={"refund": True})
    rules = Rules(allow("refund", within=euros(200)), default="ask")
    async with Runtime([agent], rules=rules) as runtime:
        ref = runtime.spawn("desk")
        interrupted(await soon(ref.run("go")))
        assert (await used(runtime)).reserved == 150
        completed(await soon(ref.resume(reject())))
        assert (await used(runtime)).used == 0
        assert paid == []


async def test_counters_are_kept_apart_by_what_a_budget_is_for() -> None:
    """V60."""
    agent, _ = refunds(150)
    budgets = [
        euros(200, per="agent"),
        Budget("all", calls("refund", 3)),
    ]
    async with Runtime([agent], budgets=budgets) as runtime:
        for id in ("a", "b"):
            completed(await soon(runtime.spawn("desk", id=id).run("go")))
        found = {(each.budget.name, each.key): each.used for each in await runtime.budgets()}
        assert found == {
            ("refunds", "agent=a"): 150,
            ("refunds", "agent=b"): 150,
            ("all", ""): 2,
        }


async def test_all_budgets_have_room_or_none_is_used() -> None:
    """V60."""
    agent, _ = refunds(150)
    budgets = [euros(200), Budget("mails", calls("refund", 1))]
    async with Runtime([agent], budgets=budgets) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        outcome = stopped(await soon(runtime.spawn("desk").run("go")))
        assert outcome.signals.first is not None
        assert "'mails'" in outcome.signals.first.message
        assert (await used(runtime)).used == 150
        assert (await used(runtime, "mails")).used == 1


async def test_calls_of_agents_inside_count_for_the_outermost() -> None:
    """V60."""
    helper, paid = refunds(30)
    task = call("task", {"task_name": "desk", "instructions": "go"})
    boss = Agent(
        "boss",
        by_turn([task, task]),
        middleware=[SubAgent(agents=[helper], general_purpose=False)],
    )
    async with Runtime([boss], budgets=[euros(50, per="agent")]) as runtime:
        await soon(runtime.spawn("boss", id="b").run("go"))
        (found,) = await runtime.budgets()
        assert [found.key, *amounts(found)] == ["agent=b", 30, 0]
        assert paid == [30]


async def test_a_middleware_that_changes_an_amount_does_not_pass_a_budget() -> None:
    """V60: what is spent counts, not what was asked."""

    class Doubles(Middleware):
        async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
            return await next(call.replace({**call.arguments, "amount": 500}))

    agent, paid = refunds(10, middleware=[Doubles()])
    async with Runtime([agent], budgets=[euros(200)]) as runtime:
        outcome = completed(await soon(runtime.spawn("desk").run("go")))
        assert paid == []
        assert "Not run: the budget 'refunds'" in str(results(outcome.state)[0].content)
        assert (await used(runtime)).used == 0


# ------------------------------------------------------------------------------ what becomes of it


async def test_what_a_failed_call_may_have_spent_counts(place: Place) -> None:
    """V64."""

    @tool
    async def refund(amount: float) -> str:
        """Refund."""
        raise RuntimeError("the bank hung up")

    agent = Agent("desk", by_turn(call("refund", {"amount": 50})), tools=[refund])
    async with Runtime([agent], store=place.store(), budgets=[euros(200)]) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("go")))
        assert (await used(runtime)).used == 50


async def test_what_a_call_in_doubt_may_have_spent_stays_reserved_until_somebody_knows(
    place: Place,
) -> None:
    """V64."""

    @tool
    async def refund(amount: float) -> str:
        """Refund."""
        raise OutcomeUnknown("no answer")

    agent = Agent("desk", by_turn(call("refund", {"amount": 50})), tools=[refund])
    async with Runtime([agent], store=place.store(), budgets=[euros(200)]) as runtime:
        ref = runtime.spawn("desk", id="a")
        outcome = completed(await soon(ref.run("go")))
        (key,) = outcome.state.doubts
        found = await used(runtime)
        assert amounts(found) == [50, 50]
        await soon(ref.settle(key, how="it did nothing", happened=False))
        assert (await used(runtime)).used == 0


async def test_a_call_that_is_cancelled_before_it_starts_has_spent_nothing(place: Place) -> None:
    """V64."""
    agent, paid = refunds(50, interrupt_on={"refund": True})
    async with Runtime([agent], store=place.store(), budgets=[euros(200)]) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await soon(ref.run("go")))
        stopped(await soon(ref.cancel()))
        assert (await used(runtime)).used == 0
        assert paid == []


async def test_a_call_that_is_cancelled_while_it_runs_counts() -> None:
    """V64."""
    held = Held()

    @tool
    async def refund(amount: float) -> str:
        """Refund."""
        await held.wait()
        return "paid"

    agent = Agent("desk", by_turn(call("refund", {"amount": 50})), tools=[refund])
    async with Runtime([agent], budgets=[euros(200)]) as runtime:
        ref = runtime.spawn("desk")
        run = ref.run("go")
        await soon(held.entered.wait())
        assert (await used(runtime)).reserved == 50
        await soon(ref.cancel())
        stopped(await soon(run))
        assert (await used(runtime)).used == 50


async def test_a_deleted_agent_leaves_what_it_has_spent(place: Place) -> None:
    """V64."""
    agent, _ = refunds(50)
    async with Runtime([agent], store=place.store(), budgets=[euros(200)]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("go")))
        await soon(runtime.delete("a"))
        assert (await used(runtime)).used == 50
        completed(await soon(runtime.spawn("desk", id="a").run("go")))
        assert (await used(runtime)).used == 100


async def test_what_a_run_has_spent_is_known_after_a_restart(place: Place) -> None:
    """V64."""
    agent, _ = refunds(150)
    store = place.store()
    async with Runtime([agent], store=store, budgets=[euros(200)]) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("go")))
    agent, paid = refunds(60)
    async with Runtime([agent], store=place.store(), budgets=[euros(200)]) as runtime:
        assert (await used(runtime)).used == 150
        stopped(await soon(runtime.spawn("desk", id="b").run("go")))
        assert paid == []


async def test_an_idempotent_call_that_runs_again_under_its_key_spends_once(place: Place) -> None:
    """V64."""
    held = Held()

    def desk(*, holds: bool) -> Agent:
        @tool(idempotent=True)
        async def refund(amount: float) -> str:
            """Refund."""
            if holds:
                await held.wait()
            return "paid"

        return Agent("desk", by_turn(call("refund", {"amount": 50})), tools=[refund])

    budgets = [euros(200)]
    async with Runtime(
        [desk(holds=True)], store=place.store(), budgets=budgets, stop_timeout=0.001, sweep=None
    ) as first:
        first.spawn("desk", id="a").run("go")
        await soon(held.entered.wait())
        after = place.after_crash()
        async with Runtime([desk(holds=False)], store=after, budgets=budgets) as second:
            completed(await outcome_of(second, "a"))
            assert amounts(await used(second)) == [50, 0]
        held.release.set()


async def test_a_call_that_a_person_lets_run_again_spends_twice(place: Place) -> None:
    """V64: nobody knows what it did the first time."""
    held = Held()
    ran: list[str] = []

    def desk(name: str) -> Agent:
        @tool
        async def refund(amount: float) -> str:
            """Refund."""
            ran.append(name)
            if name == "first":
                await held.wait()
            return "paid"

        turns = [call("refund", {"amount": 50})]
        return Agent("desk", by_turn(*turns), tools=[refund], interrupt_on={"refund": True})

    budgets = [euros(200)]
    async with Runtime(
        [desk("first")], store=place.store(), budgets=budgets, stop_timeout=0.001, sweep=None
    ) as first:
        ref = first.spawn("desk", id="a")
        interrupted(await soon(ref.run("go")))
        ref.resume(approve())
        await soon(held.entered.wait())
        after = place.after_crash()
        async with Runtime([desk("second")], store=after, budgets=budgets) as second:
            asked = interrupted(await outcome_of(second, "a"))
            assert [each.kind for each in asked.requests] == ["doubt"]
            completed(await soon(second.get("a").resume(asked.decide(approve()))))
            found = await used(second)
            assert [*amounts(found), found.unknown] == [100, 0, 50]
        held.release.set()
    assert ran == ["first", "second"]


async def test_a_doubt_that_ends_because_it_is_old_counts_as_unknown() -> None:
    """V64."""
    clock = SimulatedClock(datetime(2026, 3, 1, 12, tzinfo=timezone.utc))

    @tool
    async def refund(amount: float) -> str:
        """Refund."""
        raise OutcomeUnknown("no answer")

    agent = Agent("desk", by_turn(call("refund", {"amount": 50})), tools=[refund])
    async with Runtime([agent], budgets=[euros(200)], clock=clock, doubt_ends=3600.0) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("go")))
        assert amounts(await used(runtime)) == [50, 50]
        await soon(clock.advance(3601))
        completed(await soon(ref.run("more")))
        found = await used(runtime)
        assert [*amounts(found), found.unknown] == [50, 0, 50]


async def test_what_was_counted_stays_where_a_limit_changes_and_not_where_the_measure_does(
    place: Place,
) -> None:
    """V64."""
    agent, _ = refunds(150)
    async with Runtime([agent], store=place.store(), budgets=[euros(200)]) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("go")))
    async with Runtime([agent], store=place.store(), budgets=[euros(160)]) as runtime:
        found = await used(runtime)
        assert [found.used, found.limit] == [Decimal(150), Decimal(160)]
        stopped(await soon(runtime.spawn("desk", id="b").run("go")))
    dollars = Budget("refunds", sum_of("refund", "amount", 200, currency="USD"))
    async with Runtime([agent], store=place.store(), budgets=[dollars]) as runtime:
        assert (await used(runtime)).used == 0
    async with Runtime([agent], store=place.store(), budgets=[euros(200, per="agent")]) as runtime:
        assert await runtime.budgets() == []


async def test_a_file_brings_nothing_of_what_was_spent(place: Place) -> None:
    """V64: and compaction changes nothing."""
    agent, _ = refunds(150)
    async with Runtime([agent], store=place.store(), budgets=[euros(200)]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("go")))
        await soon(ref.compact())
        assert (await used(runtime)).used == 150
        data = await soon(runtime.export("a"))
    async with Runtime([agent], budgets=[euros(200)]) as elsewhere:
        await soon(elsewhere.import_(data))
        assert (await used(elsewhere)).used == 0


def reversible(*turns: Any, **options: Any) -> Agent:
    """An agent that refunds orders, and cancels refunds."""

    @tool
    async def refund(order: str, amount: int) -> str:
        """Refund."""
        return "paid"

    @tool
    async def cancel_refund(order: str) -> str:
        """Cancel a refund."""
        if order == "refused":
            raise RuntimeError("the bank refuses")
        return "cancelled"

    return Agent("desk", by_turn(*turns), tools=[refund, cancel_refund], **options)


def refunded(order: str, amount: int) -> Any:
    return call("refund", {"order": order, "amount": amount})


def cancelled(order: str) -> Any:
    return call("cancel_refund", {"order": order})


REVERSIBLE = Budget(
    "refunds", sum_of("refund", "amount", 200, given_back_by="cancel_refund", ref="order")
)


async def test_a_reversal_gives_back_what_was_spent_once(place: Place) -> None:
    """V64: also where it is named a second time, or nothing of it was spent."""
    turns = [refunded("17", 150), cancelled("17"), cancelled("17"), cancelled("18")]
    agent = reversible(*turns, refunded("19", 180), refunded("20", 30))
    async with Runtime([agent], store=place.store(), budgets=[REVERSIBLE]) as runtime:
        stopped(await soon(runtime.spawn("desk", id="a").run("go")))
        assert (await used(runtime)).used == 180


async def test_a_reversal_that_fails_gives_nothing_back(place: Place) -> None:
    """V64."""
    agent = reversible(refunded("refused", 150), cancelled("refused"))
    async with Runtime([agent], store=place.store(), budgets=[REVERSIBLE]) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("go")))
        assert (await used(runtime)).used == 150


async def test_a_call_that_no_reversal_could_name_does_not_run() -> None:
    """V62."""
    agent = reversible(refunded("", 150), refunded("17", 10))
    async with Runtime([agent], budgets=[REVERSIBLE]) as runtime:
        outcome = completed(await soon(runtime.spawn("desk", id="a").run("go")))
        assert "it has no `order`, by which 'cancel_refund' names it" in str(
            results(outcome.state)[0].content
        )
        assert (await used(runtime)).used == 10


async def test_a_call_of_a_run_that_is_continued_after_it_failed_reserves_anew(
    place: Place,
) -> None:
    """V64: what was given back when the run failed is reserved again."""
    ran: list[str] = []

    @tool(sequential=True)
    async def look() -> str:
        """Look."""
        ran.append("look")
        if len(ran) == 1:
            raise RuntimeError("away")
        return "seen"

    @tool
    async def refund(amount: int) -> str:
        """Refund."""
        ran.append("refund")
        return "paid"

    turns = [[call("look"), call("refund", {"amount": 150})]] * 2
    agent = Agent("desk", by_turn(*turns), tools=[look, refund])
    rules = Rules(allow("refund", within=euros(200)), allow("look"), default="ask")
    async with Runtime([agent], store=place.store(), rules=rules, tool_errors="raise") as runtime:
        ref = runtime.spawn("desk", id="a")
        assert isinstance(await soon(ref.run("go")), Failed)
        await soon(ref.retry())
        assert ran.count("refund") >= 1
        assert (await used(runtime)).used == 150 * ran.count("refund")


# ------------------------------------------------------------------------------ windows


async def test_a_budget_of_a_day_begins_anew_at_midnight_of_its_zone() -> None:
    """V65."""
    clock = SimulatedClock(datetime(2026, 3, 1, 22, 30, tzinfo=timezone.utc))
    agent, paid = refunds(150)
    budget = euros(200, window=day("Europe/Berlin"))
    async with Runtime([agent], budgets=[budget], clock=clock) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        stopped(await soon(runtime.spawn("desk").run("go")))
        await soon(clock.advance(3600))
        completed(await soon(runtime.spawn("desk").run("go")))
        assert paid == [150, 150]
        found = await used(runtime)
        assert found.used == 150
        assert found.until == datetime(2026, 3, 2, 23, tzinfo=timezone.utc)


async def test_the_last_hours_count_at_any_moment() -> None:
    """V65."""
    clock = SimulatedClock(datetime(2026, 3, 1, 23, 30, tzinfo=timezone.utc))
    agent, paid = refunds(150)
    async with Runtime(
        [agent], budgets=[euros(200, window=last(hours=24))], clock=clock
    ) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        await soon(clock.advance(23 * 3600))
        stopped(await soon(runtime.spawn("desk").run("go")))
        await soon(clock.advance(2 * 3600 + 60))
        completed(await soon(runtime.spawn("desk").run("go")))
        assert paid == [150, 150]


def test_days_weeks_and_months_are_those_of_a_calendar() -> None:
    """V65: a day on which the clock is set has 23 or 25 hours."""
    at = int(datetime(2026, 3, 29, 12, tzinfo=timezone.utc).timestamp())
    berlin = day("Europe/Berlin").span(at)
    assert berlin.until - berlin.since == 23 * 3600
    of_week = week().span(at)
    assert datetime.fromtimestamp(of_week.since, timezone.utc) == datetime(
        2026, 3, 23, tzinfo=timezone.utc
    )
    of_month = month().span(at)
    assert datetime.fromtimestamp(of_month.ends, timezone.utc) == datetime(
        2026, 4, 1, tzinfo=timezone.utc
    )


# ------------------------------------------------------------------------------ raised


async def test_a_person_raises_a_budget_for_its_window() -> None:
    """V66."""
    clock = SimulatedClock(datetime(2026, 3, 1, 12, tzinfo=timezone.utc))
    agent, paid = refunds(150)
    budget = euros(200, window=day())
    async with Runtime([agent], budgets=[budget], clock=clock) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        stopped(await soon(runtime.spawn("desk").run("go")))
        found = await soon(runtime.raise_budget("refunds", 100, why="a recall", by="ann"))
        assert [found.limit, found.used] == [Decimal(300), Decimal(150)]
        assert [(each.by, each.said.why) for each in found.raised] == [("ann", "a recall")]
        completed(await soon(runtime.spawn("desk").run("go")))
        await soon(clock.advance(86400))
        completed(await soon(runtime.spawn("desk").run("go")))
        stopped(await soon(runtime.spawn("desk").run("go")))
        assert (await used(runtime)).limit == 200
        assert paid == [150] * 3


async def test_what_cannot_be_raised_is_an_error() -> None:
    """V66."""
    agent, _ = refunds(1)
    budgets = [euros(200), Budget("each", calls("refund", 2), per="agent")]
    async with Runtime([agent], budgets=budgets) as runtime:
        for name, amount, options, problem in [
            ("refund", 5, {}, "There is no budget 'refund'; there are: 'refunds', 'each'"),
            ("refunds", -5, {}, "is negative"),
            ("refunds", 0, {}, "nothing would be added"),
            ("refunds", 5, {"key": "agent=a"}, "takes no key"),
            ("each", 5, {}, "is counted for each agent: say for which"),
        ]:
            with pytest.raises(UsageError, match=problem):
                await soon(runtime.raise_budget(name, amount, why="x", **options))
    async with Runtime([agent]) as runtime:
        assert await soon(runtime.budgets()) == []
        with pytest.raises(UsageError, match="has no budgets"):
            await soon(runtime.raise_budget("refunds", 5, why="x"))


# ------------------------------------------------------------------------------ models


def answer(read: int, written: int, text: str = "done") -> ModelResponse:
    usage = RequestUsage(input_tokens=read, output_tokens=written)
    return ModelResponse(parts=[TextPart(text)], usage=usage, model_name="m")


def asker(*replies: Any, most: int | None = 1000, **options: Any) -> Agent:
    settings: Any = None if most is None else {"max_tokens": most}
    model = ScriptedModel(list(replies), name="m")
    return Agent("desk", model, model_settings=settings, **options)


async def test_a_request_to_a_model_is_sent_if_there_is_room_for_its_longest_reply() -> None:
    """V67: and it is settled by what its provider has counted."""
    agent = asker(answer(100, 200), answer(100, 200), answer(100, 200))
    budget = Budget("models", usd("0.0015"))
    async with Runtime([agent], budgets=[budget], pricing=PRICES) as runtime:
        ref = runtime.spawn("desk")
        completed(await soon(ref.run("go")))
        found = await used(runtime, "models")
        assert amounts(found) == [Decimal("0.0003"), 0]
        outcome = stopped(await soon(ref.run("go")))
        assert outcome.signals.first is not None
        assert outcome.signals.first.reason is StopReason.BUDGET
        assert (await used(runtime, "models")).used == Decimal("0.0003")


async def test_tokens_that_were_used_beyond_what_was_reserved_count() -> None:
    """V67."""
    agent = asker(answer(5000, 900))
    async with Runtime([agent], budgets=[Budget("models", tokens(4000))]) as runtime:
        ref = runtime.spawn("desk")
        completed(await soon(ref.run("go")))
        assert (await used(runtime, "models")).used == 5900
        stopped(await soon(ref.run("go")))


@pytest.mark.parametrize(
    ("budget", "most", "pricing", "problem"),
    [
        (tokens(4000), None, None, "may be of any length: give its agent model_settings"),
        (usd(5), 100, {"other": Price(input=1, output=1)}, "has no price: give it one"),
    ],
    ids=["no max_tokens", "no price"],
)
async def test_a_request_is_not_sent_where_nobody_knows_what_it_may_cost(
    budget: Any, most: int | None, pricing: Any, problem: str
) -> None:
    """V67."""
    agent = asker(answer(1, 1), most=most)
    async with Runtime([agent], budgets=[Budget("models", budget)], pricing=pricing) as runtime:
        outcome = await soon(runtime.spawn("desk").run("go"))
        assert isinstance(outcome, Failed)
        assert problem in str(outcome.error)


async def test_a_request_that_its_provider_refused_has_cost_nothing() -> None:
    """V67."""
    agent = asker(ModelHTTPError(400, "m"))
    async with Runtime([agent], budgets=[Budget("models", tokens(4000))]) as runtime:
        assert isinstance(await soon(runtime.spawn("desk").run("go")), Failed)
        assert (await used(runtime, "models")).used == 0


async def test_a_request_whose_answer_was_lost_counts_in_full_and_is_shown_apart() -> None:
    """V67."""
    agent = asker(ConnectionError("reset"))
    async with Runtime([agent], budgets=[Budget("models", tokens(4000))]) as runtime:
        assert isinstance(await soon(runtime.spawn("desk").run("go")), Failed)
        found = await used(runtime, "models")
        assert found.unknown == found.used
        assert 1000 < found.used < 1200


async def test_a_person_is_asked_before_a_model_is_asked_beyond_a_budget(place: Place) -> None:
    """V67."""
    agent = asker(answer(100, 200), answer(100, 200, "beyond"), answer(1, 1))
    budget = Budget("models", tokens(1200), at_limit="ask")
    async with Runtime([agent], store=place.store(), budgets=[budget]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("go")))
        asked = interrupted(await soon(ref.run("go")))
        (request,) = asked.requests
        assert request.budget == "models"
        assert completed(await soon(ref.resume(approve()))).text == "beyond"
        assert (await used(runtime, "models")).used == 600
        interrupted(await soon(ref.run("go")))
        outcome = stopped(await soon(ref.resume(reject())))
        assert outcome.signals.first is not None
        assert outcome.signals.first.reason is StopReason.BUDGET


# ------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: usd(0), "takes an amount of more than 0"),
        (lambda: usd(-1), "finite amount of more than 0"),
        (lambda: usd(float("nan")), "finite amount of more than 0"),
        (lambda: usd("1e30"), "below a billion"),
        (lambda: tokens(0), "whole number from 1"),
        (lambda: tokens(1.5), "whole number from 1"),  # type: ignore[arg-type]
        (lambda: calls("", 3), "must be text and not empty"),
        (lambda: sum_of("t", "a", 5, currency_in="c"), "`currency_in` needs `currency`"),
        (lambda: sum_of("t", "a", 5, ref="order"), "belong together"),
        (lambda: day("Europe/Nowhere"), "no time zone of this name"),
        (lambda: last(hours=0), "from a minute to ten years"),
        (lambda: last(hours=float("nan")), "from a minute to ten years"),
        (lambda: Budget("", usd(1)), "must be text and not empty"),
        (lambda: Budget("b" * 101, usd(1)), "up to 100 characters"),
        (lambda: Budget("a\0b", usd(1)), "without NUL"),
        (lambda: Budget("b", 5), "takes usd"),  # type: ignore[arg-type]
        (lambda: Budget("b", usd(1), per="team"), "`per` takes any of"),  # type: ignore[arg-type]
        (lambda: Budget("b", usd(1), per="tool"), "models have no tool"),
        (lambda: Budget("b", usd(1), per="run", window=day()), "counted as a whole"),
        (lambda: Budget("b", usd(1), at_limit="warn"), "must be 'stop' or 'ask'"),  # type: ignore[arg-type]
        (lambda: Budget("b", calls("t", 1), approval=approval({"a": 1})), "with at_limit='ask'"),
        (lambda: allow("t", within=Budget("b", usd(1))), "takes a Budget of calls"),
        (lambda: Runtime(budgets=Budget("b", usd(1))), "must be a list of Budget"),  # type: ignore[call-overload]
        (
            lambda: Runtime(budgets=[Budget("b", usd(1)), Budget("b", usd(2))]),
            "two are named 'b'",
        ),
    ],
)
def test_a_budget_that_cannot_be_is_an_error(make: Any, problem: str) -> None:
    """V60."""
    with pytest.raises(UsageError, match=problem):
        make()


async def test_a_call_for_a_requester_whom_nobody_knows_does_not_run() -> None:
    """V62."""
    agent, paid = refunds(5)
    async with Runtime([agent], budgets=[euros(200, per="requester")]) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        assert paid == []
        completed(await soon(runtime.spawn("desk").run("go", by="ann")))
        assert paid == [5]
        (found,) = await runtime.budgets()
        assert found.key == "requester=ann"


async def test_rules_that_allow_within_a_budget_come_with_the_start_of_a_runtime() -> None:
    """V63."""
    agent, _ = refunds(5)
    async with Runtime([agent]) as runtime:
        with pytest.raises(UsageError, match="did not begin with"):
            runtime.set_rules(Rules(allow("refund", within=euros(5)), default="ask"))
    rules = Rules(allow("refund", within=euros(5)), ask("x"), default="ask")
    assert rules.verdict("refund", {"amount": 3}).result == "allow"


# ------------------------------------------------------------------------------ crashes


async def test_a_request_that_is_cut_off_by_a_crash_counts_in_full(place: Place) -> None:
    """V67: and only what was cut off is unknown."""
    held = Held()

    async def slow(_: Any) -> Any:
        await held.wait()
        return answer(100, 200)

    budgets = [Budget("models", tokens(10_000))]
    async with Runtime(
        [asker(slow)], store=place.store(), budgets=budgets, stop_timeout=0.001, sweep=None
    ) as first:
        first.spawn("desk", id="a").run("go")
        await soon(held.entered.wait())
        while "run_started" not in [r["kind"] for r in (await first.export("a"))["records"]]:
            pass  # it is recorded while the model is asked
        reserved = (await used(first, "models")).reserved
        assert 1000 < reserved < 1200
        async with Runtime(
            [asker(answer(100, 200))], store=place.after_crash(), budgets=budgets
        ) as second:
            completed(await outcome_of(second, "a"))
            found = await used(second, "models")
            assert [found.unknown, found.reserved] == [reserved, Decimal(0)]
            assert found.used == reserved + 300
        held.release.set()


async def test_a_call_that_a_crash_has_cut_off_is_reserved_once(place: Place) -> None:
    """V64: it is in doubt, and a person knows that it did nothing."""
    held = Held()

    @tool
    async def refund(amount: float) -> str:
        """Refund."""
        await held.wait()
        return "paid"

    def desk() -> Agent:
        return Agent("desk", by_turn(call("refund", {"amount": 50})), tools=[refund])

    budgets = [euros(200)]
    async with Runtime(
        [desk()], store=place.store(), budgets=budgets, stop_timeout=0.001, sweep=None
    ) as first:
        first.spawn("desk", id="a").run("go")
        await soon(held.entered.wait())
        async with Runtime([desk()], store=place.after_crash(), budgets=budgets) as second:
            outcome = completed(await outcome_of(second, "a"))
            (key,) = outcome.state.doubts
            found = await used(second)
            assert amounts(found) == [50, 50]
            await soon(second.get("a").settle(key, how="the bank says no", happened=False))
            assert (await used(second)).used == 0
        held.release.set()


async def test_a_call_that_waits_for_a_person_keeps_its_reservation_over_a_crash(
    place: Place,
) -> None:
    """V63."""
    agent, paid = refunds(150, interrupt_on={"refund": True})
    rules = Rules(allow("refund", within=euros(200)), default="ask")
    async with Runtime(
        [agent], store=place.store(), rules=rules, stop_timeout=0.001, sweep=None
    ) as first:
        asked = interrupted(await soon(first.spawn("desk", id="a").run("go")))
        assert len(asked.requests) == 1, "its gate alone"
        async with Runtime([agent], store=place.after_crash(), rules=rules) as second:
            completed(await soon(second.get("a").resume(approve())))
            assert paid == [150]
            assert (await used(second)).used == 150


# ------------------------------------------------------------------------------ what is changed


class Amounts(Middleware):
    """Gives each refund another amount, right before its body."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        return await next(call.replace({**call.arguments, "amount": self.amount}))


async def test_an_amount_that_a_middleware_changes_is_not_within_the_budget_of_a_rule(
    place: Place,
) -> None:
    """V63: a person is asked, for what was reserved is another amount."""
    agent, paid = refunds(10, middleware=[Amounts(500)])
    rules = Rules(allow("refund", within=euros(200)), default="ask")
    async with Runtime([agent], store=place.store(), rules=rules) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("go")))
        assert [each.rule for each in asked.requests] == ["whatever no rule names (ask)"]
        assert paid == []
        assert (await used(runtime)).used == 0
        completed(await soon(ref.resume(reject())))
        assert paid == []


async def test_an_amount_that_a_middleware_changes_counts_within_the_budget_of_a_rule() -> None:
    """V63."""
    agent, paid = refunds(10, middleware=[Amounts(150)])
    rules = Rules(allow("refund", within=euros(200)), default="ask")
    async with Runtime([agent], rules=rules) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        assert paid == [150]
        assert (await used(runtime)).used == 150


async def test_an_amount_that_a_person_edits_at_a_gate_is_judged_by_the_budget_of_a_rule() -> None:
    """V63: who answers a gate does not answer a rule."""
    agent, paid = refunds(10, interrupt_on={"refund": True})
    rules = Rules(allow("refund", within=euros(200)), default="ask")
    async with Runtime([agent], rules=rules) as runtime:
        ref = runtime.spawn("desk")
        asked = interrupted(await soon(ref.run("go")))
        assert [each.rule for each in asked.requests] == [""]
        again = interrupted(await soon(ref.resume(edit({"amount": 500}))))
        assert [each.rule for each in again.requests] == ["whatever no rule names (ask)"]
        assert paid == []
        assert (await used(runtime)).used == 0


class Reverses(Middleware):
    """Answers a reversal itself, or lets it name another order."""

    def __init__(self, order: str | None) -> None:
        self.order = order

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        if call.tool.name != "cancel_refund":
            return await next(call)
        return (
            "cancelled" if self.order is None else await next(call.replace({"order": self.order}))
        )


@pytest.mark.parametrize(
    ("order", "left"), [(None, [150, 20]), ("18", [150, 0])], ids=["not entered", "another order"]
)
async def test_a_reversal_gives_back_what_its_body_has_reversed(
    order: str | None, left: list[int], place: Place
) -> None:
    """V64: nothing where its body was not entered."""
    turns = [refunded("17", 150), refunded("18", 20), cancelled("17")]
    agent = reversible(*turns, middleware=[Reverses(order)])
    async with Runtime([agent], store=place.store(), budgets=[REVERSIBLE]) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("go")))
        assert (await used(runtime)).used == sum(left)


async def test_what_waits_for_longer_than_its_window_counts_in_the_one_in_which_it_runs() -> None:
    """V65: it was held by a freeze after it had reserved."""
    clock = SimulatedClock(datetime(2026, 3, 1, 12, tzinfo=timezone.utc))
    held = Held()

    class Waits(Middleware):
        async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
            await held.wait()
            return await next(call)

    agent, paid = refunds(150, middleware=[Waits()])
    budget = euros(200, window=day())
    async with Runtime([agent], budgets=[budget], clock=clock) as runtime:
        first = runtime.spawn("desk", id="t").run("go")
        await soon(held.entered.wait())
        freeze = await soon(runtime.freeze(why="a leak"))
        held.release.set()
        await until(lambda: not runs())
        assert (await used(runtime)).reserved == 150
        await soon(clock.advance(86400))
        await soon(runtime.thaw(freeze.id))
        completed(await soon(first))
        assert paid == [150]
        assert (await used(runtime)).used == 150
        stopped(await soon(runtime.spawn("desk").run("go")))


async def test_what_was_added_to_a_window_that_is_over_by_the_clock_of_the_store_is_over() -> None:
    """V66: the clock of the host is behind."""
    at = datetime(2026, 3, 1, 23, tzinfo=timezone.utc)
    clock, store = SimulatedClock(at), MemoryStore()
    agent, paid = refunds(250)
    async with Runtime(
        [agent], store=store, budgets=[euros(200, window=day())], clock=clock
    ) as runtime:
        await soon(runtime.raise_budget("refunds", 100, why="a recall", by="ann"))
        store.feed_clock = SimulatedClock(at + timedelta(hours=2))
        stopped(await soon(runtime.spawn("desk").run("go")))
        assert paid == []


async def test_a_reply_whose_tokens_its_provider_does_not_tell_counts_in_full() -> None:
    """V67: also where replies are priced."""
    agent = asker(ModelResponse(parts=[TextPart("hi")], model_name="m"))
    budget = Budget("models", tokens(4000))
    async with Runtime([agent], budgets=[budget], pricing=PRICES) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        found = await used(runtime, "models")
        assert found.unknown == found.used
        assert 1000 < found.used < 1200


async def test_tokens_that_cannot_be_count_as_unknown() -> None:
    """V67: a provider tells less than none."""
    agent = asker(answer(-5000, 900))
    async with Runtime([agent], budgets=[Budget("models", tokens(4000))]) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        found = await used(runtime, "models")
        assert found.unknown == found.used
        assert 1000 < found.used < 1200


async def test_uses_of_tools_of_the_provider_count_as_the_budget_says() -> None:
    """V67: their prices are in no usage."""
    searched = [NativeToolCallPart("web_search", {"query": "x"}, f"s{n}") for n in range(2)]
    usage = RequestUsage(input_tokens=100, output_tokens=200)
    reply = ModelResponse([*searched, TextPart("done")], usage=usage, model_name="m")
    agent = asker(reply, native_tools=[WebSearchTool()])
    budget = Budget("models", usd(1, native_tool="0.05"))
    async with Runtime([agent], budgets=[budget], pricing=PRICES) as runtime:
        completed(await soon(runtime.spawn("desk").run("go")))
        assert (await used(runtime, "models")).used == Decimal("0.1003")


async def test_a_retry_asks_no_model_again_for_which_a_budget_has_no_room() -> None:
    """V67: a person is asked at once."""
    policy = AsyncRetrying(stop=stop_after_attempt(3))
    agent = asker(answer(100, 200), answer(100, 200, "beyond"), retry=policy)
    budget = Budget("models", tokens(1200), at_limit="ask")
    async with Runtime([agent], budgets=[budget]) as runtime:
        ref = runtime.spawn("desk")
        completed(await soon(ref.run("go")))
        interrupted(await soon(ref.run("go")))
        assert completed(await soon(ref.resume(approve()))).text == "beyond"


async def test_a_hook_that_raises_again_what_a_budget_has_refused_changes_nothing() -> None:
    """V67."""

    class Again(Middleware):
        async def wrap_model_call(self, run: Any, request: Any, next: Any) -> Any:
            try:
                return await next(request)
            except Exception as error:
                raise error from ValueError("no")

    agent = asker(answer(100, 200), answer(100, 200), middleware=[Again()])
    async with Runtime([agent], budgets=[Budget("models", tokens(1200))]) as runtime:
        ref = runtime.spawn("desk")
        completed(await soon(ref.run("go")))
        outcome = stopped(await soon(ref.run("go")))
        assert outcome.signals.first is not None
        assert outcome.signals.first.reason is StopReason.BUDGET


async def test_each_model_that_a_request_may_ask_is_reserved_for() -> None:
    """V67: also where another model wraps them."""
    both = FallbackModel(*(ScriptedModel([answer(100, 200)], name=name) for name in "ab"))
    agent = Agent("desk", WrapperModel(both), model_settings={"max_tokens": 1000})
    async with Runtime([agent], budgets=[Budget("models", tokens(1900))]) as runtime:
        stopped(await soon(runtime.spawn("desk").run("go")))


async def test_a_call_that_sleeps_is_counted_once(
    place: Place,
) -> None:
    """V64: though its agent is passive meanwhile."""
    clock = SimulatedClock(datetime(2026, 3, 1, 12, tzinfo=timezone.utc))
    paid: list[float] = []

    @tool
    async def refund(ctx: ToolContext, amount: float) -> str:
        """Refund."""
        await ctx.sleep("first", 3600)
        await ctx.sleep("second", 86400)
        paid.append(amount)
        return "paid"

    agent = Agent("desk", by_turn(call("refund", {"amount": 150})), tools=[refund])
    budgets = [euros(200)]
    async with Runtime([agent], store=place.store(), budgets=budgets, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        run = ref.run("go")
        for seconds in (3600, 86400):
            await until_status(ref, Status.WAITING)
            await soon(ref.compact())
            assert ref.status() is Status.PASSIVE
            assert amounts(await used(runtime)) == [150, 150]
            await soon(clock.advance(seconds))
        completed(await soon(run))
        assert paid == [150]
        assert amounts(await used(runtime)) == [150, 0]


async def test_a_call_in_doubt_for_which_a_budget_has_no_room_stays_in_doubt(place: Place) -> None:
    """V64: a person has let it run again, and nobody knows what it did."""
    held = Held()

    @tool(on_unknown="ask")
    async def refund(amount: float) -> str:
        """Refund."""
        await held.wait()
        return "paid"

    agent = Agent("desk", by_turn(call("refund", {"amount": 50})), tools=[refund])
    budgets = [euros(60)]
    async with Runtime(
        [agent], store=place.store(), budgets=budgets, stop_timeout=0.001, sweep=None
    ) as first:
        first.spawn("desk", id="a").run("go")
        await soon(held.entered.wait())
        async with Runtime([agent], store=place.after_crash(), budgets=budgets) as second:
            interrupted(await outcome_of(second, "a"))
            outcome = stopped(await soon(second.get("a").resume(approve())))
            (key,) = outcome.state.doubts
            assert "is unknown" in str(results(outcome.state)[0].content)
            await soon(second.get("a").settle(key, how="the bank says no", happened=False))
            assert (await used(second)).used == 0
        held.release.set()


async def test_other_rules_allow_within_the_same_budget_with_another_limit() -> None:
    """V63: and people see the limit of these rules."""
    agent, paid = refunds(150, 150, 150)
    rules = [Rules(allow("refund", within=euros(most)), default="ask") for most in (200, 1000)]
    async with Runtime([agent], rules=rules[0]) as runtime:
        await soon(runtime.set_rules(rules[1]))
        completed(await soon(runtime.spawn("desk").run("go")))
        assert paid == [150] * 3
        assert (await used(runtime)).text == "450 EUR of 1,000 EUR used"


async def test_no_budget_is_both_of_the_runtime_and_of_a_rule() -> None:
    """V63: each call would count twice. Nor are two of rules named the same."""
    agent, _ = refunds(1)
    async with Runtime([agent], budgets=[euros(200)]) as runtime:
        with pytest.raises(UsageError, match="did not begin with"):
            runtime.set_rules(Rules(allow("refund", within=euros(200)), default="ask"))
    two = Rules(allow("refund", within=euros(200)), allow("x", within=euros(300)), default="ask")
    with pytest.raises(UsageError, match="two are named 'refunds'"):
        Runtime([agent], rules=two)


# ------------------------------------------------------------------------------ while it reserves


class SlowStore(MemoryStore):
    """Answers reservations as soon as it is let; they are made before."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held()

    def holds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reserve = self.spending.reserve

        async def slow(asked: Any) -> Any:
            reserved = await reserve(asked)
            await self.held.wait()
            return reserved

        monkeypatch.setattr(self.spending, "reserve", slow)


async def test_no_model_is_asked_that_a_freeze_has_met_while_it_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V50: and nothing is reserved for it meanwhile."""
    store, asked = SlowStore(), []

    def reply(_: Any) -> Any:
        asked.append(1)
        return answer(100, 200)

    agent = Agent("desk", ScriptedModel(reply, name="m"), model_settings={"max_tokens": 1000})
    async with Runtime([agent], store=store, budgets=[Budget("models", tokens(4000))]) as runtime:
        store.holds(monkeypatch)
        run = runtime.spawn("desk", id="t").run("go")
        await soon(store.held.entered.wait())
        freeze = await soon(runtime.freeze(why="a leak"))
        store.held.release.set()
        await until(lambda: not runs())
        assert asked == []
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
        assert amounts(await used(runtime, "models")) == [300, 0]


@pytest.mark.parametrize("is_of_model", [True, False], ids=["a model", "a call"])
async def test_what_is_reserved_while_its_run_is_cancelled_is_given_back(
    monkeypatch: pytest.MonkeyPatch, is_of_model: bool
) -> None:
    """V64: nothing of it was sent, or begun."""
    store = SlowStore()
    agent, paid = refunds(50)
    if is_of_model:
        agent, budget = asker(answer(100, 200)), Budget("refunds", tokens(4000))
    else:
        budget = euros(200)
    async with Runtime([agent], store=store, budgets=[budget]) as runtime:
        store.holds(monkeypatch)
        ref = runtime.spawn("desk", id="t")
        run = ref.run("go")
        await soon(store.held.entered.wait())
        await soon(ref.cancel())
        stopped(await soon(run))
        assert paid == []
        assert (await used(runtime)).used == 0
