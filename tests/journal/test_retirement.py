"""What is deleted as it was read, and what deletions leave for a time (J7, J87)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.support.batches import agent_with, append, batch, claim, commit, refused
from tests.support.databases import SqlDatabase, SqliteDatabase, smallest
from understudy.errors import Fenced, UsageError
from understudy.journal import DatabaseStore, IndexStatus
from understudy.journal.backend import Backend
from understudy.journal.contracts import StoredAgent, StoredRecords

NOON = datetime(2030, 5, 1, 12, tzinfo=timezone.utc)
MONTH = timedelta(days=30)


def as_read(backend: Backend, *agent_ids: str) -> list[StoredAgent]:
    found = (backend.load(id, 0) for id in agent_ids)
    return [stored.agent for stored in found if isinstance(stored, StoredRecords)]


def retire(backend: Backend, agents: list[StoredAgent]) -> list[bool]:
    with commit(backend):
        return backend.retire_all(agents)


def delete(backend: Backend, *agent_ids: str, at: datetime = NOON) -> None:
    with commit(backend):
        for agent_id in agent_ids:
            assert backend.delete(agent_id)
        backend.note_deletions(agent_ids, at, "ann")


def look(backend: Backend, before: datetime) -> None:
    """Look at all tombstones from before a time."""
    with commit(backend):
        place = backend.delete_tombstones(before, None)
        while place is not None:
            place = backend.delete_tombstones(before, place)


def at_rest(backend: Backend, *agent_ids: str) -> None:
    for id in agent_ids:
        owned = agent_with(backend, id, "one", index_status=IndexStatus.REST)
        with commit(backend):
            backend.release(replace(owned, last_seq=1))


@pytest.mark.quick
def test_only_agents_that_have_not_changed_since_they_were_read_are_retired(
    backend: Backend,
) -> None:
    """J87."""
    at_rest(backend, "a", "b", "c", "d")
    agents = as_read(backend, "a", "b", "c", "d")
    append(backend, claim(backend, "b"), "two")
    delete(backend, "c")
    assert retire(backend, agents) == [True, False, False, True]
    assert backend.load("a", 0) is None
    assert backend.load("d", 0) is None
    assert backend.load("b", 0) is not None
    assert retire(backend, agents) == [False, False, False, False]


def test_the_default_of_a_database_without_more_retires_so_too(tmp_path: Path) -> None:
    backend = smallest(tmp_path, "here")
    backend.open()
    at_rest(backend, "a", "b")
    agents = as_read(backend, "a", "b")
    append(backend, claim(backend, "b"), "two")
    assert retire(backend, agents) == [True, False]
    assert backend.load("a", 0) is None
    append(backend, claim(backend, "b"), "three")
    backend.close()


@pytest.mark.quick
def test_a_late_write_is_refused_also_when_the_tombstone_is_gone(backend: Backend) -> None:
    """J7."""
    late = agent_with(backend, "a", "one")
    for again in range(3):  # each incarnation has a higher number
        delete(backend, "a")
        newer = agent_with(backend, "a", f"again {again}")
    delete(backend, "a")
    agent_with(backend, "z", "one")
    look(backend, NOON + MONTH)
    assert backend.deletion("a") is None
    assert refused(backend, lambda: backend.append(batch(late, "late"))) is Fenced
    owned = agent_with(backend, "a", "anew")
    assert owned.incarnation > newer.incarnation
    assert owned.epoch > newer.epoch
    for old in (late, newer):
        assert refused(backend, lambda old=old: backend.append(batch(old, "late"))) is Fenced  # type: ignore[misc]
    other = agent_with(backend, "never seen", "one")
    assert other.incarnation > newer.incarnation


def test_a_tombstone_stays_for_its_time_and_while_something_names_its_agent(
    database: SqlDatabase,
) -> None:
    """J7."""
    backend = database.open()
    for id in ("young", "key", "spent", "decided", "old", "z"):
        agent_with(backend, id, "one")
    delete(backend, "key", "spent", "decided", "old")
    delete(backend, "young", at=NOON + MONTH)
    agent_with(backend, "last", "one")  # what was written last stays in any case
    keys = {str(id): key for id, key in database.sql("SELECT agent_id, key FROM agents")}
    database.sql(
        "INSERT INTO call_keys (hash, place, agent, incarnation, call_key, tool, tool_call_id,"
        f" taken_at, kept, kept_until) VALUES (x'00', 0, {keys['key']}, 1, 'c', 't', 'i', 0, 1, 1)"
    )
    database.sql(
        "INSERT INTO spending (agent, incarnation, what, counter, bucket, amount, counted, ref, at,"
        f" is_open, is_unknown, is_folded) VALUES ({keys['spent']}, 1, 'c', 1, 1, '1', '1', 'r', 1,"
        " false, false, true)"
    )
    database.sql(
        "INSERT INTO decided (agent, definition, incarnation, request, kind, tool, type, origin,"
        f" login, asked_at, at, version, payload) VALUES ({keys['decided']}, 'd', 1, 'r', 'k', 't',"
        " 'approve', 'person', x'00', 1, 1, 1, x'00')"
    )
    look(backend, NOON + MONTH - timedelta(seconds=1))
    left = {id for id in keys if backend.deletion(id) is not None}
    assert left == {"young", "key", "spent", "decided"}
    database.sql("DELETE FROM call_keys")
    look(backend, NOON)
    assert backend.deletion("key") is None
    look(backend, NOON + MONTH)
    assert backend.deletion("young") is None
    assert backend.deletion("decided") is not None


def test_the_numbers_of_a_file_whose_tombstones_went_are_not_given_again(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path)
    backend = database.open()
    agent_with(backend, "a", "one")
    agent_with(backend, "b", "one")
    delete(backend, "a")
    delete(backend, "b")
    look(backend, NOON + MONTH)
    assert database.sql("SELECT agent_id FROM agents") == [("b",)]
    backend.close()
    again = database.open()
    assert not again.restored
    agent_with(again, "c", "one")
    assert database.sql("SELECT key FROM agents ORDER BY key") == [(2,), (3,)]
    database.close()


async def test_a_file_gives_its_room_back_once_it_was_vacuumed_as_a_whole(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path)
    store = DatabaseStore(database.backend("here"))

    def filled(first: int) -> Callable[[], None]:
        def fill() -> None:
            for number in range(first, first + 50):
                backend = store.backend
                owned = backend.claim(f"a{number}", "d")
                assert owned is not None
                backend.append(batch(owned, "x" * 20_000))

        return fill

    async def emptied(first: int) -> None:
        for number in range(first, first + 50):
            assert await store.delete(f"a{number}")

    await store.open(lambda: None)
    try:
        await store.change(filled(0))
        await emptied(0)
        with pytest.raises(UsageError, match="run `understudy vacuum --store sqlite:///"):
            await store.vacuum()
        done = await store.vacuum(whole=True)
        assert done.after < done.before / 2
        await store.change(filled(50))
        await emptied(50)
        done = await store.vacuum()
        assert done.after < done.before / 2
        assert await store.delete("never there") is False
    finally:
        await store.close()


@pytest.mark.postgres
async def test_a_database_is_vacuumed_while_hosts_have_it_open(database: SqlDatabase) -> None:
    store = DatabaseStore(database.backend("here"))
    await store.open(lambda: None)
    try:
        done = await store.vacuum(whole=True)
        assert done.before > 0
        assert done.after > 0
    finally:
        await store.close()
