"""Budgets by the command line: what is used of them, and more to spend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, time
from pathlib import Path

import pytest

from tests.support.agents import by_turn, completed, interrupted
from tests.support.command_line import found_by_commands, run
from understudy import Agent, Runtime, Stopped, call, tool
from understudy.trust import Budget, day, sum_of


@tool
async def refund(amount: float) -> str:
    """Pay money back."""
    return "paid"


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """One that may refund 200 EUR a day, and 50 EUR for each agent; beyond it stops, or asks."""
    turns = [call("refund", {"amount": amount}) for amount in (45, 100)]
    measures = [sum_of("refund", "amount", limit, currency="EUR") for limit in (200, 50)]
    budgets = [
        Budget("refunds", measures[0], window=day()),
        Budget("each", measures[1], per="agent", at_limit="ask"),
    ]
    agent = Agent("desk", by_turn(*turns, "Done."), tools=[refund])
    with (
        Runtime([agent], budgets=budgets) as runtime,
        found_by_commands(runtime, "memory:"),
    ):
        yield runtime


def test_budgets_are_listed_with_what_is_used_and_left(runtime: Runtime) -> None:
    assert "0 EUR of 200 EUR used" in run("budgets").stdout
    interrupted(runtime.spawn("desk", id="a").run("go").get(timeout=60))
    [whole, each] = json.loads(run("budgets", "--json").stdout)["budgets"]
    assert (whole["budget"], whole["key"], whole["used"], whole["left"]) == (
        "refunds",
        "",
        "45",
        "155",
    )
    assert (each["key"], each["is_low"], each["at_limit"]) == ("agent=a", True, "ask")
    told = run("budgets").stdout
    assert "45 EUR of 50 EUR used, ends soon" in told
    assert "200 EUR a day" in told


def test_a_budget_is_raised_with_a_reason(runtime: Runtime) -> None:
    """V66."""
    interrupted(runtime.spawn("desk", id="a").run("go").get(timeout=60))
    assert "--why" in run("raise-budget", "each", "60", code=2).stderr
    told = run("raise-budget", "each", "60", "--why", "a recall", code=2).stderr
    assert "counted for each agent" in told
    raised = run("raise-budget", "each", "60", "--for", "agent=a", "--why", "a recall")
    assert "the budget is raised: 65 EUR left of 110 EUR" in raised.stdout
    again = run("raise-budget", "refunds", "1", "--why", "more", "--json").stdout
    assert json.loads(again)["limit"] == "201"
    [_, use] = runtime.budgets().get(timeout=60)
    [added] = use.raised
    assert (added.by, added.said.why) == ("ann", "a recall")


def test_a_request_says_which_budget_has_no_room(runtime: Runtime) -> None:
    outcome = interrupted(runtime.spawn("desk", id="a").run("go").get(timeout=60))
    told = run("approve", outcome.requests[0].id, code=2).stderr
    assert "budget    each: no room; what is approved counts" in told
    [row] = json.loads(run("pending", "--json").stdout)["requests"]
    assert row["budget"] == "each"


def test_a_run_that_a_budget_has_stopped_says_so(runtime: Runtime) -> None:
    for id in ("a", "b"):
        runtime.raise_budget("each", 500, key=f"agent={id}", why="a recall").get(timeout=60)
    completed(runtime.spawn("desk", id="a").run("go").get(timeout=60))
    outcome = runtime.spawn("desk", id="b").run("go").get(timeout=60)
    assert isinstance(outcome, Stopped)
    why = "The budget 'refunds' (200 EUR a day) has 10 EUR left, and 100 EUR would be needed"
    assert outcome.explain() == (
        f"Stopped after 2 model calls: budget: {why} (from 'budget: refunds')."
    )
    assert f"stopped: budget: {why}" in run("show", "b").stdout


@pytest.mark.slow
def test_of_a_store_alone_its_counters_are_listed(store_url: str) -> None:
    measure = sum_of("refund", "amount", 200, currency="EUR")
    budgets = [Budget("refunds", measure), Budget("days", measure, window=day())]
    agent = Agent("desk", by_turn(call("refund", {"amount": 45.5}), "Done."), tools=[refund])
    with Runtime([agent], store=store_url, budgets=budgets) as runtime:
        completed(runtime.spawn("desk", id="a").run("go").get(timeout=60))
        # Beside the runtime that has it open.
        beside = json.loads(run("budgets", "--json", "--store", store_url).stdout)["counters"]
    rows = json.loads(run("budgets", "--json", "--store", store_url).stdout)["counters"]
    assert beside == rows
    assert [row["used"] for row in rows] == ["45.5", "45.5"]
    days, whole = rows
    assert days["counter"] == budgets[1].id
    assert datetime.fromisoformat(days["since"]).time() == time(), "it began at midnight"
    assert (whole["counter"], whole["since"], whole["unknown"]) == (budgets[0].id, None, "0")
    told = run("budgets", "--store", store_url)
    assert budgets[0].id in told.stdout
    assert "a running server says what is left" in told.stderr


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    url: str = request.getfixturevalue("postgres_store")
    return url
