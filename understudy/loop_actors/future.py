"""The `Future` that threads `get` and event loops `await`, neither blocking the other."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Any, TypeVar, cast

import pykka

from understudy._base.clock import SystemClock
from understudy._base.event_loops import call_on
from understudy.errors import WouldDeadlock

__all__ = ["Future", "in_thread", "refuse", "refuse_on_a_loop"]

T = TypeVar("T")
J = TypeVar("J")
M = TypeVar("M")
R = TypeVar("R")
ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]

_PENDING, _VALUE, _ERROR = 0, 1, 2
_clock = SystemClock()


class Future(pykka.Future[T]):
    """A value that comes later: `.get(timeout=seconds)` in a thread, `await` on any event loop.

    Any number of threads and event loops may wait for the same one. Cancelling an `await` ends
    that wait alone: what computes the value goes on, and so do the others that wait for it.

    `map`, `filter`, `join`, `reduce` and `set_get_hook` are Pykka's: evaluated when first asked
    for; the value is kept, an exception is not (the next one who asks tries again). An `await`
    on a derived future awaits its sources and calls the function on the loop; a get hook, which
    may block, is called in a thread of its own.
    """

    # Class attributes, so that a future is no larger than what happens to it.
    _state = _PENDING
    _value: Any = None
    _error: BaseException | None = None
    _traceback: TracebackType | None = None
    _waiters: dict[object, Callable[[], object]] | None = None
    _get_hook: Callable[[float | None], T] | None = None
    _claimed = False

    def __init__(self) -> None:
        # Not Pykka's __init__: it makes two attributes that are of no use here. The lock is
        # re-entrant because a signal handler may settle or read what the main thread settles.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<understudy.Future: {('pending', 'value', 'exception')[self._state]}>"

    def done(self) -> bool:
        """True when `get` would answer without waiting."""
        return self._state != _PENDING

    def get(self, *, timeout: float | None = None) -> T:
        """Wait in this thread for the value and return it, or raise the exception set instead.

        Args:
            timeout: seconds to wait; None waits for ever.

        Raises:
            pykka.Timeout: if `timeout` passes; the value may still come.
            WouldDeadlock: at once, if the value is not there and an event loop runs in this thread.

        """
        if self._state == _PENDING:
            self._fetch(timeout)
        return self._result()

    def __await__(self) -> Generator[Any, None, T]:
        if self._state == _PENDING:
            yield from self._fetch_async()
        return self._result()

    __iter__ = __await__

    def set(self, value: T | None = None) -> None:
        """Set the value and wake all who wait.

        Raises:
            queue.Full: if there is a value, an exception or a get hook already.

        """
        if not self._settle(_VALUE, value=value):
            raise queue.Full("this future is set already")

    def set_exception(self, exc_info: ExcInfo | None = None) -> None:
        """Set an exception, by default the one being handled, and wake all who wait.

        Raises:
            queue.Full: if there is a value, an exception or a get hook already.

        """
        kind, error, traceback = sys.exc_info() if exc_info is None else exc_info
        if error is None:
            assert kind is not None, "there is no exception being handled"
            error = kind()
        if not self._settle(_ERROR, error=error, traceback=traceback):
            raise queue.Full("this future is set already")

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        """Let `func(timeout)` bring the value when it is first asked for.

        Raises:
            queue.Full: if there is a value or an exception already.

        """
        with self._lock:
            if self._state != _PENDING:
                raise queue.Full("this future is set already")
            self._get_hook = func
        self._wake()

    def filter(
        self: pykka.Future[Iterable[J]], func: Callable[[J], bool]
    ) -> pykka.Future[Iterable[J]]:
        """The items of the value for which `func` is true, as a list."""
        return _Derived((self,), lambda values: list(filter(func, values[0])))

    def join(self: pykka.Future[Any], *futures: pykka.Future[Any]) -> Future[Iterable[Any]]:
        """The values of this future and of `futures`, as a list in this order."""
        return _Derived((self, *futures), list)

    def map(self, func: Callable[[T], M]) -> Future[M]:
        """What `func` makes of the value."""
        return _Derived((self,), lambda values: func(values[0]))

    def reduce(
        self: pykka.Future[Iterable[J]], func: Callable[[R, J], R], *args: R
    ) -> pykka.Future[R]:
        """What `functools.reduce(func, value, *args)` makes of the value."""
        return _Derived((self,), lambda values: functools.reduce(func, values[0], *args))

    # Settling

    def _settle(
        self,
        state: int,
        *,
        value: object = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> bool:
        """Settle and wake, unless it is settled or hooked already: then return False."""
        with self._lock:
            if self._state != _PENDING or self._get_hook is not None:
                return False
            self._value, self._error, self._traceback = value, error, traceback
            self._state = state  # last: `get` reads it without the lock
        self._wake()
        return True

    def _answer(self, value: object) -> bool:
        """`set` for one who does not mind to be second."""
        return self._settle(_VALUE, value=value)

    def _fail(self, error: BaseException) -> bool:
        """`set_exception` for one who does not mind to be second."""
        return self._settle(_ERROR, error=error, traceback=error.__traceback__)

    def _result(self) -> T:
        if self._error is not None:
            # The traceback is put back each time: raising one exception in several places would
            # otherwise lengthen it each time.
            raise self._error.with_traceback(self._traceback)
        return cast("T", self._value)

    # Waiting

    def _fetch(self, timeout: float | None) -> None:
        """Return when the value is there, whoever brings it."""
        deadline = None if timeout is None else _clock.monotonic() + timeout
        while self._state == _PENDING:
            refuse_on_a_loop("get", "await it instead")
            if self._claim():
                hook = cast("Callable[[float | None], T]", self._get_hook)
                with self._claimed_evaluation() as bring:
                    bring(hook(_left(deadline)))
            elif not self._wait(_left(deadline)):
                raise pykka.Timeout(f"{timeout} seconds")

    def _fetch_async(self) -> Generator[Any, None, None]:
        while self._state == _PENDING:
            if self._claim():
                # The thread owns the evaluation: it goes on when this await is cancelled.
                try:
                    evaluated = in_thread(self._evaluate_hook)
                except BaseException:  # no thread could be started
                    self._unclaim()
                    raise
                yield from evaluated.__await__()
            else:
                yield from self._wait_async()

    def _evaluate_hook(self) -> None:
        hook = cast("Callable[[float | None], T]", self._get_hook)
        with self._claimed_evaluation() as bring:
            bring(hook(None))

    def _wait(self, seconds: float | None) -> bool:
        """Sleep until something changes; False when the time is over."""
        wakened = threading.Lock()
        wakened.acquire()
        if not self._watch(wakened, wakened.release):
            return True
        try:
            if seconds is None:
                return wakened.acquire()
            return wakened.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        finally:
            self._unwatch(wakened)

    def _wait_async(self) -> Generator[Any, None, None]:
        """As `_wait`, on the running loop; a cancellation ends this wait alone."""
        loop = asyncio.get_running_loop()
        wakened = loop.create_future()
        if not self._watch(wakened, lambda: call_on(loop, _wake_now, wakened)):
            return
        try:
            yield from wakened.__await__()
        finally:
            self._unwatch(wakened)

    def _watch(self, key: object, wake: Callable[[], object]) -> bool:
        """Have `wake` called, once, at the next change; False if one need not wait for it."""
        with self._lock:
            if self._state != _PENDING or (self._is_lazy() and not self._claimed):
                return False
            if self._waiters is None:
                self._waiters = {}
            self._waiters[key] = wake
            return True

    def _unwatch(self, key: object) -> None:
        with self._lock:
            if self._waiters is not None:
                self._waiters.pop(key, None)

    def _wake(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, None
        if waiters is not None:
            for wake in waiters.values():
                wake()

    # Evaluating: by one at a time, the others wait for it and look again

    def _is_lazy(self) -> bool:
        return self._get_hook is not None

    def _claim(self) -> bool:
        with self._lock:
            if self._state != _PENDING or self._claimed or not self._is_lazy():
                return False
            self._claimed = True
            return True

    def _unclaim(self) -> None:
        with self._lock:
            self._claimed = False
        self._wake()

    def _claimed_evaluation(self) -> _Evaluation:
        return _Evaluation(self)


class _Evaluation:
    """The one evaluation of a lazy future: it brings the value, or gives the claim back."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def __enter__(self) -> Callable[[Any], None]:
        return self._bring

    def __exit__(self, *_exc_info: object) -> None:
        self._future._unclaim()

    def _bring(self, value: Any) -> None:
        with self._future._lock:
            self._future._value = value
            self._future._state = _VALUE


class _Derived(Future[T]):
    """What a function makes of the values of other futures, once these are there."""

    def __init__(
        self, sources: tuple[pykka.Future[Any], ...], compute: Callable[[list[Any]], Any]
    ) -> None:
        super().__init__()
        self._sources = sources
        self._compute = compute

    def done(self) -> bool:
        return super().done() or all(isinstance(s, Future) and s.done() for s in self._sources)

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        raise queue.Full("this future is derived from another one")

    def _settle(self, state: int, **_outcome: object) -> bool:
        return False

    def _is_lazy(self) -> bool:
        return True

    def _fetch(self, timeout: float | None) -> None:
        deadline = None if timeout is None else _clock.monotonic() + timeout
        values = [_get(source, deadline) for source in self._sources]
        while self._state == _PENDING:
            if self._evaluate(values):
                return
            refuse_on_a_loop("get", "await it instead")
            if not self._wait(_left(deadline)):
                raise pykka.Timeout(f"{timeout} seconds")

    def _fetch_async(self) -> Generator[Any, None, None]:
        values = []
        for source in self._sources:
            ours = source if isinstance(source, Future) else in_thread(source.get)
            values.append((yield from ours.__await__()))
        while self._state == _PENDING and not self._evaluate(values):
            yield from self._wait_async()

    def _evaluate(self, values: list[Any]) -> bool:
        """Compute the value; False if another one is at it."""
        if not self._claim():
            return self._state != _PENDING
        with self._claimed_evaluation() as bring:
            bring(self._compute(values))
        return True


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Call it in a daemon thread of its own, with this context; for calls that may block."""
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set(context.run(call))
        except BaseException as error:  # handed to the one who waits, whatever it is
            future._fail(error)

    threading.Thread(target=work, name="understudy-future", daemon=True).start()
    return future


def refuse(future: Future[Any], error: BaseException) -> None:
    """Answer with an error, unless there is an answer already."""
    if not future.done():
        future.set_exception((type(error), error, error.__traceback__))


def refuse_on_a_loop(what: str, remedy: str) -> None:
    """Raise `WouldDeadlock` where an event loop runs in this thread."""
    if asyncio._get_running_loop() is not None:  # get_running_loop, but without an exception
        raise WouldDeadlock(what=what, remedy=remedy)


def _get(source: pykka.Future[Any], deadline: float | None) -> Any:
    if isinstance(source, Future) or asyncio._get_running_loop() is None:
        return source.get(timeout=_left(deadline))
    try:
        return source.get(timeout=0)  # a future of Pykka's own: this does not wait
    except pykka.Timeout:
        raise WouldDeadlock(what="get", remedy="await it instead") from None


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - _clock.monotonic(), 0.0)


def _wake_now(wakened: asyncio.Future[None]) -> None:
    if not wakened.done():
        wakened.set_result(None)
