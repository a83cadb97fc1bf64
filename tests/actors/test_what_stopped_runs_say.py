"""Wherever a run is stopped, each call that was started ends, and nothing false is said of it.

Rules: T17.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.support.agents import assert_valid_history, completed
from tests.support.loops import never, soon, until
from understudy import (
    Agent,
    AgentRef,
    AgentState,
    Interrupt,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    call,
    tool,
)
from understudy.actors import Subscription
from understudy.events import RunFinished, ToolEnded, ToolStarted
from understudy.middleware import SubAgent
from understudy.models import ScriptedRequest
from understudy.modes import Parallel, Sequential

AGAIN = "what now?"
PLACES = ("alone", "task", "task of a task", "tool", "parallel", "sequential")
"""Where the agent runs whose run is stopped."""


class Story:
    """An agent whose tools pay, wait, ask and hang, and what is known of them from inside."""

    def __init__(self, place: str, *, rests: str = "asks") -> None:
        self.entered: dict[str, str] = {}
        """By call key, the tools whose bodies were entered."""
        self.paid: set[str] = set()
        """The call keys of those that have paid."""
        self.place, self.rests = place, rests
        """How it comes to rest: its tool "hangs" or "asks", or a "gate" does before them."""
        self.agent = self._placed(place, self._worker("worker"))
        self.clock = SimulatedClock()

    def _worker(self, name: str) -> Agent:
        def entered(ctx: ToolContext, name: str) -> None:
            self.entered[ctx.call_key] = name

        @tool
        async def pay(ctx: ToolContext) -> str:
            entered(ctx, "pay")
            self.paid.add(ctx.call_key)
            return "paid"

        @tool
        async def pays_and_waits(ctx: ToolContext) -> str:
            entered(ctx, "pays_and_waits")

            async def charge() -> str:
                self.paid.add(ctx.call_key)
                return "charged"

            await ctx.once("charge", charge)
            await ctx.sleep("settlement", 86_400)
            return "settled"

        @tool
        async def pays_and_asks(ctx: ToolContext) -> str:
            entered(ctx, "pays_and_asks")

            async def charge() -> str:
                self.paid.add(ctx.call_key)
                return "charged"

            await ctx.once("charge", charge)
            raise Interrupt("is it enough?")

        @tool
        async def asks(ctx: ToolContext) -> str:
            entered(ctx, "asks")
            raise Interrupt("to whom?")

        @tool(read_only=True)
        async def looks(ctx: ToolContext) -> str:
            entered(ctx, "looks")
            return "seen"

        @tool
        async def hangs(ctx: ToolContext) -> str:
            entered(ctx, "hangs")
            await never()
            return "never"

        @tool(sequential=True)
        async def comes_last(ctx: ToolContext) -> str:
            entered(ctx, "comes_last")
            return "done"

        @tool(ask=True)
        async def gated(ctx: ToolContext) -> str:
            entered(ctx, "gated")
            return "done"

        rest = ["pays_and_waits", "asks", "looks"]
        last = {
            "asks": rest,
            "asks after it paid": ["pays_and_asks", "looks"],
            "gate": ["gated", *rest],
            "hangs": [*rest, "hangs", "comes_last"],
        }
        turns = call("pay"), [call(name) for name in last[self.rests]]
        tools = [pay, pays_and_waits, pays_and_asks, asks, looks, hangs, comes_last, gated]
        return Agent(name, _replies(*turns), tools=tools)

    def _placed(self, place: str, worker: Agent) -> Agent:
        def above(name: str, inner: Agent) -> Agent:
            task = call("task", {"task_name": inner.name, "instructions": "go"})
            stack = [SubAgent([inner], general_purpose=False)]
            return Agent(name, _replies(task), middleware=stack)

        match place:
            case "task":
                return above("desk", worker)
            case "task of a task":
                return above("desk", above("middle", worker))
            case "tool":

                @tool
                async def delegates(ctx: ToolContext) -> str:
                    self.entered[ctx.call_key] = "delegates"
                    return completed(await ctx.run_agent(worker, "go")).text

                return Agent("desk", _replies(call("delegates")), tools=[delegates])
            case "parallel":
                return Agent("desk", mode=Parallel([worker, self._worker("other")]))
            case "sequential":
                return Agent("desk", mode=Sequential([self._worker("first"), worker]))
            case _:
                return worker

    def at_rest(self, ref: AgentRef) -> bool:
        """Whether nothing more happens by itself."""
        if self.rests != "hangs":
            return ref.status() is Status.INTERRUPTED
        workers = 2 if self.place == "parallel" else 1
        return list(self.entered.values()).count("hangs") == workers

    # ------------------------------------------------------------------------- what is said

    def check(self, events: list[object], state: AgentState) -> None:
        """Check all that people, programs and the model were told."""
        started = [event for event in events if isinstance(event, ToolStarted)]
        ended = [event for event in events if isinstance(event, ToolEnded)]
        last = {event.call_key: event for event in ended}
        missing = {event.tool_name for event in started if event.call_key not in last}
        assert not missing, f"started, and never ended: {missing}"
        assert len(ended) == len(last), "a call ends once"
        for key, event in last.items():
            self._check_words(key, event)
        assert_valid_history(state)

    def _check_words(self, key: str, event: ToolEnded) -> None:
        text, is_entered = str(event.content), key in self.entered
        name = event.tool_name
        if name == "task":
            is_entered = True
        if "Not run" in text:
            assert not is_entered, f"{name} was entered, and it is said: {text}"
        if "Ran in part" in text:
            assert is_entered, f"{name} was not entered, and it is said: {text}"
        if "before stands" in text and name.startswith("pays_and"):
            assert ("'charge' once" in text) is (key in self.paid), text
        if "failed" in event.outcome:
            raise AssertionError(f"nothing has failed, and of {name} it is said: {text}")
        if name in ("task", "delegates") and event.outcome != "success":
            inside = [self.entered[each] for each in self.paid if each.startswith(f"{key}.")]
            for paid in inside:
                assert paid in text, f"{paid} has paid inside of it, and it is said: {text}"


def _replies(*turns: Any) -> ScriptedModel:
    def reply(request: ScriptedRequest) -> Any:
        if any(AGAIN in str(message) for message in request.messages):
            return "I see"
        done = sum(message.kind == "response" for message in request.messages)
        return turns[done] if done < len(turns) else "done"

    return ScriptedModel(reply)


async def told(story: Story, how: str, at: int | None = None) -> bool:
    """Stop the run after so many events, or at rest; whether there were as many."""
    events: list[object] = []

    async def collect(subscription: Subscription) -> None:
        async for each in subscription:
            events.append(each.event)

    def is_enough() -> bool:
        return at is not None and len(events) > at

    def runs_finished() -> int:
        path = (story.agent.name,)
        return sum(isinstance(each, RunFinished) and each.agent_path == path for each in events)

    async with Runtime([story.agent], clock=story.clock) as runtime:
        ref = runtime.spawn(story.agent.name, id="a")
        collecting = asyncio.create_task(collect(ref.events()))
        ends_at = story.clock.now() + timedelta(hours=1)
        outcome = ref.run("go", ends_at=ends_at if how == "deadline" else None)
        await until(lambda: is_enough() or story.at_rest(ref))
        reached = is_enough()
        match how:
            case "cancel":
                await soon(ref.cancel())
                await soon(outcome)
            case "deadline":
                await soon(story.clock.advance(7200))
                await soon(outcome)
        await soon(ref.run(AGAIN))
        state = await soon(ref.state())
        await until(lambda: runs_finished() == 2)
    await soon(collecting)
    story.check(events, state)
    return reached


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("how", "rests"),
    [
        ("cancel", "asks"),
        ("deadline", "asks"),
        ("message", "gate"),
        pytest.param("cancel", "gate", marks=pytest.mark.slow),
        pytest.param("cancel", "hangs", marks=pytest.mark.slow),
        pytest.param("deadline", "hangs", marks=pytest.mark.slow),
        pytest.param("deadline", "gate", marks=pytest.mark.slow),
        pytest.param("message", "asks after it paid", marks=pytest.mark.slow),
    ],
)
async def test_a_run_that_is_stopped_at_rest_says_nothing_false(
    place: str, how: str, rests: str
) -> None:
    """R4, J4: by a person, by its end, and by a new message."""
    await told(Story(place, rests=rests), how)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["cancel", "deadline"])
@pytest.mark.parametrize("rests", ["asks", "gate", "hangs"])
async def test_a_run_that_is_stopped_at_any_event_says_nothing_false(
    place: str, how: str, rests: str
) -> None:
    """R4, J4, T17."""
    at = 0
    while await told(Story(place, rests=rests), how, at):
        at += 1
    assert at > 5, "it was stopped at several places"
