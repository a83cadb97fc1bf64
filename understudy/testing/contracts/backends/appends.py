"""Records that are added, and batches that are refused."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone

from understudy.errors import Fenced, StoreConflict
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import Batch, IndexEntry, IndexStatus, Owned
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    append_batch,
    batch,
    claim,
    commit,
    knowing,
    loaded,
    stored,
    texts,
)
from understudy.testing.contracts.contract import cases, raised

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


class Appends(BackendTests):
    """Records that are added, and batches that are refused."""

    def test_appended_records_come_back_in_order_and_numbered(self) -> None:
        # J7
        backend = self.open()
        owned = agent_with(backend, "a", "one", "two")
        with commit(backend):
            backend.append(batch(owned, "three", first_seq=3))
        assert texts(backend) == ["one", "two", "three"]
        assert (loaded(backend).first_seq, stored(backend).last_seq) == (1, 3)

    def test_the_bytes_of_a_record_are_not_touched(self) -> None:
        backend = self.open()
        owned = claim(backend)
        payloads = [
            b'{"key":"k",  "value": 1.0}',
            '{"value":"\N{BUSTS IN SILHOUETTE} é \\u0000 \\ud800"}'.encode(),
            b"'; DROP TABLE records; --",
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
                    entry=IndexEntry(IndexStatus.OPEN),
                )
            )
        found = loaded(backend).records
        assert found == records
        assert {type(each.payload) for each in found} == {bytes}

    def test_a_batch_says_how_the_agent_stands_now(self) -> None:
        backend = self.open()
        owned = agent_with(backend, "a", "one", index_status=IndexStatus.OPEN)
        for seq, index_status in enumerate(IndexStatus, start=2):
            with commit(backend):
                backend.append(batch(owned, "more", first_seq=seq, index_status=index_status))
            assert stored(backend).index_status is index_status

    def test_a_batch_without_records_changes_the_standing_alone(self) -> None:
        """The index learns of a quarantine, for instance, when its last record has long been
        durable.
        """
        backend = self.open()
        owned = agent_with(backend, "a", "one")
        with commit(backend):
            backend.append(batch(owned, first_seq=2, index_status=IndexStatus.QUARANTINED))
        assert stored(backend).index_status is IndexStatus.QUARANTINED
        assert texts(backend) == ["one"]

    def test_the_status_is_as_old_as_its_last_change_or_note(self) -> None:
        """A batch notes the status if a record is about it. Otherwise only a different status is
        news.
        """
        backend = self.open()
        owned = claim(backend)
        for seq, (status, noted, since) in enumerate(
            [
                ("running", False, 1),
                ("running", False, 1),
                ("running", True, 3),
                ("idle", False, 4),
                ("idle", False, 4),
            ],
            start=1,
        ):
            added = batch(owned, "x", first_seq=seq)
            added.entry = IndexEntry(IndexStatus.OPEN, agent_status=status)
            added.at, added.status_noted = NOON + timedelta(seconds=seq), noted
            append_batch(backend, added)
            agent = stored(backend)
            assert agent.agent_status == status
            assert agent.status_at == NOON + timedelta(seconds=since), f"after record {seq}"

    def test_the_definition_that_has_begun_the_open_run_is_kept(self) -> None:
        backend = self.open()
        owned = claim(backend)
        for seq, version in enumerate(["one", "two", None, "three"], start=1):
            added = batch(owned, "x", first_seq=seq)
            added.entry = IndexEntry(IndexStatus.OPEN, run_version=version)
            append_batch(backend, added)
            assert stored(backend).run_version == version
        with commit(backend):
            backend.delete("a")
        claim(backend)
        assert stored(backend).run_version is None

    def test_a_batch_of_an_older_epoch_is_fenced(self) -> None:
        # J7
        backend = self.open()
        older = claim(backend)
        claim(backend)
        backend.begin()
        with raised(Fenced, match="'a'"):
            backend.append(batch(older, "late"))
        backend.commit()
        assert texts(backend) == []

    def test_a_batch_of_an_epoch_that_never_was_is_fenced(self) -> None:
        """The epoch must equal the current one; it is not enough that it is as high."""
        # J7
        backend = self.open()
        owned = claim(backend)
        newer = Owned(
            agent_id="a", agent="support", incarnation=1, epoch=owned.epoch + 1, last_seq=0
        )
        backend.begin()
        with raised(Fenced):
            backend.append(batch(newer, "x"))
        backend.rollback()

    def test_a_batch_of_another_incarnation_is_fenced(self) -> None:
        # J7
        backend = self.open()
        owned = claim(backend)
        other = Owned(agent_id="a", agent="support", incarnation=2, epoch=owned.epoch, last_seq=0)
        backend.begin()
        with raised(Fenced, match="incarnation"):
            backend.append(batch(other, "x"))
        backend.commit()
        assert texts(backend) == []

    def test_a_batch_of_an_unknown_agent_is_fenced(self) -> None:
        backend = self.open()
        nobody = Owned(agent_id="nobody", agent="support", incarnation=1, epoch=1, last_seq=0)
        backend.begin()
        with raised(Fenced, match="nobody"):
            backend.append(batch(nobody, "x"))
        backend.commit()
        assert backend.load("nobody", 0) is None

    @cases(first=1, last=2, one_too_far=4, far=100)
    def test_a_number_that_is_not_the_next_one_is_a_conflict(self, case: int) -> None:
        # J7
        backend = self.open()
        owned = agent_with(backend, "a", "one", "two")
        backend.begin()
        with raised(StoreConflict) as caught:
            backend.append(batch(owned, "x", first_seq=case))
        backend.commit()
        assert caught.error.facts == {"agent_id": "a", "expected": 3, "got": case}
        assert texts(backend) == ["one", "two"]

    def test_a_fenced_batch_is_told_before_a_wrong_number(self) -> None:
        """A fenced writer is no defect, whatever number its batch has."""
        backend = self.open()
        older = claim(backend)
        agent_with(backend, "a", "one")
        backend.begin()
        with raised(Fenced):
            backend.append(batch(older, "late", first_seq=1))
        backend.rollback()

    @cases(fenced="fenced", conflict="conflict")
    def test_the_other_batches_of_a_transaction_go_on_when_one_is_refused(self, case: str) -> None:
        backend = self.open()
        a, b, c = (claim(backend, each) for each in "abc")
        wrong = batch(b, "x", first_seq=5) if case == "conflict" else batch(b, "x")
        if case == "fenced":
            claim(backend, "b")
        backend.begin()
        backend.append(batch(a, "one"))
        with raised(Fenced if case == "fenced" else StoreConflict):
            backend.append(wrong)
        backend.append(batch(c, "two", "three"))
        backend.commit()
        assert [texts(backend, each) for each in "abc"] == [["one"], [], ["two", "three"]]
        assert stored(backend, "b").index_status is IndexStatus.REST

    def test_many_batches_at_once_are_answered_each_in_its_place(self) -> None:
        # J7, J16
        backend = self.open()
        older = claim(backend, "b")
        a, _, c, d = (claim(backend, each) for each in "abcd")
        batches = [
            batch(a, "one", "two"),
            batch(older, "late"),
            batch(c, "one", first_seq=7),
            batch(d, "one", index_status=IndexStatus.WAITS),
            batch(a, "three", first_seq=3, index_status=IndexStatus.REST),
        ]
        backend.begin()
        answers = backend.append_all(batches)
        backend.commit()
        assert [type(answer) for answer in answers] == [
            *(type(None), Fenced, StoreConflict, type(None), type(None))
        ]
        assert [answer.facts["agent_id"] for answer in answers if answer is not None] == ["b", "c"]
        assert [texts(backend, each) for each in "abcd"] == [
            ["one", "two", "three"],
            [],
            [],
            ["one"],
        ]
        assert [stored(backend, each).index_status for each in "abcd"] == [
            IndexStatus.REST,
            IndexStatus.REST,
            IndexStatus.REST,
            IndexStatus.WAITS,
        ]
        assert [backend.is_committed(each) for each in batches] == [True, False, False, True, True]

    def test_batches_that_are_a_transaction_are_answered_each_in_its_place(self) -> None:
        # J7, J16
        backend = self.open()
        older = claim(backend, "b")
        a, b, c = (claim(backend, each) for each in "abc")
        assert backend.commit_all([knowing(batch(a, "one", "two")), knowing(batch(c, "one"))]) == [
            None,
            None,
        ]
        late, next_one = knowing(batch(older, "late")), knowing(batch(a, "three", first_seq=3))
        answers = backend.commit_all([late, next_one])
        assert [type(answer) for answer in answers] == [Fenced, type(None)]
        assert backend.commit_all([batch(b, "one")]) == [None]
        assert [texts(backend, each) for each in "abc"] == [
            ["one", "two", "three"],
            ["one"],
            ["one"],
        ]
        assert [backend.is_committed(each) for each in (late, next_one)] == [False, True]

    def test_no_batches_at_once_are_no_answers(self) -> None:
        backend = self.open()
        with commit(backend):
            assert backend.append_all([]) == []

    def test_many_batches_at_once_are_undone_together(self) -> None:
        backend = self.open()
        a, b = claim(backend, "a"), claim(backend, "b")
        backend.begin()
        assert backend.append_all([batch(a, "one"), batch(b, "one")]) == [None, None]
        backend.rollback()
        assert (texts(backend, "a"), texts(backend, "b")) == ([], [])

    def test_several_batches_of_one_agent_may_be_in_one_transaction(self) -> None:
        backend = self.open()
        owned = claim(backend)
        with commit(backend):
            backend.append(batch(owned, "one"))
            backend.append(batch(owned, "two", first_seq=2, index_status=IndexStatus.WAITS))
        assert texts(backend) == ["one", "two"]
        assert stored(backend).index_status is IndexStatus.WAITS

    def test_an_agent_is_claimed_and_written_in_one_transaction(self) -> None:
        backend = self.open()
        with commit(backend):
            owned = backend.claim("a", "support")
            assert owned is not None
            backend.append(batch(owned, "one"))
        assert texts(backend) == ["one"]
