"""The `Future` that threads `get` and event loops `await`."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pykka

from understudy._base import forks
from understudy._base.event_loops import call_on
from understudy.errors import ForkedRuntime, LoopNotRunning, WouldDeadlock
from understudy.loop_actors.errors import WaitTimeout

T = TypeVar("T")
J = TypeVar("J")
M = TypeVar("M")
R = TypeVar("R")
ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]

_PENDING, _VALUE, _ERROR = 0, 1, 2
_LOOK = 1.0
"""Seconds between two checks whether the loop that settles a future runs."""


class Future(pykka.Future[T]):
    """A value that comes later: `.get(timeout=seconds)` in a thread, `await` on any event loop.

    `.get()` also works in a thread whose event loop runs, such as a notebook's. That loop stands
    still meanwhile. `.get()` is refused on the loop that would have to settle the future.

    Any number of threads and event loops may wait for the same future. Cancelling an `await` ends
    this one wait. The value is still computed, and the other waits continue.

    `map`, `filter`, `join`, `reduce` and `set_get_hook` are Pykka's. The first `get` or `await`
    evaluates them. A value is kept. An exception is not kept, so the next `get` or `await`
    evaluates again. An `await` on a derived future awaits its sources and calls the function on the
    loop. A get hook may block, so an `await` calls it in a thread of its own.
    """

    # Not on top of `concurrent.futures.Future`: with it a future takes 8.7 times the memory
    # (1.6 KB, most of it a condition) and 3.7 times the time to create, 1.6 to set and get, 2.4 to
    # await while pending, and get hooks and derived futures need the code below all the same.

    # Class attributes, so that an instance holds only what differs from them.
    _state = _PENDING
    _value: Any = None
    _error: BaseException | None = None
    _traceback: TracebackType | None = None
    _waiters: dict[object, Callable[[], object]] | None = None
    _get_hook: Callable[[float | None], T] | None = None
    _claimed = False
    _loop: asyncio.AbstractEventLoop | None = None
    _forks = 0

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Make a pending future.

        Args:
            loop: the event loop on which it will be settled; None if that is not known. Then `get`
                is refused on every running loop.

        """
        # Not Pykka's __init__: it sets two attributes that are not used here. The lock is
        # re-entrant: a signal handler may run in the middle of `_settle` in the main thread, and
        # settle or read the same future.
        self._lock = threading.RLock()
        if loop is not None:
            self._loop = loop
        if forks.count:
            self._forks = forks.count

    def __repr__(self) -> str:
        return f"<understudy.Future: {('pending', 'value', 'exception')[self._state]}>"

    if not TYPE_CHECKING:  # a type checker knows that a future is no value

        def __getattr__(self, name: str) -> Any:
            error = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                error = f"{error}: its value comes later. `await` it, or call .get() on it, first"
            raise AttributeError(error, name=name, obj=self)

    def done(self) -> bool:
        """Return True if `get` would return or raise without waiting."""
        return self._state != _PENDING

    def get(self, *, timeout: float | None = None) -> T:
        """Wait in this thread for the value and return it, or raise the exception that was set.

        Args:
            timeout: seconds to wait; None = no limit.

        Raises:
            TimeoutError: if `timeout` passes; the value may still come. It is also a
                `pykka.Timeout`.
            WouldDeadlock: at once, if the future is pending and this thread runs the event loop
                that has to settle it.
            ForkedRuntime: if the future was pending when this process was forked. An `await`
                raises it too.
            LoopNotRunning: if the event loop that has to settle the future does not run. An
                `await` on another loop raises it too.

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
        """Set the value and wake all waiters.

        Raises:
            queue.Full: if a value, an exception or a get hook is set already.

        """
        if not self._settle(_VALUE, value=value):
            raise queue.Full("this future is set already")

    def set_exception(self, exc_info: ExcInfo | None = None) -> None:
        """Set an exception, by default the one being handled, and wake all waiters.

        Raises:
            queue.Full: if a value, an exception or a get hook is set already.

        """
        kind, error, traceback = sys.exc_info() if exc_info is None else exc_info
        if error is None:
            assert kind is not None, "there is no exception being handled"
            error = kind()
        if not self._settle(_ERROR, error=error, traceback=traceback):
            raise queue.Full("this future is set already")

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        """Let the first `get` or `await` call `func(timeout)` for the value.

        Raises:
            queue.Full: if a value or an exception is set already.

        """
        with self._lock:
            if self._state != _PENDING:
                raise queue.Full("this future is set already")
            self._get_hook = func
        self._wake()

    def filter(
        self: pykka.Future[Iterable[J]], func: Callable[[J], bool]
    ) -> pykka.Future[Iterable[J]]:
        """Return a future of the items of the value for which `func` is true, as a list."""
        return _Derived((self,), lambda values: list(filter(func, values[0])))

    def join(self: pykka.Future[Any], *futures: pykka.Future[Any]) -> Future[Iterable[Any]]:
        """Return a future of the values of this future and of `futures`, as a list in this
        order.
        """
        return _Derived((self, *futures), list)

    def map(self, func: Callable[[T], M]) -> Future[M]:
        """Return a future of `func(value)`."""
        return _Derived((self,), lambda values: func(values[0]))

    def reduce(
        self: pykka.Future[Iterable[J]], func: Callable[[R, J], R], *args: R
    ) -> pykka.Future[R]:
        """Return a future of `functools.reduce(func, value, *args)`."""
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
        """Settle and wake the waiters; False if it is settled already, or has a get hook."""
        with self._lock:
            if self._state != _PENDING or self._get_hook is not None:
                return False
            self._value, self._error, self._traceback = value, error, traceback
            self._state = state  # set last: `get` reads it without the lock, then reads the others
        self._wake()
        return True

    def _answer(self, value: object) -> bool:
        """Set a value as `set` does; False instead of the exception if it is settled already."""
        return self._settle(_VALUE, value=value)

    def _fail(self, error: BaseException) -> bool:
        """Set an exception as `set_exception` does; False instead of an error if it is settled
        already.
        """
        return self._settle(_ERROR, error=error, traceback=error.__traceback__)

    def _result(self) -> T:
        if self._error is not None:
            # It is raised with its first traceback, because every raise would lengthen the
            # traceback.
            raise self._error.with_traceback(self._traceback)
        return cast("T", self._value)

    # Waiting

    def _fetch(self, timeout: float | None) -> None:
        """Return when it is settled, by this thread or by another one."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._state == _PENDING:
            refuse_on_its_loop(self._loop, "get", "await it instead")
            if self._claim():
                hook = cast("Callable[[float | None], T]", self._get_hook)
                self._evaluate(hook, _remaining(deadline))
            elif not self._wait(_remaining(deadline)):
                raise _timed_out(timeout, self._loop)

    def _fetch_async(self) -> Generator[Any, None, None]:
        while self._state == _PENDING:
            if self._claim():
                # The thread owns the claim, so the hook runs on if this await is cancelled:
                # test_cancelling_an_await_of_a_hooked_future_does_not_stop_its_hook.
                hook = cast("Callable[[float | None], T]", self._get_hook)
                try:
                    evaluated = in_thread(functools.partial(self._evaluate, hook, None))
                except BaseException:  # no thread could be started
                    self._unclaim()
                    raise
                yield from evaluated.__await__()
            else:
                yield from self._wait_async()

    def _wait(self, seconds: float | None) -> bool:
        """Sleep until the next change of state; False if `seconds` pass before."""
        woken = threading.Lock()
        woken.acquire()
        if not self._add_waiter(woken, woken.release):
            return True
        left = threading.TIMEOUT_MAX if seconds is None else max(seconds, 0.0)
        watch = None if self._loop is None else _LoopWatch(self._loop)
        try:
            while watch is not None and left > _LOOK:
                self._raise_if_stopped(watch)
                if woken.acquire(timeout=_LOOK):
                    return True
                left -= _LOOK
            return woken.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            self._remove_waiter(woken)

    def _raise_if_stopped(self, watch: _LoopWatch) -> None:
        """Raise `LoopNotRunning` if no answer can come any more."""
        error = watch.look()
        # Race: it may have been settled, and its loop closed, just before this look
        # (test_a_future_that_was_settled_before_its_loop_was_closed_has_its_value).
        if error is not None and self._state == _PENDING:
            raise error

    def _wait_async(self) -> Generator[Any, None, None]:
        """Wait as `_wait` does, on the running loop. A cancellation ends only this wait."""
        self._refuse_in_fork()  # checked first: no loop runs in a child that was forked on a loop
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        if not self._add_waiter(woken, lambda: call_on(loop, _set_woken, woken)):
            return
        settles = self._loop
        try:
            if settles is None or settles is loop:
                yield from woken.__await__()
            else:
                yield from self._wait_watching(loop, woken, _LoopWatch(settles))
        finally:
            self._remove_waiter(woken)

    def _wait_watching(
        self, loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None], watch: _LoopWatch
    ) -> Generator[Any, None, None]:
        """Wait on a loop for a future that another loop settles."""
        next_look: asyncio.TimerHandle

        def look() -> None:
            nonlocal next_look
            try:
                self._raise_if_stopped(watch)
            except LoopNotRunning as error:
                if not woken.done():
                    woken.set_exception(error)
            else:
                next_look = loop.call_later(_LOOK, look)

        next_look = loop.call_later(_LOOK, look)
        try:
            self._raise_if_stopped(watch)
            yield from woken.__await__()
        finally:
            next_look.cancel()

    def _add_waiter(self, key: object, wake: Callable[[], object]) -> bool:
        """Call `wake` once, at the next change of state; False if there is no need to wait.

        The check and the registration share the lock with `_settle` and `_unclaim`, so none of
        them can come between and leave this waiter asleep.
        """
        self._refuse_in_fork()
        with self._lock:
            if self._state != _PENDING or (self._is_lazy() and not self._claimed):
                return False
            if self._waiters is None:
                self._waiters = {}
            self._waiters[key] = wake
            return True

    def _when_settled(self, key: object, call: Callable[[], object]) -> None:
        """Call a function once this is settled, in the settling thread; at once if it is
        settled.
        """
        if not self._add_waiter(key, call):
            call()

    def _refuse_in_fork(self) -> None:
        """Refuse in a fork. Called before each wait, and before the lock, which a parent's thread
        may have.
        """
        if self._forks != forks.count:
            raise ForkedRuntime

    def _remove_waiter(self, key: object) -> None:
        with self._lock:
            if self._waiters is not None:
                self._waiters.pop(key, None)

    def _wake(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, None
        if waiters is not None:
            for wake in waiters.values():
                wake()

    # Evaluating: by one thread or task at a time; the others wait for it and check again.

    def _is_lazy(self) -> bool:
        return self._get_hook is not None

    def _claim(self) -> bool:
        """Claim the evaluation; False if it is settled, or another thread or task has the claim.

        test_two_threads_that_get_a_hooked_future_call_its_hook_once
        """
        if not self._is_lazy():
            return False
        with self._lock:
            if self._state != _PENDING or self._claimed:
                return False
            self._claimed = True
            return True

    def _unclaim(self) -> None:
        with self._lock:
            self._claimed = False
        self._wake()

    def _evaluate(self, compute: Callable[[J], Any], argument: J) -> None:
        """Keep the value that `compute` returns, and end the claim, also if it raises."""
        try:
            value = compute(argument)
            with self._lock:
                self._value = value
                self._state = _VALUE
        finally:
            self._unclaim()


class _Derived(Future[T]):
    """The result of a function of the values of other futures."""

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
        deadline = None if timeout is None else time.monotonic() + timeout
        values = [_get(source, deadline) for source in self._sources]
        while self._state == _PENDING:
            if self._claim():
                self._evaluate(self._compute, values)
                return
            refuse_on_its_loop(None, "get", "await it instead")
            if not self._wait(_remaining(deadline)):
                raise _timed_out(timeout, None)

    def _fetch_async(self) -> Generator[Any, None, None]:
        values = []
        for source in self._sources:
            ours = source if isinstance(source, Future) else in_thread(source.get)
            values.append((yield from ours.__await__()))
        while self._state == _PENDING:
            if self._claim():
                self._evaluate(self._compute, values)
                return
            yield from self._wait_async()


class LazyFuture(Future[T]):
    """A future whose value is computed once it is asked for: by `get`, `await` or `done`."""

    def __init__(
        self, begin: Callable[[], object], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Make a pending future.

        Args:
            begin: the function that begins the work that settles it. It is called once, in the
                thread that asks first.
            loop: as in `Future`.

        """
        super().__init__(loop)
        self._begin: Callable[[], object] | None = begin

    def done(self) -> bool:
        self._begin_once()
        return super().done()

    def _fetch(self, timeout: float | None) -> None:
        refuse_on_its_loop(self._loop, "get", "await it instead")
        self._begin_once()
        super()._fetch(timeout)

    def _fetch_async(self) -> Generator[Any, None, None]:
        self._begin_once()
        yield from super()._fetch_async()

    def _begin_once(self) -> None:
        self._refuse_in_fork()
        with self._lock:
            begin, self._begin = self._begin, None
        if begin is not None:
            begin()


class _LoopWatch:
    """A check, while a caller waits, whether the loop that has to answer runs.

    Args:
        loop: the loop that has to answer.

    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._has_run: threading.Event | None = None
        """An event that the loop sets if it has run since the last look, at which it did not
        run."""

    def look(self) -> LoopNotRunning | None:
        """The error if the loop is closed, or has not run since the last look; None otherwise.

        A loop may be run again and again, by `run_until_complete`, and rest at each look.
        """
        if self._loop.is_running():
            self._has_run = None
            return None
        if self._has_run is not None and not self._has_run.is_set():
            return LoopNotRunning(is_closed=self._loop.is_closed())
        self._has_run = threading.Event()
        if call_on(self._loop, self._has_run.set):
            return None
        return LoopNotRunning(is_closed=True)


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Call a function, which may block, in a new daemon thread, in a copy of this context."""
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set(context.run(call))
        except BaseException as error:  # awaiting the future raises it
            future._fail(error)

    threading.Thread(target=work, name="understudy-future", daemon=True).start()
    return future


def refuse(future: Future[Any], error: BaseException) -> None:
    """Set the error, unless the future is settled already."""
    future._fail(error)


def settle_in_task(
    future: Future[T],
    work: Callable[[], Awaitable[T]],
    start_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    *,
    told: Callable[[BaseException], BaseException],
    gone: Callable[[], BaseException],
) -> asyncio.Task[None]:
    """Settle a future, in a task, with what `work` returns or raises. The future always settles.

    Args:
        future: the future, which is settled unless it is settled before the work ends.
        work: the function that gives the awaitable.
        start_task: the function that starts the task.
        told: the function that makes the future's error from a raised error, such as a
            `SystemExit`.
        gone: the function that makes the future's error if the task is cancelled, perhaps before it
            begins.

    """

    async def settle() -> None:
        try:
            future.set(await work())
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            refuse(future, told(error))

    def ended(_: asyncio.Task[None]) -> None:
        if not future.done():
            refuse(future, gone())

    task = start_task(settle())
    task.add_done_callback(ended)
    return task


def refuse_on_its_loop(loop: asyncio.AbstractEventLoop | None, what: str, remedy: str) -> None:
    """Raise `WouldDeadlock` if `loop`, on which the answer is made, runs in this thread.

    None means that the loop is unknown: then any running loop is refused.
    """
    running = asyncio._get_running_loop()  # get_running_loop, but without an exception
    if running is not None and (loop is None or loop is running):
        raise WouldDeadlock(what=what, remedy=remedy)


def refuse_closed(loop: asyncio.AbstractEventLoop) -> None:
    """Raise `LoopNotRunning` if the loop on which an answer is made is closed."""
    if loop.is_closed():
        raise LoopNotRunning(is_closed=True)


def _get(source: pykka.Future[Any], deadline: float | None) -> Any:
    if isinstance(source, Future) or asyncio._get_running_loop() is None:
        return source.get(timeout=_remaining(deadline))
    try:
        return source.get(timeout=0)  # a plain future of Pykka: with 0 it does not wait
    except pykka.Timeout:
        raise WouldDeadlock(what="get", remedy="await it instead") from None


def _timed_out(timeout: float | None, loop: asyncio.AbstractEventLoop | None) -> WaitTimeout:
    waited = f"{round(timeout or 0, 3):.9g}"
    unit = "second" if waited == "1" else "seconds"
    if loop is None or loop.is_running():
        what_next = "the work continues: wait again"
    else:
        what_next = str(LoopNotRunning(is_closed=loop.is_closed()))
    return WaitTimeout(f"no answer within {waited} {unit}; {what_next}")


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


def _set_woken(woken: asyncio.Future[None]) -> None:
    if not woken.done():  # the await was cancelled before this was called
        woken.set_result(None)
