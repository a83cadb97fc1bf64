"""Grants by the command line: given, shown and revoked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import by_turn, interrupted
from tests.support.command_line import Desk, found_by_commands, run
from understudy import Agent, Runtime, call, tool
from understudy.trust import offer


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


def test_a_grant_is_given_shown_and_revoked(desk: Desk) -> None:
    ref = desk.runtime.spawn("payer", "p-1")
    [asked] = interrupted(ref.run("Pay.").get(timeout=60)).requests
    shown = run("approve", asked.id, code=2).stderr
    assert "later calls may be decided too, for at most 2 hours, at most 5 uses" in shown
    for bad, told in (
        (["--grant", "1w"], "--grant must be a span such as"),
        (["--always", "--uses", "2"], "--always has no end"),
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
    assert f"grant {asked.id}: approve pay of payer" in shown
    assert "1 uses left" in shown
    assert f"by grant {asked.id}" in shown
    [granted] = desk.json("show", "p-1")["grants"]
    assert (granted["arguments"], granted["free"]) == ({"order": "17"}, ["amount"])
    run("revoke", "p-1", asked.id)
    assert desk.json("show", "p-1")["grants"] == []
