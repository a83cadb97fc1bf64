"""Votes by the command line: what is missing is shown, and one vote more is said to be one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn, interrupted
from tests.support.command_line import Desk, found_by_commands, run
from tests.support.oidc_provider import provider
from tests.support.web_server import served
from understudy import Agent, Runtime, approve, call, tool
from understudy.trust import Person, approval
from understudy.web import ui

PEOPLE = {"ann": ["finance"], "bob": ["finance"]}


@contextmanager
def voted_on(folder: Path, people: Any, **terms: Any) -> Iterator[Desk]:
    """A runtime with a call that two persons must agree to, and one that needs one decision."""
    paid: list[tuple[str, int]] = []

    @tool
    def pay(order: str, amount: int) -> str:
        paid.append((order, amount))
        return "paid"

    both = [call("pay", {"order": "17", "amount": 20}), "Paid."]
    gates: dict[str, Any] = {"two": {"approval": approval({"finance": 2}, **terms)}, "any": True}
    made = [
        Agent(name, by_turn(*both), tools=[pay], interrupt_on={"pay": gate})
        for name, gate in gates.items()
    ]
    store = f"sqlite:///{folder / 'votes.db'}"
    with (
        Runtime(made, store=store, people=people) as runtime,
        found_by_commands(runtime, store) as url,
    ):
        yield Desk(store, url, runtime, paid)


@pytest.fixture
def voting(tmp_path: Path) -> Iterator[Desk]:
    with voted_on(tmp_path, PEOPLE) as desk:
        yield desk


def ask(desk: Desk, agent: str = "two") -> str:
    outcome = interrupted(desk.runtime.spawn(agent, f"{agent}-1").run("Pay.").get(timeout=60))
    return str(outcome.requests[0].id)


@pytest.mark.slow
def test_a_vote_is_recorded_and_what_is_missing_is_said(voting: Desk) -> None:
    request = ask(voting)
    assert "must agree: 2 of finance" in run("approve", request, code=2).stderr
    voted = run("approve", request, "-y").stdout
    assert "your vote is recorded: approved" in voted
    assert "it still waits: 1 more of finance is missing" in voted
    assert voting.paid == []
    done = voting.json("approve", request, "-y")
    assert done["open"] == {request: "1 more of finance is missing"}
    shown = run("approve", request, code=2).stderr
    assert "vote      approved by ann, " in shown
    assert "missing   1 more of finance" in shown
    voting.runtime.get("two-1").resume(approve(by="bob")).get(timeout=60)
    assert voting.paid == [("17", 20)]
    assert voting.json("approve", request, "-y")["repeated"] is True


@pytest.mark.slow
@pytest.mark.parametrize("where", ["store", "server"])
def test_votes_and_what_is_missing_are_listed(voting: Desk, where: str) -> None:
    request = ask(voting)
    run("approve", request, "-y")
    at = ["--store", voting.store] if where == "store" else []
    [row] = voting.json("pending", *at)["requests"]
    assert [vote["name"] for vote in row["votes"]] == ["ann"]
    assert row["missing"] == "1 more of finance"
    assert "1 more of finance" in run("pending", *at).stdout
    shown = run("show", "two-1", *at).stdout
    assert "(1 more of finance is missing): understudy approve" in shown
    assert "approved by ann" in shown
    [told] = voting.json("show", "two-1", *at)["requests"]
    assert told["missing"] == "1 more of finance"


@pytest.mark.parametrize(
    ("people", "said"),
    [
        ({"ann": ["finance"]}, ["you       vote, as finance"]),
        (
            {"ann": ["oncall"]},
            ["you       may not vote: 'ann' has none of", "--break-glass --note"],
        ),
        ({"ann": []}, ["you       vote for bob until ", ", as finance"]),
        (None, ["you       may not vote: no people are known here"]),
    ],
)
def test_before_a_vote_the_command_says_for_whom_it_counts_or_why_it_does_not(
    tmp_path: Path, people: Any, said: list[str]
) -> None:
    """V39."""
    others = {"bob": ["finance"], "cy": ["finance"], "olga": ["oncall"]}
    given = None if people is None else {**others, **people}
    with voted_on(tmp_path, given, break_glass={"oncall": 1}) as desk:
        request = ask(desk)
        if people == {"ann": []}:
            until = desk.runtime.now().get(timeout=60) + timedelta(hours=1)
            desk.runtime.delegate(
                from_="bob", to="ann", roles=["finance"], until=until, reason="away"
            ).get(timeout=60)
        shown = run("approve", request, code=2).stderr
        for text in said:
            assert text in shown
        is_voter = "may not vote" not in said[0]
        run("approve", request, "-y", code=0 if is_voter else 4)
        if is_voter:
            assert "you       have voted" in run("approve", request, code=2).stderr


def test_many_at_once_leave_out_what_several_must_agree_to(voting: Desk) -> None:
    request, other = ask(voting), ask(voting, "any")
    done = run("approve", "--all", "--tool", "pay", "-y")
    told = f"left out is {request}: several persons must agree to it, decide each by itself"
    assert told in done.stderr
    assert other in done.stdout
    assert request not in done.stdout
    [row] = voting.json("pending")["requests"]
    assert (row["id"], row["votes"]) == (request, [])


def test_who_may_not_vote_is_refused_with_the_reason_and_the_remedy(tmp_path: Path) -> None:
    with voted_on(tmp_path, people=None) as desk:
        request = ask(desk)
        told = run("approve", request, "-y", code=4).stderr
        assert "no people are known: give Runtime(people=...)" in told
        [row] = desk.json("pending")["requests"]
        assert row["votes"] == []
    # Nobody votes by a file: a server knows the people.
    told = run("approve", request, "-y", "--store", desk.store, code=5).stderr
    assert "start `understudy serve`, or give --url" in told


@pytest.mark.slow
def test_a_command_votes_by_the_token_of_a_provider_and_in_another_name_by_its_right(
    tmp_path: Path,
) -> None:
    """V42, V43."""
    may = frozenset({"read", "decide", "impersonate"})
    with provider() as idp:
        people = {(idp.issuer, "7"): Person(id="p-7", name="Bob", roles=frozenset({"finance"}))}
        with (
            voted_on(tmp_path, {**PEOPLE, **people}) as voting,
            served(ui(voting.runtime, auth=idp.auth(may=may))) as url,
        ):
            request = ask(voting)
            told = run("approve", request, "-y", "--as", "bob", code=1).stderr
            assert "impersonate" in told
            at = ["--url", url, "--token"]
            token = idp.token(preferred_username="bob")
            told = run("approve", request, "-y", *at, token, code=4).stderr
            assert "knows nobody by the name 'bob'" in told
            assert voting.json("pending")["requests"][0]["votes"] == []
            done = run("approve", request, "-y", "--as", "Zo\u00eb", *at, idp.token(sub="7"))
            assert "1 more of finance is missing" in done.stdout
            [row] = voting.json("pending")["requests"]
    [vote] = row["votes"]
    assert (vote["person"], vote["assurance"], vote["acting_for"]) == ("p-7", "idp", "Zo\u00eb")


@pytest.mark.slow
def test_the_glass_is_broken_with_a_reason_and_its_review_is_listed(tmp_path: Path) -> None:
    people = {"ann": ["oncall"], "bob": ["finance"], "cy": ["finance"]}
    with voted_on(tmp_path, people, break_glass={"oncall": 1}) as desk:
        request = ask(desk)
        told = run("approve", request, "--break-glass", "-y", code=2).stderr
        assert "--break-glass goes with --note" in told
        shown = run("approve", request, code=2).stderr
        assert "terms     In an emergency 1 of oncall may break the glass" in shown
        run("approve", request, "--break-glass", "--note", "on fire", "-y")
        desk.runtime.get("two-1").outcome().get(timeout=60)
        assert desk.paid == [("17", 20)]
        shown = run("show", "two-1").stdout
        assert "glass broken by ann: on fire" in shown
        assert f"understudy close-review two-1 {request}" in shown
        [row] = desk.json("reviews")["reviews"]
        assert (row["id"], row["by"], row["note"]) == (request, "ann", "on fire")
        assert "on fire" in run("reviews").stdout
        own = run("close-review", "two-1", request, code=4).stderr
        assert "who broke the glass does not review it" in own
        desk.runtime.get("two-1").close_review(request, by="bob").get(timeout=60)
        assert desk.json("reviews")["reviews"] == []


def test_commands_ask_for_what_is_protected_vote_on_it_and_delegate(tmp_path: Path) -> None:
    """V44, V45."""
    people: Any = {"ann": ["finance"], "bob": ["finance"], "cy": []}
    protect: Any = {"delete": approval({"finance": 1}, never=["requester"])}
    store = f"sqlite:///{tmp_path / 'votes.db'}"
    echo = Agent("echo", by_turn("Hello."))
    with (
        Runtime([echo], store=store, people=people, protect=protect) as runtime,
        found_by_commands(runtime, store),
    ):
        runtime.spawn("echo", "e").run("go", by="cy").get(timeout=60)
        told = run("delete", "e", "-y", code=4).stderr
        assert "persons must agree, and 1 more of finance is missing" in told
        [request] = json.loads(run("administration", "--json").stdout)["requests"]
        assert request["about"] in run("administration").stdout
        assert "has asked for the call" in run("vote", request["id"], code=4).stderr
        terms = ["--role", "finance", "--reason", "away", "--until"]
        assert "no time zone" in run("delegate", "cy", *terms, "2999-01-01", code=2).stderr
        done = run("delegate", "cy", *terms, "2999-01-01T00:00:00+00:00").stdout
        assert "it is delegated" in done
        [made] = json.loads(run("delegations", "--json").stdout)["delegations"]
        assert made["getter"]["name"] == "cy"
        assert "cy" in run("delegations").stdout
        run("end-delegation", made["id"])
        assert json.loads(run("delegations", "--json").stdout)["delegations"] == []
        runtime.vote(request["id"], approve(by="bob")).get(timeout=60)
        run("delete", "e", "-y")
        assert runtime.agents().get(timeout=60) == []
