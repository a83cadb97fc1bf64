"""`deadline=`: a run has so many seconds, then it stops whatever it is doing (P9)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.support.agents import (
    FakeClock,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.loops import never, soon, until
from understudy import (
    Agent,
    Halt,
    InMemoryCancellation,
    Interrupted,
    Outcome,
    Run,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    StopReason,
    Tool,
    ToolContext,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.journal import MemoryJournal
from understudy.middleware import Haltable, Middleware, SubAgent
from understudy.modes import AgentExecution, Parallel
from understudy.state.records import CancelRequested, Record, RunStarted, TimeSpent

SOON = 0.05
LONG = 60.0


def stopped(outcome: Outcome) -> Stopped:
    assert isinstance(outcome, Stopped), outcome
    assert [signal.reason for signal in outcome.signals] == [StopReason.TIME_LIMIT]
    assert_valid_history(outcome.state)
    return outcome


class Times:
    """A clock that stands still until a place is reached from which nothing comes back.

    The timer of a deadline looks at the run's own clock, so it never comes too early.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()

    async def out(self, _request: Any = None) -> Any:
        """The time is over here. Also a reply of a `ScriptedModel`."""
        self.clock.advance(LONG)
        await never()

    @property
    def hangs(self) -> Tool:
        @tool
        async def hangs() -> str:
            """Never end."""
            await self.out()
            return "never"

        return hangs

    def execute(self, agent: Agent, **options: Any) -> Outcome:
        return agent.execute_sync("go", deadline=SOON, clock=self.clock, **options)


@pytest.fixture
def times() -> Times:
    return Times()


@tool
async def quick() -> str:
    """Be quick."""
    return "quick"


@tool(sequential=True)
async def later() -> str:
    """Run after the others."""
    return "never"


def test_a_model_call_is_interrupted_at_once(times: Times) -> None:
    """P9."""
    agent = Agent("a", ScriptedModel([call("quick"), times.out]), tools=[quick])
    outcome = stopped(times.execute(agent))
    assert [part.content for part in results(outcome.state)] == ["quick"]
    assert outcome.explain() == (
        "Stopped after 1 model call: time_limit: its deadline of 0.05 seconds came (from "
        "'deadline')."
    )


def test_a_streamed_model_call_is_interrupted_too(times: Times) -> None:
    """P9."""
    agent = Agent("a", ScriptedModel([times.out]))
    stopped(times.execute(agent, on_event=lambda event: None))


def test_what_finished_is_kept_what_started_is_in_doubt_the_rest_is_not_run(
    times: Times,
) -> None:
    """P9, P7."""
    model = ScriptedModel([[call("quick"), call("hangs"), call("later")]])
    agent = Agent("a", model, tools=[quick, times.hangs, later])
    outcome = stopped(times.execute(agent))
    parts = results(outcome.state)
    assert [part.outcome for part in parts] == ["success", "interrupted", "interrupted"]
    assert parts[0].content == "quick"
    assert "outcome of this call is unknown" in str(parts[1].content)
    assert "Not run" in str(parts[2].content)
    assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["hangs"]


def test_the_thread_of_a_plain_tool_is_abandoned(times: Times) -> None:
    """P9, P7."""
    release = threading.Event()

    @tool
    def blocks() -> str:
        """Block its thread."""
        times.clock.advance(LONG)
        release.wait()
        return "late"

    agent = Agent("a", ScriptedModel([call("blocks")]), tools=[blocks])
    try:
        outcome = stopped(times.execute(agent))
    finally:
        release.set()
    assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["blocks"]


def test_a_tool_that_swallows_its_interruption_does_not_save_the_run(times: Times) -> None:
    """P9: what it brings is kept."""

    @tool
    async def stubborn() -> str:
        """Hold on."""
        try:
            await times.out()
        except asyncio.CancelledError:
            return "I held on"
        return "never"

    model = ScriptedModel([call("stubborn"), "never"])
    outcome = stopped(times.execute(Agent("a", model, tools=[stubborn])))
    assert [part.content for part in results(outcome.state)] == ["I held on"]
    assert len(model.requests) == 1


def test_a_tool_that_fails_because_it_is_interrupted_is_in_doubt(times: Times) -> None:
    """P9, J4: its error is no answer to the call, which the model could make again."""

    @tool
    async def breaks() -> str:
        """Break in the middle."""
        try:
            await times.out()
        except asyncio.CancelledError:
            raise ValueError("half done") from None
        return "never"

    model = ScriptedModel([call("breaks"), "never"])
    outcome = stopped(times.execute(Agent("a", model, tools=[breaks])))
    assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["breaks"]
    assert len(model.requests) == 1


def test_a_run_that_is_done_in_time_is_left_alone() -> None:
    """P9."""
    agent = Agent("a", ScriptedModel([call("quick"), "done"]), tools=[quick])
    assert completed(agent.execute_sync("go", deadline=LONG)).text == "done"


def test_no_override_lifts_a_deadline(times: Times) -> None:
    """P9: as by cancel."""

    class Extends(Middleware):
        async def before_model(self, run: Run, request: Any) -> None:
            run.request_continuation()

    agent = Agent("a", ScriptedModel([times.out, "never"]), middleware=[Extends()])
    stopped(times.execute(agent))


def test_the_wish_to_stop_is_recorded_before_anything_is_interrupted(times: Times) -> None:
    """J13."""
    kept: list[Record] = []

    class Kept:
        has_unflushed = False

        def append(self, records: Any) -> None:
            kept.extend(records)

        async def durable(self) -> None:
            return

    agent = Agent("a", ScriptedModel([times.out]))
    stopped(times.execute(agent, journal=Kept()))
    wishes = [record for record in kept if isinstance(record, CancelRequested)]
    assert [wish.signal["reason"] for wish in wishes] == ["time_limit"]
    begun = next(record for record in kept if isinstance(record, RunStarted))
    assert begun.deadline == SOON


async def test_a_host_that_cancels_the_run_is_no_deadline(times: Times) -> None:
    """J13: it is a crash, and writes nothing."""
    agent = Agent("a", ScriptedModel([times.out]))

    task = asyncio.ensure_future(agent.execute("go", deadline=LONG))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ------------------------------------------------------------------ over resumes, by its clock


def slow_agent(clock: FakeClock) -> Agent:
    @tool
    async def slow() -> str:
        """Take four seconds."""
        clock.advance(4)
        return "done"

    return Agent("a", by_turn(*[call("slow")] * 9), tools=[slow], interrupt_on={"slow": True})


def test_the_waits_for_people_are_not_counted_and_resumes_are() -> None:
    """P9: as P5's seconds; the deadline is a fact, so another process keeps it."""
    clock = FakeClock()
    outcome = slow_agent(clock).execute_sync("go", deadline=9, clock=clock)
    rounds = 0
    while isinstance(outcome, Interrupted):
        rounds += 1
        clock.advance(3600)
        state = reloaded(outcome.state)
        clock = FakeClock()
        outcome = slow_agent(clock).resume_sync(state, outcome.decide(approve()), clock=clock)
    stopped(outcome)
    assert rounds == 3, "three times four seconds are over nine"


def test_a_run_whose_time_is_over_does_not_go_on_when_it_is_resumed() -> None:
    """P9."""
    clock = FakeClock()

    class Slow(Middleware):
        async def after_model(self, run: Run, reply: Any) -> None:
            clock.advance(10)

    model = ScriptedModel([call("quick"), "never"])
    agent = Agent("a", model, tools=[quick], middleware=[Slow()], interrupt_on={"quick": True})
    outcome = interrupted(agent.execute_sync("go", deadline=10, clock=clock))
    end = stopped(agent.resume_sync(outcome.state, outcome.decide(approve()), clock=clock))
    assert results(end.state)[0].outcome == "interrupted", "approved, and not run"


# ---------------------------------------------------------------------------------- children


def test_children_inherit_what_is_left() -> None:
    """P9."""
    clock = FakeClock()
    left: list[float | None] = []

    class Looks(Middleware):
        async def on_run_start(self, run: Run) -> None:
            left.append(run.seconds_left)

    grandchild = Agent("grandchild", ScriptedModel(["done"]), middleware=[Looks()])

    @tool
    async def pass_on(ctx: ToolContext) -> str:
        """Pass it on."""
        clock.advance(3)
        return str(await ctx.run_agent(grandchild, "go"))

    child = Agent(
        "child", ScriptedModel([call("pass_on"), "done"]), tools=[pass_on], middleware=[Looks()]
    )

    @tool
    async def delegate(ctx: ToolContext) -> str:
        """Delegate it."""
        clock.advance(4)
        return str(await ctx.run_agent(child, "go"))

    agent = Agent("a", ScriptedModel([call("delegate"), "done"]), tools=[delegate])
    completed(agent.execute_sync("go", deadline=10, clock=clock))
    assert left == [6, 3]


def test_a_run_without_a_deadline_has_none_to_hand_on() -> None:
    """P9."""
    left: list[float | None] = []

    class Looks(Middleware):
        async def on_run_start(self, run: Run) -> None:
            left.append(run.seconds_left)

    child = Agent("child", ScriptedModel(["done"]), middleware=[Looks()])
    task = call("task", {"task_name": "child", "instructions": "go"})
    stack = [SubAgent(agents=[child], general_purpose=False)]
    completed(Agent("a", ScriptedModel([task, "done"]), middleware=stack).execute_sync("go"))
    assert left == [None]


def test_a_deadline_ends_the_agents_that_tools_run(times: Times) -> None:
    """P9, S6."""
    child = Agent("child", ScriptedModel([call("hangs"), "never"]), tools=[times.hangs])
    task = call("task", {"task_name": "child", "instructions": "go"})
    model = ScriptedModel([task, "never"])
    stack = [SubAgent(agents=[child], general_purpose=False)]
    outcome = stopped(times.execute(Agent("a", model, middleware=stack)))
    assert len(model.requests) == 1
    assert outcome.state.children == {}
    assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["hangs"]


# ------------------------------------------------------------------------------------ actors


def test_a_ref_passes_the_deadline_on(times: Times) -> None:
    """P9, A1: stopped by time, the agent is idle."""
    agent = Agent("a", ScriptedModel([times.out, "next"]))
    with Runtime(agents=[agent], clock=times.clock) as runtime:
        ref = runtime.spawn("a", id="x")
        stopped(ref.run("go", deadline=SOON).get(timeout=60))
        assert ref.status() is Status.IDLE
        assert completed(ref.run("go").get(timeout=60)).text == "next"
        with pytest.raises(UsageError, match="deadline"):
            ref.run("go", deadline=-1)


@pytest.mark.parametrize("wrong", [0, -1, True, "3", float("nan"), float("inf"), 10**400])
def test_what_is_no_deadline_is_refused_before_anything_runs(wrong: Any) -> None:
    """R8."""
    model = ScriptedModel([])
    with pytest.raises(UsageError, match="deadline must be a number of seconds above 0"):
        Agent("a", model).execute_sync("go", deadline=wrong)
    assert model.requests == []


async def test_streams_take_a_deadline(times: Times) -> None:
    """P9."""
    agent = Agent("a", ScriptedModel([times.out]))
    events = [event async for event in agent.stream("go", deadline=SOON, clock=times.clock)]
    outcome = events[-1]
    assert isinstance(outcome, Outcome)
    stopped(outcome)


async def test_a_source_that_cancels_goes_before_a_deadline_that_is_over_too() -> None:
    """P7, P9: the run says who cancelled it."""
    clock, cancellation = FakeClock(), InMemoryCancellation()

    async def late(_: object) -> Any:
        clock.advance(LONG)
        cancellation.cancel("by ann")
        return call("quick")

    agent = Agent("a", ScriptedModel([late, "never said"]), tools=[quick])
    outcome = await agent.execute("go", deadline=LONG, clock=clock, cancellation=cancellation)
    assert isinstance(outcome, Stopped)
    assert [signal.message for signal in outcome.signals] == ["by ann"]


@pytest.mark.parametrize("by", ["source", "deadline"])
async def test_no_agent_of_a_halted_run_is_cancelled(by: str) -> None:
    """I11: a halt goes before both, also where it comes between two turns of another agent."""
    clock, cancellation = FakeClock(), InMemoryCancellation()
    halted, turned = asyncio.Event(), asyncio.Event()

    @tool
    async def alarm() -> str:
        await turned.wait()
        if by == "source":
            cancellation.cancel("too late")
        else:
            clock.advance(LONG)
        raise Halt("smoke")

    async def last(run: Run) -> None:
        """The halt comes here: the next look is the one before the turn."""
        turned.set()
        await until(lambda: run.root.current.halt is not None)
        halted.set()

    loud = Agent("loud", ScriptedModel([call("alarm")]), tools=[alarm], middleware=[Haltable()])
    mode = AgentExecution().inserting(after="continue_or_finish", step=last)
    quiet = Agent("quiet", ScriptedModel([call("quick"), "never said"]), tools=[quick], mode=mode)
    both = Agent("both", mode=Parallel([loud, quiet]))
    options: dict[str, Any] = {"cancellation": cancellation, "deadline": LONG, "clock": clock}
    outcome = interrupted(await soon(both.execute("go", **options)))
    assert halted.is_set()
    assert [request.kind for request in outcome.requests] == ["halt"]
    runs = [state.run for state in outcome.state.tree if state.run is not None]
    assert [run.cancelled for run in runs] == [None] * 3


@pytest.mark.parametrize("limited", [False, True], ids=["unlimited", "limited"])
async def test_only_a_run_with_a_limit_records_its_time(limited: bool) -> None:
    """P9: what nobody asked for costs no record."""
    journal = MemoryJournal()
    agent = Agent("a", ScriptedModel([call("quick"), "done"]), tools=[quick])
    deadline = LONG if limited else None
    completed(await agent.execute("go", journal=journal, deadline=deadline))
    assert any(isinstance(record, TimeSpent) for record in journal.records) is limited
