"""What is SQLite's own: the sidecar lock, restored copies, and disks that fail (J96)."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, cast

import pytest

from tests.support.batches import agent_with, append, batch, claim, commit, ids, stored, texts
from tests.support.programs import PIPE, Started, started
from understudy.errors import (
    Fenced,
    StoreBroken,
    StoreDamaged,
    StoreError,
    StoreInUse,
    StoreUnavailable,
    UsageError,
)
from understudy.journal.codec import EncodedRecord, decode
from understudy.journal.contracts import Batch, Durability, IndexEntry, IndexStatus, Owned
from understudy.journal.sqlite.backend import SqliteBackend

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextmanager
def opened(path: Path, host: str = "here", **options: Any) -> Iterator[SqliteBackend]:
    backend = SqliteBackend(str(path), host=host, **{"durability": "off", **options})
    backend.open()
    try:
        yield backend
    finally:
        backend.close()


def bulk(owned: Owned, size: int, first_seq: int = 1) -> Batch:
    """A batch of one record of so many bytes."""
    return Batch(
        agent_id=owned.agent_id,
        incarnation=owned.incarnation,
        epoch=owned.epoch,
        first_seq=first_seq,
        records=(EncodedRecord("once", 1, b"x" * size),),
        entry=IndexEntry(IndexStatus.OPEN),
    )


def copied(path: Path, name: str) -> Path:
    """A copy of the database as `sqlite3 store.db ".backup ..."` makes it, without the sidecar."""
    copy = path.with_name(name)
    with (
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    return copy


def restore(copy: Path, path: Path) -> None:
    for left in (f"{path}-wal", f"{path}-shm"):
        Path(left).unlink(missing_ok=True)
    shutil.copyfile(copy, path)


@contextmanager
def process(code: str, *arguments: object) -> Iterator[Started]:
    """Another process with a `backend` open, until it is killed here."""
    head = (
        "import os, sys\n"
        "from understudy.journal.sqlite import SqliteBackend\n"
        "backend = SqliteBackend(sys.argv[1], durability='off', host='mill-7')\n"
        "backend.open()\n"
    )
    with started("-c", head + code, *map(str, arguments), stdin=PIPE, stdout=PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def line_of(child: Started) -> str:
    return cast("IO[str]", child.stdout).readline().strip()


# ----------------------------------------------------------------------------- one runtime


@pytest.mark.slow
def test_a_runtime_in_another_process_is_named_and_a_killed_one_is_gone_at_once(
    path: Path,
) -> None:
    code = (
        "backend.begin(); owned = backend.claim('a', 'support'); backend.commit()\n"
        "print('open', flush=True); sys.stdin.read()\n"
    )
    with process(code, path) as child:
        assert line_of(child) == "open"
        second = SqliteBackend(str(path), host="2nd")
        with pytest.raises(StoreInUse, match="mill-7") as caught:
            second.open()
        assert caught.value.facts == {"path": str(path), "holder": "mill-7"}
        child.kill()  # SIGKILL
        child.wait()
        second.open()
    assert stored(second).host is None
    assert claim(second, "a", None).epoch == 2
    with pytest.raises(StoreInUse) as caught:
        SqliteBackend(str(path), host="third").open()
    assert caught.value.facts["holder"] == "2nd"
    second.close()


def test_a_lock_file_that_vanishes_while_it_is_taken_locks_nobody_in(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    taken: list[int] = []

    def too_late(file: int, operation: int) -> None:
        if not taken:
            Path(f"{path}.lock").unlink()
        taken.append(file)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", too_late)
    with opened(path), pytest.raises(StoreInUse):
        SqliteBackend(str(path), host="second").open()


def test_the_lock_is_the_same_one_by_whatever_path_one_comes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)
    with opened(path):
        for other in (link, Path("store.db"), Path("../", path.parent.name, "store.db")):
            with pytest.raises(StoreInUse):
                SqliteBackend(str(other), host="second").open()


def test_a_runtime_that_could_not_open_leaves_the_lock_free(path: Path) -> None:
    path.write_bytes(b"no database at all, but longer than a header of SQLite " * 40)
    with pytest.raises(StoreDamaged):
        SqliteBackend(str(path), host="first").open()
    path.unlink()
    with opened(path):
        pass


def test_a_program_that_was_started_meanwhile_does_not_keep_the_lock(path: Path) -> None:
    with opened(path):
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
        )
    with child:
        with opened(path, "second"):
            assert child.poll() is None
        child.kill()


@pytest.mark.slow
def test_a_forked_child_neither_keeps_the_lock_nor_uses_the_store(path: Path) -> None:
    code = """
import signal
from understudy.errors import StoreBroken
from understudy.journal.sqlite import SqliteBackend
backend.load("a", 0)
if os.fork():
    os.wait() if len(sys.argv) > 2 else os.kill(os.getpid(), signal.SIGKILL)
else:
    again = SqliteBackend(sys.argv[1], host="child")
    said = []
    for act in (backend.begin, backend.reconnect, backend.open, again.open,
                lambda: backend.load("a", 0), lambda: again.load("a", 0)):
        try:
            act()
        except StoreBroken as error:
            said.append("forked" in error.cause)
    backend.rollback(); backend.close()
    print(said, flush=True)
    sys.stdin.read()
"""
    with process(code, path) as child:
        assert line_of(child) == str([True] * 6)
        child.wait()  # the parent is dead, and its child still there
        with opened(path, "second") as backend:
            claim(backend)
        cast("IO[str]", child.stdin).close()


@pytest.mark.slow
def test_a_fork_leaves_the_store_of_the_parent_alone(path: Path) -> None:
    code = """
child = os.fork()
if not child:
    backend.close(); del backend
    os._exit(0)
os.waitpid(child, 0)
backend.begin(); backend.claim("a", "support"); backend.commit()
print(backend.load("a", 0).agent.host, flush=True)
sys.stdin.read()
"""
    with process(code, path) as child:
        assert line_of(child) == "mill-7"
        with pytest.raises(StoreInUse):
            SqliteBackend(str(path), host="second").open()


def test_epochs_hold_where_the_lock_file_was_removed(path: Path) -> None:
    """J7: the lock keeps accidents away; it is the epoch that fences."""
    with opened(path, "first") as first:
        owned = claim(first)
        append(first, owned, "one")
        Path(f"{path}.lock").unlink()
        with opened(path, "second") as second:
            claim(second)
            first.begin()
            with pytest.raises(Fenced):
                first.append(batch(owned, "late", first_seq=2))
            first.rollback()
            with pytest.raises(StoreBroken, match="another runtime"):
                first.reconnect()
            assert texts(second) == ["one"]


def test_the_only_runtime_has_it_for_ever(path: Path) -> None:
    with opened(path) as backend:
        assert backend.renew() == math.inf


# ----------------------------------------------------------------------- who only looks


def test_a_process_that_only_looks_reads_beside_the_one_that_writes(path: Path) -> None:
    looking = SqliteBackend(str(path), host="looking")
    with opened(path) as backend:
        owned = claim(backend)
        append(backend, owned, "one")
        backend.begin()
        backend.append(batch(owned, "two", first_seq=2))
        assert texts(looking) == ["one"]
        backend.commit()
        assert texts(looking) == ["one", "two"]
        assert stored(looking).host == "here"
    assert ids(looking) == ["a"]
    looking.close()


def test_who_looks_at_a_store_that_was_closed_sees_no_owner(path: Path) -> None:
    with opened(path) as backend:
        claim(backend)
        backend.begin()  # left open
        backend.claim("b", "support")
    looking = SqliteBackend(str(path), host="looking")
    assert ids(looking) == ["a"]
    assert stored(looking).host is None
    looking.close()


def test_looking_makes_no_database(path: Path) -> None:
    looking = SqliteBackend(str(path), host="looking")
    with pytest.raises(StoreBroken, match=r"no SQLite file .* Check the path"):
        looking.load("a", 0)
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreDamaged, match="empty"):
        looking.load("a", 0)


def test_a_store_that_is_not_open_says_so(path: Path) -> None:
    backend = SqliteBackend(str(path), host="here")
    acts: list[Callable[[], object]] = [
        *(backend.begin, backend.commit, backend.reconnect),
        lambda: backend.claim("a", "support"),
    ]
    for act in acts:
        with pytest.raises(StoreBroken, match="not open"):
            act()


@pytest.mark.slow
def test_closing_while_another_thread_reads_disturbs_neither(path: Path) -> None:
    with opened(path) as backend:
        with commit(backend):
            owned = backend.claim("a", "support")
            assert owned is not None
            backend.append(batch(owned, *map(str, range(2_000))))
        failed: list[BaseException] = []
        reading, done = threading.Barrier(2), threading.Event()

        def read() -> None:
            try:
                reading.wait(timeout=60)
                while not done.is_set():
                    with suppress(StoreBroken):  # it is closed now
                        assert len(texts(backend)) == 2_000
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        reading.wait(timeout=60)
        for _ in range(20):  # so that some come in the middle of a read
            backend.close()
            backend.open()
        done.set()
        thread.join(timeout=60)
    assert failed == []


# ---------------------------------------------------------------------- restored copies


def test_the_database_that_was_used_last_is_no_restored_copy(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with opened(path) as backend:
            assert not backend.restored
            append(backend, claim(backend, "b"))
            with commit(backend):
                backend.delete("b")
            backend.begin()
            backend.claim("c", "support")
            backend.rollback()
            owned = claim(backend)
            with commit(backend):
                backend.release(owned)
    assert caplog.records == []


def test_an_older_copy_of_the_database_is_known_as_restored(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(path) as backend:
        owned = claim(backend)
        append(backend, owned, "one")
        copy = copied(path, "backup.db")  # while it is in use, as backups are made
        with commit(backend):
            backend.append(batch(owned, "two", first_seq=2))
    restore(copy, path)
    with caplog.at_level(logging.WARNING), opened(path) as backend:
        assert backend.restored
        assert texts(backend) == ["one"]
    assert "is older than the database that was used here last" in caplog.text


@pytest.mark.slow
def test_an_older_copy_is_known_after_a_kill(path: Path) -> None:
    code = """
from tests.support.batches import append, claim
append(backend, claim(backend), "one")
print("one", flush=True)
sys.stdin.readline()
append(backend, claim(backend, "b"), "two")
print("two", flush=True)
sys.stdin.read()
"""
    with process(code, path) as child:
        assert line_of(child) == "one"
        copy = copied(path, "backup.db")
        cast("IO[str]", child.stdin).write("\n")
        cast("IO[str]", child.stdin).flush()
        assert line_of(child) == "two"
        child.kill()
        child.wait()
    with opened(path) as backend:
        assert not backend.restored
    restore(copy, path)
    with opened(path) as backend:
        assert backend.restored


def test_a_copy_of_the_newest_transaction_lacks_nothing(path: Path) -> None:
    with opened(path) as backend:
        append(backend, claim(backend), "one")
        copy = copied(path, "backup.db")
        claim(backend)  # a claim alone changes no records
    restore(copy, path)
    with opened(path) as backend:
        assert not backend.restored


def test_a_copy_counts_as_restored_until_each_open_run_was_written_again(path: Path) -> None:
    """A runtime that dies before it has marked them all begins with that anew."""
    with opened(path) as backend:
        for each in "ab":
            append(backend, claim(backend, each), "one")
        append(backend, claim(backend, "rests"), "one", index_status=IndexStatus.REST)
        append(backend, claim(backend, "gone"), "one")
        copy = copied(path, "backup.db")
        append(backend, claim(backend, "c"), "lost")
    restore(copy, path)
    with opened(path) as backend:
        assert backend.restored
        append(backend, claim(backend, "a"), "two")
        append(backend, claim(backend, "new"), "one")
        claim(backend, "b")  # this alone writes nothing
    with opened(path) as backend:
        assert backend.restored
        append(backend, claim(backend, "b"), "two")
        with commit(backend):
            backend.delete("gone")
    with opened(path) as backend:
        assert not backend.restored


def test_a_copy_from_a_history_that_was_left_behind_is_restored_too(path: Path) -> None:
    with opened(path) as backend:
        owned = claim(backend)
        append(backend, owned, "one")
        early = copied(path, "early.db")
        for seq in (2, 3, 4):
            with commit(backend):
                backend.append(batch(owned, "left behind", first_seq=seq))
        late = copied(path, "late.db")
    restore(early, path)
    with opened(path) as backend:
        append(backend, claim(backend), "another two")
    restore(late, path)
    with opened(path) as backend:
        assert backend.restored


def test_a_new_database_beside_an_old_sidecar_is_no_restored_copy(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(path) as backend:
        append(backend, claim(backend), "one")
    path.unlink()
    with opened(path) as backend:
        assert not backend.restored
        append(backend, claim(backend), "one")
    with opened(path) as backend:
        assert not backend.restored
    assert caplog.records == []


def test_a_sidecar_that_cannot_be_read_is_written_anew(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sidecar = Path(f"{path}.lock")
    sidecar.write_bytes(b"\xff" * 100)
    with opened(path) as backend:
        append(backend, claim(backend), "one")
        copy = copied(path, "backup.db")
        append(backend, claim(backend, "b"), "one")
    assert "no watermark" in caplog.text
    restore(copy, path)
    with opened(path) as backend:
        assert backend.restored


# ---------------------------------------------------------------------- disks that fail


def test_a_locked_database_is_unavailable_until_it_is_released(path: Path) -> None:
    with opened(path) as backend, closing(sqlite3.connect(path, isolation_level=None)) as other:
        owned = claim(backend)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match="locked"):
            backend.begin()
        backend.rollback()
        backend.reconnect()
        with pytest.raises(StoreUnavailable):
            backend.begin()
        backend.rollback()
        other.execute("ROLLBACK")
        backend.reconnect()
        append(backend, owned, "one")
        assert texts(backend) == ["one"]


def test_a_database_that_is_locked_at_the_opening_is_unavailable(path: Path) -> None:
    with opened(path) as backend:
        append(backend, claim(backend), "one")
    backend = SqliteBackend(str(path), host="here")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            backend.open()
    backend.open()
    assert texts(backend) == ["one"]
    backend.close()


def test_a_store_without_a_connection_is_unavailable_until_it_has_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    with opened(path) as backend:
        append(backend, claim(backend), "one")
        with monkeypatch.context() as patched:
            patched.setattr(sqlite3, "connect", busy)
            for act in (backend.reconnect, backend.begin, backend.commit):
                with pytest.raises(StoreUnavailable):
                    act()
            backend.rollback()
        backend.reconnect()
        claim(backend, "b")
        assert texts(backend) == ["one"]


def test_what_a_snapshot_replaces_and_a_deletion_ends_leaves_no_row(path: Path) -> None:
    """J17."""
    with opened(path) as backend:
        owned = claim(backend)
        append(backend, owned, "one", "two", "three")
        append(backend, claim(backend, "b"), "one")
        with commit(backend):
            backend.compact(batch(owned, "snapshot", first_seq=4))
            backend.delete("b")
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT id FROM records").fetchall() == [((1 << 32) + 4,)]


def test_a_full_disk_keeps_what_was_there_and_works_again_with_room(path: Path) -> None:
    with opened(path, max_pages=75) as backend:
        owned = claim(backend)
        append(backend, owned, "one")
        with commit(backend):
            backend.append(bulk(claim_in(backend, "b"), 20 * PAGE))
        backend.begin()
        with pytest.raises(StoreBroken, match="Make room") as caught:
            backend.append(bulk(owned, 30 * PAGE, first_seq=2))
        assert "full" in caught.value.cause
        assert not caught.value.facts["is_final"]
        backend.rollback()
        assert texts(backend) == ["one"]
        with commit(backend):
            backend.delete("b")
        with commit(backend):
            backend.append(bulk(owned, 20 * PAGE, first_seq=2))
        assert stored(backend).last_seq == 2


def claim_in(backend: SqliteBackend, agent_id: str) -> Owned:
    owned = backend.claim(agent_id, "support")
    assert owned is not None
    return owned


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing beyond fails, as on a broken disk: Python ignores the signal for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_after_an_io_error_nothing_is_written_until_the_store_is_opened_anew(path: Path) -> None:
    """J16."""
    with opened(path, durability="full") as backend:
        owned = claim(backend)
        append(backend, owned, "one")
        lost = bulk(owned, 100 * PAGE, first_seq=2)
        backend.begin()
        backend.append(lost)
        with (
            files_of_at_most(Path(f"{path}-wal").stat().st_size),
            pytest.raises(StoreBroken, match="I/O error") as caught,
        ):
            backend.commit()
        backend.rollback()
        assert "open the store again" in caught.value.facts["remedy"]
        assert caught.value.facts["is_final"]
        for act in (backend.begin, backend.reconnect, backend.begin):
            with pytest.raises(StoreBroken, match="I/O error"):
                act()
        assert texts(backend) == ["one"]  # reading goes on
        backend.open()
        assert not backend.is_committed(lost)
        assert not backend.restored
        with commit(backend):
            backend.append(batch(claim_in(backend, "a"), "two"))
        assert texts(backend) == ["one", "two"]


@contextmanager
def nobody_special() -> Iterator[Path]:
    """A folder that everybody may enter; root stops being root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)


def test_a_read_only_database_is_told_with_a_remedy() -> None:
    with nobody_special() as folder:
        path = folder / "store.db"
        with opened(path) as backend:
            append(backend, claim(backend), "one")
        path.chmod(0o444)
        backend = SqliteBackend(str(path), host="here")
        with pytest.raises(StoreBroken, match="Let this user write the file") as caught:
            backend.open()
        assert not isinstance(caught.value, StoreDamaged)
        path.chmod(0o644)
        backend.open()
        assert texts(backend) == ["one"]
        backend.close()


def test_a_folder_that_may_not_be_written_is_told_with_a_remedy() -> None:
    with nobody_special() as folder:
        (folder / "closed").mkdir(mode=0o555)
        with pytest.raises(StoreBroken, match=r"Permission denied.*may be written"):
            SqliteBackend(str(folder / "closed" / "store.db"), host="here").open()


def test_a_missing_folder_is_told_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(StoreBroken, match="a folder that exists"):
        SqliteBackend(str(tmp_path / "missing" / "store.db"), host="here").open()


def test_a_folder_in_place_of_the_file_is_told_with_a_remedy(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreBroken, match=r"is a folder\. Give the path of a file"):
        SqliteBackend(str(path), host="here").open()
    with pytest.raises(StoreBroken, match=r"is a folder\. Give the path of a file"):
        SqliteBackend(str(path), host="looking").load("a", 0)


def test_a_file_that_is_no_database_is_damaged(path: Path) -> None:
    path.write_bytes(os.urandom(3 * PAGE))
    with pytest.raises(StoreDamaged, match="not a database; perhaps it is another file"):
        SqliteBackend(str(path), host="here").open()
    with pytest.raises(StoreDamaged, match="not a database"):
        SqliteBackend(str(path), host="looking").load("a", 0)


def _filled(path: Path) -> None:
    with opened(path) as backend:
        for each in ("a", "b", "c"):
            with commit(backend):
                backend.append(batch(claim_in(backend, each), *[each * 900] * 40))


def test_a_truncated_database_is_damaged(path: Path) -> None:
    _filled(path)
    os.truncate(path, path.stat().st_size // 2)
    backend = SqliteBackend(str(path), host="here")
    with pytest.raises(StoreDamaged, match="malformed"):  # noqa: PT012 - found at either
        backend.open()
        backend.load("c", 0)
    backend.close()


def test_a_damaged_page_concerns_the_agents_in_it_alone(path: Path) -> None:
    _filled(path)
    with path.open("r+b") as file:
        places = [each.start() for each in re.finditer(b"b{800}", path.read_bytes())]
        middle = places[len(places) // 2]  # among the records of the second agent
        file.seek(middle // PAGE * PAGE)
        file.write(os.urandom(PAGE))
    with opened(path) as backend:
        with pytest.raises(StoreDamaged, match="malformed"):
            backend.load("b", 0)
        assert len(texts(backend, "a")) == len(texts(backend, "c")) == 40
        append(backend, claim(backend, "d"), "one")
        assert texts(backend, "d") == ["one"]


def test_records_that_are_missing_are_told_as_damage(path: Path) -> None:
    _filled(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("DELETE FROM records WHERE id % 4294967296 = 7 AND id >> 32 = 2")
    with opened(path) as backend:
        with pytest.raises(StoreDamaged, match=r"'b'.*records 1 to 40 only 39"):
            backend.load("b", 0)
        assert len(texts(backend, "b", after=7)) == 33


def test_a_record_at_the_next_number_already_is_damage(path: Path) -> None:
    with opened(path) as backend:
        owned = claim(backend)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("INSERT INTO records VALUES ((1 << 32) + 1, 1, 1, 'once', x'00')")
        backend.begin()
        with pytest.raises(StoreDamaged):
            backend.append(batch(owned, "one"))
        backend.rollback()


def _read_and_write_all(path: Path) -> Iterator[Callable[[], object]]:
    """Each way in which a store's rows are read, once."""
    looking = SqliteBackend(str(path), host="looking")

    def load() -> None:
        for agent_id in ("a", "b", "c"):
            stored = looking.load(agent_id, 0)
            for each in stored.records if stored is not None else ():
                decode(each)

    yield load
    yield lambda: looking.agents(None, "", 9)
    yield lambda: looking.agents(set(IndexStatus), "", 9)
    yield looking.key_secret
    yield looking.close
    backend = SqliteBackend(str(path), host="here", durability="off")
    yield backend.open

    def write() -> None:
        try:
            owned = claim_in(backend, "b")
            added = batch(owned, "more")
            with commit(backend):
                backend.append(added)
            backend.is_committed(added)
            with commit(backend):
                backend.delete("c")
        finally:
            backend.rollback()

    yield write
    yield backend.close


def _raised(path: Path) -> list[BaseException]:
    raised: list[BaseException] = []
    for act in _read_and_write_all(path):
        try:
            act()
        except Exception as error:  # whatever comes is looked at
            if "is not open" not in str(error):  # because opening it has failed before
                raised.append(error)
    return raised


def _decodable(path: Path) -> None:
    with opened(path) as backend:
        for each in ("a", "b", "c"):
            agent_with(backend, each, *["x" * 40] * 3)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE agents SET index_status = 'rexx' WHERE agent_id = 'a'",
        "UPDATE agents SET definition = CAST(x'ff' AS TEXT)",
        "UPDATE agents SET last_seq = 4000000000000000000, floor = 3999999999999999997",
        "UPDATE agents SET key = 9000000000000000000 WHERE agent_id = 'a'",
        "UPDATE records SET payload = CAST('[]' AS BLOB)",
        "UPDATE records SET payload = x'ff'",
        "UPDATE records SET version = 0",
        "UPDATE records SET kind = 'rexx'",
        "UPDATE records SET kind = CAST(x'ff' AS TEXT)",
        "DELETE FROM meta",
        """INSERT INTO meta SELECT 2, database, tenure, host, restored_mark, feed_on, feed,
            feed_floor, version, library, format, key_secret, 0, 0 FROM meta""",
    ],
)
def test_a_damaged_row_is_told_as_damage_wherever_it_is_read(path: Path, damage: str) -> None:
    _decodable(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        other.execute(damage)
    raised = _raised(path)
    assert raised
    assert [error for error in raised if not isinstance(error, StoreDamaged)] == []


def test_a_damaged_key_of_an_agent_leads_to_the_records_of_no_other_one(path: Path) -> None:
    """J16: also where its bits above the number of a record are those of another agent."""
    _decodable(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE agents SET key = (1 << 32) + 1 WHERE agent_id = 'b'")
    with opened(path) as backend:
        with pytest.raises(StoreDamaged, match="'b'"):
            backend.load("b", 0)
        with pytest.raises(StoreDamaged, match="'b'"):
            backend.load_latest("b")
        assert not backend.has_text("b", ["once"], "x")
        with commit(backend):
            assert backend.delete("b")
        assert texts(backend, "a") == ["x" * 40] * 3


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_database_that_is_deleted_or_replaced_while_it_is_open_is_not_written_any_more(
    path: Path, suffix: str, *, replaced: bool
) -> None:
    with opened(path) as backend:
        append(backend, owned := claim(backend), "one")
        file = Path(f"{path}{suffix}")
        if replaced:
            other = path.with_name("other")
            other.write_bytes(file.read_bytes())
            other.replace(file)
        else:
            file.unlink()
        with pytest.raises(StoreBroken, match="deleted or replaced") as caught:
            append(backend, replace(owned, last_seq=1), "two")
        assert caught.value.is_final
        with pytest.raises(StoreBroken, match="deleted or replaced"):
            backend.begin()


def test_what_goes_wrong_can_be_told_in_another_process(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError) as caught:
        SqliteBackend(str(path), host="here").open()
    assert caught.value.to_dict()["type"] == "StoreBroken"


# -------------------------------------------------------------------------------- tables


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE agents (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match="a file of its own"):
        SqliteBackend(str(path), host="here").open()
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["epoch = -1", "definition = CAST(x'ff' AS TEXT)"])
def test_a_damaged_row_of_the_index_of_dues_is_told_and_hides_no_other(
    path: Path, damage: str
) -> None:
    """J16, J21: the next page begins behind it."""
    first, second = (
        datetime(2026, 1, 1, tzinfo=timezone.utc),
        datetime(2026, 1, 2, tzinfo=timezone.utc),
    )
    with opened(path) as backend:
        append(backend, claim(backend, "a"), "one", due=first)
        append(backend, claim(backend, "b"), "one", due=second)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(f"UPDATE agents SET {damage} WHERE agent_id = 'a'")
    with opened(path) as backend:
        a, b = backend.due(second, None, 9)
        assert isinstance(a.damage, StoreDamaged)
        assert (a.agent_id, a.due, b.agent_id, b.damage) == ("a", first, "b", None)
        assert backend.due(second, (first, "a"), 9) == [b]


def test_a_due_time_that_is_none_is_told_as_damage_of_its_row(path: Path) -> None:
    with opened(path) as backend:
        append(backend, claim(backend, "a"), "one", due=datetime(2026, 1, 1, tzinfo=timezone.utc))
        append(backend, claim(backend, "b"), "one")
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE agents SET due = 1 << 61 WHERE agent_id = 'a'")
    with opened(path) as backend:
        a, b = backend.agents(None, "", 9)
        assert isinstance(a.damage, StoreDamaged)
        assert b.damage is None


def test_an_sqlite_that_is_too_old_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))
    with pytest.raises(StoreBroken, match=r"3\.37 or newer"):
        SqliteBackend(str(path), host="here").open()


# ------------------------------------------------------------------------------- options


def told(path: Path, monkeypatch: pytest.MonkeyPatch, pragma: str, **options: Any) -> int:
    """What SQLite was told, asked on the writer's own connection."""
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*args: Any, **more: Any) -> sqlite3.Connection:
        made.append(connect(*args, **more))
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    backend = SqliteBackend(str(path), host="here", **options)
    backend.open()
    backend.reconnect()
    (level,) = made[-1].execute(f"PRAGMA {pragma}").fetchone()
    backend.close()
    return int(level)


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1), ("off", 0)])
def test_durability_is_what_sqlite_calls_synchronous(
    path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability, level: int
) -> None:
    assert told(path, monkeypatch, "synchronous", durability=durability) == level


@pytest.mark.parametrize(("durability", "full"), [("full", 1), ("normal", 0), ("off", 0)])
def test_a_sync_reaches_the_disk_on_macos_too(
    path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability, full: int
) -> None:
    """Its `fsync` stops at the cache of the disk; elsewhere this setting changes nothing."""
    assert told(path, monkeypatch, "fullfsync", durability=durability) == full


def test_a_power_cut_loses_nothing_unless_one_asks_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(path, monkeypatch, "synchronous") == 2


def test_wrong_options_are_told_at_once(path: Path) -> None:
    with pytest.raises(UsageError, match=r"'full', 'normal', 'off', got 'fast'"):
        SqliteBackend(str(path), durability=cast("Durability", "fast"), host="here")
    for wrong in ("", ":memory:", "file:x.db?mode=memory"):
        with pytest.raises(UsageError, match="path of a file"):
            SqliteBackend(wrong, host="here")


def test_a_path_with_any_characters_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1? \u00e9 & 'more'.db"
    with opened(path) as backend:
        append(backend, claim(backend), "one")
        assert texts(backend) == ["one"]
    assert path.exists()


# -------------------------------------------------------------------------------- budget


def test_two_hundred_steps_take_at_most_220_kb_more(path: Path) -> None:
    """A step is about five records with 900 bytes together."""
    sizes = (420, 110, 220, 60, 90)
    records = tuple(EncodedRecord("turn_closed", 1, b"x" * size) for size in sizes)
    with opened(path) as backend:
        owned = claim(backend)
    empty = path.stat().st_size
    with opened(path) as backend:
        for step in range(200):
            with commit(backend):
                backend.append(
                    Batch(
                        agent_id="a",
                        incarnation=1,
                        epoch=owned.epoch,
                        first_seq=5 * step + 1,
                        records=records,
                        entry=IndexEntry(IndexStatus.OPEN),
                    )
                )
    assert path.stat().st_size - empty <= 220 * 1024
    assert [p.name for p in sorted(path.parent.iterdir())] == ["store.db", "store.db.lock"]


# ------------------------------------------------------------------ a store of many agents


@pytest.mark.slow
def test_what_is_due_is_found_at_the_same_cost_among_many_far_dues(path: Path) -> None:
    """J21: by an index, in order, however many agents have schedules that come later."""
    first, now = 1_000_000, datetime(1970, 1, 1, 1, tzinfo=timezone.utc)
    with opened(path) as backend:
        owned = agent_with(backend, "model", "one")
        second = batch(owned, "two", first_seq=2)
        entry = second.entry._replace(due=now, agent_status="waiting")
        with commit(backend):
            backend.append(replace(second, entry=entry))
    columns = "definition, incarnation, epoch, last_seq, floor, index_status, mark, deleted"
    fill = f"""
        WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?)
        INSERT INTO agents (agent_id, due, status, {columns})
        SELECT 'agent-' || i, due + i * {first}, status, {columns}
        FROM n, (SELECT * FROM agents WHERE agent_id = 'model')"""
    steps: list[int] = []
    for few, many in ((1, 1_000), (1_001, 100_000)):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(fill, (few, many))
        with opened(path) as backend:
            connected = backend._reading_connection()
            for until, after in (
                (now, None),
                (now.replace(year=9999), None),
                (now.replace(year=9999), (now, "model")),
            ):
                counted = 0

                def step() -> int:
                    nonlocal counted
                    counted += 1
                    return 0

                connected.set_progress_handler(step, 1)
                found = backend.due(until, after, 50)
                connected.set_progress_handler(None, 1)
                dues = [agent.due for agent in found]
                assert dues == sorted(dues, key=lambda due: due or now)
                assert len(found) == (1 if until == now else 50)
                steps.append(counted)
            statements: list[str] = []
            connected.set_trace_callback(statements.append)
            backend.due(now, (now, "a"), 50)
            connected.set_trace_callback(None)
            plan = [
                row[3]
                for statement in statements
                if "due" in statement
                for row in connected.execute(f"EXPLAIN QUERY PLAN {statement}")
            ]
            assert any("agents_by_due" in line for line in plan), plan
            assert not any("TEMP B-TREE" in line for line in plan), plan
    assert steps[:3] == steps[3:], "the cost grows with the number of agents"
