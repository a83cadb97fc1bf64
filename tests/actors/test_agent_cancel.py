"""`ref.cancel()`, `pause()` and `unpause()`: at once, keeping what had finished (P7, R7, J13)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic_ai.messages import UserPromptPart

from tests.support.agents import (
    Held,
    assert_valid_history,
    completed,
    interrupted,
    results,
    until_status,
    works_again,
)
from tests.support.loops import never, soon
from understudy import (
    Agent,
    Completed,
    Outcome,
    Paused,
    Run,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    StopReason,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.events import ToolStarted
from understudy.middleware import Middleware


@tool
def refund(order: int = 1) -> str:
    return f"refunded {order}"


def stopped(outcome: Outcome | None) -> Stopped:
    """The outcome, which must be a run stopped by a person."""
    assert isinstance(outcome, Stopped), outcome
    highest = outcome.signals.highest
    assert highest is not None
    assert highest.reason is StopReason.USER_REQUESTED
    assert outcome.state.run is not None
    assert outcome.state.run.over
    assert_valid_history(outcome.state)
    return outcome


# ------------------------------------------------------------------------------ cancel


class Waits(Middleware):
    """Waits before it passes a call on."""

    def __init__(self, held: Held) -> None:
        self.held = held

    async def wrap_tool_call(self, run: Run, call: Any, next: Any) -> Any:
        await self.held.wait()
        return await next(call)


@pytest.mark.parametrize("where", ["in a hook", "for a thread", "before the effect"])
async def test_a_call_that_is_cancelled_before_its_effect_is_not_in_doubt(where: str) -> None:
    """The process lives on, and knows that nothing was done."""
    held, done = Held(), list[str]()
    holds, release = threading.Event(), threading.Event()

    @tool
    def hold() -> None:
        holds.set()
        release.wait(60)

    @tool
    def pay() -> None:
        done.append("paid")

    @tool
    async def pay_later(ctx: ToolContext) -> None:
        with ctx.before_effect():
            await held.wait()
        done.append("paid")

    in_hook, in_thread = where == "in a hook", where == "for a thread"
    model = ScriptedModel([call("pay_later" if where == "before the effect" else "pay")])
    middleware = [Waits(held)] if in_hook else []
    agent = Agent("a", model, tools=[pay, pay_later], middleware=middleware)
    other = Agent("other", ScriptedModel([call("hold"), "done"]), tools=[hold])
    async with Runtime([agent, other], max_threads=1) as runtime:
        if in_thread:
            runtime.spawn("other").run("go")
            await soon(asyncio.to_thread(holds.wait, 60))
        ref = runtime.spawn("a")
        events = ref.events()
        ref.run("go")
        if in_thread:
            async with asyncio.timeout(60):
                async for event in events:
                    if isinstance(event.event, ToolStarted):
                        break
        else:
            await soon(held.entered.wait())
        outcome = stopped(await soon(ref.cancel()))
        release.set()
        (told,) = results(outcome.state)
        assert outcome.state.doubts == {}
        assert "Not run" in str(told.content)
    assert done == []


async def test_cancel_ends_a_model_call_at_once_and_both_futures_bring_the_same_outcome() -> None:
    """P7, A1."""
    held = Held()
    model = ScriptedModel([held, "well again"])
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        one, other = ref.cancel("changed my mind"), ref.cancel()
        outcome = stopped(await soon(run))
        assert outcome is await soon(one)
        assert outcome is await soon(other)
        first = outcome.signals.first
        assert first is not None
        assert first.message == "changed my mind"
        assert ref.status() is Status.CANCELLED
        await works_again(ref)


@pytest.mark.parametrize("sequential", [False, True])
async def test_cancel_during_tools_keeps_results_and_tells_started_from_not_run(
    sequential: bool,
) -> None:
    """P7: finished ones are kept, started ones are in doubt, the others are marked as not run."""
    begun = asyncio.Event()
    ran: list[str] = []

    @tool(sequential=sequential)
    async def quick() -> str:
        ran.append("quick")
        return "quick result"

    @tool(sequential=True)
    async def slow() -> str:
        ran.append("slow")
        begun.set()
        await never()
        return "never"

    @tool(sequential=True)
    async def later() -> str:
        ran.append("later")
        return "later result"

    calls = [call("quick"), call("slow"), call("later")]
    agent = Agent("a", ScriptedModel([calls, "well again"]), tools=[quick, slow, later])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(begun.wait())
        outcome = stopped(await soon(ref.cancel()))
        assert outcome is await soon(run)
        kept, doubtful, not_run = results(outcome.state)
        assert (kept.content, kept.outcome) == ("quick result", "success")
        assert doubtful.outcome == "interrupted"
        assert "unknown" in str(doubtful.content)
        assert not_run.outcome == "interrupted"
        assert "Not run" in str(not_run.content)
        assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["slow"]
        assert ran == ["quick", "slow"]
        await works_again(ref)


async def test_cancel_ends_all_async_tools_that_run_together() -> None:
    """P7."""
    begun: list[str] = []
    ended: list[str] = []
    both = asyncio.Event()

    @tool
    async def waits(name: str) -> str:
        begun.append(name)
        if len(begun) == 2:
            both.set()
        try:
            await never()
        finally:
            ended.append(name)
        return "never"

    calls = [call("waits", {"name": name}) for name in ("x", "y")]
    async with Runtime([Agent("a", ScriptedModel([calls, "ok"]), tools=[waits])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(both.wait())
        outcome = stopped(await soon(ref.cancel()))
        assert outcome is await soon(run)
        assert sorted(ended) == ["x", "y"]
        assert len(outcome.state.doubts) == 2
        await works_again(ref)


async def test_cancel_abandons_a_plain_tool_that_blocks_and_its_late_result_changes_nothing() -> (
    None
):
    """P7, J4."""
    begun, release, left = threading.Event(), threading.Event(), threading.Event()

    @tool
    def blocks() -> str:
        begun.set()
        release.wait(60)
        left.set()
        return "late"

    agent = Agent("a", ScriptedModel([call("blocks"), "well again"]), tools=[blocks])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            outcome = stopped(await soon(ref.cancel()))
            assert outcome is await soon(run)
            assert runtime.status().abandoned_threads == 1
            assert [part.outcome for part in results(outcome.state)] == ["interrupted"]
            await works_again(ref)
        finally:
            release.set()
        assert await asyncio.to_thread(left.wait, 60)
        state = await soon(ref.state())
        assert [part.outcome for part in results(state)] == ["interrupted"]
        assert_valid_history(state)


async def test_a_tool_that_swallows_its_cancellation_does_not_save_the_run() -> None:
    """P7: what it brings is kept, and the model is not asked again."""
    begun = asyncio.Event()

    @tool
    async def stubborn() -> str:
        begun.set()
        try:
            await never()
        except asyncio.CancelledError:
            return "kept"
        return "never"

    model = ScriptedModel([call("stubborn"), "well again"])
    async with Runtime([Agent("a", model, tools=[stubborn])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(begun.wait())
        outcome = stopped(await soon(ref.cancel()))
        assert outcome is await soon(run)
        assert [part.content for part in results(outcome.state)] == ["kept"]
        assert len(model.requests) == 1
        await works_again(ref)


async def test_a_model_that_swallows_its_cancellation_does_not_save_the_run() -> None:
    """P7."""
    begun = asyncio.Event()

    async def stubborn(_: object) -> Any:
        begun.set()
        try:
            await never()
        except asyncio.CancelledError:
            return call("refund")

    model = ScriptedModel([stubborn, "well again"])
    async with Runtime([Agent("a", model, tools=[refund])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(begun.wait())
        outcome = stopped(await soon(ref.cancel()))
        assert outcome is await soon(run)
        assert "success" not in [part.outcome for part in results(outcome.state)]
        await works_again(ref)


@pytest.mark.parametrize("hook", ["on_run_start", "before_model", "after_model", "on_run_end"])
async def test_cancel_during_a_hook_ends_the_run(hook: str) -> None:
    """P7."""
    begun = asyncio.Event()

    async def waits(self: Middleware, run: Run, *_: object) -> None:
        if begun.is_set():
            return
        begun.set()
        await never()

    hooked = type("Hooked", (Middleware,), {hook: waits})

    model = ScriptedModel(lambda _: "done")
    async with Runtime([Agent("a", model, middleware=[hooked()])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(begun.wait())
        outcome = stopped(await soon(ref.cancel()))
        assert outcome is await soon(run)
        assert ref.status() is Status.CANCELLED
        await works_again(ref)


@pytest.mark.parametrize("earlier", [False, True], ids=["first run", "later run"])
async def test_cancel_before_the_start_leaves_no_model_call(earlier: bool) -> None:
    """P7: before the start -> 0 model calls."""
    model = ScriptedModel(lambda _: "done")
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        if earlier:
            await soon(ref.run("before"))
        before = len(model.requests)
        run, cancel = ref.run("go"), ref.cancel()
        outcome = await soon(run)
        assert isinstance(outcome, Stopped)
        assert await soon(cancel) == outcome
        assert len(model.requests) == before
        await works_again(ref)


@pytest.mark.parametrize("index_status", ["interrupted", "paused"])
async def test_cancel_right_behind_going_on_ends_the_run(index_status: str) -> None:
    """P7: the drive was started, and has not taken its first step."""
    model = ScriptedModel([call("refund"), "well again", "too many"])
    gate = {"refund": True} if index_status == "interrupted" else None
    pause = (lambda _: True) if index_status == "paused" else None
    agent = Agent("a", model, tools=[refund], interrupt_on=gate)
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        if pause is not None:
            await soon(ref.pause())
        outcome = await soon(ref.run("go"))
        if index_status == "interrupted":
            going: Any = ref.resume(interrupted(outcome).decide(approve()))
        else:
            assert isinstance(outcome, Paused)
            going = ref.unpause()
        cancel = ref.cancel()
        stopped(await soon(cancel))
        await soon(going)
        assert len(model.requests) == 1
        await works_again(ref)


async def test_cancel_of_an_idle_agent_brings_none_and_changes_nothing() -> None:
    """P7."""
    async with Runtime([Agent("a", ScriptedModel(lambda _: "done"))]) as runtime:
        ref = runtime.spawn("a")
        assert await soon(ref.cancel()) is None
        await soon(ref.run("go"))
        assert await soon(ref.cancel()) is None
        assert ref.status() is Status.IDLE
        await works_again(ref)


async def test_cancel_of_an_interrupted_run_withdraws_what_was_asked() -> None:
    """P7, A1."""
    model = ScriptedModel([call("refund"), "well again"])
    agent = Agent("a", model, tools=[refund], interrupt_on={"refund": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        asked = interrupted(await soon(ref.run("go")))
        outcome = stopped(await soon(ref.cancel()))
        assert ref.status() is Status.CANCELLED
        assert outcome.state.requests == ()
        assert await soon(runtime.pending()) == []
        assert "success" not in [part.outcome for part in results(outcome.state)]
        assert outcome.state.doubts == {}
        with pytest.raises(Exception, match="not pending"):
            await soon(ref.resume(asked.decide(approve())))
        await works_again(ref)


async def test_cancel_of_a_paused_run_ends_it_and_the_next_run_is_not_paused() -> None:
    """P7: a pause holds the run that it was meant for."""
    held = Held(call("refund"))
    model = ScriptedModel([held, "well again"])
    async with Runtime([Agent("a", model, tools=[refund])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.pause("lunch"))
        held.release.set()
        assert isinstance(await soon(run), Paused)
        outcome = stopped(await soon(ref.cancel()))
        assert [part.outcome for part in results(outcome.state)] == ["interrupted"]
        assert outcome.state.doubts == {}
        await works_again(ref)


@pytest.mark.parametrize("how", ["run", "send"])
async def test_a_pause_is_over_with_the_run_that_a_message_withdraws(how: str) -> None:
    """P7: whichever way the message comes."""
    held = Held(call("refund"))
    model = ScriptedModel([held, call("refund"), "done"])
    async with Runtime([Agent("a", model, tools=[refund])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.pause("lunch"))
        held.release.set()
        assert isinstance(await soon(run), Paused)
        if how == "run":
            completed(await soon(ref.run("again")))
        else:
            message_id = await soon(ref.send("again"))
            outcome = await soon(ref.outcome(message_id=message_id))
            assert outcome is not None
            completed(outcome)


async def test_a_host_task_that_is_cancelled_while_it_awaits_does_not_cancel_the_run() -> None:
    """J13."""
    held = Held("done")
    async with Runtime([Agent("a", ScriptedModel([held]))]) as runtime:
        ref = runtime.spawn("a")
        future = ref.run("go")

        async def wait() -> Outcome:
            return await future

        waiting = asyncio.ensure_future(wait())
        await soon(held.entered.wait())
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await future
        assert ref.status() is Status.RUNNING
        held.release.set()
        assert completed(await soon(future)).text == "done"


# ---------------------------------------------------------------------- pause, unpause


async def test_pause_holds_the_run_after_its_next_reply_and_unpause_goes_on_there() -> None:
    """R7."""
    ran: list[int] = []

    @tool
    def works() -> str:
        ran.append(1)
        return "worked"

    held = Held(call("works"))
    model = ScriptedModel([held, "done", "more"])
    async with Runtime([Agent("a", model, tools=[works])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.pause("lunch"))
        held.release.set()
        outcome = await soon(run)
        assert isinstance(outcome, Paused)
        assert outcome.reason == "lunch"
        assert ref.status() is Status.PAUSED
        assert ran == []
        await soon(ref.unpause())
        await until_status(ref, Status.IDLE)
        assert ran == [1]
        assert len(model.requests) == 2
        assert completed(await soon(ref.run("again"))).text == "more"


async def test_unpause_before_the_pause_took_hold_takes_it_back() -> None:
    """R7."""
    held = Held("done")
    async with Runtime([Agent("a", ScriptedModel([held]))]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.pause())
        await soon(ref.unpause())
        held.release.set()
        assert isinstance(await soon(run), Completed)


async def test_unpause_of_an_agent_that_is_not_paused_does_nothing() -> None:
    agent = Agent(
        "a",
        ScriptedModel([call("refund"), "done"]),
        tools=[refund],
        interrupt_on={"refund": True},
    )
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        await soon(ref.unpause())
        assert ref.status() is Status.IDLE
        await soon(ref.run("go"))
        await soon(ref.unpause())
        assert ref.status() is Status.INTERRUPTED


async def test_a_new_message_to_a_paused_agent_starts_a_run_that_is_not_paused() -> None:
    """I10, R7: the pause was the other run's."""
    held = Held(call("refund"))
    model = ScriptedModel([held, "well again"])
    async with Runtime([Agent("a", model, tools=[refund])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.pause("lunch"))
        held.release.set()
        assert isinstance(await soon(run), Paused)
        await works_again(ref)


@pytest.mark.parametrize("steps", range(6))
async def test_a_cancel_before_a_run_begins_over_a_standing_one_is_for_the_new_run(
    steps: int,
) -> None:
    """P7, J14: the message was accepted, so it stands in the history, of a run that was stopped."""

    @tool
    async def quick() -> str:
        return "ok"

    model = ScriptedModel([call("quick"), "one", "two"])
    async with Runtime([Agent("a", model, tools=[quick])]) as runtime:
        ref = runtime.spawn("a")
        await ref.pause()
        assert isinstance(await soon(ref.run("first")), Paused)
        run = ref.run("second")
        for _ in range(steps):
            await asyncio.sleep(0)
        cancelled = ref.cancel()
        outcome = await soon(run)
        state = await soon(ref.state())
        said = [
            part.content
            for message in state.messages
            for part in message.parts
            if isinstance(part, UserPromptPart)
        ]
        assert said == ["first", "second"]
        assert isinstance(outcome, (Stopped, Completed))
        assert type(await soon(cancelled)) in (Stopped, type(None))
