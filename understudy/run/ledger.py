"""Where a run writes its facts: into the state, into the journal, and to whoever listens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from understudy.errors import JournalFailed
from understudy.events import Event, events_of
from understudy.journal.contracts import Journal
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.records import ChildRecord, Record, Snapshot

__all__ = ["ChildLedger", "FactListener", "Ledger", "Listener", "ledgers"]

logger = logging.getLogger(__name__)

Listener = Callable[[Event], None]
FactListener = Callable[[int, Record], None]
"""Told of a fact, with its number, once it is durable."""


@runtime_checkable
class _Fenced(Protocol):
    """What a journal under an epoch has beside its contract."""

    def check_owner(self) -> None: ...


@runtime_checkable
class _Checking(Protocol):
    """What a journal has beside its contract that does not take everything."""

    def check(self, record: Record, *, spare: int = 0) -> None: ...


class Ledger:
    """The only writer of a state.

    Without a journal the facts are only folded; with one, the same code waits for them to be
    durable wherever the rules say so, and tells them only then (J16).
    """

    __slots__ = (
        "_agent_path",
        "_count",
        "_fenced",
        "_journal",
        "_listener",
        "_on_fact",
        "_state",
        "_untold",
        "epoch",
        "outlives_run",
    )

    epoch: int
    """Under which it writes; 0 where nobody else could (J7)."""
    outlives_run: bool | None
    """Whether somebody keeps it between runs: an actor, while it is awake; None without one."""

    def __init__(
        self,
        state: AgentState,
        journal: Journal | None = None,
        *,
        agent_path: tuple[str, ...] = (),
        listener: Listener | None = None,
        on_fact: FactListener | None = None,
        last_seq: int = 0,
        epoch: int = 0,
    ) -> None:
        self._state = state
        self._journal = journal
        self._fenced = journal if isinstance(journal, _Fenced) else None
        self._agent_path = agent_path
        self._listener = listener
        self._on_fact = on_fact
        if on_fact is None and listener is not None:
            self._on_fact = self._tell_events
        self._untold: list[tuple[int, Record]] = []  # a deque takes 0.7 KB, though it is empty
        self._count = last_seq
        self.epoch = epoch
        self.outlives_run = None

    @property
    def state(self) -> AgentState:
        """The fold of all that was recorded."""
        return self._state

    @property
    def count(self) -> int:
        """The number of the newest fact: how many were recorded."""
        return self._count

    @property
    def observed(self) -> bool:
        """Whether anybody listens."""
        return self._listener is not None

    @property
    def has_unflushed(self) -> bool:
        """Whether something is recorded that is not durable yet."""
        return self._journal is not None and self._journal.has_unflushed

    def open(self, *, fresh: bool) -> None:
        """Begin to write: a journal that does not hold this state's past gets a snapshot of it."""
        if self._journal is not None and not fresh:
            self._append((Snapshot(state=self.state.to_dict()),))

    def check_owner(self) -> None:
        """Raise `Fenced` where another runtime may own the agent by now (J8)."""
        if self._fenced is not None:
            self._fenced.check_owner()

    def check(self, record: Record, *, spare: int = 0) -> None:
        """Raise `RecordRefused` where it could not be kept, or not with so many bytes more."""
        if isinstance(self._journal, _Checking):
            self._journal.check(record, spare=spare)

    def record(self, *records: Record) -> None:
        """Write facts down, in order."""
        journal = self._journal
        if journal is not None:
            self._append(records)
        for record in records:
            apply(self._state, record)
        if self._on_fact is None:
            self._count += len(records)
            return
        for record in records:
            self._count += 1
            self._untold.append((self._count, record))
        if journal is None or not journal.has_unflushed:
            self.tell_until(self._count)

    async def durable(self) -> None:
        """Wait until all that was recorded is durable."""
        journal, count = self._journal, self._count  # more may be recorded while we wait
        if journal is not None and journal.has_unflushed:
            try:
                await journal.durable()
            except JournalFailed:
                raise
            except Exception as error:
                raise JournalFailed(f"The journal could not keep a record: {error!r}") from error
        if self._untold:
            self.tell_until(count)

    def tell_until(self, seq: int) -> None:
        """Tell the facts up to this number: they are durable (J16)."""
        untold = self._untold
        while untold and untold[0][0] <= seq:
            assert self._on_fact is not None, "without a listener nothing is left untold"
            self._on_fact(*untold.pop(0))

    def tell(self, event: Event) -> None:
        """Tell an event that is no fact. A listener that raises is dropped; the run goes on."""
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception:
                logger.exception("a listener of %s raised: it is told no more", self._agent_path)
                self._listener = None

    def _tell_events(self, _seq: int, record: Record) -> None:
        for event in events_of(record, self._agent_path):
            self.tell(event)

    def _append(self, records: tuple[Record, ...]) -> None:
        assert self._journal is not None, "only called where there is a journal"
        try:
            self._journal.append(records)
        except JournalFailed:
            raise
        except Exception as error:
            raise JournalFailed(f"The journal refused a record: {error!r}") from error


class ChildLedger(Ledger):
    """Where an agent writes that a call of another one runs: its facts are facts of that one too.

    So they are in one journal, in one order, and a state with a child in the middle of an interrupt
    goes through JSON as any other.
    """

    __slots__ = ("_child", "_name", "_parent")

    def __init__(self, parent: Ledger, child: str, name: str) -> None:
        super().__init__(AgentState(), epoch=parent.epoch)
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

    @property
    def has_unflushed(self) -> bool:
        return self._parent.has_unflushed

    def check_owner(self) -> None:
        self._parent.check_owner()

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
