"""`StoredKeys`: the keys of calls in a database, for the journals of the agents of its store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from understudy.errors import SchemaVersionError, StoreDamaged, StoreUnavailable
from understudy.journal.backend import Backend
from understudy.journal.call_keys import KeyTaking, KeyUse, key_hash
from understudy.journal.contracts import Owned
from understudy.journal.database_threads import DatabaseThreads
from understudy.state.agent_state import AgentState

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1
"""Seconds before a key is tried again that another host is about to take."""


class StoredKeys:
    """The keys of calls in a database.

    Args:
        backend: the database.
        threads: of its store.
        patience: seconds for which a key is tried that another host is about to take.

    """

    def __init__(self, backend: Backend, threads: DatabaseThreads, *, patience: float) -> None:
        self._backend = backend
        self._threads = threads
        self._patience = patience
        self._secret: bytes | None = None  # read by the first call that has a key

    async def hash_of(self, key: str) -> str:
        """As `OwnedJournal.key_hash`."""
        if self._secret is None:
            self._secret = await self._threads.read(self._backend.key_secret)
        return key_hash(key, self._secret)

    async def uses(self, key_hash: str, at: datetime) -> Sequence[KeyUse]:
        """As `Backend.key_uses`, after all that is queued for the next commit."""
        return await self._threads.change(partial(self._backend.key_uses, key_hash, at))

    async def take(self, owned: Owned, taking: KeyTaking) -> Sequence[KeyUse]:
        """As `Backend.take_key`, in the next transaction.

        Raises:
            StoreUnavailable: if another host is about to take the key, and does not get further.

        """
        end, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            found = await self._threads.change(partial(self._backend.take_key, owned, taking))
            if found is not None:
                return found
            if time.monotonic() > end:
                raise StoreUnavailable(cause="another host is about to take the key of a call")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def free(self, key_hash: str, use: KeyUse) -> None:
        """As `Backend.free_key`."""
        await self._threads.change(partial(self._backend.free_key, key_hash, use))

    async def state_of(self, use: KeyUse) -> AgentState | None:
        """As `OwnedJournal.state_of_use`."""
        try:
            loaded = await self._threads.load_latest(use.agent_id)
            if loaded is None or loaded.agent.incarnation != use.incarnation:
                return None
            return loaded.folded()
        except (SchemaVersionError, StoreDamaged):
            return None

    async def delete_old(self, before: datetime) -> None:
        """Delete the keys whose time was over before; nothing is written where there are none."""
        if await self._threads.read(partial(self._backend.has_old_keys, before)):
            await self._threads.change(partial(self._backend.delete_old_keys, before))
