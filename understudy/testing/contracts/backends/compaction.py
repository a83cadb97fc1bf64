"""A snapshot that replaces the records before it."""

from __future__ import annotations

from understudy.errors import Fenced, StoreConflict
from understudy.journal.contracts import IndexStatus
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    batch,
    claim,
    commit,
    loaded,
    stored,
    texts,
)
from understudy.testing.contracts.contract import cases, raised


class Compaction(BackendTests):
    """A snapshot that replaces the records before it."""

    def test_a_snapshot_takes_the_place_of_all_before_it(self) -> None:
        # J17
        backend = self.open()
        owned = agent_with(backend, "a", "one", "two", "three")
        with commit(backend):
            backend.compact(batch(owned, "snapshot", first_seq=4, index_status=IndexStatus.REST))
        assert texts(backend) == ["snapshot"]
        assert loaded(backend).first_seq == 4
        agent = stored(backend)
        assert (agent.floor, agent.last_seq, agent.index_status) == (3, 4, IndexStatus.REST)
        with commit(backend):
            backend.append(batch(owned, "five", first_seq=5))
        assert texts(backend) == ["snapshot", "five"]

    @cases(all=0, below=2, floor=3)
    def test_what_is_asked_for_below_the_floor_is_told_from_the_snapshot_on(
        self, case: int
    ) -> None:
        # J17
        backend = self.open()
        owned = agent_with(backend, "a", "one", "two", "three")
        with commit(backend):
            backend.compact(batch(owned, "snapshot", first_seq=4))
            backend.append(batch(owned, "five", first_seq=5))
        found = loaded(backend, after=case)
        assert (found.first_seq, found.agent.floor) == (4, 3)
        assert texts(backend, after=case) == ["snapshot", "five"]
        assert texts(backend, after=4) == ["five"]

    def test_a_later_snapshot_takes_the_place_of_an_earlier_one(self) -> None:
        backend = self.open()
        owned = agent_with(backend, "a", "one")
        agent_with(backend, "b", "of b")
        with commit(backend):
            backend.compact(batch(owned, "first", first_seq=2))
            backend.append(batch(owned, "three", first_seq=3))
            backend.compact(batch(owned, "second", first_seq=4))
        assert texts(backend) == ["second"]
        assert stored(backend).floor == 3
        assert texts(backend, "b") == ["of b"]

    def test_a_snapshot_of_an_older_epoch_deletes_nothing(self) -> None:
        # J17
        backend = self.open()
        older = agent_with(backend, "a", "one")
        claim(backend)
        backend.begin()
        with raised(Fenced):
            backend.compact(batch(older, "snapshot", first_seq=2))
        backend.commit()
        assert texts(backend) == ["one"]
        assert stored(backend).floor == 0

    def test_a_snapshot_that_is_not_the_next_record_deletes_nothing(self) -> None:
        # J17
        backend = self.open()
        owned = agent_with(backend, "a", "one", "two")
        backend.begin()
        with raised(StoreConflict):
            backend.compact(batch(owned, "snapshot", first_seq=2))
        backend.commit()
        assert texts(backend) == ["one", "two"]
        assert stored(backend).floor == 0

    def test_a_snapshot_is_known_to_be_committed(self) -> None:
        # J16
        backend = self.open()
        owned = agent_with(backend, "a", "one")
        snapshot = batch(owned, "snapshot", first_seq=2)
        assert not backend.is_committed(snapshot)
        with commit(backend):
            backend.compact(snapshot)
        assert backend.is_committed(snapshot)
