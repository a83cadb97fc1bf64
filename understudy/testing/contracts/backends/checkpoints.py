"""The checkpoints of agents."""

from __future__ import annotations

from understudy.journal.backend import Backend
from understudy.journal.checkpoints import Checkpoint, Segment
from understudy.journal.codec import decode
from understudy.journal.contracts import Owned
from understudy.state.records import Once
from understudy.testing.contracts.backends.batches import (
    agent_with,
    append,
    batch,
    claim,
    commit,
    loaded,
)
from understudy.testing.contracts.backends.files import KeepingTests


def _segment(number: int, text: str = "") -> Segment:
    payload = f'["{number} {text} \N{BUSTS IN SILHOUETTE}"]'.encode()
    return Segment(number=number, messages=number + 1, payload=payload, crc=0xFFFFFFFF - number)


def _checkpoint(seq: int, *segments: Segment, first_segment: int = 0) -> Checkpoint:
    return Checkpoint(
        seq=seq,
        head=f'{{"at": {seq}}}'.encode(),
        crc=0xFFFFFFFF - seq,
        segments=segments,
        first_segment=first_segment,
    )


def _write(backend: Backend, owned: Owned, checkpoint: Checkpoint) -> None:
    with commit(backend):
        backend.write_checkpoint(owned, checkpoint)


def _found(backend: Backend) -> tuple[int, bytes, int, tuple[Segment, ...]] | None:
    """The stored last checkpoint of an agent, whose later records are stored too."""
    latest = backend.load_latest("a")
    assert latest is not None
    checkpoint, stored = latest
    after = 0 if checkpoint is None else checkpoint.seq
    whole = loaded(backend, after=after)
    assert (stored.agent, stored.first_seq, stored.records) == (
        whole.agent,
        whole.first_seq,
        whole.records,
    )
    if checkpoint is None:
        return None
    assert [decode(each) for each in stored.records] == [
        Once(key="k", value=f"{seq}") for seq in range(after + 1, stored.agent.last_seq + 1)
    ]
    return checkpoint.seq, checkpoint.head, checkpoint.crc, checkpoint.segments


def _kept(written: Checkpoint, *segments: Segment) -> tuple[int, bytes, int, tuple[Segment, ...]]:
    return written.seq, written.head, written.crc, segments


class Checkpoints(KeepingTests):
    """The checkpoints of agents."""

    def test_the_last_checkpoint_comes_with_the_records_behind_it(self) -> None:
        backend = self._keeping("checkpoints")
        owned = agent_with(backend, "a", "1", "2", "3", "4")
        agent_with(backend, "b", "1")
        assert _found(backend) is None
        assert backend.load_latest("nobody") is None
        first = _checkpoint(2, _segment(0), _segment(1))
        _write(backend, owned, first)
        assert _found(backend) == _kept(first, *first.segments)
        append(backend, owned, "5", first_seq=5)
        assert _found(backend) == _kept(first, *first.segments)
        backend.close()
        backend.open()
        assert _found(backend) == _kept(first, *first.segments)

    def test_segments_of_messages_take_the_place_of_those_with_their_numbers_and_above(
        self,
    ) -> None:
        """A checkpoint brings only the segments that the database does not have yet."""
        backend = self._keeping("checkpoints")
        owned = agent_with(backend, "a", "1", "2", "3", "4", "5", "6")
        _write(backend, owned, _checkpoint(1, _segment(0), _segment(1), _segment(2)))
        second = _checkpoint(2, _segment(3), _segment(4), first_segment=3)
        _write(backend, owned, second)
        assert _found(backend) == _kept(second, *map(_segment, range(5)))
        third = _checkpoint(3, _segment(1, "new"), first_segment=1)
        _write(backend, owned, third)
        assert _found(backend) == _kept(third, _segment(0), _segment(1, "new"))
        fourth = _checkpoint(4, first_segment=2)
        _write(backend, owned, fourth)
        assert _found(backend) == _kept(fourth, _segment(0), _segment(1, "new"))
        fifth = _checkpoint(5, _segment(0, "anew"))
        _write(backend, owned, fifth)
        assert _found(backend) == _kept(fifth, _segment(0, "anew"))
        last = _checkpoint(6)
        _write(backend, owned, last)
        assert _found(backend) == _kept(last)

    def test_a_checkpoint_of_a_record_that_is_not_there_is_not_written(self) -> None:
        backend = self._keeping("checkpoints")
        owned = agent_with(backend, "a", "1", "2")
        _write(backend, owned, _checkpoint(3, _segment(0)))
        assert _found(backend) is None
        kept = _checkpoint(2, _segment(0))
        _write(backend, owned, kept)
        _write(backend, owned, _checkpoint(3, _segment(0, "of a record to come")))
        assert _found(backend) == _kept(kept, _segment(0))

    def test_a_checkpoint_under_an_older_claim_is_not_written(self) -> None:
        # J7
        backend = self._keeping("checkpoints")
        older = agent_with(backend, "a", "1", "2")
        newer = claim(backend)
        _write(backend, older, _checkpoint(1, _segment(0)))
        assert _found(backend) is None
        kept = _checkpoint(1, _segment(0))
        _write(backend, newer, kept)
        _write(backend, older, _checkpoint(2, _segment(0, "late")))
        assert _found(backend) == _kept(kept, _segment(0))

    def test_a_compaction_deletes_the_checkpoint(self) -> None:
        # J17
        backend = self._keeping("checkpoints")
        owned = agent_with(backend, "a", "1", "2")
        _write(backend, owned, _checkpoint(2, _segment(0)))
        with commit(backend):
            backend.compact(batch(owned, "3", first_seq=3))
        assert _found(backend) is None

    def test_a_deletion_deletes_the_checkpoint(self) -> None:
        backend = self._keeping("checkpoints")
        owned = agent_with(backend, "a", "1", "2")
        _write(backend, owned, _checkpoint(2, _segment(0)))
        with commit(backend):
            backend.delete("a")
        assert backend.load_latest("a") is None
        agent_with(backend, "a", "1", "2", "3")
        assert _found(backend) is None

    def test_a_rollback_leaves_the_checkpoint_before(self) -> None:
        backend = self._keeping("checkpoints")
        owned = agent_with(backend, "a", "1", "2")
        kept = _checkpoint(1, _segment(0))
        _write(backend, owned, kept)
        backend.begin()
        backend.write_checkpoint(owned, _checkpoint(2, _segment(0, "lost")))
        backend.rollback()
        assert _found(backend) == _kept(kept, _segment(0))
