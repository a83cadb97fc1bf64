"""The times of a request: what is accepted, and what is refused with the culprit's name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.agents import FakeClock, by_turn, completed, interrupted, reloaded
from understudy import Agent, Defer, Interrupt, Runtime, Stopped, StopReason, UsageError, call, tool
from understudy.middleware import HumanInTheLoop

NO_TIMES = [0, -1, True, "5", float("nan"), float("inf"), 10**400, 1e300, 4e9]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *[({"expires_after": wrong}, "`expires_after`") for wrong in NO_TIMES],
        *[({"remind_after": wrong}, "`remind_after`") for wrong in NO_TIMES],
        *[({"remind_after": [1, wrong]}, "`remind_after`") for wrong in NO_TIMES],
        *[({"escalate_after": {wrong: "boss"}}, "`escalate_after`") for wrong in NO_TIMES],
        ({"remind_after": b"1"}, "`remind_after`"),
        ({"remind_after": [2, 1]}, "must ascend"),
        ({"remind_after": [1, 1]}, "must ascend"),
        ({"escalate_after": {2: "a", 1: "b"}}, "must ascend"),
        ({"escalate_after": {1: ""}}, "audience"),
        ({"escalate_after": {1: None}}, "audience"),
        ({"escalate_after": [1]}, "mapping"),
        ({"escalate_after": "boss"}, "mapping"),
        ({"remind_after": 5, "expires_after": 5}, "below `expires_after`"),
        ({"escalate_after": {9: "boss"}, "expires_after": 5}, "below `expires_after`"),
        ({"expires_after": 5, "on_expiry": "approve"}, "must not approve"),
        ({"expires_after": 5, "on_expiry": None}, "`on_expiry`"),
        ({"on_expiry": "stop"}, "without effect"),
    ],
)
def test_a_time_that_is_not_possible_is_refused(options: dict[str, Any], said: str) -> None:
    """I15."""
    for make in (
        lambda: HumanInTheLoop({"pay": True}, **options),
        lambda: HumanInTheLoop({"pay": options}),
        lambda: Interrupt("Which?", **options),
    ):
        with pytest.raises(UsageError, match=said):
            make()


def agent_with(**options: Any) -> Agent:
    @tool
    def pay(n: int) -> str:
        return "paid"

    @tool
    def mail(n: int) -> str:
        return "sent"

    calls = [call("pay", {"n": 1}), call("mail", {"n": 2})]
    gate = HumanInTheLoop({"pay": options, "mail": True}, remind_after=10, expires_after=60)
    return Agent("desk", by_turn(calls), tools=[pay, mail], middleware=[gate])


def test_the_times_of_a_rule_take_the_place_of_those_for_all_tools() -> None:
    clock = FakeClock()
    agent = agent_with(remind_after=None, expires_after=30, on_expiry="stop")
    first, second = interrupted(agent.execute_sync("go", clock=clock)).requests
    at = clock.time
    assert (first.remind_at, first.expires_at) == ((), at + timedelta(seconds=30))
    assert first.on_expiry == "stop"
    assert second.remind_at == (at + timedelta(seconds=10),)
    assert (second.expires_at, second.on_expiry) == (at + timedelta(seconds=60), "reject")
    assert second.timing.remind_after == (10,)


def test_a_rule_that_does_not_fit_the_times_for_all_tools_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'pay'.*below `expires_after`"):
        agent_with(expires_after=5)


def test_without_a_runtime_an_expiry_counts_when_the_run_is_resumed() -> None:
    clock = FakeClock()
    agent = agent_with(expires_after=30, on_expiry="stop")
    outcome = interrupted(agent.execute_sync("go", clock=clock))
    assert outcome.state.next_due == clock.time + timedelta(seconds=10)
    clock.advance(20)
    again = interrupted(agent.resume_sync(reloaded(outcome.state), clock=clock))
    assert again.requests == outcome.requests
    assert again.state.next_due == clock.time + timedelta(seconds=10)
    clock.advance(20)
    stopped = agent.resume_sync(reloaded(again.state), clock=clock)
    assert isinstance(stopped, Stopped)
    assert stopped.signals.highest is not None
    assert stopped.signals.highest.reason is StopReason.TIME_LIMIT
    assert stopped.state.next_due is None


def test_a_rejection_by_expiry_leaves_the_other_requests_pending() -> None:
    clock = FakeClock()
    agent = agent_with(expires_after=30)
    outcome = interrupted(agent.execute_sync("go", clock=clock))
    clock.advance(40)
    again = interrupted(agent.resume_sync(reloaded(outcome.state), clock=clock))
    assert again.requests == outcome.requests[1:]
    clock.advance(40)
    end = completed(agent.resume_sync(reloaded(again.state), clock=clock))
    assert [line.decision.origin for line in end.state.decisions] == ["expiry", "expiry"]


def test_a_timedelta_is_as_good_as_seconds() -> None:
    minute = timedelta(minutes=1)
    times = {
        "remind_after": minute,
        "escalate_after": {2 * minute: "boss"},
        "expires_after": 3 * minute,
    }
    seconds = {"remind_after": [60], "escalate_after": {120: "boss"}, "expires_after": 180}

    def asked(options: dict[str, Any]) -> tuple[object, ...]:
        (request,) = interrupted(
            agent_with(**options).execute_sync("go", clock=FakeClock())
        ).requests[:1]
        return request.remind_at, request.escalations, request.expires_at

    assert asked(times) == asked(seconds)


def test_a_timedelta_that_is_not_possible_is_refused() -> None:
    for wrong in (timedelta(0), timedelta(days=-1), timedelta(days=365 * 101)):
        with pytest.raises(
            UsageError, match="`expires_after` must be seconds above 0, or a timedelta"
        ):
            Interrupt("Which?", expires_after=wrong)
    with pytest.raises(UsageError, match="Defer"):
        Defer(timedelta(seconds=-1))
    with pytest.raises(UsageError, match="`doubt_ends` must be seconds from 0 on, or a timedelta"):
        Runtime(doubt_ends=timedelta(seconds=-1))
