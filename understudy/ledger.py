"""Where a run writes its facts: into the state at once, and into the journal if there is one."""

from __future__ import annotations

from understudy.errors import JournalFailed
from understudy.fold import apply
from understudy.journal.base import Journal
from understudy.records import Record, Snapshot
from understudy.state import AgentState

__all__ = ["Ledger"]


class Ledger:
    """The only writer of a state.

    Without a journal the facts are only folded; with one, the same code waits for them to be
    durable wherever the rules say so.
    """

    __slots__ = ("_journal", "state")

    def __init__(self, state: AgentState, journal: Journal | None = None) -> None:
        self.state = state
        self._journal = journal

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

    async def durable(self) -> None:
        """Wait until all that was recorded is durable."""
        journal = self._journal
        if journal is not None and journal.behind:
            try:
                await journal.durable()
            except Exception as error:
                raise JournalFailed(f"The journal could not keep a record: {error!r}") from error

    def _append(self, records: tuple[Record, ...]) -> None:
        assert self._journal is not None
        try:
            self._journal.append(records)
        except Exception as error:
            raise JournalFailed(f"The journal refused a record: {error!r}") from error
