"""`understudy replay`: what really happened in a store, on the agents of today."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn
from tests.support.command_line import run
from understudy import Agent, Interrupted, Price, Runtime, ScriptedModel, approve, call, tool
from understudy.trust import Rules, deny


@tool
def refund(amount: int) -> str:
    """Refund."""
    return "paid"


def desk(name: str = "desk", **options: Any) -> Agent[Any, Any]:
    return Agent(name, by_turn(call("refund", {"amount": 7})), tools=[refund], **options)


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of an application, whose second version has forgotten a gate."""
    module: Any = types.ModuleType("app_to_replay")
    module.gated = desk(interrupt_on={"refund": True})
    module.forgotten = desk()
    module.two = lambda: [desk(), desk("shop")]
    module.other = desk("shop")
    module.runtime = Runtime([desk()], rules=Rules(deny("refund", name="never")))
    module.model = ScriptedModel(lambda request: "Done.")
    module.asking = Runtime(
        [Agent("desk", module.model, tools=[refund])],
        pricing={"scripted": Price(input=100_000, output=0)},
    )
    monkeypatch.setitem(sys.modules, "app_to_replay", module)
    return module


@pytest.fixture
def store(tmp_path: Path, program: Any) -> str:
    """Three conversations, of which one waits for a person."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Runtime([program.gated], store=url) as runtime:
        for number in range(3):
            ref = runtime.spawn("desk", id=f"ticket-{number}")
            outcome = ref.run("Refund 7").get()
            assert isinstance(outcome, Interrupted)
            if number:
                ref.resume(dict.fromkeys(outcome.requests, approve(by="ann"))).get()
    return url


def test_the_first_line_says_what_would_run_unasked(store: str) -> None:
    said = run("replay", "--since", "7d", "app_to_replay:forgotten", "--store", store, code=1)
    first, *rest = said.stdout.splitlines()
    assert first == "DANGER: 3 calls would now run unasked: refund (3)"
    assert sum("approved by ann" in line for line in rest) == 2
    assert max(map(len, said.stdout.splitlines())) <= 80
    said = run("replay", "app_to_replay:gated", "--store", store)
    assert said.stdout.startswith("No difference in 3 runs of 3 conversations\n")


def test_the_store_is_that_of_the_runtime_unless_another_is_given(store: str, program: Any) -> None:
    program.kept = Runtime([program.gated], store=store)
    program.in_memory = Runtime([program.gated])
    assert "app_to_replay" not in run("replay", "app_to_replay:kept").stderr
    assert "names no store" in run("replay", "app_to_replay:in_memory", code=2).stderr
    run("replay", "app_to_replay:in_memory", "--store", store)


def test_it_says_the_same_as_data(store: str) -> None:
    said = run("replay", "app_to_replay:forgotten", "--store", store, "--json", code=1)
    (found,) = json.loads(said.stdout)["replays"]
    assert (found["agent"], found["conversations"], found["runs"]) == ("desk", 3, 3)
    assert len(found["changes"]["newly_unasked"]) == 3
    assert found["cost"]["now"] == {"usd": "0", "replies": 0, "unknown": 0}


def test_what_fails_can_be_chosen(store: str) -> None:
    at = ("--store", store)
    run("replay", "app_to_replay:forgotten", *at, "--fail-on", "newly-asked")
    run("replay", "app_to_replay:forgotten", *at, "--fail-on", "different", code=1)
    run("replay", "app_to_replay:gated", *at, "--fail-on", "different")
    said = run("replay", "app_to_replay:gated", *at, "--fail-on", "worse", code=2)
    assert "--fail-on worse" in said.stderr


def test_the_rules_of_a_runtime_are_judged(store: str) -> None:
    at = ("app_to_replay:runtime", "--store", store)
    said = run("replay", *at)
    assert "newly denied: 3" in said.stdout
    run("replay", *at, "--fail-on", "newly-denied", code=1)


def test_each_agent_of_a_program_is_replayed_and_others_are_left_out(store: str) -> None:
    said = run("replay", "app_to_replay:two", "--store", store, code=1).stdout
    assert said.startswith("DANGER: 3 calls")
    assert "Nothing was replayed." in said
    assert (
        "no run of 'shop'" in run("replay", "app_to_replay:other", "--store", store, code=2).stderr
    )
    said = run("replay", "app_to_replay:two", "--agent", "desk", "--store", store, code=1).stdout
    assert "shop" not in said
    said = run("replay", "app_to_replay:two", "--agent", "x", "--store", store, code=2).stderr
    assert "has no agent 'x'; it has: 'desk', 'shop'" in said


def test_a_window_without_runs_is_an_error(tmp_path: Path, program: Any) -> None:
    """Else a check that checks nothing would pass."""
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    with Runtime([program.gated], store=url):
        pass
    said = run("replay", "app_to_replay:gated", "--store", url, code=2).stderr
    assert "no run of 'desk' began since" in said
    assert "--since" in said


def test_a_limit_that_leaves_conversations_out_is_told(store: str) -> None:
    said = run("replay", "app_to_replay:forgotten", "--store", store, "--limit", "1", code=1).stdout
    assert "more than 1 conversations: give a higher --limit" in said


def test_with_a_budget_the_model_is_asked(store: str, program: Any) -> None:
    """A request costs 0.10 USD here; the one that passes the budget is paid."""
    said = run("replay", "app_to_replay:asking", "--store", store, "--budget", "0.15").stdout
    assert len(program.model.requests) == 2
    assert "the model was asked" in said
    assert "the budget of the replay is used up" in said
    assert "$0.2000 for this replay" in said
    assert "then: desk calls refund" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["app_to_replay:gated"], "names no store: say which"),
        (["app_to_replay:gated", "--store", "STORE", "--since", "7 days"], "such as 30d"),
        (["app_to_replay:gated", "--store", "STORE", "--budget", "much"], "--budget much"),
        (["app_to_replay:gated", "--store", "STORE", "--budget", "5"], "needs to know what it"),
        (["app_to_replay:two", "--store", "STORE", "--budget", "5"], "for one agent"),
        (["app_to_replay:nothing", "--store", "STORE"], "has no nothing"),
        (["app_to_replay", "--store", "STORE"], "write module:attr"),
    ],
)
def test_wrong_options_are_refused(store: str, arguments: list[str], said: str) -> None:
    given = [store if each == "STORE" else each for each in arguments]
    assert said in run("replay", *given, code=2).stderr


def test_a_store_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "no.db"
    assert (
        "no SQLite file"
        in run("replay", "app_to_replay:gated", "--store", f"sqlite:///{file}", code=5).stderr
    )
    file.write_text("this is no database, and long enough to be looked at" * 100)
    run("replay", "app_to_replay:gated", "--store", f"sqlite:///{file}", code=5)
