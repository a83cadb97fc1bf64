"""The checks of `doctor` on the file or the database of a store."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, LiteralString

from understudy._base.clock import SystemClock
from understudy._base.json_values import text_of
from understudy.cli import servers
from understudy.cli.text import line, some

LITTLE_SPACE = 200 * 1024 * 1024
LARGE_WAL = 256 * 1024 * 1024
FORMAT: LiteralString = "SELECT version, library FROM"
HOSTS: LiteralString = """
SELECT h.name, h.lease_until < clock_timestamp(), count(a.key), h.draining
FROM understudy.hosts h LEFT JOIN understudy.agents a ON a.owner = h.id AND NOT a.deleted
GROUP BY h.id ORDER BY h.id"""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    check: str
    state: Literal["ok", "note", "bad"]
    detail: str


def of_store(store: str, *, quick: bool) -> Iterator[Check]:
    file = servers.file_of(store)
    if file is not None:
        yield from _of_file(file, quick=quick)
    else:
        yield from _of_postgres(store)


def _of_file(path: Path, *, quick: bool) -> Iterator[Check]:
    wal = Path(f"{path}-wal")
    wal_size = wal.stat().st_size if wal.exists() else 0
    size = f"{path.stat().st_size / 1e6:.1f} MB, write-ahead log {wal_size / 1e6:.1f} MB"
    yield Check("size", "note" if wal_size > LARGE_WAL else "ok", size)
    free = shutil.disk_usage(path.parent).free
    yield Check("disk", "bad" if free < LITTLE_SPACE else "ok", f"{free / 1e9:.1f} GB free")
    kind = _file_system(path)
    if kind in ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"):
        yield Check(
            "file system", "bad", f"{kind}: locks of a network file system are not reliable"
        )
    yield Check("runtime", "ok", _holder(path))
    if not os.access(path, os.W_OK):
        yield Check("file", "note", "this user cannot write it")
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            yield Check("schema", "ok", _format(connection.execute(f"{FORMAT} meta")))
            if quick:
                return
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
    except sqlite3.Error as error:
        found = [text_of(error)]
    ok = found == ["ok"]
    yield Check("database", "ok" if ok else "bad", "whole" if ok else "; ".join(found))


def _format(rows: Any) -> str:
    """The format of the store. An unreadable format is refused before."""
    version, library = rows.fetchone()
    return f"format {version}, made by understudy {library}"


def _holder(database: Path) -> str:
    found = servers.holder_of(database)
    if found is None:
        return "none has it open"
    if not found.may_run:
        return f"none runs; the last one was {found.name}"
    return f"{found.name} has it open, or had it last"


def _file_system(path: Path) -> str:
    """The kind of the file system of the file; empty if it is not known."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for mount in mounts:
        fields = mount.split()
        if len(fields) > 2 and len(fields[1]) >= len(best):
            place = Path(fields[1])
            if place == path or place in path.parents:
                best, kind = fields[1], fields[2]
    return kind


def _of_postgres(store: str) -> Iterator[Check]:
    import psycopg

    try:
        with psycopg.connect(store.replace("postgres://", "postgresql://", 1)) as connection:
            row = connection.execute("SELECT version(), clock_timestamp()").fetchone()
            format = _format(connection.execute(f"{FORMAT} understudy.meta"))
            hosts = connection.execute(HOSTS).fetchall()
    except psycopg.Error as error:
        yield Check("database", "bad", text_of(error))
        return
    assert row is not None, "the statement has one row"
    yield Check("database", "ok", str(row[0]).partition(",")[0])
    offset = abs((SystemClock().now() - row[1]).total_seconds())
    yield Check("clock", "note" if offset > 5 else "ok", f"{offset:.1f} s from this machine's")
    yield Check("schema", "ok", format)
    living = [
        f"{line(name)} ({owns} agents{', draining' if draining else ''})"
        for name, is_over, owns, draining in hosts
        if not is_over
    ]
    is_served = any(not is_over and not draining for _, is_over, _, draining in hosts)
    yield Check("hosts", "ok" if is_served else "note", some(living) or "none has it open")
    dead = [f"{line(name)} ({owns} agents)" for name, is_over, owns, _ in hosts if is_over and owns]
    if dead:
        yield Check(
            "dead hosts", "bad", f"{some(dead)}: their leases are over; `recover` continues"
        )
