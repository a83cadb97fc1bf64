"""How a supervisor and its children fail, and how a child ends in order."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.errors import UnderstudyError, UsageError

__all__ = [
    "ChildNotRunning",
    "ChildStartFailed",
    "NoSuchChild",
    "RestartIntensityExceeded",
    "Shutdown",
]


class Shutdown(UnderstudyError):
    """An orderly end that says why: raised by an actor, it counts as a normal exit.

    OTP's `{shutdown, Term}`: a transient child that ends by it is not started again.
    """


class NoSuchChild(UsageError):
    """The supervisor has no child of this id; the error lists those that it has.

    A child that it has, but that does not run now, is `ChildNotRunning` instead.
    """

    child_id: str

    def __init__(self, *, child_id: str, known: Iterable[str]) -> None:
        ids = ", ".join(repr(id) for id in known) or "none"
        super().__init__(
            f"There is no child {child_id!r}; the supervisor has {ids}.", child_id=child_id
        )


class ChildNotRunning(UnderstudyError):
    """The child is known but has no actor now: it is stopped, or about to be started again."""

    child_id: str
    status: str

    def __init__(self, *, child_id: str, status: str) -> None:
        super().__init__(
            f"Child {child_id!r} does not run: it is {status}. One that is stopped comes back by "
            "restart_child; one that restarts comes back by itself.",
            child_id=child_id,
            status=status,
        )


class ChildStartFailed(UnderstudyError):
    """The child's start callable or its `on_start` raised; that is `__cause__`."""

    child_id: str
    cause: str

    def __init__(self, *, child_id: str, cause: str) -> None:
        super().__init__(
            f"Child {child_id!r} did not start: {cause}", child_id=child_id, cause=cause
        )


class RestartIntensityExceeded(UnderstudyError):
    """Why a supervisor gave up: too many restarts in too short a time.

    It is the reason in the supervisor's own `Down`, so the supervisor above sees an abnormal exit.
    `__cause__` is how the last child ended.
    """

    supervisor: str
    child_id: str
    max_restarts: int
    period: float

    def __init__(self, *, supervisor: str, child_id: str, max_restarts: int, period: float) -> None:
        super().__init__(
            f"Supervisor {supervisor!r} gave up with child {child_id!r}: more than {max_restarts} "
            f"restarts within {period:g} s. Mend the child, or raise max_restarts.",
            supervisor=supervisor,
            child_id=child_id,
            max_restarts=max_restarts,
            period=period,
        )
