"""`ChildSpec`: the recipe for one child."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pykka import Actor, ActorRef

from understudy.errors import UsageError

Restart = Literal["permanent", "transient", "temporary"]
"""The rule for a child that ended: restart it always, after an abnormal end, or never."""

StartChild = Callable[[], ActorRef[Any] | Awaitable[ActorRef[Any]]]
"""A function that starts a new actor and returns its ref. It is called on the supervisor's loop."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """The recipe for one child."""

    id: str
    """The id, unique among the children of its supervisor."""
    start: StartChild
    """The function that starts the actor: `Counter.start`, `partial(Counter.start, 3)`, or an async
    function."""
    restart: Restart = "permanent"
    shutdown: float | Literal["default"] | None = "default"
    """The number of seconds from `stop()` to `stop_now()`. 0 = stop at once. None = no limit.

    By default 5 seconds; None for a supervisor, so that it can stop its own children.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise UsageError(f"The id of a child must be a non-empty string, got {self.id!r}")
        if isinstance(self.start, type) and issubclass(self.start, Actor):
            name = self.start.__name__
            raise UsageError(
                f"start of child {self.id!r} is the class {name}: pass {name}.start, which starts "
                "an actor and returns its ref"
            )
        if not callable(self.start):
            raise UsageError(
                f"start of child {self.id!r} must be a callable that starts an actor and returns "
                f"its ref, got {self.start!r}: pass the function, do not call it"
            )
        check_choice(self.restart, Restart, f"restart of child {self.id!r}")
        if self.shutdown not in (None, "default") and not is_seconds(self.shutdown):
            raise UsageError(
                f"shutdown of child {self.id!r} must be seconds (0 cancels at once) or None to "
                f"wait for ever, got {self.shutdown!r}"
            )


def is_seconds(value: object) -> bool:
    """Whether the value is a finite number of at least 0."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= sys.float_info.max
    )


def check_choice(value: object, choices: Any, what: str) -> None:
    """Check that `value` is one of the literals in `choices`.

    Raises:
        UsageError: if it is not; the error names `what` and the choices.

    """
    known = get_args(choices)
    if value not in known:
        listed = ", ".join(repr(choice) for choice in known)
        raise UsageError(f"{what} must be one of {listed}, got {value!r}")
