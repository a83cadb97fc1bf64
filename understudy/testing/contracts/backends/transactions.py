"""What is visible of a transaction, and what remains after it."""

from __future__ import annotations

from understudy.journal.contracts import IndexStatus, Owned
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    append,
    batch,
    claim,
    commit,
    ids,
    stored,
    texts,
)
from understudy.testing.contracts.contract import in_thread


class Transactions(BackendTests):
    """What is visible of a transaction, and what remains after it."""

    def test_nothing_is_seen_before_the_commit(self) -> None:
        # J16
        backend = self.open()
        owned = agent_with(backend, "a", "one")
        backend.begin()
        backend.append(batch(owned, "two", first_seq=2, index_status=IndexStatus.WAITS))
        backend.claim("b", "support")
        assert texts(backend) == ["one"]
        assert stored(backend).index_status is IndexStatus.OPEN
        assert backend.load("b", 0) is None
        backend.commit()
        assert texts(backend) == ["one", "two"]
        assert ids(backend) == ["a", "b"]

    def test_a_rollback_leaves_nothing(self) -> None:
        backend = self.open()
        owned = agent_with(backend, "a", "one")
        agent_with(backend, "gone", "one")
        before = [stored(backend, each) for each in ("a", "gone")]
        backend.begin()
        backend.append(batch(owned, "two", first_seq=2, index_status=IndexStatus.WAITS))
        backend.compact(batch(owned, "snapshot", first_seq=3))
        backend.claim("a", None)
        backend.claim("b", "support")
        backend.delete("gone")
        backend.rollback()
        assert [stored(backend, each) for each in ("a", "gone")] == before
        assert (texts(backend), texts(backend, "gone")) == (["one"], ["one"])
        assert backend.load("b", 0) is None
        append(
            backend,
            Owned(agent_id="a", agent="", incarnation=1, epoch=owned.epoch, last_seq=1),
            "2",
        )
        assert texts(backend) == ["one", "2"]

    def test_a_rollback_without_a_transaction_raises_nothing(self) -> None:
        backend = self.open()
        backend.rollback()
        backend.begin()
        backend.rollback()
        backend.rollback()
        assert claim(backend).epoch == 1

    def test_after_a_reconnect_everything_committed_is_there_and_still_owned(self) -> None:
        backend = self.open()
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

    def test_reading_goes_on_while_a_transaction_is_open(self) -> None:
        backend = self.open()
        agent_with(backend, "a", "one")
        backend.begin()
        backend.claim("b", "support")
        found = in_thread(lambda: texts(backend))
        backend.commit()
        assert found == ["one"]
