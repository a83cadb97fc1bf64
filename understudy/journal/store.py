"""`Store`: keeps the records of a runtime's agents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from understudy._base.clock import Clock, SystemClock
from understudy.errors import UsageError
from understudy.journal.contracts import IndexEntry, LostAttempt, Owned, StoredAgent
from understudy.journal.kept import not_kept
from understudy.journal.owned_journal import JournalledAgent, OwnedJournal
from understudy.journal.reads import StoreReads
from understudy.journal.shared_store import SharedStore
from understudy.models.messages import Messages
from understudy.state.agent_state import hashes_in
from understudy.state.records import Record, Snapshot
from understudy.state.request_notes import RequestNote
from understudy.state.trust_log import TrustFact, TrustLog

if TYPE_CHECKING:
    from understudy.journal.notices import Outbox
    from understudy.journal.spending import Spending
    from understudy.journal.vacuum import Vacuumed

T = TypeVar("T")


class Store(StoreReads, TrustLog):
    """Keeps the records of many agents. It is used on one event loop, the loop of the runtime.

    The change of each method is durable when the method returns. A database that cannot be reached
    is retried for some time; then the method raises `StoreUnavailable`.
    """

    feed_clock: Clock = SystemClock()
    """The clock of the runtime. It gives the time of a deletion, which has no record."""

    @property
    def host(self) -> str | None:
        """The name of this runtime in the index of the agents; None if the store needs none."""
        return None

    @property
    def restored(self) -> bool:
        """Whether this is an older copy of the store. What its agents did since the copy is
        unknown.
        """
        return False

    @property
    def shared(self) -> SharedStore | None:
        """The parts of the store that its hosts share; None if the store is for one host."""
        return None

    @property
    def spending(self) -> Spending | None:
        """The counters of what calls reserve and spend; None if the store keeps none."""
        return None

    @property
    def is_alone(self) -> bool:
        return self.shared is None

    @abstractmethod
    async def open(self, on_lost: Callable[[], None]) -> None:
        """Connect. `on_lost` is called on the loop whenever the lease on the agents has ended.

        Raises:
            StoreInUse, StoreUnavailable, StoreBroken, SchemaVersionError: as of the backend.

        """

    @abstractmethod
    async def close(self) -> None:
        """Commit what is queued, release the agents, and disconnect."""

    @abstractmethod
    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        """Become the owner of an agent, as `Backend.claim`."""

    async def claim_to_keep(self, agent_id: str, agent: str) -> Owned | None:
        """Become the owner of an agent, even if this host must not run it, only to write to it."""
        return await self.claim(agent_id, agent)

    @abstractmethod
    async def release(self, owned: Owned, lost: LostAttempt | None = None) -> bool:
        """Give up an agent, as `Backend.release`; return True if no other runtime can use this
        store.

        Args:
            owned: the claim to give up.
            lost: the attempt that another runtime cut off by taking the agent; None if none
                was.

        """

    async def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        """Return the numbers of the attempts of a run that were cut off by another runtime."""
        return frozenset()

    @abstractmethod
    def journal(self, owned: Owned, agent: JournalledAgent) -> OwnedJournal:
        """Return the journal in which the owner of an agent writes, under its claim."""

    @abstractmethod
    async def compact(
        self, owned: Owned, snapshot: Record, entry: IndexEntry, messages: Messages | None = None
    ) -> Owned:
        """Replace all records so far by a snapshot. Nothing else may be appended meanwhile.

        Args:
            owned: the claim to write under.
            snapshot: the snapshot of the agent's state.
            entry: the agent's entry in the index.
            messages: the messages after the snapshot, in records of their own; None if the
                snapshot has all.

        Returns:
            The same claim, with the number of the last of these records as its newest.

        """

    @abstractmethod
    async def delete(self, agent_id: str, by: str | None = None) -> bool:
        """Delete an agent, but keep a tombstone with the time and the person (`by`).

        Return whether there was such an agent.
        """

    async def retire(self, agents: Sequence[StoredAgent], by: str | None = None) -> set[str]:
        """Delete the agents that have not changed since they were read, and return their ids.

        It works as `Backend.retire_all`. Each deletion leaves what `delete` leaves.
        """
        gone = set()
        for agent in agents:
            owned = await self.claim(agent.agent_id, None)
            if owned is None:
                continue
            now = owned.incarnation, owned.epoch - 1, owned.last_seq
            if now != (agent.incarnation, agent.epoch, agent.last_seq):
                await self.release(owned)
            elif await self.delete(agent.agent_id, by):
                gone.add(agent.agent_id)
        return gone

    async def delete_old_tombstones(self, before: datetime) -> None:
        """Delete some of what deletions before a time have left, as `Backend.delete_tombstones`.

        The next call continues after these.
        """
        return

    async def vacuum(self, *, whole: bool = False) -> Vacuumed:
        """Give back the space that deletions have left. Other calls continue meanwhile, unless
        `whole`.

        Raises:
            UsageError: if the store cannot do it.

        """
        raise UsageError(f"{self!r} has no room to give back: only databases do")

    async def delete_old_keys(self, before: datetime) -> None:
        """Delete the keys of calls whose time was over before this time."""
        return

    async def add_note(self, agent_id: str, request_id: str, note: RequestNote) -> bool:
        """Keep a note beside a request, as `Backend.add_note`.

        Raises:
            UsageError: if the store keeps no notes.

        """
        raise not_kept(self, "notes")

    async def sweep_notes(self, now: datetime) -> None:
        """Delete old notes, as `Backend.sweep_notes`."""
        return

    async def turn_feed(self, on: bool) -> None:
        """Turn the feed on or off, as `Backend.turn_feed`."""
        raise not_kept(self, "feed")

    async def trim_feed(self, before: datetime, keep: int) -> None:
        """Remove old events of the feed, as `Backend.trim_feed`."""
        return

    async def turn_search(self, on: bool) -> None:
        """Make or remove the index of the search, as `Backend.turn_search`."""
        raise not_kept(self, "search")

    async def index_more(self) -> bool:
        """Do a part of the work on the index of the search. Return whether there was any work."""
        return False

    async def change_outbox(self, change: Callable[[Outbox], T]) -> T:
        """Let a function change the outbox in one transaction. The function may be called twice.

        Raises:
            UsageError: if the store keeps no outbox.

        """
        raise not_kept(self, "notices")

    # ------------------------------------------------------------------- the log of trust

    @property
    def trust_seen(self) -> int:
        return 0

    def follow_trust(self) -> None:
        return

    async def add_trust(self, fact: TrustFact) -> bool:
        raise not_kept(self, "trust")


def hashes_of(snapshot: Record) -> frozenset[str]:
    """The hashes of the files that a snapshot's state has."""
    assert isinstance(snapshot, Snapshot), "what takes the place of an agent's records"
    return hashes_in(snapshot.state)
