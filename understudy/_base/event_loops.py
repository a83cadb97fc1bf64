"""Calling a function on an event loop, from any thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Callable
from typing import TypeVarTuple

from understudy._base.descriptors import is_out_of_descriptors
from understudy.errors import OutOfDescriptors

Ts = TypeVarTuple("Ts")

_LOOK = 0.1
"""Seconds between two looks whether a loop that was given a call still runs."""


def open_runner() -> asyncio.Runner:
    """An `asyncio.Runner` with an event loop. The caller closes it, by `with`.

    Raises:
        OutOfDescriptors: if no file descriptor is left for the loop, which needs three.

    """
    runner = asyncio.Runner()
    try:
        runner.get_loop()
    except OSError as error:
        if is_out_of_descriptors(error):
            raise OutOfDescriptors(what="an event loop, which needs three") from error
        raise
    return runner


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[[*Ts], object], *args: *Ts) -> bool:
    """Call `function` on `loop`: at once if `loop` runs in this thread, else soon. Never waits.

    What `function` raises goes to the caller where it is called at once.

    Returns:
        False if the loop is closed: `function` is not called.

    """
    if asyncio._get_running_loop() is loop:  # get_running_loop, but without an exception
        function(*args)
        return True
    return _call_soon_threadsafe(loop, function, *args, context=None)


def call_on_and_wait(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> bool:
    """Call `function` on `loop`, and wait for it in this thread; raise what it raises.

    Returns:
        False if the loop does not run any more: `function` is not called.

    """
    if asyncio._get_running_loop() is loop:
        function()
        return True
    done: concurrent.futures.Future[None] = concurrent.futures.Future()

    def call() -> None:
        if done.set_running_or_notify_cancel():
            try:
                function()
            except BaseException as error:  # for the thread that waits
                done.set_exception(error)
            else:
                done.set_result(None)

    is_called = call_on(loop, call)
    # Race: the loop may stop after it took the call, and then never makes it. Whether it runs is
    # looked at while the thread waits; a call that has begun is waited for
    # (test_a_signal_after_the_loop_of_the_run_has_ended_is_refused).
    while is_called and not done.done():
        concurrent.futures.wait((done,), timeout=_LOOK)
        is_called = loop.is_running() or not done.cancel()
    if is_called:
        done.result()
    return is_called


def call_soon_on(
    loop: asyncio.AbstractEventLoop,
    function: Callable[[*Ts], object],
    *args: *Ts,
    context: contextvars.Context | None = None,
) -> bool:
    """Call `function` in the next iteration of `loop`, in `context`. Never waits.

    A loop that runs in this thread is not woken through its pipe, which saves a system call.

    Returns:
        False if the loop is closed: `function` is not called.

    """
    if asyncio._get_running_loop() is loop:
        loop.call_soon(function, *args, context=context)
        return True
    return _call_soon_threadsafe(loop, function, *args, context=context)


def is_cancelled() -> bool:
    """Whether the running task was asked to end.

    If not, a `CancelledError` was raised by something inside it: a client's own time limit, or a
    future that another task cancelled. That is an error like any other.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _call_soon_threadsafe(
    loop: asyncio.AbstractEventLoop,
    function: Callable[[*Ts], object],
    *args: *Ts,
    context: contextvars.Context | None,
) -> bool:
    try:
        loop.call_soon_threadsafe(function, *args, context=context)
    except RuntimeError:
        # The loop may be closed between a check and the call, so it is checked only now.
        # Shown by test_a_closed_loop_is_told_and_nothing_is_called.
        if not loop.is_closed():
            raise
        return False
    return True
