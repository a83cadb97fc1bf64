"""The only source of time and ids: no other calls `time`, `uuid`, `secrets` or `random` itself.

Replace it to simulate or repeat a run: `agent.execute(..., clock=my_clock, new_id=my_ids)`.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Protocol, runtime_checkable

NewId = Callable[[], str]
"""Returns a new id on each call: unique, and free of `/` and `.`."""
NEAR = 60.0
"""A due that is at most so many seconds away comes by the monotonic clock, too: a clock that is set
back makes no short sleep long."""


class Clock(Protocol):
    """Gives a run the time."""

    def now(self) -> datetime:
        """The time of day, with a time zone."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""


@runtime_checkable
class TimerClock(Protocol):
    """An optional part of a clock: it says itself when a time has come, as a simulated one does.

    For a clock without it a runtime waits by its event loop, and looks at `now()` once a second.
    """

    def call_at(
        self, at: datetime, callback: Callable[[Callable[[], None]], None]
    ) -> Callable[[], None]:
        """Call `callback` once, from any thread, when `now()` has reached a time.

        Args:
            at: the time.
            callback: gets a function, and calls it when all that was due has been handled.

        Returns:
            A function that cancels the call.

        """


class SystemClock:
    """The machine's clock, in UTC."""

    __slots__ = ()

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()


class SharedClock:
    """The clock that the hosts of a store share: the machine's, corrected by an offset.

    Args:
        offset: gives the seconds by which the shared clock is ahead.

    """

    __slots__ = ("_offset",)

    def __init__(self, offset: Callable[[], float]) -> None:
        self._offset = offset

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + timedelta(seconds=self._offset())

    def monotonic(self) -> float:
        return time.monotonic()


def wall_seconds() -> float:
    """The seconds since 1970 by the machine's clock."""
    return time.time()


def new_random_id() -> str:
    """A random id of 32 hexadecimal digits."""
    # A `uuid4` takes 4 times as long; where caches are cold, 25 µs more, 2 % of a short run.
    return os.urandom(16).hex()


def new_secret() -> str:
    """256 random bits as text that is safe in a URL."""
    return secrets.token_urlsafe(32)


def jittered(seconds: float) -> float:
    """Between 75 % and 125 % of it, at random: many hosts do not act at the same moment."""
    return seconds * (0.75 + int.from_bytes(os.urandom(2)) / 0x1FFFF)


def suspend_aware_seconds() -> float:
    """Seconds since some fixed point, including those for which the machine was suspended."""
    if sys.platform == "win32":
        return time.monotonic()  # it counts them there
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.clock_gettime(time.CLOCK_MONOTONIC)  # of macOS, which counts them
