"""The errors of supervisors and their children, and `Shutdown`."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.errors import UnderstudyError, UsageError


class Shutdown(UnderstudyError):
    """Raised by an actor to end normally and give a reason.

    It is OTP's `{shutdown, Term}`: a transient child that ends by it is not restarted.
    """


class NoSuchChild(UsageError):
    """The supervisor has no child with this id; the message lists the ids that it has.

    A known child without an actor gives `ChildNotRunning` instead.
    """

    child_id: str

    def __init__(self, *, child_id: str, known: Iterable[str]) -> None:
        ids = ", ".join(repr(id) for id in known) or "none"
        super().__init__(
            f"There is no child {child_id!r}; the supervisor has {ids}.", child_id=child_id
        )


class ChildNotRunning(UnderstudyError):
    """The child has no actor now: it is stopped, or waits for its restart."""

    child_id: str
    status: str

    def __init__(self, *, child_id: str, status: str) -> None:
        super().__init__(
            f"Child {child_id!r} has no actor: it is {status}. restart_child starts a "
            "stopped child; one that is restarting needs no call.",
            child_id=child_id,
            status=status,
        )


class ChildStartFailed(UnderstudyError):
    """The child's start function or its `on_start` raised; `__cause__` is that exception."""

    child_id: str
    cause: str

    def __init__(self, *, child_id: str, cause: str) -> None:
        super().__init__(
            f"Child {child_id!r} did not start: {cause}", child_id=child_id, cause=cause
        )


class RestartIntensityExceeded(UnderstudyError):
    """A supervisor gave up after more than `max_restarts` restarts within `period` seconds.

    It is the reason in the supervisor's own `Down`, so the supervisor above sees an abnormal exit.
    `__cause__` is the exception that ended the last child, if there was one.
    """

    supervisor: str
    child_id: str
    max_restarts: int
    period: float

    def __init__(self, *, supervisor: str, child_id: str, max_restarts: int, period: float) -> None:
        super().__init__(
            f"Supervisor {supervisor!r} gave up with child {child_id!r}: more than {max_restarts} "
            f"restarts within {period:g} s. Fix the child, or raise max_restarts.",
            supervisor=supervisor,
            child_id=child_id,
            max_restarts=max_restarts,
            period=period,
        )
