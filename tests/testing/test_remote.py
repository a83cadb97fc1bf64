"""The fake service: it fails as a test says, and its count shows what it did."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, contents
from understudy import Agent, ToolContext, call, tool
from understudy.errors import UsageError
from understudy.testing import Effect, Effects, FakeRemote, Fault, StatusError
from understudy.tools import DidNotHappen, Happened


@pytest.mark.parametrize(
    ("fault", "error", "times"),
    [
        (Fault.no_answer(), TimeoutError, 1),
        (Fault.no_answer(happened=False), TimeoutError, 0),
        (Fault.reset(), ConnectionResetError, 1),
        (Fault.refused(), ConnectionRefusedError, 0),
        (Fault.status(503, happened=True), StatusError, 1),
        (Fault.status(400), StatusError, 0),
        (Fault(lambda: KeyError("own"), happened=True), KeyError, 1),
    ],
)
def test_a_request_fails_as_it_is_told_before_or_after_its_effect(
    fault: Fault, error: type[Exception], times: int
) -> None:
    bank = FakeRemote(fails=[fault], verb="paid")
    with pytest.raises(error):
        bank.send("a kettle", key="k1")
    assert len(bank.effects.of("a kettle")) == times
    assert bank.requests == [Effect("a kettle", "k1")]
    assert bank.send("a kettle", key="k1") == "paid a kettle", "the faults are over"
    assert len(bank.effects) == times + 1


def test_none_among_the_faults_is_a_request_that_succeeds() -> None:
    bank = FakeRemote(fails=[None, Fault.refused()])
    bank.send("one")
    with pytest.raises(ConnectionRefusedError):
        bank.send("two")
    assert [effect.what for effect in bank.effects] == ["one"]


def test_a_service_that_knows_keys_pays_once_for_each() -> None:
    bank = FakeRemote(fails=[Fault.reset()], dedupe=True, verb="paid")
    with pytest.raises(ConnectionResetError):
        bank.send("a kettle", key="k1")
    bank.send("a kettle", key="k1")
    assert bank.effects.repeated() == {}
    bank.send("a kettle", key="k2")
    bank.send("a kettle")
    assert bank.effects.repeated() == {"a kettle": 3}
    assert len(bank.requests) == 4


def test_what_is_paid_is_found_by_what_it_is_for_or_by_its_key() -> None:
    bank = FakeRemote(fails=[Fault.no_answer(), Fault.no_answer(happened=False)], verb="paid")
    for order in ("one", "two"):
        with pytest.raises(TimeoutError):
            bank.send(order, key=f"key of {order}")
    assert bank.find("one") == Happened("paid one")
    assert bank.find(key="key of one") == Happened("paid one")
    assert bank.find("one", key="another one") == DidNotHappen()
    assert bank.find("two") == DidNotHappen()
    assert FakeRemote().find() == DidNotHappen()


def test_a_look_up_has_no_effect_and_fails_likewise() -> None:
    bank = FakeRemote(fails=[Fault.reset()], verb="paid")
    with pytest.raises(ConnectionResetError):
        bank.look_up("a kettle")
    assert bank.look_up("a kettle") == "a kettle is not paid"
    bank.send("a kettle")
    assert bank.look_up("a kettle") == "a kettle is paid"
    assert len(bank.effects) == 1


@pytest.mark.parametrize("fails", [Fault.reset(), "reset", ["reset"], 1])
def test_what_is_no_list_of_faults_is_refused(fails: Any) -> None:
    with pytest.raises(UsageError, match="`fails` is a list of faults"):
        FakeRemote(fails=fails)


def test_effects_are_counted_by_what_they_are() -> None:
    effects = Effects()
    effects.add("one")
    effects.add("two", "k")
    assert not effects.add_once("two", "k")
    assert effects.add_once("two", "another key")
    assert list(effects) == [Effect("one"), Effect("two", "k"), Effect("two", "another key")]
    assert effects.repeated() == {"two": 2}
    assert effects.of("one") == (Effect("one"),)


def test_an_error_of_http_keeps_its_status_in_another_process() -> None:
    error = pickle.loads(pickle.dumps(StatusError(503)))
    assert error.status_code == 503
    assert str(error) == str(StatusError(503))


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault.no_answer, "interrupted"),
        (Fault.reset, "interrupted"),
        (Fault.refused, "failed"),
        (lambda: Fault.status(503), "interrupted"),
        (lambda: Fault.status(400), "failed"),
    ],
)
def test_an_agent_judges_its_faults_as_those_of_a_real_service(
    fault: Callable[[], Fault], outcome: str
) -> None:
    """J4, T2."""
    bank = FakeRemote(fails=[fault()], verb="paid")

    @tool
    async def pay(ctx: ToolContext, order: str) -> str:
        return bank.send(order, key=ctx.call_key)

    agent = Agent("desk", by_turn(call("pay", {"order": "17"})), tools=[pay])
    ((how, _),) = contents(completed(agent.execute_sync("go")).state)
    assert how == outcome
