"""Waits by a clock: over when the clock says so, whoever waits, and however it tells the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from tests.support.agents import FakeClock
from tests.support.loops import soon, until
from understudy import SimulatedClock
from understudy._base.clock import Clock, SystemClock
from understudy._base.clock_waits import DueWork, sleep_by, wait_by


async def test_a_simulated_clock_ends_a_wait_when_it_is_advanced() -> None:
    clock = SimulatedClock()
    waits = asyncio.ensure_future(sleep_by(clock, 60))
    await until(lambda: bool(clock._timers))
    await soon(clock.advance(59))
    assert not waits.done()
    await soon(clock.advance(1))
    await soon(waits)


async def test_a_wait_ends_early_by_what_changes() -> None:
    clock, changed = SimulatedClock(), asyncio.Event()
    waits = asyncio.ensure_future(wait_by(clock, 60, changed))
    await until(lambda: bool(clock._timers))
    changed.set()
    await soon(waits)
    assert clock.monotonic() == 0
    await soon(clock.advance(60))  # its timer is gone, so nothing is waited for


async def test_a_cancelled_wait_leaves_no_timer() -> None:
    clock = SimulatedClock()
    waits = asyncio.ensure_future(sleep_by(clock, 60))
    await until(lambda: bool(clock._callbacks))
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert clock._callbacks == {}


async def test_a_clock_without_timers_is_looked_at_again() -> None:
    clock = FakeClock()
    waits = asyncio.ensure_future(sleep_by(clock, 60))
    await asyncio.sleep(0)
    assert not waits.done()
    clock.advance(60)
    await soon(waits)


class Early:
    """A clock whose timers come before their time, as a loop's may."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.calls = 0

    def now(self) -> datetime:
        return self.clock.now()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def call_at(
        self, at: datetime, callback: Callable[[Callable[[], None]], None]
    ) -> Callable[[], None]:
        self.calls += 1
        if self.calls < 3:
            callback(lambda: None)
        else:
            self.clock.advance((at - self.now()) / timedelta(seconds=1))
            callback(lambda: None)
        return lambda: None


async def test_a_timer_that_comes_early_ends_no_wait() -> None:
    clock = Early()
    await soon(sleep_by(clock, 60))
    assert clock.calls == 3


@pytest.mark.parametrize("clock", [SystemClock(), SimulatedClock()])
async def test_no_time_at_all_is_not_waited_for(clock: Clock) -> None:
    await soon(sleep_by(clock, 0))


async def test_the_clock_of_the_machine_is_waited_for_by_the_loop() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await soon(sleep_by(clock, 0.002))
    assert clock.monotonic() - before >= 0.002 - 1e-5


class Done:
    """Work that is due each minute, and how often it was done."""

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self.has_begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()
        self.due = clock.now() + timedelta(seconds=60)
        loop = asyncio.get_running_loop()
        self.work = DueWork(clock, lambda now: self.due, self._do, loop.create_task)
        self.work.open()

    async def _do(self) -> None:
        self.due += timedelta(seconds=60)
        self.has_begun.set()
        await self.goes_on.wait()
        self.count += 1


async def test_who_advances_a_clock_waits_for_what_is_due() -> None:
    clock = SimulatedClock()
    done = Done(clock)
    done.goes_on.clear()
    advanced = asyncio.ensure_future(clock.advance(180))
    await soon(done.has_begun.wait())
    assert (clock.monotonic(), advanced.done()) == (60, False)
    done.goes_on.set()
    await soon(advanced)
    assert done.count == 3


async def test_work_that_is_closed_while_it_is_done_keeps_no_clock_waiting() -> None:
    clock = SimulatedClock()
    done = Done(clock)
    done.goes_on.clear()
    advanced = asyncio.ensure_future(clock.advance(180))
    await soon(done.has_begun.wait())
    done.work.close()
    await soon(advanced)
    assert (clock.monotonic(), done.count) == (180, 0)


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy._base.clock_waits.RECHECK", 0.01)


@pytest.mark.usefixtures("_often")
async def test_a_clock_without_timers_is_looked_at_for_what_is_due() -> None:
    clock = FakeClock()
    done = Done(clock)
    for count in (1, 2):
        clock.advance(60)
        await until(lambda count=count: done.count == count)  # type: ignore[misc]
    done.work.close()


async def test_work_that_becomes_due_earlier_is_done_then() -> None:
    clock = SimulatedClock()
    done = Done(clock)
    done.due -= timedelta(seconds=30)
    done.work.look()
    await soon(clock.advance(30))
    assert done.count == 1
    await soon(clock.advance(59))
    assert done.count == 1
    done.work.close()


@pytest.mark.usefixtures("_often")
@pytest.mark.parametrize("clock", [FakeClock(), SimulatedClock()])
async def test_a_clock_that_raises_is_asked_again(
    clock: FakeClock | SimulatedClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = Done(clock)
    now = clock.now
    with monkeypatch.context() as patch:
        patch.setattr(clock, "now", lambda: 1 / 0)
        done.work.look()
        await until(lambda: "the clock raised" in caplog.text)
        patch.setattr(clock, "now", now)
        clock.advance(60)
        await until(lambda: done.count == 1)
    done.work.close()
    assert caplog.text.count("the clock raised") == 1


class AtOnce(Early):
    """A clock that calls back at once, in the thread that asks, for a time that has passed."""

    def call_at(
        self, at: datetime, callback: Callable[[Callable[[], None]], None]
    ) -> Callable[[], None]:
        if at > self.now():
            return self.clock.call_at(at, callback)
        callback(lambda: None)
        return lambda: None


async def test_work_that_is_due_already_is_done_once_by_a_clock_that_calls_back_at_once() -> None:
    clock = AtOnce()
    clock.clock.advance(60)
    done = Done(clock)
    done.due -= timedelta(seconds=120)
    done.work.look()
    await until(lambda: done.count == 2 and bool(clock.clock._callbacks))
    await soon(clock.clock.advance(59))
    assert done.count == 2
    await soon(clock.clock.advance(1))
    assert done.count == 3
    done.work.close()


@pytest.mark.usefixtures("_often")
async def test_a_clock_that_sets_no_timer_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimulatedClock()
    with monkeypatch.context() as patch:
        patch.setattr(clock, "call_at", lambda *_: 1 / 0)
        done = Done(clock)
        await until(lambda: "the clock raised" in caplog.text)
    await until(lambda: bool(clock._callbacks))
    await soon(clock.advance(60))
    assert done.count == 1
    done.work.close()
    assert caplog.text.count("the clock raised") == 1
