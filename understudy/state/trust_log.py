"""`TrustFact`, `TrustLog`: facts that hold for a whole store, in one order for all of its hosts.

Such a fact is, for example, which rules hold. It holds for all agents, and each host must know it.
So it is in no agent's records, but in a log of the store that only grows. The number of its last
fact is the *epoch of trust*.
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
    """The number of the fact: 1 for the first, and 1 more for each next fact."""
    at: datetime
    by: str | None
    """The person who decided it; None if no person did, or nobody was named."""
    kind: str
    """The kind of the fact: see `understudy.trust.facts`."""
    data: Mapping[str, Any]
    """The content of the fact, as JSON."""


class HostBehind(NamedTuple):
    """A host that has not confirmed yet that it judges by a fact."""

    id: int
    name: str
    is_living: bool
    """Whether its lease has not ended."""


class TrustLog(ABC):
    """The log of trust of a store. Used on the runtime's loop."""

    on_trust: Callable[[], None] | None = None
    """Called on the loop when the log may have new facts of other hosts."""
    on_trust_at_once: Callable[[], None] | None = None
    """Called in any thread when the log may have new facts, before this host counts as the owner of
    its agents again after its lease may have run out."""

    @property
    @abstractmethod
    def trust_seen(self) -> int:
        """The highest number of the log that this host has seen: the log is read up to this number.

        It comes from the log when the store is opened, from each fact added here, from each renewal
        of the lease and, after `follow_trust`, from each commit of records.
        """

    @abstractmethod
    def follow_trust(self) -> None:
        """From now on each commit of records brings the number of the last fact."""

    @abstractmethod
    async def trust_after(self, number: int) -> Sequence[TrustFact]:
        """The facts above a number, in order. A store without a log has none."""

    async def acknowledge_trust(self, number: int) -> None:
        """Confirm to the other hosts that this host judges by all facts up to a number."""
        return

    async def hosts_behind(self, number: int) -> Sequence[HostBehind]:
        """The other hosts that have not confirmed that they judge by all facts up to a number."""
        return ()

    def provide(self, names: Collection[str]) -> None:
        """State what this host has, for the others: before it opens, and whenever that changes."""
        return

    async def hosts_without(self, name: str) -> Sequence[HostBehind]:
        """The other hosts that have not stated that they have something."""
        return ()

    async def require_trust(self, fact: TrustFact, name: str) -> bool:
        """Add a fact as by `add_trust`, unless another living host lacks what the fact requires.

        In the same transaction the leases of other hosts that lack it are ended for good, and their
        agents get a higher epoch: these hosts write nothing more.

        Returns:
            As `add_trust`; also False if a living host lacks it.

        """
        return await self.add_trust(fact)

    @abstractmethod
    async def add_trust(self, fact: TrustFact) -> bool:
        """Add a fact, if its number is the next one.

        So a caller that decides by what it read decides by the newest facts: nobody has added a
        fact since.

        Returns:
            False if another fact has the number, or the fact before it is missing. True also if an
            attempt whose answer was lost has added this very fact.

        Raises:
            UsageError: if the store keeps no log of trust.

        """
