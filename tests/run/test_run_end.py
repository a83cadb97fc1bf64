"""`on_run_end` comes once for every run that ended, however it ended (R4)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.agents import Held, completed, interrupted
from tests.support.loops import never, soon
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    InMemoryCancellation,
    MiddlewareError,
    Outcome,
    Run,
    Runtime,
    ScriptedModel,
    Stopped,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.middleware import Middleware, SubAgent
from understudy.modes import Parallel, Sequential


class Ends(Middleware):
    """Notes how each run of its agent ends."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        self.log.append(f"{run.definition.name} {_ending(outcome)}")


class Starts(Middleware):
    async def on_run_start(self, run: Run) -> None:
        pass


def _ending(outcome: Outcome) -> str:
    if not isinstance(outcome, Stopped):
        return type(outcome).__name__
    highest = outcome.signals.highest
    assert highest is not None
    return f"Stopped by {highest.source}"


@tool
def note() -> str:
    return "noted"


@pytest.mark.parametrize("others", [[], [Starts()]], ids=["alone", "beside one that starts"])
@pytest.mark.parametrize("how", ["completed", "failed", "cancelled before the start"])
def test_a_run_ends_with_its_hook_however_it_ends_and_whatever_is_beside_it(
    how: str, others: list[Middleware]
) -> None:
    """R4."""
    log: list[str] = []
    source = InMemoryCancellation()
    if how == "cancelled before the start":
        source.cancel()
    model = ScriptedModel([RuntimeError("down") if how == "failed" else "done"])
    agent = Agent("a", model, middleware=[Ends(log), *others])
    agent.execute_sync("go", cancellation=source)
    expected = {"completed": "Completed", "failed": "Failed"}
    assert log == [f"a {expected.get(how, 'Stopped by cancellation')}"]


def test_a_run_that_a_new_message_withdraws_has_ended_with_all_inside_it() -> None:
    """R4."""
    log: list[str] = []
    child = Agent(
        "child",
        ScriptedModel([call("note"), "done"]),
        tools=[note],
        interrupt_on={"note": True},
        middleware=[Ends(log)],
    )
    model = ScriptedModel([call("task", {"task_name": "child", "instructions": "x"}), "new"])
    parent = Agent(
        "parent", model, middleware=[Ends(log), SubAgent([child], general_purpose=False)]
    )
    waiting = interrupted(parent.execute_sync("go"))
    assert log == []
    stored = AgentState.from_dict(json.loads(json.dumps(waiting.state.to_dict())))
    completed(parent.execute_sync("something else", state=stored))
    assert log == ["child Stopped by withdrawn", "parent Stopped by withdrawn", "parent Completed"]


def test_a_deadline_ends_the_agents_inside_with_their_hooks() -> None:
    """R4."""
    log: list[str] = []

    async def slow(_: Any) -> str:
        await never()
        return "never"

    child = Agent("child", ScriptedModel(slow), middleware=[Ends(log)])

    @tool(idempotent=True)
    async def delegate(ctx: ToolContext) -> str:
        await ctx.run_agent(child, "go")
        return "never"

    parent = Agent(
        "parent", ScriptedModel([call("delegate")]), tools=[delegate], middleware=[Ends(log)]
    )
    outcome = parent.execute_sync("go", deadline=0.05)
    assert isinstance(outcome, Stopped)
    assert log == ["child Stopped by deadline", "parent Stopped by deadline"]


async def test_cancel_ends_the_run_and_the_agents_inside_it_with_their_hooks() -> None:
    """R4."""
    log: list[str] = []
    held = Held()
    child = Agent("child", ScriptedModel([held]), middleware=[Ends(log)])

    @tool(idempotent=True)
    async def delegate(ctx: ToolContext) -> str:
        await ctx.run_agent(child, "go")
        return "never"

    parent = Agent(
        "parent",
        ScriptedModel([call("delegate"), "again"]),
        tools=[delegate],
        middleware=[Ends(log), Starts()],
    )
    async with Runtime([parent]) as runtime:
        ref = runtime.spawn("parent")
        run = ref.run("go")
        await soon(held.entered.wait())
        assert isinstance(await soon(ref.cancel()), Stopped)
        assert isinstance(await soon(run), Stopped)
        assert log == ["child Stopped by cancel", "parent Stopped by cancel"]
        completed(await soon(ref.run("again")))
    assert log[2:] == ["parent Completed"]


async def test_a_run_that_is_cancelled_before_it_begins_ends_with_its_hook() -> None:
    """R4."""
    log: list[str] = []
    model = ScriptedModel(["never"])
    async with Runtime([Agent("a", model, middleware=[Ends(log), Starts()])]) as runtime:
        ref = runtime.spawn("a")
        run, _ = ref.run("go"), ref.cancel()
        assert isinstance(await soon(run), Stopped)
    assert log == ["a Stopped by cancel"]
    assert model.requests == []


def test_an_agent_that_its_tool_gives_up_on_has_ended() -> None:
    """R4."""
    log: list[str] = []

    async def slow(_: Any) -> str:
        await never()
        return "never"

    child = Agent("child", ScriptedModel(slow), middleware=[Ends(log)])

    @tool
    async def impatient(ctx: ToolContext) -> str:
        try:
            await asyncio.wait_for(ctx.run_agent(child, "go"), 0.05)
        except TimeoutError:
            return "gave up"
        return "never"

    agent = Agent("parent", ScriptedModel([call("impatient"), "done"]), tools=[impatient])
    completed(agent.execute_sync("go"))
    assert log == ["child Stopped by withdrawn"]


def test_an_agent_that_a_failing_sibling_stops_has_ended() -> None:
    """R4."""
    log: list[str] = []
    asks = Agent(
        "asks",
        ScriptedModel([call("note")]),
        tools=[note],
        interrupt_on={"note": True},
        middleware=[Ends(log)],
    )
    fails = Agent("fails", ScriptedModel([RuntimeError("down")]), middleware=[Ends(log)])
    outcome = Agent("both", mode=Parallel([asks, fails])).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert sorted(log) == ["asks Stopped by both", "fails Failed"]


def test_each_agent_of_a_workflow_ends_once() -> None:
    """R4."""
    log: list[str] = []
    agents = [Agent(name, ScriptedModel(["x"]), middleware=[Ends(log)]) for name in ("one", "two")]
    completed(Agent("all", mode=Sequential(agents), middleware=[Ends(log)]).execute_sync("go"))
    assert log == ["one Completed", "two Completed", "all Completed"]


class Raises(Middleware):
    def __init__(self, error: Callable[[], BaseException]) -> None:
        self.error = error
        self.calls = 0

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        self.calls += 1
        raise self.error()


def test_a_hook_that_raises_at_the_end_fails_a_completed_run_and_the_others_see_that() -> None:
    """R4."""
    log: list[str] = []
    raises = Raises(lambda: LookupError("no"))
    outcome = Agent("a", ScriptedModel(["x"]), middleware=[Ends(log), raises]).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert raises.calls == 1
    assert log == ["a Failed"]


def test_a_hook_that_raises_at_the_end_of_a_failed_run_leaves_its_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R4."""
    raises = Raises(lambda: LookupError("the second error"))
    model = ScriptedModel([RuntimeError("the first error")])
    with caplog.at_level(logging.ERROR, "understudy"):
        outcome = Agent("a", model, middleware=[raises]).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert "the first error" in str(outcome.error)
    assert "the second error" in caplog.text
    assert raises.calls == 1


@pytest.mark.parametrize("kind", [LookupError, SystemExit], ids=["exception", "exit"])
async def test_an_end_hook_that_kills_a_cancelled_run_is_not_called_again(
    kind: type[BaseException],
) -> None:
    """R4: the run stays cancelled."""
    raises = Raises(lambda: kind("no"))
    held = Held()
    async with Runtime([Agent("a", ScriptedModel([held]), middleware=[raises])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.cancel())
        assert isinstance(await soon(run), Stopped)
    assert raises.calls == 1


async def test_a_hook_at_the_end_that_hangs_is_cut_off_by_a_cancel() -> None:
    """R4."""
    entered = [asyncio.Event(), asyncio.Event()]
    log: list[str] = []

    class Hangs(Middleware):
        async def on_run_end(self, run: Run, outcome: Outcome) -> None:
            log.append(type(outcome).__name__)
            entered[0 if isinstance(outcome, Completed) else 1].set()
            await never()

    held = Held()
    async with Runtime([Agent("a", ScriptedModel(["x", held]), middleware=[Hangs()])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(entered[0].wait())
        assert isinstance(await soon(ref.cancel()), Stopped)
        assert isinstance(await soon(run), Stopped)
        assert log == ["Completed"]
        run = ref.run("and again")
        await soon(held.entered.wait())
        first = ref.cancel("why not")
        await soon(entered[1].wait())
        second = ref.cancel("another reason")
        outcome = await soon(run)
        assert isinstance(outcome, Stopped)
        assert "why not" in outcome.explain()
        assert await soon(first) == await soon(second) == outcome
    assert log == ["Completed", "Stopped"]


async def test_a_run_that_a_runtime_withdraws_has_ended() -> None:
    """R4."""
    log: list[str] = []
    model = ScriptedModel([call("note"), "new"])
    agent = Agent("a", model, tools=[note], interrupt_on={"note": True}, middleware=[Ends(log)])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        asked = interrupted(await soon(ref.run("go")))
        completed(await soon(ref.run("something else")))
        assert log == ["a Stopped by withdrawn", "a Completed"]
        assert asked.decide(approve())


async def test_a_waiting_run_that_is_cancelled_has_ended() -> None:
    """R4."""
    log: list[str] = []
    model = ScriptedModel([call("note"), "new"])
    agent = Agent("a", model, tools=[note], interrupt_on={"note": True}, middleware=[Ends(log)])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        interrupted(await soon(ref.run("go")))
        assert isinstance(await soon(ref.cancel()), Stopped)
    assert log == ["a Stopped by cancel"]


@pytest.mark.parametrize("kind", [LookupError, SystemExit], ids=["exception", "exit"])
async def test_an_end_hook_that_kills_a_withdrawn_run_does_not_lose_the_new_message(
    kind: type[BaseException],
) -> None:
    """R4, J14: the others are called, and the new run begins."""
    log: list[str] = []

    class Dies(Middleware):
        async def on_run_end(self, run: Run, outcome: Outcome) -> None:
            if isinstance(outcome, Stopped):
                raise kind("no")

    model = ScriptedModel([call("note"), "new"])
    agent = Agent(
        "a", model, tools=[note], interrupt_on={"note": True}, middleware=[Ends(log), Dies()]
    )
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        interrupted(await soon(ref.run("go")))
        assert completed(await soon(ref.run("something else"))).text == "new"
    assert log == ["a Stopped by withdrawn", "a Completed"]
