"""`Lease`: how long this runtime may act as the owner of its agents.

A thread of its own renews it, so that a busy event loop does not lose it. But it renews only while
that loop ticks: if the loop hangs, another runtime gets the agents.
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

logger = logging.getLogger(__name__)

MARGIN = 0.2
"""Share of the lease, at its end, in which this runtime does not act as the owner any more."""


class Lease:
    """The lease of one runtime on all of its agents.

    Args:
        backend: renews it.
        seconds: the clock. It counts the time in which the machine was suspended.

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
        """The number of the present lease. Claims of an earlier term stay lost."""
        return self._term

    @property
    def is_shared(self) -> bool:
        """Whether other runtimes may own agents of the same store."""
        return self._length != math.inf

    def holds(self, term: int) -> bool:
        """Whether this runtime may act on its claims of that term.

        It may not in the last 20 % of a lease, so that it stops before another runtime begins.
        """
        # Race: this against the heartbeat, which ends the term before it begins the next lease. The
        # end is read first: if it is that of the next lease, the term has ended already, and the
        # claims of the old one do not count under the new one
        # (test_a_term_that_ends_between_two_reads_does_not_hold).
        ends_at = self._ends_at
        holds = ends_at == math.inf or self._seconds() < ends_at
        return holds and term == self._term

    def begin(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]) -> None:
        """Renew it from now on. The first renewal blocks: call this in a thread.

        Args:
            loop: must tick for a renewal. `on_lost` is called on it whenever a lease has ended; the
                next lease is for later claims.

        """
        self._renew()
        if self.is_shared:
            self._stop.clear()
            self._thread = threading.Thread(
                target=self._run_heartbeat,
                args=(loop, on_lost),
                name="understudy-lease",
                daemon=True,
            )
            self._thread.start()

    def end(self) -> None:
        """Renew it no more. Waits for the thread."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def _renew(self) -> None:
        # The time before the request: the answer may take long, and the lease runs meanwhile.
        before = self._seconds()
        self._length = self._backend.renew()
        self._ends_at = before + self._length * (1 - MARGIN)

    def _run_heartbeat(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]) -> None:
        ticked = threading.Event()
        notified = False
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
                    notified = False
                else:
                    logger.warning("the event loop hangs: its lease is not renewed meanwhile")
            except Fenced:
                self._ends_at, fenced = -math.inf, True
            except StoreError as error:
                logger.warning("the lease could not be renewed: %s", error)
            except Exception:  # a defect of the backend: without this thread nothing is renewed
                logger.exception("the lease could not be renewed")
            # Once for each lost lease, also if it has expired on our clock before the database says
            # so (test_a_lease_that_was_lost_is_always_told_of_and_the_next_one_begins), or if the
            # database is unavailable meanwhile
            # (test_a_database_that_is_away_is_told_of_once_when_the_lease_runs_out).
            if fenced or not (notified or self.holds(self._term)):
                logger.error("the lease has ended: other runtimes may own the agents by now")
                # Race: this against `holds` on the loop. The term ends before the next lease
                # begins, else claims of the old term would count under the new lease
                # (test_what_was_claimed_under_a_lease_that_ended_meanwhile_is_lost).
                self._term += 1
                notified = True
                _notify(loop, on_lost)
                if fenced:
                    self._begin_next_term()

    def _begin_next_term(self) -> None:
        """Become a host again at once, for later claims."""
        try:
            self._renew()
        except StoreError as error:
            logger.warning("there is no new lease yet: %s", error)


def _notify(loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(on_lost)
    except RuntimeError:
        logger.warning("the lease of a runtime ended whose event loop is closed")
