"""`PlacedFault`: the base of the faults of models, tools and stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from understudy.errors import UsageError
from understudy.testing.plan import checked_calls

Refuse = Callable[[str], UsageError]
"""A function that notes why a fault cannot happen, for the end of its block, and returns the error
to raise at once."""


@dataclass(frozen=True, slots=True)
class BlockCallbacks:
    """The functions by which a fault notifies its block."""

    refuse: Refuse
    waits: Callable[[], None]
    """A function to call once the fault waits for the clock."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlacedFault:
    """A fault with the calls at which it happens. Make one with a method of its class.

    Args:
        what: what happens, for the message of a failed test.
        at: the first call at which it happens, from 1 on.
        times: the number of calls in a row; None = each call from `at` on.

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
