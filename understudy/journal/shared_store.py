"""`SharedStore`: what hosts that share a store have of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

from understudy._base.lookout import Hints
from understudy.errors import StoreBroken
from understudy.journal.codec import encode
from understudy.journal.database_threads import DatabaseThreads
from understudy.journal.owned_journal import OwnedJournal
from understudy.journal.reads import of_backend
from understudy.journal.shared import (
    Hint,
    Neighbours,
    Notified,
    SharedBackend,
    Taken,
    hint_of,
)
from understudy.journal.taken_states import TakenStates
from understudy.state.records import Record

_LEFT = str(Hint("left"))
FEW_RECORDS = 64
"""The most records that are read with a claim."""


class SharedStore:
    """What hosts that share a store have of it. Used on the runtime's loop, as the store.

    Methods without a docstring are those of `SharedBackend`.

    Args:
        backend: the database.
        threads: of the store.
        taken: the states of agents that other hosts have taken.
        max_bytes: a larger record is refused.

    """

    def __init__(
        self,
        backend: SharedBackend,
        threads: DatabaseThreads,
        taken: TakenStates,
        *,
        max_bytes: int,
    ) -> None:
        self.backend = backend
        self.read: Final = threads.read
        self.change: Final = threads.change
        self._threads = threads
        self._taken = taken
        self._max_bytes = max_bytes
        self.trust_heard: int = 0
        """The highest number of a fact of the log of trust of which another host has told."""
        self.on_trust_heard: Callable[[], None] | None = None
        """The function that is called on the loop when another host tells of a fact of trust."""

    @property
    def host_id(self) -> int | None:
        return self.backend.host_id

    def listen(self, notified: Notified | None) -> None:
        """Listen from the next opening of the store on. `notified` is called on the loop."""
        if notified is None:
            self.backend.listen(None)
            return
        loop = asyncio.get_running_loop()

        def tell(text: str | None) -> None:
            with suppress(RuntimeError):  # the loop is closed, and its runtime with it
                hint = None if text is None else hint_of(text)
                if hint is not None and hint.kind == "trust":
                    loop.call_soon_threadsafe(self._hear_of_trust, hint.number)
                    return
                loop.call_soon_threadsafe(notified, text)
                if text is None:
                    # A fact of the log of trust may have been missed: the renewal brings its number
                    # (test_what_waited_begins_at_each_host_without_a_sweep).
                    loop.call_soon_threadsafe(lambda: self._threads.lease.renew_soon())
                if text in (None, _LEFT):
                    loop.call_soon_threadsafe(lambda: self.dead_hosts.give())

        self.backend.listen(tell)

    @property
    def neighbours(self) -> Neighbours | None:
        return self.backend.neighbours

    def tell_neighbours(self, changed: Callable[[], None]) -> None:
        """Call a function on the loop when the neighbours change, from the next opening on."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed, and its runtime with it
                loop.call_soon_threadsafe(changed)

        self.backend.on_neighbours = tell

    async def secret(self) -> bytes:
        """The secret that the store was made with: no one else than its hosts knows it."""
        return await self._threads.key_secret()

    def _hear_of_trust(self, number: int) -> None:
        """Another host has added the fact of this number to the log of trust."""
        self.trust_heard = max(self.trust_heard, number)
        if self.on_trust_heard is not None:
            self.on_trust_heard()

    # ------------------------------------------------------------------- hosts

    def introduce(self, labels: Collection[str]) -> None:
        self.backend.introduce(labels)

    register: Final = of_backend(SharedBackend.register, by="change")
    set_draining: Final = of_backend(SharedBackend.set_draining, by="change")

    async def give(
        self,
        agent_id: str,
        agent: str,
        created: Record | None,
        needs: Collection[str] | None = None,
    ) -> str | None:
        first = None if created is None else encode(created, max_bytes=self._max_bytes)
        return await self.change(partial(self.backend.give, agent_id, agent, first, needs))

    @property
    def dead_hosts(self) -> Hints:
        """Hints that a host may have left something that this one was not told of.

        A lease has ended, or was ended here because its process has ended; a host has closed; or
        an agent may have been given to this host while it did not hear the others. Each time that
        the store opens they are others.
        """
        return self._threads.lease.dead_hosts

    # ------------------------------------------------------------------- agents

    async def take(
        self,
        agent_id: str,
        agent: str | None,
        *,
        at_rest: bool = True,
        creates: bool = True,
        loads: bool = False,
    ) -> Taken | None:
        """Take an agent; see `SharedBackend.take`.

        Args:
            agent_id, agent, at_rest, creates: as of `SharedBackend`.
            loads: whether it is read, too, where that takes no more than a few records.

        """
        left = self._taken.find(agent_id) if loads else None

        def take() -> Taken | None:
            owned = self.backend.take(agent_id, agent, at_rest=at_rest, creates=creates)
            if owned is None:
                return None
            # Here and not in the reader's thread, which would have to wait for the claim: a few
            # records are decoded while the others wait for their commit.
            if left is None or owned.last_seq - left.woken.seq > FEW_RECORDS:
                return Taken(owned)
            return Taken(owned, left.read(self.backend.load_claimed))

        try:
            return await self._threads.claim_by(agent_id, take)
        except StoreBroken:
            # If it is that read, the commits beside it broke, too: the next one is made apart
            # (test_a_read_that_breaks_a_claim_is_not_made_with_the_next_one).
            self._taken.forget(agent_id)
            raise

    def keep_left(self, journal: OwnedJournal) -> None:
        """Another host has taken the agent of this journal: keep its state for a while."""
        left = journal.left_state()
        if left is not None:
            self._taken.keep(left)

    place: Final = of_backend(SharedBackend.place)

    # ------------------------------------------------------------------- calls

    post: Final = of_backend(SharedBackend.post, by="change")
    begin_post: Final = of_backend(SharedBackend.begin_post, by="change")
    reply: Final = of_backend(SharedBackend.reply, by="change")
    remove_posts: Final = of_backend(SharedBackend.remove_posts, by="change")
    withdraw: Final = of_backend(SharedBackend.withdraw, by="change")
    retell: Final = of_backend(SharedBackend.retell, by="change")
    delete_lost_replies: Final = of_backend(SharedBackend.delete_lost_replies, by="change")
    tell: Final = of_backend(SharedBackend.tell, by="change")
    posted: Final = of_backend(SharedBackend.posted)
    post_states: Final = of_backend(SharedBackend.post_states)
    orphans: Final = of_backend(SharedBackend.orphans)
    send: Final = of_backend(SharedBackend.send)
