"""What is said of a call that did not finish: that it was not run, or ran in part."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import FakeClock, by_turn, completed, interrupted, results
from tests.support.loops import never
from understudy import Agent, Interrupt, Stopped, ToolContext, call, tool
from understudy.events import ToolEnded, ToolStarted

ORDER = {"order": "17"}


@tool
async def ship(ctx: ToolContext, order: str) -> str:
    """Ship an order."""

    async def reserve() -> str:
        return "reserved"

    await ctx.once("reserve", reserve)
    raise Interrupt("Which address?")


def test_a_call_that_asked_after_it_had_done_something_ran_in_part() -> None:
    """T17: the user says something else instead of answering."""
    agent = Agent("desk", by_turn(call("ship", ORDER)), tools=[ship])
    asked = interrupted(agent.execute_sync("go"))
    outcome = completed(agent.execute_sync("Never mind.", state=asked.state))
    (part,) = results(outcome.state)
    assert part.outcome == "denied"
    assert part.content == (
        "Ran in part: the user moved on instead of answering what it asked. What it had done "
        "before stands. It had done this: 'reserve' once."
    )


def test_a_call_that_was_never_entered_is_not_run() -> None:
    """T17: a person was asked whether it may."""
    agent = Agent("desk", by_turn(call("ship", ORDER)), tools=[ship], interrupt_on={"ship": True})
    asked = interrupted(agent.execute_sync("go"))
    outcome = completed(agent.execute_sync("Never mind.", state=asked.state))
    (part,) = results(outcome.state)
    assert str(part.content).startswith("Not run: ")


@pytest.mark.parametrize("end", ["deadline", "new message"])
def test_each_start_of_a_call_that_does_not_finish_has_an_end(end: str) -> None:
    """T17: subscribers see no call that runs for ever."""
    clock, events = FakeClock(), list[Any]()

    @tool
    async def hang() -> str:
        clock.advance(3600)
        await never()
        return "never"

    name = "hang" if end == "deadline" else "ship"
    turn = call(name, {} if end == "deadline" else ORDER)
    agent = Agent("desk", by_turn(turn), tools=[hang, ship])
    outcome = agent.execute_sync("go", deadline=0.01, clock=clock, on_event=events.append)
    if end == "new message":
        asked = interrupted(outcome)
        agent.execute_sync("Never mind.", state=asked.state, on_event=events.append)
    else:
        assert isinstance(outcome, Stopped)
    started = [event.call_key for event in events if isinstance(event, ToolStarted)]
    ended = [event.call_key for event in events if isinstance(event, ToolEnded)]
    assert len(started) == 1
    assert ended == started
