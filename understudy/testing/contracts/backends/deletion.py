"""An agent that is deleted, and the next agent of its id."""

from __future__ import annotations

from understudy.errors import Fenced
from understudy.journal.contracts import IndexStatus
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    append,
    batch,
    claim,
    commit,
    ids,
    loaded,
    stored,
    texts,
)
from understudy.testing.contracts.contract import raised


class Deletion(BackendTests):
    """An agent that is deleted, and the next agent of its id."""

    def test_a_deleted_agent_is_gone(self) -> None:
        backend = self.open()
        agent_with(backend, "a", "one")
        agent_with(backend, "b", "of b")
        with commit(backend):
            assert backend.delete("a") is True
        assert backend.load("a", 0) is None
        assert ids(backend) == ids(backend, IndexStatus.OPEN) == ["b"]
        assert texts(backend, "b") == ["of b"]

    def test_deleting_what_is_not_there_says_so(self) -> None:
        backend = self.open()
        with commit(backend):
            assert backend.delete("a") is False
        agent_with(backend, "a", "one")
        with commit(backend):
            assert backend.delete("a") is True
            assert backend.delete("a") is False

    def test_a_deleted_agent_is_not_claimed_without_the_name_of_a_definition(self) -> None:
        backend = self.open()
        agent_with(backend, "a", "one")
        with commit(backend):
            backend.delete("a")
            assert backend.claim("a", None) is None
        assert backend.load("a", 0) is None

    def test_after_a_deletion_the_next_incarnation_begins_above_the_tombstone(self) -> None:
        # J7
        backend = self.open()
        claim(backend)
        owned = agent_with(backend, "a", "one", "two", index_status=IndexStatus.WAITS)
        with commit(backend):
            backend.compact(batch(owned, "snapshot", first_seq=3))
            backend.delete("a")
        again = claim(backend, "a", "sales")
        assert (again.agent, again.incarnation, again.last_seq) == ("sales", 2, 0)
        assert again.epoch > owned.epoch
        agent = stored(backend)
        assert (agent.agent, agent.floor, agent.index_status) == ("sales", 0, IndexStatus.REST)
        assert agent.host == backend.host, "it has an owner again"
        append(backend, again, "new")
        assert texts(backend) == ["new"]
        assert loaded(backend).first_seq == 1

    def test_epochs_and_incarnations_grow_over_many_deletions(self) -> None:
        backend = self.open()
        seen = []
        for _ in range(4):
            owned = agent_with(backend, "a", "one")
            seen.append((owned.incarnation, owned.epoch))
            with commit(backend):
                backend.delete("a")
        assert [incarnation for incarnation, _ in seen] == [1, 2, 3, 4]
        epochs = [epoch for _, epoch in seen]
        assert epochs == sorted(set(epochs))

    def test_a_batch_of_a_deleted_agent_is_fenced(self) -> None:
        # J7
        backend = self.open()
        owned = agent_with(backend, "a", "one")
        with commit(backend):
            backend.delete("a")
        for change in (backend.append, backend.compact):
            backend.begin()
            with raised(Fenced):
                change(batch(owned, "late", first_seq=2))
            backend.commit()
        claim(backend)
        backend.begin()
        with raised(Fenced):
            backend.append(batch(owned, "late", first_seq=1))
        backend.commit()
        assert texts(backend) == []

    def test_a_tombstone_outlives_the_store_being_closed(self) -> None:
        first = self.open()
        owned = agent_with(first, "a", "one")
        with commit(first):
            first.delete("a")
        first.close()
        again = claim(self.open())
        assert (again.incarnation, again.epoch > owned.epoch) == (2, True)
