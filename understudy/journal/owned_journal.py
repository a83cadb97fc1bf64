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
    """An agent with a journal: what the store keeps about it besides its records.

    It is called on its event loop.
    """

    # One object: three bound methods in its place take 192 bytes more of each agent.
    __slots__ = ()

    is_noted: ClassVar[bool] = True
    """Whether the store lists what the agent's records decide and use."""

    @abstractmethod
    def ledger_state(self) -> AgentState:
        """Return the fold of all appended records."""

    def index_entry(self) -> IndexEntry:
        """Return the agent's current entry for the index."""
        return index_entry_of(self.ledger_state())

    def on_durable(self, seq: int) -> None:
        """Note that the records up to this number are durable. Called after each commit."""
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
    """The journal in which the owner of an agent writes, under an epoch. It is a `Journal`.

    It refuses what its store does not keep: the bytes of files, keys of calls, and the spending of
    calls. It is used on one event loop.
    """

    __slots__ = ()

    @abstractmethod
    def append(self, records: Sequence[Record]) -> None:
        """Append records, as `Journal.append`."""

    @property
    @abstractmethod
    def has_unflushed(self) -> bool:
        """Whether records are not durable yet, as `Journal.has_unflushed`."""

    @abstractmethod
    async def durable(self) -> None:
        """Wait until the appended records are durable, as `Journal.durable`."""

    @property
    @abstractmethod
    def owned(self) -> Owned:
        """The epoch, with the number of the newest appended record."""

    def check_failure(self) -> None:
        """Raise the error by which it has failed, if it has."""
        return

    async def settled(self) -> None:
        """Wait until no commit of it is under way, also where it has failed."""
        return

    def check_owner(self) -> None:
        """Raise `Fenced` if another runtime may own the agent by now."""
        return

    async def wait_for_owner(self) -> None:
        """Wait while an ended lease may still be renewed, then check as `check_owner`."""
        self.check_owner()

    @abstractmethod
    def fence(self, why: str) -> None:
        """Stop writing, because the lease is lost. Every later call raises `Fenced`."""

    def left_state(self) -> TakenState | None:
        """Return the fold of the records, to continue from; None if another host may have
        written.
        """
        return None

    async def note_index(self) -> None:
        """Update the agent's entry in the index although nothing was recorded."""
        return

    # ------------------------------------------------------------------- checkpoints

    def write_checkpoints(self, loaded: Loaded | None) -> None:
        """Write checkpoints of the agent from now on, each together with the records of a commit.

        Args:
            loaded: the records from which its state was folded at activation; None for a new
                agent.

        """
        return

    def write_last_checkpoint(self) -> None:
        """Write a checkpoint when the agent leaves memory, if enough was recorded since the last.

        It never waits. The next owner finds the checkpoint.
        """
        return

    # ------------------------------------------------------------------- files

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        """Keep bytes of files, by their hashes, in the commit of the records appended last.

        Raises:
            UsageError: if the store keeps no files.

        """
        raise UsageError("the store of this runtime keeps no files: see `Store.keeps`")

    async def load_blobs(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        """Return the bytes of the files with these hashes, if they are kept."""
        raise UsageError("the store of this runtime keeps no files: see `Store.keeps`")

    # ------------------------------------------------------------------- spending

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Settle what calls have spent, in the commit of the records appended last.

        Raises:
            UsageError: if the store keeps no spending, an amount cannot be kept, or a call
                belongs to another agent.

        """
        raise UsageError("the store of this runtime keeps no spending: see `Store.keeps`")

    # ------------------------------------------------------------------- keys of calls

    @property
    def call_keys(self) -> CallKeys | None:
        """The object through which calls of the agent take keys; None if the store keeps no
        keys.
        """
        return None

    def follow_keys(self) -> None:
        """Keep the keys of calls up to date from now on, in the commits of the agent's records.

        It is called at the activation of an agent that has keys, or at its first key.
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
