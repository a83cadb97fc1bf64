"""Where a run writes its facts: into the state, into the journal, and to whoever listens."""

from __future__ import annotations

import logging
from collections.abc import Callable

from understudy.errors import JournalFailed
from understudy.events import Event, events_of
from understudy.fold import apply
from understudy.journal.base import Journal
from understudy.records import Record, Snapshot
from understudy.state import AgentState

__all__ = ["Ledger", "Listener"]

logger = logging.getLogger(__name__)

Listener = Callable[[Event], None]


class Ledger:
    """The only writer of a state.

    Without a journal the facts are only folded; with one, the same code waits for them to be
    durable wherever the rules say so, and tells them only then (J16).
    """

    __slots__ = ("_agent_path", "_journal", "_listener", "_untold", "state")

    def __init__(
        self,
        state: AgentState,
        journal: Journal | None = None,
        *,
        agent_path: tuple[str, ...] = (),
        listener: Listener | None = None,
    ) -> None:
        self.state = state
        self._journal = journal
        self._agent_path = agent_path
        self._listener = listener
        self._untold: list[Event] = []

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
            apply(self.state, record)
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
