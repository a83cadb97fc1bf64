"""Control signals out of concurrent code: task groups of a tool, and cancellations from inside.

Rules: I8, P6, S5, J13.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio
import pytest

from tests.support.agents import Held, results
from tests.support.loops import soon
from understudy import (
    Agent,
    Completed,
    Failed,
    Halt,
    Interrupt,
    Interrupted,
    Run,
    Runtime,
    ScriptedModel,
    StopAgent,
    Stopped,
    StopReason,
    StopSignal,
    ToolContext,
    approve,
    call,
    respond,
    tool,
)
from understudy.errors import MiddlewareError, ModelFailed
from understudy.middleware import Haltable, Middleware

Body = Callable[[], Coroutine[Any, Any, Any]]


async def task_group(*bodies: Body) -> None:
    async with asyncio.TaskGroup() as group:
        for body in bodies:
            group.create_task(body())


async def task_group_in_a_task_group(*bodies: Body) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(task_group(*bodies))


async def task_group_with_a_body(*bodies: Body) -> None:
    """The last one runs in the body of the group: a failing task cancels it."""
    async with asyncio.TaskGroup() as group:
        for body in bodies[:-1]:
            group.create_task(body())
        await bodies[-1]()


async def anyio_group(*bodies: Body) -> None:
    async with anyio.create_task_group() as group:
        for body in bodies:
            group.start_soon(body)


async def exception_group(*bodies: Body) -> None:
    errors = await asyncio.gather(*(body() for body in bodies), return_exceptions=True)
    raised = [error for error in errors if isinstance(error, BaseException)]
    raise BaseExceptionGroup("several", raised)


GROUPS = [
    task_group,
    task_group_in_a_task_group,
    task_group_with_a_body,
    anyio_group,
    exception_group,
]


def raising(error: BaseException) -> Body:
    async def body() -> None:
        raise error

    return body


async def waits() -> None:
    await asyncio.get_running_loop().create_future()


async def returns() -> str:
    return "fine"


def agent_of(group: Callable[..., Any], *bodies: Body, **options: Any) -> Agent:
    @tool
    async def concurrent() -> str:
        await group(*bodies)
        return "all done"

    model = ScriptedModel([call("concurrent"), "done"])
    return Agent("a", model, tools=[concurrent], **options)


def stop(text: str = "enough") -> StopAgent:
    return StopAgent(StopSignal(StopReason.UNKNOWN, text))


@pytest.mark.parametrize("group", GROUPS)
async def test_a_stop_in_a_group_stops_the_run_by_its_signal(group: Any) -> None:
    outcome = await soon(agent_of(group, raising(stop()), returns).execute("go"))
    assert isinstance(outcome, Stopped)
    assert [signal.message for signal in outcome.signals] == ["enough"]


@pytest.mark.parametrize("group", GROUPS)
async def test_a_question_in_a_group_is_asked_and_its_answer_reaches_the_tool(group: Any) -> None:
    answers: list[Any] = []

    @tool
    async def concurrent(ctx: ToolContext) -> str:
        if ctx.resumed:
            answers.append(ctx.resume_value)
            return "all done"
        await group(raising(Interrupt({"q": 1})), returns)
        return "not reached"

    model = ScriptedModel([call("concurrent"), "done"])
    agent = Agent("a", model, tools=[concurrent])
    outcome = await soon(agent.execute("go"))
    assert isinstance(outcome, Interrupted)
    assert [request.payload for request in outcome.requests] == [{"q": 1}]
    end = await soon(agent.resume(outcome.state, outcome.decide(respond("yes"))))
    assert isinstance(end, Completed)
    assert answers == ["yes"]


@pytest.mark.parametrize("group", GROUPS)
async def test_a_halt_in_a_group_halts_the_run(group: Any) -> None:
    agent = agent_of(group, raising(Halt("no further")), returns, middleware=[Haltable()])
    outcome = await soon(agent.execute("go"))
    assert isinstance(outcome, Interrupted)
    assert [request.kind for request in outcome.requests] == ["halt"]


@pytest.mark.parametrize("group", GROUPS)
async def test_a_stop_in_a_group_under_a_runtime_restarts_no_actor(group: Any) -> None:
    async with Runtime([agent_of(group, raising(stop()), returns)]) as runtime:
        outcome = await soon(runtime.spawn("a").run("go"))
        assert isinstance(outcome, Stopped)
        assert [child.restarts for child in runtime.tree().children] == [0]


async def test_several_questions_of_one_group_are_all_asked_and_answered_in_order() -> None:
    """I8."""
    answers: list[Any] = []

    @tool
    async def concurrent(ctx: ToolContext) -> str:
        if ctx.resumed:
            answers.append(ctx.resume_value)
            return "all done"
        await exception_group(raising(Interrupt("first")), raising(Interrupt("second")))
        return "not reached"

    agent = Agent("a", ScriptedModel([call("concurrent"), "done"]), tools=[concurrent])
    outcome = await soon(agent.execute("go"))
    assert isinstance(outcome, Interrupted)
    assert [request.payload for request in outcome.requests] == ["first", "second"]
    last, first = outcome.requests[1], outcome.requests[0]
    left = await soon(agent.resume(outcome.state, {last.id: respond(2)}))
    assert isinstance(left, Interrupted)
    assert [request.payload for request in left.requests] == ["first"]
    end = await soon(agent.resume(left.state, {first.id: respond(1)}))
    assert isinstance(end, Completed)
    assert answers == [[1, 2]]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        ([stop(), Interrupt("?"), Halt("no")], "halt"),
        ([Interrupt("?"), stop()], "interrupt"),
        ([ValueError("bad"), Interrupt("?")], "interrupt"),
        ([ValueError("bad"), stop()], "stopped"),
        ([ValueError("bad"), KeyError("worse")], "error"),
    ],
)
async def test_of_several_signals_a_halt_comes_before_a_question_before_a_stop_before_an_error(
    raised: list[BaseException], expected: str
) -> None:
    """P6."""
    bodies = [raising(error) for error in raised]
    agent = agent_of(exception_group, *bodies, middleware=[Haltable()])
    outcome = await soon(agent.execute("go"))
    if expected == "stopped":
        assert isinstance(outcome, Stopped)
    elif expected == "error":
        assert isinstance(outcome, Completed)
        assert [part.outcome for part in results(outcome.state)] == ["failed"]
    else:
        assert isinstance(outcome, Interrupted)
        assert [request.kind for request in outcome.requests] == [expected]


async def test_a_middleware_that_calls_next_in_a_task_group_changes_no_signal() -> None:
    class Grouped(Middleware):
        async def wrap_tool_call(self, run: Run, call: Any, next: Any) -> Any:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(next(call))
            return task.result()

    agent = agent_of(task_group, raising(stop()), middleware=[Grouped()])
    assert isinstance(await soon(agent.execute("go")), Stopped)


# ------------------------------------------------------------------ agents side by side


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("number", [2, 5])
async def test_agents_side_by_side_are_all_asked_about_at_once(number: int) -> None:
    """S5."""

    @tool
    def pay(to: int) -> str:
        return f"paid {to}"

    def payer(to: int) -> Agent:
        model = ScriptedModel([call("pay", {"to": to}), "paid"])
        return Agent(f"p{to}", model, tools=[pay], interrupt_on={"pay": True})

    @tool
    async def all_of_them(ctx: ToolContext) -> str:
        async with asyncio.TaskGroup() as group:
            for to in range(number):
                group.create_task(ctx.run_agent(payer(to), "pay"))
        return "not reached"

    boss = Agent("boss", ScriptedModel([call("all_of_them"), "done"]), tools=[all_of_them])
    outcome = await soon(boss.execute("go"))
    assert isinstance(outcome, Interrupted)
    assert [request.arguments["to"] for request in outcome.requests] == list(range(number))


@pytest.mark.parametrize("group", [task_group, anyio_group, asyncio.gather, task_group_with_a_body])
async def test_an_approved_call_is_not_cut_off_because_an_agent_beside_it_waits(
    group: Any, release: threading.Event
) -> None:
    """Two gated agents side by side, approved one at a time: two effects, and no doubt."""
    effects: list[str] = []
    entered = threading.Event()

    @tool
    def pay(to: str) -> str:
        entered.set()
        release.wait(60)
        effects.append(to)
        return f"paid {to}"

    def payer(name: str) -> Agent:
        model = ScriptedModel(
            lambda request: call("pay", {"to": name}) if len(request.messages) < 2 else "paid"
        )
        return Agent(name, model, tools=[pay], interrupt_on={"pay": True})

    one, two = payer("one"), payer("two")

    @tool
    async def both(ctx: ToolContext) -> str:
        async def first() -> None:
            await ctx.run_agent(one, "pay")

        async def second() -> None:
            await ctx.run_agent(two, "pay")

        if group is asyncio.gather:
            await asyncio.gather(first(), second())
        else:
            await group(first, second)
        return "both paid"

    boss = Agent("boss", ScriptedModel([call("both"), "done"]), tools=[both])
    outcome = await soon(boss.execute("go"))
    assert isinstance(outcome, Interrupted)
    requests = {request.arguments["to"]: request.id for request in outcome.requests}
    assert sorted(requests) == ["one", "two"]

    resuming = asyncio.ensure_future(boss.resume(outcome.state, {requests["one"]: approve()}))
    await soon(asyncio.to_thread(entered.wait, 60))
    release.set()
    left = await soon(resuming)
    assert isinstance(left, Interrupted)
    assert [request.arguments for request in left.requests] == [{"to": "two"}]
    assert effects == ["one"]
    end = await soon(boss.resume(left.state, {left.requests[0].id: approve()}))
    assert isinstance(end, Completed)
    assert effects == ["one", "two"]
    assert end.state.doubts == {}
    assert [part.content for part in results(end.state)] == ["both paid"]


async def test_no_agent_is_started_by_a_tool_that_is_about_to_end_for_another_one() -> None:
    """It would be cut off in its middle by the tool's task group."""
    started: list[str] = []
    held = Held("well")

    @tool
    def pay() -> str:
        return "paid"

    def note(request: Any) -> str:
        started.append("third")
        return "third"

    waits_for_a_person = Agent(
        "one", ScriptedModel([call("pay"), "paid"]), tools=[pay], interrupt_on={"pay": True}
    )
    second, third = Agent("two", ScriptedModel([held])), Agent("three", ScriptedModel([note]))

    @tool
    async def both(ctx: ToolContext) -> str:
        async def in_turn() -> None:
            await ctx.run_agent(second, "go")
            await asyncio.sleep(0)
            await ctx.run_agent(third, "go")

        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.run_agent(waits_for_a_person, "go"))
            group.create_task(in_turn())
        return "not reached"

    boss = Agent("boss", ScriptedModel([call("both"), "done"]), tools=[both])
    running = asyncio.ensure_future(boss.execute("go"))
    await soon(held.entered.wait())
    held.release.set()
    outcome = await soon(running)
    assert isinstance(outcome, Interrupted)
    assert len(outcome.requests) == 1
    assert started in ([], ["third"])  # begun and finished, or not begun
    children = outcome.state.children.values()
    assert all(child.run is None or child.run.over or child.requests for child in children)


# ------------------------------------------------------------- cancellations from inside


async def cancelled_inside(*_: Any) -> Any:
    """As a client library's own time limit that leaks."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def test_a_model_that_is_cancelled_from_within_fails_the_call_and_its_fallback_is_asked() -> (
    None
):
    agent = Agent(
        "a", ScriptedModel([cancelled_inside]), fallback_models=[ScriptedModel(["from the second"])]
    )
    outcome = await soon(agent.execute("go"))
    assert isinstance(outcome, Completed)
    assert outcome.text == "from the second"


async def test_a_model_that_is_cancelled_from_within_fails_the_run_with_a_typed_error() -> None:
    """J13."""
    outcome = await soon(Agent("a", ScriptedModel([cancelled_inside])).execute("go"))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ModelFailed)
    assert "CancelledError" in str(outcome.error)


@pytest.mark.parametrize(
    "hook", ["on_run_start", "before_model", "after_model", "on_run_end", "before_step"]
)
async def test_a_hook_that_is_cancelled_from_within_fails_the_run_and_is_named(hook: str) -> None:
    middleware = type("Leaky", (Middleware,), {hook: lambda self, *args: cancelled_inside()})
    outcome = await soon(
        Agent("a", ScriptedModel(["done"]), middleware=[middleware()]).execute("go")
    )
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert (outcome.error.middleware, outcome.error.hook) == ("Leaky", hook)


async def test_a_cancellation_source_that_is_cancelled_from_within_fails_the_run() -> None:
    class Leaky:
        async def check(self, state: Any) -> None:
            await cancelled_inside()

    outcome = await soon(Agent("a", ScriptedModel(["done"])).execute("go", cancellation=[Leaky()]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)


async def test_a_step_that_is_cancelled_from_within_fails_the_run_and_restarts_no_actor() -> None:
    async def pause_when() -> bool:
        await cancelled_inside()
        return False

    agent = Agent("a", ScriptedModel(["done"]), pause_when=pause_when)
    async with Runtime([agent]) as runtime:
        assert isinstance(await soon(runtime.spawn("a").run("go")), Failed)
        assert [child.restarts for child in runtime.tree().children] == [0]


async def test_a_cancellation_of_the_task_that_executes_is_passed_on() -> None:
    held = Held("never")
    running = asyncio.ensure_future(Agent("a", ScriptedModel([held])).execute("go"))
    await soon(held.entered.wait())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancel_scope_of_the_caller_ends_the_run() -> None:
    held = Held("never")
    agent = Agent("a", ScriptedModel([held]))
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(agent.execute, "go")
            await held.entered.wait()
            scope.cancel()
    assert scope.cancelled_caught


async def test_a_time_limit_inside_a_tool_is_the_tools_own_matter() -> None:
    @tool
    async def slow() -> str:
        with anyio.move_on_after(0.001):
            await waits()
        try:
            async with asyncio.timeout(0.001):
                await waits()
        except TimeoutError:
            return "gave up"
        return "not reached"

    agent = Agent("a", ScriptedModel([call("slow"), "done"]), tools=[slow])
    outcome = await soon(agent.execute("go"))
    assert isinstance(outcome, Completed)
    assert [part.content for part in results(outcome.state)] == ["gave up"]
