"""`Defer`: a model call that is put off, as a due; and `Retry`, whose long waits are such (R18)."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from tenacity import AsyncRetrying, stop_after_attempt, stop_after_delay, wait_fixed

from tests.support.agents import (
    FakeClock,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
    until_status,
)
from tests.support.cut_off import Crash, Disk
from tests.support.loops import soon
from tests.support.places import Place
from tests.support.plans import HOUR
from understudy import (
    Agent,
    Defer,
    Failed,
    Interrupt,
    Outcome,
    Run,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    ToolContext,
    UsageError,
    Waiting,
    call,
    respond,
    tool,
)
from understudy.middleware import Fallback, Middleware, ModelInput, NextModelCall
from understudy.models import ScriptedRequest
from understudy.modes import Parallel, Sequential

OPENS = datetime(2030, 1, 1, 13, tzinfo=timezone.utc)


def waits(outcome: Outcome) -> Waiting:
    assert isinstance(outcome, Waiting), outcome
    return outcome


class Hours(Middleware):
    """Asks no model before it opens."""

    def __init__(self, opens: datetime = OPENS) -> None:
        self.opens = opens

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        if run.clock.now() < self.opens:
            raise Defer(self.opens, reason="closed")
        return await next(request)


class Steps(Middleware):
    def __init__(self) -> None:
        self.told: list[str] = []

    async def before_step(self, run: Run) -> None:
        self.told.append("before_step")

    async def before_model(self, run: Run, request: ModelInput) -> None:
        self.told.append("before_model")


def test_a_call_that_is_put_off_begins_again_when_its_time_has_come() -> None:
    """R18."""
    clock, steps, model = FakeClock(), Steps(), by_turn("Hello.")
    agent = Agent("a", model, middleware=[steps, Hours()])
    outcome = waits(agent.execute_sync("Hi.", clock=clock))
    (wait,) = outcome.waits
    assert (wait.name, wait.kind, wait.tool_name) == ("Hours/1", "sleep", "")
    assert (wait.expires_at, outcome.due, outcome.state.next_due) == (OPENS, OPENS, OPENS)
    assert "the model call is put off at 'Hours/1'" in outcome.explain()
    assert model.requests == []
    again = waits(agent.resume_sync(reloaded(outcome.state), clock=clock))
    assert again.waits == outcome.waits
    clock.advance(HOUR)
    done = completed(agent.resume_sync(reloaded(again.state), clock=clock))
    assert (done.text, len(model.requests)) == ("Hello.", 1)
    assert steps.told == ["before_step", "before_model", "before_model"]
    assert done.usage.requests == 1
    assert_valid_history(done.state)


def test_it_may_be_put_off_as_often_as_it_takes() -> None:
    class Slots(Middleware):
        left = 3

        async def wrap_model_call(
            self, run: Run, request: ModelInput, next: NextModelCall
        ) -> ModelResponse:
            if self.left:
                self.left -= 1
                raise Defer(60, key="slot" if self.left == 1 else None)
            return await next(request)

    clock = FakeClock()
    agent = Agent("a", by_turn("Hello."), middleware=[Slots()])
    outcome: Outcome = agent.execute_sync("Hi.", clock=clock)
    names = []
    while isinstance(outcome, Waiting):
        names += [wait.name for wait in outcome.waits]
        assert outcome.due == clock.now() + timedelta(seconds=60)
        clock.advance(60)
        outcome = agent.resume_sync(reloaded(outcome.state), clock=clock)
    assert names == ["Slots/1", "slot", "Slots/3"]
    assert completed(outcome).text == "Hello."


def test_the_middleware_around_it_cannot_answer_in_its_place() -> None:
    """R18."""

    class Cached(Middleware):
        async def wrap_model_call(
            self, run: Run, request: ModelInput, next: NextModelCall
        ) -> ModelResponse:
            try:
                return await next(request)
            except Exception:
                return ModelResponse(parts=[TextPart("cached")])

    clock = FakeClock()
    stack = [Cached(), Fallback([ScriptedModel(["other"])]), Hours()]
    agent = Agent("a", by_turn("Hello."), middleware=stack)
    outcome = waits(agent.execute_sync("Hi.", clock=clock))
    clock.advance(HOUR)
    assert completed(agent.resume_sync(outcome.state, clock=clock)).text == "Hello."


def test_after_a_reply_it_is_too_late() -> None:
    class Late(Middleware):
        async def wrap_model_call(
            self, run: Run, request: ModelInput, next: NextModelCall
        ) -> ModelResponse:
            await next(request)
            raise Defer(60)

    outcome = Agent("a", by_turn("Hello."), middleware=[Late()]).execute_sync("Hi.")
    assert isinstance(outcome, Failed)
    assert "Defer was raised after a reply came" in str(outcome.error)


@pytest.mark.parametrize("place", ["before_model", "after_model", "wrap_tool_call", "on_run_start"])
def test_it_is_for_model_calls_alone(place: str) -> None:
    async def odd(self: Any, *args: Any) -> None:
        raise Defer(60)

    @tool
    async def note() -> str:
        """Note."""
        return "noted"

    made = type("Odd", (Middleware,), {place: odd})()
    agent = Agent("a", by_turn(call("note", {}), "D."), tools=[note], middleware=[made])
    outcome = agent.execute_sync("Hi.")
    assert isinstance(outcome, Failed)
    assert "wrap_model_call alone" in str(outcome.error)


@pytest.mark.parametrize(
    "bad", [-1, float("nan"), float("inf"), 1e300, "1", None, True, datetime(2030, 1, 1)]
)
def test_a_time_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(UsageError, match="Defer"):
        Defer(bad)
    with pytest.raises(UsageError, match="Defer"):
        Defer(1, key="")
    with pytest.raises(UsageError, match="Defer"):
        Defer(1, reason=3)  # type: ignore[arg-type]


def test_a_question_and_a_wait_about_one_call_follow_each_other() -> None:
    class Asks(Hours):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            if run.answer("first") is None:
                raise Interrupt("?", key="first")

        async def after_model(self, run: Run, reply: ModelResponse) -> None:
            if run.answer("last") is None:
                raise Interrupt(reply.text, key="last")

    clock, model = FakeClock(), by_turn("Hello.")
    agent = Agent("a", model, middleware=[Asks()])
    first = interrupted(agent.execute_sync("Hi.", clock=clock))
    answered = agent.resume_sync(first.state, first.decide(respond(1)), clock=clock)
    clock.advance(HOUR)
    last = interrupted(agent.resume_sync(reloaded(waits(answered).state), clock=clock))
    assert last.state.waits == ()
    done = agent.resume_sync(reloaded(last.state), last.decide(respond(1)), clock=clock)
    assert (completed(done).text, len(model.requests)) == ("Hello.", 1)


# ------------------------------------------------------------------------- Retry


class Provider:
    """Fails so often, then answers."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.asked = 0

    def model(self) -> ScriptedModel:
        def reply(_: ScriptedRequest) -> str:
            self.asked += 1
            if self.left:
                self.left -= 1
                raise ModelHTTPError(503, "provider")
            return "at last"

        return ScriptedModel(reply)


def slow(seconds: float = 60, attempts: int = 4) -> AsyncRetrying:
    return AsyncRetrying(stop=stop_after_attempt(attempts), wait=wait_fixed(seconds))


def to_the_end(agent: Agent, clock: FakeClock, outcome: Outcome) -> tuple[Outcome, list[str]]:
    names = []
    while isinstance(outcome, Waiting):
        names += [wait.name for wait in outcome.waits]
        assert outcome.due is not None
        clock.advance((outcome.due - clock.now()).total_seconds())
        outcome = agent.resume_sync(reloaded(outcome.state), clock=clock)
    return outcome, names


def test_a_long_wait_of_a_retry_is_a_due_and_its_failures_are_counted_on() -> None:
    clock, provider = FakeClock(), Provider(3)
    agent = Agent("a", provider.model(), retry=slow())
    outcome, names = to_the_end(agent, clock, agent.execute_sync("Hi.", clock=clock))
    assert (completed(outcome).text, provider.asked) == ("at last", 4)
    assert names == ["retry/1", "retry/2", "retry/3"]


def test_a_policy_that_gives_up_after_long_waits_leaves_the_error_of_the_model() -> None:
    clock, provider = FakeClock(), Provider(9)
    agent = Agent("a", provider.model(), retry=slow())
    outcome, names = to_the_end(agent, clock, agent.execute_sync("Hi.", clock=clock))
    assert isinstance(outcome, Failed)
    assert "503" in str(outcome.error)
    assert (provider.asked, len(names)) == (4, 3)


def test_a_policy_with_a_limit_of_time_counts_it_from_the_first_failure() -> None:
    clock, provider = FakeClock(), Provider(99)
    policy = AsyncRetrying(stop=stop_after_delay(150), wait=wait_fixed(60))
    agent = Agent("a", provider.model(), retry=policy)
    outcome, names = to_the_end(agent, clock, agent.execute_sync("Hi.", clock=clock))
    assert isinstance(outcome, Failed)
    assert (provider.asked, len(names)) == (4, 3)


def test_short_waits_are_in_memory_and_are_counted_with_the_long_ones() -> None:
    def wait(state: Any) -> float:
        return 60 if state.attempt_number == 3 else 0

    clock, provider = FakeClock(), Provider(9)
    policy = AsyncRetrying(stop=stop_after_attempt(5), wait=wait)
    agent = Agent("a", provider.model(), retry=policy)
    outcome, names = to_the_end(agent, clock, agent.execute_sync("Hi.", clock=clock))
    assert isinstance(outcome, Failed)
    assert (provider.asked, names) == (5, ["retry/3"])


def test_what_was_refused_before_a_long_wait_is_paid_for() -> None:
    def refuses(_: ScriptedRequest) -> ModelResponse:
        return ModelResponse(
            parts=[TextPart("no")],
            finish_reason="content_filter",
            usage=RequestUsage(input_tokens=11),
        )

    clock, provider = FakeClock(), Provider(1)
    agent = Agent("a", ScriptedModel(refuses), retry=slow(), fallback_models=[provider.model()])
    outcome, names = to_the_end(agent, clock, agent.execute_sync("Hi.", clock=clock))
    assert completed(outcome).text == "at last"
    assert names == ["retry/1"]
    # Refused, put off; refused once more, and answered.
    assert (outcome.usage.requests, outcome.usage.input_tokens >= 22) == (3, True)


# ----------------------------------------------------- actors, crashes, nested agents


async def test_an_agent_whose_model_call_is_put_off_waits_passively(place: Place) -> None:
    """No process has it while it waits; another host, or the next process, continues."""
    clock, model = SimulatedClock(), by_turn("Hello.", "Again.")

    def agent() -> Agent:
        return Agent("a", model, middleware=[Hours(clock.now() + timedelta(hours=1))])

    made = agent()
    async with Runtime([made], store=place.store(), clock=clock) as runtime:
        ref = runtime.spawn("a", id="a1")
        ref.run("Hi.")
        await until_status(ref, Status.WAITING)
        (wait,) = await soon(runtime.waiting())
        assert (wait.agent_id, wait.tool_name, wait.name) == ("a1", "", "Hours/1")
    assert model.requests == []
    async with Runtime([made], store=place.store(), clock=clock) as runtime:
        ref = runtime.get("a1")
        later = ref.run("More.", message_id="m2")  # it queues until the run has ended
        await until_status(ref, Status.WAITING)
        await clock.advance(2 * HOUR)
        assert completed(await soon(later)).text == "Again."
        assert len(model.requests) == 2
        assert list(await soon(runtime.waiting())) == []


async def test_a_model_call_that_is_put_off_is_so_where_the_agent_is_imported() -> None:
    clock, model = SimulatedClock(), by_turn("Hello.")

    class Once(Middleware):
        async def wrap_model_call(
            self, run: Run, request: ModelInput, next: NextModelCall
        ) -> ModelResponse:
            put_off = run.current.model_call
            if put_off is None or not put_off.call.points:
                raise Defer(HOUR)
            return await next(request)

    agent = Agent("a", model, middleware=[Once()])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("a", id="a1")
        ref.run("Hi.")
        await until_status(ref, Status.WAITING)
        copy = await soon(runtime.import_(await soon(runtime.export("a1")), id="a2"))
        await soon(runtime.recover())
        (due,) = {wait.expires_at for wait in await soon(runtime.waiting())}
        assert (due, model.requests) == (clock.now() + timedelta(hours=1), [])
        await clock.advance(2 * HOUR)
        for each in (copy, ref):
            outcome = await soon(each.outcome())
            assert outcome is not None
            assert completed(outcome).text == "Hello."
        assert len(model.requests) == 2


async def test_a_cancel_ends_a_run_whose_model_call_is_put_off() -> None:
    clock, model = SimulatedClock(), by_turn("Hello.")
    agent = Agent("a", model, middleware=[Hours(clock.now() + timedelta(hours=1))])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("a", id="a1")
        done = ref.run("Hi.")
        await until_status(ref, Status.WAITING)
        await soon(ref.cancel())
        assert isinstance(await soon(done), Stopped)
        await clock.advance(2 * HOUR)
        assert model.requests == []
        assert ref.status() is Status.CANCELLED


def test_a_run_that_is_to_end_before_ends_there() -> None:
    clock, model = FakeClock(), by_turn("Hello.")
    agent = Agent("a", model, middleware=[Hours()])
    ends = clock.now() + timedelta(minutes=10)
    outcome = waits(agent.execute_sync("Hi.", clock=clock, ends_at=ends))
    assert outcome.state.next_due == ends
    clock.advance(11 * 60)
    assert isinstance(agent.resume_sync(outcome.state, clock=clock), Stopped)
    assert model.requests == []


def test_a_run_whose_call_is_put_off_is_cut_off_at_any_record() -> None:
    """R18."""

    def life(disk: Disk | None, provider: Provider) -> tuple[Agent, FakeClock]:
        return Agent("a", provider.model(), retry=slow(), middleware=[Hours()]), FakeClock()

    def live(disk: Disk) -> Outcome:
        agent, clock = life(disk, Provider(2))
        outcome = agent.execute_sync("Hi.", clock=clock, journal=disk)
        while isinstance(outcome, Waiting):
            assert outcome.due is not None
            clock.advance((outcome.due - clock.now()).total_seconds())
            outcome = agent.resume_sync(outcome.state, clock=clock, journal=Disk())
        return outcome

    assert completed(live(Disk())).text == "at last"
    for limit in range(1, 5):
        disk = Disk(limit)
        agent, clock = life(disk, Provider(2))
        with suppress(Crash):
            agent.execute_sync("Hi.", clock=clock, journal=disk)
        agent, clock = life(disk, Provider(2))
        outcome, _ = to_the_end(agent, clock, agent.resume_sync(disk.load(), clock=clock))
        assert completed(outcome).text == "at last"


def test_a_sub_agents_call_is_put_off_with_the_call_around_it() -> None:
    clock = FakeClock()
    child = Agent("child", by_turn("Hello."), middleware=[Hours()])

    @tool(idempotent=True)
    async def delegate(ctx: ToolContext) -> str:
        """Have it done."""
        return completed(await ctx.run_agent(child, "Go.")).text

    agent = Agent("a", by_turn(call("delegate", {}), "Done."), tools=[delegate])
    outcome = waits(agent.execute_sync("Hi.", clock=clock))
    assert [wait.agent_path for wait in outcome.waits] == [("a", "child")]
    clock.advance(HOUR)
    done = completed(agent.resume_sync(reloaded(outcome.state), clock=clock))
    assert [part.content for part in results(done.state)] == ["Hello."]


@pytest.mark.parametrize("kind", [Sequential, Parallel])
def test_agents_of_a_workflow_are_put_off(kind: Any) -> None:
    clock = FakeClock()
    inner = [Agent(name, ScriptedModel(lambda _: "Hi."), middleware=[Hours()]) for name in "ab"]
    flow = Agent("flow", None, mode=kind(inner))
    outcome = waits(flow.execute_sync("Hi.", clock=clock))
    clock.advance(HOUR)
    assert completed(flow.resume_sync(reloaded(outcome.state), clock=clock)).usage.requests == 2
