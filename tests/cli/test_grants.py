"""Grants by the command line: given, shown and revoked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agents import by_turn, interrupted
from tests.support.command_line import TOKEN, Desk, found_by_commands, run
from understudy import Agent, Runtime, call, tool
from understudy.trust import GrantTerms, offer


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    paid: list[tuple[str, int]] = []

    @tool
    def pay(order: str, amount: int) -> str:
        """Pay."""
        paid.append((order, amount))
        return "paid"

    turns = [call("pay", {"order": "17", "amount": amount}) for amount in (20, 30)]
    gate = {"grant": offer(for_at_most=7_200, uses=5, free=["amount"], scope="agent")}
    agent = Agent("payer", by_turn(*turns), tools=[pay], interrupt_on={"pay": gate})
    store = f"sqlite:///{tmp_path / 'grants.db'}"
    with Runtime([agent], store=store) as runtime, found_by_commands(runtime, store) as url:
        yield Desk(store, url, runtime, paid)


@pytest.mark.slow
def test_a_grant_is_given_shown_and_revoked(desk: Desk) -> None:
    ref = desk.runtime.spawn("payer", "p-1")
    [asked] = interrupted(ref.run("Pay.").get(timeout=60)).requests
    shown = run("approve", asked.id, code=2).stderr
    assert "later calls may be decided too, for at most 2 hours, at most 5 uses" in shown
    for bad, told in (
        (["--grant", "1w"], "--grant must be a span such as"),
        (["--always", "--uses", "2"], "--always has no end"),
        (["--grant", "2030-05-01T18:00"], "a time with a zone"),
        (["--any-arguments", "--match", "order"], "leave --match out"),
        (["--always", "--any-arguments"], "--always has no end"),
        (["--uses", "2", "--scope", "all"], "--scope must be run or agent"),
    ):
        assert told in run("approve", asked.id, "-y", *bad, code=2).stderr
    assert "give at most until=7200" in run("approve", asked.id, "-y", "--uses", "2", code=4).stderr
    assert desk.paid == []
    terms = ["--grant", "1h", "--uses", "2", "--match", "order", "--scope", "agent"]
    run("approve", asked.id, "-y", *terms)
    ref.outcome().get(timeout=60)
    assert desk.paid == [("17", 20), ("17", 30)]
    shown = run("show", "p-1").stdout
    assert f"grant {asked.id}: approves pay of payer" in shown
    assert "1 uses left" in shown
    assert f"by grant {asked.id}" in shown
    [granted] = desk.json("show", "p-1")["grants"]
    assert (granted["arguments"], granted["free"]) == ({"order": "17"}, ["amount"])
    run("revoke", "p-1", asked.id)
    assert desk.json("show", "p-1")["grants"] == []


ALL = {"order": "17", "amount": 20}


@pytest.mark.parametrize(
    ("options", "fields", "terms"),
    [
        (
            ["--grant", "1h", "--any-arguments"],
            {"grant": "3600"},
            {"seconds": 3600, "match": (), "scope": "run"},
        ),
        (
            ["--grant", "1h", "--any-arguments", "--scope", "agent", "--uses", "3"],
            {"grant": "3600", "scope": "agent", "uses": "3"},
            {"seconds": 3600, "uses": 3, "match": (), "scope": "agent"},
        ),
        (
            ["--any-arguments"],
            {"grant": "no end"},
            {"match": (), "scope": "run"},
        ),
        (
            ["--grant", "15m", "--match", "order"],
            {"grant": "900", "match": "order"},
            {"seconds": 900, "match": ("order",), "scope": "run"},
        ),
        (
            ["--scope", "run"],
            {"grant": "no end", "match": ["order", "amount"]},
            {"match": None, "scope": "run"},
        ),
    ],
)
@pytest.mark.parametrize("type", ["approve", pytest.param("reject", marks=pytest.mark.slow)])
def test_what_the_form_of_a_page_can_say_of_later_calls_the_command_says_too(
    tmp_path: Path, type: str, options: list[str], fields: dict[str, Any], terms: dict[str, Any]
) -> None:
    @tool
    def pay(order: str, amount: int) -> str:
        """Pay."""
        return "paid"

    agent = Agent("payer", by_turn(call("pay", ALL)), tools=[pay], interrupt_on={"pay": True})
    store = f"sqlite:///{tmp_path / 'both.db'}"
    with Runtime([agent], store=store) as runtime, found_by_commands(runtime, store) as url:
        given = []
        for id in ("by-command", "by-form"):
            ref = runtime.spawn("payer", id)
            [asked] = interrupted(ref.run("Pay.").get(timeout=60)).requests
            if id == "by-command":
                run(type, asked.id, "-y", *options)
            else:
                form = {"decision": type, "digest": asked.digest, "named": "yes", **fields}
                page = f"{url}/agents/{id}/requests/{asked.id}"
                headers = {"Authorization": f"Bearer {TOKEN}"}
                sent = httpx.post(page, data=form, headers=headers)
                assert sent.status_code == 303, sent.text
            ref.outcome().get(timeout=60)
            [decided] = ref.decisions().get(timeout=60)
            given.append(decided.decision.grant)
    assert given == [GrantTerms(**terms), GrantTerms(**terms)]


@pytest.mark.slow
def test_a_grant_ends_at_a_time(desk: Desk) -> None:
    ref = desk.runtime.spawn("payer", "p-1")
    [asked] = interrupted(ref.run("Pay.").get(timeout=60)).requests
    until = desk.runtime.now().get(timeout=60) + timedelta(hours=1)
    run("approve", asked.id, "-y", "--grant", until.isoformat(), "--uses", "5", "--scope", "agent")
    ref.outcome().get(timeout=60)
    [granted] = desk.json("show", "p-1")["grants"]
    assert datetime.fromisoformat(granted["until"]) == until
