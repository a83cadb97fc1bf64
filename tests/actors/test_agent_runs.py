"""Runs of an agent: statuses, turns, queued and steering messages, interrupts, own messages."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, UserPromptPart

from tests.support.agents import (
    Held,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    results,
    until_status,
)
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentRef,
    AgentState,
    Completed,
    DecisionError,
    Failed,
    Halt,
    Interrupt,
    Interrupted,
    NotInterrupted,
    Paused,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    StopAgent,
    Stopped,
    StopSignal,
    ToolContext,
    WouldDeadlock,
    approve,
    call,
    dismiss,
    reject,
    respond,
    tool,
)
from understudy.actors import AgentEvent, SelfRunsBounded, StatusChanged
from understudy.errors import RequestChanged, UsageError
from understudy.events import RunFinished
from understudy.middleware import Haltable


@tool
def refund(order: int = 1) -> str:
    return f"refunded {order}"


async def told(ref: AgentRef) -> list[AgentEvent]:
    """All that was told so far and is kept."""
    subscription = ref.events()
    subscription.close()
    return [event async for event in subscription]


async def statuses(ref: AgentRef) -> list[Status]:
    return [e.event.status for e in await told(ref) if isinstance(e.event, StatusChanged)]


def said(state: AgentState) -> list[list[str]]:
    """The user's words, message by message."""
    spoken = [
        [str(part.content) for part in message.parts if isinstance(part, UserPromptPart)]
        for message in state.messages
        if isinstance(message, ModelRequest)
    ]
    return [words for words in spoken if words]


def gated(*replies: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(replies)
    return Agent("gated", model, tools=[refund], interrupt_on={"refund": True}), model


# ------------------------------------------------------------------------ statuses (A1)


ENDS: dict[str, tuple[list[Any], type, Status]] = {
    "completed": (["done"], Completed, Status.IDLE),
    "interrupted": ([call("refund")], Interrupted, Status.INTERRUPTED),
    "failed": ([RuntimeError("down")], Failed, Status.FAILED),
    "paused": (["pause", "done"], Paused, Status.PAUSED),
    "cancelled": (["cancel", "done"], Stopped, Status.CANCELLED),
}


@pytest.mark.parametrize("end", ENDS)
async def test_a_run_leaves_the_status_of_its_outcome_and_records_before_it_tells(end: str) -> None:
    """A1."""
    replies, kind, status = ENDS[end]

    held = Held("done")
    agent, _ = gated(held, *replies) if end in ("paused", "cancelled") else gated(*replies)
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        subscription = ref.events()
        run = ref.run("go")
        if end in ("paused", "cancelled"):
            await soon(held.entered.wait())
            await (ref.pause("lunch") if end == "paused" else ref.cancel())
            held.release.set()
        seen: list[Status] = []
        async with asyncio.timeout(60):
            async for event in subscription:
                if isinstance(event.event, StatusChanged):
                    seen.append(event.event.status)
                    if seen[-1] is status and Status.RUNNING in seen:
                        break
        state = await soon(ref.state())
        assert state.run is not None
        assert state.run.over is (end in ("completed", "failed", "cancelled"))
        outcome = await soon(run)
        assert isinstance(outcome, kind)
        assert ref.status() is status
        assert (await statuses(ref))[-2:] == [Status.RUNNING, status]
        ended = [e.event.outcome for e in await told(ref) if isinstance(e.event, RunFinished)]
        names = {"cancelled": "stopped", "completed": "completed", "failed": "failed"}
        assert ended == ([names[end]] if end in names else []), "what stands is not over"


# ------------------------------------------------------------------------ turns (A2)


async def test_a_run_asked_for_while_one_goes_on_waits_its_turn() -> None:
    """A2."""
    held = Held("first")
    agent, model = gated(held, "second", "third")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        runs = [ref.run(text) for text in ("one", "two", "three")]
        await soon(held.entered.wait())
        assert len(model.requests) == 1
        assert not any(run.done() for run in runs)
        held.release.set()
        assert [completed(await soon(run)).text for run in runs] == ["first", "second", "third"]
        assert said(await soon(ref.state())) == [["one"], ["two"], ["three"]]


async def test_no_idle_moment_is_told_between_runs_that_wait() -> None:
    """A2."""
    held = Held("first")
    agent, _ = gated(held, "second")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        first, second = ref.run("one"), ref.run("two")
        await soon(held.entered.wait())
        before = len(await statuses(ref))
        held.release.set()
        await soon(first)
        await soon(second)
        await until_status(ref, Status.IDLE)
        assert (await statuses(ref))[before:] == [Status.IDLE]


async def test_messages_sent_during_a_run_are_one_user_message_after_it() -> None:
    """A2."""
    held = Held("first")
    agent, model = gated(held, "second")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        run = ref.run("go")
        await soon(held.entered.wait())
        ids = [await soon(ref.send(text)) for text in ("also this", "and that")]
        assert len(set(ids)) == 2
        assert len((await soon(ref.state())).queue) == 2
        before = len(await statuses(ref))
        held.release.set()
        assert completed(await soon(run)).text == "first"
        await until_status(ref, Status.IDLE)
        state = await soon(ref.state())
        assert said(state) == [["go"], ["also this", "and that"]]
        assert not state.queue
        assert len(model.requests) == 2
        assert (await statuses(ref))[before:] == [Status.IDLE]


async def test_a_steering_message_is_seen_by_the_next_model_call_of_the_same_run() -> None:
    """A2."""
    held = Held(call("plain"))
    tools = [tool(plain)]
    model = ScriptedModel([held, "done"])
    async with Runtime([Agent("steered", model, tools=tools)]) as runtime:
        ref = runtime.spawn("steered")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.send("turn left", steer=True))
        held.release.set()
        outcome = completed(await soon(run))
        assert outcome.text == "done"
        assert model.requests[1].prompt == "turn left"
        assert len(model.requests) == 2
        assert not outcome.state.queue
        assert_valid_history(outcome.state)


def plain() -> str:
    return "plain"


async def test_a_steering_message_during_the_last_reply_is_answered_by_the_same_run() -> None:
    """A2: it is not put off to another run."""
    held = Held("nearly done")
    agent, model = gated(held, "now done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.send("one more thing", steer=True))
        held.release.set()
        assert completed(await soon(run)).text == "now done"
        assert model.requests[1].prompt == "one more thing"


async def test_a_message_sent_to_an_idle_agent_starts_a_run() -> None:
    """A2."""
    agent, model = gated("done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        subscription = ref.events()
        await soon(ref.send("hello"))
        async with asyncio.timeout(60):
            async for event in subscription:
                if isinstance(event.event, RunFinished):
                    break
        assert [request.prompt for request in model.requests] == ["hello"]


async def test_a_message_id_sent_again_is_one_message() -> None:
    """J14."""
    held = Held("first")
    agent, _ = gated(held, "second")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        run = ref.run("go")
        await soon(held.entered.wait())
        for _ in range(3):
            assert await soon(ref.send("once", message_id="m1")) == "m1"
        held.release.set()
        await soon(run)
        await until_status(ref, Status.IDLE)
        assert await soon(ref.send("once", message_id="m1")) == "m1"
        assert said(await soon(ref.state())) == [["go"], ["once"]]
        assert ref.status() is Status.IDLE


@pytest.mark.parametrize("when", ["while it waits", "while it runs", "when it is over"])
async def test_a_run_asked_for_again_by_its_message_id_is_the_same_run(when: str) -> None:
    """J14: a repeat attaches to the first."""
    held = Held("first")
    agent, model = gated(held, "the one", "another")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        if when == "while it waits":
            blocking = ref.run("before")
            await soon(held.entered.wait())
            first, again = (ref.run("go", message_id="m1") for _ in range(2))
            held.release.set()
            await soon(blocking)
        else:
            first = ref.run("go", message_id="m1")
            await soon(held.entered.wait())
            if when == "when it is over":
                held.release.set()
                await soon(first)
            again = ref.run("go", message_id="m1")
            held.release.set()
        one, other = completed(await soon(first)), completed(await soon(again))
        assert one.run_id == other.run_id
        assert said(await soon(ref.state())).count(["go"]) == 1
        assert len(model.requests) == (2 if when == "while it waits" else 1)


async def test_a_message_id_that_was_refused_is_free() -> None:
    """J14: only what was accepted is attached to."""
    agent, _ = gated(call("refund"), "decided", "done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("go")))
        with pytest.raises(NotInterrupted):
            await soon(ref.run("next", message_id="m1", if_interrupted="error"))
        await soon(ref.resume(outcome.decide(approve())))
        again = ref.run("next", message_id="m1", if_interrupted="error")
        assert completed(await soon(again)).text == "done"


async def test_a_message_that_was_sent_is_not_run_again_under_its_id() -> None:
    """J14: ids are unique in an agent, whichever way a message came."""
    held = Held("first")
    agent, _ = gated(held, "second", "third")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.send("once", message_id="m1"))
        again = ref.run("once", message_id="m1")
        held.release.set()
        await soon(run)
        assert isinstance(await soon(again), Completed)
        await until_status(ref, Status.IDLE)
        assert said(await soon(ref.state())) == [["go"], ["once"]]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_what_was_queued_before_a_failure_keeps_its_place_before_newer_messages(
    end: str,
) -> None:
    """A2."""
    held = Held(RuntimeError("down"))
    agent, model = gated(held, "done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.send("older"))
        if end == "cancelled":
            assert isinstance(await soon(ref.cancel()), Stopped)
        else:
            held.release.set()
            assert isinstance(await soon(run), Failed)
        await until_status(ref, Status.FAILED, Status.CANCELLED)
        assert len(model.requests) == 1, "what is queued waits for a clean end"
        assert completed(await soon(ref.run("newer"))).text == "done"
        assert said(await soon(ref.state()))[-1] == ["older", "newer"]


@pytest.mark.parametrize("how", ["stops", "halts"])
async def test_what_was_queued_is_run_after_a_run_that_nobody_cancelled_was_stopped(
    how: str,
) -> None:
    """A2: the agent is idle then, and the run of what is queued is not left to its next start."""
    held = Held()

    @tool
    async def ends(what: str = "") -> str:
        held.entered.set()
        await held.release.wait()
        raise Halt("enough") if how == "halts" else StopAgent(StopSignal.error("enough"))

    model = ScriptedModel([call("ends"), "next"])
    agent = Agent("desk", model, tools=[ends], middleware=[Haltable()])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.send("later", message_id="m"))
        after = ref.outcome(message_id="m")
        held.release.set()
        ended = await soon(run)
        if how == "halts":
            halted = interrupted(ended)
            ended = await soon(ref.resume({each.id: dismiss() for each in halted.requests}))
        assert isinstance(ended, Stopped)
        found = await soon(after)
        assert isinstance(found, Completed)
        assert found.text == "next"


@pytest.mark.parametrize("how", ["run", "send"])
@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_a_new_message_to_a_failed_or_cancelled_agent_starts_a_run(
    end: str, how: str
) -> None:
    """A2."""
    held = Held(RuntimeError("down"))
    agent, _ = gated(held, "well again")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        run = ref.run("go")
        await soon(held.entered.wait())
        if end == "cancelled":
            await soon(ref.cancel())
        held.release.set()
        await soon(run)
        if how == "run":
            await soon(ref.run("again"))
        else:
            await soon(ref.send("again"))
        await until_status(ref, Status.IDLE)
        state = await soon(ref.state())
        assert said(state) == [["go"], ["again"]]
        assert_valid_history(state)


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_a_run_that_waits_runs_after_one_that_fails(end: str) -> None:
    """A2."""
    held = Held(RuntimeError("down"))
    agent, _ = gated(held, "second")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        first, second = ref.run("one"), ref.run("two")
        await soon(held.entered.wait())
        if end == "cancelled":
            await soon(ref.cancel())
        held.release.set()
        assert isinstance(await soon(first), (Failed, Stopped))
        assert completed(await soon(second)).text == "second"


async def test_messages_enter_the_conversation_in_the_order_in_which_they_were_accepted() -> None:
    """A2: whoever waits for a run is not overtaken by a message that came later."""
    held = Held("first")
    agent, _ = gated(held, "second", "third")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        first = ref.run("one")
        await soon(held.entered.wait())
        second = ref.run("two")
        await soon(ref.send("three"))
        held.release.set()
        await soon(first)
        await soon(second)
        await until_status(ref, Status.IDLE)
        words = [word for message in said(await soon(ref.state())) for word in message]
        assert words == ["one", "two", "three"]


# ---------------------------------------------------------------- interrupts (I3, I5, I10)


async def test_an_interrupted_run_goes_on_by_an_answer() -> None:
    agent, _ = gated(call("refund", {"order": 17}), "done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("go")))
        again = completed(await soon(ref.resume(outcome.decide(approve(by="Ann")))))
        assert again.text == "done"
        assert again.run_id == outcome.run_id
        assert [part.content for part in results(again.state)] == ["refunded 17"]
        audit = await soon(ref.decisions())
        assert [record.decision.by for record in audit] == ["Ann"]


async def test_the_same_answer_again_gives_the_same_run_and_another_one_is_refused() -> None:
    """I5: of two concurrent answers exactly one wins."""
    agent, model = gated(call("refund"), "done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("go")))
        yes, no = outcome.decide(approve()), outcome.decide(reject())
        first, same, other = ref.resume(yes), ref.resume(yes), ref.resume(no)
        assert completed(await soon(first)).run_id == outcome.run_id
        assert completed(await soon(same)).run_id == outcome.run_id
        with pytest.raises(NotInterrupted):
            await soon(other)
        assert completed(await soon(ref.resume(yes))).text == "done"
        with pytest.raises(NotInterrupted):
            await soon(ref.resume(no))
        assert len(model.requests) == 2


async def test_decisions_that_were_made_in_an_earlier_run_are_answered_by_that_run() -> None:
    """I5: who did not get the answer asks again, and other runs may have ended meanwhile."""
    agent, model = gated(call("refund"), "done", "later", call("refund"), "last")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("go")))
        yes, no = outcome.decide(approve()), outcome.decide(reject())
        completed(await soon(ref.resume(yes)))
        assert completed(await soon(ref.run("more"))).text == "later"
        again = completed(await soon(ref.resume(yes)))
        assert (again.text, again.run_id) == ("done", outcome.run_id)
        await soon(ref.decide(yes))
        with pytest.raises(NotInterrupted):
            await soon(ref.resume(no))
        pending = interrupted(await soon(ref.run("and again")))
        assert completed(await soon(ref.resume(yes))).text == "done"
        assert ref.status() is Status.INTERRUPTED
        assert completed(await soon(ref.resume(pending.decide(approve())))).text == "last"
        assert len(model.requests) == 5


async def test_decisions_of_the_last_run_are_answered_by_it_though_another_is_about_to_begin() -> (
    None
):
    """I5: a freeze holds the next run."""
    agent, _ = gated(call("refund"), "done", "later")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        asked = interrupted(await soon(ref.run("go")))
        yes = asked.decide(approve())
        completed(await soon(ref.resume(yes)))
        freeze = await soon(runtime.freeze(why="a leak", by="ann"))
        more = ref.run("more")
        while not await soon(ref.queue()):
            pass
        again = completed(await soon(ref.resume(yes)))
        assert (again.text, again.run_id) == ("done", asked.run_id)
        await soon(runtime.thaw(freeze.id, by="ann"))
        assert completed(await soon(more)).text == "later"


@pytest.mark.parametrize(
    "wrong", [{"unknown": approve()}, {}, [approve()], None, {"unknown": "approve"}], ids=str
)
async def test_a_wrong_answer_is_refused_and_the_interrupt_stands(wrong: Any) -> None:
    """I5."""
    agent, _ = gated(call("refund"), "done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("go")))
        with pytest.raises(DecisionError):
            await soon(ref.resume(wrong))
        assert ref.status() is Status.INTERRUPTED
        assert completed(await soon(ref.resume(outcome.decide(approve())))).text == "done"


async def test_an_agent_that_asks_nothing_takes_no_answer() -> None:
    """I5."""
    agent, _ = gated("done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        with pytest.raises(DecisionError):
            await soon(ref.resume({"r1": approve()}))


async def test_a_tool_cannot_answer_for_a_person() -> None:
    """I13."""
    errors: list[BaseException] = []

    @tool
    async def answers(context: ToolContext) -> str:
        try:
            context.deps.resume({"r": approve()})
        except DecisionError as error:
            errors.append(error)
        return "tried"

    asking, _ = gated(call("refund"), "done")
    agent = Agent("sly", ScriptedModel([call("answers"), "done"]), tools=[answers])
    async with Runtime([asking, agent]) as runtime:
        other = runtime.spawn("gated")
        await soon(other.run("go"))
        await soon(runtime.spawn("sly", deps=other).run("go"))
        assert len(errors) == 1
        assert other.status() is Status.INTERRUPTED


async def test_what_refuses_a_tool_is_no_wall_for_code_that_means_to_decide() -> None:
    """I13 stops accidents: from a fresh context the same call is one of the program."""

    @tool
    async def answers(context: ToolContext) -> str:
        ref = context.deps
        (request,) = (await ref.state()).requests
        contextvars.Context().run(ref.decide, {request.id: approve(by="mallory")})
        return "done"

    asking, _ = gated(call("refund"), "done")
    agent = Agent("sly", ScriptedModel([call("answers"), "done"]), tools=[answers])
    async with Runtime([asking, agent]) as runtime:
        other = runtime.spawn("gated")
        await soon(other.run("go"))
        await soon(runtime.spawn("sly", deps=other).run("go"))
        await until_status(other, Status.IDLE)
        (record,) = await soon(other.decisions())
        assert record.decision.by == "mallory", "but each decision is in the audit"


async def test_two_people_answer_two_requests_at_the_same_moment() -> None:
    """The second answer comes while the run goes on because of the first one."""
    agent, _ = gated([call("refund"), call("refund", {"order": 2})], "done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        one, two = interrupted(await soon(ref.run("go"))).requests
        answers = [{one.id: approve()}, {two.id: approve()}, {two.id: reject()}]
        first, second, other = [ref.resume(answer) for answer in answers]
        assert interrupted(await soon(first)).requests == (two,)
        with pytest.raises(NotInterrupted, match="answered before"):
            await soon(other)
        assert len(results(completed(await soon(second)).state)) == 2


@pytest.mark.parametrize("then", ["answered", "cancelled", "followed by a message", "stopped"])
async def test_a_request_that_is_listed_can_be_answered_at_any_moment(then: str) -> None:
    """Also where the run goes on with another call meanwhile: the answer waits for its rest."""
    clock, held = SimulatedClock(), Held()

    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("nap", 60)
        await held.wait()
        return "slept"

    @tool
    async def ask(ctx: ToolContext) -> str:
        if ctx.resume_value is None:
            raise Interrupt("Which?")
        return str(ctx.resume_value)

    agent = Agent("desk", by_turn([call("nap"), call("ask")], "done"), tools=[nap, ask])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("desk")
        interrupted(await soon(ref.run("go")))
        (pending,) = await soon(runtime.pending())
        await soon(clock.advance(60))
        await soon(held.entered.wait())
        answer = ref.resume({pending.request.id: respond("this")})
        await soon(ref.state())  # it is looked at by now
        assert not answer.done()
        if then == "cancelled":
            ref.cancel()
            with pytest.raises(DecisionError):
                await soon(answer)
            return
        if then == "followed by a message":
            ref.run("no")
        stopped = ref.stop(block=False) if then == "stopped" else None
        held.release.set()
        if stopped is not None:
            await soon(stopped)
        # A message that comes later than the answer withdraws nothing of it.
        assert [part.content for part in results(completed(await soon(answer)).state)] == [
            "slept",
            "this",
        ]


@pytest.mark.parametrize("how", ["run", "send", "steer"])
async def test_a_new_message_withdraws_what_was_asked(how: str) -> None:
    """I10."""
    agent, _ = gated([call("refund"), call("refund", {"order": 2})], "moved on")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("go")))
        if how == "run":
            assert completed(await soon(ref.run("never mind"))).text == "moved on"
        else:
            await soon(ref.send("never mind", steer=how == "steer"))
        await until_status(ref, Status.IDLE)
        state = await soon(ref.state())
        assert [part.outcome for part in results(state)] == ["denied", "denied"]
        assert_valid_history(state)
        assert await soon(runtime.pending()) == []
        with pytest.raises(DecisionError):
            await soon(ref.resume(outcome.decide(approve(), approve())))


async def test_if_interrupted_error_refuses_and_the_request_stands() -> None:
    """I10."""
    agent, model = gated(call("refund"), "done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("go")))
        with pytest.raises(NotInterrupted):
            await soon(ref.run("never mind", if_interrupted="error"))
        assert len(await soon(runtime.pending())) == 1
        done = completed(await soon(ref.resume(outcome.decide(approve()))))
        assert said(done.state) == [["go"]]
        assert len(model.requests) == 2


async def test_if_interrupted_error_runs_where_nobody_is_asked() -> None:
    """I10."""
    agent, _ = gated("done")
    async with Runtime([agent]) as runtime:
        run = runtime.spawn("gated").run("go", if_interrupted="error")
        assert completed(await soon(run)).text == "done"


@pytest.mark.parametrize("how", ["run", "send"])
async def test_a_message_from_before_the_interrupt_waits_until_it_is_decided(how: str) -> None:
    """I10."""
    held = Held(call("refund"))
    agent, _ = gated(held, "decided", "then this")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        run = ref.run("go")
        await soon(held.entered.wait())
        waiting = ref.run("later") if how == "run" else ref.send("later")
        await soon(ref.state())
        held.release.set()
        outcome = interrupted(await soon(run))
        assert (await soon(ref.state())).requests == outcome.requests
        if how == "run":
            assert not waiting.done()
        assert completed(await soon(ref.resume(outcome.decide(approve())))).text == "decided"
        await soon(waiting)
        await until_status(ref, Status.IDLE)
        state = await soon(ref.state())
        assert said(state) == [["go"], ["later"]]
        assert [part.outcome for part in results(state)] == ["success"]


async def test_a_message_to_itself_does_not_withdraw_what_was_asked() -> None:
    """I10: self-sent ones wait, also those that come after the interrupt."""
    late = asyncio.Event()

    posted: list[asyncio.Task[str]] = []

    @tool
    async def reminds(context: ToolContext) -> str:
        await context.deps.get("me").send("at once")

        async def later() -> str:
            await late.wait()
            sent: str = await context.deps.get("me").send("later")
            return sent

        posted.append(asyncio.create_task(later()))
        return "reminded"

    model = ScriptedModel([call("reminds"), call("refund"), "decided", "then this"])
    agent = Agent("me", model, tools=[reminds, refund], interrupt_on={"refund": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("me", "me", deps=runtime)
        outcome = interrupted(await soon(ref.run("go")))
        late.set()
        await soon(posted[0])
        assert (await soon(ref.state())).requests == outcome.requests
        assert completed(await soon(ref.resume(outcome.decide(approve())))).text == "decided"
        await until_status(ref, Status.IDLE)
        assert said(await soon(ref.state())) == [["go"], ["at once", "later"]]


async def test_a_grant_holds_until_it_is_revoked() -> None:
    """I3, I14."""
    model = ScriptedModel([call("refund"), "1", call("refund"), "2", call("refund"), "3"])
    agent = Agent("gated", model, tools=[refund], interrupt_on={"refund": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("one")))
        await soon(ref.resume(outcome.decide(approve(always=True))))
        assert completed(await soon(ref.run("two"))).text == "2"
        (granted,) = (await soon(ref.state())).grants
        await soon(ref.revoke(granted))
        asked = interrupted(await soon(ref.run("three")))
        assert completed(await soon(ref.resume(asked.decide(respond("no"))))).text == "3"


# -------------------------------------------------------------- self-started runs (A4)


async def test_an_agent_starts_ten_runs_in_a_row_by_itself_then_rests_and_says_so() -> None:
    """A4."""
    runs: list[str] = []

    @tool
    async def again(context: ToolContext) -> str:
        await context.deps.get("me").send("once more")
        return "ok"

    def reply(request: Any) -> Any:
        if any(isinstance(part, UserPromptPart) for part in request.messages[-1].parts):
            runs.append(request.prompt)
            return call("again")
        return "done"

    async with Runtime([Agent("me", ScriptedModel(reply), tools=[again])]) as runtime:
        ref = runtime.spawn("me", "me", deps=runtime)
        assert isinstance(await soon(ref.run("go")), Completed)
        await until_status(ref, Status.IDLE)
        assert runs == ["go"] + ["once more"] * 10
        assert [e.event.runs for e in await told(ref) if isinstance(e.event, SelfRunsBounded)] == [
            10
        ]
        assert len((await soon(ref.state())).queue) == 1

        assert isinstance(await soon(ref.run("from outside")), Completed)
        await until_status(ref, Status.IDLE)
        assert runs[11:] == ["from outside"] + ["once more"] * 10


# ------------------------------------------------------------------ deadlocks


@pytest.mark.parametrize("inline", [True, False], ids=["on the loop", "in a thread"])
async def test_a_run_asked_for_from_inside_the_same_agents_run_would_deadlock(inline: bool) -> None:
    errors: list[BaseException] = []

    @tool(inline=inline)
    def runs_itself(context: ToolContext) -> str:
        try:
            context.deps.get("me").run("again")
        except WouldDeadlock as error:
            errors.append(error)
        return "tried"

    agent = Agent("me", ScriptedModel([call("runs_itself"), "done"]), tools=[runs_itself])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("me", "me", deps=runtime)
        assert completed(await soon(ref.run("go"))).text == "done"
        assert len(errors) == 1
        assert said(await soon(ref.state())) == [["go"]]


async def test_a_run_of_an_agent_that_waits_for_this_one_would_deadlock() -> None:
    """For itself or an ancestor."""
    errors: list[BaseException] = []

    def asks(other: str) -> Callable[..., Any]:
        async def ask(context: ToolContext) -> str:
            try:
                outcome = await context.deps.get(other).run("and you?")
            except WouldDeadlock as error:
                errors.append(error)
                return "refused"
            return completed(outcome).text

        return tool(ask)

    agents = [
        Agent("a", ScriptedModel([call("ask"), "a done"]), tools=[asks("b")]),
        Agent("b", ScriptedModel([call("ask"), "b done"]), tools=[asks("a")]),
    ]
    async with Runtime(agents) as runtime:
        refs = {name: runtime.spawn(name, name, deps=runtime) for name in ("a", "b")}
        for ref in refs.values():
            await soon(ref.state())  # both are awake: neither is started from inside the other
        assert completed(await soon(refs["a"].run("go"))).text == "a done"
        assert len(errors) == 1


async def test_an_agent_that_was_woken_by_another_one_is_not_part_of_its_run() -> None:
    """A run that nobody in the chain waits for is no deadlock: it waits its turn."""
    futures: list[Any] = []

    @tool
    async def tells(context: ToolContext) -> str:
        await context.deps.get("b").send("do it")
        return "told"

    @tool
    async def calls_back(context: ToolContext) -> str:
        futures.append(context.deps.get("a").run("it is done"))
        return "called back"

    agents = [
        Agent("a", ScriptedModel([call("tells"), "a done", "thanks"]), tools=[tells]),
        Agent("b", ScriptedModel([call("calls_back"), "b done"]), tools=[calls_back]),
    ]
    async with Runtime(agents) as runtime:
        first, second = (runtime.spawn(name, name, deps=runtime) for name in ("a", "b"))
        subscription = second.events()
        assert completed(await soon(first.run("go"))).text == "a done"
        async with asyncio.timeout(60):
            async for event in subscription:
                if isinstance(event.event, RunFinished):
                    break
        assert len(futures) == 1, "calling back was refused"
        assert completed(await soon(futures[0])).text == "thanks"


# ------------------------------------------------------------- decisions on what was shown


async def test_a_decision_holds_only_for_the_digest_that_was_shown() -> None:
    """I16."""
    agent, _ = gated(call("refund", {"order": 17}), "done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("go")))
        (request,) = outcome.requests
        answer = {request.id: approve()}
        for decide in (ref.resume, ref.decide):
            with pytest.raises(RequestChanged) as raised:
                await soon(decide(answer, expect={request.id: "another"}))
            assert raised.value.request_id == request.id
            assert raised.value.digest == request.digest
            assert ref.status() is Status.INTERRUPTED
        done = completed(await soon(ref.resume(answer, expect={request.id: request.digest})))
        assert done.text == "done"
        with pytest.raises(RequestChanged):  # also where it is answered already
            await soon(ref.resume(answer, expect={request.id: "another"}))


async def test_an_expected_digest_that_would_check_nothing_is_refused() -> None:
    agent, _ = gated(call("refund", {"order": 17}), "done")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        (request,) = interrupted(await soon(ref.run("go"))).requests
        answer = {request.id: approve()}
        wrong: list[tuple[Any, str]] = [
            ("zzz", "must be a mapping"),
            ([request.digest], "must be a mapping"),
            ({request.id: 17}, "as text"),
            ({"zzz": request.digest}, "no decision is on this request"),
            ({request.id: request.digest, "zzz": request.digest}, "no decision is on this request"),
        ]
        for decide in (ref.resume, ref.decide):
            for expect, why in wrong:
                with pytest.raises(UsageError, match=why):
                    await soon(decide(answer, expect=expect))
        assert ref.status() is Status.INTERRUPTED
        await soon(ref.decide(answer, expect={request.id: request.digest}))


async def test_decide_answers_when_the_decision_is_recorded_and_not_when_the_run_ends() -> None:
    """I16."""
    held = Held()

    @tool
    async def ship() -> str:
        await held.wait()
        return "shipped"

    model = ScriptedModel([call("ship"), "done"])
    agent = Agent("gated", model, tools=[ship], interrupt_on={"ship": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("gated")
        outcome = interrupted(await soon(ref.run("go")))
        yes = outcome.decide(approve(by="Ann"))
        await soon(ref.decide(yes))
        await soon(held.entered.wait())  # it runs, and its decision is known meanwhile
        assert [record.decision.by for record in await soon(ref.decisions())] == ["Ann"]
        await soon(ref.decide(yes))
        with pytest.raises(NotInterrupted):
            await soon(ref.decide(outcome.decide(reject())))
        held.release.set()
        assert isinstance(await soon(ref.outcome()), Completed)
        await soon(ref.decide(yes))
