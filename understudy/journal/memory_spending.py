"""The counters of a `MemoryStore`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from understudy.errors import Fenced
from understudy.journal.spending import (
    CounterSums,
    OpenSpending,
    Reservation,
    Reserved,
    Settlement,
    Spending,
    check_reservation,
)
from understudy.journal.spending_books import Books
from understudy.journal.store import Store


class MemorySpending(Spending):
    """The counters of a `MemoryStore`.

    Args:
        store: whose clock says when a reservation is made.
        incarnation_of: the incarnation of an agent by its id; None where there is none.

    """

    def __init__(self, store: Store, incarnation_of: Callable[[str], int | None]) -> None:
        self.books: Books = Books()
        self._store = store
        self._incarnation_of = incarnation_of

    async def reserve(self, asked: Reservation) -> Reserved:
        check_reservation(asked)
        agent_id, incarnation, _ = asked.id
        if self._incarnation_of(agent_id) != incarnation:
            raise Fenced(agent_id=agent_id, why="it was deleted")
        return self.books.reserve(asked, self._store.feed_clock.now()).answer

    def settled(self, settlements: Sequence[Settlement]) -> None:
        self.books.settle(settlements)

    async def open_spending(self, agent_id: str) -> Sequence[OpenSpending]:
        return self.books.open_spending(agent_id)

    async def counters(self, budgets: Collection[str] | None = None) -> Sequence[CounterSums]:
        return list(self.books.counters(budgets))
