"""`DatabaseThreads`: the threads over a database: one writes, one reads, one renews, one opens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from understudy._base.worker_threads import WorkerThreads
from understudy.errors import Fenced
from understudy.journal.backend import Backend
from understudy.journal.codec import prepare_to_decode
from understudy.journal.committer import Change, CommitListener, Committer
from understudy.journal.contracts import Batch
from understudy.journal.lease import Lease
from understudy.journal.reads import DatabaseReads
from understudy.journal.shared import check_kept

if TYPE_CHECKING:
    from understudy.journal.spending import Spending

T = TypeVar("T")


class DatabaseThreads(DatabaseReads):
    """Has a database changed and read by threads, under the lease of this host.

    Args:
        backend: the database.
        patience: seconds for which it is retried while it cannot be reached.

    """

    def __init__(self, backend: Backend, *, patience: float) -> None:
        super().__init__(backend, patience=patience)
        self.committer: Committer = Committer(backend, patience=patience)
        """The writer's thread. There is a new one each time that the store opens."""
        self.lease: Lease = Lease(backend, patience=patience)
        """The lease of this host. There is a new one each time that the store opens."""
        # The term in which each agent was claimed that has no journal yet: the lease may end before
        # it has one (test_what_was_claimed_under_a_lease_that_ended_meanwhile_is_lost).
        self._terms: dict[str, int] = {}
        self._key_secret: bytes | None = None
        self._opener = WorkerThreads(1, name="understudy-opener")

    @property
    def queued(self) -> int:
        """How many jobs wait for the next commit."""
        return self.committer.queued

    def tell_commits(self, listener: CommitListener | None) -> None:
        """Call this in the committer's thread after each transaction, until the store is closed.

        It must neither raise nor block.
        """
        self.committer.on_commit = listener

    async def key_secret(self) -> bytes:
        """The secret that the store was made with. The first call that has a key reads it."""
        if self._key_secret is None:
            self._key_secret = await self.read(self.backend.key_secret)
        return self._key_secret

    async def open(self, on_lost: Callable[[], None]) -> None:
        check_kept(self.backend)
        loop = asyncio.get_running_loop()
        self.committer = Committer(self.backend, patience=self.patience)
        self.lease = Lease(self.backend, patience=self.patience)

        def begin() -> None:
            self.backend.open()
            try:
                self.lease.begin(loop, on_lost)
                if self.lease.is_shared:  # callers wait while what other hosts have written is read
                    prepare_to_decode()
            except BaseException:
                self.backend.close()
                raise

        await self._opener.run(begin)
        self.committer.start()

    async def close(self) -> None:
        def end() -> None:
            self.committer.stop()
            self.lease.end()
            self.backend.close()

        await self._opener.run(end)
        self._opener.end_idle()
        self._reader.end_idle()

    @property
    def spending(self) -> Spending | None:
        """As `Store.spending`."""
        return None

    async def change(self, function: Callable[[], T], batch: Batch | None = None) -> T:
        """Have the writer's thread do a change of the backend, in the next transaction.

        Args:
            function: does it. Without a batch it may be done twice.
            batch: the records that it adds.

        """
        change = Change(function, batch)
        self.committer.put_alone(change)
        return await change.future

    async def claim_by(self, agent_id: str, claim: Callable[[], T | None]) -> T | None:
        """Claim an agent by a function of the backend; the result is None if it has not."""
        # Race: this against the end of the lease. The term from before the claim: a lease that ends
        # while the claim is under way takes the claim with it
        # (test_a_lease_that_ends_while_a_claim_is_under_way_takes_the_claim_with_it).
        # It has begun: else the claim would be refused under it, and wait for the end of it
        # (test_a_claim_between_two_leases_is_made_under_the_next_one).
        term = await self.lease.wait_until_begun()
        try:
            owned = await self.change(claim)
        except Fenced:
            # The lease was lost, of other agents. Before the heartbeat knows that and begins the
            # next one, every claim would be refused
            # (test_a_claim_that_finds_the_lease_lost_is_made_under_the_next_one).
            await self.lease.wait_for_next(term)
            if self.lease.term == term:
                raise  # not in time, or the store is closed
            return await self.claim_by(agent_id, claim)
        if owned is not None:
            self._terms[agent_id] = term
        # The lease holds in the database, but the heartbeat may not have its answer yet.
        await self.lease.wait_until_settled(term)
        return owned

    def term_of(self, agent_id: str) -> int:
        """The term of the lease in which an agent was claimed. It is forgotten then."""
        return self._terms.pop(agent_id, self.lease.term)

    async def read_records(self, load: Callable[[], T]) -> T:
        loaded = await self.read(load)
        # After an outage the read may be through before the heartbeat is.
        await self.lease.wait_until_settled(self.lease.term)
        return loaded
