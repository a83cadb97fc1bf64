"""The commands that list decisions, what needs a person, and what models used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.agents import by_turn, interrupted
from tests.support.command_line import found_by_commands, run
from understudy import Agent, Runtime, approve, call, tool


@tool
def refund(order_id: str, amount: int) -> str:
    """Pay money back."""
    return f"refunded {amount}"


def desk() -> Agent:
    model = by_turn(call("refund", {"order_id": "17", "amount": 20}), "Done.")
    return Agent("desk", model, tools=[refund], interrupt_on={"refund": True})


@pytest.mark.slow
def test_decisions_and_usage_are_the_same_beside_a_runtime_and_by_its_server(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path / 'desk.db'}"
    with (
        Runtime([desk()], store=store, usage=True) as runtime,
        found_by_commands(runtime, store) as url,
    ):
        outcome = interrupted(runtime.spawn("desk", "a").run("go").get(timeout=60))
        decision = outcome.decide(approve(by="ann", note="checked"))
        runtime.get("a").resume(decision).get(timeout=60)
        found = []
        for at in (("--store", store), ("--url", url)):
            shown = run("decisions", *at)
            fields = shown.stdout.split("\t")
            assert (fields[0], fields[1], fields[4], fields[5]) == ("approve", "ann", "a", "refund")
            assert fields[6].strip() == "order_id=17, amount=20 (checked)"
            assert run("decisions", *at, "--person", "bob").stdout == ""
            assert run("decisions", *at, "--type", "reject").stdout == ""
            assert run("decisions", *at, "--to", "2020-01-01").stdout == ""
            (row,) = json.loads(run("decisions", *at, "--json").stdout)["decisions"]
            assert row["decision"]["note"] == "checked"
            lines = run("usage", *at, "--jsonl").stdout.splitlines()
            (used,) = [json.loads(line) for line in lines]
            assert (used["agent"], used["requests"]) == ("desk", 2)
            assert "unknown" in run("usage", *at).stdout
            found.append((row["request_id"], used["day"], used["input_tokens"]))
        assert found[0] == found[1]
        told = run("decisions", "--store", store, "--from", "yesterday", code=2).stderr
        assert "--from must be a day or a time, such as 2030-01-31, got 'yesterday'" in told


def test_what_needs_a_person_is_listed_with_the_command_that_comes_next(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'desk.db'}"
    down = Agent("flaky", by_turn(RuntimeError("the provider is down")))
    with Runtime([down], store=store) as runtime, found_by_commands(runtime, store) as url:
        for at in (("--store", store), ("--url", url)):
            assert "nothing needs a person" in run("attention", *at).stderr
        runtime.spawn("flaky", "a").run("go").get(timeout=60)
        for at in (("--store", store), ("--url", url)):
            fields = run("attention", *at).stdout.rstrip("\n").split("\t")
            assert (fields[0], fields[1], fields[4]) == ("failed", "a", "see `understudy retry`")
            assert json.loads(run("attention", *at, "--json").stdout)["failed"]["count"] == 1
        checks = json.loads(run("doctor", "--json", "--store", store, "--quick").stdout)["checks"]
        (failed,) = [check for check in checks if check["check"] == "failed"]
        assert failed["detail"] == "a: see `understudy retry`"
