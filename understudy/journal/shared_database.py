"""`SharedDatabase`: the part of a `DatabaseStore` whose backend many hosts share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from understudy.journal.agent_journal import AgentJournal
from understudy.journal.contracts import Journal, Owned
from understudy.journal.left_states import LeftStates
from understudy.journal.shared import (
    Hint,
    Place,
    Post,
    Posted,
    PostState,
    Sent,
    SharedBackend,
    Told,
    Wanted,
)
from understudy.journal.store_reader import StoreReader

T = TypeVar("T")
_LEFT = str(Hint("left"))


class Changes(Protocol):
    """Has the writer's thread do something."""

    async def __call__(self, function: Callable[[Any], T]) -> T: ...


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
        claim: Callable[[str, Callable[[Any], Owned | None]], Awaitable[Owned | None]],
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
        loop, has_listened = asyncio.get_running_loop(), False

        def tell(text: str | None) -> None:
            nonlocal has_listened
            with suppress(RuntimeError):  # the loop is closed, and its runtime with it
                loop.call_soon_threadsafe(told, text)
                if text == _LEFT or (text is None and has_listened):
                    loop.call_soon_threadsafe(self._missed)
            has_listened = True

        self._backend.listen(tell)

    async def take(self, agent_id: str, agent: str | None) -> Owned | None:
        return await self._claim(agent_id, lambda backend: backend.take(agent_id, agent))

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
