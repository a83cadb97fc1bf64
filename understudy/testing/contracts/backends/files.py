"""What a database keeps beside records: bytes of files, and ids of messages."""

from __future__ import annotations

from hashlib import sha256

from understudy.errors import Fenced
from understudy.journal.backend import Backend
from understudy.journal.contracts import Batch, Owned
from understudy.journal.kept import Kept
from understudy.journal.shared import check_kept
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import append_batch, batch, claim, commit
from understudy.testing.contracts.contract import raised


def _hashed(*contents: bytes) -> dict[str, bytes]:
    return {sha256(each).hexdigest(): each for each in contents}


BLOBS = _hashed(b"one", b"\x00\xff two", b"")


class KeepingTests(BackendTests):
    """Tests of the optional parts that a database may keep beside records."""

    def _keeping(self, kept: Kept) -> Backend:
        """An open backend that keeps this. The test is skipped if there is none."""
        backend = self.open()
        if kept not in backend.keeps:
            self.skip(f"it keeps no {kept}")
        return backend


class Files(KeepingTests):
    """The maximum bytes of files, and ids of messages."""

    def test_what_it_keeps_has_its_methods(self) -> None:
        check_kept(self.new_backend("here"))

    def _with_blobs(self, backend: Backend, agent_id: str) -> Owned:
        owned = claim(backend, agent_id)
        append_batch(backend, with_blobs(batch(owned, "one"), BLOBS))
        return owned

    def test_bytes_of_files_are_kept_for_each_agent_by_their_hashes(self) -> None:
        backend = self._keeping("files")
        owned = self._with_blobs(backend, "a")
        claim(backend, "b")
        one, *_ = BLOBS
        assert dict(backend.load_blobs("a", None)) == BLOBS
        assert dict(backend.load_blobs("a", [one, "00" * 32])) == {one: BLOBS[one]}
        assert dict(backend.load_blobs("a", [])) == {}
        assert dict(backend.load_blobs("b", None)) == {}
        assert dict(backend.load_blobs("nobody", None)) == {}
        more = _hashed(b"one", b"three")
        append_batch(backend, with_blobs(batch(owned, "two", first_seq=2), more))
        assert dict(backend.load_blobs("a", None)) == BLOBS | more, "each once"
        backend.close()
        backend.open()
        assert dict(backend.load_blobs("a", None)) == BLOBS | more

    def test_a_compaction_keeps_the_bytes_that_are_in_use_and_no_others(self) -> None:
        # J17
        backend = self._keeping("files")
        owned = self._with_blobs(backend, "a")
        self._with_blobs(backend, "b")
        one, two, _ = BLOBS
        snapshot = batch(owned, "snapshot", first_seq=2)
        snapshot.blobs_in_use = (one, two)
        with commit(backend):
            backend.compact(snapshot)
        assert dict(backend.load_blobs("a", None)) == {each: BLOBS[each] for each in (one, two)}
        assert dict(backend.load_blobs("b", None)) == BLOBS, "those of another agent stay"

    def test_a_snapshot_that_is_refused_deletes_no_bytes(self) -> None:
        # J17
        backend = self._keeping("files")
        older = self._with_blobs(backend, "a")
        claim(backend)
        backend.begin()
        with raised(Fenced):
            backend.compact(batch(older, "snapshot", first_seq=2))
        with raised(Fenced):
            backend.append(with_blobs(batch(older, "late", first_seq=2), _hashed(b"late")))
        backend.commit()
        assert dict(backend.load_blobs("a", None)) == BLOBS

    def test_a_deletion_deletes_the_bytes_of_the_agent_alone(self) -> None:
        backend = self._keeping("files")
        self._with_blobs(backend, "a")
        self._with_blobs(backend, "b")
        with commit(backend):
            backend.delete("a")
        assert dict(backend.load_blobs("a", None)) == {}
        claim(backend)
        assert dict(backend.load_blobs("a", None)) == {}
        assert dict(backend.load_blobs("b", None)) == BLOBS

    def test_ids_of_old_messages_outlive_compactions_and_go_with_their_agent(self) -> None:
        backend = self._keeping("messages")
        owned = claim(backend)
        runs = {"mail-1": "run-1", "m" * 500: "run-2"}
        archived = batch(owned, "one")
        archived.message_runs = runs
        append_batch(backend, archived)
        claim(backend, "b")
        with commit(backend):
            backend.compact(batch(owned, "snapshot", first_seq=2))
        assert dict(backend.message_runs("a", None)) == runs
        assert dict(backend.message_runs("a", ["mail-1", "mail-9"])) == {"mail-1": "run-1"}
        assert dict(backend.message_runs("b", None)) == {}
        with commit(backend):
            backend.delete("a")
        claim(backend)
        assert dict(backend.message_runs("a", None)) == {}


def with_blobs(made: Batch, blobs: dict[str, bytes]) -> Batch:
    """The batch, with bytes of files."""
    made.blobs = blobs
    return made
