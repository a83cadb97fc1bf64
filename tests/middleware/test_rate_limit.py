"""`RateLimit`: what is above the limit waits, in order, by the clock of the run (R16)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from tenacity import AsyncRetrying, stop_after_attempt

from tests.support.agents import FakeClock, completed, until_status
from tests.support.loops import own_tasks, soon, until
from tests.support.places import SqlitePlace
from understudy import (
    Agent,
    Failed,
    Outcome,
    Run,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    UsageError,
    Waiting,
)
from understudy.loop_actors.future import Future
from understudy.middleware import Middleware, RateLimit, Retry
from understudy.middleware.rate_limit import KEPT
from understudy.models import ScriptedRequest


def says(tokens: int) -> ModelResponse:
    return ModelResponse(parts=[TextPart("hi")], usage=RequestUsage(input_tokens=tokens))


class Timed:
    """A model that notes when it is asked, and by whom."""

    def __init__(self, clock: SimulatedClock, tokens: int = 0) -> None:
        self.clock = clock
        self.asked: list[tuple[str, float]] = []
        self.tokens = tokens
        self.model = ScriptedModel(self._reply)

    def _reply(self, request: ScriptedRequest) -> ModelResponse:
        self.asked.append((request.prompt, self.clock.monotonic()))
        return says(self.tokens)

    @property
    def times(self) -> list[float]:
        return [at for _, at in self.asked]


class Crowd:
    """Runs of one agent, begun one after the other."""

    def __init__(self, agent: Agent, clock: SimulatedClock) -> None:
        self.agent, self.clock = agent, clock
        self.runs: list[asyncio.Task[Outcome]] = []

    async def begin(self, *names: str) -> None:
        """Begin a run of each name, and return when it has asked or waits."""
        for name in names:
            self.runs.append(asyncio.create_task(self.agent.execute(name, clock=self.clock)))
            await settled()

    async def advance(self, seconds: float) -> None:
        await soon(self.clock.advance(seconds))
        await settled()

    async def end(self) -> None:
        while any(not run.done() for run in self.runs):
            await self.advance(60)
        for run in self.runs:
            completed(run.result())


async def settled() -> None:
    """Give the loop so many turns that nothing is left that does not wait for the clock."""
    for _ in range(100):
        await asyncio.sleep(0)


def in_memory(*limits: int | None, **options: Any) -> RateLimit:
    return RateLimit(*limits, defer_after=None, **options)


def crowd(timed: Timed, *, tokens: int | None = None, requests: int | None = None) -> Crowd:
    agent = Agent("clerk", timed.model, middleware=[in_memory(requests, tokens)])
    return Crowd(agent, timed.clock)


# ------------------------------------------------------------------------- requests


async def test_what_is_above_the_limit_waits_until_a_minute_is_over_and_in_order() -> None:
    """R16."""
    timed = Timed(SimulatedClock())
    runs = crowd(timed, requests=2)
    await runs.begin("a")
    await runs.advance(10)
    await runs.begin("b", "c", "d", "e")
    assert timed.asked == [("a", 0.0), ("b", 10.0)]
    await runs.advance(49.5)
    assert len(timed.asked) == 2
    await runs.advance(100)
    assert timed.asked[2:] == [("c", 60.0), ("d", 70.0), ("e", 120.0)]
    await runs.end()


async def test_in_no_minute_there_are_more_requests_than_the_limit() -> None:
    timed = Timed(SimulatedClock())
    runs = crowd(timed, requests=3)
    for number in range(12):
        await runs.begin(str(number))
        await runs.advance(7.3)
    await runs.end()
    for start in timed.times:
        assert sum(start <= at < start + 60 for at in timed.times) <= 3
    assert [name for name, _ in timed.asked] == [str(number) for number in range(12)]


async def test_one_that_is_cancelled_leaves_its_place_to_those_behind_it() -> None:
    timed = Timed(SimulatedClock())
    runs = crowd(timed, requests=1)
    await runs.begin("a", "b", "c")
    runs.runs[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(runs.runs.pop(1))
    await runs.advance(60)
    assert timed.asked == [("a", 0.0), ("c", 60.0)]
    await runs.end()


async def test_a_cancel_of_the_run_ends_the_wait() -> None:
    timed = Timed(SimulatedClock())
    agent = Agent("clerk", timed.model, middleware=[in_memory(1)])
    async with Runtime([agent], clock=timed.clock) as runtime:
        completed(await soon(runtime.spawn("clerk", id="one").run("a")))
        ref = runtime.spawn("clerk", id="two")
        running = ref.run("b")
        await settled()
        await soon(ref.cancel())
        assert isinstance(await soon(running), Stopped)
    assert len(timed.asked) == 1
    assert own_tasks() <= {asyncio.current_task()}


async def test_a_runtime_waits_by_its_clock() -> None:
    timed = Timed(SimulatedClock())
    agent = Agent("clerk", timed.model, middleware=[in_memory(1)])
    async with Runtime([agent], clock=timed.clock) as runtime:
        completed(await soon(runtime.spawn("clerk", id="one").run("a")))
        running = asyncio.ensure_future(soon(runtime.spawn("clerk", id="two").run("b")))
        while not running.done():
            await soon(timed.clock.advance(10))
            await settled()
        completed(running.result())
    assert [name for name, _ in timed.asked] == ["a", "b"]
    assert timed.times[1] >= 60


# ------------------------------------------------------------------------- put off


class Office:
    """Agents of one limit in a runtime, which are asked one after the other."""

    def __init__(self, runtime: Runtime, timed: Timed) -> None:
        self.runtime, self.timed = runtime, timed
        self.runs: dict[str, Future[Outcome]] = {}

    async def ask(self, *names: str, **options: Any) -> None:
        for name in names:
            ref = self.runtime.spawn("clerk", id=name)
            self.runs[name] = ref.run(name, **options)
            await until_status(ref, Status.WAITING, Status.IDLE)

    async def until(self, seconds: float) -> None:
        await soon(self.timed.clock.advance(seconds - self.timed.clock.monotonic()))

    async def ended(self, *names: str) -> list[str]:
        return [type(await soon(self.runs[name])).__name__ for name in names]


def clerk(timed: Timed, *limits: int, **options: Any) -> Agent:
    return Agent("clerk", timed.model, middleware=[RateLimit(*limits, **options)])


async def test_a_long_wait_is_a_due_and_the_line_is_kept() -> None:
    """R16."""
    timed = Timed(SimulatedClock())
    async with Runtime([clerk(timed, 1)], clock=timed.clock) as runtime:
        office = Office(runtime, timed)
        await office.ask("a", "b", "c", "d")
        waits = {each.agent_id: each for each in await soon(runtime.waiting())}
        assert {name: each.name for name, each in waits.items()} == dict.fromkeys(
            "bcd", "RateLimit/1"
        )
        start = timed.clock.now()
        dues = [waits[name].expires_at for name in "bcd"]
        assert dues == [start + timedelta(seconds=at) for at in (60, 120, 180)]
        for at in (60, 120, 180):
            await office.until(at)
        assert await office.ended(*"abcd") == ["Completed"] * 4
    assert timed.asked == [("a", 0.0), ("b", 60.0), ("c", 120.0), ("d", 180.0)]


async def test_a_short_wait_is_in_memory_and_the_option_says_what_is_short() -> None:
    timed = Timed(SimulatedClock())
    agent = clerk(timed, 1, defer_after=20)
    completed(await soon(agent.execute("a", clock=timed.clock)))
    await timed.clock.advance(39)
    assert isinstance(await soon(agent.execute("b", clock=timed.clock)), Waiting)
    await timed.clock.advance(60)
    completed(await soon(agent.execute("c", clock=timed.clock)))  # b has not come back in time
    await timed.clock.advance(40)
    waiting = asyncio.create_task(agent.execute("d", clock=timed.clock))
    await settled()
    assert not waiting.done()
    await timed.clock.advance(20)
    completed(await soon(waiting))
    assert timed.asked == [("a", 0.0), ("c", 99.0), ("d", 159.0)]


async def test_one_that_comes_back_late_moves_those_behind_it() -> None:
    timed = Timed(SimulatedClock())
    agent = clerk(timed, 1)
    completed(await soon(agent.execute("a", clock=timed.clock)))
    b, c = [await soon(agent.execute(name, clock=timed.clock)) for name in "bc"]
    await timed.clock.advance(63)
    assert isinstance(b, Waiting)
    completed(await soon(agent.resume(b.state, clock=timed.clock)))
    await timed.clock.advance(57)
    assert isinstance(c, Waiting)
    waiting = asyncio.create_task(agent.resume(c.state, clock=timed.clock))
    await settled()
    assert not waiting.done()
    await timed.clock.advance(3)
    completed(await soon(waiting))
    assert timed.asked == [("a", 0.0), ("b", 63.0), ("c", 123.0)]


async def test_who_does_not_come_back_loses_its_place() -> None:
    timed = Timed(SimulatedClock())
    async with Runtime([clerk(timed, 1)], clock=timed.clock) as runtime:
        office = Office(runtime, timed)
        await office.ask("a", "b")
        await soon(runtime.get("b").cancel())
        assert await office.ended("a", "b") == ["Completed", "Stopped"]
        await office.until(60 + KEPT + 1)
        await office.ask("d")
        assert await office.ended("d") == ["Completed"]
    assert timed.asked == [("a", 0.0), ("d", 60 + KEPT + 1)]


async def test_a_request_that_is_made_again_waits_in_memory() -> None:
    """Else the tries that failed were forgotten, and the model were asked for ever."""
    clock = SimulatedClock()
    model = ScriptedModel(down)
    retry = AsyncRetrying(stop=stop_after_attempt(3), reraise=True)
    runs = Crowd(Agent("clerk", model, retry=retry, middleware=[RateLimit(1)]), clock)
    await runs.begin("a")
    await runs.advance(60)
    await runs.advance(60)
    assert isinstance(await soon(runs.runs[0]), Failed)
    assert len(model.requests) == 3


async def test_one_that_is_put_off_goes_on_in_the_next_process(sqlite: SqlitePlace) -> None:
    """The line is of a process, so the next one has none: what is due goes."""
    timed = Timed(SimulatedClock())
    async with Runtime([clerk(timed, 1)], store=sqlite.store(), clock=timed.clock) as runtime:
        office = Office(runtime, timed)
        await office.ask("a", "b")
    timed.clock = SimulatedClock(timed.clock.now() + timedelta(seconds=30))
    async with Runtime([clerk(timed, 1)], store=sqlite.store(), clock=timed.clock) as runtime:
        ref = runtime.get("b")
        await soon(timed.clock.advance(31))
        outcome = await soon(ref.outcome())
        assert outcome is not None
        completed(outcome)
    assert [name for name, _ in timed.asked] == ["a", "b"]


async def test_what_holds_for_a_run_that_waits_holds_for_one_that_is_put_off() -> None:
    timed = Timed(SimulatedClock())
    async with Runtime([clerk(timed, 1)], clock=timed.clock) as runtime:
        office = Office(runtime, timed)
        await office.ask("a")
        await office.ask("b", deadline=10)  # the time that it waits does not count
        await office.ask("c", ends_at=timed.clock.now() + timedelta(seconds=70))
        steered = runtime.get("b").send("And hurry.", steer=True)
        await soon(steered)
        for at in (60, 70, 120):
            await office.until(at)
        assert await office.ended("b", "c") == ["Completed", "Stopped"]
    assert timed.asked == [("a", 0.0), ("And hurry.", 60.0)]


# ------------------------------------------------------------------------- tokens


async def test_tokens_count_as_the_replies_tell() -> None:
    timed = Timed(SimulatedClock(), tokens=40)
    runs = crowd(timed, tokens=100)
    await runs.begin("a", "b", "c", "d")
    assert timed.times == [0.0, 0.0, 0.0], "before a reply, a request is estimated by its text"
    await runs.advance(60)
    assert timed.times == [0.0, 0.0, 0.0, 60.0]
    await runs.end()


async def test_a_request_of_more_than_the_limit_goes_alone() -> None:
    timed = Timed(SimulatedClock())
    runs = crowd(timed, tokens=10)
    long = "word " * 100
    await runs.begin("a", long, "b")
    assert timed.times == [0.0]
    await runs.advance(60)
    assert timed.times == [0.0, 60.0]
    await runs.advance(60)
    assert timed.times == [0.0, 60.0, 120.0]
    await runs.end()


# ------------------------------------------------------------------------- who shares a count


def places(clock: SimulatedClock) -> Iterator[tuple[ScriptedModel, RateLimit]]:
    class Elsewhere(ScriptedModel):
        @property
        def base_url(self) -> str:
            return "https://elsewhere.example"

    class OfAnother(ScriptedModel):
        @property
        def system(self) -> str:
            return "another"

    yield ScriptedModel(lambda _: "hi"), in_memory(1)
    yield ScriptedModel(lambda _: "hi"), in_memory(1, key="second")
    yield Elsewhere(lambda _: "hi"), in_memory(1)
    yield OfAnother(lambda _: "hi"), in_memory(1)


async def test_each_provider_address_and_key_has_a_count_of_its_own() -> None:
    clock = SimulatedClock()
    for model, limit in places(clock):
        agent = Agent("clerk", model, middleware=[limit])
        completed(await soon(agent.execute("go", clock=clock)))
    for model, limit in places(clock):
        agent = Agent("other", model, middleware=[limit])
        waiting = asyncio.create_task(agent.execute("go", clock=clock))
        await settled()
        assert not waiting.done(), "agents of one process share it"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_agents_with_other_limits_share_the_count_and_keep_their_own() -> None:
    clock = SimulatedClock()
    timed = Timed(clock)
    one = Crowd(Agent("one", timed.model, middleware=[in_memory(1)]), clock)
    three = Crowd(Agent("three", timed.model, middleware=[in_memory(3)]), clock)
    await three.begin("a", "b")
    await one.begin("c")
    await three.advance(60)
    await three.begin("d")
    assert timed.asked == [("a", 0.0), ("b", 0.0), ("c", 60.0), ("d", 60.0)]
    await one.end()


async def test_a_loop_in_another_thread_waits_in_the_same_line() -> None:
    waits = threading.Event()

    class Clock(SimulatedClock):
        def call_at(self, at: datetime, callback: Any) -> Callable[[], None]:
            cancel = super().call_at(at, callback)
            waits.set()
            return cancel

    clock = Clock()
    timed = Timed(clock)
    agent = Agent("clerk", timed.model, middleware=[in_memory(1)])
    completed(await soon(agent.execute("a", clock=clock)))
    waiting = asyncio.create_task(asyncio.to_thread(agent.execute_sync, "b", clock=clock))
    await until(waits.is_set)
    await soon(clock.advance(60))
    completed(await soon(waiting))
    assert timed.asked == [("a", 0.0), ("b", 60.0)]


async def test_a_clock_without_timers_is_looked_at_again() -> None:
    clock = FakeClock()
    agent = Agent("clerk", ScriptedModel(lambda _: "hi"), middleware=[in_memory(1)])
    completed(await soon(agent.execute("a", clock=clock)))
    waiting = asyncio.create_task(agent.execute("b", clock=clock))
    await settled()
    assert not waiting.done()
    clock.advance(60)
    completed(await soon(waiting))


# ------------------------------------------------------------------------- what counts


def down(_: ScriptedRequest) -> str:
    raise ConnectionError("try later")


@pytest.mark.parametrize("option", [True, False], ids=["retry=", "Retry"])
async def test_each_try_counts_wherever_it_is_in_the_stack(option: bool) -> None:
    """R16."""
    clock = SimulatedClock()
    model = ScriptedModel([ConnectionError("try later"), "hi"])
    retry = AsyncRetrying(stop=stop_after_attempt(2), reraise=True)
    given: dict[str, Any] = (
        {"retry": retry, "middleware": [RateLimit(1)]}
        if option
        else {"middleware": [RateLimit(1), Retry(retry)]}
    )
    runs = Crowd(Agent("clerk", model, **given), clock)
    await runs.begin("a")
    assert len(model.requests) == 1
    await runs.advance(60)
    assert len(model.requests) == 2
    await runs.end()


async def test_a_fallback_counts_at_its_own_provider() -> None:
    class OfAnother(ScriptedModel):
        @property
        def system(self) -> str:
            return "another"

    clock = SimulatedClock()
    other = OfAnother(lambda _: "hi")
    agent = Agent("a", ScriptedModel(down), fallback_models=[other], middleware=[RateLimit(1)])
    completed(await soon(agent.execute("go", clock=clock)))


async def test_what_is_asked_beside_the_conversation_counts() -> None:
    class Asks(Middleware):
        async def on_run_start(self, run: Run) -> None:
            await run.ask_model("title", "A title, please.")

    timed = Timed(SimulatedClock())
    runs = Crowd(Agent("clerk", timed.model, middleware=[in_memory(1), Asks()]), timed.clock)
    await runs.begin("go")
    await runs.advance(60)
    assert timed.asked == [("A title, please.", 0.0), ("go", 60.0)]
    await runs.end()


# ------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "give requests_per_minute or tokens_per_minute"),
        ({"requests_per_minute": 0}, "`requests_per_minute`"),
        ({"requests_per_minute": 1.5}, "`requests_per_minute`"),
        ({"tokens_per_minute": True}, "`tokens_per_minute`"),
        ({"requests_per_minute": 1, "key": 7}, "`key`"),
        ({"requests_per_minute": 1, "defer_after": -1}, "`defer_after`"),
        ({"requests_per_minute": 1, "defer_after": "soon"}, "`defer_after`"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(arguments: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        RateLimit(**arguments)


def test_two_of_them_are_refused() -> None:
    with pytest.raises(UsageError, match="two RateLimits"):
        Agent("a", ScriptedModel([]), middleware=[RateLimit(1), RateLimit(2)])
