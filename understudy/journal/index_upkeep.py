"""`IndexUpkeep`: indexes the agents that a host of an older version has written to last."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from understudy._base.log_fields import log_extra
from understudy.errors import StoreUnavailable, UnderstudyError
from understudy.journal.committer import Changes
from understudy.journal.contracts import CountsHosts, StatusIndex, StoredAgent
from understudy.journal.index_status import index_entry_of
from understudy.journal.store_reader import PAGE, Loaded, StoreReader
from understudy.state.records import StatusNoted

logger: logging.Logger = logging.getLogger(__name__)


class IndexUpkeep:
    """Keeps the index of a store complete while hosts of an older version write to it, too.

    Args:
        backend: the database.
        reader: of the store.
        load_latest: as `DatabaseStore.load_latest`.
        change: has the writer's thread do something in the next transaction.

    """

    def __init__(
        self,
        backend: StatusIndex,
        reader: StoreReader,
        load_latest: Callable[[str], Awaitable[Loaded | None]],
        change: Changes,
    ) -> None:
        self._backend = backend
        self._reader = reader
        self._load_latest = load_latest
        self._change = change
        self._indexed_after: tuple[int | None, int | None] = (None, None)
        """How many hosts there had been when the agents of older ones were indexed last, twice."""

    async def index_agents(self) -> None:
        """Index the agents whose records an older version of this library has written last."""
        index, after = self._backend, ""
        hosts: int | None = None
        if isinstance(index, CountsHosts):
            hosts = await self._reader.read(index.hosts_so_far)
        # All agents are looked at: so this is done only where a host of an older version is there,
        # or may have come and gone since. Twice, for one that was counted and not seen yet
        # (test_agents_are_looked_at_only_while_a_host_of_an_older_version_may_write).
        if hosts is not None and self._indexed_after == (hosts, hosts):
            return
        while page := await self._reader.read(partial(index.unindexed, after, PAGE)):
            for agent in page:
                await self._index(agent)
            after = page[-1].agent_id
        self._indexed_after = (self._indexed_after[1], hosts)

    async def _index(self, agent: StoredAgent) -> None:
        try:
            if agent.damage is not None:
                raise agent.damage
            loaded = await self._load_latest(agent.agent_id)
            if loaded is None or loaded.agent.last_seq != agent.last_seq:
                return  # its owner has written since, and has indexed it
            state = loaded.folded()
            with loaded.as_damage():
                entry = index_entry_of(state)
        except StoreUnavailable:
            raise
        except UnderstudyError as error:
            logger.error(
                "agent %r cannot be read: %r",
                agent.agent_id,
                error,
                extra=log_extra(agent.agent_id),
            )
            return
        noted = (record.at for record in reversed(loaded.records) if type(record) is StatusNoted)
        status_at = next(noted, None)

        await self._change(lambda _: self._backend.note_index(agent, entry, status_at))
