"""`SharedDatabase`: the part of a `DatabaseStore` whose backend many hosts share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from understudy.errors import StoreBroken
from understudy.journal.agent_journal import AgentJournal
from understudy.journal.committer import Changes
from understudy.journal.contracts import Journal
from understudy.journal.left_states import LeftStates
from understudy.journal.shared import (
    Hint,
    Place,
    Post,
    Posted,
    PostState,
    Sent,
    SharedBackend,
    Taken,
    Told,
    Wanted,
)
from understudy.journal.store_reader import StoreReader

T = TypeVar("T")
_LEFT = str(Hint("left"))
FEW_RECORDS = 64
"""So many, at most, are read with a claim."""


class SharedDatabase:
    """A `SharedStore` over the threads of a store.

    Args:
        backend: the database.
        reader: of the store.
        change: has the writer's thread do something in the next transaction.
        claim: claims an agent by a function of the backend, under the lease of the store.
        missed: called on the loop where this host did not hear the others for a while, or one of
            them has left something.
        left: the states of agents that other hosts have taken.

    """

    def __init__(
        self,
        backend: SharedBackend,
        reader: StoreReader,
        change: Changes,
        claim: Callable[[str, Callable[[Any], Taken | None]], Awaitable[Taken | None]],
        missed: Callable[[], None],
        left: LeftStates,
    ) -> None:
        self._backend = backend
        self._reader = reader
        self._change = change
        self._claim = claim
        self._missed = missed
        self._left = left

    @property
    def host_id(self) -> int | None:
        return self._backend.host_id

    @property
    def time_offset(self) -> float:
        return self._backend.time_offset

    def listen(self, told: Told | None) -> None:
        if told is None:
            self._backend.listen(None)
            return
        loop = asyncio.get_running_loop()

        def tell(text: str | None) -> None:
            with suppress(RuntimeError):  # the loop is closed, and its runtime with it
                loop.call_soon_threadsafe(told, text)
                if text in (None, _LEFT):
                    loop.call_soon_threadsafe(self._missed)

        self._backend.listen(tell)

    async def take(
        self,
        agent_id: str,
        agent: str | None,
        *,
        at_rest: bool = True,
        creates: bool = True,
        loads: bool = False,
    ) -> Taken | None:
        left = self._left.find(agent_id) if loads else None

        def take(backend: SharedBackend) -> Taken | None:
            owned = backend.take(agent_id, agent, at_rest=at_rest, creates=creates)
            if owned is None:
                return None
            # Here and not in the reader's thread, which would have to wait for the claim: a few
            # records are decoded while the others wait for their commit.
            if left is None or owned.last_seq - left.woken.seq > FEW_RECORDS:
                return Taken(owned)
            return Taken(owned, left.read(backend.load_claimed))

        try:
            return await self._claim(agent_id, take)
        except StoreBroken:
            # If it is that read, the commits beside it broke, too: the next one is made apart
            # (test_a_read_that_breaks_a_claim_is_not_made_with_the_next_one).
            self._left.forget(agent_id)
            raise

    async def post(self, agent_id: str, incarnation: int, posts: Sequence[Post]) -> list[int]:
        return await self._change(lambda backend: backend.post(agent_id, incarnation, posts))

    async def begin_post(self, id: int, attempt: str) -> bool:
        return await self._change(lambda backend: backend.begin_post(id, attempt))

    async def reply(self, id: int, reply: bytes) -> None:
        await self._change(lambda backend: backend.reply(id, reply))

    async def remove_posts(self, ids: Sequence[int]) -> None:
        await self._change(lambda backend: backend.remove_posts(ids))

    async def withdraw(self, ids: Sequence[int]) -> Mapping[int, bool]:
        return await self._change(lambda backend: backend.withdraw(ids))

    async def retell(self, id: int) -> None:
        await self._change(lambda backend: backend.retell(id))

    async def delete_lost_replies(self) -> None:
        await self._change(lambda backend: backend.delete_lost_replies())

    async def tell(self, host_id: int, hint: Hint) -> None:
        await self._change(lambda backend: backend.tell(host_id, hint))

    async def posted(self, wanted: Wanted) -> Sequence[Posted]:
        return await self._reader.read(partial(self._backend.posted, wanted))

    async def post_states(self, ids: Sequence[int]) -> Mapping[int, PostState]:
        return await self._reader.read(partial(self._backend.post_states, ids))

    async def place(self, agent_id: str) -> Place | None:
        return await self._reader.read(partial(self._backend.place, agent_id))

    async def epochs(self, agent_ids: Sequence[str]) -> Mapping[str, int]:
        return await self._reader.read(partial(self._backend.epochs, agent_ids))

    async def orphans(self, limit: int) -> Sequence[tuple[str, str]]:
        return await self._reader.read(partial(self._backend.orphans, limit))

    def keep_left(self, journal: Journal) -> None:
        if isinstance(journal, AgentJournal):
            left = journal.left_state()
            if left is not None:
                self._left.keep(left)

    async def send(self, sent: Sequence[Sent]) -> None:
        await self._reader.read(partial(self._backend.send, sent))
