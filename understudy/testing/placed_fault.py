"""`PlacedFault`: what a fault of a model, a tool and a store have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from understudy.errors import UsageError
from understudy.testing.plan import checked_calls

Refuse = Callable[[str], UsageError]
"""Notes why a fault cannot happen, for the end of its block. Returns the error to raise at once."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a fault tells its block."""

    refuse: Refuse
    waits: Callable[[], None]
    """Called once it waits for the clock."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlacedFault:
    """A fault with the calls at which it happens. Make one with a method of its class.

    Args:
        what: says what happens, for the message of a test that fails.
        at: the first call at which it happens, from 1 on.
        times: at how many calls, one after the other; None for each one from `at` on.

    Raises:
        UsageError: for another `at` or `times`.

    """

    what: str
    at: int = 1
    times: int | None = 1

    def __post_init__(self) -> None:
        checked_calls(self.at, self.times, what=f"{type(self).__name__} ({self.what})")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.what}>"
