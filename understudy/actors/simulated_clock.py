"""`SimulatedClock`: a clock for tests, in which a day passes in a moment."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from understudy._base.json_values import is_time_span, shown
from understudy._base.points_in_time import checked_time
from understudy.errors import UsageError
from understudy.loop_actors.future import Future

START = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)

OnTime = Callable[[Callable[[], None]], None]


class SimulatedClock:
    """A clock that stands still until it is told to advance. Thread-safe.

    With `Runtime(clock=clock)` everything that is due at a time, such as reminders, escalations and
    expiries of requests, comes when the clock is advanced to that time.

    Args:
        start: the first time, with a time zone.

    Raises:
        UsageError: if `start` is not a time with a time zone.

    """

    def __init__(self, start: datetime = START) -> None:
        self._lock = threading.Lock()
        # In UTC: in a zone whose clocks change, a day may have 23 hours.
        self._start = self._now = checked_time(start, what="SimulatedClock: `start`")
        self._numbers = itertools.count()
        self._timers: list[tuple[datetime, int]] = []
        self._callbacks: dict[int, OnTime] = {}

    def now(self) -> datetime:
        """Return the time at which the clock stands."""
        return self._now

    def monotonic(self) -> float:
        """Return the number of seconds by which the clock was advanced."""
        return (self._now - self._start).total_seconds()

    def advance(self, seconds: float) -> Future[None]:
        """Advance the clock by this many seconds, and stop at each time at which something is due.

        Returns:
            A future that resolves when everything that was due is recorded. A run that
                continues because of it may still be under way; `await ref.outcome()` waits for
                it.

        Raises:
            UsageError: if the argument is not a number of seconds above 0.

        """
        if not is_time_span(seconds):
            raise UsageError(f"advance(seconds) takes a number above 0, got {shown(seconds)}")
        try:
            target = self._now + timedelta(seconds=seconds)
        except OverflowError:
            raise UsageError(
                f"advance(seconds) would go beyond the calendar, got {shown(seconds)}"
            ) from None
        done: Future[None] = Future()

        def go_on() -> None:
            with self._lock:
                on_time = self._next_until(target)
            if on_time is None:
                done.set(None)
            else:
                on_time(go_on)

        go_on()
        return done

    def call_at(self, at: datetime, callback: OnTime) -> Callable[[], None]:
        """Call a function at a time; see `TimerClock`. A past time is due at the next `advance`."""
        number = next(self._numbers)
        with self._lock:
            self._callbacks[number] = callback
            heapq.heappush(self._timers, (at, number))
        return lambda: self._cancel(number)

    def _cancel(self, number: int) -> None:
        with self._lock:
            self._callbacks.pop(number, None)

    def _next_until(self, target: datetime) -> OnTime | None:
        """Set the clock to the next timer, and return its call; or to `target`, if it is first."""
        while self._timers and self._timers[0][0] <= target:
            at, number = heapq.heappop(self._timers)
            callback = self._callbacks.pop(number, None)
            if callback is not None:
                self._now = max(self._now, at)
                return callback
        self._now = max(self._now, target)
        return None
