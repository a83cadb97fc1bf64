"""What an agent waits for, as the index of the store says it: `recover` and `pending` go by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.frozen.samples import (
    START,
    asked,
    bare_request,
    bare_run,
    error,
    halt,
    reply,
    returned,
    tool_call,
)
from understudy.errors import UsageError
from understudy.journal import IndexStatus, index_entry_of, index_status_of
from understudy.state import records as r
from understudy.state.fold import replay
from understudy.stopping import StopSignal, StopSignals

TURN: list[r.Record] = [
    bare_run("desk"),
    r.Reply(turn=0, response=reply(tool_call(0), tool_call(1))),
]
ASKED = [*TURN, r.InterruptsChecked(turn=0, requests=(bare_request("q", "run-1.0.0"),))]
STARTED = r.Started(call_key="run-1.0.1", tool_name="pay", tool_call_id="call_1", attempt=1)
QUEUED = r.MessageQueued(message_id="m", message=asked("more"), steer=False, self_sent=False)
CANCELLED = r.CancelRequested(signal=StopSignal.user_requested("no").to_dict())
STOPPED = StopSignals((StopSignal.user_requested("no"),)).to_dict()
RUNNING = r.StatusNoted(status="running")
QUARANTINED = r.Quarantined(cause="it crashed")


def attempts(count: int) -> list[r.Record]:
    return [r.Attempt(number=number, reply_lost=False) for number in range(1, count + 1)]


def ended(*, status: str | None = None, **fields: Any) -> r.RunEnded:
    return r.RunEnded(end=r.End(**fields), at=START, status=status)


def halted(source: str) -> r.Result:
    request = replace(halt("run-1.0.0"), source=source)
    return r.Result(call_key="run-1.0.0", part=returned(0), halt=request)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], "rest"),
        ([QUEUED], "queued"),
        ([bare_run("desk")], "open"),
        ([bare_run("desk"), *attempts(1)], "open"),
        ([bare_run("desk"), *attempts(2)], "suspect"),
        ([bare_run("desk"), *attempts(3), r.HooksRan()], "open"),
        ([bare_run("desk"), *attempts(3), QUARANTINED], "quarantined"),
        ([bare_run("desk"), QUARANTINED, r.Released()], "open"),
        ([*TURN, r.Paused(turn=0, reason="look")], "waits"),
        (ASKED, "waits"),
        ([*ASKED, STARTED], "open"),
        ([*ASKED, STARTED, r.Result(call_key="run-1.0.1", part=returned(1))], "waits"),
        ([*ASKED, CANCELLED], "open"),
        ([*TURN, STARTED, halted("cook")], "waits"),
        ([*TURN, STARTED, halted("")], "open"),
        ([bare_run("desk"), ended(outcome="completed", text="done")], "rest"),
        ([bare_run("desk"), ended(outcome="completed", text="done"), QUEUED], "queued"),
        ([RUNNING, bare_run("desk"), ended(outcome="failed", error=error()), QUEUED], "rest"),
        (
            [RUNNING, bare_run("desk"), ended(outcome="stopped", signals=STOPPED), QUEUED],
            "rest",
        ),
    ],
)
def test_the_index_says_what_an_agent_waits_for(records: list[r.Record], expected: str) -> None:
    assert index_status_of(replay(records)) is IndexStatus(expected)


def test_an_agent_that_is_halted_while_a_call_goes_on_is_not_taken() -> None:
    """J6: it waits for a person, and a tool of it runs."""
    rest = r.StatusNoted(status="interrupted")
    records: list[r.Record] = [*TURN, STARTED, halted("cook"), rest]
    assert index_entry_of(replay(records)).status is IndexStatus.WAITS
    assert not index_entry_of(replay(records)).takeable
    records.append(r.Result(call_key="run-1.0.1", part=returned(1)))
    assert index_entry_of(replay(records)).takeable


@pytest.mark.parametrize(
    ("records", "takeable"),
    [
        ([], True),
        ([QUEUED], False),
        ([bare_run("desk")], False),
        ([*ASKED, RUNNING], False),
        ([*ASKED, r.StatusNoted(status="interrupted")], True),
        ([bare_run("desk"), RUNNING, ended(outcome="completed")], False),
        (
            [
                bare_run("desk"),
                RUNNING,
                ended(outcome="completed"),
                r.StatusNoted(status="idle"),
            ],
            True,
        ),
        ([bare_run("desk"), RUNNING, ended(outcome="completed", status="idle")], True),
        ([bare_run("desk"), QUARANTINED, r.StatusNoted(status="failed")], True),
    ],
)
def test_an_agent_may_be_taken_once_its_rest_is_recorded(
    records: list[r.Record], takeable: bool
) -> None:
    """J6: not while a run task may be about to go on."""
    assert index_entry_of(replay(records)).takeable is takeable


MIDDLES: dict[str, list[r.Record]] = {
    "nothing": [],
    "attempts": attempts(2),
    "paused status": [r.StatusNoted(status="paused")],
    "cancelled": [CANCELLED],
    "queued": [QUEUED],
    "quarantined": [QUARANTINED],
    "paused": [r.Paused(turn=0, reason="look")],
    "asked": [r.InterruptsChecked(turn=0, requests=(bare_request("q", "run-1.0.0"),))],
    "started": [STARTED],
    "halted": [STARTED, halted("cook")],
    "ended": [ended(outcome="failed", error=error())],
}


@pytest.mark.parametrize("first", MIDDLES)
def test_a_step_is_indexed_by_a_short_way_as_by_the_long_one(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly each commit is in the middle of a step: its entry is told without a look around."""
    states = {}
    for second in MIDDLES:
        try:
            states[second] = replay([*TURN, *MIDDLES[first], *MIDDLES[second]])
        except UsageError:
            assert first == "ended"  # nothing is recorded of a run that is over
    short = {second: index_entry_of(state) for second, state in states.items()}
    monkeypatch.setattr("understudy.journal.index_status.is_in_step", lambda _: False)
    assert {second: index_entry_of(state) for second, state in states.items()} == short
