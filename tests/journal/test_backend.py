"""What every database under a store does, in the words of `Backend` (J21).

`BACKEND=module:make` has it judge another one: see the page on backends.
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.batches import (
    agent_with,
    append,
    batch,
    claim,
    commit,
    ids,
    loaded,
    record,
    stored,
    texts,
)
from tests.support.databases import (
    Database,
    MadeDatabase,
    PostgresDatabase,
    SqliteDatabase,
    smallest,
)
from tests.support.purses import Purse, line, money, spend
from understudy.errors import Fenced, OwnedElsewhere, StoreConflict, StoreInUse, UsageError
from understudy.journal import DatabaseStore
from understudy.journal.backend import Backend
from understudy.journal.codec import EncodedRecord, decode
from understudy.journal.contracts import Batch, IndexEntry, IndexStatus, Owned, StoredAgent
from understudy.journal.shared import SharedBackend
from understudy.journal.spending import BucketSum
from understudy.state.agent_state import AgentState
from understudy.state.records import Once, Snapshot
from understudy.state.trust_log import TrustFact

pytestmark = pytest.mark.quick
OPEN, REST, WAITS, QUEUED = (
    IndexStatus.OPEN,
    IndexStatus.REST,
    IndexStatus.WAITS,
    IndexStatus.QUEUED,
)


def _yours(folder: Path, host: str) -> Backend:
    """The backend that `BACKEND` names."""
    module, _, name = os.environ["BACKEND"].partition(":")
    made: Backend = getattr(importlib.import_module(module), name)(folder, host)
    return made


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        "smallest",
        *(["yours"] if "BACKEND" in os.environ else []),
    ]
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    found: Database
    if request.param == "sqlite":
        found = SqliteDatabase(tmp_path)
    elif request.param == "postgres":
        found = PostgresDatabase(request.getfixturevalue("hosts"))
    else:
        found = MadeDatabase(_yours if request.param == "yours" else smallest, tmp_path)
    yield found
    found.close()


# -------------------------------------------------------------------- claiming an agent


def test_a_claim_of_a_new_agent_begins_its_first_incarnation(backend: Backend) -> None:
    """J6."""
    assert claim(backend, "a", "support") == Owned(
        agent_id="a", agent="support", incarnation=1, epoch=1, last_seq=0
    )
    assert stored(backend) == StoredAgent(
        agent_id="a",
        agent="support",
        incarnation=1,
        epoch=1,
        last_seq=0,
        floor=0,
        index_status=REST,
        host="here",
    )


def test_an_unknown_agent_is_not_claimed_without_the_name_of_its_definition(
    backend: Backend,
) -> None:
    with commit(backend):
        assert backend.claim("a", None) is None
    assert backend.load("a", 0) is None
    assert ids(backend) == []


def test_agents_are_found_by_their_ids_as_they_are_listed(backend: Backend) -> None:
    """J33: those that there are; a deleted one is not."""
    for name in ("a", "b", "c", "x'y"):
        claim(backend, name)
    with commit(backend):
        backend.delete("b")
    listed = {agent.agent_id: agent for agent in backend.agents(None, "", 10)}
    found = backend.find_agents(["c", "b", "a", "nobody", "x'y", "a"])
    assert {agent.agent_id: agent for agent in found} == listed
    assert len(found) == 3
    assert backend.find_agents([]) == []
    many = [f"no{number}" for number in range(2000)]
    assert [agent.agent_id for agent in backend.find_agents([*many, "a"])] == ["a"]


def test_what_this_host_owns_is_claimed_anew_in_a_higher_epoch(backend: Backend) -> None:
    """J6."""
    first = agent_with(backend, "a", "one", "two")
    again = claim(backend, "a", None)
    assert again.epoch > first.epoch
    assert (again.agent, again.incarnation, again.last_seq) == ("support", 1, 2)
    assert texts(backend) == ["one", "two"]


def test_a_stored_agent_keeps_the_name_of_its_definition(backend: Backend) -> None:
    claim(backend, "a", "support")
    assert claim(backend, "a", "sales").agent == "support"


def test_a_claim_changes_neither_the_standing_nor_the_records(backend: Backend) -> None:
    agent_with(backend, "a", "one", index_status=WAITS)
    claim(backend)
    assert stored(backend).index_status is WAITS
    assert texts(backend) == ["one"]


def test_a_part_of_the_records_is_read_by_their_numbers(backend: Backend) -> None:
    """As many as are wanted, and no more."""
    agent_with(backend, "a", *"1234567")

    def part(after: int, limit: int) -> tuple[int, list[EncodedRecord]]:
        found = backend.load_part("a", after, limit)
        assert found is not None
        return found.first_seq, list(found.records)

    whole = backend.load("a", 0)
    assert whole is not None
    for after in range(8):
        for limit in (0, 1, 3, 7, 100):
            expected = after + 1, list(whole.records[after : after + limit])
            assert part(after, limit) == expected
    assert backend.load_part("nobody", 0, 3) is None
    assert backend.load_part("\x00", 0, 3) is None


def test_a_text_is_found_in_the_records_of_one_agent(backend: Backend) -> None:
    """J22."""
    agent_with(backend, "a", "one", "two")
    agent_with(backend, "b", "three")
    kind = backend.load("a", 0).records[0].kind  # type: ignore[union-attr]
    assert backend.has_text("a", [kind], "two")
    assert backend.has_text("a", ["other", kind], "two")
    assert not backend.has_text("a", ["other"], "two")
    assert not backend.has_text("a", [kind], "three")
    assert not backend.has_text("c", [kind], "two")
    assert not backend.has_text("\x00", [kind], "two")
    with commit(backend):
        backend.delete("a")
    assert not backend.has_text("a", [kind], "two")


# ---------------------------------------------------------------------------- appending


def test_appended_records_come_back_in_order_and_numbered(backend: Backend) -> None:
    """J7."""
    owned = agent_with(backend, "a", "one", "two")
    with commit(backend):
        backend.append(batch(owned, "three", first_seq=3))
    assert texts(backend) == ["one", "two", "three"]
    assert (loaded(backend).first_seq, stored(backend).last_seq) == (1, 3)


def test_the_bytes_of_a_record_are_not_touched(backend: Backend) -> None:
    owned = claim(backend)
    payloads = [
        b'{"key":"k",  "value": 1.0}',
        '{"value":"\N{BUSTS IN SILHOUETTE} é \\u0000 \\ud800 \'; DROP TABLE records; --"}'.encode(),
        b'{"nul":"a\x00b"}',
        b"",
        b"\xff\xfe\x00 no UTF-8 at all",
        b"%s \\ $1 {}",
        bytes(range(256)) * 4096,
    ]
    records = tuple(
        EncodedRecord(kind, version, payload)
        for payload, (kind, version) in zip(
            payloads, itertools.cycle([("once", 1), ("a kind of later", 7)]), strict=False
        )
    )
    with commit(backend):
        backend.append(
            Batch(
                agent_id="a",
                incarnation=1,
                epoch=owned.epoch,
                first_seq=1,
                records=records,
                entry=IndexEntry(OPEN),
            )
        )
    found = loaded(backend).records
    assert found == records
    assert {type(each.payload) for each in found} == {bytes}


def test_a_batch_says_how_the_agent_stands_now(backend: Backend) -> None:
    owned = agent_with(backend, "a", "one", index_status=OPEN)
    for seq, index_status in enumerate(IndexStatus, start=2):
        with commit(backend):
            backend.append(batch(owned, "more", first_seq=seq, index_status=index_status))
        assert stored(backend).index_status is index_status


def test_a_batch_without_records_changes_the_standing_alone(backend: Backend) -> None:
    """A quarantine, for one, is told to the index when its last record is long durable."""
    owned = agent_with(backend, "a", "one")
    with commit(backend):
        backend.append(batch(owned, first_seq=2, index_status=IndexStatus.QUARANTINED))
    assert stored(backend).index_status is IndexStatus.QUARANTINED
    assert texts(backend) == ["one"]


def test_a_batch_of_an_older_epoch_is_fenced(backend: Backend) -> None:
    """J7."""
    older = claim(backend)
    claim(backend)
    backend.begin()
    with pytest.raises(Fenced, match="'a'"):
        backend.append(batch(older, "late"))
    backend.commit()
    assert texts(backend) == []


def test_a_batch_of_an_epoch_that_never_was_is_fenced(backend: Backend) -> None:
    """J7: equal to the current one, not merely as high."""
    owned = claim(backend)
    newer = Owned(agent_id="a", agent="support", incarnation=1, epoch=owned.epoch + 1, last_seq=0)
    backend.begin()
    with pytest.raises(Fenced):
        backend.append(batch(newer, "x"))
    backend.rollback()


def test_a_batch_of_another_incarnation_is_fenced(backend: Backend) -> None:
    """J7."""
    owned = claim(backend)
    other = Owned(agent_id="a", agent="support", incarnation=2, epoch=owned.epoch, last_seq=0)
    backend.begin()
    with pytest.raises(Fenced, match="incarnation"):
        backend.append(batch(other, "x"))
    backend.commit()
    assert texts(backend) == []


def test_a_batch_of_an_unknown_agent_is_fenced(backend: Backend) -> None:
    nobody = Owned(agent_id="nobody", agent="support", incarnation=1, epoch=1, last_seq=0)
    backend.begin()
    with pytest.raises(Fenced, match="nobody"):
        backend.append(batch(nobody, "x"))
    backend.commit()
    assert backend.load("nobody", 0) is None


@pytest.mark.parametrize("first_seq", [1, 2, 4, 100])
def test_a_number_that_is_not_the_next_one_is_a_conflict(backend: Backend, first_seq: int) -> None:
    """J7."""
    owned = agent_with(backend, "a", "one", "two")
    backend.begin()
    with pytest.raises(StoreConflict) as caught:
        backend.append(batch(owned, "x", first_seq=first_seq))
    backend.commit()
    assert caught.value.facts == {"agent_id": "a", "expected": 3, "got": first_seq}
    assert texts(backend) == ["one", "two"]


def test_a_fenced_batch_is_told_before_a_wrong_number(backend: Backend) -> None:
    """Who was fenced is no defect of ours, whatever number it comes with."""
    older = claim(backend)
    agent_with(backend, "a", "one")
    backend.begin()
    with pytest.raises(Fenced):
        backend.append(batch(older, "late", first_seq=1))
    backend.rollback()


@pytest.mark.parametrize("refused", ["fenced", "conflict"])
def test_the_other_batches_of_a_transaction_go_on_when_one_is_refused(
    backend: Backend, refused: str
) -> None:
    a, b, c = (claim(backend, each) for each in "abc")
    wrong = batch(b, "x", first_seq=5) if refused == "conflict" else batch(b, "x")
    if refused == "fenced":
        claim(backend, "b")
    backend.begin()
    backend.append(batch(a, "one"))
    with pytest.raises(Fenced if refused == "fenced" else StoreConflict):
        backend.append(wrong)
    backend.append(batch(c, "two", "three"))
    backend.commit()
    assert [texts(backend, each) for each in "abc"] == [["one"], [], ["two", "three"]]
    assert stored(backend, "b").index_status is REST


def test_many_batches_at_once_are_answered_each_in_its_place(backend: Backend) -> None:
    """J7, J16."""
    older = claim(backend, "b")
    a, _, c, d = (claim(backend, each) for each in "abcd")
    batches = [
        batch(a, "one", "two"),
        batch(older, "late"),
        batch(c, "one", first_seq=7),
        batch(d, "one", index_status=WAITS),
        batch(a, "three", first_seq=3, index_status=REST),
    ]
    backend.begin()
    answers = backend.append_all(batches)
    backend.commit()
    assert [type(answer) for answer in answers] == [
        *(type(None), Fenced, StoreConflict, type(None), type(None))
    ]
    assert [answer.facts["agent_id"] for answer in answers if answer is not None] == ["b", "c"]
    assert [texts(backend, each) for each in "abcd"] == [["one", "two", "three"], [], [], ["one"]]
    assert [stored(backend, each).index_status for each in "abcd"] == [REST, REST, REST, WAITS]
    assert [backend.is_committed(each) for each in batches] == [True, False, False, True, True]


def test_no_batches_at_once_are_no_answers(backend: Backend) -> None:
    with commit(backend):
        assert backend.append_all([]) == []


def test_many_batches_at_once_are_undone_together(backend: Backend) -> None:
    a, b = claim(backend, "a"), claim(backend, "b")
    backend.begin()
    assert backend.append_all([batch(a, "one"), batch(b, "one")]) == [None, None]
    backend.rollback()
    assert (texts(backend, "a"), texts(backend, "b")) == ([], [])


def test_several_batches_of_one_agent_may_be_in_one_transaction(backend: Backend) -> None:
    owned = claim(backend)
    with commit(backend):
        backend.append(batch(owned, "one"))
        backend.append(batch(owned, "two", first_seq=2, index_status=WAITS))
    assert texts(backend) == ["one", "two"]
    assert stored(backend).index_status is WAITS


def test_an_agent_is_claimed_and_written_in_one_transaction(backend: Backend) -> None:
    with commit(backend):
        owned = backend.claim("a", "support")
        assert owned is not None
        backend.append(batch(owned, "one"))
    assert texts(backend) == ["one"]


# ------------------------------------------------------------------------- transactions


def test_nothing_is_seen_before_the_commit(backend: Backend) -> None:
    """J16."""
    owned = agent_with(backend, "a", "one")
    backend.begin()
    backend.append(batch(owned, "two", first_seq=2, index_status=WAITS))
    backend.claim("b", "support")
    assert texts(backend) == ["one"]
    assert stored(backend).index_status is OPEN
    assert backend.load("b", 0) is None
    backend.commit()
    assert texts(backend) == ["one", "two"]
    assert ids(backend) == ["a", "b"]


def test_a_rollback_leaves_nothing(backend: Backend) -> None:
    owned = agent_with(backend, "a", "one")
    agent_with(backend, "gone", "one")
    before = [stored(backend, each) for each in ("a", "gone")]
    backend.begin()
    backend.append(batch(owned, "two", first_seq=2, index_status=WAITS))
    backend.compact(batch(owned, "snapshot", first_seq=3))
    backend.claim("a", None)
    backend.claim("b", "support")
    backend.delete("gone")
    backend.rollback()
    assert [stored(backend, each) for each in ("a", "gone")] == before
    assert (texts(backend), texts(backend, "gone")) == (["one"], ["one"])
    assert backend.load("b", 0) is None
    append(
        backend, Owned(agent_id="a", agent="", incarnation=1, epoch=owned.epoch, last_seq=1), "2"
    )
    assert texts(backend) == ["one", "2"]


def test_a_rollback_without_a_transaction_raises_nothing(backend: Backend) -> None:
    backend.rollback()
    backend.begin()
    backend.rollback()
    backend.rollback()
    assert claim(backend).epoch == 1


def test_after_a_reconnect_everything_committed_is_there_and_still_owned(backend: Backend) -> None:
    owned = agent_with(backend, "a", "one")
    backend.begin()
    backend.append(batch(owned, "lost", first_seq=2))
    backend.reconnect()
    backend.rollback()
    assert texts(backend) == ["one"]
    assert stored(backend).host == "here"
    with commit(backend):
        backend.append(batch(owned, "two", first_seq=2))
    assert texts(backend) == ["one", "two"]


def test_reading_goes_on_while_a_transaction_is_open(backend: Backend) -> None:
    agent_with(backend, "a", "one")
    found: list[list[str]] = []
    backend.begin()
    backend.claim("b", "support")
    reader = threading.Thread(target=lambda: found.append(texts(backend)))
    reader.start()
    reader.join(timeout=60)
    backend.commit()
    assert found == [["one"]]


# ----------------------------------------------------- a commit with an unknown outcome


def test_a_committed_batch_is_known_after_the_store_was_opened_again(database: Database) -> None:
    """J16."""
    first = database.open()
    owned = claim(first)
    kept, lost = batch(owned, "one", "two"), batch(owned, "three", first_seq=3)
    with commit(first):
        first.append(kept)
    first.begin()
    first.append(lost)
    first.rollback()
    first.close()
    again = database.open()
    assert (again.is_committed(kept), again.is_committed(lost)) == (True, False)


def test_a_committed_batch_is_known_after_a_reconnect(backend: Backend) -> None:
    """J16."""
    kept = batch(claim(backend), "one")
    with commit(backend):
        backend.append(kept)
    backend.reconnect()
    assert backend.is_committed(kept)


Other = Callable[[Batch], Batch]


def _with(of: Batch, **changed: object) -> Batch:
    fields = {name: getattr(of, name) for name in Batch.__dataclass_fields__}
    return Batch(**{**fields, **changed})


@pytest.mark.parametrize(
    "other",
    [
        lambda of: _with(of, agent_id="b"),
        lambda of: _with(of, agent_id="nobody"),
        lambda of: _with(of, incarnation=2),
        lambda of: _with(of, epoch=of.epoch + 1),
        lambda of: _with(of, epoch=of.epoch - 1),
        lambda of: _with(of, first_seq=2),
        lambda of: _with(of, records=(*of.records, record("three"))),
        lambda of: _with(of, records=(of.records[0], record("zwei"))),
        lambda of: _with(of, records=tuple(reversed(of.records))),
        lambda of: _with(of, records=(of.records[0], EncodedRecord("other", 1, b"{}"))),
        lambda of: _with(
            of,
            records=tuple(EncodedRecord(r.kind, r.version + 1, r.payload) for r in of.records),
        ),
    ],
)
def test_a_batch_that_differs_in_anything_is_not_committed(backend: Backend, other: Other) -> None:
    """J16: another writer may have put its own records at these numbers."""
    claim(backend, "b")
    claim(backend)
    kept = batch(claim(backend), "one", "two")
    with commit(backend):
        backend.append(kept)
    assert backend.is_committed(kept)
    assert not backend.is_committed(other(kept))


def test_a_batch_stays_committed_when_more_follows(backend: Backend) -> None:
    owned = claim(backend)
    kept = batch(owned, "one")
    with commit(backend):
        backend.append(kept)
        backend.append(batch(owned, "two", first_seq=2))
    claim(backend)
    assert backend.is_committed(kept)


def test_a_batch_of_a_deleted_agent_is_not_committed(backend: Backend) -> None:
    kept = batch(claim(backend), "one")
    with commit(backend):
        backend.append(kept)
    with commit(backend):
        backend.delete("a")
    assert not backend.is_committed(kept)
    again = claim(backend)
    append(backend, again, "one")
    assert not backend.is_committed(kept)


def test_a_batch_without_records_is_committed_when_its_standing_is(backend: Backend) -> None:
    owned = agent_with(backend, "a", "one")
    empty = batch(owned, first_seq=2, index_status=WAITS)
    assert not backend.is_committed(empty)
    with commit(backend):
        backend.append(empty)
    assert backend.is_committed(empty)
    with commit(backend):
        backend.delete("a")
    assert not backend.is_committed(empty)


# -------------------------------------------------------------------- letting an agent go


def test_a_released_agent_has_no_owner(backend: Backend) -> None:
    owned = agent_with(backend, "a", "one")
    with commit(backend):
        assert backend.release(owned)
    assert stored(backend).host is None
    with commit(backend):
        assert backend.release(owned)  # asked for again, as nobody knows whether it was done
    assert claim(backend).epoch > owned.epoch
    assert stored(backend).host == "here"


def test_a_release_in_an_older_epoch_lets_nothing_go(backend: Backend) -> None:
    older = claim(backend)
    newer = claim(backend)
    with commit(backend):
        assert not backend.release(older)
    assert stored(backend).host == "here"
    append(backend, newer, "one")


def test_a_release_of_an_unknown_agent_does_nothing(backend: Backend) -> None:
    owned = Owned(agent_id="nobody", agent="support", incarnation=1, epoch=1, last_seq=0)
    with commit(backend):
        assert not backend.release(owned)
    assert ids(backend) == []


def test_a_host_that_closes_gives_up_what_it_owns(database: Database) -> None:
    first = database.open("first")
    owned = agent_with(first, "a", "one", index_status=WAITS)
    first.close()
    second = database.open("second")
    assert stored(second) == StoredAgent(
        agent_id="a",
        agent="support",
        incarnation=1,
        epoch=owned.epoch,
        last_seq=1,
        floor=0,
        index_status=WAITS,
        host=None,
        agent_status="interrupted",
    )
    again = claim(second, "a", None)
    assert again.epoch > owned.epoch
    assert stored(second).host == "second"


def test_closing_twice_raises_nothing_and_a_closed_one_can_be_opened_again(
    database: Database,
) -> None:
    backend = database.open()
    agent_with(backend, "a", "one")
    backend.begin()
    backend.claim("b", "support")
    backend.close()
    backend.close()
    backend.open()
    assert ids(backend) == ["a"]
    assert stored(backend).host is None


def test_a_host_says_its_name(database: Database) -> None:
    assert database.open("mill-7").host == "mill-7"


def test_a_lease_is_prolonged_from_a_thread_of_its_own(backend: Backend) -> None:
    left: list[float] = []
    backend.begin()
    thread = threading.Thread(target=lambda: left.append(backend.renew()))
    thread.start()
    thread.join(timeout=60)
    backend.rollback()
    assert left[0] > 0
    assert not math.isnan(left[0])


# -------------------------------------------------------------------------- two runtimes


@pytest.fixture
def two(database: Database) -> tuple[Backend, Backend]:
    if not database.many_hosts:
        pytest.skip("one runtime at a time")
    return database.open("first"), database.open("second")


def test_a_database_for_one_runtime_refuses_a_second_one(database: Database) -> None:
    if database.many_hosts:
        pytest.skip("many runtimes")
    first = database.open("mill-7")
    second = database.backend("second")
    with pytest.raises(StoreInUse, match="mill-7"):
        second.open()
    agent_with(first, "a", "one")
    first.close()
    second.open()
    assert texts(second) == ["one"]
    second.close()


def test_an_agent_that_another_host_owns_cannot_be_claimed(two: tuple[Backend, Backend]) -> None:
    """J6."""
    first, second = two
    owned = agent_with(first, "a", "one")
    second.begin()
    with pytest.raises(OwnedElsewhere) as caught:
        second.claim("a", "support")
    other = second.claim("b", "support")
    assert other is not None
    second.append(batch(other, "goes on"))
    second.commit()
    assert caught.value.facts == {"agent_id": "a", "host": "first"}
    assert stored(second).host == "first"
    assert texts(second, "b") == ["goes on"]
    append(first, Owned(agent_id="a", agent="", incarnation=1, epoch=owned.epoch, last_seq=1), "2")


def test_an_agent_that_another_host_owns_cannot_be_deleted(two: tuple[Backend, Backend]) -> None:
    first, second = two
    agent_with(first, "a", "one")
    second.begin()
    with pytest.raises(OwnedElsewhere):
        second.delete("a")
    second.commit()
    assert texts(second) == ["one"]


def test_a_released_agent_is_claimed_by_another_host_and_its_last_owner_is_fenced(
    two: tuple[Backend, Backend],
) -> None:
    """J6, J7."""
    first, second = two
    owned = agent_with(first, "a", "one")
    with commit(first):
        first.release(owned)
    again = claim(second, "a", None)
    assert (again.last_seq, again.epoch > owned.epoch) == (1, True)
    first.begin()
    with pytest.raises(Fenced):
        first.append(batch(owned, "late", first_seq=2))
    first.rollback()
    with commit(first):
        assert not first.release(owned)  # of an older epoch: nothing
    assert stored(first).host == "second"
    append(second, again, "two")
    assert texts(first) == ["one", "two"]


# ---------------------------------------------------------------------------- compaction


def test_a_snapshot_takes_the_place_of_all_before_it(backend: Backend) -> None:
    """J17."""
    owned = agent_with(backend, "a", "one", "two", "three")
    with commit(backend):
        backend.compact(batch(owned, "snapshot", first_seq=4, index_status=REST))
    assert texts(backend) == ["snapshot"]
    assert loaded(backend).first_seq == 4
    agent = stored(backend)
    assert (agent.floor, agent.last_seq, agent.index_status) == (3, 4, REST)
    with commit(backend):
        backend.append(batch(owned, "five", first_seq=5))
    assert texts(backend) == ["snapshot", "five"]


@pytest.mark.parametrize("after", [0, 2, 3])
def test_what_is_asked_for_below_the_floor_is_told_from_the_snapshot_on(
    backend: Backend, after: int
) -> None:
    """J17."""
    owned = agent_with(backend, "a", "one", "two", "three")
    with commit(backend):
        backend.compact(batch(owned, "snapshot", first_seq=4))
        backend.append(batch(owned, "five", first_seq=5))
    found = loaded(backend, after=after)
    assert (found.first_seq, found.agent.floor) == (4, 3)
    assert texts(backend, after=after) == ["snapshot", "five"]
    assert texts(backend, after=4) == ["five"]


def test_a_later_snapshot_takes_the_place_of_an_earlier_one(backend: Backend) -> None:
    owned = agent_with(backend, "a", "one")
    agent_with(backend, "b", "of b")
    with commit(backend):
        backend.compact(batch(owned, "first", first_seq=2))
        backend.append(batch(owned, "three", first_seq=3))
        backend.compact(batch(owned, "second", first_seq=4))
    assert texts(backend) == ["second"]
    assert stored(backend).floor == 3
    assert texts(backend, "b") == ["of b"]


def test_a_snapshot_of_an_older_epoch_deletes_nothing(backend: Backend) -> None:
    """J17."""
    older = agent_with(backend, "a", "one")
    claim(backend)
    backend.begin()
    with pytest.raises(Fenced):
        backend.compact(batch(older, "snapshot", first_seq=2))
    backend.commit()
    assert texts(backend) == ["one"]
    assert stored(backend).floor == 0


def test_a_snapshot_that_is_not_the_next_record_deletes_nothing(backend: Backend) -> None:
    """J17."""
    owned = agent_with(backend, "a", "one", "two")
    backend.begin()
    with pytest.raises(StoreConflict):
        backend.compact(batch(owned, "snapshot", first_seq=2))
    backend.commit()
    assert texts(backend) == ["one", "two"]
    assert stored(backend).floor == 0


def test_a_snapshot_is_known_to_be_committed(backend: Backend) -> None:
    """J16."""
    owned = agent_with(backend, "a", "one")
    snapshot = batch(owned, "snapshot", first_seq=2)
    assert not backend.is_committed(snapshot)
    with commit(backend):
        backend.compact(snapshot)
    assert backend.is_committed(snapshot)


# ------------------------------------------------------------------------------ deletion


def test_a_deleted_agent_is_gone(backend: Backend) -> None:
    agent_with(backend, "a", "one")
    agent_with(backend, "b", "of b")
    with commit(backend):
        assert backend.delete("a") is True
    assert backend.load("a", 0) is None
    assert ids(backend) == ids(backend, OPEN) == ["b"]
    assert texts(backend, "b") == ["of b"]


def test_deleting_what_is_not_there_says_so(backend: Backend) -> None:
    with commit(backend):
        assert backend.delete("a") is False
    agent_with(backend, "a", "one")
    with commit(backend):
        assert backend.delete("a") is True
        assert backend.delete("a") is False


def test_a_deleted_agent_is_not_claimed_without_the_name_of_a_definition(
    backend: Backend,
) -> None:
    agent_with(backend, "a", "one")
    with commit(backend):
        backend.delete("a")
        assert backend.claim("a", None) is None
    assert backend.load("a", 0) is None


def test_after_a_deletion_the_next_incarnation_begins_above_the_tombstone(
    backend: Backend,
) -> None:
    """J7."""
    claim(backend)
    owned = agent_with(backend, "a", "one", "two", index_status=WAITS)
    with commit(backend):
        backend.compact(batch(owned, "snapshot", first_seq=3))
        backend.delete("a")
    again = claim(backend, "a", "sales")
    assert (again.agent, again.incarnation, again.last_seq) == ("sales", 2, 0)
    assert again.epoch > owned.epoch
    agent = stored(backend)
    assert (agent.agent, agent.floor, agent.index_status) == ("sales", 0, REST)
    assert agent.host == backend.host, "it has an owner again"
    append(backend, again, "new")
    assert texts(backend) == ["new"]
    assert loaded(backend).first_seq == 1


def test_epochs_and_incarnations_grow_over_many_deletions(backend: Backend) -> None:
    seen = []
    for _ in range(4):
        owned = agent_with(backend, "a", "one")
        seen.append((owned.incarnation, owned.epoch))
        with commit(backend):
            backend.delete("a")
    assert [incarnation for incarnation, _ in seen] == [1, 2, 3, 4]
    epochs = [epoch for _, epoch in seen]
    assert epochs == sorted(set(epochs))


def test_a_batch_of_a_deleted_agent_is_fenced(backend: Backend) -> None:
    """J7."""
    owned = agent_with(backend, "a", "one")
    with commit(backend):
        backend.delete("a")
    for change in (backend.append, backend.compact):
        backend.begin()
        with pytest.raises(Fenced):
            change(batch(owned, "late", first_seq=2))
        backend.commit()
    claim(backend)
    backend.begin()
    with pytest.raises(Fenced):
        backend.append(batch(owned, "late", first_seq=1))
    backend.commit()
    assert texts(backend) == []


def test_a_tombstone_outlives_the_store_being_closed(database: Database) -> None:
    first = database.open()
    owned = agent_with(first, "a", "one")
    with commit(first):
        first.delete("a")
    first.close()
    again = claim(database.open())
    assert (again.incarnation, again.epoch > owned.epoch) == (2, True)


# ------------------------------------------------------------------------------- reading


def test_an_unknown_agent_has_no_records(backend: Backend) -> None:
    assert backend.load("nobody", 0) is None


def test_records_are_read_after_a_number(backend: Backend) -> None:
    agent_with(backend, "a", "one", "two", "three")
    assert texts(backend, after=1) == ["two", "three"]
    assert loaded(backend, after=1).first_seq == 2
    end = loaded(backend, after=3)
    assert (end.records, end.first_seq) == ((), 4)
    assert loaded(backend, after=9).records == ()


def test_ten_thousand_records_come_back_in_order(backend: Backend) -> None:
    owned = claim(backend)
    agent_with(backend, "b", "of b")
    wanted = [f"{n}" for n in range(10_000)]
    for start in range(0, 10_000, 2_500):
        with commit(backend):
            backend.append(batch(owned, *wanted[start : start + 2_500], first_seq=start + 1))
    assert texts(backend) == wanted
    assert texts(backend, after=9_990) == wanted[9_990:]
    with commit(backend):
        backend.delete("a")
    assert backend.load("a", 0) is None
    assert texts(backend, "b") == ["of b"]


@pytest.mark.slow
def test_what_is_read_is_of_one_moment(backend: Backend) -> None:
    """J17: a snapshot and the deletion of what was before it are seen together, or not yet."""
    owned = agent_with(backend, "a", "1")
    done = threading.Event()

    def write() -> None:
        try:
            for seq in range(2, 300):
                with commit(backend):
                    backend.compact(batch(owned, f"{seq}", first_seq=seq))
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not done.is_set():
        found = loaded(backend)
        assert found.first_seq == found.agent.floor + 1 == found.agent.last_seq
        assert [decode(each) for each in found.records] == [
            Once(key="k", value=f"{found.first_seq}")
        ]
        seen.append(found.first_seq)
    writer.join(timeout=60)
    assert texts(backend) == ["299"]
    assert seen == sorted(seen)


def test_agents_come_by_id_a_page_at_a_time(backend: Backend) -> None:
    with commit(backend):
        for n in reversed(range(25)):
            backend.claim(f"agent-{n:02}", "support")
    wanted = [f"agent-{n:02}" for n in range(25)]
    assert ids(backend) == wanted
    pages, last = [], ""
    while page := ids(backend, after_id=last, limit=10):
        pages.append(page)
        last = page[-1]
    assert pages == [wanted[:10], wanted[10:20], wanted[20:]]


def test_ids_are_ordered_by_code_point_on_every_store(backend: Backend) -> None:
    """Else a page that begins behind an id would leave some out."""
    names = [
        "a",
        "B",
        "b",
        "A",
        "ä",
        "z",
        "Z",
        "a-b",
        "ab",
        "a_b",
        "a b",
        "10",
        "9",
        "é",
        "\U0001f3ad",
    ]
    with commit(backend):
        for name in names:
            backend.claim(name, "support")
    wanted = sorted(names)
    assert ids(backend) == ids(backend, REST) == wanted
    assert [ids(backend, after_id=name, limit=1) for name in wanted[:-1]] == [
        [name] for name in wanted[1:]
    ]


def test_agents_are_found_by_how_they_stand(backend: Backend) -> None:
    wanted = {
        index_status: [f"{index_status.value}-{n}" for n in range(3)]
        for index_status in IndexStatus
    }
    for index_status, names in wanted.items():
        for name in names:
            agent_with(backend, name, "one", index_status=index_status)
    for index_status, names in wanted.items():
        assert ids(backend, index_status) == names
    both = sorted(wanted[OPEN] + wanted[WAITS])
    assert ids(backend, WAITS, OPEN) == both
    assert ids(backend, WAITS, OPEN, after_id=both[1], limit=3) == both[2:5]
    assert backend.agents([], "", 10) == []
    found = backend.agents([QUEUED], "", 1)[0]
    assert found == stored(backend, "queued-0")


def test_agents_that_stand_differently_come_by_id_all_the_same(backend: Backend) -> None:
    for agent_id, index_status in zip("abcdef", [OPEN, WAITS] * 3, strict=True):
        agent_with(backend, agent_id, "one", index_status=index_status)
    assert ids(backend, OPEN, WAITS) == ids(backend, WAITS, OPEN) == list("abcdef")
    assert ids(backend, OPEN, WAITS, after_id="b", limit=3) == list("cde")


def test_an_agent_that_stands_otherwise_now_is_found_there_alone(backend: Backend) -> None:
    owned = agent_with(backend, "a", "one", index_status=OPEN)
    with commit(backend):
        backend.append(batch(owned, "two", first_seq=2, index_status=REST))
    assert (ids(backend, OPEN), ids(backend, REST)) == ([], ["a"])


# -------------------------------------------------------------------- when agents are due

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
FAR = datetime(9999, 12, 31, tzinfo=timezone.utc)


def seconds(number: float) -> datetime:
    return NOON + timedelta(seconds=number)


def dues(backend: Backend, until: datetime = FAR) -> list[tuple[str, datetime | None]]:
    return [(agent.agent_id, agent.due) for agent in backend.due(until, None, 1000)]


def test_agents_that_are_due_come_by_their_due_times(backend: Backend) -> None:
    for name, after in [("a", 3.000001), ("b", 1), ("c", 2), ("d", 1), ("e", 3)]:
        agent_with(backend, name, "one", due=seconds(after))
    agent_with(backend, "f", "one")
    assert dues(backend) == [
        ("b", seconds(1)),
        ("d", seconds(1)),
        ("c", seconds(2)),
        ("e", seconds(3)),
        ("a", seconds(3.000001)),
    ]
    assert [name for name, _ in dues(backend, seconds(3))] == ["b", "d", "c", "e"]
    index = backend
    page = index.due(FAR, (seconds(1), "b"), 2)
    assert [agent.agent_id for agent in page] == ["d", "c"]
    assert page[0] == stored(backend, "d")
    assert index.due(FAR, (seconds(3.000001), "a"), 2) == []


def test_each_batch_says_anew_when_its_agent_is_due(backend: Backend) -> None:
    owned = agent_with(backend, "a", "one", due=seconds(1))
    with commit(backend):
        backend.append(batch(owned, "two", first_seq=2, due=seconds(2)))
    assert dues(backend) == [("a", seconds(2))]
    with commit(backend):
        backend.append(batch(owned, "three", first_seq=3))
    assert dues(backend) == []
    with commit(backend):
        backend.compact(batch(owned, "snapshot", first_seq=4, due=seconds(4)))
    assert dues(backend) == [("a", seconds(4))]


def test_a_deleted_agent_is_not_due_and_neither_is_its_next_incarnation(backend: Backend) -> None:
    agent_with(backend, "a", "one", due=seconds(1))
    with commit(backend):
        backend.delete("a")
    assert dues(backend) == []
    claim(backend)
    assert dues(backend) == []


# -------------------------------------------------------------------- the log of trust


def fact(number: int, text: str = "x", *, by: str | None = None) -> TrustFact:
    at = datetime(2026, 1, 2, 3, 4, 5, number, tzinfo=timezone.utc)
    return TrustFact(number=number, at=at, by=by, kind="tried", data={"text": text})


def add(backend: Backend, added: TrustFact) -> bool:
    with commit(backend):
        return backend.add_trust(added)


@pytest.fixture
def trusting(database: Database) -> Backend:
    backend = database.open()
    if "trust" not in backend.keeps:
        with pytest.raises(UsageError, match="keeps no trust"), commit(backend):
            backend.add_trust(fact(1))
        assert backend.trust_after(0) == []
        pytest.skip("it keeps no log of trust")
    return backend


def test_facts_of_the_log_of_trust_come_back_in_their_order(trusting: Backend) -> None:
    """V8."""
    facts = [fact(1, "é \U0001f465 '; --"), fact(2, by="ann"), fact(3)]
    assert [add(trusting, each) for each in facts] == [True, True, True]
    assert trusting.trust_after(0) == facts
    assert trusting.trust_after(2) == facts[2:]
    assert trusting.trust_after(3) == []


def test_a_fact_that_was_decided_by_an_older_log_is_refused(trusting: Backend) -> None:
    """V8: what another one has added meanwhile counts first."""
    assert add(trusting, fact(1, "first"))
    assert not add(trusting, fact(1, "second"))
    assert not add(trusting, fact(3, "there is no second one"))
    assert trusting.trust_after(0) == [fact(1, "first")]


def test_a_fact_that_is_added_once_more_is_there_once(trusting: Backend) -> None:
    """V8: the answer to the first attempt was lost."""
    assert add(trusting, fact(1))
    assert add(trusting, fact(1))
    assert add(trusting, fact(2))
    assert add(trusting, fact(1)), "also behind another one"
    assert trusting.trust_after(0) == [fact(1), fact(2)]


def test_the_log_of_trust_outlives_the_store_being_closed(database: Database) -> None:
    """V8: who opens it has seen its last number."""
    first = database.open()
    if "trust" not in first.keeps:
        pytest.skip("it keeps no log of trust")
    assert first.trust_seen == 0
    add(first, fact(1))
    add(first, fact(2))
    first.close()
    again = database.open()
    assert again.trust_seen == 2
    assert again.trust_after(0) == [fact(1), fact(2)]


def test_a_commit_brings_the_last_number_of_the_log_of_trust(
    two: tuple[Backend, Backend],
) -> None:
    """V8: of a host that asks for it, with the records of any agent."""
    here, there = two
    assert isinstance(here, SharedBackend)
    owned = claim(here)
    append(here, owned, "one")
    assert add(there, fact(1))
    append(here, owned, "two", first_seq=2)
    assert here.trust_seen == 0, "it has not asked for it"
    here.follow_trust()
    append(here, owned, "three", first_seq=3)
    assert here.trust_seen == 1
    assert add(there, fact(2))
    with pytest.raises(StoreConflict):
        append(here, owned, "four", first_seq=7)
    here.rollback()
    append(here, owned, "four", first_seq=4)
    assert here.trust_seen == 2
    assert texts(here) == ["one", "two", "three", "four"]


def test_a_renewal_of_the_lease_brings_the_last_number_of_the_log_of_trust(
    two: tuple[Backend, Backend],
) -> None:
    """V8."""
    here, there = two
    assert add(there, fact(1))
    here.renew()
    assert here.trust_seen == 1


def test_a_fact_is_added_while_another_host_has_a_transaction_open(
    two: tuple[Backend, Backend],
) -> None:
    """V8: a host that is suspended in the middle of one keeps no other from adding."""
    here, there = two
    here.begin()
    assert here.claim("a", "support") is not None
    assert here.add_trust(fact(1))
    assert there.trust_after(0) == [fact(1)], "it commits by itself"
    assert add(there, fact(2))
    here.rollback()
    assert here.trust_after(0) == [fact(1), fact(2)]


# -------------------------------------------------------------------- what calls spend


@pytest.fixture
async def spending(database: Database) -> AsyncIterator[Purse]:
    backend = database.backend("here")
    if "spending" not in backend.keeps:
        assert DatabaseStore(backend).spending is None
        with pytest.raises(UsageError, match="keeps no spending"):
            backend.load_spending()
        pytest.skip("it keeps no spending")
    purse = await Purse(DatabaseStore(backend)).open("a", "b")
    yield purse
    await purse.store.close()


async def test_what_an_agent_reserves_and_spends_counts_for_all(spending: Purse) -> None:
    """J97."""
    assert await spending.makes("a", "one", line(60), line(1, budget="calls"))
    assert not await spending.makes("b", "two", line(50), line(1, budget="calls"))
    await spending.settle("a", "one", 40)
    assert await spending.makes("b", "two", line(60), line(1, budget="calls"))
    assert not await spending.makes("a", "three", line(1))
    assert await spending.sum_of("calls") == 2


async def test_what_is_reserved_and_spent_outlives_the_store_being_closed(spending: Purse) -> None:
    """J97."""
    await spending.reserve("a", "one", line(60, ref="17"))
    await spending.reserve("b", "two", line(20))
    await spending.settle("a", "one", 50)
    await spending.store.close()
    await spending.open("a", "b")
    assert await spending.sum_of() == 70
    assert [each.id.what for each in await spending.open_of("b")] == ["two"]
    await spending.settle("b", "two", 5, gives={("refunds", "17"): "10"})
    assert await spending.sum_of() == 45


async def test_a_batch_that_is_refused_settles_nothing(spending: Purse) -> None:
    """J97."""
    await spending.reserve("a", "one", line(60))
    stale = spending.journals["a"]
    await spending.begin("a")
    stale.append([Once(key="k", value="late")])
    stale.settle([spend(spending.id("a", "one"), 1)])
    with pytest.raises(Fenced):
        await stale.durable()
    assert await spending.sum_of() == 60
    assert len(await spending.open_of("a")) == 1


async def test_a_compaction_leaves_what_calls_spend(spending: Purse) -> None:
    """J97."""
    await spending.reserve("a", "one", line(60))
    await spending.reserve("a", "two", line(20, ref="17"))
    await spending.settle("a", "two")
    owned = spending.journals.pop("a").owned
    snapshot = Snapshot(state=AgentState().to_dict())
    await spending.store.compact(owned, snapshot, IndexEntry(REST))
    await spending.begin("a")
    await spending.settle("a", "one", 50, gives={("refunds", "17"): None})
    assert await spending.sum_of() == 50


async def test_a_deletion_counts_what_was_open_in_full(spending: Purse) -> None:
    """J97."""
    await spending.reserve("a", "one", line(60))
    await spending.delete("a")
    await spending.begin("a")
    assert list(await spending.buckets()) == [BucketSum(0, money(60), money(0), money(60))]
    assert await spending.open_of("a") == []


# ---------------------------------------------------- many changes, against a plain model

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["claim", "append", "stale", "gap", "compact", "delete", "rollback"]),
        st.sampled_from("abc"),
        st.integers(1, 4),
    ),
    max_size=40,
)


class Model:
    """What one agent's records are, kept in a list."""

    def __init__(self) -> None:
        self.owned: Owned | None = None
        self.seq = 0
        self.kept: list[str] = []


def _change(backend: Backend, model: Model, act: str, agent_id: str, count: int) -> None:
    owned = model.owned
    if act == "claim" or owned is None:
        model.owned = claim(backend, agent_id)
        assert model.owned.last_seq == model.seq
        return
    names = [f"{model.seq + n + 1}" for n in range(count)]
    backend.begin()
    if act in ("append", "rollback"):
        backend.append(batch(owned, *names, first_seq=model.seq + 1))
    elif act == "stale":
        older = Owned(
            agent_id=agent_id, agent="", incarnation=1, epoch=owned.epoch - 1, last_seq=model.seq
        )
        with pytest.raises(Fenced):
            backend.append(batch(older, *names))
    elif act == "gap":
        with pytest.raises(StoreConflict):
            backend.append(batch(owned, *names, first_seq=model.seq + 1 + count))
    elif act == "compact":
        backend.compact(batch(owned, names[0], first_seq=model.seq + 1))
        model.kept, model.seq = names[:1], model.seq + 1
    else:
        assert backend.delete(agent_id)
        model.owned, model.kept, model.seq = None, [], 0
    if act == "rollback":
        backend.rollback()
        return
    backend.commit()
    if act == "append":
        model.kept, model.seq = model.kept + names, model.seq + count


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHANGES)
def test_any_mix_of_changes_leaves_what_a_list_would_hold(
    backend: Backend, mix: list[tuple[str, str, int]]
) -> None:
    """J7, J16, J17."""
    models = {agent_id: Model() for agent_id in "abc"}
    for agent_id in models:
        with commit(backend):
            backend.delete(agent_id)
    for act, agent_id, count in mix:
        _change(backend, models[agent_id], act, agent_id, count)
    for agent_id, model in models.items():
        if model.owned is None:
            assert backend.load(agent_id, 0) is None
            continue
        assert texts(backend, agent_id) == model.kept
        assert stored(backend, agent_id).last_seq == model.seq
        assert loaded(backend, agent_id).first_seq == model.seq - len(model.kept) + 1
