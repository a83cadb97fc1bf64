"""Counters of each kind of store, and agents that reserve and spend on them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from understudy.testing.contracts.backends.purses import Purse, line, money, reservation, spend

__all__ = ["NOON", "Purse", "SetClock", "line", "money", "reservation", "spend"]

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = NOON

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return 0.0

    @property
    def seconds(self) -> int:
        return int(self.time.timestamp())

    def pass_on(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
