"""`TrustFact`, `TrustLog`: facts that hold for a whole store, in one order for all of its hosts.

Which rules hold is such a fact. No agent has it: it holds for all agents, and each host must know
it. So it is in none of their records, but in a log of the store, which is only ever added to. The
number of its last fact is the *epoch of trust*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustFact:
    """A fact of the log of trust, as a store keeps it."""

    number: int
    """The first fact has the number 1, each other one that of the fact before and 1 more."""
    at: datetime
    by: str | None
    """The person who decided it; None where no person did, or nobody was named."""
    kind: str
    """What the fact is. `understudy.trust.facts` has the kinds."""
    data: Mapping[str, Any]
    """The rest of it, as JSON."""


class HostBehind(NamedTuple):
    """A host that has not said yet that it judges by a fact."""

    id: int
    name: str
    is_living: bool
    """Whether its lease has not ended."""


class TrustLog(ABC):
    """The log of trust of a store. Used on the runtime's loop."""

    on_trust: Callable[[], None] | None = None
    """Called on the loop where the log may have new facts of other hosts."""
    on_trust_at_once: Callable[[], None] | None = None
    """Called in any thread where the log may have new facts, before this host counts as the owner
    of its agents again, whose lease may have run out."""

    @property
    @abstractmethod
    def trust_seen(self) -> int:
        """The highest number of the log that this host has seen: the log is read up to there.

        It is that of the log when the store was opened; of each fact that was added here; of each
        renewal of the lease; and, after `follow_trust`, of each commit of records.
        """

    @abstractmethod
    def follow_trust(self) -> None:
        """From now on each commit of records brings the number of the last fact."""

    @abstractmethod
    async def trust_after(self, number: int) -> Sequence[TrustFact]:
        """The facts above a number, in order. None are there where no log is kept."""

    async def acknowledge_trust(self, number: int) -> None:
        """Say to the other hosts that this one judges by all facts up to a number."""
        return

    async def hosts_behind(self, number: int) -> Sequence[HostBehind]:
        """The other hosts that have not said that they judge by all facts up to a number."""
        return ()

    def provide(self, names: Collection[str]) -> None:
        """Before it opens, and whenever that changes: say what this host has, for the others."""
        return

    async def hosts_without(self, name: str) -> Sequence[HostBehind]:
        """The other hosts that have not said that they have something."""
        return ()

    async def require_trust(self, fact: TrustFact, name: str) -> bool:
        """As `add_trust`, where no other living host lacks what the fact requires.

        In the same transaction the leases of the others that lack it are ended for good, and their
        agents get a higher epoch: they write nothing more.

        Returns:
            False also where a living host lacks it.

        """
        return await self.add_trust(fact)

    @abstractmethod
    async def add_trust(self, fact: TrustFact) -> bool:
        """Add a fact, if its number is the next one.

        Whoever decides by what they have read decides so by the newest: between the read and this,
        nobody has added anything.

        Returns:
            False where another fact has the number, or there is none before it. It is True also
            where an attempt whose answer was lost has added this very fact.

        Raises:
            UsageError: if the store keeps no log of trust.

        """
