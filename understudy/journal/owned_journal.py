"""`OwnedJournal`: the journal in which the owner of an agent writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from understudy._base.pieces import in_pieces
from understudy.errors import SchemaVersionError, StoreDamaged, UsageError
from understudy.journal.call_keys import CallKeys, KeyUse
from understudy.journal.contracts import IndexEntry, Owned
from understudy.journal.index_status import index_entry_of
from understudy.journal.loaded import Loaded
from understudy.journal.reads import StoreReads
from understudy.journal.taken_states import TakenState
from understudy.state.agent_state import AgentState
from understudy.state.records import Record

if TYPE_CHECKING:
    from understudy.journal.spending import Settlement


class JournalledAgent(ABC):
    """An agent that has a journal: what is kept of it besides its records. Called on its loop."""

    # One object: three bound methods in its place take 192 bytes more of each agent.
    __slots__ = ()

    is_noted: ClassVar[bool] = True
    """Whether the store notes what its records decide and use, for its lists."""

    @abstractmethod
    def ledger_state(self) -> AgentState:
        """The state that all appended records fold to."""

    def index_entry(self) -> IndexEntry:
        """What the index says of the agent now."""
        return index_entry_of(self.ledger_state())

    def on_durable(self, seq: int) -> None:
        """The records up to this number are durable. Called after each commit."""
        return


class FoldedAgent(JournalledAgent):
    """An agent that nothing runs: its records are written, and that is all."""

    # Who has written an export says who decided: no audit of another store has it
    # (test_an_imported_agent_brings_no_decisions_with_it).
    is_noted: ClassVar[bool] = False

    def __init__(self, state: AgentState) -> None:
        self._state = state

    def ledger_state(self) -> AgentState:
        return self._state


class OwnedJournal(ABC):
    """A journal under an epoch: a `Journal`, in which the owner of an agent writes.

    What a store does not keep, its journals refuse: the bytes of files, keys of calls, and what
    calls spend. It is used on one event loop.
    """

    __slots__ = ()

    @abstractmethod
    def append(self, records: Sequence[Record]) -> None:
        """As `Journal.append`."""

    @property
    @abstractmethod
    def has_unflushed(self) -> bool:
        """As `Journal.has_unflushed`."""

    @abstractmethod
    async def durable(self) -> None:
        """As `Journal.durable`."""

    @property
    @abstractmethod
    def owned(self) -> Owned:
        """The epoch, with the number of the newest record that was appended."""

    def check_owner(self) -> None:
        """Raise `Fenced` if another runtime may own the agent by now."""
        return

    async def wait_for_owner(self) -> None:
        """Wait while the lease has run out and may still be renewed; then as `check_owner`."""
        self.check_owner()

    @abstractmethod
    def fence(self, why: str) -> None:
        """Write no more: the lease is lost. Every later call raises `Fenced`."""

    def left_state(self) -> TakenState | None:
        """The state that its records fold to, to continue from; None where it may be another."""
        return None

    async def note_index(self) -> None:
        """Tell the index what it says of the agent now, though nothing was recorded."""
        return

    # ------------------------------------------------------------------- checkpoints

    def write_checkpoints(self, loaded: Loaded | None) -> None:
        """Write checkpoints of the agent from now on, each with the records of a commit.

        Args:
            loaded: from what its state was folded when it woke; None if it is new.

        """
        return

    def write_last_checkpoint(self) -> None:
        """The agent leaves memory: write one if enough was recorded since the last. Never waits.

        The next owner finds it.
        """
        return

    # ------------------------------------------------------------------- files

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        """Keep bytes of files, by their hashes, in the commit of the records appended last.

        Raises:
            UsageError: if the store keeps none.

        """
        raise UsageError("the store of this runtime keeps no files: see `Store.keeps`")

    async def load_blobs(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        """The bytes of files with these hashes, as far as they are kept."""
        raise UsageError("the store of this runtime keeps no files: see `Store.keeps`")

    # ------------------------------------------------------------------- spending

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Settle what calls have spent, in the commit of the records appended last.

        Raises:
            UsageError: if the store keeps no spending, an amount cannot be kept, or a call is
                another agent's.

        """
        raise UsageError("the store of this runtime keeps no spending: see `Store.keeps`")

    # ------------------------------------------------------------------- keys of calls

    @property
    def call_keys(self) -> CallKeys | None:
        """By which calls of the agent take keys; None if the store keeps none."""
        return None

    def follow_keys(self) -> None:
        """From now on, what the records say becomes of the keys of calls is in their commits.

        It is called where an agent wakes that has keys, and follows from the first key.
        """
        return


class KeysOfJournal(CallKeys):
    """The keys of calls of the agent of a journal, in a store."""

    def __init__(self, journal: OwnedJournal, store: StoreReads) -> None:
        self._journal = journal
        self._store = store

    @property
    def of(self) -> tuple[str, int]:
        owned = self._journal.owned
        return owned.agent_id, owned.incarnation

    async def state_of_use(self, use: KeyUse) -> AgentState | None:
        try:
            loaded = await self._store.load_latest(use.agent_id)
            if loaded is None or loaded.agent.incarnation != use.incarnation:
                return None
            return await in_pieces(loaded.folding())
        except (SchemaVersionError, StoreDamaged):
            return None
