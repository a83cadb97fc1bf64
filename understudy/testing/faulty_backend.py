"""`FaultyBackend`: a database that fails on purpose, at the n-th call of one of its methods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from understudy.errors import Fenced, StoreUnavailable, UsageError
from understudy.journal.backend import Backend
from understudy.testing.plan import Planned, checked_calls

if TYPE_CHECKING:

    class _AnyBackend(Backend):
        """The type for type checkers: it has everything that the backend has."""

        host: str

        def agents(self, *given: Any, **options: Any) -> Any: ...
        def append(self, *given: Any, **options: Any) -> Any: ...
        def begin(self, *given: Any, **options: Any) -> Any: ...
        def claim(self, *given: Any, **options: Any) -> Any: ...
        def close(self, *given: Any, **options: Any) -> Any: ...
        def commit(self, *given: Any, **options: Any) -> Any: ...
        def compact(self, *given: Any, **options: Any) -> Any: ...
        def delete(self, *given: Any, **options: Any) -> Any: ...
        def is_committed(self, *given: Any, **options: Any) -> Any: ...
        def load(self, *given: Any, **options: Any) -> Any: ...
        def open(self, *given: Any, **options: Any) -> Any: ...
        def reconnect(self, *given: Any, **options: Any) -> Any: ...
        def release(self, *given: Any, **options: Any) -> Any: ...
        def rollback(self, *given: Any, **options: Any) -> Any: ...

else:
    _AnyBackend = object


_NEVER_FAIL: Mapping[str, str] = {
    "append": "a store calls `append_all`. Name that",
    "close": "it raises nothing. Name `open`",
    "commit_all": "it is called in its steps. Name `begin`, `append_all` or `commit`",
    "rollback": "it raises nothing. Name `commit`",
}
"""The methods whose calls do not fail, with the remedy."""


def _unavailable() -> BaseException:
    return StoreUnavailable(cause="the test says so")


class FaultyBackend(_AnyBackend):
    """A backend that passes every call to another backend, until a fault is planned. Thread-safe.

    Use it to test a store or a backend of your own: `DatabaseStore(FaultyBackend(backend))`. Faults
    have the names of the methods of `Backend`. To test agents, use `faults(store=...)`.

    Args:
        backend: the backend that does the work.

    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._planned: Planned | None = None
        self._error: Callable[[], BaseException] = _unavailable
        self._method = ""
        self._happens = False
        self.lease: float = float("inf")
        """The longest time, in seconds, for which a lease is renewed; a database for one host has
        none."""
        self.lease_lost: bool = False
        """An event: set it, and the next renewal says that the lease was lost."""
        self._was_lost = False
        self.failed: threading.Event = threading.Event()
        """An event that is set once the backend has failed."""
        self.renewed: threading.Event = threading.Event()
        """An event that is set once there is a lease again, after a lease was lost."""

    @property  # type: ignore[misc]  # as a mock does
    def __class__(self) -> Any:
        """The class of the inner backend, so that `isinstance` sees it."""
        return type(self._backend)

    def fail(
        self,
        method: str,
        *,
        at: int = 1,
        times: int | None = 1,
        fault: Callable[[], BaseException] = _unavailable,
        after: bool = False,
    ) -> None:
        """Plan that calls of a method fail from now on. It replaces earlier plans.

        Args:
            method: the name of the method.
            at: the first call that fails, from 1 up.
            times: the number of calls that fail; None = all calls from `at` on.
            fault: makes the error; by default a `StoreUnavailable`.
            after: whether a call does its work before it fails, so that only the answer is
                lost.

        Raises:
            UsageError: if `at` or `times` is wrong.

        """
        checked_calls(at, times, what="FaultyBackend.fail")
        self._check_method(method)
        with self._lock:
            self._method, self._planned = method, Planned(at, times)
            self._error, self._happens = fault, after

    def _check_method(self, method: str) -> None:
        if method in _NEVER_FAIL:
            raise UsageError(
                f"FaultyBackend.fail({method!r}) would fail no call: {_NEVER_FAIL[method]}"
            )
        if not callable(getattr(self._backend.__class__, method, None)):
            raise UsageError(
                f"FaultyBackend.fail({method!r}): `{self._backend.__class__.__name__}` has no such "
                "method"
            )

    def mend(self) -> bool:
        """Stop failing. Return whether a call had failed."""
        with self._lock:
            planned, self._planned = self._planned, None
            return planned is not None and planned.happened > 0

    def commit_all(self, batches: Any) -> Any:
        """Commit as `Backend.commit_all` does, in its steps. Each step may fail."""
        called: Any = self
        called.begin()
        answers = called.append_all(batches)
        called.commit()
        return answers

    def renew(self) -> float:
        """Renew the lease as `Backend.renew` does, subject to `lease` and `lease_lost`."""
        lost_answer = self._enter("renew")
        if self.lease_lost:
            self.lease_lost = False
            self._was_lost = True
            raise Fenced(agent_id="*", why="the test says so")
        if self._was_lost:
            self.renewed.set()
        lease = min(self._backend.renew(), self.lease)
        if lost_answer is not None:
            raise lost_answer()
        return lease

    def __getattr__(self, name: str) -> Any:
        given = getattr(self._backend, name)
        if not callable(given) or name in ("rollback", "close"):
            return given

        def called(*args: Any, **options: Any) -> Any:
            lost_answer = self._enter(name)
            value = given(*args, **options)
            if lost_answer is not None:
                raise lost_answer()
            return value

        return called

    def _enter(self, name: str) -> Callable[[], BaseException] | None:
        """Raise, or return the function that makes the error to raise after the call; None
        without.
        """
        with self._lock:
            if self._planned is None or name != self._method or not self._planned.is_due():
                return None
            self._planned.note()
            error = self._error
            self.failed.set()
            if self._happens:
                return error
        raise error()
