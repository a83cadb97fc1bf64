"""Calling a function on an event loop, from wherever one is."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import TypeVarTuple

__all__ = ["call_on", "call_soon_on"]

Ts = TypeVarTuple("Ts")


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[[*Ts], object], *args: *Ts) -> bool:
    """Call it on `loop`: now if that runs here, else soon. From any thread; waits for nothing.

    Returns:
        False if the loop is closed: it is not called. What it raises here goes to the caller.

    """
    if asyncio._get_running_loop() is loop:  # get_running_loop, but without an exception
        function(*args)
        return True
    return _threadsafe(loop, function, *args, context=None)


def call_soon_on(
    loop: asyncio.AbstractEventLoop,
    function: Callable[[*Ts], object],
    *args: *Ts,
    context: contextvars.Context | None = None,
) -> bool:
    """Call it at the next turn of `loop`, in `context`. From any thread; waits for nothing.

    A loop that runs here is not woken by its pipe, which costs a system call.

    Returns:
        False if the loop is closed: it will not be called.

    """
    if asyncio._get_running_loop() is loop:
        loop.call_soon(function, *args, context=context)
        return True
    return _threadsafe(loop, function, *args, context=context)


def _threadsafe(
    loop: asyncio.AbstractEventLoop,
    function: Callable[[*Ts], object],
    *args: *Ts,
    context: contextvars.Context | None,
) -> bool:
    try:
        loop.call_soon_threadsafe(function, *args, context=context)
    except RuntimeError:
        # It may be closed at any moment, so asking before the call would not do.
        if not loop.is_closed():
            raise
        return False
    return True
