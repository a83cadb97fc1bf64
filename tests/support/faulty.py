"""A database that fails on purpose: at the n-th call of one of its methods."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from understudy.errors import Fenced, StoreUnavailable
from understudy.journal.backend import Backend

__all__ = ["Fault", "FaultyBackend"]

Fault = Callable[[], BaseException]


def unavailable() -> BaseException:
    return StoreUnavailable(cause="the test says so")


_AnyBackend: Any = object


class FaultyBackend(_AnyBackend):  # type: ignore[misc]  # it has what the backend below has
    """Hands every call on to a backend, until it is told to fail.

    Args:
        backend: which does the work.
        after: whether a method that fails has done its work before: a commit whose answer is lost.

    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._method = ""
        self._left = 0
        self._times = 0
        self.after = False
        self.lease = float("inf")
        self._was_lost = False
        self.lease_lost = False
        self.failed = threading.Event()
        """Set once it has failed."""
        self.renewed = threading.Event()
        """Set once there is a lease again, after one was lost."""

    @property  # type: ignore[misc]  # as a mock does
    def __class__(self) -> Any:
        """The class of the backend: `isinstance` tells what that is."""
        return type(self._backend)

    def fail(
        self,
        method: str,
        *,
        at: int = 1,
        times: int = 1,
        fault: Fault = unavailable,
        after: bool = False,
    ) -> None:
        """Fail the calls of this method from the `at`-th on, so many times."""
        with self._lock:
            self._method, self._left, self._times = method, at, times
            self._fault, self.after = fault, after

    def mend(self) -> bool:
        """Fail no more; whether it had failed."""
        with self._lock:
            failed = self._fault is not None and self._left <= 0
            self._fault = None
            return failed

    def renew(self) -> float:
        fault = self._enter("renew")
        if self.lease_lost:
            self.lease_lost = False
            self._was_lost = True
            raise Fenced(agent_id="*", why="the test says so")
        if self._was_lost:
            self.renewed.set()
        lease = min(self._backend.renew(), self.lease)
        if fault is not None:
            raise fault()
        return lease

    def __getattr__(self, name: str) -> Any:
        given = getattr(self._backend, name)
        if not callable(given) or name in ("rollback", "close"):
            return given

        def called(*args: Any, **options: Any) -> Any:
            fault = self._enter(name)
            value = given(*args, **options)
            if fault is not None:
                raise fault()
            return value

        return called

    def _enter(self, name: str) -> Fault | None:
        """Raise, or give what is to be raised afterwards."""
        with self._lock:
            if self._fault is None or name != self._method:
                return None
            self._left -= 1
            if not -self._times < self._left <= 0:
                return None
            self.failed.set()
            if self.after:
                return self._fault
            fault = self._fault
        raise fault()
