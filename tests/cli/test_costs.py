"""What an agent has cost, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.agents import by_turn
from tests.support.command_line import run
from understudy import Agent, Price, Runtime


def test_a_cost_is_shown_of_the_run_of_all_runs_and_of_each_reply(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'desk.db'}"
    prices = {"scripted": Price(input=250_000, output=0)}
    with Runtime([Agent("desk", by_turn("Hello.", "Hello."))], store=store, pricing=prices) as rt:
        ref = rt.spawn("desk", id="t-1")
        ref.run("one").get(timeout=60)
        ref.run("two").get(timeout=60)

    shown = run("show", "t-1", "--store", store).stdout
    assert "cost: $0.2500; of all runs $0.5000" in shown
    found = json.loads(run("show", "t-1", "--store", store, "--json").stdout)
    assert (found["cost"]["usd"], found["total_cost"]["usd"]) == ("0.25", "0.5")
    told = run("history", "t-1", "--store", store).stdout
    assert told.count("\t$0.2500\t") == 2
    assert "model_requests" not in told
    entries = json.loads(run("history", "t-1", "--store", store, "--json").stdout)["entries"]
    (first, _) = [entry for entry in entries if entry["what"] == "reply"]
    assert first["detail"]["model_requests"][0]["cost"] == "0.25"


def test_nothing_is_said_of_a_cost_that_nobody_recorded(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'desk.db'}"
    with Runtime([Agent("desk", by_turn("Hello."))], store=store) as runtime:
        runtime.spawn("desk", id="t-1").run("one").get(timeout=60)

    assert "cost" not in run("show", "t-1", "--store", store).stdout
    assert "$" not in run("history", "t-1", "--store", store).stdout
