"""An idempotent tool that raises is called again: soon in memory, later by a due."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_fixed,
)

from tests.support.agents import by_turn, completed, results, until_status
from tests.support.left_out import LeftOut
from tests.support.loops import soon, until
from tests.support.plans import HOUR, kinds, left_after, outcome_of
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Outcome,
    Retry,
    Runtime,
    SimulatedClock,
    Status,
    Stopped,
    Tool,
    ToolContext,
    UsageError,
    Waiting,
    call,
    tool,
)
from understudy.journal import MemoryStore, replay
from understudy.middleware import Middleware
from understudy.modes.steps.tool_call import body
from understudy.tools import ToolFailed

HOURLY = AsyncRetrying(wait=wait_fixed(HOUR), stop=stop_after_attempt(4))


class Payments:
    """A tool that fails so many times, and then pays."""

    def __init__(self, failures: int, policy: AsyncRetrying, error: Exception | None = None):
        self.keys: list[str] = []
        """The call keys of all attempts."""

        async def pay(ctx: ToolContext) -> str:
            self.keys.append(ctx.call_key)
            if len(self.keys) <= failures:
                raise error or ConnectionError("no answer")
            return "paid"

        self.tool = tool(idempotent=True, retry=policy)(pay)

    def agent(self, **options: Any) -> Agent:
        return Agent("desk", by_turn(call("pay"), "Done."), tools=[self.tool], **options)


def paid(outcome: Outcome | None) -> Completed:
    assert outcome is not None
    (result,) = results(outcome.state)
    assert (result.outcome, result.content) == ("success", "paid")
    return completed(outcome)


async def to_the_end(ref: AgentRef, clock: SimulatedClock) -> Outcome | None:
    """The outcome of a run, whose waits are ended one by one."""
    outcome = ref.outcome()
    while not outcome.done():
        await until(lambda: outcome.done() or ref.status() is Status.WAITING)
        await soon(clock.advance(HOUR))
    return await outcome


async def test_a_short_wait_is_made_in_memory() -> None:
    payments = Payments(2, AsyncRetrying(wait=wait_fixed(0.001), stop=stop_after_attempt(3)))
    paid(await soon(payments.agent().execute("Go.")))
    assert len(payments.keys) == 3
    assert len(set(payments.keys)) == 1


async def test_a_long_wait_costs_nothing_and_survives_a_restart(tmp_path: Path) -> None:
    store, clock, payments = f"sqlite:///{tmp_path / 'store.db'}", SimulatedClock(), None
    payments = Payments(2, HOURLY)
    async with Runtime([payments.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        future = ref.run("Go.")
        await until_status(ref, Status.WAITING)
        assert not future.done()
        (wait,) = (await soon(ref.state())).waits
        assert (wait.kind, wait.tool_name, wait.name) == ("sleep", "pay", "retry/1")
        assert wait.expires_at == clock.now() + timedelta(hours=1)
        await soon(ref.stop(block=False))
        assert ref.status() is not Status.RUNNING
        await soon(clock.advance(HOUR - 1))
        assert len(payments.keys) == 1
        await soon(clock.advance(1))
        await until_status(ref, Status.WAITING)
        assert len(payments.keys) == 2
    again = SimulatedClock(clock.now() + timedelta(days=1))
    async with Runtime([payments.agent()], store=store, clock=again) as runtime:
        await soon(again.advance(1))
        paid(await outcome_of(runtime.get("a")))
    assert len(payments.keys) == 3
    assert len(set(payments.keys)) == 1


async def test_the_model_gets_the_error_when_the_policy_gives_up() -> None:
    clock, payments = SimulatedClock(), Payments(9, HOURLY)
    async with Runtime([payments.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("Go.")
        for _ in range(3):
            await until_status(ref, Status.WAITING)
            await soon(clock.advance(HOUR))
        (result,) = results((await soon(running)).state)
        reasons = [
            entry.detail["reason"]
            for entry in (await soon(ref.history())).entries
            if entry.what == "wait_started"
        ]
    assert result.outcome == "failed"
    assert "no answer" in str(result.content)
    assert len(payments.keys) == 4
    assert reasons == ["ConnectionError: no answer"] * 3


async def test_the_time_of_a_policy_goes_on_across_restarts(tmp_path: Path) -> None:
    store, clock = f"sqlite:///{tmp_path / 'store.db'}", SimulatedClock()
    policy = AsyncRetrying(wait=wait_fixed(HOUR), stop=stop_after_delay(10 * HOUR))
    payments = Payments(99, policy)
    async with Runtime([payments.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        ref.run("Go.")
        await until_status(ref, Status.WAITING)
    later = SimulatedClock(clock.now() + timedelta(hours=11))
    async with Runtime([payments.agent()], store=store, clock=later) as runtime:
        await soon(later.advance(1))
        outcome = await outcome_of(runtime.get("a"))
        assert outcome is not None
        assert results(outcome.state)[0].outcome == "failed"
    assert len(payments.keys) == 2


async def test_without_a_runtime_the_caller_goes_on() -> None:
    clock, payments = SimulatedClock(), Payments(1, HOURLY)
    agent = payments.agent()
    waiting = await agent.execute("Go.", clock=clock)
    assert isinstance(waiting, Waiting)
    assert isinstance(await agent.resume(waiting.state, clock=clock), Waiting)
    await soon(clock.advance(HOUR))
    paid(await agent.resume(waiting.state, clock=clock))
    assert len(payments.keys) == 2


@pytest.mark.slow
async def test_a_call_that_is_not_retried_is_noticed(
    left_out: LeftOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J28."""
    await left_out(
        lambda: monkeypatch.setattr(
            body, "with_retries", lambda _run, _call, _policy, body, _: body()
        ),
        lambda _: test_without_a_runtime_the_caller_goes_on(),
    )


@pytest.mark.parametrize("error", [Retry("try b"), ToolFailed("not so"), ValueError("wrong")])
async def test_what_is_not_to_be_retried_goes_to_the_model_at_once(error: Exception) -> None:
    policy = AsyncRetrying(
        wait=wait_fixed(HOUR), retry=retry_if_exception_type((ConnectionError, Retry, ToolFailed))
    )
    payments = Payments(1, policy, error)
    outcome = completed(await soon(payments.agent().execute("Go.")))
    assert len(payments.keys) == 1
    assert str(error) in str(results(outcome.state)[0].content)


async def test_a_call_that_takes_too_long_is_retried() -> None:
    entered: list[int] = []

    @tool(idempotent=True, timeout=0.01, retry=AsyncRetrying(stop=stop_after_attempt(2)))
    async def pay() -> str:
        entered.append(1)
        if len(entered) == 1:
            await asyncio.Event().wait()
        return "paid"

    paid(await soon(Agent("desk", by_turn(call("pay")), tools=[pay]).execute("Go.")))
    assert len(entered) == 2


async def test_a_plain_tool_is_retried() -> None:
    attempts: list[int] = []

    @tool(idempotent=True, retry=AsyncRetrying(stop=stop_after_attempt(2)))
    def pay() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError
        return "paid"

    paid(await soon(Agent("desk", by_turn(call("pay")), tools=[pay]).execute("Go.")))


async def test_a_wrapper_sees_the_last_attempt_alone() -> None:
    seen: list[Any] = []

    class Watching(Middleware):
        async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
            seen.append("in")
            returned = await next(call)
            seen.append(returned)
            return returned

    payments = Payments(2, AsyncRetrying(stop=stop_after_attempt(3)))
    paid(await soon(payments.agent(middleware=[Watching()]).execute("Go.")))
    assert seen == ["in", "paid"]


async def test_a_message_does_not_end_a_call_that_is_to_be_retried() -> None:
    clock, payments = SimulatedClock(), Payments(1, HOURLY)
    async with Runtime([payments.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("Go.")
        await until_status(ref, Status.WAITING)
        after = ref.run("And this.")
        await soon(clock.advance(HOUR))
        paid(await soon(running))
        completed(await soon(after))


async def test_a_run_with_an_end_is_stopped_while_its_call_waits_for_the_next_attempt() -> None:
    clock, payments = SimulatedClock(), Payments(1, HOURLY)
    async with Runtime([payments.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("Go.", ends_at=clock.now() + timedelta(minutes=30))
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(2 * HOUR))
        assert isinstance(await soon(running), Stopped)
    assert len(payments.keys) == 1


async def test_every_prefix_of_the_records_comes_to_the_payment() -> None:
    clock, store, payments = SimulatedClock(), MemoryStore(), Payments(2, HOURLY)
    async with Runtime([payments.agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("Go.")
        for _ in range(2):
            await until_status(ref, Status.WAITING)
            await soon(clock.advance(HOUR))
        paid(await soon(running))
        first = (await kinds(runtime)).index("run_started")
    loaded = await store.load("a")
    assert loaded is not None
    for cut in range(first + 1, len(loaded.records) + 1):
        turn = getattr(replay(loaded.records[:cut]).run, "turn", None)
        known = [c for c in turn.calls.values() for c in c.points] if turn is not None else []
        left, again = await left_after(loaded.records[:cut]), SimulatedClock(clock.now())
        payments = Payments(max(0, 2 - len(known)), HOURLY)
        async with Runtime([payments.agent()], store=left, clock=again) as runtime:
            paid(await to_the_end(runtime.get("a"), again))


async def test_a_policy_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.modes.steps.tool_call.retry.MOST", 5)
    payments = Payments(99, AsyncRetrying())
    completed(await soon(payments.agent().execute("Go.")))
    assert len(payments.keys) == 6


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, "soon", 1e12])
async def test_a_policy_that_waits_for_no_time_is_an_error_of_the_tool(seconds: Any) -> None:
    payments = Payments(1, AsyncRetrying(wait=lambda state: seconds))
    outcome = completed(await soon(payments.agent().execute("Go.")))
    assert "0 to 100 years" in str(results(outcome.state)[0].content)


def test_only_an_idempotent_tool_is_retried() -> None:
    def pay() -> str:
        return "paid"

    with pytest.raises(UsageError, match="idempotent=True"):
        tool(retry=HOURLY)(pay)
    with pytest.raises(UsageError, match=r"tenacity\.AsyncRetrying"):
        Tool(pay, idempotent=True, retry=3)  # type: ignore[arg-type]


async def test_a_point_of_a_tool_has_no_name_of_a_retry() -> None:
    @tool(idempotent=True)
    async def pay(ctx: ToolContext) -> str:
        await ctx.sleep("retry/1", 60)
        return "paid"

    outcome = await soon(Agent("desk", by_turn(call("pay")), tools=[pay]).execute("Go."))
    assert "'retry/'" in str(results(outcome.state)[0].content)
