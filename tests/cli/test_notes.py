"""What people write beside requests, by the command line."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from tests.support.agents import interrupted
from tests.support.command_line import Desk, run


def ask(desk: Desk) -> str:
    """An agent that waits for a person; the id of its request."""
    outcome = interrupted(desk.runtime.spawn("desk", "t-1").run("Pay 17.").get(timeout=60))
    return str(outcome.requests[0].id)


@pytest.mark.slow
def test_a_request_is_taken_commented_and_assigned_by_commands(desk: Desk) -> None:
    request = ask(desk)
    done = run("take", request[:8], "--until", "2h", "--json")
    claim = json.loads(done.stdout)["claim"]
    length = datetime.fromisoformat(claim["until"]) - datetime.fromisoformat(claim["at"])
    assert timedelta(hours=1, minutes=59) < length <= timedelta(hours=2)
    assert "it is yours until" in run("take", request).stdout
    assert f"({claim['name']} has it)" in run("pending").stdout
    assert "the comment is written" in run("comment", request, "Who is that?").stdout
    assert "it is assigned" in run("assign", request, "bob").stdout
    shown = run("notes", request).stdout
    for text in ("has it until", "assigned to bob by", "Who is that?"):
        assert text in shown
    assert "it is not yours any more" in run("take", request, "--release").stdout
    assert "it is assigned to nobody" in run("assign", request, "--nobody").stdout
    stored = json.loads(run("notes", f"t-1/{request}", "--json", "--store", desk.store).stdout)
    assert (stored["claim"], stored["assignment"]) == (None, None)
    assert [each["text"] for each in stored["comments"]] == ["Who is that?"]


@pytest.mark.slow
def test_what_is_snoozed_is_listed_when_it_is_asked_for(desk: Desk) -> None:
    request = ask(desk)
    assert "you do not see it until then" in run("snooze", request, "--until", "1d").stdout

    def listed(*given: str) -> int:
        return len(json.loads(run("pending", "--json", *given).stdout)["requests"])

    assert [listed(), listed("--of", "all"), listed("--of", "mine")] == [0, 1, 0]
    assert listed("--of", "nobody", "--store", desk.store) == 1
    assert "it is in your list again" in run("snooze", request, "--wake").stdout
    assert listed() == 1
    assert "by --url" in run("pending", "--of", "mine", "--store", desk.store, code=2).stderr


@pytest.mark.parametrize(
    ("given", "code", "problem"),
    [
        (("take", "{}", "--until", "soon"), 2, "a span such as 15m"),
        (("take", "{}", "--until", "1h", "--release"), 2, "leave --until out"),
        (("take", "{}", "--until", "90d"), 2, "within the next 30 days"),
        (("snooze", "{}"), 2, "give --until, or --wake"),
        (("assign", "{}"), 2, "give the name of a person, or --nobody"),
        (("comment", "{}", " "), 2, "the comment is empty"),
        (("take", "t-1/none"), 3, "no request"),
        (("notes", "none"), 3, "no request that waits begins with 'none'"),
    ],
)
def test_a_wrong_command_is_refused_and_writes_nothing(
    desk: Desk, given: tuple[str, ...], code: int, problem: str
) -> None:
    request = ask(desk)
    words = [each.replace("{}", request) for each in given]
    assert problem in run(*words, code=code).stderr
    [pending] = desk.runtime.pending().get(timeout=60)
    assert pending.notes.count == 0
