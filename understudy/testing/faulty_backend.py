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
        """What type checkers see: it has all that the backend below has."""

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
    """Hands every call on to a backend, until it is told to fail. Thread-safe.

    It is for tests of a store or a backend of your own, by the names of the methods of `Backend`:
    `DatabaseStore(FaultyBackend(backend))`. `faults(store=...)` is for tests of agents.

    Args:
        backend: which does the work.

    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._planned: Planned | None = None
        self._error: Callable[[], BaseException] = _unavailable
        self._method = ""
        self._happens = False
        self.lease: float = float("inf")
        """Seconds for which a lease is renewed at most: a database for one host has none."""
        self.lease_lost: bool = False
        """Set it to have the next renewal say that the lease was lost."""
        self._was_lost = False
        self.failed: threading.Event = threading.Event()
        """Set once it has failed."""
        self.renewed: threading.Event = threading.Event()
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
        times: int | None = 1,
        fault: Callable[[], BaseException] = _unavailable,
        after: bool = False,
    ) -> None:
        """Fail calls of a method from now on, in the place of what was planned before.

        A `DatabaseStore` calls, in order: `open`, `renew`; `claim` between `begin` and `commit`;
        for records `begin`, `append_all` and `commit`; after a failure `reconnect` and
        `is_committed`; `compact` and `delete` between `begin` and `commit`, and `release` if the
        lease can end. Where hosts share the database, `take` may stand for `claim`. It reads by
        `load`, `load_part`, `load_latest`, `agents`, `find_agents`, `due`, the lists and counts,
        and the methods of what the backend keeps. What the backend calls itself does not fail.

        Args:
            method: the name of the method, of those that the backend has.
            at: the first call that fails, from 1 on.
            times: how many fail; None for each one from `at` on.
            fault: makes what is raised; by default a `StoreUnavailable`.
            after: whether a call has done its work before it fails: the answer is lost.

        Raises:
            UsageError: for another `at` or `times`; for a method that the backend does not have, or
                whose calls never fail here.

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
        """Fail no more. Returns whether a call had failed."""
        with self._lock:
            planned, self._planned = self._planned, None
            return planned is not None and planned.happened > 0

    def commit_all(self, batches: Any) -> Any:
        """As `Backend.commit_all`, in its steps: each of them may fail."""
        called: Any = self
        called.begin()
        answers = called.append_all(batches)
        called.commit()
        return answers

    def renew(self) -> float:
        """As `Backend.renew`, by `lease` and `lease_lost`."""
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
        """Raise, or give what makes the error that is raised behind the call."""
        with self._lock:
            if self._planned is None or name != self._method or not self._planned.is_due():
                return None
            self._planned.note()
            error = self._error
            self.failed.set()
            if self._happens:
                return error
        raise error()
