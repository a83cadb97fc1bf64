"""`Store`: keeps the records of a runtime's agents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from understudy._base.clock import Clock, SystemClock
from understudy.errors import UsageError
from understudy.journal.contracts import IndexEntry, LostAttempt, Owned, StoredAgent
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
    """Keeps the records of many agents. Used on one event loop, the runtime's.

    The change of each method is durable when it returns. A database that cannot be reached is
    retried for some time; then its `StoreUnavailable` is raised.
    """

    feed_clock: Clock = SystemClock()
    """The runtime's. It says when an agent was deleted, of which there is no record."""

    @property
    def host(self) -> str | None:
        """The name of this runtime in the index of the agents; None where it needs none."""
        return None

    @property
    def restored(self) -> bool:
        """Whether this is an older copy of the store: what its agents did since then is unknown."""
        return False

    @property
    def shared(self) -> SharedStore | None:
        """What hosts that share the store have of it; None where it is for one host."""
        return None

    @property
    def spending(self) -> Spending | None:
        """The counters of what calls reserve and spend; None where the store keeps none."""
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
        """Commit what is queued, release the agents, disconnect."""

    @abstractmethod
    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        """As `Backend.claim`."""

    async def claim_to_keep(self, agent_id: str, agent: str) -> Owned | None:
        """As `claim`, also of an agent that this host must not run: to write it alone."""
        return await self.claim(agent_id, agent)

    @abstractmethod
    async def release(self, owned: Owned, lost: LostAttempt | None = None) -> bool:
        """As `Backend.release`, if other runtimes can use this store; else True.

        Args:
            owned: the claim to give up.
            lost: the attempt that another runtime cut off by taking over, if one did.

        """

    async def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        """The numbers of this run's attempts that were cut off so."""
        return frozenset()

    @abstractmethod
    def journal(self, owned: Owned, agent: JournalledAgent) -> OwnedJournal:
        """The journal in which the owner of an agent writes, under its claim."""

    @abstractmethod
    async def compact(
        self, owned: Owned, snapshot: Record, entry: IndexEntry, messages: Messages | None = None
    ) -> Owned:
        """Replace all records so far by a snapshot. Nothing else may be appended meanwhile.

        Args:
            owned: the claim to write under.
            snapshot: of the agent's state.
            entry: what the index says of the agent.
            messages: those that follow the snapshot, in records of their own; None if it has all.

        Returns:
            The same claim, with the number of the last of these records as its newest.

        """

    @abstractmethod
    async def delete(self, agent_id: str, by: str | None = None) -> bool:
        """Delete an agent, but keep a tombstone: when, and by whom (`by`).

        Returns whether there was such an agent.
        """

    async def retire(self, agents: Sequence[StoredAgent], by: str | None = None) -> set[str]:
        """Delete those of these agents that have not changed since they were read: their ids.

        As `Backend.retire_all`; each leaves what `delete` leaves.
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
        """Look at some of what deletions before a time have left, as `Backend.delete_tombstones`.

        The next call goes on behind these.
        """
        return

    async def vacuum(self, *, whole: bool = False) -> Vacuumed:
        """Give back the room that deletions have left; others go on meanwhile, unless `whole`.

        Raises:
            UsageError: if the store cannot do so.

        """
        raise UsageError(f"{self!r} has no room to give back: only databases do")

    async def delete_old_keys(self, before: datetime) -> None:
        """Delete the keys of calls whose time was over before."""
        return

    async def add_note(self, agent_id: str, request_id: str, note: RequestNote) -> bool:
        """As `Backend.add_note`.

        Raises:
            UsageError: if no notes are kept.

        """
        raise UsageError(f"{self!r} keeps no notes beside requests: 'notes' is not in its `keeps`")

    async def sweep_notes(self, now: datetime) -> None:
        """As `Backend.sweep_notes`."""
        return

    async def turn_feed(self, on: bool) -> None:
        """As `Backend.turn_feed`."""
        raise UsageError(f"{self!r} keeps no feed")

    async def trim_feed(self, before: datetime, keep: int) -> None:
        """As `Backend.trim_feed`."""
        return

    async def turn_search(self, on: bool) -> None:
        """As `Backend.turn_search`."""
        raise UsageError(f"{self!r} keeps no search: 'search' is not in its `keeps`")

    async def index_more(self) -> bool:
        """Do a slice of the work on the index of the search. Returns whether there was any."""
        return False

    async def change_outbox(self, change: Callable[[Outbox], T]) -> T:
        """Have a function change the outbox, in one transaction. It may be called twice.

        Raises:
            UsageError: if the store keeps none.

        """
        raise UsageError(f"{self!r} keeps no notices: 'notices' is not in its `keeps`")

    # ------------------------------------------------------------------- the log of trust

    @property
    def trust_seen(self) -> int:
        return 0

    def follow_trust(self) -> None:
        return

    async def add_trust(self, fact: TrustFact) -> bool:
        raise UsageError(
            f"{self!r} keeps no log of trust, in which {fact.kind!r} would be: 'trust' is not in "
            "its `keeps`"
        )


def hashes_of(snapshot: Record) -> frozenset[str]:
    """The hashes of the files that a snapshot's state has."""
    assert isinstance(snapshot, Snapshot), "what takes the place of an agent's records"
    return hashes_in(snapshot.state)
