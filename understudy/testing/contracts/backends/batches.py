"""Agents and records of a backend, in the words of `Backend`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from understudy.journal.backend import Backend
from understudy.journal.codec import EncodedRecord, decode, encode
from understudy.journal.contracts import (
    Batch,
    IndexEntry,
    IndexStatus,
    Owned,
    StoredAgent,
    StoredRecords,
)
from understudy.state.records import Once


def record(text: str = "x") -> EncodedRecord:
    return encode(Once(key="k", value=text))


@contextmanager
def commit(backend: Backend) -> Iterator[None]:
    backend.begin()
    yield
    backend.commit()


def claim(backend: Backend, agent_id: str = "a", agent: str | None = "support") -> Owned:
    with commit(backend):
        owned = backend.claim(agent_id, agent)
    assert owned is not None
    return owned


def batch(
    owned: Owned,
    *texts: str,
    first_seq: int | None = None,
    index_status: IndexStatus = IndexStatus.OPEN,
    due: datetime | None = None,
) -> Batch:
    """The next batch of this agent, unless `first_seq` says otherwise."""
    return Batch(
        agent_id=owned.agent_id,
        incarnation=owned.incarnation,
        epoch=owned.epoch,
        first_seq=owned.last_seq + 1 if first_seq is None else first_seq,
        records=tuple(map(record, texts)),
        entry=IndexEntry(index_status, due),
    )


def knowing(made: Batch) -> Batch:
    """The batch, from a writer that knows that the agent asks nothing."""
    made.asks_before = {}
    return made


def append(
    backend: Backend,
    owned: Owned,
    *texts: str,
    first_seq: int | None = None,
    index_status: IndexStatus = IndexStatus.OPEN,
    due: datetime | None = None,
) -> None:
    append_batch(
        backend, batch(owned, *texts, first_seq=first_seq, index_status=index_status, due=due)
    )


def append_batch(backend: Backend, added: Batch) -> None:
    with commit(backend):
        backend.append(added)


def agent_with(
    backend: Backend,
    agent_id: str,
    *texts: str,
    index_status: IndexStatus = IndexStatus.OPEN,
    due: datetime | None = None,
) -> Owned:
    owned = claim(backend, agent_id)
    append(backend, owned, *texts, index_status=index_status, due=due)
    return owned


def loaded(backend: Backend, agent_id: str = "a", after: int = 0) -> StoredRecords:
    found = backend.load(agent_id, after)
    assert found is not None
    return found


def stored(backend: Backend, agent_id: str = "a") -> StoredAgent:
    return loaded(backend, agent_id).agent


def texts(backend: Backend, agent_id: str = "a", after: int = 0) -> list[str]:
    records = (decode(each) for each in loaded(backend, agent_id, after).records)
    return [each.value for each in records if isinstance(each, Once)]


def ids(
    backend: Backend, *index_statuses: IndexStatus, after_id: str = "", limit: int = 100
) -> list[str]:
    found = backend.agents(index_statuses or None, after_id, limit)
    return [agent.agent_id for agent in found]
