"""A tool that raises and may be called again is: soon in memory, later by a due.

By its policy; or, where nobody knows what an idempotent one did, without a policy as well.

Rules: R4, T13, T15.
"""

from __future__ import annotations

import asyncio
import json
import threading
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
    wait_none,
)

from tests.support.agents import FakeClock, by_turn, completed, results, until_status
from tests.support.cut_off import Crash, Disk
from tests.support.left_out import LeftOut
from tests.support.loops import never, soon, until
from tests.support.plans import HOUR, kinds, left_after, outcome_of
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Interrupted,
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
from understudy.events import ToolEnded
from understudy.journal import MemoryStore, replay
from understudy.middleware import Middleware
from understudy.modes.steps.tool_call import body
from understudy.tools import OutcomeUnknown, ToolFailed

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
    """J28."""
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


@pytest.mark.parametrize(
    ("error", "is_doubt"), [(ConnectionError("no answer"), True), (ValueError("no answer"), False)]
)
async def test_the_model_is_told_when_the_policy_gives_up(error: Exception, is_doubt: bool) -> None:
    """J28, J4: of the error; or of the doubt, where one of the failures left it open."""
    clock, payments = SimulatedClock(), Payments(9, HOURLY, error)
    async with Runtime([payments.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("Go.")
        for _ in range(3):
            await until_status(ref, Status.WAITING)
            await soon(clock.advance(HOUR))
        ended = await soon(running)
        (result,) = results(ended.state)
        reasons = [
            entry.detail["reason"]
            for entry in (await soon(ref.history())).entries
            if entry.what == "wait_started"
        ]
    assert result.outcome == ("interrupted" if is_doubt else "failed")
    assert "no answer" in str(result.content)
    assert len(ended.state.doubts) == is_doubt
    assert len(payments.keys) == 4
    assert [f"{type(error).__name__}: no answer" in reason for reason in reasons] == [True] * 3


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
        assert results(outcome.state)[0].outcome == "interrupted"
        assert len(outcome.state.doubts) == 1
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
            body, "with_retries", lambda _run, _ready, body, _begin_again: body()
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


def test_only_a_tool_that_may_run_again_has_a_policy() -> None:
    def pay() -> str:
        return "paid"

    with pytest.raises(UsageError, match=r"give idempotent=True, or give read_only=True"):
        tool(retry=HOURLY)(pay)
    assert tool(retry=HOURLY, read_only=True)(pay).retry is HOURLY
    with pytest.raises(UsageError, match=r"tenacity\.AsyncRetrying"):
        Tool(pay, idempotent=True, retry=3)  # type: ignore[arg-type]


async def test_a_point_of_a_tool_has_no_name_of_a_retry() -> None:
    @tool(idempotent=True)
    async def pay(ctx: ToolContext) -> str:
        await ctx.sleep("retry/1", 60)
        return "paid"

    outcome = await soon(Agent("desk", by_turn(call("pay")), tools=[pay]).execute("Go."))
    assert "'retry/'" in str(results(outcome.state)[0].content)


# ----------------------------------------------------- calls of which nobody knows what they did


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repeats without a policy come at once."""
    monkeypatch.setattr("understudy.modes.steps.tool_call.retry.SOON", (0, 0))


class Idempotent:
    """An idempotent tool without a policy, whose entries end as is said, and then with "paid"."""

    def __init__(self, *ends: BaseException, **options: Any) -> None:
        self.keys: list[str] = []
        self.ends = list(ends)

        async def pay(ctx: ToolContext, amount: int = 5) -> str:
            self.keys.append(ctx.call_key)
            if self.ends:
                raise self.ends.pop(0)
            return "paid"

        self.tool = tool(**{"idempotent": True, **options})(pay)

    def agent(self, *turns: Any, **options: Any) -> Agent:
        return Agent("desk", by_turn(*(turns or (call("pay"),))), tools=[self.tool], **options)


def reset() -> Exception:
    """An error that leaves open what the call did."""
    return ConnectionResetError("reset")


@pytest.mark.parametrize(
    "error",
    [
        reset(),
        TimeoutError("slow"),
        OutcomeUnknown("no answer"),
        asyncio.CancelledError(),
        ExceptionGroup("both", [ValueError("one"), reset()]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.usefixtures("at_once")
async def test_a_call_of_which_nobody_knows_what_it_did_is_repeated_under_its_key(
    error: BaseException,
) -> None:
    """J28: twice, without a policy."""
    payments = Idempotent(error, error)
    outcome = await soon(payments.agent().execute("Go."))
    assert paid(outcome).state.doubts == {}
    assert len(payments.keys) == 3
    assert len(set(payments.keys)) == 1


async def test_the_repeats_come_after_half_a_second_and_two_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """J28: in memory; they are no wait that anybody else sees."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("understudy.modes.steps.tool_call.retry.asyncio.sleep", sleep)
    payments = Idempotent(reset(), reset())
    paid(await payments.agent().execute("Go."))
    assert slept == [0.5, 2.0]


@pytest.mark.parametrize(
    "last",
    [reset(), ValueError("wrong"), Retry("again"), ToolFailed("no")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.usefixtures("at_once")
async def test_where_no_repeat_brings_a_result_it_is_a_doubt_whatever_the_last_error_says(
    last: Exception,
) -> None:
    """J28, J4: the model's next call would have another key, and pay again."""
    payments = Idempotent(reset(), reset(), last)
    outcome = completed(await soon(payments.agent().execute("Go.")))
    (result,) = results(outcome.state)
    assert result.outcome == "interrupted"
    assert "Do not repeat it" in str(result.content)
    assert str(last) in str(result.content)
    assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["pay"]
    assert len(payments.keys) == 3


@pytest.mark.usefixtures("at_once")
async def test_after_an_unknown_end_a_failure_ends_the_repeats_in_doubt() -> None:
    """J28, J4: a failure, such as HTTP 400, is not repeated; and it says nothing of the first."""
    payments = Idempotent(reset(), ValueError("400"))
    outcome = completed(await soon(payments.agent().execute("Go.")))
    (result,) = results(outcome.state)
    assert result.outcome == "interrupted"
    assert "it was tried again, which raised ValueError: 400" in str(result.content)
    assert len(outcome.state.doubts) == 1
    assert len(payments.keys) == 2


async def test_the_end_of_its_run_ends_the_wait_for_a_repeat_and_leaves_a_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """J28, P9: within all limits; it is in memory, so the run is not waiting."""
    clock = FakeClock()

    async def sleep(seconds: float) -> None:
        assert seconds == 0.5
        clock.advance(60)
        await never()

    monkeypatch.setattr("understudy.modes.steps.tool_call.retry.asyncio.sleep", sleep)
    payments = Idempotent(reset())
    outcome = await soon(payments.agent().execute("Go.", deadline=0.05, clock=clock))
    assert isinstance(outcome, Stopped)
    assert len(payments.keys) == 1
    (result,) = results(outcome.state)
    assert "The outcome of this call is unknown" in str(result.content)
    assert len(outcome.state.doubts) == 1


@pytest.mark.usefixtures("at_once")
async def test_each_try_has_the_time_limit_of_the_tool() -> None:
    """J28, T6: the third one that passes it leaves a doubt."""
    keys: list[str] = []

    @tool(idempotent=True, timeout=0.001)
    async def pay(ctx: ToolContext) -> str:
        keys.append(ctx.call_key)
        await never()
        return "paid"

    agent = Agent("desk", by_turn(call("pay")), tools=[pay])
    outcome = completed(await soon(agent.execute("Go.")))
    assert len(keys) == 3
    assert len(set(keys)) == 1
    (doubt,) = outcome.state.doubts.values()
    assert "within its limit of 0.001 seconds" in doubt.reason


@pytest.mark.usefixtures("at_once")
async def test_an_equal_call_after_such_a_doubt_needs_a_person() -> None:
    """J4: the tool is idempotent under one key alone."""
    payments = Idempotent(reset(), reset(), reset())
    outcome = await soon(payments.agent(call("pay"), call("pay")).execute("Go."))
    assert isinstance(outcome, Interrupted)
    assert [len(request.doubts) for request in outcome.requests] == [1]
    assert len(payments.keys) == 3


@pytest.mark.parametrize(
    "error",
    [ValueError("wrong"), Retry("again"), ToolFailed("no"), ConnectionRefusedError("closed")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.usefixtures("at_once")
async def test_an_error_by_which_the_call_has_failed_is_not_repeated_without_a_policy(
    error: Exception,
) -> None:
    """J28: the model hears of it, and may call again."""
    payments = Idempotent(error)
    outcome = completed(await soon(payments.agent(call("pay"), call("pay")).execute("Go.")))
    assert [part.outcome for part in results(outcome.state)] == ["failed", "success"]
    assert len(set(payments.keys)) == 2
    assert outcome.state.doubts == {}


@pytest.mark.parametrize("effect", ["effects", "read_only"])
@pytest.mark.usefixtures("at_once")
async def test_a_call_of_any_other_tool_is_not_repeated(effect: str) -> None:
    """J28, J4: it is a doubt; or an error, where it only looks."""
    payments = Idempotent(reset(), idempotent=False, read_only=effect == "read_only")
    outcome = completed(await soon(payments.agent().execute("Go.")))
    assert len(payments.keys) == 1
    (result,) = results(outcome.state)
    assert result.outcome == ("failed" if effect == "read_only" else "interrupted")


async def test_a_call_that_was_cut_off_and_then_fails_is_a_doubt() -> None:
    """J28, J4: before the crash it may have taken effect."""
    payments, disk = Idempotent(Crash(), ValueError("wrong")), Disk()
    with pytest.raises(Crash):
        await payments.agent().execute("Go.", journal=disk)
    outcome = completed(await payments.agent().resume(disk.load()))
    assert results(outcome.state)[0].outcome == "interrupted"
    assert len(outcome.state.doubts) == 1
    assert len(payments.keys) == 2
    assert len(set(payments.keys)) == 1


async def test_a_call_that_was_cut_off_and_does_not_fit_its_tool_any_more_is_a_doubt() -> None:
    """J28, J4: it cannot be repeated, and the model must not do it instead."""
    payments, disk = Idempotent(Crash()), Disk()
    with pytest.raises(Crash):
        await payments.agent().execute("Go.", journal=disk)

    @tool(idempotent=True)
    async def pay(account: str) -> str:
        return "paid"

    changed = Agent("desk", by_turn(call("pay")), tools=[pay])
    outcome = completed(await changed.resume(disk.load()))
    (result,) = results(outcome.state)
    assert result.outcome == "interrupted"
    assert "it cannot continue: Invalid arguments for 'pay'" in str(result.content)
    assert len(outcome.state.doubts) == 1


async def test_a_call_whose_failure_was_known_before_it_was_cut_off_is_no_doubt() -> None:
    """J28: the process went away between two attempts, not in one."""
    policy = AsyncRetrying(stop=stop_after_attempt(2), wait=wait_none())
    errors = (ValueError("wrong"), ValueError("wrong"))
    whole, payments = Disk(), Idempotent(*errors, retry=policy)
    completed(await payments.agent().execute("Go.", journal=whole))
    kinds = [json.loads(line)["kind"] for line in whole.lines]
    disk, payments = Disk(kinds.index("point_reached") + 1), Idempotent(*errors, retry=policy)
    with pytest.raises(Crash):
        await payments.agent().execute("Go.", journal=disk)
    outcome = completed(await payments.agent().resume(disk.load()))
    assert len(payments.keys) == 2
    assert results(outcome.state)[0].outcome == "failed"
    assert outcome.state.doubts == {}


async def test_an_idempotent_call_that_fails_because_it_is_interrupted_keeps_its_key() -> None:
    """J28, J13: the next process makes it again; it is no failure that the model repairs."""
    entered, ends = asyncio.Event(), [ConnectionResetError("closed"), ValueError("half way")]
    for error in ends:
        keys: list[str] = []
        entered.clear()

        def agent(error: Exception = error, keys: list[str] = keys) -> Agent:
            @tool(idempotent=True)
            async def pay(ctx: ToolContext) -> str:
                keys.append(ctx.call_key)
                if len(keys) == 1:
                    entered.set()
                    try:
                        await never()
                    except asyncio.CancelledError:
                        raise error from None
                return "paid"

            return Agent("desk", by_turn(call("pay"), "Done."), tools=[pay])

        disk = Disk()
        running = asyncio.ensure_future(agent().execute("Go.", journal=disk))
        await soon(entered.wait())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(running)
        paid(await soon(agent().resume(disk.load())))
        assert len(keys) == 2
        assert len(set(keys)) == 1


@pytest.mark.usefixtures("at_once")
async def test_a_repeat_that_gets_no_thread_leaves_a_doubt() -> None:
    """J28, T6: the attempt before it may have taken effect."""
    release = threading.Event()
    entered: list[int] = []

    @tool
    def blocks() -> str:
        release.wait(60)
        return "released"

    @tool(idempotent=True, timeout=0.1)
    def pay() -> str:
        entered.append(1)
        raise reset()

    try:
        agent = Agent("desk", by_turn([call("pay"), call("blocks")]), tools=[pay, blocks])
        async with Runtime([agent], max_threads=1) as runtime:
            ref = runtime.spawn("desk", id="a")
            events = ref.events()
            future = ref.run("Go.")
            async for told in events:
                if isinstance(told.event, ToolEnded) and told.event.tool_name == "pay":
                    break
            events.close()
            release.set()
            outcome = completed(await soon(future))
    finally:
        release.set()
    assert entered == [1]
    (first, _) = results(outcome.state)
    assert first.outcome == "interrupted"
    assert "no thread was free" in str(first.content)
    assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["pay"]


# ------------------------------------------------------------------- repeats of a middleware


class Again(Middleware):
    """Makes each call again that has failed."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        try:
            return await next(call)
        except Exception:
            return await next(call)


async def test_a_middleware_that_repeats_an_idempotent_call_that_has_failed_makes_no_doubt() -> (
    None
):
    """J28: each of the two has failed, and the model may call again."""
    payments = Idempotent(ValueError("wrong"), ValueError("wrong"))
    agent = payments.agent(call("pay"), call("pay"), middleware=[Again()])
    outcome = completed(await soon(agent.execute("Go.")))
    assert [part.outcome for part in results(outcome.state)] == ["failed", "success"]
    assert outcome.state.doubts == {}
    assert len(payments.keys) == 3


async def test_a_middleware_that_repeats_any_other_call_leaves_a_doubt() -> None:
    """J4: whatever the first one came to, the tool is entered once."""
    payments = Idempotent(ValueError("wrong"), idempotent=False)
    outcome = completed(await soon(payments.agent(middleware=[Again()]).execute("Go.")))
    (result,) = results(outcome.state)
    assert result.outcome == "interrupted"
    assert "a middleware asked for it once more" in str(result.content)
    assert len(outcome.state.doubts) == 1
    assert len(payments.keys) == 1


async def test_a_middleware_repeats_a_call_that_only_looks() -> None:
    payments = Idempotent(ValueError("wrong"), idempotent=False, read_only=True)
    paid(await soon(payments.agent(middleware=[Again()]).execute("Go.")))
    assert len(payments.keys) == 2
