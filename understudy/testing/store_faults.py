"""`StoreFault`: how a write of a store fails."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from understudy._base.json_values import shown
from understudy.errors import Fenced, StoreBroken, StoreUnavailable, UsageError
from understudy.journal.agent_journal import AgentJournal
from understudy.journal.codec import EncodedRecord, decode
from understudy.journal.committer import Committer, Group
from understudy.journal.lease import Lease
from understudy.state.records import Record, innermost
from understudy.testing.placed_fault import PlacedFault, Refuse

Failure = Literal["unavailable", "broken", "answer_lost", "away", "lease_lost"]
_CAUSE = "the test says so"
_LEASE = 60.0
"""Seconds of the lease of a store for one host, in a block in which a lease is lost."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoreFault(PlacedFault):
    """A fault for `faults(store=...)`: how a write of a store fails.

    `at` counts the writes of records, from 1 up; with `of`, only writes with a record of this kind.
    A write is an attempt at a transaction. It may have the records of several steps and agents, so
    the number of writes depends on timing. A test that must fail at a certain record should use
    `of`. A retried write counts again.
    """

    _failure: Failure
    of: str | None = None
    """The kind of a record, such as `"started"` or `"result"`; None = any kind."""

    def __post_init__(self) -> None:
        PlacedFault.__post_init__(self)
        kinds = _kinds()
        if self.of is not None and self.of not in kinds:
            near = difflib.get_close_matches(str(self.of), kinds, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(kinds)}"
            raise UsageError(
                f"StoreFault: `of` is the kind of a record, got {shown(self.of)}: {remedy}"
            )

    @classmethod
    def unavailable(
        cls, *, of: str | None = None, at: int = 1, times: int | None = 1
    ) -> StoreFault:
        """Make a fault: the database cannot be reached. Nothing is written; the store tries
        again.
        """
        return cls(what="no database", _failure="unavailable", of=of, at=at, times=times)

    @classmethod
    def broken(cls, *, of: str | None = None, at: int = 1, times: int | None = 1) -> StoreFault:
        """Make a fault: the write fails for good, as on a full disk. Callers get `StoreBroken`."""
        return cls(what="a broken database", _failure="broken", of=of, at=at, times=times)

    @classmethod
    def answer_lost(
        cls, *, of: str | None = None, at: int = 1, times: int | None = 1
    ) -> StoreFault:
        """Make a fault: the write is committed and its answer is lost. The store checks if
        it was.
        """
        return cls(
            what="a commit whose answer is lost", _failure="answer_lost", of=of, at=at, times=times
        )

    @classmethod
    def away(cls, *, of: str | None = None, at: int = 1, times: int | None = 1) -> StoreFault:
        """Make a fault, at once: the database is away for longer than the store retries (30
        seconds).

        Callers get `StoreUnavailable`, and nothing is written.
        """
        return cls(what="a database that stays away", _failure="away", of=of, at=at, times=times)

    @classmethod
    def lease_lost(cls, *, of: str | None = None, at: int = 1, times: int | None = 1) -> StoreFault:
        """Make a fault, at once: the database is away for longer than the lease of this host.

        Other hosts may then have its agents, so callers get `Fenced`. If hosts share the store, the
        call continues at the host that has the agent next, which may be this host. The host gets a
        new lease. A store for one host has no lease: it gets one when it is opened in the block, so
        open the runtime inside the block.
        """
        return cls(what="a lease that is lost", _failure="lease_lost", of=of, at=at, times=times)


def _kinds() -> list[str]:
    return sorted(kind.__dataclass_fields__["kind"].default for kind in get_args(Record))


def kinds_in(group: Group) -> frozenset[str]:
    """The kinds of the records of a transaction, including records of inner agents."""
    batches = (batch for _, batch in group if batch is not None)
    return frozenset(_kind(record) for batch in batches for record in batch.records)


def _kind(stored: EncodedRecord) -> str:
    if stored.kind != "child_record":
        return stored.kind
    return innermost(decode(stored)).kind


class _StaysAway(Exception):
    """The signal that there is no further attempt, because the time is over."""


class FaultyWrites:
    """The faults between a store and its database.

    Args:
        next_fault: the function that gives the fault of the next write, by the kinds of its
            records.
        refuse: the function that notes why a fault cannot happen.

    """

    def __init__(
        self,
        next_fault: Callable[[frozenset[str]], StoreFault | None],
        refuse: Refuse,
    ) -> None:
        self._next_fault = next_fault
        self._refuse = refuse
        self._lock = threading.Lock()
        self._leases: dict[Lease, Committer] = {}
        """The leases whose next renewal is refused, each with the committer that writes under
        it."""

    def transaction(self, inner: Callable[..., Any], committer: Committer, group: Group) -> Any:
        """Stand around one attempt at a transaction."""
        with self._lock:
            if committer in self._leases.values():
                raise StoreUnavailable(cause=_CAUSE)
        kinds = kinds_in(group)
        fault = self._next_fault(kinds) if kinds else None
        if fault is None:
            return inner(committer, group)
        if fault._failure == "broken":
            raise StoreBroken(cause=_CAUSE, remedy="It is a planned fault: nothing is to be done.")
        if fault._failure == "away":
            raise _StaysAway
        if fault._failure == "answer_lost":
            inner(committer, group)
        elif fault._failure == "lease_lost":
            self._lose_lease(committer, group)
        raise StoreUnavailable(cause=_CAUSE)

    def commit(self, inner: Callable[..., Any], committer: Committer, group: Group) -> Any:
        """Stand around a transaction with its further attempts."""
        try:
            return inner(committer, group)
        except _StaysAway:
            raise StoreUnavailable(cause=_CAUSE) from None

    def renewal(self, inner: Callable[..., None], lease: Lease) -> None:
        """Stand around a renewal of a lease."""
        with self._lock:
            is_lost = self._leases.pop(lease, None) is not None
        if is_lost:
            raise Fenced(agent_id="*", why=_CAUSE)
        inner(lease)
        if not lease.is_shared:
            lease._length = _LEASE  # otherwise nothing is renewed, and nothing can be refused

    def _lose_lease(self, committer: Committer, group: Group) -> None:
        journals = (job for job, _ in group if isinstance(job, AgentJournal))
        lease = next(journals).threads.lease
        if not lease.is_shared:
            self._refuse(
                "StoreFault.lease_lost: the store was opened before the block, and is for one "
                "host, so it has no lease: open the runtime inside the block"
            )
            return
        with self._lock:
            self._leases[lease] = committer
        lease.renew_soon()
