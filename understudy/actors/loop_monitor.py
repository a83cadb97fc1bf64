"""`LoopMonitor`: notices when something holds the event loop up, and says where (DESIGN §5).

One blocking call on the loop stops every agent on it, and nothing on the loop can tell: so a
thread looks from outside.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable

from understudy._base.clock import Clock
from understudy._base.event_loops import call_soon_on

__all__ = ["LoopMonitor"]

logger = logging.getLogger(__name__)

LIMIT = 1.0
"""Seconds without a turn of the loop, after which it counts as blocked."""


class LoopMonitor:
    """Looks whether an event loop goes round.

    Args:
        loop: it runs in the thread that makes this.
        clock: by which the time is told.
        on_blocked: called on the loop when it goes round again, with the seconds that it stood, and
            the function that stood there.

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
        self._thread = threading.Thread(target=self._watch, name="understudy-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def _watch(self) -> None:
        ticked = threading.Event()
        while not self._stopped.wait(LIMIT / 2):
            ticked.clear()
            since = self._clock.monotonic()
            if not call_soon_on(self._loop, ticked.set):
                return
            if ticked.wait(LIMIT) or self._stopped.is_set():
                continue
            where = self._where()
            logger.warning("the event loop is blocked in %s: all of its agents wait", where)
            while not ticked.wait(LIMIT):
                if self._stopped.is_set():
                    return
            seconds = self._clock.monotonic() - since
            call_soon_on(self._loop, self._on_blocked, seconds, where)

    def _where(self) -> str:
        """The innermost function on the loop's stack that is no part of the interpreter."""
        frame = sys._current_frames().get(self._loops_thread)
        stack = traceback.extract_stack(frame) if frame is not None else []
        for entry in reversed(stack):
            if "/asyncio/" not in entry.filename and "/understudy/" not in entry.filename:
                return f"{entry.name} ({entry.filename}:{entry.lineno})"
        return "an unknown place"
