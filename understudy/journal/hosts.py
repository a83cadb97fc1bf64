"""What a store that hosts share knows of them: what each can run, and which of them have ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import Owned


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedDefinition:
    """A definition that a host has, as other hosts need to know it."""

    agent: str
    """Its name."""
    fingerprint: str
    """What tells it from the other definitions of this name."""
    version: int = 0
    """A higher one is newer. Of one version, the definition is newer that was seen later."""
    needs: frozenset[str] = frozenset()
    """The labels that a host must have to run it."""
    continues_older: bool = True
    """Whether runs that an older definition has begun go on on this one."""


@runtime_checkable
class SharesHosts(Protocol):
    """An optional part of a backend that hosts share: they know of each other.

    Its methods but `introduce`, `end_dead_hosts` and `ended_leases` are the writer's.
    """

    def introduce(self, labels: Collection[str]) -> None:
        """Say what this host has, before `open`."""

    def register(self, definitions: Sequence[HostedDefinition]) -> None:
        """Say which definitions this host has, besides those that it has said already.

        From then on `claim` refuses agents of theirs that this host must not run, by `UnfitHost`.
        """

    def set_draining(self) -> None:
        """Say that this host takes no agents any more: `claim` refuses all by `UnfitHost`."""

    def claim_to_keep(self, agent_id: str, agent: str) -> Owned | None:
        """As `Backend.claim`, also of an agent that this host must not run: to write it alone."""

    def give(
        self,
        agent_id: str,
        agent: str,
        created: EncodedRecord | None,
        needs: Collection[str] | None = None,
    ) -> str | None:
        """Make another living host that may run an agent its owner, where it has none.

        That host has it in no memory: the host that gives it posts to it then.

        Args:
            agent_id: its id. If there is no such agent, it begins.
            agent: the name of its definition.
            created: its first record, if it begins.
            needs: where its definition is made: what it needs of a host that makes definitions
                (agent `"*"`). None: only a host that has its definition fits.

        Returns:
            The name of that host; None where none lives, and nothing has changed.

        Raises:
            OwnedElsewhere: if a living host owns it.

        """

    def end_dead_hosts(self) -> int:
        """End the leases of hosts whose processes have ended for certain. The heartbeat's thread.

        Those of the same boot of the same machine, with the same pids. A process that is stopped
        has not ended, and of those elsewhere nothing is known: their leases judge.

        Returns:
            How many there were.

        """

    def ended_leases(self) -> tuple[int, float]:
        """Look for hosts whose leases have ended by themselves. The heartbeat's thread.

        Returns:
            How many there are of which that was not told before; and the seconds until the next of
            the others ends, if that host does not renew it. Infinity if there is none.

        """
