"""The statuses that a subscriber sees, and what runs next after a cancel."""

from __future__ import annotations

import copy
import enum
import json
import pickle
from typing import Any

import pytest

from tests.support.agents import Held, completed, told_by_users, wake
from tests.support.closing import closing_late
from tests.support.loops import soon
from understudy import (
    Agent,
    Completed,
    Failed,
    Interrupted,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    StopReason,
    approve,
    call,
    respond,
    tool,
)
from understudy.actors import AgentRef, ChildStatus, StatusChanged, Subscription
from understudy.cluster import HostPhase
from understudy.journal import IndexStatus
from understudy.middleware import SubAgent


@tool
def refund(order_id: str) -> str:
    """Pay money back."""
    return f"refunded {order_id}"


@pytest.mark.parametrize("kind", [Status, ChildStatus, IndexStatus, HostPhase, StopReason])
def test_a_status_is_equal_to_its_text_and_prints_its_name(kind: type[enum.Enum]) -> None:
    for member in kind:
        text = member.value
        assert member == text
        assert {member: 1}[text] == 1
        assert kind(text) is member
        assert str(member) == f"{member}" == f"{kind.__name__}.{member.name}"
        assert json.dumps(member) == json.dumps(text)
        assert pickle.loads(pickle.dumps(member)) is copy.deepcopy(member) is member
        match member:
            case str(found):
                assert found == text
            case _:
                pytest.fail("a status is a text")


async def test_the_status_of_a_listed_agent_is_compared_with_a_text() -> None:
    async with Runtime([Agent("a", ScriptedModel(lambda _: "done"))]) as runtime:
        await soon(runtime.spawn("a", "a-1").run("Hi."))
        (info,) = await soon(runtime.agents(status="idle"))
        assert info.status == "idle" != info.status.name
        assert (await soon(runtime.count()))[info.status] == 1


async def statuses_until(subscription: Subscription, last: Status) -> list[Status]:
    """The statuses up to the first `last` that follows a running one."""
    seen: list[Status] = []
    async for event in subscription:
        if isinstance(event.event, StatusChanged):
            seen.append(event.event.status)
            if seen[-1] is last and Status.RUNNING in seen:
                break
    subscription.close()
    return seen


async def passive(ref: AgentRef) -> int:
    """Passivate the agent; the number of its last event."""
    await soon(ref.stop(block=False))
    subscription, last = ref.events(), 0
    async for event in subscription:
        last = max(last, event.seq or 0)
        if isinstance(event.event, StatusChanged) and event.event.status is not Status.RUNNING:
            break
    subscription.close()
    return last


async def test_an_agent_that_is_activated_for_a_run_is_never_seen_idle_before_it() -> None:
    async with Runtime([Agent("a", ScriptedModel(lambda _: "done"))]) as runtime:
        ref = runtime.spawn("a", "a-1")
        await soon(ref.run("one"))
        subscription = ref.events(after=await passive(ref))
        await soon(ref.run("two"))
        seen = await soon(statuses_until(subscription, Status.IDLE))
        assert seen == [Status.RUNNING, Status.IDLE]


async def test_an_agent_that_is_activated_for_an_answer_is_never_seen_interrupted_before_it() -> (
    None
):
    model = ScriptedModel([call("refund", {"order_id": "17"}), "done"])
    gated = Agent("a", model, tools=[refund], interrupt_on={"refund": True})

    async with Runtime([gated]) as runtime:
        ref = runtime.spawn("a", "a-1")
        outcome = await soon(ref.run("one"))
        assert isinstance(outcome, Interrupted)
        subscription = ref.events(after=await passive(ref))
        await soon(ref.resume(outcome.decide(respond("yes"))))
        seen = await soon(statuses_until(subscription, Status.IDLE))
        assert seen == [Status.RUNNING, Status.IDLE]


async def test_an_agent_that_is_activated_gets_the_status_of_its_last_run() -> None:
    async with Runtime([Agent("a", ScriptedModel(lambda _: "done"))]) as runtime:
        ref = runtime.spawn("a", "a-1")
        await soon(ref.run("one"))
        await soon(ref.stop(block=False))
        assert ref.status() is Status.PASSIVE
        await wake(ref)
        assert ref.status() is Status.IDLE


def recorded(exported: dict[str, Any]) -> list[tuple[str, str]]:
    """The statuses that an agent has had, each with the kind of its record."""
    records = exported["records"]
    return [(record["kind"], record["status"]) for record in records if "status" in record]


def told(exported: dict[str, Any]) -> list[str]:
    return [status for _, status in recorded(exported)]


@pytest.mark.parametrize(
    ("reply", "status"), [("done", "idle"), (RuntimeError("down"), "failed")], ids=str
)
async def test_the_first_and_the_last_record_of_a_run_have_the_status_that_follows_from_them(
    reply: Any, status: str
) -> None:
    """J6: so nobody reads of a run that is over, and that its agent runs."""
    async with Runtime([Agent("a", ScriptedModel([reply]))]) as runtime:
        ref = runtime.spawn("a", "a-1")
        await soon(ref.run("go"))
        exported = await soon(runtime.export("a-1"))
        assert recorded(exported) == [("run_started", "running"), ("run_ended", status)]
        history = await soon(ref.history())
        noted = [each.what for each in history if each.what in ("run_started", "run_ended")]
        assert noted == ["run_started", "run_ended"]
        assert [each.detail["status"] for each in history if each.what == "status"] == [
            "running",
            status,
        ]


async def test_an_agent_whose_next_run_waits_does_not_come_to_rest_between_the_two() -> None:
    held = Held("one")
    async with Runtime([Agent("a", ScriptedModel([held, "two"]))]) as runtime:
        ref = runtime.spawn("a", "a-1")
        first, subscription = ref.run("go"), ref.events()
        await soon(held.entered.wait())
        second = ref.run("go on")
        await soon(ref.queue())
        held.release.set()
        await soon(first)
        await soon(second)
        exported = await soon(runtime.export("a-1"))
        assert recorded(exported) == [("run_started", "running"), ("run_ended", "idle")]
        assert await soon(statuses_until(subscription, Status.IDLE)) == told(exported)


async def test_an_agent_whose_next_run_is_cancelled_before_it_begins_comes_to_rest() -> None:
    """The end of the run before it said that it follows."""
    model, closing = Held("one"), Held()
    async with Runtime([closing_late(closing, model)]) as runtime:
        ref = runtime.spawn("desk", "a-1")
        first, subscription = ref.run("go"), ref.events()
        await soon(model.entered.wait())
        await soon(ref.send("more", message_id="m"))
        model.release.set()
        await soon(closing.entered.wait())
        await soon(ref.cancel_message("m"))
        closing.release.set()
        await soon(first)
        assert recorded(await soon(runtime.export("a-1"))) == [
            ("run_started", "running"),
            ("status_noted", "idle"),
        ]
        assert await soon(statuses_until(subscription, Status.IDLE)) == ["running", "idle"]


async def test_a_message_that_comes_before_the_task_of_a_run_has_ended_begins_the_next_one() -> (
    None
):
    closing = Held()
    async with Runtime([closing_late(closing, "one", "two")]) as runtime:
        ref = runtime.spawn("desk", "a-1")
        first, subscription = ref.run("go"), ref.events()
        assert await soon(statuses_until(subscription, Status.IDLE)) == ["running", "idle"]
        second = ref.run("go on")
        await soon(ref.queue())
        closing.release.set()
        outcomes = [completed(await soon(each)) for each in (first, second)]
        assert [outcome.text for outcome in outcomes] == ["one", "two"]
        assert told(await soon(runtime.export("a-1"))) == ["running", "idle"] * 2


async def test_who_hears_that_a_run_has_failed_has_it_retried_though_its_task_has_not_ended() -> (
    None
):
    closing = Held()
    async with Runtime([closing_late(closing, RuntimeError("down"), "done")]) as runtime:
        ref = runtime.spawn("desk", "a-1")
        subscription = ref.events()
        failed = ref.run("go")
        assert (await soon(statuses_until(subscription, Status.FAILED)))[-1] is Status.FAILED
        await soon(closing.entered.wait())
        again = ref.retry()
        await soon(ref.state())
        closing.release.set()
        assert isinstance(await soon(failed), Failed)
        assert isinstance(await soon(again), Completed)


@pytest.mark.parametrize("queued_first", [True, False])
async def test_after_a_cancel_a_waiting_run_starts_and_takes_the_messages_queued_before_it(
    queued_first: bool,
) -> None:
    held = Held("never")
    model = ScriptedModel([held, "second"])

    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        first = ref.run("first")
        await soon(held.entered.wait())
        if queued_first:
            await soon(ref.send("queued"))
        waiting = ref.run("waiting")
        if not queued_first:
            await soon(ref.send("queued"))
        assert isinstance(await soon(ref.cancel()), Stopped)
        assert isinstance(await soon(first), Stopped)
        assert isinstance(await soon(waiting), Completed)
        assert ("queued" in told_by_users(model.requests[-1])) is queued_first


async def test_after_a_cancel_messages_that_were_only_sent_wait_for_the_next_message() -> None:
    held = Held("never")
    model = ScriptedModel([held, "second"])

    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        first = ref.run("first")
        await soon(held.entered.wait())
        await soon(ref.send("queued"))
        await soon(ref.cancel())
        assert isinstance(await soon(first), Stopped)
        assert ref.status() is Status.CANCELLED
        assert len(model.requests) == 1
        assert isinstance(await soon(ref.run("next")), Completed)
        assert told_by_users(model.requests[-1])[-2:] == ["queued", "next"]


async def test_the_audit_lists_decisions_of_nested_agents_in_their_order() -> None:
    def gated(name: str, *replies: Any, **options: Any) -> Agent:
        gate = {"refund": True}
        return Agent(name, ScriptedModel([*replies]), interrupt_on=gate, **options)

    kid = gated("kid", call("refund", {"order_id": "1"}), "paid", tools=[refund], description="-")
    boss = gated(
        "boss",
        call("task", {"task_name": "kid", "instructions": "pay"}),
        call("refund", {"order_id": "2"}),
        "done",
        tools=[refund],
        middleware=[SubAgent([kid], general_purpose=False)],
    )
    async with Runtime([boss]) as runtime:
        ref = runtime.spawn("boss")
        outcome: Any = await soon(ref.run("go"))
        while isinstance(outcome, Interrupted):
            outcome = await soon(ref.resume(outcome.decide(approve())))
        assert isinstance(outcome, Completed)
        decided = await soon(ref.decisions())
        assert [record.request.arguments["order_id"] for record in decided] == ["1", "2"]
