"""`LoopMonitor`: notices that something blocks an event loop, and where.

One blocking call on the loop stops every agent on it, and code on the loop cannot notice. So a
thread watches from outside.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import traceback
from collections.abc import Callable

from understudy._base.clock import Clock
from understudy._base.event_loops import call_soon_on

logger: logging.Logger = logging.getLogger(__name__)

LIMIT = 1.0
"""Seconds without an iteration of the loop, after which it counts as blocked."""


class LoopMonitor:
    """Watches an event loop from a thread.

    Args:
        loop: runs in the thread that creates the monitor.
        clock: measures the time.
        on_blocked: called on the loop when it runs again, with the seconds that it was blocked, and
            the function that blocked it.

    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        on_blocked: Callable[[float, str], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._on_blocked = on_blocked
        self._loops_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._ticked = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="understudy-loop-monitor", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread soon, without waiting for its end."""
        self._stopped.set()
        self._ticked.set()  # the loop may never run again, and so never say that it ticks

    def _watch(self) -> None:
        ticked = self._ticked
        while not self._stopped.wait(LIMIT / 2):
            ticked.clear()
            # Race: `stop` between the two lines above. It sets `_stopped` first, so this sees it.
            if self._stopped.is_set():
                return
            since = self._clock.monotonic()
            if not call_soon_on(self._loop, ticked.set):
                return
            if ticked.wait(LIMIT) or self._stopped.is_set():
                continue
            where = self._where()
            logger.warning("the event loop is blocked in %s: all agents on it wait", where)
            ticked.wait()
            if self._stopped.is_set():
                return
            seconds = self._clock.monotonic() - since
            call_soon_on(self._loop, self._on_blocked, seconds, where)

    def _where(self) -> str:
        """The innermost function on the loop's stack that is not asyncio's or ours."""
        # Race: a garbage collection in the middle of `_current_frames` may have another thread run,
        # which then waits for a lock of the interpreter that this one holds, for ever (CPython
        # issue 106883; newer versions do this themselves).
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            frame = sys._current_frames().get(self._loops_thread)
        finally:
            if is_collecting:
                gc.enable()
        stack = traceback.extract_stack(frame) if frame is not None else []
        for entry in reversed(stack):
            if "/asyncio/" not in entry.filename and "/understudy/" not in entry.filename:
                return f"{entry.name} ({entry.filename}:{entry.lineno})"
        return "an unknown place"
