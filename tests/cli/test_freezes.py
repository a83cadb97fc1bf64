"""Freezes and requirements by the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import by_turn
from tests.support.command_line import Desk, found_by_commands, run
from understudy import Agent, Runtime, call, tool


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A server with an agent in the middle of a call."""
    entered, release = threading.Event(), threading.Event()

    @tool
    def pay() -> str:
        entered.set()
        assert release.wait(60)
        return "paid"

    agent = Agent("desk", by_turn(call("pay")), tools=[pay])
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with Runtime([agent], store=store) as runtime, found_by_commands(runtime, store) as url:
        outcome = runtime.spawn("desk", "a").run("go")
        try:
            assert entered.wait(60)
            yield Desk(store, url, runtime, [])
        finally:
            release.set()
        outcome.get(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["store", "server"])
def test_a_freeze_is_made_shown_and_ended_by_commands(desk: Desk, where: str) -> None:
    """V54: it says what is under way, and how to cancel it."""
    done = run("freeze", "--why", "a leak", "--tool", "pay")
    assert "nothing of it begins any more: tool 'pay' is frozen by" in done.stdout
    assert "Under way: pay of desk" in done.stdout
    assert "understudy cancel a --run " in done.stdout
    [row] = json.loads(run("freezes", "--json").stdout)["freezes"]
    at = ["--store", desk.store] if where == "store" else []
    assert f"{row['text']}" in run("show", "a", *at).stdout
    assert json.loads(run("show", "a", "--json", *at).stdout)["frozen"] == row["text"]
    assert "a leak" in run("freezes").stdout
    assert "what waited begins" in run("thaw", row["id"]).stdout
    assert "no such freeze any more" in run("thaw", row["id"]).stdout
    assert json.loads(run("freezes", "--json").stdout)["freezes"] == []
    assert json.loads(run("show", "a", "--json", *at).stdout)["frozen"] is None


def test_a_name_that_nothing_has_is_said_by_the_command(desk: Desk) -> None:
    """V54."""
    done = run("freeze", "--why", "a leak", "--definition", "dekc")
    assert "It may hold nothing: no definition of host" in done.stdout
    told = run("freeze", "--why", " ", code=2).stderr
    assert "must say why" in told
    run("thaw", json.loads(run("freezes", "--json").stdout)["freezes"][0]["id"])


def test_requirements_are_set_and_listed_by_commands(desk: Desk) -> None:
    """V55."""
    assert "freeze: required of each host" in run("trust", "enable", "freeze").stdout
    assert "as before" in run("trust", "enable", "freeze").stdout
    rows = json.loads(run("trust", "status", "--json").stdout)["requirements"]
    assert {row["name"]: row["required"] for row in rows} == {
        "rules": False,
        "budgets": False,
        "freeze": True,
        "protect": False,
    }
    assert {row["name"] for row in rows if row["lacking"]} == {"rules", "budgets", "protect"}
    assert "freeze" in run("trust", "status").stdout
    assert "does not have it itself" in run("trust", "enable", "rules", code=2).stderr
    assert "required no longer" in run("trust", "disable", "freeze").stdout
