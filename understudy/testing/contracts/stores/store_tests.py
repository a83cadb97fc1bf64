"""`StoreTests`: the base of the tests of a store, which makes the stores to judge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import ClassVar

from understudy import AgentState
from understudy.journal import (
    IndexEntry,
    IndexStatus,
    JournalledAgent,
    Loaded,
    Owned,
    OwnedJournal,
    Store,
    StoredAgent,
)
from understudy.state.records import Once, Record
from understudy.testing.contracts.contract import Contract


class Standing(JournalledAgent):
    """An agent that nothing runs. The index has the values that a test has set."""

    def __init__(self, status: IndexStatus = IndexStatus.REST, due: datetime | None = None) -> None:
        self.entry: IndexEntry = IndexEntry(status, due)

    def ledger_state(self) -> AgentState:
        return AgentState()

    def index_entry(self) -> IndexEntry:
        return self.entry


class StoreTests(Contract):
    """Tests of stores on the data of one test, which is empty at first."""

    _required: ClassVar[tuple[str, ...]] = ("new_store",)

    def new_store(self) -> Store:
        """A store of this test, not open yet. Override it.

        It is called again for the next process, after the earlier store was closed. The next store
        keeps the same agents. If a store keeps its agents in this process, return the same object.
        `self.folder` is an empty folder of this test.
        """
        raise self._missing("new_store")

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Store]:
        """An open store."""
        store = self.new_store()
        await store.open(lambda: None)
        try:
            yield store
        finally:
            await store.close()


def record(value: str = "x") -> Once:
    """A record with a value."""
    return Once(key="k", value=value)


async def claim(store: Store, agent_id: str = "a", agent: str | None = "desk") -> Owned:
    """Claim a new agent."""
    owned = await store.claim(agent_id, agent)
    assert owned is not None, f"agent {agent_id!r} is not claimed"
    return owned


async def begin(
    store: Store,
    agent_id: str = "a",
    *values: str,
    standing: Standing | None = None,
) -> OwnedJournal:
    """Claim an agent, and record these values."""
    journal = store.journal(await claim(store, agent_id), standing or Standing())
    await write(journal, *values)
    return journal


async def write(journal: OwnedJournal, *values: str) -> None:
    """Record these values; they are durable on return."""
    if values:
        journal.append([record(value) for value in values])
        await journal.durable()


async def loaded(store: Store, agent_id: str = "a", after: int = 0) -> Loaded:
    """The stored records of an existing agent."""
    found = await store.load(agent_id, after)
    assert found is not None, f"agent {agent_id!r} is not there"
    return found


async def stored(store: Store, agent_id: str = "a") -> StoredAgent:
    """The index entry of an existing agent."""
    return (await loaded(store, agent_id)).agent


async def values(store: Store, agent_id: str = "a", after: int = 0) -> list[str]:
    """The recorded values of an agent."""
    return said((await loaded(store, agent_id, after)).records)


def said(records: Sequence[Record]) -> list[str]:
    """The values of these records."""
    return [each.value for each in records if isinstance(each, Once)]


async def ids(store: Store, *statuses: IndexStatus) -> list[str]:
    """The ids of the agents with one of these statuses; of all agents without one."""
    return [agent.agent_id async for agent in store.agents(statuses or None)]
