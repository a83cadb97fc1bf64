"""Where a run writes its facts: into the state, into the journal, and to whoever listens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from understudy.errors import JournalFailed
from understudy.events import Event, events_of
from understudy.fold import apply
from understudy.journal.base import Journal
from understudy.records import ChildRecord, Record, Snapshot
from understudy.state import AgentState

__all__ = ["ChildLedger", "Ledger", "Listener", "ledgers"]

logger = logging.getLogger(__name__)

Listener = Callable[[Event], None]


class Ledger:
    """The only writer of a state.

    Without a journal the facts are only folded; with one, the same code waits for them to be
    durable wherever the rules say so, and tells them only then (J16).
    """

    __slots__ = ("_agent_path", "_count", "_journal", "_listener", "_state", "_untold")

    def __init__(
        self,
        state: AgentState,
        journal: Journal | None = None,
        *,
        agent_path: tuple[str, ...] = (),
        listener: Listener | None = None,
    ) -> None:
        self._state = state
        self._journal = journal
        self._agent_path = agent_path
        self._listener = listener
        self._untold: list[Event] = []
        self._count = 0

    @property
    def state(self) -> AgentState:
        """The fold of all that was recorded."""
        return self._state

    @property
    def count(self) -> int:
        """How many facts were recorded."""
        return self._count

    @property
    def observed(self) -> bool:
        """Whether anybody listens."""
        return self._listener is not None

    def open(self, *, fresh: bool) -> None:
        """Begin to write: a journal that does not hold this state's past gets a snapshot of it."""
        if self._journal is not None and not fresh:
            self._append((Snapshot(state=self.state.to_dict()),))

    def record(self, *records: Record) -> None:
        """Write facts down, in order."""
        if self._journal is not None:
            self._append(records)
        for record in records:
            apply(self._state, record)
        self._count += len(records)
        if self._listener is not None:
            for record in records:
                self._untold.extend(events_of(record, self._agent_path))
            if self._journal is None or not self._journal.behind:
                self._tell_all()

    async def durable(self) -> None:
        """Wait until all that was recorded is durable."""
        journal = self._journal
        if journal is not None and journal.behind:
            try:
                await journal.durable()
            except Exception as error:
                raise JournalFailed(f"The journal could not keep a record: {error!r}") from error
        if self._untold:
            self._tell_all()

    def tell(self, event: Event) -> None:
        """Tell an event that is no fact. A listener that raises is dropped; the run goes on."""
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception:
                logger.exception("a listener of %s raised: it is told no more", self._agent_path)
                self._listener = None

    def _tell_all(self) -> None:
        told, self._untold = self._untold, []
        for event in told:
            self.tell(event)

    def _append(self, records: tuple[Record, ...]) -> None:
        assert self._journal is not None, "only called where there is a journal"
        try:
            self._journal.append(records)
        except Exception as error:
            raise JournalFailed(f"The journal refused a record: {error!r}") from error


class ChildLedger(Ledger):
    """Where an agent writes that a call of another one runs: its facts are facts of that one too.

    So they are in one journal, in one order, and a state with a child in the middle of an interrupt
    goes through JSON as any other.
    """

    __slots__ = ("_child", "_name", "_parent")

    def __init__(self, parent: Ledger, child: str, name: str) -> None:
        super().__init__(AgentState())
        self._parent = parent
        self._child = child
        self._name = name

    @property
    def state(self) -> AgentState:
        return self._parent.state.children.get(self._child, self._state)

    @property
    def count(self) -> int:
        return self._parent.count

    @property
    def observed(self) -> bool:
        return self._parent.observed

    def record(self, *records: Record) -> None:
        self._parent.record(
            *(ChildRecord(child=self._child, name=self._name, record=record) for record in records)
        )

    async def durable(self) -> None:
        await self._parent.durable()

    def tell(self, event: Event) -> None:
        self._parent.tell(event)


def ledgers(ledger: Ledger) -> Iterator[Ledger]:
    """The ledger and those of all agents that open calls of it run."""
    yield ledger
    for key, child in ledger.state.children.items():
        if child.run is not None:
            yield from ledgers(ChildLedger(ledger, key, child.run.agent))
