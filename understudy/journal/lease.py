"""`Lease`: how long this runtime may act as the owner of its agents.

A thread of its own renews it, so that a busy event loop does not lose it. But it renews only while
that loop ticks: if the loop hangs, another runtime gets the agents. The thread is no `Lookout`,
which is a task of the loop. It notices that the loop hangs while it hangs
(test_a_lease_is_not_renewed_while_the_loop_hangs), and a lease that is lost ends at once for the
threads that ask for it before they enter a tool.

A lease that has run out is not lost yet: the database may have been away. No tool is entered then,
and what waits for the store waits on, until the database says which: the renewal succeeds, so no
other runtime has claimed anything meanwhile, or it is refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress

from understudy._base.clock import suspend_aware_seconds
from understudy._base.lookout import Hints
from understudy.errors import Fenced, StoreError
from understudy.journal.backend import Backend
from understudy.journal.shared import SharedBackend

logger: logging.Logger = logging.getLogger(__name__)

_BEHIND = 0.05
"""Seconds after the end of another host's lease at which that is looked at."""
MARGIN = 0.2
"""Share of the lease, at its end, in which this runtime does not act as the owner any more."""


class Lease:
    """The lease of one runtime on all of its agents.

    Args:
        backend: renews it.
        patience: seconds for which `wait_until_settled` waits at most.
        seconds: the clock. It counts the time in which the machine was suspended.

    """

    def __init__(
        self,
        backend: Backend,
        *,
        patience: float = 30.0,
        seconds: Callable[[], float] = suspend_aware_seconds,
    ) -> None:
        self._backend = backend
        self._hosts = backend if isinstance(backend, SharedBackend) else None
        self.dead_hosts: Hints = Hints()
        """Given on the loop when leases of other hosts have ended, or were ended."""
        self.on_renewed: Callable[[], None] | None = None
        """Called on the loop after each renewal."""
        self.before_renewed: Callable[[], None] | None = None
        """Called in the heartbeat's thread, behind a renewal and before it counts here."""
        self._next_end = math.inf
        """Seconds after the last beat until the lease of another host ends."""
        self._patience = patience
        self._seconds = seconds
        self._ends_at = math.inf
        self._length = math.inf
        self._term = 0
        self._stop = threading.Event()
        self._beat = threading.Event()
        """Set to have the heartbeat renew at once."""
        self._settled: Hints = Hints()
        """Given on the loop when the lease was renewed, is lost, or ends."""
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

    async def wait_until_settled(self, term: int) -> None:
        """Wait while the lease of that term has run out, and may still be renewed.

        On return the lease holds again, or is lost, or ends, or `patience` is over: `holds` says
        which. On the loop that `begin` got.
        """
        if not self.holds(term):  # it does after nearly every commit, and a timeout takes 8 µs
            await self._wait_until(lambda: self.holds(term) or term != self._term)

    async def wait_until_begun(self) -> int:
        """The present term, once its lease has begun. Waits as `wait_until_settled`.

        That lease may have run out since.
        """
        while True:
            # Race: this against the heartbeat, which ends one lease before it counts the next term.
            # If the number is still the same behind the look at the lease, it is of that lease.
            term = self._term
            if self._ends_at == -math.inf:
                await self._wait_until(lambda: self._ends_at != -math.inf)
            if term == self._term:
                return term

    async def wait_for_next(self, term: int) -> None:
        """Wait until the lease of that term is lost here as well, and the next one holds.

        For a caller that learns from the database that it is lost, before the heartbeat does. As
        `wait_until_settled`.
        """
        await self._wait_until(lambda: term != self._term and self.holds(self._term))

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + self._patience
        while not condition() and not self._stop.is_set() and clock() < end:
            # Race: this against the heartbeat, which gives its hint by a callback on this loop: the
            # hint of a renewal that the line above did not see comes after this wait has begun.
            self._beat.set()
            await self._settled.wait(end - clock(), self._settled.count)

    def _renewed(self) -> None:
        self._settled.give()
        if self.on_renewed is not None:
            self.on_renewed()

    def begin(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]) -> None:
        """Renew it from now on. The first renewal blocks: call this in a thread.

        Args:
            loop: must tick for a renewal. `on_lost` is called on it whenever a lease has ended; the
                next lease is for later claims.

        """
        self._renew()
        self._end_dead_hosts(loop)
        if self.is_shared:
            self._stop.clear()
            self._thread = threading.Thread(
                target=self._run_heartbeat,
                args=(loop, on_lost),
                name="understudy-lease",
                daemon=True,
            )
            self._thread.start()

    def renew_soon(self) -> None:
        """Have the heartbeat renew it at once."""
        self._beat.set()

    def end(self) -> None:
        """Renew it no more. Waits for the thread."""
        self._stop.set()
        self._beat.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    # A test may stand around this: `testing.seams`.
    def _renew(self) -> None:
        # The time before the request: the answer may take long, and the lease runs meanwhile.
        before = self._seconds()
        self._length = self._backend.renew()
        # Race: the lease may have run out, and others have decided without this host meanwhile.
        # Whoever asks for the lease next must find that out, and the loop may be behind
        # (test_a_freeze_holds_against_each_attack).
        if self.before_renewed is not None:
            self.before_renewed()
        self._ends_at = before + self._length * (1 - MARGIN)

    def _end_dead_hosts(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._hosts is None:
            return
        ended, self._next_end = self._hosts.ended_leases()
        if self._hosts.end_dead_hosts() or ended:
            _notify(loop, self.dead_hosts.give)

    def _run_heartbeat(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]) -> None:
        ticked = threading.Event()
        while self._wait_for_beat():
            ticked.clear()
            try:
                loop.call_soon_threadsafe(ticked.set)
            except RuntimeError:
                return  # the loop is closed, and its runtime with it
            try:
                if ticked.wait(self._length / 4):
                    self._renew()
                    _notify(loop, self._renewed)
                    self._end_dead_hosts(loop)
                else:
                    logger.warning("the event loop hangs: its lease is not renewed meanwhile")
            except Fenced:
                # Only the database says that a lease is lost. One that has run out here, because
                # the database was away or the machine was suspended, may still be renewed
                # (test_an_owner_goes_on_after_an_outage_that_is_longer_than_its_lease).
                logger.error("the lease has ended: other runtimes may own the agents by now")
                self._ends_at = -math.inf
                # Race: this against `holds` on the loop. The term ends before the next lease
                # begins, else claims of the old term would count under the new lease
                # (test_what_was_claimed_under_a_lease_that_ended_meanwhile_is_lost).
                self._term += 1
                _notify(loop, on_lost)
                _notify(loop, self._settled.give)
                self._begin_next_term()
            except StoreError as error:
                logger.warning("the lease could not be renewed: %s", error)
            except Exception:  # a defect of the backend: without this thread nothing is renewed
                logger.exception("the lease could not be renewed")
        _notify(loop, self._settled.give)

    def _wait_for_beat(self) -> bool:
        """Wait until the next renewal is due; False if there is none."""
        self._beat.wait(min(self._length / 4, self._next_end + _BEHIND))
        self._beat.clear()
        return not self._stop.is_set()

    def _begin_next_term(self) -> None:
        """Become a host again at once, for later claims."""
        try:
            self._renew()
        except StoreError as error:
            logger.warning("there is no new lease yet: %s", error)


def _notify(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed, and its runtime with it
        loop.call_soon_threadsafe(callback)
