"""Whether a batch is stored if the answer to its commit was lost."""

from __future__ import annotations

from collections.abc import Callable

from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import Batch, IndexStatus
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    append,
    batch,
    claim,
    commit,
    record,
)
from understudy.testing.contracts.contract import cases


def _with(of: Batch, **changed: object) -> Batch:
    fields = {name: getattr(of, name) for name in Batch.__dataclass_fields__}
    return Batch(**{**fields, **changed})


class Commits(BackendTests):
    """Whether a batch is stored if the answer to its commit was lost."""

    def test_a_committed_batch_is_known_after_the_store_was_opened_again(self) -> None:
        # J16
        first = self.open()
        owned = claim(first)
        kept, lost = batch(owned, "one", "two"), batch(owned, "three", first_seq=3)
        with commit(first):
            first.append(kept)
        first.begin()
        first.append(lost)
        first.rollback()
        first.close()
        again = self.open()
        assert (again.is_committed(kept), again.is_committed(lost)) == (True, False)

    def test_a_committed_batch_is_known_after_a_reconnect(self) -> None:
        # J16
        backend = self.open()
        kept = batch(claim(backend), "one")
        with commit(backend):
            backend.append(kept)
        backend.reconnect()
        assert backend.is_committed(kept)

    @cases(
        agent=lambda of: _with(of, agent_id="b"),
        unknown_agent=lambda of: _with(of, agent_id="nobody"),
        incarnation=lambda of: _with(of, incarnation=2),
        later_epoch=lambda of: _with(of, epoch=of.epoch + 1),
        earlier_epoch=lambda of: _with(of, epoch=of.epoch - 1),
        number=lambda of: _with(of, first_seq=2),
        more_records=lambda of: _with(of, records=(*of.records, record("three"))),
        text=lambda of: _with(of, records=(of.records[0], record("zwei"))),
        order=lambda of: _with(of, records=tuple(reversed(of.records))),
        kind=lambda of: _with(of, records=(of.records[0], EncodedRecord("other", 1, b"{}"))),
        version=lambda of: _with(
            of,
            records=tuple(EncodedRecord(r.kind, r.version + 1, r.payload) for r in of.records),
        ),
    )
    def test_a_batch_that_differs_in_anything_is_not_committed(
        self, case: Callable[[Batch], Batch]
    ) -> None:
        """Another writer may have put its own records at these numbers."""
        # J16
        backend = self.open()
        claim(backend, "b")
        claim(backend)
        kept = batch(claim(backend), "one", "two")
        with commit(backend):
            backend.append(kept)
        assert backend.is_committed(kept)
        assert not backend.is_committed(case(kept))

    def test_a_batch_stays_committed_when_more_follows(self) -> None:
        backend = self.open()
        owned = claim(backend)
        kept = batch(owned, "one")
        with commit(backend):
            backend.append(kept)
            backend.append(batch(owned, "two", first_seq=2))
        claim(backend)
        assert backend.is_committed(kept)

    def test_a_batch_of_a_deleted_agent_is_not_committed(self) -> None:
        backend = self.open()
        kept = batch(claim(backend), "one")
        with commit(backend):
            backend.append(kept)
        with commit(backend):
            backend.delete("a")
        assert not backend.is_committed(kept)
        again = claim(backend)
        append(backend, again, "one")
        assert not backend.is_committed(kept)

    def test_a_batch_without_records_is_committed_when_its_standing_is(self) -> None:
        backend = self.open()
        owned = agent_with(backend, "a", "one")
        empty = batch(owned, first_seq=2, index_status=IndexStatus.WAITS)
        assert not backend.is_committed(empty)
        with commit(backend):
            backend.append(empty)
        assert backend.is_committed(empty)
        with commit(backend):
            backend.delete("a")
        assert not backend.is_committed(empty)
