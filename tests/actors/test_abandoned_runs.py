"""Async code that goes on after its cancellation: nothing waits for it, nothing of it is kept."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pykka
import pytest

from tests.support.agents import (
    FakeClock,
    Held,
    assert_valid_history,
    by_turn,
    completed,
    results,
    until_status,
    works_again,
)
from tests.support.loops import never, own_tasks, soon, until
from tests.support.places import MemoryPlace, Place, SqlitePlace
from understudy import (
    Agent,
    AgentRef,
    AgentState,
    Completed,
    Failed,
    Outcome,
    Run,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    StopReason,
    ToolContext,
    UsageError,
    call,
    tool,
)
from understudy.errors import Fenced, StoreBroken, UnknownAgent
from understudy.journal import DatabaseStore
from understudy.middleware import Cancellation, Middleware, SubAgent
from understudy.modes import Parallel
from understudy.testing import FaultyBackend

SECONDS = 0.05
"""How long what is cancelled may take to end, where it never does."""


class Stubborn:
    """A place in async code that a cancellation does not end: only the test does.

    Args:
        once: it waits on for ever after the first cancellation, and ends with the second.

    """

    def __init__(self, *, once: bool = False) -> None:
        self._once = once
        self.entered = asyncio.Event()
        self.released = asyncio.Event()
        self.left = asyncio.Event()
        self.cancelled = 0

    async def wait(self) -> None:
        self.entered.set()
        try:
            while not self.released.is_set():
                try:
                    await self.released.wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
                    if self._once:
                        await self.released.wait()
        finally:
            self.left.set()

    async def end(self) -> None:
        """Let it end, and wait until it has."""
        self.released.set()
        if self.entered.is_set():
            await soon(self.left.wait())


@pytest.fixture
def stubborn() -> Stubborn:
    return Stubborn()


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return MemoryPlace() if request.param == "memory" else SqlitePlace(tmp_path)


@asynccontextmanager
async def running(
    *agents: Agent, goes_on: Stubborn, store: Any = "memory:", **options: Any
) -> AsyncIterator[Runtime]:
    """A runtime, and after its end that of what goes on in it."""
    options.setdefault("cancel_timeout", SECONDS)
    try:
        async with Runtime(agents, store=store, **options) as runtime:
            yield runtime
    finally:
        await goes_on.end()


def stubborn_tool(stubborn: Stubborn) -> Any:
    @tool(name="stubborn")
    async def body() -> str:
        await stubborn.wait()
        return "late"

    return body


def stopped(outcome: Outcome | None, reason: StopReason = StopReason.USER_REQUESTED) -> Stopped:
    assert isinstance(outcome, Stopped), outcome
    highest = outcome.signals.highest
    assert highest is not None
    assert highest.reason is reason
    assert outcome.state.run is not None
    assert outcome.state.run.over
    assert_valid_history(outcome.state)
    return outcome


def doubtful(state: AgentState) -> list[str]:
    """The tools whose calls are in doubt."""
    return [doubt.tool_name for doubt in state.doubts.values()]


async def finished(ref: AgentRef) -> Completed:
    """The outcome of the run that goes on."""
    outcome = await soon(ref.outcome())
    assert outcome is not None
    return completed(outcome)


async def none_abandoned(runtime: Runtime) -> None:
    await until(lambda: runtime.status().abandoned_tasks == 0)


# ------------------------------------------------------------------------------- cancel


@pytest.mark.parametrize("once", [False, True], ids=["always", "once"])
async def test_a_run_is_stopped_though_its_tool_goes_on_after_the_cancellation(
    place: Place, caplog: pytest.LogCaptureFixture, once: bool
) -> None:
    """P10."""
    stubborn = Stubborn(once=once)
    model = ScriptedModel([call("stubborn"), "well again"])
    agent = Agent("a", model, tools=[stubborn_tool(stubborn)])
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        assert runtime.status().abandoned_tasks == 0
        outcome = stopped(await soon(ref.cancel("enough")))
        assert outcome == await soon(run)
        assert outcome.signals.first is not None
        assert outcome.signals.first.message == "enough"
        assert [part.outcome for part in results(outcome.state)] == ["interrupted"]
        assert doubtful(outcome.state) == ["stubborn"]
        assert ref.status() is Status.CANCELLED
        assert runtime.status().abandoned_tasks == 1
        assert "the run of agent 'x', with the tool 'stubborn', goes on 0.05 s" in caplog.text
        assert "test_abandoned_runs.py" in caplog.text, "where"
        await works_again(ref)
        await stubborn.end()
        await none_abandoned(runtime)
        assert ref.status() is Status.IDLE


async def test_what_ends_in_time_after_its_cancellation_is_not_abandoned(place: Place) -> None:
    """P10: its result is kept."""
    begun = asyncio.Event()

    @tool
    async def tidy() -> str:
        begun.set()
        try:
            await never()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "tidied up"

    agent = Agent("a", ScriptedModel([call("tidy"), "well again"]), tools=[tidy])
    async with Runtime([agent], store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(begun.wait())
        outcome = stopped(await soon(ref.cancel()))
        assert outcome is await soon(run)
        assert [part.content for part in results(outcome.state)] == ["tidied up"]
        assert doubtful(outcome.state) == []
        assert runtime.status().abandoned_tasks == 0
        await works_again(ref)


async def test_nothing_that_abandoned_code_does_is_recorded_or_told(
    place: Place, stubborn: Stubborn
) -> None:
    """P10."""
    refused: list[BaseException] = []
    seen: list[Run] = []
    ended: list[str] = []

    class Watches(Middleware):
        async def on_run_start(self, run: Run) -> None:
            seen.append(run)

        async def on_run_end(self, run: Run, outcome: object) -> None:
            ended.append(type(outcome).__name__)

    helper = Agent("helper", ScriptedModel(lambda _: "helped"))

    @tool
    async def persistent(ctx: ToolContext) -> str:
        await stubborn.wait()
        ctx.emit("from beyond")

        async def once() -> None:
            await seen[0].once("key", lambda: "value")

        async def signal() -> None:
            seen[0].escalate()

        for attempt in (lambda: ctx.run_agent(helper, "help"), once, signal, seen[0].durable):
            try:
                await attempt()
            except Exception as error:
                refused.append(error)
        return "late"

    model = ScriptedModel([call("persistent"), "well again", "too many"])
    agent = Agent("a", model, tools=[persistent], middleware=[Watches()])
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        subscription = ref.events()
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        stopped(await soon(ref.cancel()))
        stopped(await soon(run))
        before = (await soon(ref.state())).to_dict()
        await stubborn.end()
        await none_abandoned(runtime)
        assert [type(error).__mro__[1] for error in refused] == [Fenced] * 4
        assert "is abandoned" in str(refused[0])
        assert (await soon(ref.state())).to_dict() == before
        assert doubtful(await soon(ref.state())) == ["persistent"]
        assert len(model.requests) == 1, "the model is not asked by it"
        assert ended == ["Stopped"]
        subscription.close()
        told = [emitted.event.kind async for emitted in subscription]
        assert "tool_emitted" not in told
        await works_again(ref)


def in_a_sub_agent(body: Any) -> Agent:
    worker = Agent("worker", by_turn(call("stubborn")), tools=[body])
    steps: list[Any] = [call("task", {"task_name": "worker", "instructions": "go"}), "well again"]
    return Agent("a", ScriptedModel(steps), middleware=[SubAgent(agents=[worker])])


def in_a_branch(body: Any) -> Agent:
    model = by_turn(call("stubborn"))
    branches = [Agent("one", model, tools=[body]), Agent("two", ScriptedModel(lambda _: "two"))]
    return Agent("a", mode=Parallel(branches))


def beside_others(body: Any) -> Agent:
    @tool
    async def obedient() -> str:
        await never()
        return "never"

    model = ScriptedModel([[call("stubborn"), call("obedient")], "well again"])
    return Agent("a", model, tools=[body, obedient])


@pytest.mark.parametrize("inside", [in_a_sub_agent, in_a_branch, beside_others])
async def test_a_run_is_stopped_wherever_inside_it_a_tool_goes_on(
    place: Place,
    stubborn: Stubborn,
    caplog: pytest.LogCaptureFixture,
    inside: Callable[[Any], Agent],
) -> None:
    """P10, S6."""
    agent = inside(stubborn_tool(stubborn))
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        outcome = stopped(await soon(ref.cancel()))
        assert outcome == await soon(run)
        assert "stubborn" in doubtful(outcome.state)
        assert "'stubborn'" in caplog.text
        assert runtime.status().abandoned_tasks == 1
        await stubborn.end()
        await none_abandoned(runtime)
        assert "stubborn" in doubtful(await soon(ref.state()))


HOOKS = ["on_run_start", "before_model", "after_model", "before_step", "check_tool_calls"]
MORE = [pytest.param(each, marks=pytest.mark.slow) for each in [*HOOKS, "source"]]


@pytest.mark.parametrize("hook", [*MORE, "wrap_tool_call", "model", "pause_when"])
async def test_a_run_is_stopped_though_a_hook_or_a_model_goes_on(
    place: Place, stubborn: Stubborn, caplog: pytest.LogCaptureFixture, hook: str
) -> None:
    """P10."""

    async def waits(*_: object) -> Any:
        if not stubborn.entered.is_set():
            await stubborn.wait()
        return None

    async def hook_waits(self: Middleware, *given: Any) -> Any:
        await waits()
        return await given[2](given[1]) if hook == "wrap_tool_call" else None

    async def model_waits(_: object) -> str:
        await waits()
        return "done"

    @tool
    async def quick() -> str:
        return "quick"

    class Source:
        async def check(self, state: AgentState) -> None:
            await waits()

    middleware: list[Middleware] = []
    if hook in dir(Middleware):
        middleware = [type("Hooked", (Middleware,), {hook: hook_waits})()]
    if hook == "source":
        middleware = [Cancellation(Source())]
    agent = Agent(
        "a",
        ScriptedModel(model_waits) if hook == "model" else by_turn(call("quick"), "well again"),
        tools=[quick],
        middleware=middleware,
        pause_when=waits if hook == "pause_when" else None,
    )
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        outcome = stopped(await soon(ref.cancel()))
        assert outcome == await soon(run)
        assert runtime.status().abandoned_tasks == 1
        assert "test_abandoned_runs.py" in caplog.text, "where"
        await works_again(ref)


async def test_a_hook_at_the_end_that_goes_on_after_a_cancel_is_not_called_again(
    place: Place, stubborn: Stubborn
) -> None:
    """P10, R4: else it would hold up the end of the run for ever."""
    ended: list[str] = []

    class Holds(Middleware):
        async def on_run_end(self, run: Run, outcome: object) -> None:
            ended.append(type(outcome).__name__)
            if len(ended) == 1:
                await stubborn.wait()

    agent = Agent("a", ScriptedModel(lambda _: "done"), middleware=[Holds()])
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        outcome = stopped(await soon(ref.cancel()))
        assert outcome == await soon(run)
        assert ended == ["Completed"]
        await works_again(ref)


async def test_a_run_that_cannot_begin_is_refused_where_it_is_cancelled(
    place: Place, stubborn: Stubborn
) -> None:
    """P10: the hooks of the run that it withdraws go on. That one waits for its answers still."""

    class Holds(Middleware):
        async def on_run_end(self, run: Run, outcome: object) -> None:
            if not stubborn.entered.is_set():
                await stubborn.wait()

    @tool
    async def pay() -> str:
        return "paid"

    model = by_turn(call("pay"), "done", "well again")
    agent = Agent("a", model, tools=[pay], middleware=[Holds()], interrupt_on={"pay": True})
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        await soon(ref.run("first"))
        run = ref.run("second")
        await soon(stubborn.entered.wait())
        cancelled = ref.cancel()
        for future in (run, cancelled):
            with pytest.raises(Fenced, match="is abandoned"):
                await soon(future)
        await until_status(ref, Status.INTERRUPTED)
        assert [each.agent_id for each in await soon(runtime.pending())] == ["x"]
        await works_again(ref)


async def test_a_deadline_ends_a_run_though_its_tool_goes_on(
    place: Place, stubborn: Stubborn
) -> None:
    """P9, P10."""
    model = ScriptedModel([call("stubborn"), "well again"])
    agent, clock = Agent("a", model, tools=[stubborn_tool(stubborn)]), FakeClock()
    async with running(agent, goes_on=stubborn, store=place.store(), clock=clock) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go", deadline=0.05)
        await soon(stubborn.entered.wait())
        clock.advance(60)
        outcome = await soon(run)
        assert doubtful(stopped(outcome, StopReason.TIME_LIMIT).state) == ["stubborn"]
        await works_again(ref)


@pytest.mark.parametrize("effect", ["read_only", "idempotent", None])
async def test_a_call_that_goes_on_after_its_limit_does_not_hold_the_run_up(
    place: Place, stubborn: Stubborn, effect: str | None
) -> None:
    """T6, P10: it is in doubt, or an error where it only looks, and is not called once more."""
    entered: list[str] = []
    is_doubt = effect != "read_only"

    @tool(timeout=0.01, read_only=not is_doubt, idempotent=effect == "idempotent")
    async def persistent() -> str:
        entered.append("persistent")
        await stubborn.wait()
        return "late"

    agent = Agent("a", by_turn(call("persistent"), "went on"), tools=[persistent])
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        outcome = completed(await soon(ref.run("go")))
        assert outcome.text == "went on"
        (part,) = results(outcome.state)
        assert "its limit of 0.01 seconds" in str(part.content)
        assert part.outcome == ("interrupted" if is_doubt else "failed")
        assert doubtful(outcome.state) == (["persistent"] if is_doubt else [])
        await stubborn.end()
        await none_abandoned(runtime)
        assert results(await soon(ref.state())) == [part]
        assert entered == ["persistent"]


async def test_a_call_that_ends_after_its_limit_is_waited_for(place: Place) -> None:
    """T6: as long as anything else that is cancelled, and the run goes on where it is."""

    tidying = Held()

    @tool(timeout=0.01)
    async def tidy() -> str:
        try:
            await never()
        finally:
            await tidying.wait()
        return "never"

    @tool
    async def quick() -> str:
        return "quick"

    model = by_turn([call("tidy"), call("quick")], "went on")
    async with Runtime([Agent("a", model, tools=[tidy, quick])], store=place.store()) as runtime:
        run = runtime.spawn("a", id="x").run("go")
        await soon(tidying.entered.wait())
        tidying.release.set()
        outcome = completed(await soon(run))
        assert [part.outcome for part in results(outcome.state)] == ["interrupted", "success"]
        assert outcome.state.run is not None
        assert outcome.state.run.attempts == 1


async def test_a_failed_branch_ends_its_workflow_though_a_sibling_goes_on(
    place: Place, stubborn: Stubborn
) -> None:
    """W6, P10."""

    async def fails(_: object) -> str:
        await stubborn.entered.wait()
        raise RuntimeError("no")

    one = Agent("one", by_turn(call("stubborn")), tools=[stubborn_tool(stubborn)])
    agent = Agent("a", mode=Parallel([one, Agent("two", ScriptedModel(fails))]))
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        outcome = await soon(runtime.spawn("a", id="x").run("go"))
        assert isinstance(outcome, Failed)
        assert "'two' failed" in str(outcome.error)
        assert doubtful(outcome.state) == ["stubborn"]


async def test_a_crash_beside_a_tool_that_goes_on_is_gone_on_from(
    place: Place, stubborn: Stubborn
) -> None:
    """A3, P10."""

    @tool
    async def dies() -> str:
        await stubborn.entered.wait()
        raise SystemExit

    model = by_turn([call("stubborn"), call("dies")], "got over it")
    agent = Agent("a", model, tools=[stubborn_tool(stubborn), dies])
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        outcome = completed(await soon(runtime.spawn("a", id="x").run("go")))
        assert outcome.text == "got over it"
        assert sorted(doubtful(outcome.state)) == ["dies", "stubborn"]


async def test_the_deadline_of_an_abandoned_run_disturbs_no_later_one(
    place: Place, stubborn: Stubborn
) -> None:
    """P10: it passes while the next run goes on."""
    held = Held("done")
    model = ScriptedModel([call("stubborn"), held])
    agent, clock = Agent("a", model, tools=[stubborn_tool(stubborn)]), FakeClock()
    async with running(agent, goes_on=stubborn, store=place.store(), clock=clock) as runtime:
        ref = runtime.spawn("a", id="x")
        first = ref.run("first", deadline=0.05)
        await soon(stubborn.entered.wait())
        stopped(await soon(ref.cancel()))
        stopped(await soon(first))
        second = ref.run("second")
        await soon(held.entered.wait())
        clock.advance(60)
        await until(lambda: stubborn.cancelled == 2)
        await until(lambda: not any("end of the run" in task.get_name() for task in own_tasks()))
        assert runtime.status().abandoned_tasks == 1
        held.release.set()
        assert completed(await soon(second)).text == "done"


async def test_a_message_to_middleware_beside_an_abandoned_run_is_answered(
    place: Place, stubborn: Stubborn
) -> None:
    """P10: by the error that its records would get."""
    begun = asyncio.Event()

    class Holds(Middleware):
        async def on_message(self, run: Run, message: object) -> None:
            begun.set()
            await never()

    agent = Agent(
        "a",
        by_turn(call("stubborn"), "well again"),
        tools=[stubborn_tool(stubborn)],
        middleware=[Holds()],
    )
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        run, told = ref.run("go"), ref.notify("Holds", "hello")
        await soon(stubborn.entered.wait())
        await soon(begun.wait())
        stopped(await soon(ref.cancel()))
        stopped(await soon(run))
        with pytest.raises(Fenced):
            await soon(told)
        await works_again(ref)


# ------------------------------------------------------------- what else waits for a run


async def test_an_agent_is_deleted_though_its_tool_goes_on(
    place: Place, stubborn: Stubborn
) -> None:
    """P10."""
    model = ScriptedModel([call("stubborn"), "another one"])
    agent = Agent("a", model, tools=[stubborn_tool(stubborn)])
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        assert await soon(runtime.delete("x"))
        stopped(await soon(run))
        with pytest.raises(UnknownAgent):
            await soon(runtime.get("x").state())
        again = runtime.spawn("a", id="x")
        assert completed(await soon(again.run("new"))).text == "another one"
        await stubborn.end()
        await none_abandoned(runtime)
        assert len((await soon(again.state())).messages) == 2


async def test_what_else_was_requested_of_a_run_that_is_abandoned_is_done(
    place: Place, stubborn: Stubborn
) -> None:
    """P10: it is passivated, compacted and its queued run is run."""
    model = by_turn(call("stubborn"), "second")
    agent = Agent("a", model, tools=[stubborn_tool(stubborn)])
    async with running(agent, goes_on=stubborn, store=place.store()) as runtime:
        ref = runtime.spawn("a", id="x")
        first = ref.run("first")
        await soon(stubborn.entered.wait())
        compacted, second = ref.compact(), ref.run("second")
        stopped(await soon(ref.cancel()))
        stopped(await soon(first))
        assert completed(await soon(second)).text == "second"
        await soon(compacted)
        events = ref.events()
        assert (await soon(anext(aiter(events)))).event.kind == "gap"
        events.close()


async def test_an_agent_whose_store_failed_answers_though_its_tool_goes_on(
    tmp_path: Path, stubborn: Stubborn
) -> None:
    """P10, J16."""
    backend = FaultyBackend(SqlitePlace(tmp_path).backend())
    model = by_turn(call("stubborn"), "went on")
    agent = Agent("a", model, tools=[stubborn_tool(stubborn)])
    async with running(agent, goes_on=stubborn, store=DatabaseStore(backend)) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        backend.fail("append_all", fault=lambda: StoreBroken(cause="full", remedy="Make room."))
        for _ in range(2):  # the second one is the first to meet a journal that has failed
            with pytest.raises(StoreBroken):
                await soon(ref.send("more"))
        with pytest.raises(StoreBroken):
            await soon(run)
        outcome = await finished(ref)
        assert doubtful(outcome.state) == ["stubborn"]
        assert runtime.status().abandoned_tasks == 1


async def test_a_runtime_that_lost_its_lease_goes_on_though_a_tool_does(
    tmp_path: Path, stubborn: Stubborn
) -> None:
    """P10, J6."""
    backend = FaultyBackend(SqlitePlace(tmp_path).backend())
    backend.lease = 0.1
    model = by_turn(call("stubborn"), "went on")
    agent = Agent("a", model, tools=[stubborn_tool(stubborn)])
    async with running(agent, goes_on=stubborn, store=DatabaseStore(backend)) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        backend.lease_lost = True
        with pytest.raises(Fenced, match="lease has ended"):
            await soon(run)
        await asyncio.to_thread(backend.renewed.wait, 60)
        assert doubtful((await finished(ref)).state) == ["stubborn"]


# ------------------------------------------------------------------------ the runtime ends


async def test_leaving_a_runtime_ends_though_a_tool_goes_on(
    place: Place, stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    """P10, A5. The next runtime finds the call in doubt."""
    agent = Agent("a", by_turn(call("stubborn"), "done"), tools=[stubborn_tool(stubborn)])
    left = Runtime([agent], store=place.store(), stop_timeout=0, cancel_timeout=SECONDS)
    async with left as runtime:
        run = runtime.spawn("a", id="x").run("go")
        await soon(stubborn.entered.wait())
    with pytest.raises(pykka.ActorDeadError):
        await soon(run)
    assert runtime.status().abandoned_tasks == 1
    assert "with the tool 'stubborn'" in caplog.text
    async with running(agent, goes_on=stubborn, store=place.store()) as following:
        (ref,) = await soon(following.recover())
        outcome = await finished(ref)
        assert doubtful(outcome.state) == ["stubborn"]
        await stubborn.end()
        await none_abandoned(runtime)
        assert results(await soon(ref.state())) == results(outcome.state)


async def test_leaving_a_runtime_waits_no_longer_for_a_run_that_is_cancelled(
    stubborn: Stubborn,
) -> None:
    """P10: also without a limit for steps in progress."""
    agent = Agent("a", by_turn(call("stubborn")), tools=[stubborn_tool(stubborn)])
    async with running(agent, goes_on=stubborn) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        cancelled = ref.cancel()
    for future in (run, cancelled):
        with suppress(pykka.ActorDeadError):
            stopped(await soon(future))


@pytest.mark.parametrize("where", ["on_start", "on_message"])
async def test_leaving_a_runtime_ends_though_a_hook_beside_the_runs_goes_on(
    stubborn: Stubborn, where: str
) -> None:
    """P10."""

    class Holds(Middleware):
        pass

    async def holds(self: Middleware, *_: object) -> None:
        await stubborn.wait()

    setattr(Holds, where, holds)
    agent = Agent("a", ScriptedModel(lambda _: "done"), middleware=[Holds()])
    async with running(agent, goes_on=stubborn, stop_timeout=0) as runtime:
        ref = runtime.spawn("a", id="x")
        future: Any = ref.notify("Holds", "hello") if where == "on_message" else ref.run("go")
        await soon(stubborn.entered.wait())
    with pytest.raises(pykka.ActorDeadError):
        await soon(future)
    assert runtime.status().abandoned_tasks == 1


async def test_an_agent_is_deleted_though_its_middleware_does_not_return() -> None:
    """P10."""
    begun = asyncio.Event()

    class Holds(Middleware):
        async def on_message(self, run: Run, message: object) -> None:
            begun.set()
            await never()

    agent = Agent("a", ScriptedModel(lambda _: "done"), middleware=[Holds()])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a", id="x")
        told = ref.notify("Holds", "hello")
        await soon(begun.wait())
        assert await soon(runtime.delete("x"))
        with pytest.raises(UnknownAgent):
            await soon(told)


class Thread:
    """A runtime with a loop of its own is left in a thread; what goes on in its loop is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._let_go: list[Callable[[], object]] = []

    async def goes_on(self) -> None:
        released = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._let_go.append(lambda: loop.call_soon_threadsafe(released.set))
        self.entered.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    async def in_background(self) -> None:
        self.task = asyncio.ensure_future(self.goes_on())

    async def in_a_thread(self) -> None:
        released = threading.Event()
        self._let_go.append(released.set)
        self.entered.set()
        await asyncio.to_thread(released.wait)

    async def in_a_generator(self) -> None:
        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                await self.goes_on()

        self.numbers = numbers()
        async for _ in self.numbers:
            break
        self.entered.set()

    def let_go(self) -> None:
        for release in self._let_go:
            release()


@pytest.mark.parametrize("way", ["goes_on", "in_background", "in_a_thread", "in_a_generator"])
def test_stopping_a_runtime_with_a_loop_of_its_own_ends_whatever_goes_on_in_it(
    caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """P10, A5."""
    place = Thread()

    @tool
    async def stubborn() -> str:
        await getattr(place, way)()
        return "late"

    agent = Agent("a", by_turn(call("stubborn")), tools=[stubborn])
    runtime = Runtime([agent], cancel_timeout=SECONDS)
    threads = threading.active_count()
    runtime.__enter__()
    run = runtime.spawn("a", id="x").run("go")
    assert place.entered.wait(60)
    stopping = threading.Thread(target=lambda: runtime.stop(timeout=0.01), daemon=True)
    stopping.start()
    stopping.join(60)
    try:
        assert not stopping.is_alive()
        with suppress(pykka.ActorDeadError):
            run.get(timeout=60)
        assert "is left to its thread" in caplog.text
        runtime.stop()
    finally:
        place.let_go()
    for thread in threading.enumerate():  # its loop ends now
        if thread.name == "understudy-runtime":
            thread.join(60)
    assert threading.active_count() <= threads + 1, "threads of asyncio.to_thread may be idle"


@pytest.mark.parametrize("wrong", [0, -1, None, True, "5"])
def test_seconds_to_end_are_above_0(wrong: Any) -> None:
    with pytest.raises(UsageError, match="`cancel_timeout` must be a number of seconds above 0"):
        Runtime(cancel_timeout=wrong)


async def test_without_a_runtime_a_deadline_waits_for_a_tool_that_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P10: `execute` runs in a task of the caller's, which cannot leave its own code behind."""
    caplog.set_level(logging.INFO)
    stubborn, clock = Stubborn(), FakeClock()
    agent = Agent("a", by_turn(call("stubborn")), tools=[stubborn_tool(stubborn)])
    running = asyncio.ensure_future(agent.execute("go", deadline=0.05, clock=clock))
    await soon(stubborn.entered.wait())
    clock.advance(60)
    await until(lambda: stubborn.cancelled > 0)
    assert not running.done()
    await stubborn.end()
    outcome = stopped(await soon(running), StopReason.TIME_LIMIT)
    assert [part.content for part in results(outcome.state)] == ["late"]


async def test_a_second_cancel_ends_what_swallowed_the_first(place: Place) -> None:
    """P7: nothing is abandoned then."""
    stubborn = Stubborn(once=True)
    agent = Agent("a", by_turn(call("stubborn"), "ok"), tools=[stubborn_tool(stubborn)])
    async with running(agent, goes_on=stubborn, store=place.store(), cancel_timeout=30) as runtime:
        ref = runtime.spawn("a", id="x")
        run = ref.run("go")
        await soon(stubborn.entered.wait())
        first = ref.cancel()
        await until(lambda: stubborn.cancelled == 1)
        outcome = stopped(await soon(ref.cancel()))
        assert outcome is await soon(first)
        assert outcome is await soon(run)
        assert runtime.status().abandoned_tasks == 0


async def test_an_agent_that_works_is_not_disturbed_by_one_that_is_abandoned(
    place: Place, stubborn: Stubborn
) -> None:
    """P10."""
    held = Held("done")
    tools = [stubborn_tool(stubborn)]
    agents = [Agent("a", by_turn(call("stubborn")), tools=tools), Agent("b", ScriptedModel([held]))]
    async with running(*agents, goes_on=stubborn, store=place.store()) as runtime:
        bad, good = runtime.spawn("a", id="x"), runtime.spawn("b", id="y")
        bad_run, good_run = bad.run("go"), good.run("go")
        await soon(stubborn.entered.wait())
        await soon(held.entered.wait())
        stopped(await soon(bad.cancel()))
        stopped(await soon(bad_run))
        held.release.set()
        assert completed(await soon(good_run)).text == "done"


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("ends_by", ["delete", "close"])
async def test_an_on_start_hook_that_does_not_return_holds_up_no_deletion_and_no_runtime(
    goes_on: bool, ends_by: str, stubborn: Stubborn
) -> None:
    begun = asyncio.Event()

    class Starts(Middleware):
        async def on_start(self, actor: AgentRef) -> None:
            begun.set()
            await (stubborn.wait() if goes_on else never())

    agent = Agent("a", ScriptedModel(["never said"]), middleware=[Starts()])
    async with running(agent, goes_on=stubborn) as runtime:
        ref = runtime.spawn("a", id="x")
        outcome = ref.run("go")
        await soon(begun.wait())
        if ends_by == "delete":
            await soon(runtime.delete("x"))
            assert runtime.status().abandoned_tasks == goes_on
    with pytest.raises(UnknownAgent if ends_by == "delete" else pykka.ActorDeadError):
        await soon(outcome)
