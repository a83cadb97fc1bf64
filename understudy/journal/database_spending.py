"""The counters of a `DatabaseStore`: decided here where one host has the database."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from understudy._base.worker_threads import WorkerThreads
from understudy.errors import StoreError, StoreUnavailable
from understudy.journal.agent_journal import FIRST_PAUSE, LONGEST_PAUSE
from understudy.journal.committer import Change, defect_of, logger
from understudy.journal.database_threads import DatabaseThreads
from understudy.journal.shared import SharedBackend
from understudy.journal.spending import (
    CounterId,
    CounterSums,
    OpenSpending,
    Reservation,
    Reserved,
    Settlement,
    SpendId,
    Spending,
    check_reservation,
)
from understudy.journal.spending_books import Books

if TYPE_CHECKING:
    from understudy.journal.store import Store


MOST_JOINED = 64
"""Reservations of one statement: each has a lock in a table of the server that has room for some
thousands."""


class DatabaseSpending(Spending):
    """The counters of a `DatabaseStore`.

    Args:
        threads: of the store.

    """

    def __init__(self, threads: DatabaseThreads) -> None:
        self._threads = threads
        self._noted = 0
        """The number of times that something was settled here. A settlement makes room once it
        is committed."""
        self._committed = 0
        """The number of times that something settled here was committed for certain."""

    async def reserve(self, asked: Reservation) -> Reserved:
        check_reservation(asked)
        answer = await self._reserve(asked)
        noted = self._noted
        if answer.refused and noted > self._committed:
            # What was settled last makes room once it is committed
            # (test_what_was_settled_last_makes_room_before_it_is_waited_for).
            await asyncio.sleep(0)  # the journals hand over what they have
            await self._threads.change(lambda: None)  # takes its place in the queue, and no more
            self._committed = max(self._committed, noted)
            answer = await self._reserve(asked)
        return answer

    @abstractmethod
    async def _reserve(self, asked: Reservation) -> Reserved:
        """Reserve what can be kept; see `reserve`."""

    def note_settled(
        self, settlements: Sequence[Settlement], agent_id: str, incarnation: int
    ) -> None:
        super().note_settled(settlements, agent_id, incarnation)
        self._noted += 1

    def left(self, agent_id: str) -> None:
        """Note that an agent is deleted."""
        return


class LocalSpending(DatabaseSpending):
    """The counters of a database that one host has: decided by what is in memory.

    What is reserved is put into the queue of the committer, and so is on disk with the next commit,
    or before it. What is settled counts once it is committed. If a write fails, what is in memory
    may be ahead of the database: then all is read anew.

    Args:
        threads, store: the store; its clock says when a reservation is made.

    """

    def __init__(self, threads: DatabaseThreads, store: Store) -> None:
        super().__init__(threads)
        self._store = store
        self._books: Books | None = None
        self._loading: asyncio.Future[Books] | None = None

    async def _reserve(self, asked: Reservation) -> Reserved:
        books = self._books or await self._load()
        decision = books.reserve(asked, self._store.feed_clock.now())
        if decision.lines is not None:
            keep = partial(self._threads.backend.keep_reserved, decision)
            kept = Change(keep, ended=self._kept)
            self._threads.committer.put_alone(kept, flush=asked.must_last)
            if asked.must_last:
                await kept.future
        return decision.answer

    async def open_spending(self, agent_id: str) -> Sequence[OpenSpending]:
        return (self._books or await self._load()).open_spending(agent_id)

    async def counters(self, budgets: Collection[str] | None = None) -> Sequence[CounterSums]:
        return list((self._books or await self._load()).counters(budgets))

    def settled(self, settlements: Sequence[Settlement]) -> None:
        if self._books is not None:
            self._books.settle(settlements)

    def left(self, agent_id: str) -> None:
        if self._books is not None:
            self._books.leave(agent_id)

    def _kept(self, _: None, error: StoreError | None) -> None:
        if error is not None:  # what is in memory may be ahead of the database
            self._books = None

    async def _load(self) -> Books:
        if self._loading is None:
            # Behind all that was reserved and settled so far, by the thread that writes it. The
            # books are installed at its end: a commit behind this one settles in them
            # (test_what_is_settled_while_the_counters_are_read_counts_once).
            load = Change(lambda: Books(self._threads.backend.load_spending()), ended=self._loaded)
            self._loading = load.future
            self._threads.committer.put_alone(load)
        return await asyncio.shield(self._loading)

    def _loaded(self, books: Books | None, error: StoreError | None) -> None:
        self._books, self._loading = books, None


class SharedSpending(DatabaseSpending):
    """The counters of a database that hosts share: it decides itself.

    While a statement is under way, what else is to be reserved waits for it, and is reserved by the
    next one together.

    Args:
        threads: of the store.
        backend: its database.

    """

    def __init__(self, threads: DatabaseThreads, backend: SharedBackend) -> None:
        super().__init__(threads)
        self._backend = backend
        self._thread = WorkerThreads(1, name="understudy-spender")
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        """Has all reserved that waits; None where nothing does."""

    async def _reserve(self, asked: Reservation) -> Reserved:
        end, pause = time.monotonic() + self._threads.patience, FIRST_PAUSE
        while (answer := await self._join(asked)) is None:
            # Another host settles it or deletes the agent, and may be suspended in that.
            if time.monotonic() > end:
                raise StoreUnavailable(cause="another host is about to change what a call spends")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    async def _join(self, asked: Reservation) -> Reserved | StoreError | None:
        loop = asyncio.get_running_loop()
        waiting = _Waiting(asked, loop.create_future())
        self._waiting.append(waiting)
        if self._task is None:
            self._task = loop.create_task(self._reserve_all())
        return await waiting.done

    async def _reserve_all(self) -> None:
        joined: list[_Waiting] = []
        try:
            while self._waiting:
                joined = self._next()
                answers = await self._ask([each.asked for each in joined])
                for each, answer in zip(joined, answers, strict=True):
                    if not each.done.done():  # else who waited for it was cancelled
                        each.done.set_result(answer)
        finally:
            self._task = None
            for each in (*joined, *self._waiting):  # the loop ends: nobody waits for ever
                each.done.cancel()
            self._waiting.clear()

    async def _ask(self, asked: Sequence[Reservation]) -> Sequence[Reserved | StoreError | None]:
        reserve_all = partial(self._backend.reserve_all, asked)
        try:
            return await self._threads.run_in(self._thread, reserve_all)
        except StoreError as error:
            return [error] * len(asked)
        except Exception as unexpected:  # a defect of the backend: no waiter may hang on it
            logger.exception("the store failed")
            return [defect_of(self._backend, unexpected)] * len(asked)

    def _next(self) -> list[_Waiting]:
        """The reservations of the next statement, in the order in which they were asked for."""
        joined: dict[SpendId, _Waiting] = {}
        later: list[_Waiting] = []
        sinces: dict[CounterId, int] = {}
        while self._waiting and len(joined) < MOST_JOINED:
            each = self._waiting.popleft()
            asked = each.asked
            of_lines = {line.counter: line.since for line in asked.lines}
            differs = any(sinces.get(of, since) != since for of, since in of_lines.items())
            if asked.id in joined or differs:
                later.append(each)
            else:
                joined[asked.id] = each
                sinces.update(of_lines)
        self._waiting.extendleft(reversed(later))
        return list(joined.values())

    async def open_spending(self, agent_id: str) -> Sequence[OpenSpending]:
        return await self._threads.read(partial(self._backend.open_spending, agent_id))

    async def counters(self, budgets: Collection[str] | None = None) -> Sequence[CounterSums]:
        return await self._threads.read(partial(self._backend.counters, budgets))


class _Waiting(NamedTuple):
    """A reservation that waits for the next statement."""

    asked: Reservation
    done: asyncio.Future[Reserved | StoreError | None]
