"""Where an app keeps its conversations: a new SQLite file, or a new database of PostgreSQL.

Each tells what the runs have written there. A PostgreSQL server also tells its processor time, the
statements that it got, and the commits.
"""

from __future__ import annotations

import re
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no types
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

__all__ = ["Place", "PostgresPlace", "SqlitePlace", "Traffic", "processor_time"]

_numbers = count(1)
_STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*):")
FLUSHED = 10.5
"""Seconds after which PostgreSQL has put the counts of a session at rest into its statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a PostgreSQL database did for an app."""

    statements: int
    commits: int
    inserted: int
    updated: int
    deleted: int


class Place(ABC):
    """One store, used by one app."""

    kind: str
    url: str

    @abstractmethod
    def rows(self) -> int:
        """Rows of all tables."""

    @abstractmethod
    def written(self, app: psutil.Process) -> int:
        """Bytes that went to the disk so far."""

    def processor(self) -> float | None:
        """Seconds that the database has used; None where it runs inside of the app."""
        return None


class SqlitePlace(Place):
    """A file in this folder."""

    kind = "SQLite"

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / f"service{next(_numbers)}.db"
        self.url = f"sqlite:///{self._path}"

    def rows(self) -> int:
        if not self._path.exists():
            return 0  # the app stores nothing
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            names = [name for (name,) in tables]
            counts = (connection.execute(f'SELECT count(*) FROM "{name}"') for name in names)
            return sum(int(found) for (found,) in map(sqlite3.Cursor.fetchone, counts))

    def written(self, app: psutil.Process) -> int:
        """What the app caused to be written, by its own account: the log and the file."""
        return sum(each.io_counters().write_bytes for each in _with_children(app))


class PostgresPlace(Place):
    """A database of its own at this server, which must be on this machine and be idle otherwise."""

    kind = "PostgreSQL"

    def __init__(self, server: str) -> None:
        self._connection = psycopg.connect(server, autocommit=True)
        self._name = f"service{next(_numbers)}"
        name = sql.Identifier(self._name)
        self._connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        self._connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        plain = server.partition("?")
        self.url = f"{plain[0].rpartition('/')[0]}/{self._name}{plain[1]}{plain[2]}"
        self._conninfo = make_conninfo(server, dbname=self._name)
        self._postmaster = psutil.Process(self._connection.info.backend_pid).parent()

    def close(self) -> None:
        name = sql.Identifier(self._name)
        self._connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        self._connection.close()

    def rows(self) -> int:
        with psycopg.connect(self._conninfo) as connection:
            tables = connection.execute(
                "SELECT schemaname, tablename FROM pg_tables"
                " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
            ).fetchall()
            total = 0
            for table in tables:
                counting = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(*table))
                found = connection.execute(counting).fetchone()
                assert found
                total += found[0]
            return total

    def written(self, app: psutil.Process) -> int:
        """What the server has written into its log."""
        found = self._connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert found
        return int(found[0])

    def processor(self) -> float:
        return processor_time(self._postmaster)

    @contextmanager
    def counted(self) -> Iterator[list[Traffic]]:
        """Count what is done within the block; the list has it when the block has ended.

        Each statement is written into the log of the server, so take no times meanwhile.
        """
        counted: list[Traffic] = []
        self._log_statements("all")
        before, log = self._traffic(), self._log()
        start = log.stat().st_size
        try:
            yield counted
        finally:
            after = self._traffic()
            self._log_statements("none")
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(start)
            statements = sum(1 for line in file if _STATEMENT.search(line) and _OWN not in line)
        counts = (then - now for then, now in zip(after, before, strict=True))
        commits, inserted, updated, deleted = counts
        counted.append(
            Traffic(
                statements=statements,
                commits=commits,
                inserted=inserted,
                updated=updated,
                deleted=deleted,
            )
        )

    def _log_statements(self, which: str) -> None:
        self._connection.execute(f"ALTER SYSTEM SET log_statement = '{which}'")
        self._connection.execute("SELECT pg_reload_conf()")
        time.sleep(0.3)  # each session takes it up by itself

    def _traffic(self) -> tuple[int, ...]:
        time.sleep(FLUSHED)
        found = self._connection.execute(
            f"SELECT xact_commit, tup_inserted, tup_updated, tup_deleted"
            f" FROM pg_stat_database WHERE datname = %s {_OWN}",
            [self._name],
        ).fetchone()
        assert found
        return tuple(int(each) for each in found)

    def _log(self) -> Path:
        found = self._connection.execute("SHOW data_directory").fetchone()
        assert found
        return Path(found[0]) / "log"


_OWN = "/* of the benchmark */"
"""Marks the statements that are not counted."""


def processor_time(root: psutil.Process) -> float:
    """Seconds that this process and its children have used, those that have ended too."""
    own = root.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for each in root.children(recursive=True):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return float(total)


def _with_children(root: psutil.Process) -> list[psutil.Process]:
    return [root, *root.children(recursive=True)]
