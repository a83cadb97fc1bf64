"""`Lease`: how long this runtime may still act as the owner of its agents (J8).

A thread of its own prolongs it, so that a busy loop does not lose it, but only while that loop
ticks: a loop that hangs lets its agents go to somebody who can run them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable

from understudy._base.clock import suspend_aware_seconds
from understudy.errors import Fenced, StoreError
from understudy.journal.contracts import Backend

__all__ = ["Lease"]

logger = logging.getLogger(__name__)

MARGIN = 0.2
"""Share of the lease, at its end, in which this runtime counts itself out already."""


class Lease:
    """The lease of one runtime on all of its agents.

    Args:
        backend: which renews it.
        seconds: how time passes, counting the time in which the machine was suspended.

    """

    def __init__(
        self, backend: Backend, *, seconds: Callable[[], float] = suspend_aware_seconds
    ) -> None:
        self._backend = backend
        self._seconds = seconds
        self._ends_at = math.inf
        self._length = math.inf
        self._term = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def term(self) -> int:
        """Counts the leases: what was claimed under an ended one stays lost."""
        return self._term

    @property
    def is_shared(self) -> bool:
        """Whether other runtimes may own agents of the same store."""
        return self._length != math.inf

    def holds(self, term: int) -> bool:
        """Whether this runtime may act by what it claimed in that term.

        Well before the end of a lease it counts itself out.
        """
        if term != self._term:
            return False
        return self._ends_at == math.inf or self._seconds() < self._ends_at

    def begin(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]) -> None:
        """Renew it from now on. Blocks for the first time: call it in a thread.

        Args:
            loop: which must tick, and on which `on_lost` is called whenever a lease has ended. The
                next one is for what is claimed from then on.

        """
        self._renew()
        if self.is_shared:
            self._stop.clear()
            self._thread = threading.Thread(
                target=self._beat, args=(loop, on_lost), name="understudy-lease", daemon=True
            )
            self._thread.start()

    def end(self) -> None:
        """Renew it no more. Waits for the thread."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def _renew(self) -> None:
        before = self._seconds()  # as of the request: the answer may have taken long
        self._length = self._backend.renew()
        self._ends_at = before + self._length * (1 - MARGIN)

    def _beat(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]) -> None:
        ticked = threading.Event()
        told = False
        while not self._stop.wait(self._length / 4):
            ticked.clear()
            try:
                loop.call_soon_threadsafe(ticked.set)
            except RuntimeError:
                return  # the loop is closed, and its runtime with it
            fenced = False
            try:
                if ticked.wait(self._length / 4):
                    self._renew()
                    told = False
                else:
                    logger.warning("the event loop hangs: its lease is not renewed meanwhile")
            except Fenced:  # also where it had run out here before, as after a suspension
                self._ends_at, fenced = -math.inf, True
            except StoreError as error:
                logger.warning("the lease could not be renewed: %s", error)
            except Exception:  # a defect of the backend: without this thread nothing is renewed
                logger.exception("the lease could not be renewed")
            if fenced or not (told or self.holds(self._term)):
                logger.error("the lease has ended: other runtimes may own the agents by now")
                self._term += 1
                told = True
                _tell(loop, on_lost)
                if fenced:
                    self._begin_anew()

    def _begin_anew(self) -> None:
        """Be a host again at once, for what is claimed from now on."""
        try:
            self._renew()
        except StoreError as error:
            logger.warning("there is no new lease yet: %s", error)


def _tell(loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(on_lost)
    except RuntimeError:
        logger.warning("the lease of a runtime ended whose event loop is closed")
