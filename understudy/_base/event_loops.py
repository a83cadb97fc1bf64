"""Calling a function on an event loop, from any thread."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")


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
