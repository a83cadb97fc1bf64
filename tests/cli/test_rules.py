"""`understudy rules`: what rules match, and would have said; and their end (V11, V12, V10)."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn, completed
from tests.support.command_line import run
from tests.support.web_server import served
from understudy import Agent, Runtime, UsageError, call, tool
from understudy.trust import Rules, allow, approval, ask, deny
from understudy.web import TokenAuth, ui

TOKEN = "a token that is long enough"


@tool
def refund(amount: int) -> str:
    """Refund."""
    return "paid"


def desk() -> Agent[Any, str]:
    return Agent("desk", by_turn(call("refund", {"amount": 7})), tools=[refund])


GOOD = Rules(
    deny("refund", name="never", when=lambda arguments, view: arguments["amount"] > 1000),
    ask("refund", approval({"finance": 1}), name="one"),
    version=7,
)


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of an application."""
    module: Any = types.ModuleType("app_with_rules")
    module.rules = GOOD
    module.typo = Rules(deny("refnud"))
    module.loose = Rules(allow("refund"))
    module.agents = lambda: [desk()]
    module.people = {"ann": ["finance"]}
    module.few = {"ann": ["legal"]}
    module.runtime = Runtime([desk()], rules=GOOD, people=module.people)
    monkeypatch.setitem(sys.modules, "app_with_rules", module)
    return module


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_check_says_what_each_rule_matches() -> None:
    """Of agents that are named, or of those of a runtime that has the rules."""
    said = run("rules", "check", "app_with_rules:rules", "--agents", "app_with_rules:agents").stdout
    assert "ok    never: deny refund" in said
    assert "one: ask refund [1 of finance]" in said
    assert said.count("desk/refund") == 2
    assert "nobody can vote" in said
    found = json.loads(run("rules", "check", "app_with_rules:runtime", "--json").stdout)
    assert (found["ok"], found["version"]) == (True, 7)
    assert [rule["matches"] for rule in found["rules"]] == [["desk/refund"], ["desk/refund"]]
    assert [rule["notes"] for rule in found["rules"]] == [[], []]


def test_check_fails_where_a_rule_cannot_do_what_it_says() -> None:
    at = ["--agents", "app_with_rules:agents"]
    said = run("rules", "check", "app_with_rules:typo", *at, code=1).stdout
    assert "did you mean 'refund'?" in said
    few = ["--people", "app_with_rules:few"]
    said = run("rules", "check", "app_with_rules:rules", *at, *few, code=1).stdout
    assert "lacks 1 more of finance" in said
    assert "--agents" in run("rules", "check", "app_with_rules:rules", code=2).stderr
    assert "Rules(...)" in run("rules", "check", "app_with_rules:people", *at, code=2).stderr


def test_trial_says_what_would_change_and_fails_on_request(store: str) -> None:
    with Runtime([desk()], store=store) as runtime:
        completed(runtime.spawn("desk", "t-1").run("go").get(timeout=60))
    at = ["--store", store]
    said = run("rules", "trial", "app_with_rules:rules", *at).stdout
    assert "1 calls of 1 agents" in said
    assert "newly asked: 1" in said
    assert "t-1  desk/refund" in said
    assert "'one'" in said
    found = json.loads(run("rules", "trial", "app_with_rules:runtime", *at, "--json").stdout)
    assert found["changes"]["newly_asked"] == 1
    on = ["--fail-on", "newly-asked", "--fail-on", "newly-unasked"]
    run("rules", "trial", "app_with_rules:rules", *at, *on, code=1)
    run("rules", "trial", "app_with_rules:loose", *at, *on)
    assert (
        "newly_denied"
        in run("rules", "trial", "app_with_rules:rules", *at, "--fail-on", "x", code=2).stderr
    )
    assert (
        "30d"
        in run("rules", "trial", "app_with_rules:rules", *at, "--since", "month", code=2).stderr
    )
    run("rules", "trial", "app_with_rules:rules", *at, "--since", "2w")


def test_trial_looks_into_the_store_of_the_runtime(store: str, program: Any) -> None:
    with Runtime([desk()], store=store) as runtime:
        completed(runtime.spawn("desk", "t-1").run("go").get(timeout=60))
    program.kept = Runtime([desk()], store=store, rules=program.rules, people=program.people)
    assert "1 calls of 1 agents" in run("rules", "trial", "app_with_rules:kept").stdout
    assert "names no store" in run("rules", "trial", "app_with_rules:rules", code=2).stderr


def test_doctor_and_show_say_which_rules_hold(store: str, program: Any) -> None:
    with Runtime([desk()], store=store, rules=GOOD) as runtime:
        runtime.spawn("desk", "t-1").run("go").get(timeout=60)
    assert "version 7, 2 rules" in run("doctor", "--store", store, "--quick").stdout
    app = ["--app", "app_with_rules:runtime"]
    run("doctor", "--store", store, "--quick", *app)
    for rules, said in (
        (None, "does not open this store"),
        (Rules(version=6), "version 6, which is older"),
        (Rules(version=7), "others under version 7"),
    ):
        program.runtime = Runtime([desk()], rules=rules)
        assert said in run("doctor", "--store", store, "--quick", *app, code=1).stdout
    shown = json.loads(run("show", "t-1", "--store", store, "--json").stdout)
    assert shown["held"] is None, "it waits for a person"


@pytest.mark.slow
def test_show_says_why_no_call_starts_at_a_server(store: str) -> None:
    with Runtime([desk()], store=store) as runtime:
        completed(runtime.spawn("desk", "t-1").run("go").get(timeout=60))
        runtime.rules = GOOD
    agent, older = desk(), Rules(version=6)
    auth = TokenAuth(TOKEN, name="ann")
    with (
        Runtime([agent], store=store, rules=older) as runtime,
        served(ui(runtime, auth=auth)) as url,
    ):
        at = ["--url", url, "--token", TOKEN]
        shown = json.loads(run("show", "t-1", *at, "--json").stdout)
        assert shown["held"] == "rules version 6 here, 7 in the store"
        assert "no call starts: rules version 6" in run("show", "t-1", *at).stdout


def test_retire_lets_hosts_without_rules_open_again(store: str) -> None:
    with Runtime([desk()], store=store, rules=GOOD):
        run("rules", "retire", "--store", store, "--by", "ann", code=5)
    with pytest.raises(UsageError, match="rules version 7"), Runtime([desk()], store=store):
        pass
    said = run("rules", "retire", "--store", store, "--by", "ann").stdout
    assert said == "rules version 7 hold no longer\n"
    again = run("rules", "retire", "--store", store, "--by", "ann", "--json").stdout
    assert json.loads(again) == {"retired": None}
    with Runtime([desk()], store=store):
        pass
