"""Which call has a key (`@tool(key=)`), in each kind of store (J85)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import batch, claim, commit
from tests.support.databases import Database, PostgresDatabase, SqliteDatabase
from tests.support.kept_keys import (
    DAY,
    KEPT,
    NOON,
    InDatabase,
    InMemory,
    KeptKeys,
    taking,
)
from understudy.errors import Fenced
from understudy.journal.backend import Backend
from understudy.journal.call_keys import SECRET_BYTES, KeyEnd, KeyUse, key_hash

FIRST, SECOND, THIRD = ("a", "one"), ("b", "two"), ("a", "three")
"""Calls: the agent, and the call's key of its own."""


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeptKeys]:
    if request.param == "memory":
        yield begun(InMemory())
        return
    database: Database
    if request.param == "sqlite":
        database = SqliteDatabase(tmp_path)
    else:
        database = PostgresDatabase(request.getfixturevalue("hosts"))
    yield begun(InDatabase(database))
    database.close()


def begun(kept: KeptKeys) -> KeptKeys:
    for agent_id in ("a", "b"):
        kept.begin(agent_id)
    return kept


@pytest.mark.quick
def test_a_key_is_of_the_call_that_takes_it_first(keys: KeptKeys) -> None:
    assert keys.take("a", taking("one")) == []
    (use,) = keys.take("b", taking("two", at=NOON + DAY))
    assert use == KeyUse("a", 1, "one", "refund", "id of one", NOON)
    assert keys.take("b", taking("two", "refund:18")) == []
    assert keys.calls() == [FIRST]
    assert keys.calls("refund:18") == [SECOND]


def test_the_same_call_finds_its_key_again(keys: KeptKeys) -> None:
    """J85: its process may have ended right after it took it."""
    for _ in range(3):
        assert keys.take("a", taking("one")) == []
    assert keys.calls() == [FIRST]
    assert [use.call for use in keys.take("b", taking("one"))] == [FIRST], "of another agent"


def test_a_key_that_is_given_back_is_free(keys: KeptKeys) -> None:
    keys.take("a", taking("one"))
    keys.end("a", "one", is_done=False)
    assert keys.calls() == []
    assert keys.take("b", taking("two")) == []


def test_a_call_that_is_done_keeps_its_key_for_its_time(keys: KeptKeys) -> None:
    keys.take("a", taking("one"))
    keys.end("a", "one", is_done=True, at=NOON + DAY)
    (use,) = keys.take("b", taking("two", at=NOON + DAY))
    assert use.done_at == NOON + DAY
    assert not use.is_left
    last = NOON + DAY + KEPT - timedelta(microseconds=1)
    assert keys.calls(at=last) == [FIRST]
    assert keys.take("b", taking("two", at=last)) != []
    assert keys.take("b", taking("two", at=NOON + DAY + KEPT)) == []
    assert keys.calls(at=NOON + DAY + KEPT) == [SECOND]


def test_what_is_done_is_not_given_back(keys: KeptKeys) -> None:
    keys.take("a", taking("one"))
    keys.end("a", "one", is_done=True)
    (use,) = keys.uses()
    keys.end("a", "one", is_done=False)
    keys.end("a", "one", is_done=True, at=NOON + DAY)
    keys.free(use)
    assert keys.uses() == [use]


def test_the_end_of_a_call_without_a_key_changes_nothing(keys: KeptKeys) -> None:
    keys.take("a", taking("one"))
    for is_done in (True, False):
        keys.end("a", "two", is_done=is_done)
        keys.end("b", "one", is_done=is_done)
    assert keys.calls() == [FIRST]


def test_a_call_passes_the_calls_beside_which_a_person_has_approved_it(keys: KeptKeys) -> None:
    keys.take("a", taking("one"))
    assert keys.take("b", taking("two", passes=[FIRST])) == []
    assert keys.calls() == [FIRST, SECOND]
    third = taking("three", passes=[FIRST])
    assert [use.call for use in keys.take("a", third)] == [FIRST, SECOND], "it passes one alone"
    assert keys.take("a", taking("three", passes=[FIRST, SECOND])) == []
    assert keys.take("a", taking("one")) == [], "which others have passed has it still"


def test_a_call_that_may_repeat_passes_those_that_are_done_alone(keys: KeptKeys) -> None:
    keys.take("a", taking("one"))
    again = taking("two", passes_done=True)
    assert keys.take("b", again) != []
    keys.end("a", "one", is_done=True)
    assert keys.take("b", again) == []
    assert [use.call for use in keys.take("a", taking("three", passes_done=True))] == [
        FIRST,
        SECOND,
    ]


def test_each_call_beside_others_has_an_end_of_its_own(keys: KeptKeys) -> None:
    keys.take("a", taking("one"))
    keys.take("b", taking("two", passes=[FIRST]))
    keys.end("a", "one", is_done=False)
    assert keys.calls() == [SECOND]
    assert keys.take("a", taking("three", passes=[SECOND])) == []
    keys.end("b", "two", is_done=True)
    assert [(use.call, use.done_at) for use in keys.uses()] == [(SECOND, NOON), (THIRD, None)]


def test_a_call_has_one_key(keys: KeptKeys) -> None:
    """J85: its arguments were edited after it had taken one, and before it started."""
    keys.take("a", taking("one"))
    assert keys.take("a", taking("one", "refund:18")) == []
    assert keys.calls() == []
    assert keys.calls("refund:18") == [FIRST]
    keys.take("b", taking("two"))
    assert keys.take("a", taking("one")) != []
    assert keys.calls("refund:18") == [FIRST], "what it does not get costs it nothing"


def test_a_key_is_given_back_by_whoever_finds_its_call_over(keys: KeptKeys) -> None:
    keys.take("a", taking("one"))
    keys.take("b", taking("two", passes=[FIRST]))
    first, second = keys.uses()
    keys.free(first._replace(incarnation=2))
    keys.free(first, "refund:18")
    assert keys.uses() == [first, second]
    keys.free(first)
    assert keys.uses() == [second]


def test_a_deleted_agent_leaves_what_it_has_done_and_what_nobody_knows_of(keys: KeptKeys) -> None:
    """J85: a deleted agent that has paid has paid; and one that may have paid may have paid."""
    keys.take("a", taking("one"))
    keys.end("a", "one", is_done=True)
    keys.take("a", taking("three", "refund:18", at=NOON + DAY))
    keys.delete("a")
    (done,), (left,) = keys.uses(), keys.uses("refund:18")
    assert (done.done_at, done.is_left) == (NOON, False)
    assert (left.done_at, left.is_left) == (None, True)
    keys.begin("a")
    assert keys.take("a", taking("one")) == [done], "the next one of the id is another one"
    assert keys.take("b", taking("two", "refund:18", passes_done=True)) == [left]
    keys.free(left, "refund:18")
    assert keys.uses("refund:18") == [left]
    assert keys.calls("refund:18", at=NOON + DAY + KEPT) == []


def test_old_keys_are_deleted(keys: KeptKeys) -> None:
    keys.take("a", taking("one", kept=DAY))
    keys.take("a", taking("three", "refund:18", kept=DAY))
    keys.end("a", "one", is_done=True)
    keys.delete_old(NOON + DAY - timedelta(microseconds=1))
    assert keys.calls() == [FIRST]
    keys.delete_old(NOON + DAY)
    assert keys.calls(at=NOON) == []
    keys.delete_old(NOON + 1000 * DAY)
    assert keys.calls("refund:18") == [THIRD], "one that is open or in doubt is never old"


# ------------------------------------------------------------------------- in a database


@pytest.fixture
def kept(database: Database) -> InDatabase:
    in_database = InDatabase(database)
    begun(in_database)
    return in_database


def test_a_store_knows_whether_there_are_old_keys(kept: InDatabase) -> None:
    kept.take("a", taking("one", kept=DAY))
    assert not kept.keys.has_old_keys(NOON + 1000 * DAY)
    kept.end("a", "one", is_done=True)
    assert not kept.keys.has_old_keys(NOON + DAY - timedelta(microseconds=1))
    assert kept.keys.has_old_keys(NOON + DAY)


@pytest.mark.quick
def test_a_batch_that_is_refused_ends_no_key(kept: InDatabase) -> None:
    kept.take("a", taking("one"))
    stale = kept.owned("a")
    claim(kept.backend, "a")
    with commit(kept.backend):
        late = batch(stale, "late")
        late.at, late.key_ends = NOON, (KeyEnd("one", True),)
        with pytest.raises(Fenced):
            kept.backend.append(late)
    assert [use.done_at for use in kept.uses()] == [None]


def test_an_owner_of_before_takes_no_key(kept: InDatabase) -> None:
    stale = kept.owned("a")
    claim(kept.backend, "a")
    with commit(kept.backend), pytest.raises(Fenced):
        kept.keys.take_key(stale, taking("one"))
    kept.delete("b")
    with commit(kept.backend), pytest.raises(Fenced):
        kept.keys.take_key(kept.owned("b"), taking("two"))
    assert kept.uses() == []


def test_a_key_that_was_not_committed_is_not_taken(kept: InDatabase) -> None:
    kept.backend.begin()
    assert kept.keys.take_key(kept.owned("a"), taking("one")) == []
    kept.backend.rollback()
    assert kept.uses() == []


def test_a_compaction_keeps_all_keys(kept: InDatabase) -> None:
    kept.take("a", taking("one"))
    kept.take("a", taking("three", "refund:18"))
    kept.end("a", "one", is_done=True)
    with commit(kept.backend):
        kept.backend.compact(batch(kept.owned("a"), "all of it"))
    assert (kept.calls(), kept.calls("refund:18")) == ([FIRST], [THIRD])


def test_the_secret_of_a_store_is_its_own_and_stays(database: Database, tmp_path: Path) -> None:
    """J85: who has the hash of a key cannot try which key it is of."""

    def secret_of(backend: Backend) -> bytes:
        found = backend.key_secret()
        backend.close()
        return found

    secret = secret_of(database.open())
    assert len(secret) == SECRET_BYTES
    assert secret_of(database.open()) == secret
    (tmp_path / "other").mkdir()
    other = SqliteDatabase(tmp_path / "other")
    assert secret_of(other.open()) != secret
    assert key_hash("refund:17", secret) != key_hash("refund:17", b"")


NAMES = st.sampled_from(["one", "two", "three"])
AGENTS = st.sampled_from(["a", "b"])
KEYS = st.sampled_from(["refund:17", "refund:18"])
HOURS = st.integers(min_value=0, max_value=100)
CALLS = st.lists(st.tuples(AGENTS, NAMES), max_size=2)
CHANGES = st.one_of(
    st.tuples(st.just("take"), AGENTS, NAMES, KEYS, HOURS, CALLS, st.booleans()),
    st.tuples(st.just("end"), AGENTS, NAMES, HOURS, st.booleans()),
    st.tuples(st.just("delete"), AGENTS),
    st.tuples(st.just("delete_old"), HOURS),
    st.tuples(st.just("free"), KEYS, st.integers(min_value=0, max_value=3)),
)


def at(hours: int) -> datetime:
    return NOON + timedelta(hours=hours)


def change(keys: KeptKeys, what: tuple[object, ...], of: str) -> object:
    """Make it, to agents and keys of their own; what the store says to it."""
    match what:
        case ("take", str(agent), str(name), str(key), int(hours), list(passes), bool(done)):
            passed = [(agent + of, name) for agent, name in passes]
            wanted = taking(name, key + of, at=at(hours), kept=DAY, passes=passed, passes_done=done)
            return keys.take(agent + of, wanted)
        case ("end", str(agent), str(name), int(hours), bool(done)):
            keys.end(agent + of, name, is_done=done, at=at(hours))
        case ("delete", str(agent)):
            keys.delete(agent + of)
            keys.begin(agent + of)
        case ("delete_old", int(hours)):
            keys.delete_old(at(hours))
        case ("free", str(key), int(place)):
            uses = keys.uses(key + of)
            if place < len(uses):
                keys.free(uses[place], key + of)
        case _:
            raise AssertionError(what)
    both = ("refund:17", "refund:18")
    return [keys.uses(key + of, at=at(hours)) for key in both for hours in (0, 50)]


def test_any_mix_of_changes_is_as_in_memory(kept: InDatabase) -> None:
    """J85: one meaning in each kind of store."""
    numbers = itertools.count()

    @settings(max_examples=40)
    @given(changes=st.lists(CHANGES, max_size=15))
    def each(changes: list[tuple[object, ...]]) -> None:
        in_memory, of = InMemory(), f"/{next(numbers)}"
        for agent_id in ("a", "b"):
            in_memory.begin(agent_id + of)
            kept.begin(agent_id + of)
        for what in changes:
            assert change(kept, what, of) == change(in_memory, what, of), what

    each()
